/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state table of a slot. slot_step() is the only function that changes a slot's state.
 */
#include <errno.h>
#include <stdlib.h>

#include "job/job_int.h"

/* Each entry says: if a slot in state [row] gets the input [column], its new state is the first
 * value, and the second is the action. A missing entry means that the input is refused. */
const struct slot_cell slot_table[SLOT_STATE_COUNT][IN_COUNT] = {
    [SLOT_ABSENT] = {
        [IN_JOIN] = { SLOT_HELD, DO_NOTHING },
        [IN_LEAVE] = { SLOT_ABSENT, DO_NOTHING },
        [IN_STOP] = { SLOT_ABSENT, DO_NOTHING },
        [IN_ABANDON] = { SLOT_ABSENT, DO_NOTHING },
        [IN_AGAIN] = { SLOT_ABSENT, DO_NOTHING },
        [IN_REISSUE] = { SLOT_ABSENT, DO_NOTHING },
    },
    [SLOT_HELD] = {
        [IN_WANT] = { SLOT_ASKED, DO_ASK },
        [IN_GRANT] = { SLOT_PLACED, DO_LAUNCH }, /* a new master, whose journal lacks the request */
        [IN_STOP] = { SLOT_ENDED, DO_NOTHING },
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_AGAIN] = { SLOT_HELD, DO_NOTHING },
        [IN_TAKE] = { SLOT_REGISTERED, DO_NOTHING },
        [IN_LEAVE] = { SLOT_ABSENT, DO_NOTHING },
        [IN_REISSUE] = { SLOT_HELD, DO_NOTHING },
    },
    [SLOT_ASKED] = {
        [IN_GRANT] = { SLOT_PLACED, DO_LAUNCH },
        [IN_REFUSE] = { SLOT_ENDED, DO_NOTHING },
        [IN_YIELD] = { SLOT_HELD, DO_CANCEL },
        [IN_STOP] = { SLOT_ENDED, DO_NOTHING }, /* a container granted later is given back */
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_AGAIN] = { SLOT_ASKED, DO_NOTHING },
        [IN_LEAVE] = { SLOT_ABSENT, DO_CANCEL },
        [IN_REISSUE] = { SLOT_ASKED, DO_ASK },
    },
    [SLOT_PLACED] = {
        [IN_REGISTER] = { SLOT_REGISTERED, DO_NOTHING },
        [IN_GONE] = { SLOT_ENDED, DO_NOTHING },
        [IN_STOP] = { SLOT_STOPPING, DO_STOP_CONTAINER },
        [IN_SILENT] = { SLOT_STOPPING, DO_STOP_CONTAINER },
        [IN_YIELD] = { SLOT_HELD, DO_STOP_CONTAINER }, /* no task runs in it: do not wait */
        [IN_LOST] = { SLOT_HELD, DO_NOTHING },
        [IN_DROP] = { SLOT_REPLACING, DO_STOP_CONTAINER },
        [IN_AGAIN] = { SLOT_PLACED, DO_NOTHING },
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_LEAVE] = { SLOT_LEAVING, DO_STOP_CONTAINER },
        [IN_REISSUE] = { SLOT_PLACED, DO_LAUNCH },
    },
    [SLOT_REGISTERED] = {
        [IN_REGISTER] = { SLOT_REGISTERED, DO_NOTHING },
        [IN_READY] = { SLOT_REGISTERED, DO_NOTHING },
        [IN_START] = { SLOT_RUNNING, DO_START },
        [IN_RETURN] = { SLOT_REGISTERED, DO_NOTHING },
        [IN_END] = { SLOT_DRAINING, DO_NOTHING }, /* the executor could not prepare the attempt */
        [IN_GONE] = { SLOT_ENDED, DO_NOTHING },
        [IN_STOP] = { SLOT_STOPPING, DO_FINISH_EXECUTOR },
        [IN_SILENT] = { SLOT_STOPPING, DO_STOP_CONTAINER },
        [IN_YIELD] = { SLOT_HELD, DO_STOP_CONTAINER },
        [IN_RETRY] = { SLOT_RENEWING, DO_RENEW },
        [IN_LOST] = { SLOT_HELD, DO_NOTHING },
        [IN_DROP] = { SLOT_REPLACING, DO_STOP_CONTAINER },
        [IN_AGAIN] = { SLOT_RENEWING, DO_RENEW }, /* the old generation may have used its ports */
        [IN_LEND] = { SLOT_ENDED, DO_NOTHING },
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_LEAVE] = { SLOT_LEAVING, DO_FINISH_EXECUTOR },
        [IN_REISSUE] = { SLOT_REGISTERED, DO_NOTHING },
    },
    [SLOT_RUNNING] = {
        [IN_REGISTER] = { SLOT_RUNNING, DO_START }, /* the executor never got the start */
        [IN_RETURN] = { SLOT_RUNNING, DO_NOTHING },
        [IN_END] = { SLOT_DRAINING, DO_NOTHING },
        [IN_GONE] = { SLOT_ENDED, DO_NOTHING },
        [IN_STOP] = { SLOT_STOPPING, DO_STOP_ATTEMPT },
        [IN_SILENT] = { SLOT_STOPPING, DO_STOP_CONTAINER },
        [IN_RETRY] = { SLOT_RENEWING, DO_RENEW },
        [IN_LOST] = { SLOT_HELD, DO_NOTHING },
        [IN_DROP] = { SLOT_REPLACING, DO_STOP_CONTAINER },
        [IN_AGAIN] = { SLOT_HALTING, DO_STOP_ATTEMPT },
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_LEAVE] = { SLOT_LEAVING, DO_STOP_ATTEMPT },
        [IN_REISSUE] = { SLOT_RUNNING, DO_NOTHING },
    },
    [SLOT_HALTING] = {
        [IN_REGISTER] = { SLOT_HALTING, DO_RENEW }, /* it never got the start: nothing runs */
        [IN_READY] = { SLOT_REGISTERED, DO_NOTHING },
        [IN_RETURN] = { SLOT_HALTING, DO_STOP_ATTEMPT },
        [IN_RETRY] = { SLOT_RENEWING, DO_RENEW },
        [IN_GONE] = { SLOT_ENDED, DO_NOTHING },
        [IN_LOST] = { SLOT_HELD, DO_NOTHING },
        [IN_DROP] = { SLOT_REPLACING, DO_STOP_CONTAINER },
        [IN_STOP] = { SLOT_STOPPING, DO_STOP_ATTEMPT }, /* at once: no checkpoint */
        [IN_OVERDUE] = { SLOT_REPLACING, DO_STOP_CONTAINER },
        [IN_AGAIN] = { SLOT_HALTING, DO_NOTHING },
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_LEAVE] = { SLOT_LEAVING, DO_NOTHING },
        [IN_REISSUE] = { SLOT_HALTING, DO_NOTHING }, /* its executor reconnects, or is overdue */
    },
    [SLOT_RENEWING] = {
        [IN_REGISTER] = { SLOT_RENEWING, DO_RENEW },
        [IN_READY] = { SLOT_REGISTERED, DO_NOTHING },
        [IN_RETURN] = { SLOT_RENEWING, DO_RENEW },
        [IN_GONE] = { SLOT_ENDED, DO_NOTHING },
        [IN_LOST] = { SLOT_HELD, DO_NOTHING },
        [IN_DROP] = { SLOT_REPLACING, DO_STOP_CONTAINER },
        [IN_STOP] = { SLOT_STOPPING, DO_FINISH_EXECUTOR },
        [IN_SILENT] = { SLOT_STOPPING, DO_STOP_CONTAINER },
        [IN_YIELD] = { SLOT_HELD, DO_STOP_CONTAINER },
        [IN_AGAIN] = { SLOT_RENEWING, DO_RENEW },
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_LEAVE] = { SLOT_LEAVING, DO_FINISH_EXECUTOR },
        [IN_REISSUE] = { SLOT_RENEWING, DO_NOTHING }, /* its executor reconnects, or is silent */
    },
    [SLOT_REPLACING] = {
        [IN_REGISTER] = { SLOT_REPLACING, DO_FINISH_EXECUTOR },
        [IN_READY] = { SLOT_REPLACING, DO_FINISH_EXECUTOR },
        [IN_RETURN] = { SLOT_REPLACING, DO_FINISH_EXECUTOR },
        [IN_END] = { SLOT_REPLACING, DO_NOTHING },
        [IN_GONE] = { SLOT_ENDED, DO_NOTHING },
        [IN_LOST] = { SLOT_HELD, DO_NOTHING },
        [IN_STOP] = { SLOT_STOPPING, DO_NOTHING },
        [IN_OVERDUE] = { SLOT_REPLACING, DO_STOP_CONTAINER },
        [IN_AGAIN] = { SLOT_REPLACING, DO_NOTHING },
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_LEAVE] = { SLOT_LEAVING, DO_NOTHING },
        [IN_REISSUE] = { SLOT_REPLACING, DO_STOP_CONTAINER },
    },
    [SLOT_LEAVING] = {
        [IN_REGISTER] = { SLOT_LEAVING, DO_FINISH_EXECUTOR },
        [IN_READY] = { SLOT_LEAVING, DO_FINISH_EXECUTOR },
        [IN_RETURN] = { SLOT_LEAVING, DO_STOP_ATTEMPT },
        [IN_END] = { SLOT_LEAVING, DO_NOTHING }, /* the acknowledgement lets the executor exit */
        [IN_GONE] = { SLOT_ABSENT, DO_NOTHING },
        [IN_LOST] = { SLOT_ABSENT, DO_NOTHING },
        [IN_STOP] = { SLOT_LEAVING, DO_FINISH_EXECUTOR }, /* the job ends: no checkpoint */
        [IN_OVERDUE] = { SLOT_LEAVING, DO_STOP_CONTAINER },
        [IN_AGAIN] = { SLOT_LEAVING, DO_NOTHING },
        [IN_ABANDON] = { SLOT_ABSENT, DO_NOTHING },
        [IN_LEAVE] = { SLOT_LEAVING, DO_NOTHING },
        [IN_REISSUE] = { SLOT_LEAVING, DO_NOTHING }, /* its executor reconnects, or is overdue */
    },
    [SLOT_STOPPING] = {
        [IN_REGISTER] = { SLOT_STOPPING, DO_FINISH_EXECUTOR },
        [IN_READY] = { SLOT_STOPPING, DO_FINISH_EXECUTOR },
        [IN_RETURN] = { SLOT_STOPPING, DO_STOP_ATTEMPT },
        [IN_END] = { SLOT_DRAINING, DO_NOTHING },
        [IN_GONE] = { SLOT_ENDED, DO_NOTHING },
        [IN_STOP] = { SLOT_STOPPING, DO_NOTHING },
        [IN_OVERDUE] = { SLOT_STOPPING, DO_STOP_CONTAINER },
        [IN_AGAIN] = { SLOT_REPLACING, DO_NOTHING },
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_LEAVE] = { SLOT_LEAVING, DO_NOTHING },
        [IN_REISSUE] = { SLOT_STOPPING, DO_STOP_CONTAINER },
    },
    [SLOT_DRAINING] = {
        [IN_REGISTER] = { SLOT_DRAINING, DO_FINISH_EXECUTOR },
        [IN_READY] = { SLOT_DRAINING, DO_FINISH_EXECUTOR },
        [IN_RETURN] = { SLOT_DRAINING, DO_FINISH_EXECUTOR }, /* it never got the acknowledgement */
        [IN_GONE] = { SLOT_ENDED, DO_NOTHING },
        [IN_STOP] = { SLOT_DRAINING, DO_NOTHING },
        [IN_OVERDUE] = { SLOT_DRAINING, DO_STOP_CONTAINER },
        [IN_AGAIN] = { SLOT_REPLACING, DO_FINISH_EXECUTOR }, /* it may not have been told to exit */
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_LEAVE] = { SLOT_LEAVING, DO_FINISH_EXECUTOR },
        [IN_REISSUE] = { SLOT_DRAINING, DO_STOP_CONTAINER },
    },
    [SLOT_ENDED] = {
        [IN_STOP] = { SLOT_ENDED, DO_NOTHING },
        [IN_AGAIN] = { SLOT_HELD, DO_NOTHING },
        [IN_DROP] = { SLOT_REPLACING, DO_FINISH_EXECUTOR }, /* its attempt may run (given_up) */
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_LEAVE] = { SLOT_ABSENT, DO_NOTHING },
        [IN_REISSUE] = { SLOT_ENDED, DO_NOTHING },
    },
};

