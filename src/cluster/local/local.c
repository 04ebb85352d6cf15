/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the cluster `local`.
 */
#include "cluster/local/local.h"

#include <errno.h>

#include "base/base.h"
#include "cluster/link.h"
#include "cluster/local/job_keeper.h"
#include "cluster/local/pool.h"
#include "cluster/local/status.h"
#include "cluster/local/submit.h"
#include "cluster/remote.h"
#include "cluster/resize.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

static struct cluster_host *host_of(const struct cluster *k)
{
    return cluster_head(k)->cfg.host;
}

static int open_local(const struct cluster_config *cfg, struct cluster **out, struct err *e)
{
    struct local *l = calloc(1, sizeof *l);
    if (!l || !host_loop(cfg->host, e)) {
        free(l);
        (void)err_set(e, ENOMEM, "cannot reach the pool: %m");
        return -EXIT_CLUSTER;
    }
    l->head = (struct cluster_head){ &cluster_local, *cfg };
    *out = (struct cluster *)(void *)l;
    return 0;
}

static void close_local(struct cluster *k)
{
    struct local *l = (struct local *)(void *)k;
    if (!l)
        return;
    conn_close(l->pool);
    free(l);
}

/* ---- a new job ---- */

static int plan(struct cluster *k, struct cluster_job *j, struct cluster_plan *out, struct err *e)
{
    struct answer a = { 0 };
    struct err unknown = { 0 };
    struct job_demand d;
    json_t *doc = NULL;
    (void)e;
    job_spec_demand(j->spec, &d);
    int rc = link_ask_pool(host_of(k), true, TONY__CLIENT_ASK__WHAT__POOL_STATUS, "", false, &a,
                           &unknown);
    if (rc == 0)
        doc = json_loadb(a.json.p ? a.json.p : "", a.json.len, 0, NULL);
    else
        (void)err_set(&out->why, unknown.num, "the pool's capacity is not known: %s", unknown.msg);
    answer_done(&a);
    const json_t *has = json_object_get(doc, "capacity");
    out->refused =
        json_is_object(has) && ((int64_t)d.memory_mib > json_int(has, "memory_mib", INT64_MAX) ||
                                (int64_t)d.gpus > json_int(has, "gpus", INT64_MAX));
    if (out->refused) {
        char need[32], have[32];
        (void)err_set(&out->why, ERANGE,
                      "the pool would refuse this job: it needs %s of memory and %u GPUs at once, "
                      "and the pool has %s and %lld",
                      str_size((uint64_t)d.memory_mib << 20, need, sizeof need), d.gpus,
                      str_size((uint64_t)json_int(has, "memory_mib", 0) << 20, have, sizeof have),
                      (long long)json_int(has, "gpus", 0));
    }
    out->capacity = json_incref((json_t *)(uintptr_t)has);
    json_decref(doc);
    return 0;
}

static int stage(struct cluster *k, struct cluster_job *j, struct err *e)
{
    return host_open_paths(host_of(k), e) < 0 ? -EXIT_CLUSTER : ship_put(host_of(k), j, e);
}

static int say_submitted(const struct cluster_host *h, const struct cluster_job *j,
                         struct cluster_submitted *out)
{
    AUTO(free_p) char *dir = paths_job(&h->paths, out->id);
    AUTO(buf_done) struct buf roles = { 0 };
    for (size_t i = 0; i < j->spec->n_roles; i++)
        if (j->spec->roles[i].instances)
            (void)buf_addf(&roles, "%s%s=%u", roles.len ? ", " : "", j->spec->roles[i].name,
                           j->spec->roles[i].instances);
    return strv_pushf(&out->said, "submitted %s as %s (%s); logs in %s/logs", j->spec->name,
                      out->id, roles.len ? buf_cstr(&roles) : "a single command",
                      dir ? dir : out->id);
}

static int submit(struct cluster *k, struct cluster_job *j, bool owned,
                  struct cluster_submitted *out, struct err *e)
{
    struct local *l = (struct local *)(void *)k;
    int rc = local_submit_text(host_of(k), j, owned, out->id, &l->pool, e);
    if (rc == 0)
        (void)say_submitted(host_of(k), j, out); /* without memory, a sentence is missing */
    return rc;
}

