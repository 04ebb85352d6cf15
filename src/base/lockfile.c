/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lockfile.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_named(int fd, const char *path)
{
    struct stat locked, current;
    return fstat(fd, &locked) == 0 && lstat(path, &current) == 0 &&
           locked.st_ino == current.st_ino && locked.st_dev == current.st_dev;
}

int lockfile_take(const char *path, bool create)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0600);
        if (fd == -1)
            return -errno;
        int rc = flock(fd, LOCK_EX | LOCK_NB) == -1 ? -errno : 0;
        if (rc == 0 && is_named(fd, path))
            return fd;
        (void)close(fd); /* another process holds the lock, or has unlinked the file */
        if (rc < 0)
            return rc;
    }
}

bool lockfile_is_held(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == -1 && errno == EWOULDBLOCK;
    if (fd >= 0)
        (void)close(fd);
    return held;
}

bool lockfile_inherit(int fd, const char *path)
{
    return fd >= 0 && is_named(fd, path) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
           fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}
