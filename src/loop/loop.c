/* SPDX-License-Identifier: Apache-2.0 */
#include "loop_int.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/util.h"

/* ---- objects ---- */

void object_init(struct object *o, struct loop *l, uv_handle_t *h,
                 void (*destroy)(struct object *o))
{
    o->loop = l;
    o->destroy = destroy;
    h->data = o;
}

static void on_closed(uv_handle_t *h)
{
    struct object *o = h->data;
    if (o->destroy)
        o->destroy(o);
}

void object_close(uv_handle_t *h)
{
    if (!uv_is_closing(h))
        uv_close(h, on_closed);
}

/* ---- the loop ---- */

void dirty_add(struct loop *l, struct dirty *d)
{
    if (d->queued)
        return;
    d->queued = true;
    d->next = NULL;
    d->prev = l->dirty_last;
    if (l->dirty_last)
        l->dirty_last->next = d;
    else
        l->dirty = d;
    l->dirty_last = d;
}

void dirty_remove(struct loop *l, struct dirty *d)
{
    if (!d->queued)
        return;
    d->queued = false;
    if (d->prev)
        d->prev->next = d->next;
    else
        l->dirty = d->next;
    if (d->next)
        d->next->prev = d->prev;
    else
        l->dirty_last = d->prev;
}

static void flush_dirty(struct loop *l)
{
    while (l->dirty && !l->ending) {
        struct dirty *d = l->dirty;
        dirty_remove(l, d);
        d->flush(d);
    }
}

static void flush_all(struct loop *l)
{
    if (l->ending)
        return;
    /* Flushing connections may report events that the owner batches, and on_flush() may queue
     * frames on connections. So repeat until no connection is dirty. */
    do {
        flush_dirty(l);
        if (l->on_flush)
            l->on_flush(l->flush_arg);
    } while (l->dirty);
}

static void on_prepare(uv_prepare_t *h)
{
    flush_all(CONTAINER_OF(h, struct loop, prepare));
}

struct loop *loop_new(struct err *e)
{
    struct loop *l = calloc(1, sizeof *l);
    if (!l || !(l->read_buf = malloc(READ_SIZE))) {
        free(l);
        (void)err_set(e, ENOMEM, "cannot make an event loop: %m");
        return NULL;
    }
    l->plain.max = PLAIN_MAX;
    int rc = uv_loop_init(&l->uv);
    if (rc < 0) {
        (void)err_set(e, -rc, "cannot make an event loop: %m");
        free(l->read_buf);
        free(l);
        return NULL;
    }
    (void)uv_prepare_init(&l->uv, &l->prepare); /* cannot fail */
    object_init(&l->prepare_object, l, (uv_handle_t *)&l->prepare, NULL);
    (void)uv_prepare_start(&l->prepare, on_prepare);
    uv_unref((uv_handle_t *)&l->prepare);
    (void)signal(SIGPIPE, SIG_IGN); /* cannot fail for this signal */
    return l;
}

static void close_each(uv_handle_t *h, void *arg)
{
    (void)arg;
    object_close(h);
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    l->ending = true;
    dials_end(l);
    resolves_end(l);
    uv_walk(&l->uv, close_each, NULL);
    (void)uv_run(&l->uv, UV_RUN_DEFAULT); /* runs the close callbacks, and finishes running work */
    /* The done() of that work may have opened new handles: close them as well. */
    while (uv_loop_close(&l->uv) == UV_EBUSY) {
        uv_walk(&l->uv, close_each, NULL);
        (void)uv_run(&l->uv, UV_RUN_DEFAULT);
    }
    buf_done(&l->plain);
    free(l->read_buf);
    free(l);
}

int loop_run(struct loop *l)
{
    l->stopped = false;
    do {
        (void)uv_run(&l->uv, UV_RUN_DEFAULT); /* the loop condition asks uv_loop_alive() instead */
        flush_all(l);
    } while (!l->stopped && uv_loop_alive(&l->uv));
    return 0;
}

