/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "cause/cause.h"
#include "conf/conf.h"
#include "master/archive.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"

enum {
    TICK_MAX_MS = 1000,   /* the longest interval of the timer that detects stalls, see tick_ms() */
    STALL_WARN_MS = 2000, /* shorter stalls are normal on a loaded machine */
    INTERRUPTION_MAX = 1024, /* bytes of the file `interrupted` */
};

int64_t master_now(const struct master *m)
{
    if (m->blocked_why)
        return m->blocked_job_ms;
    return m->t0_job_ms + (clock_mono_ms() - m->t0_mono_ms);
}

/* Copy the strings of new actions: the core's are valid until its next event only. */
static int copy_texts(struct master *m, size_t from)
{
    for (size_t i = from; i < m->actions.n; i++) {
        const char **text = job_action_text(&m->actions.v[i]);
        if (text && *text && !(*text = str_dup(*text))) {
            m->actions.n = i;
            return -ENOMEM;
        }
    }
    return 0;
}

static int write_event(struct master *m, const struct job_event *ev)
{
    int rc = replay_add_event(&m->journal, m->job, ev, &m->replay, &m->scratch);
    m->last_written_ms = m->replay.last_t_ms;
    return rc;
}

static int feed_at(struct master *m, const struct job_event *ev, int64_t now, struct err *e)
{
    if (m->phase != MP_STARTING && m->phase != MP_RUNNING) {
        (void)err_set(e, ESHUTDOWN, "the job is over");
        return 1;
    }
    size_t from = m->actions.n;
    int fed = job_feed(m->job, ev, now, &m->actions, e);
    if (fed == 0 && master_grow_slots(m) < 0)
        fed = -ENOMEM;
    int rc = copy_texts(m, from); /* a refusal may bring actions, too */
    if (rc == 0)
        actions_merge(m, from);
    if (fed < 0)
        rc = fed;
    if (fed == 1)
        log_event(LOG_DEBUG, "event.refused", f_str("event", job_event_name(ev->type)),
                  f_int("slot", job_event_slot(ev)), f_str("why", e->msg));
    else if (rc == 0)
        rc = write_event(m, ev);
    if (rc < 0) {
        /* The state in memory may be incomplete now. A new master replays the journal. */
        log_event(LOG_ERROR, "event.failed", f_str("event", job_event_name(ev->type)),
                  f_int("errno", -rc));
        master_exit_now(m, MASTER_CRASHED);
    }
    return rc < 0 ? rc : fed;
}

int master_feed(struct master *m, const struct job_event *ev)
{
    struct err e = { 0 };
    return feed_at(m, ev, master_now(m), &e);
}

int master_feed_asked(struct master *m, const struct job_event *ev, struct err *e)
{
    return feed_at(m, ev, master_now(m), e);
}

/* Find the cause of the end and write it into the event. The journal keeps it, so that a replay
 * does not search again. line: memory for the event's cause_line. */
static void recognize_cause(const struct master *m, struct job_event *ev,
                            char line[CAUSE_LINE_MAX + 1])
{
    struct cause_end end = { .alone = job_n_tasks(m->job) == 1 };
    bool container = ev->type == EV_COMPLETED;
    if (container) {
        end.reason = ev->completed.reason;
        end.exit_code = ev->completed.exit_code;
        end.detail = ev->completed.detail;
    } else {
        end.reason = ev->attempt_ended.reason;
        end.exit_code = ev->attempt_ended.exit_code;
        end.signal = ev->attempt_ended.signal;
        end.detail = ev->attempt_ended.detail;
        end.tail = ev->attempt_ended.tail;
    }
    if (end.reason == END_NONE)
        end.reason = END_UNKNOWN;
    if (container)
        end_container_code(end.reason, &end.exit_code, &end.signal);
    const char *cause = cause_record(&end, line), *shown = line[0] ? line : NULL;
    *(container ? &ev->completed.cause : &ev->attempt_ended.cause) = cause;
    *(container ? &ev->completed.cause_line : &ev->attempt_ended.cause_line) = shown;
}

