/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds keys in the table: exact rows, patterns, and the nearest name. Knows the reserved names
 * that no role may have.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf_int.h"

enum { ROLE_NAME_MAX = 63, KEY_SHOWN_MAX = 200 };

static const char role_prefix[] = "tony.<role>.";

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

bool conf_key_match(const char *pattern, struct span key, struct span parts[2])
{
    size_t at = 0, n = 0;
    while (*pattern) {
        if (*pattern != '<') {
            if (at == key.len || key.p[at] != *pattern)
                return false;
            at++;
            pattern++;
            continue;
        }
        size_t from = at;
        while (at < key.len && name_char(key.p[at]))
            at++;
        if (at == from)
            return false;
        if (n < 2)
            parts[n++] = span_mem(key.p + from, at - from);
        pattern = strchr(pattern, '>') + 1;
    }
    return at == key.len;
}

/* The second component of a row's name; empty if it is a placeholder. */
static struct span second_component(const char *name)
{
    const char *from = strchr(name, '.');
    if (!from || from[1] == '<')
        return SPAN("");
    from++;
    return span_mem(from, strcspn(from, "."));
}

static bool conf_role_reserved(struct span name)
{
    /* Other reserved names, such as pool and yarn, come from the table. No key begins with
     * tony.slurm yet. */
    if (span_eqs(name, "slurm"))
        return true;
    size_t n;
    const struct conf_key *k = conf_keys(&n);
    if (span_eqs(name, "worker"))
        return false; /* tony.worker.timeout is a key for all roles: it does not reserve the name */
    for (size_t i = 0; i < n; i++) {
        if (span_eq(second_component(k[i].name), name))
            return true;
    }
    return false;
}

bool conf_role_name_ok(struct span name, struct err *e)
{
    size_t good = 0;
    while (good < name.len && name_char(name.p[good]))
        good++;
    int shown = (int)MIN(name.len, (size_t)KEY_SHOWN_MAX);
    if (name.len == 0 || good < name.len || name.p[0] == '-') {
        (void)err_set(e, EINVAL, "'%.*s' cannot be the name of a role", shown, name.p);
        (void)err_hint(e, "use letters, digits, '-' and '_', not '-' at the beginning");
        return false;
    }
    if (name.len > ROLE_NAME_MAX) {
        (void)err_set(e, EINVAL, "'%.*s' is too long for the name of a role", shown, name.p);
        (void)err_hint(e, "%d characters at most", ROLE_NAME_MAX);
        return false;
    }
    if (conf_role_reserved(name)) {
        (void)err_set(e, EINVAL, "'%.*s' cannot be the name of a role: it is reserved", shown,
                      name.p);
        (void)err_hint(e, "choose another name, such as '%.*s1'", shown, name.p);
        return false;
    }
    return true;
}

/* false: the last two characters show that conf_key_match() would fail. */
static bool may_match(const struct conf_key *k, struct span key)
{
    const char *p = k->name + k->name_len, *q = key.p + key.len;
    for (size_t i = 1; i <= 2 && i <= k->name_len && i <= key.len && p[-(ptrdiff_t)i] != '>'; i++)
        if (p[-(ptrdiff_t)i] != q[-(ptrdiff_t)i])
            return false;
    return true;
}

const struct conf_key *conf_key_find(struct span key, struct span *out_part)
{
    size_t n;
    const struct conf_key *k = conf_keys(&n);
    struct span parts[2] = { { 0 } };
    if (out_part)
        *out_part = SPAN("");
    /* conf_key_find() is called for each key of a job in each program, so it has to be quick. Few
     * names have the same length, and a pattern usually differs in its last characters. */
    for (size_t i = 0; i < n; i++) {
        if (k[i].name_len == key.len && memcmp(k[i].name, key.p, key.len) == 0)
            return strchr(k[i].name, '<') ? NULL : &k[i];
    }
    for (size_t i = 0; i < n; i++) {
        if (!may_match(&k[i], key) || !conf_key_match(k[i].name, key, parts))
            continue; /* no exact row matches any more */
        if (str_starts(k[i].name, role_prefix) && !conf_role_name_ok(parts[0], NULL))
            continue;
        if (out_part)
            *out_part = parts[0];
        return &k[i];
    }
    return NULL;
}

/* Fill the placeholders of pattern with the components of key. false: they do not match. */
static bool fill(const char *pattern, const char *key, struct buf *out)
{
    struct span p = span_of(pattern), k = span_of(key), a, b;
    bool more_p, more_k;
    buf_clear(out);
    for (unsigned i = 0;; i++) {
        more_p = span_split(&p, '.', &a);
        more_k = span_split(&k, '.', &b);
        if (more_p != more_k)
            return false;
        if (!more_p)
            return !out->failed;
        bool hole = a.len > 0 && a.p[0] == '<';
        if (!hole && memchr(a.p, '<', a.len))
            return false;
        if (hole && i == 1 && !conf_role_name_ok(b, NULL))
            return false;
        if (i > 0)
            (void)buf_addc(out, '.');
        /* A failure shows in out->failed, see above. */
        (void)buf_add(out, hole ? b.p : a.p, hole ? b.len : a.len);
    }
}

const char *conf_key_nearest(const char *key, struct buf *scratch)
{
    AUTO(buf_done) struct buf full = { 0 }, best = { 0 };
    unsigned best_distance = 0;
    size_t n;
    const struct conf_key *k = conf_keys(&n);
    if (strlen(key) > KEY_SHOWN_MAX ||
        buf_addf(&full, "%s%s", str_starts(key, "tony.") ? "" : "tony.", key) < 0)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if (!fill(k[i].name, buf_cstr(&full), scratch))
            continue;
        unsigned d = str_distance(buf_cstr(&full), buf_cstr(scratch));
        if (d > 1 + (scratch->len - strlen("tony.")) / 6 || (best.len > 0 && d >= best_distance))
            continue;
        buf_clear(&best);
        if (buf_adds(&best, buf_cstr(scratch)) < 0)
            return NULL;
        best_distance = d;
    }
    buf_clear(scratch);
    if (best.len == 0 || buf_adds(scratch, buf_cstr(&best)) < 0)
        return NULL;
    return buf_cstr(scratch);
}

/* Does name contain `word` as a whole word? '_' and '.' separate words like '-'; case is ignored.
 * at_end: it must be the last word. */
static bool has_word(const char *name, const char *word, bool at_end)
{
    size_t n = strlen(word);
    for (; *name; name++) {
        size_t i = 0;
        while (i < n && name[i]) {
            char c = name[i];
            if (c == '_' || c == '.')
                c = '-';
            if (strncasecmp(&c, &word[i], 1) != 0)
                break;
            i++;
        }
        if (i == n && (!at_end || name[n] == '\0' || strchr("-_.", name[n])))
            return true;
    }
    return false;
}

bool conf_key_is_secret(const char *key)
{
    static const char *const anywhere[] = { "secret",      "password", "passwd",    "credential",
                                            "private-key", "api-key",  "access-key" };
    const struct conf_key *row = conf_key_find(span_of(key), NULL);
    if (row)
        return row->secret;
    for (size_t i = 0; i < ARRAY_LEN(anywhere); i++) {
        if (has_word(key, anywhere[i], false))
            return true;
    }
    /* only as the last word of the name: TOKENIZERS_PARALLELISM is no secret */
    return has_word(key, "token", true) || has_word(key, "tokens", true);
}
