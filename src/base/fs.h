/*
 * Files: whole-file reads and writes, directories, removal. Paths are absolute or relative to a
 * directory descriptor (AT_FDCWD).
 */
#ifndef TONY_BASE_FS_H
#define TONY_BASE_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"

struct err;

int fs_read(int dirfd, const char *path, struct buf *out, struct err *e);
/* All of text, by a temporary name and rename; readers see the old file or the new one. sync:
 * fdatasync before the rename and the directory after. */
int fs_write_atomic(int dirfd, const char *path, struct span text, mode_t mode, bool sync,
                    struct err *e);
int fs_write_all(int fd, const void *p,
                 size_t len); /* loops over short writes and EINTR; 0 or -errno */
int fs_mkdirs(const char *path, mode_t mode,
              struct err *e); /* mkdir -p; an existing directory is fine */
/* Remove a tree without following links or leaving its file system; what is gone already is fine.
 * Directories without write permission are made writable first. */
int fs_remove_tree(int dirfd, const char *path, struct err *e);
/* A directory that only we can have made: owned by us, mode 0700, not a link; made if absent.
 * -EPERM when it is another user's. */
int fs_private_dir(const char *path, struct err *e);
char *fs_join(const char *a, const char *b); /* a/b; NULL = no memory */
/* The last n lines of a file, at most max bytes, valid UTF-8 (bad bytes become '?'). */
int fs_tail(int dirfd, const char *path, unsigned n, size_t max, struct buf *out, struct err *e);
int fd_nonblock(int fd, bool on);
/* Descriptors 0 to 2, where they were closed, so that nothing else gets their numbers: input is
 * empty, writing to output fails, errors go nowhere. */
void fd_open_standard(void);

/* The disk or a quota is full, or a file would pass `ulimit -f`. */
bool fs_no_room(int num);
/* If rc means that there is no room below TONY_HOME: puts into e what to try, unless that is said.
 * Returns rc. */
int fs_hint_room(int rc, struct err *e);
/* For main(): what is written past `ulimit -f` fails, as on a full disk, where SIGXFSZ would kill
 * us without a word. Programs that we start must not inherit it. */
void fs_limit_fails(void);

#endif