/*
 * A report may wait in a socket before the master reads it, so the age in it is too small by then.
 * If the reporter is on this machine, the age is computed again from the monotonic clock, which all
 * processes share: this shows which of several failures was the first. Job time has a resolution of
 * one millisecond and is rounded down, so the end may lie after it. Here it is rounded up.
 */
int master_feed_end(struct master *m, struct job_event *ev, uint64_t ended_mono_us)
{
    char line[CAUSE_LINE_MAX + 1];
    int64_t now = master_now(m);
    int64_t now_us = (now - m->t0_job_ms + m->t0_mono_ms) * 1000;
    uint64_t *age_us = ev->type == EV_COMPLETED ? &ev->completed.age_us : &ev->attempt_ended.age_us;
    if (ended_mono_us > 0) {
        now++;
        now_us += 1000;
        *age_us = ended_mono_us < (uint64_t)now_us ? (uint64_t)now_us - ended_mono_us : 0;
    }
    recognize_cause(m, ev, line);
    struct err e = { 0 };
    return feed_at(m, ev, now, &e);
}

/* ---- from the scheduler ---- */

/* Does the job have this slot? The number comes from another process, so it may be wrong. */
static bool known_slot(const struct master *m, uint32_t slot)
{
    if (slot < job_n_slots(m->job))
        return true;
    log_event(LOG_WARN, "sched.unknown_slot", f_int("slot", slot));
    return false;
}

static void map_drop(struct map *m)
{
    map_done(m, NULL);
}

/* Fill *out with the slot, plus 1, of each container. The map is made only if the scheduler reports
 * a container by its id alone, because it ended while no master ran. 0 or -ENOMEM. */
static int map_slots(const struct master *m, const struct sched_event *ev, struct map *out)
{
    bool needed = false;
    int rc = 0;
    for (size_t i = 0; i < ev->n; i++)
        needed |= ev->containers[i].slot == SCHED_NO_SLOT;
    for (uint32_t i = 0; needed && rc == 0 && i < job_n_slots(m->job); i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        if (v.container)
            rc = map_set(out, v.container, (void *)(uintptr_t)(i + 1), NULL);
    }
    return rc;
}

/* Returns SCHED_NO_SLOT if no slot has this container: the core knows its end already. If a slot
 * has taken the container over from a spare since map_slots(), the map has the spare; job_feed()
 * finds the slot. */
static uint32_t slot_of(const struct map *slots, const struct sched_container *c)
{
    uintptr_t value = c->slot == SCHED_NO_SLOT ? (uintptr_t)map_get(slots, c->id) : 0;
    return value ? (uint32_t)(value - 1) : c->slot;
}

static void feed_completed(struct master *m, const struct sched_container *c, uint32_t slot)
{
    if (slot == SCHED_NO_SLOT || !known_slot(m, slot))
        return;
    (void)master_feed_end(m,
                          &(struct job_event){ .type = EV_COMPLETED,
                                               .completed = { .slot = slot,
                                                              .container = c->id,
                                                              .exit_code = c->exit_code,
                                                              .reason = c->reason,
                                                              .age_us = c->age_us,
                                                              .detail = c->detail } },
                          c->ended_mono_us);
}

/* If a cluster gives up a node, it reports the containers there as ended, but they may run on. So
 * an executor that is still connected is told to end: the cluster cannot reach it any more. */
static void completed(struct master *m, const struct sched_container *c)
{
    struct slot_view v = { 0 };
    if (m->remote && c->slot < job_n_slots(m->job))
        job_slot(m->job, c->slot, &v);
    bool is_current = v.container && str_eq(v.container, c->id);
    struct peer *p = is_current ? m->executors[c->slot] : NULL; /* feed_completed() may change it */
    feed_completed(m, c, c->slot);
    if (p && m->executors[c->slot] == p)
        (void)executor_finish(m, c->slot, m->spec->kill_grace_ms);
}

/* If an earlier master had registered this executor, expect it to reconnect. count_reconnected()
 * logs when all have. */
