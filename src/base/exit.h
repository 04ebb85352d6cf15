/* SPDX-License-Identifier: Apache-2.0 */
/* The exit codes of every command of tony; docs/exit-codes.md. */
#ifndef TONY_BASE_EXIT_H
#define TONY_BASE_EXIT_H

enum exit_code {
    EXIT_DONE = 0,
    EXIT_JOB_FAILED = 1,
    EXIT_MISUSE = 2,  /* the command line or the job is wrong */
    EXIT_STOPPED = 3, /* the job was killed, or a time limit of it was exceeded */
    EXIT_CLUSTER = 4, /* the pool, the cluster, the disk or the machine has failed */
};

#endif
