/* SPDX-License-Identifier: Apache-2.0 */
/* Watches the logs and the checkpoint directory of a task, for tasks that do not use the socket. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "executor/task_side.h"

enum {
    EVERY_MS = 500,
    PIECE_MAX = 64 << 10, /* bytes of a log in one look; of a longer text only the end is read */
    LINE_MAX_BYTES = 2048,
    ENTRIES_MAX = 100000,
    GROUPS = 3, /* of the regular expression: whole match, step, total */
};

/* A complete checkpoint in the directory. If a checkpoint of the same step is saved again, ino or
 * mtime differ. With a marker, both are those of the marker. Without one, ino is the inode of the
 * checkpoint itself. */
struct seen {
    uint64_t step;
    ino_t ino;
    int64_t mtime_ns; /* of the marker */
};

struct task_watch {
    bool has_progress, has_pattern;
    regex_t progress, pattern;
    char *dir, *marker;
    off_t at[2]; /* offsets up to which the two logs were read */
    uint64_t step, total;
    struct seen seen[TASK_SAVED_MAX]; /* complete checkpoints that were found in this attempt */
    size_t n_seen;
    VEC(struct seen) before; /* checkpoints of earlier attempts, sorted */
    bool blind;              /* `before` is incomplete, so nothing is reported */
    int64_t due_ms;
};

struct task_watch *task_watch_new(const char *progress, const char *dir, const char *pattern,
                                  const char *marker)
{
    struct task_watch *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    /* The client has checked both expressions. If one does not compile here, it matches nothing. */
    w->has_progress = progress[0] && regcomp(&w->progress, progress, REG_EXTENDED) == 0;
    w->has_pattern = dir[0] && regcomp(&w->pattern, pattern, REG_EXTENDED) == 0;
    w->dir = dir[0] ? str_dup(dir) : NULL;
    w->marker = marker[0] ? str_dup(marker) : NULL;
    return w;
}

void task_watch_free(struct task_watch *w)
{
    if (!w)
        return;
    if (w->has_progress)
        regfree(&w->progress);
    if (w->has_pattern)
        regfree(&w->pattern);
    free(w->dir);
    free(w->marker);
    vec_done(&w->before);
    free(w);
}

int64_t task_watch_due(const struct task_watch *w)
{
    return w->due_ms;
}

void task_watch_done(struct task_watch *w, int64_t now_ms)
{
    w->due_ms = now_ms + EVERY_MS;
}

/* The digits at the start of a match: "12.5" is 12, "1,234" is 1. false = there are none. */
static bool number_at(const char *text, const regmatch_t *m, uint64_t *out)
{
    if (m->rm_so < 0)
        return false;
    uint64_t n = 0;
    bool any = false;
    for (regoff_t i = m->rm_so; i < m->rm_eo && text[i] >= '0' && text[i] <= '9'; i++) {
        if (n > (uint64_t)INT64_MAX / 10 - 1)
            return false;
        n = n * 10 + (uint64_t)(text[i] - '0');
        any = true;
    }
    *out = n;
    return any;
}

/* ---- logs ---- */

static void look_at_line(struct task_watch *w, char *line)
{
    regmatch_t m[GROUPS];
    uint64_t n;
    if (regexec(&w->progress, line, GROUPS, m, 0) != 0)
        return;
    if (number_at(line, &m[1], &n))
        w->step = n;
    if (number_at(line, &m[2], &n))
        w->total = n;
}

/* Lines may end with \r, as those of a progress bar do. A last line without an end may still grow,
 * so it is read again at the next look. Returns how many bytes were read for the last time. */
static size_t look_at_piece(struct task_watch *w, char *text, size_t len)
{
    size_t done = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '\n' && text[i] != '\r')
            continue;
        text[i] = '\0';
        if (i > done && i - done <= LINE_MAX_BYTES)
            look_at_line(w, text + done);
        done = i + 1;
    }
    return done ? done : len > LINE_MAX_BYTES ? len : 0;
}

static void look_at_log(struct task_watch *w, int fd, off_t *at)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) == -1 || st.st_size <= *at)
        return;
    if (st.st_size - *at > PIECE_MAX)
        *at = st.st_size - PIECE_MAX;
    size_t want = (size_t)(st.st_size - *at);
    char path[40]; /* fd is open for writing only, so open the file again */
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    AUTO(close_p) int in = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    AUTO(free_p) char *text = malloc(want + 1);
    ssize_t n = in >= 0 && text ? pread(in, text, want, *at) : -1;
    if (n > 0)
        *at += (off_t)look_at_piece(w, text, (size_t)n);
}

bool task_watch_logs(struct task_watch *w, int out_fd, int err_fd, uint64_t *step, uint64_t *total)
{
    uint64_t old_step = w->step, old_total = w->total;
    if (!w->has_progress)
        return false;
    look_at_log(w, out_fd, &w->at[0]);
    look_at_log(w, err_fd, &w->at[1]);
    if (w->step == old_step && w->total == old_total)
        return false;
    *step = w->step;
    *total = w->total;
    return true;
}

/* ---- checkpoints ---- */

static bool marked_by(int dir, const char *name, const char *between, const char *marker,
                      struct seen *out)
{
    struct stat st;
    AUTO(free_p) char *path = str_printf("%s%s%s", name, between, marker);
    if (!path || fstatat(dir, path, &st, 0) == -1)
        return false;
    out->ino = st.st_ino;
    out->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return true;
}

