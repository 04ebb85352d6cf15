/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchanges of containers between two nodes, for large instances.
 *
 * A node may have free GPUs, but no free cores. Then no job that needs both can grow there. Such a
 * node is a gap: it has room, but too little of one type. An exchange moves a container with many
 * cores from the gap to another node, and a container with few cores from there to the gap. Then
 * another container fits into the gap.
 *
 * The worth of an exchange has two parts: the value, at the present prices, of the room that it
 * frees and uses, and the amount that it frees of the types that keep jobs out of the gap.
 *
 * The random steps of the local search (dorm_search.c) rarely find such a pair of nodes.
 */
#include "partition/dorm.h"

#include <stdlib.h>

#include "base/util.h"

enum {
    SWEEPS = 3,
    GAPS_MAX = 256,
    PARTNERS_MAX = 200, /* nodes that are tried for one gap */
};

/* Exchanges and gaps of at most this worth are not tried. The unit is that of utilization. */
static const double LEAST_WORTH = 1e-7;

/* The types that keep jobs out of the gap. by[k]: a job that may grow lacks only type k there. */
struct blocked {
    bool by[PART_TYPES_MAX];
};

/* A container of job `out` moves from the gap to the node `to`, and one of job `in` moves back. */
struct exchange {
    uint32_t out, to, in; /* in: DORM_END = no container moves back */
    double worth;
};

/* The value of these amounts on the node, at the present prices. */
static double worth(const struct dorm_search *s, uint32_t node, const int64_t *amounts)
{
    const struct dorm_problem *p = s->p;
    const double *price = s->prices.node + p->class_of[node] * p->m;
    double sum = 0;
    for (uint32_t k = 0; k < p->m; k++)
        sum += price[k] * (double)amounts[k] * p->inv[k];
    return sum;
}

static int by_worth(const void *a, const void *b)
{
    const struct dorm_gap *x = a, *y = b;
    if (x->worth != y->worth)
        return x->worth > y->worth ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* List the nodes with the most valuable free room, at most GAPS_MAX. Returns their number. */
static uint32_t list_gaps(struct dorm_search *s, struct dorm_gap *gaps)
{
    uint32_t n = 0;
    for (uint32_t node = 0; node < s->p->n_nodes; node++) {
        double w = worth(s, node, dorm_free(&s->state, node));
        if (w > LEAST_WORTH)
            gaps[n++] = (struct dorm_gap){ node, w };
    }
    dorm_work(&s->p->work, s->p->n_nodes);
    qsort(gaps, n, sizeof(*gaps), by_worth);
    return MIN(n, (uint32_t)GAPS_MAX);
}

/* Put the jobs that may grow into s->order, sorted by their cost on the node, cheapest first.
 * Returns their number. */
static uint32_t list_growing(struct dorm_search *s, uint32_t node)
{
    const struct dorm_problem *p = s->p;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        if (!dorm_may_change(s, i) || dorm_room(s, i) == 0)
            continue;
        s->order[n++] = i;
        s->key[i] = -s->cost[(size_t)i * p->n_classes + p->class_of[node]];
    }
    dorm_work(&s->p->work, p->n / 4);
    dorm_sort(s, n);
    return n;
}

/* Find the types that block the node. n: the number of jobs in s->order, which may grow. */
static struct blocked find_blocked(const struct dorm_search *s, uint32_t node, uint32_t n)
{
    const struct dorm_problem *p = s->p;
    const int64_t *room = dorm_free(&s->state, node);
    struct blocked found = { 0 };
    for (uint32_t c = 0; c < n; c++) {
        uint32_t lacking = 0, last = 0;
        for (uint32_t k = 0; k < p->m; k++)
            if (room[k] < p->jobs[s->order[c]].d[k]) {
                lacking++;
                last = k;
            }
        if (lacking == 1)
            found.by[last] = true;
    }
    return found;
}

