/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the file `times` beside the logs of the attempt (storage/log_times.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/executor_int.h"
#include "storage/log_times.h"

static char *path_of(const struct executor *x, const char *suffix)
{
    size_t n = executor_has_keeper(x) ? 1 : x->cfg->remote->attempts.n;
    if (!x->a.logs.dir)
        return NULL;
    return n > 1 ? str_printf("%s/" LOG_TIMES_NAME ".%zu%s", x->a.logs.dir, n, suffix)
                 : str_printf("%s/" LOG_TIMES_NAME "%s", x->a.logs.dir, suffix);
}

static int64_t length_of_rank(const struct executor *x, const char *name, uint32_t rank)
{
    struct stat st;
    AUTO(free_p) char *path = ranks_log_path(x, name, rank);
    return path && stat(path, &st) == 0 ? st.st_size : 0;
}

static int64_t length_of(int fd)
{
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 ? st.st_size : 0;
}

/* Append the lengths of all logs. Returns their sum. */
static int64_t add_lengths(const struct executor *x, struct buf *out)
{
    int64_t of_out = length_of(x->a.logs.out_fd), of_err = length_of(x->a.logs.err_fd);
    int64_t sum = of_out + of_err;
    (void)buf_addf(out, " %lld %lld", (long long)of_out, (long long)of_err);
    for (uint32_t rank = 1; rank < x->a.n_ranks; rank++) {
        of_out = length_of_rank(x, "stdout", rank);
        of_err = length_of_rank(x, "stderr", rank);
        (void)buf_addf(out, " %lld %lld", (long long)of_out, (long long)of_err);
        sum += of_out + of_err;
    }
    return sum;
}

static int write_file(const char *path, int flags, const struct buf *text, mode_t mode)
{
    AUTO(close_p) int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, mode);
    return fd == -1 ? -errno : fs_write_all(fd, text->p, text->len);
}

/* Keep every second line. */
static void thin(struct executor *x, const char *path, mode_t mode)
{
    AUTO(buf_done) struct buf text = { .max = LOG_TIMES_TEXT_MAX };
    AUTO(buf_done) struct buf kept = { 0 };
    AUTO(free_p) char *new_path = path_of(x, ".new");
    AUTO(close_p) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct err unread;
    if (fd == -1 || !new_path || buf_fill_fd(&text, fd, &unread) < 0)
        return;
    struct span rest = buf_span(&text), line;
    for (size_t i = 0; rest.len && span_split(&rest, '\n', &line); i++)
        if (i % 2)
            (void)buf_addf(&kept, "%.*s\n", (int)line.len, line.p);
    if (kept.failed || write_file(new_path, O_TRUNC, &kept, mode) < 0 ||
        rename(new_path, path) == -1)
        return;
    x->log_times.n_lines /= 2;
    x->log_times.interval_ms *= 2;
}

static void write_line(struct executor *x)
{
    AUTO(buf_done) struct buf line = { 0 };
    AUTO(free_p) char *path = path_of(x, "");
    mode_t mode = executor_has_keeper(x) ? 0600 : 0640;
    (void)buf_addf(&line, "%lld", (long long)clock_wall_ms());
    int64_t sum = add_lengths(x, &line);
    if (!path || sum == x->log_times.sum || buf_addc(&line, '\n') < 0)
        return;
    x->log_times.sum = sum;
    /* If the disk is full, --since shows more than it was asked for. */
    if (write_file(path, O_APPEND, &line, mode) == 0 && ++x->log_times.n_lines >= LOG_TIMES_LINES)
        thin(x, path, mode);
}

void log_times_begin(struct executor *x)
{
    x->log_times =
        (struct log_times){ .interval_ms = LOG_TIMES_MS, .due_ms = clock_mono_ms() + LOG_TIMES_MS };
}

void log_times_tick(struct executor *x, int64_t now_ms)
{
    if (!attempt_alive(&x->a) || !x->log_times.due_ms || now_ms < x->log_times.due_ms)
        return;
    write_line(x);
    x->log_times.due_ms = now_ms + x->log_times.interval_ms;
}

void log_times_end(struct executor *x)
{
    if (x->log_times.n_lines)
        write_line(x);
    x->log_times.due_ms = 0;
}
