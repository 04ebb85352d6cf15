/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which the search looks at the nodes: by their capacity, then by the jobs that run on
 * them. Two nodes with equal capacity and equal containers can be exchanged without a difference.
 * So the caller may number the nodes in any way: each job gets the same number of containers.
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
    const struct part_cluster *c;
    const struct held *held; /* of each node, in the order of the jobs: */
    const uint32_t *first;   /* those from first[node] to first[node + 1] - 1 */
};

static int by_content(const void *a, const void *b, void *ctx)
{
    const struct sorting *s = ctx;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    for (uint32_t k = 0; k < s->c->n_types; k++)
        if (s->c->nodes[x].v[k] != s->c->nodes[y].v[k])
            return s->c->nodes[x].v[k] < s->c->nodes[y].v[k] ? -1 : 1;
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

int dorm_order_nodes(struct dorm_problem *p, const struct part_job *jobs, size_t n)
{
    struct sorting s = { .c = p->cluster };
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

static int by_node(const void *a, const void *b)
{
    const struct part_place *x = a, *y = b;
    return x->node < y->node ? -1 : x->node > y->node;
}

const struct part_place *dorm_order_places(struct dorm_problem *p, const struct part_job *job)
{
    struct part_place *at = dorm_alloc(p, job->n_at, sizeof(*at));
    if (!at)
        return NULL;
    for (uint32_t a = 0; a < job->n_at; a++)
        at[a] = (struct part_place){ p->place_of[job->at[a].node], job->at[a].n };
    qsort(at, job->n_at, sizeof(*at), by_node);
    return at;
}
