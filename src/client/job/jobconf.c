/* SPDX-License-Identifier: Apache-2.0 */
#include "client/job/jobconf.h"
#include "client/job/quick.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/show/machine.h"
#include "conf/conf.h"
#include "storage/secrets.h"
#include "storage/store.h"

enum {
    JOB_NAME_MAX = 64, /* limit for a generated name; a name that the user gives may be longer */
    REMOTE_JOB_MAX = 4 << 20,
};

/* Options that set one key to their argument. */
static const struct {
    enum option_id id;
    const char *key;
    bool path; /* relative to the current directory */
} plain_options[] = {
    { OPT_CLUSTER, "tony.cluster", false },
    { OPT_SRC_DIR, "tony.application.src-dir", true },
    { OPT_PYTHON_VENV, "tony.application.python-venv", true },
    { OPT_PYTHON_BINARY, "tony.application.python-binary-path", false },
    { OPT_TENSORBOARD, "tony.application.tensorboard-log-dir", false },
};

/* Make a path of the command line absolute. URLs and NULL are returned unchanged. */
static char *from_cwd(const char *path)
{
    if (path[0] == '/' || !path[0] || strstr(path, "://"))
        return str_dup(path);
    AUTO(free_p) char *cwd = getcwd(NULL, 0);
    return cwd ? fs_join(cwd, path) : NULL;
}

/* --shell_env and --container_env: each gives one pair NAME=VALUE. The value may contain commas. */
static int set_env(struct conf *conf, enum option_id id, const char *pair, struct err *e)
{
    const char *key = id == OPT_CONTAINER_ENV ? "tony.containers.envs" : "tony.execution.envs";
    struct span value = span_of(pair), name;
    AUTO(buf_done) struct buf list = { 0 };
    (void)span_split(&value, '=', &name); /* without '=' the value is empty, as in TonY */
    name = span_trim(name);
    if (name.len == 0 || (id == OPT_ENV && !strchr(pair, '='))) {
        (void)err_set(e, EINVAL, "option '%s' needs KEY=VALUE, not '%s'", option_name(id), pair);
        return id == OPT_ENV && name.len
                   ? err_hint(e,
                              "--env %s=\"$%s\" takes the value of your shell, --secret %s does "
                              "so and keeps it secret",
                              pair, pair, pair)
                   : -EINVAL;
    }
    AUTO(free_p) char *n = span_dup(name);
    int rc = n ? conf_env_add(&list, n, span_trim(value)) : -ENOMEM;
    if (rc < 0)
        return err_set(e, -rc, "cannot use '%s %s': %m", option_name(id), pair);
    return conf_set(conf, CL_OPTION, key, buf_cstr(&list), option_name(id), false, e);
}

/* --secret NAME, NAME=env:VARIABLE or NAME=file:PATH. The error does not quote the text: users may
 * write the secret itself. */
static int set_secret(struct conf *conf, const char *text, struct err *e)
{
    struct span source = span_of(text), name;
    AUTO(buf_done) struct buf ref = { 0 }, list = { 0 };
    (void)span_split(&source, '=', &name);
    AUTO(free_p) char *n = span_dup(span_trim(name));
    AUTO(free_p) char *from = source.p ? span_dup(source) : str_printf("env:%s", n ? n : "");
    bool relative = from && str_starts(from, "file:") && !str_starts(from, "file:~/");
    AUTO(free_p) char *path = relative ? from_cwd(from + strlen("file:")) : NULL;
    int rc = n && from ? buf_addf(&ref, "%s%s", path ? "file:" : from, path ? path : "") : -ENOMEM;
    if (rc == 0)
        rc = conf_env_add(&list, n, buf_span(&ref));
    if (rc < 0)
        return err_set(e, -rc, "cannot use '--secret': %m");
    return conf_set(conf, CL_OPTION, "tony.application.secrets", buf_cstr(&list), "--secret", false,
                    e);
}

static int set_option(struct conf *conf, enum option_id id, const char *value, struct err *e)
{
    if (id == OPT_SECRET)
        return set_secret(conf, value, e);
    if (id == OPT_SHELL_ENV || id == OPT_ENV || id == OPT_CONTAINER_ENV)
        return set_env(conf, id, value, e);
    for (size_t i = 0; i < ARRAY_LEN(plain_options); i++) {
        if (plain_options[i].id != id)
            continue;
        AUTO(free_p) char *path = plain_options[i].path ? from_cwd(value) : str_dup(value);
        if (!path)
            return err_set(e, errno ? errno : ENOMEM, "cannot use '%s %s': %m", option_name(id),
                           value);
        return conf_set(conf, CL_OPTION, plain_options[i].key, path, option_name(id), false, e);
    }
    return 0;
}

