/* SPDX-License-Identifier: Apache-2.0 */
/* The frames from executors, and the frames to them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"
#include "runtime/runtime.h"
#include "scheduler/scheduler.h"

static const char *text_or_null(const char *s)
{
    return s && *s ? s : NULL;
}

static struct conn *executor_conn(const struct master *m, uint32_t slot)
{
    struct peer *p = slot < job_n_slots(m->job) ? m->executors[slot] : NULL;
    return p ? p->conn : NULL;
}

/* ---- from an executor ---- */

/* Does the executor run on the machine of the master, so that both have the same monotonic clock?
 * On a cluster: do both nodes, written "host:port", have the same host? */
static bool is_on_this_machine(const struct master *m, uint32_t slot)
{
    struct slot_view v;
    if (!m->remote)
        return true;
    job_slot(m->job, slot, &v);
    const char *here = m->remote->node, *there = v.node;
    size_t n = here ? strcspn(here, ":") : 0;
    return n > 0 && there && n == strcspn(there, ":") && memcmp(here, there, n) == 0;
}

static void attempt_ended(struct master *m, uint32_t slot, const Tony__AttemptEnded *x)
{
    unsigned reason = (unsigned)x->reason;
    metrics_on_end(m, slot);
    (void)master_feed_end(
        m,
        &(struct job_event){
            .type = EV_ATTEMPT_ENDED,
            .attempt_ended = { .slot = slot,
                               .generation = x->generation,
                               .attempt = x->attempt,
                               .rank = x->rank,
                               .exit_code = x->exit_code,
                               .signal = x->signal,
                               .reason = reason < END_COUNT ? (enum end_reason)reason : END_UNKNOWN,
                               .age_us = x->age_us,
                               .step = x->step,
                               .total = x->total,
                               .detail = text_or_null(x->detail),
                               .tail = text_or_null(x->stderr_tail) } },
        is_on_this_machine(m, slot) ? x->ended_mono_us : 0);
}

/* Why this executor is refused; NULL = it is accepted. slot: the slot that has its container now.
 * It differs from h->slot if the container was granted to a spare. */
static const char *refusal(const struct master *m, const Tony__ExecutorHello *h, uint32_t slot,
                           struct slot_view *out_v)
{
    if (h->version != TONY__VERSION__PROTOCOL_VERSION)
        return "the executor speaks another version of the protocol";
    if (slot >= job_n_slots(m->job))
        return "the job has no such task";
    job_slot(m->job, slot, out_v);
    if (!out_v->container || !str_eq(out_v->container, h->container_id))
        return "this container does not belong to the task any more";
    if (out_v->state == SLOT_ENDED)
        return "the task has ended";
    return NULL;
}

/* A new executor. */
static void feed_registered(struct master *m, const Tony__ExecutorHello *h, uint32_t slot)
{
    char address[300];
    (void)snprintf(address, sizeof address, "%s:%u", h->host, h->n_ports ? h->ports[0] : 0);
    m->addresses_version++;
    (void)master_feed(m, &(struct job_event){ .type = EV_REGISTERED,
                                              .registered = { .slot = slot,
                                                              .container = h->container_id,
                                                              .address = address,
                                                              .tb_port = h->tb_port,
                                                              .pid = (uint32_t)h->pid } });
}

/* An executor has reconnected. Feed its unacknowledged ends first: an attempt that ended meanwhile
 * must not count as lost. */
static void feed_reconnected(struct master *m, const Tony__ExecutorHello *h, uint32_t slot)
{
    for (size_t i = 0; i < h->n_unacked; i++)
        attempt_ended(m, slot, h->unacked[i]);
    (void)master_feed(m, &(struct job_event){ .type = EV_EXECUTOR_BACK,
                                              .executor_back = { .slot = slot,
                                                                 .container = h->container_id,
                                                                 .generation = h->generation,
                                                                 .attempt = h->attempt,
                                                                 .running = h->running } });
}

/* The executor is ready for its next attempt. */
static void on_ready(struct peer *p, const Tony__Ready *r)
{
    struct master *m = p->m;
    struct slot_view v;
    char address[300];
    job_slot(m->job, p->slot, &v);
    (void)snprintf(address, sizeof address, "%s:%u", r->host, r->n_ports ? r->ports[0] : 0);
    if (!str_eq(v.address, address))
        m->addresses_version++;
    (void)master_feed(m, &(struct job_event){ .type = EV_REGISTERED,
                                              .registered = { .slot = p->slot,
                                                              .container = v.container,
                                                              .generation = r->generation,
                                                              .address = address,
                                                              .tb_port = r->tb_port,
                                                              .pid = v.pid } });
}

