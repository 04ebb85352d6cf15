/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An upper bound from whole containers, in large problems with running jobs.
 *
 * The prices of dorm_bound.c add up the room of all nodes of a class, as if containers could be
 * cut. Here containers have prices instead (pi_i for one of job i), and each node sells whole ones:
 * its room is worth f(room), see dorm_rooms.h. S is the set of the running jobs that change.
 *
 *   f_j(S)       f(the room that is free on node j if the jobs S hold nothing there)
 *   stays_i      u_i * now_i - mu * D_i * |now_i - ideal_i|
 *   changes_i    the largest (u_i - pi_i) * n - mu * D_i * |n - ideal_i| with min <= n <= max
 *   V(S)         mu * B + sum over j of f_j(S) + sum of changes_i over S and the loose jobs + sum
 *                of stays_i over the other jobs
 *
 * No division in which the jobs S change has more utilization than V(S). Proof: its utilization is
 * the sum of u_i * n_i, and mu * (B - F) is not below 0. Subtract pi_i for each container of a job
 * that changes, and add it again on its node: there, the containers of the jobs that change fit
 * into the room that these jobs leave free, so they cost at most f_j(S).
 *
 * 1. dorm_whole_prices() looks for prices at which the largest V(S) is small. dorm_choose.h finds a
 *    set S whose V is large, the best one as far as it can be seen. Then the prices move: a price
 *    falls if the nodes sell more containers of this demand than the jobs S and the loose jobs want
 *    (steps of the volume algorithm, as in dorm_bound.c).
 *
 * 2. dorm_whole_bound() proves a bound for all sets S at these prices: the lower one of that of
 *    dorm_partners.c and of the following one. Each job gets an amount freed_ij >= 0 for leaving
 *    node j, and
 *
 *      top_j     the largest f_j(T) - sum over T of freed_ij, over all sets T of jobs on j
 *      gain_i    changes_i + sum over j of freed_ij - stays_i
 *      bound     mu * B + sum over j of top_j + sum of changes_i over the loose jobs + sum of
 *                stays_i over the others + sum of the Q largest gains above 0
 *
 *    Since f_j(S) <= top_j + sum over the jobs of S on j of freed_ij, this is at least V(S) for
 *    each S with at most Q jobs, whatever the freed_ij are. So they change like prices, too: where
 *    a node needs job i for its best set T, but i is not among the Q jobs, freed_ij rises; in the
 *    opposite case it falls. At the end, job i of a node gets only what its change is needed for.
 *    With more than DORM_SHARED_MAX jobs on a node, the further ones have freed_ij = 0, and top_j
 * is computed as if they changed in any case: f_j grows with T, so it is not too small.
 */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "partition/dorm_choose.h"
#include "partition/dorm_partners.h"

enum {
    ROUNDS = 25,
    VAIN = 8,
    FEW_ROUNDS = 4, /* fewer rounds gain nothing: then none is made */
    SHARE_ROUNDS = 120,
    TRIED = 15, /* rounds after which a bound that is too far above the known one is given up */
};

static const double LAST_PART = 0.12, SHORTER = 0.87, FIRST_STEP = 0.005;
static const double SHARE_FIRST = 0.01;
static const double TOO_FAR = 0.01;
static const double SHARE_PART = 0.2, SHARE_SHORTER = 0.92; /* the same for dorm_whole_bound() */

struct whole {
    struct dorm_problem *p;
    struct dorm_rooms rooms;
    struct dorm_choice choice;
    struct dorm_partners partners;
    double *freed, *gain, *want; /* [job] */
    double *by_gain;
    bool *changes;
    double *over, slack; /* [demand]: containers sold less those wanted; B less the loss */
    double *mean, mean_slack;
    double mu, *best_pi, best_mu, best;
    uint32_t n; /* the number of jobs that take part: for others, all this is made again */

    uint32_t *nodes_with; /* [cell] */
    size_t *different;    /* the cells of the rooms of all nodes, each once */

