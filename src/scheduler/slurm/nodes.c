/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connections of the keepers, one for each node.
 *
 * A keeper connects, and sends KeeperHello. The master answers with RegisterMaster, and the keeper
 * tells all its containers (Registered). If the connection ends, the keeper has RETURN_MS to
 * reconnect: it may have been restarted. Then the node is lost, and so are its containers. A lost
 * node may return later. Containers that were reported as lost are stopped there then.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "loop/tcp.h"
#include "scheduler/keeper_frames.h"
#include "scheduler/slurm/slurm_int.h"

enum {
    RETURN_MS = 5000, /* a keeper whose connection has ended is lost if it is not back by then */
    SILENCE_MS =
        30000,    /* a keeper that is silent for this time is lost; it sends a beat every 5 s */
    ACK_MS = 200, /* ends of containers are acknowledged together, at most this late */
};

/* ---- frames to a keeper ---- */

static int send_frame(struct node *n, const Tony__Frame *f)
{
    return n->conn ? conn_send(n->conn, f) : -EPIPE; /* on_close() handles a broken connection */
}

int node_send_asks(struct node *n, const struct sched_ask *asks, size_t n_asks)
{
    AUTO(asks_message_done) struct asks_message w = { 0 };
    struct err e = { 0 };
    int rc = asks_message_fill(&w, asks, n_asks, &e);
    if (rc < 0)
        return rc;
    Tony__RequestContainers m = TONY__REQUEST_CONTAINERS__INIT;
    m.n_asks = n_asks;
    m.asks = w.list;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_REQUEST_CONTAINERS;
    f.request_containers = &m;
    return send_frame(n, &f);
}

void node_send_launch(struct node *n, const struct hold *h)
{
    Tony__Container c = TONY__CONTAINER__INIT, *list[1] = { &c };
    Tony__LaunchContainers m = TONY__LAUNCH_CONTAINERS__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    c.id = h->id;
    c.slot = h->slot;
    m.n_containers = 1;
    m.containers = list;
    f.body_case = TONY__FRAME__BODY_LAUNCH_CONTAINERS;
    f.launch_containers = &m;
    (void)send_frame(n, &f);
}

void node_send_stop(struct node *n, const char *id, uint32_t grace_ms)
{
    Tony__StopContainer m = TONY__STOP_CONTAINER__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    m.id = (char *)(uintptr_t)id;
    m.grace_ms = grace_ms;
    f.body_case = TONY__FRAME__BODY_STOP_CONTAINER;
    f.stop_container = &m;
    (void)send_frame(n, &f);
}

void node_send_release(struct node *n, const char *id)
{
    Tony__ReleaseContainers m = TONY__RELEASE_CONTAINERS__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    char *ids[1] = { (char *)(uintptr_t)id };
    m.n_ids = 1;
    m.ids = ids;
    f.body_case = TONY__FRAME__BODY_RELEASE_CONTAINERS;
    f.release_containers = &m;
    (void)send_frame(n, &f);
}

void node_send_finish(struct node *n, const char *state)
{
    Tony__FinishJob m = TONY__FINISH_JOB__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    m.state = (char *)(uintptr_t)state;
    f.body_case = TONY__FRAME__BODY_FINISH_JOB;
    f.finish_job = &m;
    (void)send_frame(n, &f);
}

static void send_ack(struct node *n)
{
    Tony__AckCompleted m = TONY__ACK_COMPLETED__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    m.n = n->n_acked = n->n_ends;
    f.body_case = TONY__FRAME__BODY_ACK_COMPLETED;
    f.ack_completed = &m;
    (void)send_frame(n, &f);
}

void nodes_acknowledge(struct slurm *s)
{
    for (size_t i = 0; i < s->nodes.n; i++)
        if (s->nodes.v[i]->n_ends > s->nodes.v[i]->n_acked)
            send_ack(s->nodes.v[i]);
}

static void count_end(struct node *n)
{
    n->n_ends++;
    if (!n->s->ack_due)
        n->s->ack_at_ms = clock_mono_ms() + ACK_MS;
    n->s->ack_due = true;
    slurm_turn_soon(n->s);
}

