/* SPDX-License-Identifier: Apache-2.0 */
/* Checks before the submission whether the Python environment of a job can run. A wrong interpreter
 * would be found only when the task starts, with a misleading message: execve() reports "No such
 * file or directory" for a script whose interpreter is missing. */
#ifndef TONY_CLUSTER_VENV_H
#define TONY_CLUSTER_VENV_H

#include <stdbool.h>

struct cluster_host;
struct err;

/*
 * dir         the directory of the environment
 * binary      the interpreter that the job names, relative to dir; NULL or absolute: search for one
 * elsewhere   the job runs on other machines: a part that may exist there causes only a note
 * Errors      -EINVAL, with the reason
 */
int venv_check(const struct cluster_host *h, const char *dir, const char *binary, bool elsewhere,
               struct err *e);

#endif
