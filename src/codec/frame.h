/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames on a byte stream: a 4-byte big-endian length, then that many bytes (a packed Tony__Frame).
 * This code does no I/O: the caller appends received bytes and takes frames out.
 *
 * A length of 0 or above FRAME_MAX is refused before anything is allocated; the stream is then
 * unusable. protobuf-c trusts the counts of repeated fields that it reads from the wire. So
 * frame_unpack() gives it an allocator with a memory budget.
 */
#ifndef TONY_CODEC_FRAME_H
#define TONY_CODEC_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;
typedef struct Tony__Frame Tony__Frame; /* generated from proto/tony.proto */

enum {
    FRAME_HEADER = 4,
    /* Enough for a cluster spec of 100,000 tasks, or for the largest job file. */
    FRAME_MAX = 32 << 20,
};

/* Look for a complete frame at the front of `in`. 1: *out_payload points into `in` and is valid
 * until frame_consume(); 0: more bytes are needed; -EPROTO: the length is invalid. */
int frame_peek(const struct buf *in, struct span *out_payload, struct err *e);
void frame_consume(struct buf *in, struct span payload);

/* Append header and packed message. 0, -ENOMEM, -EMSGSIZE. */
int frame_pack(const Tony__Frame *msg, struct buf *out);

/* Unpack with a memory budget of 64 x payload (at most 512 MiB) + 64 KiB. NULL with e set: the
 * payload is no Frame, or exceeds the budget. Free with frame_free(). */
Tony__Frame *frame_unpack(struct span payload, struct err *e);
void frame_free(Tony__Frame *msg);
void frame_freep(Tony__Frame **msg); /* for AUTO() */

#endif
