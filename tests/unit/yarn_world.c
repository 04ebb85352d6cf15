/* SPDX-License-Identifier: Apache-2.0 */
#include "yarn_world.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/fs.h"
#include "loop/loop.h"
#include "scheduler/yarn/yarn.h"
#include "scheduler/yarn/yarn_int.h"

enum { HURRY = 50 };

struct rpc_call {
    enum kind kind;
    struct rpc_client *client;
    ProtobufCMessage *rq;
    void (*done)(void);
    void *arg;
    bool cancelled;
    struct rpc_call *next;
};

struct world *w;

/* ---- the wire ---- */

static int client_new(const struct rpc_client_options *o, struct rpc_client **out, struct err *e)
{
    struct rpc_client *c = calloc(1, sizeof *c);
    (void)e;
    c->protocol = str_dup(o->protocol);
    c->host = str_dup(o->addresses->v[0].host);
    c->token = o->token ? str_dup(o->token->identifier) : NULL;
    *out = c;
    return 0;
}

static void client_free(struct rpc_client *c)
{
    if (!c)
        return;
    for (struct rpc_call *x = w->first; x; x = x->next)
        if (x->client == c)
            x->cancelled = true;
    free(c->protocol);
    free(c->host);
    free(c->token);
    free(c);
}

static void client_retire(struct rpc_client *c)
{
    free(c->protocol);
    free(c->host);
    free(c->token);
    free(c);
}

static const char *client_local(const struct rpc_client *c)
{
    (void)c;
    return "10.1.2.3";
}

static void call_cancel(struct rpc_call *c)
{
    c->cancelled = true;
}

static struct rpc_call *called(enum kind kind, struct rpc_client *c, const ProtobufCMessage *rq,
                               void (*done)(void), void *arg)
{
    struct rpc_call *x = calloc(1, sizeof *x), **at = &w->first;
    size_t n = protobuf_c_message_get_packed_size(rq);
    uint8_t *bytes = malloc(n + 1);
    *x = (struct rpc_call){ .kind = kind, .client = c, .done = done, .arg = arg };
    protobuf_c_message_pack(rq, bytes);
    x->rq = protobuf_c_message_unpack(rq->descriptor, NULL, n, bytes);
    assert_non_null(x->rq);
    free(bytes);
    while (*at)
        at = &(*at)->next;
    *at = x;
    w->n_calls[kind]++;
    loop_timer_set(w->timer, clock_mono_ms());
    return x;
}

