/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy of a job: which roles request containers now, when a gang starts, what the end of a
 * task means for the job, and how the job ends. The rules are TonY's.
 *
 * Cost: decisions use counters. All slots of a role are visited only when the role requests
 * containers, gives them back or starts; all slots of the job only when it ends.
 */
#include <stdarg.h>
#include <stdio.h>

#include "job/job_int.h"

/* ---- before the first event ---- */

/* The chief is every task of the role "chief". Without such a role it is worker:0. In single-node
 * mode it is the driver. */
static void find_chief(struct job *j)
{
    j->chief = j->chief_slot = JOB_NO_SLOT;
    if (j->spec->single_node) {
        j->chief = 0;
        return;
    }
    for (uint32_t r = 0; r < j->n_roles; r++) {
        if (j->roles[r].n && str_eq(job_role_name(j, r), "chief"))
            j->chief = r;
        else if (j->roles[r].n && str_eq(job_role_name(j, r), "worker"))
            j->chief_slot = j->roles[r].slots[0];
    }
    if (j->chief >= 0)
        j->chief_slot = JOB_NO_SLOT;
}

/* The stage of the role has come. No role is pushed twice, unless the journal is damaged: then the
 * stack must not overflow. */
static void push_ready(struct job *j, uint32_t role)
{
    if (j->n_ready < j->n_roles)
        j->ready[j->n_ready++] = role;
}

/* The roles are pushed from the last to the first, so that they leave the stack in the order of the
 * job file. */
void policy_stages(struct job *j)
{
    j->n_ready = 0;
    for (uint32_t r = j->n_roles; r-- > 0;) {
        j->roles[r].n_unmet = (uint32_t)job_role_spec(j, r)->n_waits_for;
        if (!j->roles[r].n_unmet)
            push_ready(j, r);
    }
}

void policy_recount(struct job *j)
{
    bool any_tracked = false;

    j->n_awaited = j->n_waited = 0;
    for (uint32_t r = 0; r < j->n_roles; r++) {
        j->roles[r].stopped = false;
        j->roles[r].kind = j->spec->single_node ? ROLE_TRACKED : job_role_spec(j, r)->kind;
        any_tracked |= j->roles[r].n && j->roles[r].kind == ROLE_TRACKED;
    }
    for (uint32_t r = 0; r < j->n_roles; r++) {
        struct role *role = &j->roles[r];
        /* if no role is tracked, the job waits for all roles */
        role->awaited = !any_tracked || role->kind == ROLE_TRACKED;
        j->n_awaited += role->awaited ? role->n : 0;
        j->n_waited += role->awaited ? role->n - role->n_settled : 0;
    }
    for (uint32_t g = 0; g < j->spec->n_group_timeouts; g++)
        j->groups[g] = (struct group){ 0 };
    j->check_groups = j->check_depends = true;
}

void policy_init(struct job *j)
{
    policy_recount(j);
    find_chief(j);
    policy_stages(j);
}

/* ---- requests and starts ---- */

void policy_role_over(struct job *j, uint32_t role)
{
    for (uint32_t r = j->n_roles; r-- > 0;) {
        const struct role_spec *spec = job_role_spec(j, r);
        for (size_t i = 0; i < spec->n_waits_for; i++) {
            if (spec->waits_for[i] == role && --j->roles[r].n_unmet == 0)
                push_ready(j, r);
        }
    }
}

/* Request containers for the roles whose stage has come, unless the gang pauses. */
static void request_ready_roles(struct job *j)
{
    if (j->gang.pause_due_ms != INT64_MAX)
        return;
    while (j->n_ready) {
        uint32_t r = j->ready[--j->n_ready];
        const struct role *role = &j->roles[r];
        FOR_MEMBERS(j, r, i)
        (void)slot_step(j, i, IN_WANT, NULL, NULL); /* refused if the slot is not SLOT_HELD */
        if (!role->n)
            policy_role_over(j, r);
    }
}

void policy_registered(struct job *j, uint32_t slot)
{
    if (!j->spec->gang && !j->decided && !j->restarts.mending && job_is_task(j, slot) &&
        j->slots[slot].state == SLOT_REGISTERED && depends_open(j, j->slots[slot].role))
        (void)slot_step(j, slot, IN_START, NULL, NULL);
}

