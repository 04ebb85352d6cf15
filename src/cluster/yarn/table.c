/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the cluster `yarn`.
 */
#include "cluster/yarn/table.h"

#include <errno.h>
#include <stdlib.h>

#include "base/base.h"
#include "cluster/remote.h"
#include "cluster/yarn/arbiter/arbiter.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"

static bool is_here(void)
{
    const char *dir = getenv("HADOOP_CONF_DIR");
    return dir && *dir;
}

static int open_yarn(const struct cluster_config *cfg, struct cluster **out, struct err *e)
{
    struct yarn *y = NULL;
    int rc = yarn_open(cfg, &y, e);
    *out = (struct cluster *)(void *)y;
    return rc;
}

static void close_yarn(struct cluster *k)
{
    struct yarn *y = yarn_of(k);
    yarn_freep(&y);
}

/* ---- plan: the resources of the cluster ---- */

static json_t *capacity(const struct yarn_facts *f)
{
    int64_t memory = 0, vcores = 0, gpus = 0;
    for (size_t i = 0; i < f->nodes.n; i++) {
        const struct yarn_node *n = &f->nodes.v[i];
        memory += n->memory_mib;
        vcores += n->vcores;
        for (size_t k = 0; k < n->types.n; k++)
            if (str_eq(n->types.v[k].name, "yarn.io/gpu"))
                gpus += n->types.v[k].n;
    }
    return json_pack("{s:I, s:I, s:I, s:i}", "memory_mib", (json_int_t)memory, "vcores",
                     (json_int_t)vcores, "gpus", (json_int_t)gpus, "nodes", (int)f->nodes.n);
}

static int plan(struct cluster *k, struct cluster_job *j, struct cluster_plan *out, struct err *e)
{
    struct yarn *y = yarn_of(k);
    struct yarn_facts f = { 0 };
    struct yarn_ask *ask = NULL;
    struct strv notes = { 0 };
    struct yarn_join join = { .loop = y->loop };
    (void)e;
    int rc = yarn_ask_begin(y, j, &join, &f, NULL, &ask, &out->why);
    if (rc == 0) {
        yarn_join_wait(&join);
        rc = yarn_ask_finish(ask, &out->why);
    }
    if (rc == 0) {
        out->capacity = capacity(&f);
        out->refused = !y->host->no_checks && yarn_check(&f, j, &notes, &out->why) < 0 &&
                       yarn_exit_code(&out->why) == EXIT_MISUSE;
    }
    for (size_t i = 0; i < notes.n; i++)
        host_note(y->host, "%s", notes.v[i]);
    strv_done(&notes);
    yarn_ask_free(ask);
    yarn_facts_done(&f);
    return 0;
}

/* ---- jobs that were submitted ---- */

static int key(struct cluster *k, const char *id, struct tls_key *out, struct err *e)
{
    return yarn_client_key(yarn_of(k), id, out, e);
}

static char *place(struct cluster *k, const char *id, bool over)
{
    const struct yarn *y = yarn_of(k);
    return y->dir ? str_printf("hdfs:%s/%s", over ? y->history : y->dir, id) : NULL;
}

/* Add the roles of a job that waits for its first master, if they are known. */
static void add_waiting(struct cluster *k, const struct cluster_report *r, json_t *doc)
{
    json_t *roles = r->phase == CLUSTER_WAITING && r->at.attempt <= 1
                        ? yarn_queued_roles(yarn_of(k), r->id)
                        : NULL;
    if (roles)
        (void)json_object_set_new(doc, "roles", roles); /* on failure, the member is missing */
}

/* The address of the ResourceManager; of several, the first one. */
static char *where(const struct cluster *k)
{
    const struct yarn *y = (const struct yarn *)(const void *)k;
    return y->rm.n ? str_printf("%s:%u", y->rm.v[0].host, (unsigned)y->rm.v[0].port) : NULL;
}

static void settle(struct cluster *k, const char *id, bool killed)
{
    if (killed) /* YARN may have killed the master before it removed the directory */
        yarn_clear_staging(yarn_of(k), id);
}

static void hint_logs(const char *id, struct err *e)
{
    err_hint(e, "yarn logs -applicationId %s has what the cluster has collected", id);
}

/* Read a job file from HDFS. */
static int read_file(struct cluster *k, const char *url, struct buf *out, struct err *e)
{
    struct yarn *y = yarn_of(k);
    AUTO(free_p) char *path = yarn_home(y, e) == 0 ? yarn_path_of(y, url, e) : NULL;
    return path ? yarn_read(y, path, out->max, out, e) : -e->num;
}

const struct cluster_ops cluster_yarn = {
    .name = "yarn",
    .title = "the cluster",
    .remote = true,
    .takes_urls = true,
    .keys_effect = CE_YARN,
    .keys_only = "only on YARN",
    .scheme = "hdfs",
    .no_forecast = "on YARN the ResourceManager's scheduler decides, and it gives no time",
    .queue = &queue_yarn,
    .is_here = is_here,
    .open = open_yarn,
    .close = close_yarn,
    .plan = plan,
    .stage = yarn_stage,
    .submit = yarn_submit,
    .where = where,
    .find = yarn_find,
    .report = yarn_ops_report,
    .key = key,
    .history = yarn_history,
    .place = place,
    .status = remote_status,
    .add_waiting = add_waiting,
    .list = yarn_list,
    .watch = yarn_watch,
    .attend = yarn_attend,
    .stop = yarn_stop,
    .unwatch = yarn_unwatch,
    .verdict = yarn_verdict,
    .settle = settle,
    .logs = remote_logs,
    .kept_log = yarn_kept_log,
    .hint_logs = hint_logs,
    .resize_waiting = yarn_resize_waiting,
    .read_file = read_file,
    .history_list = yarn_history_list,
    .history_file = yarn_history_file,
    .nodes = yarn_nodes,
    .doctor = yarn_doctor,
};