/* Rate all exchanges of a container of job `out` between the gap and one node. */
static void look_at(struct dorm_search *s, uint32_t gap, const struct blocked *blocked,
                    uint32_t out, uint32_t to, struct exchange *best)
{
    const struct dorm_problem *p = s->p;
    const struct dorm_state *state = &s->state;
    const struct dorm_job *leaves = &p->jobs[out];
    const int64_t *room = dorm_free(state, to), *gap_room = dorm_free(state, gap);
    uint32_t e = state->node_head[to], in = DORM_END;
    for (;;) {
        /* amounts that become free in the gap and are used on the node */
        int64_t less[PART_TYPES_MAX];
        bool fits = true;
        for (uint32_t k = 0; k < p->m; k++) {
            less[k] = leaves->d[k] - (in == DORM_END ? 0 : p->jobs[in].d[k]);
            fits = fits && room[k] >= less[k] && gap_room[k] >= -less[k];
        }
        double w = fits ? worth(s, gap, less) - worth(s, to, less) : 0;
        for (uint32_t k = 0; k < p->m && fits; k++)
            w += blocked->by[k] ? (double)less[k] * p->inv[k] : 0;
        if (w > best->worth)
            *best = (struct exchange){ out, to, in, w };
        while (e != DORM_END && (state->entries[e].n == 0 || state->entries[e].job == out ||
                                 !dorm_may_change(s, state->entries[e].job)))
            e = state->entries[e].of_node;
        if (e == DORM_END)
            return;
        in = state->entries[e].job;
        e = state->entries[e].of_node;
    }
}

/* The best exchange that takes a container of this job out of the gap. */
static struct exchange find_exchange(struct dorm_search *s, uint32_t gap,
                                     const struct blocked *blocked, uint32_t out)
{
    struct dorm_problem *p = s->p;
    struct exchange best = { .worth = LEAST_WORTH, .out = DORM_END };
    uint32_t n = MIN(p->n_nodes, (uint32_t)PARTNERS_MAX), at = dorm_below(&s->seed, p->n_nodes);
    for (uint32_t c = 0; c < n; c++, at = at + 1 < p->n_nodes ? at + 1 : 0)
        if (at != gap)
            look_at(s, gap, blocked, out, at, &best);
    dorm_work(&p->work, n / 4);
    return best;
}

static void carry_out(struct dorm_search *s, uint32_t gap, const struct exchange *x)
{
    dorm_put(&s->state, x->out, gap, -1);
    if (x->in != DORM_END)
        dorm_put(&s->state, x->in, x->to, -1);
    dorm_put(&s->state, x->out, x->to, 1);
    if (x->in != DORM_END)
        dorm_put(&s->state, x->in, gap, 1);
}

/* Grow jobs on the node as far as all bounds allow. */
static void fill(struct dorm_search *s, uint32_t node)
{
    const struct dorm_problem *p = s->p;
    uint32_t n = list_growing(s, node);
    for (uint32_t c = 0; c < n; c++) {
        uint32_t i = s->order[c], fit = dorm_fit(dorm_free(&s->state, node), p->jobs[i].d, p->m);
        if (fit > 0 && dorm_may_change(s, i) && (fit = MIN(fit, dorm_room(s, i))) > 0)
            dorm_put(&s->state, i, node, (int32_t)fit);
    }
}

/* Try an exchange for each job in the gap. True: one of them made the division better. */
static bool improve_gap(struct dorm_search *s, uint32_t gap)
{
    enum { JOBS_MAX = 16 };
    uint32_t jobs[JOBS_MAX], n = 0;
    struct dorm_state *state = &s->state;
    for (uint32_t e = state->node_head[gap]; e != DORM_END && n < JOBS_MAX;
         e = state->entries[e].of_node)
        if (state->entries[e].n > 0 && dorm_may_change(s, state->entries[e].job))
            jobs[n++] = state->entries[e].job;
    struct blocked blocked = find_blocked(s, gap, list_growing(s, gap));
    for (uint32_t c = 0; c < n && !s->p->work.over && !s->p->failed; c++) {
        struct exchange x = find_exchange(s, gap, &blocked, jobs[c]);
        if (x.out == DORM_END)
            continue;
        struct dorm_score before = dorm_score(state);
        carry_out(s, gap, &x);
        fill(s, gap);
        struct dorm_score after = dorm_score(state);
        bool better = dorm_compare(&after, &before) > 0;
        if (!better)
            dorm_undo(state, 0);
        dorm_forget(state);
        if (better)
            return true;
    }
    return false;
}

void dorm_swap(struct dorm_search *s)
{
    struct dorm_problem *p = s->p;
    struct dorm_gap *gaps = s->gaps;
    bool found = !(dorm_score(&s->state).bad > 0);
    for (unsigned sweep = 0; sweep < SWEEPS && found; sweep++) {
        uint32_t n = list_gaps(s, gaps);
        found = false;
        for (uint32_t c = 0; c < n && !p->work.over && !p->failed; c++)
            while (!p->work.over && !p->failed && improve_gap(s, gaps[c].node))
                found = true;
    }
}
