/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the files that a job ships, and finds out which of them HDFS has already. The local store
 * computes the digest of each file or directory. In HDFS it has the path
 *
 *     <home>/.tony/cache/<sha256>/<file name>
 *
 * A file that exists already is not sent again. The modification time of its directory is the time
 * of its last use. stage_send.c sends the others.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/yarn/stage.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"
#include "storage/store.h"

enum {
    TOUCH_MS = 24 * 3600 * 1000, /* update the time of a cache entry at most once a day ... */
    TOUCH_SHARE = 4,             /* ... or once in this part of tony.yarn.cache-age */
};

/* ---- what to stage ---- */

static struct yarn_staged *add(struct yarn_staging *s, const char *name, const char *role,
                               bool archive, struct err *e)
{
    struct yarn_staged x = {
        .name = str_dup(name), .role = str_dup(role), .archive = archive, .fd = -1
    };
    x.for_tasks = true;
    x.for_master = s->j->spec->single_node;
    if (x.name && x.role && vec_push(&s->v, x) == 0)
        return &s->v.v[s->v.n - 1];
    free(x.name);
    free(x.role);
    (void)err_set(e, ENOMEM, "cannot list what is shipped: %m");
    return NULL;
}

/* Make a name that all file systems of Hadoop and all shells accept. */
static char *plain_name(const char *name, const char *suffix)
{
    char *out = str_printf("%s%s", *name == '.' ? name + 1 : name, suffix);
    for (char *p = out; p && *p; p++) {
        bool fine = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                    (*p >= '0' && *p <= '9') || strchr("._+-", *p);
        if (!fine)
            *p = '_';
    }
    return out;
}

/* Set the paths of an entry: in the local store, and in HDFS. */
static int place(struct yarn_staging *s, struct yarn_staged *x, const char *local,
                 const char *digest, struct err *e)
{
    AUTO(free_p) char *file = plain_name(x->name, x->archive ? ".tar.gz" : "");
    x->local = str_dup(local);
    x->digest = str_dup(digest);
    x->path = file ? str_printf("%s/cache/%s/%s", s->y->dir, digest, file) : NULL;
    return x->local && x->digest && x->path ? 0
                                            : err_set(e, ENOMEM, "cannot list what is shipped: %m");
}

static int store_file(struct yarn_staging *s, struct store *store, const char *source,
                      const char *name, struct yarn_staged **out, struct err *e)
{
    struct ship_item it = {
        .kind = SHIP_FILE, .source = str_dup(source), .name = str_dup(name), .role = str_dup("")
    };
    int rc = it.source && it.name && it.role ? store_put(store, &it, e) : -ENOMEM;
    struct yarn_staged *x = rc == 0 ? add(s, name, "", false, e) : NULL;
    rc = x ? place(s, x, it.path, it.digest, e) : -1;
    ship_item_done(&it);
    *out = x;
    return rc < 0 ? -ship_exit_code(e) : 0;
}

static int add_program(struct yarn_staging *s, struct store *store, const char *name,
                       bool for_master, struct err *e)
{
    AUTO(free_p) char *program = paths_program(name);
    if (!program) {
        (void)err_set(e, ENOENT, "cannot find the program '%s' beside this one or on PATH", name);
        err_hint(e, "install tony again; tony doctor shows which programs are missing");
        return -EXIT_CLUSTER;
    }
    struct yarn_staged *x;
    int rc = store_file(s, store, program, name, &x, e);
    if (rc < 0)
        return -EXIT_CLUSTER;
    x->for_master = for_master;
    x->for_tasks = str_eq(name, "tony-executor");
    return 0;
}

