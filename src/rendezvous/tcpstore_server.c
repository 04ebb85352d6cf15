/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Torch's store (tcpstore.h) on the network. Unlike the other servers it does not use server.h: it
 * sends answers straight from the store, and a client's commands may wait until the client has read
 * earlier answers.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"
#include "rendezvous/gate.h"
#include "rendezvous/rendezvous_int.h"
#include "rendezvous/tcpstore.h"

enum {
    EVENTS = 256,
    BLOCK = 64 << 10,
    CLIENTS_MAX = 32 << 10, /* further connections are closed at once */
};

struct line {
    int fd;
    uint32_t events; /* the events to poll for; EPOLLOUT: not all bytes could be sent */
    struct tcpstore_client *client;
};

struct store_server {
    struct service_head head;
    struct gate gate;
    struct tcpstore *store;
    char block[BLOCK];
};

static struct store_server *of(const struct service *s)
{
    return (struct store_server *)(void *)(uintptr_t)s;
}

static void line_close(struct store_server *s, struct line *l)
{
    tcpstore_leave(l->client);
    close(l->fd);
    free(l);
    gate_has_room(&s->gate);
}

static bool line_open(void *server, int fd)
{
    struct store_server *s = server;
    struct line *l = tcpstore_n_clients(s->store) < CLIENTS_MAX ? malloc(sizeof *l) : NULL;
    if (!l)
        return false;
    *l = (struct line){ .fd = fd, .events = EPOLLIN, .client = tcpstore_join(s->store, l) };
    if (!l->client || gate_watch(&s->gate, EPOLL_CTL_ADD, fd, l, EPOLLIN) < 0) {
        tcpstore_leave(l->client);
        free(l);
        return false;
    }
    return true;
}

/* Send what the kernel accepts, and set the events to poll for. -errno: the connection is
 * broken. */
static int send_out(struct store_server *s, struct line *l)
{
    bool left = false;
    for (struct span out; !left && (out = tcpstore_out(l->client)).len > 0;) {
        ssize_t n = send(l->fd, out.p, out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n == -1 && errno != EAGAIN && errno != EINTR)
            return -errno;
        left = n == -1 && errno == EAGAIN;
        if (n > 0)
            tcpstore_sent(l->client, (size_t)n);
    }
    uint32_t events =
        (tcpstore_paused(l->client) ? 0 : (uint32_t)EPOLLIN) | (left ? (uint32_t)EPOLLOUT : 0);
    if (events == l->events)
        return 0;
    l->events = events;
    return gate_watch(&s->gate, EPOLL_CTL_MOD, l->fd, l, events);
}

/* 0, or -errno: close the connection. e is set if the client has violated the protocol. */
static int read_in(struct store_server *s, struct line *l, struct err *e)
{
    ssize_t n = recv(l->fd, s->block, sizeof s->block, MSG_DONTWAIT);
    if (n == -1 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return n == 0 ? -EPIPE : -errno;
    return tcpstore_feed(l->client, s->block, (size_t)n, n == (ssize_t)sizeof s->block, e);
}

static int serve(struct store_server *s, struct line *l, uint32_t events, struct err *e)
{
    int rc = 0;
    if (tcpstore_broken(l->client))
        return -ENOBUFS;
    if (tcpstore_paused(l->client) && events & (EPOLLHUP | EPOLLERR))
        return -EPIPE;
    if (events & EPOLLOUT && (rc = send_out(s, l)) < 0)
        return rc;
    if (events & EPOLLOUT) /* commands that waited because the client had not read its answers */
        rc = tcpstore_feed(l->client, NULL, 0, false, e);
    if (rc == 0 && events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !tcpstore_paused(l->client))
        rc = read_in(s, l, e);
    return rc;
}

/* Send the answers: to the client itself and to those that it has woken. Does not close any
 * connection, because an event of this turn may still point to it. */
static void send_ready(struct store_server *s)
{
    for (struct tcpstore_client *c; (c = tcpstore_ready(s->store));) {
        struct line *l = tcpstore_user(c);
        if (tcpstore_broken(c) || send_out(s, l) < 0)
            /* The next read finds the end and closes the connection. */
            (void)shutdown(l->fd, SHUT_RDWR);
    }
}

static void store_turn(struct service *service)
{
    struct store_server *s = of(service);
    struct epoll_event events[EVENTS];
    int n = epoll_wait(s->gate.epoll_fd, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct line *l = events[i].data.ptr;
        struct err e = { 0 };
        if (!l) {
            gate_accept(&s->gate, line_open, s);
            continue;
        }
        if (serve(s, l, events[i].events, &e) < 0) {
            if (e.num)
                gate_report(&s->gate, &e);
            line_close(s, l);
        }
        send_ready(s);
    }
}

/* ---- the service ---- */

static void store_close(struct service *service)
{
    struct store_server *s = of(service);
    for (struct tcpstore_client *c; s->store && (c = tcpstore_any(s->store));)
        line_close(s, tcpstore_user(c));
    tcpstore_free(s->store);
    gate_close(&s->gate);
    free(s);
}

static int store_open(const struct service_config *cfg, struct service **out, struct err *e)
{
    struct store_server *s = calloc(1, sizeof *s);
    uint64_t seed;
    if (!s)
        return err_set(e, ENOMEM, "cannot serve torch's store: %m");
    s->head.ops = &service_tcpstore;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = (uint64_t)clock_mono_us(); /* soon after the boot there are no random bytes */
    int rc = gate_open(&s->gate, "torch's store", cfg, e);
    if (rc == 0 && !(s->store = tcpstore_new(cfg->max_bytes, seed)))
        rc = err_set(e, ENOMEM, "cannot serve torch's store: %m");
    if (rc < 0) {
        store_close((struct service *)(void *)s);
        return rc;
    }
    *out = (struct service *)(void *)s;
    return 0;
}

static int store_fd(const struct service *s)
{
    return of(s)->gate.epoll_fd;
}

static uint16_t store_port(const struct service *s)
{
    return of(s)->gate.port;
}

const struct service_ops service_tcpstore = { .name = "tcpstore",
                                              .open = store_open,
                                              .fd = store_fd,
                                              .port = store_port,
                                              .turn = store_turn,
                                              .close = store_close };
