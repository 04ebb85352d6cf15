/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether another attempt follows the end of an attempt or a container. Three questions, in
 * this order:
 *
 * May tasks restart?   If the task causes the end itself (it exits, needs too much memory, takes
 *                      too long), the policy and the limit of its role decide. If something else
 *                      ends it (preemption, a lost node or executor, a failed disk, a container
 *                      that does not start), a small budget for each task and reason decides.
 * Which tasks?         The task alone, its role, or the gang. While a gang is still forming, a task
 *                      of it restarts alone.
 * When?                The first restart comes at once, or after the user's delay. The pause before
 *                      each further restart in a row is twice as long, up to a limit.
 *
 * If the scheduler announces that it will take a container, this file decides as it would after the
 * loss of the container. The same tasks are halted, but now: they get time to save a checkpoint.
 *
 * mend.c then brings the restarting slots to their next attempt. All decisions here use only state
 * that a replay of the journal restores. So they do not use which executors are connected, or
 * silent.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "job/job_int.h"
#include "runtime/runtime.h"

/* ---- making and freeing the state ---- */

enum { TALLY_FIRST = 4 }; /* elements of tally.times at first; then twice as many each time */

int tally_reserve(struct tally *t, const struct role_spec *r, uint32_t n)
{
    uint32_t cap = MAX(t->n_times, (uint32_t)TALLY_FIRST);

    if (!r->restart_window_ms || r->max_restarts <= 0)
        return 0;
    n = MIN(n, (uint32_t)r->max_restarts);
    if (n <= t->n_times)
        return 0;
    while (cap < n)
        cap *= 2;
    cap = MIN(cap, (uint32_t)r->max_restarts);
    int64_t *times = realloc(t->times, cap * sizeof *times);
    if (!times)
        return -ENOMEM;
    memset(times + t->n_times, 0, (cap - t->n_times) * sizeof *times);
    t->times = times;
    t->n_times = cap;
    return 0;
}

int restart_reserve(struct job *j, uint32_t slot)
{
    const struct role_spec *r = job_slot_role(j, slot);
    struct tally *of_task = &j->slots[slot].tally, *of_role = &j->roles[j->slots[slot].role].tally;
    int rc = tally_reserve(of_task, r, of_task->n + 1);

    return rc == 0 ? tally_reserve(of_role, r, of_role->n + 1) : rc;
}

void restart_done(struct job *j)
{
    for (uint32_t r = 0; j->roles && r < j->n_roles; r++)
        free(j->roles[r].tally.times); /* slot_done() frees those of the slots */
    vec_done(&j->restarts.todo);
    deadlines_done(&j->restarts.pauses);
}

/* ---- may tasks restart? ---- */

/* The reason to which a restart is charged. END_EXITED: the task caused its end itself, so the
 * limit of its role is charged. END_NONE: tony stopped it, so it does not restart. Any other
 * reason: the task's budget for that reason is charged. */
static enum end_reason reason_to_charge(const struct slot *s, enum slot_input final_input,
                                        const struct slot_end *end)
{
    switch (end->reason) {
    case END_EXITED:
        if (s->state == SLOT_RUNNING)
            return END_EXITED;
        return s->state == SLOT_PLACED ? END_LAUNCH_FAILED
                                       : END_NODE_LOST; /* the executor exited */
    case END_OUT_OF_MEMORY:
    case END_TIMED_OUT:
        return END_EXITED;
    case END_LAUNCH_FAILED:
        /* The executor could not start the command. In the pool, which is one machine, the next
         * attempt would fail in the same way; on another node of a cluster it may start. */
        return final_input == IN_END && s->node < 0 ? END_EXITED : END_LAUNCH_FAILED;
    case END_PREEMPTED:
    case END_DISK_FAILED:
        return end->reason;
    case END_KILLED_BY_MASTER:
        return END_NONE;
    case END_NONE:
    case END_NODE_LOST:
    case END_UNKNOWN: /* its executor died */
    case END_COUNT:
        break;
    }
    return END_NODE_LOST;
}

