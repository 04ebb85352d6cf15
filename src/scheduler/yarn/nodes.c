/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls to the NodeManagers: start, stop, and status of containers. Each node has its own
 * connection and at most one call of each kind under way. node_pump() makes all calls that the
 * state of the node's containers demands. A node that does not answer delays no other node.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "loop/loop.h"
#include "scheduler/yarn/yarn_int.h"

static void on_timer(void *arg)
{
    struct node *n = arg;
    /* The start call is slow: do not count it any more, so that another node may start
     * (YARN_STARTS_MAX). */
    if (n->counts_as_starting && clock_mono_ms() >= n->sent_ms + YARN_SLOW_MS) {
        n->counts_as_starting = false;
        n->y->n_starting--;
    }
    node_pump(n);
}

struct node *node_get(struct yarn *y, const Hadoop__NodeId *id, const char *http)
{
    if (!id || !id->host || !id->has_port)
        return NULL;
    AUTO(free_p) char *name = str_printf("%s:%d", id->host, id->port);
    struct node *n = name ? map_get(&y->nodes, name) : NULL;
    if (n || !name) {
        if (n && http && !str_eq(n->http, http)) {
            free(n->http);
            n->http = str_dup(http);
        }
        return n;
    }
    n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->y = y;
    n->id = str_dup(name);
    n->host = str_dup(id->host);
    n->http = str_dup(http);
    n->port = (uint16_t)id->port;
    n->timer = loop_timer_new(y->cfg.loop, on_timer, n);
    if (!n->id || !n->host || !n->timer || map_set(&y->nodes, name, n, NULL) < 0) {
        node_free(n);
        return NULL;
    }
    return n;
}

void node_free(void *p)
{
    struct node *n = p;
    n->y->wire->client_free(n->client);
    loop_timer_free(n->timer);
    token_done(&n->token);
    vec_done(&n->boxes);
    free(n->id);
    free(n->host);
    free(n->http);
    free(n->health);
    free(n);
}

int node_token(struct node *n, const Hadoop__Token *t)
{
    struct token token = { 0 };
    if (token_from_msg(t, &token) < 0)
        return -ENOMEM;
    token_done(&n->token);
    n->token = token;
    n->has_token = true;
    if (n->client) /* calls under way end on the old connection */
        n->y->wire->client_retire(TAKE(n->client));
    node_pump(n);
    return 0;
}

static int connect_node(struct node *n, struct err *e)
{
    AUTO(site_addresses_done) struct site_addresses at = { 0 };
    if (n->client)
        return 0;
    if (site_addresses_add(&at, n->host, n->port) < 0)
        return err_set(e, ENOMEM, "no memory to reach node manager '%s'", n->id);
    struct rpc_client_options o = {
        .loop = n->y->cfg.loop,
        .what = "the node manager",
        .protocol = YARN_NODE_PROTOCOL,
        .addresses = &at,
        .token = &n->token,
    };
    return n->y->wire->client_new(&o, &n->client, e);
}

static size_t count_in_state(const struct node *n, enum box_state s)
{
    size_t count = 0;
    for (size_t i = 0; i < n->boxes.n; i++)
        count += n->boxes.v[i]->state == s;
    return count;
}

/* Let nodes that wait for YARN_STARTS_MAX send their start calls now. */
static void pump_waiting_nodes(struct yarn *y)
{
    for (struct map_entry *x = map_next(&y->nodes, NULL); x; x = map_next(&y->nodes, x)) {
        struct node *n = x->value;
        if (!n->start && count_in_state(n, BOX_TO_START))
            loop_timer_set(n->timer, clock_mono_ms());
    }
}

/* A box of the start call that has just ended; NULL = all its boxes have their new state. */
static struct box *first_starting(struct node *n)
{
    for (size_t i = 0; i < n->boxes.n; i++)
        if (n->boxes.v[i]->state == BOX_STARTING)
            return n->boxes.v[i];
    return NULL;
}

static void set_started(struct box *b)
{
    b->state = BOX_STARTED;
    token_done(&b->token);
}

/* The node refuses to start one container. */
static void container_refused(struct node *n, struct box *b, struct span class_name,
                              struct span message)
{
    struct span line = rpc_first_line(message, class_name);
    AUTO(free_p) char *text = span_dup(line);
    enum rpc_fault f = rpc_fault_of_class(class_name);
    const char *why = text ? text : "";

