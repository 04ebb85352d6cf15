/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "pool/pool_int.h"

/* ---- ids ---- */

/* If the recorded last start is further in the future than this, it is ignored. */
enum { START_AHEAD_MS = 24 * 3600 * 1000 };

/*
 * The start time that becomes a part of every id of this home. Two homes of one user must not have
 * the same: processes are found, and control groups named, by the id alone. So the last start time
 * is recorded in /tmp/tony-<uid>/last-start, and the next one is later. If that file cannot be
 * used, for example because another user owns the directory, the current time is used as it is.
 */
static int64_t unique_start_ms(void)
{
    char dir[64], path[80], line[32];
    int64_t now = clock_wall_ms(), last = 0;
    (void)snprintf(dir, sizeof dir, "/tmp/tony-%u", (unsigned)getuid());
    (void)snprintf(path, sizeof path, "%s/last-start", dir);
    if (fs_private_dir(dir, NULL) < 0)
        return now;
    AUTO(close_p) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd == -1 || flock(fd, LOCK_EX) == -1)
        return now;
    ssize_t n = pread(fd, line, sizeof line, 0);
    if (n > 0 && str_i64(span_trim(span_mem(line, (size_t)n)), 1, now + START_AHEAD_MS, path, &last,
                         NULL) < 0)
        last = 0; /* the file is damaged, or the clock was set back */
    now = MAX(now, last + 1);
    int len = snprintf(line, sizeof line, "%lld\n", (long long)now);
    if (pwrite(fd, line, (size_t)len, 0) != len)
        log_event(LOG_WARN, "pool.last_start", f_str("file", path), f_str("why", "cannot write"));
    return now;
}

/* Read the home's start time. The first pool of a home writes it, and it never changes, so that no
 * id is used twice. */
static int read_start(struct pool *p, struct err *e)
{
    AUTO(free_p) char *path = fs_join(p->paths.pool, "start");
    AUTO(buf_done) struct buf text = { .max = 4096 };
    if (!path)
        return err_set(e, ENOMEM, "cannot start the pool: %m");
    if (access(path, F_OK) == 0) {
        int rc = fs_read(AT_FDCWD, path, &text, e);
        return rc < 0 ? rc
                      : str_i64(span_trim(buf_span(&text)), 1, INT64_MAX, path, &p->start_ms, e);
    }
    char line[32];
    p->start_ms = unique_start_ms();
    (void)snprintf(line, sizeof line, "%lld\n", (long long)p->start_ms);
    return fs_write_atomic(AT_FDCWD, path, span_of(line), 0600, true, e);
}

/* Is the process alive? A killed process stays in /proc as a zombie until its parent reaps it. */
static bool is_alive(pid_t pid)
{
    char path[32];
    AUTO(buf_done) struct buf text = { .max = 4096 };
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    if (fs_read(AT_FDCWD, path, &text, NULL) < 0)
        return false;
    const char *name_end = strrchr(buf_cstr(&text), ')');
    return !name_end || !str_starts(name_end, ") Z");
}

/* Remove the temporary files .tmp-<pid>-<number> of processes that were killed during
 * fs_write_atomic(). */
static void remove_half_written(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *x; d && (x = readdir(d));) {
        long pid = 0;
        if (str_starts(x->d_name, ".tmp-"))
            pid = strtol(x->d_name + strlen(".tmp-"), NULL, 10);
        if (pid > 0 && !is_alive((pid_t)pid))
            (void)unlinkat(dirfd(d), x->d_name, 0); /* if this fails, the file does no harm */
    }
    if (d)
        (void)closedir(d);
}

static void read_next(struct pool *p)
{
    AUTO(free_p) char *path = fs_join(p->paths.pool, "next");
    AUTO(buf_done) struct buf text = { .max = 4096 };
    int64_t n = 0;
    /* A crash of the machine may have destroyed this file. So scan() also raises last_number to the
     * highest number in jobs/ and history/. */
    if (path && fs_read(AT_FDCWD, path, &text, NULL) == 0 &&
        str_i64(span_trim(buf_span(&text)), 0, UINT32_MAX, path, &n, NULL) == 0)
        p->last_number = (uint32_t)n;
}

/* ---- directories ---- */

struct found {
    char id[APP_ID_MAX];
    uint32_t number;
};
struct finds {
    struct found *v;
    size_t n, cap;
};

