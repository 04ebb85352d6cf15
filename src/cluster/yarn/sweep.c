/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes what old jobs have left in HDFS: staging directories of jobs that are over, old
 * histories, and entries of the cache that no job has used for tony.yarn.cache-age.
 *
 * A job may run for longer than that. When one of its tasks restarts on a node, the node may fetch
 * the files again. So each staging directory has a list of the entries that its job uses,
 * YARN_USES_FILE. Entries in the list of a job that is not known to be over stay. If such a list
 * cannot be read, all entries stay.
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/yarn/stage.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"

enum {
    SWEEP_MAX = 64, /* most files and directories of one kind that a command removes */
    /* Jobs about which the client asks the ResourceManager at most. LIVE: if some entries of the
     * cache are old enough to be removed, for which it must know of all live jobs. */
    SWEEP_ASK_MAX = 32,
    SWEEP_LIVE_MAX = 1000,
    USES_MAX = 1 << 20, /* bytes of a list */
    /* A client creates its staging directory and submits within seconds: an older directory of an
     * unknown job is an orphan. */
    ORPHAN_MS = 10 * 60 * 1000,
    /* Do not ask about a younger directory: its job may not be submitted yet, and the
     * ResourceManager logs requests for unknown jobs. Its list may not be written yet either; its
     * client has set the time of the entries a moment ago. */
    YOUNG_MS = 5000,
};

struct sweep {
    struct yarn *y;
    struct yarn_join join;
    const char *own_id;
    int64_t cache_age_ms, retention_s;
    VEC(struct leftover {
        struct sweep *sweep;
        char id[APP_ID_MAX];
        int64_t age_ms;
        bool over; /* its directory is being removed */
    })
    jobs;
    size_t jobs_max;
    bool keep_cache; /* remove no entry of the cache: not all lists could be read */
    struct map used; /* digests that live jobs use */
};

static void on_removed(const struct files_result *r, const struct err *e, void *arg)
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

/* ---- jobs ---- */

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
    l->over = over || orphan;
    AUTO(free_p) char *path = l->over ? str_printf("%s/%s", w->y->dir, l->id) : NULL;
    if (path)
        begin_remove(w, path);
    yarn_join_end(&w->join, NULL);
}

static void jobs_listed(const struct files_result *r, const struct err *e, void *arg)
{
    struct sweep *w = arg;
    int64_t now = clock_wall_ms();
    w->keep_cache = w->keep_cache || e->num;
    for (size_t i = 0; r && i < r->n_stats; i++) {
        struct leftover l = { .sweep = w, .age_ms = now - r->stats[i].mtime_ms };
        struct yarn_app app;
        if (str_eq(r->stats[i].name, w->own_id) || l.age_ms < YOUNG_MS ||
            yarn_app_parse(span_of(r->stats[i].name), &app, NULL) < 0 ||
            !str_copy(l.id, sizeof l.id, r->stats[i].name))
            continue;
        if (w->jobs.n == w->jobs_max || vec_push(&w->jobs, l) < 0) {
            w->keep_cache = true;
            break;
        }
    }
    yarn_join_end(&w->join, NULL);
}

static void ask_jobs(struct sweep *w)
{
    for (size_t i = 0; i < w->jobs.n; i++) {
        struct yarn_app app;
        struct yarn_id_msg m;
        Hadoop__GetApplicationReportRequest rq = HADOOP__GET_APPLICATION_REPORT_REQUEST__INIT;
        if (yarn_app_parse(span_of(w->jobs.v[i].id), &app, NULL) < 0)
            continue;
        rq.application_id = yarn_app_msg(&m, &app);
        if (yarn_get_application_report(w->y->rpc, &rq, yarn_deadline(w->y), on_report,
                                        &w->jobs.v[i]))
            w->join.n++;
    }
    yarn_join_wait(&w->join);
}

/* ---- the cache ---- */

int yarn_uses_add(struct buf *out, const char *digest)
{
    return buf_addf(out, "%s\n", digest);
}

static void on_uses(const struct files_result *r, const struct err *e, void *arg)
{
    struct sweep *w = arg;
    struct span rest = r ? r->data : SPAN(""), line;
    (void)e;
    w->keep_cache = w->keep_cache || !r;
    while (span_split(&rest, '\n', &line)) {
        AUTO(free_p) char *digest = span_dup(line);
        if (!digest || map_set(&w->used, digest, w, NULL) < 0)
            w->keep_cache = true;
    }
    yarn_join_end(&w->join, NULL);
}

/* Read the lists of all jobs that may live. */
static void read_uses(struct sweep *w)
{
    for (size_t i = 0; i < w->jobs.n && !w->keep_cache; i++) {
        if (w->jobs.v[i].over)
            continue;
        AUTO(free_p)
        char *path = str_printf("%s/%s/" YARN_USES_FILE, w->y->dir, w->jobs.v[i].id);
        const struct webhdfs_get get = { .path = path, .max = USES_MAX };
        if (path && webhdfs_get(w->y->fs, &get, on_uses, w, NULL, NULL) == 0)
            w->join.n++;
        else
            w->keep_cache = true;
    }
    yarn_join_wait(&w->join);
}

static void sweep_cache(struct sweep *w, const struct strv *stale)
{
    read_uses(w);
    for (size_t i = 0, n = 0; !w->keep_cache && i < stale->n && n < SWEEP_MAX; i++) {
        const char *digest = strrchr(stale->v[i], '/') + 1;
        if (map_has(&w->used, digest))
            continue;
        begin_remove(w, stale->v[i]);
        n++;
    }
    yarn_join_wait(&w->join);
}

/* ---- histories ---- */

/* Remove old histories of this user. The site may use one directory for the histories of all
 * users. */
static void histories_listed(const struct files_result *r, const struct err *e, void *arg)
{
    struct sweep *w = arg;
    int64_t oldest = clock_wall_ms() - w->retention_s * 1000;
    size_t n = 0;
    (void)e; /* an error is handled as in on_removed() */
    for (size_t i = 0; r && i < r->n_stats && n < SWEEP_MAX; i++) {
        const struct files_stat *st = &r->stats[i];
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
                       .join = { .loop = s->join.loop },
                       .own_id = own_id,
                       .jobs_max = s->stale.n ? SWEEP_LIVE_MAX : SWEEP_ASK_MAX,
                       .cache_age_ms = conf_int(s->j->conf, "tony.yarn.cache-age"),
                       .retention_s = conf_int(s->j->conf, "tony.history.retention-sec") };
    if (w.retention_s >= 0 &&
        webhdfs_list(s->y->fs, s->y->history, histories_listed, &w, NULL, NULL) == 0)
        w.join.n++;
    if (webhdfs_list(s->y->fs, s->y->dir, jobs_listed, &w, NULL, NULL) == 0)
        w.join.n++;
    else
        w.keep_cache = true;
    yarn_join_wait(&w.join);
    ask_jobs(&w);
    if (s->stale.n)
        sweep_cache(&w, &s->stale);
    map_done(&w.used, NULL);
    vec_done(&w.jobs);
}