    /* for dorm_whole_bound(); by place of a counted job: the index in rooms.held */
    double *share, *best_share, *mean_share; /* freed_ij; mean: how often T has i, less r_i */
    double *weight;                          /* the price of what i holds on j */
    bool *taken;                             /* is i in the best T of j? */
    uint32_t *first_set;                     /* [node + 1] */
    size_t *cell;                            /* [first_set[j] + T]: of the room if T changes */
};

/* The part of the bound that the jobs are, for the present freed. Sets gain, want and changes. */
static double change_best(struct whole *w)
{
    struct dorm_problem *p = w->p;
    double bound = w->mu * dorm_loss_limit(p);
    size_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct dorm_job *job = &p->jobs[i];
        double stays = job->u * job->now - dorm_loss_cost(job, job->now, w->mu);
        double changes = 0;
        if (job->kind != DORM_PINNED)
            changes = dorm_rooms_buy(job, w->rooms.pi[w->rooms.demand_of[i]], w->mu, &w->want[i]);
        w->changes[i] = job->kind == DORM_LOOSE;
        w->gain[i] = changes + w->freed[i] - stays;
        bound += job->kind == DORM_LOOSE ? changes : stays;
        if (job->kind == DORM_COUNTED && w->gain[i] > 0)
            w->by_gain[n++] = w->gain[i];
    }
    size_t q = MIN((size_t)p->adjust_bound, n);
    double least = q > 0 ? dorm_select_largest(w->by_gain, n, q) : INFINITY;
    for (int equal = 0; equal <= 1; equal++)
        for (uint32_t i = 0; i < p->n && q > 0; i++)
            if (p->jobs[i].kind == DORM_COUNTED &&
                (equal ? w->gain[i] == least : w->gain[i] > least)) {
                w->changes[i] = true;
                bound += w->gain[i];
                q--;
            }
    dorm_work(&p->work, p->n);
    return bound;
}

/* Set over and slack for the jobs that change. */
static void compare(struct whole *w)
{
    struct dorm_problem *p = w->p;
    const struct dorm_rooms *r = &w->rooms;
    uint32_t n = 0;
    memset(w->over, 0, sizeof(*w->over) * r->n_demands);
    w->slack = dorm_loss_limit(p);
    for (uint32_t j = 0; j < p->n_nodes; j++) { /* many nodes have the same room */
        size_t cell = w->choice.cell[j];
        if (w->nodes_with[cell]++ == 0)
            w->different[n++] = cell;
    }
    for (uint32_t c = 0; c < n; c++) {
        dorm_rooms_sell(r, w->different[c], w->nodes_with[w->different[c]], w->over);
        w->nodes_with[w->different[c]] = 0;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        const struct dorm_job *job = &p->jobs[i];
        double count = w->changes[i] ? w->want[i] : job->now;
        w->slack -= dorm_loss_of(job, count);
        if (w->changes[i])
            w->over[r->demand_of[i]] -= count;
    }
    dorm_work(&p->work, p->n_nodes / 4 + n * 8);
}

/* Move the prices from the best ones by the mean of what was sold too much. False: that is 0. */
static bool step(struct whole *w, double part, double fall)
{
    const struct dorm_rooms *r = &w->rooms;
    double norm = 0;
    for (uint32_t v = 0; v < r->n_demands; v++) {
        double u = w->p->jobs[r->example[v]].u;
        w->mean[v] += part * (w->over[v] - w->mean[v]);
        if (w->mean[v] < 0 || w->best_pi[v] > 0)
            norm += w->mean[v] * w->mean[v] * u * u;
    }
    w->mean_slack += part * (w->slack - w->mean_slack);
    if (w->mean_slack < 0 || w->best_mu > 0)
        norm += w->mean_slack * w->mean_slack;
    if (norm < 1e-16)
        return false;
    for (uint32_t v = 0; v < r->n_demands; v++) {
        double u = w->p->jobs[r->example[v]].u;
        r->pi[v] = MAX(0.0, w->best_pi[v] - fall / norm * w->mean[v] * u * u);
    }
    w->mu = MAX(0.0, w->best_mu - fall / norm * w->mean_slack);
    return true;
}

