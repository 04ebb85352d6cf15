/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dependencies between roles.
 *
 *   Stages  A role requests its containers only when other roles have ended. Counters in policy.c
 *           decide this (role.n_unmet).
 *   Gates   A role has its containers, but starts its tasks only when all tasks of another role
 *           have started, or are ready. This file decides it.
 *   Stops   When all tasks of a role have ended, other roles are stopped. This file does it.
 *
 * Whether a gate is open is computed from the states of the slots. So a task that restarts waits at
 * its gates again, and a task that runs does not.
 */
#include "job/job_int.h"

/* RES_FINISHED: tony stopped the task, since its work was no longer needed. */
static bool ended_well(const struct slot *s)
{
    return s->result == RES_SUCCEEDED || s->result == RES_FINISHED;
}

static bool counts_as_started(const struct slot *s)
{
    if (ended_well(s))
        return true;
    return slot_settled(s) ? s->attempt > 0 : s->state == SLOT_RUNNING || s->state == SLOT_STOPPING;
}

static bool counts_as_ready(const struct slot *s)
{
    return ended_well(s) || s->ready;
}

void depends_count(struct role *r, const struct slot *s, int by)
{
    r->n_started += counts_as_started(s) ? (uint32_t)by : 0;
    r->n_ready += counts_as_ready(s) ? (uint32_t)by : 0;
}

static bool gate_is_open(const struct job *j, const struct role_gate *g)
{
    const struct role *r = &j->roles[g->role];

    return (g->ready ? r->n_ready : r->n_started) == r->n;
}

bool depends_open(const struct job *j, uint32_t role)
{
    if (!j->has_gates || role >= j->n_roles)
        return true;
    const struct role_spec *spec = job_role_spec(j, role);
    for (size_t i = 0; i < spec->n_gates; i++) {
        if (!gate_is_open(j, &spec->gates[i]))
            return false;
    }
    return true;
}

/* ---- roles that can never start ---- */

/* A role waits for the tasks of another role: all of them must reach this. */
enum awaited_event { TO_SUCCEED, TO_START, TO_BE_READY };

static bool has_reached(const struct slot *s, enum awaited_event event)
{
    switch (event) {
    case TO_SUCCEED:
        return ended_well(s);
    case TO_START:
        return counts_as_started(s);
    case TO_BE_READY:
        return counts_as_ready(s);
    }
    return false;
}

/* A task of the role that has ended without reaching the event, and so never will; JOB_NO_SLOT =
 * there is none. */
static int64_t find_blocking(const struct job *j, uint32_t role, enum awaited_event event)
{
    const struct role *r = &j->roles[role];

    if (!r->n_result[RES_FAILED] && !r->n_result[RES_LOST])
        return JOB_NO_SLOT;
    FOR_MEMBERS(j, role, i)
    {
        const struct slot *s = &j->slots[i];
        if (slot_settled(s) && !has_reached(s, event))
            return i;
    }
    return JOB_NO_SLOT;
}

/* Has the role a task that still has to start its attempt? */
static bool has_unstarted(const struct role *r)
{
    return r->n_state[SLOT_REGISTERED] || mend_has_unregistered(r);
}

/* Must the job fail if this role cannot start? Not for a sidecar, unless another role waits for
 * it. */
static bool is_needed(const struct job *j, uint32_t role)
{
    if (!job_is_sidecar(j, role))
        return true;
    for (uint32_t r = 0; r < j->n_roles; r++) {
        const struct role_spec *spec = job_role_spec(j, r);
        for (size_t i = 0; i < spec->n_waits_for; i++) {
            if (spec->waits_for[i] == role)
                return true;
        }
        for (size_t i = 0; i < spec->n_gates; i++) {
            if (spec->gates[i].role == role)
                return true;
        }
    }
    return false;
}

/* If a task of the role `awaited` has ended without reaching the event, the job has failed. */
static void check_wait(struct job *j, uint32_t role, uint32_t awaited, enum awaited_event event)
{
    static const char *const words[] = {
        [TO_SUCCEED] = "succeed", [TO_START] = "start", [TO_BE_READY] = "become ready"
    };
    int64_t slot = find_blocking(j, awaited, event);
    char why[300];

    if (slot < 0 || !is_needed(j, role))
        return;
    verdict_sentence(j, (uint32_t)slot, why, sizeof why);
    j->by_task = j->failures.first.slot >= 0;
    j->own_words = true;
    policy_decide(j, JOB_FAILED, "role '%s' cannot begin, since it waits for '%s' to %s: %s",
                  job_role_name(j, role), job_role_name(j, awaited), words[event], why);
}

