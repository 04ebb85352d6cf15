/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Common code of the small rendezvous servers: one listener, a limited number of connections, and
 * one limit for the memory of all of them. A connection is dropped if it has not identified itself
 * by its deadline. (Torch's store has network code of its own, because it handles far more
 * requests: tcpstore_server.c.)
 */
#ifndef TONY_RENDEZVOUS_SERVER_H
#define TONY_RENDEZVOUS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "rendezvous/gate.h"
#include "rendezvous/service.h"

struct server;

/* One connection. A server's own struct has this as its first member. */
struct server_peer {
    struct server *server;
    int fd; /* -1: dropped; freed when no event of this turn can point to it */
    struct server_peer *prev, *next;
    int64_t deadline_ms; /* the connection is dropped at this time; INT64_MAX = never */
    bool ending;         /* send the queued bytes, read nothing more, then close */
    struct buf out;      /* bytes that are not sent yet */
    size_t bytes;        /* memory of this peer, as counted in server.bytes */
};

struct server_ops {
    const char *what; /* as in struct gate */
    size_t peer_size;
    int64_t first_ms; /* time from the accept to the first deadline; 0 = no deadline */
    size_t peers_max; /* further connections wait in the kernel's queue */
    /* The function may call server_drop() for any peer, and server_end() for p. */
    void (*on_bytes)(struct server_peer *p, const char *bytes, size_t n);
    void (*on_gone)(struct server_peer *p); /* the peer was dropped; may be NULL */
    /* Memory for bytes of p that were received and not handled yet. */
    size_t (*held)(const struct server_peer *p);
};

struct server {
    const struct server_ops *ops;
    struct gate gate;
    struct server_peer *peers, *dropped; /* dropped: peers to free at the end of the round */
    size_t n_peers;
    /* Memory: the limit, that of all peers, and what the server itself stores for them, which it
     * sets in on_bytes(). A peer that needs more than is left is dropped. */
    size_t max_bytes, bytes, stored;
};

/* The number of bytes that the server itself may store: the memory limit, less the buffers of all
 * peers. */
size_t server_room(const struct server *s);

int server_open(struct server *s, const struct service_config *cfg, const struct server_ops *ops,
                struct err *e);
void server_close(struct server *s); /* also after a failed server_open() */
void server_turn(struct server *s);
void server_tick(struct server *s, int64_t now_ms);
/* false: the peer was dropped, because the connection is broken or the peer does not read. */
bool server_send(struct server_peer *p, const void *bytes, size_t n);
void server_end(struct server_peer *p); /* close once all bytes are sent */
void server_drop(struct server_peer *p);
/* Drop the peer, and report why (gate_report()). */
void server_refuse(struct server_peer *p, const struct err *why);

/* A rendezvous service that uses this code has its own struct with this as the first member. The
 * functions below are then members of its struct service_ops. */
struct server_service {
    struct service_head head;
    struct server server;
};
int server_service_fd(const struct service *s);
uint16_t server_service_port(const struct service *s);
void server_service_turn(struct service *s);
void server_service_tick(struct service *s, int64_t now_ms);

#endif
