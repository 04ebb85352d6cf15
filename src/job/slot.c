/*
 * The state table of a slot. slot_step() is the only function that changes a slot's state.
 */
#include <errno.h>
#include <stdlib.h>

#include "job/job_int.h"

/* Read: a slot that is <row>, when <input> happens, becomes .to, and .act is asked for. What is not
 * here is refused. */
const struct slot_cell slot_table[SLOT_STATE_COUNT][IN_COUNT] = {
    [SLOT_HELD] = {
        [IN_WANT] = { SLOT_ASKED, DO_ASK },
        [IN_GRANT] = { SLOT_PLACED, DO_LAUNCH }, /* seen by a new master whose journal lacks the ask */
        [IN_STOP] = { SLOT_ENDED, DO_NOTHING },
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_AGAIN] = { SLOT_HELD, DO_NOTHING },
        [IN_TAKE] = { SLOT_REGISTERED, DO_NOTHING },
        [IN_REISSUE] = { SLOT_HELD, DO_NOTHING },
    },
    [SLOT_ASKED] = {
        [IN_GRANT] = { SLOT_PLACED, DO_LAUNCH },
        [IN_REFUSE] = { SLOT_ENDED, DO_NOTHING },
        [IN_YIELD] = { SLOT_HELD, DO_CANCEL },
        [IN_STOP] = { SLOT_ENDED, DO_NOTHING }, /* a container that comes now is given back */
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_AGAIN] = { SLOT_ASKED, DO_NOTHING },
        [IN_REISSUE] = { SLOT_ASKED, DO_ASK },
    },
    [SLOT_PLACED] = {
        [IN_REGISTER] = { SLOT_REGISTERED, DO_NOTHING },
        [IN_GONE] = { SLOT_ENDED, DO_NOTHING },
        [IN_STOP] = { SLOT_STOPPING, DO_STOP_CONTAINER },
        [IN_SILENT] = { SLOT_STOPPING, DO_STOP_CONTAINER },
        [IN_YIELD] = { SLOT_HELD, DO_STOP_CONTAINER }, /* no task runs in it: nobody waits for its end */
        [IN_LOST] = { SLOT_HELD, DO_NOTHING },
        [IN_DROP] = { SLOT_REPLACING, DO_STOP_CONTAINER },
        [IN_AGAIN] = { SLOT_PLACED, DO_NOTHING },
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_REISSUE] = { SLOT_PLACED, DO_LAUNCH },
    },
    [SLOT_REGISTERED] = {
        [IN_REGISTER] = { SLOT_REGISTERED, DO_NOTHING },
        [IN_READY] = { SLOT_REGISTERED, DO_NOTHING },
        [IN_START] = { SLOT_RUNNING, DO_START },
        [IN_RETURN] = { SLOT_REGISTERED, DO_NOTHING },
        [IN_END] = { SLOT_DRAINING, DO_NOTHING }, /* it could not even prepare */
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
        [IN_REISSUE] = { SLOT_REGISTERED, DO_NOTHING },
    },
    [SLOT_RUNNING] = {
        [IN_REGISTER] = { SLOT_RUNNING, DO_START }, /* the start was lost with the old master */
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
        [IN_REISSUE] = { SLOT_RUNNING, DO_NOTHING },
    },
    [SLOT_HALTING] = {
        [IN_REGISTER] = { SLOT_HALTING, DO_RENEW }, /* the start was lost: nothing runs */
        [IN_READY] = { SLOT_REGISTERED, DO_NOTHING },
        [IN_RETURN] = { SLOT_HALTING, DO_STOP_ATTEMPT },
        [IN_RETRY] = { SLOT_RENEWING, DO_RENEW },
        [IN_GONE] = { SLOT_ENDED, DO_NOTHING },
        [IN_LOST] = { SLOT_HELD, DO_NOTHING },
        [IN_DROP] = { SLOT_REPLACING, DO_STOP_CONTAINER },
        [IN_STOP] = { SLOT_STOPPING, DO_NOTHING }, /* it was told */
        [IN_OVERDUE] = { SLOT_REPLACING, DO_STOP_CONTAINER },
        [IN_AGAIN] = { SLOT_HALTING, DO_NOTHING },
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_REISSUE] = { SLOT_HALTING, DO_NOTHING }, /* its executor comes back, or is overdue */
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
        [IN_REISSUE] = { SLOT_RENEWING, DO_NOTHING }, /* its executor comes back, or is silent */
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
        [IN_REISSUE] = { SLOT_REPLACING, DO_STOP_CONTAINER },
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
        [IN_REISSUE] = { SLOT_STOPPING, DO_STOP_CONTAINER },
    },
    [SLOT_DRAINING] = {
        [IN_REGISTER] = { SLOT_DRAINING, DO_FINISH_EXECUTOR },
        [IN_READY] = { SLOT_DRAINING, DO_FINISH_EXECUTOR },
        [IN_RETURN] = { SLOT_DRAINING, DO_FINISH_EXECUTOR }, /* our acknowledgement was lost */
        [IN_GONE] = { SLOT_ENDED, DO_NOTHING },
        [IN_STOP] = { SLOT_DRAINING, DO_NOTHING },
        [IN_OVERDUE] = { SLOT_DRAINING, DO_STOP_CONTAINER },
        [IN_AGAIN] = { SLOT_REPLACING, DO_FINISH_EXECUTOR }, /* if it was not sent away yet */
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
        [IN_REISSUE] = { SLOT_DRAINING, DO_STOP_CONTAINER },
    },
    [SLOT_ENDED] = {
        [IN_STOP] = { SLOT_ENDED, DO_NOTHING },
        [IN_AGAIN] = { SLOT_HELD, DO_NOTHING },
        [IN_ABANDON] = { SLOT_ENDED, DO_NOTHING },
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

static const enum job_action_type do_actions[DO_COUNT] = {
    [DO_NOTHING] = ACT_NONE,
    [DO_ASK] = ACT_ASK,
    [DO_CANCEL] = ACT_CANCEL,
    [DO_LAUNCH] = ACT_LAUNCH,
    [DO_START] = ACT_START,
    [DO_STOP_ATTEMPT] = ACT_STOP_ATTEMPT,
    [DO_FINISH_EXECUTOR] = ACT_FINISH_EXECUTOR,
    [DO_STOP_CONTAINER] = ACT_STOP_CONTAINER,
    [DO_RENEW] = ACT_RENEW,
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
    free(s->tally.times);
    checkpoint_done(s);
}

/* Spares are not among those that the job waits for, in any sense: only their own role counts them.
 */
static void slot_move(struct job *j, struct slot *s, enum slot_state to)
{
    struct role *r = &j->roles[s->role];

    r->n_state[s->state]--;
    r->n_state[to]++;
    if (s->role < j->n_roles) {
        j->n_state[s->state]--;
        j->n_state[to]++;
    }
    s->state = to;
    s->since_ms = j->now_ms;
    s->stop_tries = 0;
    if (to != SLOT_HALTING) {
        s->taken_ms = 0;
        s->leaves = false;
    }
    if (to == SLOT_ENDED || to == SLOT_HELD)
        s->connected = s->suspect = s->given_up = false;
    if (to == SLOT_HELD || to == SLOT_RENEWING)
        s->stop_us = -1; /* what comes now is another attempt */
    if (to == SLOT_HELD || (to >= SLOT_HALTING && to <= SLOT_REPLACING))
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
        s->detail = TAKE(*end->detail);
    }
    if (end->tail && *end->tail && **end->tail) {
        free(s->tail);
        s->tail = TAKE(*end->tail);
    }
    s->ended_us = end->at_us;
    s->known = verdict_known(j, s);
    s->ended_ms = MIN(MAX(end->at_us / 1000, MAX(s->started_ms, 0)), j->now_ms);
}

