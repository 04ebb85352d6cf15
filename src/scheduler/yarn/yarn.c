/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/yarn/yarn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "loop/loop.h"
#include "scheduler/yarn/yarn_int.h"

enum {
    FILE_MAX = 32 << 20, /* bytes of yarn.json */
    UNEXPECTED_MAX = 5,  /* unexpected errors in a row, after which the back-end gives up */
    RACKS_MAX = 64,
};

static struct yarn *yarn_of(struct sched *s)
{
    return (struct yarn *)(void *)s;
}

void yarn_emit(struct yarn *y, const struct sched_event *ev)
{
    y->cfg.on_event(ev, y->cfg.arg);
}

void yarn_finished(struct yarn *y)
{
    y->phase = YP_OVER;
    loop_timer_stop(y->timer);
    void (*done)(void *) = TAKE(y->finish_done);
    if (done)
        done(y->cfg.arg);
}

void yarn_broken(struct yarn *y, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    if (y->phase == YP_OVER)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (y->finishing) { /* the verdict cannot be reported to YARN; the master exits nevertheless */
        log_event(LOG_WARN, "yarn.not_told", f_str("why", text));
        yarn_finished(y);
        return;
    }
    y->phase = YP_OVER;
    loop_timer_stop(y->timer);
    yarn_emit(y, &(struct sched_event){ .type = SE_BROKEN, .text = text });
}

/* ---- connections ---- */

static int connect_rm(struct yarn *y, struct err *e)
{
    struct rpc_client_options o = {
        .loop = y->cfg.loop,
        .what = "the resource manager",
        .protocol = YARN_MASTER_PROTOCOL,
        .addresses = &y->scheduler_at,
        .token = &y->token,
        .idle_ms = UINT32_MAX,
    };
    return y->wire->client_new(&o, &y->rm, e);
}

int yarn_new_token(struct yarn *y, const Hadoop__Token *m)
{
    struct token t = { 0 };
    if (m->identifier.len == y->token.identifier_len &&
        memcmp(m->identifier.data, y->token.identifier, m->identifier.len) == 0)
        return 0; /* YARN repeats the new token in each answer while the old one is valid, too */
    if (token_from_msg(m, &t) < 0)
        return -ENOMEM;
    token_done(&y->token);
    y->token = t;
    log_event(LOG_INFO, "yarn.token_rolled");
    if (y->rm)
        y->wire->client_retire(TAKE(y->rm));
    return connect_rm(y, NULL); /* response ids continue on the new connection */
}

/* How long calls may fail before the back-end gives up. */
static int64_t retry_limit_ms(const struct yarn *y)
{
    return y->finishing            ? YARN_FINISH_WAIT_MS
           : y->file->am_expiry_ms ? y->file->am_expiry_ms
                                   : YARN_EXPIRY_MS;
}

void yarn_failed(struct yarn *y, const struct rpc_error *e, const char *what)
{
    int64_t now = clock_mono_ms();
    log_event(LOG_WARN, "yarn.failed", f_str("call", what), f_str("kind", rpc_fault_name(e->kind)),
              f_str("why", e->err.msg));
    y->next_ms = now + yarn_pause(y, YARN_RETRY_MS);
    if (e->kind == RPC_FAULT_NOT_REGISTERED) {
        log_event(LOG_INFO, "yarn.resync");
        yarn_replay(y);
        y->phase = YP_REGISTERING;
        y->next_ms = now;
        y->failing_since = 0;
        return;
    }
    if (e->kind == RPC_FAULT_AUTH || e->kind == RPC_FAULT_ATTEMPT_NOT_FOUND ||
        e->kind == RPC_FAULT_NOT_FOUND) {
        yarn_broken(y, "the resource manager does not know this master any more: %s", e->err.msg);
        return;
    }
    y->failing_since = y->failing_since ? y->failing_since : now;
    if (rpc_fault_passes(e->kind) ? now - y->failing_since >= retry_limit_ms(y)
                                  : ++y->n_unexpected >= UNEXPECTED_MAX)
        yarn_broken(y, "%s: %s", what, e->err.msg);
}