static const char *const input_names[IN_COUNT] = {
#define X(id, name) [id] = name,
    SLOT_INPUTS(X)
#undef X
};

static const char *const do_names[DO_COUNT] = {
    [DO_NOTHING] = "",
    [DO_ASK] = "ask",
    [DO_CANCEL] = "cancel",
    [DO_LAUNCH] = "launch",
    [DO_START] = "start",
    [DO_STOP_ATTEMPT] = "stop attempt",
    [DO_FINISH_EXECUTOR] = "finish executor",
    [DO_STOP_CONTAINER] = "stop container",
    [DO_RENEW] = "renew",
};

const char *slot_input_name(enum slot_input in)
{
    return input_names[in];
}

const char *slot_do_name(enum slot_do d)
{
    return do_names[d];
}

bool slot_settled(const struct slot *s)
{
    return s->result != RES_NONE;
}

bool slot_has_container(enum slot_state s)
{
    return s >= SLOT_PLACED && s <= SLOT_DRAINING;
}

void slot_done(struct slot *s)
{
    free(s->container);
    free(s->address);
    free(s->gpus);
    free(s->tensorboard);
    free(s->detail);
    free(s->tail);
    free(s->cause_line);
    free(s->tally.times);
    checkpoint_done(s);
}

bool slot_awaits_attempt(enum slot_state s)
{
    return s == SLOT_HELD || s == SLOT_ASKED || s == SLOT_PLACED || s == SLOT_HALTING ||
           s == SLOT_RENEWING || s == SLOT_REPLACING;
}

