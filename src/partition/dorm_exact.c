/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Branch and bound. The outer loop goes through the sets of jobs that may be adjusted. All other
 * running jobs keep their places. The rest of the nodes is divided among the jobs of the set and
 * the loose jobs. Prices of each node give an upper bound for the utilization of a set, and of each
 * partial choice of counts. A choice that this bound does not exclude is packed (dorm_pack.h).
 *
 * With the prices of one set (dorm_bound.c, each node a class of its own):
 *
 *   value_i(n)   u_i * n - mu * D_i * |n - ideal_i|
 *                - the cost of n containers on the cheapest nodes
 *   constant     the utilization of the jobs that stay + mu * (B + DORM_LOSS_EPS - their loss)
 *                + sum over nodes and types of price_jk * reach_jk / C_k
 *                + a limit of the rounding errors of these sums
 *   bound        constant + sum of value_i(n_i) of the jobs with a count
 *                + sum of the largest value_i of the other jobs
 *
 * A set is skipped if root + the sum of its root_gain is too small: the bound of the whole problem,
 * in which only these counted jobs change.
 */
#include "partition/dorm_pack.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/util.h"

enum {
    CELLS_MAX = 400,   /* jobs * nodes */
    COUNTS_MAX = 4096, /* sum over the jobs of max - min + 1: the counts that they can have */
    SET_ROUNDS = 60,   /* of the prices of one set */
    SET_STEPS = 30000, /* for one set, in the first pass over all sets */
};

struct exact {
    struct dorm_search *s;
    struct dorm_problem *p;
    /* the loose jobs and the jobs of the set, on the capacity that the other jobs leave */
    struct dorm_problem sub;
    struct dorm_prices prices;
    struct pack pack;
    uint64_t end;     /* limit of steps for the whole search; pack.end: for the present set */
    bool cut;         /* the search was not complete */
    bool set_cut;     /* the search of the present set was not complete */
    bool some_cut;    /* the search of at least one set was not complete */
    uint64_t per_set; /* limit of steps for one set */
    double set_bound; /* no allocation that adjusts only the present set has more utilization */
    double cut_bound; /* the largest set_bound of the sets whose search was not complete */
    bool ties;        /* search also for equal utilization with fewer adjusted jobs or moves */

    double root, root_gain[PACK_JOBS_MAX]; /* see dorm_prices_values() */
    uint32_t counted[PACK_JOBS_MAX], n_counted;
    bool in_set[PACK_JOBS_MAX];
    uint32_t set_size;

    /* of the present set, in the order of pack.jobs */
    uint32_t origin[PACK_JOBS_MAX]; /* index in the problem */
    double *value[PACK_JOBS_MAX];   /* by count, from lo on */
    uint32_t lo[PACK_JOBS_MAX], top[PACK_JOBS_MAX];
    double value_rest[PACK_JOBS_MAX + 1]; /* best values of the jobs from here on, and a constant */
    double loss_rest[PACK_JOBS_MAX + 1];  /* least losses */
    double fixed_util;
    double *values;
};

/* ---- when a set is good enough */

/* Would a set of this size with equal utilization be better? */
static bool tie_is_better(const struct exact *x)
{
    const struct dorm_score *best = &x->s->best.score;
    return x->ties && x->set_size <= best->adjusted && best->changed > 0;
}

static bool good_enough(const struct exact *x, double util)
{
    if (!dorm_has_division(x->s))
        return true;
    double eps = tie_is_better(x) ? -DORM_UTIL_EPS : DORM_UTIL_EPS;
    return util > x->s->best.score.util + eps;
}

static bool out_of_steps(struct exact *x)
{
    x->cut |= x->p->work.over || x->p->work.steps >= x->end || x->p->failed;
    x->set_cut |= x->cut || x->pack.cut || x->p->work.steps >= x->pack.end;
    return x->set_cut;
}

/* ---- one choice of counts */

static void save(struct exact *x)
{
    struct dorm_state *state = &x->s->state;
    dorm_state_keep(state);
    for (uint32_t t = 0; t < x->pack.n_jobs; t++)
        dorm_take_all(state, x->origin[t]);
    for (uint32_t t = 0; t < x->pack.n_jobs; t++)
        for (uint32_t j = 0; j < x->pack.n_nodes; j++)
            if (x->pack.x[t][j] > 0)
                dorm_put(state, x->origin[t], j, (int32_t)x->pack.x[t][j]);
    struct dorm_score now = dorm_score(state);
    if (!x->p->failed && (!x->s->best.any || dorm_compare(&now, &x->s->best.score) > 0))
        dorm_plan_save(&x->s->best, state);
    dorm_forget(state);
}

