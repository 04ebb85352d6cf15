/* SPDX-License-Identifier: Apache-2.0 */
/* The program `tony`: a table of commands. Each command checks its arguments, asks the pool, a
 * master or the files of a job, and prints the result. */
#ifndef TONY_CLIENT_CLIENT_H
#define TONY_CLIENT_CLIENT_H

/* Exit codes of every command; docs/exit-codes.md. */
enum exit_code {
    EXIT_DONE = 0,
    EXIT_JOB_FAILED = 1,
    EXIT_MISUSE = 2,  /* the command line or the job is wrong */
    EXIT_STOPPED = 3, /* the job was killed, or a time limit of it was exceeded */
    EXIT_CLUSTER = 4, /* the pool, the cluster, the disk or the machine has failed */
};

/* Returns the exit code. version: of this build. */
int client_main(int argc, char **argv, const char *version);

#endif
