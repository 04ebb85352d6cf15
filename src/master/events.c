#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "conf/conf.h"
#include "master/archive.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"

enum {
    TICK_MAX_MS = 1000,
    STALL_WARN_MS = 2000, /* shorter ones are what a loaded machine does */
};

int64_t master_now(const struct master *m)
{
    if (m->blocked_why)
        return m->blocked_job_ms;
    return m->t0_job_ms + (clock_mono_ms() - m->t0_mono_ms);
}

/* The core's container names live until its next event; ours until the flush. */
static int own_containers(struct master *m, size_t from)
{
    for (size_t i = from; i < m->actions.n; i++) {
        struct job_action *a = &m->actions.v[i];
        if (a->container && !(a->container = str_dup(a->container))) {
            m->actions.n = i;
            return -ENOMEM;
        }
    }
    return 0;
}

static int write_record(struct master *m, const struct job_event *ev)
{
    buf_clear(&m->scratch);
    m->last_written_ms = job_now(m->job);
    int rc = job_event_encode(ev, m->last_written_ms, &m->scratch);
    return rc < 0 ? rc : journal_add(&m->journal, buf_span(&m->scratch));
}

static int feed_at(struct master *m, const struct job_event *ev, int64_t now)
{
    if (m->phase != MP_STARTING && m->phase != MP_RUNNING)
        return 1;
    struct err e = { 0 };
    size_t from = m->actions.n;
    int fed = job_feed(m->job, ev, now, &m->actions, &e);
    int rc = own_containers(m, from); /* a refusal may bring actions, too */
    if (fed < 0)
        rc = fed;
    if (fed == 1)
        log_event(LOG_DEBUG, "event.refused", f_str("event", job_event_name(ev->type)),
                  f_int("slot", ev->slot), f_str("why", e.msg));
    else if (rc == 0 && job_is_durable(ev->type))
        rc = write_record(m, ev);
    if (rc < 0) {
        /* No memory: what we hold in it is not to be trusted; what stands in the journal is. */
        log_event(LOG_ERROR, "event.failed", f_str("event", job_event_name(ev->type)),
                  f_int("errno", -rc));
        master_exit_now(m, MASTER_CRASHED);
    }
    return rc < 0 ? rc : fed;
}

int master_feed(struct master *m, const struct job_event *ev)
{
    return feed_at(m, ev, master_now(m));
}

/*
 * Reports lie unread for a while, each for another one, and an age that was right when it was
 * written is not when it is read. The clock is the same for all processes of a machine, so which
 * failure was the first is known. Job time is cut to milliseconds: what ended within the present
 * one is taken to have ended at its beginning.
 */
int master_feed_end(struct master *m, struct job_event *ev, uint64_t ended_mono_us)
{
    int64_t now = master_now(m);
    int64_t now_us = (now - m->t0_job_ms + m->t0_mono_ms) * 1000;
    if (ended_mono_us > 0)
        ev->age_us = ended_mono_us < (uint64_t)now_us ? (uint64_t)now_us - ended_mono_us : 0;
    return feed_at(m, ev, now);
}

/* ---- from the scheduler ---- */

/* Slots come over the wire as numbers: one that the job does not have is not ours to name. */
static bool known_slot(const struct master *m, uint32_t slot)
{
    if (slot < job_n_slots(m->job))
        return true;
    log_event(LOG_WARN, "sched.unknown_slot", f_int("slot", slot));
    return false;
}

/* Of a container that ended between two masters the scheduler may know no more than its name. */
static uint32_t slot_of(const struct master *m, const struct sched_container *c)
{
    for (uint32_t i = 0; c->slot == SCHED_NO_SLOT && i < job_n_slots(m->job); i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        if (v.container && str_eq(v.container, c->id))
            return i;
    }
    return c->slot;
}

static void feed_completed(struct master *m, const struct sched_container *c)
{
    uint32_t slot = slot_of(m, c);
    if (slot == SCHED_NO_SLOT || !known_slot(m, slot))
        return;
    (void)master_feed_end(m,
                          &(struct job_event){
                              .type = EV_COMPLETED,
                              .slot = slot,
                              .container = c->id,
                              .exit_code = c->exit_code,
                              .reason = c->reason,
                              .age_us = c->age_us,
                              .text = c->detail,
                          },
                          c->ended_mono_us);
}

