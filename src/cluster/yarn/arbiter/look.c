/* SPDX-License-Identifier: Apache-2.0 */
/* One look at a queue: its nodes, its limit and its applications, from the ResourceManager. */
#include <errno.h>
#include <stdlib.h>

#include "cluster/yarn/arbiter/arbiter.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"

enum { APPS_MAX = 10000, QUEUE_PATH_MAX = 1024 };

/* ---- the questions ---- */

struct questions {
    struct yarn_join join;
    struct yarn *y;
    const char *queue;
    const struct queue_keys *keys;
    struct queue *out;
    double share; /* of the cluster that the queue may have */
};

static struct part_amount amount_of(const Hadoop__Resource *r)
{
    struct part_amount p = { { 0 } };
    p.v[CLAIM_MEMORY_MIB] = r ? MAX(yarn_resource_value(r, "memory-mb"), INT64_C(0)) : 0;
    p.v[CLAIM_GPUS] = r ? MAX(yarn_resource_value(r, "yarn.io/gpu"), INT64_C(0)) : 0;
    return p;
}

static bool is_type_of_jobs(const struct yarn *y, const char *type)
{
    const char *own = conf_get(y->conf, "tony.application.type");
    return str_eq(type, "TONY") || (own && str_eq(type, own));
}

/* The first tag of an application that begins like this; NULL = none. */
static const char *find_tag(const Hadoop__ApplicationReport *app, const char *prefix)
{
    for (size_t i = 0; i < app->n_application_tags; i++)
        if (str_starts(app->application_tags[i], prefix))
            return app->application_tags[i];
    return NULL;
}

/* ---- applications ---- */

enum whose { OF_OTHERS, OF_USER, REGISTERED };

/* May this arbiter resize the application? A job that is registered for another arbiter is not
 * touched, even if it belongs to this user. */
static enum whose whose_is(const struct questions *l, const Hadoop__ApplicationReport *app,
                           const struct yarn_report *r)
{
    const char *tag = find_tag(app, RESIZE_KEY_TAG);
    if (yarn_app_state_is_final(r->state))
        return OF_OTHERS;
    if (tag)
        return l->keys->has && resize_key_is_for(tag, &l->keys->public) ? REGISTERED : OF_OTHERS;
    return str_eq(r->user, l->y->user) && is_type_of_jobs(l->y, r->type) ? OF_USER : OF_OTHERS;
}

static int keep_tags(const Hadoop__ApplicationReport *app, struct queue_job *out)
{
    const char *key = find_tag(app, RESIZE_KEY_TAG), *size = find_tag(app, SHARE_TAG);
    out->key_tag = key ? str_dup(key) : NULL;
    out->size_tag = size ? str_dup(size) : NULL;
    return (key && !out->key_tag) || (size && !out->size_tag) ? -ENOMEM : 0;
}

static int add_job(struct questions *l, const Hadoop__ApplicationReport *from,
                   const struct yarn_report *r, struct part_amount used)
{
    enum whose whose = whose_is(l, from, r);
    struct queue_job j = { .registered = whose == REGISTERED,
                           .submitted_ms = r->submitted_ms,
                           .used = used,
                           .has_master = r->state == HADOOP__YARN_APPLICATION_STATE__RUNNING };
    if (whose == OF_OTHERS || !str_copy(j.id, sizeof j.id, r->id))
        return 0;
    bool has_address = str_copy(j.host, sizeof j.host, r->host) && j.host[0] && r->rpc_port > 0 &&
                       r->rpc_port <= UINT16_MAX;
    j.had_master = !j.has_master && r->attempt > 1;
    j.port = has_address ? (uint16_t)r->rpc_port : 0;
    j.priority = from->priority && from->priority->has_priority ? from->priority->priority : 0;
    int rc = j.registered ? keep_tags(from, &j) : 0;
    if (rc == 0)
        rc = vec_push(&l->out->jobs, j);
    if (rc < 0) {
        free(j.key_tag);
        free(j.size_tag);
    }
    return rc;
}

static int add_app(struct questions *l, const Hadoop__ApplicationReport *from)
{
    struct yarn_report r;
    if (yarn_report_copy(from, &r) < 0)
        return -ENOMEM;
    const Hadoop__ApplicationResourceUsageReport *use = from->app_resource_usage;
    struct part_amount used = amount_of(use ? use->used_resources : NULL);
    for (int t = 0; t < CLAIM_TYPES; t++)
        l->out->used.v[t] += used.v[t];
    int rc = add_job(l, from, &r, used);
    yarn_report_done(&r);
    return rc;
}