static void expect_executor(struct master *m, uint32_t asked_as)
{
    uint32_t slot = job_slot_now(m->job, asked_as);
    struct slot_view v;
    job_slot(m->job, slot, &v);
    if (!v.address || v.state == SLOT_ENDED || m->executor_expected[slot])
        return;
    m->executor_expected[slot] = true;
    m->n_executors_expected++;
}

/* If the cluster reports a node as lost, the executors there may still run and wait for the earlier
 * master. This master connects to them: an executor that answers ends its task, so that the slot
 * does not have to wait until the lease is over. */
static void reconnect_out_of_sight(struct master *m)
{
    for (uint32_t i = 0; i < job_n_slots(m->job); i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        if ((v.state == SLOT_REPLACING || v.state == SLOT_LEAVING) && v.container)
            reconnect_executor(m, i, v.container, v.node);
    }
}

/* End a container of a slot that the job does not have. The earlier master was asked to let the job
 * grow, and died before a copy of its journal had that request. If the job grows again, the
 * scheduler must not answer the new request with this container. */
static void stop_unknown_container(struct master *m, const struct sched_container *c)
{
    struct job_action a = { .type = ACT_STOP_CONTAINER,
                            .stop_container = { .container = str_dup(c->id) } };
    if (a.stop_container.container && vec_push(&m->actions, a) == 0)
        return;
    free((char *)(uintptr_t)a.stop_container.container);
    master_exit_now(m, MASTER_CRASHED);
}

/* The cluster still has this container. The journal may lack its grant: then the record of this
 * event is the first one about it. */
static void feed_seen(struct master *m, const struct sched_container *c)
{
    uint32_t slot = job_slot_now(m->job, c->slot);
    struct slot_view v;
    job_slot(m->job, slot, &v);
    bool is_new = v.state == SLOT_ASKED || v.state == SLOT_HELD;
    (void)master_feed(m, &(struct job_event){ .type = EV_CONTAINER_SEEN,
                                              .container_seen = { .slot = c->slot,
                                                                  .container = c->id,
                                                                  .launched = c->launched,
                                                                  .gpus = c->gpus,
                                                                  .node = c->node } });
    if (is_new && m->phase == MP_RUNNING)
        locations_granted(m, slot, m->journal.next_n - 1);
}

/* The sentence of the pool about a stop of the machine since the last master (pool/boot.c); NULL =
 * the machine has not stopped. */
static char *read_interruption(const struct master *m)
{
    AUTO(free_p) char *path = m->epoch > 1 ? fs_join(m->job_dir, "interrupted") : NULL;
    AUTO(buf_done) struct buf text = { .max = INTERRUPTION_MAX };
    if (!path || fs_read(AT_FDCWD, path, &text, NULL) < 0)
        return NULL;
    return span_dup(span_trim(buf_span(&text)));
}

/* Why the containers of the journal that the scheduler does not know are lost; NULL = unknown. On
 * the pool, a keeper that knows no container at all has replaced one that has ended: the executors
 * ended with that one. */
static char *why_lost(const struct master *m, const struct sched_event *ev)
{
    char *why = m->remote ? NULL : read_interruption(m);
    bool is_new_keeper = !m->remote && m->epoch > 1 && ev->n == 0;
    return why || !is_new_keeper ? why : str_dup(CAUSE_KEEPER_ENDED);
}

static bool is_clean(const struct sched_event *ev, const char *node)
{
    for (size_t i = 0; i < ev->n_clean; i++)
        if (str_eq(ev->clean[i], node))
            return true;
    return ev->all_clean;
}

/* The scheduler knows all containers on these nodes. The others that the journal has there have
 * ended, so their slots need not wait for a lease. Slots that already wait for one keep waiting:
 * the node was lost for an earlier master. */
