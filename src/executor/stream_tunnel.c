/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "codec/frame.h"
#include "codec/tls.h"
#include "executor/executor_int.h"
#include "executor/stream_int.h"

enum {
    TUNNEL_DIAL_MS = 10000,
    READ_MAX = 256 << 10, /* bytes of one read from the tunnel */
    CIPHER_READ = 64 << 10,
    ENCRYPT = 64 << 10, /* bytes that are encrypted at once */
    OUT_LIMIT = 2 << 20,
};

/* ---- opening ---- */

static int wait_for(int fd, short events, int64_t until_ms, struct err *e)
{
    struct pollfd p = { .fd = fd, .events = events };
    for (;;) {
        int64_t left = until_ms - clock_mono_ms();
        int n = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (n > 0)
            return 0;
        if (n == 0)
            return err_set(e, ETIMEDOUT, "cannot connect to the master: %m");
        if (errno != EINTR)
            return err_set(e, errno, "cannot connect to the master: %m");
    }
}

/* Complete the connection and its TLS handshake. */
static int connect_tls(struct link *l, int64_t until_ms, struct err *e)
{
    int rc = 0;
    while (l->connecting && rc == 0) {
        rc = wait_for(l->fd, POLLOUT, until_ms, e);
        if (rc == 0 && (rc = link_connected(l)) == -EINPROGRESS)
            rc = 0;
        else if (rc < 0 && !e->num)
            (void)err_set(e, -rc, "cannot connect to the master: %m");
    }
    if (rc == 0)
        rc = link_flush(l);
    while (rc == 0 && !tls_ready(l->tls)) {
        rc = wait_for(l->fd, POLLIN, until_ms, e);
        if (rc == 0)
            rc = link_fill(l);
    }
    return rc < 0 && !e->num ? err_set(e, -rc, "cannot connect to the master: %m") : rc;
}

static int send_hello(const struct executor *x, struct link *l, const Tony__DialStream *d)
{
    Tony__StreamHello h = TONY__STREAM_HELLO__INIT;
    h.version = TONY__VERSION__PROTOCOL_VERSION;
    h.container_id = (char *)x->cfg->container_id;
    h.id = d->id;
    h.key = d->key;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_STREAM_HELLO;
    f.stream_hello = &h;
    return link_send(l, &f);
}

int tunnel_open(struct executor *x, const Tony__DialStream *d, struct tunnel *out, struct err *e)
{
    int64_t until = clock_mono_ms() + TUNNEL_DIAL_MS;
    struct remote *r = x->cfg->remote;
    struct link l = { .fd = -1 };
    int rc = r ? remote_dial(r, &l) : link_dial(&l, x->cfg->master_socket);
    if (rc < 0)
        return err_set(e, -rc, "cannot connect to the master: %m");
    if (r)
        rc = connect_tls(&l, until, e);
    if (rc == 0 && (rc = send_hello(x, &l, d)) < 0)
        (void)err_set(e, -rc, "cannot send to the master: %m");
    while (rc == 0 && link_unsent(&l))
        if ((rc = wait_for(l.fd, POLLOUT, until, e)) == 0 && (rc = link_flush(&l)) < 0)
            (void)err_set(e, -rc, "cannot send to the master: %m");
    if (rc < 0) {
        link_close(&l);
        return rc;
    }
    if (r) {
        /* A client may stall for as long as it likes. The kernel's keepalive finds a dead machine.
         */
        const unsigned none = 0;
        (void)setsockopt(l.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none);
    }
    *out = (struct tunnel){ .fd = l.fd, .tls = l.tls, .out.max = OUT_LIMIT };
    buf_done(&l.out);
    buf_done(&l.in); /* empty: the master sends nothing before the client does */
    return 0;
}

/* ---- reading ---- */

