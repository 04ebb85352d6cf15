/* SPDX-License-Identifier: Apache-2.0 */
/* Ports of a task's machine on this machine. */
#ifndef TONY_CLIENT_STREAM_FORWARD_H
#define TONY_CLIENT_STREAM_FORWARD_H

#include <stdint.h>

struct err;
struct forward;
struct stream_job;

enum { FORWARDS_MAX = 32 };

/* Listen on 127.0.0.1 and the port `local` (0 = any free port). Each connection becomes a stream to
 * the port of the task's machine. task is copied. Runs on the loop of the job until
 * forward_close(). Errors of single connections are printed. 0, or minus the exit code. */
int forward_open(struct stream_job *j, const char *task, uint16_t local, uint16_t port,
                 struct forward **out, struct err *e);
uint16_t forward_port(const struct forward *f); /* the port on this machine */
void forward_close(struct forward *f);          /* NULL is accepted */

#endif
