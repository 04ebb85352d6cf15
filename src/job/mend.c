/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mending: brings restarting slots to their next attempt. Such a slot
 *   - requests a container, or takes that of a spare
 *   - waits until its pause is over, and until the slots that restart with it have registered
 *   - starts its next attempt
 *
 * Cost: mend_run() runs after each event while slots restart, so it must not visit all slots. It
 * uses counters (struct role), and visits the slots in a list that slot_step() fills. It visits the
 * slots of a gang, or of a forming role, only when none of them still has to register.
 */
#include <errno.h>
#include <stdlib.h>

#include "job/job_int.h"

/* ---- restarts.todo, the list of slots that mend_run() must look at ---- */

static void add_to_list(struct job *j, uint32_t slot)
{
    struct slot *s = &j->slots[slot];

    if (s->queued)
        return;
    s->queued = true;
    j->restarts.todo.v[j->restarts.todo.n++] = slot; /* job_reserve_slots() made room */
}

void mend_look_at(struct job *j, uint32_t slot)
{
    enum slot_state state = j->slots[slot].state;

    if (state != SLOT_REGISTERED) /* only registered slots wait for the end of a pause */
        deadlines_set(&j->restarts.pauses, slot, INT64_MAX);
    if (state == SLOT_HELD || state == SLOT_REGISTERED)
        add_to_list(j, slot);
}

void mend_look_at_all(struct job *j)
{
    j->restarts.look_at_all = true;
}

static void list_all(struct job *j)
{
    j->restarts.look_at_all = false;
    for (uint32_t i = j->n_slots; i-- > 0;) /* mend_run() takes slots from the end of the list */
        mend_look_at(j, i);
}

/* ---- containers ---- */

/* Give the spare's container, with its executor, to the slot. */
static void take_container(struct job *j, uint32_t slot, uint32_t spare_slot)
{
    struct slot *s = &j->slots[slot], *spare = &j->slots[spare_slot];
    struct slot_end end = { .reason = END_KILLED_BY_MASTER, .at_us = j->now_ms * 1000 };

    free(s->container);
    free(s->address);
    free(s->gpus);
    s->container = TAKE(spare->container);
    s->address = TAKE(spare->address);
    s->gpus = TAKE(spare->gpus);
    s->node = spare->node;
    s->tb_port = spare->tb_port;
    s->pid = spare->pid;
    s->beat_ms = spare->beat_ms;
    s->left_ms = spare->left_ms;
    s->moved = true;
    s->elsewhere = s->attempt;
    spare->lent_to = slot;
    bool connected = spare->connected;
    (void)slot_step(j, spare_slot, IN_LEND, &end, NULL);
    (void)slot_step(j, slot, IN_TAKE, NULL, NULL);
    s->connected = connected;
    job_act(j, ACT_TAKE)->take =
        (struct act_take){ .slot = slot, .container = s->container, .from = spare_slot };
}

/* Give the slot the container of a registered spare of its role. false: there is none. */
static bool take_spare(struct job *j, uint32_t slot)
{
    for (uint32_t r = j->n_roles; r < j->n_all_roles; r++) {
        if (j->roles[r].of != j->slots[slot].role || !j->roles[r].n_state[SLOT_REGISTERED])
            continue;
        FOR_MEMBERS(j, r, i)
        {
            if (j->slots[i].state == SLOT_REGISTERED) {
                take_container(j, slot, i);
                return true;
            }
        }
    }
    return false;
}

/* Get a container for the slot, unless the gang pauses. After that pause, policy_ask_again() calls
 * mend_look_at_all(). */
static void get_container(struct job *j, uint32_t slot)
{
    if (j->gang.pause_due_ms == INT64_MAX && job_is_wanted(j, &j->slots[slot]) &&
        !take_spare(j, slot))
        (void)slot_step(j, slot, IN_WANT, NULL, NULL);
}

/* ---- starts ---- */

/* The state of one call of mend_run(). */
struct mend {
    int64_t next_ms;    /* the end of the next pause */
    bool synced;        /* ACT_SYNC was added */
    bool peers_changed; /* running tasks need the new addresses (ACT_PEERS) */
};

static void start(struct job *j, uint32_t slot, struct mend *m)
{
    if (!m->synced && j->gang.gives_back)
        (void)job_act(j, ACT_SYNC); /* a later master must know of every attempt that runs */
    m->synced = true;
    (void)slot_step(j, slot, IN_START, NULL, NULL);
}

bool mend_may_old_be_alive(const struct job *j)
{
    return j->n_state[SLOT_HALTING] || j->n_state[SLOT_REPLACING] || j->n_outside[SLOT_LEAVING];
}

