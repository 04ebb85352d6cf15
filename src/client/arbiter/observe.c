/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the state that the arbiter needs: nodes and the limit of the queue from the
 * ResourceManager, each job's needs from its job.conf in HDFS, and the job's containers from its
 * master.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "client/arbiter/arbiter.h"
#include "client/client_int.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"
#include "loop/loop.h"

enum { APPS_MAX = 10000, QUEUE_PATH_MAX = 1024 };

/* ---- the list of jobs ---- */

static void job_done(struct arbiter_job *j)
{
    explicit_bzero(&j->key, sizeof j->key);
    vec_done(&j->at);
}

void arbiter_forget(struct arbiter *a)
{
    for (size_t i = 0; i < a->jobs.n; i++)
        job_done(&a->jobs.v[i]);
    vec_done(&a->jobs);
    for (size_t i = 0; i < a->nodes.n; i++)
        free((char *)(uintptr_t)a->nodes.v[i].name);
    vec_done(&a->nodes);
    vec_done(&a->used);
    explicit_bzero(&a->secret, sizeof a->secret);
}

static struct arbiter_job *find_job(struct arbiter *a, const char *id)
{
    for (size_t i = 0; i < a->jobs.n; i++)
        if (str_eq(a->jobs.v[i].id, id))
            return &a->jobs.v[i];
    return NULL;
}

static void drop_absent(struct arbiter *a)
{
    size_t n = 0;
    for (size_t i = 0; i < a->jobs.n; i++) {
        if (a->jobs.v[i].present)
            a->jobs.v[n++] = a->jobs.v[i];
        else
            job_done(&a->jobs.v[i]);
    }
    a->jobs.n = n;
}

static int by_submission(const void *x, const void *y)
{
    const struct arbiter_job *a = x, *b = y;
    if (a->submitted_ms != b->submitted_ms)
        return a->submitted_ms < b->submitted_ms ? -1 : 1;
    return strcmp(a->id, b->id);
}

/* ---- questions to the ResourceManager ---- */

struct questions {
    struct yarn_join join;
    struct arbiter *a;
    double share; /* of the cluster that the queue may have */
};

static struct part_amount amount_of(const Hadoop__Resource *r)
{
    struct part_amount p = { { 0 } };
    p.v[CLAIM_MEMORY_MIB] = r ? MAX(yarn_resource_value(r, "memory-mb"), INT64_C(0)) : 0;
    p.v[CLAIM_GPUS] = r ? MAX(yarn_resource_value(r, "yarn.io/gpu"), INT64_C(0)) : 0;
    return p;
}

