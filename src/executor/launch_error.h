/* SPDX-License-Identifier: Apache-2.0 */
/* The sentence for a command that could not be executed. */
#ifndef TONY_EXECUTOR_LAUNCH_ERROR_H
#define TONY_EXECUTOR_LAUNCH_ERROR_H

struct err;

/*
 * Say that execve() of the file at path failed with errno num. ENOENT is also the answer if the
 * file is there, but not its interpreter (the first line of a script, or the loader of an ELF
 * program). So this looks into the file and names what is missing. For E2BIG it gives the sizes of
 * argv and env, and the longest variable. src/cause recognizes the words.
 */
void launch_error(struct err *e, const char *path, char *const *argv, char *const *env, int num);

#endif
