/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store by which the ranks of a PyTorch job find each other: the server's side of torch's
 * TCPStore, bytes in, bytes out. No sockets, no clock; tcpstore_server.h puts it on the network.
 *
 * Two dialects, told apart by the first bytes of a connection: torch 2.2 and later begins with a
 * number that shows what it is; what is older does not, and numbers its commands otherwise. Of
 * those, torch 2.1 gave two numbers of torch <= 2.0 another meaning (tcpstore_scan.c).
 *
 * The protocol has no authentication: who can reach the port can read and change everything. So
 * nothing that comes in may cost more than the limits below, and a client that goes beyond them, or
 * says what is not of the protocol, is closed; the others do not notice.
 *
 * Source: torch/csrc/distributed/c10d/TCPStore*.cpp of PyTorch 1.13 to 2.15, and what they send.
 */
#ifndef TONY_RENDEZVOUS_TCPSTORE_H
#define TONY_RENDEZVOUS_TCPSTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;
struct tcpstore;
struct tcpstore_client;

enum {
    TCPSTORE_KEY_MAX = 8 << 10,      /* torch's own server takes no longer ones */
    TCPSTORE_VALUE_MAX = 64 << 20,   /* 8 times what it takes */
    TCPSTORE_KEYS_MAX = 128 << 10,   /* in one command; likewise as torch's */
    TCPSTORE_MESSAGE_MAX = 96 << 20, /* a command with all its keys and values, and an answer */
    TCPSTORE_OUT_PAUSE = 1 << 20,    /* who has so much to read is not listened to before */
};

/* max_bytes: what all keys, values and unread bytes of all clients may take together. seed: of the
 * hashing, at random. NULL = no memory. */
struct tcpstore *tcpstore_new(size_t max_bytes, uint64_t seed);
void tcpstore_free(struct tcpstore *s); /* with all clients; NULL is fine */

struct tcpstore_client *tcpstore_join(struct tcpstore *s, void *user); /* NULL = no memory */
void tcpstore_leave(struct tcpstore_client *c);                        /* frees it; NULL is fine */
void *tcpstore_user(const struct tcpstore_client *c);

/*
 * What a client sent. more: there is probably more to be read at once. Without bytes: go on with
 * those that were held back. -errno with a sentence: it has to go (tcpstore_leave()).
 */
int tcpstore_feed(struct tcpstore_client *c, const char *p, size_t n, bool more, struct err *e);
/* It has too much to read already: give it nothing new, and feed it when it has read. */
bool tcpstore_paused(const struct tcpstore_client *c);

/* Clients that have got something to read, each once; NULL = none any more. */
struct tcpstore_client *tcpstore_ready(struct tcpstore *s);
struct span tcpstore_out(const struct tcpstore_client *c);
void tcpstore_sent(struct tcpstore_client *c, size_t n);
/* There was no room for what it was to be told: it has to go. */
bool tcpstore_broken(const struct tcpstore_client *c);

size_t tcpstore_used(const struct tcpstore *s); /* of max_bytes */
size_t tcpstore_n_clients(const struct tcpstore *s);
struct tcpstore_client *tcpstore_any(const struct tcpstore *s); /* NULL = there is none */

#endif
