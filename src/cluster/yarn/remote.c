/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files in HDFS that a job uses in place: resources given by URL, --hdfs_classpath, and Hadoop's
 * own archive. Also removes what old jobs have left in HDFS.
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
    SWEEP_MAX = 64, /* most files and directories of one kind that a command removes */
    SWEEP_ASK_MAX = 32,
    /* A client creates its staging directory and submits within seconds: an older directory of an
     * unknown job is an orphan. */
    ORPHAN_MS = 10 * 60 * 1000,
    /* Do not ask about a younger directory: its job may not be submitted yet, and the
     * ResourceManager logs requests for unknown jobs. */
    YOUNG_MS = 5000,
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
        (void)err_set(e, EINVAL, "'%s' is not in the cluster's own file system, '%s'", url,
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

static void stat_done(const struct webhdfs_result *r, const struct err *e, void *arg)
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
        (void)strv_pushf(&k->s->notes, "%s: '%s' is not there; left out", x->origin, x->path);
        err_clear(&err);
    } else {
        if (e->num == ENOENT)
            (void)err_set(&err, EINVAL, "'%s' is not there", x->path);
        (void)err_wrap(&err, -err.num, "%s", x->origin);
    }
    yarn_join_end(&k->s->join, &err);
}

/* Add the files of a directory, without those of its subdirectories. */
static void list_done(const struct webhdfs_result *r, const struct err *e, void *arg)
{
    AUTO(free_p) struct look *k = arg;
    struct yarn_staging *s = k->s;
    struct err err = *e;
    for (size_t i = 0; r && i < r->n_stats && i < DIR_FILES_MAX && !err.num; i++) {
        const struct webhdfs_stat *st = &r->stats[i];
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

/* ---- removing what old jobs have left ---- */

struct sweep {
    struct yarn *y;
    struct yarn_join join;
    const char *own_id;
    int64_t cache_age_ms, retention_s;
    VEC(struct leftover {
        struct sweep *sweep;
        char id[APP_ID_MAX];
        int64_t age_ms;
    })
    jobs;
};

static void on_removed(const struct webhdfs_result *r, const struct err *e, void *arg)
{
    struct sweep *w = arg;
    (void)r;
    (void)e; /* on failure, the next client tries again */
    yarn_join_end(&w->join, NULL);
}

static void begin_remove(struct sweep *w, const char *path)
{
    if (webhdfs_delete(w->y->fs, path, true, on_removed, w, NULL, NULL) == 0)
        w->join.n++;
}

static bool same_cluster(const char *a, const char *b)
{
    struct yarn_app x, y;
    return yarn_app_parse(span_of(a), &x, NULL) == 0 && yarn_app_parse(span_of(b), &y, NULL) == 0 &&
           x.cluster == y.cluster;
}

/* Decide about the staging directory of another job. If the job is over, remove it. If the
 * ResourceManager does not know the job, its client died before it submitted, or the
 * ResourceManager has forgotten it: remove the directory after ORPHAN_MS. If the id is from another
 * start of a ResourceManager, another cluster may use the same HDFS: wait for
 * tony.yarn.cache-age. */
static void on_report(const Hadoop__GetApplicationReportResponse *r, const struct rpc_error *e,
                      void *arg)
{
    struct leftover *l = arg;
    struct sweep *w = l->sweep;
    const Hadoop__ApplicationReport *a = r ? r->application_report : NULL;
    bool over = a && yarn_app_state_is_final(a->yarn_application_state);
    int64_t limit = same_cluster(l->id, w->own_id) ? (int64_t)ORPHAN_MS : w->cache_age_ms;
    bool orphan = e && e->kind == RPC_FAULT_NOT_FOUND && l->age_ms > limit;
    AUTO(free_p) char *path = over || orphan ? str_printf("%s/%s", w->y->dir, l->id) : NULL;
    if (path)
        begin_remove(w, path);
    yarn_join_end(&w->join, NULL);
}

static void jobs_listed(const struct webhdfs_result *r, const struct err *e, void *arg)
{
    struct sweep *w = arg;
    int64_t now = clock_wall_ms();
    (void)e; /* an error is handled as in on_removed() */
    for (size_t i = 0; r && i < r->n_stats && w->jobs.n < SWEEP_ASK_MAX; i++) {
        struct leftover l = { .sweep = w, .age_ms = now - r->stats[i].mtime_ms };
        struct yarn_app app;
        if (str_eq(r->stats[i].name, w->own_id) || l.age_ms < YOUNG_MS ||
            yarn_app_parse(span_of(r->stats[i].name), &app, NULL) < 0 ||
            !str_copy(l.id, sizeof l.id, r->stats[i].name))
            continue;
        if (vec_push(&w->jobs, l) < 0)
            break;
    }
    yarn_join_end(&w->join, NULL);
}

/* Remove old histories of this user. The site may use one directory for the histories of all
 * users. */
static void histories_listed(const struct webhdfs_result *r, const struct err *e, void *arg)
{
    struct sweep *w = arg;
    int64_t oldest = clock_wall_ms() - w->retention_s * 1000;
    size_t n = 0;
    (void)e; /* an error is handled as in on_removed() */
    for (size_t i = 0; r && i < r->n_stats && n < SWEEP_MAX; i++) {
        const struct webhdfs_stat *st = &r->stats[i];
        struct yarn_app app;
        if (st->mtime_ms >= oldest || !str_eq(st->owner, w->y->user) ||
            yarn_app_parse(span_of(st->name), &app, NULL) < 0)
            continue;
        AUTO(free_p) char *path = str_printf("%s/%s", w->y->history, st->name);
        if (path)
            begin_remove(w, path);
        n++;
    }
    yarn_join_end(&w->join, NULL);
}

void yarn_sweep(struct yarn_staging *s, const char *own_id)
{
    struct sweep w = { .y = s->y,
                       .join = { .loop = s->y->loop },
                       .own_id = own_id,
                       .cache_age_ms = conf_int(s->j->conf, "tony.yarn.cache-age"),
                       .retention_s = conf_int(s->j->conf, "tony.history.retention-sec") };
    for (size_t i = 0; i < s->stale.n && i < SWEEP_MAX; i++)
        begin_remove(&w, s->stale.v[i]);
    if (w.retention_s >= 0 &&
        webhdfs_list(s->y->fs, s->y->history, histories_listed, &w, NULL, NULL) == 0)
        w.join.n++;
    if (webhdfs_list(s->y->fs, s->y->dir, jobs_listed, &w, NULL, NULL) == 0)
        w.join.n++;
    yarn_join_wait(&w.join);
    for (size_t i = 0; i < w.jobs.n; i++) {
        struct yarn_app app;
        struct yarn_id_msg m;
        Hadoop__GetApplicationReportRequest rq = HADOOP__GET_APPLICATION_REPORT_REQUEST__INIT;
        if (yarn_app_parse(span_of(w.jobs.v[i].id), &app, NULL) < 0)
            continue;
        rq.application_id = yarn_app_msg(&m, &app);
        if (yarn_get_application_report(s->y->rpc, &rq, yarn_deadline(s->y), on_report,
                                        &w.jobs.v[i]))
            w.join.n++;
    }
    yarn_join_wait(&w.join);
    vec_done(&w.jobs);
}
