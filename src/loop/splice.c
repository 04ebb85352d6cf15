/* SPDX-License-Identifier: Apache-2.0 */
/* Copies bytes between two connections. */
#include "loop_int.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"

enum {
    /* A side that is not read cannot report its end. So look at such sides in this interval. */
    LOOK_MS = 1000,
};

struct side {
    struct splice *s;
    struct conn *conn; /* NULL = closed */
    struct side *other;
    bool paused;
    bool last; /* the other side has ended: close this one when its queue is empty */
    uint64_t n_bytes;
};

struct splice {
    struct side a, b;
    struct loop_timer *timer;
    bool looking;
    void (*done)(struct splice *s, void *arg);
    void *arg;
};

static void splice_free(struct splice *s)
{
    loop_timer_free(s->timer);
    free(s);
}

static void end_if_over(struct splice *s)
{
    if (s->a.conn || s->b.conn)
        return;
    if (s->done)
        s->done(s, s->arg);
    splice_free(s);
}

/* Close a side once its peer has got everything. */
static void finish(struct side *x)
{
    x->last = true;
    if (!x->conn || conn_queued(x->conn) > 0)
        return;
    conn_finish(TAKE(x->conn));
}

static void look_later(struct splice *s)
{
    if (s->looking)
        return;
    s->looking = true;
    loop_timer_set(s->timer, clock_mono_ms() + LOOK_MS);
}

static void pause_side(struct side *x, bool pause)
{
    if (!x->conn || x->paused == pause)
        return;
    x->paused = pause;
    conn_pause(x->conn, pause);
    if (pause)
        look_later(x->s);
}

static void on_bytes(struct conn *c, const char *p, size_t n, void *arg)
{
    struct side *x = arg, *to = x->other;
    (void)c;
    x->n_bytes += n;
    if (!to->conn || x->last)
        return; /* the other side has ended: drop these bytes */
    if (conn_write(to->conn, p, n) < 0) {
        if (to->paused) { /* its end cannot be reported: it is not read */
            conn_close(TAKE(to->conn));
            finish(x);
            end_if_over(x->s);
        }
        return; /* on failure, on_close() of the other side follows */
    }
    if (conn_queued(to->conn) > SPLICE_QUEUE_MAX)
        pause_side(x, true);
}

static void on_drain(struct conn *c, void *arg)
{
    struct side *x = arg;
    (void)c;
    if (x->last) {
        struct splice *s = x->s;
        finish(x);
        end_if_over(s);
        return;
    }
    pause_side(x->other, false);
}

static void side_ended(struct side *x)
{
    struct splice *s = x->s;
    struct side *other = x->other;
    x->conn = NULL;
    pause_side(other, false); /* read it, so that its end is noticed */
    finish(other);
    end_if_over(s);
}

static void on_close(struct conn *c, const struct err *e, void *arg)
{
    (void)c; /* the loop frees it */
    (void)e; /* the error is ignored: the frames of the stream itself say how it ended */
    side_ended(arg);
}

static const struct conn_raw_ops ops = { .on_bytes = on_bytes,
                                         .on_drain = on_drain,
                                         .on_close = on_close };

/* A paused side whose peer has disconnected will not take anything any more: end the stream. */
static void on_look(void *arg)
{
    struct splice *s = arg;
    struct side *sides[] = { &s->a, &s->b };
    s->looking = false;
    for (int i = 0; i < 2; i++) {
        struct side *x = sides[i];
        if (!x->paused || !x->conn)
            continue;
        if (conn_peer_gone(x->conn)) {
            conn_close(TAKE(x->conn));
            side_ended(x);
            return;
        }
        look_later(s);
    }
}

struct splice *splice_new(struct loop *l, struct conn *a, struct conn *b,
                          void (*done)(struct splice *s, void *arg), void *arg)
{
    struct splice *s = calloc(1, sizeof *s);
    if (s)
        s->timer = loop_timer_new(l, on_look, s);
    if (!s || !s->timer) {
        free(s);
        conn_close(a);
        conn_close(b);
        return NULL;
    }
    s->done = done;
    s->arg = arg;
    s->a = (struct side){ .s = s, .conn = a, .other = &s->b };
    s->b = (struct side){ .s = s, .conn = b, .other = &s->a };
    conn_set_raw(a, &ops, &s->a);
    conn_set_raw(b, &ops, &s->b);
    return s;
}

void splice_close(struct splice *s)
{
    if (!s)
        return;
    conn_close(TAKE(s->a.conn));
    conn_close(TAKE(s->b.conn));
    splice_free(s);
}

void splice_count(const struct splice *s, uint64_t *out_ab, uint64_t *out_ba)
{
    *out_ab = s->a.n_bytes;
    *out_ba = s->b.n_bytes;
}
