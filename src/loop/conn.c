/* SPDX-License-Identifier: Apache-2.0 */
#include "conn_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"
#include "codec/frame.h"
#include "proto/tony.pb-c.h"

enum { ANSWER_PART = 8 << 20 }; /* bytes of a long document in one frame */

void conn_dirty(struct conn *c)
{
    dirty_add(c->object.loop, &c->dirty);
}

bool conn_over(const struct conn *c)
{
    return c->closed || c->finishing;
}

/* ---- the end ---- */

static void out_drop(struct conn *c)
{
    for (size_t i = c->out_first; i < c->out.n; i++)
        packed_unref(c->out.v[i]);
    vec_done(&c->out);
    c->out_first = c->out_offset = c->queued = 0;
}

static void conn_destroy(struct object *o)
{
    struct conn *c = CONTAINER_OF(o, struct conn, object);
    dirty_remove(c->object.loop, &c->dirty); /* loop_free() closes handles without conn_close() */
    out_drop(c);
    buf_done(&c->in);
    line_free(c->line);
    free(c);
}

void conn_close(struct conn *c)
{
    if (!c || c->closed)
        return;
    c->closed = true;
    c->ops = NULL;
    c->raw = NULL;
    if (c->line)
        line_close(c);
    dirty_remove(c->object.loop, &c->dirty);
    loop_timer_free(TAKE(c->finish_timer));
    object_close(&c->io.handle);
}

void conn_finish(struct conn *c)
{
    if (!c || c->closed)
        return;
    c->ops = NULL;
    c->raw = NULL;
    c->finishing = true;
    c->opening = false;
    /* Read and discard what the peer sends. If a socket is closed with unread bytes, the kernel
     * resets the connection, and the peer may lose the last frames. */
    conn_update_reading(c);
    conn_dirty(c);
}

void conn_report_close(struct conn *c, const struct err *e)
{
    const struct conn_ops *ops = c->ops;
    if (c->line && line_report(c, e))
        return;
    if (!c->closed && !c->finishing && conn_paused(c)) {
        c->failed = e->num ? -e->num : -EPIPE; /* reported once the paused conn gets ops */
        return;
    }
    const struct conn_raw_ops *raw = c->raw;
    c->ops = NULL; /* so that on_close() is called only once */
    c->raw = NULL;
    if (!c->closed && !c->object.loop->ending) {
        if (raw)
            raw->on_close(c, e, c->arg);
        else if (ops && ops->on_close)
            ops->on_close(c, e, c->arg);
    }
    conn_close(c);
}

static void conn_report_errno(struct conn *c, int rc)
{
    struct err e = { 0 };
    if (c->line && c->line->why)
        e = *c->line->why;
    else if (rc == -ENOBUFS)
        (void)err_set(&e, ENOBUFS, "the peer reads too slowly: the queue for it is full");
    else
        (void)err_set(&e, -rc, "the connection broke: %m");
    conn_report_close(c, &e);
}

/* Note a failure. The next flush reports it to the owner, so that on_close() never comes inside a
 * call by the owner. */
static void conn_fail(struct conn *c, int rc)
{
    if (!c->failed)
        c->failed = rc;
    conn_dirty(c);
}

/* ---- writing ---- */

void conn_out_pop(struct conn *c, size_t n)
{
    c->queued -= n;
    while (n > 0) {
        struct packed *p = c->out.v[c->out_first];
        size_t left = p->len - c->out_offset;
        if (n < left) {
            c->out_offset += n;
            return;
        }
        n -= left;
        c->out_offset = 0;
        c->out_first++;
        packed_unref(p);
    }
    if (c->out_first == c->out.n) /* the queue is empty: free its memory */
        out_drop(c);
}

static unsigned out_chunks(const struct conn *c, uv_buf_t chunks[WRITE_CHUNKS], size_t *out_bytes)
{
    unsigned n = 0;
    size_t bytes = 0, offset = c->out_offset;
    for (size_t i = c->out_first; i < c->out.n && n < WRITE_CHUNKS; i++, offset = 0) {
        struct packed *p = c->out.v[i];
        chunks[n++] = uv_buf_init(p->bytes + offset, (unsigned)(p->len - offset));
        bytes += p->len - offset;
    }
    *out_bytes = bytes;
    return n;
}

