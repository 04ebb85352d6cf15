/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds divisions from patterns, in large problems.
 *
 * Only the jobs of `changes` get other containers: the loose ones, and some running ones.
 * dorm_choose.h and dorm_pairs.h choose these; several sets are tried. Nodes whose free room is
 * equal, if these jobs hold nothing, form a group. A pattern is a set of containers that fits into
 * the room of a group. dorm_simplex.h finds how many nodes of each group get which pattern.
 *
 * Only patterns that pay are ever looked at (column generation, Gilmore and Gomory 1961): the
 * solution for the patterns so far gives each demand a price pi_v, and the table of dorm_rooms.h
 * the best pattern of each group at these prices. When that is worth no more than what the group
 * sells already, no pattern improves the solution. Further patterns make the program converge in
 * fewer rounds if there are few groups: each has many containers of one demand, and the best ones
 * beside them.
 *
 * With few patterns, the prices of the program are wild. So at first they are kept near the best
 * ones so far, which are those with the lowest bound (boxstep method; Marsten, Hogan, Blankenship
 * 1975):
 *
 *   best_pi_v - near * u_v <= pi_v <= best_pi_v + near * u_v
 *
 * near grows while the bound stays, and when the bound and the solution are near to each other. In
 * the last third of the steps, or when nothing else improves the solution, there is no such limit
 * any more: with it, containers of the minima may be missing, as they are not dear. If no running
 * job may change and the solution is far from the bound then, the limit stays: many containers have
 * places to choose from, and without it the prices would have to be found anew.
 *
 * dorm_round.c makes a division of the solution. The containers that a job lacks for its min are
 * placed by force, and the rest of the room is filled as in dorm_build.c and dorm_refill.c. By
 * force: other containers of a node make way, those that are spare or that fit elsewhere.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "partition/dorm_choose.h"
#include "partition/dorm_pairs.h"
#include "partition/dorm_patterns.h"

enum {
    ROUNDS = 30,
    PATTERNS = 600,      /* that are added in a round beside the best one of each group */
    LEAST_STEPS = 60000, /* of a program, even if all steps are used up */
    REFILL_STEPS = 50000,
    SWEEPS = 4,        /* of dorm_choose() */
    VAIN = 3,          /* sets that may be tried in vain one after the other */
    FORCE_STEPS = 500, /* for each node, to place missing containers of one division by force */
    BUILT_AGAIN = 3,   /* times that a division is built again if containers of a min are missing */
    FINER = 2,         /* the table of bound_finely() is this many times as large */
    /* If demands are rounded, patterns are also made for rooms that are smaller by 1/40, 2/40 and
     * 3/40: these fit more often. */
    ROUNDED_TRIES = 4,
    ROUNDED_PART = 40,
};

/* Parts of a bound by which a value may be below it:
 *
 *   DONE             the program is solved
 *   DONE_IF_STALLED  the same, if the last round gained less than STALLED_GAIN
 *   GOOD_DIVISION    the division is good enough: no further set is tried
 *   LIMITS_DOUBLE    from then on, only the limits of the prices are in the way: they double
 *   LIMITS_STAY      if no running job may change, a program that is farther from its bound when
 *                    two thirds of its steps are used keeps the limits of the prices
 *   SET_GIVEN_UP     a set whose bound is this far below that of all sets is given up
 */
static const double DONE = 5e-4, DONE_IF_STALLED = 2e-3, STALLED_GAIN = 2e-4, GOOD_DIVISION = 0.004,
                    LIMITS_DOUBLE = 0.01, LIMITS_STAY = 0.01, SET_GIVEN_UP = 0.05;
/* `near` at first, and its factor after a round that does not lower the bound. */
static const double FIRST_LIMIT = 0.02, LIMIT_GROWTH = 1.3;
static const double OLD_PRICES = 0.3; /* the part of the best prices in those that are tried */

/* ---- groups and patterns */

