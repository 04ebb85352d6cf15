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

static void attempt_ended(struct master *m, uint32_t slot, const Tony__AttemptEnded *x)
{
    unsigned reason = (unsigned)x->reason;
    (void)master_feed_end(m,
                          &(struct job_event){
                              .type = EV_ATTEMPT_ENDED,
                              .slot = slot,
                              .generation = x->generation,
                              .attempt = x->attempt,
                              .rank = x->rank,
                              .exit_code = x->exit_code,
                              .signal = x->signal,
                              .reason = reason < END_COUNT ? (enum end_reason)reason : END_UNKNOWN,
                              .age_us = x->age_us,
                              .step = x->step,
                              .total = x->total,
                              .text = text_or_null(x->detail),
                              .tail = text_or_null(x->stderr_tail),
                          },
                          x->ended_mono_us);
}

/* NULL: it may come in. Else why not. The slot that it was made for may have been a spare's. */
static const char *why_not(const struct master *m, const Tony__ExecutorHello *h, uint32_t slot,
                           struct slot_view *out_v)
{
    if (h->version != TONY__VERSION__PROTOCOL_VERSION)
        return "the executor speaks another version of the protocol";
    if (slot >= job_n_slots(m->job))
        return "the job has no such task";
    job_slot(m->job, slot, out_v);
    if (!out_v->container || !str_eq(out_v->container, h->container_id))
        return "this container is no longer the task's";
    if (out_v->state == SLOT_ENDED)
        return "the task has ended";
    return NULL;
}

static void first_hello(struct master *m, const Tony__ExecutorHello *h, uint32_t slot)
{
    char address[300];
    (void)snprintf(address, sizeof address, "%s:%u", h->host, h->n_ports ? h->ports[0] : 0);
    m->addresses_version++;
    (void)master_feed(m, &(struct job_event){
                             .type = EV_REGISTERED,
                             .slot = slot,
                             .container = h->container_id,
                             .text = address,
                             .tb_port = h->tb_port,
                             .pid = (uint32_t)h->pid,
                         });
}

/* What it has kept for us comes first: an attempt that ended while we were away must not look like
 * one that was lost. */
static void hello_again(struct master *m, const Tony__ExecutorHello *h, uint32_t slot)
{
    for (size_t i = 0; i < h->n_unacked; i++)
        attempt_ended(m, slot, h->unacked[i]);
    (void)master_feed(m, &(struct job_event){
                             .type = EV_EXECUTOR_BACK,
                             .slot = slot,
                             .container = h->container_id,
                             .generation = h->generation,
                             .attempt = h->attempt,
                             .running = h->running,
                         });
}

/* It is ready for another attempt. */
static void ready(struct peer *p, const Tony__Ready *r)
{
    struct master *m = p->m;
    struct slot_view v;
    char address[300];
    job_slot(m->job, p->slot, &v);
    (void)snprintf(address, sizeof address, "%s:%u", r->host, r->n_ports ? r->ports[0] : 0);
    if (!str_eq(v.address, address))
        m->addresses_version++;
    (void)master_feed(m, &(struct job_event){
                             .type = EV_REGISTERED,
                             .slot = p->slot,
                             .container = v.container,
                             .generation = r->generation,
                             .text = address,
                             .tb_port = r->tb_port,
                             .pid = v.pid,
                         });
}

static void is_back(struct master *m, uint32_t slot)
{
    if (!m->awaited[slot])
        return;
    m->awaited[slot] = false;
    m->n_back++;
    if (--m->n_awaited == 0)
        log_event(LOG_INFO, "master.back", f_int("executors", m->n_back),
                  f_int("ms", clock_mono_ms() - m->t0_mono_ms));
}

static void executor_peers(struct master *m, uint32_t slot);