void conn_write_failed(struct conn *c, int rc)
{
    if (rc == -EPIPE || rc == -ECONNRESET) {
        /* The peer has closed the connection, but its last frames may still be unread. Continue to
         * read until the end. */
        c->write_closed = true;
        out_drop(c);
    } else {
        conn_fail(c, rc);
    }
}

static void on_written(uv_write_t *req, int status)
{
    struct conn *c = req->data;
    size_t n = c->n_writing;
    free(req);
    c->writing = NULL;
    if (c->closed || status == UV_ECANCELED)
        return;
    if (status < 0)
        conn_write_failed(c, status);
    else
        conn_out_pop(c, n);
    conn_dirty(c);
}

static int write_later(struct conn *c, const uv_buf_t *chunks, unsigned n, size_t bytes)
{
    uv_write_t *req = malloc(sizeof *req);
    if (!req)
        return -ENOMEM;
    req->data = c;
    int rc = uv_write(req, &c->io.stream, chunks, n, on_written);
    if (rc < 0) {
        free(req);
        return rc;
    }
    c->writing = req;
    c->n_writing = bytes;
    return 0;
}

static void write_queue(struct conn *c)
{
    if (c->line) {
        line_write(c);
        return;
    }
    while (c->queued > 0 && !c->writing && !c->write_closed) {
        uv_buf_t chunks[WRITE_CHUNKS];
        size_t bytes;
        unsigned n = out_chunks(c, chunks, &bytes);
        int rc = uv_try_write(&c->io.stream, chunks, n);
        if (rc == UV_EAGAIN)
            rc = write_later(c, chunks, n, bytes);
        else if (rc > 0)
            conn_out_pop(c, (size_t)rc);
        if (rc < 0) {
            conn_write_failed(c, rc);
            return;
        }
    }
}

int conn_push(struct conn *c, struct packed *p)
{
    if (c->out_first > 0 && c->out.n == c->out.cap) {
        /* Remove the frames that were written already: otherwise a queue that is never empty would
         * grow without limit. */
        memmove(c->out.v, c->out.v + c->out_first, (c->out.n - c->out_first) * sizeof *c->out.v);
        c->out.n -= c->out_first;
        c->out_first = 0;
    }
    if (vec_push(&c->out, p) < 0)
        return -ENOMEM;
    (void)packed_ref(p);
    c->queued += p->len;
    conn_dirty(c);
    return 0;
}

/* May `bytes` more be queued? If not, the connection ends. */
static int check_room(struct conn *c, size_t bytes)
{
    if (c->closed || c->finishing || c->write_closed || c->failed)
        return -EPIPE;
    if (c->queued + bytes <= CONN_QUEUE_MAX)
        return 0;
    conn_fail(c, -ENOBUFS);
    return -ENOBUFS;
}

int conn_send_packed(struct conn *c, struct packed *p)
{
    int rc = check_room(c, p->len);
    return rc < 0 ? rc : conn_push(c, p);
}

static int push_answer_part(struct conn *c, struct span part, bool more)
{
    Tony__Answer a = TONY__ANSWER__INIT;
    a.json.data = (uint8_t *)(uintptr_t)part.p; /* packing does not write to it */
    a.json.len = part.len;
    a.more = more;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_ANSWER;
    f.answer = &a;
    struct packed *p = packed_new(&f);
    int rc = p ? conn_push(c, p) : -ENOMEM;
    packed_unref(p);
    return rc;
}

int conn_send_answer(struct conn *c, struct span json)
{
    int rc = check_room(c, MIN(json.len, (size_t)ANSWER_PART));
    bool more = true;
    while (rc == 0 && more) {
        size_t n = MIN(json.len, (size_t)ANSWER_PART);
        more = n < json.len;
        rc = push_answer_part(c, span_mem(json.p, n), more);
        json = span_mem(json.p + n, json.len - n);
    }
    if (rc == -ENOMEM) /* the peer would wait for the rest */
        conn_fail(c, rc);
    return rc;
}

int conn_send(struct conn *c, const Tony__Frame *msg)
{
    struct packed *p = packed_new(msg);
    if (!p)
        return -ENOMEM;
    int rc = conn_send_packed(c, p);
    packed_unref(p);
    return rc;
}

