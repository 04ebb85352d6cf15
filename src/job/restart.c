/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out the decision of restart_rules.c after the end of an attempt or a container. If tasks
 * restart, their slots get the inputs for that here, and mend.c brings them to their next attempt.
 */
#include <errno.h>
#include <string.h>

#include "job/job_int.h"
#include "job/restart_rules.h"

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
        if (!restart_includes_role(j, j->slots[i].role, failed_role, plan->scope))
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

/* May the journal lack the start of the slot's first attempt? */
static bool may_lack_start(const struct job *j, const struct slot *s)
{
    bool spare = s->role >= j->n_roles;

    return j->gang.gives_back && j->epoch > 1 && !s->attempt && !spare;
}

bool restart_may_have_started(const struct job *j, const struct slot *s)
{
    return s->attempt > s->elsewhere || may_lack_start(j, s);
}

/*
 * The first generation ends, and the journal may lack the starts of some slots: attempts of this
 * generation may run in their containers, and their executors may not have reconnected yet. These
 * slots give up their containers, so that the next generation waits until nothing runs in them.
 *
 * The start of a later generation, or of a slot that a resize adds by forming the gang anew, cannot
 * be missing: it is stored before it is carried out.
 */
static void give_up_unknown_starts(struct job *j)
{
    bool by_resize = j->resize.state == RESIZE_FORMING;

    for (uint32_t i = 0; i < j->n_slots && j->generation == 1; i++) {
        const struct slot *s = &j->slots[i];
        bool waits = s->state == SLOT_PLACED || s->state == SLOT_REGISTERED;
        bool is_new = by_resize && s->index >= j->resize.from[s->role];
        if (waits && may_lack_start(j, s) && !is_new && !resize_starts_in_new_gang(j, s))
            (void)slot_step(j, i, job_is_member(j, s) ? IN_DROP : IN_LEAVE, NULL, NULL);
    }
}

/* The counters of slots that start with the gang depend on the generation (slot_restarts_alone()).
 * So count all slots again. */
static void begin_generation(struct job *j)
{
    give_up_unknown_starts(j);
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

/* May an attempt be running in the slot's container, as far as this master knows? */
static bool may_run(const struct job *j, uint32_t slot)
{
    const struct slot *s = &j->slots[slot];

    switch (s->state) {
    case SLOT_RUNNING:
    case SLOT_HALTING:
    case SLOT_REPLACING:
    case SLOT_LEAVING:
    case SLOT_STOPPING:
        return restart_may_have_started(j, s);
    case SLOT_PLACED:
    case SLOT_REGISTERED: /* its executor has reported the end of an earlier attempt */
    case SLOT_RENEWING:   /* it has, too; or the gang restarted when the slot was registered */
        return may_lack_start(j, s);
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

/* The scheduler does not end a container that it has given up. */
void restart_end_executor(struct job *j, uint32_t slot)
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
    restart_end_executor(j, slot);
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
        restart_end_executor(j, slot);
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

    if (s->state == SLOT_ENDED && s->given_up && final_input == IN_END) {
        s->given_up =
            false; /* its result stays; but if it restarts, it need not wait for the lease */
        return 0;
    }
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
        restart_decide(j, slot, final_input, end, &plan);
    if (lives_on)
        restart_end_executor(j, slot);
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
    restart_decide(j, slot, IN_GONE, &end, &plan);
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
        if (job_is_sidecar(j, j->slots[i].role) || restart_is_stage_done(j, j->slots[i].role))
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
    int64_t due_ms = allowed ? restart_pause_until(j, 0, 0, j->restarts.retries + 1) : 0;

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
