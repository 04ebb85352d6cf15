#include "job_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "drive.h"

struct strv sim_trace;
enum { NOTICE_MS = 15000 };

unsigned sim_given_back, sim_taken, sim_notices;

uint32_t sim_chance(struct sim *m, uint32_t n)
{
    m->rng ^= m->rng << 13;
    m->rng ^= m->rng >> 7;
    m->rng ^= m->rng << 17;
    return (uint32_t)(m->rng >> 11) % n;
}

/* ---- what must hold ---- */

static void check_counters(const struct sim *m)
{
    uint32_t n[SLOT_STATE_COUNT] = { 0 }, waited = 0;
    for (uint32_t i = 0; i < m->job->n_slots; i++) {
        const struct slot *s = &m->job->slots[i];
        n[s->state]++;
        waited += m->job->roles[s->role].awaited && s->result == RES_NONE;
        assert_true(s->state != SLOT_ENDED || s->result != RES_NONE);
        if (job_is_spare(m->job, i))
            n[s->state]--; /* nobody counts spares */
        assert_true(s->state != SLOT_RUNNING || s->result == RES_NONE);
        assert_true(!slot_has_container(s->state) || s->container);
    }
    for (int s = SLOT_HELD; s < SLOT_STATE_COUNT; s++)
        assert_int_equal(n[s], m->job->n_state[s]);
    const struct deadlines *dl = &m->job->dl;
    for (uint32_t i = 1; i < dl->n; i++) {
        assert_true(dl->due[dl->heap[(i - 1) / 2]] <= dl->due[dl->heap[i]]);
        assert_int_equal(dl->pos[dl->heap[i]], i + 1);
    }
    assert_int_equal(waited, m->job->n_waited);
}

/* Nobody runs beside it who should not: another attempt of its slot, or what is left of the gang
 * that its own has followed. Those that no scheduler can kill are nobody's fault. */
static void check_one_attempt(const struct sim *m, const struct executor *a)
{
    for (size_t k = 0; k < m->executors.n; k++) {
        const struct executor *b = &m->executors.v[k];
        if (b == a || !b->running || b->unkillable || b->mute)
            continue;
        if (a->slot == b->slot)
            fail_msg("two live attempts of slot %u: %u.%u and %u.%u", a->slot, a->generation,
                     a->attempt, b->generation, b->attempt);
        if (b->generation < a->generation && !a->sidecar && !b->sidecar)
            fail_msg("slot %u begins generation %u beside slot %u of %u", a->slot, a->generation,
                     b->slot, b->generation);
    }
}

/* Whoever can begin has begun, and what another role's end stops is stopping. */
static void check_depends(const struct sim *m)
{
    const struct job *j = m->job;

    if (j->decided || j->resyncing || !j->epoch)
        return;
    bool whole = !j->spec->gang || (!j->n_state[SLOT_ASKED] && !j->n_state[SLOT_PLACED]);
    for (uint32_t r = 0; r < j->n_roles; r++) {
        const struct role *role = &j->roles[r];
        const struct role_spec *spec = job_role_spec(j, r);
        if (whole && !j->mending && role->n_state[SLOT_REGISTERED] && depends_open(j, r))
            fail_msg("role '%s' could begin and does not", job_role_name(j, r));
        for (size_t k = 0; k < spec->n_stops && role->n_settled == role->n; k++) {
            const struct role *other = &j->roles[spec->stops[k]];
            assert_int_equal(other->n, other->n_settled + other->n_state[SLOT_STOPPING]);
        }
    }
}

/* After a feed: what has begun was allowed to. */
static void check_begun(const struct sim *m, const uint32_t *attempts)
{
    for (uint32_t i = 0; i < m->job->n_tasks; i++)
        if (m->job->slots[i].attempt != attempts[i] && !depends_open(m->job, m->job->slots[i].role))
            fail_msg("slot %u begins too early", i);
}

