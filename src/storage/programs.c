/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/programs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "storage/jobfile.h"
#include "storage/paths.h"
#include "storage/tree.h"

enum {
    AGE_MIN_MS = 3600 * 1000, /* a client submits its job within this time after programs_put() */
    NAME_LEN_MAX = 120,
};

/* A directory that is being made or removed. mkdtemp() completes the name: several machines, whose
 * processes may have the same pid, may use one TONY_HOME. */
#define HALF ".new-"
#define HALF_NAME HALF "XXXXXX"
static const char *const names[] = { "tony-master", "tony-executor" };

static char *programs_dir(const struct paths *p)
{
    return fs_join(p->home, "programs");
}

/* ---- put ---- */

static int copy_program(const char *from, const char *dir, const char *name, struct err *e)
{
    static const struct tree_copy_opts opts = { .read_only = true };
    AUTO(close_p) int fd = open(from, O_RDONLY | O_CLOEXEC);
    AUTO(close_p) int to = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (fd == -1 || to == -1 || fstat(fd, &st) == -1)
        return err_set(e, errno, "cannot copy '%s' to '%s': %m", from, dir);
    return tree_copy_file(fd, &st, from, to, name, &opts, e);
}

/* Make the directory `done` with the programs `from`, by way of a directory in `all`. */
static int make_dir(const char *const from[], const char *all, const char *done, struct err *e)
{
    AUTO(free_p) char *half = fs_join(all, HALF_NAME);
    if (!half || !mkdtemp(half))
        return err_set(e, half ? errno : ENOMEM, "cannot make a directory in '%s': %m", all);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(names); i++)
        rc = copy_program(from[i], half, names[i], e);
    if (rc == 0 && rename(half, done) == -1 && access(done, X_OK) == -1)
        rc = err_set(e, errno, "cannot make directory '%s': %m", done);
    (void)fs_remove_tree(AT_FDCWD, half, NULL); /* it is there if another client was faster */
    return rc;
}

int programs_put(const struct paths *p, const char *version, char **out, struct err *e)
{
    AUTO(free_p) char *master = paths_program(names[0]), *executor = paths_program(names[1]);
    const char *const from[] = { master, executor };
    struct stat st[ARRAY_LEN(names)];
    if (!master || !executor || stat(master, &st[0]) == -1 || stat(executor, &st[1]) == -1) {
        (void)err_set(e, ENOENT, "cannot find the programs '%s' and '%s'", names[0], names[1]);
        return err_hint(e, "install tony again; tony doctor shows which programs are missing");
    }
    char name[NAME_LEN_MAX];
    (void)snprintf(name, sizeof name, "%s-%llx-%llx-%llx-%llx", version,
                   (unsigned long long)st[0].st_size, (unsigned long long)st[0].st_mtime,
                   (unsigned long long)st[1].st_size, (unsigned long long)st[1].st_mtime);
    AUTO(free_p) char *all = programs_dir(p), *done = all ? fs_join(all, name) : NULL;
    if (!done)
        return err_set(e, ENOMEM, "no memory to copy tony's programs");
    int rc = fs_mkdirs(all, 0700, e);
    if (rc == 0 && utimensat(AT_FDCWD, done, NULL, 0) == -1)
        rc = make_dir(from, all, done, e);
    if (rc == 0)
        *out = TAKE(done);
    return rc;
}

/* ---- gc ---- */

struct use {
    const char *name;
    bool used;
};

static int look_for_name(struct span text, void *arg)
{
    struct use *u = arg;
    u->used = u->used || memmem(text.p, text.len, u->name, strlen(u->name));
    return 0;
}

/* false: it was used meanwhile, or is no directory of ours. */
static bool is_old(int dirfd, const char *name, int64_t max_age_ms, int64_t now_ms)
{
    struct stat st;
    return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
           now_ms - ((int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000) > max_age_ms;
}

/* Remove a directory that is old. Rename it first: a client then either finds it and sets its time
 * before the rename, which shows here, or does not find it and makes another one. 1: removed; 0: it
 * stays. */
static int remove_old(const char *all, int dirfd, const char *name, int64_t max_age_ms,
                      int64_t now_ms, struct err *e)
{
    AUTO(free_p) char *path = fs_join(all, HALF_NAME);
    if (!path || !mkdtemp(path)) /* rename() replaces an empty directory */
        return err_set(e, path ? errno : ENOMEM, "cannot make a directory in '%s': %m", all);
    const char *gone = strrchr(path, '/') + 1;
    if (renameat(dirfd, name, dirfd, gone) == -1)
        return errno == ENOENT ? 0 : err_set(e, errno, "cannot remove old programs '%s': %m", name);
    if (!is_old(dirfd, gone, max_age_ms, now_ms) && renameat(dirfd, gone, dirfd, name) == 0)
        return 0;
    log_event(LOG_INFO, "programs.removed", f_str("name", name));
    int rc = fs_remove_tree(dirfd, gone, e);
    return rc < 0 ? rc : 1;
}

static int gc_one(const struct paths *p, const char *all, int dirfd, const char *name,
                  int64_t max_age_ms, int64_t now_ms, struct err *e)
{
    struct use use = { .name = name };
    if (str_starts(name, HALF) && is_old(dirfd, name, AGE_MIN_MS, now_ms))
        return fs_remove_tree(dirfd, name, e);
    if (name[0] == '.' || !is_old(dirfd, name, max_age_ms, now_ms))
        return 0;
    int rc = job_files_each(p->jobs, "script", look_for_name, &use, e);
    return rc < 0 || use.used ? rc : remove_old(all, dirfd, name, max_age_ms, now_ms, e);
}

int programs_gc(const struct paths *p, int64_t max_age_ms, int64_t now_ms, struct err *e)
{
    AUTO(free_p) char *all = programs_dir(p);
    if (!all)
        return err_set(e, ENOMEM, "no memory to look for old programs");
    DIR *d = opendir(all);
    if (!d)
        return errno == ENOENT ? 0 : err_set(e, errno, "cannot list '%s': %m", all);
    int n = 0, rc = 0;
    for (struct dirent *x; rc >= 0 && (x = readdir(d));) {
        rc = gc_one(p, all, dirfd(d), x->d_name, MAX(max_age_ms, (int64_t)AGE_MIN_MS), now_ms, e);
        n += rc > 0;
    }
    (void)closedir(d);
    return rc < 0 ? rc : n;
}