    if (strstr(why, "relaunch") || strstr(why, "already is running") ||
        strstr(why, "is already running")) {
        set_started(b); /* an earlier start call, whose answer was lost, has started it */
        return;
    }
    if (f == RPC_FAULT_NOT_READY) {
        b->state = BOX_TO_START;
        n->start_at = clock_mono_ms() + yarn_pause(n->y, YARN_NODE_RETRY_MS);
        return;
    }
    /* The first line is only "Unauthorized request to start container."; the next has the reason.
     */
    if (span_has(message, "token is expired"))
        why =
            "its grant had expired; the node is too slow, or its clock and the resource manager's "
            "differ";
    box_fail(n->y, b, END_LAUNCH_FAILED, "node manager '%s' could not start it: %s", n->id, why);
}

/* ---- a start call that failed as a whole ---- */

/* The containers of the call: it is not atomic, so some of them may have been started. */
enum start_fate {
    START_RETRY,    /* none was started; repeat the call after YARN_NODE_RETRY_MS */
    START_NO_TOKEN, /* the node has new keys: repeat the call, until YARN_TOKEN_WAIT_MS are over */
    START_DOUBT,    /* ask the node which ones it has started, and start the others singly */
    START_REFUSED,  /* the node refuses the one container of the call */
    START_FAILED,   /* none was started, and repeating the call would not help */
};

/* A service's own refusal of a call with several containers may be about one of them. */
static enum start_fate fate_of_start(const struct rpc_error *e, size_t n_containers)
{
    switch ((int)e->kind) {
    case RPC_FAULT_NOT_READY:
    case RPC_FAULT_RETRIABLE:
        return START_RETRY;
    case RPC_FAULT_AUTH:
        return START_NO_TOKEN;
    case RPC_FAULT_UNREACHABLE:
    case RPC_FAULT_LOCAL:
        return e->maybe_done ? START_DOUBT : START_FAILED;
    default:
        return e->maybe_done || n_containers > 1 ? START_DOUBT : START_REFUSED;
    }
}

static void start_again(struct node *n, struct box *b)
{
    b->state = BOX_TO_START;
    n->start_at = clock_mono_ms() + yarn_pause(n->y, YARN_NODE_RETRY_MS);
}

static void await_token(struct node *n, struct box *b, const struct rpc_error *e)
{
    int64_t now = clock_mono_ms();
    if (!b->token_due_ms)
        b->token_due_ms = now + yarn_pause(n->y, YARN_TOKEN_WAIT_MS);
    if (now < b->token_due_ms)
        start_again(n, b);
    else
        box_fail(n->y, b, END_LAUNCH_FAILED, "node manager '%s' does not accept our token: %s",
                 n->id, e->err.msg);
}

static void box_start_failed(struct node *n, struct box *b, enum start_fate fate,
                             const struct rpc_error *e)
{
    switch (fate) {
    case START_RETRY:
        start_again(n, b);
        break;
    case START_NO_TOKEN:
        await_token(n, b, e);
        break;
    case START_DOUBT:
        b->state = BOX_DOUBT;
        n->start_singly = true;
        break;
    case START_REFUSED:
        container_refused(n, b, span_of(e->class_name), span_of(*e->line ? e->line : e->err.msg));
        break;
    case START_FAILED:
        box_fail(n->y, b, END_LAUNCH_FAILED, "%s", e->err.msg);
        break;
    }
}

static void call_failed(struct node *n, const struct rpc_error *e)
{
    struct box *b;
    size_t count = count_in_state(n, BOX_STARTING);
    enum start_fate fate = fate_of_start(e, count);

    log_event(LOG_WARN, "node.start_failed", f_str("node", n->id),
              f_int("containers", (int64_t)count), f_str("kind", rpc_fault_name(e->kind)),
              f_str("why", e->err.msg));
    while ((b = first_starting(n)))
        box_start_failed(n, b, fate, e);
    if (fate == START_NO_TOKEN && n->client)
        n->y->wire->client_retire(TAKE(n->client));
}