/* ---- registration ---- */

static void on_nodes(const Hadoop__GetClusterNodesResponse *r, const struct rpc_error *e, void *arg)
{
    struct yarn *y = arg;
    y->call = NULL;
    const char *host = y->wire->client_local(y->client);
    for (size_t i = 0; r && i < r->n_node_reports && y->racks.n < RACKS_MAX; i++) {
        const char *rack = r->node_reports[i]->rack_name;
        bool known = !rack || !*rack;
        for (size_t k = 0; k < y->racks.n && !known; k++)
            known = str_eq(y->racks.v[k], rack);
        if (!known && strv_push(&y->racks, rack) < 0)
            break; /* no memory; fewer racks do no harm */
    }
    if (e && !host) {
        yarn_failed(y, e, "cannot reach the resource manager");
    } else if (!host) {
        yarn_broken(y, "the address of this machine is unknown");
    } else {
        (void)str_copy(y->host, sizeof y->host, host);
        y->failing_since = 0;
        y->next_ms = 0;
        y->phase = YP_REGISTERING;
        y->wire->client_free(TAKE(y->client));
    }
    yarn_step(y);
}

static void meet(struct yarn *y)
{
    Hadoop__GetClusterNodesRequest rq = HADOOP__GET_CLUSTER_NODES_REQUEST__INIT;
    Hadoop__NodeState running = HADOOP__NODE_STATE__NS_RUNNING;
    rq.node_states = &running;
    rq.n_node_states = 1;
    y->call =
        y->wire->get_cluster_nodes(y->client, &rq, clock_mono_ms() + YARN_CALL_MS, on_nodes, y);
}

struct containers {
    VEC(struct sched_container) v;
    VEC(struct box_end_text *) texts;
};

static void containers_done(struct containers *s)
{
    for (size_t i = 0; i < s->texts.n; i++)
        free(s->texts.v[i]);
    vec_done(&s->texts);
    vec_done(&s->v);
}

static int add_end(struct yarn *y, struct containers *s, const Hadoop__ContainerStatus *status)
{
    struct yarn_container key;
    struct sched_container c;
    if (!yarn_container_get(status->container_id, &key))
        return 0;
    struct box_end_text *t = calloc(1, sizeof *t);
    if (!t || vec_push(&s->texts, t) < 0) {
        free(t);
        return -ENOMEM;
    }
    box_ended_before(y, &key, status, t, &c);
    return vec_push(&s->v, c);
}

void yarn_tell_registered(struct yarn *y, Hadoop__ContainerStatus *const *v, size_t n)
{
    struct containers s = { 0 };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_end(y, &s, v[i]);
    for (struct map_entry *x = map_next(&y->boxes, NULL); x && rc == 0;
         x = map_next(&y->boxes, x)) {
        struct sched_container c;
        const struct box *b = x->value;
        box_view(b, &c);
        if (b->state != BOX_ENDED)
            rc = vec_push(&s.v, c);
    }
    if (rc < 0) {
        containers_done(&s);
        yarn_broken(y, "no memory for the containers that the resource manager reported");
        return;
    }
    y->registered = true;
    yarn_emit(y, &(struct sched_event){
                     .type = SE_REGISTERED, .containers = s.v.v, .n = s.v.n, .text = y->host });
    containers_done(&s);
}

