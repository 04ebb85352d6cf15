/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests for a resize: reads the requested size, checks it, and begins the resize. resize.c then
 * carries it out. The demands of the scheduler (resize_demand.c) use the same functions.
 */
#include "job/resize.h"

#include <errno.h>
#include <stdlib.h>

#include "job/job_int.h"

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
    if (r->stopped)
        return err_set(e, EBUSY, "role '%s' is being stopped, because another role has ended",
                       name);
    return 0;
}

int resize_refuse_ending(struct err *e)
{
    return job_refuse(e, EALREADY, "the job is ending");
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
        return job_refuse(e, EBUSY, "the job is changing its size: ask again when it runs");
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

/* ---- beginning a resize ---- */

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
        resize_end(j, RESIZE_REPLACED, NULL);
    for (uint32_t r = 0; r < j->n_roles; r++) {
        if (j->roles[r].n <= z->fallback[r] || !resize_role_is_unstarted(j, r))
            z->fallback[r] = j->roles[r].n;
        z->from[r] = j->roles[r].n;
        z->target[r] = z->asked[r];
        z->by_restart[r] = needs_new_gang(j, r);
    }
    decisions_resize_begun(j);
    free(z->leave);
    z->leave = NULL;
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

/* ---- EV_RESIZE ---- */

int resize_asked(struct job *j, struct ev_resize *ev, struct err *e)
{
    static const char kept[] = "the job was asked to keep its size";
    int rc = resize_parse_targets(j, ev->targets, e);

    if (rc && decisions_resize(j))
        return resize_decision_damaged(e);
    if (decisions_resize_only_ends(j) && j->resize.state == RESIZE_WAITING) {
        resize_end(j, RESIZE_REPLACED, kept);
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
            resize_end(j, RESIZE_REPLACED, kept);
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
