#include "rendezvous/server.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"

enum {
    SWEEP_MS = 1000,
    END_MS = 10000, /* for an answer to be read */
    WARN_MS = 10000,
};

static void peer_free(struct server_peer *p)
{
    struct server *s = p->server;
    if (p->prev)
        p->prev->next = p->next;
    else
        s->peers = p->next;
    if (p->next)
        p->next->prev = p->prev;
    s->n_peers--;
    if (s->ops->on_gone)
        s->ops->on_gone(p);
    free(p);
}

void server_drop(struct server_peer *p)
{
    tcp_close(p->tcp);
    peer_free(p);
}

static void on_read(struct tcp *t, const char *bytes, size_t n, void *arg)
{
    struct server_peer *p = arg;
    (void)t;
    if (!p->ending)
        p->server->ops->on_bytes(p, bytes, n);
}

static void on_close(struct tcp *t, const struct err *e, void *arg)
{
    (void)t;
    (void)e; /* tasks end, and their connections with them */
    peer_free(arg);
}

/* Called when what was written is with the kernel: an ending peer is done with. */
static void on_drain(struct tcp *t, void *arg)
{
    struct server_peer *p = arg;
    (void)t;
    if (p->ending)
        server_drop(p);
}

static const struct tcp_ops peer_ops = { .on_read = on_read,
                                         .on_close = on_close,
                                         .on_drain = on_drain };

bool server_send(struct server_peer *p, const void *bytes, size_t n)
{
    if (tcp_write(p->tcp, bytes, n) == 0)
        return true;
    server_drop(p);
    return false;
}

void server_end(struct server_peer *p)
{
    p->ending = true;
    p->deadline_ms = clock_mono_ms() + END_MS;
    tcp_end(p->tcp);
}

static void on_accept(struct tcp *t, void *arg)
{
    struct server *s = arg;
    int64_t now = clock_mono_ms();
    struct server_peer *p = s->n_peers < s->ops->peers_max ? calloc(1, s->ops->peer_size) : NULL;
    if (!p) {
        if (now - s->warned_ms >= WARN_MS)
            log_event(LOG_WARN, "rendezvous.full", f_int("connections", (int64_t)s->n_peers));
        s->warned_ms = now;
        return; /* it has no owner, and is closed */
    }
    p->server = s;
    p->tcp = t;
    p->deadline_ms = s->ops->first_ms ? now + s->ops->first_ms : INT64_MAX;
    p->next = s->peers;
    if (p->next)
        p->next->prev = p;
    s->peers = p;
    s->n_peers++;
    tcp_set_arg(t, &peer_ops, p);
}

static void on_sweep(void *arg)
{
    struct server *s = arg;
    int64_t now = clock_mono_ms();
    struct server_peer *next;
    for (struct server_peer *p = s->peers; p; p = next) {
        next = p->next;
        if (now >= p->deadline_ms)
            server_drop(p);
    }
    loop_timer_set(s->sweep, now + SWEEP_MS);
}

int server_open(struct server *s, struct loop *loop, const char *host, const struct server_ops *ops,
                struct err *e)
{
    *s = (struct server){ .ops = ops, .loop = loop, .warned_ms = -WARN_MS };
    s->sweep = loop_timer_new(loop, on_sweep, s);
    if (!s->sweep)
        return err_set(e, ENOMEM, "no memory for a rendezvous server");
    int rc = listener_open_tcp(loop, host, 0, on_accept, s, &s->listener, e);
    if (rc < 0) {
        loop_timer_free(TAKE(s->sweep));
        return rc;
    }
    loop_timer_set(s->sweep, clock_mono_ms() + SWEEP_MS);
    return 0;
}

void server_close(struct server *s)
{
    listener_close(TAKE(s->listener));
    loop_timer_free(TAKE(s->sweep));
    while (s->peers)
        server_drop(s->peers);
}

uint16_t server_port(const struct server *s)
{
    return listener_port(s->listener);
}
