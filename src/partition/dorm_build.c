/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds a first good allocation. Jobs that do not change keep their places. For the other jobs:
 *
 * 0. In a large problem, where the search has few steps: find prices for the case that only these
 *    jobs change. The other jobs and the places that they leave are known now, so these prices are
 *    better than those for any set of jobs.
 * 1. Place the minimum of each job, jobs with large containers first.
 * 2. Place as many containers as the prices suggest. Jobs below their ideal count come first.
 * 3. Bring the loss of fairness under its bound.
 * 4. Fill the rest of the room.
 */
#include "partition/dorm.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/util.h"

/* A group of nodes on which a container could be placed. */
struct dorm_candidate {
    double score;
    uint32_t node; /* the first node of the group */
    uint32_t size;
};

enum {
    PARTS = 8,
    REPAIR_SWEEPS = 4,
    LOCAL_ROUNDS = 60, /* of the prices for one set of jobs that change */
};

/* One free unit of a scarce type counts more than any likeness, which is at most m. */
static const double SCARCE_UNIT = 1000;
/* More than any cost: classes that have as many containers as the prices want come last. */
static const double NOT_WANTED = 1e9;
static const double ROUND_UP = 0.3; /* rounded to whole containers: up from .7 on */

int dorm_search_init(struct dorm_problem *p, struct dorm_search *s)
{
    *s = (struct dorm_search){ .p = p, .seed = p->seed };
    s->style = (struct dorm_style){ .home = true, .tight = true };
    s->candidates = dorm_alloc(p, p->n_nodes, sizeof(*s->candidates));
    s->free_nodes = dorm_alloc(p, p->n_nodes, sizeof(*s->free_nodes));
    s->picked = dorm_alloc(p, p->n_all, sizeof(*s->picked));
    s->was_picked = dorm_alloc(p, p->n_all, sizeof(*s->was_picked));
    s->cost = dorm_alloc(p, (size_t)p->n_all * p->n_classes, sizeof(*s->cost));
    s->fit_now = dorm_alloc(p, (size_t)p->n_all * p->n_classes, sizeof(*s->fit_now));
    s->order = dorm_alloc(p, p->n_all, sizeof(*s->order));
    s->key = dorm_alloc(p, p->n_all, sizeof(*s->key));
    if (p->failed)
        return -ENOMEM;
    int rc = dorm_prices_init(p, &s->prices);
    if (rc == 0)
        rc = dorm_prices_init(p, &s->local);
    s->local.from = &s->prices;
    s->local.picked = s->picked;
    s->local.fit = s->fit_now;
    return rc < 0 ? rc : dorm_state_init(p, &s->state);
}

/* ---- one job */

/* Place up to n containers on the nodes where the job has containers now. Returns how many were
 * placed. */
static uint32_t place_home(struct dorm_search *s, uint32_t i, uint32_t n)
{
    const struct dorm_job *job = &s->p->jobs[i];
    uint32_t done = 0;
    for (uint32_t a = 0; a < job->n_at && done < n; a++) {
        uint32_t has = dorm_on(&s->state, i, job->at[a].node);
        if (has >= job->at[a].n)
            continue;
        uint32_t fit = dorm_fit(dorm_free(&s->state, job->at[a].node), job->d, s->p->m);
        uint32_t more = MIN(MIN(job->at[a].n - has, n - done), fit);
        if (more > 0)
            dorm_put(&s->state, i, job->at[a].node, (int32_t)more);
        done += more;
    }
    dorm_work(&s->p->work, job->n_at);
    return done;
}

static double score_group(const struct dorm_search *s, const struct dorm_job *job,
                          const struct dorm_group *g)
{
    const struct dorm_problem *p = s->p;
    double like = 0, scarce = 0;
    for (uint32_t k = 0; k < p->m; k++) {
        like += (double)g->free[k] * p->inv[k] * job->dn[k];
        if (p->scarce[k] && job->d[k] > 0)
            scarce += (double)g->free[k];
    }
    if (s->style.jitter > 0) {
        uint64_t salt = s->style.salt + g->head;
        like *= 1 - s->style.jitter * dorm_uniform(&salt);
    }
    if (s->style.worst)
        like = -like;
    return s->style.tight ? like - SCARCE_UNIT * scarce : like;
}

