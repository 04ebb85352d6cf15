/* SPDX-License-Identifier: Apache-2.0 */
#include "conn_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/util.h"
#include "loop/tcp.h"

/*
 * Connections over TCP with TLS. Packed frames are encrypted only shortly before they are written,
 * so a long queue needs memory for the frames only, not for ciphertext as well. Decrypted bytes go
 * through one buffer of the loop, which all connections share.
 */
enum {
    /* With this number of handshakes at the same time, other threads do the costly parts. A process
     * with few connections needs no further threads. */
    SHAKES_INLINE_MAX = 4,
    CIPHER_AHEAD = 256 << 10,
    HANDSHAKE_BYTE = 0x16, /* the first byte that any TLS client sends */
};

/* ---- the end ---- */

static void shakes_remove(struct conn *c)
{
    struct conn_line *t = c->line;
    struct shakes *s = TAKE(t->shakes);
    if (!s)
        return;
    if (t->prev)
        t->prev->line->next = t->next;
    else
        s->first = t->next;
    if (t->next)
        t->next->line->prev = t->prev;
    else
        s->last = t->prev;
    s->n--;
}

/* A part of a handshake on another thread. */
struct shake_work {
    struct conn *c; /* NULL: the connection was closed meanwhile */
    struct tls *tls;
    struct buf in, plain; /* in: what the peer has sent; empty: continue a held session */
    struct err e;
};

static void shaking_over(struct conn_line *t, struct loop *l)
{
    if (t->counted)
        l->n_shaking--;
    t->counted = false;
}

void line_free(struct conn_line *t)
{
    if (!t)
        return;
    if (t->work) /* loop_free() closes handles without conn_close() */
        t->work->c = NULL;
    tls_free(t->tls);
    free(t->target);
    free(t->why);
    free(t);
}

/* Send the TLS output that is ready, such as an alert, with one write. The bytes that the kernel
 * does not accept are lost. */
static void send_tls_output(struct conn *c)
{
    struct buf *out = tls_out(c->line->tls);
    uv_buf_t b = uv_buf_init(out->p, (unsigned)out->len);
    if (out->len > 0 && !c->writing && !c->write_closed)
        (void)uv_try_write(&c->io.stream, &b, 1);
}

void line_close(struct conn *c)
{
    struct conn_line *t = c->line;
    dial_cancel(TAKE(t->dial));
    loop_timer_free(TAKE(t->timer));
    shakes_remove(c);
    shaking_over(t, c->object.loop);
    if (t->work)
        TAKE(t->work)->c = NULL;
    if (t->ready && !c->failed && line_queued(c) == 0 && tls_end(t->tls, NULL) == 0)
        send_tls_output(c);
}

void line_eof(struct conn *c, struct err *e)
{
    if (conn_shaking(c))
        (void)err_set(e, ECONNRESET,
                      "the peer closed the connection before the TLS handshake had finished");
    else if (!tls_ended(c->line->tls))
        (void)err_set(e, ESHUTDOWN, "the connection ended without a closing message of the peer");
    else if (c->in.len > 0)
        (void)err_set(e, EPIPE, "the peer closed the connection in the middle of a frame");
}

bool line_report(struct conn *c, const struct err *e)
{
    struct conn_line *t = c->line;
    if (t->shakes) {
        struct shakes *s = t->shakes;
        if (!c->closed && !c->object.loop->ending)
            s->on_stranger(c, e, s->arg);
        conn_close(c);
        return true;
    }
    if (!conn_over(c) && conn_paused(c) && !t->why && e->num && (t->why = malloc(sizeof *e)))
        *t->why = *e; /* reported once the paused conn gets ops */
    return false;
}

/* Report that an outgoing connection could not be established. */
static void dial_failed(struct conn *c, int num, const char *why)
{
    struct err e = { 0 };
    (void)err_set(&e, num, "cannot connect to '%s': %s", c->line->target, why);
    conn_report_close(c, &e);
}

/* conn_finish(): once everything was sent, shut down the sending side and wait until the peer
 * closes its side. If a socket is closed with unread bytes, the kernel resets the connection, and
 * the peer may lose bytes that it has not read yet. */
void line_finish(struct conn *c)
{
    struct conn_line *t = c->line;
    uv_os_fd_t fd;
    if (!t->ready && line_queued(c) == 0) { /* there is nothing to send */
        conn_close(c);
        return;
    }
    if (!t->ready || t->shut || c->queued > 0 || c->write_closed || c->failed)
        return;
    if (tls_end(t->tls, NULL) == 0)
        line_write(c);
    if (line_queued(c) == 0 && uv_fileno(&c->io.handle, &fd) == 0)
        t->shut = shutdown(fd, SHUT_WR) == 0;
}

