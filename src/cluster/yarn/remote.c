/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files in HDFS that a job uses in place: resources given by URL, --hdfs_classpath, and Hadoop's
 * own archive.
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/yarn/stage.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"

enum {
    /* Files of one directory of --hdfs_classpath; a distribution has about 200 jars. */
    DIR_FILES_MAX = 1000,
};

/* ---- URLs ---- */

/* The path in the file system of this cluster. NULL with e set: the URL is of another file
 * system. */
char *yarn_path_of(const struct yarn *y, const char *url, struct err *e)
{
    const char *scheme = strstr(url, "://");
    if (!scheme)
        return *url == '/' ? str_dup(url) : str_printf("%s/%s", y->home, url);
    const char *host = scheme + 3, *path = strchr(host, '/');
    size_t len = path ? (size_t)(path - url) : strlen(url);
    bool ours = (strlen(y->hdfs.fs) == len && memcmp(y->hdfs.fs, url, len) == 0) ||
                (path == host && str_starts(url, "hdfs://")); /* hdfs:///path */
    if (!ours) {
        (void)err_set(e, EINVAL,
                      "cannot ship '%s': it is not in the cluster's own file system, '%s'", url,
                      y->hdfs.fs);
        err_hint(e, "copy it there, or to this machine");
        return NULL;
    }
    return str_dup(path ? path : "/");
}

static int add(struct yarn_staging *s, const char *url, const char *name, const char *role,
               bool archive, bool optional, const char *origin, struct err *e)
{
    AUTO(free_p) char *path = yarn_path_of(s->y, url, e);
    if (!path) {
        (void)err_wrap(e, -e->num, "%s", origin);
        return -EXIT_MISUSE;
    }
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = 0;
    const char *slash = strrchr(path, '/');
    struct yarn_staged x = { .name = str_dup(name ? name : slash + 1),
                             .role = str_dup(role),
                             .archive = archive,
                             .optional = optional,
                             .origin = origin,
                             .for_tasks = true,
                             .for_master = s->j->spec->single_node,
                             .fd = -1,
                             .path = TAKE(path) };
    if (x.name && x.role && vec_push(&s->v, x) == 0)
        return 0;
    free(x.name);
    free(x.role);
    free(x.path);
    (void)err_set(e, ENOMEM, "cannot list what is shipped: %m");
    return -EXIT_CLUSTER;
}

static int add_classpath(struct yarn_staging *s, struct err *e)
{
    const char *text = s->j->classpath;
    struct strv list = { 0 };
    int rc = text ? conf_list_parse(span_of(text), &list) : 0;
    if (rc < 0)
        (void)err_set(e, ENOMEM, "cannot list what is shipped: %m");
    for (size_t i = 0; rc == 0 && i < list.n; i++)
        rc = add(s, list.v[i], NULL, "", false, true, "--hdfs_classpath", e);
    strv_done(&list);
    return rc;
}

/* url: scheme://host/path#alias */
static int add_hadoop(struct yarn_staging *s, struct err *e)
{
    const char *key = "tony.application.hadoop.location", *text = conf_get(s->j->conf, key);
    if (!text || !*text)
        return 0;
    const char *hash = strrchr(text, '#');
    AUTO(free_p)
    char *url = hash ? span_dup(span_mem(text, (size_t)(hash - text))) : str_dup(text);
    if (!url) {
        (void)err_set(e, ENOMEM, "cannot list what is shipped: %m");
        return -EXIT_CLUSTER;
    }
    return add(s, url, hash && hash[1] ? hash + 1 : NULL, "", true, false, job_origin(s->j, key),
               e);
}

static const char *remote_origin(const struct cluster_job *j, const struct ship_remote *r)
{
    if (j->spec->venv && str_eq(r->url, j->spec->venv))
        return job_origin(j, "tony.application.python-venv");
    AUTO(free_p)
    char *key = str_printf("tony.%s.resources", r->role[0] ? r->role : "containers");
    const char *origin = key ? conf_origin(j->conf, key) : NULL;
    return origin ? origin : "job";
}

