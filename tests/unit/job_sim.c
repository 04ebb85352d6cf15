/* SPDX-License-Identifier: Apache-2.0 */
#include "job_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "drive.h"

struct strv sim_trace;
enum { NOTICE_MS = 15000 };

unsigned sim_given_back, sim_taken, sim_notices, sim_resizes, sim_lost, sim_orphans;

uint32_t sim_chance(struct sim *m, uint32_t n)
{
    m->rng ^= m->rng << 13;
    m->rng ^= m->rng >> 7;
    m->rng ^= m->rng << 17;
    return (uint32_t)(m->rng >> 11) % n;
}

/* ---- invariants ---- */

static void check_counters(const struct sim *m)
{
    uint32_t n[SLOT_STATE_COUNT] = { 0 }, waited = 0;
    for (uint32_t i = 0; i < m->job->n_slots; i++) {
        const struct slot *s = &m->job->slots[i];
        bool task = job_is_task(m->job, i); /* spares and other slots are not counted here */
        n[s->state] += task;
        waited += task && m->job->roles[s->role].awaited && s->result == RES_NONE;
        assert_true(s->state != SLOT_ENDED || s->result != RES_NONE);
        assert_true(s->state != SLOT_RUNNING || s->result == RES_NONE);
        assert_true(!slot_has_container(s->state) || s->container);
    }
    for (int s = SLOT_HELD; s < SLOT_STATE_COUNT; s++)
        assert_int_equal(n[s], m->job->n_state[s]);
    const struct deadlines *dl = &m->job->limits.deadlines;
    for (uint32_t i = 1; i < dl->n; i++) {
        assert_true(dl->due[dl->heap[(i - 1) / 2]] <= dl->due[dl->heap[i]]);
        assert_int_equal(dl->pos[dl->heap[i]], i + 1);
    }
    assert_int_equal(waited, m->job->n_waited);
}

/* Decision 0008: from then on the executor has ended its task, whatever it did before. */
static bool lease_is_over(const struct sim *m, const struct executor *x)
{
    int64_t due = x->heard_ms + m->spec->master_away_ms + m->spec->kill_grace_ms;

    return m->now >= MIN(due, x->dead_by_ms);
}

/* The job has recorded the end of this task, and does not run it again. */
static bool has_no_successor(const struct sim *m, const struct executor *x)
{
    const struct slot *s = &m->job->slots[x->slot];

    return s->state == SLOT_ENDED && s->attempt == x->attempt && s->generation == x->generation;
}

/* When attempt `a` begins, no other attempt of its slot may run, and no attempt of an older
 * generation of its gang. */
static void check_one_attempt(const struct sim *m, const struct executor *a)
{
    for (size_t k = 0; k < m->executors.n; k++) {
        const struct executor *b = &m->executors.v[k];
        bool old =
            b->generation < a->generation && !a->sidecar && !b->sidecar && !has_no_successor(m, b);
        if (b == a || !b->running || (a->slot != b->slot && !old))
            continue;
        if (lease_is_over(m, b)) {
            sim_orphans++;
            continue;
        }
        fail_msg("slot %u begins attempt %u of generation %u in %s beside slot %u, attempt %u of "
                 "generation %u in %s (%s%s%s%s), heard %lld ms ago",
                 a->slot, a->attempt, a->generation, a->container, b->slot, b->attempt,
                 b->generation, b->container, b->connected ? "connected" : "away",
                 b->cut ? ", cut off" : "", b->mute ? ", mute" : "",
                 b->unkillable ? ", unkillable" : "", (long long)(m->now - b->heard_ms));
    }
}

/* Each role whose conditions hold has begun. If the end of a role stops other roles, their tasks
 * are stopping. */
static void check_depends(const struct sim *m)
{
    const struct job *j = m->job;

    if (j->decided || j->resyncing || !j->epoch)
        return;
    bool whole = !j->spec->gang || (!j->n_state[SLOT_ASKED] && !j->n_state[SLOT_PLACED]);
    for (uint32_t r = 0; r < j->n_roles; r++) {
        const struct role *role = &j->roles[r];
        const struct role_spec *spec = job_role_spec(j, r);
        if (whole && !j->restarts.mending && role->n_state[SLOT_REGISTERED] && depends_open(j, r))
            fail_msg("role '%s' could begin and does not", job_role_name(j, r));
        for (size_t k = 0; k < spec->n_stops && role->n_settled == role->n; k++) {
            const struct role *other = &j->roles[spec->stops[k]];
            assert_int_equal(other->n, other->n_settled + other->n_state[SLOT_STOPPING]);
        }
    }
}