static void on_start(const Hadoop__StartContainersResponse *r, const struct rpc_error *e, void *arg)
{
    struct node *n = arg;
    struct box *b;

    n->start = NULL;
    if (n->counts_as_starting)
        n->y->n_starting--;
    n->counts_as_starting = false;
    if (e)
        call_failed(n, e);
    for (size_t i = 0; r && i < r->n_succeeded_requests; i++)
        if ((b = box_find(n->y, r->succeeded_requests[i])) && b->state == BOX_STARTING)
            set_started(b);
    for (size_t i = 0; r && i < r->n_failed_requests; i++) {
        const Hadoop__RemoteError *x = r->failed_requests[i]->exception;
        if ((b = box_find(n->y, r->failed_requests[i]->container_id)) && b->state == BOX_STARTING)
            container_refused(n, b, span_of(x ? x->class_name : NULL),
                              span_of(x ? x->message : NULL));
    }
    while (r && (b = first_starting(n))) /* the answer does not name this box: ask the node */
        b->state = BOX_DOUBT;
    node_pump(n);
    pump_waiting_nodes(n->y);
}

static void send_start(struct node *n)
{
    struct box *v[YARN_BATCH_MAX];
    size_t count = 0, max = n->start_singly ? 1 : YARN_BATCH_MAX;
    struct err e = { 0 };

    for (size_t i = 0; i < n->boxes.n && count < max; i++)
        if (n->boxes.v[i]->state == BOX_TO_START)
            v[count++] = n->boxes.v[i];
    int rc = connect_node(n, &e);
    if (rc == 0) {
        n->start = launch_send(n, v, count, clock_mono_ms() + yarn_pause(n->y, YARN_START_MS),
                               on_start, &e);
        rc = n->start ? 0 : -ENOMEM;
    }
    if (rc < 0) {
        log_err(LOG_ERROR, "node.no_start", &e);
        n->start_at = clock_mono_ms() + YARN_NODE_RETRY_MS;
        return;
    }
    for (size_t i = 0; i < count; i++)
        v[i]->state = BOX_STARTING;
    n->sent_ms = clock_mono_ms();
    n->counts_as_starting = true;
    n->y->n_starting++;
}

/* ---- stopping ---- */

static void on_stop(const Hadoop__StopContainersResponse *r, const struct rpc_error *e, void *arg)
{
    struct node *n = arg;
    n->stop = NULL;
    if (e)
        log_event(LOG_WARN, "node.stop_failed", f_str("node", n->id), f_str("why", e->err.msg));
    for (size_t i = 0; r && i < r->n_failed_requests; i++) {
        struct box *b = box_find(n->y, r->failed_requests[i]->container_id);
        if (b && b->state != BOX_ENDED) /* a status call will show whether it has ended */
            b->poll_until = clock_mono_ms() + yarn_pause(n->y, YARN_NODE_RETRY_MS);
    }
    node_pump(n);
}

static bool must_stop(const struct box *b)
{
    return b->stop_wanted && !b->stop_sent && (b->state == BOX_STARTED || b->state == BOX_DOUBT);
}

static bool must_poll(const struct box *b)
{
    return b->state == BOX_DOUBT || (b->state == BOX_STARTED && b->poll_until);
}

/* Collect the ids of the boxes that fit, at most YARN_BATCH_MAX, for a request. Returns their
 * number. With must_stop, note that a stop call contains them. */
static size_t pick_ids(struct node *n, bool (*fits)(const struct box *), struct yarn_id_msg *ids,
                       Hadoop__ContainerId **out)
{
    size_t count = 0;
    for (size_t i = 0; i < n->boxes.n && count < YARN_BATCH_MAX; i++) {
        struct box *b = n->boxes.v[i];
        if (!fits(b))
            continue;
        out[count] = yarn_container_msg(&ids[count], &b->key);
        count++;
        if (fits == must_stop) {
            b->stop_sent = true;
            b->poll_until = clock_mono_ms() + yarn_pause(n->y, YARN_POLL_FOR_MS);
        }
    }
    return count;
}

static void send_stop(struct node *n)
{
    struct yarn_id_msg ids[YARN_BATCH_MAX];
    Hadoop__ContainerId *v[YARN_BATCH_MAX];
    Hadoop__StopContainersRequest rq = HADOOP__STOP_CONTAINERS_REQUEST__INIT;
    if (connect_node(n, NULL) < 0)
        return;
    rq.container_id = v;
    rq.n_container_id = pick_ids(n, must_stop, ids, v);
    if (rq.n_container_id)
        n->stop = n->y->wire->stop_containers(
            n->client, &rq, clock_mono_ms() + yarn_pause(n->y, YARN_NODE_MS), on_stop, n);
}

/* ---- status ---- */

