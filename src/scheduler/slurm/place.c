/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which node gets which container.
 *
 * All waiting requests are placed together, the largest first. The back-end first tries to spread
 * them: each goes to the node that has the fewest containers. If not all fit that way, each goes to
 * the first node with enough room. The client has sized the allocation in that way
 * (cluster/slurm), so a whole job fits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "scheduler/slurm/slurm_int.h"

bool room_fits(const struct room *room, const struct room *free)
{
    return room->part == free->part && room->memory_mib <= free->memory_mib &&
           room->vcores <= free->vcores && room->gpus <= free->gpus;
}

static void room_take(struct room *free, const struct room *room)
{
    free->memory_mib -= MIN(room->memory_mib, free->memory_mib);
    free->vcores -= MIN(room->vcores, free->vcores);
    free->gpus -= MIN(room->gpus, free->gpus);
}

struct place { /* a node, while containers are placed */
    struct node *node;
    struct room free;
    uint32_t n; /* containers there */
};

static int compare_rooms(const struct room *a, const struct room *b)
{
    if (a->gpus != b->gpus)
        return a->gpus > b->gpus ? -1 : 1;
    if (a->memory_mib != b->memory_mib)
        return a->memory_mib > b->memory_mib ? -1 : 1;
    return a->vcores == b->vcores ? 0 : a->vcores > b->vcores ? -1 : 1;
}

static int by_size(const void *a, const void *b)
{
    const struct hold *x = *(const struct hold *const *)a, *y = *(const struct hold *const *)b;
    int c = compare_rooms(&x->room, &y->room);
    return c ? c : x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* spread: the node with the fewest containers; else the first one. */
static struct place *choose(struct place *v, size_t n, const struct room *room, bool spread)
{
    struct place *best = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!room_fits(room, &v[i].free))
            continue;
        if (!spread)
            return &v[i];
        if (!best || v[i].n < best->n)
            best = &v[i];
    }
    return best;
}

/* Set out[i] to the node of waiting[i]; NULL = it has to wait. Returns how many have a node. */
static size_t assign(const struct place *places, size_t n_places, struct hold *const *waiting,
                     size_t n, bool spread, struct node **out)
{
    AUTO(free_p) struct place *v = calloc(n_places + 1, sizeof *v);
    size_t n_placed = 0;
    if (!v)
        return 0; /* tried again in the next turn */
    memcpy(v, places, n_places * sizeof *v);
    for (size_t i = 0; i < n; i++) {
        struct place *p = choose(v, n_places, &waiting[i]->room, spread);
        out[i] = p ? p->node : NULL;
        if (!p)
            continue;
        room_take(&p->free, &waiting[i]->room);
        p->n++;
        n_placed++;
    }
    return n_placed;
}

/* The nodes that may get containers, with what is free there. */
static size_t find_places(struct slurm *s, struct place *out)
{
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++) /* avoided nodes come last */
        for (size_t i = 0; i < s->nodes.n; i++) {
            struct node *node = s->nodes.v[i];
            if (node->state == NODE_READY && node->n_unknown == 0 && node->avoid == (pass == 1))
                out[n++] = (struct place){ .node = node, .free = node->has };
        }
    for (size_t i = 0; i < s->holds.n; i++)
        for (size_t p = 0; p < n && s->holds.v[i].state != HOLD_WAITING; p++)
            if (out[p].node == s->holds.v[i].node) {
                room_take(&out[p].free, &s->holds.v[i].room);
                out[p].n++;
            }
    return n;
}