/* After an event: each attempt that has begun was allowed to begin. */
static void check_starts_allowed(const struct sim *m, const uint32_t *attempts)
{
    for (uint32_t i = 0; i < m->job->n_slots; i++)
        if (m->job->slots[i].attempt != attempts[i] && !depends_open(m->job, m->job->slots[i].role))
            fail_msg("slot %u begins too early", i);
}

/* No retry limit is exceeded: each restart was charged to a budget. */
static void check_limits(const struct sim *m)
{
    const struct job *j = m->job;
    uint64_t most = m->spec->am_retry_count, each = 0;

    for (int r = END_NONE; r < END_COUNT; r++)
        each += m->spec->restarts[r];
    assert_true(j->restarts.retries <= m->spec->am_retry_count);
    for (uint32_t i = 0; i < j->n_slots; i++) {
        const struct role_spec *r = job_slot_role(j, i);
        for (int k = END_NONE; k < END_COUNT; k++)
            assert_true(j->slots[i].spent[k] <= m->spec->restarts[k]);
        assert_true(j->slots[i].tally.times || j->slots[i].tally.n <= r->max_restarts);
        if (r->restart_window_ms)
            most += 100000;
        most += each + 2 * (uint64_t)r->max_restarts;
    }
    assert_true(j->restarts.n <= most * (1 + j->restarts.retries));
    /* The end of the job also ends a resize. */
    assert_true(j->generation <= 1 + j->restarts.n + j->resize.n +
                                     (j->resize.state == RESIZE_FORMING) +
                                     (j->decided != JOB_NONE));
}

/* job_deadline() is never late: no timer is due before the deadline that it returns. */
static void check_deadlines(struct job *j)
{
    const struct deadlines *d = &j->limits.deadlines;
    int64_t due[LIMIT_COUNT];

    if (job_deadline(j) == INT64_MAX && (j->resyncing || !j->epoch || job_over(j)))
        return;
    for (uint32_t i = 0; i < j->n_slots; i++)
        if (job_deadline(j) > limits_slot_due(j, i))
            fail_msg("slot %u (%s) is due at %lld, the deadline is %lld, now %lld", i,
                     slot_state_name(j->slots[i].state), (long long)limits_slot_due(j, i),
                     (long long)job_deadline(j), (long long)j->now_ms);
    memcpy(due, d->due, sizeof due);
    limits_job(j);
    for (int i = 0; i < LIMIT_COUNT; i++)
        if (due[i] > d->due[i])
            fail_msg("limit %d is due at %lld, its entry says %lld", i, (long long)d->due[i],
                     (long long)due[i]);
}

void sim_check(const struct sim *m)
{
    check_counters(m);
    check_limits(m);
    check_deadlines(m->job);
}

static void check_end(struct sim *m)
{
    struct job_verdict v;
    job_verdict(m->job, &v);
    assert_true(v.state >= JOB_SUCCEEDED && *v.message);
    if (!m->finished) {
        m->finished = true;
        m->verdict = v;
        str_copy(m->message, sizeof m->message, v.message);
        /* No task still runs, except those that could not be stopped. */
        for (size_t i = 0; i < m->executors.n; i++) {
            const struct executor *x = &m->executors.v[i];
            if (x->alive && x->running && !x->mute && !x->unkillable && x->connected && !x->dying)
                fail_msg("the job is over and slot %u runs on", x->slot);
        }
    }
    assert_int_equal(v.state, m->verdict.state);
    assert_int_equal(v.cause_slot, m->verdict.cause_slot);
    assert_string_equal(v.message, m->message);
}

/* ---- the shell ---- */

static struct executor *executor_of(struct sim *m, const char *container)
{
    for (size_t i = 0; i < m->executors.n; i++) {
        if (str_eq(m->executors.v[i].container, container))
            return &m->executors.v[i];
    }
    return NULL;
}

static struct executor *executor_at(struct sim *m, uint32_t slot)
{
    struct slot_view v;
    job_slot(m->job, slot, &v);
    return v.container ? executor_of(m, v.container) : NULL;
}

static void ends_attempt(struct sim *m, struct executor *x, enum end_reason reason, int exit_code,
                         int signal)
{
    x->running = false;
    x->saved_ms = 0;
    x->pending = true;
    x->ended_ms = m->now;
    x->result = (struct job_event){ .type = EV_ATTEMPT_ENDED,
                                    .attempt_ended = { .slot = x->slot,
                                                       .generation = x->generation,
                                                       .attempt = x->attempt,
                                                       .reason = reason,
                                                       .exit_code = exit_code,
                                                       .signal = signal } };
}

static const char *node_of(const struct sim *m, const char *container)
{
    const char *number = strrchr(container, '_');

    return m->n_nodes && number ? m->nodes[strtoul(number + 1, NULL, 10) % m->n_nodes] : NULL;
}

