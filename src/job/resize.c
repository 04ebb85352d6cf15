/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of a job's number of tasks. resize.h explains them. resize_demand.c has the demands of
 * the scheduler.
 */
#include "job/resize.h"

#include <errno.h>
#include <stdlib.h>

#include "codec/json.h"
#include "job/job_int.h"

int resize_init(struct job *j)
{
    struct resize *z = &j->resize;

    *z = (struct resize){ .state = RESIZE_STEADY, .due_ms = INT64_MAX };
    z->target = calloc((size_t)j->n_roles + 1, sizeof *z->target);
    z->from = calloc((size_t)j->n_roles + 1, sizeof *z->from);
    z->fallback = calloc((size_t)j->n_roles + 1, sizeof *z->fallback);
    z->to = calloc((size_t)j->n_roles + 1, sizeof *z->to);
    z->asked = calloc((size_t)j->n_roles + 1, sizeof *z->asked);
    z->room = calloc((size_t)j->n_roles + 1, sizeof *z->room);
    z->by_restart = calloc((size_t)j->n_roles + 1, sizeof *z->by_restart);
    z->bounds.for_role = calloc((size_t)j->n_roles + 1, sizeof *z->bounds.for_role);
    if (!z->target || !z->from || !z->fallback || !z->to || !z->asked || !z->room ||
        !z->by_restart || !z->bounds.for_role)
        return -ENOMEM;
    for (uint32_t r = 0; r < j->n_roles; r++)
        z->target[r] = z->from[r] = z->fallback[r] = j->roles[r].n;
    return 0;
}

void resize_done(struct job *j)
{
    free(j->resize.target);
    free(j->resize.from);
    free(j->resize.fallback);
    free(j->resize.to);
    free(j->resize.asked);
    free(j->resize.room);
    free(j->resize.by_restart);
    free(j->resize.bounds.for_role);
    free(j->resize.who);
    free(j->resize.why);
    free(j->resize.kept.why);
}

/* ---- the requested size: in z->asked, and checked before anything changes ---- */

static int64_t find_role(const struct job *j, struct span name)
{
    for (uint32_t r = 0; r < j->n_roles; r++)
        if (span_eqs(name, job_role_name(j, r)))
            return r;
    return -1;
}

int resize_parse_targets(struct job *j, const char *targets, struct err *e)
{
    struct resize *z = &j->resize;
    const struct resize_decision *decided = decisions_resize(j);
    struct span rest = span_of(targets ? targets : ""), target, name;

    if (decided)
        rest = span_of(decided->targets ? decided->targets : "");

    memcpy(z->asked, z->target, j->n_roles * sizeof *z->asked);
    while (span_split(&rest, ',', &target)) {
        int64_t n = 0;
        (void)span_split(&target, '=', &name); /* leaves the number in `target` */
        int64_t role = find_role(j, name);
        if (role < 0)
            return err_set(e, EINVAL, "the job has no role '%.*s'", (int)MIN(name.len, (size_t)60),
                           name.p),
                   1;
        if (str_i64(target, 0, INT32_MAX, "number of instances", &n, e) < 0)
            return 1;
        z->asked[role] = (uint32_t)n;
    }
    return 0;
}

/* Checks that depend on the role's state; job_spec_check_size() makes those of the job file. */
static int check_role(const struct job *j, uint32_t role, struct err *e)
{
    const struct role *r = &j->roles[role];
    const char *name = job_role_name(j, role);

    if (!r->n)
        return err_set(e, EPERM, "role '%s' has no instances in this job", name);
    if (r->n_settled)
        return err_set(e, EBUSY, "a task of role '%s' has ended: the role keeps its size", name);
    return 0;
}

int resize_refuse_ending(struct err *e)
{
    return err_set(e, EALREADY, "the job is ending"), 1;
}

int resize_check_asked(const struct job *j, struct err *e)
{
    const struct resize *z = &j->resize;

    if (decisions_resize(j)) /* a replay: the resize was accepted when it was recorded */
        return 0;
    if (j->decided)
        return resize_refuse_ending(e);
    /* If a master dies before it has answered, the client repeats its request to the next master.
     * It must then get EALREADY, even while the gang is being stopped. So check this before EBUSY.
     */
    if (memcmp(z->asked, z->target, j->n_roles * sizeof *z->asked) == 0)
        return err_set(e, EALREADY, "the job %s this size already",
                       z->state == RESIZE_STEADY ? "has" : "is being resized to"),
               1;
    if (z->state == RESIZE_FORMING)
        return err_set(e, EBUSY, "the job is changing its size: ask again when it runs"), 1;
    for (uint32_t r = 0; r < j->n_roles; r++)
        if (z->asked[r] != z->target[r] && check_role(j, r, e) < 0)
            return 1;
    return job_spec_check_size(j->spec, z->target, z->asked, e) < 0;
}