static bool has_code(const struct code_list *l, int code)
{
    for (size_t i = 0; i < l->n; i++) {
        if (code >= l->v[i].from && code <= l->v[i].to)
            return true;
    }
    return false;
}

/* Does the role's restart policy allow a restart after this end, which the task caused itself? */
static bool policy_allows(const struct role_spec *r, const struct slot_end *end, bool failed)
{
    enum restart_policy p = r->restart;

    if (p == RESTART_UNSET && r->retry_on.n)
        p = RESTART_ON_FAILURE;
    if (!failed)
        return p == RESTART_ALWAYS;
    if (p != RESTART_ON_FAILURE && p != RESTART_ALWAYS)
        return false;
    int code = end->signal ? 128 + end->signal : end->exit_code;
    if (end->reason == END_EXITED && has_code(&r->no_retry_on, code))
        return false;
    return end->reason != END_EXITED || !r->retry_on.n || has_code(&r->retry_on, code);
}

/* Does the user's limit (max-restarts) allow another restart? */
static bool is_within_limit(const struct job *j, const struct role_spec *r, const struct tally *t)
{
    if (r->max_restarts < 0 || t->n < r->max_restarts)
        return true;
    if (!r->restart_window_ms || !r->max_restarts)
        return false;
    uint32_t at = t->n % (uint32_t)r->max_restarts;
    int64_t oldest_ms = at < t->n_times ? t->times[at] : 0; /* a snapshot omits zeros at the end */
    return j->now_ms - oldest_ms >= (int64_t)r->restart_window_ms;
}

/* ---- which tasks? ---- */

static bool has_ps(const struct job *j)
{
    for (uint32_t r = 0; r < j->n_roles; r++) {
        if (j->roles[r].n && str_eq(job_role_name(j, r), "ps"))
            return true;
    }
    return false;
}

/* Does the slot belong to a gang, or a forming role, that has not started yet? Its peers then still
 * wait for it. */
static bool is_forming(const struct job *j, const struct slot *s)
{
    return !s->attempt || s->generation != j->generation || j->roles[s->role].forming;
}

static enum restart_scope scope_of(const struct job *j, uint32_t slot)
{
    const struct slot *s = &j->slots[slot];
    const struct role_spec *r = job_slot_role(j, slot);

    if (job_is_sidecar(j, s->role) || is_forming(j, s))
        return SCOPE_TASK;
    if (r->restart_scope)
        return r->restart_scope;
    return runtime_lives_with_new(j->spec->framework, r->name, job_is_chief(j, slot), j->spec->gang,
                                  has_ps(j))
               ? SCOPE_TASK
               : SCOPE_JOB;
}

/* Have all tasks of the role ended, and do roles of a later stage depend on that? Such a role does
 * not restart with the gang. */
static bool is_stage_done(const struct job *j, uint32_t role)
{
    if (j->roles[role].n_state[SLOT_ENDED] < j->roles[role].n)
        return false;
    for (uint32_t r = 0; r < j->n_roles; r++) {
        const struct role_spec *spec = job_role_spec(j, r);
        for (size_t i = 0; i < spec->n_waits_for; i++) {
            if (spec->waits_for[i] == role)
                return true;
        }
    }
    return false;
}

/* Do the tasks of `role` restart if a task of failed_role restarts with this scope, which is
 * SCOPE_ROLE or SCOPE_JOB? */
static bool restarts_with(const struct job *j, uint32_t role, uint32_t failed_role,
                          enum restart_scope scope)
{
    if (scope == SCOPE_ROLE)
        return role == failed_role;
    return role == failed_role || (!job_is_sidecar(j, role) && !is_stage_done(j, role));
}

/* ---- when? ---- */

/* The job time at which the pause before a restart ends; 0 = there is no pause. row: the number of
 * restarts in a row, this one included. The jitter depends on the slot and on the number of
 * restarts so far, so that the pauses of many tasks do not end at the same time. */
