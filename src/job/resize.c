/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out a resize: its steps, its end, and the way back if the scheduler refuses the new size.
 * resize.h explains resizes.
 */
#include "job/resize.h"

#include <errno.h>
#include <stdlib.h>

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
    free(j->resize.leave);
    free(j->resize.kept.why);
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

/* If the scheduler demanded fewer containers than the job may have at least, write a sentence
 * about that to out. */
static void explain_shortfall(const struct job *j, char *out, size_t size)
{
    const struct resize *z = &j->resize;

    (void)snprintf(out, size,
                   "the scheduler asked for at most %u container%s, but this job needs at least %u",
                   z->below - 1, z->below == 2 ? "" : "s", resize_count_containers(j, z->target));
}

void resize_end(struct job *j, enum resize_outcome outcome, const char *detail)
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

/* Set the number of the role's members to n. Slots that become members, or are no longer members,
 * move between the counters of members and of other slots. */
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

/*
 * Two members exchange their indices. Their attempts are about to be stopped. Each executor gets
 * the new index with its next Start. Logs are named by index and attempt, so the next attempt of
 * each slot gets a number that neither of them has used.
 */
static void renumber(struct job *j, uint32_t role, uint32_t a, uint32_t b)
{
    struct role *r = &j->roles[role];
    struct slot *x = &j->slots[r->slots[a]], *y = &j->slots[r->slots[b]];
    uint32_t slot = r->slots[a];
    uint32_t attempts =
        MAX(MAX(x->attempt, y->attempt), MAX(x->attempts_before, y->attempts_before));

    r->slots[a] = r->slots[b];
    r->slots[b] = slot;
    x->index = b;
    y->index = a;
    x->moved = y->moved = x->renumbered = y->renumbered = true;
    x->attempts_before = y->attempts_before = attempts;
}

/* Before a role shrinks to n: give the highest indices to the slots that the scheduler has named.
 */
static void move_leavers_last(struct job *j, uint32_t role, uint32_t n)
{
    const struct role *r = &j->roles[role];
    struct span rest = span_of(j->resize.leave ? j->resize.leave : ""), word;
    uint32_t last = r->n;

    while (last > n && span_split(&rest, ',', &word)) {
        int64_t id;
        if (str_i64(word, 0, INT64_MAX, "slot", &id, NULL) < 0 || id >= j->n_slots)
            continue;
        const struct slot *s = &j->slots[id];
        if (s->role != role || s->index == 0 || s->index >= last)
            continue; /* it is no member, or it was named twice */
        last--;
        if (s->index != last)
            renumber(j, role, s->index, last);
    }
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

bool resize_role_is_unstarted(const struct job *j, uint32_t role)
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

    return before < n && resize_role_is_unstarted(j, role) ? before : n;
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
        RESIZE_STEADY) { /* the last resize has ended already: resize_end() ends it again */
        z->n -= z->outcome == RESIZED;
        memcpy(z->target, z->to, j->n_roles * sizeof *z->target);
    }
    for (uint32_t r = 0; r < j->n_roles && in_part; r++)
        if (is_undone(j, r, older))
            z->target[r] = size_before(j, r);
    resize_end(j, in_part ? RESIZED : RESIZE_REFUSED, detail);
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
         * after the ACT_SHAPE of resize_end(). */
        (void)snprintf(detail, sizeof detail,
                       "the scheduler cannot hold the job with this size: %s", why);
        resize_end(j, RESIZE_REFUSED, detail);
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

bool resize_starts_in_new_gang(const struct job *j, const struct slot *s)
{
    return !job_is_member(j, s) && needs_restart(j);
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
        move_leavers_last(j, r, j->resize.target[r]);
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
        resize_end(j, RESIZED, NULL);
}

/* May the roles still change their sizes? If not, *detail says why:
 *   - The end of another role has stopped the role (depends.c): nothing would stop new tasks.
 *   - A task of the role has ended for good: a new gang would run it again.
 * In a replay, the recorded decision says whether the resize ended here. */
static bool may_change(const struct job *j, char *detail, size_t size)
{
    if (j->decisions.replaying && !decisions_resize_only_ends(j))
        return true;
    for (uint32_t r = 0; r < j->n_roles; r++) {
        const struct role *role = &j->roles[r];
        if (!is_changing(j, r) || (!role->stopped && !role->n_settled))
            continue;
        (void)snprintf(detail, size, "role '%s' keeps its size: %s", job_role_name(j, r),
                       role->stopped ? "it is being stopped, because another role has ended"
                                     : "one of its tasks has ended");
        return false;
    }
    return true;
}

/* In a replay the recorded decision counts: the gang has restarted unless the resize ended here. */
static void restart_if_addresses_fit(struct job *j)
{
    struct err e = { 0 };
    bool has_restarted = j->decisions.replaying && !decisions_resize_only_ends(j);

    if (has_restarted || addresses_fit(j, j->resize.target, &e))
        restart_with_new_size(j);
    else
        resize_end(j, RESIZE_REFUSED, e.msg);
}

void resize_run(struct job *j)
{
    struct resize *z = &j->resize;
    char detail[sizeof z->detail];

    if (z->state != RESIZE_WAITING)
        return;
    if (z->failed) {
        (void)str_copy(detail, sizeof detail, z->detail);
        resize_end(j, RESIZE_REFUSED, detail);
        return;
    }
    if (!may_change(j, detail, sizeof detail)) {
        resize_end(j, RESIZE_REFUSED, detail);
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
        return job_refuse(e, EPROTO, "no resize waits for containers");
    (void)snprintf(detail, sizeof detail,
                   resize_awaits_checkpoint(j) ? "no checkpoint was saved within %s"
                                               : "the new containers were not ready within %s",
                   str_duration(j->now_ms - z->asked_ms, after, sizeof after));
    resize_end(j, RESIZE_TIMED_OUT, detail);
    return 0;
}

void resize_job_ends(struct job *j)
{
    resize_forget_kept(j);
    if (j->resize.state == RESIZE_WAITING || j->resize.state == RESIZE_FORMING)
        resize_end(j, RESIZE_REFUSED, "the job ended first");
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
        resize_end(j, RESIZED, NULL);
}
