/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The logs of this machine's jobs. It reads the files in the directory of the job, whether the job
 * is running or finished, and asks no other process.
 *
 * With --follow it watches the files and the job's journal by inotify. A change of the journal may
 * mean that an attempt has started (there are new files) or ended (its files are complete). The
 * directory of a job that ends is renamed into the history; open files stay valid.
 *
 * If a log file is renamed while the program writes to it, it is still read. If a new file with the
 * old name gets text, both files are read.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/local/local.h"
#include "cluster/remote.h"
#include "conf/conf.h"
#include "history/history.h"
#include "job/job.h"
#include "storage/log_mark.h"
#include "storage/log_times.h"

enum {
    LOG_EVENTS = IN_MODIFY | IN_CLOSE_WRITE | IN_MOVE_SELF,
    TAIL_MAX = 64 << 20, /* -n reads at most this many bytes at the end of a file */
    LOOK_MS = 100,       /* minimum time between two reads of the journal */
};

struct log_file {
    char *task;         /* such as worker:1 */
    const char *stream; /* "stdout" or "stderr" */
    uint32_t attempt, rank;
    int fd; /* -1 = closed, because it was replaced twice: nothing writes to it any more */
    struct log_mark mark;
    int64_t since; /* offset of the first line that was written after w->since_ms; else 0 */
    /* bytes before the first printed text that were left out, because of w->most */
    uint64_t left_bytes;
};

struct log_ranks {
    char *role;
    uint32_t n; /* processes of a task */
};

struct logs {
    struct cluster_host *h;
    const char *id;
    const struct cluster_log_wish *w;
    cluster_log_fn *fn;
    void *arg;
    char *dir;
    bool live;
    VEC(struct log_file) files;
    VEC(struct log_ranks) ranks;
    uint32_t other_ranks; /* of tasks whose role is not in this list */
    int inotify;
    const struct cluster_log_choice *unknown; /* the first choice that no task matches; or NULL */
    bool several;                             /* more than one log is shown */
    int code;                                 /* the exit code, if no call has failed */
};

/* ---- which tasks to show ---- */

static bool wanted(const struct logs *l, const char *role, int64_t index)
{
    return cluster_log_wants(l->w->tasks, l->w->n_tasks, role, index);
}

static bool is_known(const struct history_job *h, const struct cluster_log_choice *c)
{
    for (uint32_t i = 0; i < job_n_slots(h->job); i++) {
        struct slot_view v;
        job_slot(h->job, i, &v);
        if (!v.spare && cluster_log_wants(c, 1, v.role, v.index))
            return true;
    }
    return false;
}

/* Remember how many ranks the tasks of each role have. If a task with one rank has a file
 * `stdout.1`, no rank wrote it: a program that rotates logs has renamed `stdout`. */
static int learn_ranks(struct logs *l, const struct job_spec *s)
{
    l->other_ranks = s->single_node ? 1 : l->other_ranks;
    for (size_t i = l->ranks.n; i < s->n_roles; i++) {
        struct log_ranks new = { str_dup(s->roles[i].name), MAX(s->roles[i].ranks, 1u) };
        if (!new.role || vec_push(&l->ranks, new) < 0) {
            free(new.role);
            return -ENOMEM;
        }
    }
    return 0;
}

static uint32_t ranks_of(const struct logs *l, const char *role)
{
    for (size_t i = 0; i < l->ranks.n; i++)
        if (str_eq(role, l->ranks.v[i].role))
            return l->ranks.v[i].n;
    return l->other_ranks;
}

/* Has the job ended, or have all wanted tasks? 1 = yes; *out_n: how many tasks are wanted. Finds
 * the new directory if the job has moved to the history. */
