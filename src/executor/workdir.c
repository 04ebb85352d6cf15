/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/workdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/spare.h"
#include "storage/store.h"

static int copy_file(const char *from, int dirfd, const char *name, struct err *e)
{
    AUTO(close_p) int in = open(from, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (in == -1 || fstat(in, &st) == -1)
        return err_set(e, errno, "cannot open '%s': %m", from);
    AUTO(close_p)
    int out = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                     (st.st_mode & 0777) | S_IWUSR);
    if (out == -1)
        return err_set(e, errno, "cannot make file '%s' in the working directory: %m", name);
    static char block[64 << 10];
    for (;;) {
        ssize_t n = read(in, block, sizeof block);
        if (n == -1 && errno == EINTR)
            continue;
        int rc = n < 0 ? -errno : n == 0 ? 0 : fs_write_all(out, block, (size_t)n);
        if (rc < 0)
            return err_set(e, -rc, "cannot copy '%s' into the working directory: %m", from);
        if (n == 0)
            return 0;
    }
}

/* Make the parent directories of a name such as "data/vocab.txt". The name must stay within the
 * working directory. */
static int make_parents(int dirfd, const char *name, struct err *e)
{
    if (!name[0] || name[0] == '/' || str_eq(name, "..") || str_starts(name, "../") ||
        strstr(name, "/../") || str_ends(name, "/.."))
        return err_set(e, EINVAL, "'%s' is not a valid name in the working directory", name);
    AUTO(free_p) char *part = str_dup(name);
    if (!part)
        return err_set(e, ENOMEM, "cannot make '%s' in the working directory: %m", name);
    for (char *slash = part; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        if (mkdirat(dirfd, part, 0755) == -1 && errno != EEXIST)
            return err_set(e, errno, "cannot make directory '%s' in the working directory: %m",
                           part);
    }
    return 0;
}

static int mount_one(int dirfd, const Tony__Mount *m, struct err *e)
{
    if (m->kind == TONY__MOUNT__KIND__SRC_COPY)
        return tree_copy(m->path, dirfd, e);
    int rc = make_parents(dirfd, m->name, e);
    if (rc < 0)
        return rc;
    if (m->kind == TONY__MOUNT__KIND__FILE_COPY)
        return copy_file(m->path, dirfd, m->name, e);
    if (symlinkat(m->path, dirfd, m->name) == 0)
        return 0;
    if (errno == EEXIST)
        (void)err_set(e, EEXIST,
                      "the source directory has a file '%s' already, so the resource of the same "
                      "name cannot be linked",
                      m->name);
    else
        (void)err_set(e, errno, "cannot link '%s' into the working directory: %m", m->name);
    return e ? -e->num : -EEXIST;
}

/* Make the directory of a container: take a spare one, or else make it, and if need be the
 * directory `all` of all containers. */
static int make_dir(const char *all, const char *dir, const char *container_id,
                    const char *spare_dir)
{
    if (spare_dir && spare_take(spare_dir, container_id, dir) == 0)
        return 0;
    if (mkdir(dir, 0700) == 0)
        return 0;
    if (errno != ENOENT || (mkdir(all, 0700) == -1 && errno != EEXIST))
        return -errno;
    return mkdir(dir, 0700) == 0 ? 0 : -errno;
}

int workdir_make(const char *job_dir, const char *container_id, const char *spare_dir,
                 Tony__Mount *const *mounts, size_t n, char **out, struct err *e)
{
    AUTO(free_p) char *all = str_printf("%s/containers", job_dir);
    AUTO(free_p) char *dir = str_printf("%s/containers/%s", job_dir, container_id);
    if (!all || !dir)
        return err_set(e, ENOMEM, "cannot make a working directory: %m");
    int rc = make_dir(all, dir, container_id, spare_dir);
    if (rc < 0)
        return err_set(e, -rc, "cannot make working directory '%s': %m", dir);
    if (n > 0) {
        AUTO(close_p) int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dirfd == -1)
            return err_set(e, errno, "cannot open working directory '%s': %m", dir);
        for (size_t i = 0; i < n; i++) {
            rc = mount_one(dirfd, mounts[i], e);
            if (rc < 0)
                return rc;
        }
    }
    *out = TAKE(dir);
    return 0;
}

/* Make a directory. 0 also if it exists. */
static int make_one(const char *dir)
{
    return mkdir(dir, 0700) == 0 || errno == EEXIST ? 0 : -errno;
}

/* is_new: this is the first attempt of the task, so its directory is probably missing. */
static int make_log_dir(const char *log_dir, const char *task_dir, const char *dir, bool is_new)
{
    int rc = is_new ? -ENOENT : make_one(dir);
    if (rc != -ENOENT)
        return rc;
    rc = make_one(task_dir);
    if (rc == -ENOENT && (rc = make_one(log_dir)) == 0)
        rc = make_one(task_dir);
    return rc < 0 ? rc : make_one(dir);
}

static int open_files(const char *out_path, struct logs *l)
{
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
    l->out_fd = open(out_path, flags, 0600);
    l->err_fd = l->out_fd == -1 ? -1 : open(l->err_path, flags, 0600);
    return l->err_fd == -1 ? -errno : 0;
}

int logs_open(const struct log_place *at, uint32_t attempt, struct logs *out, struct err *e)
{
    struct logs l = { .out_fd = -1, .err_fd = -1 };
    AUTO(free_p) char *task_dir = str_printf("%s/%s-%u", at->log_dir, at->role, at->index);
    l.dir = task_dir ? str_printf("%s/%u", task_dir, attempt) : NULL;
    AUTO(free_p) char *out_path = str_printf("%s/stdout", l.dir ? l.dir : "");
    l.err_path = str_printf("%s/stderr", l.dir ? l.dir : "");
    int rc = -ENOMEM;
    if (l.dir && out_path && l.err_path) {
        bool is_new = attempt == 1;
        bool taken = is_new && at->spare_dir &&
                     spare_take_logs(at->spare_dir, at->container_id, task_dir) == 0;
        rc = taken ? open_files(out_path, &l) : -ENOENT;
        if (rc == -ENOENT && (rc = make_log_dir(at->log_dir, task_dir, l.dir, is_new)) == 0)
            rc = open_files(out_path, &l);
    }
    if (rc < 0) {
        (void)err_set(e, -rc, "cannot make the log files in '%s': %m", l.dir ? l.dir : at->log_dir);
        logs_close(&l);
        return rc;
    }
    *out = l;
    return 0;
}

void logs_close(struct logs *l)
{
    close_p(&l->out_fd);
    close_p(&l->err_fd);
    free(l->dir);
    free(l->err_path);
    *l = (struct logs){ .out_fd = -1, .err_fd = -1 };
}