void loop_stop(struct loop *l)
{
    l->stopped = true;
    uv_stop(&l->uv);
}

void loop_flush(struct loop *l)
{
    flush_all(l);
}

void loop_send_queued(struct loop *l)
{
    flush_dirty(l);
}

void loop_on_flush(struct loop *l, void (*fn)(void *arg), void *arg)
{
    l->on_flush = fn;
    l->flush_arg = arg;
}

/* ---- timers ---- */

struct loop_timer {
    struct object object;
    uv_timer_t uv;
    void (*fn)(void *arg);
    void *arg;
};

static void timer_destroy(struct object *o)
{
    free(CONTAINER_OF(o, struct loop_timer, object));
}

static void on_timer(uv_timer_t *h)
{
    struct loop_timer *t = CONTAINER_OF(h, struct loop_timer, uv);
    struct loop *l = t->object.loop;
    l->timer = t;
    t->fn(t->arg); /* may free t */
    l->timer = NULL;
}

struct loop_timer *loop_timer_new(struct loop *l, void (*fn)(void *arg), void *arg)
{
    struct loop_timer *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->fn = fn;
    t->arg = arg;
    (void)uv_timer_init(&l->uv, &t->uv); /* cannot fail */
    object_init(&t->object, l, (uv_handle_t *)&t->uv, timer_destroy);
    return t;
}

void loop_timer_set(struct loop_timer *t, int64_t deadline_ms)
{
    /* libuv counts a timeout from uv_now(), the time at which this loop iteration started. It is
     * the same clock as that of clock_mono_ms(). */
    int64_t from_ms = (int64_t)uv_now(t->uv.loop);
    uint64_t timeout_ms = deadline_ms > from_ms ? (uint64_t)(deadline_ms - from_ms) : 0;
    /* If a timer's callback sets its own timer to a time in the past, wait 1 ms. With a timeout of
     * 0, libuv would call it again and again before it handles any other event. */
    if (timeout_ms == 0 && t == t->object.loop->timer)
        timeout_ms = 1;
    (void)uv_timer_start(&t->uv, on_timer, timeout_ms, 0); /* fails only for a closing timer */
}

void loop_timer_stop(struct loop_timer *t)
{
    (void)uv_timer_stop(&t->uv); /* cannot fail */
}

void loop_timer_free(struct loop_timer *t)
{
    if (t)
        object_close((uv_handle_t *)&t->uv);
}

/* ---- signals ---- */

struct loop_signal {
    struct object object;
    uv_signal_t uv;
    void (*fn)(int signo, void *arg);
    void *arg;
};

static void signal_destroy(struct object *o)
{
    free(CONTAINER_OF(o, struct loop_signal, object));
}

static void on_signal(uv_signal_t *h, int signo)
{
    struct loop_signal *s = CONTAINER_OF(h, struct loop_signal, uv);
    s->fn(signo, s->arg);
}

struct loop_signal *loop_signal_new(struct loop *l, int signo, void (*fn)(int signo, void *arg),
                                    void *arg)
{
    struct loop_signal *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->fn = fn;
    s->arg = arg;
    if (uv_signal_init(&l->uv, &s->uv) < 0) {
        free(s);
        return NULL;
    }
    object_init(&s->object, l, (uv_handle_t *)&s->uv, signal_destroy);
    if (uv_signal_start(&s->uv, on_signal, signo) < 0) {
        loop_signal_free(s);
        return NULL;
    }
    uv_unref((uv_handle_t *)&s->uv); /* if only signals can come, loop_run() returns */
    return s;
}

void loop_signal_free(struct loop_signal *s)
{
    if (s)
        object_close((uv_handle_t *)&s->uv);
}

/* ---- descriptors ---- */

struct loop_fd {
    struct object object;
    uv_poll_t uv;
    void (*fn)(void *arg);
    void *arg;
};

