/* SPDX-License-Identifier: Apache-2.0 */
#include "loop_int.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "loop/tcp.h"

/*
 * Connects to a host by name. It tries the addresses of the host one after the other, and divides
 * the time until the deadline among those that are left.
 */

/* An attempt to connect to one address. */
struct attempt {
    struct object object;
    uv_poll_t poll;
    struct dial *d;
    int fd;
};

struct dial {
    struct loop *loop;
    struct dial *next_dial, **at; /* in loop->dials */
    char *host;
    uint16_t port;
    int64_t deadline_ms;
    struct tcp_resolve *resolve;
    struct tcp_address *addresses;
    size_t n, next;
    struct attempt *attempt;
    /* The timeout of the attempt. It also delays a result that is known at once, so that done()
     * does not come inside dial_start(). */
    struct loop_timer *timer;
    struct err failed;
    int fd; /* a socket that was connected at once; else -1 */
    void (*done)(void *arg, int fd, const struct err *e);
    void *arg;
};

static void attempt_destroy(struct object *o)
{
    struct attempt *a = CONTAINER_OF(o, struct attempt, object);
    if (a->fd != -1)
        (void)close(a->fd);
    free(a);
}

static void attempt_end(struct dial *d)
{
    if (d->attempt)
        object_close((uv_handle_t *)&TAKE(d->attempt)->poll);
}

void dial_cancel(struct dial *d)
{
    if (!d)
        return;
    if (d->at)
        *d->at = d->next_dial;
    if (d->at && d->next_dial)
        d->next_dial->at = d->at;
    attempt_end(d);
    close_p(&d->fd);
    tcp_resolve_cancel(d->resolve);
    loop_timer_free(d->timer);
    free(d->addresses);
    free(d->host);
    free(d);
}

static void dial_done(struct dial *d, int fd, const struct err *e)
{
    void (*done)(void *arg, int fd, const struct err *e) = d->done;
    void *arg = d->arg;
    struct err why = *e;
    dial_cancel(d);
    done(arg, fd, &why);
}

void socket_tune(int fd)
{
    const int on = 1, idle_s = 60, between_s = 20, probes = 3;
    /* If setting an option fails, the connection still works. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

static void address_failed(struct dial *d, int num)
{
    (void)err_set(&d->failed, num, "cannot connect to '%s:%u': %m", d->host, d->port);
}

static void on_connected(uv_poll_t *h, int status, int events)
{
    struct attempt *a = CONTAINER_OF(h, struct attempt, poll);
    struct dial *d = a->d;
    int num = 0;
    socklen_t len = sizeof num;
    (void)status; /* SO_ERROR of the socket is more precise */
    (void)events;
    if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &num, &len) == -1)
        num = errno;
    int fd = a->fd;
    a->fd = -1;
    attempt_end(d); /* stop polling the descriptor before another object polls it */
    if (num == 0) {
        struct err none = { 0 };
        dial_done(d, fd, &none);
        return;
    }
    (void)close(fd);
    address_failed(d, num);
    loop_timer_set(d->timer, clock_mono_ms());
}

/* Start to connect to one address. 0: the attempt runs, or it has succeeded (d->fd); or -errno. */
static int attempt_start(struct dial *d, const struct tcp_address *to)
{
    AUTO(close_p)
    int fd = socket(to->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd == -1)
        return -errno;
    socket_tune(fd);
    if (connect(fd, &to->sa, tcp_address_len(to)) == 0) {
        d->fd = fd;
        fd = -1;
        return 0;
    }
    if (errno != EINPROGRESS && errno != EINTR)
        return -errno;
    struct attempt *a = calloc(1, sizeof *a);
    if (!a)
        return -ENOMEM;
    int rc = uv_poll_init(&d->loop->uv, &a->poll, fd);
    if (rc < 0) {
        free(a);
        return rc;
    }
    object_init(&a->object, d->loop, (uv_handle_t *)&a->poll, attempt_destroy);
    a->d = d;
    a->fd = fd;
    fd = -1;
    d->attempt = a;
    return uv_poll_start(&a->poll, UV_WRITABLE, on_connected);
}

static void try_next(struct dial *d)
{
    int64_t now = clock_mono_ms();
    while (d->next < d->n && now < d->deadline_ms) {
        size_t left = d->n - d->next;
        int rc = attempt_start(d, &d->addresses[d->next++]);
        if (rc == 0 && d->fd != -1) {
            int fd = d->fd;
            d->fd = -1;
            dial_done(d, fd, &(struct err){ 0 });
            return;
        }
        if (rc == 0) {
            loop_timer_set(d->timer, now + (d->deadline_ms - now) / (int64_t)left);
            return;
        }
        attempt_end(d);
        address_failed(d, -rc);
    }
    if (!d->failed.num)
        address_failed(d, ETIMEDOUT);
    dial_done(d, -1, &d->failed);
}

static void on_dial_timer(void *arg)
{
    struct dial *d = arg;
    if (d->attempt) {
        attempt_end(d);
        address_failed(d, ETIMEDOUT);
    }
    try_next(d);
}

static void on_resolved(const struct tcp_address *v, size_t n, const struct err *e, void *arg)
{
    struct dial *d = arg;
    d->resolve = NULL;
    if (e->num) {
        dial_done(d, -1, e);
        return;
    }
    d->addresses = calloc(n, sizeof *v);
    if (!d->addresses) {
        address_failed(d, ENOMEM);
        dial_done(d, -1, &d->failed);
        return;
    }
    memcpy(d->addresses, v, n * sizeof *v);
    d->n = n;
    try_next(d);
}

int dial_start(struct loop *l, const char *host, uint16_t port, int64_t deadline_ms,
               void (*done)(void *arg, int fd, const struct err *e), void *arg, struct dial **out,
               struct err *e)
{
    struct dial *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ENOMEM, "cannot connect to '%s:%u': %m", host, port);
    d->loop = l;
    d->fd = -1;
    d->port = port;
    d->done = done;
    d->arg = arg;
    d->deadline_ms = deadline_ms ? deadline_ms : clock_mono_ms() + TCP_DIAL_MS;
    d->host = str_dup(host);
    d->timer = loop_timer_new(l, on_dial_timer, d);
    int rc = 0;
    if (!d->host || !d->timer)
        rc = err_set(e, ENOMEM, "cannot connect to '%s:%u': %m", host, port);
    else
        rc = tcp_resolve(l, host, port, d->deadline_ms, on_resolved, d, &d->resolve, e);
    if (rc < 0) {
        dial_cancel(d);
        return rc;
    }
    d->next_dial = l->dials;
    d->at = &l->dials;
    if (d->next_dial)
        d->next_dial->at = &d->next_dial;
    l->dials = d;
    *out = d;
    return 0;
}

void dials_end(struct loop *l)
{
    while (l->dials)
        dial_cancel(l->dials);
}