void executor_hello(struct peer *p, const Tony__Frame *f)
{
    struct master *m = p->m;
    const Tony__ExecutorHello *h = f->executor_hello;
    if (m->phase == MP_STARTING) { /* too early: it dials again in a moment */
        peer_refuse(p, EAGAIN, NULL);
        return;
    }
    if (m->phase != MP_RUNNING) {
        peer_refuse(p, ESTALE, "the job is over");
        return;
    }
    if (h->epoch_seen > m->epoch) { /* a newer master lives: we are the one who must go */
        log_event(LOG_ERROR, "master.superseded", f_int("epoch", m->epoch),
                  f_int("seen", h->epoch_seen));
        master_exit_now(m, MASTER_CRASHED);
        return;
    }
    struct slot_view v;
    uint32_t slot = job_slot_now(m->job, h->slot);
    const char *why = why_not(m, h, slot, &v);
    if (why) {
        log_event(LOG_INFO, "executor.refused", f_int("slot", slot),
                  f_str("container", h->container_id), f_str("why", why));
        peer_refuse(p, ESTALE, why);
        return;
    }
    struct peer *old = m->executors[slot];
    if (old) { /* it dialled again before we saw the break */
        m->executors[slot] = NULL;
        logs_executor_gone(m, slot);
        peer_refuse(old, ESTALE, "a newer connection of the same executor is here");
    }
    p->kind = PEER_EXECUTOR;
    p->slot = slot;
    m->executors[slot] = p;
    if (welcome_send(m, p, &v) < 0)
        return; /* the connection is going; its end is told */
    if (v.address)
        hello_again(m, h, slot);
    else
        first_hello(m, h, slot);
    is_back(m, slot);
    if (h->running && job_restarts(m->job))
        executor_peers(m, slot);
}

static void task_word(struct master *m, uint32_t slot, const Tony__TaskWord *w)
{
    if (w->total > 0 || w->step > 0)
        (void)master_feed(
            m, &(struct job_event){
                   .type = EV_PROGRESS, .slot = slot, .step = w->step, .total = w->total });
    if (text_or_null(w->checkpoint))
        (void)master_feed(m, &(struct job_event){ .type = EV_CHECKPOINT,
                                                  .slot = slot,
                                                  .generation = w->generation,
                                                  .attempt = w->attempt,
                                                  .step = w->checkpoint_step,
                                                  .group = w->checkpoint_parts,
                                                  .text = w->checkpoint });
    if (text_or_null(w->plan))
        plan_told(m, slot, w);
    if (w->ready)
        (void)master_feed(m, &(struct job_event){ .type = EV_TASK_READY,
                                                  .slot = slot,
                                                  .generation = w->generation,
                                                  .attempt = w->attempt });
    if (text_or_null(w->tensorboard_url))
        (void)master_feed(m, &(struct job_event){ .type = EV_TENSORBOARD,
                                                  .slot = slot,
                                                  .text = w->tensorboard_url });
}

/* The caller's; NULL = no memory. */
static struct rt_role *roles_of(const struct job_spec *s)
{
    struct rt_role *roles = calloc(s->n_roles + 1, sizeof *roles);
    for (size_t i = 0; roles && i < s->n_roles; i++)
        roles[i] = (struct rt_role){ .name = s->roles[i].name,
                                     .n = s->roles[i].instances,
                                     .kind = s->roles[i].kind,
                                     .ranks = s->roles[i].ranks };
    return roles;
}

static void send_to(struct master *m, uint32_t slot, const Tony__Frame *f);

