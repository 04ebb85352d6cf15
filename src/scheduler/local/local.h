/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler back-end `local`, for jobs on one machine. The master connects to the job's keeper,
 * at the socket <job number>.k in the runtime directory. The keeper grants containers within the
 * resources that the pool has admitted, forks the executors, and knows how each of them exits.
 *
 * The keeper normally lives longer than the master. If the keeper dies, SE_BROKEN follows at once;
 * the back-end does not reconnect.
 */
#ifndef TONY_SCHEDULER_LOCAL_LOCAL_H
#define TONY_SCHEDULER_LOCAL_LOCAL_H

#include "scheduler/scheduler.h"

extern const struct sched_ops sched_local;

#endif