/* ---- the freed_ij as prices */

/* List the cells of the rooms of a node, for all sets T. */
static void list_cells_of(struct whole *w, uint32_t j)
{
    const struct dorm_rooms *r = &w->rooms;
    int64_t room[1u << DORM_SHARED_MAX][PART_TYPES_MAX];
    uint32_t sets = 1u << dorm_shared(r, j);
    dorm_rooms_room(r, j, ~0u << DORM_SHARED_MAX, room[0]);
    for (uint32_t set = 0; set < sets; set++) {
        if (set > 0) { /* the last job of the set leaves the room of the others */
            uint32_t last = 31 - (uint32_t)__builtin_clz(set);
            const struct dorm_held *held = &r->held[r->first[j] + last];
            dorm_rooms_more(r, held->job, held->n, room[set - (1u << last)], room[set]);
        }
        w->cell[w->first_set[j] + set] = dorm_rooms_cell(r, room[set]);
    }
    dorm_work(&w->p->work, sets / 4 + 1);
}

/* Memory for the freed_ij, and the cells of all nodes. */
static bool list_cells(struct whole *w)
{
    struct dorm_problem *p = w->p;
    const struct dorm_rooms *r = &w->rooms;
    size_t held = r->first[p->n_nodes];
    double **rows[] = { &w->share, &w->best_share, &w->mean_share, &w->weight };
    if (w->cell)
        return true;
    for (unsigned c = 0; c < ARRAY_LEN(rows); c++)
        *rows[c] = dorm_alloc(p, held, sizeof(double));
    w->taken = dorm_alloc(p, held, sizeof(*w->taken));
    w->first_set = dorm_alloc(p, (size_t)p->n_nodes + 1, sizeof(*w->first_set));
    for (uint32_t j = 0; j < p->n_nodes && !p->failed; j++)
        w->first_set[j + 1] = w->first_set[j] + (1u << dorm_shared(r, j));
    w->cell = p->failed ? NULL : dorm_alloc(p, w->first_set[p->n_nodes], sizeof(*w->cell));
    for (uint32_t j = 0; j < p->n_nodes && !p->failed; j++)
        list_cells_of(w, j);
    if (p->failed || !dorm_partners_init(&w->partners, r))
        return false;
    w->partners.cell = w->cell;
    w->partners.first_set = w->first_set;
    return true;
}

/* Each job of a node gets a part of what the node frees if all of them change. */
static void first_shares(struct whole *w)
{
    const struct dorm_rooms *r = &w->rooms;
    for (uint32_t j = 0; j < w->p->n_nodes; j++) {
        const size_t *cell = w->cell + w->first_set[j];
        uint32_t from = r->first[j], n = dorm_shared(r, j);
        double sum = 0, all = dorm_rooms_at(r, cell[(1u << n) - 1]) - dorm_rooms_at(r, cell[0]);
        for (uint32_t h = from; h < from + n; h++) {
            w->weight[h] = r->pi[r->demand_of[r->held[h].job]] * r->held[h].n + 1e-9;
            sum += w->weight[h];
        }
        for (uint32_t h = from; h < from + n; h++)
            w->share[h] = all * w->weight[h] / sum;
    }
    memcpy(w->best_share, w->share, sizeof(*w->share) * r->first[w->p->n_nodes]);
    memset(w->mean_share, 0, sizeof(*w->mean_share) * r->first[w->p->n_nodes]);
}