static int64_t pause_until(const struct job *j, uint32_t slot, uint64_t delay_ms, uint32_t row)
{
    uint64_t most = MAX(delay_ms, (uint64_t)RESTART_PAUSE_MAX_MS), pause = delay_ms;

    if (row > 1)
        pause = MIN(MAX(2 * delay_ms, (uint64_t)RESTART_BACKOFF_MS) << MIN(row - 2, 16u), most);
    if (!pause)
        return 0;
    uint32_t spread = (uint32_t)MIN(pause / 4, (uint64_t)UINT32_MAX);
    return j->now_ms + (int64_t)pause + jitter_ms(j, 'r', slot * 31 + j->restarts.n, spread);
}

/* ---- the decision ---- */

/* Note the slot's node if the task failed there within RESTART_QUICK_MS. true: since its last
 * longer run it has done so on RESTART_QUICK_NODES nodes, so the task is to blame and not the
 * nodes. */
static bool failed_quickly_on_many_nodes(struct slot *s, int64_t ran_ms)
{
    uint32_t i = 0;

    if (ran_ms >= RESTART_QUICK_MS) {
        for (i = 0; i < RESTART_QUICK_NODES; i++)
            s->quick[i] = -1;
        return false;
    }
    while (i < RESTART_QUICK_NODES && s->quick[i] >= 0 && s->quick[i] != s->node)
        i++;
    if (i < RESTART_QUICK_NODES)
        s->quick[i] = s->node;
    return s->quick[RESTART_QUICK_NODES - 1] >= 0;
}

/* In single-node mode, a restart of the only task is a retry of the whole job. The task restarts in
 * the same container: on a cluster that is the master's, and there is no other. false: no retry is
 * left. */
static bool retry_single_node(const struct job *j, uint32_t slot, struct restart_plan *out)
{
    if (j->restarts.retries >= j->spec->am_retry_count)
        return false;
    out->scope = SCOPE_JOB;
    out->whole = true;
    out->due_ms = pause_until(j, slot, 0, j->restarts.retries + 1);
    return true;
}

/* Since the attempt started, has a checkpoint with a higher step than any before become whole? Then
 * the task gets its full budgets back, and this failure counts as the first in a row. */
static bool made_progress(const struct job *j, const struct slot *s)
{
    return s->state == SLOT_RUNNING && j->checkpoints.has && j->checkpoints.ms > s->started_ms;
}

/* What the rules say about the end of the slot's attempt. Nothing is charged yet. */
static void apply_rules(struct job *j, uint32_t slot, enum slot_input final_input,
                        const struct slot_end *end, struct restart_plan *out)
{
    struct slot *s = &j->slots[slot];
    const struct role_spec *r = job_slot_role(j, slot);
    enum slot_result result = verdict_result(s, end);
    enum end_reason why = reason_to_charge(s, final_input, end);
    int64_t ran_ms = s->state == SLOT_RUNNING ? j->now_ms - s->started_ms : 0;

    *out = (struct restart_plan){ 0 };
    bool single = j->spec->single_node;
    bool in_master = single && j->gang.gives_back; /* its container is the master's own */
    if (j->decided || (in_master && final_input != IN_END) || result == RES_FINISHED ||
        why == END_NONE)
        return;
    bool failed = result != RES_SUCCEEDED, by_itself = why == END_EXITED;
    if (failed && why != END_PREEMPTED)
        nodes_failed(j, s->node);
    if (failed && why != END_PREEMPTED && s->node >= 0 && failed_quickly_on_many_nodes(s, ran_ms) &&
        !by_itself)
        return;
    bool progress = made_progress(j, s);
    if (ran_ms >= RESTART_FORGIVE_MS || progress)
        memset(s->spent, 0, sizeof s->spent);
    if (single && by_itself && failed && final_input == IN_END && retry_single_node(j, slot, out))
        return;
    if (by_itself ? !policy_allows(r, end, failed) || job_is_spare(j, slot)
                  : r->restart == RESTART_NEVER)
        return;
    enum restart_scope scope = scope_of(j, slot);
    struct tally *t = scope == SCOPE_TASK ? &s->tally : &j->roles[s->role].tally;
    if (by_itself ? !is_within_limit(j, r, t) : s->spent[why] >= j->spec->restarts[why])
        return;
    out->scope = scope;
    out->charge = why;
    out->in_row = ran_ms < RESTART_STEADY_MS && !progress;
    /* After a full disk: another node may have room. On this one, wait at least RESTART_DISK_MS. */
    bool disk = why == END_DISK_FAILED;
    out->elsewhere = why == END_LAUNCH_FAILED || why == END_PREEMPTED || (disk && s->node >= 0) ||
                     (failed && nodes_is_avoided(j, s->node));
    out->due_ms = pause_until(
        j, slot, disk ? MAX(r->restart_delay_ms, (uint64_t)RESTART_DISK_MS) : r->restart_delay_ms,
        out->in_row ? t->row + 1 : 1);
}

