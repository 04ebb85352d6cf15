/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Torch's store (tcpstore.h) on the network, for a process without an event loop: it polls one
 * descriptor, and calls a function when that is readable.
 */
#ifndef TONY_RENDEZVOUS_TCPSTORE_SERVER_H
#define TONY_RENDEZVOUS_TCPSTORE_SERVER_H

#include <stddef.h>
#include <stdint.h>

struct err;
struct service_config;
struct tcpstore_server;

enum { TCPSTORE_CLIENTS_MAX = 32 << 10 /* further connections are closed at once */ };

/* Listen. cfg: host, port, max_bytes, own_peers and the callback on_refused count. */
int tcpstore_server_open(const struct service_config *cfg, struct tcpstore_server **out,
                         struct err *e);
void tcpstore_server_close(struct tcpstore_server *s); /* with all connections; NULL is fine */
uint16_t tcpstore_server_port(const struct tcpstore_server *s);

/* When it is readable, call tcpstore_server_turn() */
int tcpstore_server_fd(const struct tcpstore_server *s);
/* Handle all events without waiting. cfg->on_refused is called for a client that is disconnected
 * because of its fault, but only for the first few. */
void tcpstore_server_turn(struct tcpstore_server *s);

#endif
