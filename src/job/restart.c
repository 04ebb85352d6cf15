/*
 * Which end is followed by another attempt, of whom, and when. Three questions, in this order:
 *
 * May it?  What a task does itself (it exits, needs too much memory, takes too long) is a matter of
 *          its role's policy and limit; what is done to it (preempted, its node or executor lost, a
 *          failed disk, a container that does not start) of a small budget per task and reason.
 * Who?     The task alone, its role, or the gang; a task of a gang that is still forming, alone.
 * When?    The first time at once or after the user's delay, then later and later.
 *
 * A notice that a container will be taken is answered as its loss would be, only earlier: all who
 * would be halted then are halted now, with time to save a checkpoint.
 *
 * What then has to happen until it runs is in mend.c. Nothing here depends on what is not in the
 * journal: whose connection is up, who is silent.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "job/job_int.h"
#include "runtime/runtime.h"

/* ---- life ---- */

static int tally_init(struct tally *t, const struct role_spec *r)
{
    if (!r->restart_window_ms || r->max_restarts <= 0)
        return 0;
    t->times = calloc((size_t)r->max_restarts, sizeof *t->times);
    return t->times ? 0 : -ENOMEM;
}

int restart_init(struct job *j)
{
    int rc = 0;

    for (uint32_t r = 0; r < j->n_roles && rc == 0; r++)
        rc = tally_init(&j->roles[r].tally, job_role_spec(j, r));
    for (uint32_t i = 0; i < j->n_tasks && rc == 0; i++)
        rc = tally_init(&j->slots[i].tally, job_slot_role(j, i));
    return rc;
}

void restart_done(struct job *j)
{
    for (uint32_t r = 0; j->roles && r < j->n_roles; r++)
        free(j->roles[r].tally.times); /* those of slots go with them */
}

/* ---- may it? ---- */

