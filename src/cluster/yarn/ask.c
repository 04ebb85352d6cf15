/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the ResourceManager for the resources of the cluster; all requests run in parallel.
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"

struct yarn_ask {
    struct yarn *y;
    const struct cluster_job *j;
    struct yarn_join *join;
    struct yarn_facts *f;
    struct yarn_app *app;
    struct err e; /* the first failure */
};

static void end(struct yarn_ask *a, const struct rpc_error *e, int rc)
{
    if (e && !a->e.num)
        a->e = e->err;
    else if (rc < 0 && !a->e.num)
        (void)err_set(&a->e, ENOMEM, "cannot keep what the ResourceManager says: %m");
    yarn_join_end(a->join, NULL);
}

static int add_amounts(struct yarn_amount **v, size_t *n, size_t *cap, const Hadoop__Resource *r)
{
    for (size_t i = 0; r && i < r->n_resource_value_map; i++) {
        const Hadoop__ResourceInformation *x = r->resource_value_map[i];
        struct yarn_amount a = { .name = str_dup(x->key), .n = x->value };
        if (!a.name || vec_grow((void **)v, cap, *n + 1, sizeof **v) < 0) {
            free(a.name);
            return -ENOMEM;
        }
        (*v)[(*n)++] = a;
    }
    return 0;
}

static void on_new_app(const Hadoop__GetNewApplicationResponse *r, const struct rpc_error *e,
                       void *arg)
{
    struct yarn_ask *a = arg;
    int rc = 0;
    if (r) {
        const Hadoop__Resource *most = r->maximum_capability;
        a->f->max_memory_mib = yarn_resource_value(most, "memory-mb");
        a->f->max_vcores = yarn_resource_value(most, "vcores");
        rc = add_amounts(&a->f->max_types.v, &a->f->max_types.n, &a->f->max_types.cap, most);
        if (a->app && !yarn_app_get(r->application_id, a->app) && !a->e.num)
            (void)err_set(&a->e, EPROTO, "the ResourceManager gave no application id");
    }
    end(a, e, rc);
}

static void on_queue(const Hadoop__GetQueueInfoResponse *r, const struct rpc_error *e, void *arg)
{
    struct yarn_ask *a = arg;
    const Hadoop__QueueInfo *q = r ? r->queue_info : NULL;
    int rc = 0;
    if (q && q->queue_name) {
        a->f->queue_there = true;
        a->f->queue_is_parent = q->n_child_queues > 0;
        a->f->queue_runs = !q->has_state || q->state == HADOOP__QUEUE_STATE__Q_RUNNING;
        for (size_t i = 0; rc == 0 && i < q->n_accessible_node_labels; i++)
            rc = strv_push(&a->f->queue_labels, q->accessible_node_labels[i]);
    }
    /* Some Hadoop releases report an unknown queue as an exception. */
    end(a, e && e->kind != RPC_FAULT_APPLICATION && e->kind != RPC_FAULT_NOT_FOUND ? e : NULL, rc);
}

static int add_node(struct yarn_facts *f, const Hadoop__NodeReport *n)
{
    struct yarn_node x = { .memory_mib = yarn_resource_value(n->capability, "memory-mb"),
                           .vcores = yarn_resource_value(n->capability, "vcores") };
    if (n->has_node_state && n->node_state != HADOOP__NODE_STATE__NS_RUNNING)
        return 0;
    int rc = add_amounts(&x.types.v, &x.types.n, &x.types.cap, n->capability);
    for (size_t i = 0; rc == 0 && i < n->n_node_labels; i++)
        rc = strv_push(&x.labels, n->node_labels[i]);
    return vec_push(&f->nodes, x) < 0 ? -ENOMEM : rc;
}

static void on_nodes(const Hadoop__GetClusterNodesResponse *r, const struct rpc_error *e, void *arg)
{
    struct yarn_ask *a = arg;
    int rc = 0;
    for (size_t i = 0; r && rc == 0 && i < r->n_node_reports; i++)
        rc = add_node(a->f, r->node_reports[i]);
    end(a, e, rc);
}

static void on_types(const Hadoop__GetAllResourceTypeInfoResponse *r, const struct rpc_error *e,
                     void *arg)
{
    struct yarn_ask *a = arg;
    int rc = 0;
    for (size_t i = 0; r && rc == 0 && i < r->n_resource_type_info; i++)
        rc = strv_push(&a->f->types, r->resource_type_info[i]->name);
    end(a, e, rc);
}

