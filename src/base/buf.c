/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool span_eq(struct span a, struct span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.p, b.p, a.len) == 0);
}

bool span_eqs(struct span a, const char *s)
{
    return span_eq(a, span_of(s));
}

bool span_has(struct span a, const char *text)
{
    return a.len > 0 && memmem(a.p, a.len, text, strlen(text));
}

bool span_starts(struct span a, const char *prefix)
{
    size_t len = strlen(prefix);
    return a.len >= len && (len == 0 || memcmp(a.p, prefix, len) == 0);
}

struct span span_trim(struct span a)
{
    while (a.len > 0 && is_space(a.p[0])) {
        a.p++;
        a.len--;
    }
    while (a.len > 0 && is_space(a.p[a.len - 1]))
        a.len--;
    return a;
}

bool span_split(struct span *rest, char sep, struct span *out)
{
    if (!rest->p)
        return false;
    const char *end = rest->len > 0 ? memchr(rest->p, sep, rest->len) : NULL;
    if (end) {
        *out = span_mem(rest->p, (size_t)(end - rest->p));
        *rest = span_mem(end + 1, rest->len - out->len - 1);
    } else {
        *out = *rest;
        *rest = (struct span){ 0 };
    }
    return true;
}

char *span_dup(struct span a)
{
    size_t size;
    if (__builtin_add_overflow(a.len, 1, &size))
        return NULL;
    char *s = malloc(size);
    if (!s)
        return NULL;
    if (a.len > 0)
        memcpy(s, a.p, a.len);
    s[a.len] = '\0';
    return s;
}

/* The length in bytes of the UTF-8 sequence at p, or 0 if it is NUL or not well-formed. There must
 * be at least one byte (left >= 1). RFC 3629 forbids overlong forms, surrogates and code points
 * above U+10FFFF; the first two bytes show all three. */
static size_t utf8_len(const unsigned char *p, size_t left)
{
    unsigned char c = p[0], low = 0x80, high = 0xbf;
    size_t len;
    if (c < 0x80)
        return c != 0;
    if (c >= 0xc2 && c <= 0xdf) {
        len = 2;
    } else if (c >= 0xe0 && c <= 0xef) {
        len = 3;
        low = c == 0xe0 ? 0xa0 : 0x80;
        high = c == 0xed ? 0x9f : 0xbf;
    } else if (c >= 0xf0 && c <= 0xf4) {
        len = 4;
        low = c == 0xf0 ? 0x90 : 0x80;
        high = c == 0xf4 ? 0x8f : 0xbf;
    } else {
        return 0;
    }
    if (left < len || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    return len;
}

bool span_utf8(struct span a, size_t *out_bad_at)
{
    const unsigned char *p = (const unsigned char *)a.p;
    for (size_t i = 0; i < a.len;) {
        size_t len = utf8_len(p + i, a.len - i);
        if (len == 0) {
            if (out_bad_at)
                *out_bad_at = i;
            return false;
        }
        i += len;
    }
    return true;
}

unsigned span_line_at(struct span text, size_t at)
{
    unsigned line = 1;
    for (size_t i = 0; i < at && i < text.len; i++)
        line += text.p[i] == '\n';
    return line;
}

bool span_has_control(struct span a)
{
    const unsigned char *p = (const unsigned char *)a.p;
    for (size_t i = 0; i < a.len; i++) {
        bool c1 = p[i] == 0xc2 && i + 1 < a.len && p[i + 1] >= 0x80 && p[i + 1] < 0xa0;
        if (p[i] < 0x20 || p[i] == 0x7f || c1)
            return true;
    }
    return false;
}

static size_t limit(const struct buf *b)
{
    return b->max ? b->max : BUF_MAX_DEFAULT;
}

void buf_done(struct buf *b)
{
    free(b->p);
    *b = (struct buf){ .max = b->max };
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->p)
        b->p[0] = '\0';
}

/* Make room for len more bytes and the NUL. Returns 0; or sets b->failed and returns -EMSGSIZE or
 * -ENOMEM. */
