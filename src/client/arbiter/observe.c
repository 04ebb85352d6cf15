/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the state that the arbiter needs: nodes, limit and jobs of the queue from the cluster
 * (cluster/queue.h), and the containers of each job from its master.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "client/arbiter/arbiter.h"
#include "client/client_int.h"

enum { KEPT_PIECES_MAX = 10000 }; /* of one application: for each piece, all nodes are searched */

/* ---- the list of jobs ---- */

static void job_done(struct arbiter_job *j)
{
    explicit_bzero(&j->key, sizeof j->key);
    vec_done(&j->at);
    vec_done(&j->shares);
    vec_done(&j->placed);
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
    vec_done(&a->wanted);
    explicit_bzero(&a->keys, sizeof a->keys);
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

/* ---- the look at the queue ---- */

static int take_nodes(struct arbiter *a, struct queue *q)
{
    for (size_t i = 0; i < a->nodes.n; i++)
        free((char *)(uintptr_t)a->nodes.v[i].name);
    a->nodes.n = a->used.n = 0;
    for (size_t i = 0; i < q->nodes.n; i++) {
        struct claims_node node = { .name = q->nodes.v[i].name,
                                    .capacity = q->nodes.v[i].capacity };
        if (vec_push(&a->used, q->nodes.v[i].used) < 0 || vec_push(&a->nodes, node) < 0)
            return -ENOMEM;
        q->nodes.v[i].name = NULL;
    }
    return 0;
}

/* Read the needs once. If that fails, it is tried again in the next round. */
static void read_needs(struct arbiter *a, struct arbiter_job *j, const struct queue_job *from)
{
    struct err e = { 0 };
    if (j->is_known)
        return;
    struct queue_needs needs = { .step = { 0 } };
    int rc = a->ops->needs(a->k, from, &a->keys, &needs, &j->key, &e);
    j->needs = needs.share;
    j->step = needs.step;
    if (rc < 0)
        log_err(LOG_DEBUG, "arbiter.unreadable", &e);
    j->is_known = rc >= 0;
    j->is_elastic = rc == 1;
}

static int take_job(struct arbiter *a, const struct queue_job *from)
{
    struct arbiter_job *j = find_job(a, from->id);
    if (!j) {
        struct arbiter_job fresh = { .present = false };
        (void)str_copy(fresh.id, sizeof fresh.id, from->id); /* both have the same size */
        if (vec_push(&a->jobs, fresh) < 0)
            return -ENOMEM;
        j = &a->jobs.v[a->jobs.n - 1];
    }
    j->present = true;
    j->registered = from->registered;
    j->submitted_ms = from->submitted_ms;
    j->used = from->used;
    j->has_master = from->has_master;
    j->had_master = from->had_master;
    j->priority = from->priority;
    j->port = from->port;
    j->has_lost = from->has_lost;
    j->shares.n = 0;
    for (size_t i = 0; i < from->shares.n; i++)
        if (vec_push(&j->shares, from->shares.v[i]) < 0)
            return -ENOMEM;
    (void)str_copy(j->host, sizeof j->host, from->host); /* both have the same size */
    read_needs(a, j, from);
    return 0;
}

static int look(struct arbiter *a, struct err *e)
{
    struct queue q;
    int rc = a->ops->look(a->k, a->queue, &a->keys, &q, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < a->jobs.n; i++)
        a->jobs.v[i].present = false;
    rc = take_nodes(a, &q);
    for (size_t i = 0; i < q.jobs.n && rc == 0; i++)
        rc = take_job(a, &q.jobs.v[i]);
    a->wanted.n = 0;
    for (size_t i = 0; i < q.wanted.n && rc == 0; i++)
        rc = vec_push(&a->wanted, q.wanted.v[i]);
    a->queue_used = q.used;
    a->has_limit = q.has_limit;
    a->limit = q.limit;
    a->master_ms = q.master_ms;
    queue_done(&q);
    return rc < 0 ? err_set(e, -rc, "cannot keep the state of the queue: %m") : 0;
}

/* ---- each job ---- */

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
    bool lost; /* a container is on a node that the cluster does not name */
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

/* Is the master's report credible? By the cluster's figures, the job must hold at least
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

/* On a cluster that gives nodes: convert the containers of the job to nodes. 0 or -ENOMEM. */
static int take_nodes_of(struct arbiter_job *j, const struct share_state *s, bool *lost)
{
    j->runs = s->runs && j->n_containers == s->n;
    j->lacks = s->changing && j->n_containers < s->target;
    *lost = *lost || j->has_lost;
    int rc = steps_take(j, lost);
    j->n = (uint32_t)j->at.n;
    return rc;
}

static void take_containers(struct arbiter_job *j, const struct share_state *s)
{
    j->n = s->n;
    j->runs = s->runs && j->n_containers == s->n;
    j->lacks =
        s->changing && share_lacks(&j->needs, s->target, (uint64_t)j->used.v[CLAIM_MEMORY_MIB]);
}

/* resize_limit_ms: the most that a resize counts as costing, since the arbiter waits no longer for
 * one. 0 or -ENOMEM.
 */
static int take_state(struct arbiter_job *j, const struct share_state *s, bool lost,
                      bool gives_nodes, int64_t resize_limit_ms)
{
    j->instances = s->n;
    if (!gives_nodes)
        take_containers(j, s);
    else if (take_nodes_of(j, s, &lost) < 0)
        return -ENOMEM;
    j->changing = s->changing || lost;
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
    return 0;
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
    j->n = j->is_elastic ? j->needs.n : 0;
    j->instances = steps_instances(j, j->n);
    if (j->is_elastic && j->had_master)
        leave_alone(j);
    if (!j->is_elastic || !j->has_master)
        return 0;
    /* If the master of this job refuses, the round continues without the job. That holds for each
     * error which the master names, ENOMEM too: the master lacks memory, not the arbiter. */
    int rc = arbiter_ask_share(a, j, &json, &unreachable) < 0 ? -EAGAIN : 0;
    if (rc == 0)
        rc = share_state_read(buf_span(&json), &s, place, &p, &unreachable);
    if (rc == 0)
        rc = take_state(j, &s, p.lost, a->ops->gives_nodes, a->settings.resize_limit_ms);
    if (rc == -ENOMEM)
        return err_set(e, ENOMEM, "cannot keep the state of '%s': %m", j->id);
    if (rc < 0)
        leave_alone(j); /* its master does not answer */
    if (rc < 0)
        log_err(LOG_DEBUG, "arbiter.silent", &unreachable);
    return 0;
}

/* ---- room for applications that the arbiter cannot resize ---- */

/* Does the job that waits belong to the claims of the policy? A job that changes its size is in no
 * claim: it gets the further nodes that it waits for. */
static bool is_claim(struct arbiter *a, const struct queue_wanted *w)
{
    const struct arbiter_job *j = w->id[0] ? find_job(a, w->id) : NULL;
    if (j && w->further && j->changing)
        return false;
    if (j)
        return j->is_elastic;
    for (size_t i = 0; w->of_all && i < a->jobs.n; i++)
        if (a->jobs.v[i].is_elastic && (!a->jobs.v[i].runs || a->jobs.v[i].changing))
            return true; /* the job waits or changes, so no job grows in this round anyway */
    return false;
}

static int64_t free_of(const struct arbiter *a, size_t node, int type)
{
    return MAX(a->nodes.v[node].capacity.v[type] - a->used.v[node].v[type], INT64_C(0));
}

/* How much of the piece is free on the node, from 0 to 1? */
static double fit(const struct arbiter *a, size_t node, const struct part_amount *each)
{
    double least = 1;
    for (int t = 0; t < CLAIM_TYPES; t++) {
        if (each->v[t] > a->nodes.v[node].capacity.v[t])
            return 0; /* the node is smaller than the piece */
        if (each->v[t] > 0)
            least = fmin(least, (double)free_of(a, node, t) / (double)each->v[t]);
    }
    return least;
}

/* Keep one piece free on the node where most of it is free; taken: nodes that have a piece. */
static void keep_piece(struct arbiter *a, const struct queue_wanted *w, bool *taken)
{
    size_t best = a->nodes.n;
    double most = 0;
    for (size_t i = 0; i < a->nodes.n; i++) {
        double x = w->apart && taken[i] ? 0 : fit(a, i, &w->each);
        if (x > most) {
            most = x;
            best = i;
        }
    }
    if (best == a->nodes.n)
        return;
    taken[best] = true;
    for (int t = 0; t < CLAIM_TYPES; t++) {
        int64_t n = MIN(free_of(a, best, t), w->each.v[t]);
        a->used.v[best].v[t] += n;
        a->kept.v[t] += n;
    }
}

int arbiter_keep_room(struct arbiter *a)
{
    a->kept = (struct part_amount){ { 0 } };
    AUTO(free_p) bool *taken = calloc(a->nodes.n + 1, sizeof *taken);
    if (!taken)
        return -ENOMEM;
    for (size_t i = 0; i < a->wanted.n; i++) {
        const struct queue_wanted *w = &a->wanted.v[i];
        if (is_claim(a, w))
            continue;
        memset(taken, 0, a->nodes.n * sizeof *taken);
        for (uint32_t k = 0; k < w->n && k < KEPT_PIECES_MAX; k++)
            keep_piece(a, w, taken);
    }
    return 0;
}

int arbiter_observe(struct arbiter *a, struct err *e)
{
    int rc = look(a, e);
    if (rc < 0)
        return rc;
    drop_absent(a);
    if (a->jobs.n > 1)
        qsort(a->jobs.v, a->jobs.n, sizeof *a->jobs.v, by_submission);
    for (size_t i = 0; i < a->jobs.n && rc == 0; i++)
        rc = observe_job(a, &a->jobs.v[i], e);
    return rc;
}
