/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The back-end for Hadoop YARN (docs/decisions/0006-yarn.md). Reads <job_dir>/yarn.json and the
 * token file of its container, and speaks Hadoop RPC with ResourceManager and NodeManagers.
 */
#ifndef TONY_SCHEDULER_YARN_YARN_H
#define TONY_SCHEDULER_YARN_YARN_H

#include "scheduler/scheduler.h"

extern const struct sched_ops sched_yarn;

#endif
