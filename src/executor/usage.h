/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processes of a task use: memory, CPU time, disk, threads.
 *
 * With a control group of v2 the group counts CPU time and memory, with one of v1 memory; the group
 * also lists the processes. Without a group the processes are all descendants of the executor,
 * which is a subreaper, so they include orphans.
 *
 * The kernel adds what a process has used to its parent when the parent reaps it. So the sum over
 * the living processes and the reaped children of the executor has all processes, also those that
 * have ended. It lacks the children of a process that ignores SIGCHLD.
 */
#ifndef TONY_EXECUTOR_USAGE_H
#define TONY_EXECUTOR_USAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct cgroup;
struct pids;
struct rusage;

struct usage {
    uint64_t memory_bytes; /* without the part of the page cache that the kernel would drop first */
    uint64_t cpu_ms;
    uint64_t read_bytes, written_bytes; /* of block devices and network file systems */
    uint32_t threads, processes;
};

/* What the executor's reaped children, or the group, had used when the attempt started. */
struct usage_base {
    uint64_t cpu_ms, read_bytes, written_bytes;
};

/* g: NULL = the task has no group. known: what the reaped processes of the task have used, if the
 * process has several executors; NULL = all children of this process belong to the task. */
void usage_base(const struct cgroup *g, const struct usage_base *known, struct usage_base *out);
/* The last measurement of the first process of a task. If the next one is the same, the task has
 * done nothing since. */
struct usage_trace {
    pid_t pid;
    int fd;          /* /proc/<pid>/stat; 0 = not opened, -1 = it cannot be */
    uint64_t memory; /* of the group, with all of its page cache */
    char text[512];  /* of /proc/<pid>/stat */
};
/* Has a task of one process been idle since the last call: is the memory of its group the same, and
 * all that the kernel counts of the process? A new process would need memory of the group. */
bool usage_is_idle(struct usage_trace *t, pid_t pid, uint64_t memory);
void usage_trace_done(struct usage_trace *t);

/* except: children of the executor that are not part of the task, such as the process of a stream.
 * They and their descendants are not counted. But if they are in the group, its memory includes
 * them. */
void usage_now(const struct cgroup *g, const struct usage_base *base,
               const struct usage_base *known, const struct pids *except, struct usage *out);
/* The same, when no process of the task is alive: memory_bytes and threads are 0. */
void usage_at_end(const struct cgroup *g, const struct usage_base *base,
                  const struct usage_base *known, struct usage *out);
/* The executor has reaped a child of `except`, which has used this much: subtract it. */
void usage_leave_out(const struct cgroup *g, struct usage_base *base, const struct rusage *used);

#endif
