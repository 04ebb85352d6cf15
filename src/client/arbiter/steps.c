/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For a cluster that gives nodes instead of containers, which is Slurm (cluster/queue.h):
 * translates between the instances of a job and its nodes, and changes a decision to a size that
 * the job can reach.
 *
 * Shrinking: a job gives a further allocation back only as a whole, the newest one first. So it
 * keeps the first allocation, and as many of the oldest further ones as the decision allows. If
 * that is less than the decision, the job grows in a later round.
 *
 * Growing: the cluster chooses the nodes, and a job never gets two shares of one node. So the job
 * grows by at most as many nodes as have room now and are not its own. The arbiter cannot reserve
 * nodes for a job. So in a round in which a job shrinks, none grows.
 */
#include <errno.h>
#include <stdlib.h>

#include "client/arbiter/arbiter.h"

/* The containers of the elastic role on a node. */
static uint32_t count_on(const struct arbiter_job *j, uint32_t node)
{
    for (size_t i = 0; i < j->placed.n; i++)
        if (j->placed.v[i].node == node)
            return j->placed.v[i].n;
    return 0;
}

/* Does the job have a share of the node? */
static bool has_share(const struct arbiter_job *j, uint32_t node)
{
    for (size_t i = 0; i < j->shares.n; i++)
        if (j->shares.v[i].node == node)
            return true;
    return false;
}

bool steps_uses(const struct arbiter_job *j, const struct queue_share *s)
{
    return s->group == 0 || count_on(j, s->node) > 0;
}

int steps_take(struct arbiter_job *j, bool *out_lost)
{
    j->placed.n = 0;
    for (size_t i = 0; i < j->at.n; i++) {
        *out_lost = *out_lost || !has_share(j, j->at.v[i].node);
        if (vec_push(&j->placed, j->at.v[i]) < 0)
            return -ENOMEM;
    }
    j->at.n = 0;
    for (size_t i = 0; i < j->shares.n; i++) {
        struct part_place at = { .node = j->shares.v[i].node, .n = 1 };
        if (steps_uses(j, &j->shares.v[i]) && vec_push(&j->at, at) < 0)
            return -ENOMEM;
    }
    j->n_containers = (uint32_t)j->at.n;
    return 0;
}

uint32_t steps_instances(const struct arbiter_job *j, uint32_t nodes)
{
    const struct queue_step *s = &j->step;
    if (!s->n)
        return nodes;
    uint64_t n = s->base_n + (uint64_t)s->n * (nodes - MIN(nodes, s->base_nodes));
    return (uint32_t)MIN(n, (uint64_t)s->max_n);
}

/* ---- fitting a decision ---- */

/* The node stays, with n containers. */
static int keep(struct steps_plan *p, uint32_t node, uint32_t n)
{
    p->nodes++;
    return vec_push(&p->at, ((struct part_place){ .node = node, .n = n }));
}

/* The number of the newest further allocation; 0 = there is only the first allocation. */
static uint32_t last_group(const struct arbiter_job *j)
{
    uint32_t last = 0;
    for (size_t i = 0; i < j->shares.n; i++)
        last = MAX(last, j->shares.v[i].group);
    return last;
}

/* Plan a shrink to at most this number of nodes, but not below the first allocation. */
static int fit_smaller(const struct arbiter_job *j, uint32_t nodes, struct steps_plan *p)
{
    uint32_t last = last_group(j);
    int rc = 0;
    for (uint32_t group = 0; group <= last && rc == 0; group++) {
        uint32_t n = 0;
        for (size_t i = 0; i < j->shares.n; i++)
            n += j->shares.v[i].group == group && steps_uses(j, &j->shares.v[i]);
        if (group > 0 && p->nodes + n > nodes)
            break;
        for (size_t i = 0; i < j->shares.n && rc == 0; i++)
            if (j->shares.v[i].group == group && steps_uses(j, &j->shares.v[i]))
                rc = keep(p, j->shares.v[i].node, count_on(j, j->shares.v[i].node));
    }
    for (size_t i = 0; i < p->at.n; i++)
        p->instances += p->at.v[i].n;
    return rc;
}

static bool has_room(const struct arbiter *a, const struct arbiter_job *j, size_t node)
{
    const struct part_amount *has = &a->nodes.v[node].capacity, *used = &a->used.v[node];
    const int64_t each[CLAIM_TYPES] = { [CLAIM_MEMORY_MIB] = (int64_t)j->needs.each_mib,
                                        [CLAIM_GPUS] = j->needs.each_gpus,
                                        [CLAIM_VCORES] = j->needs.each_vcores };
    for (int t = 0; t < CLAIM_TYPES; t++)
        if (each[t] > has->v[t] - used->v[t])
            return false;
    return true;
}

int steps_fit(struct arbiter *a, const struct arbiter_job *j, uint32_t nodes, struct steps_plan *p)
{
    *p = (struct steps_plan){ .nodes = 0 };
    if (nodes < j->n)
        return fit_smaller(j, nodes, p);
    p->nodes = j->n;
    for (size_t i = 0; i < a->nodes.n && p->nodes < nodes; i++)
        if (!has_share(j, (uint32_t)i) && has_room(a, j, i)) {
            p->nodes++;
            a->used.v[i].v[CLAIM_MEMORY_MIB] += (int64_t)j->needs.each_mib;
            a->used.v[i].v[CLAIM_GPUS] += j->needs.each_gpus;
            a->used.v[i].v[CLAIM_VCORES] += j->needs.each_vcores;
        }
    p->instances = p->nodes > j->n ? steps_instances(j, p->nodes) : j->instances;
    return 0;
}

void steps_plan_done(struct steps_plan *p)
{
    vec_done(&p->at);
}