/*
 * All slots of the gang that wait for their start return to SLOT_HELD: they give back their
 * containers and withdraw their requests. When the pause is over, they request containers again.
 * The roles are pushed from the last to the first, as in policy_stages().
 */
void policy_give_back(struct job *j)
{
    j->gang.had = j->n_state[SLOT_PLACED] + j->n_state[SLOT_REGISTERED];
    j->gang.wanted = j->gang.had + j->n_state[SLOT_ASKED];
    j->gang.after_ms = j->now_ms - j->gang.asked_ms;
    for (uint32_t r = j->n_roles; r-- > 0;) {
        const struct role *role = &j->roles[r];
        if (!role->n_state[SLOT_ASKED] && !role->n_state[SLOT_PLACED] &&
            !role->n_state[SLOT_REGISTERED])
            continue;
        FOR_MEMBERS(j, r, i)
        (void)slot_step(j, i, IN_YIELD, NULL, NULL); /* refused if the slot runs or has ended */
        push_ready(j, r);
    }
    j->gang.pause_due_ms = j->now_ms + gang_pause_ms(j);
    j->gang.round++;
    limits_job(j);
}

void policy_ask_again(struct job *j)
{
    j->gang.pause_due_ms = INT64_MAX;
    mend_look_at_all(j);
    j->changed = true;
    limits_job(j); /* policy_run() then requests the containers */
}

/* Start all registered slots of roles that need not wait for other roles. Once they have started,
 * roles that waited for them may start, too. */
static void start_open_roles(struct job *j)
{
    do {
        j->gates_moved = false;
        for (uint32_t r = 0; r < j->n_roles; r++) {
            const struct role *role = &j->roles[r];
            if (!role->n_state[SLOT_REGISTERED] || !depends_open(j, r))
                continue;
            FOR_MEMBERS(j, r, i)
            {
                if (j->slots[i].state == SLOT_REGISTERED)
                    (void)slot_step(j, i, IN_START, NULL, NULL);
            }
        }
    } while (j->has_gates && j->gates_moved);
}

/* The gang is all slots that have requested a container and have not ended. Start it if all of them
 * have registered. */
static void start_complete_gang(struct job *j)
{
    if (j->n_state[SLOT_ASKED] || j->n_state[SLOT_PLACED] || !j->n_state[SLOT_REGISTERED])
        return;
    if (!addresses_allow_start(j))
        return;
    j->gang.round = 0;
    start_open_roles(j);
}

/* ---- what an end means ---- */

void policy_decide(struct job *j, enum job_state verdict, const char *fmt, ...)
{
    va_list ap;

    if (j->decided)
        return;
    j->decided = verdict;
    j->changed = true;
    va_start(ap, fmt);
    (void)vsnprintf(j->message, sizeof j->message, fmt, ap);
    va_end(ap);
}

/* Does the job fail at once because this task has failed? The task is not a sidecar. */
static bool failure_is_fatal(const struct job *j, uint32_t slot, enum slot_state from)
{
    const struct role *role = job_role_of(j, slot);
    const struct role_spec *spec = job_role_spec(j, j->slots[slot].role);

    return (from < SLOT_RUNNING && !j->slots[slot].attempt) /* it never started */ ||
           role->kind == ROLE_UNTRACKED || job_is_chief(j, slot) || spec->stop_on_failure ||
           j->spec->fail_on_worker_failure;
}

void policy_settled(struct job *j, uint32_t slot, enum slot_state from, int64_t at_us)
{
    if (!job_is_member(j, &j->slots[slot])) {
        resize_joiner_ended(j, slot);
        return;
    }
    if (job_is_sidecar(j, j->slots[slot].role))
        return;
    if (!verdict_is_failure(j->slots[slot].result)) {
        verdict_stopped_ended(j, slot, at_us);
        return;
    }
    verdict_candidate(j, slot, at_us);
    if (!j->decided && failure_is_fatal(j, slot, from)) {
        j->by_task = true;
        j->failures.fatal = (struct failure){ .slot = slot, .at_us = at_us };
        policy_decide(j, JOB_FAILED,
                      "a task failed"); /* verdict_compose() writes which one, and why */
    }
}

