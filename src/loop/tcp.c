/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "loop/loop_int.h"

/* The side of a stream that sends. */
enum sending {
    SENDING,      /* tcp_write() takes bytes */
    SENDING_REST, /* tcp_end(): takes no more, but queued bytes are still to be sent */
    SENT,         /* everything was sent, and this side is shut down */
};

/* A TCP stream. Written bytes wait in `out` until the loop is about to block, so that many small
 * pieces are sent in one packet. The bytes that the kernel does not accept then move, with their
 * memory, to one uv_write_t. */
struct tcp {
    struct object object;
    uv_tcp_t uv;
    struct dirty dirty;
    struct dial *dial;
    const struct tcp_ops *ops;
    void *arg;
    struct buf out;
    struct late_write *writing;
    struct err *failed; /* the next flush reports it */
    bool opening;       /* on_open() is due, at the next flush */
    bool drained;       /* on_drain() is due, once nothing is queued any more */
    enum sending sending;
    bool peer_ended; /* the peer has shut down its sending side: nothing more comes */
    bool paused;     /* by the owner: do not read */
    bool closed;     /* tcp_close(): only waits until libuv has closed the handle */
};

static struct err no_memory = { .num = ENOMEM, .msg = "no memory for a connection" };

static void tcp_dirty(struct tcp *t)
{
    dirty_add(t->object.loop, &t->dirty);
}

/* ---- the end ---- */

static void tcp_destroy(struct object *o)
{
    struct tcp *t = CONTAINER_OF(o, struct tcp, object);
    dirty_remove(o->loop, &t->dirty); /* loop_free() closes handles without tcp_close() */
    buf_done(&t->out);
    if (t->failed != &no_memory)
        free(t->failed);
    free(t);
}

void tcp_close(struct tcp *t)
{
    if (!t || t->closed)
        return;
    t->closed = true;
    t->ops = NULL;
    dial_cancel(TAKE(t->dial));
    dirty_remove(t->object.loop, &t->dirty);
    object_close((uv_handle_t *)&t->uv);
}

static void report_close(struct tcp *t, const struct err *e)
{
    const struct tcp_ops *ops = t->ops;
    if (ops && ops->on_close && !t->closed && !t->object.loop->ending) {
        t->ops = NULL; /* so that on_close() is called only once */
        ops->on_close(t, e, t->arg);
    }
    tcp_close(t);
}

/* Note a failure. The next flush reports it, so that on_close() never comes inside a call by the
 * owner. */
static void tcp_fail(struct tcp *t, const struct err *e)
{
    if (t->failed || t->closed)
        return;
    t->failed = malloc(sizeof *e);
    if (t->failed)
        *t->failed = *e;
    else
        t->failed = &no_memory;
    buf_done(&t->out);
    tcp_dirty(t);
}

static void tcp_broke(struct tcp *t, int rc)
{
    struct err e = { 0 };
    (void)err_set(&e, -rc, "the connection broke: %m");
    tcp_fail(t, &e);
}

/* ---- writing ---- */

static bool tcp_is_open(const struct tcp *t)
{
    return !t->dial && !t->closed && !t->failed;
}

static void on_written(uv_write_t *req, int status)
{
    struct tcp *t = late_write_end(req);
    t->writing = NULL;
    if (t->closed || status == UV_ECANCELED)
        return;
    if (status < 0)
        tcp_broke(t, status);
    else
        t->drained = true;
    tcp_dirty(t);
}

static void tcp_write_out(struct tcp *t)
{
    int rc = 0;
    while (rc >= 0 && t->out.len > 0 && !t->writing) {
        uv_buf_t b = uv_buf_init(t->out.p, (unsigned)t->out.len);
        rc = uv_try_write((uv_stream_t *)&t->uv, &b, 1);
        if (rc > 0 && (size_t)rc == t->out.len) {
            buf_done(&t->out); /* everything is written: free the memory */
            t->drained = true;
        } else if (rc > 0) {
            buf_consume(&t->out, (size_t)rc);
        } else if (rc == UV_EAGAIN) {
            rc = late_write_begin((uv_stream_t *)&t->uv, &t->out, on_written, t, &t->writing);
        }
    }
    if (rc < 0)
        tcp_broke(t, rc);
}

int tcp_write(struct tcp *t, const void *p, size_t n)
{
    if (t->closed || t->failed || t->sending != SENDING)
        return -EPIPE;
    if (tcp_queued(t) + n > TCP_QUEUE_MAX)
        return -ENOBUFS;
    int rc = buf_add(&t->out, p, n);
    if (rc < 0) {
        t->out.failed = false;
        return rc;
    }
    tcp_dirty(t);
    return 0;
}

size_t tcp_queued(const struct tcp *t)
{
    return t->out.len + (t->writing ? t->writing->bytes.len : 0);
}

void tcp_end(struct tcp *t)
{
    if (t->closed || t->sending != SENDING)
        return;
    t->sending = SENDING_REST;
    tcp_dirty(t);
}

