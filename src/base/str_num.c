/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parsers of numbers, sizes and truth values in text from users. White space around a value is
 * allowed, since values in XML files often have it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"

enum { SHOWN = 60 }; /* the error sentence quotes at most this many bytes of a wrong value */

static int refuse(struct span s, const char *what, const char *wanted, struct err *e)
{
    int len = (int)(s.len < SHOWN ? s.len : SHOWN);
    if (len == 0)
        return err_set(e, EINVAL, "%s must be %s, but it is empty", what, wanted);
    return err_set(e, EINVAL, "%s must be %s, not '%.*s%s'", what, wanted, len, s.p,
                   s.len > SHOWN ? "..." : "");
}

static int check_range(int64_t v, int64_t min, int64_t max, const char *unit, const char *what,
                       struct err *e)
{
    if (v < min)
        return err_set(e, ERANGE, "%s must be at least %lld%s, not %lld%s", what, (long long)min,
                       unit, (long long)v, unit);
    if (v > max)
        return err_set(e, ERANGE, "%s must be at most %lld%s, not %lld%s", what, (long long)max,
                       unit, (long long)v, unit);
    return 0;
}

/* Parse an optional minus and digits, and cut them off *s. 0, -EINVAL (there is no digit) or
 * -ERANGE (the number needs more than 64 bits). */
static int digits(struct span *s, int64_t *out)
{
    bool minus = s->len > 0 && s->p[0] == '-', any = false, over = false;
    int64_t v = 0;
    size_t i = minus;
    for (; i < s->len && s->p[i] >= '0' && s->p[i] <= '9'; i++) {
        int64_t d = s->p[i] - '0';
        any = true;
        over = over || __builtin_mul_overflow(v, (int64_t)10, &v) ||
               __builtin_add_overflow(v, minus ? -d : d, &v);
    }
    *s = span_mem(s->p + i, s->len - i);
    if (!any)
        return -EINVAL;
    if (over)
        return -ERANGE;
    *out = v;
    return 0;
}

int str_i64(struct span s, int64_t min, int64_t max, const char *what, int64_t *out, struct err *e)
{
    struct span all = span_trim(s), rest = all;
    int64_t v = 0;
    int rc = digits(&rest, &v);
    if (rc == -EINVAL || rest.len > 0)
        return refuse(all, what, "a whole number", e);
    if (rc == -ERANGE)
        return err_set(e, ERANGE, "%s must be between %lld and %lld, not '%.*s'", what,
                       (long long)min, (long long)max, (int)(all.len < SHOWN ? all.len : SHOWN),
                       all.p);
    rc = check_range(v, min, max, "", what, e);
    if (rc == 0)
        *out = v;
    return rc;
}

int str_range(struct span s, int64_t min, int64_t max, const char *what, int64_t *out_first,
              int64_t *out_last, struct err *e)
{
    struct span rest = s, first = { 0 };
    if (!span_split(&rest, '-', &first) || !rest.p)
        return err_set(e, EINVAL, "%s must be a range such as 20000-20999, not '%.*s'", what,
                       (int)MIN(s.len, (size_t)SHOWN), s.p);
    int rc = str_i64(span_trim(first), min, max, what, out_first, e);
    if (rc == 0)
        rc = str_i64(span_trim(rest), min, max, what, out_last, e);
    if (rc == 0 && *out_first > *out_last)
        rc = err_set(e, EINVAL, "%s: the first number, %lld, is larger than the last, %lld", what,
                     (long long)*out_first, (long long)*out_last);
    return rc;
}

int str_real(struct span s, double min, double max, const char *what, double *out, struct err *e)
{
    struct span all = span_trim(s);
    char text[SHOWN], *end = text;
    /* strtod() also reads "nan", "inf" and hexadecimal numbers. */
    bool plain = all.len > 0 && all.len < sizeof text;
    for (size_t i = 0; plain && i < all.len; i++)
        plain = all.p[i] != '\0' && strchr("0123456789+-.eE", all.p[i]) != NULL;
    if (plain) {
        memcpy(text, all.p, all.len);
        text[all.len] = '\0';
    }
    double v = plain ? strtod(text, &end) : 0;
    if (!plain || *end)
        return refuse(all, what, "a number", e);
    if (v < min || v > max)
        return err_set(e, ERANGE, "%s must be between %g and %g, not %s", what, min, max, text);
    *out = v;
    return 0;
}