size_t conn_queued(const struct conn *c)
{
    return c->line ? line_queued(c) : c->queued;
}

/* ---- flush: once in each iteration of the loop ---- */

static void read_kept(struct conn *c);

static void on_finish_limit(void *arg)
{
    conn_close(arg);
}

static void finish_step(struct conn *c)
{
    if (c->line)
        line_finish(c);
    if (c->closed)
        return;
    bool said = conn_queued(c) == 0 && !(c->line && c->line->shut);
    if (said || c->write_closed || c->failed) {
        conn_close(c);
    } else if (!c->finish_timer) {
        c->finish_timer = loop_timer_new(c->object.loop, on_finish_limit, c);
        if (c->finish_timer)
            loop_timer_set(c->finish_timer, clock_mono_ms() + FINISH_LIMIT_MS);
        else
            conn_close(c);
    }
}

static void conn_flush(struct dirty *d)
{
    struct conn *c = CONTAINER_OF(d, struct conn, dirty);
    if (c->raw)
        raw_turn(c);
    if (c->opening) {
        c->opening = false;
        if (c->ops && c->ops->on_open)
            c->ops->on_open(c, c->arg);
        if (c->closed)
            return;
    }
    if (!c->failed)
        write_queue(c);
    if (c->finishing)
        finish_step(c);
    else if (c->failed)
        conn_report_errno(c, c->failed);
    else if (c->raw)
        raw_flush(c);
    else if (c->in.len > 0 && !conn_paused(c))
        read_kept(c);
}

/* ---- reading ---- */

static void on_alloc(uv_handle_t *h, size_t want, uv_buf_t *out)
{
    (void)want;
    struct conn *c = CONTAINER_OF((uv_stream_t *)h, struct conn, io.stream);
    *out = uv_buf_init(c->object.loop->read_buf, READ_SIZE);
}

/* Report all complete frames in view. Returns their length in bytes, or -errno with e set. */
static ssize_t read_frames(struct conn *c, struct buf view, struct err *e)
{
    size_t taken = 0;
    struct span payload;
    int rc;
    while (!c->raw && !conn_paused(c) && (rc = frame_peek(&view, &payload, e)) != 0) {
        if (rc < 0)
            return rc;
        Tony__Frame *f = frame_unpack(payload, e);
        if (!f)
            return -EPROTO;
        c->ops->on_frame(c, f, c->arg);
        frame_free(f);
        size_t n = FRAME_HEADER + payload.len;
        taken += n;
        view.p += n;
        view.len -= n;
    }
    return (ssize_t)taken;
}

int conn_read_bytes(struct conn *c, char *p, size_t n, struct err *e)
{
    bool kept = c->in.len > 0;
    if (conn_over(c))
        return 0;
    if (c->raw)
        return raw_read(c, p, n) < 0 ? err_set(e, ENOMEM, "no memory for %zu bytes of a stream", n)
                                     : 0;
    if (kept && buf_add(&c->in, p, n) < 0)
        return err_set(e, ENOMEM, "no memory for %zu bytes of a frame", c->in.len + n);
    ssize_t taken = read_frames(c, kept ? c->in : (struct buf){ .p = p, .len = n }, e);
    if (taken < 0)
        return (int)taken;
    if (conn_over(c)) /* on_frame() has closed the conn: drop the rest */
        return 0;
    if (kept)
        buf_consume(&c->in, (size_t)taken);
    else if ((size_t)taken < n && buf_add(&c->in, p + taken, n - (size_t)taken) < 0)
        return err_set(e, ENOMEM, "no memory for %zu bytes of a frame", n - (size_t)taken);
    if (c->in.len == 0)
        buf_done(&c->in);
    return 0;
}

