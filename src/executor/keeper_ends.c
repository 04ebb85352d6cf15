/* SPDX-License-Identifier: Apache-2.0 */
/* The list of ended containers that the journal may lack. */
#include <string.h>

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

void ends_acked(struct keeper *k, uint64_t n)
{
    for (; k->ends.n_acked < n && k->ends.at < k->ends.n_reported; k->ends.n_acked++) {
        struct container *c = k->ends.v[k->ends.at++];
        k->ends.line_bytes -= c->line_len;
        container_free(k, c);
    }
    close_gap(k);
    if (exits_wants_rewrite(k))
        exits_rewrite(k);
}
