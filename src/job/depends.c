/*
 * Whose tasks have to wait for those of others, and who is stopped by whose end. That a role is not
 * even asked for before others are over is a matter of counters in policy.c; here are the roles
 * that have their containers and begin when others have started or are ready.
 *
 * Nothing is remembered but what each slot knows: where a role begins again, those that begin again
 * with it wait again, and those that run do not.
 */
#include "job/job_int.h"

/* What was stopped because its work is no longer needed is nothing to wait for. */
static bool ended_well(const struct slot *s)
{
    return s->result == RES_SUCCEEDED || s->result == RES_FINISHED;
}

static bool is_met(const struct slot *s, bool ready)
{
    if (ended_well(s))
        return true;
    if (ready)
        return s->ready;
    return slot_settled(s) ? s->attempt > 0 : s->state == SLOT_RUNNING || s->state == SLOT_STOPPING;
}

static const struct slot *first_unmet(const struct job *j, const struct role_gate *g)
{
    const struct role *r = &j->roles[g->role];

    for (uint32_t i = r->first; i < r->first + r->n; i++) {
        if (!is_met(&j->slots[i], g->ready))
            return &j->slots[i];
    }
    return NULL;
}

bool depends_open(const struct job *j, uint32_t role)
{
    if (!j->has_gates || role >= j->n_roles)
        return true;
    const struct role_spec *spec = job_role_spec(j, role);
    for (size_t i = 0; i < spec->n_gates; i++) {
        if (first_unmet(j, &spec->gates[i]))
            return false;
    }
    return true;
}

/* ---- what can never be ---- */

/* One of its tasks has an end that stands and did not become what is waited for. */
static int64_t in_vain(const struct job *j, uint32_t role, bool gate, bool ready)
{
    const struct role *r = &j->roles[role];

    if (!r->n_result[RES_FAILED] && !r->n_result[RES_LOST])
        return JOB_NO_SLOT;
    for (uint32_t i = r->first; i < r->first + r->n; i++) {
        const struct slot *s = &j->slots[i];
        if (slot_settled(s) && !ended_well(s) && !(gate && is_met(s, ready)))
            return i;
    }
    return JOB_NO_SLOT;
}

static bool waits_to_begin(const struct role *r)
{
    static const enum slot_state before[] = { SLOT_HELD,       SLOT_ASKED,   SLOT_PLACED,
                                              SLOT_REGISTERED, SLOT_HALTING, SLOT_RENEWING,
                                              SLOT_REPLACING };

    for (size_t i = 0; i < ARRAY_LEN(before); i++) {
        if (r->n_state[before[i]])
            return true;
    }
    return false;
}

/* Of a sidecar that cannot begin nobody takes notice, unless somebody waits for it in turn. */
static bool matters(const struct job *j, uint32_t role)
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

static void fail_blocked(struct job *j, uint32_t role, uint32_t on, const char *to, int64_t slot)
{
    char why[300];

    verdict_sentence(j, (uint32_t)slot, why, sizeof why);
    j->by_task = j->cause.slot >= 0;
    j->own_words = true;
    policy_decide(j, JOB_FAILED, "role '%s' cannot begin, since it waits for '%s' to %s: %s",
                  job_role_name(j, role), job_role_name(j, on), to, why);
}

static void check_blocked(struct job *j, uint32_t role)
{
    const struct role_spec *spec = job_role_spec(j, role);
    bool held = j->roles[role].n_state[SLOT_HELD] > 0 && j->roles[role].n_unmet > 0;

    for (size_t i = 0; i < spec->n_needs && held && !j->decided; i++) {
        int64_t slot = in_vain(j, spec->needs[i], false, false);
        if (slot >= 0 && matters(j, role))
            fail_blocked(j, role, spec->needs[i], "succeed", slot);
    }
    for (size_t i = 0; i < spec->n_gates && !j->decided; i++) {
        const struct role_gate *g = &spec->gates[i];
        int64_t slot = in_vain(j, g->role, true, g->ready);
        if (slot >= 0 && matters(j, role))
            fail_blocked(j, role, g->role, g->ready ? "become ready" : "start", slot);
    }
}

/* ---- who is stopped by whose end ---- */

static void stop_role(struct job *j, uint32_t role)
{
    struct role *r = &j->roles[role];
    struct slot_end end = { .reason = END_KILLED_BY_MASTER,
                            .at_us = j->now_ms * 1000,
                            .note = "the role was stopped by the end of another one" };

    r->stopped = true;
    for (uint32_t i = r->first; i < r->first + r->n; i++) {
        if (!slot_settled(&j->slots[i]))
            (void)slot_step(j, i, IN_STOP, &end, NULL); /* every state takes it */
    }
}

void depends_check(struct job *j)
{
    bool again = j->check_depends && !j->spec->single_node;

    for (uint32_t pass = 0; again && pass <= j->n_roles; pass++) { /* a chain: a stops b stops c */
        j->check_depends = false;
        for (uint32_t r = 0; r < j->n_roles; r++) {
            const struct role_spec *spec = job_role_spec(j, r);
            bool over = spec->n_stops && j->roles[r].n && j->roles[r].n_settled == j->roles[r].n;
            for (size_t i = 0; i < spec->n_stops && over; i++)
                stop_role(j, spec->stops[i]);
        }
        again = j->check_depends; /* one that had not begun is over at once */
    }
    j->check_depends = false;
    for (uint32_t r = 0; r < j->n_roles && !j->decided && !j->spec->single_node; r++) {
        if (waits_to_begin(&j->roles[r]))
            check_blocked(j, r);
    }
}

/* ---- for people ---- */

static void add_wait(const struct job *j, struct buf *out, uint32_t on, const char *to)
{
    (void)buf_addf(out, "%s'%s' to %s", out->len ? ", " : "", job_role_name(j, on), to);
}

static bool needs(const struct role_spec *spec, uint32_t role)
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

    if (j->spec->single_node || j->decided || !waits_to_begin(r))
        return false;
    for (size_t i = 0; i < spec->n_waits_for && r->n_unmet; i++) {
        const struct role *on = &j->roles[spec->waits_for[i]];
        if (on->n_state[SLOT_ENDED] < on->n)
            add_wait(j, out, spec->waits_for[i],
                     needs(spec, spec->waits_for[i]) ? "succeed" : "end");
    }
    for (size_t i = 0; i < spec->n_gates && r->n_state[SLOT_REGISTERED]; i++) {
        if (first_unmet(j, &spec->gates[i]))
            add_wait(j, out, spec->gates[i].role, spec->gates[i].ready ? "be ready" : "start");
    }
    return out->len > 0;
}