/* The part of the room that a container of demand v needs, of the type of which it needs most. */
static double part_of(const struct dorm_rooms *r, uint32_t v, const int64_t *room)
{
    double part = 0;
    for (uint32_t k = 0; k < r->m; k++) {
        double need = (double)r->need[(size_t)v * r->m + k];
        part = MAX(part, need > 0 ? need / (double)MAX(room[k], (int64_t)1) : 0);
    }
    return part;
}

/* The containers of x->sold, found in a table with rounded demands, may need more than the room of
 * group g. Then remove those that give least for what they need of the type that lacks, and fill
 * the rest with others. */
static void make_fit(struct dorm_patterns *x, uint32_t g)
{
    const struct dorm_rooms *r = x->rooms;
    const int64_t *room = x->room + (size_t)g * r->m;
    int64_t rest[PART_TYPES_MAX];
    memcpy(rest, room, sizeof(*rest) * r->m);
    for (uint32_t v = 0; v < r->n_demands; v++)
        if (x->sold[v] > 0)
            dorm_rooms_less(r, v, (uint32_t)x->sold[v], rest, rest);
    for (uint32_t k = 0; k < r->m; k++)
        while (rest[k] < 0) {
            uint32_t out = DORM_END;
            double least = INFINITY;
            for (uint32_t v = 0; v < r->n_demands; v++) {
                double need = (double)r->need[(size_t)v * r->m + k];
                if (x->sold[v] > 0 && need > 0 && r->pi[v] / need < least) {
                    least = r->pi[v] / need;
                    out = v;
                }
            }
            int64_t need = r->need[(size_t)out * r->m + k];
            int64_t n = MIN((int64_t)x->sold[out], (-rest[k] + need - 1) / need);
            x->sold[out] -= (double)n;
            for (uint32_t t = 0; t < r->m; t++)
                rest[t] += r->need[(size_t)out * r->m + t] * n;
        }
    for (;;) {
        uint32_t in = DORM_END;
        double most = 0;
        for (uint32_t c = 0; c < r->n_active; c++) {
            uint32_t v = r->active[c];
            double ratio = r->pi[v] / part_of(r, v, room);
            if (ratio > most && dorm_rooms_fit(r, v, rest) > 0) {
                most = ratio;
                in = v;
            }
        }
        if (in == DORM_END)
            return;
        uint32_t n = dorm_rooms_fit(r, in, rest);
        x->sold[in] += n;
        dorm_rooms_less(r, in, n, rest, rest);
    }
}

/* Add the pattern of x->sold and the best containers for the room to group g. Sets *added if it is
 * new. */
static void add_pattern(struct dorm_patterns *x, uint32_t g, const int64_t *room, bool *added)
{
    dorm_rooms_sell(x->rooms, dorm_rooms_cell(x->rooms, room), 1, x->sold);
    if (x->rooms->rounded) {
        make_fit(x, g);
        dorm_work(&x->p->work, x->rooms->n_active / 2);
    }
    *added |= dorm_simplex_add(&x->lp, g, x->sold);
    memset(x->sold, 0, sizeof(*x->sold) * x->rooms->n_demands);
    dorm_work(&x->p->work, 16 + x->rooms->n_active / 4);
}

/* Add n further patterns to group g: each is filled with containers of one demand as far as they
 * fit (in the first round) or half as far, and with the best ones for the rest of the room. The
 * demands take turns. */
static void add_filled(struct dorm_patterns *x, uint32_t g, uint32_t n, bool is_first, bool *added)
{
    struct dorm_rooms *r = x->rooms;
    const int64_t *room = x->room + (size_t)g * r->m;
    for (n = MIN(n, r->n_active); n > 0 && !dorm_simplex_full(&x->lp); n--) {
        uint32_t v = r->active[x->turn++ % r->n_active];
        int64_t rest[PART_TYPES_MAX];
        uint32_t fit = dorm_rooms_fit(r, v, room);
        if (fit == 0)
            continue;
        x->sold[v] = is_first ? fit : (fit + 1) / 2;
        dorm_rooms_less(r, v, (uint32_t)x->sold[v], room, rest);
        add_pattern(x, g, rest, added);
    }
}

