/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the arbiter knows: the nodes and the limit of the queue from the ResourceManager, each job's
 * wishes from its job.conf in HDFS, and its containers from its master.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "client/arbiter.h"
#include "client/client_int.h"
#include "client/status.h"
#include "codec/json.h"
#include "hadoop/yarn.h"
#include "loop/loop.h"

enum { APPS_MAX = 10000, QUEUE_PATH_MAX = 1024 };

/* ---- the list of jobs ---- */

static void job_done(struct arbiter_job *j)
{
    job_spec_free(j->spec);
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

static void add_app(struct arbiter *a, const Hadoop__ApplicationReport *from)
{
    struct yarn_report r;
    if (yarn_report_copy(from, &r) < 0)
        return;
    struct arbiter_job *j = find_job(a, r.id), fresh = { .present = false };
    bool ours = str_eq(r.user, a->y->user) && is_type_of_jobs(a, r.type) &&
                !yarn_app_state_is_final(r.state);
    const Hadoop__ApplicationResourceUsageReport *use = from->app_resource_usage;
    struct part_amount used = amount_of(use ? use->used_resources : NULL);
    for (int t = 0; t < CLAIM_TYPES; t++)
        a->queue_used.v[t] += used.v[t];
    if (ours && !j && str_copy(fresh.id, sizeof fresh.id, r.id) && vec_push(&a->jobs, fresh) == 0)
        j = &a->jobs.v[a->jobs.n - 1];
    if (ours && j) {
        j->present = true;
        j->submitted_ms = r.submitted_ms;
        j->has_master = r.state == HADOOP__YARN_APPLICATION_STATE__RUNNING;
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

/* The queue among all queues of the cluster. */
struct queue_search {
    const char *wanted; /* a whole path, or the last part of one */
    double share;       /* of the cluster that the queue may have: its limit times those above it */
    unsigned n_found;
    char path[QUEUE_PATH_MAX]; /* of the last one that was found */
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

static void round_up(uint64_t *mib, int64_t unit)
{
    *mib = (*mib + (uint64_t)unit - 1) / (uint64_t)unit * (uint64_t)unit;
}

/* Read job.conf, once. A job that cannot be read now, since its client is still writing it, is read
 * in the next round. */
static void read_spec(struct arbiter *a, struct arbiter_job *j)
{
    struct err e = { 0 };
    if (j->spec)
        return;
    if (yarn_job_spec(a->y, j->id, &j->spec, &e) < 0) {
        log_err(LOG_DEBUG, "arbiter.unreadable", &e);
        return;
    }
    /* The containers get what YARN makes of the wishes. */
    for (size_t i = 0; i < j->spec->n_roles; i++)
        round_up(&j->spec->roles[i].memory_mib, a->unit_mib);
    j->spec->am.memory_mib = yarn_master_memory_mib(j->spec);
    round_up(&j->spec->am.memory_mib, a->unit_mib);
    j->is_elastic = job_spec_elastic(j->spec, &j->elastic);
}

static uint32_t find_node(const struct arbiter *a, const char *name)
{
    uint32_t i = 0;
    while (i < a->nodes.n && !str_eq(a->nodes.v[i].name, name))
        i++;
    return i;
}

/* A container of a task in this state is held by the job. */
static bool is_held(const char *state)
{
    static const char *const not_held[] = { "held", "waiting", "ended" };
    for (size_t i = 0; i < ARRAY_LEN(not_held); i++)
        if (str_eq(state, not_held[i]))
            return false;
    return true;
}

/* Where its containers are, from the status document of its master. */
static int take_status(struct arbiter *a, struct arbiter_job *j, const json_t *doc)
{
    const json_t *task;
    size_t i;
    uint32_t n = 0;
    bool leaves = doc_int(doc, "leaving", 0) > 0, ends = false;
    json_array_foreach(json_object_get(doc, "tasks"), i, task)
    {
        if (!str_eq(doc_str(task, "role"), j->elastic.role->name))
            continue;
        const char *state = doc_str(task, "state");
        ends |= str_eq(state, "ended");
        n++;
        if (is_held(state) && vec_push(&j->at, find_node(a, doc_str(task, "node"))) < 0)
            return -ENOMEM;
    }
    json_array_foreach(json_object_get(doc, "roles"), i, task)
    {
        int64_t left_ms = doc_int(task, "left_ms", -1);
        if (str_eq(doc_str(task, "name"), j->elastic.role->name) && left_ms >= 0)
            j->remaining_s = (double)left_ms / 1000;
    }
    const json_t *cost = json_object_get(doc, "resize_cost");
    if (cost)
        j->resize_s = (double)doc_int(cost, "total_ms", 0) / 1000;
    j->n = n;
    j->changing = leaves || ends || json_is_object(json_object_get(doc, "resize"));
    j->runs = str_eq(doc_str(doc, "state"), "RUNNING") && n > 0 && j->at.n == n;
    return 0;
}

static bool is_on_known_nodes(const struct arbiter *a, const struct arbiter_job *j)
{
    for (size_t i = 0; i < j->at.n; i++)
        if (j->at.v[i] >= a->nodes.n)
            return false;
    return true;
}

static int observe_job(struct arbiter *a, struct arbiter_job *j, struct err *e)
{
    AUTO(json_freep) json_t *doc = NULL;
    struct err unreachable = { 0 };
    j->at.n = 0;
    j->runs = j->changing = false;
    j->remaining_s = INFINITY;
    j->resize_s = (double)a->settings.resize_cost_ms / 1000;
    read_spec(a, j);
    j->n = j->is_elastic ? j->elastic.role->instances : 0;
    if (!j->spec || !j->is_elastic || !j->has_master)
        return 0;
    if (yarn_status(a->y, j->id, &doc, &unreachable) < 0 ||
        !json_is_array(json_object_get(doc, "tasks"))) {
        j->changing = true; /* its master does not answer: leave it as it is */
        return 0;
    }
    if (take_status(a, j, doc) < 0)
        return err_set(e, ENOMEM, "cannot keep the state of '%s': %m", j->id);
    if (!is_on_known_nodes(a, j)) {
        j->runs = false;
        j->changing = true;
    }
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
