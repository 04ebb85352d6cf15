/* SPDX-License-Identifier: Apache-2.0 */
/* Reserves ports for a task: the executor binds them, but does not listen. A task that sets
 * SO_REUSEADDR or SO_REUSEPORT can bind the port and listen on it. A program that sets neither
 * cannot bind it, and the kernel does not give the port to any other program. */
#ifndef TONY_EXECUTOR_PORTS_H
#define TONY_EXECUTOR_PORTS_H

#include <stdint.h>

struct err;

/* Read the kernel's range of ports. port_reserve() uses what was read last, in this process or in
 * the one that has forked it; if nothing was read, it reads the range itself. */
void ports_look(void);
/* Reserve only ports from first to last from now on (tony.port-range); first 0: any port. */
void ports_allow(uint16_t first, uint16_t last);

/* Returns a descriptor that reserves *out_port on all interfaces until it is closed, or -errno;
 * -EADDRINUSE: all allowed ports are in use. */
int port_reserve(uint16_t *out_port, struct err *e);

#endif