/* ---- writing ---- */

size_t line_queued(const struct conn *c)
{
    const struct conn_line *t = c->line;
    size_t cipher = t->tls && t->ready ? tls_out(t->tls)->len : 0;
    return c->queued + cipher + (c->writing ? c->n_writing : 0);
}

static void on_line_written(uv_write_t *req, int status)
{
    struct conn *c = late_write_end(req);
    c->writing = NULL;
    if (c->closed || status == UV_ECANCELED)
        return;
    if (status < 0)
        conn_write_failed(c, status);
    conn_dirty(c);
}

static int write_later(struct conn *c, struct buf *out)
{
    struct late_write *w = NULL;
    int rc = late_write_begin(&c->io.stream, out, on_line_written, c, &w);
    if (rc < 0)
        return rc;
    c->writing = &w->uv;
    c->n_writing = w->bytes.len;
    return 0;
}

static int encrypt_some(struct conn *c)
{
    struct tls *tls = c->line->tls;
    int rc = 0;
    while (rc == 0 && c->queued > 0 && tls_out(tls)->len < CIPHER_AHEAD) {
        struct packed *p = c->out.v[c->out_first];
        size_t n = MIN(p->len - c->out_offset, (size_t)CIPHER_AHEAD);
        rc = tls_write(tls, p->bytes + c->out_offset, n, NULL);
        if (rc == 0)
            conn_out_pop(c, n);
    }
    return rc;
}

void line_write(struct conn *c)
{
    struct conn_line *t = c->line;
    int rc = 0;
    if (!t->tls || t->dial)
        return;
    struct buf *out = tls_out(t->tls);
    while (rc >= 0 && !c->write_closed) {
        if (t->ready && (rc = encrypt_some(c)) < 0)
            break;
        if (out->len == 0 || c->writing)
            break;
        uv_buf_t b = uv_buf_init(out->p, (unsigned)out->len);
        rc = uv_try_write(&c->io.stream, &b, 1);
        if (rc == UV_EAGAIN)
            rc = write_later(c, out);
        else if (rc > 0)
            buf_consume(out, (size_t)rc);
    }
    if (rc < 0)
        conn_write_failed(c, rc);
    if (out->len == 0 || c->write_closed)
        buf_done(out); /* everything is written: free the memory */
}

/* ---- reading ---- */

static void line_ready(struct conn *c)
{
    struct conn_line *t = c->line;
    t->ready = true;
    shaking_over(t, c->object.loop);
    loop_timer_free(TAKE(t->timer));
    conn_dirty(c);
    if (t->shakes) {
        struct shakes *s = t->shakes;
        shakes_remove(c);
        conn_update_reading(c); /* pauses it: it has no ops yet */
        s->on_ready(c, s->arg);
        if (!conn_has_owner(c))
            conn_close(c);
    } else if (c->ops && c->ops->on_open) {
        c->ops->on_open(c, c->arg);
    }
    conn_update_reading(c);
}

static int server_begin(struct conn *c, char first, struct err *e)
{
    struct shakes *s = c->line->shakes;
    if (first != HANDSHAKE_BYTE) /* check this before allocating a TLS session */
        return err_set(e, EPROTO, "the peer does not speak TLS");
    c->line->tls = tls_server_new(s->key_of, s->arg, e);
    if (!c->line->tls)
        return -ENOMEM;
    tls_hold(c->line->tls);
    return 0;
}

/* The session has processed input, or has failed (rc, e). */
static int take_result(struct conn *c, int rc, struct buf *plain, struct err *e)
{
    struct conn_line *t = c->line;
    if (rc < 0) {
        send_tls_output(c); /* sends the TLS alert that tells the peer why */
        if (!t->ready && !t->shakes)
            (void)err_wrap(e, rc, "cannot connect to '%s'", t->target);
        return rc;
    }
    conn_dirty(c); /* the handshake may have produced output */
    if (!t->ready && tls_ready(t->tls))
        line_ready(c);
    return plain->len > 0 && !conn_over(c) ? conn_read_bytes(c, plain->p, plain->len, e) : 0;
}

/* ---- handshakes on other threads ---- */

static int shake_work(void *arg)
{
    struct shake_work *w = arg;
    return w->in.len ? tls_feed(w->tls, w->in.p, w->in.len, &w->plain, &w->e)
                     : tls_continue(w->tls, &w->e);
}

static void on_shake_work(void *arg, int rc)
{
    struct shake_work *w = arg;
    struct conn *c = w->c;
    if (c)
        c->line->work = NULL;
    if (c && !c->object.loop->ending) {
        c->line->tls = TAKE(w->tls);
        if (take_result(c, rc, &w->plain, &w->e) < 0)
            conn_report_close(c, &w->e);
        else
            conn_update_reading(c);
    }
    tls_free(w->tls);
    buf_done(&w->in);
    buf_done(&w->plain);
    free(w);
}

