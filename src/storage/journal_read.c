/* SPDX-License-Identifier: Apache-2.0 */
/* Building the lines of a journal, and reading them: see journal.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/util.h"
#include "storage/crc32c.h"
#include "storage/journal_int.h"

enum { CHUNK = 256 << 10 }; /* bytes per read() */

/* ---- one line ---- */

static const char line_head[] = "{\"n\":";
static const char header_head[] = ",\"e\":\"journal\",\"format\":";
static const char header_snapshot[] = ",\"snapshot\":";

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

int journal_add_line(struct buf *out, uint64_t n, struct span payload)
{
    /* A newline would end the line; compact JSON has none. */
    if (payload.len < 2 || payload.len > JOURNAL_PAYLOAD_MAX || payload.p[0] != '{' ||
        payload.p[payload.len - 1] != '}' || memchr(payload.p, '\n', payload.len))
        return -EINVAL;
    struct span inner = { payload.p + 1, payload.len - 2 };
    char *line = buf_reserve(out, HEAD_MAX + 1 + inner.len + TRAILER_LEN + 1);
    if (!line)
        return -ENOMEM;
    char *at = mempcpy(line, line_head, sizeof line_head - 1);
    at = put_number(at, n);
    if (inner.len > 0) {
        *at++ = ',';
        at = mempcpy(at, inner.p, inner.len);
    }
    uint32_t sum = crc32c(line, (size_t)(at - line));
    at = mempcpy(at, ",\"c\":\"", 6);
    at = put_hex(at, sum);
    at = mempcpy(at, "\"}\n", 3);
    buf_commit(out, (size_t)(at - line));
    return 0;
}

int journal_add_header(struct buf *out, uint64_t n, size_t n_snapshot)
{
    char text[120] = "{";
    char *at = mempcpy(text + 1, header_head + 1, sizeof header_head - 2);
    at = put_number(at, JOURNAL_FORMAT);
    at = mempcpy(at, header_snapshot, sizeof header_snapshot - 1);
    at = put_number(at, n_snapshot);
    *at++ = '}';
    return journal_add_line(out, n, span_mem(text, (size_t)(at - text)));
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Parse the digits at *at, and move *at behind them. false: there is no digit, or the number needs
 * more than 64 bits. */
static bool take_number(const char **at, const char *end, uint64_t *out)
{
    uint64_t n = 0;
    const char *d = *at;
    for (; d < end && *d >= '0' && *d <= '9'; d++) {
        if (__builtin_mul_overflow(n, 10u, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*d - '0'), &n))
            return false;
    }
    bool any = d > *at;
    *at = d;
    *out = n;
    return any;
}

/* Is the line (without its newline) a valid record? If so, *out_n is its number, and *out_rest the
 * part between the number and the checksum. */
static bool check_line(struct span line, uint64_t *out_n, struct span *out_rest)
{
    static const char tail[] = ",\"c\":\"";
    if (line.len < sizeof line_head - 1 + 1 + TRAILER_LEN ||
        memcmp(line.p, line_head, sizeof line_head - 1) != 0)
        return false;
    const char *t = line.p + line.len - TRAILER_LEN;
    if (memcmp(t, tail, sizeof tail - 1) != 0 || memcmp(t + TRAILER_LEN - 2, "\"}", 2) != 0)
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
    const char *d = line.p + sizeof line_head - 1;
    if (!take_number(&d, t, out_n) || *out_n == 0 || *d != ',')
        return false;
    *out_rest = span_mem(d, (size_t)(t - d));
    return true;
}

/* Is this record a header? rest: the record without its number and checksum, ",...". */
static bool is_header(struct span rest, uint64_t *out_format, uint64_t *out_snapshot)
{
    const char *at = rest.p + sizeof header_head - 1, *end = rest.p + rest.len;
    if (rest.len < sizeof header_head || memcmp(rest.p, header_head, sizeof header_head - 1) != 0 ||
        !take_number(&at, end, out_format))
        return false;
    *out_snapshot = 0;
    if ((size_t)(end - at) >= sizeof header_snapshot &&
        memcmp(at, header_snapshot, sizeof header_snapshot - 1) == 0) {
        at += sizeof header_snapshot - 1;
        return take_number(&at, end, out_snapshot);
    }
    return true;
}

/* ---- opening, and the window ---- */