static int grow(struct buf *b, size_t len)
{
    size_t want;
    int rc = -EMSGSIZE;
    if (__builtin_add_overflow(b->len, len, &want) || want > limit(b))
        goto fail;
    rc = -ENOMEM;
    if (b->failed || want == SIZE_MAX)
        goto fail;
    want++;
    if (want <= b->cap)
        return 0;
    size_t cap = b->cap < 64 ? 64 : b->cap;
    while (cap < want) {
        if (__builtin_add_overflow(cap, cap, &cap))
            cap = want;
    }
    if (cap > limit(b) && limit(b) < SIZE_MAX)
        cap = limit(b) + 1;
    char *p = realloc(b->p, cap);
    if (!p)
        goto fail;
    b->p = p;
    b->p[b->len] = '\0'; /* buf_commit() may not follow, so buf_reserve() needs the NUL now */
    b->cap = cap;
    return 0;
fail:
    b->failed = true;
    return rc;
}

/* Is there room for len more bytes and the NUL already? That is so for most appends. */
static inline bool has_room(const struct buf *b, size_t len)
{
    return !b->failed && len < b->cap - b->len && b->len + len <= limit(b);
}

int buf_add(struct buf *b, const void *p, size_t len)
{
    int rc = has_room(b, len) ? 0 : grow(b, len);
    if (rc < 0)
        return rc;
    if (len > 0)
        memcpy(b->p + b->len, p, len);
    b->len += len;
    b->p[b->len] = '\0';
    return 0;
}

int buf_adds(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

int buf_addc(struct buf *b, char c)
{
    if (!has_room(b, 1))
        return buf_add(b, &c, 1);
    b->p[b->len++] = c;
    b->p[b->len] = '\0';
    return 0;
}

int buf_vaddf(struct buf *b, const char *fmt, va_list ap)
{
    va_list second_ap; /* the first vsnprintf() uses up ap */
    va_copy(second_ap, ap);
    size_t room = b->failed ? 0 : b->cap - b->len;
    int len = vsnprintf(room ? b->p + b->len : NULL, room, fmt, ap), rc = -EINVAL;
    if (len >= 0)
        rc = grow(b, (size_t)len);
    if (rc == 0 && (size_t)len >= room)
        (void)vsnprintf(b->p + b->len, (size_t)len + 1, fmt, second_ap);
    va_end(second_ap);
    if (rc == 0) {
        b->len += (size_t)len;
    } else {
        b->failed = true;
        if (b->p && b->len < b->cap)
            b->p[b->len] = '\0'; /* the first vsnprintf() may have written behind the end */
    }
    return rc;
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = buf_vaddf(b, fmt, ap);
    va_end(ap);
    return rc;
}

void *buf_reserve(struct buf *b, size_t len)
{
    return grow(b, len) < 0 ? NULL : b->p + b->len;
}

void buf_commit(struct buf *b, size_t len)
{
    assert(b->len + len < b->cap);
    b->len += len;
    b->p[b->len] = '\0';
}

void buf_consume(struct buf *b, size_t len)
{
    assert(len <= b->len);
    if (len == 0)
        return;
    b->len -= len;
    memmove(b->p, b->p + len, b->len + 1); /* + 1: the NUL */
}

const char *buf_cstr(const struct buf *b)
{
    return b->p ? b->p : "";
}

char *buf_steal(struct buf *b)
{
    if (grow(b, 0) < 0) {
        buf_done(b);
        return NULL;
    }
    char *p = b->p;
    p[b->len] = '\0';
    *b = (struct buf){ .max = b->max };
    return p;
}

static int too_large(struct buf *b, struct err *e)
{
    b->failed = true;
    return err_set(e, EFBIG, "the content is larger than %zu bytes", limit(b));
}

int buf_fill_fd(struct buf *b, int fd, struct err *e)
{
    struct stat st;
    size_t chunk = 4096;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        if ((uintmax_t)st.st_size > limit(b))
            return too_large(b, e);
        chunk = (size_t)st.st_size;
    }
    for (;;) {
        size_t room = limit(b) - b->len;
        char extra;
        void *to = &extra; /* if b is full: reading one more byte shows whether more follows */
        if (room > 0) {
            room = room < chunk ? room : chunk;
            to = buf_reserve(b, room);
            if (!to)
                return err_set(e, ENOMEM, "cannot read the content: %m");
        }
        ssize_t got = read(fd, to, room > 0 ? room : 1);
        if (got == -1 && errno == EINTR)
            continue;
        if (got == -1)
            return err_set(e, errno, "cannot read the content: %m");
        if (got == 0)
            return b->failed ? err_set(e, ENOMEM, "cannot read the content: %m") : 0;
        if (room == 0)
            return too_large(b, e);
        buf_commit(b, (size_t)got);
        chunk = chunk < 65536 ? 65536 : chunk;
    }
}