/* --executes with --task_params and the interpreter: the command of all roles that have no command
 * of their own. */
static int set_command(struct client *c, struct conf *conf, struct err *e)
{
    const char *executes = options_get(&c->o, OPT_EXECUTES),
               *params = options_get(&c->o, OPT_TASK_PARAMS);
    const char *binary = conf_get(conf, "tony.application.python-binary-path");
    bool has_venv = conf_get(conf, "tony.application.python-venv") != NULL;
    int rc = 0;
    if (binary) {
        AUTO(free_p) char *python = conf_build_command(binary, NULL, NULL, false);
        if (python && has_venv && binary[0] != '/') {
            free(python);
            python = str_printf("venv/%s", binary);
        }
        rc = python ? conf_set(conf, CL_OPTION, "tony.python-exec-path", python,
                               option_name(OPT_PYTHON_BINARY), false, e)
                    : err_set(e, ENOMEM, "cannot set the interpreter: %m");
    }
    if (rc < 0 || !executes) {
        if (rc == 0 && params)
            host_note(&c->host, "--task_params has no effect without --executes");
        return rc;
    }
    AUTO(free_p) char *command = conf_build_command(executes, params, binary, has_venv);
    if (!command)
        return err_set(e, ENOMEM, "cannot set the command: %m");
    return conf_set(conf, CL_OPTION, "tony.containers.command", command, option_name(OPT_EXECUTES),
                    false, e);
}

static int set_conf_option(struct conf *conf, const char *pair, struct err *e)
{
    struct span rest = span_of(pair), key;
    (void)span_split(&rest, '=', &key); /* without '=' the value is empty, as in TonY */
    key = span_trim(key);
    struct span value = span_trim(rest);
    AUTO(free_p) char *k = span_dup(key), *v = span_dup(value.p ? value : SPAN(""));
    if (!k || !v)
        return err_set(e, ENOMEM, "cannot read '--conf %s': %m", pair);
    if (!strchr(pair, '=')) {
        int rc = err_set(e, EINVAL, "option '--conf' needs KEY=VALUE, not '%s'", pair);
        if (pair[0])
            err_hint(e, "an empty value is written '--conf %s='", pair);
        return rc;
    }
    return conf_set(conf, CL_CONF, k, v, "--conf", false, e);
}

/* The cluster that reads files of this URL; NULL = none. */
static const struct cluster_ops *reader_of(const char *url)
{
    for (size_t i = 0; cluster_at(i); i++) {
        const char *scheme = cluster_at(i)->scheme;
        size_t n = scheme ? strlen(scheme) : 0;
        if (n && strncmp(url, scheme, n) == 0 && str_starts(url + n, "://"))
            return cluster_at(i);
    }
    return NULL;
}

static int refuse_url(const char *url, struct err *e)
{
    AUTO(buf_done) struct buf list = { 0 };
    for (size_t i = 0; cluster_at(i); i++)
        if (cluster_at(i)->scheme) /* without memory, the list is shorter */
            (void)buf_addf(&list, ", %s://", cluster_at(i)->scheme);
    return err_set(e, EINVAL, "job file '%s' cannot be read; possible are: local files%s", url,
                   list.len ? buf_cstr(&list) : "");
}

/* Find the job file: the one that the command line names, else ./tony.xml as TonY does. NULL with
 * *rc 0: there is none. */
static const char *job_file(struct client *c, int *rc, struct err *e)
{
    const char *option = options_get(&c->o, OPT_CONF_FILE),
               *arg = c->o.n_before ? c->o.args[0] : NULL;
    *rc = 0;
    if (option && arg) {
        *rc = err_set(e, EINVAL, "two job files are given, '%s' and '%s'", arg, option);
        return NULL;
    }
    const char *path = option ? option : arg;
    if (!path && !quick_has_command(c) && !c->default_am_command && access("tony.xml", F_OK) == 0)
        path = "tony.xml";
    if (path && str_starts(path, "file://"))
        path += strlen("file://");
    if (path && strstr(path, "://") && !reader_of(path)) {
        *rc = refuse_url(path, e);
        return NULL;
    }
    return path;
}