static void feed_ended_on_clean_nodes(struct master *m, const struct sched_event *ev)
{
    AUTO(map_drop) struct map named = { 0 };
    for (size_t i = 0; i < ev->n; i++)
        if (map_set(&named, ev->containers[i].id, m, NULL) < 0) {
            master_exit_now(m, MASTER_CRASHED);
            return;
        }
    for (uint32_t i = 0; i < job_n_slots(m->job) && m->phase == MP_RUNNING; i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        if (!v.container || !v.node || map_get(&named, v.container) || v.state == SLOT_ENDED ||
            v.state == SLOT_REPLACING || v.state == SLOT_LEAVING || !is_clean(ev, v.node))
            continue;
        const struct sched_container c = { .id = v.container,
                                           .exit_code = 1,
                                           .reason = ev->clean_reason,
                                           .detail = ev->clean_reason == END_PREEMPTED
                                                         ? "the cluster has started the job again"
                                                         : "the keeper of its node has died" };
        feed_completed(m, &c, i);
    }
}

/* SE_REGISTERED: the master begins its work. The first master of a job and a later one do the same;
 * only their journals differ. */
static void registered(struct master *m, const struct sched_event *ev)
{
    if (m->phase != MP_STARTING) {
        log_event(LOG_WARN, "sched.registered_twice");
        return;
    }
    if (queued_resize_delays(m, ev))
        return;
    AUTO(map_drop) struct map slots = { 0 };
    struct err e = { 0 };
    if (map_slots(m, ev, &slots) < 0) {
        master_exit_now(m, MASTER_CRASHED);
        return;
    }
    master_drop_actions(m); /* the events below return those that are still wanted */
    m->phase = MP_RUNNING;
    m->host = str_dup(ev->text); /* NULL if there is no memory: then it is not shown */
    m->sent_bounds_min = m->sent_bounds_max = 0;
    m->sent_ends_late = m->outlook_due_ms = 0;
    if (job_was_resized(m->job) && sched_tell_shape(m, &e) < 0) {
        log_err(LOG_ERROR, "sched.failed", &e);
        master_exit_now(m, MASTER_CRASHED);
    }
    (void)master_feed(
        m, &(struct job_event){ .type = EV_MASTER_STARTED,
                                .master_started = { .epoch = m->epoch,
                                                    .gives_back = m->sched_ops->gives_back,
                                                    .wall_ms = clock_wall_ms(),
                                                    .mono_ms = m->remote ? 0 : clock_mono_ms() } });
    for (size_t i = 0; i < ev->n; i++) {
        const struct sched_container *c = &ev->containers[i];
        locations_set(m, c);
        if (c->launched && !c->completed && c->slot < job_n_slots(m->job))
            reconnect_executor(m, job_slot_now(m->job, c->slot), c->id, c->node);
        if (c->completed)
            feed_completed(m, c, slot_of(&slots, c));
        else if (!known_slot(m, c->slot))
            stop_unknown_container(m, c);
        else
            feed_seen(m, c);
    }
    if (ev->n_clean || ev->all_clean)
        feed_ended_on_clean_nodes(m, ev);
    AUTO(free_p) char *why = why_lost(m, ev);
    (void)master_feed(m, &(struct job_event){ .type = EV_RESYNCED, .resynced = { .why = why } });
    ran_continue(m);
    queued_resize_apply(m);
    for (size_t i = 0; i < ev->n; i++)
        if (ev->containers[i].launched && !ev->containers[i].completed &&
            ev->containers[i].slot < job_n_slots(m->job))
            expect_executor(m, ev->containers[i].slot);
    reconnect_out_of_sight(m);
    if (m->archive)
        archive_begin(m->archive);
    log_event(LOG_INFO, "master.registered", f_int("epoch", m->epoch),
              f_int("containers", (int64_t)ev->n), f_int("tasks", job_n_tasks(m->job)));
}