/* Is the slot registered, and need it not wait for its gang or for an older generation? */
static bool may_start(const struct job *j, uint32_t slot)
{
    const struct slot *s = &j->slots[slot];
    bool alone = slot_restarts_alone(j, s);

    return s->state == SLOT_REGISTERED && job_is_task(j, slot) && job_is_wanted(j, s) &&
           !j->roles[s->role].forming && (alone || (!j->spec->gang && !mend_may_old_be_alive(j)));
}

/* Start the slot, if it need not wait for its gang, for an older generation, for other roles, or
 * for the end of its pause. */
static void try_start(struct job *j, uint32_t slot, struct mend *m)
{
    const struct slot *s = &j->slots[slot];

    if (!may_start(j, slot))
        return;
    if (!depends_open(j, s->role)) {
        j->roles[s->role].gated = true;
        return;
    }
    if (s->due_ms > j->restarts.paused_ms) {
        deadlines_set(&j->restarts.pauses, slot, s->due_ms);
        return;
    }
    m->peers_changed = true;
    start(j, slot, m);
}

static int descending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* Look at the listed slots in the order of their ids, since the first one may get the only spare. A
 * job that was restored from a snapshot may have another list, but must come to the same result. */
static void look_at_listed(struct job *j, struct mend *m)
{
    struct restarts *r = &j->restarts;

    if (r->todo.n > 1)
        qsort(r->todo.v, r->todo.n, sizeof *r->todo.v, descending);
    while (r->todo.n) {
        uint32_t slot = r->todo.v[--r->todo.n];
        struct slot *s = &j->slots[slot];
        s->queued = false;
        if (!job_is_task(j, slot))
            continue;
        if (s->state == SLOT_HELD)
            get_container(j, slot);
        try_start(j, slot, m);
    }
}

/* ---- groups that start together ---- */

/* A group is either a forming role, by its number, or the whole gang without the forming roles. */
enum { WHOLE_GANG = -1 };

static bool is_in_group(const struct job *j, uint32_t role, int64_t group)
{
    if (!j->roles[role].n || j->roles[role].n_unmet)
        return false;
    return group >= 0 ? role == group : !j->roles[role].forming;
}

bool mend_has_unregistered(const struct role *r)
{
    for (int state = SLOT_NONE; state < SLOT_STATE_COUNT; state++)
        if (slot_awaits_attempt((enum slot_state)state) && r->n_state[state])
            return true;
    return false;
}

/* Is the slot registered, and does it start together with the group? */
static bool starts_with(const struct job *j, const struct slot *s, int64_t group)
{
    return s->state == SLOT_REGISTERED && (group >= 0 || !slot_restarts_alone(j, s));
}

/* Does the role belong to a later stage, and may an attempt of it still be alive? That is possible
 * when the whole job restarts from its first stage. */
static bool may_later_stage_be_alive(const struct job *j, uint32_t role)
{
    const struct role *r = &j->roles[role];

    return r->n_unmet && !job_is_sidecar(j, role) &&
           (r->n_state[SLOT_HALTING] || r->n_state[SLOT_REPLACING]);
}

/* Can the group start? It can if none of its slots still has to register, no attempt of an older
 * generation may be alive, and a role that need not wait for others has registered slots. */
static bool is_complete(const struct job *j, int64_t group)
{
    bool has_startable = false;

    if (group < 0 && j->n_outside[SLOT_LEAVING])
        return false; /* an attempt of the old generation may be alive */
    for (uint32_t r = 0; r < j->n_roles; r++) {
        const struct role *role = &j->roles[r];
        if (group < 0 && may_later_stage_be_alive(j, r))
            return false;
        if (!is_in_group(j, r, group))
            continue;
        if (group >= 0 ? mend_has_unregistered(role) : role->n_forming > 0)
            return false;
        has_startable |=
            (group >= 0 ? role->n_state[SLOT_REGISTERED] : role->n_set_up) && depends_open(j, r);
    }
    return has_startable;
}

/* The latest end of the pauses of the group's slots; -1: no slot can start with the group. */
static int64_t group_due(const struct job *j, int64_t group)
{
    int64_t due_ms = -1;

    for (uint32_t r = 0; r < j->n_roles; r++) {
        if (!is_in_group(j, r, group) || !j->roles[r].n_state[SLOT_REGISTERED] ||
            !depends_open(j, r))
            continue;
        FOR_MEMBERS(j, r, i)
        {
            if (starts_with(j, &j->slots[i], group))
                due_ms = MAX(due_ms, MAX(j->slots[i].due_ms, (int64_t)0));
        }
    }
    return due_ms;
}

static void start_group(struct job *j, int64_t group, struct mend *m)
{
    if (group >= 0) {
        j->roles[group].forming = false;
        m->peers_changed = true;
    } else {
        j->gang.round = 0;
    }
    for (uint32_t r = 0; r < j->n_roles; r++) {
        if (!is_in_group(j, r, group) || !j->roles[r].n_state[SLOT_REGISTERED] ||
            !depends_open(j, r))
            continue;
        FOR_MEMBERS(j, r, i)
        {
            if (starts_with(j, &j->slots[i], group))
                start(j, i, m);
        }
    }
}

