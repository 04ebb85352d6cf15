/* SPDX-License-Identifier: Apache-2.0 */
/* The list of ended containers that the journal may lack. */
#include <string.h>
#include <unistd.h>

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

/*
 * Put the control group of a forgotten container into the ring, and remove the one that had its
 * place there. No process is in that group any more. If the task has made groups in it, rmdir()
 * fails, and the group is removed at the end of the job.
 */
static void forget_group(struct keeper *k, const struct container *c)
{
    char id[CONTAINER_ID_MAX];
    struct cgroup g;
    container_name(k, c->number, id);
    if (!str_eq(id, c->id))
        return; /* a container of an earlier keeper: this one removed its group at the start */
    uint32_t *place = &k->groups.v[k->groups.n % GROUPS_KEPT];
    if (k->groups.n >= GROUPS_KEPT) {
        container_name(k, *place, id);
        if (cgroup_of(&k->cgroup, id, &g))
            (void)rmdir(g.path);
    }
    *place = c->number;
    k->groups.n++;
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