#define FAKE(fn, M, kind)                                                                          \
    static struct rpc_call *fn(                                                                    \
        struct rpc_client *c, const Hadoop__##M##Request *rq, int64_t deadline,                    \
        void (*done)(const Hadoop__##M##Response *, const struct rpc_error *, void *), void *arg)  \
    {                                                                                              \
        (void)deadline;                                                                            \
        return called(kind, c, &rq->base, (void (*)(void))done, arg);                              \
    }
FAKE(get_cluster_nodes, GetClusterNodes, K_NODES)
FAKE(get_application_report, GetApplicationReport, K_REPORT)
FAKE(update_timeouts, UpdateApplicationTimeouts, K_TIMEOUTS)
FAKE(register_master, RegisterApplicationMaster, K_REGISTER)
FAKE(allocate, Allocate, K_ALLOCATE)
FAKE(finish_master, FinishApplicationMaster, K_FINISH)
FAKE(start_containers, StartContainers, K_START)
FAKE(stop_containers, StopContainers, K_STOP)
FAKE(get_container_statuses, GetContainerStatuses, K_STATUS)
#undef FAKE

static struct yarn_wire wire = {
    .client_new = client_new,
    .client_free = client_free,
    .client_retire = client_retire,
    .client_local = client_local,
    .call_cancel = call_cancel,
    .end_of = yarn_end_of,
#define X(fn, M) .fn = fn,
    YARN_WIRE(X)
#undef X
        .hurry = HURRY,
};

/* ---- the world's answers ---- */

static void deliver(struct rpc_call *c, const ProtobufCMessage *r, const struct rpc_error *e)
{
    void (*done)(const ProtobufCMessage *, const struct rpc_error *, void *) =
        (void (*)(const ProtobufCMessage *, const struct rpc_error *, void *))c->done;
    if (!c->cancelled)
        done(r, e, c->arg);
    w->n_answered[c->kind]++;
}

static bool failed(struct rpc_call *c)
{
    struct rpc_error e = { .kind = w->fail[c->kind].kind,
                           .maybe_done = w->fail[c->kind].maybe_done };
    const Hadoop__AllocateRequest *rq = (const Hadoop__AllocateRequest *)c->rq;
    if (!e.kind || (e.kind == RPC_FAULT_INVALID_RESOURCE && !rq->n_ask))
        return false; /* the call asks for no container, so its resources cannot be the fault */
    if (w->fail[c->kind].class_name)
        (void)str_copy(e.class_name, sizeof e.class_name, w->fail[c->kind].class_name);
    (void)str_copy(e.line, sizeof e.line, w->fail[c->kind].line ? w->fail[c->kind].line : "");
    (void)err_set(&e.err, EIO, "scripted: %s", e.line);
    w->fail[c->kind].kind = RPC_FAULT_NONE;
    deliver(c, NULL, &e);
    return true;
}

static struct yarn_container box_key(int i)
{
    return (struct yarn_container){ .attempt = { .app = { 1, 1 }, .attempt = 1 }, .id = i + 2 };
}

static int box_of(const Hadoop__ContainerId *id)
{
    assert_true(id->id >= 2 && id->id < 2 + w->n_boxes);
    return (int)id->id - 2;
}

static struct err no_err;

static Hadoop__Token *token(const char *identifier)
{
    static Hadoop__Token t[2];
    static int at;
    Hadoop__Token *x = &t[at++ % 2];
    hadoop__token__init(x);
    x->identifier = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)identifier,
                                           .len = strlen(identifier) };
    x->password = x->identifier;
    x->kind = x->service = (char *)(uintptr_t) "k";
    return x;
}

static void answer_register(struct rpc_call *c)
{
    const Hadoop__RegisterApplicationMasterRequest *rq = (const void *)c->rq;
    Hadoop__RegisterApplicationMasterResponse r =
        HADOOP__REGISTER_APPLICATION_MASTER_RESPONSE__INIT;
    Hadoop__Resource max = HADOOP__RESOURCE__INIT;
    assert_string_equal(rq->host, "10.1.2.3");
    assert_int_equal(rq->rpc_port, 7000);
    (void)str_copy(w->page, sizeof w->page, rq->tracking_url);
    max.has_memory = max.has_virtual_cores = true;
    max.memory = 4096;
    max.virtual_cores = 8;
    r.maximum_capability = &max;
    w->id = 0;
    static Hadoop__Container kept[2], *list[2];
    static struct yarn_id_msg ids[2];
    static Hadoop__NodeId node;
    static Hadoop__NmToken nm, *nms[1] = { &nm };
    hadoop__node_id__init(&node);
    node.host = (char *)(uintptr_t) "n1";
    node.has_port = true;
    node.port = 45454;
    hadoop__nm_token__init(&nm);
    nm.node_id = &node;
    nm.token = token("kept");
    for (int i = 0; w->second && i < 2; i++) {
        struct yarn_container key = box_key(i);
        hadoop__container__init(&kept[i]);
        kept[i].id = yarn_container_msg(&ids[i], &key);
        kept[i].node_id = &node;
        kept[i].node_http_address = (char *)(uintptr_t) "n1:8042";
        kept[i].has_allocation_request_id = true;
        kept[i].allocation_request_id = w->boxes[i].slot;
        list[i] = &kept[i];
        r.n_containers_from_previous_attempts++;
    }
    r.containers_from_previous_attempts = list;
    r.nm_tokens_from_previous_attempts = nms;
    r.n_nm_tokens_from_previous_attempts = w->second;
    deliver(c, &r.base, NULL);
}

