/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor on a machine that is a client of a Hadoop cluster: which ResourceManager and NameNode are
 * configured, whether they answer, and how well the cluster isolates its users.
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"

struct checks {
    cluster_finding_fn *fn;
    void *arg;
};

static void add(const struct checks *c, const char *name, enum cluster_finding f, const char *hint,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));
static void add(const struct checks *c, const char *name, enum cluster_finding f, const char *hint,
                const char *fmt, ...)
{
    AUTO(buf_done) struct buf text = { 0 };
    va_list ap;
    va_start(ap, fmt);
    (void)buf_vaddf(&text, fmt, ap);
    va_end(ap);
    c->fn(name, f, hint, buf_cstr(&text), c->arg);
}

struct visit {
    struct yarn_join join;
    size_t n_nodes;
    int64_t memory_mib, vcores;
    struct err rm, home;
    char owner[64];
    bool home_there;
};

static void on_nodes(const Hadoop__GetClusterNodesResponse *r, const struct rpc_error *e, void *arg)
{
    struct visit *v = arg;
    if (e)
        v->rm = e->err;
    for (size_t i = 0; r && i < r->n_node_reports; i++) {
        const Hadoop__NodeReport *n = r->node_reports[i];
        if (n->has_node_state && n->node_state != HADOOP__NODE_STATE__NS_RUNNING)
            continue;
        v->n_nodes++;
        v->memory_mib += yarn_resource_value(n->capability, "memory-mb");
        v->vcores += yarn_resource_value(n->capability, "vcores");
    }
    yarn_join_end(&v->join, NULL);
}

static void on_home(const struct files_result *r, const struct err *e, void *arg)
{
    struct visit *v = arg;
    if (r) {
        v->home_there = true;
        (void)snprintf(v->owner, sizeof v->owner, "%s", r->stats->owner);
    } else if (e->num != ENOENT) {
        v->home = *e;
    }
    yarn_join_end(&v->join, NULL);
}

static int ask(struct yarn *y, struct visit *v, struct err *e)
{
    Hadoop__GetClusterNodesRequest nodes = HADOOP__GET_CLUSTER_NODES_REQUEST__INIT;
    Hadoop__NodeState running = HADOOP__NODE_STATE__NS_RUNNING;
    nodes.node_states = &running;
    nodes.n_node_states = 1;
    v->join.loop = y->loop;
    int rc = yarn_home(y, e);
    if (rc == 0 && yarn_get_cluster_nodes(y->rpc, &nodes, yarn_deadline(y), on_nodes, v))
        v->join.n++;
    if (rc == 0 && webhdfs_stat(y->fs, y->home, on_home, v, NULL, e) == 0)
        v->join.n++;
    yarn_join_wait(&v->join);
    return rc;
}

static void say_rm(const struct yarn *y, const struct visit *v, struct checks *checks)
{
    char memory[32];
    AUTO(free_p) char *at = site_addresses_text(&y->rm);
    const char *where = at ? at : "";
    if (v->rm.num)
        add(checks, "YARN", CLUSTER_WRONG,
            v->rm.hint[0] ? v->rm.hint : "yarn.resourcemanager.address names it", "%s: %s", where,
            v->rm.msg);
    else
        add(checks, "YARN", v->n_nodes ? CLUSTER_FINE : CLUSTER_NOTE, "jobs wait until a node runs",
            "ResourceManager %s: %zu running node%s, %s, %lld cores", where, v->n_nodes,
            v->n_nodes == 1 ? "" : "s",
            str_size((uint64_t)v->memory_mib << 20, memory, sizeof memory), (long long)v->vcores);
}

static void say_hdfs(const struct yarn *y, const struct visit *v, struct checks *checks)
{
    AUTO(free_p) char *at = site_addresses_text(&y->hdfs.http);
    const char *where = at ? at : "";
    if (v->home.num)
        add(checks, "HDFS", CLUSTER_WRONG,
            v->home.hint[0] ? v->home.hint : "dfs.namenode.http-address names it",
            "%s by WebHDFS at %s: %s", y->hdfs.fs, where, v->home.msg);
    else if (!v->home_there)
        add(checks, "HDFS", CLUSTER_NOTE,
            "the first job creates it, if the directory above it is writable; else "
            "ask the administrator of the cluster to create it",
            "%s by WebHDFS at %s; '%s', the home of '%s', is not there", y->hdfs.fs, where, y->home,
            y->user);
    else if (!str_eq(v->owner, y->user))
        add(checks, "HDFS", CLUSTER_WRONG, "jobs are staged there: ask for write permission",
            "%s by WebHDFS at %s; '%s' belongs to '%s', not to '%s'", y->hdfs.fs, where, y->home,
            v->owner, y->user);
    else
        add(checks, "HDFS", CLUSTER_FINE, NULL, "%s by WebHDFS at %s, home '%s'", y->hdfs.fs, where,
            y->home);
}

/* Report how well the cluster protects the secrets of a job (docs/decisions/0006-yarn.md). */
static void say_isolation(struct yarn *y, struct checks *checks)
{
    const char *executor = site_get(y->site, "yarn.nodemanager.container-executor.class");
    bool limit = true;
    /* As the NodeManagers read it: an invalid value means the default. */
    (void)site_bool(y->site, "yarn.nodemanager.linux-container-executor.nonsecure-mode.limit-users",
                    true, &limit, NULL);
    bool own = executor && strstr(executor, "LinuxContainerExecutor") && !limit;
    add(checks, "isolation", CLUSTER_NOTE,
        "all who can reach the cluster can read and stop every job: use it among people "
        "who trust each other",
        "no Kerberos: the cluster believes every name%s",
        own ? "" : ", and tasks of all users run as one user on a node");
}

void yarn_doctor(struct cluster_host *h, const struct conf *site, cluster_finding_fn *fn, void *arg)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    struct visit v = { 0 };
    struct checks checks = { fn, arg };
    const struct cluster_config cfg = { .host = h, .conf = site, .hasty = true };
    int rc = yarn_open(&cfg, &y, &e);
    if (rc == 0)
        rc = ask(y, &v, &e);
    if (rc < 0) {
        add(&checks, "YARN", CLUSTER_WRONG, e.hint, "%s", e.msg);
        return;
    }
    say_rm(y, &v, &checks);
    say_hdfs(y, &v, &checks);
    say_isolation(y, &checks);
}
