/* SPDX-License-Identifier: Apache-2.0 */
/* The master of job_sim.h: its journal, its actions, and its crashes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "drive.h"
#include "job_sim.h"

unsigned sim_cut;

/* ---- actions ---- */

/* Same rule as in executor_start() of src/master/executors.c. */
static bool is_over(const struct job *j, const struct act_start *a)
{
    struct slot_view v;

    job_slot(j, a->slot, &v);
    return v.attempt != a->attempt || v.state < SLOT_RUNNING || v.state == SLOT_RENEWING;
}

/* The command starts. */
static void starts(struct sim *m, struct executor *x, const struct act_start *a)
{
    x->running = true;
    x->started_told = false;
    x->generation = a->generation;
    x->attempt = a->attempt;
    x->resumed_step = 0;
    (void)job_checkpoint(m->job, a->slot, &x->resumed_step);
    x->sidecar = !m->spec->single_node && job_slot_role(m->job, a->slot)->kind == ROLE_SIDECAR;
    sim_check_one_attempt(m, x);
}

static void carry_out(struct sim *m, const struct job_action *a)
{
    struct executor *x = a->type == ACT_START || a->type == ACT_STOP_ATTEMPT ||
                                 a->type == ACT_ACK || a->type == ACT_FINISH_EXECUTOR ||
                                 a->type == ACT_RENEW
                             ? sim_executor_at(m, a->of_slot.slot)
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
        if (x && !x->running && a->start.attempt > x->attempt && !is_over(m->job, &a->start))
            starts(m, x, &a->start);
        break;
    case ACT_STOP_ATTEMPT:
        assert_true(a->stop_attempt.save_ms <= m->spec->checkpoint_grace_ms);
        if (x && x->running && !x->mute && a->stop_attempt.save_ms && sim_chance(m, 3))
            x->saved_ms =
                m->now + sim_chance(m, a->stop_attempt.save_ms + a->stop_attempt.grace_ms);
        else if (x && x->running && !x->mute)
            sim_ends_attempt(m, x, sim_chance(m, 2) ? END_KILLED_BY_MASTER : END_EXITED, 0,
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
        sim_check_end(m);
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
        x = sim_executor_of(m, a->take.container);
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

static void delay(struct sim *m, const struct job_action *from)
{
    struct job_action a = *from;
    const char **text = job_action_text(&a);

    if (text)
        *text = str_dup(*text);
    assert_int_equal(vec_push(&m->delayed, a), 0);
}

/* Do the actions wait for the copy of the journal? Same rules as need_copy() in
 * src/master/actions.c. */
static bool need_copy(const struct sim *m, const struct job_actions *list)
{
    bool sync = false, stops = job_state(m->job) >= JOB_STOPPING;

    for (size_t i = 0; i < list->n; i++) {
        const struct job_action *a = &list->v[i];
        bool later = a->type == ACT_START && (a->start.generation > 1 || a->start.attempt > 1);
        sync |= a->type == ACT_SYNC;
        if ((sync && later) || (sync && a->type == ACT_STOP_ATTEMPT && !stops))
            return true;
        if (a->type == ACT_START && m->granted_n[a->start.slot] > m->n_stored)
            return true;
    }
    return false;
}

static bool has_finish(const struct job_actions *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i].type == ACT_FINISH)
            return true;
    return false;
}

static void actions_drop(struct job_actions *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const char **text = job_action_text(&list->v[i]);
        free(text ? (char *)(uintptr_t)*text : NULL);
    }
    list->n = 0;
}

void sim_flush(struct sim *m)
{
    struct job_actions list = m->delayed;

    m->n_stored = m->journal.n;
    m->delayed = (struct job_actions){ 0 };
    for (size_t i = 0; i < list.n; i++)
        carry_out(m, &list.v[i]);
    actions_drop(&list);
    vec_done(&list);
}

/* Carry the actions out, or let them wait. In the pool they wait for the end of the loop's turn; on
 * a cluster they may wait for the copy. The archive of a job has the whole journal before the
 * scheduler hears of its end. */
static void carry_out_or_delay(struct sim *m, const struct job_actions *list)
{
    bool wait = m->gives_back ? need_copy(m, list) : !sim_chance(m, 6);

    wait = (wait || m->delayed.n) && !m->settling;
    m->delayed_ms = m->delayed.n ? m->delayed_ms : m->now;
    for (size_t i = 0; wait && i < list->n; i++)
        delay(m, &list->v[i]);
    if (wait && !has_finish(list))
        return;
    if (!m->gives_back || m->settling || has_finish(list))
        sim_flush(m);
    for (size_t i = 0; !wait && i < list->n; i++)
        carry_out(m, &list->v[i]);
}

/* ---- events ---- */

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

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The lines of the job's snapshot, sorted: the order of a slot's reports depends on when an element
 * of its table became free, and a restored snapshot has other free elements. */
static void snapshot_lines(const struct job *j, struct strv *out)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct span rest, line;

    assert_int_equal(job_snapshot(j, &text), 0);
    rest = buf_span(&text);
    while (span_split(&rest, '\n', &line))
        assert_int_equal(strv_pushf(out, "%.*s", (int)line.len, line.p), 0);
    qsort(out->v, out->n, sizeof *out->v, by_text);
}

/* A replay of the journal leads to the same state. So events that are not in the journal have
 * changed nothing else. */
