/*
 * What a job does about what happens: whose turn it is, when a gang starts, what a task's end means
 * for the job, and its end. The rules are TonY's. Everything here is counters; whole passes over
 * the slots happen once per stage and once at the end.
 */
#include <stdarg.h>
#include <stdio.h>

#include "job/job_int.h"

/* ---- before the first event ---- */

/* Chief: every task of the role "chief"; without one, worker:0; in single-node mode the driver. */
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
            j->chief_slot = j->roles[r].first;
    }
    if (j->chief >= 0)
        j->chief_slot = JOB_NO_SLOT;
}

/* From the last to the first: the stack gives them back in the order of the job file. */
void policy_stages(struct job *j)
{
    j->n_ready = 0;
    for (uint32_t r = j->n_roles; r-- > 0;) {
        j->roles[r].n_unmet = (uint32_t)job_role_spec(j, r)->n_waits_for;
        if (!j->roles[r].n_unmet)
            j->ready[j->n_ready++] = r;
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
        role->awaited =
            !any_tracked ||
            role->kind == ROLE_TRACKED; /* where nothing is tracked, all are waited for */
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
                j->ready[j->n_ready++] = r;
        }
    }
}

static void request_ready(struct job *j)
{
    if (j->pause_due_ms != INT64_MAX)
        return;
    while (j->n_ready) {
        uint32_t r = j->ready[--j->n_ready];
        const struct role *role = &j->roles[r];
        for (uint32_t i = role->first; i < role->first + role->n; i++)
            (void)slot_step(j, i, IN_WANT, NULL, NULL); /* refused: not held any more */
        if (!role->n)
            policy_role_over(j, r);
    }
}

void policy_registered(struct job *j, uint32_t slot)
{
    if (!j->spec->gang && !j->decided && !j->mending && !job_is_spare(j, slot) &&
        j->slots[slot].state == SLOT_REGISTERED && depends_open(j, j->slots[slot].role))
        (void)slot_step(j, slot, IN_START, NULL, NULL);
}

/*
 * The whole gang, what is granted as what is not, goes back to held, and is asked for anew when the
 * pause is over. Ready again, from the last role to the first, as at the beginning.
 */
void policy_give_back(struct job *j)
{
    j->gave.had = j->n_state[SLOT_PLACED] + j->n_state[SLOT_REGISTERED];
    j->gave.wanted = j->gave.had + j->n_state[SLOT_ASKED];
    j->gave.after_ms = j->now_ms - j->asked_ms;
    for (uint32_t r = j->n_roles; r-- > 0;) {
        const struct role *role = &j->roles[r];
        if (!role->n_state[SLOT_ASKED] && !role->n_state[SLOT_PLACED] &&
            !role->n_state[SLOT_REGISTERED])
            continue;
        for (uint32_t i = role->first; i < role->first + role->n; i++)
            (void)slot_step(j, i, IN_YIELD, NULL, NULL); /* what runs or has ended refuses */
        j->ready[j->n_ready++] = r;
    }
    j->pause_due_ms = j->now_ms + gang_pause_ms(j);
    j->round++;
    limits_job(j);
}

void policy_ask_again(struct job *j)
{
    j->pause_due_ms = INT64_MAX;
    j->changed = true;
    limits_job(j); /* policy_run() asks */
}

/* All that are there, of roles that need not wait for others. One that has begun may let others
 * begin. */
static void start_open(struct job *j)
{
    do {
        j->gates_moved = false;
        for (uint32_t r = 0; r < j->n_roles; r++) {
            const struct role *role = &j->roles[r];
            if (!role->n_state[SLOT_REGISTERED] || !depends_open(j, r))
                continue;
            for (uint32_t i = role->first; i < role->first + role->n; i++) {
                if (j->slots[i].state == SLOT_REGISTERED)
                    (void)slot_step(j, i, IN_START, NULL, NULL);
            }
        }
    } while (j->has_gates && j->gates_moved);
}

/* A gang is all slots that were requested and have not ended: none of them may be on its way any
 * more. */
