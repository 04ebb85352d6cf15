/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values with several parts: lists ("a, b"), environments ("A=1, B=2"), resources
 * ("SRC[::NAME][#archive]").
 *
 * Items are separated by commas and trimmed. '\,' is a comma inside an item; TonY has no way to
 * write one. '\ ' keeps a blank at the start or end of an item. Backslashes directly before such a
 * comma or blank, or at the end of an item, are read in pairs: two give one. All other backslashes
 * stand for themselves.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf_int.h"

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

/* Count the backslashes directly before position at. */
static size_t slashes_before(struct span s, size_t at)
{
    size_t n = 0;
    while (n < at && s.p[at - n - 1] == '\\')
        n++;
    return n;
}

/* Take the text of the next item, with its backslashes. */
static bool next_raw(struct span *rest, struct span *out)
{
    if (!rest->p)
        return false;
    size_t i = 0;
    while (i < rest->len && (rest->p[i] != ',' || slashes_before(*rest, i) % 2 == 1))
        i++;
    *out = span_mem(rest->p, i);
    *rest = i < rest->len ? span_mem(rest->p + i + 1, rest->len - i - 1) : (struct span){ 0 };
    return true;
}

/* Trim, but keep a blank at the end that a backslash protects. */
static struct span trim_raw(struct span s)
{
    while (s.len > 0 && blank(s.p[0]))
        s = span_mem(s.p + 1, s.len - 1);
    while (s.len > 0 && blank(s.p[s.len - 1]) && slashes_before(s, s.len - 1) % 2 == 0)
        s.len--;
    return s;
}

/* Append the plain text of one item, or of the value of a variable, without the protecting
 * backslashes. */
static int add_plain(struct buf *b, struct span s)
{
    size_t i = 0;
    int rc = 0;
    while (i < s.len && rc == 0) {
        size_t run = 0;
        while (i + run < s.len && s.p[i + run] == '\\')
            run++;
        size_t after = i + run;
        bool pairs = after == s.len || s.p[after] == ',' ||
                     (blank(s.p[after]) && (i == 0 || after == s.len - 1));
        size_t keep = run;
        if (pairs)
            /* A single backslash at the end stays. */
            keep = run / 2 + (after == s.len ? run % 2 : 0);
        for (size_t k = 0; k < keep && rc == 0; k++)
            rc = buf_addc(b, '\\');
        if (rc == 0 && after < s.len)
            rc = buf_addc(b, s.p[after]);
        i = after + 1;
    }
    return rc;
}

int conf_list_add(struct buf *list, struct span item)
{
    int rc = list->len > 0 ? buf_addc(list, ',') : 0;
    for (size_t i = 0; i < item.len && rc == 0; i++) {
        char c = item.p[i];
        size_t slashes = slashes_before(item, i);
        if (c == ',' || (blank(c) && (slashes == i || i == item.len - 1))) {
            /* Double the backslashes before it, and add one that protects this character. */
            for (size_t k = slashes; k > 0 && rc == 0; k--)
                rc = buf_addc(list, '\\');
            if (rc == 0)
                rc = buf_addc(list, '\\');
        }
        if (rc == 0)
            rc = buf_addc(list, c);
    }
    for (size_t k = slashes_before(item, item.len); k > 0 && rc == 0; k--)
        rc = buf_addc(list, '\\');
    return rc;
}

int conf_list_parse(struct span text, struct strv *out)
{
    struct span raw;
    AUTO(buf_done) struct buf item = { 0 };
    while (next_raw(&text, &raw)) {
        raw = trim_raw(raw);
        if (raw.len == 0)
            continue;
        buf_clear(&item);
        int rc = add_plain(&item, raw);
        if (rc == 0)
            rc = strv_push(out, buf_cstr(&item));
        if (rc < 0)
            return rc;
    }
    return 0;
}

int conf_levels_parse(const char *text, double min, double max, const char *what, double *out,
                      size_t n_max, size_t *out_n, struct err *e)
{
    struct strv items = { 0 };
    int rc = conf_list_parse(span_of(text ? text : ""), &items);
    if (rc < 0)
        (void)err_set(e, -rc, "cannot read %s: %m", what);
    else if (items.n > n_max)
        rc = err_set(e, EINVAL, "%s has %zu numbers; the limit is %zu", what, items.n, n_max);
    for (size_t i = 0; rc == 0 && i < items.n; i++) {
        rc = str_real(span_of(items.v[i]), min, max, what, &out[i], e);
        if (rc == 0 && i > 0 && !(out[i] > out[i - 1]))
            rc = err_set(e, EINVAL, "the numbers of %s must rise, but %s is not above %s", what,
                         items.v[i], items.v[i - 1]);
    }
    *out_n = rc == 0 ? items.n : 0;
    strv_done(&items);
    return rc;
}

