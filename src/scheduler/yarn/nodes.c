/*
 * What is done at the NodeManagers. Each has its own connection and at most one call of a kind
 * under way; node_pump() looks at the containers there and does what is next. A node that does not
 * answer holds up nobody but itself.
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
    /* slow: others need not wait for it */
    if (n->counted && clock_mono_ms() >= n->sent_ms + YARN_SLOW_MS) {
        n->counted = false;
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
    if (n->client) /* what is under way ends on the old one */
        n->y->wire->client_retire(TAKE(n->client));
    node_pump(n);
    return 0;
}

static int connect_it(struct node *n, struct err *e)
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

static size_t in_state(const struct node *n, enum box_state s)
{
    size_t count = 0;
    for (size_t i = 0; i < n->boxes.n; i++)
        count += n->boxes.v[i]->state == s;
    return count;
}

static void pump_others(struct yarn *y)
{
    for (struct map_entry *x = map_next(&y->nodes, NULL); x; x = map_next(&y->nodes, x)) {
        struct node *n = x->value;
        if (!n->start && in_state(n, BOX_TO_START))
            loop_timer_set(n->timer, clock_mono_ms());
    }
}

/* The boxes that were in the start call which ended, one after the other. */
static struct box *starting(struct node *n)
{
    for (size_t i = 0; i < n->boxes.n; i++)
        if (n->boxes.v[i]->state == BOX_STARTING)
            return n->boxes.v[i];
    return NULL;
}

static void is_started(struct box *b)
{
    b->state = BOX_STARTED;
    token_done(&b->token);
}

/* One container's refusal. */
static void start_refused(struct node *n, struct box *b, struct span class_name,
                          struct span message)
{
    struct span line = rpc_first_line(message, class_name);
    AUTO(free_p) char *text = span_dup(line);
    enum rpc_fault f = rpc_fault_of_class(class_name);
    const char *why = text ? text : "";

    if (strstr(why, "relaunch") || strstr(why, "already is running") ||
        strstr(why, "is already running")) {
        is_started(b); /* ours, of which no answer came */
        return;
    }
    if (f == RPC_FAULT_NOT_READY) {
        b->state = BOX_TO_START;
        n->start_at = clock_mono_ms() + yarn_pause(n->y, YARN_NODE_RETRY_MS);
        return;
    }
    /* "Unauthorized request to start container." and, on a line of its own, the reason */
    if (span_has(message, "token is expired"))
        why =
            "its grant had expired; the node is too slow, or its clock and the resource manager's "
            "differ";
    box_fail(n->y, b, END_LAUNCH_FAILED, "node manager '%s' could not start it: %s", n->id, why);
}

/* The call as a whole failed. It is not atomic: what was in it may have been started or not. */
static void start_failed(struct node *n, const struct rpc_error *e)
{
    struct yarn *y = n->y;
    struct box *b;
    size_t count = in_state(n, BOX_STARTING);
    int64_t now = clock_mono_ms();

    log_event(LOG_WARN, "node.start_failed", f_str("node", n->id),
              f_int("containers", (int64_t)count), f_str("kind", rpc_fault_name(e->kind)),
              f_str("why", e->err.msg));
    bool remote = e->kind != RPC_FAULT_AUTH && e->kind != RPC_FAULT_UNREACHABLE &&
                  e->kind != RPC_FAULT_NOT_READY && e->kind != RPC_FAULT_LOCAL;
    while ((b = starting(n))) {
        if (e->kind == RPC_FAULT_NOT_READY || e->kind == RPC_FAULT_RETRIABLE) {
            b->state = BOX_TO_START;
            n->start_at = now + yarn_pause(y, YARN_NODE_RETRY_MS);
        } else if (e->kind == RPC_FAULT_AUTH) {
            /* its keys are new: the ResourceManager sends another token, or it does not */
            b->token_by_ms =
                b->token_by_ms ? b->token_by_ms : now + yarn_pause(y, YARN_TOKEN_WAIT_MS);
            if (now >= b->token_by_ms)
                box_fail(y, b, END_LAUNCH_FAILED, "node manager '%s' does not accept our token: %s",
                         n->id, e->err.msg);
            else
                b->state = BOX_TO_START;
            n->start_at = now + yarn_pause(y, YARN_NODE_RETRY_MS);
        } else if (e->maybe_done || (remote && count > 1)) {
            b->state = BOX_DOUBT;
            n->one_by_one = true;
        } else if (remote) {
            start_refused(n, b, span_of(e->class_name), span_of(*e->line ? e->line : e->err.msg));
        } else {
            box_fail(y, b, END_LAUNCH_FAILED, "%s", e->err.msg);
        }
    }
    if (e->kind == RPC_FAULT_AUTH && n->client)
        y->wire->client_retire(TAKE(n->client));
}

