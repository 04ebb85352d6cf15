/* A task that says nothing on its socket, watched from outside: its logs and its checkpoints. */
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
#include "executor/task_side.h"

enum {
    EVERY_MS = 500,
    PIECE_MAX = 64 << 10, /* of a log each time: of more only the end is read */
    LINE_MAX_BYTES = 2048,
    ENTRIES_MAX = 100000,
    GROUPS = 3, /* the whole, step, total */
};

struct task_watch {
    bool has_progress, has_pattern;
    regex_t progress, pattern;
    char *dir, *marker;
    off_t at[2]; /* how far the two logs were read */
    uint64_t step, total;
    uint64_t seen[TASK_SAVED_MAX]; /* complete checkpoints, in this attempt or before */
    size_t n_seen;
    int64_t due_ms;
};

struct task_watch *task_watch_new(const char *progress, const char *dir, const char *pattern,
                                  const char *marker)
{
    struct task_watch *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    /* Both were tried when the job was submitted; what does not compile here sees nothing. */
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
    free(w);
}

/* Another attempt has logs of its own. */
void task_watch_begin(struct task_watch *w)
{
    w->at[0] = w->at[1] = 0;
    w->step = w->total = 0;
    w->due_ms = 0;
}

int64_t task_watch_due(const struct task_watch *w)
{
    return w->due_ms;
}

void task_watch_done(struct task_watch *w, int64_t now_ms)
{
    w->due_ms = now_ms + EVERY_MS;
}

/* "1,234" and "120k" are no numbers here, "12.5" is 12. */
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

/* A bar that is drawn over and over ends its lines with \r. The last line may still be growing, and
 * is read again. */
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
    char path[40]; /* ours is open for writing only */
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

static bool exists_at(int dir, const char *name, const char *between, const char *marker)
{
    struct stat st;
    AUTO(free_p) char *path = str_printf("%s%s%s", name, between, marker);
    return path && fstatat(dir, path, &st, 0) == 0;
}

/* A name that appears by a rename is complete when it is there; else its marker says so, in the
 * directory that the checkpoint is, or beside the file. */
static bool is_complete(const struct task_watch *w, int dir, const char *name)
{
    return !w->marker || exists_at(dir, name, "/", w->marker) ||
           exists_at(dir, name, "", w->marker);
}

static bool step_of(const struct task_watch *w, const char *name, uint64_t *out)
{
    regmatch_t m[GROUPS];
    return regexec(&w->pattern, name, GROUPS, m, 0) == 0 && m[0].rm_so == 0 &&
           (size_t)m[0].rm_eo == strlen(name) && number_at(name, &m[1], out);
}

static bool was_seen(const struct task_watch *w, uint64_t step)
{
    for (size_t i = 0; i < w->n_seen; i++)
        if (w->seen[i] == step)
            return true;
    return false;
}

/* The newest ones in descending order. Several names may have the same step; one of them counts. */
static void keep(struct task_saved v[TASK_SAVED_MAX], size_t *n, uint64_t step, const char *name)
{
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
    for (size_t i = (*n)++; i > at; i--)
        v[i] = v[i - 1];
    v[at] = (struct task_saved){ .path = copy, .step = step };
}

size_t task_watch_checkpoints(struct task_watch *w, const char *workdir,
                              struct task_saved out[TASK_SAVED_MAX])
{
    struct task_saved v[TASK_SAVED_MAX] = { { .path = NULL } };
    size_t n = 0, entries = 0, n_out = 0;
    uint64_t step;
    if (!w->has_pattern || !workdir)
        return 0;
    AUTO(free_p)
    char *path = w->dir[0] == '/' ? str_dup(w->dir) : str_printf("%s/%s", workdir, w->dir);
    DIR *d = path ? opendir(path) : NULL;
    for (struct dirent *x; d && entries++ < ENTRIES_MAX && (x = readdir(d));) {
        bool low = n == TASK_SAVED_MAX;
        if (step_of(w, x->d_name, &step) && !(low && step < v[n - 1].step) &&
            (was_seen(w, step) || is_complete(w, dirfd(d), x->d_name)))
            keep(v, &n, step, x->d_name);
    }
    if (d)
        closedir(d);
    for (size_t i = n; i-- > 0; free(v[i].path)) {
        char *full = was_seen(w, v[i].step) ? NULL : str_printf("%s/%s", path, v[i].path);
        if (full)
            out[n_out++] = (struct task_saved){ .path = full, .step = v[i].step };
    }
    for (size_t i = 0; i < n; i++)
        w->seen[i] = v[i].step;
    w->n_seen = d ? n : w->n_seen;
    return n_out;
}
