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

#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"

#define LOGS "logs"

static int take(const char *dir, const char *below, const char *container_id, const char *path)
{
    const char *number = strrchr(container_id, '_');
    AUTO(free_p)
    char *from = number ? str_printf("%s%s/%lu", dir, below,
                                     strtoul(number + 1, NULL, 10) % (unsigned long)SPARE_MAX)
                        : NULL;
    if (!from)
        return number ? -ENOMEM : -ENOENT;
    return renameat2(AT_FDCWD, from, AT_FDCWD, path, RENAME_NOREPLACE) == 0 ? 0 : -errno;
}

int spare_take(const char *spare_dir, const char *container_id, const char *path)
{
    return take(spare_dir, "", container_id, path);
}

int spare_take_logs(const char *spare_dir, const char *container_id, const char *path)
{
    return take(spare_dir, "/" LOGS, container_id, path);
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

static int make_file(int dir, const char *path)
{
    int fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0 ? 0 : -errno;
}

static int make_one(int all, const char *name)
{
    char dir[24], path[32];
    snprintf(dir, sizeof dir, "%s/1", name);
    if (mkdirat(all, name, 0700) == -1 || mkdirat(all, dir, 0700) == -1)
        return -errno;
    snprintf(path, sizeof path, "%s/stdout", dir);
    int rc = make_file(all, path);
    snprintf(path, sizeof path, "%s/stderr", dir);
    return rc < 0 ? rc : make_file(all, path);
}

static void name_of(unsigned i, char out[static 16])
{
    snprintf(out, 16, "%u", i % SPARE_MAX);
}

static bool is_missing(int logs, const char *name)
{
    return logs == -1 || faccessat(logs, name, F_OK, 0) == -1;
}

static bool any_missing(int logs, unsigned n)
{
    char name[16];
    for (unsigned i = 1; i <= n; i++) {
        name_of(i, name);
        if (is_missing(logs, name))
            return true;
    }
    return false;
}

/* Make in `room` what is missing in `logs`. Other keepers may take and make some at the same time.
 */
static int make_missing(int logs, int room, unsigned n)
{
    char name[16];
    int rc = 0;
    for (unsigned i = 1; rc == 0 && i <= n; i++) {
        name_of(i, name);
        rc = is_missing(logs, name) ? make_one(room, name) : 0;
    }
    return rc;
}

/* Move the directories from `room`. Those whose name is in use by now stay. */
static void move_each(int logs, int room, unsigned n)
{
    for (unsigned i = 1; i <= n; i++) {
        char name[16];
        name_of(i, name);
        (void)renameat2(room, name, logs, name, RENAME_NOREPLACE);
    }
}

void spare_make_logs(const char *spare_dir, const char *room, unsigned n)
{
    enum { DIR_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };
    AUTO(free_p) char *path = str_printf("%s/" LOGS, spare_dir);
    AUTO(close_p) int to = path ? open(path, DIR_FLAGS) : -1;
    n = MIN(n, (unsigned)SPARE_MAX);
    if (!path || !any_missing(to, n) || mkdir(room, 0700) == -1)
        return; /* tasks make what is missing themselves */
    AUTO(close_p) int from = open(room, DIR_FLAGS);
    int rc = from >= 0 ? make_missing(to, from, n) : -errno;
    /* rename() replaces a directory only if it is empty: all that were there have been taken. */
    if (rc == 0 && rename(room, path) == 0)
        return;
    if (from >= 0 && to >= 0 && rc != -ENOSPC && rc != -EDQUOT) /* else jobs need the space */
        move_each(to, from, n);
    (void)fs_remove_tree(AT_FDCWD, room, NULL); /* if it fails, the next pool removes it */
}
