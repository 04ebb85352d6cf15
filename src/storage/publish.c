/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/publish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "storage/secrets.h"
#include "storage/tree.h"

enum {
    DEPTH_MAX = 32,       /* nested directories of a history */
    PATH_TEXT_MAX = 8192, /* bytes of a path */
    FILE_MODE = 0640,
    DIR_MODE = 0750,
};

const char *publish_place(const char *value)
{
    if (value && str_starts(value, "file:///"))
        value += strlen("file://");
    return value && *value == '/' ? value : NULL;
}

/* ---- each entry of a directory ---- */

/* Called for each entry of the directory fd, and for the entries of its directories. 0 or -errno.
 */
typedef int entry_fn(int fd, const char *name, const struct stat *st, void *arg);

/* Closes fd, also on failure. */
static int each_entry(int fd, unsigned depth, entry_fn *fn, void *arg)
{
    DIR *d = fdopendir(fd);
    int rc = d ? 0 : -errno;
    if (!d)
        close(fd);
    for (struct dirent *x; rc == 0 && (x = readdir(d));) {
        struct stat st;
        if (str_eq(x->d_name, ".") || str_eq(x->d_name, ".."))
            continue;
        if (fstatat(dirfd(d), x->d_name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
            rc = errno == ENOENT ? 0 : -errno;
            continue;
        }
        rc = fn(dirfd(d), x->d_name, &st, arg);
        if (rc < 0 || !S_ISDIR(st.st_mode))
            continue;
        int below = depth < DEPTH_MAX ? openat(dirfd(d), x->d_name,
                                               O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                                      : -1;
        rc = below == -1 ? (depth < DEPTH_MAX ? -errno : -ELOOP)
                         : each_entry(below, depth + 1, fn, arg);
    }
    if (d)
        closedir(d);
    return rc;
}

static int each_below(const char *dir, entry_fn *fn, void *arg)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd == -1 ? -errno : each_entry(fd, 0, fn, arg);
}

/* ---- writing ---- */

/* Readers refuse links: they could lead anywhere. */
static int set_mode(int fd, const char *name, const struct stat *st, void *arg)
{
    (void)arg;
    int rc = S_ISDIR(st->st_mode)   ? fchmodat(fd, name, DIR_MODE, 0)
             : S_ISREG(st->st_mode) ? fchmodat(fd, name, FILE_MODE, 0)
                                    : unlinkat(fd, name, 0);
    return rc == -1 ? -errno : 0;
}

static int copy(const char *dir, const char *to, struct err *e)
{
    static const char *const left_out[] = { "key", SECRETS_FILE, "owned", PUBLISH_FILE };
    struct strv out = { 0 };
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(left_out) && rc == 0; i++)
        rc = strv_push(&out, left_out[i]);
    AUTO(close_p) int from_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO(close_p) int to_fd = open(to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const struct tree_copy_opts opts = { .leave_out = &out };
    if (rc < 0)
        rc = err_set(e, ENOMEM, "no memory to copy '%s'", dir);
    else if (from_fd == -1 || to_fd == -1)
        rc = err_set(e, errno, "cannot copy '%s' to '%s': %m", dir, to);
    else
        rc = tree_copy_fd(from_fd, dir, to_fd, &opts, e);
    strv_done(&out);
    if (rc == 0 && ((rc = each_below(to, set_mode, NULL)) < 0 || chmod(to, DIR_MODE) == -1))
        rc = err_set(e, rc < 0 ? -rc : errno, "cannot set the modes in '%s': %m", to);
    return rc;
}

int publish_job(const char *dir, const char *id, struct err *e)
{
    AUTO(free_p) char *file = fs_join(dir, PUBLISH_FILE);
    AUTO(buf_done) struct buf text = { .max = PATH_TEXT_MAX };
    if (!file || access(file, F_OK) == -1)
        return file ? 0 : err_set(e, ENOMEM, "no memory to copy '%s'", dir);
    int rc = fs_read(AT_FDCWD, file, &text, e);
    if (rc < 0)
        return rc;
    const char *place = buf_cstr(&text);
    AUTO(free_p) char *half = str_printf("%s/.%s.%d", place, id, (int)getpid());
    AUTO(free_p) char *to = str_printf("%s/%s", place, id);
    if (!half || !to)
        return err_set(e, ENOMEM, "no memory to copy '%s'", dir);
    rc = fs_mkdirs(place, DIR_MODE, e);
    if (rc == 0 && mkdir(half, 0700) == -1)
        return err_set(e, errno, "cannot create directory '%s': %m", half);
    if (rc == 0)
        rc = copy(dir, half, e);
    if (rc == 0 && rename(half, to) == -1)
        rc = err_set(e, errno == ENOTEMPTY ? EEXIST : errno, "cannot move '%s' to '%s': %m", half,
                     to);
    if (rc < 0)
        (void)fs_remove_tree(AT_FDCWD, half, NULL);
    return rc;
}

/* ---- reading ---- */

static bool is_safe(const struct stat *st, uid_t owner)
{
    return (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)) && st->st_uid == owner &&
           !(st->st_mode & (S_IWGRP | S_IWOTH)) && (S_ISDIR(st->st_mode) || st->st_nlink == 1);
}

static int check_entry(int fd, const char *name, const struct stat *st, void *arg)
{
    (void)fd;
    (void)name;
    return is_safe(st, *(const uid_t *)arg) ? 0 : -EPERM;
}

int publish_check(const char *place, const char *id, uid_t *out_owner, struct err *e)
{
    AUTO(free_p) char *dir = fs_join(place, id);
    struct stat st;
    if (!dir)
        return err_set(e, ENOMEM, "no memory to look at the history of '%s'", id);
    if (lstat(dir, &st) == -1)
        return err_set(e, errno, "cannot read '%s': %m", dir);
    *out_owner = st.st_uid;
    int rc = S_ISDIR(st.st_mode) && is_safe(&st, st.st_uid)
                 ? each_below(dir, check_entry, out_owner)
                 : -EPERM;
    if (rc == -EPERM)
        return err_set(e, EPERM,
                       "'%s' is not used: it has files of several users, links, or files to which "
                       "others can write",
                       dir);
    return rc == 0 ? 0 : err_set(e, -rc, "cannot read '%s': %m", dir);
}