static void sift_down(struct dorm_candidate *heap, uint32_t n, uint32_t at)
{
    struct dorm_candidate c = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1].score > heap[child].score)
            child++;
        if (heap[child].score <= c.score)
            break;
        heap[at] = heap[child];
    }
    heap[at] = c;
}

/* Append the candidates of one class to the first n candidates. Returns the new number. */
static uint32_t collect(struct dorm_search *s, const struct dorm_job *job, uint32_t class,
                        uint32_t n)
{
    const struct dorm_state *state = &s->state;
    const uint32_t *list = state->listed + state->listed_at[class];
    for (uint32_t l = 0; l < state->n_listed[class]; l++) {
        const struct dorm_group *g = &state->groups[list[l]];
        if (dorm_fits(g->free, job->d, s->p->m))
            s->candidates[n++] =
                (struct dorm_candidate){ score_group(s, job, g), g->head, g->size };
    }
    dorm_work(&s->p->work, state->n_listed[class] / 2 + 1);
    return n;
}

/* Place up to `want` containers on the nodes of n groups, the best groups first. Each node gets the
 * same number: usually one. If the containers are small, a node gets the part 1 / PARTS of those
 * that still fit. If there are very many, the number is so large that two sweeps over these nodes
 * suffice. */
static uint32_t put_on_best(struct dorm_search *s, uint32_t i, uint32_t n, uint32_t want)
{
    struct dorm_state *state = &s->state;
    uint32_t done = 0;
    uint64_t nodes = 0;
    for (uint32_t c = 0; c < n; c++)
        nodes += s->candidates[c].size;
    uint32_t each = (uint32_t)MAX(want / (2 * nodes), (uint64_t)1);
    for (uint32_t c = n / 2; c-- > 0;)
        sift_down(s->candidates, n, c);
    while (done < want && n > 0) {
        uint32_t node = s->candidates[0].node, left = s->candidates[0].size;
        uint32_t fit = dorm_fit(dorm_free(state, node), s->p->jobs[i].d, s->p->m);
        uint32_t put = MIN(MAX(each, fit / PARTS), fit);
        while (left-- > 0 && done < want && node != DORM_END) {
            uint32_t next = state->next_node[node], more = MIN(put, want - done);
            dorm_put(state, i, node, (int32_t)more);
            dorm_work(&s->p->work, 8);
            node = next;
            done += more;
        }
        s->candidates[0] = s->candidates[--n];
        sift_down(s->candidates, n, 0);
    }
    return done;
}

void dorm_price_places(struct dorm_search *s, const struct dorm_prices *guide)
{
    const struct dorm_problem *p = s->p;
    s->guide = guide;
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t g = 0; g < p->n_classes; g++) {
            double cost = 0;
            for (uint32_t k = 0; k < p->m; k++)
                cost += guide->node[g * p->m + k] * p->jobs[i].dn[k];
            s->cost[(size_t)i * p->n_classes + g] = round(100 * cost / p->jobs[i].u);
        }
}

/* The classes in the order in which job i prefers them: first the classes in which the prices want
 * more of its containers, then by cost. Classes of about equal cost get equal keys. */
static void rank_classes(const struct dorm_search *s, uint32_t i, double *key, uint32_t *order)
{
    const struct dorm_problem *p = s->p;
    const double *cost = s->cost + (size_t)i * p->n_classes;
    const uint32_t *has = s->state.in_class + (size_t)i * p->n_classes;
    const double *want = s->guide->want + (size_t)i * p->n_classes;
    for (uint32_t g = 0; g < p->n_classes; g++) {
        key[g] = s->style.anywhere ? 0 : cost[g] + (has[g] + 0.5 > want[g]) * NOT_WANTED;
        uint32_t at = g;
        for (; at > 0 && key[order[at - 1]] > key[g]; at--)
            order[at] = order[at - 1];
        order[at] = g;
    }
}

/* Place at most n containers, at most one on each node. Returns how many were placed; 0: no node
 * has room for one. */
static uint32_t place_sweep(struct dorm_search *s, uint32_t i, uint32_t n)
{
    const struct dorm_problem *p = s->p;
    double key[DORM_CLASSES_MAX];
    uint32_t order[DORM_CLASSES_MAX];
    rank_classes(s, i, key, order);
    for (uint32_t from = 0, to; from < p->n_classes; from = to) {
        uint32_t found = 0;
        double more = 1;
        for (to = from; to < p->n_classes && key[order[to]] == key[order[from]]; to++) {
            size_t cell = (size_t)i * p->n_classes + order[to];
            found = collect(s, &p->jobs[i], order[to], found);
            more = MAX(more, s->guide->want[cell] - s->state.in_class[cell]);
        }
        if (found == 0)
            continue;
        bool wanted = key[order[from]] < NOT_WANTED && !s->style.anywhere;
        return put_on_best(s, i, found, wanted && more < n ? (uint32_t)more : n);
    }
    return 0;
}