/* Ask the keeper of a node for all containers that were placed there. */
static void ask_node(struct node *node, struct hold *const *waiting, struct node *const *chosen,
                     size_t n, struct sched_ask *asks)
{
    size_t n_asks = 0;
    for (size_t i = 0; i < n; i++)
        if (chosen[i] == node)
            asks[n_asks++] = (struct sched_ask){ .slot = waiting[i]->slot,
                                                 .memory_mib = waiting[i]->room.memory_mib,
                                                 .vcores = waiting[i]->room.vcores,
                                                 .gpus = waiting[i]->room.gpus };
    if (n_asks == 0 || node_send_asks(node, asks, n_asks) < 0)
        return; /* the connection has ended, or there is no memory: tried again */
    for (size_t i = 0; i < n; i++)
        if (chosen[i] == node) {
            waiting[i]->state = HOLD_ASKED;
            waiting[i]->node = node;
        }
}

void place_waiting(struct slurm *s)
{
    AUTO(free_p) struct hold **waiting = calloc(s->holds.n + 1, sizeof *waiting);
    AUTO(free_p) struct node **chosen = calloc(2 * s->holds.n + 1, sizeof *chosen);
    AUTO(free_p) struct place *places = calloc(s->nodes.n + 1, sizeof *places);
    AUTO(free_p) struct sched_ask *asks = calloc(s->holds.n + 1, sizeof *asks);
    size_t n = 0;
    if (!waiting || !chosen || !places || !asks)
        return;
    for (size_t i = 0; i < s->holds.n; i++)
        if (s->holds.v[i].state == HOLD_WAITING)
            waiting[n++] = &s->holds.v[i];
    size_t n_places = n ? find_places(s, places) : 0;
    if (n_places == 0)
        return;
    qsort(waiting, n, sizeof(struct hold *), by_size);
    struct node **spread = chosen, **packed = chosen + n;
    size_t n_spread = assign(places, n_places, waiting, n, true, spread);
    size_t n_packed = n_spread < n ? assign(places, n_places, waiting, n, false, packed) : 0;
    for (size_t p = 0; p < n_places; p++)
        ask_node(places[p].node, waiting, n_packed > n_spread ? packed : spread, n, asks);
}

static int by_room(const void *a, const void *b)
{
    return compare_rooms(a, b);
}

uint32_t place_missing(struct slurm *s, const struct room *has)
{
    AUTO(free_p) struct hold **waiting = calloc(s->holds.n + 1, sizeof *waiting);
    AUTO(free_p) struct place *v = calloc(s->nodes.n + s->holds.n + 1, sizeof *v);
    size_t n = 0, n_places = 0;
    uint32_t missing = 0;
    if (!waiting || !v)
        return 0; /* tried again in the next turn */
    for (size_t i = 0; i < s->holds.n; i++)
        if (s->holds.v[i].state == HOLD_WAITING)
            waiting[n++] = &s->holds.v[i];
    n_places = find_places(s, v);
    qsort(waiting, n, sizeof(struct hold *), by_size);
    for (size_t i = 0; i < n; i++) {
        struct place *p = choose(v, n_places, &waiting[i]->room, false);
        if (!p && room_fits(&waiting[i]->room, has)) {
            p = &v[n_places++];
            *p = (struct place){ .free = *has };
            missing++;
        }
        if (p)
            room_take(&p->free, &waiting[i]->room);
    }
    return missing;
}

bool place_fits(const struct slurm *s, const struct room *rooms, size_t n)
{
    AUTO(free_p) struct place *v = calloc(s->nodes.n + 1, sizeof *v);
    AUTO(free_p) struct room *sorted = calloc(n + 1, sizeof *sorted);
    size_t n_places = 0;
    if (!v || !sorted)
        return true; /* do not refuse for lack of memory */
    for (size_t i = 0; i < s->nodes.n; i++)
        if (s->nodes.v[i]->state == NODE_READY)
            v[n_places++].free = s->nodes.v[i]->has;
    memcpy(sorted, rooms, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_room);
    for (size_t i = 0; i < n; i++) {
        struct place *p = choose(v, n_places, &sorted[i], false);
        if (!p)
            return false;
        room_take(&p->free, &sorted[i]);
    }
    return true;
}