/* Log when all executors of the earlier masters have reconnected. */
static void count_reconnected(struct master *m, uint32_t slot)
{
    if (!m->executor_expected[slot])
        return;
    m->executor_expected[slot] = false;
    m->n_executors_back++;
    if (--m->n_executors_expected == 0)
        log_event(LOG_INFO, "master.back", f_int("executors", m->n_executors_back),
                  f_int("ms", clock_mono_ms() - m->t0_mono_ms));
}

void executor_hello(struct peer *p, const Tony__Frame *f)
{
    struct master *m = p->m;
    const Tony__ExecutorHello *h = f->executor_hello;
    if (m->phase == MP_STARTING) { /* the executor reconnects soon */
        peer_refuse(p, EAGAIN, "the master is starting");
        return;
    }
    if (m->phase != MP_RUNNING) {
        peer_refuse(p, ESTALE, "the job is over");
        return;
    }
    if (h->epoch_seen > m->epoch) { /* a newer master runs: this one has to exit */
        log_event(LOG_ERROR, "master.superseded", f_int("epoch", m->epoch),
                  f_int("seen", h->epoch_seen));
        master_exit_now(m, MASTER_CRASHED);
        return;
    }
    struct slot_view v;
    uint32_t slot = job_slot_now(m->job, h->slot);
    const char *why = refusal(m, h, slot, &v);
    if (why) {
        log_event(LOG_INFO, "executor.refused", f_int("slot", slot),
                  f_str("container", h->container_id), f_str("why", why));
        peer_refuse(p, ESTALE, why);
        return;
    }
    struct peer *old = m->executors[slot];
    if (old) { /* the executor reconnected before the loop noticed that the old connection broke */
        m->executors[slot] = NULL;
        logs_executor_gone(m, slot);
        peer_refuse(old, ESTALE, "the executor has a newer connection to this master");
    }
    p->kind = PEER_EXECUTOR;
    p->slot = slot;
    p->reads_spec_file = h->reads_spec_file;
    m->executors[slot] = p;
    if (welcome_send(m, p, &v) < 0)
        return; /* the connection is broken: on_close() follows */
    if (v.address)
        feed_reconnected(m, h, slot);
    else
        feed_registered(m, h, slot);
    count_reconnected(m, slot);
    if (m->log_watches.n && m->executors[slot] == p)
        log_watch_executor(m, slot);
    if (h->running && job_restarts(m->job) && m->executors[slot] == p)
        cluster_spec_announce(m, p); /* addresses may have changed while it was not connected */
}

/* A report of the task's program. */
static void on_task_word(struct master *m, uint32_t slot, const Tony__TaskWord *w)
{
    if (w->total > 0 || w->step > 0)
        (void)master_feed(m,
                          &(struct job_event){
                              .type = EV_PROGRESS,
                              .progress = { .slot = slot, .step = w->step, .total = w->total } });
    if (text_or_null(w->checkpoint))
        (void)master_feed(m, &(struct job_event){ .type = EV_CHECKPOINT,
                                                  .checkpoint = { .slot = slot,
                                                                  .generation = w->generation,
                                                                  .attempt = w->attempt,
                                                                  .step = w->checkpoint_step,
                                                                  .parts = w->checkpoint_parts,
                                                                  .path = w->checkpoint } });
    if (text_or_null(w->plan))
        driver_plan_received(m, slot, w);
    if (w->ready)
        (void)master_feed(m, &(struct job_event){ .type = EV_TASK_READY,
                                                  .task_ready = { .slot = slot,
                                                                  .generation = w->generation,
                                                                  .attempt = w->attempt } });
    if (text_or_null(w->tensorboard_url))
        (void)master_feed(
            m, &(struct job_event){ .type = EV_TENSORBOARD,
                                    .tensorboard = { .slot = slot, .url = w->tensorboard_url } });
}

/* The roles with their present numbers of tasks. The caller frees the array; NULL = no memory. */
static struct rt_role *roles_of(const struct master *m)
{
    const struct job_spec *s = m->spec;
    struct rt_role *roles = calloc(s->n_roles + 1, sizeof *roles);
    for (size_t i = 0; roles && i < s->n_roles; i++)
        roles[i] = (struct rt_role){ .name = s->roles[i].name,
                                     .n = job_role_tasks(m->job, (uint32_t)i),
                                     .kind = s->roles[i].kind,
                                     .ranks = s->roles[i].ranks };
    return roles;
}

static void send_to(struct master *m, uint32_t slot, const Tony__Frame *f);

/* Tell the executor to end the attempt at once, and to report it as an exit of this rank with this
 * code. */
