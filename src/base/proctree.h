/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descendants of this process: list them, signal them, measure their memory.
 *
 * The executor, the keeper and the pool are subreapers (PR_SET_CHILD_SUBREAPER): the kernel makes
 * them the parent of an orphan among their descendants. So every process that a task starts stays
 * below its executor, or below the process that runs several (executor/crew.h). If the executor
 * dies, its orphans become children of the keeper; if the keeper dies, they become children of the
 * pool that started it. A walk down from this process finds all of them.
 */
#ifndef TONY_BASE_PROCTREE_H
#define TONY_BASE_PROCTREE_H

#include <stdint.h>
#include <sys/types.h>

struct span;

struct pids {
    pid_t *v;
    size_t n, cap;
};

/* Append the direct children of pid, those of all its threads. The list may miss a process that
 * starts or changes its parent during the call, so callers repeat the call. */
void proctree_children(pid_t pid, struct pids *out);
/* Append all descendants of pid, without pid itself; a parent comes before its children. */
void proctree_below(pid_t pid, struct pids *out);
/* The same without the processes `except`, and without what is below them. */
void proctree_below_except(pid_t pid, const struct pids *except, struct pids *out);
/* Send sig to all descendants of this process. Returns their number. stop_first: send SIGSTOP to
 * all of them first, again and again until no new ones appear, so that a tree that forks faster
 * than this function walks cannot escape. */
unsigned proctree_signal(int sig, _Bool stop_first);
/* Send sig to the descendants of pid, or only to those that have a handler for it. Returns the
 * number of processes that got it. */
unsigned proctree_signal_below(pid_t pid, int sig, _Bool catchers);
_Bool proctree_catches(pid_t pid, int sig); /* has it a handler for the signal? */
/* For each start set *out to the process of this user whose command line begins with these bytes:
 * its arguments, each ended by a NUL. If several have it, set the one with the lowest pid: that is
 * the parent, while a child has forked and not yet called execve(), unless pids have started again
 * from the lowest in between. 0 = there is no such process. One walk through /proc finds all. */
void proctree_find(const struct span *starts, size_t n, pid_t *out);
/* Resident memory of all descendants in bytes, as far as proctree_below_except() finds them. pss:
 * count a page that processes share once, not once for each process; this is slow. */
uint64_t proctree_rss(const struct pids *except, _Bool pss);
/* Append the environment of process pid: strings, each ended by a NUL. During an execve() a process
 * has no environment, so this function waits up to 1 s for its end. false: it has none, or cannot
 * be read. */
struct buf;
_Bool proctree_environment(pid_t pid, struct buf *out);
/* Does the environment of process pid contain entry ("KEY=VALUE")? During an execve() a process has
 * no environment, so this function waits up to 1 s for its end. Without memory the answer is no. */
_Bool proctree_has_variable(pid_t pid, const char *entry);
/* Send sig to the processes of this user in containers whose environment contains entry: those that
 * are in another PID namespace than this process. Returns their number. */
unsigned proctree_signal_inside(const char *entry, int sig);
/* Send SIGKILL to every process of this user whose environment has TONY_APPLICATION_ID=id, except
 * to this process, again and again until no such process is alive, at most for limit_ms. Executors
 * and keepers are left alone in the first executors_ms: an executor knows all processes that its
 * task has started, also those without the variable, and kills them when its keeper has died.
 * Blocks, and may run on a thread. Returns the number of processes that are still alive, or -errno;
 * *out_signals (may be NULL): signals sent. */
int proctree_kill_job(const char *application_id, int executors_ms, int limit_ms,
                      unsigned *out_signals);

#endif