static void answer_nodes(struct rpc_call *c)
{
    Hadoop__GetClusterNodesResponse r = HADOOP__GET_CLUSTER_NODES_RESPONSE__INIT;
    Hadoop__NodeReport n = HADOOP__NODE_REPORT__INIT, *v[] = { &n, &n };
    n.rack_name = (char *)(uintptr_t) "/default-rack";
    r.node_reports = v;
    r.n_node_reports = 2;
    deliver(c, &r.base, NULL);
}

static void answer_report(struct rpc_call *c)
{
    Hadoop__GetApplicationReportResponse r = HADOOP__GET_APPLICATION_REPORT_RESPONSE__INIT;
    Hadoop__ApplicationReport app = HADOOP__APPLICATION_REPORT__INIT;
    app.has_yarn_application_state = true;
    app.yarn_application_state = --w->killed_after == 0 ? HADOOP__YARN_APPLICATION_STATE__KILLED
                                                        : HADOOP__YARN_APPLICATION_STATE__RUNNING;
    app.diagnostics =
        (char *)(uintptr_t) "Application application_1_0001 was killed by user ann at 10.0.0.1";
    struct yarn_attempt attempt = { .app = { 1, 1 }, .attempt = w->attempt ? w->attempt : 1 };
    struct yarn_id_msg m;
    app.current_application_attempt_id = yarn_attempt_msg(&m, &attempt);
    r.application_report = &app;
    deliver(c, &r.base, NULL);
}

static void answer_timeouts(struct rpc_call *c)
{
    const Hadoop__UpdateApplicationTimeoutsRequest *rq = (const void *)c->rq;
    Hadoop__UpdateApplicationTimeoutsResponse r =
        HADOOP__UPDATE_APPLICATION_TIMEOUTS_RESPONSE__INIT;
    assert_int_equal(rq->application_id->id, 1);
    assert_int_equal(rq->n_application_timeouts, 1);
    (void)str_copy(w->expires, sizeof w->expires, rq->application_timeouts[0]->expire_time);
    deliver(c, &r.base, NULL);
}

void world_grant(uint32_t slot)
{
    struct fake_box *b = &w->boxes[w->n_boxes];
    *b = (struct fake_box){ .slot = slot, .granted = true };
    (void)snprintf(b->node, sizeof b->node, "n%d", w->n_boxes % 2);
    w->n_boxes++;
}

static void take_asks(const Hadoop__AllocateRequest *rq)
{
    for (size_t i = 0; i < rq->n_ask; i++) {
        const Hadoop__ResourceRequest *a = rq->ask[i];
        assert_true(a->relax_locality && a->has_allocation_request_id);
        assert_int_equal(a->priority->priority, 1);
        if (a->resource_name[0] == '/') {
            w->n_racks++;
            continue;
        }
        if (!str_eq(a->resource_name, "*")) {
            (void)buf_addf(&w->node_asks, "%lld %s %d\n", (long long)a->allocation_request_id,
                           a->resource_name, a->num_containers);
            continue;
        }
        w->n_asks++;
        if (a->allocation_request_id < BOXES_MAX)
            w->want[a->allocation_request_id] = a->num_containers;
        else
            w->far_slot = a->num_containers ? (uint32_t)a->allocation_request_id : 0;
    }
    for (uint32_t s = 0; s < BOXES_MAX && w->grants; s++)
        if (w->want[s]) {
            w->want[s] = false;
            world_grant(s);
        }
    for (size_t i = 0; i < rq->n_release; i++) {
        struct fake_box *b = &w->boxes[box_of(rq->release[i])];
        b->released = true;
        if (!b->ended) {
            b->ended = true;
            b->exit_status = -100;
            w->complete[w->n_complete++] = (int)(b - w->boxes);
        }
    }
}

static void note_avoided(const Hadoop__ResourceBlacklistRequest *rq)
{
    if (!rq)
        return;
    strv_done(&w->avoided);
    for (size_t i = 0; i < rq->n_blacklist_additions; i++)
        (void)strv_pushf(&w->avoided, "+%s", rq->blacklist_additions[i]);
    for (size_t i = 0; i < rq->n_blacklist_removals; i++)
        (void)strv_pushf(&w->avoided, "-%s", rq->blacklist_removals[i]);
}

/* The parts of an answer stay valid until it is delivered: they are static. */