/* ---- jobs that were submitted ---- */

static bool knows(struct cluster_host *h, const char *word)
{
    char id[APP_ID_MAX];
    struct err unread = { 0 };
    if (local_find_app(h, word, id, &unread) == 0)
        return !local_is_of_slurm(&h->paths, id);
    return unread.num != ENOENT;
}

static int find(struct cluster *k, const char *word, char out[APP_ID_MAX], struct err *e)
{
    if (local_find_app(host_of(k), word, out, e) == 0)
        return 0;
    return e->num == ENOENT || e->num == EINVAL ? -EXIT_MISUSE : -EXIT_CLUSTER;
}

/* Looks only at the files of the job. So for a live job the report says only that there may be a
 * master. */
static int report(struct cluster *k, const char *id, struct cluster_report *out, struct err *e)
{
    struct cluster_host *h = host_of(k);
    json_t *doc = NULL;
    *out = (struct cluster_report){ .own = true };
    (void)str_copy(out->id, sizeof out->id, id);
    int rc = local_verdict(h, id, &doc, e);
    if (rc == 0) {
        out->phase = CLUSTER_OVER;
        out->exit_code = (int)json_int(doc, "exit_code", EXIT_JOB_FAILED);
        (void)str_copy(out->state, sizeof out->state, json_str(doc, "state", ""));
        out->summary = doc;
        return 0;
    }
    if (rc != -EBUSY)
        return rc;
    err_clear(e);
    out->phase = CLUSTER_RUNNING;
    (void)str_copy(out->state, sizeof out->state, "RUNNING");
    return 0;
}

static int dial(struct cluster *k, const char *id, struct conn **out, struct err *e)
{
    return link_dial_master(host_of(k), id, out, e);
}

static int status(struct cluster *k, const char *id, json_t **out, struct err *e)
{
    return status_load(host_of(k), id, out, e) < 0 ? -EXIT_CLUSTER : 0;
}

static void settle(struct cluster *k, const char *id, bool killed)
{
    (void)killed;
    await_job_in_history(host_of(k), id);
}

/* ---- resize ---- */

/* A job that waits in the pool has no master: the pool changes the size that the job asks for. */
static int resize_waiting(struct cluster *k, const char *id, const struct cluster_resize *w,
                          json_t **out, struct err *e)
{
    AUTO(answer_done) struct answer a = { 0 };
    struct conn *conn = NULL;
    int rc = link_dial_pool(host_of(k), true, &conn, e);
    if (rc == 0)
        rc = resize_ask(host_of(k), &conn, id, w, &a, e);
    conn_close(conn);
    if (rc == 0)
        return status_parse(buf_span(&a.json), out, e) < 0 ? -EXIT_CLUSTER : CLUSTER_RESIZED;
    if (a.refused ? rc == -EREMOTE || rc == -EAGAIN : link_broke(rc))
        return CLUSTER_ASK_MASTER;
    return a.refused ? -EXIT_JOB_FAILED : -EXIT_CLUSTER;
}

const struct cluster_ops cluster_local = {
    .name = "local",
    .title = "this machine's pool",
    .no_arbiter = "the pool divides this machine itself",
    .no_arbiter_hint = "tony pool set policy=dorm",
    .open = open_local,
    .close = close_local,
    .plan = plan,
    .stage = stage,
    .submit = submit,
    .knows = knows,
    .find = find,
    .report = report,
    .dial = dial,
    .history = local_history,
    .place = local_place,
    .status = status,
    .list = local_list,
    .watch = local_watch,
    .attend = local_attend,
    .stop = local_stop,
    .unwatch = local_unwatch,
    .verdict = local_verdict_or_report,
    .settle = settle,
    .logs = local_logs,
    .resize_waiting = resize_waiting,
    .ask_pool = local_ask_pool,
    .history_list = local_history_list,
    .history_file = local_history_file,
};
