/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/metrics_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "metrics/metrics.h"
#include "storage/crc32c.h"

static const char first_line[] = "tony-metrics 1\n", any_line[] = "tony-metrics ";

enum {
    LINE_LEN = sizeof first_line - 1,
    HEAD_LEN = 8, /* of a record */
    /* Several masters may have written before the file is thinned, so it may be larger. */
    READ_MAX = 4 * METRICS_FILE_MAX,
};

int64_t metrics_file_limit(uint32_t n_tasks)
{
    return MIN((int64_t)METRICS_FILE_MIN + (int64_t)METRICS_FILE_A_TASK * n_tasks,
               (int64_t)METRICS_FILE_MAX);
}

/* ---- reading ---- */

static uint32_t get_u32(const char *p)
{
    const unsigned char *c = (const unsigned char *)p;
    return c[0] | (uint32_t)c[1] << 8 | (uint32_t)c[2] << 16 | (uint32_t)c[3] << 24;
}

static void put_u32(char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (char)(v >> (8 * i));
}

int metrics_records_begin(struct metrics_records *r, struct span text, struct err *e)
{
    *r = (struct metrics_records){ .rest = text };
    if (text.len < LINE_LEN && memcmp(text.len ? text.p : "", first_line, text.len) == 0) {
        r->rest.len = 0; /* a crash came before the first line was complete */
        r->torn = text.len > 0;
        return 0;
    }
    if (text.len >= LINE_LEN && memcmp(text.p, first_line, LINE_LEN) == 0) {
        r->rest = span_mem(text.p + LINE_LEN, text.len - LINE_LEN);
        r->end = LINE_LEN;
        return 0;
    }
    if (span_starts(text, any_line))
        return err_set(e, EINVAL, "a newer version of tony wrote these metrics");
    return err_set(e, EBADMSG, "this is not a file of metrics");
}

bool metrics_records_next(struct metrics_records *r, struct span *out)
{
    struct span in = r->rest;
    if (in.len == 0)
        return false;
    r->torn = true;
    if (in.len < HEAD_LEN)
        return false;
    uint32_t len = get_u32(in.p), crc = get_u32(in.p + 4);
    if (len == 0 || len > METRICS_RECORD_MAX || len > in.len - HEAD_LEN ||
        crc32c(in.p + HEAD_LEN, len) != crc)
        return false;
    *out = span_mem(in.p + HEAD_LEN, len);
    r->rest = span_mem(in.p + HEAD_LEN + len, in.len - HEAD_LEN - len);
    r->end += HEAD_LEN + (int64_t)len;
    r->torn = false;
    return true;
}

int metrics_file_read(const char *path, struct buf *out, struct err *e)
{
    out->max = READ_MAX;
    return fs_read_file(AT_FDCWD, path, out, e);
}

/* ---- writing ---- */

/* Read the file, and find the end of its last valid record. */
static int check(struct metrics_file *f, struct buf *text, struct err *e)
{
    struct metrics_records r;
    struct span record;
    text->max = READ_MAX;
    int rc = buf_fill_fd(text, f->fd, e);
    if (rc == 0)
        rc = metrics_records_begin(&r, buf_span(text), e);
    if (rc < 0)
        return rc;
    while (metrics_records_next(&r, &record))
        ;
    f->size = r.end;
    text->len = (size_t)r.end;
    if (r.torn && ftruncate(f->fd, r.end) == -1)
        return err_set(e, errno, "cannot cut the damaged end off: %m");
    return 0;
}

static int begin_file(struct metrics_file *f, struct err *e)
{
    if (f->size > 0)
        return 0;
    int rc = fs_write_all(f->fd, first_line, LINE_LEN);
    if (rc < 0)
        return err_set(e, -rc, "cannot write: %m");
    f->size = LINE_LEN;
    return 0;
}

int metrics_file_open(struct metrics_file *f, const char *path, struct buf *out_text, struct err *e)
{
    AUTO(buf_done) struct buf own = { 0 };
    struct buf *text = out_text ? out_text : &own;
    *f = (struct metrics_file)METRICS_FILE_INIT;
    f->path = str_dup(path);
    f->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = !f->path      ? err_set(e, ENOMEM, "no memory to open it")
             : f->fd == -1 ? err_set(e, errno, "cannot open: %m")
                           : 0;
    AUTO(free_p) char *new_path = str_printf("%s.new", path);
    if (new_path)
        (void)unlink(new_path); /* a crash has left it; usually there is none */
    if (rc == 0)
        rc = check(f, text, e);
    if (rc == 0)
        rc = begin_file(f, e);
    if (rc < 0) {
        metrics_file_close(f);
        return err_wrap(e, rc, "metrics file '%s'", path);
    }
    return 0;
}

