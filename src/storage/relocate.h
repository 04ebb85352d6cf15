/*
 * A Python environment in another place than where it was made. Its interpreter finds itself; its
 * scripts name it by a path that is no more, or by whatever 'python' the PATH has.
 */
#ifndef TONY_STORAGE_RELOCATE_H
#define TONY_STORAGE_RELOCATE_H

struct err;

/* Make the scripts in bin/, or in bin/ of a directory at the top, start the interpreter beside
 * them, wherever that is. dirfd: the top of a copy that is ours to change. How many were changed,
 * or -errno. */
int python_relocate(int dirfd, const char *source, struct err *e);

#endif