static void on_start(const Hadoop__StartContainersResponse *r, const struct rpc_error *e, void *arg)
{
    struct node *n = arg;
    struct box *b;

    n->start = NULL;
    if (n->counted)
        n->y->n_starting--;
    n->counted = false;
    if (e)
        start_failed(n, e);
    for (size_t i = 0; r && i < r->n_succeeded_requests; i++)
        if ((b = box_find(n->y, r->succeeded_requests[i])) && b->state == BOX_STARTING)
            is_started(b);
    for (size_t i = 0; r && i < r->n_failed_requests; i++) {
        const Hadoop__RemoteError *x = r->failed_requests[i]->exception;
        if ((b = box_find(n->y, r->failed_requests[i]->container_id)) && b->state == BOX_STARTING)
            start_refused(n, b, span_of(x ? x->class_name : NULL), span_of(x ? x->message : NULL));
    }
    while (r && (b = starting(n))) /* neither: ask */
        b->state = BOX_DOUBT;
    node_pump(n);
    pump_others(n->y);
}

static void start_some(struct node *n)
{
    struct box *v[YARN_BATCH_MAX];
    size_t count = 0, max = n->one_by_one ? 1 : YARN_BATCH_MAX;
    struct err e = { 0 };

    for (size_t i = 0; i < n->boxes.n && count < max; i++)
        if (n->boxes.v[i]->state == BOX_TO_START)
            v[count++] = n->boxes.v[i];
    int rc = connect_it(n, &e);
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
    n->counted = true;
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
        if (b && b->state != BOX_ENDED) /* it does not know it, or says so: the look tells */
            b->look_until = clock_mono_ms() + yarn_pause(n->y, YARN_NODE_RETRY_MS);
    }
    node_pump(n);
}

static bool to_stop(const struct box *b)
{
    return b->stop_wanted && !b->stop_told && (b->state == BOX_STARTED || b->state == BOX_DOUBT);
}

static bool to_look(const struct box *b)
{
    return b->state == BOX_DOUBT || (b->state == BOX_STARTED && b->look_until);
}

/* The ids of those that fit, for a request; NULL when there are none, or no memory. */
static size_t pick(struct node *n, bool (*fits)(const struct box *), struct yarn_id_msg *ids,
                   Hadoop__ContainerId **out)
{
    size_t count = 0;
    for (size_t i = 0; i < n->boxes.n && count < YARN_BATCH_MAX; i++) {
        struct box *b = n->boxes.v[i];
        if (!fits(b))
            continue;
        out[count] = yarn_container_msg(&ids[count], &b->key);
        count++;
        if (fits == to_stop) {
            b->stop_told = true;
            b->look_until = clock_mono_ms() + yarn_pause(n->y, YARN_LOOK_FOR_MS);
        }
    }
    return count;
}

static void stop_some(struct node *n)
{
    struct yarn_id_msg ids[YARN_BATCH_MAX];
    Hadoop__ContainerId *v[YARN_BATCH_MAX];
    Hadoop__StopContainersRequest rq = HADOOP__STOP_CONTAINERS_REQUEST__INIT;
    if (connect_it(n, NULL) < 0)
        return;
    rq.container_id = v;
    rq.n_container_id = pick(n, to_stop, ids, v);
    if (rq.n_container_id)
        n->stop = n->y->wire->stop_containers(
            n->client, &rq, clock_mono_ms() + yarn_pause(n->y, YARN_NODE_MS), on_stop, n);
}