/* Make room for the new slots and for the actions about them, and add the slots: SLOT_ABSENT. */
static int add_new_slots(struct job *j, struct err *e)
{
    uint32_t n_new = 0;

    for (uint32_t r = 0; r < j->n_roles; r++)
        if (j->resize.asked[r] > j->roles[r].n_slots)
            n_new += j->resize.asked[r] - j->roles[r].n_slots;
    size_t most = 4 * ((size_t)j->n_slots + n_new) + j->nodes.n + 16;
    if (job_reserve_slots(j, n_new) < 0 || vec_reserve(j->out, j->out->n + most) < 0)
        return err_set(e, ENOMEM, "no memory for a job of %u more tasks", n_new);
    for (uint32_t r = 0; r < j->n_roles; r++)
        while (j->roles[r].n_slots < j->resize.asked[r])
            (void)job_add_slot(j, r);
    return 0;
}

/* ---- the end of a resize ---- */

/* Make the slot leave the job. If its attempt runs, it may save a checkpoint, and must have ended
 * by save_until_ms. */
static void dismiss(struct job *j, uint32_t slot, int64_t save_until_ms)
{
    struct slot *s = &j->slots[slot];

    if (s->state == SLOT_RUNNING)
        s->taken_ms = save_until_ms;
    (void)slot_step(j, slot, IN_LEAVE, NULL, NULL); /* every state accepts it */
}

/* Dismiss the slots that were to join, but are neither members nor part of the target. They give
 * back their containers and withdraw their requests. */
static void dismiss_joiners(struct job *j)
{
    for (uint32_t r = 0; r < j->n_roles; r++) {
        const struct role *role = &j->roles[r];
        for (uint32_t k = MAX(role->n, j->resize.target[r]); k < role->n_slots; k++)
            if (j->slots[role->slots[k]].state != SLOT_ABSENT)
                dismiss(j, role->slots[k], 0);
    }
}

uint32_t resize_count_containers(const struct job *j, const uint32_t *n)
{
    uint32_t sum = 0;

    for (uint32_t r = 0; r < j->n_all_roles; r++)
        sum += r < j->n_roles ? n[r] : j->roles[r].n;
    return sum;
}

/* The scheduler demanded fewer containers than the job may have at least: say so. */
static void explain_shortfall(const struct job *j, char *out, size_t size)
{
    const struct resize *z = &j->resize;

    (void)snprintf(out, size,
                   "the scheduler asked for at most %u container%s, but this job needs at least %u",
                   z->below - 1, z->below == 2 ? "" : "s", resize_count_containers(j, z->target));
}

static void end_resize(struct job *j, enum resize_outcome outcome, const char *detail)
{
    struct resize *z = &j->resize;

    z->state = RESIZE_STEADY;
    (void)str_copy(z->detail, sizeof z->detail, detail ? detail : "");
    if (outcome == RESIZED && z->below)
        explain_shortfall(j, z->detail, sizeof z->detail);
    z->below = 0;
    decisions_resize_ended(j, &outcome, z->detail, sizeof z->detail);
    z->outcome = outcome;
    z->ended_ms = j->now_ms;
    z->due_ms = INT64_MAX;
    z->failed = false;
    for (uint32_t r = 0; r < j->n_roles; r++) {
        z->to[r] = z->target[r];
        z->target[r] = j->roles[r].n;
    }
    z->n += outcome == RESIZED;
    dismiss_joiners(j);
    (void)job_act(j, ACT_SHAPE);
    j->changed = true;
    limits_job(j);
}

void resize_joiner_ended(struct job *j, uint32_t slot)
{
    struct resize *z = &j->resize;
    const struct slot *s = &j->slots[slot];

    if (z->state != RESIZE_WAITING || z->failed)
        return;
    const char *why = s->detail ? s->detail : slot_note_text(j, s->note);
    z->failed = true; /* resize_run() ends the resize later: slot_step() still changes this slot */
    (void)snprintf(z->detail, sizeof z->detail, "'" SLOT_NAME "' could not join: %s",
                   SLOT_ARGS(j, slot), why ? why : end_reason_name(s->reason));
}

