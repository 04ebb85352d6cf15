/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler back-end `slurm`, for jobs in one allocation of Slurm
 * (docs/decisions/0019-slurm.md).
 *
 * The keepers of the nodes connect to this master over TLS. The back-end chooses the node of each
 * container, and the keeper there grants and starts it. The back-end also connects to the head
 * keeper, which has started this master, for the end of the job.
 *
 * From the environment: SLURM_JOB_NUM_NODES, the number of nodes of the allocation; SLURM_JOB_ID;
 * and SLURM_RESTART_COUNT, the number of the run. It asks slurmctld only when Slurm has announced
 * the end of the run (notice.c).
 */
#ifndef TONY_SCHEDULER_SLURM_SLURM_H
#define TONY_SCHEDULER_SLURM_SLURM_H

#include "scheduler/scheduler.h"

extern const struct sched_ops sched_slurm;

#endif
