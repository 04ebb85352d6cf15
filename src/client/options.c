/* SPDX-License-Identifier: Apache-2.0 */
#include "client/options.h"

#include <errno.h>

#include "base/base.h"

static const struct option_row {
    const char *name, *flag; /* flag: the name with its leading dashes */
    char letter;
    const char *arg;
    bool repeatable;
    const char *help;
} rows[OPT_COUNT] = {
#define X(id, name, letter, arg, repeatable, help)                                                 \
    [id] = { name, "--" name, letter, arg, repeatable, help },
    OPTIONS(X)
#undef X
};

const char *option_name(enum option_id id)
{
    return rows[id].flag;
}

/* Compare option names; '-' and '_' are equal. */
static bool same_name(struct span typed, const char *name)
{
    if (typed.len != strlen(name))
        return false;
    for (size_t i = 0; i < typed.len; i++) {
        char a = typed.p[i] == '-' ? '_' : typed.p[i], b = name[i] == '-' ? '_' : name[i];
        if (a != b)
            return false;
    }
    return true;
}

static int unknown_option(const char *typed, struct span name, option_mask allowed, struct err *e)
{
    const char *names[OPT_COUNT];
    size_t n = 0;
    for (int i = 0; i < OPT_COUNT; i++)
        if (allowed & OPT_BIT(i))
            names[n++] = rows[i].name;
    int rc = err_set(e, EINVAL, "unknown option '%s'", typed);

    AUTO(free_p) char *word = span_dup(name);
    for (char *p = word; p && *p; p++)
        if (*p == '-')
            *p = '_';
    const char *near = word ? str_nearest(word, names, n) : NULL;
    if (near)
        err_hint(e, "did you mean '--%s'?", near);
    else
        err_hint(e, "--help lists the options of this command");
    return rc;
}

/* --worker.memory 2g is the same as --set roles.worker.memory=2g. */
static int parse_role_key(int argc, char *const *argv, int *i, struct span name, const char *value,
                          struct options *out, struct err *e)
{
    if (!value && *i + 1 >= argc)
        return err_set(e, EINVAL, "option '%s' needs a value", argv[*i]);
    if (!value)
        value = argv[++*i];
    struct option_value v = { OPT_SET, NULL };
    if (strv_pushf(&out->made, "roles.%.*s=%s", (int)name.len, name.p, value) == 0)
        v.value = out->made.v[out->made.n - 1];
    return v.value && vec_push(out, v) == 0
               ? 0
               : err_set(e, ENOMEM, "cannot read the command line: %m");
}

/* Parse the option at argv[*i], which begins with a dash. */
static int parse_one(int argc, char *const *argv, int *i, option_mask allowed, struct options *out,
                     struct err *e)
{
    const char *typed = argv[*i];
    struct span rest = span_of(typed);
    size_t dashes = rest.p[1] == '-' ? 2 : 1;
    rest.p += dashes;
    rest.len -= dashes;
    const char *equals = memchr(rest.p, '=', rest.len);
    struct span name = equals ? span_mem(rest.p, (size_t)(equals - rest.p)) : rest;

    int found = -1;
    const char *value = equals ? equals + 1 : NULL;
    for (int id = 0; id < OPT_COUNT && found < 0; id++) {
        if (!(allowed & OPT_BIT(id)))
            continue;
        char letter = rows[id].letter;
        if (same_name(name, rows[id].name) ||
            (dashes == 1 && letter && name.len == 1 && name.p[0] == letter)) {
            found = id;
        } else if (dashes == 1 && letter && rows[id].arg && rest.len > 1 && rest.p[0] == letter &&
                   rest.p[1] >= '0' && rest.p[1] <= '9') {
            found = id; /* a number attached to its letter: -n50 */
            value = rest.p + 1;
        }
    }
    if (found < 0 && allowed & OPT_BIT(OPT_SET) && memchr(name.p, '.', name.len))
        return parse_role_key(argc, argv, i, name, value, out, e);
    if (found < 0)
        return unknown_option(typed, name, allowed, e);