/* End its rank now, to be reported as an exit with that code. */
static void exit_attempt(struct master *m, uint32_t slot, const struct slot_view *v, uint32_t rank,
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

/* Its end is to look as if it had exited with that code; what follows for the job is what follows
 * from any end of a task. */
static void rank_aborts(struct master *m, const Tony__RankAborts *x)
{
    struct slot_view v;
    uint32_t slot = 0;
    AUTO(free_p) struct rt_role *roles = roles_of(m->spec);
    struct rt_walk w = { .roles = roles, .n = roles ? m->spec->n_roles : 0 };
    struct rt_task t;
    while (runtime_walk(&w, &t)) {
        if (x->rank < t.rank || x->rank - t.rank >= t.ranks)
            continue;
        for (uint32_t i = 0; i < t.role_index; i++)
            slot += roles[i].n;
        slot += t.index; /* slots are in the order of the roles */
        job_slot(m->job, slot, &v);
        if (v.generation == x->generation && v.state == SLOT_RUNNING)
            exit_attempt(m, slot, &v, x->rank - t.rank,
                         x->exit_code & 0xff ? x->exit_code & 0xff : 1);
        return;
    }
}

void executor_frame(struct peer *p, const Tony__Frame *f)
{
    struct master *m = p->m;
    if (m->phase == MP_BREAKING && f->body_case == TONY__FRAME__BODY_ATTEMPT_ENDED) {
        /* it need not keep what nobody will write down */
        struct job_action ack = { .type = ACT_ACK, .slot = p->slot, .finish = true };
        ack.generation = f->attempt_ended->generation;
        ack.attempt = f->attempt_ended->attempt;
        executor_ack(m, &ack);
        return;
    }
    if (m->phase != MP_RUNNING)
        return;
    switch ((int)f->body_case) {
    case TONY__FRAME__BODY_BEAT:
        (void)master_feed(m, &(struct job_event){ .type = EV_BEAT, .slot = p->slot });
        break;
    case TONY__FRAME__BODY_ATTEMPT_STARTED:
        (void)master_feed(m, &(struct job_event){ .type = EV_ATTEMPT_STARTED,
                                                  .slot = p->slot,
                                                  .generation = f->attempt_started->generation,
                                                  .attempt = f->attempt_started->attempt,
                                                  .pid = (uint32_t)f->attempt_started->pid });
        break;
    case TONY__FRAME__BODY_ATTEMPT_ENDED:
        attempt_ended(m, p->slot, f->attempt_ended);
        break;
    case TONY__FRAME__BODY_READY:
        ready(p, f->ready);
        break;
    case TONY__FRAME__BODY_TASK_WORD:
        task_word(m, p->slot, f->task_word);
        break;
    case TONY__FRAME__BODY_LOG_DATA:
        logs_answer(p, f->log_data);
        break;
    case TONY__FRAME__BODY_RANK_ABORTS:
        rank_aborts(m, f->rank_aborts);
        break;
    default:
        log_event(LOG_DEBUG, "executor.unknown_frame", f_int("body", (int)f->body_case));
    }
}

void executor_gone(struct peer *p, bool broke)
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
    (void)master_feed(m, &(struct job_event){ .type = EV_EXECUTOR_GONE,
                                              .slot = p->slot,
                                              .running = broke,
                                              .container = v.container });
}

/* ---- to an executor: one that is not connected gets it when it is back, for the core asks again
 * then ---- */

void executor_start(struct master *m, const struct job_action *a)
{
    struct conn *c = executor_conn(m, a->slot);
    if (!c)
        return;
    if (plan_awaited(m, a))
        return;
    struct slot_view v;
    job_slot(m->job, a->slot, &v);
    struct packed *frame = start_frame(m, a, &v);
    if (!frame || conn_send_packed(c, frame) == -ENOMEM)
        master_exit_now(m, MASTER_CRASHED);
}

static void send_to(struct master *m, uint32_t slot, const Tony__Frame *f)
{
    struct conn *c = executor_conn(m, slot);
    if (c && conn_send(c, f) == -ENOMEM)
        master_exit_now(m, MASTER_CRASHED);
}

void executor_stop_attempt(struct master *m, const struct job_action *a)
{
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

void executor_ack(struct master *m, const struct job_action *a)
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

void executor_renew(struct master *m, const struct job_action *a)
{
    Tony__Renew s = TONY__RENEW__INIT;
    s.generation = a->generation;
    s.fresh = a->fresh;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_RENEW;
    f.renew = &s;
    send_to(m, a->slot, &f);
}

void executor_moved(struct master *m, const struct job_action *a)
{
    struct peer *p = m->executors[a->from];
    m->executors[a->from] = NULL;
    logs_executor_gone(m, a->from);
    m->addresses_version++;
    places_move(m, a->slot, a->from);
    if (!p)
        return; /* it dials again, and is told then */
    p->slot = a->slot;
    m->executors[a->slot] = p;
}

/* Tasks that have a spec file find them there; others could not take them. */
static bool has_spec_file(const struct master *m)
{
    const struct runtime *rt = runtime_find(m->spec->framework);
    return rt && rt->spec_file;
}

static void send_peers(struct master *m, uint32_t slot, struct packed *frame)
{
    struct slot_view v;
    struct conn *c = executor_conn(m, slot);
    job_slot(m->job, slot, &v);
    if (frame && c && v.state == SLOT_RUNNING)
        (void)conn_send_packed(c, frame); /* a broken one dials again, and is told then */
    else if (!frame)
        master_exit_now(m, MASTER_CRASHED);
}

/* One that was away when they changed. */
static void executor_peers(struct master *m, uint32_t slot)
{
    if (has_spec_file(m))
        send_peers(m, slot, peers_frame(m));
}

void executors_peers(struct master *m)
{
    if (m->peers_version == m->addresses_version || !has_spec_file(m))
        return;
    m->peers_version = m->addresses_version;
    struct packed *frame = peers_frame(m);
    for (uint32_t i = 0; i < job_n_tasks(m->job); i++)
        send_peers(m, i, frame);
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