/* Add the best pattern of each group at the prices of x->rooms, and PATTERNS others. Sets *added if
 * one is new. Returns what all nodes are worth at these prices. */
static double add_patterns(struct dorm_patterns *x, bool is_first, bool *added)
{
    struct dorm_rooms *r = x->rooms;
    double worth = 0;
    dorm_rooms_fill(r);
    for (uint32_t g = 0; g < x->lp.n_groups; g++) {
        const int64_t *room = x->room + (size_t)g * r->m;
        worth += dorm_rooms_worth(r, room) * x->lp.groups[g].size;
        for (int part = 0; part < (r->rounded ? ROUNDED_TRIES : 1); part++) {
            int64_t less[PART_TYPES_MAX];
            for (uint32_t k = 0; k < r->m; k++)
                less[k] = room[k] - room[k] * part / ROUNDED_PART;
            if (!dorm_simplex_full(&x->lp))
                add_pattern(x, g, less, added);
        }
    }
    for (uint32_t g = 0; g < x->lp.n_groups; g++)
        add_filled(x, g, (PATTERNS + x->lp.n_groups - 1) / x->lp.n_groups, is_first, added);
    return worth;
}

/* The value of the containers that the jobs buy at the prices of x->rooms, less their prices. A job
 * that does not change counts with those that it has, without a price. */
static double buy_all(const struct dorm_patterns *x)
{
    struct dorm_job higher;
    double value = x->mu * dorm_loss_limit(x->p), n;
    for (uint32_t i = 0; i < x->p->n; i++) {
        const struct dorm_job *job = &x->p->jobs[i];
        if (x->changes[i]) {
            higher = *job;
            higher.lo = x->low[i];
            value += dorm_rooms_buy(&higher, x->rooms->pi[x->rooms->demand_of[i]], x->mu, &n);
        } else
            value += job->u * job->now - dorm_loss_cost(job, job->now, x->mu);
    }
    return value;
}

/* Make the groups of nodes with equal room, without what the jobs that change hold. */
static void list_groups(struct dorm_patterns *x)
{
    struct dorm_problem *p = x->p;
    struct dorm_rooms *r = x->rooms;
    for (uint32_t j = 0; j < p->n_nodes; j++) {
        int64_t *room = x->room + (size_t)x->lp.n_groups * r->m;
        uint32_t set = 0;
        for (uint32_t c = r->first[j]; c < r->first[j + 1]; c++)
            if (x->changes[r->held[c].job])
                set |= 1u << MIN(c - r->first[j], 31u);
        dorm_rooms_room(r, j, set, room);
        uint32_t *at = &x->by_cell[dorm_rooms_cell(r, room)];
        if (*at == 0)
            *at = dorm_simplex_add_group(&x->lp) + 1;
        x->group_of[j] = *at - 1;
        x->lp.groups[*at - 1].size++;
    }
    for (uint32_t g = 0; g < x->lp.n_groups; g++)
        x->by_cell[dorm_rooms_cell(r, x->room + (size_t)g * r->m)] = 0;
}

/* Add the jobs that change to the program, at their minima. base: the utilization, loss_left: the
 * loss that the bound then still allows. */
static void add_jobs(struct dorm_patterns *x, double *base, double *loss_left)
{
    struct dorm_problem *p = x->p;
    double loss = 0;
    *base = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct dorm_job *job = &p->jobs[i];
        uint32_t n = x->changes[i] ? x->low[i] : job->now;
        loss += dorm_loss_of(job, n);
        *base += job->u * n;
        if (x->changes[i])
            dorm_simplex_add_job(&x->lp, x->rooms->demand_of[i], n,
                                 MIN(MAX(job->ideal, n), job->hi), job->hi);
    }
    *loss_left = p->loss_bound - loss;
}