/* ---- looking ---- */

static void on_status(const Hadoop__GetContainerStatusesResponse *r, const struct rpc_error *e,
                      void *arg)
{
    struct node *n = arg;
    struct box *b;

    n->status = NULL;
    if (e) {
        log_event(LOG_DEBUG, "node.status_failed", f_str("node", n->id), f_str("why", e->err.msg));
        n->look_at = clock_mono_ms() + yarn_pause(n->y, YARN_NODE_RETRY_MS);
    }
    for (size_t i = 0; r && i < r->n_status; i++) {
        const Hadoop__ContainerStatus *s = r->status[i];
        if (!(b = box_find(n->y, s->container_id)) || b->state == BOX_ENDED)
            continue;
        if (s->has_state && s->state == HADOOP__CONTAINER_STATE__C_COMPLETE)
            box_end_at_node(n->y, b, s->exit_status, s->diagnostics);
        else if (b->state == BOX_DOUBT)
            is_started(b);
    }
    for (size_t i = 0; r && i < r->n_failed_requests; i++) {
        b = box_find(n->y, r->failed_requests[i]->container_id);
        if (b && b->state == BOX_DOUBT) /* not known there: not started */
            b->state = BOX_TO_START;
    }
    node_pump(n);
}

static void look(struct node *n)
{
    struct yarn_id_msg ids[YARN_BATCH_MAX];
    Hadoop__ContainerId *v[YARN_BATCH_MAX];
    Hadoop__GetContainerStatusesRequest rq = HADOOP__GET_CONTAINER_STATUSES_REQUEST__INIT;
    n->look_at = clock_mono_ms() + yarn_pause(n->y, YARN_LOOK_MS);
    if (connect_it(n, NULL) < 0)
        return;
    rq.container_id = v;
    rq.n_container_id = pick(n, to_look, ids, v);
    if (rq.n_container_id)
        n->status = n->y->wire->get_container_statuses(
            n->client, &rq, clock_mono_ms() + yarn_pause(n->y, YARN_NODE_MS), on_status, n);
}

static struct box *unexplained(struct node *n, int64_t now)
{
    for (size_t i = 0; i < n->boxes.n; i++)
        if (n->boxes.v[i]->why_by && now >= n->boxes.v[i]->why_by)
            return n->boxes.v[i];
    return NULL;
}

/* What was looked for long enough: one that we stopped is the ResourceManager's to end. And what
 * was to be stopped before it was started is given back. */
static void expire(struct node *n, int64_t now)
{
    struct box *of_rm;
    while ((of_rm = unexplained(n, now)))
        box_end(n->y, of_rm, of_rm->ended_as, NULL);
    for (size_t i = n->boxes.n; i-- > 0;) {
        struct box *b = n->boxes.v[i];
        if (b->look_until && now >= b->look_until) {
            b->look_until = 0;
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
    if (in_state(n, BOX_TO_START) && !n->start) {
        if (n->has_token && now >= n->start_at && y->n_starting < YARN_STARTS_MAX)
            start_some(n);
        if (!n->start && now < n->start_at)
            next = n->start_at;
    }
    if (n->start && n->counted)
        next = MIN(next, n->sent_ms + YARN_SLOW_MS);
    for (size_t i = 0; n->has_token && i < n->boxes.n; i++) {
        const struct box *b = n->boxes.v[i];
        if (to_stop(b) && !n->stop) {
            stop_some(n);
        } else if (to_look(b) && !n->status) {
            if (now >= n->look_at)
                look(n);
            else
                next = MIN(next, n->look_at);
        }
        if (b->look_until)
            next = MIN(next, b->look_until);
        if (b->why_by)
            next = MIN(next, b->why_by);
    }
    if (next != INT64_MAX)
        loop_timer_set(n->timer, next);
}
