/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers of configuration values. Each value remembers its origin.
 */
#include "conf/conf.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf_int.h"
#include "runtime/runtime.h"

/* If an option sets one of these keys, it adds to the value of the job file. For all other keys it
 * replaces that value. */
static const char *const appended_keys[] = { "tony.containers.envs", "tony.execution.envs",
                                             "tony.containers.resources",
                                             "tony.application.secrets" };

static bool appends(const char *key)
{
    for (size_t i = 0; i < ARRAY_LEN(appended_keys); i++) {
        if (strcmp(key, appended_keys[i]) == 0)
            return true;
    }
    return false;
}

static void entry_done(struct entry *x)
{
    if (x->borrowed)
        return;
    free((char *)x->key);
    free((char *)x->value);
    free((char *)x->origin);
}

struct entry *conf_find(const struct conf *c, const char *key)
{
    size_t at = (size_t)(uintptr_t)map_get(&c->index, key);
    return at > 0 ? &c->v[at - 1] : NULL;
}

int conf_put(struct conf *c, const struct entry *x, struct err *e)
{
    struct entry mine = *x;
    if (!x->borrowed) {
        mine.key = strdup(x->key);
        mine.value = strdup(x->value);
        mine.origin = strdup(x->origin);
    }
    bool ok = mine.key && mine.value && mine.origin;
    struct entry *old = conf_find(c, x->key);
    if (ok && !old)
        ok = vec_reserve(c, c->n + 1) == 0 &&
             map_set(&c->index, mine.key, (void *)(uintptr_t)(c->n + 1), NULL) == 0;
    if (!ok) {
        entry_done(&mine);
        return err_set(e, ENOMEM, "cannot keep '%s': %m", x->key);
    }
    if (old) {
        entry_done(old);
        *old = mine;
    } else {
        c->v[c->n++] = mine;
    }
    return 0;
}

