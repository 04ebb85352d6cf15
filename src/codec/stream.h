/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames of a stream between a client and the process beside a task (docs/streams.md). The
 * master between them copies the bytes and does not read these frames.
 *
 *     1 byte type, 3 bytes big-endian length, then the payload
 *
 * This code does no I/O. A frame of data is delivered in pieces, as its bytes arrive, so that no
 * side needs memory for a whole frame. The payload of every other frame is collected first; it has
 * at most STREAM_CONTROL_MAX bytes. A stream that breaks a rule cannot be used any more.
 */
#ifndef TONY_CODEC_STREAM_H
#define TONY_CODEC_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

enum stream_type {
    SF_NONE = 0,
    SF_REQUEST, /* client, first frame: a StreamRequest of proto/tony.proto */
    SF_STARTED, /* task side: the request is being carried out; no payload */
    SF_FAILED,  /* the last frame of a side: 4 bytes errno, then a sentence */
    SF_DATA,    /* input and output of a command, bytes of a connection, content of a file */
    SF_ERRORS,  /* standard error of a command without a terminal */
    SF_END,     /* the sender sends no SF_DATA any more */
    SF_WINDOW,  /* task side: 4 bytes: how many more bytes of SF_DATA a command accepts */
    SF_RESIZE,  /* client: 2 bytes rows, 2 bytes columns of its terminal */
    SF_SIGNAL,  /* client: 1 byte: a signal for the command's process group */
    SF_EXIT,    /* task side, last frame: 1 byte signal (0 = none), 1 byte exit code */
    SF_ENTRY,   /* a StreamEntry of proto/tony.proto; its content follows in SF_DATA */
    SF_NOTE,    /* cp: a sentence about a file that was left out */
    SF_DONE,    /* cp: all entries were sent; the answer to it: all were written */
    SF_COUNT,
};

enum {
    STREAM_HEADER = 4,
    STREAM_DATA_MAX = 256 << 10,    /* payload of one frame of data */
    STREAM_CONTROL_MAX = 192 << 10, /* payload of another frame: a command line may be long */
    /* Bytes of SF_DATA that a client may send to a command before the first SF_WINDOW. With this
     * limit, frames such as SF_SIGNAL pass a command that does not read its input. */
    STREAM_WINDOW = 256 << 10,
};

/* Write the header of a frame. n is at most STREAM_DATA_MAX. */
void stream_header(enum stream_type type, size_t n, unsigned char out[static STREAM_HEADER]);
/* Append a frame. 0, -ENOMEM, -EMSGSIZE. */
int stream_add(struct buf *out, enum stream_type type, const void *p, size_t n);
int stream_add_failed(struct buf *out, const struct err *why); /* SF_FAILED */
int stream_add_u32(struct buf *out, enum stream_type type, uint32_t value);
uint32_t stream_u32(struct span payload); /* 0: the payload is shorter than 4 bytes */
/* Read the payload of an SF_FAILED of the other side. Control characters become blanks. Returns
 * -e->num. */
int stream_failed(struct span payload, struct err *e);

struct stream_reader {
    /* Called with each piece of SF_DATA and SF_ERRORS, and with the payload of every other frame.
     * p is valid in this call. Returns 0, or -errno: then stream_feed() ends and returns it. */
    int (*on_frame)(enum stream_type type, struct span payload, void *arg);
    void *arg;
    /* private */
    unsigned char header[STREAM_HEADER];
    size_t n_header;
    enum stream_type type;
    size_t left; /* bytes of the payload that have not arrived */
    struct buf control;
};

/* Read n bytes of the other side. 0, the result of on_frame(), or -EPROTO with e set. */
int stream_feed(struct stream_reader *r, const char *p, size_t n, struct err *e);
void stream_reader_done(struct stream_reader *r);

#endif
