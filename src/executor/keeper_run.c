/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runs of a job on a cluster. If the cluster needs the nodes, or the node of the head keeper
 * fails, it puts the job back into its queue, and starts it again later: that is the next run. It
 * finds the job's directory, and continues its journal.
 *
 * At most one run may write. But the node of a head keeper may be cut off, and not dead, when the
 * cluster starts the next run. So
 *
 * - the file `run` has the number of the run. A head keeper looks at it every LOOK_MS; when it
 * finds another number, it kills its master and ends.
 * - the next head keeper writes its number, waits FENCE_MS, and then copies the journal: the old
 *   master still has the old file open, and what it writes there is lost.
 *
 * The file `left` says that a run has ended in order (scheduler/slurm/nodes.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/keeper_int.h"

enum {
    LOOK_MS = 1000,
    FENCE_MS = 3000,
    COPY_SIZE = 64 << 10,
    NUMBER_MAX = 32,
    TOLD_MS = 60000, /* if SIGTERM announced the end of the run, it comes within this time */
};

/* The number in the file `run`; `unset` if there is none. */
static uint32_t read_run(const struct keeper *k, uint32_t unset)
{
    AUTO(free_p) char *path = str_printf("%s/run", k->job_dir);
    AUTO(buf_done) struct buf text = { .max = NUMBER_MAX };
    int64_t n;
    if (!path || fs_read(AT_FDCWD, path, &text, NULL) < 0 ||
        str_i64(span_trim(buf_span(&text)), 0, INT32_MAX, "run", &n, NULL) < 0)
        return unset;
    return (uint32_t)n;
}

static int write_run(const struct keeper *k, struct err *e)
{
    AUTO(free_p) char *path = str_printf("%s/run", k->job_dir);
    char text[NUMBER_MAX];
    (void)snprintf(text, sizeof text, "%u\n", k->run);
    return path ? fs_write_atomic(AT_FDCWD, path, span_of(text), 0600, true, e)
                : err_set(e, ENOMEM, "cannot start: %m");
}

static int copy_bytes(int from, int to)
{
    AUTO(free_p) char *bytes = malloc(COPY_SIZE);
    ssize_t n = 0;
    int rc = bytes ? 0 : -ENOMEM;
    while (rc == 0 && (n = read(from, bytes, COPY_SIZE)) > 0)
        rc = fs_write_all(to, bytes, (size_t)n);
    return rc < 0 ? rc : n < 0 ? -errno : fsync(to) == -1 ? -errno : 0;
}

/* Replace the journal by a copy of itself. */
static int fence_journal(const struct keeper *k, struct err *e)
{
    AUTO(free_p) char *path = str_printf("%s/journal", k->job_dir);
    AUTO(free_p) char *copy = str_printf("%s/journal.run", k->job_dir);
    if (!path || !copy)
        return err_set(e, ENOMEM, "cannot start: %m");
    AUTO(close_p) int from = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (from == -1)
        return errno == ENOENT ? 0 : err_set(e, errno, "cannot open '%s': %m", path);
    AUTO(close_p) int to = open(copy, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = to == -1 ? -errno : copy_bytes(from, to);
    if (rc == 0 && rename(copy, path) == -1)
        rc = -errno;
    return rc < 0 ? err_set(e, -rc, "cannot copy '%s': %m", path) : 0;
}

int run_open(struct keeper *k, struct err *e)
{
    if (k->kind != KEEPER_HEAD)
        return 0;
    uint32_t before = read_run(k, 0);
    if (before > k->run)
        return err_set(e, ESTALE, "run %u of the job has begun already", before);
    k->run_look_ms = clock_mono_ms() + LOOK_MS;
    int rc = write_run(k, e);
    if (rc < 0 || before == k->run)
        return rc;
    log_event(LOG_INFO, "keeper.run", f_int("run", k->run));
    /* No event tells that the old keeper has looked: it may be cut off. It looks every LOOK_MS, so
     * after FENCE_MS it has killed its master, or it is frozen. fence_journal() excludes a frozen
     * one. */
    (void)nanosleep(&(struct timespec){ .tv_sec = FENCE_MS / 1000 }, NULL);
    return fence_journal(k, e);
}

void run_leave(struct keeper *k)
{
    k->leaves = true;
    k->state = KEEPER_TAKING_DOWN;
    k->master_at_ms = INT64_MAX;
    if (k->master_pid)
        (void)kill(k->master_pid, SIGKILL);
}

void run_tick(struct keeper *k, int64_t now_ms)
{
    if (k->kind != KEEPER_HEAD || now_ms < k->run_look_ms || k->state != KEEPER_RUNNING)
        return;
    k->run_look_ms = now_ms + LOOK_MS;
    if (read_run(k, k->run) == k->run)
        return;
    log_event(LOG_WARN, "keeper.other_run");
    k->replaced = true;
    run_leave(k);
}

int64_t run_deadline(const struct keeper *k)
{
    return k->kind == KEEPER_HEAD && k->state == KEEPER_RUNNING ? k->run_look_ms : INT64_MAX;
}

void run_told(struct keeper *k)
{
    k->told_until_ms = clock_mono_ms() + TOLD_MS;
}

/* How long a head keeper must wait before it restarts its master. After SIGTERM the cluster
 * probably ends the run within TOLD_MS, so a new master would be killed at once. */
int64_t run_pause_ms(const struct keeper *k)
{
    return MAX(k->told_until_ms - clock_mono_ms(), (int64_t)0);
}

/* The run ends. The job's directory stays for the next run, which finds in it that this one has
 * ended in order. */
int run_end(struct keeper *k)
{
    AUTO(free_p) char *left = str_printf("%s/left", k->job_dir);
    AUTO(free_p) char *address = str_printf("%s/master.json", k->job_dir);
    struct err e = { 0 };
    if (k->replaced)
        return KEEPER_LEFT;
    if (address)
        (void)unlink(address); /* clients do not look for the master of this run */
    if (left && fs_write_atomic(AT_FDCWD, left, span_of("\n"), 0600, true, &e) < 0)
        log_err(LOG_WARN, "keeper.left", &e); /* the next run waits for leases */
    return KEEPER_LEFT;
}