static void on_registered(const Hadoop__RegisterApplicationMasterResponse *r,
                          const struct rpc_error *e, void *arg)
{
    struct yarn *y = arg;
    y->call = NULL;
    /* The error says "already registered": this master did it, and the answer was lost. */
    bool is_registered = e && e->kind == RPC_FAULT_INVALID_REQUEST;
    if (e && !is_registered) {
        yarn_failed(y, e, "cannot register with the resource manager");
        yarn_step(y);
        return;
    }
    y->last_id = 0;
    y->failing_since = 0;
    y->phase = YP_READY;
    y->next_ms = 0;
    int rc = r ? yarn_learn_max(y, r->maximum_capability) : 0;
    if (rc == 0 && r)
        rc = yarn_take_tokens(y, r->nm_tokens_from_previous_attempts,
                              r->n_nm_tokens_from_previous_attempts);
    for (size_t i = 0; r && rc == 0 && i < r->n_containers_from_previous_attempts; i++) {
        const Hadoop__Container *c = r->containers_from_previous_attempts[i];
        if (!box_find(y, c->id) && !yarn_adopt(y, c, true))
            rc = -ENOMEM;
    }
    if (rc < 0)
        yarn_broken(y, "no memory for the answer of the resource manager");
    log_event(LOG_INFO, "yarn.registered", f_str("host", y->host), f_int("again", y->registered),
              f_int("racks", (int64_t)y->racks.n));
    /* For a later master, the first heartbeat's answer reports the containers that have ended.
     * So it reports SE_REGISTERED only after that. */
    if (rc == 0 && !y->registered && !y->finishing && y->cfg.epoch < 2)
        yarn_tell_registered(y, NULL, 0);
    if (rc == 0)
        yarn_lifetime_arm(y);
    yarn_step(y);
}

static void do_register(struct yarn *y)
{
    Hadoop__RegisterApplicationMasterRequest rq = HADOOP__REGISTER_APPLICATION_MASTER_REQUEST__INIT;
    char url[128] = "";
    if (y->cfg.page_port)
        (void)snprintf(url, sizeof url, strchr(y->host, ':') ? "http://[%s]:%u/" : "http://%s:%u/",
                       y->host, y->cfg.page_port);
    rq.host = y->host;
    rq.has_rpc_port = true;
    rq.rpc_port = y->cfg.master_port ? y->cfg.master_port : -1;
    rq.tracking_url = url;
    y->call =
        y->wire->register_master(y->rm, &rq, clock_mono_ms() + YARN_CALL_MS, on_registered, y);
}

/* ---- the end ---- */

static void on_finished(const Hadoop__FinishApplicationMasterResponse *r, const struct rpc_error *e,
                        void *arg)
{
    struct yarn *y = arg;
    y->call = NULL;
    if (e)
        yarn_failed(y, e, "cannot unregister from the resource manager");
    else if (r->is_unregistered)
        yarn_finished(y);
    else
        y->next_ms = clock_mono_ms() + yarn_pause(y, YARN_FINISH_MS);
    yarn_step(y);
}

static void do_finish(struct yarn *y)
{
    Hadoop__FinishApplicationMasterRequest rq = HADOOP__FINISH_APPLICATION_MASTER_REQUEST__INIT;
    rq.diagnostics = y->diagnostics;
    rq.tracking_url = (char *)(uintptr_t) "";
    rq.has_final_application_status = true;
    rq.final_application_status = y->finish_status;
    y->call = y->wire->finish_master(y->rm, &rq, MIN(clock_mono_ms() + YARN_CALL_MS, y->finish_by),
                                     on_finished, y);
}

/* ---- the next call ---- */

void yarn_wake(struct yarn *y)
{
    if (y->phase != YP_OVER)
        loop_timer_set(y->timer, clock_mono_ms());
}

void yarn_step(struct yarn *y)
{
    int64_t now = clock_mono_ms(), due = y->next_ms;
    struct err e = { 0 };

    if (y->phase == YP_OVER || y->call)
        return;
    if (y->finishing && now >= y->finish_by) {
        yarn_broken(y, "the resource manager did not answer in time");
        return;
    }
    if (y->phase == YP_READY && !y->finishing && y->next_ms <= y->sent_ms)
        due = y->sent_ms + yarn_pause(y, yarn_has_news(y) ? 1 : yarn_beat_ms(y));
    if (now >= due && y->phase == YP_READY && !y->finishing && y->answer_had_ends &&
        y->cfg.stored && !y->cfg.stored(y->cfg.arg))
        due = now + YARN_STORE_MS; /* the next heartbeat acknowledges the ends of the last answer */
    if (now < due) {
        loop_timer_set(y->timer, due);
        return;
    }
    if (!y->rm && connect_rm(y, &e) < 0) {
        log_err(LOG_ERROR, "yarn.no_connection", &e);
    } else if (y->phase == YP_MEETING) {
        meet(y);
    } else if (y->phase == YP_REGISTERING) {
        do_register(y);
    } else if (y->finishing) {
        do_finish(y);
    } else {
        yarn_heartbeat(y);
    }
    if (!y->call) /* no memory: try again later */
        loop_timer_set(y->timer, now + YARN_RETRY_MS);
}