/* Memory for the program of the patterns. */
static bool init(struct dorm_patterns *x)
{
    struct dorm_problem *p = x->p;
    uint32_t n_demands = x->rooms->n_demands;
    x->group_of = dorm_alloc(p, p->n_nodes, sizeof(*x->group_of));
    x->room = dorm_alloc(p, (size_t)p->n_nodes * x->rooms->m, sizeof(*x->room));
    x->by_cell = dorm_alloc(p, x->rooms->cells, sizeof(*x->by_cell));
    x->sold = dorm_alloc(p, n_demands, sizeof(*x->sold));
    x->lacks = dorm_alloc(p, n_demands, sizeof(*x->lacks));
    x->best_pi = dorm_alloc(p, n_demands, sizeof(*x->best_pi));
    x->spare = dorm_alloc(p, n_demands, sizeof(*x->spare));
    x->low = dorm_alloc(p, p->n, sizeof(*x->low));
    x->reserved = dorm_alloc(p, p->n, sizeof(*x->reserved));
    return !p->failed && dorm_simplex_init(&x->lp, p, n_demands);
}

/* Set the minima for the program: those of the jobs, and one container more for each demand that
 * once lacked one when the numbers of nodes were rounded. */
static void set_minima(struct dorm_patterns *x)
{
    bool *raised = dorm_alloc(x->p, x->rooms->n_demands, sizeof(*raised));
    for (uint32_t i = 0; i < x->p->n && raised; i++) {
        const struct dorm_job *job = &x->p->jobs[i];
        x->low[i] = job->lo;
        if (!x->changes[i] || job->lo == job->hi)
            continue;
        uint32_t v = x->rooms->demand_of[i];
        if (x->raise[v] && !raised[v])
            x->low[i]++;
        raised[v] = true;
    }
}

/* The loose jobs change, and the running ones that the best division so far adjusts. */
static bool change_as_before(struct dorm_patterns *x)
{
    struct dorm_state *state = &x->s->state;
    dorm_plan_load(&x->s->best, state);
    for (uint32_t i = 0; i < x->p->n; i++)
        x->changes[i] = x->p->jobs[i].kind == DORM_LOOSE || state->moved[i] > 0;
    return !x->p->failed;
}

/* Keep the present prices if their bound is the lowest one so far. */
static bool note_bound(struct dorm_patterns *x, double upper)
{
    if (upper >= x->upper)
        return false;
    x->upper = upper;
    x->best_mu = x->mu;
    memcpy(x->best_pi, x->rooms->pi, sizeof(*x->best_pi) * x->rooms->n_demands);
    return true;
}

/* Add the demands of the changing jobs to the program. */
static void add_demands(struct dorm_patterns *x)
{
    memset(x->wanted, 0, sizeof(*x->wanted) * x->rooms->n_demands);
    for (uint32_t i = 0; i < x->p->n; i++)
        if (x->changes[i])
            x->wanted[x->rooms->demand_of[i]] = true;
    for (uint32_t v = 0; v < x->rooms->n_demands; v++) {
        const struct dorm_job *job = &x->p->jobs[x->rooms->example[v]];
        if (x->wanted[v])
            dorm_simplex_add_demand(&x->lp, v, job->u, job->D);
    }
}

/* Set prices to start with: those of dorm_whole_prices(), else those that follow from the classes
 * (dear: see dorm_rooms.h). Demands that no changing job has are worth nothing. */
static void first_prices(struct dorm_patterns *x, bool dear)
{
    const struct dorm_prices *prices = &x->s->prices;
    struct dorm_rooms *r = x->rooms;
    if (prices->pi) {
        memcpy(r->pi, prices->pi, sizeof(*r->pi) * r->n_demands);
        x->mu = prices->pi_loss;
    } else {
        dorm_rooms_start(r, prices, dear);
    }
    for (uint32_t v = 0; v < r->n_demands; v++)
        r->pi[v] = x->wanted[v] ? r->pi[v] : 0;
}

/* Add what the best division so far has on each node of the jobs that change, as far as it fits. So
 * the program begins with a solution that is hardly worse. */