/* The executor dies. Its kernel closes the connection, unless the master is unreachable. If the
 * cluster has given up the node, it reports no end. */
static void dies(struct sim *m, struct executor *x, int exit_code, enum end_reason reason)
{
    char container[64];
    struct job_event ev = { .type = EV_EXECUTOR_GONE,
                            .executor_gone = { .slot = x->slot, .container = container } };
    bool closes = x->connected && !x->cut && sim_chance(m, 2);

    if (!x->alive)
        return;
    str_copy(container, sizeof container, x->container);
    x->alive = x->connected = x->running = false;
    if (!x->lost_ms)
        fake_cluster_exit(m->cluster, x->container, exit_code, reason);
    if (closes)
        (void)sim_feed(m, &ev);
}

/* The executor sends a message; it arrives, and the executor's kernel sees the acknowledgement. */
static int says(struct sim *m, struct executor *x, const struct job_event *ev)
{
    x->heard_ms = m->now;
    return sim_feed(m, ev);
}

static void carry_out(struct sim *m, const struct job_action *a)
{
    struct executor *x = a->type == ACT_START || a->type == ACT_STOP_ATTEMPT ||
                                 a->type == ACT_ACK || a->type == ACT_FINISH_EXECUTOR ||
                                 a->type == ACT_RENEW
                             ? executor_at(m, a->of_slot.slot)
                             : NULL;
    struct sched_ask ask = { .slot = a->ask.slot, .memory_mib = 512 };
    struct sched_container c = { .id = a->launch.container, .slot = a->launch.slot };
    const struct sched_ops *ops = sched_fake_ops(m->cluster);

    if (x && (!x->alive || !x->connected))
        x = NULL;
    switch (a->type) {
    case ACT_ASK:
        (void)ops->request(m->sched, &ask, 1, NULL);
        break;
    case ACT_CANCEL:
        sim_given_back += m->job->gang.pause_due_ms != INT64_MAX;
        (void)ops->cancel(m->sched, &a->cancel.slot, 1, NULL);
        break;
    case ACT_RELEASE:
        (void)ops->release(m->sched, &a->release.container, 1, NULL);
        break;
    case ACT_LAUNCH:
        (void)ops->launch(m->sched, &c, 1, NULL);
        break;
    case ACT_STOP_CONTAINER:
        (void)ops->stop(m->sched, a->stop_container.container, a->stop_container.grace_ms, NULL);
        break;
    case ACT_START:
        if (x && !x->running && a->start.attempt > x->attempt) {
            x->running = true;
            x->started_told = false;
            x->generation = a->start.generation;
            x->attempt = a->start.attempt;
            x->sidecar =
                !m->spec->single_node && job_slot_role(m->job, a->start.slot)->kind == ROLE_SIDECAR;
            check_one_attempt(m, x);
        }
        break;
    case ACT_STOP_ATTEMPT:
        assert_true(a->stop_attempt.save_ms <= m->spec->checkpoint_grace_ms);
        if (x && x->running && !x->mute && a->stop_attempt.save_ms && sim_chance(m, 3))
            x->saved_ms =
                m->now + sim_chance(m, a->stop_attempt.save_ms + a->stop_attempt.grace_ms);
        else if (x && x->running && !x->mute)
            ends_attempt(m, x, sim_chance(m, 2) ? END_KILLED_BY_MASTER : END_EXITED, 0,
                         sim_chance(m, 2) ? 15 : 9);
        break;
    case ACT_ACK:
        if (x && a->ack.generation == x->generation && a->ack.attempt == x->attempt) {
            x->pending = false;
            x->dying |= a->ack.finish;
        }
        break;
    case ACT_FINISH_EXECUTOR:
        if (x && !x->mute) {
            x->dying = true;
            x->dead_by_ms = MIN(x->dead_by_ms, m->now + a->finish_executor.grace_ms);
        }
        break;
    case ACT_FINISH:
        check_end(m);
        (void)ops->finish(m->sched, "DONE", "", NULL, NULL);
        break;
    case ACT_RENEW:
        if (x && !x->running && !x->mute) {
            x->pending = false;
            x->ready = a->renew.generation;
        }
        break;
    case ACT_TAKE:
        sim_taken++;
        x = executor_of(m, a->take.container);
        if (x)
            x->slot = a->take.slot;
        break;
    case ACT_AVOID:
    case ACT_PEERS:
    case ACT_SHAPE:
    case ACT_NONE:
    case ACT_NOTIFY:
    case ACT_SYNC:
    case ACT_COUNT:
        break;
    }
}

/* Copies the state that the journal does not have: the progress of tasks, and the master's own
 * stalls. */
