/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program tony-executor as a library. As an executor it runs the attempts of one task in one
 * container (container.h: `tony-executor --container`). As a keeper it is the parent of all
 * processes of one job.
 *
 *   tony-executor --keeper APPLICATION_ID [--memory-mib N] [--vcores N] [--gpus 0,2]
 *                 [--gpu-locks DIR] [--ready-fd N] [--lock-fd N] [--listen-fd N]
 *                 [--master-pid N]
 *   tony-executor --cleanup APPLICATION_ID     kill processes and remove files of a dead keeper
 *
 * --lock-fd: a descriptor that holds the job's lock, if the pool has taken the lock.
 * --listen-fd: the socket of this keeper, if the pool has made it; used only with --lock-fd.
 * --master-pid: the job's first master (epoch 1). This process has forked it before it executed
 * tony-executor.
 *
 * Exit codes of a keeper:
 *
 *   0  the job is over and in the history
 *   1  the keeper could not work; keeper.log says why
 *   2  wrong arguments
 *   3  another job uses one of the GPUs
 *   4  the job was taken down without a verdict of a master; the pool writes one
 *   5  another keeper of this job runs
 *   6  --head only: the job is over and in the history, and has failed or was killed
 *   7  --head only: this run of the job is over, and the next run continues it
 *
 * For a job on Slurm (docs/decisions/0019-slurm.md):
 *
 *   tony-executor --keeper APPLICATION_ID --head [--run N]
 *   tony-executor --keeper APPLICATION_ID --node NUMBER --node-name NAME --master-host ADDRESS
 *                 [--run N] [--memory-mib N] [--vcores N] [--gpus 0,2]
 *
 * --run: how often Slurm has put the job back into its queue
 */
#ifndef TONY_EXECUTOR_EXECUTOR_H
#define TONY_EXECUTOR_EXECUTOR_H

enum keeper_exit {
    KEEPER_OK = 0,
    KEEPER_FAILED = 1,
    KEEPER_MISUSE = 2,
    KEEPER_GPU_TAKEN = 3,
    KEEPER_ABORTED = 4,
    KEEPER_ALREADY = 5,
    KEEPER_JOB_FAILED = 6,
    KEEPER_LEFT = 7,
};

int executor_program(int argc, char **argv);

#endif
