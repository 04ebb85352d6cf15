/* SPDX-License-Identifier: Apache-2.0 */
#include "job_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "drive.h"

struct strv sim_trace;
enum { NOTICE_MS = 15000, COPY_MS = 500 /* a copy of the journal takes no longer */ };

unsigned sim_given_back, sim_taken, sim_notices, sim_resizes, sim_lost, sim_orphans, sim_stalls;

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

/* The job has recorded the end of this task, and does not run it again. A job whose last records
 * were lost may not know the slot. */
static bool has_no_successor(const struct sim *m, const struct executor *x)
{
    if (x->slot >= m->job->n_slots)
        return false;
    const struct slot *s = &m->job->slots[x->slot];
    return s->state == SLOT_ENDED && s->attempt == x->attempt && s->generation == x->generation;
}

/* When attempt `a` begins, no other attempt of its slot may run, and no attempt of an older
 * generation of its gang. */
void sim_check_one_attempt(const struct sim *m, const struct executor *a)
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
void sim_check_depends(const struct sim *m)
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
void sim_check_starts_allowed(const struct sim *m, const uint32_t *attempts)
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
        assert_true(r->restart_window_ms || j->slots[i].tally.n <= (uint32_t)r->max_restarts);
        if (r->restart_window_ms)
            most += 100000;
        most += each + 2 * (uint64_t)r->max_restarts;
    }
    /* A task that was lost together with a master restarts without a charge. */
    uint64_t with_masters = (uint64_t)m->n_restarts * j->n_slots;
    assert_true(j->restarts.n <= most * (1 + j->restarts.retries) + with_masters);
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

/* A task that runs on after the end of the job is an orphan in the job's status, until its lease is
 * over. Those of a container that the job does not know are not: the journal has lost the grant. */
static void check_orphan(const struct sim *m, const struct executor *x)
{
    const struct slot *s = x->slot < m->job->n_slots ? &m->job->slots[x->slot] : NULL;
    int64_t dead_by =
        MIN(x->heard_ms + m->spec->master_away_ms + m->spec->kill_grace_ms, x->dead_by_ms);

    if (!x->alive || !x->running || x->dying || dead_by <= m->now || !s ||
        !str_eq(s->container, x->container))
        return;
    if (limits_orphan_end(m->job, s) < dead_by)
        fail_msg("slot %u runs on in %s after the end of the job, until %lld, and is no orphan "
                 "(%lld): %s%s%s%s, attempt %u, the slot's is %u",
                 x->slot, x->container, (long long)dead_by, (long long)limits_orphan_end(m->job, s),
                 x->connected ? "connected" : "away", x->cut ? ", cut off" : "",
                 x->mute ? ", mute" : "", x->unkillable ? ", unkillable" : "", x->attempt,
                 s->attempt);
}

void sim_check_end(struct sim *m)
{
    struct job_verdict v;
    job_verdict(m->job, &v);
    assert_true(v.state >= JOB_SUCCEEDED && *v.message);
    if (!m->finished) {
        m->finished = true;
        m->verdict = v;
        str_copy(m->message, sizeof m->message, v.message);
        /* No task still runs, except those that could not be stopped. A job that is over does not
         * wait for a lost node. */
        for (size_t i = 0; i < m->executors.n; i++) {
            const struct executor *x = &m->executors.v[i];
            if (x->alive && x->running && !x->mute && !x->unkillable && x->connected && !x->dying &&
                !x->lost_ms)
                fail_msg("the job is over and slot %u runs on: %s attempt %u.%u, saves until %lld, "
                         "lost at %lld, now %lld; the slot is %s with %s",
                         x->slot, x->container, x->generation, x->attempt, (long long)x->saved_ms,
                         (long long)x->lost_ms, (long long)m->now,
                         slot_state_name(m->job->slots[x->slot].state),
                         m->job->slots[x->slot].container);
            check_orphan(m, x);
        }
    }
    assert_int_equal(v.state, m->verdict.state);
    assert_int_equal(v.cause_slot, m->verdict.cause_slot);
    assert_string_equal(v.message, m->message);
}

/* ---- the executors ---- */

struct executor *sim_executor_of(struct sim *m, const char *container)
{
    for (size_t i = 0; i < m->executors.n; i++) {
        if (str_eq(m->executors.v[i].container, container))
            return &m->executors.v[i];
    }
    return NULL;
}

struct executor *sim_executor_at(struct sim *m, uint32_t slot)
{
    struct slot_view v;
    job_slot(m->job, slot, &v);
    return v.container ? sim_executor_of(m, v.container) : NULL;
}

