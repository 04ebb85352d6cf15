/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the journal, and then carries out the actions that the core returned. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "conf/conf.h"
#include "master/copies.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"

enum { MERGE_MIN = 64 }; /* actions_merge() searches if more than this plus 4 for each slot wait */

/* Consecutive actions of one type (ask, cancel, launch or release) go to the scheduler in one call,
 * so that a thousand asks make one frame. An action of another type sends the batch first: a
 * release and a new ask of the same slot must reach the scheduler in their order. */
struct batch {
    enum job_action_type type; /* ACT_NONE = the batch is empty */
    VEC(struct sched_ask) asks;
    VEC(struct sched_container) launches;
    VEC(const char *) releases;
    VEC(uint32_t) cancels;
};

static int batch_send(struct master *m, struct batch *b, struct err *e)
{
    int rc = 0;
    if (b->type == ACT_ASK)
        rc = m->sched_ops->request(m->sched, b->asks.v, b->asks.n, e);
    else if (b->type == ACT_LAUNCH)
        rc = m->sched_ops->launch(m->sched, b->launches.v, b->launches.n, e);
    else if (b->type == ACT_RELEASE)
        rc = m->sched_ops->release(m->sched, b->releases.v, b->releases.n, e);
    else if (b->type == ACT_CANCEL && m->sched_ops->cancel) /* NULL: the core releases grants */
        rc = m->sched_ops->cancel(m->sched, b->cancels.v, b->cancels.n, e);
    b->type = ACT_NONE;
    b->asks.n = b->launches.n = b->releases.n = b->cancels.n = 0;
    return rc;
}

static void batch_done(struct batch *b)
{
    vec_done(&b->asks);
    vec_done(&b->launches);
    vec_done(&b->releases);
    vec_done(&b->cancels);
}

static int batch_add(struct master *m, struct batch *b, const struct job_action *a, struct err *e)
{
    int rc = b->type == a->type ? 0 : batch_send(m, b, e);
    if (rc < 0)
        return rc;
    b->type = a->type;
    if (a->type == ACT_ASK) {
        struct sched_ask ask = sched_ask_of(m, a->ask.slot);
        ask.node = wished_nodes_take(m, a->ask.slot);
        ran_asked(m, &ask);
        rc = vec_push(&b->asks, ask);
    } else if (a->type == ACT_LAUNCH)
        rc = vec_push(&b->launches,
                      ((struct sched_container){ .id = a->launch.container,
                                                 .slot = a->launch.slot,
                                                 .gpus = "",
                                                 .plain = welcome_is_plain(m, a->launch.slot) }));
    else if (a->type == ACT_CANCEL)
        rc = vec_push(&b->cancels, a->cancel.slot);
    else
        rc = vec_push(&b->releases, a->release.container);
    return rc < 0 ? err_set(e, ENOMEM, "no memory to speak to the scheduler") : 0;
}

static int stop_container(struct master *m, struct batch *b, const char *container,
                          uint32_t grace_ms, struct err *e)
{
    int rc = batch_send(m, b, e);
    return rc < 0 ? rc : m->sched_ops->stop(m->sched, container, grace_ms, e);
}

/* If the executor is not connected, the scheduler stops its container. */
static int finish_executor(struct master *m, struct batch *b, const struct act_finish_executor *a,
                           struct err *e)
{
    if (executor_finish(m, a->slot, a->grace_ms) || !a->container)
        return 0;
    return stop_container(m, b, a->container, a->grace_ms, e);
}

static void avoid(struct master *m, const struct act_avoid *a)
{
    log_event(a->on ? LOG_WARN : LOG_INFO, a->on ? "node.left_out" : "node.used_again",
              f_str("node", a->node));
    if (m->sched_ops->avoid)
        m->sched_ops->avoid(m->sched, a->node, a->on);
}

static int carry_out_one(struct master *m, struct batch *b, const struct job_action *a,
                         struct err *e)
{
    switch (a->type) {
    case ACT_ASK:
    case ACT_RELEASE:
    case ACT_LAUNCH:
    case ACT_CANCEL:
        return batch_add(m, b, a, e);
    case ACT_START:
        executor_start(m, &a->start);
        break;
    case ACT_STOP_ATTEMPT:
        executor_stop_attempt(m, &a->stop_attempt);
        break;
    case ACT_ACK:
        executor_ack(m, &a->ack);
        break;
    case ACT_FINISH_EXECUTOR:
        return finish_executor(m, b, &a->finish_executor, e);
    case ACT_STOP_CONTAINER:
        return stop_container(m, b, a->stop_container.container, a->stop_container.grace_ms, e);
    case ACT_AVOID:
        avoid(m, &a->avoid);
        break;
    case ACT_SHAPE: {
        m->addresses_version++; /* tasks that left are not in the cluster spec any more */
        int rc = batch_send(m, b, e);
        return rc < 0 ? rc : sched_tell_shape(m, e);
    }
    case ACT_NOTIFY:
        m->update_due = true;
        break;
    case ACT_FINISH:
        master_finish(m);
        break;
    case ACT_RENEW:
        executor_renew(m, &a->renew);
        break;
    case ACT_TAKE:
        executor_take_spare(m, &a->take);
        break;
    case ACT_PEERS:
        cluster_spec_announce_to_all(m);
        break;
    case ACT_NONE:
    case ACT_SYNC: /* write_journal() has done it */
    case ACT_COUNT:
        break;
    }
    return 0;
}

