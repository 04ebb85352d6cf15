/*
 * The program `tony`: one table of commands, each of which validates, asks the pool, a master or
 * the files, and prints.
 */
#ifndef TONY_CLIENT_CLIENT_H
#define TONY_CLIENT_CLIENT_H

/* Exit codes of every command; docs/exit-codes.md. */
enum exit_code {
    EXIT_DONE = 0,
    EXIT_JOB_FAILED = 1,
    EXIT_MISUSE = 2,  /* of the command line, or a refused job */
    EXIT_STOPPED = 3, /* the job was killed, or ran out of its time */
    EXIT_CLUSTER = 4, /* the pool, the files or the machine failed us */
};

/* Returns the exit code. version: of this build. */
int client_main(int argc, char **argv, const char *version);

#endif
