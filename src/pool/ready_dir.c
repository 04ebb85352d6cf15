/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of the next job, made before the job comes. ext4 puts each job into another region
 * of the disk (fs_spread_below()). So it often has to read from the disk when it makes the
 * directory, and the client would wait for that.
 *
 * The directory is $TONY_HOME/pool/ready/<time>-<number>. ext4 chooses the region by the name, so
 * no name is used twice: where files were removed within the last minutes, new ones take long.
 *
 * Beside it is the file <time>-<number>.lock, which becomes the lock of the job: a new file in
 * pool/locks would take long, because the lock of the last job was removed from there.
 *
 * The directory has all files that are the same for each job. A thread makes it: when the pool
 * starts, and when the last job has ended, or PREPARE_MS after its submission. If it is missing,
 * submit.c makes one at once. The next pool removes what a dead pool has left.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loop/loop.h"
#include "pool/pool_int.h"

enum { KEY_BYTES = 32 };

/* The input and the result of the thread. */
struct making {
    struct pool *pool;
    char *all, *dir, *lock;
    bool first; /* remove what an earlier pool has left */
};

static void making_free(struct making *m)
{
    if (!m)
        return;
    free(m->all);
    free(m->dir);
    free(m->lock);
    free(m);
}

int job_dir_write(const char *dir, const char *name, const void *bytes, size_t n, struct err *e)
{
    AUTO(free_p) char *path = fs_join(dir, name);
    if (!path)
        return err_set(e, ENOMEM, "the pool cannot accept the job: %m");
    AUTO(close_p) int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int rc = fd == -1 ? -errno : fs_write_all(fd, bytes, n);
    return rc < 0 ? err_set(e, -rc, "cannot write '%s': %m", path) : 0;
}

int job_dir_make(const char *dir, struct err *e)
{
    unsigned char key[KEY_BYTES];
    if (mkdir(dir, 0700) == -1)
        return err_set(e, errno, "cannot make directory '%s': %m", dir);
    if (getrandom(key, sizeof key, 0) != sizeof key)
        return err_set(e, EIO, "cannot make a key for the job");
    int rc = job_dir_write(dir, "key", key, sizeof key, e);
    explicit_bzero(key, sizeof key);
    /* submission_sync() makes the name of this file durable. So the master need not sync the
     * directory before it reports the verdict. */
    return rc < 0 ? rc : job_dir_write(dir, "journal", "", 0, e);
}

static int make(void *arg)
{
    const struct making *m = arg;
    if (m->first)
        (void)fs_remove_tree(AT_FDCWD, m->all, NULL); /* if this fails, nothing uses the rest */
    if (mkdir(m->all, 0700) == 0)
        fs_spread_below(m->all);
    int rc = job_dir_make(m->dir, NULL);
    if (rc < 0)
        (void)fs_remove_tree(AT_FDCWD, m->dir, NULL);
    int fd = open(m->lock, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) /* else the lock is made when the job comes */
        (void)close(fd);
    return rc;
}

static void ready_lock_forget(struct pool *p)
{
    AUTO(free_p) char *lock = TAKE(p->ready.lock);
    if (lock)
        (void)unlink(lock);
}

static void made(void *arg, int rc)
{
    struct making *m = arg;
    struct pool *p = m->pool;
    p->ready.busy = false;
    if (rc == 0)
        p->ready.dir = TAKE(m->dir);
    ready_lock_forget(p);
    p->ready.lock = TAKE(m->lock);
    making_free(m);
}

void ready_dir_make(struct pool *p)
{
    if (p->ready.busy || p->ready.dir || p->ended)
        return;
    struct making *m = calloc(1, sizeof *m);
    bool ok = m && (m->all = fs_join(p->paths.pool, "ready")) &&
              (m->dir = str_printf("%s/%lld-%u", m->all, (long long)p->started_wall_ms,
                                   ++p->ready.n_made)) &&
              (m->lock = str_printf("%s.lock", m->dir));
    if (ok) {
        m->pool = p;
        m->first = p->ready.n_made == 1;
        ok = loop_work(p->loop, make, made, m) == 0;
    }
    p->ready.busy = ok;
    if (!ok)
        making_free(m); /* no memory: tried again after the next submission */
}

bool ready_dir_take(struct pool *p, const char *path)
{
    AUTO(free_p) char *dir = TAKE(p->ready.dir);
    return dir && rename(dir, path) == 0;
}

void ready_lock_take(struct pool *p, const char *path)
{
    AUTO(free_p) char *lock = TAKE(p->ready.lock);
    if (lock && renameat2(AT_FDCWD, lock, AT_FDCWD, path, RENAME_NOREPLACE) == -1)
        (void)unlink(lock);
}

void ready_dir_done(struct pool *p)
{
    ready_lock_forget(p);
    AUTO(free_p) char *dir = TAKE(p->ready.dir);
    if (dir)
        (void)fs_remove_tree(AT_FDCWD, dir, NULL);
}
