/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics of an attempt: what the executor measures in each tony.task.metrics-interval-ms, what
 * the program reports on its socket, and what tony-gpu prints about the GPUs of the container
 * (gpu_watch.h). They are sent with the next Beat; values that have not changed are left out.
 */
#ifndef TONY_EXECUTOR_TASK_METRICS_H
#define TONY_EXECUTOR_TASK_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "executor/usage.h"

struct err;
struct executor;
struct gpu_watch;

struct task_metric {
    char *name; /* NULL = one of enum metric_id */
    double value;
    bool known;   /* it has a value in this attempt */
    bool changed; /* the master does not know this value */
    bool own;     /* the program reports it */
};

struct task_metrics {
    struct task_metric *v; /* the first METRIC_BUILT_IN_COUNT are those of enum metric_id */
    size_t n, cap, n_own;
    size_t n_named;    /* how many names this connection has told the master */
    bool forget_names; /* an attempt has begun: the names that were sent are not used any more */
    int64_t due_ms;    /* of the next measurement; INT64_MAX = none */
    bool measured;     /* the attempt was measured once */
    uint64_t max_bytes, cpu_ms, read_bytes, written_bytes; /* largest values so far */
    struct usage_base base;
    struct usage_trace trace;
    uint32_t n_processes;   /* at the last measurement; 0 = not measured */
    struct gpu_watch *gpus; /* NULL = the GPUs are not measured */
    pid_t gpu_pid;          /* tony-gpu, until it is reaped; 0 = there is none */
    unsigned gpu_failures;
};

/* An attempt begins: its processes do not exist yet. */
void task_metrics_begin(struct executor *x);
/* All processes of the attempt are dead: send the last values. Call it before the end is reported.
 */
void task_metrics_end(struct executor *x);
/* The executor has a new connection: the next Beat has all values. */
void task_metrics_again(struct executor *x);
/* The program has reported these: a json_t object, checked by task_message_parse(). -E2BIG: too
 * many different names; then those that fit are taken. */
int task_metrics_say(struct executor *x, const void *metrics, struct err *e);
int64_t task_metrics_due(const struct executor *x);
/* Measure now, and send a Beat with the changes. false: there was nothing to send. */
bool task_metrics_tick(struct executor *x, int64_t now_ms);
/* Is the next measurement so near that it can be made with this heartbeat? */
bool task_metrics_due_soon(const struct executor *x, int64_t now_ms);

/* The descriptor of tony-gpu's output; -1 = none. */
int task_metrics_fd(const struct executor *x);
void task_metrics_ready(struct executor *x);
struct rusage;
/* Append the children of the executor that are no part of the task: tony-gpu, and the processes of
 * streams. */
struct pids;
void task_metrics_others(const struct executor *x, struct pids *out);
/* The executor has reaped one of these: what it and its descendants have used does not count. */
void task_metrics_leave_out(struct executor *x, const struct rusage *used);
/* The executor has reaped this child. true: it was tony-gpu, which is no part of the task. */
bool task_metrics_reaped(struct executor *x, pid_t pid, const struct rusage *used);
/* Has the executor a child besides tony-gpu? Call it when there is at least one child. */
bool task_metrics_others_left(const struct executor *x);

#endif