static void on_labels(const Hadoop__GetClusterNodeLabelsResponse *r, const struct rpc_error *e,
                      void *arg)
{
    struct yarn_ask *a = arg;
    int rc = 0;
    for (size_t i = 0; r && rc == 0 && i < r->n_node_labels; i++)
        rc = strv_push(&a->f->labels, r->node_labels[i]->name);
    end(a, e, rc);
}

static int add_leaves(struct strv *out, const Hadoop__QueueInfo *q)
{
    int rc = 0;
    if (!q)
        return 0;
    if (!q->n_child_queues && q->queue_name) {
        const char *dot = strrchr(q->queue_name, '.');
        return strv_push(out, dot ? dot + 1 : q->queue_name);
    }
    for (size_t i = 0; rc == 0 && i < q->n_child_queues; i++)
        rc = add_leaves(out, q->child_queues[i]);
    return rc;
}

static void on_queues(const Hadoop__GetQueueInfoResponse *r, const struct rpc_error *e, void *arg)
{
    struct yarn_ask *a = arg;
    (void)e; /* the queues are needed only for a hint */
    end(a, NULL, r ? add_leaves(&a->f->queues, r->queue_info) : 0);
}

static bool wants_label(const struct cluster_job *j)
{
    bool wants = yarn_role_label(j, "am") != NULL;
    for (size_t i = 0; i < j->spec->n_roles; i++)
        wants = wants || yarn_role_label(j, j->spec->roles[i].name) != NULL;
    return wants;
}

int yarn_ask_begin(struct yarn *y, const struct cluster_job *j, struct yarn_join *join,
                   struct yarn_facts *f, struct yarn_app *out_app, struct yarn_ask **out,
                   struct err *e)
{
    struct yarn_ask *a = calloc(1, sizeof *a);
    if (!a) {
        (void)err_set(e, ENOMEM, "cannot ask the ResourceManager: %m");
        return -EXIT_CLUSTER;
    }
    *a = (struct yarn_ask){ .y = y, .j = j, .join = join, .f = f, .app = out_app };
    int64_t deadline = yarn_deadline(y);
    Hadoop__GetNewApplicationRequest app = HADOOP__GET_NEW_APPLICATION_REQUEST__INIT;
    Hadoop__GetQueueInfoRequest queue = HADOOP__GET_QUEUE_INFO_REQUEST__INIT;
    Hadoop__GetClusterNodesRequest nodes = HADOOP__GET_CLUSTER_NODES_REQUEST__INIT;
    Hadoop__GetAllResourceTypeInfoRequest types = HADOOP__GET_ALL_RESOURCE_TYPE_INFO_REQUEST__INIT;
    Hadoop__GetClusterNodeLabelsRequest labels = HADOOP__GET_CLUSTER_NODE_LABELS_REQUEST__INIT;
    Hadoop__NodeState running = HADOOP__NODE_STATE__NS_RUNNING;
    queue.queue_name = j->spec->queue;
    queue.has_include_child_queues = queue.include_child_queues = true;
    nodes.node_states = &running;
    nodes.n_node_states = 1;
    unsigned begun = 0;
    begun += yarn_get_new_application(y->rpc, &app, deadline, on_new_app, a) != NULL;
    begun += yarn_get_queue_info(y->rpc, &queue, deadline, on_queue, a) != NULL;
    begun += yarn_get_cluster_nodes(y->rpc, &nodes, deadline, on_nodes, a) != NULL;
    begun += yarn_get_resource_types(y->rpc, &types, deadline, on_types, a) != NULL;
    if (wants_label(j))
        begun += yarn_get_cluster_node_labels(y->rpc, &labels, deadline, on_labels, a) != NULL;
    join->n += begun;
    if (begun < 4) /* requests that were sent end by themselves */
        (void)err_set(&a->e, ENOMEM, "cannot ask the ResourceManager: %m");
    *out = a;
    return 0;
}

int yarn_ask_finish(struct yarn_ask *a, struct err *e)
{
    if (a->e.num) {
        *e = a->e;
        return -EXIT_CLUSTER;
    }
    if (!a->f->queue_there) {
        Hadoop__GetQueueInfoRequest all = HADOOP__GET_QUEUE_INFO_REQUEST__INIT;
        all.queue_name = (char *)"root";
        all.has_include_child_queues = all.include_child_queues = true;
        all.has_recursive = all.recursive = true;
        if (yarn_get_queue_info(a->y->rpc, &all, yarn_deadline(a->y), on_queues, a))
            a->join->n++;
        yarn_join_wait(a->join);
    }
    return 0;
}

void yarn_ask_free(struct yarn_ask *a)
{
    free(a);
}
