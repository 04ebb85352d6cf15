/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the solution of the program of dorm_patterns.c to a division: rounds the numbers of nodes
 * with each pattern, and places the containers of the patterns.
 */
#include <string.h>

#include "base/util.h"
#include "partition/dorm_patterns.h"

/* Round the numbers of nodes: down, then up where the largest parts are missing. Returns them by
 * pattern. NULL: out of memory. */
static uint32_t *whole_nodes(struct dorm_patterns *x)
{
    const struct dorm_simplex *lp = &x->lp;
    uint32_t *count = dorm_alloc(x->p, lp->n_patterns, sizeof(*count));
    double *y = dorm_alloc(x->p, lp->n_patterns, sizeof(*y));
    uint32_t *left = dorm_alloc(x->p, lp->n_groups, sizeof(*left));
    if (x->p->failed)
        return NULL;
    dorm_simplex_nodes(lp, y);
    for (uint32_t g = 0; g < lp->n_groups; g++)
        left[g] = lp->groups[g].size;
    for (uint32_t q = 0; q < lp->n_patterns; q++) {
        uint32_t *nodes = &left[lp->patterns[q].group];
        count[q] = MIN((uint32_t)MIN(y[q] + 1e-6, 1e9), *nodes);
        *nodes -= count[q];
        y[q] -= count[q];
    }
    for (uint32_t g = 0; g < lp->n_groups; g++)
        for (; left[g] > 0; left[g]--) {
            uint32_t most = lp->groups[g].key;
            for (uint32_t q = lp->groups[g].head; q != DORM_END; q = lp->patterns[q].next)
                if (y[q] > y[most])
                    most = q;
            y[most]--;
            count[most]++;
        }
    return count;
}

/* The jobs buy what is sold of their demand: first each its min, then up to its ideal count, then
 * up to its max. Returns the counts of the jobs; NULL: out of memory. */
static uint32_t *share_out(struct dorm_patterns *x)
{
    uint32_t *goal = dorm_alloc(x->p, x->p->n, sizeof(*goal));
    for (int stage = 0; goal && stage < 3; stage++)
        for (uint32_t i = 0; i < x->p->n; i++) {
            const struct dorm_job *job = &x->p->jobs[i];
            if (!x->changes[i])
                continue;
            uint32_t ideal = MIN(MAX(job->ideal, job->lo), job->hi);
            uint32_t to = stage == 0 ? job->lo : stage == 1 ? ideal : job->hi;
            double *left = &x->sold[x->rooms->demand_of[i]];
            uint32_t more = (uint32_t)MIN((double)(to - goal[i]), *left);
            goal[i] += more;
            *left -= more;
        }
    return goal;
}

/* Place up to n containers of a job, but not more than its min, on the node. */
static void place_min(struct dorm_patterns *x, uint32_t i, uint32_t node, uint32_t n)
{
    struct dorm_state *state = &x->s->state;
    const struct dorm_job *job = &x->p->jobs[i];
    if (state->n[i] >= job->lo)
        return;
    n = MIN(n, job->lo - state->n[i]);
    n = MIN(n, dorm_fit(dorm_free(state, node), job->d, x->p->m));
    if (n > 0)
        dorm_put(state, i, node, (int32_t)n);
}

/* Place the minima of the jobs x->reserved: of a running job where it runs, of another one where
 * the best division so far has it, as far as that is possible beside the jobs that do not change.
 */
static void place_reserved(struct dorm_patterns *x)
{
    const struct dorm_plan *best = &x->s->best;
    for (uint32_t i = 0; i < x->p->n_running; i++)
        for (uint32_t a = 0; a < x->p->jobs[i].n_at && x->reserved[i]; a++)
            place_min(x, i, x->p->jobs[i].at[a].node, x->p->jobs[i].at[a].n);
    for (uint32_t c = 0; c < best->n; c++)
        if (x->reserved[best->places[c].job] && best->places[c].n > 0)
            place_min(x, best->places[c].job, best->places[c].node, (uint32_t)best->places[c].n);
    dorm_work(&x->p->work, best->n);
}

void dorm_place_patterns(struct dorm_patterns *x)
{
    struct dorm_problem *p = x->p;
    const struct dorm_simplex *lp = &x->lp;
    struct dorm_state *state = &x->s->state;
    uint32_t m = x->rooms->n_demands, *count = whole_nodes(x);
    uint32_t *first = dorm_alloc(p, m, sizeof(*first)), *next = dorm_alloc(p, p->n, sizeof(*next));
    if (p->failed)
        return;
    memset(x->sold, 0, sizeof(*x->sold) * m);
    for (uint32_t q = 0; q < lp->n_patterns; q++)
        for (uint32_t c = lp->patterns[q].first; c < lp->patterns[q].first + lp->patterns[q].n; c++)
            x->sold[lp->demand_of[lp->items[c].row]] += (double)count[q] * lp->items[c].n;
    const uint32_t *goal = share_out(x);
    if (!goal)
        return;
    dorm_state_keep(state);
    memset(first, 0xff, sizeof(*first) * m);
    for (uint32_t i = p->n; i-- > 0;)
        if (x->changes[i]) {
            dorm_take_all(state, i);
            next[i] = first[x->rooms->demand_of[i]];
            first[x->rooms->demand_of[i]] = i;
        }
    place_reserved(x);
    for (uint32_t j = 0; j < p->n_nodes; j++) {
        uint32_t q = lp->groups[x->group_of[j]].head;
        while (q != DORM_END && count[q] == 0)
            q = lp->patterns[q].next;
        if (q == DORM_END)
            continue;
        count[q]--;
        for (uint32_t c = lp->patterns[q].first; c < lp->patterns[q].first + lp->patterns[q].n;
             c++) {
            uint32_t *i = &first[lp->demand_of[lp->items[c].row]], n = lp->items[c].n;
            while (n > 0 && *i != DORM_END) {
                uint32_t more = MIN(n, goal[*i] - MIN(goal[*i], state->n[*i]));
                more = MIN(more, dorm_fit(dorm_free(state, j), p->jobs[*i].d, p->m));
                if (more > 0)
                    dorm_put(state, *i, j, (int32_t)more);
                n -= more;
                if (state->n[*i] < goal[*i])
                    break;
                *i = next[*i];
            }
        }
        dorm_work(&p->work, 4 * lp->patterns[q].n);
    }
}
