/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the answer of a master of another user to SHARE. An accepted answer has the
 * properties on which the arbiter relies. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "arbiter/share.h"
#include "base/base.h"
#include "partition/partition.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct total {
    uint64_t containers, nodes;
};

static int add_node(const char *name, uint32_t n, void *arg)
{
    struct total *t = arg;
    if (!name || n == 0)
        abort();
    t->containers += n;
    t->nodes++;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct share_state s;
    struct total t = { .containers = 0 };
    struct err e = { 0 };
    int rc = share_state_read(span_mem(data, size), &s, add_node, &t, &e);
    if (rc < 0 && (rc != -EINVAL || !e.msg[0]))
        abort();
    /* The number of calls has a bound also if the answer is refused in the end. */
    if (t.nodes > PART_CONTAINERS_MAX || t.containers > PART_CONTAINERS_MAX)
        abort();
    if (rc == 0 && (s.n > PART_CONTAINERS_MAX || t.containers > s.n || (s.runs && s.n == 0) ||
                    s.left_ms < -1 || s.cost_ms < -1))
        abort();
    return 0;
}
