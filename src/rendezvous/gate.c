/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/gate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/sockowner.h"
#include "base/util.h"
#include "rendezvous/service.h"

enum {
    ACCEPTS = 128, /* connections accepted in one turn, so that others are served in between */
    REFUSALS = 16, /* refused peers that are reported */
};

int gate_watch(const struct gate *g, int op, int fd, void *what, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.ptr = what };
    return epoll_ctl(g->epoll_fd, op, fd, &ev) == -1 ? -errno : 0;
}

/* Listen on the port. The caller may hold the same port with SO_REUSEPORT; no other program does.
 */
static int listen_at(struct gate *g, const char *host, uint16_t port, struct err *e)
{
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } at = { 0 };
    int on = 1;
    bool v6 = inet_pton(AF_INET6, host, &at.in6.sin6_addr) == 1;
    if (!v6 && inet_pton(AF_INET, host, &at.in.sin_addr) != 1)
        return err_set(e, EINVAL, "cannot serve %s at '%s': this is not a numeric address", g->what,
                       host);
    at.sa.sa_family = v6 ? AF_INET6 : AF_INET;
    *(v6 ? &at.in6.sin6_port : &at.in.sin_port) = htons(port);
    socklen_t len = v6 ? sizeof at.in6 : sizeof at.in;
    AUTO(close_p) int fd = socket(at.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* SO_REUSEPORT: the caller holds the port with a bound socket, so that no other program gets
     * it. */
    if (fd == -1 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == -1 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == -1 ||
        bind(fd, &at.sa, len) == -1 || listen(fd, SOMAXCONN) == -1 ||
        getsockname(fd, &at.sa, &len) == -1)
        return err_set(e, errno, "cannot serve %s at '%s', port %u: %m", g->what, host, port);
    g->port = ntohs(v6 ? at.in6.sin6_port : at.in.sin_port);
    g->listen_fd = fd;
    fd = -1;
    return 0;
}

int gate_open(struct gate *g, const char *what, const struct service_config *cfg, struct err *e)
{
    *g = (struct gate){ .what = what,
                        .epoll_fd = -1,
                        .listen_fd = -1,
                        .own_peers = cfg->own_peers,
                        .own_here = cfg->own_here,
                        .on_refused = cfg->on_refused,
                        .arg = cfg->arg };
    int rc = listen_at(g, cfg->host, cfg->port, e);
    if (rc == 0 && (g->epoll_fd = epoll_create1(EPOLL_CLOEXEC)) == -1)
        rc = err_set(e, errno, "cannot serve %s: %m", what);
    if (rc == 0 && (rc = gate_watch(g, EPOLL_CTL_ADD, g->listen_fd, NULL, EPOLLIN)) < 0)
        rc = err_set(e, -rc, "cannot serve %s: %m", what);
    if (rc < 0)
        gate_close(g);
    return rc;
}

void gate_close(struct gate *g)
{
    close_p(&g->listen_fd);
    close_p(&g->epoll_fd);
}

/* Accept a connection. Returns the descriptor or -errno. -EPERM with e set: the peer may not use
 * the server, and the connection is closed. */
static int accept_one(const struct gate *g, struct err *e)
{
    uid_t uid;
    bool checks = g->own_peers || g->own_here;
    int fd = accept4(g->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd == -1)
        return -errno;
    int rc = checks ? sock_peer_owner(fd, &uid) : 0;
    if (rc == 0 && (!checks || uid == geteuid()))
        return fd;
    if (rc == -ENOENT && !g->own_peers && !sock_peer_is_here(fd))
        return fd;   /* a peer on another machine may connect */
    (void)close(fd); /* without an answer */
    if (rc == 0)
        return err_set(e, EPERM, "a process of user %u tried to connect to the server of %s",
                       (unsigned)uid, g->what);
    return rc == -ENOENT
               ? err_set(e, EPERM, "a peer of the server of %s closed its connection at once",
                         g->what)
               : err_set(e, EPERM, "cannot find out who connects to the server of %s: %s", g->what,
                         strerror(-rc));
}

void gate_report(struct gate *g, const struct err *why)
{
    if (g->on_refused && g->n_refused++ < REFUSALS)
        g->on_refused(why, g->arg);
}

void gate_suspend(struct gate *g)
{
    g->is_suspended = gate_watch(g, EPOLL_CTL_MOD, g->listen_fd, NULL, 0) == 0;
}

void gate_has_room(struct gate *g)
{
    if (g->is_suspended)
        g->is_suspended = gate_watch(g, EPOLL_CTL_MOD, g->listen_fd, NULL, EPOLLIN) < 0;
}

/* If one of these options cannot be set, the connection is only slower, or a peer on a dead host is
 * not detected. */
static void set_options(int fd)
{
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

void gate_accept(struct gate *g, bool (*take)(void *server, int fd), void *server)
{
    for (int i = 0; i < ACCEPTS && !g->is_suspended; i++) {
        struct err e = { 0 };
        int fd = accept_one(g, &e);
        if (fd == -EPERM) {
            gate_report(g, &e);
            continue;
        }
        if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
            gate_suspend(g);
        if (fd < 0)
            return;
        set_options(fd);
        if (!take(server, fd))
            (void)close(fd);
    }
}
