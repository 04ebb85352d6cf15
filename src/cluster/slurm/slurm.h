/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cluster `slurm`, for clients (docs/decisions/0019-slurm.md). It uses the commands sbatch,
 * squeue, sinfo and scancel, and the files of the job in TONY_HOME, which the nodes see as well.
 */
#ifndef TONY_CLUSTER_SLURM_SLURM_H
#define TONY_CLUSTER_SLURM_SLURM_H

#include "cluster/cluster.h"

extern const struct cluster_ops cluster_slurm;

#endif