static void on_status(const Hadoop__GetContainerStatusesResponse *r, const struct rpc_error *e,
                      void *arg)
{
    struct node *n = arg;
    struct box *b;

    n->status = NULL;
    if (e) {
        log_event(LOG_DEBUG, "node.status_failed", f_str("node", n->id), f_str("why", e->err.msg));
        n->poll_at = clock_mono_ms() + yarn_pause(n->y, YARN_NODE_RETRY_MS);
    }
    for (size_t i = 0; r && i < r->n_status; i++) {
        const Hadoop__ContainerStatus *s = r->status[i];
        if (!(b = box_find(n->y, s->container_id)) || b->state == BOX_ENDED)
            continue;
        if (s->has_state && s->state == HADOOP__CONTAINER_STATE__C_COMPLETE)
            box_end_at_node(n->y, b, s->exit_status, s->diagnostics);
        else if (b->state == BOX_DOUBT)
            set_started(b);
    }
    for (size_t i = 0; r && i < r->n_failed_requests; i++) {
        b = box_find(n->y, r->failed_requests[i]->container_id);
        /* the node does not know the container: it was not started */
        if (b && b->state == BOX_DOUBT)
            b->state = BOX_TO_START;
    }
    node_pump(n);
}

static void send_status_request(struct node *n)
{
    struct yarn_id_msg ids[YARN_BATCH_MAX];
    Hadoop__ContainerId *v[YARN_BATCH_MAX];
    Hadoop__GetContainerStatusesRequest rq = HADOOP__GET_CONTAINER_STATUSES_REQUEST__INIT;
    n->poll_at = clock_mono_ms() + yarn_pause(n->y, YARN_POLL_MS);
    if (connect_node(n, NULL) < 0)
        return;
    rq.container_id = v;
    rq.n_container_id = pick_ids(n, must_poll, ids, v);
    if (rq.n_container_id)
        n->status = n->y->wire->get_container_statuses(
            n->client, &rq, clock_mono_ms() + yarn_pause(n->y, YARN_NODE_MS), on_status, n);
}

/* A box that has waited for the ResourceManager's reason until cause_due_ms; NULL = none. */
static struct box *find_overdue_cause(struct node *n, int64_t now)
{
    for (size_t i = 0; i < n->boxes.n; i++)
        if (n->boxes.v[i]->cause_due_ms && now >= n->boxes.v[i]->cause_due_ms)
            return n->boxes.v[i];
    return NULL;
}

/* End the boxes for which no reason has arrived. Stop polling boxes after poll_until. If such a box
 * has to be stopped, release it, so that the ResourceManager ends it. */
static void expire(struct node *n, int64_t now)
{
    struct box *overdue;
    while ((overdue = find_overdue_cause(n, now)))
        box_end(n->y, overdue, overdue->node_exit_status, NULL);
    for (size_t i = n->boxes.n; i-- > 0;) {
        struct box *b = n->boxes.v[i];
        if (b->poll_until && now >= b->poll_until) {
            b->poll_until = 0;
            if (b->stop_wanted && !b->released) {
                b->released = true;
                yarn_release(n->y, &b->key);
            }
        }
    }
}

void node_pump(struct node *n)
{
    struct yarn *y = n->y;
    int64_t now = clock_mono_ms(), next = INT64_MAX;

    if (y->phase == YP_OVER || y->finishing)
        return;
    expire(n, now);
    if (count_in_state(n, BOX_TO_START) && !n->start) {
        if (n->has_token && now >= n->start_at && y->n_starting < YARN_STARTS_MAX)
            send_start(n);
        if (!n->start && now < n->start_at)
            next = n->start_at;
    }
    if (n->start && n->counts_as_starting)
        next = MIN(next, n->sent_ms + YARN_SLOW_MS);
    for (size_t i = 0; n->has_token && i < n->boxes.n; i++) {
        const struct box *b = n->boxes.v[i];
        if (must_stop(b) && !n->stop) {
            send_stop(n);
        } else if (must_poll(b) && !n->status) {
            if (now >= n->poll_at)
                send_status_request(n);
            else
                next = MIN(next, n->poll_at);
        }
        if (b->poll_until)
            next = MIN(next, b->poll_until);
        if (b->cause_due_ms)
            next = MIN(next, b->cause_due_ms);
    }
    if (next != INT64_MAX)
        loop_timer_set(n->timer, next);
}
