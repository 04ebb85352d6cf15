/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills one node after the other as well as possible, in large problems.
 *
 * All containers that may leave the node are taken away. The containers x_i that the node gets
 * instead are a small integer program. The counts of the jobs on all other nodes stay:
 *
 *   maximize  sum of v_i * x_i
 *   so that   sum of d_ik * x_i <= the room of the node, for each type k
 *             x_i <= the containers that the job's max and the bound on the loss allow
 *   v_i       = u_i - mu * D_i for a job at or above its ideal count, else u_i + mu * D_i
 *
 * First a depth-first search with few branches: it takes the jobs by falling ratio of v_i to the
 * cost of a container at the present prices, sum over k of price_gk * d_ik / C_k in the class g of
 * the node. A branch ends if even the largest ratio of the rest, times the value of the rest of the
 * room at these prices, cannot make it the best. Then random trials: a trial takes one to three
 * containers away, and fills the room again in the order of v_i, with some jobs left out.
 */
#include "partition/dorm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

enum {
    BRANCHES = 60, /* for one node */
    TRIALS = 20,
    TRIALS_WORK = 4, /* steps of one trial, beside those for each item */
    ITEMS_MAX = 128, /* jobs that are considered for one node */
    TAKEN_MAX = 64,  /* jobs that may leave one node */
    SWEEPS = 6,
};

#define LEAST_PRICE 0.01 /* is added to each price, since unused types have none */
#define LEAST_WORTH 1e-7 /* nodes with less valuable room are left as they are */

/* A job that may get containers on the node. */
struct item {
    uint32_t job, most;
    uint32_t now; /* containers that it has there and that may leave */
    double value, ratio;
};

/* Containers of a job that may leave the node. */
struct taken {
    uint32_t job, n;
};

struct filling {
    const struct dorm_problem *p;
    double mu;
    struct taken taken[TAKEN_MAX];
    uint32_t n_taken;
    int64_t room[PART_TYPES_MAX]; /* without the containers that may leave */
    double loss;                  /* the same */
    struct item items[ITEMS_MAX]; /* by falling ratio */
    uint8_t by_value[ITEMS_MAX];  /* the items by falling value */
    uint32_t n, left;             /* left: branches */
    double price[PART_TYPES_MAX]; /* of one unit of a type on this node */
    uint32_t x[ITEMS_MAX], best_x[ITEMS_MAX];
    double best;
};

static const int64_t *demand(const struct filling *f, uint32_t item)
{
    return f->p->jobs[f->items[item].job].d;
}

static double worth_of(const struct filling *f, const int64_t *amounts)
{
    double sum = 0;
    for (uint32_t k = 0; k < f->p->m; k++)
        sum += f->price[k] * (double)amounts[k];
    return sum;
}

static void branch(struct filling *f, uint32_t at, const int64_t *room, double value)
{
    uint32_t m = f->p->m, fit = 0;
    if (value > f->best + 1e-12) {
        f->best = value;
        memcpy(f->best_x, f->x, sizeof(f->x[0]) * f->n);
    }
    for (; at < f->n && fit == 0; at++)
        fit = MIN(f->items[at].most, dorm_fit(room, demand(f, at), m));
    if (fit == 0 || f->left == 0)
        return;
    at--;
    if (value + f->items[at].ratio * worth_of(f, room) <= f->best + 1e-12)
        return;
    for (uint32_t x = fit + 1; x-- > 0 && f->left > 0;) {
        int64_t rest[PART_TYPES_MAX];
        for (uint32_t k = 0; k < m; k++)
            rest[k] = room[k] - demand(f, at)[k] * x;
        f->x[at] = x;
        f->left--;
        branch(f, at + 1, rest, value + f->items[at].value * x);
    }
    f->x[at] = 0;
}

/* Add containers to x in the order of their value. skip: the part of the items that is left out.
 * Returns the value that was added. */
