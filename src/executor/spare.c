/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/spare.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "base/util.h"

int spare_take(const char *spare_dir, unsigned n, const char *path)
{
    AUTO(free_p) char *from = str_printf("%s/%u", spare_dir, n % SPARE_MAX);
    if (!from)
        return -ENOMEM;
    return renameat2(AT_FDCWD, from, AT_FDCWD, path, RENAME_NOREPLACE) == 0 ? 0 : -errno;
}

/* Can another container use the directory? Only if it is empty, and has the owner and the mode of a
 * new directory. */
static bool is_like_new(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    bool good =
        fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 07777) == 0700;
    DIR *d = good ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    for (struct dirent *x; good && (x = readdir(d));)
        good = str_eq(x->d_name, ".") || str_eq(x->d_name, "..");
    closedir(d);
    return good;
}

void spare_keep(const char *spare_dir, const char *containers)
{
    if (mkdir(spare_dir, 0700) == -1 && errno != EEXIST)
        return; /* the caller removes all directories that are still there */
    AUTO(close_p) int to = open(spare_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = to >= 0 ? opendir(containers) : NULL;
    for (struct dirent *x; d && (x = readdir(d));) {
        const char *last = strrchr(x->d_name, '_');
        char name[16];
        if (!last || !str_starts(x->d_name, "container_") || !is_like_new(dirfd(d), x->d_name))
            continue;
        snprintf(name, sizeof name, "%lu", strtoul(last + 1, NULL, 10) % SPARE_MAX);
        /* If the name is in use, the caller removes the directory. */
        (void)renameat2(dirfd(d), x->d_name, to, name, RENAME_NOREPLACE);
    }
    if (d)
        closedir(d);
}