static void stop_as_exit(struct master *m, uint32_t slot, const struct slot_view *v, uint32_t rank,
                         int exit_code)
{
    Tony__StopAttempt s = TONY__STOP_ATTEMPT__INIT;
    s.generation = v->generation;
    s.attempt = v->attempt;
    s.reason = TONY__REASON__EXITED;
    s.exit_rank = rank;
    s.exit_code = exit_code;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_STOP_ATTEMPT;
    f.stop_attempt = &s;
    send_to(m, slot, &f);
}

/* Does this executor host the rendezvous server of the ranks? The executor of rank 0's task does
 * (decision 0010). */
static bool has_ranks_server(const struct master *m, uint32_t slot)
{
    const struct job_spec *s = m->spec;
    return s->server && slot == job_task(m->job, s->server_role, 0);
}

/* A rank has asked the rendezvous server to abort the job. The rank is ended and reported as if it
 * had exited with the given code, so the rules for a failed task decide what follows. */
static void on_rank_aborts(struct peer *p, const Tony__RankAborts *x)
{
    struct master *m = p->m;
    struct slot_view v;
    if (!has_ranks_server(m, p->slot)) {
        if (!p->abort_refused) /* the executor repeats it with each heartbeat: log it once */
            log_event(LOG_WARN, "rank_abort.refused", f_int("slot", p->slot),
                      f_int("rank", x->rank),
                      f_str("why", "this executor does not have the server of the ranks"));
        p->abort_refused = true;
        return;
    }
    AUTO(free_p) struct rt_role *roles = roles_of(m);
    struct rt_walk w = { .roles = roles, .n = roles ? m->spec->n_roles : 0 };
    struct rt_task t;
    while (runtime_walk(&w, &t)) {
        if (x->rank < t.rank || x->rank - t.rank >= t.ranks)
            continue;
        uint32_t slot = job_task(m->job, t.role_index, t.index);
        job_slot(m->job, slot, &v);
        if (v.generation == x->generation && v.state == SLOT_RUNNING)
            stop_as_exit(m, slot, &v, x->rank - t.rank,
                         x->exit_code & 0xff ? x->exit_code & 0xff : 1);
        return;
    }
}

void executor_frame(struct peer *p, const Tony__Frame *f)
{
    struct master *m = p->m;
    if (m->phase == MP_JOURNAL_FAILED && f->body_case == TONY__FRAME__BODY_ATTEMPT_ENDED) {
        /* the journal fails, so the executor need not keep this report for another master */
        executor_ack(m, &(struct act_ack){ .slot = p->slot,
                                           .generation = f->attempt_ended->generation,
                                           .attempt = f->attempt_ended->attempt,
                                           .finish = true });
        return;
    }
    if (m->phase != MP_RUNNING)
        return;
    switch ((int)f->body_case) {
    case TONY__FRAME__BODY_BEAT:
        (void)master_feed(m, &(struct job_event){ .type = EV_BEAT, .beat = { .slot = p->slot } });
        metrics_on_beat(p, f->beat);
        break;
    case TONY__FRAME__BODY_ATTEMPT_STARTED:
        (void)master_feed(m, &(struct job_event){
                                 .type = EV_ATTEMPT_STARTED,
                                 .attempt_started = { .slot = p->slot,
                                                      .generation = f->attempt_started->generation,
                                                      .attempt = f->attempt_started->attempt,
                                                      .pid = (uint32_t)f->attempt_started->pid } });
        break;
    case TONY__FRAME__BODY_ATTEMPT_ENDED:
        attempt_ended(m, p->slot, f->attempt_ended);
        break;
    case TONY__FRAME__BODY_READY:
        on_ready(p, f->ready);
        break;
    case TONY__FRAME__BODY_TASK_WORD:
        on_task_word(m, p->slot, f->task_word);
        break;
    case TONY__FRAME__BODY_LOG_DATA:
        logs_answer(p, f->log_data);
        break;
    case TONY__FRAME__BODY_LOG_PIECE:
        log_watch_piece(p, f->log_piece);
        break;
    case TONY__FRAME__BODY_STREAM_REFUSED:
        streams_refused(m, p->slot, f->stream_refused);
        break;
    case TONY__FRAME__BODY_RANK_ABORTS:
        on_rank_aborts(p, f->rank_aborts);
        break;
    default:
        log_event(LOG_DEBUG, "executor.unknown_frame", f_int("body", (int)f->body_case));
    }
}

void executor_ask_beats(struct master *m, uint32_t slot)
{
    Tony__OwnBeats ask = TONY__OWN_BEATS__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_OWN_BEATS;
    f.own_beats = &ask;
    if (welcome_allows_quiet(m))
        send_to(m, slot, &f);
}

