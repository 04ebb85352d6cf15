/* SPDX-License-Identifier: Apache-2.0 */
/* `ends`: the ended containers, until the master says that the journal has their ends. And the
 * control groups of those that are forgotten then. */
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "cgroup/tree.h"
#include "executor/keeper_int.h"

void ends_add(struct keeper *k, struct container *c)
{
    k->ends.line_bytes += c->line_len;
    k->ends.v[k->ends.n++] = c;
}

/* Once more than half of the array is forgotten, move the rest to its front. So each move copies
 * fewer entries than were forgotten since the last one. */
static void close_gap(struct keeper *k)
{
    if (k->ends.at <= k->ends.n / 2)
        return;
    k->ends.n -= k->ends.at;
    k->ends.n_reported -= k->ends.at;
    memmove(k->ends.v, k->ends.v + k->ends.at, k->ends.n * sizeof(struct container *));
    k->ends.at = 0;
}

/* Remove the group of a container in which no process is any more. If that fails, the keeper
 * removes it at the end of the job. */
static void remove_group(const struct keeper *k, uint32_t number)
{
    char id[CONTAINER_ID_MAX];
    struct cgroup g;
    container_name(k, number, id);
    if (cgroup_of(&k->cgroup, id, &g))
        (void)cgroup_tree_rmdir(g.path);
}

/* A job of many tasks keeps a group for each of them. One in which containers come and go does not
 * keep those of all that it ever had. */
uint32_t groups_kept(const struct keeper *k)
{
    return MIN(MAX(k->n_most, (uint32_t)GROUPS_KEPT), (uint32_t)SPARE_GROUPS_MAX);
}

/* Remove the group of this container, now or later. */
static void queue_group(struct keeper *k, const struct container *c)
{
    char id[CONTAINER_ID_MAX];
    container_name(k, c->number, id);
    if (!str_eq(id, c->id))
        return; /* a container of an earlier keeper: this one removed its group at the start */
    if (c->number > groups_kept(k)) { /* the next job wants the groups with the low numbers */
        remove_group(k, c->number);
        return;
    }
    k->groups.v[k->groups.n++] = c->number;
    k->groups.at_ms = clock_mono_ms() + GROUPS_IDLE_MS;
}

void groups_tick(struct keeper *k, int64_t now_ms)
{
    if (now_ms < k->groups.at_ms)
        return;
    for (int i = 0; i < GROUPS_BATCH && k->groups.n_removed != k->groups.n; i++)
        remove_group(k, k->groups.v[k->groups.n_removed++]);
    if (k->groups.n_removed == k->groups.n)
        k->groups.at_ms = INT64_MAX;
}

void ends_acked(struct keeper *k, uint64_t n)
{
    for (; k->ends.n_acked < n && k->ends.at < k->ends.n_reported; k->ends.n_acked++) {
        struct container *c = k->ends.v[k->ends.at++];
        k->ends.line_bytes -= c->line_len;
        queue_group(k, c);
        container_free(k, c);
    }
    close_gap(k);
    if (exits_wants_rewrite(k))
        exits_rewrite(k);
}