/* ---- the steps of a resize ---- */

/* Set the number of the role's members to n. Slots that become members, or stop to be members, move
 * between the counters of members and of other slots. */
static void set_members(struct job *j, uint32_t role, uint32_t n)
{
    struct role *r = &j->roles[role];
    uint32_t from = MIN(r->n, n), to = MAX(r->n, n);

    for (uint32_t k = from; k < to; k++)
        slot_uncount(j, &j->slots[r->slots[k]]);
    j->n_tasks += n - r->n;
    j->n_awaited += r->awaited ? n - r->n : 0;
    r->n = n;
    for (uint32_t k = from; k < to; k++)
        slot_count(j, &j->slots[r->slots[k]]);
}

/* If the target is below the role's size, the slots with the highest indices stop to be members,
 * and leave. */
static void shrink_role(struct job *j, uint32_t role, int64_t save_until_ms)
{
    struct role *r = &j->roles[role];
    uint32_t was = r->n;

    if (j->resize.target[role] >= was)
        return;
    set_members(j, role, j->resize.target[role]);
    for (uint32_t k = r->n; k < was; k++)
        dismiss(j, r->slots[k], save_until_ms);
}

/* Has none of the role's tasks begun an attempt? */
static bool is_unstarted(const struct job *j, uint32_t role)
{
    FOR_MEMBERS(j, role, i)
    if (j->slots[i].attempt > 0 || j->slots[i].state > SLOT_REGISTERED)
        return false;
    return true;
}

/* The size that the role gets if the scheduler refuses its present size:
 *   - the size before the last resize, if the last resize added tasks to the role
 *   - otherwise the fallback (resize.h)
 * Returns the present size if there is no smaller one, or if a task of the role has begun. */
static uint32_t size_before(const struct job *j, uint32_t role)
{
    const struct resize *z = &j->resize;
    uint32_t n = j->roles[role].n;
    uint32_t before = n > z->from[role] ? z->from[role] : MIN(n, z->fallback[role]);

    return before < n && is_unstarted(j, role) ? before : n;
}

/* Does resize_undo() give this role its size before a resize? older: true = also if an earlier
 * resize than the last one added the refused tasks. */
static bool is_undone(const struct job *j, uint32_t role, bool older)
{
    uint32_t n = j->roles[role].n;

    return (older || n > j->resize.from[role]) && size_before(j, role) < n;
}

/* The first role whose size is taken back because the scheduler refuses the container of this slot;
 * -1: there is none. If the slot has not requested a container (SLOT_HELD), the scheduler has
 * refused the demand as a whole, and this slot stands for all. */
static int64_t find_undone(const struct job *j, uint32_t slot, bool older)
{
    const struct slot *s = &j->slots[slot];

    if (s->state == SLOT_ASKED) {
        bool is_new = s->role < j->n_roles && s->index >= size_before(j, s->role);
        return is_new && is_undone(j, s->role, older) ? (int64_t)s->role : -1;
    }
    for (uint32_t r = 0; r < j->n_roles && s->state == SLOT_HELD; r++)
        if (is_undone(j, r, older))
            return r;
    return -1;
}

/* Has the last resize changed a role besides those whose size is taken back? */
static bool has_changed_others(const struct job *j, bool older)
{
    for (uint32_t r = 0; r < j->n_roles; r++)
        if (j->roles[r].n != j->resize.from[r] && !is_undone(j, r, older))
            return true;
    return false;
}

/* Take back the sizes of find_undone(). */
static void undo_sizes(struct job *j, bool older, const char *detail)
{
    struct resize *z = &j->resize;
    bool in_part = has_changed_others(j, older);

    if (z->state ==
        RESIZE_STEADY) { /* the last resize has ended already: end_resize() ends it again */
        z->n -= z->outcome == RESIZED;
        memcpy(z->target, z->to, j->n_roles * sizeof *z->target);
    }
    for (uint32_t r = 0; r < j->n_roles && in_part; r++)
        if (is_undone(j, r, older))
            z->target[r] = size_before(j, r);
    end_resize(j, in_part ? RESIZED : RESIZE_REFUSED, detail);
    for (uint32_t r = 0; r < j->n_roles; r++)
        if (is_undone(j, r, older)) {
            z->target[r] = size_before(j, r);
            shrink_role(j, r, 0);
        }
}

