/* SPDX-License-Identifier: Apache-2.0 */
/* The list of ended containers that the journal may lack. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/vec.h"
#include "executor/keeper_int.h"

void ends_add(struct keeper *k, struct container *c)
{
    k->ends.line_bytes += c->line_len;
    k->ends.v[k->ends.n++] = c;
}

/* Move the list to the front of its array once more than half of the array is forgotten. Then each
 * move copies fewer entries than were forgotten since the last one. */
static void close_gap(struct keeper *k)
{
    if (k->ends.at <= k->ends.n / 2)
        return;
    k->ends.n -= k->ends.at;
    k->ends.n_reported -= k->ends.at;
    memmove(k->ends.v, k->ends.v + k->ends.at, k->ends.n * sizeof(struct container *));
    k->ends.at = 0;
}

/* No process is in the group any more. If the task has made groups in it, rmdir() fails, and the
 * group is removed at the end of the job. */
static void remove_oldest_group(struct keeper *k)
{
    char id[CONTAINER_ID_MAX];
    struct cgroup g;
    container_name(k, k->groups.v[k->groups.n_removed++ % GROUPS_KEPT], id);
    if (cgroup_of(&k->cgroup, id, &g))
        (void)rmdir(g.path);
}

static void forget_group(struct keeper *k, const struct container *c)
{
    char id[CONTAINER_ID_MAX];
    container_name(k, c->number, id);
    if (!str_eq(id, c->id))
        return; /* a container of an earlier keeper: this one removed its group at the start */
    if (k->groups.n - k->groups.n_removed == GROUPS_KEPT)
        remove_oldest_group(k);
    k->groups.v[k->groups.n++ % GROUPS_KEPT] = c->number;
    k->groups.at_ms = clock_mono_ms() + GROUPS_IDLE_MS;
}

void groups_tick(struct keeper *k, int64_t now_ms)
{
    if (now_ms < k->groups.at_ms)
        return;
    for (int i = 0; i < GROUPS_BATCH && k->groups.n_removed != k->groups.n; i++)
        remove_oldest_group(k);
    if (k->groups.n_removed == k->groups.n)
        k->groups.at_ms = INT64_MAX;
}

void ends_acked(struct keeper *k, uint64_t n)
{
    for (; k->ends.n_acked < n && k->ends.at < k->ends.n_reported; k->ends.n_acked++) {
        struct container *c = k->ends.v[k->ends.at++];
        k->ends.line_bytes -= c->line_len;
        forget_group(k, c);
        container_free(k, c);
    }
    close_gap(k);
    if (exits_wants_rewrite(k))
        exits_rewrite(k);
}
