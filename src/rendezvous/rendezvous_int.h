/* SPDX-License-Identifier: Apache-2.0 */
/* The servers themselves, one file each. */
#ifndef TONY_RENDEZVOUS_RENDEZVOUS_INT_H
#define TONY_RENDEZVOUS_RENDEZVOUS_INT_H

#include "rendezvous/service.h"

extern const struct service_ops service_horovod, service_pmi, service_tcpstore;

/* A socket that listens there, alone on its port but for who has kept that for us. what: of whom,
 * for the sentence. The descriptor, or -errno. */
int rendezvous_listen(const char *what, const char *host, uint16_t port, uint16_t *out_port,
                      struct err *e);

#endif