bool resize_undo(struct job *j, uint32_t slot, const char *why)
{
    struct resize *z = &j->resize;
    char detail[sizeof z->detail];
    bool older = false;

    if (j->decided || z->state == RESIZE_FORMING ||
        (j->decisions.replaying && !decisions_resize_only_ends(j)))
        return false;
    int64_t role = find_undone(j, slot, older);
    if (role < 0) {
        older = true;
        role = find_undone(j, slot, older);
    }
    if (role < 0)
        return false;
    why = why ? why : slot_note_text(j, NOTE_REFUSED);
    if (older && z->state == RESIZE_WAITING && j->slots[slot].state == SLOT_HELD) {
        /* The newest change goes first. If the rest is too large as well, the scheduler refuses it
         * after the ACT_SHAPE of end_resize(). */
        (void)snprintf(detail, sizeof detail,
                       "the scheduler cannot hold the job with this size: %s", why);
        end_resize(j, RESIZE_REFUSED, detail);
        return true;
    }
    (void)snprintf(detail, sizeof detail, "role '%s' cannot have %u tasks: %s",
                   job_role_name(j, (uint32_t)role), j->roles[role].n, why);
    undo_sizes(j, older, detail);
    return true;
}

static uint32_t n_joiners(const struct job *j, uint32_t role)
{
    uint32_t n = j->roles[role].n, target = j->resize.target[role];

    return target > n ? target - n : 0;
}

/* The joiners that have asked for a container, or have it. Slots that are neither members nor
 * joiners are absent, or leave. */
static uint32_t n_joining(const struct role *r)
{
    return r->n_outside[SLOT_ASKED] + r->n_outside[SLOT_PLACED] + r->n_outside[SLOT_REGISTERED];
}

/* The new slots of the role request containers. They do so again if a new master has found their
 * containers lost. A slot that is still leaving can join only when it has left. */
static void request_joiners(struct job *j, uint32_t role)
{
    const struct role *r = &j->roles[role];

    /* This function runs after each event. The counters show without a loop that all have asked. */
    if (n_joining(r) == n_joiners(j, role))
        return;
    for (uint32_t k = r->n; k < j->resize.target[role]; k++) {
        uint32_t slot = r->slots[k];
        if (j->slots[slot].state == SLOT_ABSENT)
            (void)slot_step(j, slot, IN_JOIN, NULL, NULL);
        if (j->slots[slot].state == SLOT_HELD)
            (void)slot_step(j, slot, IN_WANT, NULL, NULL);
    }
}

/* The job has not started any task yet, or the role's stage has not come. Then a resize only
 * changes the number of members, and of requested containers. */
static void resize_unstarted(struct job *j, uint32_t role)
{
    struct role *r = &j->roles[role];
    bool may_request = !r->n_unmet && j->gang.pause_due_ms == INT64_MAX;

    shrink_role(j, role, 0);
    while (r->n < j->resize.target[role]) {
        uint32_t slot = r->slots[r->n];
        if (slot_step(j, slot, IN_JOIN, NULL, NULL))
            return; /* the slot is still leaving: try again when it has left */
        set_members(j, role, r->n + 1);
        if (may_request)
            (void)slot_step(j, slot, IN_WANT, NULL, NULL);
    }
}

static bool is_changing(const struct job *j, uint32_t role)
{
    return j->resize.target[role] != j->roles[role].n;
}

static bool needs_restart(const struct job *j)
{
    for (uint32_t r = 0; r < j->n_roles; r++)
        if (is_changing(j, r) && j->resize.by_restart[r])
            return true;
    return false;
}

static bool are_joiners_ready(const struct job *j)
{
    for (uint32_t r = 0; r < j->n_roles; r++)
        if (j->roles[r].n_outside[SLOT_REGISTERED] != n_joiners(j, r))
            return false;
    return true;
}

static bool is_newer_saved(const struct job *j)
{
    const struct resize *z = &j->resize;
    const struct job_checkpoints *c = &j->checkpoints;

    return c->has && (c->generation != z->saved_generation || c->step != z->saved_step);
}

bool resize_awaits_checkpoint(const struct job *j)
{
    const struct resize *z = &j->resize;

    return z->state == RESIZE_WAITING && z->saved && needs_restart(j) && are_joiners_ready(j) &&
           !is_newer_saved(j);
}

