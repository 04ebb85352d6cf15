/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs without a job file: `tony run -n 4 -- python3 train.py`, and the options that change single
 * values of a job. */
#ifndef TONY_CLIENT_JOB_QUICK_H
#define TONY_CLIENT_JOB_QUICK_H

#include <stdbool.h>

struct client;
struct conf;
struct err;

/* Does the command line name a command behind "--"? */
bool quick_has_command(const struct client *c);
/* Set what the command behind "--" and the options -n, --gpus, --memory, --framework, --name, --env
 * say. They override the job file, and --conf overrides them. 0 or -errno. */
int quick_apply(struct client *c, struct conf *conf, struct err *e);
/* --set KEY=VALUE and --ROLE.KEY VALUE, with the names of job files. They are equal to --conf. */
int quick_set(struct conf *conf, const char *pair, struct err *e);

#endif