/* ---- lists of containers that are reported together ---- */

struct report {
    VEC(struct sched_container) v;
    struct strv texts;
    bool failed;
};

static void report_done(struct report *r)
{
    vec_done(&r->v);
    strv_done(&r->texts);
}

/* Copies the strings: the containers of the back-end may go while the report is handled. */
static void report_add(struct report *r, struct sched_container c, const struct node *n)
{
    c.node = n->name;
    if (keeper_container_copy_texts(&c, &r->texts) < 0 || vec_push(&r->v, c) < 0)
        r->failed = true;
}

static void report_send(struct slurm *s, struct report *r, enum sched_event_type type)
{
    if (r->failed)
        slurm_broken(s, "no memory for a report of a node");
    else if (r->v.n)
        slurm_emit(s, &(struct sched_event){ .type = type, .containers = r->v.v, .n = r->v.n });
}

static struct sched_container ended(const struct hold *h, enum end_reason reason,
                                    const char *detail)
{
    return (struct sched_container){ .id = h->id,
                                     .slot = h->slot,
                                     .gpus = "",
                                     .launched = true,
                                     .completed = true,
                                     .exit_code = 1,
                                     .reason = reason,
                                     .detail = detail };
}

/* ---- a node that is lost ---- */

static void node_lose(struct node *n)
{
    struct slurm *s = n->s;
    AUTO(report_done) struct report r = { 0 };
    AUTO(free_p) char *detail = str_printf("node %s does not answer", n->name ? n->name : "?");
    n->state = NODE_LOST;
    log_event(LOG_WARN, "node.lost", f_str("node", n->name ? n->name : "?"));
    for (size_t i = s->holds.n; i-- > 0;) {
        struct hold *h = &s->holds.v[i];
        if (h->state == HOLD_WAITING || h->node != n)
            continue;
        if (h->state == HOLD_GRANTED) {
            report_add(&r, ended(h, END_NODE_LOST, detail), n);
            hold_remove(s, h);
        } else if (h->withdrawn) {
            hold_remove(s, h);
        } else { /* the keeper may have granted it, but nothing was started */
            h->state = HOLD_WAITING;
            h->node = NULL;
            h->waits_since = clock_mono_ms();
        }
    }
    report_send(s, &r, SE_COMPLETED);
    slurm_turn_soon(s);
}

static void node_away(struct node *n, int64_t return_ms)
{
    conn_close(n->conn);
    n->conn = NULL;
    vec_done(&n->listed);
    vec_done(&n->listed_room);
    strv_done(&n->listed_texts);
    if (n->state == NODE_LOST || n->s->finishing != NOT_FINISHING)
        return;
    n->state = NODE_AWAY;
    n->lost_at_ms = clock_mono_ms() + return_ms;
}

void nodes_forgive(struct slurm *s, int64_t late_ms, int64_t now_ms)
{
    for (size_t i = 0; i < s->nodes.n; i++) {
        struct node *n = s->nodes.v[i];
        n->heard_ms = MIN(n->heard_ms + late_ms, now_ms);
        n->lost_at_ms += late_ms;
    }
}

void nodes_tick(struct slurm *s, int64_t now_ms)
{
    for (size_t i = 0; i < s->nodes.n; i++) {
        struct node *n = s->nodes.v[i];
        if (n->conn && now_ms - n->heard_ms >= SILENCE_MS) {
            log_event(LOG_WARN, "node.silent", f_str("node", n->name));
            node_away(n, 0);
        }
        if (n->state == NODE_AWAY && now_ms >= n->lost_at_ms && s->registered &&
            !notice_explains_lost_nodes(s))
            node_lose(n);
    }
}

/* ---- a keeper that registers ---- */

/* This master does not know the container: it was reported as lost, or an earlier master gave it
 * up. */
static void stop_unknown(struct node *n, const struct sched_container *c)
{
    log_event(LOG_INFO, "node.stops_unknown", f_str("container", c->id));
    n->n_unknown++;
    node_send_stop(n, c->id, 0);
}