static void on_apps(const Hadoop__GetApplicationsResponse *r, const struct rpc_error *e, void *arg)
{
    struct questions *l = arg;
    struct err err = { 0 };
    for (size_t i = 0; r && i < r->n_applications && !err.num; i++)
        if (add_app(l, r->applications[i]) < 0)
            (void)err_set(&err, ENOMEM, "cannot keep the list of applications: %m");
    yarn_join_end(&l->join, e ? &e->err : &err);
}

/* ---- nodes and limits ---- */

static void on_nodes(const Hadoop__GetClusterNodesResponse *r, const struct rpc_error *e, void *arg)
{
    struct questions *l = arg;
    struct err err = { 0 };
    for (size_t i = 0; r && i < r->n_node_reports && !err.num; i++) {
        const Hadoop__NodeReport *n = r->node_reports[i];
        if (!n->node_id || (n->has_node_state && n->node_state != HADOOP__NODE_STATE__NS_RUNNING))
            continue;
        struct queue_node node = { .capacity = amount_of(n->capability),
                                   .used = amount_of(n->used) };
        node.name = str_printf("%s:%d", n->node_id->host, n->node_id->port);
        if (!node.name || vec_push(&l->out->nodes, node) < 0) {
            free(node.name);
            (void)err_set(&err, ENOMEM, "cannot keep the list of nodes: %m");
        }
    }
    yarn_join_end(&l->join, e ? &e->err : &err);
}

/* The search for the queue among all queues of the cluster. */
struct queue_search {
    const char *wanted; /* a whole path, or the last part of one */
    double share;       /* of the cluster that the queue may have: its limit times those above it */
    struct queue_wanted waits; /* all that its applications wait for */
    unsigned n_found;
    char path[QUEUE_PATH_MAX]; /* the whole path of the last match */
};

/* The ResourceManager tells only sums: how many containers, and their memory. */
static struct queue_wanted read_waits(const Hadoop__QueueStatistics *s)
{
    struct queue_wanted w = { .of_all = true };
    if (!s || !s->has_pending_containers || s->pending_containers <= 0 || s->pending_memory_mb <= 0)
        return w;
    w.n = (uint32_t)MIN(s->pending_containers, (int64_t)UINT32_MAX);
    w.each.v[CLAIM_MEMORY_MIB] =
        MIN((s->pending_memory_mb + w.n - 1) / w.n, (int64_t)PART_AMOUNT_MAX);
    return w;
}

/* above: the path of the queue above, "" for root. */
static void search_queue(struct queue_search *s, const Hadoop__QueueInfo *q, const char *above,
                         double share)
{
    char path[QUEUE_PATH_MAX];
    const char *name = q->queue_name ? q->queue_name : "", *dot = strrchr(name, '.');
    const char *leaf = dot ? dot + 1 : name;
    (void)snprintf(path, sizeof path, "%s%s%s", above, above[0] ? "." : "", leaf);
    if (q->has_maximum_capacity && q->maximum_capacity >= 0 && q->maximum_capacity < 1)
        share *= (double)q->maximum_capacity;
    if (str_eq(s->wanted, path) || str_eq(s->wanted, leaf)) {
        s->n_found++;
        s->share = share;
        s->waits = read_waits(q->queue_statistics);
        (void)str_copy(s->path, sizeof s->path, path); /* both have the same size */
    }
    for (size_t i = 0; i < q->n_child_queues; i++)
        search_queue(s, q->child_queues[i], path, share);
}

static void on_queue(const Hadoop__GetQueueInfoResponse *r, const struct rpc_error *e, void *arg)
{
    struct questions *l = arg;
    struct err why = { 0 };
    struct queue_search s = { .wanted = l->queue };
    if (r && r->queue_info)
        search_queue(&s, r->queue_info, "", 1);
    l->share = s.share;
    if (s.waits.n && vec_push(&l->out->wanted, s.waits) < 0)
        (void)err_set(&why, ENOMEM, "cannot keep what applications wait for: %m");
    if (s.n_found == 0)
        (void)err_set(&why, EINVAL, "the cluster has no queue '%s'", l->queue);
    if (s.n_found > 1) {
        (void)err_set(&why, EINVAL, "the cluster has %u queues '%s'", s.n_found, l->queue);
        err_hint(&why, "give the whole path: --queue %s", s.path);
    }
    yarn_join_end(&l->join, e ? &e->err : &why);
}

/* Ask for all queues: the limits of the queues above count, too. */
static int ask_queues(struct questions *l, struct err *e)
{
    Hadoop__GetQueueInfoRequest q = HADOOP__GET_QUEUE_INFO_REQUEST__INIT;
    q.queue_name = (char *)"root";
    q.has_include_child_queues = q.has_recursive = true;
    q.include_child_queues = q.recursive = true;
    if (!yarn_get_queue_info(l->y->rpc, &q, yarn_deadline(l->y), on_queue, l))
        return err_set(e, ENOMEM, "cannot ask the ResourceManager: %m");
    l->join.n++;
    return 0;
}