static void fd_destroy(struct object *o)
{
    free(CONTAINER_OF(o, struct loop_fd, object));
}

static void on_readable(uv_poll_t *h, int status, int events)
{
    (void)status; /* an error shows when fn reads from the descriptor */
    (void)events;
    struct loop_fd *f = CONTAINER_OF(h, struct loop_fd, uv);
    f->fn(f->arg);
}

struct loop_fd *loop_fd_new(struct loop *l, int fd, void (*fn)(void *arg), void *arg)
{
    struct loop_fd *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->fn = fn;
    f->arg = arg;
    if (uv_poll_init(&l->uv, &f->uv, fd) < 0) {
        free(f);
        return NULL;
    }
    object_init(&f->object, l, (uv_handle_t *)&f->uv, fd_destroy);
    if (uv_poll_start(&f->uv, UV_READABLE | UV_DISCONNECT, on_readable) < 0) {
        loop_fd_free(f);
        return NULL;
    }
    return f;
}

void loop_fd_want(struct loop_fd *f, bool readable, bool writable)
{
    int events = (readable ? UV_READABLE | UV_DISCONNECT : 0) | (writable ? UV_WRITABLE : 0);
    if (events)
        (void)uv_poll_start(&f->uv, events, on_readable); /* cannot fail: it worked before */
    else
        (void)uv_poll_stop(&f->uv); /* cannot fail */
}

void loop_fd_free(struct loop_fd *f)
{
    if (f)
        object_close((uv_handle_t *)&f->uv);
}

/* ---- writes that end later ---- */

int late_write_begin(uv_stream_t *to, struct buf *out, uv_write_cb done, void *owner,
                     struct late_write **write)
{
    struct late_write *w = calloc(1, sizeof *w);
    if (!w)
        return -ENOMEM;
    w->owner = owner;
    w->bytes = *out;
    *out = (struct buf){ .max = out->max };
    uv_buf_t b = uv_buf_init(w->bytes.p, (unsigned)w->bytes.len);
    int rc = uv_write(&w->uv, to, &b, 1, done);
    if (rc < 0) {
        buf_done(&w->bytes);
        free(w);
        return rc;
    }
    *write = w;
    return 0;
}

void *late_write_end(uv_write_t *uv)
{
    struct late_write *w = CONTAINER_OF(uv, struct late_write, uv);
    void *owner = w->owner;
    buf_done(&w->bytes);
    free(w);
    return owner;
}

/* ---- work on other threads ---- */

struct work {
    uv_work_t uv;
    int (*fn)(void *arg);
    void (*done)(void *arg, int rc);
    void *arg;
    int rc;
};

static void on_work(uv_work_t *req)
{
    struct work *w = CONTAINER_OF(req, struct work, uv);
    w->rc = w->fn(w->arg);
}

static void on_work_done(uv_work_t *req, int status)
{
    struct work *w = CONTAINER_OF(req, struct work, uv);
    w->done(w->arg, status < 0 ? status : w->rc);
    free(w);
}

void loop_one_thread(struct loop *l)
{
    l->one_thread = true;
}

/* libuv reads the variable when it starts the threads, in the first call. It must not stay in the
 * environment for programs that this one starts. */
static int queue(struct loop *l, uv_work_t *req)
{
    static const char name[] = "UV_THREADPOOL_SIZE";
    bool set = l->one_thread && !getenv(name) && setenv(name, "1", 1) == 0;
    int rc = uv_queue_work(&l->uv, req, on_work, on_work_done);
    if (set)
        unsetenv(name);
    return rc;
}

int loop_work(struct loop *l, int (*fn)(void *arg), void (*done)(void *arg, int rc), void *arg)
{
    struct work *w = calloc(1, sizeof *w);
    if (!w)
        return -ENOMEM;
    w->fn = fn;
    w->done = done;
    w->arg = arg;
    int rc = queue(l, &w->uv);
    if (rc < 0)
        free(w);
    return rc;
}