/* Give the session to another thread, with input, or to continue it (n 0). */
static int shake_elsewhere(struct conn *c, const char *p, size_t n, struct err *e)
{
    struct conn_line *t = c->line;
    struct shake_work *w = calloc(1, sizeof *w);
    if (w)
        *w = (struct shake_work){ .c = c, .tls = t->tls };
    if (!w || (n > 0 && buf_add(&w->in, p, n) < 0) ||
        loop_work(c->object.loop, shake_work, on_shake_work, w) < 0) {
        if (w)
            buf_done(&w->in);
        free(w);
        return err_set(e, ENOMEM, "no memory for a TLS handshake");
    }
    t->tls = NULL; /* the thread uses the session now */
    t->work = w;
    c->object.loop->n_shake_works++;
    conn_update_reading(c); /* stops reading while the thread has the session */
    return 0;
}

static bool is_crowded(const struct conn *c)
{
    return c->object.loop->n_shaking > SHAKES_INLINE_MAX;
}

/* ---- peers of a listener ---- */

static void shakes_add(struct shakes *s, struct conn *c)
{
    struct conn_line *t = c->line;
    t->shakes = s;
    t->prev = NULL;
    t->next = s->first;
    if (s->first)
        s->first->line->prev = c;
    else
        s->last = c;
    s->first = c;
    s->n++;
}

static int64_t patience_ms(const struct loop *l, int64_t dflt)
{
    return l->handshake_ms ? l->handshake_ms : dflt;
}

/* The first message of a peer has arrived. A peer that has proved its identity may always continue.
 */
static int heard(struct conn *c, struct err *e)
{
    struct conn_line *t = c->line;
    struct shakes *s = t->shakes;
    uint64_t number;
    if (tls_claim(t->tls, &number) && tls_seen_add(&s->guard->seen, number)) {
        shakes_remove(c);
        shakes_add(s->proved, c);
        loop_timer_set(t->timer, clock_mono_ms() + patience_ms(c->object.loop, CONN_PROVED_MS));
        if (is_crowded(c))
            return shake_elsewhere(c, NULL, 0, e);
    } else if (!strangers_admit(&s->guard->strangers, t->from, clock_mono_ms())) {
        return err_set(e, EBUSY, "too many peers that have not proved an identity");
    }
    return tls_continue(t->tls, e);
}

/* May another thread do this part of the handshake? Not for a stranger: the key of its identity is
 * looked up in the data of this thread. */
static bool may_go_elsewhere(const struct conn *c)
{
    const struct conn_line *t = c->line;
    return !t->ready && is_crowded(c) && (!t->shakes || !t->shakes->proved);
}

int line_read(struct conn *c, char *p, size_t n, struct err *e)
{
    struct conn_line *t = c->line;
    struct buf *plain = &c->object.loop->plain;
    if (c->finishing && t->ready)
        return 0;
    int rc = t->tls ? 0 : server_begin(c, *p, e);
    if (rc < 0)
        return rc;
    if (may_go_elsewhere(c))
        return shake_elsewhere(c, p, n, e);
    buf_clear(plain);
    rc = tls_feed(t->tls, p, n, plain, e);
    if (rc == 0 && tls_held(t->tls))
        rc = heard(c, e);
    if (t->work)
        return rc;
    rc = take_result(c, rc, plain, e);
    if (plain->cap > PLAIN_MAX / 2)
        buf_done(plain);
    return rc;
}

/* ---- opening: outgoing connections ---- */

static void on_dialled(void *arg, int fd, const struct err *e)
{
    struct conn *c = arg;
    c->line->dial = NULL;
    if (e->num) {
        conn_report_close(c, e);
        return;
    }
    int rc = uv_tcp_open(&c->io.tcp, fd);
    if (rc < 0) {
        (void)close(fd); /* the handle does not own fd yet */
        dial_failed(c, -rc, "the socket cannot be watched");
        return;
    }
    conn_update_reading(c);
    conn_dirty(c);
}

static void on_late(void *arg)
{
    struct conn *c = arg;
    dial_cancel(TAKE(c->line->dial));
    dial_failed(c, ETIMEDOUT, "it does not answer in time");
}

static int line_new(struct conn *c, int64_t deadline_ms, void (*late)(void *arg), struct err *e)
{
    c->line = calloc(1, sizeof *c->line);
    if (!c->line || !(c->line->timer = loop_timer_new(c->object.loop, late, c)))
        return err_set(e, ENOMEM, "cannot make a connection: %m");
    c->line->counted = true;
    c->object.loop->n_shaking++;
    loop_timer_set(c->line->timer, deadline_ms);
    return 0;
}