static void ask_again(struct node *n, const struct hold *h)
{
    struct sched_ask ask = { .slot = h->slot,
                             .memory_mib = h->room.memory_mib,
                             .vcores = h->room.vcores,
                             .gpus = h->room.gpus };
    (void)node_send_asks(n, &ask, 1); /* on_close() handles a broken connection */
}

static bool is_listed(const struct node *n, const char *id)
{
    for (size_t i = 0; i < n->listed.n; i++)
        if (str_eq(n->listed.v[i].id, id))
            return true;
    return false;
}

/* The keeper has listed this container, which is not known by its id. Does it belong to a request
 * of this node, and only the keeper's answer was lost? Then compare_hold() asks again. */
static bool answer_was_lost(const struct node *n, const struct sched_container *c)
{
    const struct hold *h = hold_find(n->s, c->slot);
    return h && h->state == HOLD_ASKED && h->node == n;
}

static void compare_listed(struct node *n, const struct sched_container *c, struct report *r)
{
    struct hold *h = hold_by_id(n->s, c->id);
    if (!h && !c->completed && !answer_was_lost(n, c))
        stop_unknown(n, c);
    if (h && c->completed) {
        report_add(r, *c, n);
        hold_remove(n->s, h);
    } else if (h) {
        h->launched = c->launched;
    }
}

/* Repeat what the keeper may not have got about this request or container. */
static void compare_hold(struct node *n, struct hold *h, struct report *r)
{
    if (h->node != n)
        return;
    if (h->state == HOLD_ASKED)
        ask_again(n, h);
    if (h->state != HOLD_GRANTED)
        return;
    if (!is_listed(n, h->id)) { /* a new keeper has killed what an earlier one left */
        report_add(r, ended(h, END_UNKNOWN, "the keeper of its node has died"), n);
        hold_remove(n->s, h);
    } else if (h->stop) {
        node_send_stop(n, h->id, h->grace_ms);
    } else if (h->launch && !h->launched) {
        node_send_launch(n, h);
    }
}

/* The keeper reconnects, or connects late. Compare its containers with those of this master. */
static void compare(struct node *n)
{
    struct slurm *s = n->s;
    AUTO(report_done) struct report r = { 0 };
    for (size_t i = 0; i < n->listed.n; i++)
        compare_listed(n, &n->listed.v[i], &r);
    for (size_t i = s->holds.n; i-- > 0;)
        compare_hold(n, &s->holds.v[i], &r);
    report_send(s, &r, SE_COMPLETED);
}

/* The containers of an earlier master. They are reported with SE_REGISTERED. */
static void adopt(struct node *n)
{
    struct slurm *s = n->s;
    for (size_t i = 0; i < n->listed.n; i++) {
        const struct sched_container *c = &n->listed.v[i];
        struct hold *h;
        if (c->completed || c->slot == SCHED_NO_SLOT)
            continue;
        int rc = hold_add(s, c->slot, &h);
        if (rc == -EEXIST) { /* two containers of one slot: only a node that returns has such */
            stop_unknown(n, c);
            continue;
        }
        if (rc < 0) {
            slurm_broken(s, "no memory for the containers of a node");
            return;
        }
        h->state = HOLD_GRANTED;
        h->node = n;
        h->room = n->listed_room.v[i];
        h->id = str_dup(c->id);
        h->launch = h->launched = c->launched;
        if (!h->id)
            slurm_broken(s, "no memory for the containers of a node");
    }
}

/* A keeper kills at its start what an earlier one has left on its node, and then tells all its
 * containers. So nothing else of the job runs on the nodes that are ready.
 *
 * The file `left`: the head keeper of an earlier run has ended after Slurm had put the job back
 * into its queue. Slurm starts the job again only when all processes of that run have ended, except
 * on nodes that were lost before: the core knows these. */