static void on_timer(void *arg)
{
    yarn_step(arg);
}

/* ---- the table ---- */

static void yarn_close(struct sched *s)
{
    struct yarn *y = yarn_of(s);
    if (!y)
        return;
    y->phase = YP_OVER;
    map_done(&y->nodes, node_free);
    map_done(&y->boxes, box_free);
    y->wire->client_free(y->client);
    y->wire->client_free(y->rm);
    loop_timer_free(y->timer);
    loop_timer_free(y->report_timer);
    yarn_fate_close(y);
    yarn_lifetime_close(y);
    for (size_t i = 0; i < y->avoided.n; i++)
        free(y->avoided.v[i].host);
    vec_done(&y->avoided);
    for (size_t i = 0; i < y->asks.n; i++) {
        free(y->asks.v[i].role);
        free(y->asks.v[i].node);
        free(y->asks.v[i].old_node);
    }
    for (size_t i = 0; i < y->reports.n; i++)
        free(y->reports.v[i].text);
    vec_done(&y->asks);
    vec_done(&y->releases);
    vec_done(&y->reports);
    strv_done(&y->racks);
    strv_done(&y->max_types);
    token_done(&y->token);
    job_key_wipe(&y->key, sizeof y->key);
    site_addresses_done(&y->rm_at);
    site_addresses_done(&y->scheduler_at);
    yarn_file_free(y->file);
    free(y->diagnostics);
    free(y);
}

static int read_file(struct yarn *y, const char *job_dir, struct err *e)
{
    AUTO(free_p) char *path = fs_join(job_dir, "yarn.json");
    AUTO(buf_done) struct buf text = { .max = FILE_MAX };
    int rc = path ? fs_read(AT_FDCWD, path, &text, e) : err_set(e, ENOMEM, "no memory");
    if (rc == 0)
        rc = yarn_file_decode(buf_span(&text), &y->file, e);
    for (size_t i = 0; rc == 0 && i < y->file->rm.n; i++)
        rc = site_addresses_parse(&y->rm_at, y->file->rm.v[i], 8032, e);
    for (size_t i = 0; rc == 0 && i < y->file->scheduler.n; i++)
        rc = site_addresses_parse(&y->scheduler_at, y->file->scheduler.v[i], 8030, e);
    return rc;
}

static int read_token(struct yarn *y, const char *path, struct err *e)
{
    struct credentials c = { 0 };
    if (!path)
        return err_set(e, ENOENT,
                       "this is not a container of YARN: HADOOP_TOKEN_FILE_LOCATION is not set");
    int rc = credentials_read_file(path, &c, e);
    if (rc < 0)
        return rc;
    const struct token *t = credentials_find(&c, TOKEN_KIND_AM_RM);
    if (!t)
        rc = err_set(e, ENOENT, "token file '%s' has no token for the resource manager (%s)", path,
                     TOKEN_KIND_AM_RM);
    else if (token_copy(t, &y->token) < 0)
        rc = err_set(e, ENOMEM, "no memory for the token");
    credentials_done(&c);
    return rc;
}

static int open_all(struct yarn *y, const struct sched_config *cfg, struct err *e)
{
    int rc = read_file(y, cfg->job_dir, e);
    if (rc == 0)
        rc = read_token(y, cfg->token_file ? cfg->token_file : getenv("HADOOP_TOKEN_FILE_LOCATION"),
                        e);
    if (rc < 0)
        return rc;
    y->timer = loop_timer_new(cfg->loop, on_timer, y);
    y->report_timer = loop_timer_new(cfg->loop, report_all, y);
    if (!y->timer || !y->report_timer)
        return err_set(e, ENOMEM, "no memory to reach the resource manager");
    struct rpc_client_options o = {
        .loop = cfg->loop,
        .what = "the resource manager",
        .protocol = YARN_CLIENT_PROTOCOL,
        .addresses = &y->rm_at,
        .user = y->file->user,
    };
    rc = y->wire->client_new(&o, &y->client, e);
    if (rc == 0)
        rc = connect_rm(y, e);
    if (rc == 0)
        loop_timer_set(y->timer, clock_mono_ms());
    return rc;
}