/* Charge the restart that was decided, by the rules or by the journal. */
static void charge(struct job *j, uint32_t slot, const struct restart_plan *plan)
{
    struct slot *s = &j->slots[slot];
    const struct role_spec *r = job_slot_role(j, slot);
    struct tally *t = plan->scope == SCOPE_TASK ? &s->tally : &j->roles[s->role].tally;

    if (!plan->scope || !plan->charge)
        return;
    if (plan->charge != END_EXITED) {
        s->spent[plan->charge]++;
    } else {
        (void)tally_reserve(t, r, t->n + 1); /* restart_reserve() has done that for most events */
        uint32_t at = r->max_restarts > 0 ? t->n % (uint32_t)r->max_restarts : 0;
        if (at < t->n_times)
            t->times[at] = j->now_ms;
        t->n++;
    }
    t->row = plan->in_row ? t->row + 1 : 1;
}

/* Decide by the rules, and note the decision for the journal. A replay takes the recorded decision
 * instead. */
static void decide(struct job *j, uint32_t slot, enum slot_input final_input,
                   const struct slot_end *end, struct restart_plan *out)
{
    apply_rules(j, slot, final_input, end, out);
    decisions_restart(j, slot, verdict_is_failure(verdict_result(&j->slots[slot], end)), out);
    charge(j, slot, out);
}

/* If the task of the first failure restarts, that failure does not count any more. Then look for
 * the first one among the failures that still count. */
static void update_first_failure(struct job *j)
{
    if (j->failures.first.slot < 0 || verdict_is_failure(j->slots[j->failures.first.slot].result))
        return;
    j->failures.first = (struct failure){ .slot = JOB_NO_SLOT };
    FOR_TASKS(j, i)
    {
        const struct slot *s = &j->slots[i];
        if (verdict_is_failure(s->result) && !job_is_sidecar(j, s->role))
            verdict_candidate(j, i, s->ended_us);
    }
}

/* If the slot's attempt runs, it will be halted: it may save a checkpoint until plan->taken_ms. */
static void allow_saving(struct slot *s, const struct restart_plan *plan)
{
    if (s->state == SLOT_RUNNING)
        s->taken_ms = plan->taken_ms;
}

/* Restart the other slots of the scope. `slot`, whose end is the reason, has been moved already. */
static void restart_others(struct job *j, uint32_t slot, const struct restart_plan *plan)
{
    uint32_t failed_role = j->slots[slot].role;

    if (plan->scope == SCOPE_ROLE)
        j->roles[failed_role].forming = true;
    FOR_TASKS(j, i)
    {
        if (!restarts_with(j, j->slots[i].role, failed_role, plan->scope))
            continue;
        if (i != slot) {
            allow_saving(&j->slots[i], plan);
            (void)slot_step(j, i, IN_AGAIN, NULL, NULL); /* every state accepts it */
        }
        j->slots[i].due_ms = plan->due_ms;
    }
    policy_recount(j);
    update_first_failure(j);
}

