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
 * When?                The first restart follows at once, or after the user's delay. The pause
 *                      before each further restart in a row is twice as long, up to a limit.
 *
 * If the scheduler announces that it will take a container, this file decides as it would after the
 * loss of the container. The same tasks are halted, but before the loss, so that they have time to
 * save a checkpoint.
 *
 * restart.c carries the decision out. All decisions here use only state that a replay of the
 * journal restores. So they do not depend on which executors are connected, or silent.
 */
#include "job/restart_rules.h"

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
    for (uint32_t r = 0; j->roles && r < j->n_all_roles; r++)
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

bool restart_is_stage_done(const struct job *j, uint32_t role)
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

bool restart_includes_role(const struct job *j, uint32_t role, uint32_t failed_role,
                           enum restart_scope scope)
{
    if (scope == SCOPE_ROLE)
        return role == failed_role;
    return role == failed_role || (!job_is_sidecar(j, role) && !restart_is_stage_done(j, role));
}

/* ---- when? ---- */

int64_t restart_pause_until(const struct job *j, uint32_t slot, uint64_t delay_ms, uint32_t row)
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
    out->due_ms = restart_pause_until(j, slot, 0, j->restarts.retries + 1);
    return true;
}

/* Since the attempt started, has a checkpoint with a higher step than any before become whole? Then
 * the task gets its full budgets back, and this failure counts as the first in a row. */
static bool made_progress(const struct job *j, const struct slot *s)
{
    return s->state == SLOT_RUNNING && j->checkpoints.has && j->checkpoints.ms > s->started_ms;
}

/*
 * Was the container lost together with the last master? Then its restart is not charged: the death
 * of that master is the reason, and tony.am.max-attempts limits it. When a master dies, YARN ends
 * the containers that no node has reported yet (decision 0007). Mostly these are the containers
 * that a resize has just added.
 *
 * A node may have been lost by itself at the same time. Its restarts are not charged either, since
 * the core cannot tell the two apart. In the pool (node -1) a container outlives its master.
 */
static bool was_lost_with_master(const struct slot *s, const struct slot_end *end)
{
    return end->with_master && end->reason == END_NODE_LOST && s->node >= 0;
}

/* The end of an attempt or a container, as the rules see it. */
struct ending {
    const struct slot_end *end;
    enum end_reason why; /* reason_to_charge() */
    bool failed;
    bool with_master; /* was_lost_with_master() */
    int64_t ran_ms;   /* how long the attempt ran; 0 = it did not */
};

/* Count a failure on the node, unless the reason is elsewhere. true: the task has failed quickly on
 * many nodes, and not by itself, so another one would not help. */
static bool blame_node(struct job *j, struct slot *s, const struct ending *x)
{
    if (!x->failed || x->why == END_PREEMPTED || x->with_master)
        return false;
    nodes_failed(j, s->node);
    return s->node >= 0 && failed_quickly_on_many_nodes(s, x->ran_ms) && x->why != END_EXITED;
}

/* Is another attempt allowed? If the task caused its end itself, the restart policy of its role and
 * the user's limit decide. For each other reason the task has a budget. */
static bool may_restart(const struct job *j, uint32_t slot, const struct ending *x,
                        const struct tally *t)
{
    const struct slot *s = &j->slots[slot];
    const struct role_spec *r = job_slot_role(j, slot);

    if (x->why == END_EXITED)
        return !job_is_spare(j, slot) && policy_allows(r, x->end, x->failed) &&
               is_within_limit(j, r, t);
    uint32_t spent =
        x->with_master ? 0 : s->spent[x->why]; /* with a budget of 0 no task restarts */
    return r->restart != RESTART_NEVER && spent < j->spec->restarts[x->why];
}

/* Should the next attempt run in another container? After a full disk another node may have room.
 */
static bool wants_other_container(const struct job *j, const struct slot *s, const struct ending *x)
{
    if (x->why == END_LAUNCH_FAILED || x->why == END_PREEMPTED)
        return true;
    return (x->why == END_DISK_FAILED && s->node >= 0) ||
           (x->failed && nodes_is_avoided(j, s->node));
}

/* Apply the rules to the end of the slot's attempt. The caller charges the restart. */
static void apply_rules(struct job *j, uint32_t slot, enum slot_input final_input,
                        const struct slot_end *end, struct restart_plan *out)
{
    struct slot *s = &j->slots[slot];
    const struct role_spec *r = job_slot_role(j, slot);
    enum slot_result result = verdict_result(s, end);
    struct ending x = { .end = end,
                        .why = reason_to_charge(s, final_input, end),
                        .failed = result != RES_SUCCEEDED,
                        .with_master = was_lost_with_master(s, end),
                        .ran_ms = s->state == SLOT_RUNNING ? j->now_ms - s->started_ms : 0 };
    bool single = j->spec->single_node;
    bool in_master = single && j->gang.gives_back; /* its container is the master's own */

    *out = (struct restart_plan){ 0 };
    if (j->decided || (in_master && final_input != IN_END) || result == RES_FINISHED ||
        x.why == END_NONE)
        return;
    if (blame_node(j, s, &x))
        return;
    bool progress = made_progress(j, s);
    if (x.ran_ms >= RESTART_FORGIVE_MS || progress)
        memset(s->spent, 0, sizeof s->spent);
    if (single && x.why == END_EXITED && x.failed && final_input == IN_END &&
        retry_single_node(j, slot, out))
        return;
    enum restart_scope scope = scope_of(j, slot);
    struct tally *t = scope == SCOPE_TASK ? &s->tally : &j->roles[s->role].tally;
    if (!may_restart(j, slot, &x, t))
        return;
    out->scope = scope;
    out->charge = x.with_master ? END_NONE : x.why;
    out->in_row = x.ran_ms < RESTART_STEADY_MS && !progress;
    out->elsewhere = wants_other_container(j, s, &x);
    uint64_t delay_ms = r->restart_delay_ms;
    if (x.why == END_DISK_FAILED)
        delay_ms = MAX(delay_ms, (uint64_t)RESTART_DISK_MS); /* the disk may have room then */
    out->due_ms = restart_pause_until(j, slot, delay_ms, out->in_row ? t->row + 1 : 1);
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

void restart_decide(struct job *j, uint32_t slot, enum slot_input final_input,
                    const struct slot_end *end, struct restart_plan *out)
{
    apply_rules(j, slot, final_input, end, out);
    decisions_restart(j, slot, verdict_is_failure(verdict_result(&j->slots[slot], end)), out);
    charge(j, slot, out);
}