/* Whose doing it was: END_EXITED stands for all of the task's own, END_NONE for nobody's. */
static enum end_reason blame(const struct slot *s, enum slot_input plain,
                             const struct slot_end *end)
{
    switch (end->reason) {
    case END_EXITED:
        if (s->state == SLOT_RUNNING)
            return END_EXITED;
        return s->state == SLOT_PLACED ? END_LAUNCH_FAILED : END_NODE_LOST; /* the executor went */
    case END_OUT_OF_MEMORY:
    case END_TIMED_OUT:
        return END_EXITED;
    case END_LAUNCH_FAILED:
        /* The executor could not start the command. On the only machine there is it will not do
         * so the next time, either; on another one it may. */
        return plain == IN_END && s->node < 0 ? END_EXITED : END_LAUNCH_FAILED;
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

static bool charge_limit(const struct job *j, const struct role_spec *r, struct tally *t)
{
    if (r->max_restarts >= 0 && t->n >= r->max_restarts) {
        if (!t->times || !r->max_restarts)
            return false;
        int64_t oldest = t->times[t->n % r->max_restarts];
        if (j->now_ms - oldest < (int64_t)r->restart_window_ms)
            return false;
    }
    if (t->times)
        t->times[t->n % r->max_restarts] = j->now_ms;
    t->n++;
    return true;
}

static bool charge_budget(const struct job *j, struct slot *s, enum end_reason why)
{
    if (s->spent[why] >= j->spec->restarts[why])
        return false;
    s->spent[why]++;
    return true;
}

/* ---- who? ---- */

static bool has_ps(const struct job *j)
{
    for (uint32_t r = 0; r < j->n_roles; r++) {
        if (j->roles[r].n && str_eq(job_role_name(j, r), "ps"))
            return true;
    }
    return false;
}

/* It belongs to a gang that has not started yet: the others still wait for it. */
static bool still_forms(const struct job *j, const struct slot *s)
{
    return !s->attempt || s->generation != j->generation || j->roles[s->role].forming;
}

static enum restart_scope scope_of(const struct job *j, uint32_t slot)
{
    const struct slot *s = &j->slots[slot];
    const struct role_spec *r = job_slot_role(j, slot);

    if (job_is_sidecar(j, s->role) || still_forms(j, s))
        return SCOPE_TASK;
    if (r->restart_scope)
        return r->restart_scope;
    return runtime_lives_with_new(j->spec->framework, r->name, job_is_chief(j, slot), j->spec->gang,
                                  has_ps(j))
               ? SCOPE_TASK
               : SCOPE_JOB;
}

/* All of its stage is over, and others were waiting for that. */
static bool stage_is_done(const struct job *j, uint32_t role)
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

static bool concerned(const struct job *j, uint32_t role, uint32_t by, enum restart_scope scope)
{
    if (scope == SCOPE_ROLE)
        return role == by;
    return role == by || (!job_is_sidecar(j, role) && !stage_is_done(j, role));
}

/* ---- when? ---- */

/* row: which one in a row, from 1. By slot and count a pause has its jitter, so that those of many
 * tasks do not end together. */
static int64_t pause_until(const struct job *j, uint32_t slot, uint64_t delay_ms, uint32_t row)
{
    uint64_t most = MAX(delay_ms, (uint64_t)RESTART_PAUSE_MAX_MS), pause = delay_ms;

    if (row > 1)
        pause = MIN(MAX(2 * delay_ms, (uint64_t)RESTART_BACKOFF_MS) << MIN(row - 2, 16u), most);
    if (!pause)
        return 0;
    uint32_t spread = (uint32_t)MIN(pause / 4, (uint64_t)UINT32_MAX);
    return j->now_ms + (int64_t)pause + jitter_ms(j, 'r', slot * 31 + j->n_restarts, spread);
}

/* ---- the decision ---- */

struct again {
    enum restart_scope scope; /* SCOPE_UNSET: it ends as it would without all this */
    bool elsewhere;           /* not in the same container */
    bool whole;               /* it counts as a retry of the job */
    int64_t due_ms;
    int64_t taken_ms; /* a notice: who is halted has until then; 0 = there was none */
};

/* Where it failed at once: whoever does so everywhere is to blame itself. */
static bool everywhere(struct slot *s, int64_t ran_ms)
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

/* The whole of a job that has no roles: its task begins again where it is, since on a cluster there
 * is no other place for it. */
static bool retry_alone(struct job *j, uint32_t slot, struct again *out)
{
    if (j->retries >= j->spec->am_retry_count)
        return false;
    j->retries++;
    out->scope = SCOPE_JOB;
    out->whole = true;
    out->due_ms = pause_until(j, slot, 0, j->retries);
    return true;
}

/* Since it began a newer checkpoint was saved than ever before: it does not fail in vain. */
static bool came_further(const struct job *j, const struct slot *s)
{
    return s->state == SLOT_RUNNING && j->has_checkpoint && j->checkpoint_ms > s->started_ms;
}

static void decide(struct job *j, uint32_t slot, enum slot_input plain, const struct slot_end *end,
                   struct again *out)
{
    struct slot *s = &j->slots[slot];
    const struct role_spec *r = job_slot_role(j, slot);
    enum slot_result result = verdict_result(s, end);
    enum end_reason why = blame(s, plain, end);
    int64_t ran_ms = s->state == SLOT_RUNNING ? j->now_ms - s->started_ms : 0;

    *out = (struct again){ 0 };
    bool alone = j->spec->single_node; /* on a cluster its container is the master's */
    if (j->decided || (alone && j->gives_back && plain != IN_END) || result == RES_FINISHED ||
        why == END_NONE)
        return;
    bool failed = result != RES_SUCCEEDED, own = why == END_EXITED;
    if (failed && why != END_PREEMPTED)
        nodes_failed(j, s->node);
    if (failed && why != END_PREEMPTED && s->node >= 0 && everywhere(s, ran_ms) && !own)
        return;
    bool further = came_further(j, s);
    if (ran_ms >= RESTART_FORGIVE_MS || further)
        memset(s->spent, 0, sizeof s->spent);
    if (alone && own && failed && plain == IN_END && retry_alone(j, slot, out))
        return;
    if (own ? !policy_allows(r, end, failed) || job_is_spare(j, slot) : r->restart == RESTART_NEVER)
        return;
    enum restart_scope scope = scope_of(j, slot);
    struct tally *t = scope == SCOPE_TASK ? &s->tally : &j->roles[s->role].tally;
    if (own ? !charge_limit(j, r, t) : !charge_budget(j, s, why))
        return;
    if (ran_ms >= RESTART_STEADY_MS || further)
        t->row = 0;
    t->row++;
    out->scope = scope;
    bool disk = why == END_DISK_FAILED; /* another node may have room; here it takes a while */
    out->elsewhere = why == END_LAUNCH_FAILED || why == END_PREEMPTED || (disk && s->node >= 0) ||
                     (failed && nodes_is_out(j, s->node));
    out->due_ms = pause_until(
        j, slot, disk ? MAX(r->restart_delay_ms, (uint64_t)RESTART_DISK_MS) : r->restart_delay_ms,
        t->row);
}

/* A failure that does not count any more is no cause. */
static void forget_cause(struct job *j)
{
    if (j->cause.slot < 0 || verdict_is_failure(j->slots[j->cause.slot].result))
        return;
    j->cause = (struct failure){ .slot = JOB_NO_SLOT };
    for (uint32_t i = 0; i < j->n_tasks; i++) {
        const struct slot *s = &j->slots[i];
        if (verdict_is_failure(s->result) && !job_is_sidecar(j, s->role))
            verdict_candidate(j, i, s->ended_us);
    }
}

/* Of whom something runs that is about to be halted. */
static void allow_saving(struct slot *s, const struct again *how)
{
    if (s->state == SLOT_RUNNING)
        s->taken_ms = how->taken_ms;
}

static void others_again(struct job *j, uint32_t slot, const struct again *how)
{
    uint32_t by = j->slots[slot].role;

    if (how->scope == SCOPE_ROLE)
        j->roles[by].forming = true;
    for (uint32_t i = 0; i < j->n_tasks; i++) {
        if (!concerned(j, j->slots[i].role, by, how->scope))
            continue;
        if (i != slot) {
            allow_saving(&j->slots[i], how);
            (void)slot_step(j, i, IN_AGAIN, NULL, NULL); /* every state takes it */
        }
        j->slots[i].due_ms = how->due_ms;
    }
    policy_recount(j);
    forget_cause(j);
}

/* An input, and what stands for it when another attempt follows. */
static enum slot_input instead_of(enum slot_input plain)
{
    return plain == IN_END ? IN_RETRY : plain == IN_GONE ? IN_LOST : IN_DROP;
}

static int begin_again(struct job *j, uint32_t slot, enum slot_input in, const struct again *how,
                       const struct slot_end *end, struct err *e)
{
    static const char *const done[] = { [SCOPE_TASK] = "restarted",
                                        [SCOPE_ROLE] = "its role restarted",
                                        [SCOPE_JOB] = "gang formed anew" };
    struct slot *s = &j->slots[slot];

    if (how->scope == SCOPE_JOB) {
        j->generation++;
        for (uint32_t r = 0; r < j->n_roles; r++)
            j->roles[r].forming = false; /* all of them form together now */
    }
    if (how->scope == SCOPE_JOB || j->gives_back)
        (void)job_act(j, ACT_SYNC, 0);
    slot_keep_end(j, s, end);
    const char *what = how->whole ? "the whole job started again" : done[how->scope];
    failures_note_restart(j, slot, what);
    if (verdict_result(s, end) != RES_SUCCEEDED)
        failures_keep(j, slot, what);
    allow_saving(s, how);
    int rc = slot_step(j, slot, in, NULL, e);
    if (rc)
        return rc;
    s->due_ms = how->due_ms;
    j->n_restarts++;
    j->mending = true;
    if (how->scope != SCOPE_TASK)
        others_again(j, slot, how);
    return 0;
}

/* Who was to end may have been the reason why: those that lost it were quicker to say so. */
static void keep_witness(struct job *j, uint32_t slot, const struct slot_end *end)
{
    struct slot *s = &j->slots[slot];
    struct past_failure *last = j->n_past ? &j->past[(j->n_past - 1) % JOB_FAILURES_KEPT] : NULL;

    if (s->state != SLOT_HALTING || !last || !last->known || !last->known->victim)
        return;
    slot_keep_end(j, s, end);
    bool failed = verdict_is_failure(verdict_result(s, end));
    if (!failed && (!s->known || s->known->victim))
        return;
    if (j->last_restart.known && j->last_restart.known->victim && s->known && !s->known->victim) {
        failures_note_restart(j, slot, last->done);
        j->changed = true;
    }
    failures_keep(j, slot, last->done);
}

/* Between two attempts a container has nothing to end for but its executor's death. What it then
 * says of a task, or of being stopped, is how the last attempt ended, which counts already. */
static bool died_between(const struct slot *s, enum slot_input plain, const struct slot_end *end)
{
    return s->state == SLOT_RENEWING && plain == IN_GONE && end->reason != END_PREEMPTED &&
           end->reason != END_DISK_FAILED && end->reason != END_NODE_LOST;
}

/*
 * A cluster that gives up a node says so of its containers, and cannot know whether they live on
 * there, cut off from it and perhaps not from us. On this machine what is lost was cleared away.
 */
static bool may_live_on(const struct slot *s, enum slot_input plain, const struct slot_end *end)
{
    return plain == IN_GONE && end->reason == END_NODE_LOST && s->node >= 0 &&
           (s->state == SLOT_RUNNING || s->state == SLOT_HALTING || s->state == SLOT_REPLACING);
}

/* It is to begin again, when what may live on is dead: by its executor's word, or by its lease. */
static int wait_for_lease(struct job *j, uint32_t slot, struct err *e)
{
    struct slot *s = &j->slots[slot];

    s->given_up = true;
    int rc = s->state == SLOT_REPLACING ? 0 : slot_step(j, slot, IN_DROP, NULL, e);
    limits_slot(j, slot);
    return rc;
}

int restart_ended(struct job *j, uint32_t slot, enum slot_input plain, const struct slot_end *end,
                  struct err *e)
{
    struct slot *s = &j->slots[slot];
    struct again how = { 0 };
    struct slot_end lost = { .reason = END_NODE_LOST,
                             .at_us = end->at_us,
                             .note = "its executor ended between two attempts" };

    if (died_between(s, plain, end))
        end = &lost;
    if (s->state == SLOT_REPLACING && plain == IN_END && s->given_up)
        return slot_step(j, slot, IN_LOST, NULL, e);
    if (s->state == SLOT_HALTING || (s->state == SLOT_REPLACING && plain != IN_END)) {
        /* it was to end */
        keep_witness(j, slot, end);
        if (may_live_on(s, plain, end))
            return wait_for_lease(j, slot, e);
        bool leaves = s->leaves && plain == IN_END;
        return slot_step(j, slot, leaves ? IN_DROP : instead_of(plain), end, e);
    }
    bool may = (s->state >= SLOT_PLACED && s->state <= SLOT_RUNNING) || s->state == SLOT_RENEWING;
    if (may && slot_table[s->state][plain].to != SLOT_NONE)
        decide(j, slot, plain, end, &how);
    if (!how.scope)
        return slot_step(j, slot, plain, end, e);
    bool lives_on = may_live_on(s, plain, end);
    bool drop = lives_on || (plain == IN_END && how.elsewhere);
    s->given_up = lives_on; /* as in wait_for_lease(): the next line moves it */
    return begin_again(j, slot, drop ? IN_DROP : instead_of(plain), &how, end, e);
}

/* Where no other attempt may follow, its own is stopped, and ends as what was preempted. */
static void stop_before_it_is_taken(struct job *j, uint32_t slot, int64_t taken_ms)
{
    const struct slot *s = &j->slots[slot];
    struct job_action *a = job_act(j, ACT_STOP_ATTEMPT, slot);

    a->generation = s->generation;
    a->attempt = s->attempt;
    a->reason = END_PREEMPTED;
    slot_allow(j, taken_ms, a);
}

int restart_preempting(struct job *j, uint32_t slot, int64_t within_ms, struct err *e)
{
    struct slot *s = &j->slots[slot];
    struct again how = { 0 };
    struct slot_end end = { .reason = END_PREEMPTED,
                            .at_us = j->now_ms * 1000,
                            .note = "the scheduler was about to take its container" };
    int64_t taken_ms = j->now_ms + MIN(MAX(within_ms, (int64_t)1), (int64_t)RESTART_NOTICE_MAX_MS);

    if (s->state == SLOT_HALTING) { /* it ends already */
        s->leaves = true;
        return 0;
    }
    if (s->state != SLOT_RUNNING)
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: it has nothing to save",
                       SLOT_ARGS(j, slot), slot_state_name(s->state)),
               1;
    decide(j, slot, IN_GONE, &end, &how);
    if (!how.scope) {
        stop_before_it_is_taken(j, slot, taken_ms);
        return 0;
    }
    how.taken_ms = taken_ms;
    s->leaves = true;
    return begin_again(j, slot, IN_AGAIN, &how, &end, e);
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
        (void)restart_ended(j, slot, IN_GONE, lost, NULL); /* all that have a container take it */
        return;
    }
    (void)slot_step(j, slot, IN_LOST, NULL, NULL);
    j->mending = true;
}

