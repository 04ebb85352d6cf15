/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives jobs the containers that they lack for their min, where no free room is left.
 *
 * When the numbers of nodes with each pattern are rounded to whole ones (dorm_patterns.c), single
 * containers of a min can be missing. Such a container takes the place of others on the node where
 * this costs least. A container that makes way goes elsewhere, or its job has more than its min, or
 * others make way for it in turn.
 */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "partition/dorm_patterns.h"

enum {
    FORCED_MAX = 16, /* containers that make way for one */
    CHAIN = 3,       /* at most 3 containers make way one for the other */
};

/* The cost of a container for which others make way: this many times the larger one of its u and
 * its price. */
static const double AGAIN = 2;
/* Nothing is tried if the sum of D over the missing containers is larger. */
static const double HOPELESS = 0.03;
/* The least cost of a container that makes way: this part of its u. */
static const double LEAST_COST = 0.01;

/* Containers that could leave a node so that another one fits. */
struct room_made {
    uint32_t node, n, jobs[FORCED_MAX];
    double u; /* of these containers together, without those that fit elsewhere */
};

/* For each demand: count the containers above the minima of its jobs that change, and find a node
 * with free room for one (struct spare). */
static void list_spare(struct dorm_patterns *x)
{
    struct spare *spare = x->spare;
    const struct dorm_problem *p = x->p;
    const struct dorm_state *state = &x->s->state;
    memset(spare, 0, sizeof(*spare) * x->rooms->n_demands);
    for (uint32_t i = 0; i < p->n; i++)
        if (x->changes[i] && state->n[i] > p->jobs[i].lo)
            spare[x->rooms->demand_of[i]].n += state->n[i] - p->jobs[i].lo;
    for (uint32_t v = 0; v < x->rooms->n_demands; v++)
        for (uint32_t g = 0; g < p->n_classes && spare[v].fit == 0; g++) {
            const uint32_t *list = state->listed + state->listed_at[g];
            const int64_t *d = p->jobs[x->rooms->example[v]].d;
            for (uint32_t l = 0; l < state->n_listed[g] && spare[v].fit == 0; l++) {
                const struct dorm_group *group = &state->groups[list[l]];
                if (dorm_fits(group->free, d, p->m)) {
                    spare[v].fit = dorm_fit(group->free, d, p->m);
                    spare[v].node = group->head;
                }
            }
            dorm_work(&x->p->work, state->n_listed[g] / 16 + 1);
        }
}

/* The cost of removing another container of job a from node j, to make way for one of job i:
 * nothing if it fits elsewhere; its utilization if a job with equal demands has more than its min.
 * Else it must have a lower price, and others make way for it. gone: the containers of this demand
 * that leave the node already. */
static double cost_of_leaving(const struct dorm_patterns *x, uint32_t a, uint32_t i, uint32_t j,
                              uint32_t gone)
{
    const struct spare *of = &x->spare[x->rooms->demand_of[a]];
    double u = x->p->jobs[a].u, price = x->best_pi[x->rooms->demand_of[a]];
    if (of->node != j && of->fit > gone)
        return 0;
    if (of->n > gone)
        return u;
    return price < x->best_pi[x->rooms->demand_of[i]] ? AGAIN * MAX(u, price) : INFINITY;
}

/* Find containers on node j that could make way for one of job i: again and again the one that
 * gives most of what is missing for its cost. False: there are none, or cheaper ones are known. */
