/*
 * What the servers have in common: one listener on one address, and a bounded number of
 * connections, each of which has a time by which it must have said what it is there for.
 */
#ifndef TONY_RENDEZVOUS_SERVER_H
#define TONY_RENDEZVOUS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop/tcp.h"

struct err;
struct server;

/* One connection; a server's own struct begins with it. */
struct server_peer {
    struct server *server;
    struct tcp *tcp;
    struct server_peer *prev, *next;
    int64_t deadline_ms; /* then it is dropped; INT64_MAX = never */
    bool ending;         /* what is queued goes out, and nothing is read any more */
};

struct server_ops {
    size_t peer_size;
    int64_t first_ms; /* the first deadline of a connection, from its beginning */
    size_t peers_max; /* more wait in the kernel's queue, or are refused there */
    /* May call server_drop(peer) and server_end(peer); then nothing of the peer is touched after.
     */
    void (*on_bytes)(struct server_peer *p, const char *bytes, size_t n);
    void (*on_gone)(struct server_peer *p); /* its memory follows; may be NULL */
};

struct server {
    const struct server_ops *ops;
    struct loop *loop;
    struct listener *listener;
    struct loop_timer *sweep;
    struct server_peer *peers;
    size_t n_peers;
    int64_t warned_ms;
};

int server_open(struct server *s, struct loop *loop, const char *host, const struct server_ops *ops,
                struct err *e);
void server_close(struct server *s);
uint16_t server_port(const struct server *s);
/* A peer that does not take what it is sent is dropped: false, and it is gone. */
bool server_send(struct server_peer *p, const void *bytes, size_t n);
void server_end(struct server_peer *p); /* when all is sent */
void server_drop(struct server_peer *p);

#endif