static void add_granted(Hadoop__AllocateResponse *r)
{
    static struct {
        Hadoop__Container c;
        struct yarn_id_msg id;
        Hadoop__NodeId node;
        Hadoop__Resource r;
        Hadoop__ResourceInformation gpu, *v[1];
        Hadoop__NmToken nm;
    } m[BOXES_MAX];
    static Hadoop__Container *granted[BOXES_MAX];
    static Hadoop__NmToken *nms[BOXES_MAX];

    for (; w->told < w->n_boxes; w->told++) {
        struct fake_box *b = &w->boxes[w->told];
        struct yarn_container key = box_key(w->told);
        size_t i = r->n_allocated_containers++;
        hadoop__container__init(&m[i].c);
        hadoop__node_id__init(&m[i].node);
        hadoop__resource__init(&m[i].r);
        hadoop__nm_token__init(&m[i].nm);
        hadoop__resource_information__init(&m[i].gpu);
        m[i].c.id = yarn_container_msg(&m[i].id, &key);
        m[i].node.host = b->node;
        m[i].node.has_port = true;
        m[i].node.port = 45454;
        m[i].c.node_id = &m[i].node;
        m[i].c.node_http_address = (char *)(uintptr_t) "n:8042";
        m[i].c.container_token = token("container");
        m[i].c.resource = &m[i].r;
        m[i].gpu.key = (char *)(uintptr_t) "yarn.io/gpu";
        m[i].gpu.has_value = true;
        m[i].gpu.value = w->granted_gpus;
        m[i].v[0] = &m[i].gpu;
        m[i].r.resource_value_map = m[i].v;
        m[i].r.n_resource_value_map = 1;
        m[i].c.has_allocation_request_id = true;
        m[i].c.allocation_request_id = b->slot;
        m[i].nm.node_id = &m[i].node;
        m[i].nm.token = token("nm");
        granted[i] = &m[i].c;
        nms[i] = &m[i].nm;
    }
    r->allocated_containers = granted;
    r->nm_tokens = nms;
    r->n_nm_tokens = r->n_allocated_containers;
}

static void add_completed(Hadoop__AllocateResponse *r)
{
    static struct {
        struct yarn_id_msg id;
        Hadoop__ContainerStatus status;
    } m[ARRAY_LEN(w->complete)];
    static Hadoop__ContainerStatus *ended[ARRAY_LEN(w->complete)];

    for (int i = 0; i < w->n_complete; i++) {
        struct yarn_container key = box_key(w->complete[i]);
        hadoop__container_status__init(&m[i].status);
        m[i].status.container_id = yarn_container_msg(&m[i].id, &key);
        m[i].status.has_exit_status = true;
        m[i].status.exit_status = w->boxes[w->complete[i]].exit_status;
        m[i].status.diagnostics = (char *)(uintptr_t) "";
        ended[i] = &m[i].status;
    }
    r->completed_container_statuses = ended;
    r->n_completed_container_statuses = (size_t)w->n_complete;
    w->n_complete = 0;
}

static void add_unhealthy_node(Hadoop__AllocateResponse *r)
{
    static Hadoop__NodeReport report, *reports[] = { &report };
    static Hadoop__NodeId id;

    hadoop__node_report__init(&report);
    hadoop__node_id__init(&id);
    id.host = (char *)(uintptr_t) "n0";
    id.has_port = report.has_node_state = true;
    id.port = 45454;
    report.node_id = &id;
    report.node_state = HADOOP__NODE_STATE__NS_UNHEALTHY;
    report.health_report = (char *)(uintptr_t)TAKE(w->health);
    r->updated_nodes = reports;
    r->n_updated_nodes = report.health_report != NULL;
}