/* With a marker, a checkpoint is complete when the marker exists: in the checkpoint, if that is a
 * directory, or beside it, with the name of the checkpoint in front. Without a marker, a checkpoint
 * appears by a rename and is complete at once. */
static bool is_complete(const struct task_watch *w, int dir, const struct dirent *x,
                        struct seen *out)
{
    if (w->marker)
        return marked_by(dir, x->d_name, "/", w->marker, out) ||
               marked_by(dir, x->d_name, "", w->marker, out);
    out->ino = x->d_ino;
    return true;
}

static bool step_of(const struct task_watch *w, const char *name, uint64_t *out)
{
    regmatch_t m[GROUPS];
    return regexec(&w->pattern, name, GROUPS, m, 0) == 0 && m[0].rm_so == 0 &&
           (size_t)m[0].rm_eo == strlen(name) && number_at(name, &m[1], out);
}

static int compare_seen(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->ino != y->ino)
        return x->ino < y->ino ? -1 : 1;
    return x->mtime_ns < y->mtime_ns ? -1 : x->mtime_ns > y->mtime_ns;
}

static bool was_found(const struct task_watch *w, const struct seen *x)
{
    for (size_t i = 0; i < w->n_seen; i++)
        if (compare_seen(&w->seen[i], x) == 0)
            return true;
    return false;
}

static bool was_before(const struct task_watch *w, const struct seen *x)
{
    return w->before.n && bsearch(x, w->before.v, w->before.n, sizeof *x, compare_seen);
}

/* Insert a checkpoint into v, which has the newest ones in descending order. Of several with the
 * same step, the first counts. */
static void keep(struct task_saved v[TASK_SAVED_MAX], struct seen seen[TASK_SAVED_MAX], size_t *n,
                 const struct seen *x, const char *name)
{
    uint64_t step = x->step;
    size_t at = 0;
    while (at < *n && v[at].step > step)
        at++;
    if (at == TASK_SAVED_MAX || (at < *n && v[at].step == step))
        return;
    char *copy = str_dup(name);
    if (!copy)
        return;
    if (*n == TASK_SAVED_MAX)
        free(v[--*n].path);
    for (size_t i = (*n)++; i > at; i--) {
        v[i] = v[i - 1];
        seen[i] = seen[i - 1];
    }
    v[at] = (struct task_saved){ .path = copy, .step = step };
    seen[at] = *x;
}

static char *dir_path(const struct task_watch *w, const char *workdir)
{
    return w->dir[0] == '/' ? str_dup(w->dir) : str_printf("%s/%s", workdir, w->dir);
}

/* Remember the present checkpoints: earlier attempts have saved and reported them. */
static int note_before(struct task_watch *w, const char *workdir)
{
    AUTO(free_p) char *path = dir_path(w, workdir);
    DIR *d = path ? opendir(path) : NULL;
    int rc = d || (path && errno == ENOENT) ? 0 : -EIO;
    size_t entries = 0;

    for (struct dirent *x; rc == 0 && d && entries++ < ENTRIES_MAX && (x = readdir(d));) {
        struct seen s = { 0 };
        if (step_of(w, x->d_name, &s.step) && is_complete(w, dirfd(d), x, &s))
            rc = vec_push(&w->before, s);
    }
    if (d)
        closedir(d);
    if (w->before.n)
        qsort(w->before.v, w->before.n, sizeof *w->before.v, compare_seen);
    return rc;
}

void task_watch_begin(struct task_watch *w, const char *workdir, bool first)
{
    w->at[0] = w->at[1] = 0; /* each attempt has its own log files */
    w->step = w->total = 0;
    w->due_ms = 0;
    w->n_seen = w->before.n = 0;
    w->blind = !first && w->has_pattern && workdir && note_before(w, workdir) < 0;
}

size_t task_watch_checkpoints(struct task_watch *w, const char *workdir,
                              struct task_saved out[TASK_SAVED_MAX])
{
    struct task_saved v[TASK_SAVED_MAX] = { { .path = NULL } };
    struct seen seen[TASK_SAVED_MAX];
    size_t n = 0, entries = 0, n_out = 0;
    if (!w->has_pattern || !workdir || w->blind)
        return 0;
    AUTO(free_p) char *path = dir_path(w, workdir);
    DIR *d = path ? opendir(path) : NULL;
    for (struct dirent *x; d && entries++ < ENTRIES_MAX && (x = readdir(d));) {
        struct seen s = { 0 };
        if (step_of(w, x->d_name, &s.step) && !(n == TASK_SAVED_MAX && s.step < v[n - 1].step) &&
            is_complete(w, dirfd(d), x, &s) && !was_before(w, &s))
            keep(v, seen, &n, &s, x->d_name);
    }
    if (d)
        closedir(d);
    for (size_t i = n; i-- > 0; free(v[i].path)) {
        char *full = was_found(w, &seen[i]) ? NULL : str_printf("%s/%s", path, v[i].path);
        if (full)
            out[n_out++] = (struct task_saved){ .path = full, .step = v[i].step };
    }
    for (size_t i = 0; i < n; i++)
        w->seen[i] = seen[i];
    w->n_seen = d ? n : w->n_seen;
    return n_out;
}
