/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses which running jobs change, in large problems.
 *
 * For any prices, no division in which the jobs S change has more utilization than V(S), see
 * dorm_whole.c. When dorm_patterns.c has solved its program for a set, V at its prices is as small
 * as the solution for this set. So each solution gives one more bound V, a cut, and the least of
 * the cuts tells how good another set can be (Benders 1962).
 *
 * The set with the largest least bound is searched for by exchanges: one job leaves the set, and
 * the job comes in that makes the bound largest. The worth of a node depends on all its jobs that
 * change: often nothing fits there before several of them do.
 *
 * A set can look possible, but the rounding to whole nodes loses a container that some job needs
 * for its min. dorm_patterns.c then raises the minima of this demand by one container. In the cuts
 * that follow, this container is paid for, if its price is above what it is worth to a job.
 */
#include "partition/dorm_choose.h"

#include <math.h>
#include <string.h>

#include "base/util.h"

enum { BOUND_STEPS = 300000 }; /* of dorm_choose_bound(), for 1,000 nodes */

static const double LEAST_GAIN = 1e-7;

bool dorm_choice_init(struct dorm_choice *c, struct dorm_rooms *rooms)
{
    struct dorm_problem *p = rooms->p;
    *c = (struct dorm_choice){ .rooms = rooms };
    c->room = dorm_alloc(p, (size_t)p->n_nodes * rooms->m, sizeof(*c->room));
    c->cell = dorm_alloc(p, p->n_nodes, sizeof(*c->cell));
    c->counted = dorm_alloc(p, p->n_running, sizeof(*c->counted));
    for (uint32_t i = 0; i < p->n_running && !p->failed; i++)
        if (p->jobs[i].kind == DORM_COUNTED)
            c->counted[c->n_counted++] = i;
    return !p->failed;
}

void dorm_choice_add(struct dorm_choice *c, double mu, const bool *raise)
{
    const struct dorm_rooms *r = c->rooms;
    struct dorm_problem *p = r->p;
    if (c->n == DORM_CUTS_MAX) { /* the first ones are the worst */
        struct dorm_cut first = c->cuts[0];
        memmove(c->cuts, c->cuts + 1, sizeof(*c->cuts) * (DORM_CUTS_MAX - 1));
        c->cuts[--c->n] = first;
    }
    struct dorm_cut *cut = &c->cuts[c->n];
    if (!cut->f) {
        cut->f = dorm_alloc(p, r->cells, sizeof(*cut->f));
        cut->gain = dorm_alloc(p, p->n, sizeof(*cut->gain));
    }
    if (p->failed)
        return;
    c->n++;
    memcpy(cut->f, r->f, sizeof(*cut->f) * r->cells);
    cut->rest = mu * dorm_loss_limit(p);
    cut->raised = 0;
    for (uint32_t v = 0; v < r->n_demands && raise; v++)
        if (raise[v])
            cut->raised += MAX(0.0, r->pi[v] - p->jobs[r->example[v]].u);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct dorm_job *job = &p->jobs[i];
        double n, stays = job->u * job->now - dorm_loss_cost(job, job->now, mu);
        if (job->kind != DORM_PINNED)
            cut->gain[i] = dorm_rooms_buy(job, r->pi[r->demand_of[i]], mu, &n) - stays;
        cut->rest += stays + (job->kind == DORM_LOOSE ? cut->gain[i] : 0);
    }
}

/* What V of each cut gains if job i changes too (way: 1), or no longer (-1). */
static void gains(const struct dorm_choice *c, uint32_t i, int way, double *gain)
{
    const struct dorm_rooms *r = c->rooms;
    const struct dorm_job *job = &r->p->jobs[i];
    for (uint32_t t = 0; t < c->n; t++)
        gain[t] = way * c->cuts[t].gain[i];
    for (uint32_t a = 0; a < job->n_at; a++) {
        uint32_t j = job->at[a].node;
        int64_t room[PART_TYPES_MAX];
        dorm_rooms_more(r, i, way * (int64_t)job->at[a].n, c->room + (size_t)j * r->m, room);
        size_t cell = dorm_rooms_cell(r, room);
        for (uint32_t t = 0; t < c->n; t++)
            gain[t] +=
                ((double)c->cuts[t].f[cell] - (double)c->cuts[t].f[c->cell[j]]) * (1 + r->slack);
    }
    dorm_work(&r->p->work, job->n_at / 2 + 1);
}