static void add_preempted(Hadoop__AllocateResponse *r)
{
    static Hadoop__PreemptionMessage preempt;
    static Hadoop__StrictPreemptionContract strict;
    static Hadoop__PreemptionContract other;
    static Hadoop__PreemptionContainer gone[2], *list[2] = { &gone[0], &gone[1] };
    static struct yarn_id_msg ids[2];

    hadoop__preemption_message__init(&preempt);
    hadoop__strict_preemption_contract__init(&strict);
    hadoop__preemption_contract__init(&other);
    for (int i = 0; i < 2; i++) {
        struct yarn_container key = box_key(MAX(w->preempt[i], 1) - 1);
        hadoop__preemption_container__init(&gone[i]);
        gone[i].id = yarn_container_msg(&ids[i], &key);
    }
    strict.container = &list[0];
    other.container = &list[1];
    strict.n_container = other.n_container = 1;
    preempt.strict_contract = w->preempt[0] ? &strict : NULL;
    preempt.contract = w->preempt[1] ? &other : NULL;
    r->preempt = w->preempt[0] || w->preempt[1] ? &preempt : NULL;
}

static void answer_allocate(struct rpc_call *c)
{
    const Hadoop__AllocateRequest *rq = (const void *)c->rq;
    Hadoop__AllocateResponse r = HADOOP__ALLOCATE_RESPONSE__INIT;

    if (rq->response_id != w->id) {
        struct rpc_error e = { .kind = RPC_FAULT_INVALID_REQUEST };
        (void)snprintf(e.line, sizeof e.line, "bad, expect responseId to be %d but get %d", w->id,
                       rq->response_id);
        deliver(c, NULL, &e);
        return;
    }
    note_avoided(rq->blacklist_request);
    w->progress = rq->progress;
    take_asks(rq);
    r.has_response_id = true;
    r.response_id = ++w->id;
    add_granted(&r);
    add_completed(&r);
    add_unhealthy_node(&r);
    add_preempted(&r);
    if (w->roll)
        r.am_rm_token = token("rolled");
    deliver(c, &r.base, NULL);
}

static void answer_finish(struct rpc_call *c)
{
    const Hadoop__FinishApplicationMasterRequest *rq = (const void *)c->rq;
    Hadoop__FinishApplicationMasterResponse r = HADOOP__FINISH_APPLICATION_MASTER_RESPONSE__INIT;
    (void)str_copy(w->diagnostics, sizeof w->diagnostics, rq->diagnostics);
    r.has_is_unregistered = true;
    r.is_unregistered = --w->finish_after < 0;
    deliver(c, &r.base, NULL);
}

static void answer_start(struct rpc_call *c)
{
    const Hadoop__StartContainersRequest *rq = (const void *)c->rq;
    Hadoop__StartContainersResponse r = HADOOP__START_CONTAINERS_RESPONSE__INIT;
    static struct yarn_id_msg ids[BOXES_MAX];
    static Hadoop__ContainerId *ok[BOXES_MAX];
    static Hadoop__FailedContainer failure, *failures[1];
    static Hadoop__RemoteError why;
    int host = c->client->host[1] - '0', at = 0;

    for (size_t i = 0; i < rq->n_start_container_request; i++) {
        const Hadoop__ContainerLaunchContext *x =
            rq->start_container_request[i]->container_launch_context;
        struct buf env = { 0 };
        while (w->boxes[at].starts || w->boxes[at].released || w->boxes[at].node[1] - '0' != host)
            at++; /* the token does not name the container: they come in order */
        struct yarn_container key = box_key(at);
        for (size_t k = 0; k < x->n_environment; k++)
            (void)buf_addf(&env, "%s=%s\n", x->environment[k]->key, x->environment[k]->value);
        (void)str_copy(w->env, sizeof w->env, buf_cstr(&env));
        buf_done(&env);
        (void)str_copy(w->command, sizeof w->command, x->command[0]);
        w->n_tokens = x->tokens.len;
        w->n_resources = x->n_local_resources;
        yarn_container_msg(&ids[at], &key);
        if (w->refuse.class_name) {
            hadoop__failed_container__init(&failure);
            hadoop__remote_error__init(&why);
            why.class_name = (char *)(uintptr_t)w->refuse.class_name;
            why.message = (char *)(uintptr_t)w->refuse.message;
            failure.container_id = &ids[at].container;
            failure.exception = &why;
            failures[0] = &failure;
            r.failed_requests = failures;
            r.n_failed_requests = 1;
            w->refuse.class_name = NULL;
            continue;
        }
        w->boxes[at].starts++;
        ok[r.n_succeeded_requests++] = &ids[at].container;
    }
    r.succeeded_requests = ok;
    deliver(c, &r.base, NULL);
}