/* The input for the same end if another attempt follows it. */
static enum slot_input restart_input(enum slot_input final_input)
{
    return final_input == IN_END ? IN_RETRY : final_input == IN_GONE ? IN_LOST : IN_DROP;
}

/* The counters of slots that start with the gang depend on the generation (slot_restarts_alone()).
 * So count all slots again. */
static void begin_generation(struct job *j)
{
    for (uint32_t i = 0; i < j->n_slots; i++)
        slot_uncount(j, &j->slots[i]);
    j->generation++;
    costs_gang_stops(j, j->resize.state == RESIZE_FORMING);
    for (uint32_t i = 0; i < j->n_slots; i++)
        slot_count(j, &j->slots[i]);
    mend_look_at_all(j);
}

/* Carry out the plan after the end of `slot`, which gets the input `in`. */
static int begin_restart(struct job *j, uint32_t slot, enum slot_input in,
                         const struct restart_plan *plan, const struct slot_end *end, struct err *e)
{
    static const enum restart_kind kinds[] = {
        [SCOPE_TASK] = RESTARTED_TASK, [SCOPE_ROLE] = RESTARTED_ROLE, [SCOPE_JOB] = RESTARTED_GANG
    };
    struct slot *s = &j->slots[slot];

    if (plan->scope == SCOPE_JOB) {
        begin_generation(j);
        for (uint32_t r = 0; r < j->n_roles; r++)
            j->roles[r].forming = false; /* all roles form together now */
    }
    if (plan->scope == SCOPE_JOB || j->gang.gives_back)
        (void)job_act(j, ACT_SYNC);
    slot_keep_end(j, s, end);
    enum restart_kind what = plan->whole ? RESTARTED_JOB : kinds[plan->scope];
    failures_note_restart(j, slot, what);
    if (verdict_result(s, end) != RES_SUCCEEDED)
        failures_keep(j, slot, what);
    allow_saving(s, plan);
    int rc = slot_step(j, slot, in, NULL, e);
    if (rc)
        return rc;
    s->due_ms = plan->due_ms;
    j->restarts.n++;
    j->restarts.retries += plan->whole;
    j->restarts.mending = true;
    if (plan->scope != SCOPE_TASK)
        restart_others(j, slot, plan);
    return 0;
}

/* A slot that was being halted has ended. Its task may be the first cause of the restart itself:
 * its peers often report the lost connection before it reports its own end. If the task of the last
 * failure lost a peer, and this end explains it, add this end to the list of failures and show it
 * as the reason of the restart. */
static void keep_end_of_halted(struct job *j, uint32_t slot, const struct slot_end *end)
{
    struct slot *s = &j->slots[slot];
    struct past_failure *last =
        j->failures.n_past ? &j->failures.past[(j->failures.n_past - 1) % JOB_FAILURES_KEPT] : NULL;

    if (s->state != SLOT_HALTING || !last || !last->cause || !last->cause->victim)
        return;
    slot_keep_end(j, s, end);
    bool failed = verdict_is_failure(verdict_result(s, end));
    if (!failed && (!s->cause || s->cause->victim))
        return;
    if (j->restarts.last.cause && j->restarts.last.cause->victim && s->cause && !s->cause->victim) {
        failures_note_restart(j, slot, last->done);
        j->changed = true;
    }
    failures_keep(j, slot, last->done);
}

/* Did the executor die between two attempts? The report about its container may then describe how
 * the last attempt ended, or say that tony stopped it. The core has counted that end before, so the
 * caller must not use this report. */
static bool executor_died_between(const struct slot *s, enum slot_input final_input,
                                  const struct slot_end *end)
{
    return s->state == SLOT_RENEWING && final_input == IN_GONE && end->reason != END_PREEMPTED &&
           end->reason != END_DISK_FAILED && end->reason != END_NODE_LOST;
}