static bool can_be_name(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n <= JOB_NAME_MAX && span_utf8(span_of(s), NULL) &&
           !span_has_control(span_of(s));
}

/* Get the last component of the directory's real path ("" = the current directory). NULL: it has
 * none. */
static char *directory_name(const char *dir)
{
    AUTO(free_p) char *real = realpath(dir, NULL);
    const char *slash = real ? strrchr(real, '/') : NULL;
    return slash ? str_dup(slash + 1) : NULL;
}

/*
 * Give a job without a name the base name of its file, such as "hello" for hello.yaml. If the file
 * has a generic name such as job.yaml, or there is no file, take the name of its directory. Jobs in
 * TonY's XML files keep TonY's default name.
 */
static int default_name(struct conf *conf, const char *path, struct err *e)
{
    static const char key[] = "tony.application.name";
    static const char *const nothing[] = { "job.yaml", "job.yml", "tony.yaml", "tony.yml" };
    if (!str_eq(conf_origin(conf, key), "default") || (path && str_ends(path, ".xml")))
        return 0;
    AUTO(free_p) char *dir = str_dup(path ? path : "");
    char *slash = dir ? strrchr(dir, '/') : NULL;
    const char *file = slash ? slash + 1 : dir;
    bool by_directory = !path;
    for (size_t i = 0; i < ARRAY_LEN(nothing); i++)
        by_directory = by_directory || str_eq(file, nothing[i]);
    AUTO(free_p) char *name = NULL;
    if (by_directory && slash) {
        slash[slash == dir] = '\0';
        name = directory_name(dir);
    } else if (by_directory) {
        name = directory_name(".");
    } else {
        name = str_dup(file);
        char *dot = name ? strrchr(name, '.') : NULL;
        if (dot && dot > name && (str_eq(dot, ".yaml") || str_eq(dot, ".yml")))
            *dot = '\0';
    }
    return name && can_be_name(name) ? conf_set(conf, CL_DEFAULT, key, name, "default", false, e)
                                     : 0;
}

/* Tasks make files as the user's own shell does. */
static int default_umask(struct conf *conf, struct err *e)
{
    static const char key[] = "tony.task.umask";
    char text[8];
    const char *origin = conf_origin(conf, key);
    if (origin && !str_eq(origin, "default"))
        return 0;
    mode_t mask = umask(077);
    (void)umask(mask);
    (void)snprintf(text, sizeof text, "%03o", (unsigned)mask & 0777);
    return conf_set(conf, CL_DEFAULT, key, text, "default", false, e);
}

/* Read a job file from the file system of a cluster. 0 or -errno. */
static int read_remote(struct client *c, const char *url, struct buf *out, struct err *e)
{
    struct cluster *k = NULL;
    int rc = client_open(c, reader_of(url), NULL, &k, e);
    return rc < 0 ? -e->num : cluster_ops_of(k)->read_file(k, url, out, e);
}

static int load_job_file(struct client *c, struct conf *conf, const char *path, struct err *e)
{
    if (!strstr(path, "://"))
        return conf_load_file(conf, CL_JOB, path, e);
    AUTO(buf_done) struct buf text = { .max = REMOTE_JOB_MAX };
    int rc = read_remote(c, path, &text, e);
    if (rc < 0)
        return err_wrap(e, rc, "cannot read job file '%s'", path);
    struct span first = span_trim(buf_span(&text));
    bool xml = str_ends(path, ".xml") || (first.len && first.p[0] == '<');
    return conf_load_text(conf, CL_JOB, path, buf_span(&text), xml, e);
}

static int load_layers(struct client *c, struct conf *conf, struct err *e)
{
    int rc = conf_load_site(conf, e);
    if (rc < 0)
        return rc;
    const char *path = job_file(c, &rc, e);
    if (rc < 0)
        return rc;
    if (path)
        rc = load_job_file(c, conf, path, e);
    else if (!options_has(&c->o, OPT_EXECUTES) && !options_has(&c->o, OPT_CONF) &&
             !options_has(&c->o, OPT_SET) && !quick_has_command(c) && !c->default_am_command)
        rc = (err_set(e, EINVAL, "no job is given"),
              err_hint(e,
                       "name a job file (tony %s job.yaml), or a command (tony %s -- python3 "
                       "train.py, or --executes)",
                       c->cmd->name, c->cmd->name));
    if (rc == 0)
        rc = quick_apply(c, conf, e);
    for (size_t i = 0; rc == 0 && i < c->o.n; i++)
        rc = set_option(conf, c->o.v[i].id, c->o.v[i].value, e);
    if (rc == 0)
        rc = set_command(c, conf, e);
    for (size_t i = 0; rc == 0 && i < c->o.n; i++)
        if (c->o.v[i].id == OPT_CONF)
            rc = set_conf_option(conf, c->o.v[i].value, e);
        else if (c->o.v[i].id == OPT_SET)
            rc = quick_set(conf, c->o.v[i].value, e);
    if (rc == 0 && c->default_am_command && !conf_get(conf, "tony.containers.command"))
        rc = conf_set(conf, CL_DEFAULT, "tony.am.command", c->default_am_command, c->cmd->name,
                      false, e);
    if (rc == 0)
        rc = default_umask(conf, e);
    return rc < 0 ? rc : default_name(conf, path, e);
}