int conf_add_defaults(struct conf *c, struct err *e)
{
    size_t n;
    const struct conf_key *k = conf_keys(&n);
    for (size_t i = 0; i < n; i++) {
        if (!k[i].dflt || strchr(k[i].name, '<') || conf_find(c, k[i].name))
            continue;
        struct entry x = { .key = k[i].name,
                           .value = k[i].dflt,
                           .origin = "default",
                           .row = &k[i],
                           .layer = CL_DEFAULT,
                           .borrowed = true };
        int rc = conf_put(c, &x, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

struct conf *conf_new(void)
{
    struct conf *c = calloc(1, sizeof *c);
    if (c && conf_add_defaults(c, NULL) < 0) {
        conf_free(c);
        c = NULL;
    }
    return c;
}

void conf_free(struct conf *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++)
        entry_done(&c->v[i]);
    vec_done(c);
    map_done(&c->index, NULL);
    free(c->job_file);
    free(c);
}

void conf_freep(struct conf **c)
{
    conf_free(*c);
    *c = NULL;
}

/* ---- checks ---- */

/* Is this a framework that a foreign build has added? The table of keys does not list it. */
static bool is_added_framework(struct span name)
{
    AUTO(free_p) char *lower = span_dup(name);
    for (char *p = lower; p && *p; p++)
        *p = (char)tolower((unsigned char)*p);
    return runtime_find(lower) != NULL;
}

/* Values of a key that another command accepts, so that users may try them here, and the reason why
 * they are refused. */
static const struct {
    const char *key, *value, *why, *hint;
} refused_values[] = {
#define STOPS_JOBS                                                                                 \
    "that policy stops running jobs, and the pool cannot put a running job back into the queue",   \
        "tony simulate shows what it would do; "
    { "tony.pool.policy", "las", STOPS_JOBS "las-elastic resizes jobs instead" },
    { "tony.pool.policy", "srtf", STOPS_JOBS "srtf-elastic resizes jobs instead" },
#undef STOPS_JOBS
};

static int check_refused(const struct conf_key *row, const char *what, struct span value,
                         struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(refused_values); i++) {
        const char *name = refused_values[i].value;
        if (!str_eq(row->name, refused_values[i].key) || value.len != strlen(name) ||
            strncasecmp(value.p, name, value.len) != 0)
            continue;
        (void)err_set(e, EINVAL, "%s cannot be '%s': %s", what, name, refused_values[i].why);
        return err_hint(e, "%s", refused_values[i].hint);
    }
    return 0;
}

static int check_enum(const struct conf_key *row, const char *what, const char *value,
                      struct err *e)
{
    const char *names[16];
    size_t n = 0;
    struct span rest = span_of(row->choices), one, v = span_trim(span_of(value));
    struct strv list = { 0 };
    AUTO(buf_done) struct buf shown = { 0 };
    int rc = check_refused(row, what, v, e);
    if (rc < 0)
        return rc;
    while (rc == 0 && span_split(&rest, '|', &one)) {
        if (one.len == v.len && strncasecmp(one.p, v.p, v.len) == 0) {
            strv_done(&list);
            return 0;
        }
        rc = strv_take(&list, span_dup(one));
        if (rc == 0)
            rc = buf_addf(&shown, "%s%.*s", n++ > 0 ? ", " : "", (int)one.len, one.p);
    }
    if (rc < 0) {
        strv_done(&list);
        return err_set(e, -rc, "cannot check %s: %m", what);
    }
    if (strstr(row->name, ".framework") && is_added_framework(v)) {
        strv_done(&list);
        return 0;
    }
    n = MIN(list.n, ARRAY_LEN(names));
    for (size_t i = 0; i < n; i++)
        names[i] = list.v[i];
    const char *near = str_nearest(value, names, n);
    rc = err_set(e, EINVAL, "%s must be one of %s, not '%.*s'", what, buf_cstr(&shown),
                 (int)MIN(v.len, (size_t)60), v.p);
    if (near)
        rc = err_hint(e, "did you mean '%s'?", near);
    strv_done(&list);
    return rc;
}

/* The kernel starts no program with a longer argument or variable (MAX_ARG_STRLEN, less the NUL).
 */
enum { ARGUMENT_MAX = 131071 };

static int check_argument(const char *what, const char *text, struct err *e)
{
    size_t n = strlen(text);
    if (n <= ARGUMENT_MAX)
        return 0;
    (void)err_set(e, EINVAL, "%s has %zu bytes; Linux gives a program at most %d", what, n,
                  ARGUMENT_MAX);
    return err_hint(e, "ship it as a file in 'src' or 'resources'");
}

static int check_envs(const char *what, const char *value, struct err *e)
{
    struct strv env = { 0 };
    int rc = conf_env_parse(span_of(value), &env, e);
    if (rc < 0) {
        (void)err_wrap(e, rc, "%s", what);
        rc = err_hint(e, "write NAME=VALUE, separated by commas");
    }
    for (size_t i = 0; i < env.n && rc >= 0; i++) {
        rc = check_argument("a variable", env.v[i], e);
        if (rc < 0)
            rc = err_wrap(e, rc, "%s", what);
    }
    strv_done(&env);
    return rc < 0 ? rc : 0;
}

/* How many ms the unit of the key has; 0 = the value of the key is no time. */
static int64_t ms_of_unit(const struct conf_key *row)
{
    if (row->type != CT_INT || !row->unit)
        return 0;
    return str_eq(row->unit, "ms") ? 1 : str_eq(row->unit, "s") ? 1000 : 0;
}

static bool has_letter(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if (isalpha((unsigned char)text.p[i]))
            return true;
    return false;
}

/* Read a whole number. If the value of the key is a time, it may have a unit: "20s" is 20000 for a
 * key in ms. */
static int read_int(const struct conf_key *row, const char *what, const char *value, int64_t *out,
                    struct err *e)
{
    struct span text = span_trim(span_of(value));
    int64_t unit_ms = ms_of_unit(row), ms;
    if (!unit_ms || !has_letter(text))
        return str_i64(text, row->min, row->max, what, out, e);
    /* A least value below 0 means "no limit", which has no unit. */
    int rc = str_ms(text, MAX(row->min, INT64_C(0)) * unit_ms, row->max * unit_ms, what, &ms, e);
    if (rc == -EINVAL)
        return err_hint(e, "write a number of %s, or a number and its unit: " STR_MS_FORMS,
                        row->unit);
    if (rc == 0 && ms % unit_ms != 0)
        return err_set(e, EINVAL, "%s must be a whole number of seconds, not '%.*s'", what,
                       (int)text.len, text.p);
    if (rc == 0)
        *out = ms / unit_ms;
    return rc;
}

static int check_levels(const struct conf_key *row, const char *what, const char *value,
                        struct err *e)
{
    double levels[CONF_LEVELS_MAX];
    size_t n;
    return conf_levels_parse(value, (double)row->min, (double)row->max, what, levels,
                             ARRAY_LEN(levels), &n, e);
}

int conf_check_value(const struct conf_key *row, const char *key, const char *value, struct err *e)
{
    AUTO(free_p) char *what = str_printf("'%s'", key);
    int64_t i;
    double d;
    bool b;
    if (!what)
        return err_set(e, ENOMEM, "cannot check a value: %m");
    if (row->effect == CE_REFUSED && span_trim(span_of(value)).len > 0) {
        (void)err_set(e, EINVAL, "%s cannot be set", what);
        return err_hint(e, "%s", row->help);
    }
    switch (row->type) {
    case CT_INT:
        return read_int(row, what, value, &i, e);
    case CT_REAL:
        return str_real(span_of(value), (double)row->min, (double)row->max, what, &d, e);
    case CT_MEM:
        return str_mib(span_of(value), row->min, row->max, what, &i, e);
    case CT_BOOL:
        return str_bool(span_of(value), what, &b, e);
    case CT_ENUM:
        return check_enum(row, what, value, e);
    case CT_ENVS:
        return check_envs(what, value, e);
    case CT_STR:
        return str_ends(key, "command") ? check_argument(what, value, e) : 0;
    case CT_LIST:
        return row->max < INT64_MAX ? check_levels(row, what, value, e) : 0;
    case CT_NONE:
    case CT_COUNT:
        break;
    }
    return 0;
}

static int unknown_key(const char *key, struct err *e)
{
    struct span parts[2] = { { 0 } };
    AUTO(buf_done) struct buf scratch = { 0 };
    size_t n;
    const struct conf_key *k = conf_keys(&n);
    for (size_t i = 0; i < n; i++) {
        /* The key of a role is right, so the name of the role is wrong. */
        if (str_starts(k[i].name, "tony.<role>.") &&
            conf_key_match(k[i].name, span_of(key), parts) && !conf_role_name_ok(parts[0], e))
            return err_wrap(e, -EINVAL, "unknown key '%s'", key);
    }
    const char *near = conf_key_nearest(key, &scratch);
    (void)err_set(e, EINVAL, "unknown key '%s'%s", key,
                  str_starts(key, "tony.") ? "" : ": keys begin with 'tony.'");
    if (near)
        return err_hint(e, "did you mean '%s'?", near);
    return err_hint(e, "'tony doctor --keys' lists all keys");
}

/* ---- layers ---- */

/* Set the key to the old value, a comma, and the value of x. A backslash at the end of the old
 * value would quote the comma, so it is doubled. */
static int join(struct conf *c, const struct entry *old, const struct entry *x, struct err *e)
{
    size_t slashes = 0, len = strlen(old->value);
    while (slashes < len && old->value[len - slashes - 1] == '\\')
        slashes++;
    AUTO(free_p) char *value = str_printf("%s%s,%s", old->value, slashes % 2 ? "\\" : "", x->value);
    AUTO(free_p) char *origin = str_printf("%s, %s", old->origin, x->origin);
    if (!value || !origin)
        return err_set(e, ENOMEM, "cannot keep '%s': %m", x->key);
    struct entry both = *x;
    both.value = value;
    both.origin = origin;
    return conf_put(c, &both, e);
}

/* Times are stored without a unit, so that every reader of the value finds the number that the key
 * promises. *out_text: the number; NULL = the value of x stays as it is. */
static int without_unit(const struct conf_key *row, const struct entry *x, char **out_text,
                        struct err *e)
{
    int64_t n;
    *out_text = NULL;
    if (!ms_of_unit(row) || !has_letter(span_of(x->value)) ||
        read_int(row, x->key, x->value, &n, e) < 0)
        return 0; /* checked before, so it cannot fail */
    *out_text = str_printf("%lld", (long long)n);
    return *out_text ? 0 : err_set(e, ENOMEM, "cannot keep '%s': %m", x->key);
}

int conf_set_from(struct conf *c, const struct entry *x, bool foreign_ok, struct err *e)
{
    struct entry mine = *x;
    AUTO(free_p) char *number = NULL;
    mine.row = conf_key_find(span_of(x->key), NULL);
    int rc = 0;
    /* The text of a file was checked before, an option was not. */
    if (!span_utf8(span_of(x->value), NULL))
        rc = err_set(e, EINVAL, "the value of '%s' is not UTF-8", x->key);
    else if (mine.row)
        rc = conf_check_value(mine.row, x->key, x->value, e);
    else if (!foreign_ok || str_starts(x->key, "tony."))
        rc = unknown_key(x->key, e);
    if (rc == 0 && mine.row)
        rc = without_unit(mine.row, x, &number, e);
    if (rc < 0)
        return err_wrap(e, rc, "%s", x->origin);
    if (number) {
        mine.value = number;
        mine.borrowed = false;
    }
    struct entry *old = conf_find(c, x->key);
    if (old && old->final && old->layer == CL_SITE && x->layer > CL_SITE) {
        if (strcmp(old->value, mine.value) == 0)
            return 0;
        (void)err_set(e, EINVAL, "%s: '%s' cannot be changed: it is final in %s", x->origin, x->key,
                      old->origin);
        return err_hint(e, "remove it, or ask those who keep the site file");
    }
    if (old && old->layer > x->layer && !(x->final && x->layer == CL_SITE))
        return 0; /* a higher layer has set the key already */
    if (old && old->layer > CL_DEFAULT && x->layer >= CL_OPTION && *old->value && appends(x->key))
        return join(c, old, &mine, e);
    return conf_put(c, &mine, e);
}

int conf_set(struct conf *c, enum conf_layer layer, const char *key, const char *value,
             const char *origin, bool final, struct err *e)
{
    struct entry x = {
        .key = key, .value = value, .origin = origin, .layer = layer, .final = final
    };
    return conf_set_from(c, &x, false, e);
}

const char *conf_get(const struct conf *c, const char *key)
{
    const struct entry *x = conf_find(c, key);
    if (x)
        return x->value;
    const struct conf_key *row = conf_key_find(span_of(key), NULL);
    return row ? row->dflt : NULL;
}

const char *conf_origin(const struct conf *c, const char *key)
{
    const struct entry *x = conf_find(c, key);
    return x ? x->origin : "default";
}

int64_t conf_int(const struct conf *c, const char *key)
{
    const struct conf_key *row = conf_key_find(span_of(key), NULL);
    const char *value = conf_get(c, key);
    int64_t v = 0;
    if (!row || !value)
        return 0;
    /* Cannot fail: the value was checked when it was set. An empty value reads as 0. */
    if (row->type == CT_MEM)
        (void)str_mib(span_of(value), row->min, row->max, key, &v, NULL);
    else
        (void)read_int(row, key, value, &v, NULL);
    return v;
}

double conf_real(const struct conf *c, const char *key)
{
    const struct conf_key *row = conf_key_find(span_of(key), NULL);
    const char *value = conf_get(c, key);
    double v = 0;
    if (row && value)
        /* Cannot fail: the value was checked when it was set. */
        (void)str_real(span_of(value), (double)row->min, (double)row->max, key, &v, NULL);
    return v;
}

bool conf_bool(const struct conf *c, const char *key)
{
    const char *value = conf_get(c, key);
    bool v = false;
    if (value)
        /* Cannot fail: the value was checked when it was set. */
        (void)str_bool(span_of(value), key, &v, NULL);
    return v;
}

bool conf_at(const struct conf *c, size_t i, struct conf_entry *out)
{
    if (i >= c->n)
        return false;
    const struct entry *x = &c->v[i];
    *out = (struct conf_entry){
        .key = x->key, .value = x->value, .origin = x->origin, .final = x->final
    };
    return true;
}