int journal_reader_open(struct journal_reader *r, const char *path, struct err *e)
{
    *r = (struct journal_reader){ .path = path, .window.max = LINE_MAX_LEN + 2 * CHUNK };
    r->fd = fs_open_file(AT_FDCWD, path, 0, e);
    return r->fd < 0 ? err_wrap(e, r->fd, "journal") : 0;
}

void journal_reader_text(struct journal_reader *r, struct span text)
{
    *r = (struct journal_reader){ .fd = -1, .rest = text, .eof = true };
}

void journal_reader_part(struct journal_reader *r, struct span text, uint64_t first_n)
{
    journal_reader_text(r, text);
    r->part = true;
    r->next_n = first_n;
}

void journal_reader_close(struct journal_reader *r)
{
    close_p(&r->fd);
    buf_done(&r->window);
    *r = (struct journal_reader){ .fd = -1 };
}

/* The name of the journal in errors. */
static const char *shown_name(const struct journal_reader *r)
{
    return r->path ? r->path : "in memory";
}

/* Read one more chunk of the file into the window, behind rest. */
static int fill(struct journal_reader *r, struct err *e)
{
    if (r->window.len > r->rest.len)
        buf_consume(&r->window, r->window.len - r->rest.len);
    char *to = buf_reserve(&r->window, CHUNK);
    if (!to)
        return err_set(e, ENOMEM, "cannot read journal '%s': %m", shown_name(r));
    ssize_t got;
    do
        got = read(r->fd, to, CHUNK);
    while (got == -1 && errno == EINTR);
    if (got == -1)
        return err_set(e, errno, "cannot read journal '%s': %m", shown_name(r));
    buf_commit(&r->window, (size_t)got);
    r->eof = got == 0;
    r->rest = buf_span(&r->window);
    return 0;
}

/* 1: *out is the next line, and *out_skip its bytes in rest with the newline. 0: no newline is left
 * in the file. A line longer than any record becomes an empty *out: its bytes are not kept. */
static int next_line(struct journal_reader *r, struct span *out, size_t *out_skip, struct err *e)
{
    size_t searched = 0, dropped = 0;
    for (;;) {
        const char *end = r->rest.len > searched
                              ? memchr(r->rest.p + searched, '\n', r->rest.len - searched)
                              : NULL;
        if (end) {
            size_t len = (size_t)(end - r->rest.p);
            *out = span_mem(r->rest.p, dropped ? 0 : len);
            *out_skip = len + 1;
            return 1;
        }
        if (r->eof)
            return 0;
        searched = r->rest.len;
        if (searched > LINE_MAX_LEN) {
            dropped += searched;
            r->rest = (struct span){ 0 };
            searched = 0;
        }
        int rc = fill(r, e);
        if (rc < 0)
            return rc;
    }
}

/* Do more bytes follow the next `skip` bytes of the journal? 1, 0 or -errno. */
static int more_follows(struct journal_reader *r, size_t skip, struct err *e)
{
    int rc = 0;
    while (rc == 0 && r->rest.len <= skip && !r->eof)
        rc = fill(r, e);
    return rc < 0 ? rc : r->rest.len > skip;
}

/* ---- records ---- */

static int damaged(const struct journal_reader *r, struct err *e)
{
    return err_set(e, EBADMSG,
                   "journal '%s': record %" PRIu64 " (at byte %" PRId64
                   ") is damaged, and others follow it",
                   shown_name(r), r->next_n ? r->next_n : 1, r->end);
}

/* The end of the readable records. A segment is only put in place with its whole snapshot, so a
 * missing part of the snapshot is an error, even in a torn file. */
static int at_end(struct journal_reader *r, bool torn, struct err *e)
{
    r->torn = torn;
    if (r->snapshot_left == 0)
        return 0;
    return err_set(e, EBADMSG,
                   "journal '%s': its snapshot is not whole: only %" PRIu64 " of %" PRIu64
                   " records are there; record %" PRIu64 " is missing",
                   shown_name(r), r->snapshot_n - r->snapshot_left, r->snapshot_n, r->next_n);
}

const char *journal_range(uint64_t first, uint64_t last, char *out, size_t size)
{
    if (first == last)
        (void)snprintf(out, size, "record %" PRIu64 " is", first);
    else
        (void)snprintf(out, size, "records %" PRIu64 " to %" PRIu64 " are", first, last);
    return out;
}