/* Report the frames that arrived together with the frame after which the owner paused the conn. */
static void read_kept(struct conn *c)
{
    struct err e = { 0 };
    ssize_t taken = read_frames(c, c->in, &e);
    if (taken < 0)
        conn_report_close(c, &e);
    else if (!conn_over(c))
        buf_consume(&c->in, (size_t)taken);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *chunk)
{
    struct conn *c = CONTAINER_OF(s, struct conn, io.stream);
    struct err e = { 0 };
    if (n == 0 || c->closed)
        return;
    if (n == UV_EOF) {
        if (c->line)
            line_eof(c, &e);
        else if (c->in.len > 0)
            (void)err_set(&e, EPIPE, "the peer closed the connection in the middle of a frame");
        conn_report_close(c, &e);
    } else if (n < 0) {
        conn_report_errno(c, (int)n);
    } else if (c->line ? line_read(c, chunk->base, (size_t)n, &e) < 0
                       : conn_read_bytes(c, chunk->base, (size_t)n, &e) < 0) {
        conn_report_close(c, &e);
    }
}

void conn_update_reading(struct conn *c)
{
    uv_stream_t *s = &c->io.stream;
    if (c->closed)
        return;
    bool paused = !c->finishing && conn_paused(c) && !conn_shaking(c);
    if (paused || (c->line && c->line->work))
        (void)uv_read_stop(s); /* cannot fail */
    else
        /* Fails if the conn reads already, has no socket yet, or is closing. */
        (void)uv_read_start(s, on_alloc, on_read);
}

/* ---- opening ---- */

struct conn *conn_new(struct loop *l, bool tcp, struct err *e)
{
    struct conn *c = calloc(1, sizeof *c);
    if (!c) {
        (void)err_set(e, ENOMEM, "cannot make a connection: %m");
        return NULL;
    }
    c->in.max = FRAME_HEADER + FRAME_MAX + READ_SIZE;
    c->dirty.flush = conn_flush;
    if (tcp)
        (void)uv_tcp_init(&l->uv, &c->io.tcp); /* cannot fail: it makes no socket */
    else
        (void)uv_pipe_init(&l->uv, &c->io.pipe, 0); /* cannot fail */
    object_init(&c->object, l, &c->io.handle, conn_destroy);
    return c;
}

struct conn *conn_adopt(struct loop *l, int fd, struct err *e)
{
    struct conn *c = conn_new(l, false, e);
    int rc = c ? uv_pipe_open(&c->io.pipe, fd) : -ENOMEM;
    if (rc < 0) {
        (void)close(fd); /* the handle does not own fd yet */
        if (c)
            (void)err_set(e, -rc, "cannot watch a connection: %m");
        conn_close(c);
        return NULL;
    }
    return c;
}

int conn_dial_unix(struct loop *l, const char *path, const struct conn_ops *ops, void *arg,
                   struct conn **out, struct err *e)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    size_t len = strlen(path);
    if (len >= sizeof sa.sun_path)
        return err_set(e, ENAMETOOLONG, "cannot connect to socket '%s': %m", path);
    memcpy(sa.sun_path, path, len + 1);

    AUTO(close_p) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return err_set(e, errno, "cannot make a socket: %m");
    int rc;
    do
        rc = connect(fd, (const struct sockaddr *)&sa, sizeof sa);
    while (rc == -1 && errno == EINTR);
    if (rc == -1) /* EAGAIN: the backlog of the listener is full */
        return err_set(e, errno, "cannot connect to socket '%s': %m", path);

    int mine = fd;
    fd = -1;
    struct conn *c = conn_adopt(l, mine, e);
    if (!c)
        return -(e && e->num ? e->num : ENOMEM);
    c->ops = ops;
    c->arg = arg;
    c->opening = true;
    conn_update_reading(c);
    conn_dirty(c);
    *out = c;
    return 0;
}

void conn_set_arg(struct conn *c, const struct conn_ops *ops, void *arg)
{
    if (conn_over(c))
        return;
    c->ops = ops;
    c->arg = arg;
    conn_update_reading(c);
    if (!conn_paused(c) && (c->in.len > 0 || c->failed))
        conn_dirty(c);
}

bool conn_has_owner(const struct conn *c)
{
    return c->ops || c->raw || c->closed || c->finishing;
}

int conn_peer(const struct conn *c, uid_t *out_uid, pid_t *out_pid)
{
    uv_os_fd_t fd;
    struct ucred cred;
    socklen_t len = sizeof cred;
    if (c->line)
        return -EOPNOTSUPP;
    int rc = uv_fileno(&c->io.handle, &fd);
    if (rc < 0)
        return rc;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == -1)
        return -errno;
    *out_uid = cred.uid;
    *out_pid = cred.pid;
    return 0;
}
