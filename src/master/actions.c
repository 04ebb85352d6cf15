#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "base/vec.h"
#include "conf/conf.h"
#include "master/copies.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"

/* Asks, cancels, launches and releases that follow each other go to the scheduler in one call: a
 * thousand asks are one frame. Their order towards other calls is kept, for a release and a new ask
 * of one slot must not overtake each other. */
struct run {
    enum job_action_type type; /* ACT_NONE: empty */
    VEC(struct sched_ask) asks;
    VEC(struct sched_container) launches;
    VEC(const char *) releases;
    VEC(uint32_t) cancels;
};

static int run_send(struct master *m, struct run *r, struct err *e)
{
    int rc = 0;
    if (r->type == ACT_ASK)
        rc = m->sched_ops->request(m->sched, r->asks.v, r->asks.n, e);
    else if (r->type == ACT_LAUNCH)
        rc = m->sched_ops->launch(m->sched, r->launches.v, r->launches.n, e);
    else if (r->type == ACT_RELEASE)
        rc = m->sched_ops->release(m->sched, r->releases.v, r->releases.n, e);
    else if (r->type == ACT_CANCEL && m->sched_ops->cancel) /* else what is granted is released */
        rc = m->sched_ops->cancel(m->sched, r->cancels.v, r->cancels.n, e);
    r->type = ACT_NONE;
    r->asks.n = r->launches.n = r->releases.n = r->cancels.n = 0;
    return rc;
}

static void run_done(struct run *r)
{
    vec_done(&r->asks);
    vec_done(&r->launches);
    vec_done(&r->releases);
    vec_done(&r->cancels);
}

static struct sched_ask ask_of(const struct master *m, uint32_t slot)
{
    struct slot_view v;
    job_slot(m->job, slot, &v);
    const struct role_spec *r = job_slot_role(m->job, slot);
    return (struct sched_ask){
        .slot = slot,
        .memory_mib = r->memory_mib,
        .vcores = r->vcores,
        .gpus = r->gpus,
        .role = v.role,
    };
}

static int run_add(struct master *m, struct run *r, const struct job_action *a, struct err *e)
{
    int rc = r->type == a->type ? 0 : run_send(m, r, e);
    if (rc < 0)
        return rc;
    r->type = a->type;
    if (a->type == ACT_ASK)
        rc = vec_push(&r->asks, ask_of(m, a->slot));
    else if (a->type == ACT_LAUNCH)
        rc =
            vec_push(&r->launches,
                     ((struct sched_container){ .id = a->container, .slot = a->slot, .gpus = "" }));
    else if (a->type == ACT_CANCEL)
        rc = vec_push(&r->cancels, a->slot);
    else
        rc = vec_push(&r->releases, a->container);
    return rc < 0 ? err_set(e, ENOMEM, "no memory to speak to the scheduler") : 0;
}

static int stop_container(struct master *m, struct run *r, const struct job_action *a,
                          struct err *e)
{
    int rc = run_send(m, r, e);
    return rc < 0 ? rc : m->sched_ops->stop(m->sched, a->container, a->grace_ms, e);
}

static void avoid(struct master *m, const struct job_action *a)
{
    log_event(a->on ? LOG_WARN : LOG_INFO, a->on ? "node.left_out" : "node.used_again",
              f_str("node", a->container));
    if (m->sched_ops->avoid)
        m->sched_ops->avoid(m->sched, a->container, a->on);
}

static int act(struct master *m, struct run *r, const struct job_action *a, struct err *e)
{
    switch (a->type) {
    case ACT_ASK:
    case ACT_RELEASE:
    case ACT_LAUNCH:
    case ACT_CANCEL:
        return run_add(m, r, a, e);
    case ACT_START:
        executor_start(m, a);
        break;
    case ACT_STOP_ATTEMPT:
        executor_stop_attempt(m, a);
        break;
    case ACT_ACK:
        executor_ack(m, a);
        break;
    case ACT_FINISH_EXECUTOR: /* one that we cannot reach is ended by the scheduler */
        if (!executor_finish(m, a->slot, a->grace_ms) && a->container)
            return stop_container(m, r, a, e);
        break;
    case ACT_STOP_CONTAINER:
        return stop_container(m, r, a, e);
    case ACT_AVOID:
        avoid(m, a);
        break;
    case ACT_NOTIFY:
        m->dirty = true;
        break;
    case ACT_FINISH:
        master_finish(m);
        break;
    case ACT_RENEW:
        executor_renew(m, a);
        break;
    case ACT_TAKE:
        executor_moved(m, a);
        break;
    case ACT_PEERS:
        executors_peers(m);
        break;
    case ACT_NONE:
    case ACT_SYNC: /* done with the write */
    case ACT_COUNT:
        break;
    }
    return 0;
}

