/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames on a byte stream: a 4-byte big-endian length, then that many bytes (a packed Tony__Frame).
 * Sans-I/O: push bytes, pull frames.
 *
 * A length of 0 or above FRAME_MAX is refused before anything is allocated: the stream cannot be
 * trusted any further. protobuf-c unpacks through a budgeted allocator (frame_unpack), because it
 * trusts repeated-field counts from the wire.
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
    FRAME_MAX = 32 << 20, /* a cluster spec of 100,000 tasks, or a job file at its ceiling, fit */
};

/* Pull one frame out of the front of `in`. 1: *out_payload borrows from in->p and stays valid until
 * frame_consume(); 0: more bytes are needed; -EPROTO: a length that cannot be. */
int frame_peek(const struct buf *in, struct span *out_payload, struct err *e);
void frame_consume(struct buf *in, struct span payload);

/* Append header and packed message. 0, -ENOMEM, -EMSGSIZE. */
int frame_pack(const Tony__Frame *msg, struct buf *out);

/* Unpack with a memory budget of 64 x payload (512 MiB at most) + 64 KiB. NULL with e set when it
 * is not a Frame. Free with frame_free(). */
Tony__Frame *frame_unpack(struct span payload, struct err *e);
void frame_free(Tony__Frame *msg);
void frame_freep(Tony__Frame **msg); /* for AUTO() */

#endif