static void tcp_shutdown(struct tcp *t)
{
    uv_os_fd_t fd;
    t->sending = SENT;
    if (uv_fileno((const uv_handle_t *)&t->uv, &fd) == 0)
        (void)shutdown(fd, SHUT_WR); /* fails if the peer has disconnected; reading reports that */
}

static void tcp_flush(struct dirty *d)
{
    struct tcp *t = CONTAINER_OF(d, struct tcp, dirty);
    if (t->opening && !t->failed) {
        t->opening = false;
        if (t->ops && t->ops->on_open)
            t->ops->on_open(t, t->arg);
    }
    if (tcp_is_open(t))
        tcp_write_out(t);
    if (t->drained && !t->closed && !t->failed && tcp_queued(t) == 0) {
        t->drained = false;
        if (t->ops && t->ops->on_drain)
            t->ops->on_drain(t, t->arg);
    }
    if (tcp_is_open(t) && t->sending == SENDING_REST && tcp_queued(t) == 0)
        tcp_shutdown(t);
    if (!t->closed && t->failed && t->ops)
        report_close(t, t->failed);
}

/* ---- reading ---- */

static void on_alloc(uv_handle_t *h, size_t want, uv_buf_t *out)
{
    (void)want;
    struct tcp *t = CONTAINER_OF((uv_tcp_t *)h, struct tcp, uv);
    *out = uv_buf_init(t->object.loop->read_buf, READ_SIZE);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *chunk)
{
    struct tcp *t = CONTAINER_OF((uv_tcp_t *)s, struct tcp, uv);
    if (n == 0 || t->closed || !t->ops)
        return;
    if (n > 0) {
        t->ops->on_read(t, chunk->base, (size_t)n, t->arg);
    } else if (n != UV_EOF) {
        tcp_broke(t, (int)n);
    } else if (t->ops->on_end) {
        t->peer_ended = true;
        t->ops->on_end(t, t->arg);
    } else {
        report_close(t, &(struct err){ 0 });
    }
}

static void tcp_listen(struct tcp *t)
{
    if (!tcp_is_open(t))
        return;
    if (t->paused || t->peer_ended || !t->ops)
        (void)uv_read_stop((uv_stream_t *)&t->uv); /* cannot fail */
    else
        (void)uv_read_start((uv_stream_t *)&t->uv, on_alloc,
                            on_read); /* fails if the stream reads already, or is closing */
}

void tcp_pause(struct tcp *t, bool pause)
{
    t->paused = pause;
    tcp_listen(t);
}

void tcp_set_arg(struct tcp *t, const struct tcp_ops *ops, void *arg)
{
    if (t->closed)
        return;
    t->ops = ops;
    t->arg = arg;
    tcp_listen(t);
    if (t->failed)
        tcp_dirty(t);
}

bool tcp_has_owner(const struct tcp *t)
{
    return t->ops || t->closed;
}

/* ---- opening ---- */

static struct tcp *tcp_new(struct loop *l, struct err *e)
{
    struct tcp *t = calloc(1, sizeof *t);
    if (!t) {
        (void)err_set(e, ENOMEM, "no memory for a connection");
        return NULL;
    }
    t->out.max = TCP_QUEUE_MAX;
    t->dirty.flush = tcp_flush;
    (void)uv_tcp_init(&l->uv, &t->uv); /* cannot fail: it makes no socket */
    object_init(&t->object, l, (uv_handle_t *)&t->uv, tcp_destroy);
    return t;
}

struct tcp *tcp_adopt(struct loop *l, int fd, struct err *e)
{
    struct tcp *t = tcp_new(l, e);
    int rc = t ? uv_tcp_open(&t->uv, fd) : -ENOMEM;
    if (rc < 0) {
        (void)close(fd); /* the handle does not own fd yet */
        if (t)
            (void)err_set(e, -rc, "cannot watch a connection: %m");
        tcp_close(t);
        return NULL;
    }
    return t;
}

static void on_dialled(void *arg, int fd, const struct err *e)
{
    struct tcp *t = arg;
    t->dial = NULL;
    if (e->num) {
        report_close(t, e);
        return;
    }
    int rc = uv_tcp_open(&t->uv, fd);
    if (rc < 0) {
        (void)close(fd); /* the handle does not own fd yet */
        struct err why = { 0 };
        (void)err_set(&why, -rc, "cannot watch a connection: %m");
        report_close(t, &why);
        return;
    }
    t->opening = true;
    tcp_listen(t);
    tcp_dirty(t);
}

int tcp_dial(struct loop *l, const char *host, uint16_t port, int64_t deadline_ms,
             const struct tcp_ops *ops, void *arg, struct tcp **out, struct err *e)
{
    struct tcp *t = tcp_new(l, e);
    if (!t)
        return -ENOMEM;
    int rc = dial_start(l, host, port, deadline_ms, on_dialled, t, &t->dial, e);
    if (rc < 0) {
        tcp_close(t);
        return rc;
    }
    t->ops = ops;
    t->arg = arg;
    *out = t;
    return 0;
}

int tcp_local(const struct tcp *t, struct tcp_address *out)
{
    int len = sizeof *out;
    return uv_tcp_getsockname(&t->uv, &out->sa, &len);
}