static void answer_stop(struct rpc_call *c)
{
    const Hadoop__StopContainersRequest *rq = (const void *)c->rq;
    Hadoop__StopContainersResponse r = HADOOP__STOP_CONTAINERS_RESPONSE__INIT;
    for (size_t i = 0; i < rq->n_container_id; i++) {
        struct fake_box *b = &w->boxes[box_of(rq->container_id[i])];
        b->stops++;
        if (!b->ended)
            b->exit_status = -105;
        b->ended = true;
    }
    deliver(c, &r.base, NULL);
}

static void answer_status(struct rpc_call *c)
{
    const Hadoop__GetContainerStatusesRequest *rq = (const void *)c->rq;
    Hadoop__GetContainerStatusesResponse r = HADOOP__GET_CONTAINER_STATUSES_RESPONSE__INIT;
    static Hadoop__ContainerStatus v[64], *p[64];
    static Hadoop__FailedContainer f[64], *q[64];
    for (size_t i = 0; i < rq->n_container_id; i++) {
        struct fake_box *b = &w->boxes[box_of(rq->container_id[i])];
        if (!b->starts) {
            hadoop__failed_container__init(&f[i]);
            f[i].container_id = rq->container_id[i];
            q[r.n_failed_requests++] = &f[i];
            continue;
        }
        hadoop__container_status__init(&v[i]);
        v[i].container_id = rq->container_id[i];
        v[i].has_state = v[i].has_exit_status = true;
        v[i].state =
            b->ended ? HADOOP__CONTAINER_STATE__C_COMPLETE : HADOOP__CONTAINER_STATE__C_RUNNING;
        v[i].exit_status = b->exit_status;
        b->looks++;
        v[i].diagnostics = (char *)(uintptr_t) "";
        p[r.n_status++] = &v[i];
    }
    r.status = p;
    r.failed_requests = q;
    deliver(c, &r.base, NULL);
}

static bool is_kept(const struct rpc_call *c)
{
    return (w->silent_node && c->kind >= K_START && str_eq(c->client->host, "n1")) ||
           (w->holds && c->kind == K_ALLOCATE);
}

static void on_timer(void *arg)
{
    static void (*const answers[K_COUNT])(struct rpc_call *) = {
        [K_NODES] = answer_nodes,       [K_REPORT] = answer_report,
        [K_TIMEOUTS] = answer_timeouts, [K_REGISTER] = answer_register,
        [K_ALLOCATE] = answer_allocate, [K_FINISH] = answer_finish,
        [K_START] = answer_start,       [K_STOP] = answer_stop,
        [K_STATUS] = answer_status,
    };
    (void)arg;
    struct rpc_call *todo = TAKE(w->first), *kept = NULL, *next;
    for (struct rpc_call *c = todo; c; c = next) {
        next = c->next;
        if (!c->cancelled && is_kept(c)) {
            c->next = kept;
            kept = c;
            continue;
        }
        if (!c->cancelled && !failed(c))
            answers[c->kind](c);
        protobuf_c_message_free_unpacked(c->rq, NULL);
        free(c);
    }
    while (kept) {
        next = kept->next;
        kept->next = w->first;
        w->first = kept;
        kept = next;
    }
}

/* ---- the master's side ---- */