uint32_t dorm_place(struct dorm_search *s, uint32_t i, uint32_t n)
{
    uint32_t done = s->style.home ? place_home(s, i, n) : 0;
    while (done < n && !s->p->failed && !s->p->work.over) {
        uint32_t more = place_sweep(s, i, n - done);
        if (more == 0)
            break;
        done += more;
    }
    return done;
}

uint32_t dorm_can_grow(const struct dorm_search *s, uint32_t i)
{
    const struct dorm_job *job = &s->p->jobs[i];
    uint32_t n = s->state.n[i], up = job->ideal > n ? job->ideal - n : 0;
    if (n >= job->hi)
        return 0;
    double slack = dorm_loss_limit(s->p) - (s->state.loss - job->D * up);
    double over = floor(MAX(slack, 0.0) / job->D);
    return (uint32_t)MIN((double)(job->hi - n), up + over);
}

bool dorm_may_change(const struct dorm_search *s, uint32_t i)
{
    switch (s->p->jobs[i].kind) {
    case DORM_LOOSE:
        return true;
    case DORM_COUNTED:
        return s->state.moved[i] > 0 || s->state.adjusted < s->p->adjust_bound;
    case DORM_PINNED:
    default:
        return false;
    }
}

/* ---- all jobs */

static int by_value(const void *a, const void *b, void *ctx)
{
    const double *key = ctx;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return key[x] > key[y] ? -1 : key[x] < key[y] ? 1 : x < y ? -1 : x > y;
}

void dorm_sort(struct dorm_search *s, uint32_t n)
{
    if (n > 32) {
        qsort_r(s->order, n, sizeof(*s->order), by_value, s->key);
        return;
    }
    for (uint32_t c = 1; c < n; c++) {
        uint32_t job = s->order[c], at = c;
        for (; at > 0 && by_value(&s->order[at - 1], &job, s->key) > 0; at--)
            s->order[at] = s->order[at - 1];
        s->order[at] = job;
    }
}

static bool too_unfair(const struct dorm_search *s)
{
    return s->state.loss > dorm_loss_limit(s->p);
}

/* Remove containers, from the highest node down, until the job has n or the loss is within its
 * bound. */
static void shrink(struct dorm_search *s, uint32_t i, uint32_t n)
{
    struct dorm_state *state = &s->state;
    const struct dorm_job *job = &s->p->jobs[i];
    while (state->n[i] > n && too_unfair(s)) {
        uint32_t last = 0, has = 0;
        for (uint32_t e = state->job_head[i]; e != DORM_END; e = state->entries[e].of_job)
            if (state->entries[e].n > 0 && (has == 0 || state->entries[e].node > last)) {
                last = state->entries[e].node;
                has = state->entries[e].n;
            }
        double excess = ceil((state->loss - s->p->loss_bound) / job->D - 1e-9);
        uint32_t less = (uint32_t)MIN(MIN((double)has, excess), (double)(state->n[i] - n));
        dorm_put(state, i, last, -(int32_t)MAX(less, 1u));
        dorm_work(&s->p->work, 8);
    }
}

void dorm_repair(struct dorm_search *s)
{
    struct dorm_problem *p = s->p;
    for (unsigned sweep = 0; sweep < REPAIR_SWEEPS && too_unfair(s); sweep++) {
        uint32_t log = s->state.n_log;
        for (uint32_t c = 0; c < p->n && too_unfair(s); c++) {
            uint32_t i = p->big_first[c], low = MAX(p->jobs[i].ideal, p->jobs[i].lo);
            if (s->state.n[i] > low && dorm_may_change(s, i))
                shrink(s, i, low);
        }
        for (uint32_t c = p->n; c-- > 0 && too_unfair(s);) {
            uint32_t i = p->big_first[c], high = MIN(p->jobs[i].ideal, p->jobs[i].hi);
            if (s->state.n[i] < high && dorm_may_change(s, i))
                dorm_place(s, i, high - s->state.n[i]);
        }
        if (s->state.n_log == log)
            return;
    }
}

