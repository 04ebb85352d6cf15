/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/http_parse.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"

enum { LINE_MAX_BYTES = 1024, TRAILERS_MAX = 64, CHUNK_DIGITS_MAX = 15 };

struct span http_find(struct span head, const char *name)
{
    struct span rest = head, line;
    size_t len = strlen(name);
    while (span_split(&rest, '\n', &line))
        if (line.len > len && line.p[len] == ':' && strncasecmp(line.p, name, len) == 0)
            return span_trim(span_mem(line.p + len + 1, line.len - len - 1));
    return (struct span){ 0 };
}

/* Does a list such as "close, TE" contain the word? */
static bool has_word(struct span list, const char *word)
{
    struct span item;
    while (list.p && span_split(&list, ',', &item)) {
        item = span_trim(item);
        if (item.len == strlen(word) && strncasecmp(item.p, word, item.len) == 0)
            return true;
    }
    return false;
}

static int bad(struct err *e, const char *what)
{
    return err_set(e, EPROTO, "the answer is not HTTP: %s", what);
}

/* Read Content-Length. Two different lengths are an error: an attacker can use them to hide a
 * second response in the first one (response smuggling). */
static int find_length(struct span head, int64_t *out, struct err *e)
{
    struct span rest = head, line;
    int64_t n = -1;
    while (span_split(&rest, '\n', &line)) {
        struct span v = http_find(line, "Content-Length");
        int64_t one;
        if (!v.p)
            continue;
        if (str_i64(v, 0, INT64_MAX, "Content-Length", &one, NULL) < 0 || (n >= 0 && one != n))
            return bad(e, "its length is not a number");
        n = one;
    }
    *out = n;
    return 0;
}

static int read_status(struct http_parse *x, struct span head, bool *out_old, struct err *e)
{
    int64_t status;
    if (head.len < 12 || !span_starts(head, "HTTP/1.") || head.p[8] != ' ')
        return bad(e, "it does not begin with a status line");
    if (str_i64(span_mem(head.p + 9, 3), 100, 999, "status", &status, NULL) < 0)
        return bad(e, "its status is not a number");
    x->status = (int)status;
    *out_old = head.p[7] == '0';
    return 0;
}

static int head_over(struct http_parse *x, struct err *e)
{
    struct span head = buf_span(&x->head);
    bool old = false;
    int rc = read_status(x, head, &old, e);
    if (rc < 0)
        return rc;
    if (x->status < 200 && x->status != 101) { /* 100 Continue: the real response follows */
        buf_clear(&x->head);
        return 0;
    }
    struct span coding = http_find(head, "Transfer-Encoding"),
                connection = http_find(head, "Connection");
    rc = find_length(head, &x->left, e);
    if (rc < 0)
        return rc;
    x->keep = old ? has_word(connection, "keep-alive") : !has_word(connection, "close");
    if (x->no_body || x->status == 204 || x->status == 304) {
        x->state = HP_DONE;
    } else if (coding.p) {
        if (x->left >= 0 || coding.len != 7 || strncasecmp(coding.p, "chunked", 7) != 0)
            return bad(e, "its transfer encoding is not known");
        x->state = HP_CHUNK;
    } else if (x->left >= 0) {
        x->state = x->left == 0 ? HP_DONE : HP_LENGTH;
    } else {
        x->keep = false;
        x->state = HP_TO_END;
    }
    return 0;
}

/* Add the bytes up to the end of the line to b. 1: the line is complete. */
static int take_line(struct buf *b, const char *p, size_t n, size_t *out_taken, struct err *e)
{
    const char *end = memchr(p, '\n', n);
    size_t take = end ? (size_t)(end - p) + 1 : n;
    int rc = buf_add(b, p, take);
    if (rc == -EMSGSIZE)
        return err_set(e, EMSGSIZE, "the headers of the HTTP answer are too long");
    if (rc < 0)
        return err_set(e, ENOMEM, "cannot read an answer: %m");
    *out_taken = take;
    return end != NULL;
}