void executor_disconnected(struct peer *p, bool broke)
{
    struct master *m = p->m;
    if (m->executors[p->slot] != p)
        return;
    m->executors[p->slot] = NULL;
    logs_executor_gone(m, p->slot);
    struct slot_view v;
    job_slot(m->job, p->slot, &v);
    if (m->phase != MP_RUNNING || !v.container)
        return;
    if (m->sched_ops->look)
        m->sched_ops->look(m->sched, v.container);
    (void)master_feed(
        m, &(struct job_event){
               .type = EV_EXECUTOR_GONE,
               .executor_gone = { .slot = p->slot, .broke = broke, .container = v.container } });
}

/* ---- to an executor ----
 *
 * Nothing is sent to an executor that is not connected. When it reconnects, the core repeats the
 * action.
 */

/* Is this attempt over? The action may have waited for the copy of the journal (actions.c). If the
 * slot has lost its container meanwhile, another executor may be connected for it, that of a spare.
 * That executor must not start the old attempt: the core has counted the end of that attempt, and
 * sends another Start.
 */
static bool is_over(const struct slot_view *v, const struct act_start *a)
{
    return v->attempt != a->attempt || v->state < SLOT_RUNNING || v->state == SLOT_RENEWING;
}

void executor_start(struct master *m, const struct act_start *a)
{
    struct conn *c = executor_conn(m, a->slot);
    if (!c)
        return;
    struct peer *p = m->executors[a->slot];
    struct slot_view v;
    job_slot(m->job, a->slot, &v);
    if (is_over(&v, a) || driver_plan_delays_start(m, a) || cluster_spec_awaited(m, p, a))
        return;
    int rc = cluster_spec_refresh_for_start(m, p);
    bool apart = cluster_spec_is_separate(m, p);
    if (rc == 0 && apart)
        rc = cluster_spec_send(m, p);
    struct packed *frame = rc == -ENOMEM ? NULL : start_frame(m, a, &v, apart);
    rc = frame ? conn_send_packed(c, frame) : -ENOMEM;
    if (rc == 0 && !apart)
        rc = conn_send_packed(c, m->cluster_spec.whole);
    if (rc == -ENOMEM) /* other errors: when the executor reconnects, it is sent the addresses */
        master_exit_now(m, MASTER_CRASHED);
}

static void send_to(struct master *m, uint32_t slot, const Tony__Frame *f)
{
    struct conn *c = executor_conn(m, slot);
    if (c && conn_send(c, f) == -ENOMEM)
        master_exit_now(m, MASTER_CRASHED);
}

void executor_stop_attempt(struct master *m, const struct act_stop_attempt *a)
{
    cluster_spec_start_waiting(m); /* a task that has not started cannot be stopped */
    Tony__StopAttempt s = TONY__STOP_ATTEMPT__INIT;
    s.generation = a->generation;
    s.attempt = a->attempt;
    s.grace_ms = a->grace_ms;
    s.reason = (Tony__Reason)a->reason;
    s.wait_ms = a->wait_ms;
    s.save_ms = a->save_ms;
    s.save_signal = (uint32_t)m->spec->checkpoint_signal;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_STOP_ATTEMPT;
    f.stop_attempt = &s;
    send_to(m, a->slot, &f);
}

void executor_ack(struct master *m, const struct act_ack *a)
{
    Tony__AckEnded s = TONY__ACK_ENDED__INIT;
    s.generation = a->generation;
    s.attempt = a->attempt;
    s.finish = a->finish;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_ACK_ENDED;
    f.ack_ended = &s;
    send_to(m, a->slot, &f);
}

void executor_renew(struct master *m, const struct act_renew *a)
{
    Tony__Renew s = TONY__RENEW__INIT;
    s.generation = a->generation;
    s.fresh = a->fresh;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_RENEW;
    f.renew = &s;
    send_to(m, a->slot, &f);
}

void executor_take_spare(struct master *m, const struct act_take *a)
{
    struct peer *p = m->executors[a->from];
    m->executors[a->from] = NULL;
    logs_executor_gone(m, a->from);
    m->addresses_version++;
    locations_move(m, a->slot, a->from);
    if (!p)
        return; /* not connected: executor_hello() finds the new slot when it reconnects */
    p->slot = a->slot;
    m->executors[a->slot] = p;
    log_watch_executor(m, a->slot);
}

bool executor_finish(struct master *m, uint32_t slot, uint32_t grace_ms)
{
    if (!executor_conn(m, slot))
        return false;
    Tony__FinishExecutor s = TONY__FINISH_EXECUTOR__INIT;
    s.grace_ms = grace_ms;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_FINISH_EXECUTOR;
    f.finish_executor = &s;
    send_to(m, slot, &f);
    return true;
}