static void add_known(struct dorm_patterns *x)
{
    const struct dorm_rooms *r = x->rooms;
    struct dorm_state *state = &x->s->state;
    dorm_plan_load(&x->s->best, state);
    for (uint32_t j = 0; j < x->p->n_nodes && !dorm_simplex_full(&x->lp); j++) {
        int64_t rest[PART_TYPES_MAX];
        bool fits = true;
        memcpy(rest, x->room + (size_t)x->group_of[j] * r->m, sizeof(*rest) * r->m);
        for (uint32_t e = state->node_head[j]; e != DORM_END; e = state->entries[e].of_node) {
            const struct dorm_entry *entry = &state->entries[e];
            if (!x->changes[entry->job] || entry->n == 0)
                continue;
            uint32_t v = r->demand_of[entry->job];
            x->sold[v] += entry->n;
            dorm_rooms_less(r, v, entry->n, rest, rest);
        }
        for (uint32_t k = 0; k < r->m; k++)
            fits &= rest[k] >= 0;
        if (fits)
            (void)dorm_simplex_add(&x->lp, x->group_of[j], x->sold);
        memset(x->sold, 0, sizeof(*x->sold) * r->n_demands);
    }
    dorm_work(&x->p->work, x->p->n_nodes * 4);
}

/* Find patterns and the best numbers of nodes for them. end: of the steps. False: there are more
 * groups than patterns. Only upper and best_mu are set then. */
static bool solve(struct dorm_patterns *x, uint64_t end)
{
    struct dorm_rooms *r = x->rooms;
    struct dorm_work *work = &x->p->work;
    bool added = true;
    double base, loss_left;
    x->upper = INFINITY;
    add_demands(x);
    for (int dear = 0; dear <= (x->s->prices.pi ? 0 : 1); dear++) { /* the better one of two */
        first_prices(x, dear);
        note_bound(x, add_patterns(x, true, &added) + buy_all(x));
    }
    add_jobs(x, &base, &loss_left);
    if (x->s->best.any && dorm_counted_may_change(x->p))
        add_known(x);
    if (!dorm_simplex_begin(&x->lp, loss_left))
        return false;
    end = MAX(end, work->steps + LEAST_STEPS * dorm_times_of(x->p));
    uint64_t limited_end = end - (end - work->steps) / 3;
    bool limited = true;
    double near = FIRST_LIMIT;
    dorm_simplex_limit_prices(&x->lp, x->best_pi, x->best_mu, near);
    bool many = dorm_counted_may_change(x->p); /* sets: then better try the next one */
    double last = 0;
    for (unsigned round = 0; round < ROUNDS && !work->over; round++) {
        while (work->steps < (limited ? limited_end : end) && dorm_simplex_pivot(&x->lp))
            ;
        double value = base + dorm_simplex_value(&x->lp), gap = (x->upper - value) / x->upper;
        bool close =
            gap < DONE || (many && gap < DONE_IF_STALLED && value - last < STALLED_GAIN * value);
        last = value;
        x->value = value;
        if (limited && work->steps >= limited_end && gap > LIMITS_STAY && !many)
            break;
        if (limited && (close || !added || work->steps >= limited_end)) {
            limited = false;
            dorm_simplex_limit_prices(&x->lp, NULL, 0, 0);
            continue;
        }
        if (work->steps >= end || x->upper < x->enough)
            break;
        if (close && !(!limited && dorm_simplex_forbid_lacking(&x->lp)))
            break;
        double old = added ? OLD_PRICES : 0;
        for (uint32_t v = 0; v < r->n_demands; v++)
            r->pi[v] = old * x->best_pi[v] + (1 - old) * dorm_simplex_price(&x->lp, v);
        x->mu = old * x->best_mu + (1 - old) * dorm_simplex_loss_price(&x->lp);
        bool before = added;
        added = false;
        double upper = add_patterns(x, false, &added) + buy_all(x);
        near *= note_bound(x, upper) ? 1 : LIMIT_GROWTH;
        if (!added && !before && !(!limited && dorm_simplex_forbid_lacking(&x->lp)))
            break;
        if (gap < LIMITS_DOUBLE)
            near *= 2;
        if (limited)
            dorm_simplex_limit_prices(&x->lp, x->best_pi, x->best_mu, near);
    }
    return true;
}

/* ---- sets of jobs that change */

