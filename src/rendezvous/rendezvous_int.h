/* The servers themselves, one file each. */
#ifndef TONY_RENDEZVOUS_RENDEZVOUS_INT_H
#define TONY_RENDEZVOUS_RENDEZVOUS_INT_H

#include "rendezvous/service.h"

extern const struct service_ops service_horovod, service_pmi;

#endif