int conn_dial_tls(struct loop *l, const struct conn_target *to, const struct conn_ops *ops,
                  void *arg, struct conn **out, struct err *e)
{
    int64_t deadline_ms = to->deadline_ms ? to->deadline_ms : clock_mono_ms() + TCP_DIAL_MS;
    struct conn *c = conn_new(l, true, e);
    if (!c)
        return -ENOMEM;
    int rc = line_new(c, deadline_ms, on_late, e);
    if (rc == 0 && !(c->line->target = str_printf("%s:%u", to->host, to->port)))
        rc = err_set(e, ENOMEM, "cannot make a connection: %m");
    struct err why = { 0 };
    if (rc == 0 && !(c->line->tls = tls_client_new(to->identity, to->key, &why))) {
        if (e)
            *e = why;
        rc = -why.num;
    }
    if (rc == 0)
        rc = dial_start(l, to->host, to->port, deadline_ms, on_dialled, c, &c->line->dial, e);
    if (rc < 0) {
        conn_close(c);
        return rc;
    }
    c->ops = ops;
    c->arg = arg;
    *out = c;
    return 0;
}

/* ---- opening: accepted connections ---- */

static void on_shake_late(void *arg)
{
    struct conn *c = arg;
    struct err e = { 0 };
    (void)err_set(&e, ETIMEDOUT, "the peer did not finish the TLS handshake in time");
    conn_report_close(c, &e);
}

/* The address of the peer as a number, without its port; of IPv6 only the network. Two addresses
 * may have the same number. */
static uint64_t address_hash(int fd)
{
    struct tcp_address a = { 0 };
    socklen_t len = sizeof a;
    uint64_t net = 0;
    if (getpeername(fd, &a.sa, &len) == -1)
        return 0; /* it has disconnected already */
    if (a.sa.sa_family == AF_INET)
        net = a.in.sin_addr.s_addr;
    else
        memcpy(&net, &a.in6.sin6_addr, sizeof net);
    return (net + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 16;
}

int shake_begin(struct loop *l, struct shakes *s, int fd, struct err *e)
{
    AUTO(close_p) int mine = fd;
    struct conn *c = conn_new(l, true, e);
    if (!c)
        return -ENOMEM;
    int64_t due_ms = clock_mono_ms() + patience_ms(l, CONN_HANDSHAKE_MS);
    int rc = line_new(c, due_ms, on_shake_late, e);
    if (rc == 0 && (rc = uv_tcp_open(&c->io.tcp, mine)) < 0)
        (void)err_set(e, -rc, "cannot watch a connection: %m");
    if (rc < 0) {
        conn_close(c);
        return rc;
    }
    socket_tune(mine);
    c->line->from = address_hash(mine);
    mine = -1;
    shakes_add(s, c);
    conn_update_reading(c);
    return 0;
}

void shakes_make_room(struct shakes *s)
{
    unsigned by_address[256] = { 0 }, most = 0;
    for (const struct conn *c = s->first; c; c = c->line->next)
        most = MAX(most, ++by_address[c->line->from % ARRAY_LEN(by_address)]);
    struct conn *oldest = s->last;
    while (by_address[oldest->line->from % ARRAY_LEN(by_address)] < most)
        oldest = oldest->line->prev;
    struct err e = { 0 };
    (void)err_set(&e, EBUSY, "too many TLS handshakes are unfinished");
    conn_report_close(oldest, &e);
}

void shakes_end(struct shakes *s)
{
    while (s->first)
        conn_close(s->first);
}

/* ---- questions ---- */

const char *conn_identity(const struct conn *c)
{
    return c->line && c->line->tls ? tls_identity(c->line->tls) : "";
}

static int host_text(const struct tcp_address *a, int rc, char *out, size_t n)
{
    if (rc < 0)
        return rc;
    (void)tcp_text(a, false, out, n);
    return 0;
}

int conn_local_host(const struct conn *c, char *out, size_t n)
{
    struct tcp_address a = { 0 };
    int len = sizeof a;
    if (!c->line)
        return -EOPNOTSUPP;
    return host_text(&a, uv_tcp_getsockname(&c->io.tcp, &a.sa, &len), out, n);
}

int conn_peer_host(const struct conn *c, char *out, size_t n)
{
    struct tcp_address a = { 0 };
    int len = sizeof a;
    if (!c->line)
        return -EOPNOTSUPP;
    return host_text(&a, uv_tcp_getpeername(&c->io.tcp, &a.sa, &len), out, n);
}
