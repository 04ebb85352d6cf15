/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *str_printf(const char *fmt, ...)
{
    va_list ap;
    char *s;
    va_start(ap, fmt);
    int len = vasprintf(&s, fmt, ap);
    va_end(ap);
    return len < 0 ? NULL : s;
}

char *str_dup(const char *s)
{
    return s ? strdup(s) : NULL;
}

bool str_eq(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

void str_mask_controls(char *s)
{
    for (; *s; s++) {
        if (*s == '\n' || *s == '\t' || *s == '\r')
            *s = ' ';
        else if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
        else if ((unsigned char)*s == 0xc2 && (unsigned char)s[1] >= 0x80 &&
                 (unsigned char)s[1] < 0xa0) /* C1: a terminal reads U+009B as "ESC [" */
            s[0] = s[1] = '?';
    }
}

bool str_copy(char *dst, size_t size, const char *src)
{
    size_t len = strnlen(src, size);
    bool fits = len < size;
    if (size == 0)
        return false;
    if (!fits) /* cut before a UTF-8 character, not inside it */
        for (len = size - 1; len > 0 && ((unsigned char)src[len] & 0xc0) == 0x80;)
            len--;
    memcpy(dst, src, len);
    dst[len] = '\0';
    return fits;
}

enum { DISTANCE_MAX = 255 };

unsigned str_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned row[DISTANCE_MAX + 1];
    if (n > DISTANCE_MAX || m > DISTANCE_MAX)
        return DISTANCE_MAX;
    for (unsigned j = 0; j <= m; j++)
        row[j] = j;
    for (unsigned i = 1; i <= n; i++) {
        unsigned corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            unsigned best = corner + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            corner = row[j];
            row[j] = best;
        }
    }
    return row[m];
}

static void lower(char *dst, size_t size, const char *src)
{
    (void)str_copy(dst, size, src);
    for (; *dst; dst++)
        *dst = (char)tolower((unsigned char)*dst);
}

const char *str_nearest(const char *s, const char *const *list, size_t n)
{
    char word[DISTANCE_MAX + 1], candidate[DISTANCE_MAX + 1];
    size_t len = strlen(s);
    /* Accept one typing error in a word of up to 3 letters and up to four in a long key. A
     * candidate must have at least one letter in common with s: its distance is less than either
     * length. */
    unsigned limit = len / 4 + 1 > 4 ? 4 : (unsigned)len / 4 + 1;
    const char *best = NULL;
    lower(word, sizeof word, s);
    for (size_t i = 0; i < n; i++) {
        lower(candidate, sizeof candidate, list[i]);
        unsigned d = str_distance(word, candidate);
        if (d < limit + (best == NULL) && d < strlen(candidate) && d < len) {
            limit = d;
            best = list[i];
        }
    }
    return best;
}

const char *str_size(uint64_t bytes, char *buf, size_t n)
{
    static const char units[][3] = { "B", "KB", "MB", "GB", "TB", "PB", "EB" };
    size_t unit = 0;
    uint64_t scale = 1;
    while (unit + 1 < sizeof units / sizeof *units && bytes / scale >= 1024) {
        scale *= 1024;
        unit++;
    }
    uint64_t whole = bytes / scale, tenth = unit ? bytes % scale * 10 / scale : 0;
    if (tenth > 0 && whole < 100)
        (void)snprintf(buf, n, "%llu.%llu %s", (unsigned long long)whole, (unsigned long long)tenth,
                       units[unit]);
    else
        (void)snprintf(buf, n, "%llu %s", (unsigned long long)whole, units[unit]);
    return buf;
}

const char *str_duration(int64_t ms, char *buf, size_t n)
{
    const char *sign = ms < 0 ? "-" : "";
    uint64_t t = ms < 0 ? 0 - (uint64_t)ms : (uint64_t)ms;
    unsigned long long s = t / 1000;
    if (t < 1000)
        (void)snprintf(buf, n, "%s%llu ms", sign, (unsigned long long)t);
    else if (s < 60)
        (void)snprintf(buf, n, "%s%llu.%llu s", sign, s, (unsigned long long)(t % 1000 / 100));
    else if (s < 3600)
        (void)snprintf(buf, n, "%s%llu m %02llu s", sign, s / 60, s % 60);
    else if (s < 86400)
        (void)snprintf(buf, n, "%s%llu h %02llu m", sign, s / 3600, s / 60 % 60);
    else
        (void)snprintf(buf, n, "%s%llu d %02llu h", sign, s / 86400, s / 3600 % 24);
    return buf;
}
