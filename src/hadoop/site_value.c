/* SPDX-License-Identifier: Apache-2.0 */
/* The values of site files: variables and types. */
#include "hadoop/site_int.h"

#include <errno.h>
#include <stdlib.h>

#include "base/base.h"

/* Find the first ${name} in s from *at on; of nested ones, the innermost. *at: its start; *out_end:
 * the position after its "}". */
static bool find_variable(struct span s, size_t *at, size_t *out_end)
{
    for (size_t i = *at; i + 2 < s.len; i++) {
        if (s.p[i] != '$' || s.p[i + 1] != '{')
            continue;
        for (size_t k = i + 2; k < s.len; k++) {
            char c = s.p[k];
            if (c == '}' && k > i + 2) {
                *at = i;
                *out_end = k + 1;
                return true;
            }
            if (c == '}' || c == '$' || c == ' ')
                break;
        }
    }
    return false;
}

/* The value of ${env.NAME}, ${env.NAME:-default} or ${env.NAME-default}; p NULL: unknown. */
static struct span environment(struct span name)
{
    size_t n = 0;
    while (n < name.len && name.p[n] != '-' &&
           !(name.p[n] == ':' && n + 1 < name.len && name.p[n + 1] == '-'))
        n++;
    bool has_default = n < name.len, or_empty = has_default && name.p[n] == ':';
    struct span dflt = { 0 };
    if (has_default)
        dflt = span_mem(name.p + n + (or_empty ? 2 : 1), name.len - n - (or_empty ? 2 : 1));
    char key[256];
    if (n == 0 || n >= sizeof key)
        return dflt;
    memcpy(key, name.p, n);
    key[n] = '\0';
    const char *v = getenv(key);
    if (!v || (or_empty && !*v))
        return dflt;
    return span_of(v);
}

static struct span variable(const struct site *s, struct span name)
{
    AUTO(free_p) char *key = span_dup(name);
    if (!key)
        return (struct span){ 0 };
    if (span_starts(name, "env."))
        return environment(span_mem(name.p + 4, name.len - 4));
    const struct site_prop *p = map_get(&s->props, key);
    return span_of(p ? p->value : map_get(&s->defaults, key));
}

/* Replace the variables of a value. The caller frees the result; NULL = no memory, or longer than
 * SITE_VALUE_MAX. */
static char *expand(const struct site *s, const char *value)
{
    struct buf text = { .max = SITE_VALUE_MAX };
    size_t at = 0, end = 0;
    (void)buf_adds(&text, value);
    for (int i = 0; i < SITE_SUBSTITUTIONS_MAX && find_variable(buf_span(&text), &at, &end);) {
        struct span v = variable(s, span_mem(text.p + at + 2, end - at - 3));
        if (!v.p) {
            at += 2; /* unknown: leave it as written, and continue after its "${" */
            continue;
        }
        struct buf next = { .max = SITE_VALUE_MAX };
        (void)buf_add(&next, text.p, at);
        (void)buf_add(&next, v.p, v.len);
        (void)buf_add(&next, text.p + end, text.len - end);
        buf_done(&text);
        text = next;
        at = 0; /* start again: the replacement may have completed an outer variable */
        i++;
        if (text.failed)
            break;
    }
    char *out = text.failed ? NULL : buf_steal(&text);
    buf_done(&text);
    return out;
}

const char *site_get(struct site *s, const char *key)
{
    struct site_prop *p = map_get(&s->props, key);
    if (!p)
        return NULL;
    if (!p->expanded)
        p->expanded = expand(s, p->value);
    return p->expanded && *p->expanded ? p->expanded : NULL;
}

int site_bool(struct site *s, const char *key, bool dflt, bool *out, struct err *e)
{
    const char *v = site_get(s, key);
    if (!v) {
        *out = dflt;
        return 0;
    }
    int rc = str_bool(span_of(v), key, out, e);
    return rc < 0 ? err_wrap(e, rc, "%s", site_origin(s, key)) : 0;
}

int site_ms(struct site *s, const char *key, int64_t bare_ms, int64_t dflt_ms, int64_t *out,
            struct err *e)
{
    static const struct {
        const char *suffix;
        int64_t ms; /* 0 = shorter than 1 ms */
    } units[] = { { "ns", 0 },    { "us", 0 },      { "ms", 1 },      { "s", 1000 },
                  { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 } };
    const char *v = site_get(s, key);
    if (!v) {
        *out = dflt_ms;
        return 0;
    }
    struct span text = span_of(v);
    int64_t unit = bare_ms, n = 0;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        size_t len = strlen(units[i].suffix);
        if (text.len > len && str_ends(v, units[i].suffix)) {
            unit = units[i].ms;
            text = span_trim(span_mem(v, text.len - len));
            break;
        }
    }
    int rc = str_i64(text, -1, INT64_MAX, key, &n, e);
    if (rc < 0)
        return err_wrap(e, rc, "%s", site_origin(s, key));
    if (__builtin_mul_overflow(n, unit, out))
        return site_bad(s, key, e, "is too long a time: '%s'", v);
    return 0;
}
