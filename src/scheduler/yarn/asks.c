/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The asks of an allocate call. YARN lets a request name places: any node, racks, single nodes.
 * tony never insists on a place (relaxed locality), so YARN may choose another node at once or
 * after a short delay (yarn.scheduler.capacity.node-locality-delay).
 */
#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "codec/arena.h"
#include "scheduler/yarn/yarn_int.h"

struct capability {
    Hadoop__Resource r;
    struct arena *a;
};

static int add_type(const char *type, uint64_t amount, void *arg)
{
    struct capability *c = arg;
    Hadoop__ResourceInformation *i = arena_alloc(c->a, sizeof *i);
    Hadoop__ResourceInformation **v =
        arena_alloc(c->a, (c->r.n_resource_value_map + 1) * sizeof *v);
    if (!i || !v)
        return -ENOMEM;
    hadoop__resource_information__init(i);
    i->key = arena_dup(c->a, type, strlen(type));
    i->units = arena_dup(c->a, "", 0);
    i->has_value = i->has_type = true;
    i->value = (int64_t)amount;
    if (c->r.n_resource_value_map)
        memcpy(v, c->r.resource_value_map, c->r.n_resource_value_map * sizeof *v);
    v[c->r.n_resource_value_map++] = i;
    c->r.resource_value_map = v;
    return i->key && i->units ? 0 : -ENOMEM;
}

static const char *label_for(const struct yarn *y, const struct ask *a)
{
    const struct yarn_role *r = yarn_file_role(y->file, a->role),
                           *all = yarn_file_role(y->file, "");
    return r && r->label ? r->label : all ? all->label : NULL;
}

/* One ask is several entries, one for each place where the container may be. */
struct place {
    const char *name; /* "*" (any node), a rack, or a node */
    bool wanted;
};

/* The places of a node under both names that YARN may use for it (see avoid_name()). */
static size_t add_node_places(struct arena *a, const char *node, bool wanted, struct place *out)
{
    const char *colon = node ? strrchr(node, ':') : NULL;
    size_t n = 0;
    if (node)
        out[n++] = (struct place){ node, wanted };
    char *host = colon ? arena_dup(a, node, (size_t)(colon - node)) : NULL;
    if (host)
        out[n++] = (struct place){ host, wanted };
    return n;
}

enum { NODE_PLACES = 4 }; /* at most: two names of two nodes */

static Hadoop__ResourceRequest *build_request(struct arena *a, struct yarn *y,
                                              const struct ask *ask, struct place where,
                                              Hadoop__Resource *capability,
                                              Hadoop__Priority *priority)
{
    Hadoop__ResourceRequest *m = arena_alloc(a, sizeof *m);
    if (!m)
        return NULL;
    hadoop__resource_request__init(m);
    m->priority = priority;
    m->resource_name = (char *)(uintptr_t)where.name; /* packing does not write to it */
    m->capability = capability;
    m->has_num_containers = m->has_relax_locality = m->has_allocation_request_id = true;
    m->num_containers = ask->open && where.wanted ? 1 : 0;
    m->relax_locality = true;
    m->allocation_request_id = ask->slot;
    if (str_eq(where.name, "*"))
        m->node_label_expression = (char *)(uintptr_t)label_for(y, ask);
    return m;
}

/* Add the entries of one ask: for "*", the first n racks, and the preferred node. */
static int add_ask(struct yarn *y, struct arena *a, Hadoop__AllocateRequest *rq, struct ask *ask,
                   size_t n_racks, Hadoop__Priority *priority)
{
    struct capability *c = arena_alloc(a, sizeof *c);
    struct place *places = arena_alloc(a, (n_racks + 1 + NODE_PLACES) * sizeof *places);
    size_t n = 0;
    if (!c || !places)
        return -ENOMEM;
    hadoop__resource__init(&c->r);
    c->a = a;
    c->r.has_memory = c->r.has_virtual_cores = true;
    c->r.memory = (int64_t)ask->memory_mib;
    c->r.virtual_cores = (int32_t)ask->vcores;
    if (yarn_each_type(y, ask, add_type, c) < 0)
        return -ENOMEM;
    places[n++] = (struct place){ "*", true };
    for (size_t k = 0; k < n_racks; k++)
        places[n++] = (struct place){ y->racks.v[k], true };
    /* The last entry of a name counts: both nodes may be on one host. */
    n += add_node_places(a, ask->old_node, false, places + n);
    n += add_node_places(a, ask->node, true, places + n);
    for (size_t k = 0; k < n; k++) {
        Hadoop__ResourceRequest *m = build_request(a, y, ask, places[k], &c->r, priority);
        if (!m)
            return -ENOMEM;
        rq->ask[rq->n_ask++] = m;
    }
    ask->inflight = true;
    return 0;
}

int yarn_add_asks(struct yarn *y, struct arena *a, Hadoop__AllocateRequest *rq,
                  Hadoop__Priority *priority)
{
    size_t n = 0, racks = y->racks.n;
    for (size_t i = 0; i < y->asks.n; i++)
        n += y->asks.v[i].dirty;
    if (n * racks > YARN_ASK_ENTRIES_MAX)
        racks = YARN_ASK_ENTRIES_MAX / n;
    rq->ask = arena_alloc(a, (n * (racks + 1 + NODE_PLACES) + 1) * sizeof(void *));
    if (!rq->ask)
        return -ENOMEM;
    for (size_t i = 0; i < y->asks.n; i++) {
        struct ask *ask = &y->asks.v[i];
        if (!ask->dirty)
            continue;
        if (add_ask(y, a, rq, ask, racks, priority) < 0)
            return -ENOMEM;
        if (y->single_ask)
            break;
    }
    return 0;
}