/*
 * May an attempt be running in the slot's container, as far as this master knows? If an earlier
 * master died, the journal may have lost its last records. So a first attempt may be running
 * although the journal does not have its start. Later attempts start only after their start is
 * stored (ACT_SYNC).
 */
static bool may_run(const struct job *j, uint32_t slot)
{
    const struct slot *s = &j->slots[slot];
    bool started = s->attempt > s->elsewhere;
    bool start_unwritten =
        j->gang.gives_back && j->epoch > 1 && !s->attempt && !job_is_spare(j, slot);

    switch (s->state) {
    case SLOT_RUNNING:
    case SLOT_HALTING:
    case SLOT_REPLACING:
    case SLOT_LEAVING:
    case SLOT_STOPPING:
        return started || start_unwritten;
    case SLOT_PLACED:
    case SLOT_REGISTERED: /* its executor has reported the end of an earlier attempt */
    case SLOT_RENEWING:   /* it has, too; or the gang restarted when the slot was registered */
        return start_unwritten;
    case SLOT_DRAINING:
    case SLOT_NONE:
    case SLOT_ABSENT:
    case SLOT_HELD:
    case SLOT_ASKED:
    case SLOT_ENDED:
    case SLOT_STATE_COUNT:
        break;
    }
    return false;
}

/*
 * May the slot's attempt be alive, although the scheduler reports its container as lost? If a
 * cluster loses the contact to a node, it reports the node's containers as ended. They may continue
 * to run there, and may even reach this master. In the pool (node -1) the keeper has killed the
 * processes of a lost container.
 */
static bool may_live_on(const struct job *j, uint32_t slot, enum slot_input final_input,
                        const struct slot_end *end)
{
    return final_input == IN_GONE && end->reason == END_NODE_LOST && j->slots[slot].node >= 0 &&
           may_run(j, slot);
}

/* Tell the slot's executor, if it can be reached, to end its command and to exit. The scheduler
 * does not end a container that it has given up. */
static void finish_executor(struct job *j, uint32_t slot)
{
    job_act(j, ACT_FINISH_EXECUTOR)->finish_executor =
        (struct act_finish_executor){ slot, j->slots[slot].container, j->spec->kill_grace_ms };
}

/* An attempt may still be alive in the slot's container. The slot gets no other container, and does
 * not leave the job, until the executor reports the end or the lease is over (limits.c). */
static int wait_for_lease(struct job *j, uint32_t slot, struct err *e)
{
    struct slot *s = &j->slots[slot];
    bool waits = s->state == SLOT_REPLACING || s->state == SLOT_LEAVING;

    s->given_up = true;
    int rc = waits ? 0 : slot_step(j, slot, IN_DROP, NULL, e);
    finish_executor(j, slot);
    limits_slot(j, slot);
    return rc;
}

/* The end of a container that a resize has requested, or of its executor. The resize fails, and the
 * slot leaves. If its first start is missing in the journal, its attempt may live on: then the slot
 * leaves only when the lease is over. */
static int joiner_ended(struct job *j, uint32_t slot, enum slot_input final_input,
                        const struct slot_end *end, struct err *e)
{
    struct slot *s = &j->slots[slot];

    if (slot_table[s->state][final_input].to != SLOT_NONE &&
        may_live_on(j, slot, final_input, end)) {
        finish_executor(j, slot);
        s->given_up = true;
    }
    return slot_step(j, slot, final_input, end, e);
}

