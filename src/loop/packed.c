#include "loop_int.h"

#include <stdlib.h>
#include <string.h>

#include "codec/frame.h"

struct packed *packed_new(const Tony__Frame *msg)
{
    struct buf b = { .max = FRAME_HEADER + FRAME_MAX };
    struct packed *p = NULL;
    if (frame_pack(msg, &b) == 0 && (p = malloc(sizeof *p + b.len))) {
        p->refs = 1;
        p->len = b.len;
        memcpy(p->bytes, b.p, b.len);
    }
    buf_done(&b);
    return p;
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