/* If all awaited tasks have ended, decide by their results whether the job has succeeded. */
static void decide_by_results(struct job *j)
{
    uint32_t succeeded = 0, stopped = 0, lost = 0;

    if (j->n_waited || j->decided)
        return;
    for (uint32_t r = 0; r < j->n_roles; r++)
        if (j->roles[r].awaited) {
            succeeded += j->roles[r].n_result[RES_SUCCEEDED];
            stopped += j->roles[r].stopped ? j->roles[r].n_result[RES_FINISHED] : 0;
            lost += j->roles[r].n_result[RES_LOST];
        }
    if (!j->n_awaited) { /* group limits have made all of them untracked */
        policy_decide(j, JOB_FAILED, "no task is waited for any more, and none had succeeded");
    } else if (!succeeded && stopped < j->n_awaited) {
        j->by_task = j->failures.first.slot >= 0;
        policy_decide(j, JOB_FAILED, "no task succeeded");
    } else if (lost) {
        /* TonY tolerates tasks that fail. But a lost task has not reported any end, so it is
         * unknown whether its work was done: the job fails. */
        j->by_task = j->failures.first.slot >= 0;
        policy_decide(j, JOB_FAILED, "%u of %u tasks were lost", lost, j->n_awaited);
    } else if (succeeded + stopped < j->n_awaited) {
        policy_decide(j, JOB_SUCCEEDED, "succeeded, though %u of %u tasks did not",
                      j->n_awaited - succeeded - stopped, j->n_awaited);
    } else if (stopped) {
        policy_decide(j, JOB_SUCCEEDED,
                      "%u of %u tasks succeeded, the others were stopped by the end of a role",
                      succeeded, j->n_awaited);
    } else if (j->n_awaited == 1) {
        policy_decide(j, JOB_SUCCEEDED, "the task succeeded");
    } else {
        policy_decide(j, JOB_SUCCEEDED, "all %u tasks succeeded", j->n_awaited);
    }
}

/* ---- limits on a role after a group of others is done ---- */

static bool group_is_done(const struct job *j, const struct group_timeout *g)
{
    if (j->n_state[SLOT_HELD] || j->n_state[SLOT_ASKED])
        return false; /* some tasks of the job have no container yet */
    for (size_t i = 0; i < g->n_members; i++) {
        const struct role *member = &j->roles[g->members[i]];
        if (member->n_settled < member->n)
            return false;
    }
    return true;
}

static void arm_groups(struct job *j)
{
    bool armed = false;

    j->check_groups = false;
    for (uint32_t g = 0; g < j->spec->n_group_timeouts; g++) {
        if (j->groups[g].armed || j->groups[g].over ||
            !group_is_done(j, &j->spec->group_timeouts[g]))
            continue;
        j->groups[g].armed = armed = true;
        j->groups[g].due_ms = j->now_ms + (int64_t)MIN(j->spec->group_timeouts[g].timeout_ms,
                                                       (uint64_t)INT64_MAX / 2);
    }
    if (armed)
        limits_job(j);
}

void policy_group_due(struct job *j, uint32_t group)
{
    const struct group_timeout *g = &j->spec->group_timeouts[group];
    struct role *role = &j->roles[g->role];
    char text[32];

    j->groups[group].armed = false;
    j->groups[group].over = true;
    limits_job(j);
    if (role->n_settled == role->n)
        return;
    if (!g->ignored) {
        policy_decide(j, JOB_FAILED, "role '%s' still ran %s after group '%s' had completed",
                      job_role_name(j, g->role),
                      limit_text((int64_t)g->timeout_ms, text, sizeof text), g->group);
        return;
    }
    role->kind = ROLE_UNTRACKED;
    if (role->awaited) {
        role->awaited = false;
        j->n_waited -= role->n - role->n_settled;
        j->n_awaited -= role->n;
    }
}

/* ---- the end ---- */

/* The job has its verdict: stop all slots. */
static void stop_all(struct job *j)
{
    struct slot_end end = { .reason = END_KILLED_BY_MASTER, .at_us = j->now_ms * 1000 };

    j->state = JOB_STOPPING;
    j->changed = true;
    resize_job_ends(j);
    /* If the task of the first failure lost a peer, that peer may be about to end and to report
     * why. So give all tasks JOB_SELF_END_MS to end by themselves. */
    j->wait_ms = j->by_task && j->failures.first.cause && j->failures.first.cause->victim
                     ? JOB_SELF_END_MS
                     : 0;
    limits_job(j);
    for (uint32_t i = 0; i < j->n_slots; i++) {
        if (j->slots[i].state != SLOT_ENDED)
            (void)slot_step(j, i, IN_STOP, &end, NULL); /* every state accepts it */
    }
}

