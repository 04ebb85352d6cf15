/*
 * Ports kept for a task: bound, never listened on. A task that sets SO_REUSEADDR or SO_REUSEPORT
 * can bind and listen on it while we hold it; a stranger that sets neither cannot take it, and the
 * kernel gives it to nobody else.
 */
#ifndef TONY_EXECUTOR_PORTS_H
#define TONY_EXECUTOR_PORTS_H

#include <stdint.h>

struct err;

/* The descriptor that holds *out_port on all interfaces, or -errno. Close it to let go. */
int port_reserve(uint16_t *out_port, struct err *e);

#endif
