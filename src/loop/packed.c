/* SPDX-License-Identifier: Apache-2.0 */
#include "loop_int.h"

#include <stdlib.h>
#include <string.h>

#include "codec/frame.h"

struct packed *packed_part(const void *bytes, size_t n)
{
    struct packed *p = malloc(sizeof *p + n);
    if (!p)
        return NULL;
    p->refs = 1;
    p->len = n;
    if (n > 0)
        memcpy(p->bytes, bytes, n);
    return p;
}

struct packed *packed_new(const Tony__Frame *msg)
{
    struct buf b = { .max = FRAME_HEADER + FRAME_MAX };
    struct packed *p = frame_pack(msg, &b) == 0 ? packed_part(b.p, b.len) : NULL;
    buf_done(&b);
    return p;
}

size_t packed_len(const struct packed *p)
{
    return p->len;
}

struct packed *packed_ref(struct packed *p)
{
    p->refs++;
    return p;
}

void packed_unref(struct packed *p)
{
    if (p && --p->refs == 0)
        free(p);
}