/* All counts are chosen. If they can be better than the best allocation, find places for them with
 * the fewest moves. */
static void leaf(struct exact *x, double util, uint64_t moves)
{
    const struct dorm_score *best = &x->s->best.score;
    if (!good_enough(x, util))
        return;
    bool tie = dorm_has_division(x->s) && util < best->util + DORM_UTIL_EPS;
    bool fewer_moves = tie && x->set_size == best->adjusted;
    uint32_t most = 0;
    for (uint32_t t = 0; t < x->pack.n_running; t++)
        most += MIN(x->pack.n[t], x->pack.jobs[t]->now);
    for (uint32_t detours = 0; detours <= most && !out_of_steps(x); detours++) {
        if (fewer_moves && moves + 2 * detours >= best->changed)
            return;
        if (pack_fits(&x->pack, detours)) {
            save(x);
            return;
        }
    }
}

/* Do the counts that were chosen so far fit if all other jobs get their min? */
static bool rest_fits(struct exact *x, uint32_t t)
{
    for (uint32_t i = t + 1; i < x->pack.n_jobs; i++)
        x->pack.n[i] = x->lo[i];
    return pack_fits(&x->pack, PART_CONTAINERS_MAX);
}

static void choose_count(struct exact *x, uint32_t t, double value, double loss, double util,
                         uint64_t moves)
{
    if (t == x->pack.n_jobs) {
        leaf(x, util, moves);
        return;
    }
    const struct dorm_job *job = x->pack.jobs[t];
    const double *values = x->value[t];
    uint32_t peak = x->lo[t];
    while (peak < x->top[t] && values[peak + 1 - x->lo[t]] > values[peak - x->lo[t]])
        peak++;
    int64_t down = peak, up = (int64_t)peak + 1, top = x->top[t], lo = x->lo[t];
    while ((down >= lo || up <= top) && !out_of_steps(x)) {
        bool take_up = up <= top && (down < lo || values[up - lo] > values[down - lo]);
        int64_t n = take_up ? up++ : down--;
        double with = value + values[n - lo];
        if (!good_enough(x, with + x->value_rest[t + 1]))
            break; /* values fall on both sides of the peak */
        dorm_work(&x->p->work, 4);
        double more_loss = loss + dorm_loss_of(job, (double)n);
        if (more_loss + x->loss_rest[t + 1] > dorm_loss_limit(x->p))
            continue;
        uint64_t more = moves + (t < x->pack.n_running ? (uint64_t)llabs(n - job->now) : 0);
        x->pack.n[t] = (uint32_t)n;
        if (n > lo && !rest_fits(x, t)) {
            top = MIN(top, n - 1);
            continue;
        }
        choose_count(x, t + 1, with, more_loss, util + job->u * (double)n, more);
    }
}

/* ---- one set */

/* List the jobs of the set and the loose jobs: running jobs first, each part by falling D. Compute
 * the capacity that the other jobs leave on the nodes. */
