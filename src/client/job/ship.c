/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects what a job ships (src, virtual environment, resources), and copies it into the store
 * before the job is submitted.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/job/jobconf.h"
#include "conf/conf.h"
#include "storage/jobfile.h"
#include "storage/store.h"
#include "storage/tree.h"

/* tony ships this script, as TonY does. Otherwise the job would need a file of this name, or
 * tensorboard on its path. */
static const char tensorboard_script[] =
    "import os\n"
    "import sys\n"
    "\n"
    "os.execvp(sys.executable, [sys.executable, '-m', 'tensorboard.main', '--logdir', "
    "os.environ['TB_LOG_DIR'],\n"
    "                           '--port', os.environ['TB_PORT'], '--bind_all'])\n";
static const char tensorboard_name[] = "sidecar_tensorboard.py";

static int add_item(struct cluster_job *j, enum ship_kind kind, const char *source,
                    const char *name, const char *role, struct err *e)
{
    struct ship_item it = {
        .kind = kind, .source = str_dup(source), .name = str_dup(name), .role = str_dup(role)
    };
    if (!it.source || !it.name || !it.role ||
        vec_grow((void **)&j->items, &j->cap_items, j->n_items + 1, sizeof *j->items) < 0) {
        ship_item_done(&it);
        return err_set(e, ENOMEM, "cannot list what is shipped: %m");
    }
    j->items[j->n_items++] = it;
    return 0;
}

void ship_remote_done(struct ship_remote *r)
{
    free(r->url);
    free(r->name);
    free(r->role);
}

static int add_remote(struct cluster_job *j, const char *url, const char *name, const char *role,
                      bool archive, struct err *e)
{
    struct ship_remote r = {
        .url = str_dup(url), .name = str_dup(name), .role = str_dup(role), .archive = archive
    };
    if (!r.url || !r.name || !r.role ||
        vec_grow((void **)&j->remote, &j->cap_remote, j->n_remote + 1, sizeof *j->remote) < 0) {
        ship_remote_done(&r);
        return err_set(e, ENOMEM, "cannot list what is shipped: %m");
    }
    j->remote[j->n_remote++] = r;
    return 0;
}

/* Is source a URL that the nodes of the cluster can fetch themselves? */
static bool is_remote(const struct cluster_job *j, const char *source)
{
    return j->cluster->takes_urls && strstr(source, "://") && !str_starts(source, "file://");
}

/* Turn a source of the job into an absolute path on this machine. what: "src", "venv" or
 * "resource", for errors. */
static int local_source(const char *source, const char *what, const char *origin, char **out,
                        struct stat *st, struct err *e)
{
    if (str_starts(source, "file://"))
        source += strlen("file://");
    if (strstr(source, "://")) {
        int rc = err_set(e, EINVAL, "%s: %s '%s' is not on this machine", origin, what, source);
        err_hint(e, "only local files can be shipped here; fetch it first");
        return rc;
    }
    AUTO(free_p) char *cwd = source[0] == '/' ? NULL : getcwd(NULL, 0);
    char *path = cwd ? fs_join(cwd, source) : str_dup(source);
    if (!path)
        return err_set(e, ENOMEM, "%s: cannot ship %s '%s': %m", origin, what, source);
    if (!span_utf8(span_of(path), NULL)) {
        int rc = err_set(e, EINVAL, "%s: the path of %s '%s' is not UTF-8", origin, what, path);
        free(path);
        err_hint(e, "rename it, or use a link with another name");
        return rc;
    }
    for (size_t n = strlen(path); n > 2 && path[n - 1] == '.' && path[n - 2] == '/'; n -= 2)
        path[n - 2] = 0; /* as for "src: ." */
    if (stat(path, st) == -1) {
        int rc = err_set(e, errno, "%s: %s '%s' cannot be used: %m", origin, what, path);
        free(path);
        bool yaml = !str_starts(origin, "--") && !strstr(origin, ".xml:");
        err_hint(e, yaml ? "relative paths of a job file start at its own directory"
                         : "relative paths of options and of XML start at the current directory");
        return rc;
    }
    *out = path;
    return 0;
}

