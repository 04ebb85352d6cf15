/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Torch's store (tcpstore.h) on the network, for a process that has no event loop library: one
 * descriptor to poll, one call when it is ready.
 */
#ifndef TONY_RENDEZVOUS_TCPSTORE_SERVER_H
#define TONY_RENDEZVOUS_TCPSTORE_SERVER_H

#include <stddef.h>
#include <stdint.h>

struct err;
struct tcpstore_server;

enum { TCPSTORE_CLIENTS_MAX = 32 << 10 /* more are closed at once */ };

/* Listen on a numeric address and a port (0 = any), which the caller may hold with SO_REUSEPORT.
 * max_bytes as in tcpstore_new(). */
int tcpstore_server_open(const char *host, uint16_t port, size_t max_bytes,
                         struct tcpstore_server **out, struct err *e);
void tcpstore_server_close(struct tcpstore_server *s); /* with all connections; NULL is fine */
uint16_t tcpstore_server_port(const struct tcpstore_server *s);
size_t tcpstore_server_n_clients(const struct tcpstore_server *s);

int tcpstore_server_fd(const struct tcpstore_server *s); /* readable: call turn() */
/* Do what can be done at once. What was wrong with a client that had to go is handed to on_refused,
 * of many only the first ones. */
void tcpstore_server_turn(struct tcpstore_server *s,
                          void (*on_refused)(const struct err *why, void *arg), void *arg);

#endif