/* Check everything for which the role waits. */
static void check_waits(struct job *j, uint32_t role)
{
    const struct role_spec *spec = job_role_spec(j, role);
    bool waits_for_stage = j->roles[role].n_state[SLOT_HELD] > 0 && j->roles[role].n_unmet > 0;

    for (size_t i = 0; i < spec->n_needs && waits_for_stage && !j->decided; i++)
        check_wait(j, role, spec->needs[i], TO_SUCCEED);
    for (size_t i = 0; i < spec->n_gates && !j->decided; i++)
        check_wait(j, role, spec->gates[i].role, spec->gates[i].ready ? TO_BE_READY : TO_START);
}

/* ---- roles that the end of another role stops ---- */

static void stop_role(struct job *j, uint32_t role)
{
    struct role *r = &j->roles[role];
    struct slot_end end = { .reason = END_KILLED_BY_MASTER,
                            .at_us = j->now_ms * 1000,
                            .note = NOTE_ROLE_STOPPED };

    r->stopped = true;
    FOR_MEMBERS(j, role, i)
    {
        if (!slot_settled(&j->slots[i]))
            (void)slot_step(j, i, IN_STOP, &end, NULL); /* every state accepts it */
    }
}

/* Stop the roles that ended roles stop. */
static void stop_dependents(struct job *j)
{
    for (uint32_t r = 0; r < j->n_roles; r++) {
        const struct role_spec *spec = job_role_spec(j, r);
        bool over = spec->n_stops && j->roles[r].n && j->roles[r].n_settled == j->roles[r].n;
        for (size_t i = 0; i < spec->n_stops && over; i++)
            stop_role(j, spec->stops[i]);
    }
}

void depends_check(struct job *j)
{
    bool more = j->check_depends && !j->spec->single_node;

    /* Roles may form a chain: a stops b, and b stops c. If the tasks of b had not started, they are
     * settled at once; slot_step() then sets check_depends again, and the next pass stops c. */
    for (uint32_t pass = 0; more && pass <= j->n_roles; pass++) {
        j->check_depends = false;
        stop_dependents(j);
        more = j->check_depends;
    }
    j->check_depends = false;
    for (uint32_t r = 0; r < j->n_roles && !j->decided && !j->spec->single_node; r++) {
        if (has_unstarted(&j->roles[r]))
            check_waits(j, r);
    }
}

/* ---- for people ---- */

static void add_wait(const struct job *j, struct buf *out, uint32_t awaited, const char *verb)
{
    (void)buf_addf(out, "%s'%s' to %s", out->len ? ", " : "", job_role_name(j, awaited), verb);
}

/* Must the tasks of `role` succeed, not only end, before those of spec request containers? */
static bool needs_success(const struct role_spec *spec, uint32_t role)
{
    for (size_t i = 0; i < spec->n_needs; i++) {
        if (spec->needs[i] == role)
            return true;
    }
    return false;
}

bool depends_text(const struct job *j, uint32_t role, struct buf *out)
{
    const struct role_spec *spec = job_role_spec(j, role);
    const struct role *r = &j->roles[role];

    if (j->spec->single_node || j->decided || !has_unstarted(r))
        return false;
    for (size_t i = 0; i < spec->n_waits_for && r->n_unmet; i++) {
        const struct role *awaited = &j->roles[spec->waits_for[i]];
        if (awaited->n_state[SLOT_ENDED] < awaited->n)
            add_wait(j, out, spec->waits_for[i],
                     needs_success(spec, spec->waits_for[i]) ? "succeed" : "end");
    }
    for (size_t i = 0; i < spec->n_gates && r->n_state[SLOT_REGISTERED]; i++) {
        if (!gate_is_open(j, &spec->gates[i]))
            add_wait(j, out, spec->gates[i].role, spec->gates[i].ready ? "be ready" : "start");
    }
    return out->len > 0;
}
