/* SPDX-License-Identifier: Apache-2.0 */
#include "conn_int.h"

#include <errno.h>
#include <stdlib.h>
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

void line_free(struct conn_line *t)
{
    if (!t)
        return;
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

struct line_write {
    uv_write_t uv;
    struct conn *c;
    struct buf bytes;
};

size_t line_queued(const struct conn *c)
{
    const struct conn_line *t = c->line;
    size_t cipher = t->tls && t->ready ? tls_out(t->tls)->len : 0;
    return c->queued + cipher + (c->writing ? c->n_writing : 0);
}

static void on_line_written(uv_write_t *req, int status)
{
    struct line_write *w = CONTAINER_OF(req, struct line_write, uv);
    struct conn *c = w->c;
    buf_done(&w->bytes);
    free(w);
    c->writing = NULL;
    if (c->closed || status == UV_ECANCELED)
        return;
    if (status < 0)
        conn_write_failed(c, status);
    conn_dirty(c);
}

static int write_later(struct conn *c, struct buf *out)
{
    struct line_write *w = calloc(1, sizeof *w);
    if (!w)
        return -ENOMEM;
    w->c = c;
    w->bytes = *out;
    *out = (struct buf){ .max = out->max };
    uv_buf_t b = uv_buf_init(w->bytes.p, (unsigned)w->bytes.len);
    int rc = uv_write(&w->uv, &c->io.stream, &b, 1, on_line_written);
    if (rc < 0) {
        buf_done(&w->bytes);
        free(w);
        return rc;
    }
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
    return c->line->tls ? 0 : -ENOMEM;
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
    buf_clear(plain);
    rc = tls_feed(t->tls, p, n, plain, e);
    if (rc < 0) {
        send_tls_output(c); /* sends the TLS alert that tells the peer why */
        if (!t->ready && !t->shakes)
            (void)err_wrap(e, rc, "cannot connect to '%s'", t->target);
        return rc;
    }
    conn_dirty(c); /* the handshake may have produced output */
    if (!t->ready && tls_ready(t->tls))
        line_ready(c);
    if (plain->len > 0 && !conn_over(c))
        rc = conn_read_bytes(c, plain->p, plain->len, e);
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

int shake_begin(struct loop *l, struct shakes *s, int fd, struct err *e)
{
    AUTO(close_p) int mine = fd;
    struct conn *c = conn_new(l, true, e);
    if (!c)
        return -ENOMEM;
    int64_t patience_ms = l->handshake_ms ? l->handshake_ms : CONN_HANDSHAKE_MS;
    int rc = line_new(c, clock_mono_ms() + patience_ms, on_shake_late, e);
    if (rc == 0 && (rc = uv_tcp_open(&c->io.tcp, mine)) < 0)
        (void)err_set(e, -rc, "cannot watch a connection: %m");
    if (rc < 0) {
        conn_close(c);
        return rc;
    }
    socket_tune(mine);
    mine = -1;
    struct conn_line *t = c->line;
    t->shakes = s;
    t->next = s->first;
    if (s->first)
        s->first->line->prev = c;
    else
        s->last = c;
    s->first = c;
    s->n++;
    conn_update_reading(c);
    return 0;
}

void shakes_drop_oldest(struct shakes *s)
{
    struct err e = { 0 };
    (void)err_set(&e, EBUSY, "too many TLS handshakes are unfinished");
    conn_report_close(s->last, &e);
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