bool slot_restarts_alone(const struct job *j, const struct slot *s)
{
    return s->attempt && (job_is_sidecar(j, s->role) || s->generation == j->generation);
}

/* Add `by` (1 or -1) to all counters in which the slot is. */
static void change_counters(struct job *j, const struct slot *s, int by)
{
    struct role *r = &j->roles[s->role];
    uint32_t d = (uint32_t)by;

    if (!job_is_member(j, s)) {
        r->n_outside[s->state] += d;
        j->n_outside[s->state] += d;
        return;
    }
    r->n_state[s->state] += d;
    r->n_result[s->result] += d;
    r->n_settled += slot_settled(s) ? d : 0;
    if (!slot_restarts_alone(j, s)) {
        r->n_forming += slot_awaits_attempt(s->state) ? d : 0;
        r->n_set_up += s->state == SLOT_REGISTERED ? d : 0;
    }
    depends_count(r, s, by);
    if (s->role >= j->n_roles)
        return; /* the job's counters do not include spares */
    j->n_state[s->state] += d;
    if (r->awaited && !slot_settled(s))
        j->n_waited += d;
}

void slot_uncount(struct job *j, const struct slot *s)
{
    change_counters(j, s, -1);
}

void slot_count(struct job *j, const struct slot *s)
{
    change_counters(j, s, 1);
}

