/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lock files (flock). A process that no longer needs a lock unlinks the file before it releases the
 * lock. Then another process may make and lock a new file of that name. So lockfile_take() checks
 * that the path still names the file that it has locked.
 */
#ifndef TONY_BASE_LOCKFILE_H
#define TONY_BASE_LOCKFILE_H

#include <stdbool.h>

/* Lock a file without waiting. Returns a descriptor; -EWOULDBLOCK: another process holds the lock;
 * -ENOENT: the file is missing and `create` is false; or another -errno. Allocates no memory. */
int lockfile_take(const char *path, bool create);
/* Does a process hold the lock? Without the file: no. The function takes a shared lock for a
 * moment, so several callers at the same time do not take each other for the holder. Opens the file
 * for reading only: it may belong to another user. */
bool lockfile_is_held(const char *path);
/* Is fd this file, inherited from a process that has locked it? Then it is locked afterwards. */
bool lockfile_inherit(int fd, const char *path);

#endif