static int ask_apps(struct questions *l, struct err *e)
{
    char *queue = (char *)(uintptr_t)l->queue;
    Hadoop__YarnApplicationState states[] = { HADOOP__YARN_APPLICATION_STATE__SUBMITTED,
                                              HADOOP__YARN_APPLICATION_STATE__ACCEPTED,
                                              HADOOP__YARN_APPLICATION_STATE__RUNNING };
    Hadoop__GetApplicationsRequest rq = HADOOP__GET_APPLICATIONS_REQUEST__INIT;
    rq.application_states = states;
    rq.n_application_states = ARRAY_LEN(states);
    rq.queues = &queue;
    rq.n_queues = 1;
    rq.has_limit = true;
    rq.limit = APPS_MAX;
    if (!yarn_get_applications(l->y->rpc, &rq, yarn_deadline(l->y), on_apps, l))
        return err_set(e, ENOMEM, "cannot ask the ResourceManager: %m");
    l->join.n++;
    return 0;
}

static int ask_nodes(struct questions *l, struct err *e)
{
    Hadoop__GetClusterNodesRequest rq = HADOOP__GET_CLUSTER_NODES_REQUEST__INIT;
    Hadoop__NodeState running = HADOOP__NODE_STATE__NS_RUNNING;
    rq.node_states = &running;
    rq.n_node_states = 1;
    if (!yarn_get_cluster_nodes(l->y->rpc, &rq, yarn_deadline(l->y), on_nodes, l))
        return err_set(e, ENOMEM, "cannot ask the ResourceManager: %m");
    l->join.n++;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct queue_node *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The ResourceManager lists its nodes in any order. The policies that fill the first nodes first
 * should decide the same in each round, so the nodes get the order of their names. */
static void sort_nodes(struct queue *q)
{
    if (q->nodes.n > 1)
        qsort(q->nodes.v, q->nodes.n, sizeof *q->nodes.v, by_name);
}

static void set_limit(struct queue *q, double share)
{
    q->has_limit = share < 1;
    q->limit = (struct part_amount){ { 0 } };
    for (size_t i = 0; i < q->nodes.n; i++)
        for (int t = 0; t < CLAIM_TYPES; t++)
            q->limit.v[t] += q->nodes.v[i].capacity.v[t];
    for (int t = 0; t < CLAIM_TYPES; t++)
        q->limit.v[t] = (int64_t)((double)q->limit.v[t] * share);
}

int yarn_queue_look(struct cluster *k, const char *queue, const struct queue_keys *keys,
                    struct queue *out, struct err *e)
{
    struct yarn *y = yarn_of(k);
    struct questions l = {
        .join = { .loop = y->loop }, .y = y, .queue = queue, .keys = keys, .out = out, .share = 1
    };
    *out = (struct queue){ .master_ms = yarn_deadline(y) - clock_mono_ms() };
    int rc = ask_queues(&l, e);
    if (rc == 0)
        rc = ask_apps(&l, e);
    if (rc == 0)
        rc = ask_nodes(&l, e);
    yarn_join_wait(&l.join);
    if (rc == 0 && l.join.e.num) {
        *e = l.join.e;
        rc = -e->num;
    }
    if (rc < 0) {
        queue_done(out);
        return rc;
    }
    sort_nodes(out);
    set_limit(out, l.share);
    return 0;
}

/* ---- the needs of a job ---- */

/* From the tags of a registered job. A job with invalid tags is not resized. */
static int read_tags(const struct queue_job *j, const struct queue_keys *keys,
                     struct share_needs *out, struct tls_key *out_key, struct err *e)
{
    int rc = j->size_tag ? share_needs_read(j->size_tag, out, e)
                         : err_set(e, ENOENT, "job '%s' does not say what it needs", j->id);
    if (rc == 0)
        rc = resize_key_accept(&keys->secret, j->key_tag, j->id, out_key, e);
    return rc < 0 ? rc : 1;
}

/* A job of the own user has its job.conf in HDFS. The client may still be writing it. */
int yarn_queue_needs(struct cluster *k, const struct queue_job *j, const struct queue_keys *keys,
                     struct queue_needs *out, struct tls_key *out_key, struct err *e)
{
    struct yarn *y = yarn_of(k);
    struct job_spec *spec = NULL;
    if (j->registered)
        return read_tags(j, keys, &out->share, out_key, e);
    int rc = yarn_job_spec(y, j->id, &spec, e);
    if (rc < 0)
        return rc;
    rc = share_needs_of(spec, yarn_master_memory_mib(spec), yarn_unit_mib(y), &out->share);
    job_spec_free(spec);
    return rc < 0 ? err_set(e, -rc, "cannot read the needs of job '%s': %m", j->id) : rc;
}
