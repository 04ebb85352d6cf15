/* SPDX-License-Identifier: Apache-2.0 */
#include "client/job/quick.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "conf/conf.h"

static const char role[] = "worker";

bool quick_has_command(const struct client *c)
{
    return c->o.n_before < c->o.n_args;
}

/* ---- the command ---- */

static bool is_plain(const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "_@%+=:,./-";
    return *word && word[strspn(word, plain)] == '\0';
}

int client_quote(struct buf *out, const char *word)
{
    int rc = out->len ? buf_addc(out, ' ') : 0;
    if (is_plain(word))
        return rc < 0 ? rc : buf_adds(out, word);
    if (rc == 0)
        rc = buf_addc(out, '\'');
    for (const char *p = word; *p && rc == 0; p++)
        rc = *p == '\'' ? buf_adds(out, "'\\''") : buf_addc(out, *p);
    return rc < 0 ? rc : buf_addc(out, '\'');
}

/* Is the word the relative path of a file or directory that exists, such as train.py in "python3
 * train.py"? */
static bool is_here(const char *word)
{
    struct stat st;
    return word[0] != '/' && word[0] != '-' && stat(word, &st) == 0;
}

/* Name the job after the script, without its suffix; if there is no script, after the program. */
static int set_name(struct conf *conf, const char *word, struct err *e)
{
    static const char key[] = "tony.application.name";
    const char *slash = strrchr(word, '/');
    AUTO(free_p) char *name = str_dup(slash ? slash + 1 : word);
    char *dot = name ? strrchr(name, '.') : NULL;
    if (dot && dot > name)
        *dot = '\0';
    if (!str_eq(conf_origin(conf, key), "default") || !name || !*name ||
        !span_utf8(span_of(name), NULL) || span_has_control(span_of(name)))
        return 0;
    return conf_set(conf, CL_DEFAULT, key, name, "the command", false, e);
}

static int set_role(struct conf *conf, const char *key, const char *value, const char *origin,
                    struct err *e)
{
    AUTO(free_p) char *name = str_printf("tony.%s.%s", role, key);
    return name ? conf_set(conf, CL_OPTION, name, value, origin, false, e)
                : err_set(e, ENOMEM, "cannot read the command line: %m");
}

/* If the command names a file of this directory, the directory is shipped. */
static int set_src(struct client *c, struct conf *conf, const char *const *words, size_t n,
                   const char **out_script, struct err *e)
{
    AUTO(free_p) char *here = realpath(".", NULL);
    const char *home = getenv("HOME");
    for (size_t i = 0; i < n && !*out_script; i++)
        if (is_here(words[i]))
            *out_script = words[i];
    if (!*out_script || options_has(&c->o, OPT_SRC_DIR))
        return 0;
    if (!here || str_eq(here, "/") || str_eq(here, home)) {
        (void)err_set(e, EINVAL,
                      "tony would ship all of directory '%s' to the tasks, because '%s' is in it",
                      here ? here : ".", *out_script);
        return err_hint(e, "move the program into a directory of its own, or name the directory "
                           "to ship with --src_dir");
    }
    return conf_set(conf, CL_OPTION, "tony.application.src-dir", here, "the command", false, e);
}

static int set_command(struct client *c, struct conf *conf, struct err *e)
{
    const char *const *words = c->o.args + c->o.n_before;
    size_t n = c->o.n_args - c->o.n_before;
    AUTO(buf_done) struct buf text = { 0 };
    const char *script = NULL;
    int rc = 0;
    if (c->o.n_before || options_has(&c->o, OPT_CONF_FILE) || options_has(&c->o, OPT_EXECUTES)) {
        (void)err_set(e, EINVAL,
                      "both a job file (or --executes) and a command after '--' are given");
        return err_hint(e,
                        "give one of them; --set command='...' changes the command of a job file");
    }
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = client_quote(&text, words[i]);
    if (rc < 0)
        return err_set(e, -rc, "cannot read the command: %m");
    rc = set_role(conf, "command", buf_cstr(&text), "the command", e);
    if (rc == 0)
        rc = set_src(c, conf, words, n, &script, e);
    if (rc == 0)
        rc = set_name(conf, script ? script : words[0], e);
    if (rc == 0 && !options_has(&c->o, OPT_INSTANCES))
        rc = set_role(conf, "instances", "1", "the command", e);
    if (rc == 0)
        rc = conf_set(conf, CL_OPTION, "tony.application.framework", "generic", "the command",
                      false, e);
    return rc;
}

/* ---- options ---- */

