#include "loop_int.h"

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

/*
 * Output is a queue of packed frames that is written once an iteration, so that many small frames
 * become one writev(); what the kernel does not take waits in one uv_write. Input goes through the
 * loop's one buffer; only the start of an unfinished frame is kept here.
 */
struct conn {
    struct object object;
    uv_pipe_t pipe;
    const struct conn_ops *ops;
    void *arg;
    struct conn *next_dirty, *prev_dirty;
    struct buf in;            /* the start of a frame; without memory when empty */
    VEC(struct packed *) out; /* out.v[out_first ...] is still to be written */
    size_t out_first, out_offset, queued;
    uv_write_t *writing; /* under way, over n_writing of them */
    size_t n_writing;
    struct loop_timer *finish_timer;
    int failed; /* -errno to report in the next flush */
    bool dirty, opening, finishing, closed, deaf /* the peer reads no more */;
};

/* Without an on_frame nothing is read: what comes waits in the socket, and the end of the
 * connection behind it. */
static bool conn_paused(const struct conn *c)
{
    return !c->ops || !c->ops->on_frame;
}

static void dirty_add(struct conn *c)
{
    struct loop *l = c->object.loop;
    if (c->dirty)
        return;
    c->dirty = true;
    c->next_dirty = NULL;
    c->prev_dirty = l->dirty_last;
    if (l->dirty_last)
        l->dirty_last->next_dirty = c;
    else
        l->dirty = c;
    l->dirty_last = c;
}

static void dirty_remove(struct conn *c)
{
    struct loop *l = c->object.loop;
    if (!c->dirty)
        return;
    c->dirty = false;
    if (c->prev_dirty)
        c->prev_dirty->next_dirty = c->next_dirty;
    else
        l->dirty = c->next_dirty;
    if (c->next_dirty)
        c->next_dirty->prev_dirty = c->prev_dirty;
    else
        l->dirty_last = c->prev_dirty;
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
    dirty_remove(c); /* loop_free() closes without conn_close() */
    out_drop(c);
    buf_done(&c->in);
    free(c);
}

void conn_close(struct conn *c)
{
    if (!c || c->closed)
        return;
    c->closed = true;
    c->ops = NULL;
    dirty_remove(c);
    loop_timer_free(TAKE(c->finish_timer));
    object_close((uv_handle_t *)&c->pipe);
}

static void conn_listen(struct conn *c);

void conn_finish(struct conn *c)
{
    if (!c || c->closed)
        return;
    c->ops = NULL;
    c->finishing = true;
    c->opening = false;
    conn_listen(c); /* and throw away: a socket closed over unread bytes would break the connection,
                       not end it */
    dirty_add(c);
}

static void report_close(struct conn *c, const struct err *e)
{
    const struct conn_ops *ops = c->ops;
    if (!c->closed && !c->finishing && conn_paused(c)) {
        c->failed = e->num ? -e->num : -EPIPE; /* for the next owner */
        return;
    }
    if (!c->closed && ops && ops->on_close && !c->object.loop->ending) {
        c->ops = NULL; /* once */
        ops->on_close(c, e, c->arg);
    }
    conn_close(c);
}

static void report_errno(struct conn *c, int rc)
{
    struct err e = { 0 };
    if (rc == -ENOBUFS)
        (void)err_set(&e, ENOBUFS, "the other side does not read what it is sent");
    else
        (void)err_set(&e, -rc, "the connection broke: %m");
    report_close(c, &e);
}

/* Reported at the next flush, so never from inside a call of the owner's. */
static void conn_fail(struct conn *c, int rc)
{
    if (!c->failed)
        c->failed = rc;
    dirty_add(c);
}

/* ---- writing ---- */

static void out_pop(struct conn *c, size_t n)
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
    if (c->out_first == c->out.n) /* an idle connection holds no memory for this */
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

static void conn_write(struct conn *c);

