/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The size of the allocation: how many nodes, and how much of each.
 *
 * Slurm gives all nodes of an allocation the same share. So the tasks are packed into equal boxes,
 * the largest task first. For each kind of node of the partition, a box as large as the node is
 * tried. The kind that needs the fewest nodes wins, and each node is asked only for as much as the
 * fullest box holds.
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/slurm/slurm_int.h"
#include "conf/conf.h"

/* ---- packing ---- */

struct task {
    uint64_t memory_mib;
    uint32_t vcores, gpus;
};
typedef VEC(struct task) tasks;

static int larger_first(const void *a, const void *b)
{
    const struct task *x = a, *y = b;
    if (x->gpus != y->gpus)
        return x->gpus > y->gpus ? -1 : 1;
    if (x->memory_mib != y->memory_mib)
        return x->memory_mib > y->memory_mib ? -1 : 1;
    return x->vcores == y->vcores ? 0 : x->vcores > y->vcores ? -1 : 1;
}

/* All containers that these roles of the job may hold at the same time. */
static int list_tasks(const struct job_spec *s, const bool *only, tasks *out)
{
    AUTO(free_p) uint32_t *instances = calloc(s->n_roles + 1, sizeof *instances);
    AUTO(free_p) bool *counts = calloc(s->n_roles + 1, sizeof *counts);
    if (!instances || !counts)
        return -ENOMEM;
    for (size_t i = 0; i < s->n_roles; i++)
        instances[i] = !only || only[i] ? s->roles[i].instances : 0;
    job_spec_peak_roles(s, instances, counts);
    for (size_t i = 0; i < s->n_roles; i++) {
        const struct role_spec *r = &s->roles[i];
        struct task t = { r->memory_mib, r->vcores, r->gpus };
        for (uint32_t n = 0; counts[i] && instances[i] && n < r->instances + r->spares; n++)
            if (vec_push(out, t) < 0)
                return -ENOMEM;
    }
    if (s->single_node) {
        struct task t = { s->am.memory_mib, s->am.vcores, s->am.gpus };
        if (vec_push(out, t) < 0)
            return -ENOMEM;
    }
    qsort(out->v, out->n, sizeof *out->v, larger_first);
    return 0;
}

struct box {
    struct task used;
    uint32_t n;
};
typedef VEC(struct box) boxes;

static bool fits(const struct box *b, const struct task *t, const struct slurm_node *node)
{
    uint64_t overhead = SLURM_OVERHEAD_MIB + (uint64_t)SLURM_OVERHEAD_TASK_MIB * (b->n + 1);
    return b->used.memory_mib + t->memory_mib + overhead <= node->memory_mib &&
           b->used.vcores + t->vcores <= node->vcores && b->used.gpus + t->gpus <= node->gpus;
}

static void put(struct box *b, const struct task *t)
{
    b->used.memory_mib += t->memory_mib;
    b->used.vcores += t->vcores;
    b->used.gpus += t->gpus;
    b->n++;
}

/* Pack the tasks into boxes as large as the node. exactly: into this number of boxes, evenly; 0 =
 * into as few as possible. false: they do not fit. */
static bool pack(const tasks *list, const struct slurm_node *node, uint32_t exactly, boxes *out)
{
    out->n = 0;
    for (uint32_t i = 0; i < exactly; i++)
        if (vec_push(out, (struct box){ 0 }) < 0)
            return false;
    for (size_t i = 0; i < list->n; i++) {
        struct box *best = NULL;
        for (size_t b = 0; b < out->n; b++)
            if (fits(&out->v[b], &list->v[i], node) &&
                (!best || (exactly && out->v[b].n < best->n)))
                best = &out->v[b];
        if (!best && !exactly && vec_push(out, (struct box){ 0 }) == 0 &&
            fits(&out->v[out->n - 1], &list->v[i], node))
            best = &out->v[out->n - 1];
        if (!best)
            return false;
        put(best, &list->v[i]);
    }
    return true;
}