    const struct option_row *row = &rows[found];
    if (!row->arg && value)
        return err_set(e, EINVAL, "option '%s' takes no value", row->flag);
    if (row->arg && !value) {
        if (*i + 1 >= argc)
            return err_set(e, EINVAL, "option '%s' needs a value (%s)", row->flag, row->arg);
        value = argv[++*i];
    }
    if (row->arg && !row->repeatable && options_has(out, (enum option_id)found))
        return err_set(e, EINVAL, "option '%s' is given twice", row->flag);
    struct option_value v = { (enum option_id)found, value };
    if (vec_push(out, v) < 0)
        return err_set(e, ENOMEM, "cannot read the command line: %m");
    return 0;
}

int options_parse(int argc, char *const *argv, option_mask allowed, struct options *out,
                  struct err *e)
{
    bool ended = false;
    for (int i = 0; i < argc; i++) {
        if (!ended && str_eq(argv[i], "--")) {
            ended = true;
            out->n_before = out->n_args;
        } else if (!ended && argv[i][0] == '-' && argv[i][1]) {
            int rc = parse_one(argc, argv, &i, allowed, out, e);
            if (rc < 0)
                return rc;
        } else {
            if (vec_grow((void **)&out->args, &out->cap_args, out->n_args + 1, sizeof *out->args) <
                0)
                return err_set(e, ENOMEM, "cannot read the command line: %m");
            out->args[out->n_args++] = argv[i];
        }
    }
    if (!ended)
        out->n_before = out->n_args;
    return 0;
}

void options_done(struct options *o)
{
    free(o->v);
    free(o->args);
    strv_done(&o->made);
    *o = (struct options){ 0 };
}

bool options_has(const struct options *o, enum option_id id)
{
    for (size_t i = 0; i < o->n; i++)
        if (o->v[i].id == id)
            return true;
    return false;
}

const char *options_get(const struct options *o, enum option_id id)
{
    for (size_t i = 0; i < o->n; i++)
        if (o->v[i].id == id)
            return o->v[i].value;
    return NULL;
}

int options_int(const struct options *o, enum option_id id, int64_t min, int64_t max, int64_t dflt,
                int64_t *out, struct err *e)
{
    const char *text = options_get(o, id);
    if (!text) {
        *out = dflt;
        return 0;
    }
    return str_i64(span_of(text), min, max, rows[id].flag, out, e);
}

bool options_takes_value(const char *typed)
{
    struct span name = span_of(typed);
    while (name.len > 0 && name.p[0] == '-')
        name = span_mem(name.p + 1, name.len - 1);
    for (int id = 0; id < OPT_COUNT; id++) {
        const struct option_row *row = &rows[id];
        if (row->arg && (same_name(name, row->name) ||
                         (row->letter && name.len == 1 && name.p[0] == row->letter)))
            return true;
    }
    return false;
}

enum { HELP_INDENT = 39, HELP_WIDTH = 100 };

void help_wrap(struct buf *out, const char *text, int indent)
{
    static const char blank[] = " \n";
    size_t column = (size_t)indent;
    for (const char *word = text; *word;) {
        size_t len = strcspn(word, blank);
        if (word != text && column + 1 + len > HELP_WIDTH) {
            (void)buf_addf(out, "\n%*s", indent, "");
            column = (size_t)indent;
        } else if (word != text) {
            (void)buf_addc(out, ' ');
            column++;
        }
        (void)buf_add(out, word, len);
        column += len;
        word += len + strspn(word + len, blank);
    }
    (void)buf_addc(out, '\n');
}

void options_help(option_mask allowed, struct buf *out)
{
    for (int i = 0; i < OPT_COUNT; i++) {
        if (!(allowed & OPT_BIT(i)))
            continue;
        const struct option_row *r = &rows[i];
        char left[64];
        (void)snprintf(left, sizeof left, "%s%c%s%s%s%s", r->letter ? "-" : "",
                       r->letter ? r->letter : ' ', r->letter ? ", " : "", r->flag,
                       r->arg ? " " : "", r->arg ? r->arg : "");
        AUTO(free_p)
        char *help = str_printf("%s%s", r->help, r->repeatable ? " (may be repeated)" : "");
        (void)buf_addf(out, "  %-36s ", left[0] == ' ' ? left + 1 : left);
        help_wrap(out, help ? help : r->help, HELP_INDENT);
    }
}

void options_words(option_mask allowed, struct buf *out)
{
    for (int i = 0; i < OPT_COUNT; i++)
        if (allowed & OPT_BIT(i))
            (void)buf_addf(out, "%s%s", out->len ? " " : "", rows[i].flag);
}