void slot_init(struct slot *s, uint32_t role, uint32_t index)
{
    *s = (struct slot){ .role = role,
                        .index = index,
                        .state = SLOT_ABSENT,
                        .stop_us = -1,
                        .started_ms = -1,
                        .ended_ms = -1,
                        .node = -1,
                        .quick = { -1, -1, -1 },
                        .lent_to = UINT32_MAX };
}

static void slot_move(struct job *j, struct slot *s, enum slot_state to)
{
    /* In SLOT_DRAINING the executor has reported the end of the attempt, so nothing lives on in the
     * container. In other states an attempt may live on: given_up stays set until a restart. */
    if (to == SLOT_HELD || to == SLOT_ABSENT || s->state == SLOT_DRAINING)
        s->given_up = false;
    s->state = to;
    s->since_ms = j->now_ms;
    s->stop_tries = 0;
    if (to != SLOT_HALTING && to != SLOT_LEAVING) {
        s->taken_ms = 0;
        s->leaves = false;
    }
    if (to == SLOT_ABSENT)
        checkpoint_leave(j, s);
    if (to == SLOT_ENDED || to == SLOT_HELD || to == SLOT_ABSENT)
        s->connected = s->suspect = false;
    if (to == SLOT_HELD || to == SLOT_RENEWING)
        s->stop_us = -1; /* the last stop does not concern the next attempt */
    if (to == SLOT_HELD || (to >= SLOT_HALTING && to <= SLOT_LEAVING))
        s->ready = false;
    j->changed = true;
}