static void copy_unjournalled_state(const struct job *from, struct job *to)
{
    for (uint32_t i = 0; i < to->n_slots; i++) {
        const struct slot *s = &from->slots[i];
        struct slot *t = &to->slots[i];
        t->step = s->step;
        t->total = s->total;
        t->first_step = s->first_step;
        t->first_ms = s->first_ms;
        t->step_ms = s->step_ms;
    }
    for (size_t i = 0; i < JOB_FAILURES_KEPT; i++)
        to->failures.past[i].step = from->failures.past[i].step;
    to->restarts.last.step = from->restarts.last.step;
    to->now_ms = from->now_ms;
    to->stalled_ms = from->stalled_ms;
}

/* A replay of the journal leads to the same state. So events that are not in the journal have
 * changed nothing else. */
static void check_journal(const struct sim *m)
{
    const struct drive d = { .spec = m->spec, .journal = m->journal };
    AUTO(buf_done) struct buf live = { 0 }, journal = { 0 };
    struct job *replayed = drive_replay(&d, m->journal.n);

    copy_unjournalled_state(m->job, replayed);
    assert_int_equal(job_snapshot(m->job, &live), 0);
    assert_int_equal(job_snapshot(replayed, &journal), 0);
    struct span a = buf_span(&live), b = buf_span(&journal), x, y;
    while (span_split(&a, '\n', &x) && span_split(&b, '\n', &y))
        if (x.len != y.len || memcmp(x.p, y.p, x.len) != 0)
            fail_msg("after %.200s:\nthe job is          %.*s\nits journal says it is %.*s",
                     m->journal.v[m->journal.n - 1], (int)MIN(x.len, (size_t)380), x.p,
                     (int)MIN(y.len, (size_t)380), y.p);
    job_free(replayed);
}

int sim_feed(struct sim *m, const struct job_event *ev)
{
    struct err e = { 0 };
    struct job_actions acts = { 0 };
    uint32_t attempts[200] = { 0 };

    assert_true(m->job->n_slots <= ARRAY_LEN(attempts));
    for (uint32_t i = 0; i < m->job->n_slots; i++)
        attempts[i] = m->job->slots[i].attempt;
    uint32_t n_tasks = m->job->n_tasks;
    int rc = job_feed(m->job, ev, m->now, &acts, &e);
    if (rc == 0) {
        /* A resize that adds a task may close a gate again: the new task is not ready. */
        if (n_tasks == m->job->n_tasks)
            check_starts_allowed(m, attempts);
        check_depends(m);
    }

    AUTO(buf_done) struct buf text = { 0 };
    if (job_event_encode(ev, m->now, &text) == 0)
        assert_int_equal(strv_push(&sim_trace, buf_cstr(&text)), 0);
    m->n_feeds++;
    assert_true(rc == 0 || (rc == 1 && *e.msg));
    if (rc == 0)
        drive_write(&m->journal, m->job, ev);
    sim_check(m);
    /* After one event in 150; with TONY_CHECK_JOURNAL after each event. */
    bool look = !sim_chance(m, 150) || getenv("TONY_CHECK_JOURNAL");
    if (rc == 0 && job_is_durable(ev->type) && look)
        check_journal(m);
    for (size_t i = 0; i < acts.n; i++)
        carry_out(m, &acts.v[i]);
    vec_done(&acts);
    if (m->finished)
        check_end(m);
    return rc;
}

static void on_sched(const struct sched_event *ev, void *arg)
{
    struct sim *m = arg;

    if (ev->type == SE_REFUSED)
        (void)sim_feed(
            m, &(struct job_event){ .type = EV_ALLOCATION_REFUSED,
                                    .allocation_refused = { .slot = ev->slot, .why = ev->text } });
    if (ev->type == SE_REGISTERED)
        (void)sim_feed(m, &(struct job_event){ .type = EV_MASTER_STARTED,
                                               .master_started = { .epoch = ++m->epoch,
                                                                   .gives_back = m->gives_back } });
    for (size_t i = 0; i < ev->n; i++) {
        const struct sched_container *c = &ev->containers[i];
        const char *node = node_of(m, c->id);
        struct job_event x = { .type = EV_COMPLETED,
                               .completed = { .slot = c->slot,
                                              .container = c->id,
                                              .exit_code = c->exit_code,
                                              .reason = c->reason,
                                              .age_us = c->age_us,
                                              .detail = c->detail } };
        if (!c->completed && ev->type == SE_ALLOCATED)
            x = (struct job_event){ .type = EV_ALLOCATED,
                                    .allocated = { c->slot, c->id, c->gpus, node } };
        else if (!c->completed)
            x = (struct job_event){ .type = EV_CONTAINER_SEEN,
                                    .container_seen = { c->slot, c->id, c->launched, c->gpus,
                                                        node } };
        (void)sim_feed(m, &x);
    }
    if (ev->type == SE_REGISTERED)
        (void)sim_feed(m, &(struct job_event){ .type = EV_RESYNCED });
}