static void action_done(struct job_action *a)
{
    const char **text = job_action_text(a);
    free(text ? (char *)(uintptr_t)*text : NULL);
}

static void actions_done(struct job_actions *list)
{
    for (size_t i = 0; i < list->n; i++)
        action_done(&list->v[i]);
    list->n = 0;
}

void master_drop_actions(struct master *m)
{
    actions_done(&m->actions);
    actions_done(&m->delayed_actions);
    m->notify_pending = m->notify_delayed = false;
}

/* ---- actions that wait for a blocked journal, or for the copy of the journal ---- */

/* Among the first n actions, is the last one for the same slot equal to this action? Then this one
 * can be dropped, because carrying out an action twice has no effect. */
static bool repeats_last_of_slot(const struct master *m, size_t n, const struct job_action *a)
{
    while (n-- > 0)
        if (job_action_slot(&m->actions.v[n]) == job_action_slot(a))
            return job_action_same(&m->actions.v[n], a);
    return false;
}

/*
 * While actions wait, their number must not grow without bound:
 *
 * - ACT_NOTIFY comes with each progress report of each task. One flag, notify_pending, is enough.
 * - An executor that reconnects several times causes the same ACT_ACK each time. One is kept.
 * - All other actions come with durable events, whose number blocked.c bounds.
 *
 * Each search takes time in proportion to the number of actions. So it is made only when many wait.
 */
void actions_merge(struct master *m, size_t from)
{
    size_t many = MERGE_MIN + 4 * (size_t)job_n_slots(m->job), to = from;
    for (size_t i = from; i < m->actions.n; i++) {
        struct job_action *a = &m->actions.v[i];
        if (a->type == ACT_NOTIFY)
            m->notify_pending = true;
        else if (to > many && repeats_last_of_slot(m, to, a))
            action_done(a);
        else
            m->actions.v[to++] = *a;
    }
    m->actions.n = to;
}

static void carry_out(struct master *m, const struct job_actions *list)
{
    struct batch b = { 0 };
    struct err e = { 0 };
    int rc = 0;
    for (size_t i = 0; i < list->n && rc == 0; i++)
        rc = carry_out_one(m, &b, &list->v[i], &e);
    if (rc == 0)
        rc = batch_send(m, &b, &e);
    if (rc == 0)
        rc = sched_tell_bounds(m, &e);
    if (rc == 0)
        rc = sched_tell_outlook(m, &e);
    batch_done(&b);
    if (rc < 0) { /* the core of the next master repeats the actions that are still needed */
        log_err(LOG_ERROR, "sched.failed", &e);
        master_exit_now(m, MASTER_CRASHED);
    }
}

static bool wants_sync(const struct job_actions *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i].type == ACT_SYNC || list->v[i].type == ACT_FINISH)
            return true;
    return false;
}

/* 0; -errno = the write failed; 1 = a test stops the master here. */
static int write_journal(struct master *m, bool sync, struct err *e)
{
    bool probed = m->probe && journal_unwritten(&m->journal) > 0;
    int rc = probed ? m->probe->on_write(m->probe->arg, false) : 0;
    if (rc < 0)
        return err_set(e, -rc, "cannot write the journal '%s/journal': %m", m->job_dir);
    if (rc > 0)
        return 1;
    rc = journal_flush(&m->journal, sync, e);
    if (rc == 0 && probed)
        rc = m->probe->on_write(m->probe->arg, true);
    return rc;
}

/*
 * Must the start of this task wait until HDFS has a copy of the journal? decided: the core has
 * decided on it now; false = an earlier decision is carried out again for a new master.
 *
 * A further attempt and the first attempt of a new generation must wait: only the journal tells the
 * next master of the restart, and of its charge to the budget.
 *
 * For a first start, the next master would make the same decision. But that master must know the
 * container: if the container's node is lost, the task may still run there, and another attempt
 * must not start before the lease of the first one is over (decision 0008). The start follows the
 * grant only after the time that an executor takes to start. So the copy nearly always has the
 * grant already.
 */
static bool start_needs_copy(const struct master *m, const struct act_start *a, bool decided)
{
    if (decided && (a->generation > 1 || a->attempt > 1))
        return true;
    return locations_granted_n(m, a->slot) > copies_stored_n(m->copies);
}

/*
 * Must these actions wait until HDFS has a copy of the journal?
 *
 * Yes, if one of them starts a task and start_needs_copy() returns true for it.
 *
 * Yes, if the master stops a task that will restart, or that leaves because the job shrinks. The
 * task may exit with 0. A master that does not know of the restart or of the resize would take that
 * for the end of the task's work. If the whole job is being stopped, nothing waits.
 */