/* The time by which tasks that must stop have to be gone. slot_allow() gives them half of the time
 * until then to save a checkpoint, and a quarter of it to end. So they get the full times of the
 * job file, unless the scheduler takes containers before that. */
static int64_t save_until(const struct job *j)
{
    int64_t needed_ms =
        MAX(2 * (int64_t)j->spec->checkpoint_grace_ms, 4 * (int64_t)j->spec->kill_grace_ms);
    int64_t due = j->resize.save_due_ms ? j->resize.save_due_ms : j->now_ms + needed_ms;

    return MAX(MIN(j->now_ms + needed_ms, due), j->now_ms + 1);
}

/* All new slots are ready: stop the gang, and let it form anew with the new size. */
static void restart_with_new_size(struct job *j)
{
    int64_t until_ms = save_until(j);

    j->resize.state = RESIZE_FORMING;
    j->resize.due_ms = INT64_MAX;
    for (uint32_t r = 0; r < j->n_roles; r++) {
        shrink_role(j, r, until_ms);
        set_members(j, r, j->resize.target[r]);
    }
    restart_gang(j, until_ms);
    (void)job_act(j, ACT_SHAPE);
    limits_job(j);
}

/* Start the registered new slots of a role. They start in the order of their indices, since members
 * are always the slots with the lowest indices. */
static void grow_role_live(struct job *j, uint32_t role)
{
    struct role *r = &j->roles[role];
    bool any = false;

    while (r->n < j->resize.target[role]) {
        uint32_t slot = r->slots[r->n];
        if (j->slots[slot].state != SLOT_REGISTERED || !depends_open(j, role))
            break;
        if (!any && j->gang.gives_back)
            (void)job_act(j, ACT_SYNC); /* a later master must know of every attempt that runs */
        set_members(j, role, r->n + 1);
        (void)slot_step(j, slot, IN_START, NULL, NULL);
        any = true;
    }
    if (any)
        (void)job_act(j, ACT_PEERS);
}

static void resize_live(struct job *j)
{
    bool shrinks = false, unfinished = false;

    /* The job keeps its old size until all new slots are ready. If the time for the resize is over
     * before, the job still has its old size. */
    if (!are_joiners_ready(j))
        return;
    for (uint32_t r = 0; r < j->n_roles; r++) {
        shrinks |= j->resize.target[r] < j->roles[r].n;
        shrink_role(j, r, save_until(j));
        grow_role_live(j, r);
        unfinished |= is_changing(j, r);
    }
    if (shrinks)
        (void)job_act(j, ACT_PEERS);
    if (!unfinished)
        end_resize(j, RESIZED, NULL);
}

/* A role that changes its size has been stopped by the end of another role (depends.c). New tasks
 * of it must not start: nothing would stop them. In a replay, the recorded decision says so. */
static bool is_stopped(struct job *j)
{
    if (j->decisions.replaying && !decisions_resize_only_ends(j))
        return false;
    for (uint32_t r = 0; r < j->n_roles; r++)
        if (j->roles[r].stopped && is_changing(j, r))
            return true;
    return false;
}

/* In a replay the recorded decision counts: the gang has restarted unless the resize ended here. */
static void restart_if_addresses_fit(struct job *j)
{
    struct err e = { 0 };
    bool has_restarted = j->decisions.replaying && !decisions_resize_only_ends(j);

    if (has_restarted || addresses_fit(j, j->resize.target, &e))
        restart_with_new_size(j);
    else
        end_resize(j, RESIZE_REFUSED, e.msg);
}

void resize_run(struct job *j)
{
    struct resize *z = &j->resize;
    char detail[sizeof z->detail];

    if (z->state != RESIZE_WAITING)
        return;
    if (z->failed) {
        (void)str_copy(detail, sizeof detail, z->detail);
        end_resize(j, RESIZE_REFUSED, detail);
        return;
    }
    if (is_stopped(j)) {
        end_resize(j, RESIZE_REFUSED, "the role is being stopped, because another role has ended");
        return;
    }
    for (uint32_t r = 0; r < j->n_roles; r++) {
        if (j->started_ms < 0 || j->roles[r].n_unmet)
            resize_unstarted(j, r);
        else
            request_joiners(j, r);
    }
    if (j->restarts.mending) /* wait until the restarting tasks have started */
        return;
    if (!needs_restart(j))
        resize_live(j);
    else if (are_joiners_ready(j) && (!z->saved || is_newer_saved(j)))
        restart_if_addresses_fit(j);
}

