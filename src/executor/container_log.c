/* SPDX-License-Identifier: Apache-2.0 */
/* The log files of a container. Clients on other machines read them in pieces. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/container.h"
#include "executor/executor_int.h"
#include "storage/log_times.h"

enum { PIECE_MAX = 1 << 20 };

/* "stdout" for the first attempt in this container, "stdout.2" for the second. */
static void log_name(char out[48], const char *stream, size_t number)
{
    if (number > 1)
        snprintf(out, 48, "%.20s.%zu", stream, number);
    else
        snprintf(out, 48, "%.20s", stream);
}

/* Mode 0640: the node manager collects the logs, and may run as another user of the same group. */
static int open_log(const char *dir, const char *name)
{
    AUTO(free_p) char *path = fs_join(dir, name);
    if (!path)
        return -ENOMEM;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
    return fd == -1 ? -errno : fd;
}

static int logs_open_in(const char *dir, size_t number, struct logs *out)
{
    char out_name[48], err_name[48];
    struct logs l = { .out_fd = -1, .err_fd = -1 };
    log_name(out_name, "stdout", number);
    log_name(err_name, "stderr", number);
    l.dir = str_dup(dir);
    l.err_path = fs_join(dir, err_name);
    int rc = l.dir &&l.err_path ? l.out_fd = open_log(dir, out_name) : -ENOMEM;
    if (rc >= 0)
        rc = l.err_fd = open_log(dir, err_name);
    if (rc < 0) {
        logs_close(&l);
        return rc;
    }
    *out = l;
    return 0;
}

int remote_logs_open(struct remote *r, uint32_t attempt, struct logs *out, struct err *e)
{
    int first = 0;
    const char *dir = "";
    if (vec_push(&r->attempts, attempt) < 0)
        return err_set(e, ENOMEM, "cannot make the log files: %m");
    for (size_t i = 0; i < r->log_dirs.n; i++) {
        int rc = logs_open_in(r->log_dirs.v[i], r->attempts.n, out);
        if (rc == 0)
            return 0;
        if (!first) {
            first = rc;
            dir = r->log_dirs.v[i];
        }
    }
    return err_set(e, -first, "cannot make the log files in '%s': %m", dir);
}

/* ---- pieces ---- */

int remote_open_log(const struct remote *r, const char *stream, uint32_t attempt, uint32_t rank,
                    struct err *e)
{
    char name[64];
    size_t number = r->attempts.n;
    while (attempt && number > 0 && r->attempts.v[number - 1] != attempt)
        number--;
    if (number == 0)
        return attempt ? err_set(e, ENOENT, "attempt %u did not run in this container", attempt)
                       : err_set(e, ENOENT, "nothing has run in this container yet");
    log_name(name, stream, number);
    if (rank)
        snprintf(name, sizeof name, "%.20s.%zu.%u", stream, number, rank);
    for (size_t i = 0; i < r->log_dirs.n; i++) {
        AUTO(free_p) char *path = fs_join(r->log_dirs.v[i], name);
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
        if (fd != -1)
            return fd;
    }
    return err_set(e, ENOENT, "log '%s' does not exist", name);
}

int executor_open_log(const struct executor *x, const char *stream, uint32_t attempt, uint32_t rank,
                      struct err *e)
{
    char suffix[16] = "";
    if (!executor_has_keeper(x))
        return remote_open_log(x->cfg->remote, stream, attempt, rank, e);
    if (rank)
        (void)snprintf(suffix, sizeof suffix, ".%u", rank);
    AUTO(free_p)
    char *path = str_printf("%s/%s-%u/%u/%s%s", x->role->log_dir, x->role->role, x->role->index,
                            attempt, stream, suffix);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    if (fd != -1)
        return fd;
    return path ? err_set(e, errno, "cannot open log '%s': %m", path)
                : err_set(e, ENOMEM, "cannot read log '%s': %m", stream);
}

/* -ENOENT: no such log. */
static int find_log(const struct executor *x, const Tony__ReadLog *m, struct err *e)
{
    if (str_eq(m->stream, "executor.log") && !executor_has_keeper(x)) {
        int fd = open("/proc/self/fd/2", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        return fd == -1 ? err_set(e, errno, "cannot read the executor's log: %m") : fd;
    }
    if (!str_eq(m->stream, "stdout") && !str_eq(m->stream, "stderr") &&
        !str_eq(m->stream, "executor.log"))
        return err_set(e, EINVAL, "there is no log '%s'", m->stream);
    return executor_open_log(x, m->stream, m->attempt, m->rank, e);
}

/* Where to begin for --since. */
static int64_t since(const struct executor *x, int fd, const Tony__ReadLog *m)
{
    AUTO(close_p)
    int times = executor_open_log(x, LOG_TIMES_NAME, m->attempt, 0, &(struct err){ 0 });
    return log_times_since(times, fd, m->since_ms, m->rank, str_eq(m->stream, "stderr"));
}

static int read_piece(const struct executor *x, int fd, const Tony__ReadLog *m, Tony__LogData *out,
                      struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) == -1)
        return err_set(e, errno, "cannot read log '%s': %m", m->stream);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ENOENT, "log '%s' is not kept in a file", m->stream);
    int64_t size = st.st_size, at = m->since_ms && !m->offset ? since(x, fd, m) : m->offset;
    if (at < 0)
        at = at < -size ? 0 : size + at;
    at = MIN(at, size);
    size_t want = (size_t)MIN(size - at, (int64_t)MIN(m->max, (uint32_t)PIECE_MAX)), n = 0;
    unsigned char *p = malloc(want ? want : 1);
    if (!p)
        return err_set(e, ENOMEM, "cannot read log '%s': %m", m->stream);
    while (n < want) {
        ssize_t got = pread(fd, p + n, want - n, at + (int64_t)n);
        if (got == -1 && errno == EINTR)
            continue;
        if (got == -1) {
            int num = errno;
            free(p);
            return err_set(e, num, "cannot read log '%s': %m", m->stream);
        }
        if (got == 0)
            break; /* the file was truncated meanwhile */
        n += (size_t)got;
    }
    out->offset = at;
    out->size = size;
    out->data = (ProtobufCBinaryData){ .len = n, .data = p };
    return 0;
}

void executor_read_log(struct executor *x, const Tony__ReadLog *m)
{
    Tony__LogData data = TONY__LOG_DATA__INIT;
    struct err e = { 0 };
    AUTO(close_p) int fd = find_log(x, m, &e);
    int rc = fd < 0 ? fd : read_piece(x, fd, m, &data, &e);
    data.number = m->number;
    if (rc < 0) {
        data.num = (uint32_t)-rc;
        data.message = e.msg;
    }
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_LOG_DATA;
    f.log_data = &data;
    (void)executor_send(x, &f); /* after a failure, the master refuses the client's request */
    free(data.data.data);
}