int quick_apply(struct client *c, struct conf *conf, struct err *e)
{
    static const struct {
        enum option_id id;
        const char *key; /* of the role */
    } of_role[] = { { OPT_INSTANCES, "instances" },
                    { OPT_GPUS, "gpus" },
                    { OPT_MEMORY, "memory" } };
    int rc = quick_has_command(c) ? set_command(c, conf, e) : 0;
    for (size_t i = 0; i < ARRAY_LEN(of_role) && rc == 0; i++) {
        const char *value = options_get(&c->o, of_role[i].id);
        int64_t n;
        if (value && of_role[i].id == OPT_INSTANCES &&
            str_i64(span_of(value), 1, INT32_MAX, option_name(OPT_INSTANCES), &n, e) < 0)
            return -EINVAL;
        if (value)
            rc = set_role(conf, of_role[i].key, value, option_name(of_role[i].id), e);
    }
    const char *framework = options_get(&c->o, OPT_FRAMEWORK),
               *name = options_get(&c->o, OPT_JOB_NAME);
    if (rc == 0 && framework)
        rc = conf_set(conf, CL_OPTION, "tony.application.framework", framework,
                      option_name(OPT_FRAMEWORK), false, e);
    if (rc == 0 && name)
        rc = conf_set(conf, CL_OPTION, "tony.application.name", name, option_name(OPT_JOB_NAME),
                      false, e);
    return rc;
}

/* Translate a name that job files use, such as "roles.worker.memory" or "framework", to its key.
 * The caller frees it. NULL: job files have no such name (*out_unknown is true), or there is no
 * memory. */
static char *key_of(const char *name, bool *out_unknown)
{
    static const char *const top[][2] = {
        { "name", "tony.application.name" },
        { "framework", "tony.application.framework" },
        { "cluster", "tony.cluster" },
        { "priority", "tony.application.priority" },
        { "weight", "tony.application.weight" },
        { "budget", "tony.application.budget" },
        { "command", "tony.containers.command" },
        { "env", "tony.execution.envs" },
        { "resources", "tony.containers.resources" },
        { "src", "tony.application.src-dir" },
        { "venv", "tony.application.python-venv" },
        { "on-end", "tony.application.on-end" },
        { "on-end-secret", "tony.application.on-end-secret" },
        { "secrets", "tony.application.secrets" },
    };
    *out_unknown = false;
    if (str_starts(name, "tony."))
        return str_dup(name);
    if (str_starts(name, "conf."))
        return str_dup(name + strlen("conf."));
    if (str_starts(name, "roles."))
        return str_printf("tony.%s", name + strlen("roles."));
    for (size_t i = 0; i < ARRAY_LEN(top); i++)
        if (str_eq(name, top[i][0]))
            return str_dup(top[i][1]);
    *out_unknown = true;
    return NULL;
}

/* roles.NAME.instances gives a job a new role, if it has no role NAME. Is NAME a misspelling of a
 * role that it has? */
static int check_new_role(const struct conf *conf, const char *typed, const char *key,
                          struct err *e)
{
    enum { ROLES_MAX = 64 };
    AUTO(strv_done) struct strv roles = { 0 };
    struct conf_entry x;
    struct span part;
    const char *origin = conf_origin(conf, key);
    if (!str_starts(typed, "roles.") || !str_ends(key, ".instances") ||
        (origin && !str_eq(origin, "default")))
        return 0;
    for (size_t i = 0; conf_at(conf, i, &x) && roles.n < ROLES_MAX; i++)
        if (str_ends(x.key, ".instances") && conf_key_find(span_of(x.key), &part) && part.len)
            (void)strv_pushf(&roles, "%.*s", (int)part.len, part.p);
    (void)conf_key_find(span_of(key), &part);
    AUTO(free_p) char *name = span_dup(part);
    const char *near = name ? str_nearest(name, (const char *const *)roles.v, roles.n) : NULL;
    if (!near)
        return 0;
    (void)err_set(e, EINVAL, "the job has no role '%s'", name);
    return err_hint(e, "did you mean '%s'? --conf %s=N adds a role", near, key);
}

int quick_set(struct conf *conf, const char *pair, struct err *e)
{
    struct span rest = span_of(pair), name;
    bool unknown = false;
    if (!strchr(pair, '='))
        return err_set(e, EINVAL, "option '--set' needs NAME=VALUE, not '%s'", pair);
    (void)span_split(&rest, '=', &name);
    AUTO(free_p) char *typed = span_dup(span_trim(name));
    AUTO(free_p) char *value = rest.p ? span_dup(span_trim(rest)) : str_dup("");
    AUTO(free_p) char *key = typed ? key_of(typed, &unknown) : NULL;
    if (unknown) {
        (void)err_set(e, EINVAL, "--set %s: job files have no key with this name", typed);
        return err_hint(e, "as in: --set roles.worker.memory=2g, or --set framework=pytorch");
    }
    if (!typed || !value || !key)
        return err_set(e, ENOMEM, "cannot read '--set %s': %m", pair);
    if (check_new_role(conf, typed, key, e) < 0)
        return -EINVAL;
    return conf_set(conf, CL_CONF, key, value, "--set", false, e);
}