int resize_fired(struct job *j, struct err *e)
{
    struct resize *z = &j->resize;
    char after[32], detail[sizeof z->detail];

    if (z->state != RESIZE_WAITING || z->due_ms > j->now_ms)
        return err_set(e, EPROTO, "no resize waits for containers"), 1;
    (void)snprintf(detail, sizeof detail,
                   resize_awaits_checkpoint(j) ? "no checkpoint was saved within %s"
                                               : "the new containers were not ready within %s",
                   str_duration(j->now_ms - z->asked_ms, after, sizeof after));
    end_resize(j, RESIZE_TIMED_OUT, detail);
    return 0;
}

void resize_job_ends(struct job *j)
{
    resize_forget_kept(j);
    if (j->resize.state == RESIZE_WAITING || j->resize.state == RESIZE_FORMING)
        end_resize(j, RESIZE_REFUSED, "the job ended first");
}

void resize_slot_restarts(struct job *j)
{
    if (!job_was_resized(j) || j->resize.shape_requested)
        return;
    j->resize.shape_requested = true;
    (void)job_act(j, ACT_SHAPE);
}

void resize_formed(struct job *j)
{
    if (j->resize.state == RESIZE_FORMING && !j->restarts.mending)
        end_resize(j, RESIZED, NULL);
}

/* ---- requests for a resize ---- */

/* Does a change of the role need a new gang? In a replay, the recorded decision says so. */
static bool needs_new_gang(const struct job *j, uint32_t role)
{
    const struct resize_decision *decided = decisions_resize(j);
    struct span rest = span_of(decided && decided->by_restart ? decided->by_restart : ""), name;

    if (!decided)
        return role_spec_resize(j->spec, job_role_spec(j, role)) == RESIZE_RESTART;
    while (span_split(&rest, ',', &name))
        if (span_eqs(name, job_role_name(j, role)))
            return true;
    return false;
}

void resize_start(struct job *j, int64_t within_ms)
{
    struct resize *z = &j->resize;

    if (z->state == RESIZE_WAITING)
        end_resize(j, RESIZE_REPLACED, NULL);
    for (uint32_t r = 0; r < j->n_roles; r++) {
        if (j->roles[r].n <= z->fallback[r] || !is_unstarted(j, r))
            z->fallback[r] = j->roles[r].n;
        z->from[r] = j->roles[r].n;
        z->target[r] = z->asked[r];
        z->by_restart[r] = needs_new_gang(j, r);
    }
    decisions_resize_begun(j);
    if (within_ms <= 0)
        within_ms = (int64_t)MIN(j->spec->resize_timeout_ms, (uint64_t)INT64_MAX / 4);
    z->state = RESIZE_WAITING;
    z->asked_ms = j->now_ms;
    z->due_ms = within_ms ? j->now_ms + within_ms : INT64_MAX;
    z->save_due_ms = 0;
    z->saved = false;
    (void)job_act(j, ACT_SHAPE);
    (void)job_act(j, ACT_SYNC);
    j->changed = true;
    limits_job(j);
}

int resize_begin(struct job *j, int64_t within_ms, struct err *e)
{
    int rc = add_new_slots(j, e);

    if (rc == 0)
        resize_start(j, within_ms);
    return rc;
}

int resize_decision_damaged(struct err *e)
{
    struct err why = *e;
    return err_set(e, EBADMSG, "the record of a resize is damaged: %s", why.msg);
}

int resize_asked(struct job *j, struct ev_resize *ev, struct err *e)
{
    static const char kept[] = "the job was asked to keep its size";
    int rc = resize_parse_targets(j, ev->targets, e);

    if (rc && decisions_resize(j))
        return resize_decision_damaged(e);
    if (decisions_resize_only_ends(j) && j->resize.state == RESIZE_WAITING) {
        end_resize(j, RESIZE_REPLACED, kept);
        return 0;
    }
    if (rc == 0)
        rc = resize_check_asked(j, e);
    if (rc == 0) {
        /* A request for the present size only ends the resize that waits. resize_begin() would
         * begin another one, which ends at once as done and hides the outcome of the first. */
        uint32_t *asked = j->resize.asked;
        bool is_present_size = true;
        for (uint32_t r = 0; r < j->n_roles; r++)
            is_present_size &= asked[r] == j->roles[r].n;
        if (is_present_size && j->resize.state == RESIZE_WAITING) {
            end_resize(j, RESIZE_REPLACED, kept);
            return 0;
        }
        rc = resize_begin(j, ev->within_ms, e);
    }
    if (rc)
        return rc;
    free(j->resize.who);
    free(j->resize.why);
    j->resize.who = event_take(&ev->who);
    j->resize.why = event_take(&ev->why);
    return 0;
}