int yarn_open_with(const struct yarn_wire *wire, const struct sched_config *cfg, struct sched **out,
                   struct err *e)
{
    struct yarn *y = calloc(1, sizeof *y);
    if (!y)
        return err_set(e, ENOMEM, "no memory to reach the resource manager");
    y->ops = &sched_yarn;
    y->wire = wire;
    y->cfg = *cfg;
    y->phase = YP_MEETING;
    if (cfg->key)
        y->key = *cfg->key;
    int rc = open_all(y, cfg, e);
    if (rc < 0) {
        yarn_close((struct sched *)(void *)y);
        return rc;
    }
    *out = (struct sched *)(void *)y;
    return 0;
}

static int yarn_open(const struct sched_config *cfg, struct sched **out, struct err *e)
{
    return yarn_open_with(&yarn_wire_real, cfg, out, e);
}

static int yarn_request(struct sched *s, const struct sched_ask *asks, size_t n, struct err *e)
{
    struct yarn *y = yarn_of(s);
    for (size_t i = 0; i < n; i++)
        if (yarn_ask(y, &asks[i]) < 0)
            return err_set(e, ENOMEM, "no memory to ask for %zu containers", n);
    yarn_wake(y);
    return 0;
}

/* The request of this slot is withdrawn. Drop a refusal of it that was not reported yet: the core
 * could take it for the refusal of a later request of the slot. */
static void drop_refusal(struct yarn *y, uint32_t slot)
{
    size_t kept = 0;
    for (size_t i = 0; i < y->reports.n; i++) {
        struct report *r = &y->reports.v[i];
        if (!r->box && r->slot == slot)
            free(r->text);
        else
            y->reports.v[kept++] = *r;
    }
    y->reports.n = kept;
}

static int yarn_cancel(struct sched *s, const uint32_t *slots, size_t n, struct err *e)
{
    struct yarn *y = yarn_of(s);
    (void)e;
    for (size_t i = 0; i < n; i++) {
        struct ask *a = yarn_find_ask(y, slots[i]);
        drop_refusal(y, slots[i]);
        if (!a || !a->open)
            continue;
        a->open = false;
        a->dirty = true;
        y->n_open--;
    }
    yarn_wake(y);
    return 0;
}

static int yarn_give_back(struct sched *s, const char *const *ids, size_t n, struct err *e)
{
    struct yarn *y = yarn_of(s);
    (void)e;
    for (size_t i = 0; i < n; i++) {
        struct box *b = map_get(&y->boxes, ids[i]);
        if (!b || b->state == BOX_ENDED)
            continue;
        if (b->state <= BOX_TO_START) {
            b->state = BOX_ENDED;
            box_leave_node(b);
            token_done(&b->token);
        }
        b->released = b->stop_wanted = true;
        yarn_release(y, &b->key);
    }
    return 0;
}

static int yarn_launch(struct sched *s, const struct sched_container *c, size_t n, struct err *e)
{
    struct yarn *y = yarn_of(s);
    (void)e;
    for (size_t i = 0; i < n; i++) {
        struct box *b = map_get(&y->boxes, c[i].id);
        if (b && b->state == BOX_GRANTED && !b->stop_wanted)
            b->state = BOX_TO_START;
    }
    /* Call the nodes only after all containers are marked, so that each node gets one call for
     * all its containers. */
    for (struct map_entry *x = map_next(&y->nodes, NULL); x; x = map_next(&y->nodes, x))
        node_pump(x->value);
    return 0;
}