static int collect_src(struct cluster_job *j, struct err *e)
{
    if (!j->spec->src || !j->spec->src[0])
        return 0;
    AUTO(free_p) char *path = NULL;
    struct stat st;
    int rc =
        local_source(j->spec->src, "src", job_origin(j, "tony.application.src-dir"), &path, &st, e);
    return rc < 0 ? rc : add_item(j, SHIP_SRC, path, "", "", e);
}

/* The part of path that follows dir; both are real paths. NULL: path is not inside dir. */
static const char *below(const char *dir, const char *path)
{
    size_t n = strlen(dir);
    if (str_eq(dir, "/"))
        return path[0] == '/' && path[1] ? path + 1 : NULL;
    return strncmp(dir, path, n) == 0 && path[n] == '/' && path[n + 1] ? path + n + 1 : NULL;
}

static int leave_out(struct ship_item *src, const char *dir, const char *path, struct err *e)
{
    const char *rest = path ? below(dir, path) : NULL;
    return rest && strv_push(&src->leave_out, rest) < 0
               ? err_set(e, ENOMEM, "cannot list what is shipped: %m")
               : 0;
}

/* Exclude a virtual environment that lies inside src, as with `src: .` and `venv: .venv`. It is
 * shipped separately and may have gigabytes. Exclude its name, and also the directory that a link
 * of that name points to. */
static int leave_venv_out(struct ship_item *src, const struct ship_item *venv, struct err *e)
{
    AUTO(free_p) char *dir = realpath(src->source, NULL);
    AUTO(free_p) char *real = realpath(venv->source, NULL);
    AUTO(free_p) char *parent = str_dup(venv->source);
    AUTO(free_p) char *named = NULL;
    char *slash = parent ? strrchr(parent, '/') : NULL;
    if (!dir || !real || !slash)
        return 0; /* it was removed meanwhile: store_put() will report that */
    *slash = '\0';
    AUTO(free_p) char *real_parent = realpath(slash == parent ? "/" : parent, NULL);
    if (real_parent && slash[1] && !str_eq(slash + 1, ".."))
        named = fs_join(real_parent, slash + 1);
    int rc = leave_out(src, dir, real, e);
    return rc == 0 && named && !str_eq(named, real) ? leave_out(src, dir, named, e) : rc;
}

static int collect_venv(struct cluster_job *j, struct err *e)
{
    if (!j->spec->venv || !j->spec->venv[0])
        return 0;
    if (is_remote(j, j->spec->venv))
        return add_remote(j, j->spec->venv, "venv", "", true, e);
    AUTO(free_p) char *path = NULL;
    struct stat st;
    int rc = local_source(j->spec->venv, "venv", job_origin(j, "tony.application.python-venv"),
                          &path, &st, e);
    if (rc == 0)
        rc = add_item(j,
                      !S_ISDIR(st.st_mode) ? SHIP_ARCHIVE
                      : j->cluster->remote ? SHIP_DIR
                                           : SHIP_IN_PLACE,
                      path, "venv", "", e);
    if (rc == 0 && S_ISREG(st.st_mode) && (rc = venv_check_archive(path, e)) < 0)
        return err_wrap(e, rc, "%s", job_origin(j, "tony.application.python-venv"));
    if (rc == 0)
        j->items[j->n_items - 1].python = true;
    if (rc == 0 && j->items[0].kind == SHIP_SRC)
        rc = leave_venv_out(&j->items[0], &j->items[j->n_items - 1], e);
    return rc;
}

