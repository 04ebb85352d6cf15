/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which the search looks at types and nodes. The caller may number both in any way:
 * each job gets the same number of containers.
 *
 * Types: those of which a node has few units (GPUs) last; then by the capacity of the cluster, by
 * the demands of the jobs, and by a number that depends on the capacities of the nodes and on the
 * containers there.
 * Nodes: by their capacity, then by the jobs that run on them. Two nodes with equal capacity and
 * equal containers can be exchanged without a difference.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "partition/dorm.h"

/* Containers of one job on a node. */
struct held {
    uint32_t job, n;
};

struct sorting {
    const struct dorm_problem *p;
    const struct held *held; /* of each node, in the order of the jobs: */
    const uint32_t *first;   /* those from first[node] to first[node + 1] - 1 */
};

static int by_content(const void *a, const void *b, void *ctx)
{
    const struct sorting *s = ctx;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const struct part_amount *nodes = s->p->cluster->nodes;
    for (uint32_t t = 0; t < s->p->m; t++) {
        uint32_t k = s->p->type[t];
        if (nodes[x].v[k] != nodes[y].v[k])
            return nodes[x].v[k] < nodes[y].v[k] ? -1 : 1;
    }
    uint32_t n_x = s->first[x + 1] - s->first[x], n_y = s->first[y + 1] - s->first[y];
    if (n_x != n_y)
        return n_x < n_y ? -1 : 1;
    const struct held *v = s->held + s->first[x], *w = s->held + s->first[y];
    for (uint32_t i = 0; i < n_x; i++) {
        if (v[i].job != w[i].job)
            return v[i].job < w[i].job ? -1 : 1;
        if (v[i].n != w[i].n)
            return v[i].n < w[i].n ? -1 : 1;
    }
    return x < y ? -1 : x > y;
}

/* List the containers of each node: first[node + 1] is the end of its part of the list. */
static struct held *list_held(struct dorm_problem *p, const struct part_job *jobs, size_t n,
                              uint32_t *first)
{
    size_t places = 0;
    for (size_t i = 0; i < n; i++)
        places += jobs[i].n_at;
    struct held *held = dorm_alloc(p, places, sizeof(*held));
    for (size_t i = 0; i < n && held; i++)
        for (uint32_t a = 0; a < jobs[i].n_at; a++)
            first[jobs[i].at[a].node + 2]++;
    for (uint32_t j = 0; j < p->n_nodes; j++)
        first[j + 2] += first[j + 1];
    for (size_t i = 0; i < n && held; i++)
        for (uint32_t a = 0; a < jobs[i].n_at; a++)
            held[first[jobs[i].at[a].node + 1]++] = (struct held){ (uint32_t)i, jobs[i].at[a].n };
    return held;
}

/* ---- types */

struct sorting_types {
    const struct part_job *jobs;
    size_t n;
    struct part_amount total, most;  /* most: that a node has */
    uint64_t number[PART_TYPES_MAX]; /* of the capacities and containers on the nodes */
};

static uint64_t scramble(uint64_t a, uint64_t b)
{
    uint64_t x = a ^ b;
    return dorm_random(&x);
}

/* The sum over the nodes of a number that depends on the capacity of this type and on the
 * containers there. */
static uint64_t number_nodes(const struct dorm_problem *p, const uint64_t *held, uint32_t type)
{
    uint64_t sum = 0;
    for (uint32_t j = 0; j < p->n_nodes; j++)
        sum += scramble(scramble(1, (uint64_t)p->cluster->nodes[j].v[type]), held[j]);
    return sum;
}

static int compare_types(const struct sorting_types *s, uint32_t x, uint32_t y)
{
    bool x_few = s->most.v[x] <= DORM_FEW_UNITS, y_few = s->most.v[y] <= DORM_FEW_UNITS;
    if (x_few != y_few)
        return y_few ? -1 : 1;
    if (s->total.v[x] != s->total.v[y])
        return s->total.v[x] < s->total.v[y] ? -1 : 1;
    for (int runs = 1; runs >= 0; runs--)
        for (size_t i = 0; i < s->n; i++) {
            const int64_t *d = s->jobs[i].demand.v;
            if ((s->jobs[i].n_at > 0) == (runs == 1) && d[x] != d[y])
                return d[x] < d[y] ? -1 : 1;
        }
    if (s->number[x] != s->number[y])
        return s->number[x] < s->number[y] ? -1 : 1;
    return 0;
}

int dorm_order_types(struct dorm_problem *p, const struct part_job *jobs, size_t n)
{
    struct sorting_types s = { .jobs = jobs, .n = n };
    uint64_t *held = dorm_alloc(p, p->n_nodes, sizeof(*held));
    uint64_t job = 1;
    if (!held)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) { /* the n-th running job, wherever the others are in the list */
        job += jobs[i].n_at > 0;
        for (uint32_t a = 0; a < jobs[i].n_at; a++)
            held[jobs[i].at[a].node] += scramble(scramble(1, job), jobs[i].at[a].n);
    }
    part_total(p->cluster, &s.total);
    for (uint32_t k = 0; k < p->cluster->n_types; k++) {
        if (s.total.v[k] == 0)
            continue;
        s.number[k] = number_nodes(p, held, k);
        for (uint32_t j = 0; j < p->n_nodes; j++)
            s.most.v[k] = MAX(s.most.v[k], p->cluster->nodes[j].v[k]);
        uint32_t at = p->m++;
        for (; at > 0 && compare_types(&s, p->type[at - 1], k) > 0; at--)
            p->type[at] = p->type[at - 1];
        p->type[at] = k;
    }
    return 0;
}

/* ---- nodes */

int dorm_order_nodes(struct dorm_problem *p, const struct part_job *jobs, size_t n)
{
    struct sorting s = { .p = p };
    uint32_t *first = dorm_alloc(p, (size_t)p->n_nodes + 2, sizeof(*first));
    p->node_of = dorm_alloc(p, p->n_nodes, sizeof(*p->node_of));
    p->place_of = dorm_alloc(p, p->n_nodes, sizeof(*p->place_of));
    if (p->failed)
        return -ENOMEM;
    s.held = list_held(p, jobs, n, first);
    s.first = first;
    if (!s.held)
        return -ENOMEM;
    for (uint32_t j = 0; j < p->n_nodes; j++)
        p->node_of[j] = j;
    qsort_r(p->node_of, p->n_nodes, sizeof(*p->node_of), by_content, &s);
    for (uint32_t j = 0; j < p->n_nodes; j++)
        p->place_of[p->node_of[j]] = j;
    return 0;
}

const struct part_place *dorm_order_places(struct dorm_problem *p, const struct part_job *job)
{
    struct part_place *at = dorm_alloc(p, job->n_at, sizeof(*at));
    if (!at)
        return NULL;
    for (uint32_t a = 0; a < job->n_at; a++)
        at[a] = (struct part_place){ p->place_of[job->at[a].node], job->at[a].n };
    qsort(at, job->n_at, sizeof(*at), part_by_node);
    return at;
}