int restart_ended(struct job *j, uint32_t slot, enum slot_input final_input,
                  const struct slot_end *end, struct err *e)
{
    struct slot *s = &j->slots[slot];
    struct restart_plan plan = { 0 };
    struct slot_end lost = { .reason = END_NODE_LOST, .at_us = end->at_us, .note = NOTE_BETWEEN };

    if (!job_is_member(j, s) && s->state != SLOT_LEAVING && s->state != SLOT_REPLACING)
        return joiner_ended(j, slot, final_input, end, e);
    if (executor_died_between(s, final_input, end))
        end = &lost;
    bool lives_on = may_live_on(j, slot, final_input, end);
    bool waits = s->state == SLOT_REPLACING || s->state == SLOT_LEAVING;
    if (waits && final_input == IN_END && s->given_up)
        return slot_step(j, slot, IN_LOST, NULL, e);
    if (s->state == SLOT_HALTING || (waits && final_input != IN_END)) {
        /* its end was demanded already */
        keep_end_of_halted(j, slot, end);
        if (lives_on)
            return wait_for_lease(j, slot, e);
        bool leaves = s->leaves && final_input == IN_END;
        return slot_step(j, slot, leaves ? IN_DROP : restart_input(final_input), end, e);
    }
    bool may_restart =
        (s->state >= SLOT_PLACED && s->state <= SLOT_RUNNING) || s->state == SLOT_RENEWING;
    if (may_restart && slot_table[s->state][final_input].to != SLOT_NONE)
        decide(j, slot, final_input, end, &plan);
    if (lives_on)
        finish_executor(j, slot);
    if (final_input == IN_GONE) /* the slot's next step, which follows, uses it */
        s->given_up = lives_on;
    if (!plan.scope)
        return slot_step(j, slot, final_input, end, e);
    bool drop = lives_on || (final_input == IN_END && plan.elsewhere);
    return begin_restart(j, slot, drop ? IN_DROP : restart_input(final_input), &plan, end, e);
}

/* The container will be taken at taken_ms, and no other attempt may follow. Stop the attempt before
 * that, with time to save a checkpoint; its end counts as a preemption. */
static void stop_before_taken(struct job *j, uint32_t slot, int64_t taken_ms)
{
    const struct slot *s = &j->slots[slot];
    struct act_stop_attempt *a = &job_act(j, ACT_STOP_ATTEMPT)->stop_attempt;

    *a = (struct act_stop_attempt){
        .slot = slot, .generation = s->generation, .attempt = s->attempt, .reason = END_PREEMPTED
    };
    slot_allow(j, taken_ms, a);
}

int restart_preempting(struct job *j, uint32_t slot, int64_t within_ms, struct err *e)
{
    struct slot *s = &j->slots[slot];
    struct restart_plan plan = { 0 };
    struct slot_end end = { .reason = END_PREEMPTED,
                            .at_us = j->now_ms * 1000,
                            .note = NOTE_PREEMPTING };
    int64_t taken_ms = j->now_ms + MIN(MAX(within_ms, (int64_t)1), (int64_t)RESTART_NOTICE_MAX_MS);

    if (s->state == SLOT_HALTING) { /* the attempt is being halted already */
        s->leaves = true;
        return 0;
    }
    bool idle = s->state == SLOT_PLACED || s->state == SLOT_REGISTERED || s->state == SLOT_RENEWING;
    if (s->state != SLOT_RUNNING && !(idle && job_is_task(j, slot)))
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: it has nothing to save",
                       SLOT_ARGS(j, slot), slot_state_name(s->state)),
               1;
    decide(j, slot, IN_GONE, &end, &plan);
    if (idle) /* no attempt may start in a container that will be taken */
        return plan.scope ? begin_restart(j, slot, IN_DROP, &plan, &end, e) : 0;
    if (!plan.scope) {
        stop_before_taken(j, slot, taken_ms);
        return 0;
    }
    plan.taken_ms = taken_ms;
    s->leaves = true;
    return begin_restart(j, slot, IN_AGAIN, &plan, &end, e);
}