static bool is_type_of_jobs(const struct arbiter *a, const char *type)
{
    const char *own = conf_get(a->y->conf, "tony.application.type");
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

/* Read the needs and the key from the tags of a registered job. A job with invalid tags is not
 * resized. */
static int read_tags(const struct arbiter *a, const Hadoop__ApplicationReport *app,
                     struct arbiter_job *out)
{
    const char *key = find_tag(app, RESIZE_KEY_TAG), *size = find_tag(app, SHARE_TAG);
    struct err e = { 0 };
    int rc = size ? share_needs_read(size, &out->needs, &e) : -ENOENT;
    if (rc == 0)
        rc = resize_key_accept(&a->secret, key, out->id, &out->key, &e);
    if (rc < 0)
        log_err(LOG_DEBUG, "arbiter.tags", &e);
    out->registered = out->is_known = out->is_elastic = rc == 0;
    return rc;
}

enum whose { OF_OTHERS, OF_USER, REGISTERED };

/* May this arbiter resize the application? A job that is registered for another arbiter is left to
 * that one, also if it is a job of this user. */
static enum whose whose_is(const struct arbiter *a, const Hadoop__ApplicationReport *app,
                           const struct yarn_report *r)
{
    const char *tag = find_tag(app, RESIZE_KEY_TAG);
    if (yarn_app_state_is_final(r->state))
        return OF_OTHERS;
    if (tag)
        return a->has_key && resize_key_is_for(tag, &a->public) ? REGISTERED : OF_OTHERS;
    return str_eq(r->user, a->y->user) && is_type_of_jobs(a, r->type) ? OF_USER : OF_OTHERS;
}

static struct arbiter_job *add_job(struct arbiter *a, const Hadoop__ApplicationReport *app,
                                   const struct yarn_report *r)
{
    struct arbiter_job fresh = { .present = false };
    enum whose whose = whose_is(a, app, r);
    struct arbiter_job *j = find_job(a, r->id);
    if (whose == OF_OTHERS || j)
        return whose == OF_OTHERS ? NULL : j;
    if (!str_copy(fresh.id, sizeof fresh.id, r->id) ||
        (whose == REGISTERED && read_tags(a, app, &fresh) < 0))
        return NULL;
    return vec_push(&a->jobs, fresh) < 0 ? NULL : &a->jobs.v[a->jobs.n - 1];
}

static void add_app(struct arbiter *a, const Hadoop__ApplicationReport *from)
{
    struct yarn_report r;
    if (yarn_report_copy(from, &r) < 0)
        return;
    struct arbiter_job *j = add_job(a, from, &r);
    const Hadoop__ApplicationResourceUsageReport *use = from->app_resource_usage;
    struct part_amount used = amount_of(use ? use->used_resources : NULL);
    for (int t = 0; t < CLAIM_TYPES; t++)
        a->queue_used.v[t] += used.v[t];
    if (j) {
        bool has_address = str_copy(j->host, sizeof j->host, r.host) && j->host[0] &&
                           r.rpc_port > 0 && r.rpc_port <= UINT16_MAX;
        j->present = true;
        j->submitted_ms = r.submitted_ms;
        j->used = used;
        j->has_master = r.state == HADOOP__YARN_APPLICATION_STATE__RUNNING;
        j->had_master = !j->has_master && r.attempt > 1;
        j->port = has_address ? (uint16_t)r.rpc_port : 0;
        j->priority = from->priority && from->priority->has_priority ? from->priority->priority : 0;
    }
    yarn_report_done(&r);
}

static void on_apps(const Hadoop__GetApplicationsResponse *r, const struct rpc_error *e, void *arg)
{
    struct questions *l = arg;
    for (size_t i = 0; i < l->a->jobs.n && r; i++)
        l->a->jobs.v[i].present = false;
    for (size_t i = 0; r && i < r->n_applications; i++)
        add_app(l->a, r->applications[i]);
    yarn_join_end(&l->join, e ? &e->err : NULL);
}

static void on_nodes(const Hadoop__GetClusterNodesResponse *r, const struct rpc_error *e, void *arg)
{
    struct questions *l = arg;
    struct arbiter *a = l->a;
    struct err err = { 0 };
    for (size_t i = 0; r && i < r->n_node_reports && !err.num; i++) {
        const Hadoop__NodeReport *n = r->node_reports[i];
        if (!n->node_id || (n->has_node_state && n->node_state != HADOOP__NODE_STATE__NS_RUNNING))
            continue;
        struct claims_node node = { .capacity = amount_of(n->capability) };
        struct part_amount used = amount_of(n->used);
        node.name = str_printf("%s:%d", n->node_id->host, n->node_id->port);
        if (!node.name || vec_push(&a->nodes, node) < 0 || vec_push(&a->used, used) < 0)
            (void)err_set(&err, ENOMEM, "cannot keep the list of nodes: %m");
    }
    yarn_join_end(&l->join, e ? &e->err : &err);
}

/* The search for the queue among all queues of the cluster. */
struct queue_search {
    const char *wanted; /* a whole path, or the last part of one */
    double share;       /* of the cluster that the queue may have: its limit times those above it */
    unsigned n_found;
    char path[QUEUE_PATH_MAX]; /* the whole path of the last match */
};

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
        (void)str_copy(s->path, sizeof s->path, path); /* both have the same size */
    }
    for (size_t i = 0; i < q->n_child_queues; i++)
        search_queue(s, q->child_queues[i], path, share);
}

