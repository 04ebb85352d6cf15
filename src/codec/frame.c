/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/frame.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "proto/tony.pb-c.h"

/* An unpacked message is larger than its bytes on the wire. The worst case is a list of empty
 * messages: 2 bytes become about 100. A message that exceeds the budget is refused as hostile. */
enum {
    BUDGET_FACTOR = 64,
    BUDGET_MORE = 64 << 10,
    BUDGET_MAX = 512 << 20,
};

static uint32_t load_be32(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;
    return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

static void store_be32(unsigned char *p, uint32_t v)
{
    p[0] = (unsigned char)(v >> 24);
    p[1] = (unsigned char)(v >> 16);
    p[2] = (unsigned char)(v >> 8);
    p[3] = (unsigned char)v;
}

int frame_peek(const struct buf *in, struct span *out_payload, struct err *e)
{
    if (in->len < FRAME_HEADER)
        return 0;
    uint32_t len = load_be32(in->p);
    if (len == 0 || len > FRAME_MAX)
        return err_set(e, EPROTO, "invalid frame length %u: the limit is %d", len, FRAME_MAX);
    if (in->len - FRAME_HEADER < len)
        return 0;
    *out_payload = span_mem(in->p + FRAME_HEADER, len);
    return 1;
}

void frame_consume(struct buf *in, struct span payload)
{
    buf_consume(in, FRAME_HEADER + payload.len);
}

int frame_pack(const Tony__Frame *msg, struct buf *out)
{
    size_t len = tony__frame__get_packed_size(msg);
    if (len == 0 || len > FRAME_MAX)
        return -EMSGSIZE;
    unsigned char *p = buf_reserve(out, FRAME_HEADER + len);
    if (!p)
        return -ENOMEM;
    store_be32(p, (uint32_t)len);
    tony__frame__pack(msg, p + FRAME_HEADER);
    buf_commit(out, FRAME_HEADER + len);
    return 0;
}

/* The budget counts allocations and ignores what is freed. protobuf-c frees little while it
 * unpacks, and the result must not depend on the order of the fields. */
struct budget {
    size_t left;
};

static void *budget_alloc(void *arg, size_t size)
{
    struct budget *b = arg;
    if (size > b->left)
        return NULL;
    b->left -= size;
    return malloc(size);
}

static void budget_free(void *arg, void *p)
{
    (void)arg;
    free(p);
}

Tony__Frame *frame_unpack(struct span payload, struct err *e)
{
    if (payload.len > FRAME_MAX) {
        (void)err_set(e, EPROTO, "invalid frame length %zu: the limit is %d", payload.len,
                      FRAME_MAX);
        return NULL;
    }
    size_t most = payload.len * BUDGET_FACTOR;
    struct budget budget = { (most < BUDGET_MAX ? most : BUDGET_MAX) + BUDGET_MORE };
    ProtobufCAllocator allocator = { budget_alloc, budget_free, &budget };
    Tony__Frame *msg =
        tony__frame__unpack(&allocator, payload.len, (const unsigned char *)payload.p);
    if (!msg)
        (void)err_set(e, EPROTO, "the %zu bytes received are not a valid frame", payload.len);
    return msg;
}

void frame_free(Tony__Frame *msg)
{
    if (msg)
        tony__frame__free_unpacked(msg, NULL); /* NULL: use free(), as budget_free() does */
}

void frame_freep(Tony__Frame **msg)
{
    frame_free(*msg);
}
