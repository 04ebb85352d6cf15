/* SPDX-License-Identifier: Apache-2.0 */
/* Private to src/rendezvous: the servers, one in each file. */
#ifndef TONY_RENDEZVOUS_RENDEZVOUS_INT_H
#define TONY_RENDEZVOUS_RENDEZVOUS_INT_H

#include "rendezvous/service.h"

extern const struct service_ops service_horovod, service_pmi, service_tcpstore;

#endif
