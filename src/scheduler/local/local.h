/*
 * The back-end of one machine: the other end is the job's keeper (runtime directory, <number>.k),
 * which grants containers within what the pool has admitted, forks the executors, and knows every
 * exit.
 *
 * The keeper outlives the master, and its end is the master's end: SE_BROKEN follows at once,
 * nothing is dialled again.
 */
#ifndef TONY_SCHEDULER_LOCAL_LOCAL_H
#define TONY_SCHEDULER_LOCAL_LOCAL_H

#include "scheduler/scheduler.h"

extern const struct sched_ops sched_local;

#endif