static int find_cluster(struct cluster_job *j, struct err *e)
{
    j->cluster = cluster_named(j->spec->cluster);
    if (j->cluster)
        return 0;
    const char *origin = conf_origin(j->conf, "tony.cluster");
    (void)client_no_cluster(j->spec->cluster, e);
    return err_wrap(e, -EINVAL, "%s", origin ? origin : "tony.cluster");
}

/* Do tasks of the job run in images on this machine, and can the engine here run them? */
static int check_engine(const struct client *c, const struct job_spec *spec,
                        const struct conf *conf, struct err *e)
{
    bool wanted = spec->single_node && spec->am.docker_image;
    for (size_t i = 0; i < spec->n_roles; i++)
        wanted = wanted || spec->roles[i].docker_image;
    if (!wanted)
        return 0;
    struct engine_found f;
    engine_look(&f);
    int rc = 0;
    if (f.kind == ENGINE_MISSING || f.kind == ENGINE_ROOTLESS) {
        rc = err_set(e, EINVAL, "%s: %s", conf_origin(conf, "tony.docker.enabled"), f.why);
        err_hint(e, "%s, or leave tony.docker.enabled out", f.hint);
    } else if (f.kind == ENGINE_SILENT) {
        host_note(&c->host, "tasks in images may fail: %s", f.why);
        host_note(&c->host, "%s", f.hint);
    }
    engine_found_done(&f);
    return rc;
}

/* Add the name of the job file to an error, and a hint to the documentation. */
static int explain(struct client *c, int rc, struct err *e)
{
    int unused;
    const char *path = job_file(c, &unused, NULL);
    if (rc != -ENOMEM && path && !strstr(e->msg, path) && !strstr(e->msg, "--") &&
        !strstr(e->msg, "/tony-site."))
        (void)err_wrap(e, rc, "%s", path);
    if (rc != -ENOMEM && !e->hint[0] && strstr(e->msg, "tony.application.secrets"))
        err_hint(e, "docs/secrets.md describes secrets");
    if (rc != -ENOMEM && !e->hint[0])
        err_hint(e, "docs/job-files.md describes job files; tony doctor --keys lists all keys");
    return rc;
}

/* Is this a key of the pool? The site file sets those, not the job. */
static bool is_the_pools(const char *key)
{
    return str_starts(key, "tony.pool.") || str_eq(key, "tony.store.max-age") ||
           str_eq(key, "tony.history.retention-sec");
}

/* Why does this key have no effect in this job? NULL = it has one. */
static const char *no_effect(const struct conf_key *row, const struct cluster_ops *on)
{
    if (row && is_the_pools(row->name))
        return "it counts only in the site's file";
    if (!row || row->effect == CE_ACTS || (int)row->effect == on->keys_effect)
        return NULL;
    for (size_t i = 0; on->keys_also && on->keys_also[i]; i++)
        if (str_eq(on->keys_also[i], row->name))
            return NULL;
    for (size_t i = 0; cluster_at(i); i++)
        if ((int)row->effect == cluster_at(i)->keys_effect)
            return cluster_at(i)->keys_only;
    return row->help;
}

static void add_reason(struct buf *out, const char *why)
{
    size_t n = strlen(why);
    (void)buf_addf(out, " (%.*s)", (int)(n && why[n - 1] == '.' ? n - 1 : n), why);
}

struct idle_key {
    const char *key, *why;
};

static void add_alike(const struct idle_key *v, size_t n, const char *why, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        if (str_eq(v[i].why, why))
            (void)buf_addf(out, "%s%s", out->len ? ", " : "", v[i].key);
    }
    add_reason(out, why);
}