int metrics_file_put(void *buf, struct span record)
{
    char head[HEAD_LEN];
    put_u32(head, (uint32_t)record.len);
    put_u32(head + 4, crc32c(record.p, record.len));
    (void)buf_add(buf, head, sizeof head);
    return buf_add(buf, record.p, record.len);
}

int metrics_file_write(struct metrics_file *f, struct span records, struct err *e)
{
    int rc = fs_write_all(f->fd, records.p, records.len);
    if (rc < 0) {
        (void)!ftruncate(f->fd, f->size); /* if it fails, a reader stops at the incomplete record */
        return err_set(e, -rc, "cannot write to metrics file '%s': %m", f->path);
    }
    f->size += (int64_t)records.len;
    return 0;
}

void metrics_file_close(struct metrics_file *f)
{
    close_p(&f->fd);
    f->fd = -1;
    free(TAKE(f->path));
}

/* ---- thinning ---- */

/* Make a thinner file of the records in `from`. */
static int thin_once(struct span from, int level, int64_t now_ms, struct buf *to, struct err *e)
{
    struct metrics_records r;
    struct span record;
    int rc = metrics_records_begin(&r, from, e);
    if (rc == 0 && buf_add(to, first_line, LINE_LEN) < 0)
        rc = -ENOMEM;
    struct metrics_thin *t = metrics_thin_new(level, now_ms, metrics_file_put, to);
    if (rc == 0 && !t)
        rc = -ENOMEM;
    while (rc == 0 && metrics_records_next(&r, &record))
        rc = metrics_thin_add(t, record, e);
    if (rc == 0)
        rc = metrics_thin_end(t, e);
    metrics_thin_free(t);
    return rc < 0 && e && !e->num ? err_set(e, -rc, "cannot thin metrics: %m") : rc;
}

static int read_part(const char *path, int64_t size, struct buf *out, struct err *e)
{
    int rc = metrics_file_read(path, out, e);
    if (rc == 0 && (int64_t)out->len < size)
        return err_set(e, EBADMSG, "metrics file '%s' has become shorter", path);
    if (rc == 0)
        out->len = (size_t)size;
    return rc;
}

int metrics_file_thin(struct metrics_thinning *t)
{
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(buf_done) struct buf thinner = { .max = READ_MAX };
    AUTO(free_p) char *path = str_printf("%s.new", t->path);
    int rc = path ? read_part(t->path, t->size, &text, t->e)
                  : err_set(t->e, ENOMEM, "no memory to thin metrics");
    if (rc == 0)
        rc = thin_once(buf_span(&text), t->level, t->now_ms, &thinner, t->e);
    while (rc == 0 && (int64_t)thinner.len > t->goal && t->level < METRICS_LEVEL_MAX) {
        struct buf swap = text;
        text = thinner;
        thinner = swap;
        buf_clear(&thinner);
        thinner.max = READ_MAX;
        rc = thin_once(buf_span(&text), ++t->level, t->now_ms, &thinner, t->e);
    }
    if (rc < 0)
        return rc;
    AUTO(close_p)
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    rc = fd == -1 ? -errno : fs_write_all(fd, thinner.p, thinner.len);
    t->new_size = (int64_t)thinner.len;
    if (rc < 0)
        (void)unlink(path);
    return rc < 0 ? err_set(t->e, -rc, "cannot write '%s': %m", path) : 0;
}

/* Append the bytes of `from` behind offset `at` to `to`. */
static int copy_rest(int from, int64_t at, int64_t end, int to)
{
    enum { PIECE = 64 << 10 };
    AUTO(free_p) char *bytes = malloc(PIECE);
    if (!bytes)
        return -ENOMEM;
    while (at < end) {
        ssize_t n = pread(from, bytes, (size_t)MIN((int64_t)PIECE, end - at), at);
        if (n == -1 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 ? -EIO : -errno;
        int rc = fs_write_all(to, bytes, (size_t)n);
        if (rc < 0)
            return rc;
        at += n;
    }
    return 0;
}

int metrics_file_replace(struct metrics_file *f, const struct metrics_thinning *t, struct err *e)
{
    AUTO(free_p) char *path = str_printf("%s.new", f->path);
    if (!path)
        return err_set(e, ENOMEM, "no memory to replace the metrics file");
    int fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    int rc = fd == -1 ? -errno : copy_rest(f->fd, t->size, f->size, fd);
    if (rc == 0 && rename(path, f->path) == -1)
        rc = -errno;
    if (rc < 0) {
        close_p(&fd);
        (void)unlink(path);
        return err_set(e, -rc, "cannot replace metrics file '%s': %m", f->path);
    }
    close_p(&f->fd);
    f->fd = fd;
    f->size = t->new_size + f->size - t->size;
    return 0;
}