/* top_j for the present shares. Sets taken, and adds the shares to freed. */
static double top_of(struct whole *w, uint32_t j)
{
    const struct dorm_rooms *r = &w->rooms;
    const size_t *cell = w->cell + w->first_set[j];
    const double *share = w->share + r->first[j];
    uint32_t n = dorm_shared(r, j), best = 0;
    double sum[1u << DORM_SHARED_MAX], top = dorm_rooms_at(r, cell[0]);
    sum[0] = 0;
    for (uint32_t c = 0, sets = 1; c < n; c++, sets *= 2)
        for (uint32_t set = sets; set < 2 * sets; set++) { /* those whose last job is c */
            sum[set] = sum[set - sets] + share[c];
            double value = dorm_rooms_at(r, cell[set]) - sum[set];
            if (value > top) {
                top = value;
                best = set;
            }
        }
    for (uint32_t c = 0; c < n; c++) {
        w->taken[r->first[j] + c] = best >> c & 1;
        w->freed[r->held[r->first[j] + c].job] += share[c];
    }
    return top;
}

/* Move the shares from the best ones by the mean of taken - r_i. */
static bool step_shares(struct whole *w, double part, double fall)
{
    const struct dorm_rooms *r = &w->rooms;
    double norm = 0;
    for (uint32_t h = 0; h < r->first[w->p->n_nodes]; h++) {
        double over = (double)w->taken[h] - (double)w->changes[r->held[h].job];
        w->mean_share[h] += part * (over - w->mean_share[h]);
        norm += w->mean_share[h] * w->mean_share[h] * w->weight[h] * w->weight[h];
    }
    for (uint32_t h = 0; h < r->first[w->p->n_nodes] && norm > 1e-16; h++)
        w->share[h] = MAX(0.0, w->best_share[h] +
                                   fall / norm * w->mean_share[h] * w->weight[h] * w->weight[h]);
    return norm > 1e-16;
}

/* Lower the bound for the present pi and mu by other freed_ij. known: a bound that is known; if
 * that is far below, the rounds end soon. end: of the steps. */
static void share_rounds(struct whole *w, double known, uint64_t end)
{
    struct dorm_problem *p = w->p;
    uint32_t held = w->rooms.first[p->n_nodes];
    double size = SHARE_FIRST, best = INFINITY;
    first_shares(w);
    for (unsigned round = 0; round < SHARE_ROUNDS && !p->work.over; round++) {
        if (round > 0 && p->work.steps >= end)
            break;
        double bound = 0;
        memset(w->freed, 0, sizeof(*w->freed) * p->n);
        for (uint32_t j = 0; j < p->n_nodes; j++)
            bound += top_of(w, j);
        bound += change_best(w);
        if (bound < best) {
            best = bound;
            memcpy(w->best_share, w->share, sizeof(*w->share) * held);
        } else {
            size *= SHARE_SHORTER;
        }
        dorm_work(&p->work, w->first_set[p->n_nodes] / 8 + held / 4);
        if (round == TRIED && best > known * (1 + TOO_FAR))
            break;
        double part = MAX(SHARE_PART, 1.0 / (round + 1));
        if (!step_shares(w, part, size * best))
            break;
    }
    w->best = MIN(w->best, best);
}

/* The data that dorm_whole_prices() and dorm_whole_bound() share for these jobs. NULL: out of
 * memory, or no table of rooms can be made. */
static struct whole *whole_of(struct dorm_problem *p, struct dorm_prices *prices)
{
    struct whole *w = prices->whole;
    if (w && w->n == p->n)
        return w;
    w = dorm_alloc(p, 1, sizeof(*w));
    if (!w)
        return NULL;
    *w = (struct whole){ .p = p, .n = p->n };
    if (!dorm_rooms_init(&w->rooms, p, 1))
        return NULL;
    double **rows[] = {
        &w->freed, &w->gain, &w->want, &w->by_gain, &w->over, &w->mean, &w->best_pi
    };
    for (unsigned c = 0; c < ARRAY_LEN(rows); c++)
        *rows[c] = dorm_alloc(p, p->n_all, sizeof(double));
    w->changes = dorm_alloc(p, p->n_all, sizeof(*w->changes));
    if (p->failed)
        return NULL;
    return prices->whole = w;
}

struct dorm_rooms *dorm_whole_rooms(const struct dorm_problem *p, const struct dorm_prices *prices)
{
    return prices->whole && prices->whole->n == p->n ? &prices->whole->rooms : NULL;
}

