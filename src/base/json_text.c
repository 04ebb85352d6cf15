/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

size_t json_escape(unsigned char c, char out[JSON_ESCAPE_MAX])
{
    static const char named[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* the byte, then its letter */
    for (size_t i = 0; i + 1 < sizeof named; i += 2) {
        if ((unsigned char)named[i] == c) {
            out[0] = '\\';
            out[1] = named[i + 1];
            return 2;
        }
    }
    if (c >= 0x20 && c != 0x7f)
        return 0;
    return (size_t)snprintf(out, JSON_ESCAPE_MAX, "\\u%04x", c);
}

/* How many bytes at the front of s need no escape? */
static size_t plain_run(struct span s)
{
    size_t n = 0;
    while (n < s.len && (unsigned char)s.p[n] >= 0x20 && s.p[n] != '"' && s.p[n] != '\\' &&
           s.p[n] != 0x7f)
        n++;
    return n;
}

/* s is UTF-8. */
static int add_valid(struct buf *b, struct span s)
{
    int rc = 0;
    while (s.len > 0 && rc == 0) {
        char escape[JSON_ESCAPE_MAX];
        size_t n = plain_run(s);
        rc = n ? buf_add(b, s.p, n) : 0;
        if (rc == 0 && n < s.len)
            rc = buf_add(b, escape, json_escape((unsigned char)s.p[n++], escape));
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