int yarn_remote_collect(struct yarn_staging *s, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->j->n_remote; i++) {
        const struct ship_remote *r = &s->j->remote[i];
        rc = add(s, r->url, r->name, r->role, r->archive, false, remote_origin(s->j, r), e);
    }
    if (rc == 0)
        rc = add_hadoop(s, e);
    return rc == 0 ? add_classpath(s, e) : rc;
}

/* ---- files or directories? ---- */

struct look {
    struct yarn_staging *s;
    size_t i;
};

static struct look *look_new(struct yarn_staging *s, size_t i)
{
    struct look *k = malloc(sizeof *k);
    if (k)
        *k = (struct look){ s, i };
    else if (!s->join.e.num)
        (void)err_set(&s->join.e, ENOMEM, "cannot list what is shipped: %m");
    return k;
}

static void stat_done(const struct files_result *r, const struct err *e, void *arg)
{
    AUTO(free_p) struct look *k = arg;
    struct yarn_staged *x = &k->s->v.v[k->i];
    struct err err = *e;
    if (r) {
        x->is_dir = r->stats->is_dir;
        x->there = true;
        x->size = r->stats->length;
        x->mtime_ms = r->stats->mtime_ms;
    } else if (e->num == ENOENT && x->optional) {
        (void)strv_pushf(&k->s->notes, "%s: '%s' does not exist; left out", x->origin, x->path);
        err_clear(&err);
    } else {
        if (e->num == ENOENT)
            (void)err_set(&err, EINVAL, "'%s' does not exist", x->path);
        (void)err_wrap(&err, -err.num, "%s", x->origin);
    }
    yarn_join_end(&k->s->join, &err);
}

/* Add the files of a directory, without those of its subdirectories. */
static void list_done(const struct files_result *r, const struct err *e, void *arg)
{
    AUTO(free_p) struct look *k = arg;
    struct yarn_staging *s = k->s;
    struct err err = *e;
    for (size_t i = 0; r && i < r->n_stats && i < DIR_FILES_MAX && !err.num; i++) {
        const struct files_stat *st = &r->stats[i];
        const struct yarn_staged *dir = &s->v.v[k->i];
        if (st->is_dir)
            continue;
        AUTO(free_p) char *path = fs_join(dir->path, st->name);
        size_t at = s->v.n;
        if (!path || add(s, path, NULL, dir->role, false, false, dir->origin, &err) < 0)
            continue;
        s->v.v[at].there = true;
        s->v.v[at].size = st->length;
        s->v.v[at].mtime_ms = st->mtime_ms;
    }
    yarn_join_end(&s->join, &err);
}

int yarn_remote_stat(struct yarn_staging *s, struct err *e)
{
    size_t n = s->v.n;
    for (size_t i = 0; i < n; i++) {
        struct look *k = s->v.v[i].digest ? NULL : look_new(s, i);
        if (k && webhdfs_stat(s->y->fs, s->v.v[i].path, stat_done, k, NULL, &s->join.e) == 0)
            s->join.n++;
        else
            free(k);
    }
    yarn_join_wait(&s->join);
    for (size_t i = 0; i < n && !s->join.e.num; i++) {
        struct yarn_staged *x = &s->v.v[i];
        struct look *k = !x->digest && x->there && x->is_dir ? look_new(s, i) : NULL;
        if (k && webhdfs_list(s->y->fs, x->path, list_done, k, NULL, &s->join.e) == 0)
            s->join.n++;
        else
            free(k);
        if (x->is_dir)
            x->there = false; /* list_done() has added its files instead */
    }
    yarn_join_wait(&s->join);
    if (!s->join.e.num)
        return 0;
    *e = s->join.e;
    return -yarn_exit_code(e);
}