static void keep_if_better(struct dorm_search *s)
{
    struct dorm_score now = dorm_score(&s->state);
    if (!s->p->failed && (!s->best.any || dorm_compare(&now, &s->best.score) > 0))
        dorm_plan_save(&s->best, &s->state);
}

/* Which demands lack containers for the minima of their jobs? */
static void note_lacking(const struct dorm_patterns *x, bool *lacks)
{
    memset(lacks, 0, sizeof(*lacks) * x->rooms->n_demands);
    for (uint32_t i = 0; i < x->p->n; i++)
        if (x->changes[i] && x->s->state.n[i] < x->p->jobs[i].lo)
            lacks[x->rooms->demand_of[i]] = true;
}

/* The utilization of the best division so far; 0: there is none. */
static double known_use(const struct dorm_search *s)
{
    return s->best.any && !(s->best.score.bad > 0) ? s->best.score.util : 0;
}

static bool good_enough(const struct dorm_search *s)
{
    return known_use(s) >= (1 - GOOD_DIVISION) * s->prices.upper;
}

/* Place the patterns again, after the minima of the jobs that lack containers. */
static void build_again(struct dorm_patterns *x)
{
    const struct dorm_state *state = &x->s->state;
    for (uint32_t i = 0; i < x->p->n; i++)
        x->reserved[i] |= x->changes[i] && state->n[i] < x->p->jobs[i].lo;
    dorm_place_patterns(x);
    dorm_force_minima(x);
}

/* Build a division in which exactly the jobs x->changes change, and keep it if it is better. end:
 * of the steps. False: it is no better. */
static bool try_set(struct dorm_patterns *x, uint64_t end)
{
    struct dorm_search *s = x->s;
    double before = known_use(s);
    x->upper = INFINITY;
    dorm_simplex_clear(&x->lp);
    memset(x->sold, 0, sizeof(*x->sold) * x->rooms->n_demands);
    list_groups(x);
    set_minima(x);
    dorm_rooms_limit(x->rooms, x->room, x->lp.n_groups);
    bool solved = solve(x, end);
    dorm_rooms_limit_to_nodes(x->rooms);
    if (!solved || (x->upper < x->enough && x->value < (1 + DONE) * before))
        return false;
    memset(x->reserved, 0, sizeof(*x->reserved) * s->p->n);
    dorm_place_patterns(x);
    x->force_end = s->p->work.steps + (uint64_t)FORCE_STEPS * s->p->n_nodes;
    note_lacking(x, x->lacks);
    dorm_force_minima(x);
    for (unsigned c = 0;
         c < BUILT_AGAIN && s->state.lacking > 0 && before > 0 && s->p->work.steps < x->force_end;
         c++)
        build_again(x);
    if (s->state.lacking > 0)
        for (uint32_t v = 0; v < x->rooms->n_demands; v++)
            x->raise[v] |= x->lacks[v];
    dorm_finish_build(s);
    dorm_forget(&s->state);
    keep_if_better(s);
    s->prices.loss = x->best_mu;
    dorm_refill(s, REFILL_STEPS);
    keep_if_better(s);
    return known_use(s) > before;
}

/* A demand that no changing job has: the worth of the containers that one container of it would
 * displace in a group of nodes, and the number of such containers that fit there. */
struct offer {
    double cost, n;
};

static int by_cost(const void *a, const void *b)
{
    const struct offer *x = a, *y = b;
    return x->cost < y->cost ? -1 : x->cost > y->cost;
}

/* The price of demand v, which no changing job has, at the prices of the others: what a container
 * displaces on the cheapest nodes that together have room for as many as a job with this demand can
 * get. It is not above the value of a container. offers: memory for one for each group. */