static void actions_done(struct job_actions *list)
{
    for (size_t i = 0; i < list->n; i++)
        free((char *)(uintptr_t)list->v[i].container);
    list->n = 0;
}

void master_drop_actions(struct master *m)
{
    actions_done(&m->actions);
    actions_done(&m->held);
}

static void carry_out(struct master *m, const struct job_actions *list)
{
    struct run r = { 0 };
    struct err e = { 0 };
    int rc = 0;
    for (size_t i = 0; i < list->n && rc == 0; i++)
        rc = act(m, &r, &list->v[i], &e);
    if (rc == 0)
        rc = run_send(m, &r, &e);
    run_done(&r);
    if (rc < 0) { /* the next master asks again for all that is still wanted */
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

/* 0, -errno when nothing more can be written, 1 when a test wants the master dead here. */
static int write_out(struct master *m, bool sync, struct err *e)
{
    bool probed = m->probe && m->journal.pending.len > 0;
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

/* What a charged restart or a new generation begins must not be begun before the next master would
 * know of it, too. The first start of all needs no such care: it would find the same. */
static bool wants_store(const struct job_actions *list)
{
    bool sync = false;
    for (size_t i = 0; i < list->n; i++) {
        const struct job_action *a = &list->v[i];
        sync |= a->type == ACT_SYNC;
        if (sync && a->type == ACT_START && (a->generation > 1 || a->attempt > 1))
            return true;
    }
    return false;
}

static void carry_out_all(struct master *m, struct job_actions *from)
{
    struct job_actions list = *from;
    *from = (struct job_actions){ 0 };
    carry_out(m, &list);
    actions_done(&list);
    if (from->v) /* nothing above feeds, but if it did, nothing is lost */
        free(list.v);
    else
        *from = list;
}

/* Behind those that wait already: their order counts. */
static int hold(struct master *m)
{
    if (vec_reserve(&m->held, m->held.n + m->actions.n) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < m->actions.n; i++)
        m->held.v[m->held.n++] = m->actions.v[i];
    m->actions.n = 0;
    copies_hurry(m->copies);
    return 0;
}

void master_stored(void *arg)
{
    struct master *m = arg;
    if (m->phase == MP_RUNNING && m->held.n)
        carry_out_all(m, &m->held);
    if (m->stop_answers)
        clients_answer_stops(m);
}

static void act_on_all(struct master *m)
{
    if (m->copies)
        copies_wrote(m->copies, (uint64_t)m->journal.size);
    if (!m->copies || (!m->held.n && !wants_store(&m->actions)) ||
        (copies_stored(m->copies) && !m->held.n))
        carry_out_all(m, &m->actions);
    else if (hold(m) < 0)
        master_exit_now(m, MASTER_CRASHED);
}

static void flush_journal(struct master *m)
{
    struct err e = { 0 };
    if (blocked_waits(m) && !m->stop_answers)
        return;
    int rc = write_out(m, wants_sync(&m->actions), &e);
    if (rc > 0) {
        master_exit_now(m, MASTER_CRASHED);
    } else if (rc < 0 && !blocked_begin(m, &e)) {
        master_drop_actions(m);
        master_break(m, &e);
    } else if (rc == 0) {
        blocked_end(m);
        if (m->phase == MP_RUNNING)
            act_on_all(m);
    }
}

void master_flush(void *arg)
{
    struct master *m = arg;
    if (m->phase == MP_GONE)
        return;
    if (m->phase == MP_RUNNING || m->phase == MP_STARTING)
        flush_journal(m);
    if (m->phase == MP_GONE)
        return;
    blocked_look(m);
    if (m->stop_answers && m->copies && m->phase == MP_RUNNING)
        copies_hurry(m->copies);
    if (m->stop_answers && (!m->copies || m->phase != MP_RUNNING || copies_stored(m->copies)))
        clients_answer_stops(m);
    if (m->dirty && m->phase == MP_RUNNING)
        clients_notify(m);
    master_timer_arm(m);
}
