/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the servers of few words have in common: one listener on one address, and a bounded number
 * of connections, each of which has a time by which it must have said what it is there for.
 * (Torch's store, which is asked much more, has its own: tcpstore_server.c.)
 */
#ifndef TONY_RENDEZVOUS_SERVER_H
#define TONY_RENDEZVOUS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;
struct server;
struct service_config;

/* One connection; a server's own struct begins with it. */
struct server_peer {
    struct server *server;
    int fd; /* -1: it was dropped, and its memory follows */
    struct server_peer *prev, *next;
    int64_t deadline_ms; /* then it is dropped; INT64_MAX = never */
    bool ending;         /* what is queued goes out, and nothing is read any more */
    struct buf out;      /* what it has not taken yet */
};

struct server_ops {
    const char *what; /* of a sentence: "cannot serve <what> at" */
    size_t peer_size;
    int64_t first_ms; /* the first deadline of a connection, from its beginning */
    size_t peers_max; /* more wait in the kernel's queue, or are refused there */
    /* May call server_drop() of any peer; of this one also server_end(). */
    void (*on_bytes)(struct server_peer *p, const char *bytes, size_t n);
    void (*on_gone)(struct server_peer *p); /* it was dropped; may be NULL */
};

struct server {
    const struct server_ops *ops;
    int epoll_fd, listen_fd;
    uint16_t port;
    bool full; /* not listening until somebody leaves */
    struct server_peer *peers, *gone;
    size_t n_peers;
};

int server_open(struct server *s, const struct service_config *cfg, const struct server_ops *ops,
                struct err *e);
void server_close(struct server *s); /* of one that was not opened, too */
void server_turn(struct server *s);
void server_tick(struct server *s, int64_t now_ms);
/* A peer that does not take what it is sent is dropped: false. */
bool server_send(struct server_peer *p, const void *bytes, size_t n);
void server_end(struct server_peer *p); /* when all is sent */
void server_drop(struct server_peer *p);

#endif