static void on_event(const struct sched_event *ev, void *arg)
{
    static const char *const names[SE_COUNT] = {
        [SE_NONE] = "",           [SE_REGISTERED] = "reg", [SE_ALLOCATED] = "got",
        [SE_REFUSED] = "refused", [SE_COMPLETED] = "end",  [SE_SHRINK] = "shrink",
        [SE_GROW] = "grow",       [SE_BROKEN] = "broken",  [SE_PREEMPTING] = "preempting",
    };
    (void)arg;
    (void)buf_addf(&w->said, "%s", names[ev->type]);
    if (ev->type == SE_REFUSED)
        (void)buf_addf(&w->said, ":%u:%s", ev->slot, ev->text);
    if (ev->type == SE_BROKEN)
        (void)buf_addf(&w->said, ":%s", ev->text);
    if (ev->type == SE_REGISTERED) {
        w->n_asked_before = w->n_calls[K_ALLOCATE];
        assert_string_equal(ev->text, "10.1.2.3");
    }
    for (size_t i = 0; i < ev->n; i++) {
        const struct sched_container *c = &ev->containers[i];
        (void)buf_addf(&w->said, ":%u", c->slot);
        if (ev->type == SE_REGISTERED && c->completed)
            (void)buf_addf(&w->said, "=%d", c->exit_code);
        if (ev->type == SE_COMPLETED)
            (void)str_copy(w->detail, sizeof w->detail, c->detail ? c->detail : "");
        if (ev->type == SE_COMPLETED)
            (void)buf_addf(&w->said, ":%s", end_reason_name(c->reason));
        if (ev->type != SE_ALLOCATED)
            continue;
        assert_non_null(strstr(c->node, ":45454"));
        assert_non_null(
            strstr(c->log_url, "http://n:8042/node/containerlogs/container_1_0001_01_"));
        (void)strv_push(&w->ids, c->id);
        if (w->launches)
            assert_int_equal(sched_yarn.launch(w->s, c, 1, NULL), 0);
    }
    (void)buf_addc(&w->said, ' ');
}

static bool there(void)
{
    const char *at = buf_cstr(&w->said);
    int n = 0;
    while (w->want_text && (at = strstr(at, w->want_text))) {
        n++;
        at++;
    }
    return n >= w->want_n;
}

static void on_tick(void *arg)
{
    bool *done = arg ? arg : NULL;
    (void)done;
    if (there() || clock_mono_ms() >= w->deadline) {
        w->timed_out = !there();
        loop_stop(w->loop);
        return;
    }
    loop_timer_set(w->tick, clock_mono_ms() + 1);
}

/* Waits until the text has been said n times. */
void world_until(const char *text, int n)
{
    w->want_text = text;
    w->want_n = n;
    w->deadline = clock_mono_ms() + 60000;
    loop_timer_set(w->tick, clock_mono_ms());
    (void)loop_run(w->loop);
    if (w->timed_out)
        fail_msg("never said '%s' %d times: %s", text, n, buf_cstr(&w->said));
}

void world_hurry(uint32_t times)
{
    wire.hurry = times;
}

void world_pass(int ms)
{
    w->want_text = NULL;
    w->want_n = 1;
    w->deadline = clock_mono_ms() + ms;
    loop_timer_set(w->tick, clock_mono_ms());
    (void)loop_run(w->loop);
}

void world_ask(uint32_t from, uint32_t n, uint64_t memory_mib)
{
    for (uint32_t i = from; i < from + n; i++) {
        struct sched_ask a = { .slot = i, .memory_mib = memory_mib, .vcores = 1, .role = "worker" };
        assert_int_equal(sched_yarn.request(w->s, &a, 1, NULL), 0);
    }
}