static int check_number(const struct journal_reader *r, uint64_t n, struct err *e)
{
    char range[JOURNAL_RANGE_MAX];
    if (r->next_n == 0 || n == r->next_n)
        return 0;
    if (n > r->next_n)
        return err_set(e, EBADMSG, "journal '%s': %s missing (at byte %" PRId64 ")", shown_name(r),
                       journal_range(r->next_n, n - 1, range, sizeof range), r->end);
    return err_set(e, EBADMSG,
                   "journal '%s': record %" PRIu64 " stands where record %" PRIu64
                   " was expected (at byte %" PRId64 ")",
                   shown_name(r), n, r->next_n, r->end);
}

static int on_header(struct journal_reader *r, uint64_t n, uint64_t format, uint64_t n_snapshot,
                     struct err *e)
{
    char range[JOURNAL_RANGE_MAX];
    if (format > JOURNAL_FORMAT || format == 0) {
        err_set(e, EINVAL, "journal '%s' has format %" PRIu64 "; this tony reads formats 1 to %d",
                shown_name(r), format, JOURNAL_FORMAT);
        return err_hint(e, "use the version of tony that wrote it, or a newer one");
    }
    bool first = r->n_read == 0;
    if (!first && n_snapshot > 0)
        return err_set(e, EBADMSG,
                       "journal '%s': record %" PRIu64
                       " begins a snapshot, which can only stand at the beginning",
                       shown_name(r), n);
    if (first && n > 1 && n_snapshot == 0)
        return err_set(e, EBADMSG,
                       "journal '%s' begins with record %" PRIu64
                       " and without a snapshot: %s missing",
                       shown_name(r), n, journal_range(1, n - 1, range, sizeof range));
    r->format = (uint32_t)format;
    if (first)
        r->snapshot_n = r->snapshot_left = n_snapshot;
    return 0;
}

/* Set the kind of the record, and check that a record of this kind may be at this place. */
static int classify(struct journal_reader *r, struct journal_record *out, struct span rest,
                    struct err *e)
{
    uint64_t format, n_snapshot;
    char range[JOURNAL_RANGE_MAX];
    out->kind = JOURNAL_EVENT;
    if (r->part)
        return 0;
    if (r->snapshot_left > 0) {
        out->kind = JOURNAL_SNAPSHOT;
        r->snapshot_left--;
        return 0;
    }
    if (is_header(rest, &format, &n_snapshot)) {
        out->kind = JOURNAL_HEADER;
        return on_header(r, out->n, format, n_snapshot, e);
    }
    if (r->n_read == 0 && out->n != 1)
        return err_set(e, EBADMSG, "journal '%s' begins with record %" PRIu64 ": %s missing",
                       shown_name(r), out->n, journal_range(1, out->n - 1, range, sizeof range));
    r->format = r->format ? r->format : 1;
    return 0;
}

int journal_reader_next(struct journal_reader *r, struct journal_record *out, struct err *e)
{
    struct span line, rest;
    size_t skip = 0;
    int rc = next_line(r, &line, &skip, e);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return at_end(r, r->rest.len > 0, e);
    if (!check_line(line, &out->n, &rest)) {
        rc = more_follows(r, skip, e);
        if (rc < 0)
            return rc;
        return rc ? damaged(r, e) : at_end(r, true, e);
    }
    rc = check_number(r, out->n, e);
    if (rc == 0)
        rc = classify(r, out, rest, e);
    if (rc < 0)
        return rc;
    if (r->n_read++ == 0)
        r->first_n = out->n;
    r->next_n = out->n + 1;
    r->end += (int64_t)line.len + 1;
    if (out->kind == JOURNAL_SNAPSHOT || (out->kind == JOURNAL_HEADER && r->n_read == 1))
        r->head_end = r->end;
    out->json = line;
    r->rest = span_mem(r->rest.p + skip, r->rest.len - skip);
    return 1;
}

int journal_read(const char *path, struct buf *out, struct err *e)
{
    AUTO(close_p) int fd = fs_open_file(AT_FDCWD, path, 0, e);
    if (fd < 0)
        return err_wrap(e, fd, "journal");
    if (out->max == 0)
        out->max = SIZE_MAX - 1; /* a journal has no limit of its own */
    int rc = buf_fill_fd(out, fd, e);
    return rc < 0 ? err_wrap(e, rc, "journal '%s'", path) : 0;
}