static void list_jobs(struct exact *x)
{
    struct dorm_problem *p = x->p;
    struct pack *k = &x->pack;
    k->n_jobs = 0;
    for (int runs = 1; runs >= 0; runs--) {
        for (uint32_t c = 0; c < p->n; c++) {
            uint32_t i = p->big_first[c];
            bool takes_part = p->jobs[i].kind == DORM_LOOSE || x->in_set[i];
            if (!takes_part || p->jobs[i].runs != (runs == 1))
                continue;
            memset(k->was[k->n_jobs], 0, sizeof(k->was[0]));
            for (uint32_t a = 0; a < p->jobs[i].n_at; a++)
                k->was[k->n_jobs][p->jobs[i].at[a].node] = p->jobs[i].at[a].n;
            x->origin[k->n_jobs] = i;
            k->jobs[k->n_jobs++] = &p->jobs[i];
        }
        if (runs)
            k->n_running = k->n_jobs;
    }
    for (uint32_t t = 0; t < k->n_jobs; t++) {
        uint32_t at = t;
        for (; at > 0 && k->jobs[k->big_first[at - 1]]->D < k->jobs[t]->D; at--)
            k->big_first[at] = k->big_first[at - 1];
        k->big_first[at] = t;
    }
    x->fixed_util = x->loss_rest[k->n_jobs] = 0;
    for (uint32_t j = 0; j < p->n_nodes; j++)
        memcpy(k->free[j], p->cap + (size_t)j * p->m, sizeof(k->free[j][0]) * p->m);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct dorm_job *job = &p->jobs[i];
        if (job->kind == DORM_LOOSE || x->in_set[i])
            continue;
        x->fixed_util += job->u * job->now;
        x->loss_rest[k->n_jobs] += dorm_loss_of(job, job->now);
        for (uint32_t a = 0; a < job->n_at; a++)
            for (uint32_t c = 0; c < p->m; c++)
                k->free[job->at[a].node][c] -= job->d[c] * job->at[a].n;
    }
}

/* Make a problem of these jobs, in which each node is a class of its own, to find prices. Its
 * capacity is the part of the node's free room that containers can use. False: a min does not
 * fit. */
static bool make_sub(struct exact *x)
{
    struct dorm_problem *sub = &x->sub;
    const struct pack *k = &x->pack;
    sub->n = sub->n_running = k->n_jobs;
    sub->loss_bound = x->p->loss_bound - x->loss_rest[k->n_jobs];
    const int64_t *demands[PACK_JOBS_MAX], *scratch[PACK_JOBS_MAX];
    for (uint32_t t = 0; t < k->n_jobs; t++)
        demands[t] = k->jobs[t]->d;
    for (uint32_t j = 0; j < k->n_nodes; j++) {
        int64_t reach[PART_TYPES_MAX];
        dorm_reach(demands, k->n_jobs, scratch, k->free[j], k->m, reach);
        for (uint32_t c = 0; c < k->m; c++)
            sub->classes[j].share[c] = (double)reach[c] * x->p->inv[c];
    }
    dorm_work(&x->p->work, (uint64_t)k->n_nodes * (k->n_jobs + 4));
    for (uint32_t t = 0; t < k->n_jobs; t++) {
        uint64_t sum = 0;
        sub->jobs[t] = *k->jobs[t];
        sub->jobs[t].kind = DORM_LOOSE;
        for (uint32_t j = 0; j < k->n_nodes; j++) {
            uint32_t fit = dorm_fit(k->free[j], sub->jobs[t].d, k->m);
            sub->fit_class[t * k->n_nodes + j] = MIN(fit, sub->jobs[t].hi);
            sum += fit;
        }
        sub->jobs[t].hi = (uint32_t)MIN((uint64_t)sub->jobs[t].hi, sum);
        x->lo[t] = sub->jobs[t].lo;
        x->top[t] = sub->jobs[t].hi;
        if (x->top[t] < x->lo[t])
            return false;
    }
    return dorm_loss_limit(sub) >= 0;
}

/* Compute the value of each count of job t at these prices. Returns the largest value. */
static double tabulate(struct exact *x, uint32_t t)
{
    const struct dorm_job *job = x->pack.jobs[t];
    uint32_t J = x->pack.n_nodes, order[PACK_NODES_MAX];
    /* paid: for all containers on the nodes before order[c] */
    double cost[PACK_NODES_MAX], paid = 0, best = -INFINITY, mu = x->prices.loss;
    for (uint32_t j = 0; j < J; j++) {
        cost[j] = 0;
        for (uint32_t c = 0; c < x->pack.m; c++)
            cost[j] += x->prices.node[j * x->pack.m + c] * job->dn[c];
        uint32_t at = j;
        for (; at > 0 && cost[order[at - 1]] > cost[j]; at--)
            order[at] = order[at - 1];
        order[at] = j;
    }
    for (uint32_t n = 0, c = 0, used = 0; n <= x->top[t]; n++, used++) {
        if (n >= x->lo[t]) {
            double here = c < J ? used * cost[order[c]] : 0;
            double v = job->u * n - paid - here - dorm_loss_cost(job, n, mu);
            x->value[t][n - x->lo[t]] = v;
            best = MAX(best, v);
        }
        while (c < J && used == x->sub.fit_class[t * J + order[c]]) {
            paid += used * cost[order[c]];
            used = 0;
            c++;
        }
    }
    return best;
}