static bool head_ends(const struct buf *b)
{
    return (b->len >= 2 && memcmp(b->p + b->len - 2, "\n\n", 2) == 0) ||
           (b->len >= 3 && memcmp(b->p + b->len - 3, "\n\r\n", 3) == 0);
}

static int chunk_size(struct http_parse *x, struct err *e)
{
    struct span s = buf_span(&x->line);
    size_t i = 0;
    int64_t n = 0;
    for (; i < s.len && strchr("0123456789abcdefABCDEF", s.p[i]) && s.p[i]; i++) {
        char c = s.p[i];
        int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
        if (i >= CHUNK_DIGITS_MAX)
            return bad(e, "a chunk is too large");
        n = n * 16 + digit;
    }
    if (i == 0 || (i < s.len && !strchr("\r\n; \t", s.p[i])))
        return bad(e, "a chunk has no size");
    x->left = n;
    x->state = n > 0 ? HP_DATA : HP_TRAILER;
    return 0;
}

/* Handle a line between two chunks, or after the last one. */
static int line_over(struct http_parse *x, struct err *e)
{
    int rc = 0;
    bool empty = span_trim(buf_span(&x->line)).len == 0;
    if (x->state == HP_CHUNK)
        rc = chunk_size(x, e);
    else if (x->state == HP_DATA_END && !empty)
        rc = bad(e, "a chunk is longer than it says");
    else if (x->state == HP_DATA_END)
        x->state = HP_CHUNK;
    else if (empty)
        x->state = HP_DONE;
    else if (++x->n_trailers > TRAILERS_MAX)
        rc = bad(e, "it does not end");
    buf_clear(&x->line);
    return rc;
}

static int parse_some(struct http_parse *x, const char *p, size_t n, size_t *out_taken,
                      void (*body)(const char *p, size_t n, void *arg), void *arg, struct err *e)
{
    int rc;
    switch (x->state) {
    case HP_HEAD:
        rc = take_line(&x->head, p, n, out_taken, e);
        return rc > 0 && head_ends(&x->head) ? head_over(x, e) : MIN(rc, 0);
    case HP_CHUNK:
    case HP_DATA_END:
    case HP_TRAILER:
        x->line.max = LINE_MAX_BYTES;
        rc = take_line(&x->line, p, n, out_taken, e);
        return rc > 0 ? line_over(x, e) : rc;
    case HP_LENGTH:
    case HP_DATA:
        *out_taken = (uint64_t)x->left < n ? (size_t)x->left : n;
        x->left -= (int64_t)*out_taken;
        if (x->left == 0)
            x->state = x->state == HP_LENGTH ? HP_DONE : HP_DATA_END;
        body(p, *out_taken, arg);
        return 0;
    case HP_TO_END:
        *out_taken = n;
        body(p, n, arg);
        return 0;
    case HP_DONE:
    default:
        *out_taken = 0;
        return 0;
    }
}

ssize_t http_parse(struct http_parse *x, const char *p, size_t n,
                   void (*body)(const char *p, size_t n, void *arg), void *arg, struct err *e)
{
    size_t at = 0;
    while (at < n && x->state != HP_DONE) {
        size_t taken = 0;
        int rc = parse_some(x, p + at, n - at, &taken, body, arg, e);
        if (rc < 0)
            return rc;
        at += taken;
    }
    return (ssize_t)at;
}

int http_parse_eof(struct http_parse *x, struct err *e)
{
    if (x->state == HP_TO_END)
        x->state = HP_DONE;
    if (x->state == HP_DONE)
        return 0;
    return err_set(e, ECONNRESET,
                   x->state == HP_HEAD && x->head.len == 0
                       ? "the connection was closed before an answer came"
                       : "the connection was closed in the middle of the answer");
}

void http_parse_done(struct http_parse *x)
{
    buf_done(&x->head);
    buf_done(&x->line);
}