void slot_keep_end(struct job *j, struct slot *s, const struct slot_end *end)
{
    s->reason = end->reason;
    s->rank = end->rank;
    s->exit_code = end->exit_code;
    s->signal = end->signal;
    s->note = end->note;
    if (end->detail && *end->detail && **end->detail) {
        free(s->detail);
        s->detail = event_take(end->detail);
    }
    if (end->tail && *end->tail && **end->tail) {
        free(s->tail);
        s->tail = event_take(end->tail);
    }
    s->ended_us = end->at_us;
    verdict_set_cause(j, s, end);
    s->ended_ms = MIN(MAX(end->at_us / 1000, MAX(s->started_ms, 0)), j->now_ms);
}

static void forget_end(struct slot *s)
{
    free(TAKE(s->detail));
    free(TAKE(s->tail));
    free(TAKE(s->cause_line));
    s->note = NOTE_NONE;
    s->reason = END_NONE;
    s->exit_code = s->signal = 0;
    s->rank = 0;
    s->cause = NULL;
    s->ended_ms = -1;
}

/* Set the slot's result. The first report of an end decides; later ones do not change the result.
 */
static void slot_settle(struct job *j, uint32_t slot, enum slot_state from,
                        const struct slot_end *end)
{
    struct slot *s = &j->slots[slot];

    slot_uncount(j, s);
    s->result = verdict_result(s, end);
    slot_count(j, s);
    slot_keep_end(j, s, end);
    j->check_groups = j->check_depends = true;
    j->changed = true;
    policy_settled(j, slot, from, end->at_us);
}

/* Remove the slot's result: it restarts or leaves. The caller updates the counters. */
static void slot_unsettle(struct job *j, struct slot *s)
{
    s->result = RES_NONE;
    s->stop_us = -1;
    j->changed = true;
}

void slot_allow(const struct job *j, int64_t taken_ms, struct act_stop_attempt *a)
{
    int64_t left_ms = MAX(taken_ms - j->now_ms, (int64_t)0);

    a->save_ms = (uint32_t)MIN(left_ms / 2, (int64_t)j->spec->checkpoint_grace_ms);
    a->grace_ms = (uint32_t)MIN(left_ms / 4, (int64_t)j->spec->kill_grace_ms);
}

static void emit_stop_attempt(struct job *j, uint32_t slot, uint32_t grace_ms)
{
    const struct slot *s = &j->slots[slot];
    struct act_stop_attempt *a = &job_act(j, ACT_STOP_ATTEMPT)->stop_attempt;

    *a = (struct act_stop_attempt){ .slot = slot,
                                    .generation = s->generation,
                                    .attempt = s->attempt,
                                    .wait_ms = j->wait_ms,
                                    .save_ms = j->save_ms,
                                    .grace_ms = grace_ms,
                                    .reason = END_KILLED_BY_MASTER };
    if (s->taken_ms)
        slot_allow(j, s->taken_ms, a);
}

static void slot_emit(struct job *j, uint32_t slot, enum slot_input in, enum slot_do what)
{
    const struct slot *s = &j->slots[slot];
    /* An overdue container has had its grace period already. */
    uint32_t grace_ms = in == IN_OVERDUE ? 0 : j->spec->kill_grace_ms;

    switch (what) {
    case DO_ASK:
        job_act(j, ACT_ASK)->ask.slot = slot;
        break;
    case DO_CANCEL:
        job_act(j, ACT_CANCEL)->cancel.slot = slot;
        break;
    case DO_LAUNCH:
        job_act(j, ACT_LAUNCH)->launch = (struct act_launch){ slot, s->container };
        break;
    case DO_START:
        job_act(j, ACT_START)->start = (struct act_start){ slot, s->generation, s->attempt };
        break;
    case DO_STOP_ATTEMPT:
        emit_stop_attempt(j, slot, grace_ms);
        break;
    case DO_FINISH_EXECUTOR:
        job_act(j, ACT_FINISH_EXECUTOR)->finish_executor =
            (struct act_finish_executor){ slot, s->container, grace_ms };
        break;
    case DO_STOP_CONTAINER:
        job_act(j, ACT_STOP_CONTAINER)->stop_container =
            (struct act_stop_container){ slot, s->container, grace_ms };
        break;
    case DO_RENEW:
        job_act(j, ACT_RENEW)->renew =
            (struct act_renew){ slot, j->generation, s->generation != j->generation };
        break;
    case DO_NOTHING:
    case DO_COUNT:
        break;
    }
}