/* A node that is given up takes nothing with it: its containers run on, and whoever is still
 * connected is told to end, as nobody else can tell it. */
static void completed(struct master *m, const struct sched_container *c)
{
    struct slot_view v = { 0 };
    if (m->remote && c->slot < job_n_slots(m->job))
        job_slot(m->job, c->slot, &v);
    bool its_own = v.container && str_eq(v.container, c->id); /* before a new one takes its place */
    struct peer *p = its_own ? m->executors[c->slot] : NULL;
    feed_completed(m, c);
    if (p && m->executors[c->slot] == p)
        (void)executor_finish(m, c->slot, m->spec->kill_grace_ms);
}

/* Whose executors a master before us had; when the last of them is back, we say so. */
static void await_executor(struct master *m, uint32_t asked_as)
{
    uint32_t slot = job_slot_now(m->job, asked_as);
    struct slot_view v;
    job_slot(m->job, slot, &v);
    if (!v.address || v.state == SLOT_ENDED || m->awaited[slot])
        return;
    m->awaited[slot] = true;
    m->n_awaited++;
}

/* A new master: this is the only start there is, with an empty journal or a long one. */
static void registered(struct master *m, const struct sched_event *ev)
{
    if (m->phase != MP_STARTING) {
        log_event(LOG_WARN, "sched.registered_twice");
        return;
    }
    master_drop_actions(m); /* asked for again below, if still wanted */
    m->phase = MP_RUNNING;
    m->host = str_dup(ev->text); /* no memory: it is not shown */
    (void)master_feed(m, &(struct job_event){ .type = EV_MASTER_STARTED,
                                              .epoch = m->epoch,
                                              .running = m->sched_ops->gives_back,
                                              .wall_ms = clock_wall_ms(),
                                              .value_ms = m->remote ? 0 : clock_mono_ms() });
    for (size_t i = 0; i < ev->n; i++) {
        const struct sched_container *c = &ev->containers[i];
        places_seen(m, c);
        calls_begin(m, c);
        if (c->completed)
            feed_completed(m, c);
        else if (known_slot(m, c->slot))
            (void)master_feed(m, &(struct job_event){ .type = EV_CONTAINER_SEEN,
                                                      .slot = c->slot,
                                                      .container = c->id,
                                                      .launched = c->launched,
                                                      .text = c->gpus,
                                                      .node = c->node });
    }
    (void)master_feed(m, &(struct job_event){ .type = EV_RESYNCED });
    for (size_t i = 0; i < ev->n; i++)
        if (ev->containers[i].launched && !ev->containers[i].completed &&
            ev->containers[i].slot < job_n_slots(m->job))
            await_executor(m, ev->containers[i].slot);
    if (m->archive)
        archive_begin(m->archive);
    log_event(LOG_INFO, "master.registered", f_int("epoch", m->epoch),
              f_int("containers", (int64_t)ev->n), f_int("tasks", job_n_tasks(m->job)));
}

static void allocated(struct master *m, const struct sched_event *ev)
{
    for (size_t i = 0; i < ev->n; i++) {
        const struct sched_container *c = &ev->containers[i];
        places_seen(m, c);
        if (known_slot(m, c->slot))
            (void)master_feed(m, &(struct job_event){ .type = EV_ALLOCATED,
                                                      .slot = c->slot,
                                                      .container = c->id,
                                                      .text = c->gpus,
                                                      .node = c->node });
    }
}

static void preempting(struct master *m, const struct sched_event *ev)
{
    for (size_t i = 0; i < ev->n; i++) {
        const struct sched_container *c = &ev->containers[i];
        if (known_slot(m, c->slot))
            (void)master_feed(m, &(struct job_event){ .type = EV_PREEMPTING,
                                                      .slot = c->slot,
                                                      .container = c->id,
                                                      .value_ms = ev->deadline_ms });
    }
}

