/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An upper bound for all sets S of at most Q counted jobs that change, if Q is small. See
 * dorm_whole.c for f_j(S), stays_i, changes_i and V(S).
 *
 * Often nothing fits on a node before several of its jobs change. So what one job gains depends on
 * which others change, and these are at most Q - 1. For a set T of jobs on node j:
 *
 *   G_j(T)       f_j(T) - f_j(no jobs)
 *   part_ij(T)   what job i of T gets of it: G_j(T) * w_ij / sum of w_kj over the jobs k of T
 *
 * The parts of all jobs of T are G_j(T) together, so
 *
 *   V(S) = mu * B + sum over j of f_j(no jobs) + sum of changes_i over the loose jobs + sum of
 *          stays_i over the others + sum over i of S of
 *          (changes_i - stays_i + sum over j of part_ij(the jobs of S on j))
 *
 * The part of i is limited by what each other job k of T adds to it:
 *
 *   alone_ij     part_ij(only i)
 *   with_ijk     part_ij(i and k) - alone_ij; and if the part of i is larger than the sum of these
 *                when all jobs of j change, a share of the difference by w_kj
 *   beyond_ij    the largest part_ij(T) - alone_ij - sum of with_ijk over the others k of T; at
 *                least 0 (T = only i)
 *   gain_i       changes_i - stays_i + sum over j of (alone_ij + beyond_ij) + sum of the Q - 1
 *                largest (sum over j of with_ijk) above 0, over the other jobs k
 *   bound        the first four terms of V(S) + sum of the Q largest gains above 0
 *
 * This holds for any w_ij > 0. If i is one of the Q jobs and counts on k, but k is not one of them
 * or does not count on i, then w_ij falls and w_kj rises: i gets less of what both free together.
 */
#include "partition/dorm_partners.h"

#include <math.h>
#include <string.h>

#include "base/util.h"

enum { JOBS_MAX = 4000, ROUNDS = 25, TRIED = 8, SETS = 1 << DORM_SHARED_MAX };

static const double LAST_PART = 0.3, SHORTER = 0.8, POWER_MAX = 20;
static const double TOO_FAR = 1.03; /* after TRIED rounds: this many times the known bound */

bool dorm_partners_init(struct dorm_partners *c, const struct dorm_rooms *rooms)
{
    struct dorm_problem *p = rooms->p;
    *c = (struct dorm_partners){ .rooms = rooms };
    if (p->n_running > JOBS_MAX)
        return true;
    double **by_place[] = { &c->weight, &c->start, &c->power, &c->best_power, &c->mean };
    double **by_job[] = { &c->gain, &c->by_gain, &c->with, &c->by_with };
    for (unsigned a = 0; a < ARRAY_LEN(by_place); a++)
        *by_place[a] = dorm_alloc(p, rooms->first[p->n_nodes], sizeof(double));
    for (unsigned a = 0; a < ARRAY_LEN(by_job); a++)
        *by_job[a] = dorm_alloc(p, p->n, sizeof(double));
    c->beside = dorm_alloc(p, p->n, sizeof(*c->beside));
    c->counts_on = dorm_alloc(p, (size_t)p->n_running * p->n_running, sizeof(*c->counts_on));
    return !p->failed;
}

/* The sum of the q largest of v[0..n) above 0. *least: the least of these; infinite: none. The
 * order of v changes. */
static double sum_of_largest(double *v, size_t n, size_t q, double *least)
{
    double sum = 0;
    size_t positive = 0;
    for (size_t c = 0; c < n; c++)
        if (v[c] > 0)
            v[positive++] = v[c];
    q = MIN(q, positive);
    *least = INFINITY;
    if (q == 0)
        return 0;
    *least = dorm_select_largest(v, positive, q);
    for (size_t c = 0; c < positive; c++)
        if (v[c] > *least) {
            sum += v[c];
            q--;
        }
    return sum + *least * (double)q;
}

