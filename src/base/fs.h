/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files: reading and writing whole files, directories, removal of trees.
 *
 * A path is absolute, or relative to the directory descriptor dirfd (AT_FDCWD: to the working
 * directory). If a function has a parameter e, it returns 0 or -errno and fills e on failure.
 */
#ifndef TONY_BASE_FS_H
#define TONY_BASE_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"

struct err;

/* Append the whole file to out. -EFBIG: out would hold more than out->max bytes. */
int fs_read(int dirfd, const char *path, struct buf *out, struct err *e);
/* The same for a file that another user may have made: a named pipe or a device is refused, so the
 * call cannot wait for a writer. -EINVAL: it is not a regular file. */
int fs_read_file(int dirfd, const char *path, struct buf *out, struct err *e);
/* Open such a file for reading. flags: O_NOFOLLOW or 0. Returns the descriptor or -errno. */
int fs_open_file(int dirfd, const char *path, int flags, struct err *e);
/* Replace a file: write text under a temporary name, then rename it. Readers see either the old
 * content or the new one, never a part. sync: fdatasync the file before the rename and fsync its
 * directory after it. */
int fs_write_atomic(int dirfd, const char *path, struct span text, mode_t mode, bool sync,
                    struct err *e);
/* Write all len bytes: continues after a short write and after EINTR. 0 or -errno. */
int fs_write_all(int fd, const void *p, size_t len);
/* Make a directory and its missing parents, like mkdir -p. If path is a directory already: 0. */
int fs_mkdirs(const char *path, mode_t mode, struct err *e);
/* Remove a file or a tree. The removal follows no symbolic link and stays on one file system. It
 * makes directories without write permission writable first. If path is missing: 0. */
int fs_remove_tree(int dirfd, const char *path, struct err *e);
/* Make sure that path is a directory that only this user can have made and can enter: it belongs to
 * the effective user, has mode 0700 and is not a symbolic link. It is made if it is missing.
 * -EPERM: it belongs to another user or is a link. */
int fs_private_dir(const char *path, struct err *e);
bool fs_has_text(const char *path); /* is there a file with at least one byte? */
/* Does a name in the directory begin with the prefix? No, if the directory cannot be read. */
bool fs_any_named(const char *dir, const char *prefix);
char *fs_join(const char *a, const char *b); /* "a/b", the caller frees it; NULL = no memory */
/* Append the last n lines of a file to out, at most its last max bytes. Each byte that is not valid
 * UTF-8 becomes '?'. */
int fs_tail(int dirfd, const char *path, unsigned n, size_t max, struct buf *out, struct err *e);
/* Tell ext4 that the directories which will be made in this one are unrelated. Then it puts each
 * into another region of the disk, chosen by its name. By default it puts all near each other.
 * Without a journal it then skips, one by one, the inodes that were removed there within the last
 * minutes, so a new file takes up to ten times as long. Other file systems refuse this, which does
 * not matter. */
void fs_spread_below(const char *dir);
int fd_nonblock(int fd, bool on); /* sets or clears O_NONBLOCK; 0 or -errno */
/* For main(): open those of the descriptors 0, 1 and 2 that are closed, so that no other file gets
 * their numbers. Standard input is empty then, writing to standard output fails, and standard error
 * is discarded. */
void fd_open_standard(void);

/* Does errno num mean that there is no room: the disk or a quota is full (ENOSPC, EDQUOT), or the
 * file would exceed `ulimit -f` (EFBIG)? */
bool fs_no_room(int num);
/* If writing a file below TONY_HOME has failed with rc = -errno, and fs_no_room(errno) is true, put
 * a hint into e, unless e has one. Returns rc. */
int fs_hint_room(int rc, struct err *e);
/* For main(): ignore SIGXFSZ. Without this the signal kills the program without a message when it
 * writes past `ulimit -f`; now the write fails with EFBIG, as on a full disk. An ignored signal is
 * inherited by execve(), so programs that we start must reset it. */
void fs_ignore_sigxfsz(void);

#endif