static int all_ended(struct logs *l, uint32_t *out_n, struct err *e)
{
    AUTO(history_freep) struct history_job *h = NULL;
    int rc = -ENOENT;
    /* The directory moves at most once. */
    for (int tries = 0; tries < 2 && rc == -ENOENT; tries++) {
        free(TAKE(l->dir));
        rc = paths_find_job(&l->h->paths, l->id, &l->dir, &l->live, e);
        if (rc == 0)
            rc = history_load(l->dir, &h, e);
    }
    if (rc == 0 && learn_ranks(l, h->spec) < 0)
        rc = err_set(e, ENOMEM, "cannot read the logs: %m");
    if (rc < 0)
        return rc;
    bool ended = true;
    *out_n = 0;
    for (uint32_t i = 0; i < job_n_slots(h->job); i++) {
        struct slot_view v;
        job_slot(h->job, i, &v);
        if (v.spare || !wanted(l, v.role, v.index))
            continue;
        (*out_n)++;
        ended =
            ended && (v.state == SLOT_ENDED || v.state == SLOT_DRAINING || v.state == SLOT_ABSENT);
    }
    l->unknown = NULL;
    for (size_t i = 0; i < l->w->n_tasks && !l->unknown; i++)
        if (!is_known(h, &l->w->tasks[i]))
            l->unknown = &l->w->tasks[i];
    return ended || !l->live;
}

/* ---- which files to show ---- */

/* Among the files with numbers below `end`, find the newest one of this log. NULL = there is none,
 * or it is not open. */
static struct log_file *find_file(const struct logs *l, const char *task, const char *stream,
                                  uint32_t attempt, uint32_t rank, size_t end)
{
    for (size_t i = end; i-- > 0;) {
        struct log_file *f = &l->files.v[i];
        if (f->attempt == attempt && f->rank == rank && str_eq(f->task, task) &&
            str_eq(f->stream, stream))
            return f->fd >= 0 ? f : NULL;
    }
    return NULL;
}

/* Is the log in the list, with the file that has its name now? */
static bool have(const struct logs *l, const struct log_file *known, const char *path)
{
    if (!known || l->inotify < 0)
        return known;
    AUTO(close_p) int now = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return now < 0 || !log_was_replaced(known->fd, now);
}

/* Add a log file. 1: it exists and is in the list. */
static int add_file(struct logs *l, const char *dir, const char *task, const char *stream,
                    uint32_t attempt, uint32_t rank, struct err *e)
{
    const struct log_file *known = find_file(l, task, stream, attempt, rank, l->files.n);
    AUTO(free_p)
    char *path = rank ? str_printf("%s/%s.%u", dir, stream, rank) : fs_join(dir, stream);
    if (!path)
        return err_set(e, ENOMEM, "cannot read the logs: %m");
    if (have(l, known, path))
        return 1;
    struct log_file f = {
        .task = str_dup(task), .stream = stream, .attempt = attempt, .rank = rank
    };
    struct err unread = { 0 };
    f.fd = fs_open_file(AT_FDCWD, path, O_NOFOLLOW, &unread);
    if (f.fd < 0) {
        free(f.task);
        return f.fd == -ENOENT ? 0 : err_set(e, -f.fd, "log file: %s", unread.msg);
    }
    if (l->w->since_ms && !known) {
        AUTO(free_p) char *times_path = fs_join(dir, LOG_TIMES_NAME);
        AUTO(close_p)
        int times = times_path ? fs_open_file(AT_FDCWD, times_path, O_NOFOLLOW, NULL) : -1;
        f.since = log_times_since(times, f.fd, l->w->since_ms, rank, str_eq(stream, "stderr"));
    }
    if (l->inotify >= 0 && inotify_add_watch(l->inotify, path, LOG_EVENTS) == -1) {
        int rc = err_set(e, errno, "cannot watch log file '%s': %m", path);
        close_p(&f.fd);
        free(f.task);
        return rc;
    }
    if (!f.task || vec_push(&l->files, f) < 0) {
        close_p(&f.fd);
        free(f.task);
        return err_set(e, ENOMEM, "cannot read the logs: %m");
    }
    return 1;
}

