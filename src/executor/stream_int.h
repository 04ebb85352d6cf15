/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a stream: its connection, and what it does for the client. It runs in a fork of
 * the executor and may block only in file operations. */
#ifndef TONY_EXECUTOR_STREAM_INT_H
#define TONY_EXECUTOR_STREAM_INT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/vec.h"
#include "codec/stream.h"
#include "executor/streams.h"

struct tls;

/* ---- stream_tunnel.c: the connection to the master, which leads to the client ---- */

enum {
    TUNNEL_OUT_MAX = 512 << 10, /* queued bytes; while there are more, nothing is read for it */
    TUNNEL_READ = 64 << 10,     /* bytes of one read from a command, a connection or a file */
};

struct tunnel {
    int fd;
    struct tls *tls; /* NULL = a unix socket */
    struct buf out;  /* frames; out_at bytes of them are sent or encrypted */
    size_t out_at;
    struct stream_reader reader;
    bool ended; /* the other side has disconnected */
};

/* Connect, and show the key of the stream. Blocks at most TUNNEL_DIAL_MS. */
int tunnel_open(struct executor *x, const Tony__DialStream *d, struct tunnel *out, struct err *e);
/* Read what has arrived, and hand it to the reader. 0; -EPIPE: the other side has disconnected; or
 * what the reader returned. */
int tunnel_read(struct tunnel *t, struct err *e);
int tunnel_add(struct tunnel *t, enum stream_type type, const void *p, size_t n);
/* Read once from fd, and queue what was read as a frame. Returns the number of bytes, 0 at the end,
 * -EAGAIN or another -errno. */
ssize_t tunnel_add_from(struct tunnel *t, enum stream_type type, int fd);
/* Before something is appended to `out` directly: forget the bytes that are sent. */
void tunnel_trim(struct tunnel *t);
int tunnel_flush(struct tunnel *t); /* 0 or -EPIPE */
bool tunnel_has_room(const struct tunnel *t);
bool tunnel_unsent(const struct tunnel *t);
/* The events to poll for; read: whether tunnel_read() may be called. */
short tunnel_events(const struct tunnel *t, bool read);
/* Handle the result of poll(): reads and flushes. 0, or -errno: the stream is over. */
int tunnel_ready(struct tunnel *t, short revents, bool read, struct err *e);
/* Send what is queued, then wait until the other side disconnects: it does so when it has got all.
 * Exits. */
_Noreturn void tunnel_finish(struct tunnel *t);
_Noreturn void tunnel_fail(struct tunnel *t, const struct err *why); /* SF_FAILED, then the same */

/* ---- stream_run.c ---- */

struct stream_side {
    struct executor *x;
    uint32_t id;
    struct tunnel t;
    int signal_fd;
    Tony__StreamRequest *request;
    struct strv env; /* of the task */
};

/* Runs in the fork. Ends with the stream. */
_Noreturn void stream_run(struct executor *x, const Tony__DialStream *d, pid_t executor);
void stream_mark(const struct executor *x, uint32_t id, char out[STREAM_MARK_MAX]);

_Noreturn void stream_exec(struct stream_side *s);    /* stream_exec.c */
_Noreturn void stream_connect(struct stream_side *s); /* stream_connect.c */
_Noreturn void stream_files(struct stream_side *s);   /* stream_files.c: GET and PUT */

#endif
