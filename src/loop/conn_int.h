/*
 * A framed connection, as conn.c (frames, queue, owner) and conn_tls.c (what TCP and TLS add) share
 * it.
 */
#ifndef TONY_LOOP_CONN_INT_H
#define TONY_LOOP_CONN_INT_H

#include "loop/loop_int.h"

#include "base/err.h"

/* What a connection over TCP has beside the rest. */
struct conn_line {
    struct tls *tls;   /* NULL: accepted, and nothing was heard yet */
    struct dial *dial; /* under way */
    char *target;      /* "host:port" of a dialled one */
    struct loop_timer *timer;
    struct shakes *shakes; /* where an accepted one stands until it is ready */
    struct conn *next, *prev;
    struct err *why; /* it failed, but there was nobody to tell */
    bool ready;      /* the handshake is over */
    bool shut;       /* conn_finish(): all is said, the other side has yet to hang up */
};

/*
 * Output is a queue of packed frames that is written once an iteration, so that many small frames
 * become one writev(); what the kernel does not take waits in one uv_write. Input goes through the
 * loop's one buffer; only the start of an unfinished frame is kept here.
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
    struct buf in;            /* the start of a frame; without memory when empty */
    VEC(struct packed *) out; /* out.v[out_first ...] is still to be written */
    size_t out_first, out_offset, queued;
    uv_write_t *writing; /* under way, over n_writing bytes: of the queue, or of ciphertext */
    size_t n_writing;
    struct loop_timer *finish_timer;
    int failed; /* -errno to report in the next flush */
    bool opening, finishing, closed, deaf /* the peer reads no more */;
};

/* Without an on_frame nothing is read: what comes waits in the socket, and the end of the
 * connection behind it. */
static inline bool conn_paused(const struct conn *c)
{
    return !c->ops || !c->ops->on_frame;
}

/* conn.c */
struct conn *conn_new(struct loop *l, bool tcp, struct err *e);
bool conn_over(const struct conn *c);
void conn_dirty(struct conn *c);
void conn_listen(struct conn *c);
void conn_report_close(struct conn *c, const struct err *e);
void conn_report_errno(struct conn *c, int rc);
void conn_fail(struct conn *c, int rc); /* reported at the next flush */
void conn_write_failed(struct conn *c, int rc);
void conn_out_pop(struct conn *c, size_t n);
int conn_read_bytes(struct conn *c, char *p, size_t n, struct err *e);

/* conn_tls.c: all for connections with a line only, but for the first */
static inline bool conn_shaking(const struct conn *c)
{
    return c->line && !c->line->ready;
}
void line_free(struct conn_line *t);
void line_close(struct conn *c); /* the owner's part of conn_close() */
size_t line_queued(const struct conn *c);
void line_write(struct conn *c);
int line_read(struct conn *c, char *p, size_t n, struct err *e);
void line_eof(struct conn *c, struct err *e);          /* what the end of the stream means */
bool line_report(struct conn *c, const struct err *e); /* false: conn.c's business */
void line_finish(struct conn *c);

#endif