static bool same_word(struct span s, const char *word)
{
    return s.len == strlen(word) && strncasecmp(s.p, word, s.len) == 0;
}

/* The units of times, the largest first. */
static const struct time_unit {
    const char *name, *one, *many;
    int64_t ms;
} time_units[] = { { "d", "day", "days", 86400000 },
                   { "h", "hour", "hours", 3600000 },
                   { "m", "minute", "minutes", 60000 },
                   { "s", "second", "seconds", 1000 },
                   { "ms", "ms", "ms", 1 } };

/* The largest unit in which the time needs no fraction. */
static const struct time_unit *whole_unit(int64_t ms)
{
    const struct time_unit *u = time_units;
    while (u->ms > 1 && (ms == 0 || ms % u->ms != 0))
        u++;
    return u;
}

/* "90 seconds", "1 day" */
static const char *in_words(int64_t ms, char *buf, size_t n)
{
    const struct time_unit *u = whole_unit(ms);
    int64_t count = ms / u->ms;
    (void)snprintf(buf, n, "%lld %s", (long long)count, count == 1 ? u->one : u->many);
    return buf;
}

const char *str_ms_text(int64_t ms, char *buf, size_t n)
{
    const struct time_unit *u = whole_unit(ms);
    (void)snprintf(buf, n, "%lld%s", (long long)(ms / u->ms), u->name);
    return buf;
}

int str_ms(struct span s, int64_t min, int64_t max, const char *what, int64_t *out, struct err *e)
{
    struct span all = span_trim(s), rest = all;
    int64_t v = 0, times = 0;
    int rc = digits(&rest, &v);
    rest = span_trim(rest);
    for (size_t i = 0; i < sizeof time_units / sizeof *time_units; i++)
        if (same_word(rest, time_units[i].name))
            times = time_units[i].ms;
    if (rc == -EINVAL || !times) {
        (void)refuse(all, what, "a time", e);
        return err_hint(e, "write a number and its unit: " STR_MS_FORMS);
    }
    char least[48], most[48];
    if (rc == -ERANGE || __builtin_mul_overflow(v, times, &v) || v < min || v > max)
        return err_set(e, ERANGE, "%s must be between %s and %s, not '%.*s'", what,
                       in_words(min, least, sizeof least), in_words(max, most, sizeof most),
                       (int)(all.len < SHOWN ? all.len : SHOWN), all.p);
    *out = v;
    return 0;
}

int str_mib(struct span s, int64_t min, int64_t max, const char *what, int64_t *out, struct err *e)
{
    static const struct {
        const char *name[3];
        int64_t times, divisor; /* MiB = number * times / divisor */
    } units[] = {
        { { "", "m", "mb" }, 1, 1 },
        { { "mib", "mib", "mib" }, 1, 1 },
        { { "k", "kb", "kib" }, 1, 1024 },
        { { "g", "gb", "gib" }, 1024, 1 },
        { { "t", "tb", "tib" }, INT64_C(1024) * 1024, 1 },
    };
    static const char wanted[] = "a size in whole MiB such as 2g, 512m or 2048";
    struct span all = span_trim(s), unit = all;
    int64_t v = 0;
    int rc = digits(&unit, &v);
    if (rc == -EINVAL)
        return refuse(all, what, wanted, e);
    unit = span_trim(unit);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (!same_word(unit, units[i].name[0]) && !same_word(unit, units[i].name[1]) &&
            !same_word(unit, units[i].name[2]))
            continue;
        if (rc == -ERANGE || __builtin_mul_overflow(v, units[i].times, &v))
            return err_set(e, ERANGE, "%s must be at most %lld MiB, not '%.*s'", what,
                           (long long)max, (int)(all.len < SHOWN ? all.len : SHOWN), all.p);
        if (v % units[i].divisor != 0)
            return refuse(all, what, wanted, e);
        v /= units[i].divisor;
        rc = check_range(v, min, max, " MiB", what, e);
        if (rc == 0)
            *out = v;
        return rc;
    }
    return refuse(all, what, wanted, e);
}

int str_bool(struct span s, const char *what, bool *out, struct err *e)
{
    static const char *const words[][2] = {
        { "false", "true" }, { "no", "yes" }, { "off", "on" }, { "0", "1" }
    };
    struct span all = span_trim(s);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        for (int v = 0; v < 2; v++) {
            if (same_word(all, words[i][v])) {
                *out = v;
                return 0;
            }
        }
    }
    return refuse(all, what, "true or false", e);
}