/* No limit is passed: each beginning was charged to somebody. */
static void check_limits(const struct sim *m)
{
    const struct job *j = m->job;
    uint64_t most = m->spec->am_retry_count, each = 0;

    for (int r = END_NONE; r < END_COUNT; r++)
        each += m->spec->restarts[r];
    assert_true(j->retries <= m->spec->am_retry_count);
    for (uint32_t i = 0; i < j->n_slots; i++) {
        const struct role_spec *r = job_slot_role(j, i);
        for (int k = END_NONE; k < END_COUNT; k++)
            assert_true(j->slots[i].spent[k] <= m->spec->restarts[k]);
        assert_true(j->slots[i].tally.times || j->slots[i].tally.n <= r->max_restarts);
        if (r->restart_window_ms)
            most += 100000;
        most += each + 2 * (uint64_t)r->max_restarts;
    }
    assert_true(j->n_restarts <= most * (1 + j->retries));
    assert_true(j->generation <= 1 + j->n_restarts);
}

void sim_check(const struct sim *m)
{
    check_counters(m);
    check_limits(m);
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
        for (size_t i = 0; i < m->executors.n;
             i++) { /* nothing of the user's runs on, but what nobody could stop */
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
                                    .slot = x->slot,
                                    .generation = x->generation,
                                    .attempt = x->attempt,
                                    .reason = reason,
                                    .exit_code = exit_code,
                                    .signal = signal };
}

static void dies(struct sim *m, struct executor *x, int exit_code, enum end_reason reason)
{
    if (!x->alive)
        return;
    x->alive = x->connected = x->running = false;
    fake_cluster_exit(m->cluster, x->container, exit_code, reason);
}

static void carry_out(struct sim *m, const struct job_action *a)
{
    struct executor *x = a->type == ACT_START || a->type == ACT_STOP_ATTEMPT ||
                                 a->type == ACT_ACK || a->type == ACT_FINISH_EXECUTOR ||
                                 a->type == ACT_RENEW
                             ? executor_at(m, a->slot)
                             : NULL;
    struct sched_ask ask = { .slot = a->slot, .memory_mib = 512 };
    struct sched_container c = { .id = a->container, .slot = a->slot };
    const struct sched_ops *ops = sched_fake_ops(m->cluster);

    if (x && (!x->alive || !x->connected))
        x = NULL;
    switch (a->type) {
    case ACT_ASK:
        (void)ops->request(m->sched, &ask, 1, NULL);
        break;
    case ACT_CANCEL:
        sim_given_back += m->job->pause_due_ms != INT64_MAX;
        (void)ops->cancel(m->sched, &a->slot, 1, NULL);
        break;
    case ACT_RELEASE:
        (void)ops->release(m->sched, &a->container, 1, NULL);
        break;
    case ACT_LAUNCH:
        (void)ops->launch(m->sched, &c, 1, NULL);
        break;
    case ACT_STOP_CONTAINER:
        (void)ops->stop(m->sched, a->container, a->grace_ms, NULL);
        break;
    case ACT_START:
        if (x && !x->running && a->attempt > x->attempt) {
            x->running = true;
            x->started_told = false;
            x->generation = a->generation;
            x->attempt = a->attempt;
            x->sidecar =
                !m->spec->single_node && job_slot_role(m->job, a->slot)->kind == ROLE_SIDECAR;
            check_one_attempt(m, x);
        }
        break;
    case ACT_STOP_ATTEMPT:
        assert_true(a->save_ms <= NOTICE_MS / 2);
        if (x && x->running && !x->mute && a->save_ms && sim_chance(m, 3))
            x->saved_ms = m->now + sim_chance(m, a->save_ms + a->grace_ms);
        else if (x && x->running && !x->mute)
            ends_attempt(m, x, sim_chance(m, 2) ? END_KILLED_BY_MASTER : END_EXITED, 0,
                         sim_chance(m, 2) ? 15 : 9);
        break;
    case ACT_ACK:
        if (x && a->generation == x->generation && a->attempt == x->attempt) {
            x->pending = false;
            x->dying |= a->finish;
        }
        break;
    case ACT_FINISH_EXECUTOR:
        if (x)
            x->dying |= !x->mute;
        break;
    case ACT_FINISH:
        check_end(m);
        (void)ops->finish(m->sched, "DONE", "", NULL, NULL);
        break;
    case ACT_RENEW:
        if (x && !x->running && !x->mute) {
            x->pending = false;
            x->ready = a->generation;
        }
        break;
    case ACT_TAKE:
        sim_taken++;
        x = executor_of(m, a->container);
        if (x)
            x->slot = a->slot;
        break;
    case ACT_AVOID:
    case ACT_PEERS:
    case ACT_NONE:
    case ACT_NOTIFY:
    case ACT_SYNC:
    case ACT_COUNT:
        break;
    }
}

