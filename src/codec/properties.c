/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/properties.h"

#include <errno.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"

struct reading {
    const char *name, *p, *end;
    unsigned line;
    struct err *e;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\f';
}

static bool is_end(char c)
{
    return c == '\n' || c == '\r';
}

static void skip_blanks(struct reading *r)
{
    while (r->p < r->end && is_blank(*r->p))
        r->p++;
}

static void skip_newline(struct reading *r)
{
    if (r->p < r->end && *r->p == '\r')
        r->p++;
    if (r->p < r->end && *r->p == '\n')
        r->p++;
    r->line++;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Read the four hexadecimal digits of \uXXXX, a UTF-16 unit. -1: they are missing. */
static int take_unit(struct reading *r)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int d = r->p < r->end ? hex(*r->p) : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
        r->p++;
    }
    return v;
}

static int add_utf8(struct buf *out, unsigned c)
{
    char b[4];
    size_t n = 0;
    if (c < 0x80) {
        b[n++] = (char)c;
    } else if (c < 0x800) {
        b[n++] = (char)(0xc0 | c >> 6);
        b[n++] = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        b[n++] = (char)(0xe0 | c >> 12);
        b[n++] = (char)(0x80 | (c >> 6 & 0x3f));
        b[n++] = (char)(0x80 | (c & 0x3f));
    } else {
        b[n++] = (char)(0xf0 | c >> 18);
        b[n++] = (char)(0x80 | (c >> 12 & 0x3f));
        b[n++] = (char)(0x80 | (c >> 6 & 0x3f));
        b[n++] = (char)(0x80 | (c & 0x3f));
    }
    return buf_add(out, b, n);
}

static int bad(struct reading *r, const char *what)
{
    return err_set(r->e, EINVAL, "%s:%u: %s", r->name, r->line, what);
}

/* Read what follows \u. Java writes a character above U+FFFF as two units: a surrogate pair. */
static int take_unicode(struct reading *r, struct buf *out)
{
    int c = take_unit(r);
    if (c <= 0)
        return bad(r, c ? "\\u needs four hexadecimal digits" : "a NUL cannot be a part of a text");
    if (c >= 0xd800 && c < 0xdc00 && r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u') {
        r->p += 2;
        int low = take_unit(r);
        if (low < 0xdc00 || low > 0xdfff)
            return bad(r, "the second half of a character is missing");
        return add_utf8(out, 0x10000 + (((unsigned)c - 0xd800) << 10) + ((unsigned)low - 0xdc00));
    }
    if (c >= 0xd800 && c <= 0xdfff)
        return bad(r, "\\u has only one half of a character (an unpaired surrogate)");
    return add_utf8(out, (unsigned)c);
}

/* Read what follows a backslash. */
static int take_escape(struct reading *r, struct buf *out)
{
    if (r->p == r->end)
        return 0;
    if (is_end(*r->p)) { /* the next line continues this one */
        skip_newline(r);
        skip_blanks(r);
        return 0;
    }
    char c = *r->p++;
    if (c == 'u')
        return take_unicode(r, out);
    return buf_addc(out, (char)(c == 't'   ? '\t'
                                : c == 'n' ? '\n'
                                : c == 'r' ? '\r'
                                : c == 'f' ? '\f'
                                           : c));
}

/* Read a text up to the end of the line; a key only up to its separator. */
static int take_text(struct reading *r, bool key, struct buf *out)
{
    int rc = 0;
    while (rc == 0 && r->p < r->end && !is_end(*r->p)) {
        char c = *r->p;
        if (key && (is_blank(c) || c == '=' || c == ':'))
            break;
        r->p++;
        if (c == '\0')
            rc = bad(r, "a NUL cannot be a part of a text");
        else
            rc = c == '\\' ? take_escape(r, out) : buf_addc(out, c);
    }
    return rc;
}

static int take_property(struct reading *r, struct buf *key, struct buf *value)
{
    int rc = take_text(r, true, key);
    skip_blanks(r);
    if (rc == 0 && r->p < r->end && (*r->p == '=' || *r->p == ':')) {
        r->p++;
        skip_blanks(r);
    }
    return rc == 0 ? take_text(r, false, value) : rc;
}

int properties_parse(const char *name, struct span text, property_fn *fn, void *arg, struct err *e)
{
    struct reading r = { name, text.p, text.p + text.len, 1, e };
    if (text.len > PROPERTIES_MAX)
        return err_set(e, EFBIG, "%s has %zu bytes; the limit is %d", name, text.len,
                       PROPERTIES_MAX);
    AUTO(buf_done) struct buf key = { 0 }, value = { 0 };
    int rc = 0;
    while (rc == 0 && r.p < r.end) {
        skip_blanks(&r);
        if (r.p == r.end)
            break;
        if (is_end(*r.p)) {
            skip_newline(&r);
            continue;
        }
        if (*r.p == '#' || *r.p == '!') {
            while (r.p < r.end && !is_end(*r.p))
                r.p++;
            continue;
        }
        buf_clear(&key);
        buf_clear(&value);
        rc = take_property(&r, &key, &value);
        if (rc == 0)
            rc = fn(buf_cstr(&key), buf_cstr(&value), arg);
        else if (!e->num)
            rc = err_set(e, ENOMEM, "no memory to read '%s'", name);
    }
    return rc;
}