static int by_number(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Add all application ids in dir to out (may be NULL), and raise last_number to the highest number
 * of this home. */
static int scan(struct pool *p, const char *dir, struct finds *out, struct err *e)
{
    DIR *d = opendir(dir);
    if (!d)
        return err_set(e, errno, "cannot read directory '%s': %m", dir);
    int rc = 0;
    for (struct dirent *x; rc == 0 && (x = readdir(d));) {
        struct found f = { 0 };
        int64_t start_ms;
        if (app_id_parse(x->d_name, &start_ms, &f.number, NULL) < 0) {
            /* An earlier pool died while it made this job's directory. */
            if (out && str_starts(x->d_name, ".new-"))
                (void)fs_remove_tree(dirfd(d), x->d_name, NULL);
            continue;
        }
        if (start_ms == p->start_ms)
            p->last_number = MAX(p->last_number, f.number);
        if (out && str_copy(f.id, sizeof f.id, x->d_name) && vec_push(out, f) < 0)
            rc = err_set(e, ENOMEM, "cannot read directory '%s': %m", dir);
    }
    (void)closedir(d);
    return rc;
}

/* ---- jobs ---- */

static bool has_file(const char *dir, const char *name)
{
    AUTO(free_p) char *path = fs_join(dir, name);
    return path && access(path, F_OK) == 0;
}

/* The pool makes an empty journal with the job's directory. The master writes the first record. */
static bool was_started(const char *dir)
{
    AUTO(free_p) char *journal = fs_join(dir, "journal");
    return !journal || fs_has_text(journal) || has_file(dir, "exits") ||
           has_file(dir, "keeper.log") || has_file(dir, "logs");
}

/* Is job.conf missing, empty or cut? Then the machine crashed before the submission was on disk. A
 * complete job.conf is kept, even if its content is wrong. */
static bool is_incomplete(const char *dir)
{
    AUTO(free_p) char *path = fs_join(dir, "job.conf");
    AUTO(buf_done) struct buf text = { 0 };
    int rc = path ? fs_read(AT_FDCWD, path, &text, NULL) : -ENOMEM;
    struct span all = span_trim(buf_span(&text));
    return rc == -ENOENT || (rc == 0 && (all.len == 0 || all.p[all.len - 1] != '}'));
}

static void recover_unreadable(const char *dir, struct pool_job *j, const struct err *e)
{
    if (access(dir, F_OK) == -1) {
        /* the keeper has just moved the job to history/ */
    } else if (job_is_kept(j) || was_started(dir) || !is_incomplete(dir)) {
        /* Processes of the job continue, and its directory stays for inspection. */
        log_err(LOG_ERROR, "job.damaged", e);
    } else {
        log_err(LOG_WARN, "job.half_made", e); /* no client was told that the job was accepted */
        (void)fs_remove_tree(AT_FDCWD, dir, NULL);
    }
    pool_job_remove(j);
}

static int recover_job(struct pool *p, const char *id, struct err *e)
{
    struct err why = { 0 };
    AUTO(free_p) char *dir = paths_job(&p->paths, id);
    if (dir && has_file(dir, "slurm.json"))
        return 0; /* this job runs on Slurm (decision 0019) */
    struct pool_job *j = dir ? pool_job_new(p, id, e) : NULL;
    if (!j)
        return err_set(e, ENOMEM, "cannot take job '%s': %m", id);
    if (submit_load(j, dir, &why) < 0) {
        recover_unreadable(dir, j, &why);
        return 0;
    }
    j->owned = has_file(dir, "owned");
    bool started = job_is_kept(j) || was_started(dir);
    log_event(LOG_INFO, "job.recovered", f_str("job", id),
              f_str("as", started ? "started" : "waiting"));
    resize_cleanup(j);
    if (started) {
        if (p->rebooted && !job_is_kept(j))
            boot_lost(j, dir);
        extension_load(j);
        keeper_reconnect(j);
    } else {
        clients_owner_gone(j); /* an owner that lives reconnects in time */
        pool_job_limit_wait(j);
    }
    return 0;
}

int recover(struct pool *p, struct err *e)
{
    struct finds finds = { 0 };
    int rc = read_start(p, e);
    if (rc == 0) {
        remove_half_written(p->paths.pool);
        read_next(p);
        rc = scan(p, p->paths.jobs, &finds, e); /* before history/: jobs move from jobs/ to it */
    }
    if (rc == 0)
        rc = scan(p, p->paths.history, NULL, e);
    if (finds.n > 1)
        qsort(finds.v, finds.n, sizeof *finds.v, by_number);
    for (size_t i = 0; rc == 0 && i < finds.n; i++)
        rc = recover_job(p, finds.v[i].id, e);
    if (rc == 0)
        sweep(p);
    if (rc == 0)
        hooks_start(p, NULL);
    vec_done(&finds);
    return rc;
}