static int yarn_stop(struct sched *s, const char *id, uint32_t grace_ms, struct err *e)
{
    struct yarn *y = yarn_of(s);
    struct box *b = map_get(&y->boxes, id);
    (void)
        grace_ms; /* the NodeManager uses its own of 250 ms; for more, tell the executor to stop */
    if (!b || b->state == BOX_ENDED || b->stop_wanted)
        return 0;
    b->stop_wanted = true;
    if (b->state <= BOX_TO_START) { /* its node does not know it yet */
        yarn_release(y, &b->key);
        b->released = true;
        b->state = BOX_GRANTED; /* so that no start call contains it */
        return report_later(y, b->slot, b, "stopped before it was started") < 0
                   ? err_set(e, ENOMEM, "no memory to stop a container")
                   : 0;
    }
    if (!b->poll_until)
        b->poll_until = clock_mono_ms() + yarn_pause(y, YARN_POLL_FOR_MS);
    node_pump(b->node);
    return 0;
}

static void yarn_look(struct sched *s, const char *id)
{
    struct yarn *y = yarn_of(s);
    struct box *b = map_get(&y->boxes, id);
    if (!b || b->state == BOX_ENDED)
        return;
    b->poll_until = clock_mono_ms() + yarn_pause(y, YARN_POLL_FOR_MS);
    node_pump(b->node);
}

static void yarn_avoid_node(struct sched *s, const char *node, bool avoid)
{
    if (yarn_avoid(yarn_of(s), node, avoid) < 0)
        log_event(LOG_ERROR, "node.not_avoided", f_str("node", node)); /* no memory */
}

/* YARN does not know the whole demand of a job; requests and releases tell it what the job wants.
 * So only store the roles of new slots. */
static int yarn_resize(struct sched *s, const struct sched_ask *whole, size_t n, struct err *e)
{
    return yarn_learn_roles(yarn_of(s), whole, n) < 0
               ? err_set(e, ENOMEM, "no memory to resize the job to %zu containers", n)
               : 0;
}

static int yarn_finish(struct sched *s, const char *state, const char *diagnostics,
                       void (*done)(void *arg), struct err *e)
{
    struct yarn *y = yarn_of(s);
    /* With empty diagnostics, YARN would show those of an earlier state. */
    y->diagnostics = str_dup(diagnostics && *diagnostics ? diagnostics : state);
    if (!y->diagnostics)
        return err_set(e, ENOMEM, "no memory to end the job");
    y->finish_status = str_eq(state, "SUCCEEDED") ? HADOOP__FINAL_APPLICATION_STATUS__APP_SUCCEEDED
                       : str_eq(state, "KILLED")  ? HADOOP__FINAL_APPLICATION_STATUS__APP_KILLED
                                                  : HADOOP__FINAL_APPLICATION_STATUS__APP_FAILED;
    y->finish_done = done;
    y->finish_by = clock_mono_ms() + yarn_pause(y, YARN_FINISH_WAIT_MS);
    if (y->phase == YP_OVER) {
        y->finishing = true;
        loop_timer_set(y->report_timer, clock_mono_ms());
        return 0;
    }
    y->finishing = true;
    y->failing_since = 0;
    y->next_ms = 0;
    /* If a heartbeat is under way, yarn_step() waits for its answer first. Else another thread of
     * the ResourceManager might handle it after the master has unregistered, and log an error about
     * an unknown master. */
    yarn_wake(y);
    return 0;
}

static bool yarn_busy(const struct sched *s)
{
    const struct yarn *y = (const struct yarn *)(const void *)s;
    if (y->lifetime.call)
        return true;
    for (struct map_entry *x = map_next(&y->nodes, NULL); x; x = map_next(&y->nodes, x)) {
        const struct node *n = x->value;
        if (n->start || n->stop || n->status)
            return true;
    }
    return false;
}

const struct sched_ops sched_yarn = {
    .name = "yarn",
    .gives_back = true,
    .open = yarn_open,
    .request = yarn_request,
    .cancel = yarn_cancel,
    .release = yarn_give_back,
    .launch = yarn_launch,
    .stop = yarn_stop,
    .look = yarn_look,
    .avoid = yarn_avoid_node,
    .fate = yarn_fate,
    .resize = yarn_resize,
    .finish = yarn_finish,
    .busy = yarn_busy,
    .close = yarn_close,
};
