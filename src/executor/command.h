/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the command of a task into arguments for execve(). A command without shell metacharacters,
 * whose first word is a file that can be found, is run directly; any other one by a shell. */
#ifndef TONY_EXECUTOR_COMMAND_H
#define TONY_EXECUTOR_COMMAND_H

#include <stdbool.h>

#include "base/vec.h"

struct err;

struct command {
    char *path; /* of the program, for execve() */
    struct strv argv;
    char *shell; /* runs the program if it is a script without a #! line */
};

/* Does the command have quotes, expansions, lists, redirections, or an assignment in front? */
bool command_needs_shell(const char *text);
/*
 * workdir  the first word is searched there after PATH; a file found there is made executable
 * env      of the task; PATH, HADOOP_HDFS_HOME and SKIP_HADOOP_PATH are used
 */
int command_prepare(const char *text, const char *workdir, const struct strv *env,
                    struct command *out, struct err *e);
void command_done(struct command *c);
/* Find a program on a PATH. The caller frees the result; NULL = not found. */
char *command_on_path(const char *word, const char *path);

#endif