void sim_open(struct sim *m)
{
    struct sched_config cfg = { .epoch = m->epoch + 1, .on_event = on_sched, .arg = m };
    assert_int_equal(sched_fake_ops(m->cluster)->open(&cfg, &m->sched, NULL), 0);
    fake_cluster_run(m->cluster, m->now);
}

static void same_resize(const struct job *a, const struct job *b)
{
    AUTO(buf_done) struct buf x = { 0 }, y = { 0 };
    resize_json(a, &x);
    resize_json(b, &y);
    assert_string_equal(buf_cstr(&x), buf_cstr(&y));
    assert_int_equal(a->resize.state, b->resize.state);
    assert_int_equal(a->resize.outcome, b->resize.outcome);
    assert_int_equal(a->resize.due_ms, b->resize.due_ms);
    assert_int_equal(a->resize.save_due_ms, b->resize.save_due_ms);
    assert_int_equal(a->resize.failed, b->resize.failed);
    for (uint32_t r = 0; r < a->n_roles; r++) {
        assert_int_equal(a->roles[r].n, b->roles[r].n);
        assert_int_equal(a->resize.target[r], b->resize.target[r]);
        if (a->resize.state != RESIZE_STEADY)
            assert_int_equal(a->resize.by_restart[r], b->resize.by_restart[r]);
    }
}

static void same_checkpoints(const struct job *a, const struct job *b)
{
    const struct job_checkpoints *x = &a->checkpoints, *y = &b->checkpoints;
    assert_int_equal(x->has, y->has);
    assert_int_equal(x->step, y->step);
    assert_int_equal(x->generation, y->generation);
    assert_int_equal(x->n_savers, y->n_savers);
    assert_int_equal(x->n_awaited, y->n_awaited);
    for (uint32_t i = 0; i < job_n_slots(a); i++) {
        uint64_t step_a = 0, step_b = 0;
        const char *path_a = checkpoint_newest(&a->slots[i], &step_a);
        const char *path_b = checkpoint_newest(&b->slots[i], &step_b);
        assert_true(str_eq(path_a, path_b));
        assert_int_equal(step_a, step_b);
    }
}

void sim_same_job(const struct job *a, const struct job *b)
{
    same_resize(a, b);
    same_checkpoints(a, b);
    assert_int_equal(job_state(a), job_state(b));
    assert_string_equal(a->message, b->message);
    assert_int_equal(a->failures.first.slot, b->failures.first.slot);
    assert_int_equal(a->n_waited, b->n_waited);
    assert_int_equal(a->client_due_ms, b->client_due_ms);
    assert_int_equal(a->gang.pause_due_ms, b->gang.pause_due_ms);
    assert_int_equal(a->gang.round, b->gang.round);
    assert_int_equal(a->gang.granted_ms, b->gang.granted_ms);
    assert_int_equal(a->generation, b->generation);
    assert_int_equal(a->restarts.retries, b->restarts.retries);
    assert_int_equal(a->restarts.n, b->restarts.n);
    assert_int_equal(a->restarts.mending, b->restarts.mending);
    assert_int_equal(a->restarts.paused_ms, b->restarts.paused_ms);
    assert_int_equal(a->restarts.due_ms, b->restarts.due_ms);
    assert_int_equal(a->nodes.n_out, b->nodes.n_out);
    for (uint32_t r = 0; r < a->n_all_roles; r++)
        assert_int_equal(a->roles[r].forming, b->roles[r].forming);
    assert_int_equal(job_deadline(a) == INT64_MAX, job_deadline(b) == INT64_MAX);
    for (uint32_t i = 0; i < job_n_slots(a); i++) {
        const struct slot *x = &a->slots[i], *y = &b->slots[i];
        assert_int_equal(x->state, y->state);
        assert_int_equal(x->ready, y->ready);
        assert_int_equal(x->result, y->result);
        assert_int_equal(x->reason, y->reason);
        assert_int_equal(x->attempt, y->attempt);
        assert_int_equal(x->stop_us, y->stop_us);
        assert_int_equal(x->ended_ms, y->ended_ms);
        assert_true(str_eq(x->container, y->container));
        assert_true(str_eq(x->detail, y->detail));
        assert_int_equal(x->generation, y->generation);
        assert_int_equal(x->due_ms, y->due_ms);
        assert_int_equal(x->node, y->node);
        assert_int_equal(x->moved, y->moved);
        assert_int_equal(x->given_up, y->given_up);
        assert_int_equal(x->stop_tries, y->stop_tries);
        assert_int_equal(x->lent_to, y->lent_to);
        assert_int_equal(x->tally.n, y->tally.n);
        assert_int_equal(x->tally.row, y->tally.row);
        assert_memory_equal(x->spent, y->spent, sizeof x->spent);
    }
}