void dorm_fill(struct dorm_search *s, const uint32_t *order, uint32_t n)
{
    for (uint32_t c = 0; c < n && !s->p->failed; c++) {
        uint32_t more = dorm_may_change(s, order[c]) ? dorm_can_grow(s, order[c]) : 0;
        if (more > 0)
            dorm_place(s, order[c], more);
    }
    dorm_work(&s->p->work, n / 4 + 1);
}

/* Write the picked jobs to order, sorted by falling D. Returns their number. */
static uint32_t list_picked(struct dorm_search *s)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < s->p->n; c++) {
        uint32_t i = s->p->big_first[c];
        if (s->picked[i] || s->p->jobs[i].kind == DORM_LOOSE)
            s->order[n++] = i;
    }
    return n;
}

/* The number of containers that the prices suggest for job i. */
static uint32_t suggested(const struct dorm_search *s, uint32_t i)
{
    double sum = ROUND_UP;
    for (uint32_t g = 0; g < s->p->n_classes; g++)
        sum += s->guide->want[(size_t)i * s->p->n_classes + g];
    return (uint32_t)MIN(sum, (double)s->p->jobs[i].hi);
}

/* Find prices for the case that only the n jobs in s->order change. They have no containers now. So
 * the free amounts show how many of their containers fit beside all other jobs. */
static void find_local_prices(struct dorm_search *s, uint32_t n)
{
    const struct dorm_problem *p = s->p;
    const struct dorm_state *state = &s->state;
    for (uint32_t c = 0; c < n; c++) {
        uint32_t i = s->order[c];
        uint32_t *fit = s->fit_now + (size_t)i * p->n_classes;
        for (uint32_t g = 0; g < p->n_classes; g++) {
            const uint32_t *list = state->listed + state->listed_at[g];
            uint64_t sum = 0;
            for (uint32_t l = 0; l < state->n_listed[g]; l++) {
                const struct dorm_group *group = &state->groups[list[l]];
                sum += (uint64_t)dorm_fit(group->free, p->jobs[i].d, p->m) * group->size;
            }
            fit[g] = (uint32_t)MIN(sum, (uint64_t)p->jobs[i].hi);
            dorm_work(&s->p->work, state->n_listed[g] / 4 + 1);
        }
    }
    dorm_prices_find(s->p, &s->local, LOCAL_ROUNDS);
}

/* Bring the loss under its bound. If no job lacks containers for its min, let the n jobs in
 * s->order grow, the one whose containers use most first. */
static void repair_and_fill(struct dorm_search *s, uint32_t n)
{
    dorm_repair(s);
    for (uint32_t c = 0; c < n; c++)
        s->key[s->order[c]] = s->p->jobs[s->order[c]].u;
    dorm_sort(s, n);
    if (s->state.lacking == 0)
        dorm_fill(s, s->order, n);
}

void dorm_finish_build(struct dorm_search *s)
{
    struct dorm_problem *p = s->p;
    uint32_t n = list_picked(s);
    for (uint32_t c = 0; c < n; c++)
        if (s->state.n[s->order[c]] < p->jobs[s->order[c]].lo)
            dorm_place(s, s->order[c], p->jobs[s->order[c]].lo - s->state.n[s->order[c]]);
    repair_and_fill(s, n);
}

void dorm_build(struct dorm_search *s)
{
    struct dorm_problem *p = s->p;
    dorm_state_keep(&s->state);
    uint32_t n = list_picked(s);
    for (uint32_t c = 0; c < n; c++)
        dorm_take_all(&s->state, s->order[c]);
    bool is_local = n < p->n && !dorm_is_small(p);
    if (is_local)
        find_local_prices(s, n);
    dorm_price_places(s, is_local ? &s->local : &s->prices);
    for (uint32_t c = 0; c < n; c++)
        dorm_place(s, s->order[c], p->jobs[s->order[c]].lo);
    for (int all = 0; all <= 1 && s->state.lacking == 0; all++)
        for (uint32_t c = 0; c < n; c++) {
            uint32_t i = s->order[c], goal = suggested(s, i);
            if (!all)
                goal = MIN(goal, p->jobs[i].ideal);
            if (goal > s->state.n[i])
                dorm_place(s, i, goal - s->state.n[i]);
        }
    repair_and_fill(s, n);
    dorm_forget(&s->state);
}