/* strv_env_set() searches the whole list for each variable: limit their number. */
enum { VARIABLES_MAX = 4096 };

static int add_env(struct span raw, struct strv *out, struct err *e)
{
    if (out->n >= VARIABLES_MAX)
        return err_set(e, EINVAL, "an environment of more than %d variables", VARIABLES_MAX);
    AUTO(buf_done) struct buf name = { 0 }, value = { 0 };
    const char *eq = memchr(raw.p, '=', raw.len);
    size_t n = eq ? (size_t)(eq - raw.p) : raw.len;
    struct span k = span_trim(span_mem(raw.p, n));
    struct span v = eq ? trim_raw(span_mem(eq + 1, raw.len - n - 1)) : SPAN("");
    if (k.len == 0)
        return err_set(e, EINVAL, "the variable in '%.*s' has no name",
                       (int)MIN(raw.len, (size_t)60), raw.p);
    int rc = add_plain(&name, k);
    if (rc == 0)
        rc = add_plain(&value, v);
    if (rc == 0)
        rc = strv_env_set(out, buf_cstr(&name), buf_cstr(&value));
    return rc < 0 ? err_set(e, -rc, "cannot read an environment: %m") : 0;
}

int conf_env_parse(struct span text, struct strv *out, struct err *e)
{
    struct span raw;
    /* Trimmed only to find the brackets; the text itself may end in a protected blank. */
    struct span all = span_trim(text);
    if (all.len >= 2 && all.p[0] == '[' && all.p[all.len - 1] == ']')
        text = span_mem(all.p + 1, all.len - 2);
    while (next_raw(&text, &raw)) {
        raw = trim_raw(raw);
        if (raw.len == 0)
            continue;
        int rc = add_env(raw, out, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int conf_env_add(struct buf *list, const char *name, struct span value)
{
    /* Encode the value separately from the name: a blank at its start must be protected, too. */
    AUTO(buf_done) struct buf v = { 0 };
    int rc = conf_list_add(&v, value);
    if (rc == 0 && list->len > 0)
        rc = buf_addc(list, ',');
    if (rc == 0)
        rc = buf_addf(list, "%s=", name);
    if (rc == 0 && v.len > 0)
        rc = buf_add(list, v.p, v.len);
    return rc;
}

/* ---- resources ---- */

static bool ends_with_archive(struct span s)
{
    static const char tail[] = "#archive";
    size_t n = sizeof tail - 1;
    return s.len >= n && strncasecmp(s.p + s.len - n, tail, n) == 0;
}

static int find_name(struct span *src, struct span *out_name, struct span all, struct err *e)
{
    const char *sep = memmem(src->p, src->len, "::", 2);
    if (!sep) {
        struct span s = *src;
        while (s.len > 1 && s.p[s.len - 1] == '/')
            s.len--;
        const char *slash = memrchr(s.p, '/', s.len);
        size_t from = slash ? (size_t)(slash - s.p) + 1 : 0;
        *out_name = span_mem(s.p + from, s.len - from);
        return 0;
    }
    size_t n = (size_t)(sep - src->p);
    *out_name = span_mem(sep + 2, src->len - n - 2);
    if (span_has(*out_name, "::"))
        return err_set(e, EINVAL, "resource '%.*s' has more than one '::'", (int)all.len, all.p);
    *src = span_mem(src->p, n);
    return 0;
}

int resource_parse(struct span text, struct resource_spec *out, struct err *e)
{
    static const char form[] = "write SRC, SRC::NAME, SRC#archive or SRC::NAME#archive";
    struct span all = span_trim(text), src = all, name;
    all.len = MIN(all.len, (size_t)200); /* long texts are cut in messages */
    bool archive = ends_with_archive(src);
    if (archive)
        src.len -= sizeof "#archive" - 1;
    int rc = find_name(&src, &name, all, e);
    if (rc == 0 && src.len == 0)
        rc = err_set(e, EINVAL, "resource '%.*s' names no file", (int)all.len, all.p);
    if (rc == 0 && (name.len == 0 || memchr(name.p, '/', name.len) || span_eqs(name, ".") ||
                    span_eqs(name, "..")))
        rc = err_set(e, EINVAL, "resource '%.*s' has no usable name for the working directory",
                     (int)all.len, all.p);
    if (rc < 0)
        return err_hint(e, "%s", form);
    struct resource_spec r = { .source = span_dup(src),
                               .name = span_dup(name),
                               .archive = archive };
    if (!r.source || !r.name) {
        resource_done(&r);
        return err_set(e, ENOMEM, "cannot read a resource: %m");
    }
    *out = r;
    return 0;
}

void resource_done(struct resource_spec *r)
{
    free(r->source);
    free(r->name);
    *r = (struct resource_spec){ 0 };
}