/* Ship the program that measures GPUs, if a role has some. Without it the job runs all the same. */
static int add_gpu_program(struct yarn_staging *s, struct store *store, struct err *e)
{
    const struct job_spec *spec = s->j->spec;
    bool wanted = spec->single_node && spec->am.gpus > 0;
    struct yarn_staged *x;
    for (size_t i = 0; i < spec->n_roles; i++)
        wanted = wanted || spec->roles[i].gpus > 0;
    if (!wanted || !spec->gpu_metrics)
        return 0;
    AUTO(free_p) char *program = paths_program("tony-gpu");
    if (!program) {
        host_note(s->y->host, "the GPUs of the job will not be measured: the program tony-gpu is "
                              "not here");
        return 0;
    }
    return store_file(s, store, program, "tony-gpu", &x, e) < 0 ? -EXIT_CLUSTER : 0;
}

/* Ship a site file that the job names, as TonY does: programs of the tasks may read it. */
static int add_site(struct yarn_staging *s, struct store *store, const char *key, const char *name,
                    struct err *e)
{
    const char *path = conf_get(s->j->conf, key);
    struct yarn_staged *x;
    if (!path || !*path)
        return 0;
    if (str_starts(path, "file://"))
        path += strlen("file://");
    AUTO(free_p) char *real = realpath(path, NULL);
    if (!real) {
        (void)err_set(e, errno, "%s: cannot read '%s': %m", job_origin(s->j, key), path);
        return -EXIT_MISUSE;
    }
    return store_file(s, store, real, name, &x, e);
}

static int add_items(struct yarn_staging *s, struct err *e)
{
    const struct cluster_job *j = s->j;
    for (size_t i = 0; i < j->n_items; i++) {
        const struct ship_item *it = &j->items[i];
        bool src = it->kind == SHIP_SRC;
        struct yarn_staged *x =
            add(s, src ? YARN_SRC_LINK : it->name, it->role, it->kind != SHIP_FILE, e);
        if (!x || place(s, x, it->path, it->digest, e) < 0)
            return -EXIT_CLUSTER;
    }
    return 0;
}

int yarn_stage_collect(struct yarn_staging *s, struct err *e)
{
    struct cluster_host *h = s->y->host;
    int rc = ship_put(h, s->j, e);
    if (rc < 0)
        return rc;
    struct store *store = NULL;
    if (store_open(h->paths.store, &store, e) < 0)
        return -EXIT_CLUSTER;
    rc = add_program(s, store, "tony-master", true, e);
    if (rc == 0)
        rc = add_program(s, store, "tony-executor", s->j->spec->single_node, e);
    if (rc == 0)
        rc = add_gpu_program(s, store, e);
    if (rc == 0)
        rc = add_site(s, store, "tony.application.hdfs-conf-path", "hdfs-site.xml", e);
    if (rc == 0)
        rc = add_site(s, store, "tony.application.yarn-conf-path", "yarn-site.xml", e);
    store_free(store);
    if (rc == 0)
        rc = add_items(s, e);
    return rc == 0 ? yarn_remote_collect(s, e) : rc;
}

/* ---- what HDFS has already ---- */

struct yarn_step *yarn_step_new(struct yarn_staging *s, size_t i)
{
    struct yarn_step *t = malloc(sizeof *t);
    if (t)
        *t = (struct yarn_step){ s, i };
    return t;
}

void yarn_stage_no_memory(struct yarn_staging *s)
{
    if (!s->join.e.num)
        (void)err_set(&s->join.e, ENOMEM, "cannot ship the job: %m");
}

static void stat_done(const struct files_result *r, const struct err *e, void *arg)
{
    AUTO(free_p) struct yarn_step *t = arg;
    struct yarn_staged *x = &t->s->v.v[t->i];
    if (r) {
        x->there = !r->stats->is_dir;
        x->size = r->stats->length;
        x->mtime_ms = r->stats->mtime_ms;
    }
    yarn_join_end(&t->s->join, e->num == ENOENT || e->num == ENOTDIR ? NULL : e);
}