void sim_ends_attempt(struct sim *m, struct executor *x, enum end_reason reason, int exit_code,
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

const char *sim_node_of(const struct sim *m, const char *container)
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
    struct executor *x = sim_executor_of(m, c->id);
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

/* Does the master refuse the executor? Same rule as refusal() of src/master/executors.c. */
static bool is_refused(const struct sim *m, const struct executor *x)
{
    struct slot_view v;

    if (x->slot >= m->job->n_slots)
        return true;
    job_slot(m->job, x->slot, &v);
    return !str_eq(v.container, x->container) || v.state == SLOT_ENDED;
}

/* The executor connects to the master, as in executor_hello() of src/master/executors.c. */
static void connects(struct sim *m, struct executor *x)
{
    char container[64];
    str_copy(container, sizeof container, x->container);
    x->slot = job_slot_now(m->job, x->asked);
    struct job_event ev = {
        .type = EV_REGISTERED,
        .registered = { .slot = x->slot, .container = container, .address = "127.0.0.1:4000" }
    };
    bool refused = is_refused(m, x);
    if (!refused && m->job->slots[x->slot].address)
        ev = (struct job_event){ .type = EV_EXECUTOR_BACK,
                                 .executor_back = { x->slot, container, x->generation, x->attempt,
                                                    x->running } };
    x->connected = true;
    (void)says(m, x, &ev);
    x = sim_executor_of(m, container);
    x->registered = true;
    if (refused) {
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
    sim_ends_attempt(m, x, r, sim_chance(m, 6) ? 0 : (int)sim_chance(m, 4),
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
    connects(m, sim_executor_of(m, container));
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
        sim_ends_attempt(m, x, END_KILLED_BY_MASTER, 0, 15);
        tells_result(m, x);
        x = sim_executor_of(m, container);
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
    if (x->mute && !eager && !sim_chance(m, 30)) /* it was frozen, and runs on */
        x->mute = false;
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
        sim_ends_attempt(m, x, sim_chance(m, 2) ? END_EXITED : END_KILLED_BY_MASTER, 0, 0);
    } else if (!x->taken_ms && !eager && !sim_chance(m, 300)) {
        announces_preemption(m, x);
    } else if (x->running && !sim_chance(m, 20)) {
        (void)says(m, x,
                   &(struct job_event){ .type = EV_TASK_READY,
                                        .task_ready = { .slot = x->slot,
                                                        .generation = x->generation,
                                                        .attempt = x->attempt } });
    } else if (x->running && !sim_chance(m, 6)) {
        saves_task_saves(m, x);
    } else if (x->running && !sim_chance(m, 8)) {
        saves_task_steps(m, x);
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
        if (str_eq(sim_node_of(m, m->executors.v[i].container), node))
            lose(m, &m->executors.v[i], cut);
}

void sim_lose_rack_with_master(struct sim *m)
{
    uint32_t rack = sim_chance(m, 2);
    bool cut = sim_chance(m, 3);

    for (size_t i = 0; i < m->executors.n; i++) {
        const char *node = sim_node_of(m, m->executors.v[i].container);
        if ((uint32_t)(node[1] - '0') % 2 == rack)
            lose(m, &m->executors.v[i], cut);
    }
    sim_crash_master(m);
}

/* ---- time, clients, nonsense ---- */

void sim_pass(struct sim *m, int64_t ms)
{
    struct job_event ev;

    if (!m->gives_back || m->settling || m->now - m->delayed_ms > COPY_MS || !sim_chance(m, 3))
        sim_flush(m);
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
        EV_SUBMITTED,  EV_RESYNCED,      EV_ALLOCATED,       EV_COMPLETED,
        EV_REGISTERED, EV_EXECUTOR_BACK, EV_ATTEMPT_STARTED, EV_ATTEMPT_ENDED,
        EV_PROGRESS,   EV_TENSORBOARD,   EV_SHRINK,          EV_SUSPECT,
        EV_TASK_READY, EV_PREEMPTING,    EV_CHECKPOINT,      EV_NONE,
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
    struct job_event ev = {
        .type = EV_GROW, .grow = { .n_containers = sim_chance(m, 12), .saved = sim_chance(m, 2) }
    };

    char leave[40];
    (void)snprintf(leave, sizeof leave, "%u,%u,%u", sim_chance(m, 9), sim_chance(m, 9),
                   sim_chance(m, 9));
    if (sim_chance(m, 3))
        ev = (struct job_event){ .type = EV_SHRINK,
                                 .shrink = { .n_containers = sim_chance(m, 6),
                                             .within_ms = sim_chance(m, 20000),
                                             .saved = sim_chance(m, 2),
                                             .leave = sim_chance(m, 2) ? leave : NULL } };
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

/* The master does not run for a while. The kernels of the two machines talk on: the executors see
 * their messages acknowledged. The master reads them only now. */
void sim_stall(struct sim *m)
{
    int64_t ms = 1000 + sim_chance(m, 90000);

    sim_flush(m);
    sim_stalls++;
    m->now += ms;
    for (size_t i = 0; i < m->executors.n; i++) {
        struct executor *x = &m->executors.v[i];
        if (x->connected && !x->cut && !x->mute)
            x->heard_ms = m->now;
        if (x->alive && x->running && x->saved_ms && x->saved_ms <= m->now)
            sim_ends_attempt(m, x, END_EXITED, 0, 0); /* meanwhile it has saved, and ended */
    }
    (void)sim_feed(m, &(struct job_event){ .type = EV_STALLED, .stalled = { .stalled_ms = ms } });
}