void policy_stop_now(struct job *j)
{
    j->save_ms = 0;
    for (uint32_t i = 0; i < j->n_slots; i++) {
        const struct slot *s = &j->slots[i];
        if (s->state == SLOT_LEAVING)
            limits_slot(j, i);
        if (s->state != SLOT_STOPPING)
            continue;
        job_act(j, ACT_STOP_ATTEMPT)->stop_attempt =
            (struct act_stop_attempt){ .slot = i,
                                       .generation = s->generation,
                                       .attempt = s->attempt,
                                       .grace_ms = j->spec->kill_grace_ms,
                                       .reason = END_KILLED_BY_MASTER };
        limits_slot(j, i);
    }
}

void policy_abandon(struct job *j)
{
    struct slot_end end = { .reason = END_NODE_LOST,
                            .at_us = j->now_ms * 1000,
                            .note = NOTE_UNWATCHED };

    j->resyncing = false;
    for (uint32_t i = 0; i < j->n_slots; i++)
        (void)slot_step(j, i, IN_ABANDON, &end, NULL);
}

/* No command of the user is alive any more. Executors that have not exited yet are left to the
 * scheduler. */
static void finish(struct job *j)
{
    struct slot_end end = { .reason = END_KILLED_BY_MASTER, .at_us = j->now_ms * 1000 };

    for (uint32_t i = 0; i < j->n_slots; i++) {
        if (j->slots[i].state == SLOT_DRAINING)
            (void)slot_step(j, i, IN_ABANDON, NULL, NULL);
    }
    FOR_SPARES(j, i)
    (void)slot_step(j, i, IN_ABANDON, &end, NULL); /* the job does not wait for spares to end */
    j->state = j->decided;
    j->ended_ms = j->now_ms;
    policy_announce(j);
}

void policy_announce(struct job *j)
{
    j->changed = false;
    (void)job_act(j, ACT_SYNC);
    (void)job_act(j, ACT_NOTIFY);
    (void)job_act(j, ACT_FINISH);
}

/* Start the tasks that may start now. */
static void start_tasks(struct job *j)
{
    if (j->restarts.mending)
        mend_run(j);
    else if (j->spec->gang)
        start_complete_gang(j);
    else if (j->has_gates && j->n_state[SLOT_REGISTERED])
        start_open_roles(j);
}

static void advance_once(struct job *j)
{
    request_ready_roles(j);
    if (j->check_groups)
        arm_groups(j);
    if (j->check_depends)
        depends_check(j);
    bool was_mending = j->restarts.mending, was_unstarted = j->started_ms < 0;
    resize_run(j);
    start_tasks(j);
    bool restarted = was_mending && !j->restarts.mending;
    if (restarted || (was_unstarted && j->started_ms >= 0)) { /* a resize may have waited for it */
        resize_run(j);
        start_tasks(j);
    }
    resize_formed(j);
    if (resize_begin_kept(j)) {
        resize_run(j);
        start_tasks(j);
        resize_formed(j);
    }
}

/* Do everything now that follows from the last event. Nothing may be left for the next event: if
 * that one is not in the journal, a replay would do the rest later than the master did. */
static void advance(struct job *j)
{
    advance_once(j);
    /* tasks that have ended or started in the first turn may stop roles, or arm group timeouts */
    for (uint32_t i = 0; i < j->n_roles && (j->check_groups || j->check_depends); i++)
        advance_once(j);
    if (j->n_all_roles > j->n_roles)
        mend_spares(j);
    decide_by_results(j);
}

void policy_run(struct job *j)
{
    if (job_over(j) || j->resyncing)
        return;
    if (!j->decided && j->epoch)
        advance(j);
    decisions_verdict(j);
    if (restart_whole(j))
        advance(j);
    if (j->state < JOB_RUNNING && j->n_state[SLOT_RUNNING])
        j->state = JOB_RUNNING;
    if (!j->decided)
        return;
    if (j->state != JOB_STOPPING)
        stop_all(j);
    if (j->by_task && !j->own_words && !j->decisions.replaying)
        verdict_compose(j);
    /* after stop_all(), every slot is stopping, leaving, draining, ended or absent */
    if (!j->n_state[SLOT_STOPPING] && !j->n_outside[SLOT_STOPPING] && !j->n_outside[SLOT_LEAVING])
        finish(j);
}