static int collect_resources(struct cluster_job *j, const struct resource_spec *r, size_t n,
                             const char *role, const char *key, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        AUTO(free_p) char *path = NULL;
        struct stat st;
        if (is_remote(j, r[i].source)) {
            rc = add_remote(j, r[i].source, r[i].name, role, r[i].archive, e);
            continue;
        }
        rc = local_source(r[i].source, "resource", job_origin(j, key), &path, &st, e);
        if (rc == 0 && r[i].archive && S_ISDIR(st.st_mode))
            /* TonY packs such a directory and unpacks it again, so the result is the directory
             * itself. */
            rc = add_item(j, SHIP_DIR, path, r[i].name, role, e);
        else if (rc == 0)
            rc = add_item(j,
                          r[i].archive          ? SHIP_ARCHIVE
                          : S_ISDIR(st.st_mode) ? SHIP_DIR
                                                : SHIP_FILE,
                          path, r[i].name, role, e);
    }
    return rc;
}

/* Refuse a file in src that has the name of another shipped item. Archives are not inspected. */
static int check_beside_src(const struct cluster_job *j, const struct ship_item *src, struct err *e)
{
    for (size_t i = 0; i < j->n_items; i++) {
        const struct ship_item *x = &j->items[i];
        AUTO(free_p) char *path = x->kind == SHIP_SRC ? NULL : fs_join(src->source, x->name);
        struct stat st;
        if (!path || lstat(path, &st) == -1 || tree_leaves_out(&src->leave_out, x->name))
            continue;
        int rc = err_set(e, EINVAL, "src has a '%s' already, where '%s' is to appear", x->name,
                         x->source);
        if (j->spec->venv && str_eq(x->name, "venv"))
            err_hint(e, "the virtual environment appears as venv/: rename what src has");
        else
            err_hint(e, "give it another name: %s::NAME", x->source);
        return err_wrap(e, rc, "%s", ship_origin(j, x));
    }
    return 0;
}

/* An item for the containers, from this machine or from the file system of the cluster. */
struct thing {
    const char *source, *name, *role;
    int kind;
};

/* Finds items by name. Two kinds of keys: "/name" has the first item of that name, "role/name" the
 * first one of that name for the role. A role's name has no '/'. */
struct names {
    struct thing *things;
    size_t n;
    struct map first;
};

static void names_done(struct names *a)
{
    free(a->things);
    map_done(&a->first, NULL);
}

static int names_no_memory(struct err *e)
{
    return err_set(e, ENOMEM, "cannot compare the names of what is shipped: %m");
}

/* Add item y. Two different items of one name in the same working directory are an error. 0 = y was
 * added, 1 = the same item is there already. */
static int names_add(struct names *a, const struct cluster_job *j, const struct thing *y,
                     struct err *e)
{
    AUTO(free_p) char *of_all = str_printf("/%s", y->name);
    AUTO(free_p) char *of_role = str_printf("%s/%s", y->role, y->name);
    if (!of_all || !of_role)
        return names_no_memory(e);
    const struct thing *x = map_get(&a->first, of_all);
    bool taken = x != NULL;
    if (x && x->role[0] && y->role[0])
        x = map_get(&a->first, of_role);
    if (x) {
        bool same = x->kind == y->kind && str_eq(x->source, y->source);
        if (same && (!x->role[0] || str_eq(x->role, y->role)))
            return 1;
        int rc = err_set(e, EINVAL,
                         "resources '%s' and '%s' would both be '%s' in the working directory",
                         x->source, y->source, x->name);
        err_hint(e, "give one another name: %s::NAME", y->source);
        return err_wrap(e, rc, "%s", ship_origin_of(j, y->name, y->role));
    }
    struct thing *kept = &a->things[a->n++];
    *kept = *y;
    if ((!taken && map_set(&a->first, of_all, kept, NULL) < 0) ||
        (y->role[0] && map_set(&a->first, of_role, kept, NULL) < 0))
        return names_no_memory(e);
    return 0;
}