void restart_gang(struct job *j, int64_t save_until_ms)
{
    struct restart_plan plan = { .scope = SCOPE_JOB, .taken_ms = save_until_ms };

    begin_generation(j);
    (void)job_act(j, ACT_SYNC);
    j->restarts.mending = true;
    FOR_TASKS(j, i)
    {
        if (job_is_sidecar(j, j->slots[i].role) || is_stage_done(j, j->slots[i].role))
            continue;
        allow_saving(&j->slots[i], &plan);
        j->slots[i].due_ms = 0;
        if (j->slots[i].attempt)                         /* a slot that has just joined is ready */
            (void)slot_step(j, i, IN_AGAIN, NULL, NULL); /* every state accepts it */
    }
    policy_recount(j);
    update_first_failure(j);
}

bool restart_wants_executor(const struct job *j, uint32_t slot)
{
    enum slot_state s = j->slots[slot].state;

    return s == SLOT_PLACED || s == SLOT_REGISTERED || s == SLOT_RUNNING || s == SLOT_HALTING ||
           s == SLOT_RENEWING;
}

void restart_unseen(struct job *j, uint32_t slot, const struct slot_end *lost)
{
    struct slot *s = &j->slots[slot];

    if (s->state == SLOT_RUNNING || !j->spec->restarts[END_NODE_LOST] || j->decided ||
        slot_table[s->state][IN_LOST].to == SLOT_NONE) {
        /* every state in which a slot has a container accepts it */
        (void)restart_ended(j, slot, IN_GONE, lost, NULL);
        return;
    }
    j->restarts.mending = true;
    if (may_live_on(j, slot, IN_GONE, lost))
        (void)wait_for_lease(j, slot, NULL);
    else
        (void)slot_step(j, slot, IN_LOST, NULL, NULL);
}

/* ---- the whole job ---- */

/* The job restarts from its first stage. If the slot belongs to a later stage, it gives back its
 * container or withdraws its request: the first stage may need the room. */
static void restart_slot_from_start(struct job *j, uint32_t slot)
{
    struct slot *s = &j->slots[slot];
    bool has_container = s->state >= SLOT_PLACED && s->state <= SLOT_RENEWING;
    struct tally *t = &s->tally;

    enum slot_input if_later = has_container            ? IN_DROP
                               : s->state == SLOT_ASKED ? IN_YIELD
                                                        : IN_AGAIN;
    (void)slot_step(j, slot, job_is_wanted(j, s) ? IN_AGAIN : if_later, NULL, NULL);
    t->n = t->row = 0;
    memset(s->spent, 0, sizeof s->spent);
}

bool restart_whole(struct job *j)
{
    bool allowed = j->decided == JOB_FAILED && j->state != JOB_STOPPING && !j->restarts.hopeless &&
                   !j->spec->single_node && j->restarts.retries < j->spec->am_retry_count;
    int64_t due_ms = allowed ? pause_until(j, 0, 0, j->restarts.retries + 1) : 0;

    if (!decisions_whole_restart(j, allowed, &due_ms))
        return false;
    if (j->by_task && j->failures.first.slot >= 0) {
        failures_note_restart(j, (uint32_t)j->failures.first.slot, RESTARTED_JOB);
        failures_keep(j, (uint32_t)j->failures.first.slot, RESTARTED_JOB);
    }
    j->restarts.retries++;
    j->restarts.n++;
    begin_generation(j);
    (void)job_act(j, ACT_SYNC);
    j->decided = JOB_NONE;
    j->by_task = j->own_words = false;
    j->message[0] = 0;
    j->failures.first = j->failures.fatal = (struct failure){ .slot = JOB_NO_SLOT };
    j->gang.pause_due_ms = INT64_MAX;
    policy_stages(j);
    for (uint32_t r = 0; r < j->n_roles; r++) {
        j->roles[r].forming = false;
        j->roles[r].tally.n = j->roles[r].tally.row = 0;
    }
    FOR_TASKS(j, i)
    {
        restart_slot_from_start(j, i);
        j->slots[i].due_ms = due_ms;
    }
    policy_recount(j);
    j->gang.asked_ms = j->n_state[SLOT_ASKED] ? j->now_ms : -1;
    j->restarts.mending = j->changed = true;
    limits_job(j);
    return true;
}