static void on_queue(const Hadoop__GetQueueInfoResponse *r, const struct rpc_error *e, void *arg)
{
    struct questions *l = arg;
    struct err why = { 0 };
    struct queue_search s = { .wanted = l->a->queue };
    if (r && r->queue_info)
        search_queue(&s, r->queue_info, "", 1);
    l->share = s.share;
    if (s.n_found == 0)
        (void)err_set(&why, EINVAL, "the cluster has no queue '%s'", l->a->queue);
    if (s.n_found > 1) {
        (void)err_set(&why, EINVAL, "the cluster has %u queues '%s'", s.n_found, l->a->queue);
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
    if (!yarn_get_queue_info(l->a->y->rpc, &q, yarn_deadline(l->a->y), on_queue, l))
        return err_set(e, ENOMEM, "cannot ask the ResourceManager: %m");
    l->join.n++;
    return 0;
}

static int ask_apps(struct questions *l, struct err *e)
{
    struct arbiter *a = l->a;
    char *queue = (char *)(uintptr_t)a->queue;
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
    if (!yarn_get_applications(a->y->rpc, &rq, yarn_deadline(a->y), on_apps, l))
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
    if (!yarn_get_cluster_nodes(l->a->y->rpc, &rq, yarn_deadline(l->a->y), on_nodes, l))
        return err_set(e, ENOMEM, "cannot ask the ResourceManager: %m");
    l->join.n++;
    return 0;
}

static void set_limit(struct arbiter *a, double share)
{
    a->has_limit = share < 1;
    a->limit = (struct part_amount){ { 0 } };
    for (size_t i = 0; i < a->nodes.n; i++)
        for (int t = 0; t < CLAIM_TYPES; t++)
            a->limit.v[t] += a->nodes.v[i].capacity.v[t];
    for (int t = 0; t < CLAIM_TYPES; t++)
        a->limit.v[t] = (int64_t)((double)a->limit.v[t] * share);
}

static int ask_rm(struct arbiter *a, struct err *e)
{
    struct questions l = { .join = { .loop = a->y->loop }, .a = a, .share = 1 };
    for (size_t i = 0; i < a->nodes.n; i++)
        free((char *)(uintptr_t)a->nodes.v[i].name);
    a->nodes.n = a->used.n = 0;
    a->queue_used = (struct part_amount){ { 0 } };
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
    if (rc == 0)
        set_limit(a, l.share);
    return rc;
}

/* ---- each job ---- */

/* Read job.conf once. If the client is still writing it, read it in the next round. */
static void read_spec(struct arbiter *a, struct arbiter_job *j)
{
    struct job_spec *spec = NULL;
    struct err e = { 0 };
    if (j->is_known)
        return;
    if (yarn_job_spec(a->y, j->id, &spec, &e) < 0) {
        log_err(LOG_DEBUG, "arbiter.unreadable", &e);
        return;
    }
    int rc = share_needs_of(spec, yarn_master_memory_mib(spec), yarn_unit_mib(a->y), &j->needs);
    j->is_known = rc >= 0;
    j->is_elastic = rc == 1;
    job_spec_free(spec);
}

static uint32_t find_node(const struct arbiter *a, const char *name)
{
    uint32_t i = 0;
    while (i < a->nodes.n && !str_eq(a->nodes.v[i].name, name))
        i++;
    return i;
}

struct placing {
    const struct arbiter *a;
    struct arbiter_job *j;
    bool lost; /* a container is on a node that the ResourceManager does not name */
};

static int place(const char *node, uint32_t n, void *arg)
{
    struct placing *p = arg;
    if (p->lost)
        return 0; /* the job is left alone anyway; a hostile master may name very many nodes */
    struct part_place at = { .node = find_node(p->a, node), .n = n };
    if (at.node >= p->a->nodes.n) {
        p->lost = true;
        return 0;
    }
    p->j->n_containers += n;
    return vec_push(&p->j->at, at);
}

static int by_node(const void *x, const void *y)
{
    const struct part_place *a = x, *b = y;
    return a->node < b->node ? -1 : a->node > b->node;
}

/* Is the master's report credible? By the ResourceManager's figures, the job must hold at least
 * as much. */
static bool is_credible(const struct arbiter_job *j)
{
    const struct share_needs *x = &j->needs;
    return j->n_containers <= j->n &&
           x->each_mib * j->n_containers <= (uint64_t)j->used.v[CLAIM_MEMORY_MIB] &&
           (uint64_t)x->each_gpus * j->n_containers <= (uint64_t)j->used.v[CLAIM_GPUS];
}

/* Do not change the job in this round; its containers count as taken. */
static void leave_alone(struct arbiter_job *j)
{
    j->at.n = 0;
    j->n_containers = 0;
    j->runs = false;
    j->changing = true;
}

/* resize_limit_ms: no resize costs more, since the arbiter waits no longer for one. */
static void take_state(struct arbiter_job *j, const struct share_state *s, bool lost,
                       int64_t resize_limit_ms)
{
    j->n = s->n;
    j->runs = s->runs && j->n_containers == s->n;
    j->changing = s->changing || lost;
    j->lacks = s->changing && share_lacks(&j->needs, s->n, (uint64_t)j->used.v[CLAIM_MEMORY_MIB]);
    if (s->left_ms >= 0)
        j->remaining_s = (double)s->left_ms / 1000;
    if (s->cost_ms >= 0)
        j->resize_s = (double)MIN(s->cost_ms, resize_limit_ms) / 1000;
    if (j->at.n > 1)
        qsort(j->at.v, j->at.n, sizeof *j->at.v, by_node);
    if (j->changing || (s->runs && !j->runs) || (j->registered && !is_credible(j)))
        leave_alone(j);
    if (j->runs)
        patience_succeed(&j->starts);
}

static int observe_job(struct arbiter *a, struct arbiter_job *j, struct err *e)
{
    AUTO(buf_done) struct buf json = { 0 };
    struct placing p = { .a = a, .j = j };
    struct share_state s;
    struct err unreachable = { 0 };
    j->at.n = j->n_containers = 0;
    j->runs = j->changing = j->lacks = false;
    j->remaining_s = INFINITY;
    j->resize_s = (double)a->settings.resize_cost_ms / 1000;
    read_spec(a, j);
    j->n = j->is_elastic ? j->needs.n : 0;
    if (j->is_elastic && j->had_master)
        leave_alone(j);
    if (!j->is_elastic || !j->has_master)
        return 0;
    /* If the master of this job refuses, the round goes on without the job. That holds for each
     * error which the master names, ENOMEM too: the master lacks memory, not the arbiter. */
    int rc = arbiter_ask_share(a, j, &json, &unreachable) < 0 ? -EAGAIN : 0;
    if (rc == 0)
        rc = share_state_read(buf_span(&json), &s, place, &p, &unreachable);
    if (rc == -ENOMEM)
        return err_set(e, ENOMEM, "cannot keep the state of '%s': %m", j->id);
    if (rc == 0)
        take_state(j, &s, p.lost, a->settings.resize_limit_ms);
    else
        leave_alone(j); /* its master does not answer */
    if (rc < 0)
        log_err(LOG_DEBUG, "arbiter.silent", &unreachable);
    return 0;
}

int arbiter_observe(struct arbiter *a, struct err *e)
{
    int rc = ask_rm(a, e);
    if (rc < 0)
        return rc;
    drop_absent(a);
    if (a->jobs.n > 1)
        qsort(a->jobs.v, a->jobs.n, sizeof *a->jobs.v, by_submission);
    for (size_t i = 0; i < a->jobs.n && rc == 0; i++)
        rc = observe_job(a, &a->jobs.v[i], e);
    return rc;
}
