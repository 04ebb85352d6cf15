/* SPDX-License-Identifier: Apache-2.0 */
#include "arbiter/claims.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"

static const char *const type_names[CLAIM_TYPES] = { "memory", "GPUs", "cores" }; /* in sentences */

/* The nodes as part_divide() gets them. */
struct problem {
    struct part_amount *free; /* by node: the free amounts */
    struct part_amount *nodes;
};

static void problem_done(struct problem *p)
{
    free(p->free);
    free(p->nodes);
}

static int problem_alloc(struct problem *p, size_t n_nodes)
{
    p->free = calloc(n_nodes + 1, sizeof *p->free);
    p->nodes = calloc(n_nodes + 1, sizeof *p->nodes);
    return p->free && p->nodes ? 0 : -ENOMEM;
}

/* Is the node of each container known? If not, a running job cannot be described to the
 * policies. */
static bool is_placed(const struct part_claim *c, size_t n_nodes)
{
    for (uint32_t k = 0; k < c->n_at; k++)
        if (c->at[k].node >= n_nodes)
            return false;
    return c->n_at > 0;
}

/* ---- nodes ---- */

/* Add the containers of the jobs to the capacity of their nodes, even where a node is overfull. */
static void add_held(struct problem *p, const struct part_claim *claims, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct part_claim *j = &claims[i];
        for (uint32_t k = 0; j->runs && k < j->n_at; k++)
            for (int t = 0; t < CLAIM_TYPES; t++)
                p->nodes[j->at[k].node].v[t] += j->each.v[t] * j->at[k].n;
    }
}

static void find_free(struct problem *p, const struct claims_node *nodes, size_t n_nodes)
{
    for (size_t i = 0; i < n_nodes; i++)
        for (int t = 0; t < CLAIM_TYPES; t++)
            p->free[i].v[t] =
                MAX(nodes[i].capacity.v[t] - nodes[i].taken.v[t] - p->nodes[i].v[t], INT64_C(0));
}

/* Add the free amounts of one type, all reduced by the same factor if the limit is smaller than
 * their sum. */
static void add_free(struct problem *p, size_t n_nodes, int type, const struct part_amount *limit)
{
    int64_t held = 0, free_in_all = 0;
    for (size_t i = 0; i < n_nodes; i++) {
        held += p->nodes[i].v[type];
        free_in_all += p->free[i].v[type];
    }
    double share = 1;
    if (limit && free_in_all > 0)
        share = MIN((double)MAX(limit->v[type] - held, INT64_C(0)) / (double)free_in_all, 1.0);
    for (size_t i = 0; i < n_nodes; i++)
        p->nodes[i].v[type] += (int64_t)floor((double)p->free[i].v[type] * share + 1e-6);
}

/* ---- the decision ---- */

static void fill(struct problem *p, const struct claims_node *nodes, size_t n_nodes,
                 const struct part_amount *limit, const struct part_claim *claims, size_t n)
{
    add_held(p, claims, n);
    find_free(p, nodes, n_nodes);
    for (int t = 0; t < CLAIM_TYPES; t++)
        add_free(p, n_nodes, t, limit);
}

int claims_decide(const struct part_policy *policy, const struct part_options *o,
                  const struct claims_node *nodes, size_t n_nodes, const struct part_amount *limit,
                  const struct part_claim *claims, size_t n, struct part_division *out,
                  struct err *e)
{
    AUTO(problem_done) struct problem p = { 0 };
    if (policy->by_service) {
        (void)err_set(e, EINVAL,
                      "policy '%s' needs the service that each job has attained, which only the "
                      "pool knows",
                      policy->name);
        return err_hint(e, "use dorm, drf, market or srtf-elastic");
    }
    for (size_t i = 0; i < n; i++)
        if (claims[i].runs && !is_placed(&claims[i], n_nodes))
            return err_set(e, EINVAL, "job '%s' runs on a node that is not in the list",
                           claims[i].id);
    if (problem_alloc(&p, n_nodes) < 0)
        return err_set(e, ENOMEM, "cannot divide the queue: %m");
    fill(&p, nodes, n_nodes, limit, claims, n);
    const struct part_cluster c = {
        .n_types = CLAIM_TYPES, .types = type_names, .n_nodes = (uint32_t)n_nodes, .nodes = p.nodes
    };
    return part_divide(policy, o, &c, claims, n, out, e);
}