int master_size_wish(struct master *m, const struct size_wish *w, struct err *e)
{
    struct job_event ev = { .type = w->grow ? EV_GROW : EV_SHRINK };
    if (w->grow)
        ev.grow = (struct ev_grow){ w->n_containers, w->within_ms, w->why, w->saved };
    else
        ev.shrink = (struct ev_shrink){ w->n_containers, w->within_ms, w->why, w->saved, w->leave };
    int rc = master_feed_asked(m, &ev, e);
    log_event(LOG_INFO, "sched.wish", f_str("to", w->grow ? "grow" : "shrink"),
              f_int("containers", w->n_containers), f_int("within_ms", w->within_ms),
              f_str("why", w->why), f_str("answer", rc == 0 ? "accepted" : e->msg));
    return rc == 1 ? -(e->num ? e->num : EINVAL) : rc;
}

static void scheduler_wishes(struct master *m, const struct sched_event *ev)
{
    const struct size_wish w = { .grow = ev->type == SE_GROW,
                                 .n_containers = (uint32_t)MIN(ev->n, (size_t)UINT32_MAX),
                                 .within_ms = ev->deadline_ms,
                                 .why = ev->text,
                                 .saved = ev->saved };
    struct err e = { 0 };
    (void)master_size_wish(m, &w, &e); /* a refusal is logged */
}

static void allocated(struct master *m, const struct sched_event *ev)
{
    for (size_t i = 0; i < ev->n; i++) {
        const struct sched_container *c = &ev->containers[i];
        locations_set(m, c);
        if (!known_slot(m, c->slot))
            continue;
        (void)master_feed(m, &(struct job_event){ .type = EV_ALLOCATED,
                                                  .allocated = { .slot = c->slot,
                                                                 .container = c->id,
                                                                 .gpus = c->gpus,
                                                                 .node = c->node } });
        if (m->phase == MP_RUNNING)
            locations_granted(m, job_slot_now(m->job, c->slot), m->journal.next_n - 1);
    }
}

static void preempting(struct master *m, const struct sched_event *ev)
{
    for (size_t i = 0; i < ev->n; i++) {
        const struct sched_container *c = &ev->containers[i];
        if (known_slot(m, c->slot))
            (void)master_feed(
                m, &(struct job_event){ .type = EV_PREEMPTING,
                                        .preempting = { .slot = c->slot,
                                                        .container = c->id,
                                                        .within_ms = ev->deadline_ms } });
    }
}

static void alive(struct master *m, const struct sched_event *ev)
{
    for (size_t i = 0; i < ev->n && m->phase == MP_RUNNING; i++) {
        if (!known_slot(m, ev->slots[i]))
            continue;
        uint32_t slot = job_slot_now(m->job, ev->slots[i]);
        if (m->executors[slot]) /* else it may be a container that the job has given up */
            (void)master_feed(m, &(struct job_event){ .type = EV_BEAT, .beat = { .slot = slot } });
    }
}

void master_on_sched(const struct sched_event *ev, void *arg)
{
    struct master *m = arg;
    if (ev->type == SE_BROKEN) {
        log_event(LOG_ERROR, "sched.broken", f_str("why", ev->text));
        if (termination_on_sched_broken(m))
            return;
        master_exit_now(m, m->phase == MP_JOURNAL_FAILED ? MASTER_HOPELESS : MASTER_CRASHED);
        return;
    }
    if (m->phase == MP_JOURNAL_FAILED) {
        journal_failed_on_sched(m, ev);
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
            (void)master_feed(m, &(struct job_event){
                                     .type = EV_ALLOCATION_REFUSED,
                                     .allocation_refused = { .slot = ev->slot, .why = ev->text } });
        break;
    case SE_COMPLETED:
        for (size_t i = 0; i < ev->n; i++)
            completed(m, &ev->containers[i]);
        break;
    case SE_PREEMPTING:
        preempting(m, ev);
        break;
    case SE_ENDING:
        (void)master_feed(
            m, &(struct job_event){
                   .type = EV_STOP,
                   .stop = { .who = "the cluster",
                             .why = ev->text,
                             .save_ms =
                                 MIN(ev->deadline_ms, (int64_t)m->spec->checkpoint_grace_ms) } });
        break;
    case SE_SHRINK:
    case SE_GROW:
        scheduler_wishes(m, ev);
        break;
    case SE_ALIVE:
        alive(m, ev);
        break;
    case SE_NONE:
    case SE_BROKEN:
    case SE_COUNT:
        break;
    }
}