static struct job *replayed(const struct sim *m)
{
    struct drive d = { .spec = m->spec, .journal = m->journal };
    return drive_replay(&d, m->journal.n);
}

void sim_crash_master(struct sim *m)
{
    assert_int_equal(strv_push(&sim_trace, "crash"), 0);
    struct job *again = replayed(m);

    sim_same_job(m->job, again);
    if (sim_chance(m, 2)) { /* the journal began again with a snapshot */
        struct job *restored = drive_restored(m->spec, again);
        sim_same_job(again, restored);
        job_free(again);
        again = restored;
    }
    job_free(m->job);
    m->job = again;
    m->n_restarts++;
    sched_fake_ops(m->cluster)->close(m->sched);
    /* The master received messages until its last moment. */
    for (size_t i = 0; i < m->executors.n; i++) {
        struct executor *x = &m->executors.v[i];
        if (x->connected && !x->mute)
            x->heard_ms = m->now;
        x->connected = false;
    }
    m->now += sim_chance(m, 3000);
    sim_open(m);
}

/* ---- the executors ---- */

static void launched(const struct fake_container *c, void *arg)
{
    struct sim *m = arg;
    struct executor x = { .slot = c->slot,
                          .asked = c->slot,
                          .alive = true,
                          .heard_ms = m->now,
                          .dead_by_ms = INT64_MAX,
                          .mute = !sim_chance(m, 20),
                          .unkillable = !sim_chance(m, 40) };
    str_copy(x.container, sizeof x.container, c->id);
    assert_int_equal(vec_push(&m->executors, x), 0);
}

static void stopped(const struct fake_container *c, uint32_t grace_ms, void *arg)
{
    struct sim *m = arg;
    struct executor *x = executor_of(m, c->id);
    (void)grace_ms;
    if (!x)
        /* The container was granted, and never launched. */
        fake_cluster_exit(m->cluster, c->id, 143, END_KILLED_BY_MASTER);
    else if (!x->unkillable && !x->lost_ms)
        x->dying = true;
}

void sim_cluster(struct sim *m, const struct fake_rule *rules, size_t n)
{
    m->cluster = fake_cluster_new(rules, n);
    fake_cluster_hooks(m->cluster,
                       &(struct fake_hooks){ .launched = launched, .stopped = stopped, .arg = m });
}

static void connects(struct sim *m, struct executor *x)
{
    char container[64];
    str_copy(container, sizeof container, x->container);
    x->slot = job_slot_now(m->job, x->asked);
    struct job_event ev = {
        .type = EV_REGISTERED,
        .registered = { .slot = x->slot, .container = container, .address = "127.0.0.1:4000" }
    };
    if (x->attempt)
        ev = (struct job_event){ .type = EV_EXECUTOR_BACK,
                                 .executor_back = { x->slot, container, x->generation, x->attempt,
                                                    x->running } };
    x->connected = true;
    int rc = says(m, x, &ev);
    x = executor_of(m, container);
    x->registered = true;
    if (rc) { /* the master refuses it */
        x->dying = true;
        x->dead_by_ms = MIN(x->dead_by_ms, m->now + m->spec->kill_grace_ms);
    }
}

static void task_ends(struct sim *m, struct executor *x)
{
    static const enum end_reason reasons[] = {
        END_EXITED, END_EXITED,        END_EXITED,    END_EXITED,       END_EXITED,
        END_EXITED, END_OUT_OF_MEMORY, END_TIMED_OUT, END_LAUNCH_FAILED
    };
    enum end_reason r = reasons[sim_chance(m, ARRAY_LEN(reasons))];
    ends_attempt(m, x, r, sim_chance(m, 6) ? 0 : (int)sim_chance(m, 4),
                 r == END_EXITED && !sim_chance(m, 5) ? 9 : 0);
}

static void makes_ready(struct sim *m, struct executor *x)
{
    struct job_event ev = { .type = EV_REGISTERED,
                            .registered = { .slot = x->slot,
                                            .container = x->container,
                                            .generation = x->ready,
                                            .address = "127.0.0.1:5000" } };
    x->ready = 0;
    (void)says(m, x, &ev);
}

/* The scheduler announces that it will take a container. It may find another one and not do it. */
static void announces_preemption(struct sim *m, struct executor *x)
{
    char container[64];
    struct job_event ev = { .type = EV_PREEMPTING,
                            .preempting = {
                                .slot = x->slot, .container = container, .within_ms = NOTICE_MS } };

    str_copy(container, sizeof container, x->container);
    sim_notices++;
    if (sim_chance(m, 4))
        x->taken_ms = m->now + NOTICE_MS;
    (void)sim_feed(m, &ev);
}

