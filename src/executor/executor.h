/*
 * The program tony-executor as a library: runs and supervises commands in one container (see
 * container.h for `tony-executor --container`); as a keeper, all processes of one job.
 *
 *   tony-executor --keeper APPLICATION_ID [--memory-mib N] [--vcores N] [--gpus 0,2]
 *                 [--gpu-locks DIR] [--ready-fd N] [--lock-fd N] [--master-pid N]
 *   tony-executor --cleanup APPLICATION_ID     kill and remove what a dead keeper of the job left
 *
 * --lock-fd: the job's lock, if whoever started this process could take it for it.
 * --master-pid: the job's first master (epoch 1), which was started as a child of this process before
 * it became a keeper.
 *
 * Exit codes of a keeper: 0 the job is over and lies in history; 1 it could not work (keeper.log
 * says why); 2 misuse; 3 a GPU is taken by somebody else; 4 the job was taken down and has no
 * verdict of a master (whoever holds the pool ends it); 5 another keeper of this job runs.
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
};

int executor_program(int argc, char **argv);

#endif