static void report_registered(struct slurm *s, const struct report *r)
{
    AUTO(free_p) const char **clean = calloc(s->nodes.n + 1, sizeof *clean);
    AUTO(free_p) char *left = fs_join(s->cfg.job_dir, "left");
    char host[65] = "";
    (void)gethostname(host, sizeof host - 1);
    struct sched_event ev = { .type = SE_REGISTERED,
                              .containers = r->v.v,
                              .n = r->v.n,
                              .text = host,
                              .clean = clean,
                              .all_clean = left && unlink(left) == 0 && !s->further.of_earlier_run,
                              .clean_reason = s->run > 0 ? END_PREEMPTED : END_UNKNOWN };
    for (size_t i = 0; clean && i < s->nodes.n; i++)
        if (s->nodes.v[i]->state == NODE_READY)
            clean[ev.n_clean++] = s->nodes.v[i]->name;
    slurm_emit(s, &ev);
}

void nodes_register(struct slurm *s, int64_t now_ms)
{
    AUTO(report_done) struct report r = { 0 };
    size_t n_ready = 0;
    for (size_t i = 0; i < s->nodes.n; i++)
        n_ready += s->nodes.v[i]->state == NODE_READY;
    if (s->registered || (n_ready < s->n_nodes + further_nodes(s) && now_ms < s->register_by_ms))
        return;
    for (size_t i = 0; i < s->nodes.n; i++) {
        struct node *n = s->nodes.v[i];
        if (n->state != NODE_READY)
            continue;
        for (size_t k = 0; k < n->listed.n; k++)
            if (n->listed.v[k].completed || hold_by_id(s, n->listed.v[k].id))
                report_add(&r, n->listed.v[k], n);
        vec_done(&n->listed);
        vec_done(&n->listed_room);
        /* the texts stay until the node registers again: the report has copies */
    }
    s->registered = true;
    if (r.failed)
        slurm_broken(s, "no memory for the containers of the nodes");
    else
        report_registered(s, &r);
}

/* Add the containers of one frame to the list: a keeper sends its list in several frames. */
static int add_listed(struct node *n, const Tony__Registered *m)
{
    int rc = 0;
    for (size_t i = 0; i < m->n_containers && rc == 0; i++) {
        const Tony__Container *from = m->containers[i];
        struct sched_container c;
        struct room room = { from->memory_mib, from->vcores, (uint32_t)from->n_gpus, n->has.part };
        rc = keeper_container_read(from, &c, &n->listed_texts);
        if (rc == 0)
            rc = keeper_container_copy_texts(&c, &n->listed_texts);
        if (rc == 0)
            rc = vec_push(&n->listed, c);
        if (rc == 0)
            rc = vec_push(&n->listed_room, room);
        if (c.completed)
            count_end(n);
    }
    return rc;
}

static void on_registered(struct node *n, const Tony__Registered *m)
{
    struct slurm *s = n->s;
    if (n->state != NODE_REGISTERING)
        return;
    if (add_listed(n, m) < 0) {
        slurm_broken(s, "no memory for the containers of a node");
        return;
    }
    if (m->more)
        return;
    n->state = NODE_READY;
    n->n_unknown = 0;
    log_event(LOG_INFO, "node.ready", f_str("node", n->name),
              f_int("memory_mib", (int64_t)n->has.memory_mib), f_int("vcores", n->has.vcores),
              f_int("gpus", n->has.gpus), f_int("containers", (int64_t)n->listed.n));
    if (!s->registered) {
        adopt(n);
        nodes_register(s, clock_mono_ms());
    } else {
        compare(n);
        vec_done(&n->listed);
        vec_done(&n->listed_room);
    }
    slurm_turn_soon(s);
}

/* ---- other frames of a keeper ---- */

