/* SPDX-License-Identifier: Apache-2.0 */
/* Removes old entries of the store, and entries that a dead client left incomplete. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"
#include "base/util.h"
#include "storage/jobfile.h"
#include "storage/store.h"
#include "storage/store_int.h"

enum {
    /* Keep every entry this long after its last use. Until the pool has accepted a client's job, no
     * job.conf refers to the entries that the client has stored. */
    AGE_MIN_MS = 3600 * 1000,
    /* Keep an incomplete entry this long. A client locks it right after making it, and must not
     * lose it in between. */
    TEMP_AGE_MS = 60 * 1000,
};

static void dir_p(DIR **d)
{
    if (*d)
        (void)closedir(*d); /* the directory was only read, so no failure can lose data */
}

static DIR *open_dir(int dirfd, const char *name)
{
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd == -1 ? NULL : fdopendir(fd);
    if (!dir)
        close_p(&fd);
    return dir;
}

static int64_t to_ms(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- incomplete entries ---- */

/* Remove an incomplete entry if its client is dead, which shows in the lock. Its age is counted
 * from the change time (ctime): a copied file has the modification time of its source. */
static void sweep_one(int store_fd, const char *name)
{
    AUTO(close_p)
    int fd = openat(store_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    if (fd == -1 || fstat(fd, &st) == -1 || clock_wall_ms() - to_ms(st.st_ctim) < TEMP_AGE_MS ||
        flock(fd, LOCK_EX | LOCK_NB) == -1)
        return;
    (void)fs_remove_tree(store_fd, name, NULL); /* if this fails, the next sweep tries again */
}

void temp_sweep(struct store *s)
{
    if (s->swept)
        return;
    s->swept = true;
    AUTO(dir_p) DIR *dir = open_dir(s->fd, ".");
    const struct dirent *d;
    while (dir && (d = readdir(dir))) {
        if (str_starts(d->d_name, ".tmp-"))
            sweep_one(s->fd, d->d_name);
    }
}

/* ---- entries ---- */

/* Add each "d-<digest>" and "f-<digest>" in the text of a job.conf to `used`. This is a plain text
 * search. If a text only looks like an entry's name, an entry may stay longer than necessary, which
 * does no harm. */
static int add_used_entries(struct span text, void *arg)
{
    struct map *used = arg;
    for (size_t i = 0; i + ENTRY_MAX - 1 <= text.len; i++) {
        if (text.p[i + 1] != '-' || (text.p[i] != 'd' && text.p[i] != 'f'))
            continue;
        char name[ENTRY_MAX];
        memcpy(name, text.p + i, ENTRY_MAX - 1);
        name[ENTRY_MAX - 1] = '\0';
        if (entry_name_ok(name) && map_set(used, name, used, NULL) < 0)
            return -ENOMEM;
    }
    return 0;
}

static bool is_old(int store_fd, const char *name, int64_t max_age_ms, int64_t now_wall_ms)
{
    struct stat st;
    return fstatat(store_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           now_wall_ms - to_ms(st.st_mtim) > max_age_ms;
}

static int remove_old(const struct store *s, const struct map *used, int64_t max_age_ms,
                      int64_t now_wall_ms, struct err *e)
{
    AUTO(dir_p) DIR *dir = open_dir(s->fd, ".");
    if (!dir)
        return err_set(e, errno, "cannot read the store '%s': %m", s->dir);
    int removed = 0;
    const struct dirent *d;
    while ((d = readdir(dir))) {
        if (!entry_name_ok(d->d_name) || map_has(used, d->d_name) ||
            !is_old(s->fd, d->d_name, max_age_ms, now_wall_ms))
            continue;
        /* Rename the entry first, so that no client finds a half-removed entry. */
        char temp[48];
        temp_name(temp);
        if (renameat(s->fd, d->d_name, s->fd, temp) == -1)
            return err_set(e, errno, "cannot remove '%s' from the store: %m", d->d_name);
        log_event(LOG_INFO, "store.removed", f_str("entry", d->d_name));
        int rc = fs_remove_tree(s->fd, temp, e);
        if (rc < 0)
            return rc;
        removed++;
    }
    return removed;
}

static void map_p(struct map *m)
{
    map_done(m, NULL);
}

static void store_p(struct store **s)
{
    store_free(*s);
}

int store_gc(const char *store_dir, const char *jobs_dir, int64_t max_age_ms, int64_t now_wall_ms,
             struct err *e)
{
    AUTO(store_p) struct store *s = NULL;
    AUTO(map_p) struct map used = { 0 };
    int rc = store_open(store_dir, &s, e);
    if (rc < 0)
        return rc;
    temp_sweep(s);
    /* If a client holds the lock, remove nothing: the next run of store_gc() tries again. */
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) == -1)
        return errno == EWOULDBLOCK
                   ? 0
                   : err_set(e, errno, "cannot lock the store '%s': %m", store_dir);
    /* If one job.conf cannot be read, remove nothing: that job may need any entry. */
    rc = job_files_each(jobs_dir, "job.conf", add_used_entries, &used, e);
    if (rc < 0)
        return rc;
    return remove_old(s, &used, MAX(max_age_ms, (int64_t)AGE_MIN_MS), now_wall_ms, e);
}