/* ---- reading the state ---- */

bool job_was_resized(const struct job *j)
{
    return j->resize.state != RESIZE_STEADY || j->resize.outcome;
}

bool job_wants(const struct job *j, uint32_t slot)
{
    const struct slot *s = &j->slots[slot];

    if (job_is_spare(j, slot))
        return true;
    return s->index < MAX(j->resize.target[s->role], j->roles[s->role].n);
}

/* The roles whose number of instances changes. `to` has the new numbers; registered: add how many
 * new slots have registered. */
static void roles_json(const struct job *j, const uint32_t *to, bool registered, struct buf *out)
{
    const char *comma = "";

    (void)buf_adds(out, ",\"roles\":[");
    for (uint32_t r = 0; r < j->n_roles; r++) {
        const struct role *role = &j->roles[r];
        if (to[r] == j->resize.from[r])
            continue;
        (void)buf_addf(out, "%s{\"name\":", comma);
        (void)json_add_str(out, span_of(job_role_name(j, r)));
        (void)buf_addf(out, ",\"from\":%u,\"to\":%u", j->resize.from[r], to[r]);
        if (registered)
            (void)buf_addf(out, ",\"registered\":%u", role->n_outside[SLOT_REGISTERED]);
        (void)buf_addc(out, '}');
        comma = ",";
    }
    (void)buf_addc(out, ']');
}

const char *resize_outcome_name(enum resize_outcome o)
{
    static const char *const names[RESIZE_OUTCOME_COUNT] = {
#define X(id, name) [id] = name,
        RESIZE_OUTCOMES(X)
#undef X
    };
    return names[o];
}

/* The number of containers that the scheduler demanded while the gang forms. */
static void kept_json(const struct kept_shrink *kept, struct buf *out)
{
    (void)buf_addf(out, ",\"kept\":{\"containers\":%u", kept->n_containers);
    if (kept->due_ms)
        (void)buf_addf(out, ",\"due_ms\":%lld", (long long)kept->due_ms);
    else
        (void)buf_adds(out, ",\"due_ms\":null");
    status_text(out, "why", kept->why);
    (void)buf_addc(out, '}');
}

void resize_json(const struct job *j, struct buf *out)
{
    const struct resize *z = &j->resize;

    if (z->n)
        (void)buf_addf(out, ",\"resizes\":%u", z->n);
    if (j->n_outside[SLOT_LEAVING])
        (void)buf_addf(out, ",\"leaving\":%u", j->n_outside[SLOT_LEAVING]);
    if (z->state == RESIZE_WAITING || z->state == RESIZE_FORMING) {
        (void)buf_addf(out, ",\"resize\":{\"state\":\"%s\"",
                       z->state == RESIZE_WAITING ? "waiting" : "forming");
        status_text(out, "who", z->who);
        status_text(out, "why", z->why);
        (void)buf_addf(out, ",\"asked_ms\":%lld", (long long)z->asked_ms);
        if (z->due_ms != INT64_MAX)
            (void)buf_addf(out, ",\"due_ms\":%lld", (long long)z->due_ms);
        else
            (void)buf_adds(out, ",\"due_ms\":null");
        if (resize_awaits_checkpoint(j))
            (void)buf_adds(out, ",\"awaits_checkpoint\":true");
        roles_json(j, z->target, true, out);
        if (z->kept.set)
            kept_json(&z->kept, out);
        (void)buf_addc(out, '}');
    } else if (z->outcome) {
        (void)buf_addf(out, ",\"last_resize\":{\"outcome\":\"%s\",\"at_ms\":%lld",
                       resize_outcome_name(z->outcome), (long long)z->ended_ms);
        status_text(out, "detail", *z->detail ? z->detail : NULL);
        status_text(out, "who", z->who);
        status_text(out, "why", z->why);
        roles_json(j, z->to, false, out);
        (void)buf_addc(out, '}');
    }
}
