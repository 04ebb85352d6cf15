#include "storage/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "storage/crc32c.h"

enum {
    TRAILER = 16,        /* ,"c":"1a2b3c4d"} */
    HEADER_MAX = 6 + 20, /* {"n":<64 bits> */
    LINE_MAX_ = 1 << 20, /* a record is a few hundred bytes, with a tail of stderr a few thousand */
    FILE_MAX_ =
        512 << 20, /* replaying more would take minutes; a day of restarts makes a few MiB */
};

static int take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

/* ---- lines ---- */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Is line (without its newline) whole? It then carries *out_n. */
static bool line_ok(struct span line, uint64_t *out_n)
{
    static const char head[] = "{\"n\":", tail[] = ",\"c\":\"";
    if (line.len < sizeof head - 1 + 1 + TRAILER || memcmp(line.p, head, sizeof head - 1) != 0)
        return false;
    const char *t = line.p + line.len - TRAILER;
    if (memcmp(t, tail, sizeof tail - 1) != 0 || memcmp(t + TRAILER - 2, "\"}", 2) != 0)
        return false;
    uint32_t sum = 0;
    for (int i = 0; i < 8; i++) {
        int v = hex_value(t[sizeof tail - 1 + (size_t)i]);
        if (v < 0)
            return false;
        sum = sum << 4 | (uint32_t)v;
    }
    if (crc32c(line.p, (size_t)(t - line.p)) != sum)
        return false;
    uint64_t n = 0;
    const char *d = line.p + sizeof head - 1;
    for (; *d >= '0' && *d <= '9'; d++) {
        if (__builtin_mul_overflow(n, 10u, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*d - '0'), &n))
            return false;
    }
    *out_n = n;
    return *d == ',' && d > line.p + sizeof head - 1;
}

int journal_next(struct span text, size_t *pos, uint64_t *n, struct span *out_payload,
                 bool *out_torn, struct err *e)
{
    *out_torn = false;
    if (*pos >= text.len)
        return 0;
    struct span rest = { text.p + *pos, text.len - *pos };
    const char *end = memchr(rest.p, '\n', rest.len);
    struct span line = { rest.p, end ? (size_t)(end - rest.p) : rest.len };
    uint64_t got;
    if (!end || !line_ok(line, &got)) {
        if (!end || (size_t)(end + 1 - rest.p) == rest.len) {
            *out_torn = true;
            return 0;
        }
        return err_set(e, EBADMSG, "line %" PRIu64 " is damaged and others follow it", *n);
    }
    if (got != *n)
        return err_set(e, EBADMSG, "line %" PRIu64 " has the number %" PRIu64, *n, got);
    *out_payload = line;
    *pos += line.len + 1;
    *n += 1;
    return 1;
}

/* ---- the file ---- */

static int fill(int fd, const char *path, struct buf *out, struct err *e)
{
    if (out->max == 0)
        out->max = FILE_MAX_;
    int rc = buf_fill_fd(out, fd, e);
    return rc < 0 ? err_wrap(e, rc, "journal '%s'", path) : 0;
}

int journal_read(const char *path, struct buf *out, struct err *e)
{
    AUTO(close_p) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd == -1)
        return err_set(e, errno, "cannot open journal '%s': %m", path);
    return fill(fd, path, out, e);
}

/* Open for appending; a new file's directory is kept open until its name is durable. */
static int open_file(const char *path, int *out_fd, int *out_dir_fd, struct err *e)
{
    const int flags = O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY;
    AUTO(close_p) int fd = open(path, flags);
    AUTO(close_p) int dir_fd = -1;
    if (fd == -1 && errno == ENOENT) {
        const char *slash = strrchr(path, '/');
        AUTO(free_p) char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
        if (!dir)
            return err_set(e, ENOMEM, "cannot open journal '%s': %m", path);
        dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir_fd != -1)
            fd = open(path, flags | O_CREAT, 0600);
    }
    if (fd == -1)
        return err_set(e, errno, "cannot open journal '%s': %m", path);
    /* Nobody starts two writers, but if it happened all would be lost. Network file systems
     * without locks have to do without. */
    if (flock(fd, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK)
        return err_set(e, EBUSY, "journal '%s' is being written by another process", path);
    *out_fd = take_fd(&fd);
    *out_dir_fd = take_fd(&dir_fd);
    return 0;
}

/* Walk text; *out_end is where the valid part ends. */
static int scan(struct span text, uint64_t *out_next, size_t *out_end, struct err *e)
{
    size_t pos = 0;
    uint64_t n = 1;
    struct span payload;
    bool torn;
    int rc;
    while ((rc = journal_next(text, &pos, &n, &payload, &torn, e)) == 1)
        ;
    *out_next = n;
    *out_end = pos;
    return rc;
}

int journal_open(struct journal *j, const char *path, struct buf *text, struct err *e)
{
    *j = (struct journal){ .fd = -1, .dir_fd = -1 };
    AUTO(close_p) int fd = -1;
    AUTO(close_p) int dir_fd = -1;
    AUTO(buf_done) struct buf own = { 0 };
    struct buf *b = text ? text : &own;
    buf_clear(b);
    int rc = open_file(path, &fd, &dir_fd, e);
    if (rc == 0)
        rc = fill(fd, path, b, e);
    if (rc < 0)
        return rc;
    uint64_t next;
    size_t end;
    rc = scan(buf_span(b), &next, &end, e);
    if (rc < 0)
        return err_wrap(e, rc, "journal '%s'", path);
    if (end < b->len) {
        if (ftruncate(fd, (off_t)end) == -1 || fdatasync(fd) == -1)
            return err_set(e, errno, "cannot cut the torn end of journal '%s': %m", path);
        log_event(LOG_WARN, "journal.torn", f_str("path", path), f_int("kept", (int64_t)end),
                  f_int("cut", (int64_t)(b->len - end)));
        b->len = end;
        if (b->p)
            b->p[end] = '\0';
    }
    j->fd = take_fd(&fd);
    j->dir_fd = take_fd(&dir_fd);
    j->next_n = next;
    j->size = (int64_t)end;
    return 0;
}

