/*
 * A task in a container of the user's: its command is run by podman, else docker, from the image of
 * its role (tony.docker.*), on the pool. It sees its working directory, what is shipped and its
 * logs under the same paths as outside, the machine's network (its address and the task socket are
 * the same), and no more of the machine.
 */
#ifndef TONY_EXECUTOR_ENGINE_H
#define TONY_EXECUTOR_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"

struct command;
struct err;
struct executor;

/* env: the task's; becomes that of the engine, which passes on what it is told to. */
int engine_prepare(struct executor *x, uint32_t rank, struct strv *env, struct command *out,
                   struct err *e);
/* End what runs in it: the processes of docker are no children of ours. Does not wait. */
void engine_kill(struct executor *x);

#endif