/* Check all names in one pass: a data set may have tens of thousands of files. */
static int check_names(struct cluster_job *j, struct err *e)
{
    AUTO(names_done)
    struct names names = { .things = calloc(j->n_items + j->n_remote + 1, sizeof *names.things) };
    if (!names.things)
        return names_no_memory(e);
    if (j->n_items > 0 && j->items[0].kind == SHIP_SRC) {
        int rc = check_beside_src(j, &j->items[0], e);
        if (rc < 0)
            return rc;
    }
    size_t to = 0;
    int rc = 0;
    for (size_t i = 0; i < j->n_items; i++) {
        struct ship_item *x = &j->items[i];
        struct thing y = { x->source, x->name, x->role, (int)x->kind };
        if (rc >= 0 && x->kind != SHIP_SRC)
            rc = names_add(&names, j, &y, e);
        if (rc == 1) {
            ship_item_done(x);
            rc = 0;
        } else {
            j->items[to++] = *x;
        }
    }
    j->n_items = to;
    to = 0;
    for (size_t i = 0; i < j->n_remote; i++) {
        struct ship_remote *x = &j->remote[i];
        struct thing y = { x->url, x->name, x->role, x->archive ? -1 : -2 };
        if (rc >= 0)
            rc = names_add(&names, j, &y, e);
        if (rc == 1) {
            ship_remote_done(x);
            rc = 0;
        } else {
            j->remote[to++] = *x;
        }
    }
    j->n_remote = to;
    return rc;
}

/* Add the bundled script, if the command of the tensorboard role runs it. */
static int collect_tensorboard(struct cluster_job *j, struct err *e)
{
    const struct role_spec *tb = job_spec_role(j->spec, "tensorboard");
    if (!tb || !tb->command || !strstr(tb->command, tensorboard_name))
        return 0;
    for (size_t i = 0; i < j->n_items; i++)
        if (str_eq(j->items[i].name, tensorboard_name))
            return 0;
    const char *tmp = getenv("TMPDIR");
    char *dir = str_printf("%s/tony-client-XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp");
    if (!dir || !mkdtemp(dir)) {
        int rc = err_set(e, errno, "cannot make a temporary directory '%s': %m", dir ? dir : "");
        free(dir);
        return rc;
    }
    j->scratch = dir;
    AUTO(free_p) char *path = fs_join(dir, tensorboard_name);
    int rc = path ? fs_write_atomic(AT_FDCWD, path, span_of(tensorboard_script), 0600, false, e)
                  : -ENOMEM;
    return rc < 0 ? rc : add_item(j, SHIP_FILE, path, tensorboard_name, "tensorboard", e);
}

int ship_collect(struct cluster_job *j, struct err *e)
{
    const struct job_spec *s = j->spec;
    int rc = collect_src(j, e);
    if (rc == 0)
        rc = collect_venv(j, e);
    if (rc == 0)
        rc = collect_resources(j, s->resources, s->n_resources, "", "tony.containers.resources", e);
    for (size_t i = 0; rc == 0 && i < s->n_roles; i++) {
        AUTO(free_p) char *key = str_printf("tony.%s.resources", s->roles[i].name);
        rc = key ? collect_resources(j, s->roles[i].resources, s->roles[i].n_resources,
                                     s->roles[i].name, key, e)
                 : err_set(e, ENOMEM, "cannot list what is shipped: %m");
    }
    if (rc == 0 && s->single_node)
        rc = collect_resources(j, s->am.resources, s->am.n_resources, "driver", "tony.am.resources",
                               e);
    if (rc == 0)
        rc = collect_tensorboard(j, e);
    if (rc == 0)
        rc = check_names(j, e);
    if (rc < 0 || j->n_items <= JOB_FILE_SHIP_MAX)
        return rc;
    (void)err_set(e, E2BIG, "the job ships %zu files and directories; the limit is %d", j->n_items,
                  JOB_FILE_SHIP_MAX);
    return err_hint(e, "put them into one directory, and ship that");
}