/* ---- adding ---- */

static char *put_number(char *at, uint64_t n)
{
    char digits[20];
    int k = 0;
    do
        digits[k++] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    while (k > 0)
        *at++ = digits[--k];
    return at;
}

static char *put_hex(char *at, uint32_t v)
{
    for (int shift = 28; shift >= 0; shift -= 4)
        *at++ = "0123456789abcdef"[(v >> shift) & 0xf];
    return at;
}

int journal_add(struct journal *j, struct span payload)
{
    if (j->failed < 0)
        return j->failed;
    int64_t t0 = clock_mono_us();
    /* A newline would end the line, and JSON has none outside of pretty printing. */
    if (payload.len < 2 || payload.len > LINE_MAX_ || payload.p[0] != '{' ||
        payload.p[payload.len - 1] != '}' || memchr(payload.p, '\n', payload.len))
        return -EINVAL;
    struct span inner = { payload.p + 1, payload.len - 2 };
    char *line = buf_reserve(&j->pending, HEADER_MAX + 1 + inner.len + TRAILER + 1);
    if (!line) {
        j->failed = -ENOMEM; /* a record that is missing must not be followed by others */
        return j->failed;
    }
    char *at = mempcpy(line, "{\"n\":", 5);
    at = put_number(at, j->next_n);
    if (inner.len > 0) {
        *at++ = ',';
        at = mempcpy(at, inner.p, inner.len);
    }
    uint32_t sum = crc32c(line, (size_t)(at - line));
    at = mempcpy(at, ",\"c\":\"", 6);
    at = put_hex(at, sum);
    at = mempcpy(at, "\"}\n", 3);
    buf_commit(&j->pending, (size_t)(at - line));
    j->next_n++;
    j->n_added++;
    j->add_us += clock_mono_us() - t0;
    return 0;
}

static int write_pending(struct journal *j, struct err *e)
{
    size_t done = 0;
    ssize_t n = 0;
    if (j->torn && ftruncate(j->fd, j->size) == -1) {
        j->failed = -errno;
        return err_set(e, errno, "cannot write the journal: %m");
    }
    j->torn = false;
    /* After a part of it, once more: only that tells why there was no room for the rest. */
    while (done < j->pending.len) {
        n = write(j->fd, j->pending.p + done, j->pending.len - done);
        if (n <= 0 && !(n == -1 && errno == EINTR))
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    j->n_writes++;
    if (done == j->pending.len) {
        j->size += (int64_t)done;
        buf_clear(&j->pending);
        return 0;
    }
    int num = n == -1 ? errno : ENOSPC;
    /* Part of it stands there: what was valid before must be all that is. If even this fails, the
     * next reader finds a torn end. */
    if (done > 0 && ftruncate(j->fd, j->size) == -1) {
        j->torn = true;
        log_event(LOG_WARN, "journal.not_cut", f_int("size", j->size));
    }
    j->failed = -num;
    return err_set(e, num, "cannot write the journal: %m%s",
                   num == EFBIG ? " (a limit on the size of files: ulimit -f)" : "");
}

static int sync_file(struct journal *j, struct err *e)
{
    if (fdatasync(j->fd) == -1 || (j->dir_fd != -1 && fsync(j->dir_fd) == -1)) {
        j->failed = -errno;
        j->lost = true; /* the kernel takes the pages for clean now: another sync would succeed */
        return err_set(e, errno, "cannot make the journal durable: %m");
    }
    j->n_syncs++;
    close_p(&j->dir_fd);
    j->dir_fd = -1;
    return 0;
}

int journal_flush(struct journal *j, bool sync, struct err *e)
{
    if (j->failed < 0)
        return err_set(e, -j->failed, "cannot write the journal: %m");
    int64_t t0 = clock_mono_us();
    int rc = j->pending.len > 0 ? write_pending(j, e) : 0;
    int64_t t1 = clock_mono_us();
    j->write_us += t1 - t0;
    if (rc == 0 && sync) {
        rc = sync_file(j, e);
        j->sync_us += clock_mono_us() - t1;
    }
    return rc;
}

int journal_retry(struct journal *j)
{
    if (j->lost || j->failed == -ENOMEM)
        return j->failed;
    j->failed = 0;
    return 0;
}

void journal_close(struct journal *j)
{
    if (j->fd >= 0)
        log_event(LOG_INFO, "journal.closed", f_int("records", (int64_t)j->n_added),
                  f_int("writes", (int64_t)j->n_writes), f_int("syncs", (int64_t)j->n_syncs),
                  f_int("size", j->size), f_int("add_us", j->add_us),
                  f_int("write_us", j->write_us), f_int("sync_us", j->sync_us));
    buf_done(&j->pending);
    close_p(&j->fd);
    close_p(&j->dir_fd);
    *j = (struct journal){ .fd = -1, .dir_fd = -1 };
}