static void shape_of(const boxes *b, uint32_t spare, struct slurm_shape *out)
{
    uint32_t most = 0;
    *out = (struct slurm_shape){ .nodes = (uint32_t)b->n + spare, .vcores = 1 };
    for (size_t i = 0; i < b->n; i++) {
        out->memory_mib = MAX(out->memory_mib, b->v[i].used.memory_mib);
        out->vcores = MAX(out->vcores, b->v[i].used.vcores);
        out->gpus = MAX(out->gpus, b->v[i].used.gpus);
        most = MAX(most, b->v[i].n);
    }
    out->overhead_mib = SLURM_OVERHEAD_MIB + (uint64_t)SLURM_OVERHEAD_TASK_MIB * most;
}

static bool has_shape(const struct slurm_node *n, const struct slurm_shape *s)
{
    return n->memory_mib >= s->memory_mib + s->overhead_mib && n->vcores >= s->vcores &&
           n->gpus >= s->gpus;
}

/* How many nodes have at least what the shape asks? */
static uint32_t count_nodes(const slurm_nodes *nodes, const struct slurm_shape *s)
{
    uint32_t n = 0;
    for (size_t i = 0; i < nodes->n; i++)
        n += has_shape(&nodes->v[i], s) ? nodes->v[i].n : 0;
    return n;
}

/* The smallest nodes that suffice. */
void slurm_take_nodes(slurm_nodes *nodes, const struct slurm_shape *s)
{
    for (uint32_t needed = s->nodes; needed;) {
        struct slurm_node *best = NULL;
        for (size_t i = 0; i < nodes->n; i++) {
            struct slurm_node *k = &nodes->v[i];
            if (k->n && has_shape(k, s) &&
                (!best || k->gpus < best->gpus ||
                 (k->gpus == best->gpus && k->memory_mib < best->memory_mib)))
                best = k;
        }
        if (!best)
            return;
        uint32_t n = MIN(needed, best->n);
        best->n -= n;
        needed -= n;
    }
}

static uint32_t count_idle_gpus(const boxes *b, const struct slurm_shape *shape)
{
    uint32_t n = 0;
    for (size_t i = 0; i < b->n; i++)
        n += shape->gpus > 0 && b->v[i].used.gpus == 0;
    return n;
}

static int no_room(const struct job_spec *s, const slurm_nodes *nodes, uint32_t wanted,
                   uint32_t spare, struct err *e)
{
    struct job_demand d;
    uint32_t n = 0;
    job_spec_demand(s, &d);
    for (size_t i = 0; i < nodes->n; i++)
        n += nodes->v[i].n;
    if (n == 0)
        return err_set(e, ERANGE, "the partition has no node that runs jobs");
    return err_set(
        e, ERANGE,
        "the %u nodes of the partition cannot hold %u containers with %llu MiB, %u cores "
        "and %u GPUs in all%s%s",
        n, d.n_containers, (unsigned long long)d.memory_mib, d.vcores, d.gpus,
        wanted ? " on the number of nodes that tony.slurm.nodes says" : "",
        spare ? " besides the spare nodes" : "");
}

int slurm_choose_shape_of(const struct job_spec *s, const bool *only, const slurm_nodes *nodes,
                          uint32_t wanted, uint32_t spare, struct slurm_shape *out,
                          uint32_t *out_idle_gpus, struct err *e)
{
    tasks list = { 0 };
    boxes b = { 0 };
    bool found = false;
    int rc = list_tasks(s, only, &list);
    for (size_t i = 0; rc == 0 && i < nodes->n; i++) {
        struct slurm_shape shape;
        if (nodes->v[i].n == 0 || !pack(&list, &nodes->v[i], wanted, &b))
            continue;
        shape_of(&b, spare, &shape);
        if (count_nodes(nodes, &shape) < shape.nodes)
            continue;
        if (!found || shape.nodes < out->nodes ||
            (shape.nodes == out->nodes && shape.memory_mib < out->memory_mib)) {
            *out = shape;
            *out_idle_gpus = count_idle_gpus(&b, &shape);
        }
        found = true;
    }
    vec_done(&list);
    vec_done(&b);
    if (rc < 0)
        return err_set(e, -rc, "cannot size the allocation: %m");
    return found ? 0 : no_room(s, nodes, wanted, spare, e);
}

int slurm_choose_shape(const struct job_spec *s, const slurm_nodes *nodes, uint32_t wanted,
                       uint32_t spare, struct slurm_shape *out, struct err *e)
{
    uint32_t idle_gpus;
    return slurm_choose_shape_of(s, NULL, nodes, wanted, spare, out, &idle_gpus, e);
}
