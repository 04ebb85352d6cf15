/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads the YAML job file: a few short names, `roles`, and `conf` for everything else. All of it
 * stands for flat keys. Relative paths in the file start at the file's own directory.
 */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/yaml.h"
#include "conf/load.h"

#define SECRETS_KEY "tony.application.secrets"

static const struct {
    const char *name, *key;
} shorts[] = {
    { "name", "tony.application.name" },
    { "framework", "tony.application.framework" },
    { "cluster", "tony.cluster" },
    { "priority", "tony.application.priority" },
    { "weight", "tony.application.weight" },
    { "budget", "tony.application.budget" },
    { "restart-on-boot", "tony.application.restart-on-boot" },
    { "src", "tony.application.src-dir" },
    { "venv", "tony.application.python-venv" },
    { "command", "tony.containers.command" },
    { "env", "tony.execution.envs" },
    { "secrets", SECRETS_KEY },
    { "on-end", "tony.application.on-end" },
    { "on-end-secret", "tony.application.on-end-secret" },
    { "resources", "tony.containers.resources" },
};

static const char role_prefix[] = "tony.<role>.";

static int fail(struct load *l, int num, uint32_t line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static int fail(struct load *l, int num, uint32_t line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = err_vset(l->e, num, fmt, ap);
    va_end(ap);
    return err_wrap(l->e, rc, "%s:%u", l->name, line);
}

static int no_memory(struct load *l)
{
    return err_set(l->e, ENOMEM, "%s: cannot read it: %m", l->name);
}

static bool is_relative(struct span path)
{
    return path.len > 0 && path.p[0] != '/' && !span_has(path, "://");
}

/* Append a path of the file. The result is relative to the directory to which the file's own name
 * is relative. */
static int add_path(const struct load *l, struct span path, struct buf *out)
{
    const char *slash = strrchr(l->name, '/');
    path = span_trim(path);
    int rc = 0;
    if (slash && is_relative(path)) {
        size_t dir = (size_t)(slash - l->name);
        if (span_eqs(path, "."))
            return buf_add(out, l->name, dir > 0 ? dir : 1);
        while (span_starts(path, "./"))
            path = span_mem(path.p + 2, path.len - 2);
        rc = buf_add(out, l->name, dir + 1);
    }
    return rc < 0 ? rc : buf_add(out, path.p, path.len);
}

static int wrong_kind(struct load *l, const char *what, const char *wanted, const struct ynode *n)
{
    return fail(l, EINVAL, n->line, "'%s' must be %s, not %s", what, wanted, ynode_kind_name(n));
}

/* ---- values ---- */

static int env_map(struct load *l, const char *what, const struct ynode *n, struct buf *out)
{
    for (const struct ynode *v = n->first; v; v = v->next) {
        if (v->kind != YN_SCALAR)
            return fail(l, EINVAL, v->line, "variable '%s' of '%s' must be text, not %s", v->key,
                        what, ynode_kind_name(v));
        if (strchr(v->key, '=') || strchr(v->key, ','))
            return fail(l, EINVAL, v->key_line, "'%s' cannot be the name of a variable", v->key);
        struct span text = ynode_is_null(v) ? SPAN("") : span_mem(v->text, v->len);
        if (conf_env_add(out, v->key, text) < 0)
            return no_memory(l);
    }
    return 0;
}

/* {NAME: {env: VARIABLE}} or {NAME: {file: PATH}}, as "NAME=env:VARIABLE" or "NAME=file:PATH". The
 * errors quote no value, because it may be the secret itself. */
static int secret_map(struct load *l, const struct ynode *n, struct buf *out)
{
    for (const struct ynode *v = n->first; v; v = v->next) {
        const struct ynode *from = v->kind == YN_MAP ? v->first : NULL;
        bool file = from && str_eq(from->key, "file");
        bool good = from && !from->next && from->kind == YN_SCALAR && !ynode_is_null(from);
        if (strchr(v->key, '=') || strchr(v->key, ','))
            return fail(l, EINVAL, v->key_line, "'%s' cannot be the name of a variable", v->key);
        if (!good || (!file && !str_eq(from->key, "env"))) {
            (void)fail(l, EINVAL, v->line, "secret '%s' must be {env: VARIABLE} or {file: PATH}",
                       v->key);
            return err_hint(l->e, "do not write the value of a secret into a job file");
        }
        AUTO(buf_done) struct buf ref = { 0 };
        struct span source = span_mem(from->text, from->len);
        int rc = buf_adds(&ref, file ? "file:" : "env:");
        if (rc == 0)
            rc = file && !span_starts(source, "~/") ? add_path(l, source, &ref)
                                                    : buf_add(&ref, source.p, source.len);
        if (rc < 0 || conf_env_add(out, v->key, buf_span(&ref)) < 0)
            return no_memory(l);
    }
    return 0;
}

static int add_item(struct load *l, struct span item, bool path, struct buf *out)
{
    AUTO(buf_done) struct buf full = { 0 };
    int rc = path ? add_path(l, item, &full) : buf_add(&full, item.p, item.len);
    if (rc == 0)
        rc = conf_list_add(out, buf_span(&full));
    return rc < 0 ? no_memory(l) : 0;
}

static int env_items(struct load *l, const char *what, const struct ynode *n, struct buf *out)
{
    for (const struct ynode *v = n->first; v; v = v->next) {
        const char *eq = v->kind == YN_SCALAR ? strchr(v->text, '=') : NULL;
        if (!eq)
            return fail(l, EINVAL, v->line, "an item of '%s' must be NAME=VALUE", what);
        AUTO(free_p) char *name = span_dup(span_mem(v->text, (size_t)(eq - v->text)));
        if (!name || conf_env_add(out, name, span_of(eq + 1)) < 0)
            return no_memory(l);
    }
    return 0;
}

static int list_items(struct load *l, const char *what, const struct ynode *n, bool paths,
                      struct buf *out)
{
    for (const struct ynode *v = n->first; v; v = v->next) {
        if (v->kind != YN_SCALAR || ynode_is_null(v))
            return fail(l, EINVAL, v->line, "an item of '%s' must be text, not %s", what,
                        ynode_kind_name(v));
        if (span_trim(span_mem(v->text, v->len)).len == 0)
            return fail(l, EINVAL, v->line, "an item of '%s' is empty", what);
        int rc = add_item(l, span_mem(v->text, v->len), paths, out);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Append a text in TonY's syntax for several items. If it has paths, convert each of them. */
static int raw_text(struct load *l, const struct ynode *n, bool paths, struct buf *out)
{
    struct strv items = { 0 };
    int rc = 0;
    if (!paths)
        rc = buf_add(out, n->text, n->len) < 0 ? no_memory(l) : 0;
    else if (conf_list_parse(span_mem(n->text, n->len), &items) < 0)
        rc = no_memory(l);
    for (size_t i = 0; i < items.n && rc == 0; i++)
        rc = add_item(l, span_of(items.v[i]), true, out);
    strv_done(&items);
    return rc;
}

static bool holds_paths(const char *key, enum conf_type type)
{
    return type == CT_LIST && str_ends(key, ".resources");
}

static bool is_one_path(const char *key)
{
    return str_eq(key, "tony.application.src-dir") || str_eq(key, "tony.application.python-venv");
}

static int value_text(struct load *l, const char *what, const char *key, enum conf_type type,
                      const struct ynode *n, struct buf *out)
{
    bool paths = holds_paths(key, type);
    bool several = type == CT_ENVS || type == CT_LIST;
    if (ynode_is_null(n) && !several) {
        (void)fail(l, EINVAL, n->line, "'%s' has no value", what);
        return err_hint(l->e, "write one behind the colon, or remove the line");
    }
    if (ynode_is_null(n))
        return 0;
    if (n->kind == YN_MAP && str_eq(key, SECRETS_KEY))
        return secret_map(l, n, out);
    if (n->kind == YN_MAP && type == CT_ENVS)
        return env_map(l, what, n, out);
    if (n->kind == YN_LIST && type == CT_ENVS)
        return env_items(l, what, n, out);
    if (n->kind == YN_LIST && type == CT_LIST)
        return list_items(l, what, n, paths, out);
    if (n->kind != YN_SCALAR)
        return wrong_kind(l, what,
                          type == CT_ENVS   ? "a mapping of names to values"
                          : type == CT_LIST ? "a list"
                                            : "one value",
                          n);
    if (is_one_path(key))
        return add_path(l, span_mem(n->text, n->len), out) < 0 ? no_memory(l) : 0;
    return raw_text(l, n, paths, out);
}

/* what: the name that the user wrote, for errors */
static int set_node(struct load *l, const char *what, const char *key, const struct ynode *n,
                    bool final)
{
    const struct conf_key *row = conf_key_find(span_of(key), NULL);
    AUTO(buf_done) struct buf value = { 0 };
    /* Skip the value of an unknown key: load_set() reports the key. */
    int rc = row ? value_text(l, what, key, row->type, n, &value) : 0;
    if (rc == 0)
        rc = load_set(l, key, buf_cstr(&value), n->key_line, final, false);
    return rc;
}

/* ---- the parts of the file ---- */

static int load_conf(struct load *l, const struct ynode *n, bool final)
{
    if (ynode_is_null(n))
        return 0;
    if (n->kind != YN_MAP)
        return wrong_kind(l, n->key, "a mapping of keys to values", n);
    int rc = 0;
    for (const struct ynode *v = n->first; v && rc == 0; v = v->next)
        rc = set_node(l, v->key, v->key, v, final);
    return rc;
}

static int unknown_role_key(struct load *l, const char *role, const struct ynode *n)
{
    const char *names[32];
    size_t n_keys, n_names = 0;
    const struct conf_key *k = conf_keys(&n_keys);
    for (size_t i = 0; i < n_keys; i++) {
        if (str_starts(k[i].name, role_prefix) && n_names < ARRAY_LEN(names))
            names[n_names++] = k[i].name + sizeof role_prefix - 1;
    }
    const char *near = str_nearest(n->key, names, n_names);
    (void)fail(l, EINVAL, n->key_line, "unknown key '%s' of role '%s'", n->key, role);
    if (near)
        return err_hint(l->e, "did you mean '%s'?", near);
    return err_hint(l->e, "a role has instances, memory, vcores, gpus, command, env, resources; "
                          "'tony doctor --keys' lists all");
}

static int load_role(struct load *l, const struct ynode *role)
{
    if (!conf_role_name_ok(span_of(role->key), l->e))
        return err_wrap(l->e, -EINVAL, "%s:%u", l->name, role->key_line);
    if (ynode_is_null(role))
        return 0;
    if (role->kind != YN_MAP)
        return wrong_kind(l, role->key, "a mapping such as {instances: 2, memory: 1g}", role);
    int rc = 0;
    for (const struct ynode *v = role->first; v && rc == 0; v = v->next) {
        AUTO(free_p) char *key = str_printf("tony.%s.%s", role->key, v->key);
        if (!key)
            return no_memory(l);
        const struct conf_key *row = conf_key_find(span_of(key), NULL);
        if (!row || !str_starts(row->name, role_prefix))
            return unknown_role_key(l, role->key, v);
        rc = set_node(l, v->key, key, v, false);
    }
    return rc;
}

static int load_roles(struct load *l, const struct ynode *n)
{
    if (ynode_is_null(n))
        return 0;
    if (n->kind != YN_MAP)
        return wrong_kind(l, "roles", "a mapping of role names", n);
    int rc = 0;
    for (const struct ynode *v = n->first; v && rc == 0; v = v->next)
        rc = load_role(l, v);
    return rc;
}

static int unknown_top(struct load *l, const struct ynode *n)
{
    const char *names[ARRAY_LEN(shorts) + 2] = { "roles", "conf" };
    (void)fail(l, EINVAL, n->key_line, "unknown key '%s'", n->key);
    if (strchr(n->key, '.'))
        return err_hint(l->e, "keys with dots stand under 'conf:'");
    for (size_t i = 0; i < ARRAY_LEN(shorts); i++)
        names[i + 2] = shorts[i].name;
    const char *near = str_nearest(n->key, names, ARRAY_LEN(names));
    if (near)
        return err_hint(l->e, "did you mean '%s'?", near);
    AUTO(buf_done) struct buf known = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(shorts); i++)
        (void)buf_addf(&known, "%s, ", shorts[i].name);
    return err_hint(l->e, "known here: %sroles, conf", buf_cstr(&known));
}

static int load_top(struct load *l, const struct ynode *n)
{
    if (strcmp(n->key, "roles") == 0)
        return load_roles(l, n);
    if (strcmp(n->key, "conf") == 0)
        return load_conf(l, n, false);
    if (strcmp(n->key, "final") == 0 && l->layer == CL_SITE)
        return load_conf(l, n, true);
    for (size_t i = 0; i < ARRAY_LEN(shorts); i++) {
        if (strcmp(n->key, shorts[i].name) == 0)
            return set_node(l, n->key, shorts[i].key, n, false);
    }
    return unknown_top(l, n);
}

int load_yaml(struct load *l, struct span text)
{
    AUTO(ydoc_freep) struct ydoc *doc = NULL;
    int rc = ydoc_parse(l->name, text, &doc, l->e);
    if (rc < 0)
        return rc;
    const struct ynode *root = ydoc_root(doc);
    if (ynode_is_null(root) && l->layer == CL_SITE)
        return 0;
    if (ynode_is_null(root))
        return fail(l, EINVAL, 1, "the file is empty");
    if (root->kind != YN_MAP) {
        (void)fail(l, EINVAL, root->line,
                   "the file must be a mapping of keys such as 'name' and "
                   "'roles', not %s",
                   ynode_kind_name(root));
        return err_hint(l->e, "a first line would be: name: digits");
    }
    for (const struct ynode *v = root->first; v && rc == 0; v = v->next)
        rc = load_top(l, v);
    return rc;
}