/* Begin the next attempt: count it, and clear everything that describes the last one. */
static void begin_attempt(struct job *j, struct slot *s)
{
    forget_end(s);
    s->stop_us = -1;
    s->ready = false;
    j->gates_moved = true;
    s->generation = j->generation;
    if (s->attempts_before >
        s->attempt) { /* these attempts of the task were those of another slot */
        s->elsewhere += s->attempts_before - s->attempt;
        s->attempt = s->attempts_before;
    }
    s->attempt++;
    checkpoint_begin(j, s);
    s->started_ms = j->now_ms;
    s->step = s->total = s->first_step = 0;
    s->first_ms = s->step_ms = 0;
    if (j->started_ms < 0)
        j->started_ms = j->now_ms;
}

/* After a step: update the limits, the list of mend.c and the stages, which depend on states. */
static void after_move(struct job *j, uint32_t slot, enum slot_state from, enum slot_state to)
{
    const struct slot *s = &j->slots[slot];
    const struct role *r = &j->roles[s->role];

    limits_slot(j, slot);
    if (from == SLOT_ASKED || to == SLOT_ASKED)
        limits_asked_slots(j);
    if (to == from)
        return;
    if (j->gang.gives_back)
        limits_gang(j);
    mend_look_at(j, slot);
    if (to == SLOT_ENDED && r->n_state[SLOT_ENDED] == r->n)
        policy_role_over(j, s->role);
}

/* An attempt may still run in the container of an ended slot (given_up). The job normally does not
 * wait for its end, but must wait before the slot restarts or leaves. Does this input restart the
 * slot, or make it leave? */
static bool must_wait_first(const struct slot *s, enum slot_input in)
{
    return s->state == SLOT_ENDED && s->given_up && (in == IN_AGAIN || in == IN_LEAVE);
}

int slot_step(struct job *j, uint32_t slot, enum slot_input in, const struct slot_end *end,
              struct err *e)
{
    struct slot *s = &j->slots[slot];

    if (must_wait_first(s, in))
        (void)slot_step(j, slot, IN_DROP, NULL, NULL); /* SLOT_ENDED accepts IN_DROP */
    enum slot_state from = s->state;
    const struct slot_cell *cell = &slot_table[from][in];

    if (cell->to == SLOT_NONE)
        return job_refuse(e, EPROTO, "slot '" SLOT_NAME "' is %s: '%s' is impossible now",
                          SLOT_ARGS(j, slot), slot_state_name(from), slot_input_name(in));
    bool stops = in == IN_STOP || in == IN_AGAIN || in == IN_LEAVE;
    if (stops && s->stop_us < 0)
        s->stop_us = j->now_ms * 1000;
    slot_uncount(j, s);
    if ((in == IN_AGAIN || in == IN_LEAVE || in == IN_DROP) && slot_settled(s))
        slot_unsettle(j, s);
    if (in == IN_START)
        begin_attempt(j, s);
    if (in == IN_GRANT)
        j->gang.granted_ms = j->now_ms;
    if (cell->to != from)
        slot_move(j, s, cell->to);
    if (in == IN_STOP) /* the time to save a checkpoint is over */
        s->taken_ms = 0;
    slot_count(j, s);
    if (from == SLOT_ENDED && cell->to != SLOT_ENDED && cell->to != SLOT_ABSENT)
        resize_slot_restarts(j);
    slot_emit(j, slot, in, cell->act);
    if (end && !slot_settled(s) && (cell->to >= SLOT_DRAINING || in == IN_SILENT))
        slot_settle(j, slot, from, end);
    after_move(j, slot, from, cell->to);
    return 0;
}