/* Set part[T]: what the job at place `me` of node j gets more than alone, if the others T change,
 * too. Returns alone_ij. */
static double parts_of(const struct dorm_partners *c, uint32_t j, uint32_t me, double *part)
{
    const struct dorm_rooms *r = c->rooms;
    const size_t *cell = c->cell + c->first_set[j];
    const double *weight = c->weight + r->first[j];
    double none = dorm_rooms_at(r, cell[0]), sum[SETS];
    uint32_t sets = 1u << dorm_shared(r, j), mine = 1u << me;
    double alone = dorm_rooms_at(r, cell[mine]) - none;
    sum[0] = weight[me];
    part[0] = 0;
    for (uint32_t set = 1; set < sets; set++) {
        uint32_t low = (uint32_t)__builtin_ctz(set);
        sum[set] = sum[set & (set - 1)] + (low == me ? 0 : weight[low]);
        if (!(set & mine))
            part[set] = (dorm_rooms_at(r, cell[set | mine]) - none) * weight[me] / sum[set] - alone;
    }
    return alone;
}

/* Set with[place of k] for the job at place `me` of node j. Returns beyond_ij. */
static double split_parts(const struct dorm_partners *c, uint32_t j, uint32_t me,
                          const double *part, double *with)
{
    const double *weight = c->weight + c->rooms->first[j];
    uint32_t n = dorm_shared(c->rooms, j), sets = 1u << n, mine = 1u << me;
    double rest = part[(sets - 1) & ~mine], others = 0, beyond = 0, sum[SETS];
    for (uint32_t k = 0; k < n; k++) {
        with[k] = k == me ? 0 : part[1u << k];
        others += k == me ? 0 : weight[k];
        rest -= with[k];
    }
    for (uint32_t k = 0; k < n && rest > 0 && n > 1; k++)
        with[k] += k == me ? 0 : rest * weight[k] / others;
    sum[0] = 0;
    for (uint32_t set = 1; set < sets; set++) {
        sum[set] = sum[set & (set - 1)] + with[__builtin_ctz(set)];
        if (!(set & mine))
            beyond = MAX(beyond, part[set] - sum[set]);
    }
    return beyond;
}

/* Add up alone_ij + beyond_ij of job i over its nodes. Sets `with` of the jobs beside it. */
static double sum_of_parts(struct dorm_partners *c, uint32_t i)
{
    const struct dorm_rooms *r = c->rooms;
    const struct dorm_job *job = &r->p->jobs[i];
    double total = 0, part[SETS], with[DORM_SHARED_MAX];
    c->n_beside = 0;
    for (uint32_t a = 0; a < job->n_at; a++) {
        uint32_t j = job->at[a].node, n = dorm_shared(r, j), me = 0;
        const struct dorm_held *held = r->held + r->first[j];
        while (me < n && held[me].job != i)
            me++;
        if (me == n)
            continue; /* f_j(no jobs) contains what it frees */
        total += parts_of(c, j, me, part);
        total += split_parts(c, j, me, part, with);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t other = held[k].job;
            if (k == me)
                continue;
            if (!c->counts_on[(size_t)i * r->p->n_running + other]) {
                c->counts_on[(size_t)i * r->p->n_running + other] = 1;
                c->with[other] = 0;
                c->beside[c->n_beside++] = other;
            }
            c->with[other] += with[k];
        }
        dorm_work(&r->p->work, (1u << n) / 8 + 1);
    }
    return total;
}

/* gain_i, and the jobs that it counts on. own: changes_i - stays_i. */
static double gain_of(struct dorm_partners *c, uint32_t i, double own)
{
    struct dorm_problem *p = c->rooms->p;
    uint8_t *counts_on = c->counts_on + (size_t)i * p->n_running;
    double least;
    memset(counts_on, 0, p->n_running);
    own += sum_of_parts(c, i);
    for (uint32_t b = 0; b < c->n_beside; b++)
        c->by_with[b] = c->with[c->beside[b]];
    own += sum_of_largest(c->by_with, c->n_beside, p->adjust_bound - 1, &least);
    for (uint32_t b = 0; b < c->n_beside; b++)
        counts_on[c->beside[b]] = c->with[c->beside[b]] >= least;
    return own;
}

