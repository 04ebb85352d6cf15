/*
 * Can the Python environment of a job run at all? Looked at before the job is submitted, since a
 * wrong interpreter is found late and said badly: "No such file or directory" of a file that is
 * there.
 */
#ifndef TONY_CLIENT_VENV_H
#define TONY_CLIENT_VENV_H

#include <stdbool.h>

struct err;

/*
 * dir         where its content lies now
 * binary      the interpreter that the job names, relative to it; NULL or absolute: what is found
 * elsewhere   it runs on other machines: what only may be missing there is said, not refused
 * Errors      -EINVAL, with the reason
 */
int venv_check(const char *dir, const char *binary, bool elsewhere, struct err *e);
/* A file that is to be unpacked as an environment. -EINVAL: it is a program. */
int venv_check_archive(const char *path, struct err *e);

#endif