static bool need_copy(const struct master *m, const struct job_actions *list)
{
    bool sync = false, stops = job_state(m->job) >= JOB_STOPPING;
    for (size_t i = 0; i < list->n; i++) {
        const struct job_action *a = &list->v[i];
        sync |= a->type == ACT_SYNC;
        if (a->type == ACT_START && start_needs_copy(m, &a->start, sync))
            return true;
        if (sync && a->type == ACT_STOP_ATTEMPT && !stops)
            return true;
    }
    return false;
}

static void carry_out_all(struct master *m, struct job_actions *from, bool *notify)
{
    m->update_due |= *notify;
    *notify = false;
    struct job_actions list = *from;
    *from = (struct job_actions){ 0 };
    carry_out(m, &list);
    actions_done(&list);
    if (from->v) /* new actions came while these were carried out: keep them */
        free(list.v);
    else
        *from = list;
}

/* Append the actions to those that wait for the copy: they are carried out in their order. */
static int delay_actions(struct master *m)
{
    if (vec_reserve(&m->delayed_actions, m->delayed_actions.n + m->actions.n) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < m->actions.n; i++)
        m->delayed_actions.v[m->delayed_actions.n++] = m->actions.v[i];
    m->actions.n = 0;
    m->notify_delayed |= m->notify_pending;
    m->notify_pending = false;
    copies_hurry(m->copies);
    return 0;
}

bool master_is_stored(const struct master *m)
{
    if (m->phase > MP_RUNNING) /* the journal is closed, or cannot be written */
        return true;
    return journal_unwritten(&m->journal) == 0 &&
           (!m->copies || m->phase == MP_STARTING || copies_stored(m->copies));
}

/* If the journal is blocked, a resize waits. A stop does not: then the job fails, see blocked.c. */
static void answer_clients(struct master *m)
{
    if (!m->stop_answers_due && !m->resize_answers_due)
        return;
    if (!master_is_stored(m)) {
        if (m->copies)
            copies_hurry(m->copies);
        return;
    }
    if (m->stop_answers_due)
        clients_answer_stops(m);
    if (m->resize_answers_due && !m->blocked_why)
        clients_answer_resizes(m);
}

void master_on_copied(void *arg)
{
    struct master *m = arg;
    if (m->phase == MP_RUNNING && m->delayed_actions.n)
        carry_out_all(m, &m->delayed_actions, &m->notify_delayed);
    answer_clients(m);
}

static void carry_out_or_delay(struct master *m)
{
    if (m->copies)
        copies_wrote(m->copies, (uint64_t)m->journal.size, m->journal.next_n - 1);
    if (!m->copies || (!m->delayed_actions.n && !need_copy(m, &m->actions)) ||
        (copies_stored(m->copies) && !m->delayed_actions.n))
        carry_out_all(m, &m->actions, &m->notify_pending);
    else if (delay_actions(m) < 0)
        master_exit_now(m, MASTER_CRASHED);
}

static bool has_verdict(const struct job_actions *list)
{
    return list->n > 0 && list->v[list->n - 1].type == ACT_FINISH;
}

/* The last executors exit while the disk writes the verdict. An acknowledgement needs no sync: it
 * says that the next master will find the end in the journal. */
static void ack_before_sync(struct master *m)
{
    size_t to = 0;
    for (size_t i = 0; i < m->actions.n; i++) {
        struct job_action *a = &m->actions.v[i];
        if (a->type != ACT_ACK) {
            m->actions.v[to++] = *a;
            continue;
        }
        executor_ack(m, &a->ack);
        action_done(a);
    }
    m->actions.n = to;
    loop_send_queued(m->loop);
}

static int write_and_sync(struct master *m, struct err *e)
{
    bool sync = wants_sync(&m->actions), first = sync && !m->copies && has_verdict(&m->actions);
    int rc = write_journal(m, sync && !first, e);
    if (rc != 0 || !first)
        return rc;
    ack_before_sync(m);
    return journal_flush(&m->journal, true, e);
}

static void flush_journal(struct master *m)
{
    struct err e = { 0 };
    if (blocked_must_wait(m) && !m->stop_answers_due)
        return;
    int rc = write_and_sync(m, &e);
    if (rc > 0) {
        master_exit_now(m, MASTER_CRASHED);
    } else if (rc < 0 && !blocked_begin(m, &e)) {
        master_drop_actions(m);
        master_journal_failed(m, &e);
    } else if (rc == 0) {
        blocked_end(m);
        if (m->phase == MP_RUNNING)
            carry_out_or_delay(m);
        compact_if_due(m);
    }
}

void master_flush(void *arg)
{
    struct master *m = arg;
    if (m->phase == MP_EXITING)
        return;
    if (m->phase == MP_RUNNING || m->phase == MP_STARTING)
        flush_journal(m);
    if (m->phase == MP_EXITING)
        return;
    blocked_load_job_on_disk(m);
    answer_clients(m);
    if (m->update_due && m->phase == MP_RUNNING)
        clients_notify(m);
    master_timer_arm(m);
}