/* ---- the whole job ---- */

static void slot_from_the_start(struct job *j, uint32_t slot)
{
    struct slot *s = &j->slots[slot];
    bool holds = s->state >= SLOT_PLACED && s->state <= SLOT_RENEWING;
    struct tally *t = &s->tally;

    /* One of a later stage gives back what it has or asked for: the first stage may need the room.
     */
    enum slot_input in = holds ? IN_DROP : s->state == SLOT_ASKED ? IN_YIELD : IN_AGAIN;
    (void)slot_step(j, slot, job_is_wanted(j, s) ? IN_AGAIN : in, NULL, NULL);
    t->n = t->row = 0;
    memset(s->spent, 0, sizeof s->spent);
}

bool restart_whole(struct job *j)
{
    if (j->decided != JOB_FAILED || j->state == JOB_STOPPING || j->hopeless ||
        j->spec->single_node || j->retries >= j->spec->am_retry_count)
        return false;
    if (j->by_task && j->cause.slot >= 0) {
        failures_note_restart(j, (uint32_t)j->cause.slot, "the whole job started again");
        failures_keep(j, (uint32_t)j->cause.slot, "the whole job started again");
    }
    j->retries++;
    j->n_restarts++;
    j->generation++;
    (void)job_act(j, ACT_SYNC, 0);
    j->decided = JOB_NONE;
    j->by_task = j->own_words = false;
    j->message[0] = 0;
    j->cause = j->fatal = (struct failure){ .slot = JOB_NO_SLOT };
    j->pause_due_ms = INT64_MAX;
    policy_stages(j);
    for (uint32_t r = 0; r < j->n_roles; r++) {
        j->roles[r].forming = false;
        j->roles[r].tally.n = j->roles[r].tally.row = 0;
    }
    int64_t due_ms = pause_until(j, 0, 0, j->retries);
    for (uint32_t i = 0; i < j->n_tasks; i++) {
        slot_from_the_start(j, i);
        j->slots[i].due_ms = due_ms;
    }
    policy_recount(j);
    j->asked_ms = j->n_state[SLOT_ASKED] ? j->now_ms : -1;
    j->mending = j->changed = true;
    limits_job(j);
    return true;
}