/* The connection of a live executor ends. If the executor closed the connection itself, it
 * reconnects within 2 s: decision 0008 relies on that. */
static void disconnects(struct sim *m, struct executor *x)
{
    char container[64];
    bool broke = x->cut || sim_chance(m, 2);
    struct job_event ev = { .type = EV_EXECUTOR_GONE,
                            .executor_gone = {
                                .slot = x->slot, .container = container, .broke = broke } };

    str_copy(container, sizeof container, x->container);
    if (!x->cut && !x->mute)
        x->heard_ms = m->now;
    x->connected = false;
    (void)sim_feed(m, &ev);
    if (broke)
        return;
    m->now += sim_chance(m, 2000);
    connects(m, executor_of(m, container));
}

static void tells_result(struct sim *m, struct executor *x)
{
    struct job_event ev = x->result;

    ev.attempt_ended.age_us = (uint64_t)(m->now - x->ended_ms) * 1000;
    ev.attempt_ended.detail = "";
    ev.attempt_ended.tail = "bye\n";
    (void)says(m, x, &ev);
}

/* The master told this executor to end, or refused it. Some executors report the end of their task
 * before they exit. */
static void obeys_end(struct sim *m, struct executor *x)
{
    char container[64];

    str_copy(container, sizeof container, x->container);
    if (x->running && x->connected && sim_chance(m, 2)) {
        ends_attempt(m, x, END_KILLED_BY_MASTER, 0, 15);
        tells_result(m, x);
        x = executor_of(m, container);
    }
    dies(m, x, 0, END_EXITED);
}

/* Lets the executor end, or kills it. true: there is nothing else to do for it in this step. */
static bool comes_to_an_end(struct sim *m, struct executor *x)
{
    bool eager = m->settling;
    bool alone = x->registered && m->now - x->heard_ms > (int64_t)m->spec->master_away_ms;

    if (x->dying && (eager || sim_chance(m, 2)))
        obeys_end(m, x);
    else if (x->taken_ms && m->now >= x->taken_ms)
        dies(m, x, -102, END_PREEMPTED);
    else if (!sim_chance(m, 400) && !eager)
        dies(m, x, 137, sim_chance(m, 2) ? END_EXITED : END_NODE_LOST);
    else if (alone && (!x->connected || m->n_nodes) && !x->unkillable)
        dies(m, x, 1, END_UNKNOWN); /* the executor's lease is over */
    else
        return alone; /* an executor that cannot end itself does nothing any more */
    return true;
}

void sim_executor_step(struct sim *m, size_t at)
{
    struct executor *x = &m->executors.v[at];
    bool eager = m->settling;

    if (x->lost_ms && m->now >= x->lost_ms) {
        x->lost_ms = 1; /* the cluster has reported it */
        fake_cluster_exit(m->cluster, x->container, -100, END_NODE_LOST);
    }
    if (!x->alive || comes_to_an_end(m, x))
        return;
    if (x->cut && (eager || !sim_chance(m, 30)))
        x->cut = false;
    if (!x->connected) {
        if (!x->cut && (x->pending || !x->mute || x->attempt))
            if (eager || sim_chance(m, 3))
                connects(m, x);
    } else if (!eager && !sim_chance(m, 100)) {
        disconnects(m, x);
    } else if (x->ready) {
        makes_ready(m, x);
    } else if (x->pending) {
        tells_result(m, x);
    } else if (x->running && !x->started_told) {
        x->started_told = true;
        (void)says(m, x,
                   &(struct job_event){ .type = EV_ATTEMPT_STARTED,
                                        .attempt_started = { .slot = x->slot,
                                                             .generation = x->generation,
                                                             .attempt = x->attempt,
                                                             .pid = 7 } });
    } else if (x->saved_ms && m->now >= x->saved_ms) {
        ends_attempt(m, x, sim_chance(m, 2) ? END_EXITED : END_KILLED_BY_MASTER, 0, 0);
    } else if (!x->taken_ms && !eager && !sim_chance(m, 300)) {
        announces_preemption(m, x);
    } else if (x->running && !sim_chance(m, 20)) {
        (void)says(m, x,
                   &(struct job_event){ .type = EV_TASK_READY,
                                        .task_ready = { .slot = x->slot,
                                                        .generation = x->generation,
                                                        .attempt = x->attempt } });
    } else if (x->running && !sim_chance(m, 40)) {
        task_ends(m, x);
    }
}

/* ---- nodes that are lost ---- */

/* The cluster gives up a node: now, later, or without a report to any master. The executors on it
 * live on. With `cut` they cannot reach the master. */