static void on_allocated(struct node *n, const Tony__ContainersAllocated *m)
{
    struct slurm *s = n->s;
    AUTO(report_done) struct report r = { 0 };
    struct strv texts = { 0 };
    for (size_t i = 0; i < m->n_containers; i++) {
        struct hold *h = hold_find(s, m->containers[i]->slot);
        struct sched_container c;
        if (!h || h->state != HOLD_ASKED || h->node != n || m->containers[i]->completed)
            continue;
        if (h->withdrawn) {
            node_send_release(n, m->containers[i]->id);
            hold_remove(s, h);
            continue;
        }
        h->id = str_dup(m->containers[i]->id);
        h->state = HOLD_GRANTED;
        if (!h->id || keeper_container_read(m->containers[i], &c, &texts) < 0)
            r.failed = true;
        else
            report_add(&r, c, n);
    }
    for (size_t i = 0; i < m->n_refused_slots; i++) {
        /* The node has less room than this master thought. */
        struct hold *h = hold_find(s, m->refused_slots[i]);
        if (!h || h->state != HOLD_ASKED || h->node != n)
            continue;
        log_event(LOG_WARN, "node.refused", f_str("node", n->name), f_int("slot", h->slot));
        h->state = HOLD_WAITING;
        h->node = NULL;
        n->avoid = true;
    }
    report_send(s, &r, SE_ALLOCATED);
    strv_done(&texts);
}

static void on_completed(struct node *n, const Tony__ContainersCompleted *m)
{
    struct slurm *s = n->s;
    AUTO(report_done) struct report r = { 0 };
    struct strv texts = { 0 };
    for (size_t i = 0; i < m->n_containers; i++) {
        struct hold *h = hold_by_id(s, m->containers[i]->id);
        struct sched_container c;
        count_end(n);
        if (!h) {
            n->n_unknown -= n->n_unknown > 0;
            continue;
        }
        if (keeper_container_read(m->containers[i], &c, &texts) < 0)
            r.failed = true;
        else
            report_add(&r, c, n);
        hold_remove(s, h);
    }
    report_send(s, &r, SE_COMPLETED);
    strv_done(&texts);
    slurm_turn_soon(s);
}

static void on_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct node *n = arg;
    (void)c; /* n->conn */
    n->heard_ms = clock_mono_ms();
    switch ((int)f->body_case) {
    case TONY__FRAME__BODY_REGISTERED:
        on_registered(n, f->registered);
        break;
    case TONY__FRAME__BODY_CONTAINERS_ALLOCATED:
        on_allocated(n, f->containers_allocated);
        break;
    case TONY__FRAME__BODY_CONTAINERS_COMPLETED:
        on_completed(n, f->containers_completed);
        break;
    case TONY__FRAME__BODY_CLUSTER_SIGNAL:
        notice_of_node(n->s, n, f->cluster_signal->signal);
        break;
    case TONY__FRAME__BODY_REFUSED: /* the keeper is ending */
        log_event(LOG_WARN, "keeper.refused", f_str("why", f->refused->message));
        break;
    default: /* beats; frames of a later version */
        break;
    }
}

static void on_close(struct conn *c, const struct err *e, void *arg)
{
    struct node *n = arg;
    (void)c; /* the loop frees it */
    n->conn = NULL;
    log_event(LOG_INFO, "node.disconnected", f_str("node", n->name), f_str("why", e->msg));
    node_away(n, RETURN_MS);
    slurm_turn_soon(n->s);
}

static const struct conn_ops node_ops = { .on_frame = on_frame, .on_close = on_close };

/* ---- new connections ---- */

static void send_welcome(struct node *n)
{
    (void)keeper_send_register(n->conn, n->s->cfg.epoch); /* on_close() handles a failure */
}

static struct node *node_get(struct slurm *s, uint32_t index)
{
    for (size_t i = 0; i < s->nodes.n; i++)
        if (s->nodes.v[i]->index == index)
            return s->nodes.v[i];
    struct node *n = calloc(1, sizeof *n);
    if (n)
        *n = (struct node){ .s = s, .index = index, .state = NODE_EXPECTED };
    if (!n || vec_push(&s->nodes, n) < 0) {
        free(n);
        return NULL;
    }
    return n;
}

/* End a keeper: its node belongs to a further allocation that was given up (KILLED), or there is a
 * younger keeper of the node (REPLACED). If an srun is killed, its step may run on, and the batch
 * script starts another one. The younger keeper has killed what ran on the node. Without this, both
 * would reconnect in turn, for ever. */
