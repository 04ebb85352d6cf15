/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to jobs that ran when the machine stopped: it lost its power, or was booted again.
 *
 * Each pool writes the number of the boot into pool/boot. If a pool finds another number there, all
 * jobs that had been started and have no keeper were lost by the stop. Such a job continues if it
 * says so (tony.application.restart-on-boot), or if it says nothing and `tony pool enable` was
 * used: then the pool starts another keeper, and the tasks restart from their checkpoints.
 * Otherwise the job ends. In both cases the status of the job says which tasks were lost, and when.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pool/pool_int.h"

enum {
    ID_MAX = 128,
    TIME_SIZE = 32,
    LOOK_DEPTH = 3,    /* logs/<task>/<attempt>/ */
    LOOK_MAX = 100000, /* files of one job whose times are read */
};

/* ---- the number of the boot ---- */

static int read_line(const char *path, char out[ID_MAX])
{
    AUTO(buf_done) struct buf text = { .max = ID_MAX - 1 };
    int rc = fs_read(AT_FDCWD, path, &text, NULL);
    struct span line = span_trim(buf_span(&text));
    (void)snprintf(out, ID_MAX, "%.*s", (int)line.len, line.p ? line.p : "");
    return rc;
}

void boot_read(struct pool *p)
{
    char now[ID_MAX], last[ID_MAX];
    AUTO(free_p) char *path = fs_join(p->paths.pool, "boot");
    if (!path || read_line("/proc/sys/kernel/random/boot_id", now) < 0 || read_line(path, last) < 0)
        return; /* nothing is known: an older version of tony, or the first pool of this home */
    p->rebooted = last[0] && !str_eq(last, now);
    if (p->rebooted)
        log_event(LOG_INFO, "pool.machine_was_booted");
}

/* Call it after recover(): if this pool dies before, the next one must still see that the machine
 * was booted. */
void boot_record(const struct pool *p)
{
    char now[ID_MAX], last[ID_MAX];
    struct err e = { 0 };
    AUTO(free_p) char *path = fs_join(p->paths.pool, "boot");
    if (!path || read_line("/proc/sys/kernel/random/boot_id", now) < 0 ||
        (read_line(path, last) == 0 && str_eq(last, now)))
        return;
    if (fs_write_atomic(AT_FDCWD, path, span_of(now), 0600, false, &e) < 0)
        log_err(LOG_WARN, "pool.boot", &e); /* later pools may take an old boot for a new one */
}

/* ---- when did the machine stop? ---- */

/* The latest change of a file in the directory, in seconds since 1970. */
static int64_t latest_change(int dir, const char *name, int depth, unsigned *left)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    int64_t latest = 0;
    if (!d && fd >= 0)
        (void)close(fd);
    for (struct dirent *x; d && *left > 0 && (x = readdir(d));) {
        struct stat st;
        if (x->d_name[0] == '.' || fstatat(dirfd(d), x->d_name, &st, AT_SYMLINK_NOFOLLOW) == -1)
            continue;
        (*left)--;
        if (S_ISREG(st.st_mode))
            latest = MAX(latest, (int64_t)st.st_mtime);
        else if (S_ISDIR(st.st_mode) && depth > 0)
            latest = MAX(latest, latest_change(dirfd(d), x->d_name, depth - 1, left));
    }
    if (d)
        (void)closedir(d);
    return latest;
}

/* When was a file of the job changed last? Looks at the job's directory and the logs of its tasks.
 * It leaves out the working directories of tasks: they may be large. */
static int64_t last_trace(const char *dir)
{
    unsigned left = LOOK_MAX;
    AUTO(close_p) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1)
        return 0;
    int64_t own = latest_change(fd, ".", 0, &left);
    return MAX(own, latest_change(fd, "logs", LOOK_DEPTH, &left));
}

static void format_time(int64_t wall_s, char out[TIME_SIZE])
{
    time_t t = (time_t)wall_s;
    struct tm tm;
    if (!localtime_r(&t, &tm) || !strftime(out, TIME_SIZE, "%Y-%m-%d %H:%M:%S", &tm))
        (void)str_copy(out, TIME_SIZE, "an unknown time");
}

static int64_t booted_at_s(void)
{
    struct timespec up;
    return clock_gettime(CLOCK_BOOTTIME, &up) == 0 ? clock_wall_ms() / 1000 - up.tv_sec : 0;
}

/* The sentence for people: when the machine stopped and was booted. */
static char *sentence(const char *dir)
{
    char last[TIME_SIZE], boot[TIME_SIZE];
    format_time(last_trace(dir), last);
    format_time(booted_at_s(), boot);
    return str_printf("the machine stopped after %s, and was booted again at %s", last, boot);
}

/* ---- a job ---- */

/* Does the job continue after the machine was booted? */
static bool may_continue(const struct pool_job *j)
{
    AUTO(free_p) char *enabled = fs_join(j->pool->paths.pool, "enabled");
    return j->restart_on_boot >= 0 ? j->restart_on_boot > 0 : enabled && access(enabled, F_OK) == 0;
}

static void write_note(const char *dir, const char *name, const char *text)
{
    struct err e = { 0 };
    AUTO(free_p) char *path = fs_join(dir, name);
    if (path && fs_write_atomic(AT_FDCWD, path, span_of(text), 0600, false, &e) < 0)
        log_err(LOG_WARN, "job.interrupted", &e); /* the job's status lacks the times */
}

void boot_lost(struct pool_job *j, const char *dir)
{
    AUTO(free_p) char *text = sentence(dir);
    bool on = may_continue(j);
    if (!text)
        return; /* no memory: the job continues, without the sentence */
    log_event(LOG_WARN, "job.interrupted", f_str("job", j->id),
              f_str("then", on ? "it goes on" : "it ends"), f_str("why", text));
    write_note(dir, on ? "interrupted" : "lost", text);
    j->interrupted = on;
    j->lost_by_stop = !on;
    if (!on)
        j->fatal = TAKE(text);
}

/* Another keeper starts for the job. If this is not because of a boot, remove the sentence about an
 * earlier boot. */
void boot_forget(struct pool_job *j)
{
    AUTO(free_p) char *dir = paths_job(&j->pool->paths, j->id);
    AUTO(free_p) char *path = dir ? fs_join(dir, "interrupted") : NULL;
    if (path && !j->interrupted)
        (void)unlink(path); /* usually there is none */
    j->interrupted = false;
}