/* Print one line with all keys of the job that have no effect, grouped by reason. */
static void say_without_effect(const struct client *c, const struct conf *conf,
                               const struct cluster_ops *on)
{
    AUTO(buf_done) struct buf names = { 0 };
    VEC(struct idle_key) idle = { 0 };
    struct conf_entry x;
    for (size_t i = 0; conf_at(conf, i, &x); i++) {
        if (str_eq(x.origin, "default") || str_starts(x.origin, "site file") ||
            str_starts(x.key, "tony.version-info."))
            continue;
        const char *why = no_effect(conf_key_find(span_of(x.key), NULL), on);
        if (why && vec_push(&idle, ((struct idle_key){ x.key, why })) < 0)
            break; /* out of memory: name only the keys found so far */
    }
    for (size_t i = 0; i < idle.n; i++) {
        bool is_listed = false;
        for (size_t k = 0; k < i; k++)
            is_listed = is_listed || str_eq(idle.v[k].why, idle.v[i].why);
        if (!is_listed)
            add_alike(idle.v, idle.n, idle.v[i].why, &names);
    }
    if (idle.n)
        host_note(&c->host, "without effect here: %s", buf_cstr(&names));
    vec_done(&idle);
}

static void say_warnings(const struct client *c, const struct job_spec *spec)
{
    enum { SAID_MAX = 20 };
    size_t n = MIN(spec->warnings.n, (size_t)SAID_MAX);
    for (size_t i = 0; i < n; i++)
        host_note(&c->host, "%s", spec->warnings.v[i]);
    if (n < spec->warnings.n)
        host_note(&c->host, "and %zu more of this kind", spec->warnings.n - n);
}

/* Read the values of the secrets, and forget the variables that had them: the pool, which this
 * process may start, would inherit them. */
static int read_secrets(const struct client *c, struct cluster_job *j, struct err *e)
{
    struct strv warnings = { 0 };
    if (j->spec->secrets.n == 0)
        return 0;
    int rc = secrets_gather(&j->spec->secrets, &j->secrets, &warnings, e);
    for (size_t i = 0; i < warnings.n; i++)
        host_note(&c->host, "%s", warnings.v[i]);
    strv_done(&warnings);
    secrets_hide_sources(&j->spec->secrets);
    if (rc < 0 && rc != -ENOMEM && !e->hint[0])
        (void)err_hint(e, "docs/secrets.md describes secrets");
    return rc < 0 ? err_wrap(e, rc, "%s", job_origin(j, "tony.application.secrets")) : 0;
}

int client_job_load(struct client *c, struct cluster_job *out, struct err *e)
{
    *out = (struct cluster_job){ 0 };
    struct cluster_job j = { .conf = conf_new() };
    int rc = j.conf ? load_layers(c, j.conf, e) : err_set(e, ENOMEM, "cannot read the job: %m");
    if (rc == 0)
        rc = job_spec_build(j.conf, &j.spec, e);
    if (rc == 0)
        rc = find_cluster(&j, e);
    if (rc == 0)
        rc = check_engine(c, j.spec, j.conf, e);
    if (rc == 0)
        rc = read_secrets(c, &j, e);
    if (rc == 0)
        rc = ship_collect(&j, e);
    if (rc < 0) {
        client_job_done(&j);
        return explain(c, rc, e);
    }
    say_warnings(c, j.spec);
    say_without_effect(c, j.conf, j.cluster);
    j.classpath = options_get(&c->o, OPT_HDFS_CLASSPATH);
    if (!j.cluster->takes_urls && j.classpath)
        host_note(&c->host, "--hdfs_classpath has no effect with cluster '%s'", j.cluster->name);
    *out = j;
    return 0;
}

void client_job_done(struct cluster_job *j)
{
    for (size_t i = 0; i < j->n_items; i++)
        ship_item_done(&j->items[i]);
    free(j->items);
    for (size_t i = 0; i < j->n_remote; i++)
        ship_remote_done(&j->remote[i]);
    free(j->remote);
    job_spec_free(j->spec);
    conf_free(j->conf);
    if (j->scratch)
        /* If this fails, a leftover in the temporary directory does no harm. */
        (void)fs_remove_tree(AT_FDCWD, j->scratch, NULL);
    free(j->scratch);
    secrets_wipe(&j->secrets);
    *j = (struct cluster_job){ 0 };
}