/* Start the group if it is complete and its pauses are over. While a complete group pauses, each
 * event visits all its slots. That is cheap enough: few events come in that time. */
static void try_start_group(struct job *j, int64_t group, struct mend *m)
{
    if (!is_complete(j, group))
        return;
    int64_t due_ms = group_due(j, group);
    if (due_ms > j->restarts.paused_ms)
        m->next_ms = MIN(m->next_ms, due_ms);
    else if (due_ms >= 0 && addresses_allow_start(j))
        start_group(j, group, m);
}

/* ---- after each event ---- */

/* When the first pause of a slot ends; INT64_MAX: no slot pauses. A slot that waits for something
 * else by now, such as the end of another attempt, has left its entry behind. A job that was
 * restored from a snapshot has no such entries, but must come to the same result: so they are
 * removed here. */
static int64_t next_pause(struct job *j)
{
    struct deadlines *pauses = &j->restarts.pauses;

    while (deadlines_next(pauses) != INT64_MAX) {
        uint32_t slot = pauses->heap[0];
        bool may = may_start(j, slot), open = depends_open(j, j->slots[slot].role);
        if (may && open)
            break;
        j->roles[j->slots[slot].role].gated |= may;
        deadlines_set(pauses, slot, INT64_MAX);
    }
    return deadlines_next(pauses);
}

/* Has a role whose stage has come a slot that must still register, or has registered but not
 * started? */
static bool must_go_on(const struct job *j)
{
    for (uint32_t r = 0; r < j->n_roles; r++) {
        const struct role *role = &j->roles[r];
        if (!role->n_unmet && (role->n_state[SLOT_REGISTERED] || mend_has_unregistered(role)))
            return true;
    }
    return false;
}

/* Roles whose gates have opened: list their registered slots, which waited at the gate. */
static void list_gated(struct job *j)
{
    for (uint32_t r = 0; r < j->n_roles && j->has_gates; r++) {
        if (!j->roles[r].gated || !depends_open(j, r))
            continue;
        j->roles[r].gated = false;
        FOR_MEMBERS(j, r, i)
        mend_look_at(j, i);
    }
}

void mend_run(struct job *j)
{
    struct mend m = { 0 };
    struct restarts *r = &j->restarts;
    bool old = mend_may_old_be_alive(j);

    if (r->look_at_all || (r->had_old && !old))
        list_all(j);
    r->had_old = old;
    do { /* tasks that have started may open the gates of other roles */
        m.next_ms = INT64_MAX;
        j->gates_moved = false;
        list_gated(j);
        look_at_listed(j, &m);
        for (uint32_t i = 0; i < j->n_roles; i++) {
            if (j->roles[i].forming)
                try_start_group(j, i, &m);
        }
        if (j->spec->gang)
            try_start_group(j, WHOLE_GANG, &m);
    } while (r->todo.n || (j->has_gates && j->gates_moved));
    if (m.peers_changed)
        (void)job_act(j, ACT_PEERS);
    r->mending = must_go_on(j);
    /* if no slot restarts any more, a pause can be left of a slot that has ended meanwhile */
    m.next_ms = r->mending ? MIN(m.next_ms, next_pause(j)) : INT64_MAX;
    if (r->due_ms != m.next_ms) {
        r->due_ms = m.next_ms;
        limits_job(j);
    }
}

int mend_fired(struct job *j, struct err *e)
{
    struct restarts *r = &j->restarts;

    if (!r->mending || r->due_ms > j->now_ms)
        return job_refuse(e, EPROTO, "no restart waits for the end of its pause");
    r->paused_ms = j->now_ms; /* policy_run() calls mend_run(), which starts the slots */
    while (deadlines_next(&r->pauses) <= j->now_ms) {
        uint32_t slot = r->pauses.heap[0];
        deadlines_set(&r->pauses, slot, INT64_MAX);
        mend_look_at(j, slot);
    }
    return 0;
}

void mend_spares(struct job *j)
{
    if (j->restarts.mending || !j->n_state[SLOT_RUNNING] || j->n_state[SLOT_ASKED] ||
        j->n_state[SLOT_PLACED] || j->n_state[SLOT_REGISTERED])
        return;
    for (uint32_t r = j->n_roles; r < j->n_all_roles; r++) {
        if (!j->roles[r].n_state[SLOT_HELD] || !j->roles[j->roles[r].of].n_state[SLOT_RUNNING])
            continue;
        FOR_MEMBERS(j, r, i)
        (void)slot_step(j, i, IN_WANT, NULL, NULL); /* refused if the slot is not SLOT_HELD */
    }
}