static void lose(struct sim *m, struct executor *x, bool cut)
{
    struct job_event ev = { .type = EV_EXECUTOR_GONE,
                            .executor_gone = { x->slot, x->container, .broke = true } };

    if (!x->alive || x->lost_ms)
        return;
    sim_lost++;
    x->cut = cut;
    x->lost_ms = m->now + (sim_chance(m, 2) ? 0 : sim_chance(m, 30000)) + 1;
    if (!sim_chance(m, 4)) {
        x->lost_ms = 1;
        fake_cluster_forget(m->cluster, x->container);
    }
    if (!cut || !x->connected)
        return;
    x->heard_ms = x->mute ? x->heard_ms : m->now;
    x->connected = false;
    if (sim_chance(m, 2)) /* else the master sees only that nothing arrives */
        (void)sim_feed(m, &ev);
}

void sim_lose_node(struct sim *m)
{
    const char *node = m->nodes[sim_chance(m, m->n_nodes)];
    bool cut = sim_chance(m, 3);

    for (size_t i = 0; i < m->executors.n; i++)
        if (str_eq(node_of(m, m->executors.v[i].container), node))
            lose(m, &m->executors.v[i], cut);
}

void sim_lose_rack_with_master(struct sim *m)
{
    uint32_t rack = sim_chance(m, 2);
    bool cut = sim_chance(m, 3);

    for (size_t i = 0; i < m->executors.n; i++) {
        const char *node = node_of(m, m->executors.v[i].container);
        if ((uint32_t)(node[1] - '0') % 2 == rack)
            lose(m, &m->executors.v[i], cut);
    }
    sim_crash_master(m);
}

/* ---- time, clients, nonsense ---- */

void sim_pass(struct sim *m, int64_t ms)
{
    struct job_event ev;

    m->now += ms;
    fake_cluster_run(m->cluster, m->now);
    while (job_due(m->job, m->now, &ev))
        (void)sim_feed(m, &ev);
    if (m->now < m->next_beat)
        return;
    m->next_beat = m->now + m->spec->heartbeat_ms;
    for (size_t i = 0; i < m->executors.n; i++) {
        struct executor *x = &m->executors.v[i];
        if (x->connected && !x->mute)
            (void)says(m, x, &(struct job_event){ .type = EV_BEAT, .beat = { .slot = x->slot } });
    }
}

void sim_nonsense(struct sim *m)
{
    static const enum job_event_type types[] = {
        EV_SUBMITTED,     EV_RESYNCED,        EV_ALLOCATED,     EV_COMPLETED,  EV_REGISTERED,
        EV_EXECUTOR_BACK, EV_ATTEMPT_STARTED, EV_ATTEMPT_ENDED, EV_PROGRESS,   EV_TENSORBOARD,
        EV_SHRINK,        EV_SUSPECT,         EV_TASK_READY,    EV_PREEMPTING, EV_NONE,
        EV_COUNT
    };
    struct job_event ev = { .type = types[sim_chance(m, ARRAY_LEN(types))] };
    drive_fill(&ev, &(struct drive_values){ .slot = sim_chance(m, m->job->n_slots + 2),
                                            .container = "container_nobody_knows",
                                            .generation = sim_chance(m, 3),
                                            .attempt = 7000, /* no attempt has this number */
                                            .text = "text",
                                            .number = sim_chance(m, 100),
                                            .reason = END_EXITED });
    (void)sim_feed(m, &ev);
}

void sim_client(struct sim *m)
{
    static const enum job_event_type types[] = { EV_CLIENT_OWNS, EV_CLIENT_AWAY };
    (void)sim_feed(m, &(struct job_event){ .type = types[sim_chance(m, ARRAY_LEN(types))] });
}

/* The scheduler asks for containers back, or offers more. */
static void scheduler_wishes(struct sim *m)
{
    struct job_event ev = { .type = EV_GROW, .grow = { .n_containers = sim_chance(m, 12) } };

    if (sim_chance(m, 3))
        ev = (struct job_event){ .type = EV_SHRINK,
                                 .shrink = { .n_containers = sim_chance(m, 6),
                                             .within_ms = sim_chance(m, 20000) } };
    if (sim_feed(m, &ev) == 0)
        sim_resizes++;
}

/* A client asks for another number of tasks in a role, or the scheduler asks for another size. */
void sim_resize(struct sim *m)
{
    if (!sim_chance(m, 3)) {
        scheduler_wishes(m);
        return;
    }
    uint32_t role = sim_chance(m, m->job->n_roles);
    AUTO(free_p)
    char *targets = str_printf("%s=%u", job_role_name(m->job, role), sim_chance(m, 6));

    if (sim_feed(m, &(struct job_event){ .type = EV_RESIZE,
                                         .resize = { .who = "ann", .targets = targets } }) == 0)
        sim_resizes++;
}