/* The bound for the present weights. */
static double evaluate(struct dorm_partners *c)
{
    const struct dorm_rooms *r = c->rooms;
    struct dorm_problem *p = r->p;
    double bound = c->mu * dorm_loss_limit(p), n;
    size_t counted = 0;
    for (uint32_t j = 0; j < p->n_nodes; j++)
        bound += dorm_rooms_at(r, c->cell[c->first_set[j]]);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct dorm_job *job = &p->jobs[i];
        double stays = job->u * job->now - dorm_loss_cost(job, job->now, c->mu);
        double changes = 0;
        if (job->kind != DORM_PINNED)
            changes = dorm_rooms_buy(job, r->pi[r->demand_of[i]], c->mu, &n);
        bound += job->kind == DORM_LOOSE ? changes : stays;
        if (job->kind == DORM_COUNTED)
            c->by_gain[counted++] = c->gain[i] = gain_of(c, i, changes - stays);
    }
    dorm_work(&p->work, p->n_nodes / 8 + p->n);
    return bound + sum_of_largest(c->by_gain, counted, p->adjust_bound, &c->least);
}

/* Is i one of the Q jobs, and does it count on k? */
static bool claims(const struct dorm_partners *c, uint32_t i, uint32_t k)
{
    return c->gain[i] >= c->least && c->counts_on[(size_t)i * c->rooms->p->n_running + k];
}

/* Move the weights from the best ones: w_ij = start_ij * exp(power_ij). */
static void step(struct dorm_partners *c, double part, double size)
{
    const struct dorm_rooms *r = c->rooms;
    for (uint32_t j = 0; j < r->p->n_nodes; j++)
        for (uint32_t a = r->first[j]; a < r->first[j + 1]; a++) {
            double over = 0;
            for (uint32_t b = r->first[j]; b < r->first[j + 1]; b++)
                if (a != b)
                    over += (double)claims(c, r->held[b].job, r->held[a].job) -
                            (double)claims(c, r->held[a].job, r->held[b].job);
            c->mean[a] += part * (over - c->mean[a]);
            c->power[a] = MIN(MAX(c->best_power[a] + size * c->mean[a], -POWER_MAX), POWER_MAX);
            c->weight[a] = c->start[a] * exp(c->power[a]);
        }
    dorm_work(&r->p->work, r->first[r->p->n_nodes]);
}

double dorm_partners_bound(struct dorm_partners *c, double enough, double known, uint64_t end)
{
    const struct dorm_rooms *r = c->rooms;
    struct dorm_problem *p = r->p;
    size_t places = r->first[p->n_nodes];
    double best = INFINITY, size = 1;
    if (!c->counts_on)
        return best;
    for (size_t a = 0; a < places; a++) {
        c->start[a] = r->pi[r->demand_of[r->held[a].job]] * r->held[a].n + 1e-9;
        c->weight[a] = c->start[a];
        c->power[a] = c->best_power[a] = c->mean[a] = 0;
    }
    for (unsigned round = 0; round < ROUNDS && best > enough; round++) {
        if (p->work.over || (round > 0 && p->work.steps >= end))
            break;
        double bound = evaluate(c);
        if (bound < best) {
            best = bound;
            memcpy(c->best_power, c->power, sizeof(*c->power) * places);
        } else {
            size *= SHORTER;
        }
        if (round == TRIED && best > known * TOO_FAR)
            break;
        step(c, MAX(LAST_PART, 1.0 / (round + 1)), size);
    }
    return best;
}