static bool find_room(struct dorm_patterns *x, uint32_t i, uint32_t j, struct room_made *best)
{
    struct dorm_problem *p = x->p;
    const struct dorm_state *state = &x->s->state;
    struct room_made made = { .node = j };
    int64_t room[PART_TYPES_MAX];
    memcpy(room, dorm_free(state, j), sizeof(*room) * p->m);
    while (!dorm_fits(room, p->jobs[i].d, p->m)) {
        double most = 0, cost = 0;
        uint32_t out = DORM_END;
        for (uint32_t e = state->node_head[j]; e != DORM_END; e = state->entries[e].of_node) {
            uint32_t a = state->entries[e].job, here = 0, gone = 0;
            if (!x->changes[a] || x->rooms->demand_of[a] == x->rooms->demand_of[i])
                continue;
            for (uint32_t c = 0; c < made.n; c++) {
                here += made.jobs[c] == a;
                gone += x->rooms->demand_of[made.jobs[c]] == x->rooms->demand_of[a];
            }
            double costs = cost_of_leaving(x, a, i, j, gone), gives = 0;
            if (state->entries[e].n <= here || !isfinite(costs))
                continue;
            for (uint32_t k = 0; k < p->m; k++) {
                int64_t lacks = p->jobs[i].d[k] - room[k];
                if (lacks > 0)
                    gives += (double)MIN(lacks, p->jobs[a].d[k]) / (double)lacks;
            }
            gives /= costs + LEAST_COST * p->jobs[a].u;
            if (gives > most) {
                most = gives;
                cost = costs;
                out = a;
            }
        }
        if (out == DORM_END || made.n == FORCED_MAX || made.u + cost >= best->u)
            return false;
        made.u += cost;
        made.jobs[made.n++] = out;
        for (uint32_t k = 0; k < p->m; k++)
            room[k] += p->jobs[out].d[k];
    }
    *best = made;
    return true;
}

/* Job a lacks a container for its min, and no node has room for one. Give it one of a job that has
 * equal demands and more than its min. */
static bool take_over(struct dorm_patterns *x, uint32_t a)
{
    struct dorm_state *state = &x->s->state;
    for (uint32_t b = 0; b < x->p->n; b++) {
        if (!x->changes[b] || x->rooms->demand_of[b] != x->rooms->demand_of[a] ||
            state->n[b] <= x->p->jobs[b].lo)
            continue;
        uint32_t e = state->job_head[b];
        while (state->entries[e].n == 0)
            e = state->entries[e].of_job;
        uint32_t node = state->entries[e].node;
        dorm_put(state, b, node, -1);
        dorm_put(state, a, node, 1);
        return true;
    }
    return false;
}

static bool give_one(struct dorm_patterns *x, uint32_t i, unsigned chain);

/* Place one container of job i on the node where this costs the least utilization. The containers
 * that make way get other places if their jobs need them, if necessary by force, too: chain says
 * how often. False: they do not, and nothing has changed. */
static bool force_one(struct dorm_patterns *x, uint32_t i, unsigned chain)
{
    struct dorm_search *s = x->s;
    struct room_made best = { .u = INFINITY };
    uint32_t log = s->state.n_log;
    bool done = false;
    for (uint32_t j = 0; j < s->p->n_nodes; j++)
        if (dorm_fits(s->p->cap + (size_t)j * s->p->m, s->p->jobs[i].d, s->p->m))
            done |= find_room(x, i, j, &best);
    dorm_work(&s->p->work, s->p->n_nodes * 4);
    if (!done)
        return false;
    for (uint32_t c = 0; c < best.n; c++)
        dorm_put(&s->state, best.jobs[c], best.node, -1);
    dorm_put(&s->state, i, best.node, 1);
    for (uint32_t c = 0; c < best.n && done; c++)
        if (s->state.n[best.jobs[c]] < s->p->jobs[best.jobs[c]].lo)
            done = give_one(x, best.jobs[c], chain);
    if (!done)
        dorm_undo(&s->state, log);
    return done;
}

/* Give job i one container more: on free room, else that of another job, else by force. */
static bool give_one(struct dorm_patterns *x, uint32_t i, unsigned chain)
{
    if (dorm_place(x->s, i, 1) == 1 || take_over(x, i))
        return true;
    if (chain == 0)
        return false;
    list_spare(x);
    if (force_one(x, i, chain - 1))
        return true;
    /* Several containers may have counted on the same free room. Try again without it. */
    for (uint32_t v = 0; v < x->rooms->n_demands; v++)
        x->spare[v].fit = 0;
    return force_one(x, i, chain - 1);
}

void dorm_force_minima(struct dorm_patterns *x)
{
    const struct dorm_state *state = &x->s->state;
    if (state->lack > HOPELESS)
        return;
    for (uint32_t i = 0; i < x->p->n && state->lacking > 0; i++)
        while (x->changes[i] && state->n[i] < x->p->jobs[i].lo)
            if (x->p->work.steps >= x->force_end || !give_one(x, i, CHAIN))
                return;
}