/* Add the files of all ranks of a task. The files of rank 0 have no number in their name. */
static int add_ranks(struct logs *l, const char *dir, const char *task, uint32_t n,
                     uint32_t attempt, struct err *e)
{
    int there = 1;
    for (uint32_t rank = l->w->rank < 0 ? 0 : (uint32_t)l->w->rank; there == 1 && rank < n;
         rank++) {
        there = 0;
        if (l->w->want_stdout)
            there = add_file(l, dir, task, "stdout", attempt, rank, e);
        if (there >= 0 && l->w->want_stderr)
            there = add_file(l, dir, task, "stderr", attempt, rank, e);
        if (l->w->rank >= 0)
            break;
    }
    return MIN(there, 0);
}

/* The attempt that the user asked for, or the last one in the task's directory; 0 = there is none
 * yet. */
static uint32_t pick_attempt(const struct logs *l, const char *task_dir)
{
    DIR *d = opendir(task_dir);
    uint32_t best = 0;
    int64_t n;
    for (struct dirent *de; d && (de = readdir(d));)
        if (str_i64(span_of(de->d_name), 1, UINT32_MAX, "attempt", &n, NULL) == 0 &&
            (!l->w->attempt || n == l->w->attempt))
            best = MAX(best, (uint32_t)n);
    if (d)
        (void)closedir(d);
    return best;
}

static int add_task(struct logs *l, const char *logs_dir, const char *name, struct err *e)
{
    const char *dash = strrchr(name, '-');
    int64_t index;
    if (!dash || str_i64(span_of(dash + 1), 0, UINT32_MAX, "index", &index, NULL) < 0)
        return 0;
    AUTO(free_p) char *role = span_dup(span_mem(name, (size_t)(dash - name)));
    if (!role || !wanted(l, role, index))
        return 0;
    AUTO(free_p) char *task = str_printf("%s:%lld", role, (long long)index);
    AUTO(free_p) char *task_dir = fs_join(logs_dir, name);
    uint32_t attempt = task_dir ? pick_attempt(l, task_dir) : 0;
    AUTO(free_p) char *dir = attempt ? str_printf("%s/%u", task_dir, attempt) : NULL;
    if (!dir || !task)
        return 0;
    return add_ranks(l, dir, task, ranks_of(l, role), attempt, e);
}

/* Sorts worker-2 before worker-10 */
static int by_task(const struct dirent **a, const struct dirent **b)
{
    return strverscmp((*a)->d_name, (*b)->d_name);
}