static void change(struct dorm_choice *c, uint32_t i, int way, double *value)
{
    const struct dorm_rooms *r = c->rooms;
    const struct dorm_job *job = &r->p->jobs[i];
    double gain[DORM_CUTS_MAX];
    gains(c, i, way, gain);
    for (uint32_t t = 0; t < c->n; t++)
        value[t] += gain[t];
    for (uint32_t a = 0; a < job->n_at; a++) {
        uint32_t j = job->at[a].node;
        int64_t *room = c->room + (size_t)j * r->m;
        dorm_rooms_more(r, i, way * (int64_t)job->at[a].n, room, room);
        c->cell[j] = dorm_rooms_cell(r, room);
    }
}

/* The least of the bounds, if each grows by gain (NULL: by 0). */
static double least(const struct dorm_choice *c, const double *value, const double *gain)
{
    double v = INFINITY;
    for (uint32_t t = 0; t < c->n; t++)
        v = MIN(v, value[t] + (gain ? gain[t] : 0));
    return v;
}

/* The job outside of the set with which the bound is largest. DORM_END: it grows with none of
 * them. */
static uint32_t best_to_add(const struct dorm_choice *c, const bool *changes, const double *value)
{
    double gain[DORM_CUTS_MAX], most = least(c, value, NULL) + LEAST_GAIN;
    uint32_t best = DORM_END;
    for (uint32_t k = 0; k < c->n_counted; k++) {
        uint32_t i = c->counted[k];
        if (changes[i])
            continue;
        gains(c, i, 1, gain);
        double v = least(c, value, gain);
        if (v > most) {
            most = v;
            best = i;
        }
    }
    return best;
}

/* Set the rooms and cells for the case that no counted job changes, and value to V of each cut. */
static void begin(struct dorm_choice *c, double *value)
{
    const struct dorm_rooms *r = c->rooms;
    struct dorm_problem *p = r->p;
    for (uint32_t t = 0; t < c->n; t++)
        value[t] = c->cuts[t].rest;
    for (uint32_t j = 0; j < p->n_nodes; j++) {
        int64_t *room = c->room + (size_t)j * r->m;
        dorm_rooms_room(r, j, 0, room);
        c->cell[j] = dorm_rooms_cell(r, room);
        for (uint32_t t = 0; t < c->n; t++)
            value[t] += (double)c->cuts[t].f[c->cell[j]] * (1 + r->slack);
    }
    dorm_work(&p->work, (uint64_t)p->n_nodes * c->n / 8);
}

double dorm_choose_bound(struct dorm_choice *c)
{
    struct dorm_problem *p = c->rooms->p;
    double none[DORM_CUTS_MAX], one[DORM_CUTS_MAX], gain[DORM_CUTS_MAX];
    if (p->adjust_bound > 2 || c->n == 0)
        return INFINITY;
    begin(c, none);
    double most = least(c, none, NULL);
    uint64_t end = p->work.steps + BOUND_STEPS * dorm_times_of(p);
    for (uint32_t a = 0; a < c->n_counted && !p->work.over; a++) {
        if (p->work.steps >= end)
            return INFINITY;
        memcpy(one, none, sizeof(one));
        change(c, c->counted[a], 1, one);
        most = MAX(most, least(c, one, NULL));
        for (uint32_t b = a + 1; b < c->n_counted && p->adjust_bound == 2; b++) {
            gains(c, c->counted[b], 1, gain);
            most = MAX(most, least(c, one, gain));
        }
        change(c, c->counted[a], -1, one);
    }
    return p->work.over ? INFINITY : most;
}

double dorm_choose(struct dorm_choice *c, bool *changes, unsigned sweeps)
{
    struct dorm_problem *p = c->rooms->p;
    double value[DORM_CUTS_MAX];
    uint32_t n = 0;
    begin(c, value);
    for (uint32_t t = 0; t < c->n; t++)
        value[t] -= c->cuts[t].raised;
    for (uint32_t k = 0; k < c->n_counted; k++)
        if (changes[c->counted[k]]) {
            change(c, c->counted[k], 1, value);
            n++;
        }
    bool better = true;
    for (unsigned sweep = 0; sweep < sweeps && better && !p->work.over; sweep++) {
        better = false;
        for (uint32_t k = 0; k < c->n_counted; k++) {
            uint32_t out = c->counted[k], in;
            if (!changes[out])
                continue;
            double before = least(c, value, NULL);
            changes[out] = false;
            change(c, out, -1, value);
            in = best_to_add(c, changes, value);
            if (in == DORM_END) { /* the bound is no smaller without the job */
                n--;
                better = true;
                continue;
            }
            changes[in] = true;
            change(c, in, 1, value);
            better |= least(c, value, NULL) > before + LEAST_GAIN;
        }
        for (uint32_t in; n < p->adjust_bound; n++) {
            in = best_to_add(c, changes, value);
            if (in == DORM_END)
                break;
            changes[in] = true;
            change(c, in, 1, value);
            better = true;
        }
    }
    return least(c, value, NULL);
}