static void send_away(struct slurm *s, struct conn *c, const char *name, const char *state)
{
    struct node n = { .s = s, .conn = c };
    log_event(LOG_INFO, "node.sent_away", f_str("node", name), f_str("state", state));
    send_welcome(&n);
    node_send_finish(&n, state);
}

/* May the keeper that has sent this hello serve the job? The identity that its key proves must be
 * that of the node which it names, and it must be of this run: a node that was cut off when Slurm
 * started the job again may still have a keeper of an earlier run. */
static bool is_keeper_of_run(const struct slurm *s, const struct conn *c,
                             const Tony__KeeperHello *m)
{
    uint32_t proved;
    if (!m || !job_key_keeper_of(conn_identity(c), &proved) || proved != m->index)
        return false;
    if (m->run == s->run)
        return true;
    log_event(LOG_WARN, "node.of_earlier_run", f_str("node", m->node), f_int("run", m->run));
    return false;
}

static void on_hello(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct slurm *s = arg;
    const Tony__KeeperHello *m =
        f->body_case == TONY__FRAME__BODY_KEEPER_HELLO ? f->keeper_hello : NULL;
    bool is_valid = is_keeper_of_run(s, c, m);
    bool is_further = is_valid && m->index >= s->n_nodes;
    struct further *further = is_further ? further_of_node(s, m->index) : NULL;
    if (is_further && !further) {
        send_away(s, c, m->node, "KILLED");
        return;
    }
    struct node *n = is_valid ? node_get(s, m->index) : NULL;
    if (n && m->started_ms < n->started_ms) {
        send_away(s, c, m->node, "REPLACED");
        return;
    }
    char *name = n ? str_dup(m->node) : NULL;
    if (!name || s->finishing != NOT_FINISHING) {
        free(name);
        conn_close(c);
        return;
    }
    if (n->conn)
        node_away(n, RETURN_MS);
    free(n->name);
    n->name = name;
    n->conn = c;
    n->started_ms = m->started_ms;
    n->state = NODE_REGISTERING;
    n->heard_ms = clock_mono_ms();
    n->has = (struct room){ m->memory_mib ? m->memory_mib : UINT64_MAX, m->vcores, m->n_gpus,
                            part_of_node(s, m->index) };
    n->n_ends = n->n_acked = 0;
    strv_done(&n->listed_texts);
    conn_set_arg(c, &node_ops, n);
    if (further)
        further_joins(s, further);
    send_welcome(n);
}

static void on_stranger_closed(struct conn *c, const struct err *e, void *arg)
{
    (void)c; /* the loop frees it */
    (void)arg;
    log_err(LOG_INFO, "keeper.left", e);
}

static const struct conn_ops hello_ops = { .on_frame = on_hello, .on_close = on_stranger_closed };

static void on_accept(struct conn *c, void *arg)
{
    conn_set_arg(c, &hello_ops, arg);
}

static bool find_key(const char *identity, struct tls_key *out, void *arg)
{
    const struct slurm *s = arg;
    uint32_t node;
    if (!job_key_keeper_of(identity, &node))
        return false;
    job_key_keeper(s->cfg.key, node, out);
    return out->len > 0;
}

static int open_at(void *arg, uint16_t port, struct err *e)
{
    struct slurm *s = arg;
    return listener_open_tls(s->cfg.loop, NULL, port, find_key, on_accept, s, &s->listener, e);
}

int nodes_listen(struct slurm *s, struct err *e)
{
    const struct job_spec *spec = s->cfg.spec;
    return tcp_open_among(spec ? spec->port_first : 0, spec ? spec->port_last : 0, open_at, s, e);
}

void nodes_close(struct slurm *s)
{
    listener_close(s->listener);
    for (size_t i = 0; i < s->nodes.n; i++) {
        struct node *n = s->nodes.v[i];
        conn_close(n->conn);
        vec_done(&n->listed);
        vec_done(&n->listed_room);
        strv_done(&n->listed_texts);
        free(n->name);
        free(n);
    }
    vec_done(&s->nodes);
}