static void write_files(void)
{
    static const char json[] =
        "{\"format\":1,\"user\":\"ann\",\"queue\":\"q\",\"rm\":[\"rm:1\"],\"scheduler\":[\"rm:2\"],"
        "\"namenodes\":[\"nn:3\"],\"default_fs\":\"hdfs://nn\",\"protection\":\"\","
        "\"staging\":\"/s\",\"history\":\"/h\",\"am_expiry_ms\":0,\"https\":false,"
        "\"keep_containers\":false,\"resources\":[{\"name\":\"tony-executor\",\"role\":\"\","
        "\"scheme\":\"hdfs\",\"host\":\"nn\",\"port\":-1,\"file\":\"/x\",\"size\":1,"
        "\"timestamp_ms\":1,\"type\":\"FILE\",\"visibility\":\"PRIVATE\"},{\"name\":\"data\","
        "\"role\":\"ps\",\"scheme\":\"hdfs\",\"host\":\"nn\",\"port\":-1,\"file\":\"/"
        "d\",\"size\":1,"
        "\"timestamp_ms\":1,\"type\":\"ARCHIVE\",\"visibility\":\"PRIVATE\"}],"
        "\"roles\":[{\"name\":\"gpu\",\"types\":[\"yarn.io/gpu=1\"],\"label\":\"\",\"env\":[]},"
        "{\"name\":\"\",\"types\":[],\"label\":\"\",\"env\":[\"K=v=1\"]}]}";
    AUTO(buf_done) struct buf hdts = { 0 };
    struct credentials c = { 0 };
    struct token t = { .identifier = (char *)(uintptr_t) "first",
                       .identifier_len = 5,
                       .password = (char *)(uintptr_t) "p",
                       .password_len = 1,
                       .kind = (char *)(uintptr_t)TOKEN_KIND_AM_RM,
                       .service = (char *)(uintptr_t) "" };
    char path[100];
    assert_int_equal(credentials_add_token(&c, "", &t), 0);
    assert_int_equal(credentials_write(&c, &hdts), 0);
    credentials_done(&c);
    (void)snprintf(path, sizeof path, "%s/tokens", w->dir);
    assert_int_equal(fs_write_atomic(AT_FDCWD, path, buf_span(&hdts), 0600, false, NULL), 0);
    (void)snprintf(path, sizeof path, "%s/yarn.json", w->dir);
    assert_int_equal(fs_write_atomic(AT_FDCWD, path, span_of(json), 0600, false, NULL), 0);
}

static bool is_stored(void *arg)
{
    (void)arg;
    w->n_stored++;
    return !w->not_stored;
}

static float half(void *arg)
{
    (void)arg;
    return 0.5F;
}

void world_open(uint32_t epoch)
{
    static struct job_key key;
    char tokens[100];
    struct err e = no_err;
    (void)snprintf(tokens, sizeof tokens, "%s/tokens", w->dir);
    struct sched_config cfg = { .loop = w->loop,
                                .epoch = epoch,
                                .application_id = "application_1_0001",
                                .job_dir = w->dir,
                                .master_port = 7000,
                                .page_port = 7001,
                                .key = &key,
                                .token_file = tokens,
                                .time_left_ms = w->time_left_ms,
                                .spec = w->spec,
                                .stored = is_stored,
                                .progress = half,
                                .on_event = on_event };
    if (yarn_open_with(&wire, &cfg, &w->s, &e) < 0)
        fail_msg("%s", e.msg);
    world_until("reg", 1);
}

int world_setup(void **state)
{
    (void)state;
    w = calloc(1, sizeof *w);
    world_hurry(HURRY);
    w->grants = w->launches = true;
    (void)snprintf(w->dir, sizeof w->dir, "/tmp/tony-yarn-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    write_files();
    w->loop = loop_new(NULL);
    w->timer = loop_timer_new(w->loop, on_timer, NULL);
    w->tick = loop_timer_new(w->loop, on_tick, NULL);
    world_open(1);
    return 0;
}

int world_teardown(void **state)
{
    struct rpc_call *next;
    (void)state;
    sched_yarn.close(w->s);
    for (struct rpc_call *c = w->first; c; c = next) {
        next = c->next;
        protobuf_c_message_free_unpacked(c->rq, NULL);
        free(c);
    }
    loop_timer_free(w->timer);
    loop_timer_free(w->tick);
    loop_free(w->loop);
    (void)fs_remove_tree(AT_FDCWD, w->dir, NULL);
    buf_done(&w->node_asks);
    buf_done(&w->said);
    strv_done(&w->ids);
    strv_done(&w->avoided);
    free(w);
    return 0;
}

static void on_done(void *arg)
{
    (void)arg;
    w->finished = true;
    (void)buf_adds(&w->said, "finished ");
}

void world_begin_finish(const char *state, const char *why)
{
    assert_int_equal(sched_yarn.finish(w->s, state, why, on_done, NULL), 0);
}

void world_finish(const char *state, const char *why)
{
    world_begin_finish(state, why);
    world_until("finished ", 1);
}

/* The ResourceManager reports that the box ended. */
void world_ends(int box, int status)
{
    w->boxes[box].ended = true;
    w->boxes[box].exit_status = status;
    w->complete[w->n_complete++] = box;
}
