/*
 * How a command text is run: directly when it has no shell metacharacter and its first word
 * resolves to a file, else by a shell.
 */
#ifndef TONY_EXECUTOR_COMMAND_H
#define TONY_EXECUTOR_COMMAND_H

#include <stdbool.h>

#include "base/vec.h"

struct err;

struct command {
    char *path; /* to give to execve */
    struct strv argv;
    char *shell; /* for a script without a #! line: what runs it, as shells do */
};

/* Does a shell have to read it? (quotes, expansions, lists, redirections, an assignment in front)
 */
bool command_needs_shell(const char *text);
/* Words at blanks; text must not need a shell. */
int command_split(const char *text, struct strv *out);
/*
 * workdir: the first word is looked for there as well; a file of it that is not executable is made
 * so. env: the task's; PATH, HADOOP_HDFS_HOME and SKIP_HADOOP_PATH matter here.
 */
int command_prepare(const char *text, const char *workdir, const struct strv *env,
                    struct command *out, struct err *e);
void command_done(struct command *c);
/* A program on a PATH; the caller's; NULL when it is not there. */
char *command_on_path(const char *word, const char *path);

#endif