static void write_failed(struct conn *c, int rc)
{
    if (rc == -EPIPE || rc == -ECONNRESET) {
        /* The peer is gone, but its last words may still be unread: reading finds the end. */
        c->deaf = true;
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
        write_failed(c, status);
    else
        out_pop(c, n);
    dirty_add(c);
}

static int write_later(struct conn *c, const uv_buf_t *chunks, unsigned n, size_t bytes)
{
    uv_write_t *req = malloc(sizeof *req);
    if (!req)
        return -ENOMEM;
    req->data = c;
    int rc = uv_write(req, (uv_stream_t *)&c->pipe, chunks, n, on_written);
    if (rc < 0) {
        free(req);
        return rc;
    }
    c->writing = req;
    c->n_writing = bytes;
    return 0;
}

static void conn_write(struct conn *c)
{
    while (c->queued > 0 && !c->writing && !c->deaf) {
        uv_buf_t chunks[WRITE_CHUNKS];
        size_t bytes;
        unsigned n = out_chunks(c, chunks, &bytes);
        int rc = uv_try_write((uv_stream_t *)&c->pipe, chunks, n);
        if (rc == UV_EAGAIN)
            rc = write_later(c, chunks, n, bytes);
        else if (rc > 0)
            out_pop(c, (size_t)rc);
        if (rc < 0) {
            write_failed(c, rc);
            return;
        }
    }
}

int conn_send_packed(struct conn *c, struct packed *p)
{
    if (c->closed || c->finishing || c->deaf || c->failed)
        return -EPIPE;
    if (c->queued + p->len > CONN_QUEUE_MAX) {
        conn_fail(c, -ENOBUFS);
        return -ENOBUFS;
    }
    if (c->out_first > 0 && c->out.n == c->out.cap) {
        /* a long queue that never runs empty must not grow by what was written already */
        memmove(c->out.v, c->out.v + c->out_first, (c->out.n - c->out_first) * sizeof *c->out.v);
        c->out.n -= c->out_first;
        c->out_first = 0;
    }
    if (vec_push(&c->out, p) < 0)
        return -ENOMEM;
    (void)packed_ref(p);
    c->queued += p->len;
    dirty_add(c);
    return 0;
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
    return c->queued;
}

/* ---- once an iteration ---- */

static void read_kept(struct conn *c);

static void on_finish_limit(void *arg)
{
    conn_close(arg);
}

static void finish_step(struct conn *c)
{
    if (c->queued == 0 || c->deaf || c->failed) {
        conn_close(c);
    } else if (!c->finish_timer) {
        c->finish_timer = loop_timer_new(c->object.loop, on_finish_limit, c);
        if (c->finish_timer)
            loop_timer_set(c->finish_timer, clock_mono_ms() + FINISH_LIMIT_MS);
        else
            conn_close(c);
    }
}

static void conn_flush(struct conn *c)
{
    if (c->opening) {
        c->opening = false;
        if (c->ops && c->ops->on_open)
            c->ops->on_open(c, c->arg);
        if (c->closed)
            return;
    }
    if (!c->failed)
        conn_write(c);
    if (c->finishing)
        finish_step(c);
    else if (c->failed)
        report_errno(c, c->failed);
    else if (c->in.len > 0 && !conn_paused(c))
        read_kept(c);
}

void conns_flush(struct loop *l)
{
    while (l->dirty && !l->ending) {
        struct conn *c = l->dirty;
        dirty_remove(c);
        conn_flush(c);
    }
}

/* ---- reading ---- */

static void on_alloc(uv_handle_t *h, size_t want, uv_buf_t *out)
{
    (void)want;
    struct conn *c = CONTAINER_OF((uv_pipe_t *)h, struct conn, pipe);
    *out = uv_buf_init(c->object.loop->read_buf, READ_SIZE);
}

/* All whole frames of view; returns how many bytes they were, or -errno with e set. */
static ssize_t read_frames(struct conn *c, struct buf view, struct err *e)
{
    size_t taken = 0;
    struct span payload;
    int rc;
    while (!conn_paused(c) && (rc = frame_peek(&view, &payload, e)) != 0) {
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

static bool conn_over(const struct conn *c)
{
    return c->closed || c->finishing;
}

static int read_bytes(struct conn *c, char *p, size_t n, struct err *e)
{
    bool kept = c->in.len > 0;
    if (conn_over(c))
        return 0;
    if (kept && buf_add(&c->in, p, n) < 0)
        return err_set(e, ENOMEM, "cannot keep %zu bytes of a frame: %m", c->in.len + n);
    ssize_t taken = read_frames(c, kept ? c->in : (struct buf){ .p = p, .len = n }, e);
    if (taken < 0)
        return (int)taken;
    if (conn_over(c)) /* the rest is of no interest */
        return 0;
    if (kept)
        buf_consume(&c->in, (size_t)taken);
    else if ((size_t)taken < n && buf_add(&c->in, p + taken, n - (size_t)taken) < 0)
        return err_set(e, ENOMEM, "cannot keep %zu bytes of a frame: %m", n - (size_t)taken);
    if (c->in.len == 0)
        buf_done(&c->in);
    return 0;
}

/* Frames that came together with the one after which the owner paused. */
static void read_kept(struct conn *c)
{
    struct err e = { 0 };
    ssize_t taken = read_frames(c, c->in, &e);
    if (taken < 0)
        report_close(c, &e);
    else if (!conn_over(c))
        buf_consume(&c->in, (size_t)taken);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *chunk)
{
    struct conn *c = CONTAINER_OF((uv_pipe_t *)s, struct conn, pipe);
    struct err e = { 0 };
    if (n == 0 || c->closed)
        return;
    if (n == UV_EOF) {
        if (c->in.len > 0)
            (void)err_set(&e, EPIPE, "the other side went away in the middle of a frame");
        report_close(c, &e);
    } else if (n < 0) {
        report_errno(c, (int)n);
    } else if (read_bytes(c, chunk->base, (size_t)n, &e) < 0) {
        report_close(c, &e);
    }
}

static void conn_listen(struct conn *c)
{
    uv_stream_t *s = (uv_stream_t *)&c->pipe;
    if (c->closed)
        return;
    if (!c->finishing && conn_paused(c))
        (void)uv_read_stop(s); /* cannot fail */
    else if (!uv_is_active((uv_handle_t *)s))
        (void)uv_read_start(s, on_alloc, on_read); /* fails only when closing */
}

/* ---- the beginning ---- */

struct conn *conn_adopt(struct loop *l, int fd, struct err *e)
{
    struct conn *c = calloc(1, sizeof *c);
    if (!c) {
        (void)close(fd); /* nothing was done with it */
        (void)err_set(e, ENOMEM, "cannot make a connection: %m");
        return NULL;
    }
    c->in.max = FRAME_HEADER + FRAME_MAX + READ_SIZE;
    (void)uv_pipe_init(&l->uv, &c->pipe, 0); /* cannot fail */
    object_init(&c->object, l, (uv_handle_t *)&c->pipe, conn_destroy);
    int rc = uv_pipe_open(&c->pipe, fd);
    if (rc < 0) {
        (void)close(fd); /* not the pipe's yet */
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
    if (rc == -1) /* EAGAIN: its backlog is full */
        return err_set(e, errno, "cannot connect to socket '%s': %m", path);

    int mine = fd;
    fd = -1;
    struct conn *c = conn_adopt(l, mine, e);
    if (!c)
        return -(e && e->num ? e->num : ENOMEM);
    c->ops = ops;
    c->arg = arg;
    c->opening = true;
    conn_listen(c);
    dirty_add(c);
    *out = c;
    return 0;
}

void conn_set_arg(struct conn *c, const struct conn_ops *ops, void *arg)
{
    if (conn_over(c))
        return;
    c->ops = ops;
    c->arg = arg;
    conn_listen(c);
    if (!conn_paused(c) && (c->in.len > 0 || c->failed))
        dirty_add(c);
}

void *conn_arg(const struct conn *c)
{
    return c->arg;
}

bool conn_has_owner(const struct conn *c)
{
    return c->ops || c->closed || c->finishing;
}

int conn_peer(const struct conn *c, uid_t *out_uid, pid_t *out_pid)
{
    uv_os_fd_t fd;
    struct ucred cred;
    socklen_t len = sizeof cred;
    int rc = uv_fileno((const uv_handle_t *)&c->pipe, &fd);
    if (rc < 0)
        return rc;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == -1)
        return -errno;
    *out_uid = cred.uid;
    *out_pid = cred.pid;
    return 0;
}
