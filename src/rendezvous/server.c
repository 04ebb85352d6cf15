/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/server.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"

enum {
    EVENTS = 64,
    BLOCK = 16 << 10,
    OUT_MAX = 8 << 20, /* no answer is longer; more means that the peer does not read */
    END_MS = 10000,    /* time to read the last answer */
    KEEP_MAX = 4096,   /* bytes of an empty buffer that a peer may keep */
};

/* Close a connection. Events of this turn may still point to the peer, so free_dropped() frees it
 * at the end of the turn. */
void server_drop(struct server_peer *p)
{
    struct server *s = p->server;
    if (p->fd < 0)
        return;
    close_p(&p->fd);
    if (p->prev)
        p->prev->next = p->next;
    else
        s->peers = p->next;
    if (p->next)
        p->next->prev = p->prev;
    s->n_peers--;
    if (s->ops->on_gone)
        s->ops->on_gone(p);
    buf_done(&p->out);
    s->bytes -= p->bytes;
    p->bytes = 0;
    p->next = s->dropped;
    s->dropped = p;
    gate_has_room(&s->gate);
}

void server_refuse(struct server_peer *p, const struct err *why)
{
    if (p->fd < 0)
        return;
    gate_report(&p->server->gate, why);
    server_drop(p);
}

size_t server_room(const struct server *s)
{
    return s->bytes < s->max_bytes ? s->max_bytes - s->bytes : 0;
}

/* Count the memory of the peer again. If the server holds more than it may, drop this peer. */
static void count(struct server_peer *p)
{
    struct server *s = p->server;
    if (p->fd < 0)
        return;
    size_t now = s->ops->peer_size + p->out.cap + (s->ops->held ? s->ops->held(p) : 0);
    bool grew = now > p->bytes;
    s->bytes = s->bytes - p->bytes + now;
    p->bytes = now;
    if (!grew || s->bytes + s->stored <= s->max_bytes)
        return;
    struct err e = { 0 };
    (void)err_set(&e, ENOBUFS, "the server of %s would need more than %zu MiB", s->ops->what,
                  s->max_bytes >> 20);
    server_refuse(p, &e);
}

static void free_dropped(struct server *s)
{
    for (struct server_peer *p; (p = s->dropped);) {
        s->dropped = p->next;
        free(p);
    }
}

/* Set the events to poll for: input unless the connection is ending, output if bytes are queued. */
static int watch_peer(struct server_peer *p, int op)
{
    uint32_t in = p->ending ? 0 : (uint32_t)EPOLLIN, out = p->out.len ? (uint32_t)EPOLLOUT : 0;
    return gate_watch(&p->server->gate, op, p->fd, p, in | out);
}

static void flush(struct server_peer *p)
{
    ssize_t n = send(p->fd, p->out.p, p->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
        buf_consume(&p->out, (size_t)n);
    bool broken = n == -1 && errno != EAGAIN && errno != EINTR;
    if (!p->out.len && p->out.cap > KEEP_MAX) /* a long answer must not keep its memory */
        buf_done(&p->out);
    if (broken || (!p->out.len && p->ending) || watch_peer(p, EPOLL_CTL_MOD) < 0)
        server_drop(p);
}

bool server_send(struct server_peer *p, const void *bytes, size_t n)
{
    bool waits = p->out.len > 0;
    if (p->fd < 0)
        return false;
    p->out.max = OUT_MAX;
    if (buf_add(&p->out, bytes, n) < 0)
        server_drop(p);
    else if (!waits)
        flush(p);
    count(p);
    return p->fd >= 0;
}

void server_end(struct server_peer *p)
{
    if (p->fd < 0)
        return;
    p->ending = true;
    p->deadline_ms = clock_mono_ms() + END_MS;
    if (!p->out.len || watch_peer(p, EPOLL_CTL_MOD) < 0)
        server_drop(p);
}

static bool peer_open(void *server, int fd)
{
    struct server *s = server;
    struct server_peer *p = s->n_peers < s->ops->peers_max ? calloc(1, s->ops->peer_size) : NULL;
    if (!p)
        return false;
    p->server = s;
    p->fd = fd;
    p->deadline_ms = s->ops->first_ms ? clock_mono_ms() + s->ops->first_ms : INT64_MAX;
    if (watch_peer(p, EPOLL_CTL_ADD) < 0) {
        free(p);
        return false;
    }
    p->next = s->peers;
    if (p->next)
        p->next->prev = p;
    s->peers = p;
    if (++s->n_peers >= s->ops->peers_max)
        gate_suspend(&s->gate);
    count(p);
    return true;
}

static void read_in(struct server_peer *p)
{
    char block[BLOCK];
    ssize_t n = recv(p->fd, block, sizeof block, MSG_DONTWAIT);
    if (n > 0)
        p->server->ops->on_bytes(p, block, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        server_drop(p); /* normal at the end of a task */
    count(p);
}

void server_turn(struct server *s)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(s->gate.epoll_fd, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct server_peer *p = events[i].data.ptr;
        uint32_t what = events[i].events;
        if (!p) {
            gate_accept(&s->gate, peer_open, s);
            continue;
        }
        if (p->fd >= 0 && what & EPOLLOUT) {
            flush(p);
            count(p);
        }
        if (p->fd >= 0 && what & (EPOLLHUP | EPOLLERR) && p->ending)
            server_drop(p);
        else if (p->fd >= 0 && what & (EPOLLIN | EPOLLHUP | EPOLLERR))
            read_in(p);
    }
    free_dropped(s);
}

void server_tick(struct server *s, int64_t now_ms)
{
    struct server_peer *next;
    for (struct server_peer *p = s->peers; p; p = next) {
        next = p->next;
        if (now_ms >= p->deadline_ms)
            server_drop(p);
    }
    free_dropped(s);
}

int server_open(struct server *s, const struct service_config *cfg, const struct server_ops *ops,
                struct err *e)
{
    *s = (struct server){ .ops = ops, .max_bytes = cfg->max_bytes };
    return gate_open(&s->gate, ops->what, cfg, e);
}

void server_close(struct server *s)
{
    if (!s->ops)
        return;
    while (s->peers)
        server_drop(s->peers);
    free_dropped(s);
    gate_close(&s->gate);
}

/* ---- as a rendezvous service ---- */

static struct server *server_of(const struct service *s)
{
    return &((struct server_service *)(void *)(uintptr_t)s)->server;
}

int server_service_fd(const struct service *s)
{
    return server_of(s)->gate.epoll_fd;
}

uint16_t server_service_port(const struct service *s)
{
    return server_of(s)->gate.port;
}

void server_service_turn(struct service *s)
{
    server_turn(server_of(s));
}

void server_service_tick(struct service *s, int64_t now_ms)
{
    server_tick(server_of(s), now_ms);
}
