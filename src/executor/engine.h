/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On one machine, a task may run in a container image (tony.docker.*). Its command is run by podman
 * or, if that is missing, by docker.
 *
 * Inside, the task sees its working directory, the shipped files and its logs under the same paths
 * as outside. It shares the network of the machine, so its address and the task socket are the
 * same. It sees nothing else of the machine.
 */
#ifndef TONY_EXECUTOR_ENGINE_H
#define TONY_EXECUTOR_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"

struct command;
struct err;
struct executor;

/* text: the command. env: of the task; it becomes the environment of the engine, which passes the
 * variables of the task on. */
int engine_prepare(struct executor *x, const char *text, uint32_t rank, struct strv *env,
                   struct command *out, struct err *e);
/* A command in the container of the task that runs now, beside its process. argv empty: a shell.
 * term: its TERM, or "". */
int engine_exec(const struct executor *x, const struct strv *argv, bool tty, bool input,
                const char *term, struct command *out, struct err *e);
/* Tell the engine to kill the containers of the task, because the processes of docker are not
 * children of the executor. Does not wait. */
void engine_kill(struct executor *x);

#endif
