/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part that all rendezvous servers share: a port, the connections that are accepted there, and
 * the set of descriptors that the server polls (epoll). With cfg->own_peers or cfg->own_here the
 * gate closes the connections of other users of this machine (decision 0024). That includes a peer
 * that has closed its end before the gate accepts it, since its user cannot be found out any more:
 * what it sent is lost. The clients of all frameworks wait for an answer first.
 */
#ifndef TONY_RENDEZVOUS_GATE_H
#define TONY_RENDEZVOUS_GATE_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct service_config;

struct gate {
    const char *what; /* the clients of the server, for errors: "cannot serve <what> at ..." */
    int epoll_fd, listen_fd;
    uint16_t port;
    bool own_peers, own_here; /* as in struct service_config, like the next two */
    bool is_suspended;        /* no connection is accepted until gate_has_room() */
    void (*on_refused)(const struct err *why, void *arg);
    void *arg;
    unsigned n_refused;
};

/* Listen. Uses host, port, own_peers, own_here, on_refused and arg of cfg. */
int gate_open(struct gate *g, const char *what, const struct service_config *cfg, struct err *e);
void gate_close(struct gate *g);
/* epoll_ctl(). what: the event's data.ptr; that of the listening socket is NULL. */
int gate_watch(const struct gate *g, int op, int fd, void *what, uint32_t events);
/* The listening socket is readable: pass each new connection to take(), and close those that it
 * does not take. Without a free descriptor, calls gate_suspend(). */
void gate_accept(struct gate *g, bool (*take)(void *server, int fd), void *server);
/* Let further connections wait in the kernel until gate_has_room(). */
void gate_suspend(struct gate *g);
/* A connection was closed. */
void gate_has_room(struct gate *g);
/* Report a peer that was disconnected because of its fault; only the first few are reported. */
void gate_report(struct gate *g, const struct err *why);

#endif