static double add(struct filling *f, uint64_t *seed, double skip, int64_t *room, uint32_t *x)
{
    uint32_t m = f->p->m;
    double gain = 0;
    uint64_t bits = dorm_random(seed);
    for (uint32_t c = 0; c < f->n; c++) {
        uint32_t i = f->by_value[c];
        const int64_t *d = demand(f, i);
        bits = bits << 7 | bits >> 57;
        if (!dorm_fits(room, d, m) || x[i] >= f->items[i].most ||
            (skip > 0 && (double)(bits & 63) < 64 * skip))
            continue;
        uint32_t fit = MIN(dorm_fit(room, d, m), f->items[i].most - x[i]);
        if (skip > 0 && fit > 1)
            fit = 1 + dorm_below(seed, fit);
        for (uint32_t k = 0; k < m; k++)
            room[k] -= d[k] * fit;
        x[i] += fit;
        gain += f->items[i].value * fit;
    }
    return gain;
}

/* Take one container of a random item away. Returns its value. */
static double take_one(struct filling *f, uint64_t *seed, int64_t *room, uint32_t *x)
{
    uint32_t found = f->n, seen = 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (x[i] > 0 && dorm_below(seed, ++seen) == 0)
            found = i;
    if (found == f->n)
        return 0;
    for (uint32_t k = 0; k < f->p->m; k++)
        room[k] += demand(f, found)[k];
    x[found]--;
    return f->items[found].value;
}

/* Take containers away and fill the room again, at random. Keep what is not worse. */
static void try_more(struct filling *f, uint64_t *seed)
{
    int64_t room[PART_TYPES_MAX], rest[PART_TYPES_MAX];
    uint32_t m = f->p->m;
    memcpy(room, f->room, sizeof(room[0]) * m);
    for (uint32_t i = 0; i < f->n; i++)
        for (uint32_t k = 0; k < m; k++)
            room[k] -= demand(f, i)[k] * f->best_x[i];
    for (unsigned t = 0; t < TRIALS; t++) {
        memcpy(f->x, f->best_x, sizeof(f->x[0]) * f->n);
        memcpy(rest, room, sizeof(rest[0]) * m);
        double value = f->best;
        for (uint32_t c = 1 + dorm_below(seed, 3); c > 0; c--)
            value -= take_one(f, seed, rest, f->x);
        value += add(f, seed, 0.4, rest, f->x);
        value += add(f, seed, 0, rest, f->x);
        if (value < f->best)
            continue;
        f->best = value;
        memcpy(f->best_x, f->x, sizeof(f->x[0]) * f->n);
        memcpy(room, rest, sizeof(rest[0]) * m);
    }
}

static bool is_taken(const struct filling *f, uint32_t i)
{
    for (uint32_t t = 0; t < f->n_taken; t++)
        if (f->taken[t].job == i)
            return true;
    return false;
}

/* Choose the containers that may leave the node. room: the free amounts without them. */
static void take_away(struct dorm_search *s, struct filling *f, uint32_t node)
{
    const struct dorm_state *state = &s->state;
    const struct dorm_problem *p = s->p;
    f->n_taken = 0;
    f->loss = state->loss;
    memcpy(f->room, dorm_free(state, node), sizeof(f->room[0]) * p->m);
    for (uint32_t e = state->node_head[node]; e != DORM_END && f->n_taken < TAKEN_MAX;
         e = state->entries[e].of_node) {
        const struct dorm_entry *entry = &state->entries[e];
        uint32_t i = entry->job, spare = state->n[i] - MIN(state->n[i], p->jobs[i].lo);
        uint32_t n = MIN(entry->n, spare);
        if (n == 0 || !(state->moved[i] > 0 || p->jobs[i].kind == DORM_LOOSE))
            continue;
        f->taken[f->n_taken++] = (struct taken){ i, n };
        f->loss +=
            dorm_loss_of(&p->jobs[i], state->n[i] - n) - dorm_loss_of(&p->jobs[i], state->n[i]);
        for (uint32_t k = 0; k < p->m; k++)
            f->room[k] += p->jobs[i].d[k] * n;
        dorm_work(&s->p->work, 2);
    }
}

/* Add an item in the order of the ratios. If there are too many, the worst one is left out, but
 * never a job that has containers on the node. */