/* Open the log files that are not open yet. */
static int scan_once(struct logs *l, struct err *e)
{
    AUTO(free_p) char *logs_dir = fs_join(l->dir, "logs");
    struct dirent **entries = NULL;
    int n = logs_dir ? scandir(logs_dir, &entries, NULL, by_task) : -1;
    if (n < 0)
        return errno == ENOENT ? 0
                               : err_set(e, errno, "cannot read directory '%s': %m",
                                         logs_dir ? logs_dir : "logs");
    int rc = 0;
    for (int i = 0; i < n; i++) {
        if (rc == 0)
            rc = add_task(l, logs_dir, entries[i]->d_name, e);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

/* As scan_once(), but the directory may move to the history during the scan. */
static int scan(struct logs *l, struct err *e)
{
    int rc = scan_once(l, e);
    if (rc < 0 || !l->live || access(l->dir, F_OK) == 0)
        return rc;
    free(TAKE(l->dir));
    rc = paths_find_job(&l->h->paths, l->id, &l->dir, &l->live, e);
    return rc < 0 ? rc : scan_once(l, e);
}

/* ---- printing ---- */

static int write_text(struct logs *l, size_t i, const char *p, size_t len, struct err *e)
{
    struct log_file *f = &l->files.v[i];
    if (len == 0)
        return 0;
    const struct cluster_log_text t = { .task = f->task,
                                        .stream = f->stream,
                                        .rank = f->rank,
                                        .attempt = f->attempt,
                                        .offset = -1,
                                        .left_bytes = f->left_bytes,
                                        .more_lines = f->left_bytes > 0,
                                        .several = l->several,
                                        .text = span_mem(p, len) };
    int rc = l->fn(&t, l->arg);
    f->left_bytes = 0;
    return rc < 0 ? err_set(e, -rc, "cannot write to standard output: %m") : 0;
}

/* If the file was truncated, as by copytruncate of logrotate, begin with it again. */
static void look_for_truncation(struct log_file *f)
{
    struct stat st;
    off_t at = lseek(f->fd, 0, SEEK_CUR);
    if (at > 0 && fstat(f->fd, &st) == 0 && log_was_truncated(&f->mark, f->fd, at, st.st_size))
        (void)lseek(f->fd, 0, SEEK_SET);
}

/* Print the file from its current position to its end. */
static int copy_rest(struct logs *l, size_t i, struct err *e)
{
    static char text[64 << 10];
    struct log_file *f = &l->files.v[i];
    while (f->fd >= 0) {
        look_for_truncation(f);
        ssize_t n = read(f->fd, text, sizeof text);
        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1)
            return err_set(e, errno, "cannot read the %s of task '%s': %m", f->stream, f->task);
        if (n == 0)
            return 0;
        log_mark_add(&f->mark, text, (size_t)n);
        int rc = write_text(l, i, text, (size_t)n, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Set the file position to the start of the last n lines. */
static int seek_tail(int fd, int64_t n)
{
    static char text[64 << 10];
    struct stat st;
    if (fstat(fd, &st) == -1)
        return -errno;
    off_t at = st.st_size, floor = st.st_size > TAIL_MAX ? st.st_size - TAIL_MAX : 0;
    bool last_byte = true;
    while (at > floor && n > 0) {
        size_t len = (size_t)MIN((off_t)sizeof text, at - floor);
        ssize_t got = pread(fd, text, len, at - (off_t)len);
        if (got != (ssize_t)len)
            break; /* the file was truncated meanwhile: show the rest */
        for (size_t k = len; k > 0 && n > 0; k--, at--) {
            /* The newline at the very end of the file starts no further line. */
            bool newline = text[k - 1] == '\n' && !last_byte;
            last_byte = false;
            if (newline && --n == 0)
                return lseek(fd, at, SEEK_SET) == -1 ? -errno : 0;
        }
    }
    return lseek(fd, at, SEEK_SET) == -1 ? -errno : 0;
}

/* Set the file position behind what was shown before, or to the last w->most bytes. */
static int seek_from(const struct logs *l, struct log_file *f)
{
    struct stat st;
    if (fstat(f->fd, &st) == -1)
        return -errno;
    int64_t at =
        MAX(l->w->from(f->task, f->stream, f->rank, f->attempt, l->w->from_arg), (int64_t)0);
    int64_t least = st.st_size - l->w->most;
    if (at < least) {
        f->left_bytes = (uint64_t)(least - at);
        at = least;
    }
    return lseek(f->fd, MIN(at, (int64_t)st.st_size), SEEK_SET) == -1 ? -errno : 0;
}

static int show_first(struct logs *l, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < l->files.n; i++) {
        if (l->w->from)
            rc = seek_from(l, &l->files.v[i]);
        else if (l->w->lines >= 0)
            rc = seek_tail(l->files.v[i].fd, l->w->lines);
        if (rc == 0 && l->files.v[i].since > lseek(l->files.v[i].fd, 0, SEEK_CUR))
            rc = lseek(l->files.v[i].fd, l->files.v[i].since, SEEK_SET) == -1 ? -errno : 0;
        if (rc < 0)
            return err_set(e, -rc, "cannot read the %s of task '%s': %m", l->files.v[i].stream,
                           l->files.v[i].task);
        rc = copy_rest(l, i, e);
    }
    return rc;
}

/* File i has replaced another one, to which its program may still write: keep that one open. If
 * that one had replaced a third file, nothing writes to the third any more: close it, because an
 * open file needs space on the disk although it was removed. */
static void close_older(struct logs *l, size_t i)
{
    const struct log_file *f = &l->files.v[i];
    struct log_file *before = find_file(l, f->task, f->stream, f->attempt, f->rank, i);
    if (before)
        before =
            find_file(l, f->task, f->stream, f->attempt, f->rank, (size_t)(before - l->files.v));
    if (before)
        close_p(&before->fd);
}

/* Show what is new, also in files that were not there before: these are shown whole. */
static int show_new(struct logs *l, struct err *e)
{
    size_t old = l->files.n;
    int rc = scan(l, e);
    for (size_t i = 0; rc == 0 && i < l->files.n; i++)
        rc = copy_rest(l, i, e);
    for (size_t i = old; rc == 0 && i < l->files.n; i++)
        close_older(l, i);
    return rc;
}

/* ---- following ---- */

/* Wait until a watched file changes. 1: the journal is among the changed files. */
static int await_change(struct logs *l, int journal_watch, int timeout_ms, struct err *e)
{
    struct pollfd p = { .fd = l->inotify, .events = POLLIN };
    int n = poll(&p, 1, timeout_ms);
    if (n <= 0)
        return n == -1 && errno != EINTR ? err_set(e, errno, "cannot wait for the logs: %m") : 0;
    static char events[16 << 10] __attribute__((aligned(8)));
    ssize_t len = read(l->inotify, events, sizeof events);
    int journal = 0;
    for (ssize_t at = 0; at < len;) {
        const struct inotify_event *ev = (const void *)(events + at);
        journal |= ev->wd == journal_watch || (ev->mask & IN_Q_OVERFLOW);
        at += (ssize_t)(sizeof *ev + ev->len);
    }
    return journal;
}

static int follow(struct logs *l, struct err *e)
{
    AUTO(free_p) char *journal = fs_join(l->dir, "journal");
    int watch =
        journal ? inotify_add_watch(l->inotify, journal, IN_MODIFY | IN_MOVE_SELF | IN_DELETE_SELF)
                : -1;
    if (watch == -1 && journal) /* no journal yet, because the job waits: watch for its creation */
        watch = inotify_add_watch(l->inotify, l->dir, IN_CREATE | IN_MOVED_TO | IN_MOVE_SELF);
    int64_t looked = 0;
    bool look = true;
    for (;;) {
        int64_t now = clock_mono_ms();
        if (look && now - looked >= LOOK_MS) {
            look = false;
            looked = now;
            uint32_t n;
            int ended = all_ended(l, &n, e);
            int rc = ended < 0 ? ended : show_new(l, e);
            if (rc < 0 || ended)
                return rc;
            free(journal);
            journal = fs_join(l->dir, "journal");
            int again = journal ? inotify_add_watch(l->inotify, journal,
                                                    IN_MODIFY | IN_MOVE_SELF | IN_DELETE_SELF)
                                : -1;
            watch = again >= 0 ? again : watch;
        }
        /* After a change of the journal, wait at most LOOK_MS. Otherwise read it again every
         * second: a rename may have replaced the file that is being watched. */
        int timeout = look ? (int)MAX(looked + LOOK_MS - now, (int64_t)1) : 1000;
        int changed = await_change(l, watch, timeout, e);
        if (changed < 0)
            return changed;
        look = look || changed || clock_mono_ms() - looked >= 1000;
        int rc = 0;
        for (size_t i = 0; rc == 0 && i < l->files.n; i++)
            rc = copy_rest(l, i, e);
        if (rc < 0)
            return rc;
    }
}

/* ---- all together ---- */

static int no_files(struct logs *l, uint32_t n_tasks, struct err *e)
{
    const struct cluster_log_wish *w = l->w;
    const struct cluster_log_choice *c = l->unknown;
    if (c && c->index >= 0)
        (void)err_set(e, ENOENT, "job '%s' has no task '%.*s:%lld'", l->id, (int)c->role_len,
                      c->role, (long long)c->index);
    else if (c)
        (void)err_set(e, ENOENT, "job '%s' has no role '%.*s'", l->id, (int)c->role_len, c->role);
    else if (w->attempt)
        (void)err_set(e, ENOENT, "the chosen tasks of job '%s' have no attempt %lld", l->id,
                      (long long)w->attempt);
    else if (w->rank > 0)
        (void)err_set(e, ENOENT, "the chosen tasks of job '%s' have no rank %lld", l->id,
                      (long long)w->rank);
    else {
        host_note(l->h, "nothing has been written yet: the task%s not started",
                  n_tasks == 1 ? " has" : "s have");
        return EXIT_DONE;
    }
    err_hint(e, "tony tasks %s lists the tasks", l->id);
    return EXIT_MISUSE;
}

/* As all_ended(), for a caller who knows that the job is over (cluster_log_wish.over). It does not
 * read the journal, which may be long. */
static int known_ended(struct logs *l, uint32_t *out_n, struct err *e)
{
    *out_n = (uint32_t)l->w->n_tasks;
    int rc = paths_find_job(&l->h->paths, l->id, &l->dir, &l->live, e);
    return rc < 0 ? rc : 1;
}

static int show(struct logs *l, struct err *e)
{
    uint32_t n_tasks = 0;
    int rc = l->w->over ? known_ended(l, &n_tasks, e) : all_ended(l, &n_tasks, e);
    if (rc < 0 && !l->dir)
        return rc;
    bool ended = rc != 0, damaged = rc < 0;
    struct err unread = *e;
    rc = scan(l, e);
    if (rc < 0)
        return rc;
    if (damaged && l->files.n == 0) {
        *e = unread;
        return -unread.num;
    }
    if (damaged) { /* the logs can be read although the journal is damaged */
        host_note(l->h, "%s", unread.msg);
        n_tasks = UINT32_MAX;
    }
    if (!damaged && l->unknown) {
        l->code = no_files(l, n_tasks, e);
        return 0;
    }
    if (l->files.n == 0 && (ended || !l->w->follow || n_tasks == 0)) {
        l->code = no_files(l, n_tasks, e);
        return 0;
    }
    l->several = n_tasks > 1 || (l->w->want_stdout && l->w->want_stderr) || l->files.n > 1;
    rc = show_first(l, e);
    return rc < 0 || ended || !l->w->follow ? rc : follow(l, e);
}

int local_logs(struct cluster *k, const char *id, const struct cluster_log_wish *w,
               cluster_log_fn *fn, void *arg, struct err *e)
{
    struct logs l = {
        .h = cluster_head(k)->cfg.host,
        .id = id,
        .w = w,
        .fn = fn,
        .arg = arg,
        .inotify = -1,
        .other_ranks = UINT32_MAX /* unknown: show as many ranks as there are files */
    };
    int rc = host_look_paths(l.h, e);
    if (rc == 0 && w->follow && (l.inotify = inotify_init1(IN_CLOEXEC)) == -1)
        rc = err_set(e, errno, "cannot watch the logs: %m");
    if (rc == 0)
        rc = show(&l, e);
    for (size_t i = 0; i < l.files.n; i++) {
        free(l.files.v[i].task);
        close_p(&l.files.v[i].fd);
    }
    for (size_t i = 0; i < l.ranks.n; i++)
        free(l.ranks.v[i].role);
    vec_done(&l.ranks);
    vec_done(&l.files);
    close_p(&l.inotify);
    free(l.dir);
    return rc < 0 ? -EXIT_CLUSTER : -l.code;
}