void master_on_sched(const struct sched_event *ev, void *arg)
{
    struct master *m = arg;
    if (ev->type == SE_BROKEN) {
        log_event(LOG_ERROR, "sched.broken", f_str("why", ev->text));
        if (term_on_broken(m))
            return;
        master_exit_now(m, m->phase == MP_BREAKING ? MASTER_HOPELESS : MASTER_CRASHED);
        return;
    }
    if (m->phase == MP_BREAKING) {
        master_break_on_sched(m, ev);
        return;
    }
    switch (ev->type) {
    case SE_REGISTERED:
        registered(m, ev);
        break;
    case SE_ALLOCATED:
        allocated(m, ev);
        break;
    case SE_REFUSED:
        if (known_slot(m, ev->slot))
            (void)master_feed(m, &(struct job_event){ .type = EV_ALLOCATION_REFUSED,
                                                      .slot = ev->slot,
                                                      .text = ev->text });
        break;
    case SE_COMPLETED:
        for (size_t i = 0; i < ev->n; i++)
            completed(m, &ev->containers[i]);
        break;
    case SE_PREEMPTING:
        preempting(m, ev);
        break;
    case SE_SHRINK:
        (void)master_feed(m, &(struct job_event){
                                 .type = EV_SHRINK, .step = ev->n, .value_ms = ev->deadline_ms });
        break;
    case SE_NONE:
    case SE_BROKEN:
    case SE_COUNT:
        break;
    }
}

/* ---- time ---- */

/* Several within the shortest silence that kills, so that none of our own is taken for a task's. */
static int64_t tick_ms(const struct master *m)
{
    return MIN((int64_t)TICK_MAX_MS, (int64_t)m->spec->heartbeat_ms * 3 / 4);
}

/* A timer that comes late means that we were held up, and so, perhaps, were the beats: the core
 * must know before it counts. Since when is not known: from the last time we looked, at most. */
static void look_for_stall(struct master *m)
{
    int64_t now = clock_mono_ms(), every = tick_ms(m), late = now - m->tick_due_ms;
    if (late > STALL_WARN_MS)
        log_event(LOG_WARN, "master.stalled", f_int("ms", late));
    if (late > every)
        (void)master_feed(m, &(struct job_event){ .type = EV_STALLED,
                                                  .value_ms = MIN(late + every, master_now(m)) });
    m->tick_due_ms = now + every;
    loop_timer_set(m->tick, m->tick_due_ms);
}

static void on_tick(void *arg)
{
    look_for_stall(arg);
}

static int64_t mark_due(const struct master *m)
{
    return m->last_written_ms + (m->probe && m->probe->mark_ms ? m->probe->mark_ms : CLOCK_MARK_MS);
}

/* The mark that tells the next master how late it is: a stall of no length, which changes nothing
 * when it is replayed. */
static void write_mark(struct master *m)
{
    struct job_event mark = { .type = EV_STALLED };
    int rc = master_feed(m, &mark);
    if (rc == 0)
        rc = write_record(m, &mark);
    if (rc < 0)
        master_exit_now(m, MASTER_CRASHED);
    m->last_written_ms = master_now(m); /* a refusal, too, is not tried again at once */
}

static void on_timer(void *arg)
{
    struct master *m = arg;
    struct job_event ev;
    look_for_stall(m);
    if (m->blocked_why) { /* the flush that follows tries to write again */
        loop_timer_set(m->timer, m->blocked_retry_ms);
        return;
    }
    while (m->phase == MP_RUNNING && job_due(m->job, master_now(m), &ev))
        (void)master_feed(m, &ev);
    if (m->phase == MP_RUNNING && master_now(m) >= mark_due(m))
        write_mark(m);
    master_timer_arm(m);
}

void master_timer_arm(struct master *m)
{
    if (m->blocked_why) {
        loop_timer_set(m->timer, m->blocked_retry_ms);
        return;
    }
    if (m->phase != MP_RUNNING) {
        loop_timer_stop(m->timer);
        return;
    }
    int64_t due = MIN(job_deadline(m->job), mark_due(m));
    loop_timer_set(m->timer, m->t0_mono_ms + (due - m->t0_job_ms));
}

int master_timers_open(struct master *m, struct err *e)
{
    m->timer = loop_timer_new(m->loop, on_timer, m);
    m->tick = loop_timer_new(m->loop, on_tick, m);
    m->notify = loop_timer_new(m->loop, clients_notify, m);
    if (!m->timer || !m->tick || !m->notify)
        return err_set(e, ENOMEM, "no memory for the master's timers");
    m->tick_due_ms = clock_mono_ms() + tick_ms(m);
    loop_timer_set(m->tick, m->tick_due_ms);
    return 0;
}