/* V at the present prices, for the best set of jobs that is found. Sets want and changes. */
static double evaluate(struct whole *w)
{
    struct dorm_problem *p = w->p;
    const struct dorm_rooms *r = &w->rooms;
    dorm_rooms_fill(&w->rooms);
    w->choice.n = 0;
    dorm_choice_add(&w->choice, w->mu, NULL);
    for (uint32_t i = 0; i < p->n; i++)
        if (p->jobs[i].kind != DORM_PINNED)
            (void)dorm_rooms_buy(&p->jobs[i], r->pi[r->demand_of[i]], w->mu, &w->want[i]);
    return dorm_choose(&w->choice, w->changes, 1);
}

static bool note(struct whole *w, double bound)
{
    if (bound >= w->best)
        return false;
    w->best = bound;
    w->best_mu = w->mu;
    memcpy(w->best_pi, w->rooms.pi, sizeof(*w->best_pi) * w->rooms.n_demands);
    return true;
}

/* Begin with the better ones of two prices. */
static void find_start(struct whole *w, const struct dorm_prices *prices)
{
    for (int dear = 0; dear <= 1; dear++) {
        dorm_rooms_start(&w->rooms, prices, dear);
        note(w, evaluate(w));
    }
    memcpy(w->rooms.pi, w->best_pi, sizeof(*w->best_pi) * w->rooms.n_demands);
}

void dorm_whole_prices(struct dorm_problem *p, struct dorm_prices *prices, uint64_t steps)
{
    uint64_t end = p->work.steps + steps;
    double size = FIRST_STEP;
    unsigned vain = 0; /* rounds without gain */
    struct whole *w = whole_of(p, prices);
    if (!w || !dorm_choice_init(&w->choice, &w->rooms))
        return;
    w->mu = prices->least_loss;
    w->best = INFINITY;
    w->nodes_with = dorm_alloc(p, w->rooms.cells, sizeof(*w->nodes_with));
    w->different = dorm_alloc(p, p->n_nodes, sizeof(*w->different));
    if (p->failed)
        return;
    for (uint32_t i = 0; i < p->n; i++)
        w->changes[i] = p->jobs[i].kind == DORM_LOOSE;
    uint64_t before = p->work.steps;
    find_start(w, prices);
    uint64_t one = (p->work.steps - before) / 2; /* the steps of a round */
    bool few = p->work.steps + FEW_ROUNDS * one > end;
    for (unsigned round = 0;
         round < ROUNDS && vain < VAIN && p->work.steps < end && !p->work.over && !few; round++) {
        double bound = evaluate(w);
        compare(w);
        bool better = note(w, bound);
        vain = better ? 0 : vain + 1;
        size *= better ? 1 : SHORTER;
        if (!step(w, MAX(LAST_PART, 1.0 / (round + 1)), size * w->best))
            break;
    }
    if (!isfinite(w->best))
        return;
    double *pi = dorm_alloc(p, w->rooms.n_demands, sizeof(*pi));
    if (!pi)
        return;
    memcpy(pi, w->best_pi, sizeof(*pi) * w->rooms.n_demands);
    prices->pi = pi;
    prices->pi_loss = w->best_mu;
}

void dorm_whole_bound(struct dorm_problem *p, struct dorm_prices *prices, const double *pi,
                      double mu, double enough, uint64_t steps)
{
    struct whole *w = whole_of(p, prices);
    uint64_t end = p->work.steps + steps;
    if (!w || !list_cells(w))
        return;
    memmove(w->rooms.pi, pi, sizeof(*pi) * w->rooms.n_demands);
    w->mu = w->partners.mu = mu;
    dorm_rooms_fill(&w->rooms);
    w->best = dorm_partners_bound(&w->partners, enough, prices->upper, end);
    if (w->best > enough && p->work.steps < end)
        share_rounds(w, MIN(prices->upper, w->best), end);
    prices->upper = MIN(prices->upper, w->best);
}