static void start_gang(struct job *j)
{
    if (j->n_state[SLOT_ASKED] || j->n_state[SLOT_PLACED] || !j->n_state[SLOT_REGISTERED])
        return;
    j->round = 0;
    start_open(j);
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

/* The rules for one failed task, of no sidecar; true: the job fails now. */
static bool failure_is_fatal(const struct job *j, uint32_t slot, enum slot_state from)
{
    const struct role *role = job_role_of(j, slot);
    const struct role_spec *spec = job_role_spec(j, j->slots[slot].role);

    return (from < SLOT_RUNNING && !j->slots[slot].attempt) /* it never came so far */ ||
           role->kind == ROLE_UNTRACKED || job_is_chief(j, slot) || spec->stop_on_failure ||
           j->spec->fail_on_worker_failure;
}

void policy_settled(struct job *j, uint32_t slot, enum slot_state from, int64_t at_us)
{
    if (job_is_sidecar(j, j->slots[slot].role))
        return;
    if (!verdict_is_failure(j->slots[slot].result)) {
        verdict_witness(j, slot, at_us);
        return;
    }
    verdict_candidate(j, slot, at_us);
    if (!j->decided && failure_is_fatal(j, slot, from)) {
        j->by_task = true;
        j->fatal = (struct failure){ .slot = slot, .at_us = at_us };
        policy_decide(j, JOB_FAILED, "a task failed"); /* verdict_compose() says which and how */
    }
}

static void evaluate(struct job *j)
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
        j->by_task = j->cause.slot >= 0;
        policy_decide(j, JOB_FAILED, "no task succeeded");
    } else if (lost) {
        /* The original tolerates tasks that fail. One that was lost has not ended: nobody knows
         * what became of its work. */
        j->by_task = j->cause.slot >= 0;
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
        return false; /* not all are scheduled yet */
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

static void take_down(struct job *j)
{
    struct slot_end end = { .reason = END_KILLED_BY_MASTER, .at_us = j->now_ms * 1000 };

    j->state = JOB_STOPPING;
    j->changed = true;
    /* Who lost a peer was quicker to end than that peer, which is about to say why. */
    j->wait_ms = j->by_task && j->cause.known && j->cause.known->victim ? JOB_WITNESS_MS : 0;
    limits_job(j);
    for (uint32_t i = 0; i < j->n_slots; i++) {
        if (j->slots[i].state != SLOT_ENDED)
            (void)slot_step(j, i, IN_STOP, &end,
                            NULL); /* every state but an unknown one takes it */
    }
}

void policy_stop_now(struct job *j)
{
    j->save_ms = 0;
    for (uint32_t i = 0; i < j->n_slots; i++) {
        const struct slot *s = &j->slots[i];
        if (s->state != SLOT_STOPPING)
            continue;
        struct job_action *a = job_act(j, ACT_STOP_ATTEMPT, i);
        a->generation = s->generation;
        a->attempt = s->attempt;
        a->grace_ms = j->spec->kill_grace_ms;
        a->reason = END_KILLED_BY_MASTER;
        limits_slot(j, i);
    }
}

void policy_abandon(struct job *j)
{
    struct slot_end end = { .reason = END_NODE_LOST,
                            .at_us = j->now_ms * 1000,
                            .note = "nothing watches over its container any more" };

    j->resyncing = false;
    for (uint32_t i = 0; i < j->n_slots; i++)
        (void)slot_step(j, i, IN_ABANDON, &end, NULL);
}

/* Nothing of the user's is alive: executors that still end are the scheduler's to clear away. */
static void finish(struct job *j)
{
    struct slot_end end = { .reason = END_KILLED_BY_MASTER, .at_us = j->now_ms * 1000 };

    for (uint32_t i = 0; i < j->n_slots && j->n_state[SLOT_DRAINING]; i++) {
        if (j->slots[i].state == SLOT_DRAINING)
            (void)slot_step(j, i, IN_ABANDON, NULL, NULL);
    }
    for (uint32_t i = j->n_tasks; i < j->n_slots; i++)
        (void)slot_step(j, i, IN_ABANDON, &end, NULL); /* nobody waits for spares */
    j->state = j->decided;
    j->ended_ms = j->now_ms;
    policy_announce(j);
}

void policy_announce(struct job *j)
{
    j->changed = false;
    (void)job_act(j, ACT_SYNC, 0);
    (void)job_act(j, ACT_NOTIFY, 0);
    (void)job_act(j, ACT_FINISH, 0);
}

static void go_on(struct job *j)
{
    request_ready(j);
    if (j->check_groups)
        arm_groups(j);
    if (j->check_depends)
        depends_check(j);
    if (j->mending)
        mend_run(j);
    else if (j->spec->gang)
        start_gang(j);
    else if (j->has_gates && j->n_state[SLOT_REGISTERED])
        start_open(j);
    if (j->n_slots > j->n_tasks)
        mend_spares(j);
    evaluate(j);
}

void policy_run(struct job *j)
{
    if (job_over(j) || j->resyncing)
        return;
    if (!j->decided && j->epoch)
        go_on(j);
    if (restart_whole(j))
        go_on(j);
    if (j->state < JOB_RUNNING && j->n_state[SLOT_RUNNING])
        j->state = JOB_RUNNING;
    if (!j->decided)
        return;
    if (j->state != JOB_STOPPING)
        take_down(j);
    if (j->by_task && !j->own_words)
        verdict_compose(j);
    if (!j->n_state[SLOT_STOPPING]) /* take_down() left only what stops, drains, or has ended */
        finish(j);
}