static void ask_stat(struct yarn_staging *s, size_t i)
{
    struct yarn_step *t = yarn_step_new(s, i);
    if (!t || webhdfs_stat(s->y->fs, s->v.v[i].path, stat_done, t, NULL, &s->join.e) < 0) {
        free(t);
        yarn_stage_no_memory(s);
        return;
    }
    s->join.n++;
}

/* Read the age of each directory of the cache. */
static void cache_listed(const struct files_result *r, const struct err *e, void *arg)
{
    struct yarn_staging *s = arg;
    int64_t now = clock_wall_ms(), age = conf_int(s->j->conf, "tony.yarn.cache-age");
    s->cache_there = r != NULL;
    for (size_t k = 0; r && k < r->n_stats; k++) {
        const struct files_stat *st = &r->stats[k];
        bool unfinished = str_starts(st->name, YARN_HALF_PREFIX), ours = false;
        for (size_t i = 0; i < s->v.n; i++) {
            struct yarn_staged *x = &s->v.v[i];
            if (!x->digest || !str_eq(x->digest, st->name))
                continue;
            ours = true;
            x->known = true;
            x->old = now - st->mtime_ms > MIN((int64_t)TOUCH_MS, age / TOUCH_SHARE);
        }
        if (!ours && now - st->mtime_ms > (unfinished ? (int64_t)TOUCH_MS : age))
            /* On failure, the next client removes it. */
            (void)strv_pushf(&s->stale, "%s/cache/%s", s->y->dir, st->name);
    }
    yarn_join_end(&s->join, e->num == ENOENT ? NULL : e);
}

void yarn_stage_ask(struct yarn_staging *s)
{
    AUTO(free_p) char *cache = str_printf("%s/cache", s->y->dir);
    if (!cache || webhdfs_list(s->y->fs, cache, cache_listed, s, NULL, &s->join.e) < 0)
        yarn_stage_no_memory(s);
    else
        s->join.n++;
    for (size_t i = 0; i < s->v.n; i++)
        if (s->v.v[i].digest)
            ask_stat(s, i);
}

static void touched(const struct files_result *r, const struct err *e, void *arg)
{
    struct yarn_staging *s = arg;
    (void)r;
    /* If this fails, the entry keeps its old time: at worst it is removed too early and sent
     * again. */
    (void)e;
    yarn_join_end(&s->join, NULL);
}

static void touch(struct yarn_staging *s, const struct yarn_staged *x)
{
    AUTO(free_p) char *dir = str_printf("%s/cache/%s", s->y->dir, x->digest);
    if (dir && webhdfs_settimes(s->y->fs, dir, clock_wall_ms(), -1, touched, s, NULL, NULL) == 0)
        s->join.n++;
}

int yarn_stage_answer(struct yarn_staging *s, struct err *e)
{
    if (s->join.e.num) {
        *e = s->join.e;
        return -yarn_exit_code(e);
    }
    for (size_t i = 0; i < s->v.n; i++) {
        const struct yarn_staged *x = &s->v.v[i];
        if (!x->digest || !x->there)
            continue;
        s->files_there++;
        s->bytes_there += (uint64_t)x->size;
        if (x->old)
            touch(s, x);
    }
    return yarn_remote_stat(s, e);
}

/* ---- summary ---- */

json_t *yarn_stage_json(const struct yarn_staging *s)
{
    return json_pack("{s:I, s:i, s:I, s:i}", "bytes_sent", (json_int_t)s->bytes_sent, "files_sent",
                     (int)s->files_sent, "bytes_there", (json_int_t)s->bytes_there, "files_there",
                     (int)s->files_there);
}

void yarn_stage_done(struct yarn_staging *s)
{
    for (size_t i = 0; i < s->v.n; i++) {
        struct yarn_staged *x = &s->v.v[i];
        free(x->name);
        free(x->role);
        free(x->local);
        free(x->path);
        free(x->digest);
        free(x->temp);
        close_p(&x->fd);
    }
    vec_done(&s->v);
    strv_done(&s->stale);
    strv_done(&s->notes);
}
