/* SPDX-License-Identifier: Apache-2.0 */
/* Private to src/rendezvous: the servers, one in each file. */
#ifndef TONY_RENDEZVOUS_RENDEZVOUS_INT_H
#define TONY_RENDEZVOUS_RENDEZVOUS_INT_H

#include <stdbool.h>

#include "rendezvous/service.h"

extern const struct service_ops service_horovod, service_pmi, service_tcpstore;

/* Listen on a port. Only the caller may hold the same port, with SO_REUSEPORT. what: the users of
 * the server, for the error. Returns the descriptor or -errno. */
int rendezvous_listen(const char *what, const char *host, uint16_t port, uint16_t *out_port,
                      struct err *e);
/* Accept a connection. Returns the descriptor or -errno. -EPERM with e set: with cfg->own_peers,
 * the peer was not a process of this user, and the connection is closed. */
int rendezvous_accept(const char *what, int listen_fd, bool own_peers, struct err *e);

#endif