static void insert(struct filling *f, struct item item)
{
    if (f->n == ITEMS_MAX && (f->items[f->n - 1].now > 0 || f->items[f->n - 1].ratio >= item.ratio))
        return;
    uint32_t at = f->n == ITEMS_MAX ? f->n - 1 : f->n++;
    for (; at > 0 && f->items[at - 1].ratio < item.ratio; at--)
        f->items[at] = f->items[at - 1];
    f->items[at] = item;
}

/* List job i, of which `now` containers may leave the node and at most `fit` fit there. */
static void list_item(struct dorm_search *s, struct filling *f, uint32_t i, uint32_t now,
                      uint32_t fit)
{
    const struct dorm_problem *p = s->p;
    const struct dorm_job *job = &p->jobs[i];
    uint32_t n = s->state.n[i] - now, up = job->ideal > n ? job->ideal - n : 0;
    if (n >= job->hi)
        return;
    double value = up > 0 ? job->u + f->mu * job->D : job->u - f->mu * job->D;
    double over = (MAX(p->loss_bound, s->state.loss) - f->loss) / job->D + up + 1e-6;
    double most = MIN(MIN((double)(job->hi - n), (double)fit), up + floor(MAX(over, 0.0)));
    most = MAX(most, (double)now);
    if (now > 0 || (value > 0 && most >= 1))
        insert(f, (struct item){ i, (uint32_t)most, now, value,
                                 value / (worth_of(f, job->d) + 1e-12) });
}

/* List the jobs that may get containers on the node. n_jobs: the number of jobs in s->order. */
static void list_items(struct dorm_search *s, struct filling *f, uint32_t n_jobs)
{
    const struct dorm_problem *p = s->p;
    const int64_t *d = NULL;
    uint32_t fit = 0;
    f->n = 0;
    for (uint32_t t = 0; t < f->n_taken; t++) {
        uint32_t i = f->taken[t].job;
        list_item(s, f, i, f->taken[t].n, dorm_fit(f->room, p->jobs[i].d, p->m));
    }
    for (uint32_t c = 0; c < n_jobs; c++) {
        uint32_t i = s->order[c];
        if (!d || memcmp(d, p->jobs[i].d, sizeof(*d) * p->m) != 0) {
            d = p->jobs[i].d;
            fit = dorm_fits(f->room, d, p->m) ? dorm_fit(f->room, d, p->m) : 0;
        }
        if (fit > 0 && !is_taken(f, i))
            list_item(s, f, i, 0, fit);
    }
    for (uint32_t c = 0; c < f->n; c++) {
        uint32_t at = c;
        for (; at > 0 && f->items[f->by_value[at - 1]].value < f->items[c].value; at--)
            f->by_value[at] = f->by_value[at - 1];
        f->by_value[at] = (uint8_t)c;
    }
    dorm_work(&s->p->work, n_jobs / 4 + 2 * f->n);
}

/* Begin with the containers that the node has now. */
static void begin(struct filling *f)
{
    f->best = 0;
    for (uint32_t c = 0; c < f->n; c++) {
        f->x[c] = 0;
        f->best_x[c] = f->items[c].now;
        f->best += f->items[c].value * f->best_x[c];
    }
}

static double goal_of(const struct dorm_search *s, double mu)
{
    return s->state.util - mu * s->state.loss;
}

/* Give the node the best containers that were found. False: they are no improvement. */
static bool carry_out(struct dorm_search *s, const struct filling *f, uint32_t node)
{
    struct dorm_state *state = &s->state;
    double before = goal_of(s, f->mu), bad = dorm_score(state).bad;
    for (int grow = 0; grow <= 1; grow++)
        for (uint32_t c = 0; c < f->n; c++) {
            int32_t more = (int32_t)f->best_x[c] - (int32_t)f->items[c].now;
            if (more != 0 && (more > 0) == grow)
                dorm_put(state, f->items[c].job, node, more);
        }
    bool better = goal_of(s, f->mu) > before + 1e-10 && !(dorm_score(state).bad > bad);
    if (!better)
        dorm_undo(state, 0);
    dorm_forget(state);
    return better;
}