static double displaced_price(const struct dorm_patterns *x, uint32_t v, struct offer *offers)
{
    const struct dorm_rooms *r = x->rooms;
    const struct dorm_problem *p = x->p;
    const struct dorm_job *job = &p->jobs[r->example[v]];
    double wanted = 0, highest = job->u + x->best_mu * job->D;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_running; i++)
        if (p->jobs[i].kind == DORM_COUNTED && r->demand_of[i] == v)
            wanted = MAX(wanted, (double)p->jobs[i].hi);
    for (uint32_t g = 0; g < x->lp.n_groups; g++) {
        const int64_t *room = x->room + (size_t)g * r->m;
        int64_t rest[PART_TYPES_MAX];
        uint32_t fit = dorm_rooms_fit(r, v, room);
        if (fit == 0)
            continue;
        dorm_rooms_less(r, v, 1, room, rest);
        offers[n++] = (struct offer){ dorm_rooms_worth(r, room) - dorm_rooms_worth(r, rest),
                                      (double)fit * x->lp.groups[g].size };
    }
    qsort(offers, n, sizeof(*offers), by_cost);
    for (uint32_t c = 0; c < n; c++) {
        wanted -= offers[c].n;
        if (wanted <= 0)
            return MIN(highest, offers[c].cost);
    }
    return highest;
}

/* Set the prices for a bound of all sets: those of the program, and displaced_price() for the
 * demands that its jobs do not have. With another price, V of the sets with these jobs would be too
 * large: they would pay too little, or the nodes would be worth more. */
static void price_all_demands(struct dorm_patterns *x)
{
    struct dorm_rooms *r = x->rooms;
    struct offer *offers = dorm_alloc(x->p, x->lp.n_groups, sizeof(*offers));
    double *price = dorm_alloc(x->p, r->n_demands, sizeof(*price));
    if (x->p->failed)
        return;
    for (uint32_t v = 0; v < r->n_demands; v++)
        r->pi[v] = x->wanted[v] ? x->best_pi[v] : 0;
    dorm_rooms_fill(r);
    for (uint32_t v = 0; v < r->n_demands; v++)
        price[v] = x->wanted[v] ? r->pi[v] : displaced_price(x, v, offers);
    memcpy(r->pi, price, sizeof(*price) * r->n_demands);
    dorm_work(&x->p->work, (uint64_t)r->n_demands * (x->lp.n_groups / 2 + x->p->n_running / 8));
}

/* Try the sets of changing jobs that dorm_choose.h proposes, and learn from each. */
static void try_sets(struct dorm_patterns *x, uint64_t end)
{
    struct dorm_choice choice;
    struct dorm_problem *p = x->p;
    if (!dorm_choice_init(&choice, x->rooms))
        return;
    memcpy(x->rooms->pi, x->s->prices.pi, sizeof(*x->rooms->pi) * x->rooms->n_demands);
    dorm_rooms_fill(x->rooms);
    dorm_choice_add(&choice, x->s->prices.pi_loss, x->raise);
    double bound = dorm_choose(&choice, x->changes, SWEEPS);
    for (unsigned vain = 0; vain < VAIN && bound > (1 + DONE) * known_use(x->s);) {
        x->enough =
            MAX((1 + DONE) * known_use(x->s), (1 - SET_GIVEN_UP) * MIN(bound, x->s->prices.upper));
        bool poor = known_use(x->s) < (1 - SET_GIVEN_UP) * bound;
        uint64_t last = poor ? x->end_if_poor : end;
        vain = try_set(x, last) ? 0 : vain + 1;
        if (good_enough(x->s) || p->work.over || p->failed || p->work.steps >= last)
            break;
        price_all_demands(x);
        if (vain == 0)
            dorm_whole_bound(p, &x->s->prices, x->rooms->pi, x->best_mu,
                             known_use(x->s) / (1 - GOOD_DIVISION),
                             last - MIN(last, p->work.steps));
        if (good_enough(x->s) || p->work.steps >= end)
            break;
        dorm_rooms_fill(x->rooms);
        dorm_choice_add(&choice, x->best_mu, x->raise);
        bound = dorm_choose(&choice, x->changes, SWEEPS);
    }
    if (!good_enough(x->s) && !p->failed)
        x->s->prices.upper = MIN(x->s->prices.upper, dorm_choose_bound(&choice));
}

/* The same as try_set(), without patterns. */
static void build_without_rooms(struct dorm_patterns *x)
{
    x->upper = INFINITY;
    dorm_build(x->s);
    keep_if_better(x->s);
    dorm_refill(x->s, REFILL_STEPS);
    keep_if_better(x->s);
}