static void search_set(struct exact *x)
{
    struct pack *k = &x->pack;
    x->set_bound = -INFINITY;
    list_jobs(x);
    if (!make_sub(x))
        return;
    x->set_bound = INFINITY;
    x->sub.work = (struct dorm_work){ .end = UINT64_MAX, .ask_at = UINT64_MAX };
    x->prices.enough =
        dorm_has_division(x->s) ? x->s->best.score.util - x->fixed_util - DORM_UTIL_EPS : -INFINITY;
    dorm_prices_find(&x->sub, &x->prices, SET_ROUNDS);
    dorm_work(&x->p->work, 2 * x->sub.work.steps);
    x->set_bound = x->prices.impossible ? -INFINITY : x->prices.upper + x->fixed_util;
    if (x->prices.impossible || x->prices.upper < x->prices.enough)
        return;
    double constant =
        x->fixed_util + x->prices.loss * dorm_loss_limit(&x->sub) + 2 * x->prices.rounding;
    for (uint32_t j = 0; j < k->n_nodes; j++)
        for (uint32_t c = 0; c < k->m; c++)
            constant += x->prices.node[j * k->m + c] * x->sub.classes[j].share[c];
    x->value_rest[k->n_jobs] = constant;
    double *values = x->values;
    for (uint32_t t = k->n_jobs; t-- > 0;) {
        const struct dorm_job *job = k->jobs[t];
        x->value[t] = values;
        values += x->top[t] - x->lo[t] + 1;
        x->value_rest[t] = x->value_rest[t + 1] + tabulate(x, t);
        uint32_t near = MIN(MAX(job->ideal, x->lo[t]), x->top[t]);
        x->loss_rest[t] = x->loss_rest[t + 1] + dorm_loss_of(job, near);
    }
    if (!good_enough(x, x->value_rest[0]))
        return;
    for (uint32_t t = 0; t < k->n_jobs; t++)
        k->n[t] = x->lo[t];
    if (pack_fits(k, PART_CONTAINERS_MAX))
        choose_count(x, 0, 0, 0, x->fixed_util, 0);
}

/* ---- all sets */

/* Store the sets with the best bounds, with which the local search continues. */
static void remember_set(const struct exact *x)
{
    struct dorm_search *s = x->s;
    uint32_t bits = 0, at = s->n_sets;
    for (uint32_t i = 0; i < x->p->n; i++)
        bits |= x->in_set[i] ? UINT32_C(1) << i : 0;
    for (uint32_t c = 0; c < s->n_sets; c++)
        if (s->sets[c] == bits)
            return;
    if (at == DORM_SETS_MAX && x->value_rest[0] <= s->set_bounds[at - 1])
        return;
    at = MIN(at, (uint32_t)DORM_SETS_MAX - 1);
    for (; at > 0 && s->set_bounds[at - 1] < x->value_rest[0]; at--) {
        s->sets[at] = s->sets[at - 1];
        s->set_bounds[at] = s->set_bounds[at - 1];
    }
    s->sets[at] = bits;
    s->set_bounds[at] = x->value_rest[0];
    s->n_sets = MIN(s->n_sets + 1, (uint32_t)DORM_SETS_MAX);
}

/* Add `more` counted jobs to the set, chosen from those at `from` or later. The jobs are sorted by
 * falling root_gain. */
static void choose_set(struct exact *x, uint32_t from, uint32_t more, double bound)
{
    if (x->cut)
        return;
    if (more == 0) {
        x->pack.end = MIN(x->end, x->p->work.steps + x->per_set);
        x->pack.cut = false;
        search_set(x);
        if (out_of_steps(x)) {
            remember_set(x);
            x->cut_bound = MAX(x->cut_bound, x->set_bound);
        }
        x->some_cut |= x->set_cut;
        x->set_cut = false;
        return;
    }
    double rest = bound;
    for (uint32_t c = from; c < from + more && c < x->n_counted; c++)
        rest += x->root_gain[x->counted[c]];
    for (uint32_t c = from; c + more <= x->n_counted && good_enough(x, rest); c++) {
        uint32_t i = x->counted[c];
        x->in_set[i] = true;
        choose_set(x, c + 1, more - 1, bound + x->root_gain[i]);
        x->in_set[i] = false;
        if (c + more < x->n_counted)
            rest += x->root_gain[x->counted[c + more]] - x->root_gain[i];
    }
}