static void forget_end(struct slot *s)
{
    free(TAKE(s->detail));
    free(TAKE(s->tail));
    s->note = NULL;
    s->reason = END_NONE;
    s->exit_code = s->signal = 0;
    s->rank = 0;
    s->known = NULL;
    s->ended_ms = -1;
}

/* The result stands from here on: the first report of an end decides. */
static void slot_settle(struct job *j, uint32_t slot, enum slot_state from,
                        const struct slot_end *end)
{
    struct slot *s = &j->slots[slot];
    struct role *r = &j->roles[s->role];

    s->result = verdict_result(s, end);
    slot_keep_end(j, s, end);
    r->n_result[s->result]++;
    r->n_settled++;
    if (r->awaited)
        j->n_waited--;
    j->check_groups = j->check_depends = true;
    j->changed = true;
    policy_settled(j, slot, from, end->at_us);
}

/* It begins again: what it has achieved or failed does not count. */
static void slot_unsettle(struct job *j, struct slot *s)
{
    struct role *r = &j->roles[s->role];

    r->n_result[s->result]--;
    r->n_settled--;
    if (r->awaited)
        j->n_waited++;
    s->result = RES_NONE;
    s->stop_us = -1;
    j->changed = true;
}

void slot_allow(const struct job *j, int64_t taken_ms, struct job_action *a)
{
    int64_t left_ms = MAX(taken_ms - j->now_ms, (int64_t)0);

    a->save_ms = (uint32_t)MIN(left_ms / 2, (int64_t)j->spec->checkpoint_grace_ms);
    a->grace_ms = (uint32_t)MIN(left_ms / 4, (int64_t)j->spec->kill_grace_ms);
}