/* At most two jobs may change: try the pairs with the largest bounds. The program of a pair gives
 * it a better bound, so the largest bound falls from try to try. */
static void try_pairs(struct dorm_patterns *x, uint64_t end)
{
    struct dorm_search *s = x->s;
    struct dorm_problem *p = x->p;
    double known = known_use(s), tried = 0; /* tried: the largest bound of the pairs so far */
    uint32_t n = 0;
    struct dorm_pair *pairs = dorm_pairs(p, known, &n);
    for (uint32_t c = 0; pairs; c++) {
        double next = c < n ? pairs[c].bound : 0;
        s->prices.upper = MIN(s->prices.upper, MAX(known, MAX(tried, next)));
        if (next <= known || p->work.steps >= end || p->work.over || p->failed || good_enough(s))
            return;
        for (uint32_t i = 0; i < p->n; i++)
            x->changes[i] = i == pairs[c].a || i == pairs[c].b;
        memset(x->raise, 0, sizeof(*x->raise) * x->rooms->n_demands); /* else no bound follows */
        x->enough = known;
        if (x->has_rooms)
            (void)try_set(x, end);
        else
            build_without_rooms(x);
        tried = MAX(tried, MIN(next, x->upper));
        known = known_use(s);
    }
}

/* Only the loose jobs change: lower x->upper with a table in which demands are rounded less. Its
 * prices are those of the program, whose patterns are not rounded at all. */
static void bound_finely(struct dorm_patterns *x)
{
    struct dorm_problem *p = x->p;
    struct dorm_rooms fine;
    if (known_use(x->s) >= (1 - GOOD_DIVISION) * x->upper || p->work.over ||
        !dorm_rooms_init(&fine, p, FINER))
        return;
    for (uint32_t v = 0; v < fine.n_demands; v++)
        fine.pi[v] = dorm_simplex_price(&x->lp, v);
    memcpy(x->rooms->pi, fine.pi, sizeof(*fine.pi) * fine.n_demands);
    x->mu = dorm_simplex_loss_price(&x->lp);
    dorm_rooms_fill(&fine);
    double upper = buy_all(x);
    /* The nodes of a group are in one cell of the table whose demands are rounded more, and may be
     * in different ones of this table. */
    for (uint32_t j = 0; j < p->n_nodes; j++)
        upper += dorm_rooms_worth(&fine, fine.rest + (size_t)j * fine.m);
    dorm_work(&p->work, p->n_nodes);
    note_bound(x, upper);
}

void dorm_from_patterns(struct dorm_search *s, uint64_t steps, uint64_t more)
{
    struct dorm_problem *p = s->p;
    struct dorm_patterns x = { .s = s, .p = p, .mu = s->prices.least_loss, .changes = s->picked };
    uint64_t end = p->work.steps + steps;
    x.end_if_poor = MAX(end, p->work.steps + more);
    struct dorm_rooms own;
    x.rooms = dorm_whole_rooms(p, &s->prices);
    x.has_rooms = x.rooms || dorm_rooms_init(&own, p, 1);
    x.rooms = x.rooms ? x.rooms : &own;
    x.raise = dorm_alloc(p, x.rooms->n_demands, sizeof(*x.raise));
    x.wanted = dorm_alloc(p, x.rooms->n_demands, sizeof(*x.wanted));
    if (!change_as_before(&x)) /* out of memory */
        return;
    x.has_rooms = x.has_rooms && init(&x);
    if (dorm_pairs_possible(p)) {
        try_pairs(&x, end);
    } else if (!x.has_rooms) {
        return;
    } else if (dorm_counted_may_change(p)) {
        if (s->prices.pi)
            try_sets(&x, end);
    } else { /* only the loose jobs change */
        if (!try_set(&x, x.end_if_poor) && !x.lp.n_groups)
            return;
        if (x.rooms->rounded)
            bound_finely(&x);
        s->prices.upper = MIN(s->prices.upper, x.upper);
    }
}
