/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A framed connection: the declarations that conn.c (frames, queue, callbacks) and conn_tls.c (TCP
 * and TLS) share.
 */
#ifndef TONY_LOOP_CONN_INT_H
#define TONY_LOOP_CONN_INT_H

#include "loop/loop_int.h"

#include "base/err.h"

/* The additional state of a connection over TCP. */
struct conn_line {
    struct tls *tls;   /* NULL: the connection was accepted, but has sent nothing yet */
    struct dial *dial; /* the attempt to connect; NULL = none is running */
    char *target;      /* "host:port" of an outgoing connection */
    struct loop_timer *timer;
    struct shake_work *work; /* another thread has the session: tls is NULL meanwhile */
    uint64_t from;           /* the peer's address, as a number; see address_hash() */
    bool counted;            /* in loop.n_shaking */
    struct shakes *shakes; /* the list of an accepted connection until its handshake has finished */
    struct conn *next, *prev;
    struct err *why; /* why it failed while it was paused; reported once it gets ops */
    bool ready;      /* the handshake has finished */
    bool shut;       /* conn_finish(): everything was sent; the peer has not closed its side yet */
};

/*
 * Output is a queue of packed frames. The loop writes it once in each iteration, so that one
 * writev() sends many small frames. The bytes that the kernel does not accept wait in one
 * uv_write_t.
 *
 * Input goes through the loop's read buffer, which all connections share. A connection keeps only
 * the beginning of an incomplete frame.
 */
struct conn {
    struct object object;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
    } io;
    struct dirty dirty;
    const struct conn_ops *ops;
    void *arg;
    struct conn_line *line;   /* NULL on a unix socket */
    struct buf in;            /* the beginning of an incomplete frame; if empty, it has no memory */
    VEC(struct packed *) out; /* out.v[out_first ...] are not written yet */
    /* out_offset: written bytes of the first of them; queued: bytes in the whole queue */
    size_t out_first, out_offset, queued;
    uv_write_t *writing; /* a running write of n_writing bytes, of frames or of ciphertext */
    size_t n_writing;
    struct loop_timer *finish_timer;
    int failed;        /* -errno that the next flush reports */
    bool opening;      /* on_open() is due, at the next flush */
    bool finishing;    /* conn_finish(): send the queued bytes, ignore received bytes, then close */
    bool closed;       /* conn_close(): only waits until libuv has closed the handle */
    bool write_closed; /* the peer has closed the connection: send nothing, read its last frames */
    /* conn_raw.c: NULL = the connection carries frames. */
    const struct conn_raw_ops *raw;
    bool raw_paused;  /* by the owner */
    bool raw_yields;  /* until the next turn of the loop: others must be read, too */
    bool raw_drained; /* on_drain() is due */
    size_t raw_turn;  /* bytes read in this turn of the loop */
};

/* Is the connection paused? Without on_frame() the loop does not read. Incoming bytes and the end
 * of the connection wait in the socket. */
static inline bool conn_paused(const struct conn *c)
{
    return c->raw ? c->raw_paused || c->raw_yields : !c->ops || !c->ops->on_frame;
}

/* conn.c */
struct conn *conn_new(struct loop *l, bool tcp, struct err *e);
bool conn_over(const struct conn *c);     /* is conn_close() or conn_finish() called already? */
void conn_dirty(struct conn *c);          /* write its output at the end of this turn of the loop */
void conn_update_reading(struct conn *c); /* start or stop to read, see conn_paused() */
void conn_report_close(struct conn *c, const struct err *e);
void conn_write_failed(struct conn *c, int rc);
void conn_out_pop(struct conn *c, size_t n);
int conn_read_bytes(struct conn *c, char *p, size_t n, struct err *e);
int conn_push(struct conn *c, struct packed *p); /* queue it, without a limit; -ENOMEM */

/* conn_raw.c: only for connections with `raw` */
int raw_read(struct conn *c, const char *p, size_t n);
void raw_turn(struct conn *c);  /* a turn of the loop is over */
void raw_flush(struct conn *c); /* after raw_turn(), when the queue was written */

/* conn_tls.c: all but the first only for connections with a `line` */
static inline bool conn_shaking(const struct conn *c)
{
    return c->line && !c->line->ready;
}
void line_free(struct conn_line *t);
void line_close(struct conn *c); /* called by conn_close() */
size_t line_queued(const struct conn *c);
void line_write(struct conn *c);
int line_read(struct conn *c, char *p, size_t n, struct err *e);
void line_eof(struct conn *c, struct err *e); /* sets e to the meaning of the end of the stream */
/* Handle the end of a connection before its handshake has finished. false: conn.c handles it. */
bool line_report(struct conn *c, const struct err *e);
void line_finish(struct conn *c);

#endif
