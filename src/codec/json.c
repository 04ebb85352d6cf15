/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/json.h"

#include <errno.h>

#include "base/err.h"

/* Is the text nested too deeply? Counts brackets outside of strings. The parser finds other
 * errors. */
static bool too_deep(struct span text, size_t *out_at)
{
    unsigned depth = 0;
    bool in_str = false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];
        if (in_str) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_str = false;
        } else if (c == '"') {
            in_str = true;
        } else if (c == '[' || c == '{') {
            if (++depth > JSON_DEPTH_MAX) {
                *out_at = i;
                return true;
            }
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return false;
}

int json_parse(const char *what, struct span text, json_t **out, struct err *e)
{
    size_t at = 0;
    json_error_t je = { .line = 0 };
    if (too_deep(text, &at))
        return err_set(e, EINVAL, "%s:%u: nested more than %d levels deep", what,
                       span_line_at(text, at), JSON_DEPTH_MAX);
    json_t *j = json_loadb(text.len > 0 ? text.p : "", text.len,
                           JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    /* jansson reports a failure of its first allocation without a text. */
    if (!j && (je.text[0] == '\0' || json_error_code(&je) == json_error_out_of_memory))
        return err_set(e, ENOMEM, "%s: cannot read it: %m", what);
    if (!j)
        return err_set(e, EINVAL, "%s:%d: cannot be read as JSON: %s", what,
                       je.line > 0 ? je.line : 1, je.text);
    *out = j;
    return 0;
}

void json_freep(json_t **j)
{
    json_decref(*j);
    *j = NULL;
}

const char *json_str(const json_t *obj, const char *key, const char *dflt)
{
    const char *s = json_string_value(json_object_get(obj, key));
    return s ? s : dflt;
}

int64_t json_int(const json_t *obj, const char *key, int64_t dflt)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_integer(v) ? json_integer_value(v) : dflt;
}

bool json_flag(const json_t *obj, const char *key, bool dflt)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_boolean(v) ? json_is_true(v) : dflt;
}

/* The short escape of c, or 0. */
static char short_escape(unsigned char c)
{
    switch (c) {
    case '"':
    case '\\':
        return (char)c;
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return 0;
    }
}

/* How many bytes from p on need no escape? */
static size_t plain_run(const char *p, size_t len)
{
    size_t n = 0;
    while (n < len && (unsigned char)p[n] >= 0x20 && p[n] != '"' && p[n] != '\\' && p[n] != 0x7f)
        n++;
    return n;
}

static int add_special(struct buf *b, unsigned char c)
{
    char esc = short_escape(c);
    if (esc)
        return buf_add(b, (char[2]){ '\\', esc }, 2);
    return buf_addf(b, "\\u%04x", c);
}

static int add_valid(struct buf *b, struct span s)
{
    int rc = 0;
    while (s.len > 0 && rc == 0) {
        size_t n = plain_run(s.p, s.len);
        if (n > 0)
            rc = buf_add(b, s.p, n);
        if (rc == 0 && n < s.len)
            rc = add_special(b, (unsigned char)s.p[n++]);
        s = span_mem(s.p + n, s.len - n);
    }
    return rc;
}

/* Is the text ASCII without anything to escape? Nearly all texts are. */
static bool is_plain(struct span s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
            return false;
    }
    return true;
}

int json_add_str(struct buf *b, struct span s)
{
    int rc = buf_addc(b, '"');
    if (rc == 0 && is_plain(s)) {
        rc = buf_add(b, s.p, s.len);
        s.len = 0;
    }
    while (s.len > 0 && rc == 0) {
        size_t bad = s.len;
        if (span_utf8(s, &bad))
            bad = s.len;
        rc = add_valid(b, span_mem(s.p, bad));
        if (rc == 0 && bad < s.len) {
            /* NUL has an escape; other bytes that are not UTF-8 become U+FFFD */
            rc = s.p[bad] == '\0' ? buf_adds(b, "\\u0000") : buf_adds(b, "\xef\xbf\xbd");
            bad++;
        }
        s = span_mem(s.p + bad, s.len - bad);
    }
    return rc < 0 ? rc : buf_addc(b, '"');
}