static void slot_emit(struct job *j, uint32_t slot, enum slot_input in, enum slot_do what)
{
    const struct slot *s = &j->slots[slot];

    if (what == DO_NOTHING)
        return;
    struct job_action *a = job_act(j, do_actions[what], slot);
    a->generation = s->generation;
    a->attempt = s->attempt;
    a->container = what == DO_ASK || what == DO_CANCEL ? NULL : s->container;
    a->reason = END_KILLED_BY_MASTER;
    if (what == DO_RENEW) {
        a->fresh = s->generation != j->generation;
        a->generation = j->generation;
    }
    /* what had its grace and did not use it gets none again */
    a->grace_ms = in == IN_OVERDUE ? 0 : j->spec->kill_grace_ms;
    a->save_ms = j->save_ms;
    a->wait_ms = j->wait_ms;
    if (s->taken_ms && what == DO_STOP_ATTEMPT)
        slot_allow(j, s->taken_ms, a);
}

int slot_step(struct job *j, uint32_t slot, enum slot_input in, const struct slot_end *end,
              struct err *e)
{
    struct slot *s = &j->slots[slot];
    enum slot_state from = s->state;
    const struct slot_cell *cell = &slot_table[from][in];

    if (cell->to == SLOT_NONE) {
        (void)err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: '%s' is impossible now",
                      SLOT_ARGS(j, slot), slot_state_name(from), slot_input_name(in));
        return 1;
    }
    if ((in == IN_STOP || in == IN_AGAIN) && s->stop_us < 0)
        s->stop_us = j->now_ms * 1000;
    if (in == IN_AGAIN && slot_settled(s))
        slot_unsettle(j, s);
    if (in == IN_START) {
        forget_end(s);
        s->stop_us = -1;
        s->ready = false;
        j->gates_moved = true;
        s->generation = j->generation;
        s->attempt++;
        s->started_ms = j->now_ms;
        s->step = s->total = s->first_step = 0;
        s->first_ms = s->step_ms = 0;
        if (j->started_ms < 0)
            j->started_ms = j->now_ms;
    }
    if (in == IN_GRANT)
        j->granted_ms = j->now_ms;
    if (cell->to != from)
        slot_move(j, s, cell->to);
    slot_emit(j, slot, in, cell->act);
    if (end && !slot_settled(s) && (cell->to >= SLOT_DRAINING || in == IN_SILENT))
        slot_settle(j, slot, from, end);
    limits_slot(j, slot);
    if (from == SLOT_ASKED || cell->to == SLOT_ASKED)
        limits_asked(j);
    if (j->gives_back && cell->to != from)
        limits_gang(j);
    if (from != SLOT_ENDED && cell->to == SLOT_ENDED &&
        j->roles[s->role].n_state[SLOT_ENDED] == j->roles[s->role].n)
        policy_role_over(j, s->role);
    return 0;
}