/* ---- time ---- */

/* The pause between two looks for a stall. It is shorter than a heartbeat, so that a stall of this
 * process is not taken for the silence of a task. */
static int64_t tick_ms(const struct master *m)
{
    return MIN((int64_t)TICK_MAX_MS, (int64_t)m->spec->heartbeat_ms * 3 / 4);
}

/* If the timer fires late, this process did not run for a while, and heartbeats may wait unread.
 * The core must know that before it looks for silent executors. The stall may have begun at any
 * time since the last look, so the longest possible one is reported. */
static void look_for_stall(struct master *m)
{
    int64_t now = clock_mono_ms(), every = tick_ms(m), late = now - m->stall_check_due_ms;
    if (late > STALL_WARN_MS)
        log_event(LOG_WARN, "master.stalled", f_int("ms", late));
    if (late > every)
        (void)master_feed(m, &(struct job_event){
                                 .type = EV_STALLED,
                                 .stalled = { .stalled_ms = MIN(late + every, master_now(m)) } });
    m->stall_check_due_ms = now + every;
    loop_timer_set(m->stall_timer, m->stall_check_due_ms);
}

static void on_tick(void *arg)
{
    look_for_stall(arg);
}

static int64_t mark_due(const struct master *m)
{
    return m->last_written_ms + (m->probe && m->probe->mark_ms ? m->probe->mark_ms : CLOCK_MARK_MS);
}

/* Write a record with the present time, from which the next master continues the job time. The
 * record is a stall of 0 ms, so a replay of it changes nothing else. */
static void write_mark(struct master *m)
{
    struct job_event mark = { .type = EV_STALLED };
    int rc = master_feed(m, &mark);
    if (rc == 0)
        rc = replay_add_record(&m->journal, &mark, job_now(m->job), &m->replay, &m->scratch);
    if (rc < 0)
        master_exit_now(m, MASTER_CRASHED);
    m->last_written_ms = master_now(m); /* also if it was refused: the next try is at mark_due() */
}

static void on_timer(void *arg)
{
    struct master *m = arg;
    struct job_event ev;
    look_for_stall(m);
    if (m->blocked_why) { /* the next flush repeats the write */
        loop_timer_set(m->deadline_timer, m->blocked_retry_ms);
        return;
    }
    while (m->phase == MP_RUNNING && job_due(m->job, master_now(m), &ev)) {
        (void)master_feed(m, &ev);
        if (ev.type == EV_SUSPECT) /* perhaps only the keeper hangs */
            executor_ask_beats(m, ev.suspect.slot);
    }
    if (m->phase == MP_RUNNING && master_now(m) >= mark_due(m))
        write_mark(m);
    master_timer_arm(m);
}

void master_timer_arm(struct master *m)
{
    if (m->blocked_why) {
        loop_timer_set(m->deadline_timer, m->blocked_retry_ms);
        return;
    }
    if (m->phase != MP_RUNNING) {
        loop_timer_stop(m->deadline_timer);
        return;
    }
    int64_t due = MIN(job_deadline(m->job), mark_due(m));
    loop_timer_set(m->deadline_timer, m->t0_mono_ms + (due - m->t0_job_ms));
}

int master_timers_open(struct master *m, struct err *e)
{
    m->deadline_timer = loop_timer_new(m->loop, on_timer, m);
    m->stall_timer = loop_timer_new(m->loop, on_tick, m);
    m->notify_timer = loop_timer_new(m->loop, clients_notify, m);
    m->outlook_timer = loop_timer_new(m->loop, sched_tell_outlook_later, m);
    if (!m->deadline_timer || !m->stall_timer || !m->notify_timer || !m->outlook_timer)
        return err_set(e, ENOMEM, "no memory for the master's timers");
    m->stall_check_due_ms = clock_mono_ms() + tick_ms(m);
    loop_timer_set(m->stall_timer, m->stall_check_due_ms);
    return 0;
}
