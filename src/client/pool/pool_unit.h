/* SPDX-License-Identifier: Apache-2.0 */
/* pool enable, pool disable: whether the pool starts with the machine. */
#ifndef TONY_CLIENT_POOL_UNIT_H
#define TONY_CLIENT_POOL_UNIT_H

#include <stdbool.h>

struct client;
struct err;

/* Install or remove a unit of systemd that starts the pool at boot, of the user's manager or, for
 * root, of the system. The pool then continues the jobs that ran. Returns an exit code. */
int pool_unit(struct client *c, bool enable);
/* Install the unit for a job with tony.application.restart-on-boot, unless it is installed. */
int pool_unit_for_job(struct client *c, struct err *e);

#endif