static ssize_t read_plain(struct tunnel *t, char *bytes, size_t size)
{
    ssize_t n;
    do
        n = read(t->fd, bytes, size);
    while (n == -1 && errno == EINTR);
    if (n == -1 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return -EAGAIN;
    return n <= 0 ? -EPIPE : n;
}

int tunnel_read(struct tunnel *t, struct err *e)
{
    static char bytes[READ_MAX];
    static struct buf plain;
    ssize_t n = read_plain(t, bytes, t->tls ? CIPHER_READ : READ_MAX);
    if (n == -EAGAIN)
        return 0;
    if (n < 0) {
        t->ended = true;
        return -EPIPE;
    }
    if (!t->tls)
        return stream_feed(&t->reader, bytes, (size_t)n, e);
    buf_clear(&plain);
    int rc = tls_feed(t->tls, bytes, (size_t)n, &plain, e);
    if (rc == 0 && plain.len > 0)
        rc = stream_feed(&t->reader, plain.p, plain.len, e);
    if (rc == 0 && tls_ended(t->tls)) {
        t->ended = true;
        return -EPIPE;
    }
    return rc;
}

/* ---- writing ---- */

bool tunnel_unsent(const struct tunnel *t)
{
    return t->out.len > t->out_at || (t->tls && tls_out(t->tls)->len > 0);
}

bool tunnel_has_room(const struct tunnel *t)
{
    return t->out.len - t->out_at < TUNNEL_OUT_MAX;
}

void tunnel_trim(struct tunnel *t)
{
    if (t->out_at == t->out.len) {
        t->out.len = 0;
        t->out_at = 0;
    } else if (t->out_at > TUNNEL_OUT_MAX) {
        buf_consume(&t->out, t->out_at);
        t->out_at = 0;
    }
}

int tunnel_add(struct tunnel *t, enum stream_type type, const void *p, size_t n)
{
    tunnel_trim(t);
    return stream_add(&t->out, type, p, n);
}

ssize_t tunnel_add_from(struct tunnel *t, enum stream_type type, int fd)
{
    tunnel_trim(t);
    char *at = buf_reserve(&t->out, STREAM_HEADER + TUNNEL_READ);
    if (!at)
        return -ENOMEM;
    ssize_t n;
    do
        n = read(fd, at + STREAM_HEADER, TUNNEL_READ);
    while (n == -1 && errno == EINTR);
    if (n <= 0)
        return n == 0 ? 0 : errno == EWOULDBLOCK ? -EAGAIN : -errno;
    stream_header(type, (size_t)n, (unsigned char *)at);
    buf_commit(&t->out, STREAM_HEADER + (size_t)n);
    return n;
}

/* Returns the number of bytes that the kernel has accepted, 0 if it accepts none now, or -EPIPE. */
static ssize_t send_some(int fd, const char *p, size_t n)
{
    ssize_t sent;
    do
        sent = send(fd, p, n, MSG_NOSIGNAL);
    while (sent == -1 && errno == EINTR);
    if (sent == -1)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -EPIPE;
    return sent;
}

static int flush_tls(struct tunnel *t)
{
    struct buf *cipher = tls_out(t->tls);
    for (;;) {
        while (cipher->len > 0) {
            ssize_t n = send_some(t->fd, cipher->p, cipher->len);
            if (n <= 0)
                return (int)n;
            buf_consume(cipher, (size_t)n);
        }
        size_t n = MIN(t->out.len - t->out_at, (size_t)ENCRYPT);
        if (n == 0)
            return 0;
        if (tls_write(t->tls, t->out.p + t->out_at, n, NULL) < 0)
            return -EPIPE;
        t->out_at += n;
    }
}

int tunnel_flush(struct tunnel *t)
{
    int rc = 0;
    if (t->ended)
        return -EPIPE;
    if (t->tls) {
        rc = flush_tls(t);
    } else {
        while (t->out.len > t->out_at) {
            ssize_t n = send_some(t->fd, t->out.p + t->out_at, t->out.len - t->out_at);
            if (n <= 0) {
                rc = (int)n;
                break;
            }
            t->out_at += (size_t)n;
        }
    }
    if (rc < 0)
        t->ended = true;
    return rc;
}

/* ---- waiting ---- */

short tunnel_events(const struct tunnel *t, bool read)
{
    /* POLLRDHUP also while nothing is read: the client may have died. */
    short events = (short)(read ? POLLIN : 0);
    return (short)(events | POLLRDHUP | (tunnel_unsent(t) ? POLLOUT : 0));
}

int tunnel_ready(struct tunnel *t, short revents, bool read, struct err *e)
{
    int rc = 0;
    if (revents & POLLOUT)
        rc = tunnel_flush(t);
    if (rc == 0 && read && revents & (POLLIN | POLLRDHUP | POLLHUP | POLLERR))
        rc = tunnel_read(t, e);
    else if (rc == 0 && !read && revents & (POLLRDHUP | POLLHUP | POLLERR))
        rc = -EPIPE;
    if (rc == -EPIPE)
        t->ended = true;
    return rc;
}

static int drop_frame(enum stream_type type, struct span payload, void *arg)
{
    (void)type;
    (void)payload;
    (void)arg;
    return 0;
}

_Noreturn void tunnel_finish(struct tunnel *t)
{
    struct err e = { 0 };
    sigset_t none;
    /* There is nothing left to kill: TERM, which the kernel sends when the executor dies, ends this
     * process. */
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    t->reader.on_frame = drop_frame;
    while (!t->ended && tunnel_flush(t) == 0) {
        struct pollfd p = { .fd = t->fd, .events = tunnel_events(t, true) };
        if (poll(&p, 1, -1) == -1 && errno != EINTR)
            break;
        if (p.revents && tunnel_ready(t, p.revents, true, &e) < 0)
            break;
    }
    if (t->tls && tls_end(t->tls, NULL) == 0)
        (void)tunnel_flush(t); /* the peer does not need it any more */
    _exit(0);
}

_Noreturn void tunnel_fail(struct tunnel *t, const struct err *why)
{
    tunnel_trim(t);
    t->out.failed = false; /* an append may have failed before */
    if (stream_add_failed(&t->out, why) < 0)
        _exit(1); /* no memory: the client sees only that the stream ends */
    tunnel_finish(t);
}