int sim_feed(struct sim *m, const struct job_event *ev)
{
    struct err e = { 0 };
    struct job_actions acts = { 0 };
    uint32_t attempts[32];

    assert_true(m->job->n_tasks <= ARRAY_LEN(attempts));
    for (uint32_t i = 0; i < m->job->n_tasks; i++)
        attempts[i] = m->job->slots[i].attempt;
    int rc = job_feed(m->job, ev, m->now, &acts, &e);
    if (rc == 0) {
        check_begun(m, attempts);
        check_depends(m);
    }

    AUTO(buf_done) struct buf text = { 0 };
    if (job_event_encode(ev, m->now, &text) == 0)
        assert_int_equal(strv_push(&sim_trace, buf_cstr(&text)), 0);
    m->n_feeds++;
    assert_true(rc == 0 || (rc == 1 && *e.msg));
    if (rc == 0 && job_is_durable(ev->type)) {
        AUTO(buf_done) struct buf line = { 0 };
        assert_int_equal(job_event_encode(ev, job_now(m->job), &line), 0);
        assert_int_equal(strv_push(&m->journal, buf_cstr(&line)), 0);
    }
    sim_check(m);
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
        (void)sim_feed(m, &(struct job_event){
                              .type = EV_ALLOCATION_REFUSED, .slot = ev->slot, .text = ev->text });
    if (ev->type == SE_REGISTERED)
        (void)sim_feed(m, &(struct job_event){ .type = EV_MASTER_STARTED,
                                               .epoch = ++m->epoch,
                                               .running = m->gives_back });
    for (size_t i = 0; i < ev->n; i++) {
        const struct sched_container *c = &ev->containers[i];
        struct job_event x = { .slot = c->slot,
                               .container = c->id,
                               .launched = c->launched,
                               .text = c->gpus,
                               .node = m->n_nodes ? m->nodes[c->slot % m->n_nodes] : NULL,
                               .exit_code = c->exit_code,
                               .reason = c->reason,
                               .age_us = c->age_us };
        x.type = c->completed               ? EV_COMPLETED
                 : ev->type == SE_ALLOCATED ? EV_ALLOCATED
                                            : EV_CONTAINER_SEEN;
        if (x.type == EV_COMPLETED)
            x.text = c->detail;
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

void sim_same_job(const struct job *a, const struct job *b)
{
    assert_int_equal(job_state(a), job_state(b));
    assert_string_equal(a->message, b->message);
    assert_int_equal(a->cause.slot, b->cause.slot);
    assert_int_equal(a->n_waited, b->n_waited);
    assert_int_equal(a->client_due_ms, b->client_due_ms);
    assert_int_equal(a->pause_due_ms, b->pause_due_ms);
    assert_int_equal(a->round, b->round);
    assert_int_equal(a->granted_ms, b->granted_ms);
    assert_int_equal(a->generation, b->generation);
    assert_int_equal(a->retries, b->retries);
    assert_int_equal(a->n_restarts, b->n_restarts);
    assert_int_equal(a->mending, b->mending);
    assert_int_equal(a->paused_ms, b->paused_ms);
    assert_int_equal(a->restart_due_ms, b->restart_due_ms);
    assert_int_equal(a->n_out, b->n_out);
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
    job_free(m->job);
    m->job = again;
    m->n_restarts++;
    sched_fake_ops(m->cluster)->close(m->sched);
    for (size_t i = 0; i < m->executors.n; i++) {
        m->executors.v[i].connected = false;
        m->executors.v[i].away_ms = m->now;
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
                          .away_ms = m->now,
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
        fake_cluster_exit(m->cluster, c->id, 143,
                          END_KILLED_BY_MASTER); /* granted, never launched */
    else if (!x->unkillable)
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
    struct job_event ev = { .type = x->attempt ? EV_EXECUTOR_BACK : EV_REGISTERED,
                            .slot = x->slot,
                            .container = x->container,
                            .generation = x->generation,
                            .attempt = x->attempt,
                            .running = x->running };
    char container[64];
    str_copy(container, sizeof container, x->container);
    ev.container = container;
    ev.slot = x->slot = job_slot_now(m->job, x->asked);
    if (!x->attempt)
        ev.text = "127.0.0.1:4000";
    x->connected = true;
    int rc = sim_feed(m, &ev);
    x = executor_of(m, container);
    x->registered = true;
    if (rc)
        x->dying = true; /* the master knows it not */
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
                            .slot = x->slot,
                            .container = x->container,
                            .generation = x->ready,
                            .text = "127.0.0.1:5000" };
    x->ready = 0;
    (void)sim_feed(m, &ev);
}

/* It need not come true: the scheduler may find room elsewhere. */
static void notices(struct sim *m, struct executor *x)
{
    char container[64];
    struct job_event ev = {
        .type = EV_PREEMPTING, .slot = x->slot, .container = container, .value_ms = NOTICE_MS
    };

    str_copy(container, sizeof container, x->container);
    sim_notices++;
    if (sim_chance(m, 4))
        x->taken_ms = m->now + NOTICE_MS;
    (void)sim_feed(m, &ev);
}

void sim_executor_step(struct sim *m, size_t at)
{
    struct executor *x = &m->executors.v[at];
    bool eager = m->settling;

    if (!x->alive)
        return;
    if (x->dying && (eager || sim_chance(m, 2))) {
        dies(m, x, 0, END_EXITED);
    } else if (x->taken_ms && m->now >= x->taken_ms) {
        dies(m, x, -102, END_PREEMPTED);
    } else if (!sim_chance(m, 400) && !eager) {
        dies(m, x, 137, sim_chance(m, 2) ? END_EXITED : END_NODE_LOST);
    } else if (!x->connected && x->registered && !x->unkillable &&
               m->now - x->away_ms > (int64_t)m->spec->master_away_ms) {
        dies(m, x, 1, END_UNKNOWN); /* its lease is over */
    } else if (!x->connected) {
        if (x->pending || !x->mute || x->attempt)
            if (eager || sim_chance(m, 3))
                connects(m, x);
    } else if (!eager && !sim_chance(m, 100)) {
        struct job_event ev = { .type = EV_EXECUTOR_GONE,
                                .slot = x->slot,
                                .container = x->container };
        x->connected = false;
        x->away_ms = m->now;
        (void)sim_feed(m, &ev);
    } else if (x->ready) {
        makes_ready(m, x);
    } else if (x->pending) {
        struct job_event ev = x->result;
        ev.age_us = (uint64_t)(m->now - x->ended_ms) * 1000;
        ev.text = "";
        ev.tail = "bye\n";
        (void)sim_feed(m, &ev);
    } else if (x->running && !x->started_told) {
        x->started_told = true;
        (void)sim_feed(m, &(struct job_event){ .type = EV_ATTEMPT_STARTED,
                                               .slot = x->slot,
                                               .generation = x->generation,
                                               .attempt = x->attempt,
                                               .pid = 7 });
    } else if (x->saved_ms && m->now >= x->saved_ms) {
        ends_attempt(m, x, sim_chance(m, 2) ? END_EXITED : END_KILLED_BY_MASTER, 0, 0);
    } else if (!x->taken_ms && !eager && !sim_chance(m, 300)) {
        notices(m, x);
    } else if (x->running && !sim_chance(m, 20)) {
        (void)sim_feed(m, &(struct job_event){ .type = EV_TASK_READY,
                                               .slot = x->slot,
                                               .generation = x->generation,
                                               .attempt = x->attempt });
    } else if (x->running && !sim_chance(m, 40)) {
        task_ends(m, x);
    }
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
        if (m->executors.v[i].connected && !m->executors.v[i].mute)
            (void)sim_feed(m,
                           &(struct job_event){ .type = EV_BEAT, .slot = m->executors.v[i].slot });
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
    struct job_event ev = { .type = types[sim_chance(m, ARRAY_LEN(types))],
                            .slot = sim_chance(m, m->job->n_slots + 2),
                            .container = "container_nobody_knows",
                            .generation = sim_chance(m, 3),
                            .attempt = 7000, /* none comes so far */
                            .text = "text",
                            .step = sim_chance(m, 100),
                            .total = 100,
                            .reason = END_EXITED };
    (void)sim_feed(m, &ev);
}

void sim_client(struct sim *m)
{
    static const enum job_event_type types[] = { EV_CLIENT_OWNS, EV_CLIENT_AWAY };
    (void)sim_feed(m, &(struct job_event){ .type = types[sim_chance(m, ARRAY_LEN(types))] });
}