static void check_journal(const struct sim *m)
{
    const struct drive d = { .spec = m->spec, .journal = m->journal };
    struct strv live = { 0 }, journal = { 0 };
    struct job *replayed = drive_replay(&d, m->journal.n);

    copy_unjournalled_state(m->job, replayed);
    snapshot_lines(m->job, &live);
    snapshot_lines(replayed, &journal);
    assert_int_equal(live.n, journal.n);
    for (size_t i = 0; i < live.n; i++)
        if (!str_eq(live.v[i], journal.v[i]))
            fail_msg("after %.200s:\nthe job is          %.380s\nits journal says it is %.380s",
                     m->journal.v[m->journal.n - 1], live.v[i], journal.v[i]);
    strv_done(&live);
    strv_done(&journal);
    job_free(replayed);
}

/* Has a resize added tasks? It may close a gate again: a new task is not ready. */
static bool has_grown(const struct job *j, const uint32_t *members)
{
    for (uint32_t r = 0; r < j->n_roles; r++)
        if (j->roles[r].n > members[r])
            return true;
    return false;
}

/* Does this event tell a new master, before it is done with its resync, that a node was lost? */
static bool is_loss_with_master(const struct sim *m, const struct job_event *ev)
{
    return m->job->resyncing &&
           (ev->type == EV_RESYNCED ||
            (ev->type == EV_COMPLETED && ev->completed.reason == END_NODE_LOST));
}

/* The restarts of tasks on a cluster that were charged to the budget for lost nodes. */
static uint32_t count_charges(const struct sim *m)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->job->n_slots; i++)
        n += m->job->slots[i].node >= 0 ? m->job->slots[i].spent[END_NODE_LOST] : 0;
    return n;
}

int sim_feed(struct sim *m, const struct job_event *ev)
{
    struct err e = { 0 };
    struct job_actions acts = { 0 };
    AUTO(buf_done) struct buf text = { 0 };

    assert_true(m->job->n_slots <= ARRAY_LEN(m->saves.attempts));
    if (job_event_encode(ev, m->now, &text) == 0)
        assert_int_equal(strv_push(&sim_trace, buf_cstr(&text)), 0);
    saves_before(m);
    uint32_t members[SAVES_SLOTS];
    for (uint32_t r = 0; r < m->job->n_roles; r++)
        members[r] = m->job->roles[r].n;
    bool with_master = is_loss_with_master(m, ev);
    uint32_t charged = count_charges(m);
    int rc = job_feed(m->job, ev, m->now, &acts, &e);
    m->n_feeds++;
    assert_true(!with_master || count_charges(m) <= charged); /* full budgets may come back */
    assert_true(rc == 0 || (rc == 1 && *e.msg));
    if (rc == 0) {
        if (!has_grown(m->job, members))
            sim_check_starts_allowed(m, m->saves.attempts);
        sim_check_depends(m);
        drive_write(&m->journal, m->job, ev);
    }
    sim_check(m);
    /* After one event in 150; with TONY_CHECK_JOURNAL after each event. */
    bool look = !sim_chance(m, 150) || getenv("TONY_CHECK_JOURNAL");
    if (rc == 0 && job_must_record(m->job, ev) && look)
        check_journal(m);
    if (rc == 0 && (ev->type == EV_ALLOCATED || ev->type == EV_CONTAINER_SEEN))
        m->granted_n[ev->of_slot.slot] = m->journal.n;
    if (rc == 0)
        saves_after(m, ev);
    carry_out_or_delay(m, &acts);
    vec_done(&acts);
    if (m->finished)
        sim_check_end(m);
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
        const char *node = sim_node_of(m, c->id);
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

/* The new master lacks the last records, or none. */
static void cut_journal(struct sim *m)
{
    size_t unstored = m->journal.n - m->n_stored;
    size_t lost = sim_chance(m, 2) ? sim_chance(m, (uint32_t)unstored + 1) : 0;

    if (!lost || m->finished)
        return;
    sim_cut += (unsigned)lost;
    for (size_t i = 0; i < lost; i++)
        free(m->journal.v[--m->journal.n]);
    m->journal.v[m->journal.n] = NULL;
}

void sim_crash_master(struct sim *m)
{
    assert_int_equal(strv_push(&sim_trace, "crash"), 0);
    struct job *again = replayed(m);
    size_t before = m->journal.n;

    sim_same_job(m->job, again);
    cut_journal(m);
    if (m->journal.n < before) {
        job_free(again);
        again = replayed(m);
    }
    if (sim_chance(m, 2)) { /* the journal began again with a snapshot */
        struct job *restored = drive_restored(m->spec, again);
        sim_same_job(again, restored);
        job_free(again);
        again = restored;
    }
    job_free(m->job);
    m->job = again;
    if (m->journal.n < before)
        saves_rebuild(m);
    actions_drop(&m->delayed);
    m->n_stored = m->journal.n;
    memset(m->granted_n, 0, sizeof m->granted_n);
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

void sim_done(struct sim *m)
{
    sched_fake_ops(m->cluster)->close(m->sched);
    fake_cluster_free(m->cluster);
    job_free(m->job);
    drive_spec_free(m->spec);
    strv_done(&m->journal);
    actions_drop(&m->delayed);
    vec_done(&m->delayed);
    vec_done(&m->executors);
    saves_done(&m->saves);
}
