/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A crew: the executors that one process runs. Usually that is a single executor. But the keeper of
 * the pool puts up to CREW_MAX plain containers that it launches at the same time into one process,
 * because a process for each costs more than the work that it does (decision 0032).
 *
 * An executor that is alone finds the processes of its task below its own process, which is a
 * subreaper. In a crew each task has a control group, and its processes are those of the group and
 * those below its first process. An orphan that has left the group belongs to no task of the crew;
 * the keeper kills it at the end of the job.
 *
 * If the process dies, all its tasks are lost, as if each executor had been killed. So it ignores
 * TERM, INT and HUP that do not come from its keeper, and the keeper kills it only if none of its
 * containers may run on (kill_late() in keeper_containers.c).
 */
#ifndef TONY_EXECUTOR_CREW_H
#define TONY_EXECUTOR_CREW_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

struct executor;

enum {
    CREW_MIN = 8, /* fewer containers get a process each */
    CREW_MAX = 16,
};

/* The crew tells the keeper with it that one of its executors has ended and others run on. */
#define CREW_SIGNAL SIGUSR2

struct crew {
    struct executor *v;
    size_t n;
    int signal_fd;
};

/* Reap the children of this process that have exited, and end the attempts that have no process any
 * more. */
void children_reap(struct crew *c);

/* Send sig to the processes of the task, or only to those that have a handler for it. Returns the
 * number of processes that got it. */
unsigned processes_signal(const struct executor *x, int sig, bool catchers);
/* Kill them. hard: stop all of them first, because they may fork as fast as they die. */
void processes_kill(const struct executor *x, bool hard);

#endif