/* Search all sets of these sizes. True: the search was complete. */
static bool search_sets(struct exact *x, uint32_t least, uint32_t most, uint64_t per_set, bool ties)
{
    x->per_set = per_set;
    x->ties = ties;
    x->some_cut = false;
    for (x->set_size = least; x->set_size <= most && !x->cut; x->set_size++)
        choose_set(x, 0, x->set_size, x->root);
    return !x->cut && !x->some_cut;
}

static bool is_small_enough(const struct dorm_problem *p)
{
    uint64_t counts = 0;
    for (uint32_t i = 0; i < p->n; i++)
        counts += p->jobs[i].hi - p->jobs[i].lo + 1;
    return p->n > 0 && p->n <= PACK_JOBS_MAX && p->n_nodes <= PACK_NODES_MAX &&
           p->n * p->n_nodes <= CELLS_MAX && counts <= COUNTS_MAX;
}

static struct exact *exact_new(struct dorm_search *s, uint64_t steps)
{
    struct dorm_problem *p = s->p;
    struct exact *x = dorm_alloc(p, 1, sizeof(*x));
    if (!x)
        return NULL;
    x->s = s;
    x->p = p;
    x->sub = *p;
    x->sub.n_classes = p->n_nodes;
    x->sub.n_all = p->n;
    x->sub.adjust_bound = 0;
    x->sub.jobs = dorm_alloc(p, p->n, sizeof(*x->sub.jobs));
    x->sub.classes = dorm_alloc(p, p->n_nodes, sizeof(*x->sub.classes));
    x->sub.fit_class = dorm_alloc(p, (size_t)p->n * p->n_nodes, sizeof(*x->sub.fit_class));
    x->sub.at_class = dorm_alloc(p, (size_t)p->n * p->n_nodes, sizeof(*x->sub.at_class));
    x->sub.waste.order = dorm_alloc(p, p->n, sizeof(*x->sub.waste.order));
    for (uint32_t t = 0; t < p->n && !p->failed; t++) /* the jobs have other indexes there */
        x->sub.waste.order[t] = t;
    x->values = dorm_alloc(p, COUNTS_MAX, sizeof(*x->values));
    if (p->failed || dorm_prices_init(&x->sub, &x->prices) < 0) {
        p->failed = true;
        return NULL;
    }
    x->pack.work = &p->work;
    x->end = p->work.steps + steps;
    x->pack.m = p->m;
    x->pack.n_nodes = p->n_nodes;
    return x;
}

enum dorm_proof dorm_exact(struct dorm_search *s, uint64_t steps)
{
    struct dorm_problem *p = s->p;
    s->n_sets = 0;
    if (!is_small_enough(p) || p->work.over || p->failed)
        return DORM_UNKNOWN;
    struct exact *x = exact_new(s, steps);
    if (!x)
        return DORM_UNKNOWN;
    x->root = dorm_prices_values(p, &s->prices, x->root_gain);
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->jobs[i].kind != DORM_COUNTED)
            continue;
        uint32_t at = x->n_counted++;
        for (; at > 0 && x->root_gain[x->counted[at - 1]] < x->root_gain[i]; at--)
            x->counted[at] = x->counted[at - 1];
        x->counted[at] = i;
    }
    uint32_t most = MIN(p->adjust_bound, x->n_counted);
    x->cut_bound = -INFINITY;
    if (!search_sets(x, most, most, SET_STEPS, false)) {
        /* Each set was looked at, unless x->cut: then the rest of a set is within its bound. */
        double bound =
            dorm_has_division(x->s) ? MAX(s->best.score.util, x->cut_bound) : x->cut_bound;
        if (!x->cut)
            s->prices.upper = MIN(s->prices.upper, bound);
        if (!search_sets(x, most, most, UINT32_MAX, false))
            return DORM_UNKNOWN;
    }
    if (!dorm_has_division(x->s))
        return DORM_IMPOSSIBLE;
    return search_sets(x, 0, most, UINT32_MAX, true) ? DORM_BEST : DORM_BEST_USE;
}