/* True: the node is filled better than before. */
static bool refill(struct dorm_search *s, struct filling *f, uint32_t n_jobs, uint32_t node)
{
    const struct dorm_problem *p = s->p;
    for (uint32_t k = 0; k < p->m; k++)
        f->price[k] = (s->prices.node[p->class_of[node] * p->m + k] + LEAST_PRICE) * p->inv[k];
    take_away(s, f, node);
    list_items(s, f, n_jobs);
    if (f->n == 0)
        return false;
    begin(f);
    double now = f->best;
    f->left = BRANCHES;
    branch(f, 0, f->room, 0);
    try_more(f, &s->seed);
    dorm_work(&s->p->work, BRANCHES + TRIALS * (TRIALS_WORK + f->n / 3) + n_jobs / 4);
    return f->best > now + 1e-10 && carry_out(s, f, node);
}

static int by_worth(const void *a, const void *b)
{
    const struct dorm_free_node *x = a, *y = b;
    if (x->worth != y->worth)
        return x->worth > y->worth ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* List the nodes with free room, those with the most valuable room first. Returns their number. */
static uint32_t list_nodes(struct dorm_search *s)
{
    const struct dorm_problem *p = s->p;
    uint32_t n = 0;
    for (uint32_t node = 0; node < p->n_nodes; node++) {
        const double *price = s->prices.node + p->class_of[node] * p->m;
        const int64_t *room = dorm_free(&s->state, node);
        double worth = 0;
        for (uint32_t k = 0; k < p->m; k++)
            worth += (price[k] + LEAST_PRICE) * (double)room[k] * p->inv[k];
        if (worth > LEAST_WORTH)
            s->free_nodes[n++] = (struct dorm_free_node){ node, worth };
    }
    dorm_work(&s->p->work, p->n_nodes);
    qsort(s->free_nodes, n, sizeof(*s->free_nodes), by_worth);
    return n;
}

/* List the jobs that may change in s->order, those with equal demands as neighbours. */
static uint32_t list_jobs(struct dorm_search *s)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < s->p->n_all; c++) {
        uint32_t i = s->p->waste.order[c];
        if (i < s->p->n && dorm_may_change(s, i))
            s->order[n++] = i;
    }
    return n;
}

/* If no more than this part of the bound on the loss is left, the price of the loss does not fall.
 */
static const double LITTLE_SLACK = 0.02;

/* mu for a sweep over the nodes. If the division is too unfair, fairness comes first. If it is
 * fairer than it must be, fairness counts less from sweep to sweep. */
static double price_of_loss(const struct dorm_search *s, unsigned sweep)
{
    double mu = s->prices.loss, room = s->p->loss_bound - s->state.loss;
    if (s->state.loss > dorm_loss_limit(s->p))
        return 4 * mu + 1; /* much more than the price, also where that is 0 */
    return room < LITTLE_SLACK * s->p->loss_bound ? mu : mu / (1 << (2 * sweep));
}

void dorm_refill(struct dorm_search *s, uint64_t steps)
{
    struct dorm_problem *p = s->p;
    struct filling f = { .p = p };
    uint64_t end = p->work.steps + steps;
    if (s->state.lacking > 0 || s->state.adjusted > p->adjust_bound)
        return;
    for (unsigned sweep = 0; sweep < SWEEPS && p->work.steps < end; sweep++) {
        uint32_t n_jobs = list_jobs(s), n = list_nodes(s), better = 0;
        bool unfair = s->state.loss > dorm_loss_limit(p);
        if (sweep % 2 == 1)
            n = MIN(n, MAX(n / 3, 100u));
        f.mu = price_of_loss(s, sweep);
        for (uint32_t c = 0; c < n && p->work.steps < end && !p->work.over && !p->failed; c++) {
            better += refill(s, &f, n_jobs, s->free_nodes[c].node);
            if (unfair && s->state.loss <= p->loss_bound) {
                unfair = false;
                f.mu = s->prices.loss;
            }
        }
        if (p->work.over || p->failed || (better == 0 && f.mu < 1e-3))
            break;
    }
}
