/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The streams of clients into a task (docs/streams.md, decision 0022).
 *
 * Each stream has a process of its own, a fork of the executor. So neither many bytes nor a stalled
 * reader delays a heartbeat. This process connects to the master, and starts the command of the
 * client as its child. It is a subreaper: whatever that command starts stays below it. When the
 * stream ends, it kills all of that and exits.
 *
 * The executor does not count these processes as part of the task: they do not delay its end, and
 * they end with it. If the process of a stream is killed, the executor kills what it has left
 * behind; it finds these processes by a variable in their environment.
 */
#ifndef TONY_EXECUTOR_STREAMS_H
#define TONY_EXECUTOR_STREAMS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/tony.pb-c.h"

struct executor;
struct pids;

enum {
    STREAMS_PER_TASK_MAX = 32,
    STREAM_KEY_MAX = 64,
    STREAM_MARK_MAX = 200,
};

/* "TONY_STREAM=<container>:<id>", in the environment of all processes that a stream has started. */
#define STREAM_VARIABLE "TONY_STREAM"

struct streams {
    struct {
        pid_t pid;
        uint32_t id;
    } v[STREAMS_PER_TASK_MAX];
    unsigned n;
};

void streams_dial(struct executor *x, const Tony__DialStream *d);
/* A child was reaped. true: it was the process of a stream, not of the task. */
bool streams_exited(struct executor *x, pid_t pid, int status);
/* Append the processes of streams. What they have started is below them. */
void streams_list(const struct executor *x, struct pids *out);
/* Are all children of the executor processes of streams (or tony-gpu)? */
bool streams_only(const struct executor *x);
/* The attempt has ended, or the executor ends: kill all processes that are left, and reap them. */
void streams_kill(struct executor *x);

#endif
