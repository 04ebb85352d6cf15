/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"
#include "rendezvous/rendezvous_int.h"

enum {
    EVENTS = 64,
    ACCEPTS = 128, /* connections accepted in one turn, so that others are served in between */
    BLOCK = 16 << 10,
    OUT_MAX = 8 << 20, /* no answer is longer; more means that the peer does not read */
    END_MS = 10000,    /* time to read the last answer */
    KEEP_MAX = 4096,   /* bytes of an empty buffer that a peer may keep */
    REFUSALS = 16,     /* refused peers that are reported */
};

static int watch(const struct server *s, int op, int fd, void *what, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.ptr = what };
    return epoll_ctl(s->epoll_fd, op, fd, &ev) == -1 ? -errno : 0;
}

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
    if (s->accept_suspended)
        s->accept_suspended = watch(s, EPOLL_CTL_MOD, s->listen_fd, NULL, EPOLLIN) < 0;
}

static void report(struct server *s, const struct err *why)
{
    if (s->on_refused && s->n_refused++ < REFUSALS)
        s->on_refused(why, s->arg);
}

void server_refuse(struct server_peer *p, const struct err *why)
{
    if (p->fd < 0)
        return;
    report(p->server, why);
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
    return watch(p->server, op, p->fd, p, in | out);
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

static int peer_open(struct server *s, int fd)
{
    int on = 1;
    struct server_peer *p = calloc(1, s->ops->peer_size);
    if (!p)
        return -ENOMEM;
    p->server = s;
    p->fd = fd;
    p->deadline_ms = s->ops->first_ms ? clock_mono_ms() + s->ops->first_ms : INT64_MAX;
    int rc = watch_peer(p, EPOLL_CTL_ADD);
    if (rc < 0) {
        free(p);
        return rc;
    }
    /* If it fails, the connection is only slower. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    /* Detects peers on dead hosts. */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    p->next = s->peers;
    if (p->next)
        p->next->prev = p;
    s->peers = p;
    s->n_peers++;
    count(p);
    return 0;
}

static void accept_some(struct server *s)
{
    for (int i = 0; i < ACCEPTS; i++) {
        bool room = s->n_peers < s->ops->peers_max;
        struct err e = { 0 };
        int fd = room ? rendezvous_accept(s->ops->what, s->listen_fd, s->own_peers, &e) : -EAGAIN;
        if (fd == -EPERM) {
            report(s, &e);
            continue;
        }
        if (!room || fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
            s->accept_suspended = watch(s, EPOLL_CTL_MOD, s->listen_fd, NULL, 0) == 0;
        if (fd < 0)
            return;
        if (peer_open(s, fd) < 0)
            close(fd);
    }
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
    int n = epoll_wait(s->epoll_fd, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct server_peer *p = events[i].data.ptr;
        uint32_t what = events[i].events;
        if (!p) {
            accept_some(s);
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
    *s = (struct server){ .ops = ops,
                          .epoll_fd = -1,
                          .listen_fd = -1,
                          .own_peers = cfg->own_peers,
                          .on_refused = cfg->on_refused,
                          .arg = cfg->arg,
                          .max_bytes = cfg->max_bytes };
    int rc = s->listen_fd = rendezvous_listen(ops->what, cfg->host, cfg->port, &s->port, e);
    if (rc >= 0 && (s->epoll_fd = epoll_create1(EPOLL_CLOEXEC)) == -1)
        rc = err_set(e, errno, "cannot serve %s: %m", ops->what);
    if (rc >= 0 && (rc = watch(s, EPOLL_CTL_ADD, s->listen_fd, NULL, EPOLLIN)) < 0)
        rc = err_set(e, -rc, "cannot serve %s: %m", ops->what);
    if (rc < 0)
        server_close(s);
    return rc < 0 ? rc : 0;
}

void server_close(struct server *s)
{
    if (!s->ops)
        return;
    while (s->peers)
        server_drop(s->peers);
    free_dropped(s);
    close_p(&s->listen_fd);
    close_p(&s->epoll_fd);
}
