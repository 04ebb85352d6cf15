/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store by which the ranks of a PyTorch job find each other: the server side of torch's
 * TCPStore, without sockets and without a clock. tcpstore_server.c connects it to the network.
 *
 * There are two dialects. Clients of torch 2.2 and later begin a connection with a magic number.
 * Older clients do not, and have other command numbers; of these, torch 2.1 gave two numbers of
 * torch <= 2.0 another meaning (tcpstore_scan.c).
 *
 * The protocol has no authentication: every program that can reach the port can read and change
 * everything. So the limits below bound the cost of any input. A client that exceeds them or
 * violates the protocol is disconnected; the other clients are not affected.
 *
 * Source: torch/csrc/distributed/c10d/TCPStore*.cpp of PyTorch 1.13 to 2.15, and captured
 * connections.
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
    TCPSTORE_KEY_MAX = 8 << 10,    /* torch's own server has the same limit */
    TCPSTORE_VALUE_MAX = 64 << 20, /* 8 times the limit of torch's own server */
    TCPSTORE_KEYS_MAX = 128 << 10, /* keys in one command; the same limit as torch's own server */
    /* Bytes of a command with all keys and values, and of an answer. */
    TCPSTORE_MESSAGE_MAX = 96 << 20,
    TCPSTORE_OUT_PAUSE = 1 << 20, /* if a client has more unread bytes, its commands wait */
};

/* max_bytes: limit for all keys, values and unread bytes of all clients. seed: random, for the hash
 * function. NULL = no memory. */
struct tcpstore *tcpstore_new(size_t max_bytes, uint64_t seed);
void tcpstore_free(struct tcpstore *s); /* also frees all clients; NULL is fine */

struct tcpstore_client *tcpstore_join(struct tcpstore *s, void *user); /* NULL = no memory */
void tcpstore_leave(struct tcpstore_client *c);                        /* frees it; NULL is fine */
void *tcpstore_user(const struct tcpstore_client *c);

/*
 * Handle received bytes. more: more bytes can probably be read at once. n = 0: continue with
 * commands that had to wait. -errno with a sentence: disconnect the client (tcpstore_leave()).
 */
int tcpstore_feed(struct tcpstore_client *c, const char *p, size_t n, bool more, struct err *e);
/* The client has too many unread bytes: do not read from it until it has read them. */
bool tcpstore_paused(const struct tcpstore_client *c);

/* The next client with new bytes to send; each is returned once. NULL = there is none. */
struct tcpstore_client *tcpstore_ready(struct tcpstore *s);
struct span tcpstore_out(const struct tcpstore_client *c);
void tcpstore_sent(struct tcpstore_client *c, size_t n);
/* There was no memory for an answer to this client: disconnect it. */
bool tcpstore_broken(const struct tcpstore_client *c);

size_t tcpstore_used(const struct tcpstore *s); /* how much of max_bytes is used */
size_t tcpstore_n_clients(const struct tcpstore *s);
/* Any client; NULL = there is none. */
struct tcpstore_client *tcpstore_any(const struct tcpstore *s);

#endif
