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
#include "executor/cgroup.h"

struct command;
struct err;
struct executor;
struct usage;

/* text: the command. env: of the task; it becomes the environment of the engine, which passes the
 * variables of the task on. */
int engine_prepare(struct executor *x, const char *text, uint32_t rank, struct strv *env,
                   struct command *out, struct err *e);
/* A command in the container of the task that runs now, beside its process. argv empty: a shell.
 * term: its TERM, or "". mark: "KEY=VALUE" in the environment of the command. By it
 * proctree_signal_inside() finds what the command has started: in the container these processes are
 * no children of the engine. */
int engine_exec(const struct executor *x, const struct strv *argv, bool tty, bool input,
                const char *term, const char *mark, struct command *out, struct err *e);
/*
 * Send the signal to all processes in the container of this rank, except to its first one: that is
 * a shell of tony, which starts the command and waits for it. Returns the number of processes that
 * got the signal; 0: the command has not started yet, or has ended. catchers: only to processes
 * that have a handler for the signal.
 *
 * The engine would forward a signal as well. But podman 4.3 does so only some time after it has
 * started the container: until then a TERM ends podman, and the container runs on.
 */
unsigned engine_signal(const struct executor *x, uint32_t rank, int signal, bool catchers);
/* Does the container of this rank have a first process? */
bool engine_has_container(const struct executor *x, uint32_t rank);
/* The first process of the container of this rank; 0 = there is none. */
pid_t engine_first(const struct executor *x, uint32_t rank);
/* The same for n ranks, in one walk through /proc. */
void engine_find(const struct executor *x, const uint32_t *ranks, size_t n, pid_t *out);
/* If the containers have groups of their own: was a process of this attempt killed for its memory?
 * True only once. */
bool engine_oom_killed(const struct executor *x);
/* The file with the CPU time of the container of this rank, in microseconds. Its first process
 * writes it at its end. The caller frees the path. NULL = no memory. */
char *engine_cpu_file(const struct executor *x, uint32_t rank);
/* Tell the engine to kill the containers of the task, because the processes of docker are not
 * children of the executor. Does not wait. */
void engine_kill(struct executor *x);

/* The engines of all ranks have exited by themselves, so they have removed their containers. */
void engine_forget(const struct executor *x);

/* ---- engine_usage.c: what the containers use, if x->engine_apart ---- */

struct engine_container {
    struct cgroup group;                        /* kind 0: not found yet */
    uint64_t cpu_ms, read_bytes, written_bytes; /* largest values so far */
};

void engine_usage_begin(struct executor *x); /* an attempt begins */
/* over: no process of the attempt is alive. Then memory_bytes and threads are 0. */
void engine_usage(struct executor *x, bool over, struct usage *out);

/* ---- engine_stop.c: stops the task, also if its command has not started yet ---- */

/* Send TERM to the command of each rank. If a container has not started yet, ask its engine to give
 * up: it may be fetching the image. Returns the time at which to call engine_stop_again();
 * INT64_MAX: call it when an engine has exited. */
int64_t engine_stop(struct executor *x);
/* A command may have started meanwhile: send it TERM. Returns the same, or 0 if all engines have
 * exited and no container runs any more. */
int64_t engine_stop_again(struct executor *x);

#endif
