/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes the decisions of the rules for the journal, and applies recorded decisions in a replay.
 * decisions.h explains both.
 */
#include "job/decisions.h"

#include <errno.h>
#include <stdlib.h>

#include "codec/json.h"
#include "job/job_int.h"

static void resize_decision_done(struct resize_decision *r)
{
    free(r->targets);
    free(r->by_restart);
    free(r->detail);
}

static void clear_decisions(struct decisions *d)
{
    for (size_t i = 0; i < d->resizes.n; i++)
        resize_decision_done(&d->resizes.v[i]);
    d->resizes.n = d->restarts.n = d->n_outcomes_used = 0;
    d->has_verdict = false;
}

void decisions_done(struct job *j)
{
    clear_decisions(&j->decisions);
    vec_done(&j->decisions.resizes);
    vec_done(&j->decisions.restarts);
}

void job_replaying(struct job *j, bool decisions_are_recorded)
{
    if (j->decisions.replaying != decisions_are_recorded)
        clear_decisions(&j->decisions);
    j->decisions.replaying = decisions_are_recorded;
}

/* ---- the names in records ---- */

static const char resize_began[] = "began";

static const char *scope_name(const struct restart_plan *plan)
{
    static const char *const names[] = {
        [SCOPE_TASK] = "task", [SCOPE_ROLE] = "role", [SCOPE_JOB] = "gang"
    };

    return plan->whole ? "job" : names[plan->scope];
}

/* -EBADMSG: only a newer version knows the name. */
static int read_scope(const char *name, struct restart_plan *out, struct err *e)
{
    if (!name)
        return 0;
    for (int s = SCOPE_TASK; s <= SCOPE_JOB; s++) {
        struct restart_plan a = { .scope = (enum restart_scope)s };
        if (str_eq(scope_name(&a), name)) {
            out->scope = a.scope;
            return 0;
        }
    }
    if (!str_eq(name, "job"))
        return err_set(e, EBADMSG, "journal record: this version does not know the scope '%.40s'",
                       name);
    out->scope = SCOPE_JOB;
    out->whole = true;
    return 0;
}

static int read_outcome(const char *name, enum resize_outcome *out, struct err *e)
{
    *out = RESIZE_OPEN;
    if (name && str_eq(name, resize_began))
        return 0;
    for (int o = RESIZE_OPEN + 1; o < RESIZE_OUTCOME_COUNT; o++)
        if (name && str_eq(resize_outcome_name((enum resize_outcome)o), name)) {
            *out = (enum resize_outcome)o;
            return 0;
        }
    return err_set(e, EBADMSG, "journal record: '%.40s' is not an outcome of a resize",
                   name ? name : "");
}

static int read_state(const char *name, enum job_state *out, struct err *e)
{
    static const enum job_state finals[] = { JOB_SUCCEEDED, JOB_FAILED, JOB_KILLED };

    for (size_t i = 0; i < ARRAY_LEN(finals); i++)
        if (name && str_eq(job_state_name(finals[i]), name)) {
            *out = finals[i];
            return 0;
        }
    return err_set(e, EBADMSG, "journal record: '%.40s' is not a verdict", name ? name : "");
}

/* ---- decisions as events of the journal ---- */

bool job_decision(const struct job *j, size_t i, struct job_event *out)
{
    const struct decisions *d = &j->decisions;

    if (d->replaying)
        return false;
    if (i < d->resizes.n) {
        const struct resize_decision *r = &d->resizes.v[i];
        bool open = r->outcome == RESIZE_OPEN;
        *out = (struct job_event){
            .type = EV_DECIDED_RESIZE,
            .decided_resize = { .by = job_event_name(d->by),
                                .outcome = open ? resize_began : resize_outcome_name(r->outcome),
                                .targets = r->targets,
                                .by_restart = r->by_restart,
                                .detail = r->detail }
        };
        return true;
    }
    i -= d->resizes.n;
    if (i < d->restarts.n) {
        const struct restart_decision *r = &d->restarts.v[i];
        *out = (struct job_event){ .type = EV_DECIDED_RESTART,
                                   .decided_restart = { .by = job_event_name(d->by),
                                                        .slot = r->slot,
                                                        .attempt = r->attempt,
                                                        .scope = scope_name(&r->plan),
                                                        .elsewhere = r->plan.elsewhere,
                                                        .charge = r->plan.charge,
                                                        .in_row = r->plan.in_row,
                                                        .due_ms = r->plan.due_ms } };
        return true;
    }
    i -= d->restarts.n;
    if (i > 0 || !d->has_verdict)
        return false;
    const struct verdict_decision *v = &d->verdict;
    bool has_first = v->first.slot >= 0;
    *out = (struct job_event){
        .type = EV_DECIDED_VERDICT,
        .decided_verdict = { .by = job_event_name(d->by),
                             .state = job_state_name(v->state),
                             .exit_code = verdict_exit_code(v->state),
                             .over = v->over,
                             .message = v->message,
                             .by_task = v->by_task,
                             .own_words = v->own_words,
                             .has_first = has_first,
                             .slot = has_first ? (uint32_t)v->first.slot : 0,
                             .at_us = has_first ? v->first.at_us : 0,
                             .cause = has_first && v->first.cause ? v->first.cause->name : NULL }
    };
    return true;
}

static int read_restart(struct decisions *d, const struct ev_decided_restart *ev, struct err *e)
{
    struct restart_decision r = { .slot = ev->slot,
                                  .attempt = ev->attempt,
                                  .plan = { .elsewhere = ev->elsewhere,
                                            .charge = ev->charge,
                                            .in_row = ev->in_row,
                                            .due_ms = ev->due_ms } };
    int rc = read_scope(ev->scope, &r.plan, e);

    if (rc == 0 && vec_push(&d->restarts, r) < 0)
        rc = err_set(e, ENOMEM, "no memory for a decision");
    return rc;
}

static int add_resize(struct decisions *d, enum resize_outcome outcome, const char *targets,
                      const char *by_restart, const char *detail)
{
    struct resize_decision r = { .outcome = outcome,
                                 .targets = targets ? str_dup(targets) : NULL,
                                 .by_restart = by_restart ? str_dup(by_restart) : NULL,
                                 .detail = detail ? str_dup(detail) : NULL };
    bool all_copied =
        !targets == !r.targets && !by_restart == !r.by_restart && !detail == !r.detail;

    if (all_copied && vec_push(&d->resizes, r) == 0)
        return 0;
    resize_decision_done(&r);
    return -ENOMEM;
}

static int read_resize(struct decisions *d, const struct ev_decided_resize *ev, struct err *e)
{
    enum resize_outcome outcome;
    int rc = read_outcome(ev->outcome, &outcome, e);

    if (rc == 0 && add_resize(d, outcome, ev->targets, ev->by_restart, ev->detail) < 0)
        rc = err_set(e, ENOMEM, "no memory for a decision");
    return rc;
}

static int read_verdict(struct job *j, const struct ev_decided_verdict *ev, struct err *e)
{
    struct verdict_decision v = { .over = ev->over,
                                  .by_task = ev->by_task,
                                  .own_words = ev->own_words,
                                  .first = { .slot = JOB_NO_SLOT } };
    int rc = read_state(ev->state, &v.state, e);

    if (rc < 0)
        return rc;
    if (ev->has_first && ev->slot >= j->n_slots)
        return err_set(e, EBADMSG, "journal record: slot %u failed first, but the job has %u slots",
                       ev->slot, j->n_slots);
    if (ev->has_first)
        v.first = (struct failure){ .slot = ev->slot,
                                    .at_us = ev->at_us,
                                    .cause = cause_named(ev->cause) };
    (void)str_copy(v.message, sizeof v.message, ev->message ? ev->message : "");
    j->decisions.verdict = v;
    j->decisions.has_verdict = true;
    return 0;
}

int decisions_read(struct job *j, const struct job_event *ev, struct err *e)
{
    struct decisions *d = &j->decisions;

    if (!d->replaying)
        return err_set(e, EPROTO, "event '%s' is allowed only in a replay",
                       job_event_name(ev->type)),
               1;
    enum job_event_type by =
        job_event_named(ev->type == EV_DECIDED_RESTART  ? ev->decided_restart.by
                        : ev->type == EV_DECIDED_RESIZE ? ev->decided_resize.by
                                                        : ev->decided_verdict.by);
    if (by == EV_NONE)
        return err_set(e, EBADMSG,
                       "journal record: '%s' does not name the event to which it belongs",
                       job_event_name(ev->type));
    if (by != d->by)
        clear_decisions(d);
    d->by = by;
    return ev->type == EV_DECIDED_RESTART  ? read_restart(d, &ev->decided_restart, e)
           : ev->type == EV_DECIDED_RESIZE ? read_resize(d, &ev->decided_resize, e)
                                           : read_verdict(j, &ev->decided_verdict, e);
}

/* ---- around each event ---- */

int decisions_reserve(struct job *j, enum job_event_type type)
{
    struct decisions *d = &j->decisions;
    /* Only a resync may decide on all slots. */
    size_t n = type == EV_RESYNCED ? (size_t)j->n_slots + 4 : 4;

    if (d->replaying)
        return 0; /* decisions_read() has stored them */
    return vec_reserve(&d->restarts, n) < 0 || vec_reserve(&d->resizes, 4) < 0 ? -ENOMEM : 0;
}

void decisions_begin_event(struct job *j, enum job_event_type type)
{
    if (!j->decisions.replaying || j->decisions.by != type)
        clear_decisions(&j->decisions);
    j->decisions.by = type;
    j->decisions.was_decided = j->decided != JOB_NONE;
}

static struct verdict_decision verdict_now(const struct job *j)
{
    struct verdict_decision v = { .state = j->decided,
                                  .over = job_over(j),
                                  .by_task = j->by_task,
                                  .own_words = j->own_words,
                                  .first = j->failures.first };

    memcpy(v.message, j->message, sizeof v.message);
    return v;
}

static bool is_same_verdict(const struct verdict_decision *a, const struct verdict_decision *b)
{
    return a->state == b->state && a->over == b->over && a->by_task == b->by_task &&
           a->own_words == b->own_words && a->first.slot == b->first.slot &&
           a->first.at_us == b->first.at_us && a->first.cause == b->first.cause &&
           str_eq(a->message, b->message);
}

void decisions_restored(struct job *j)
{
    j->decisions.noted = verdict_now(j);
}

/* Replace the reasons of the job's verdict by the recorded ones. */
static void apply_verdict(struct job *j)
{
    const struct verdict_decision *v = &j->decisions.verdict;

    j->by_task = v->by_task;
    j->own_words = v->own_words;
    j->failures.first = v->first;
    memcpy(j->message, v->message, sizeof j->message);
}

void decisions_end_event(struct job *j)
{
    struct decisions *d = &j->decisions;

    if (d->replaying) {
        if (d->has_verdict && j->decided) {
            apply_verdict(j);
            d->noted = d->verdict;
        }
        clear_decisions(d);
        return;
    }
    if (!j->decided)
        return;
    d->verdict = verdict_now(j);
    d->has_verdict = !is_same_verdict(&d->verdict, &d->noted);
    d->noted = d->verdict;
}

/* ---- where the rules decide ---- */

/* Is this the decision to restart the failed job as a whole? */
static bool is_whole_restart(const struct restart_decision *r)
{
    return r->plan.whole && !r->attempt;
}

void decisions_restart(struct job *j, uint32_t slot, bool worth_noting, struct restart_plan *plan)
{
    struct decisions *d = &j->decisions;
    struct restart_decision by_rules = { .slot = slot,
                                         .attempt = j->slots[slot].attempt,
                                         .plan = *plan };

    if (!d->replaying) {
        if (worth_noting || plan->scope)
            (void)vec_push(&d->restarts, by_rules);
        return;
    }
    *plan = (struct restart_plan){ .taken_ms = plan->taken_ms };
    for (size_t i = 0; i < d->restarts.n; i++) {
        const struct restart_decision *r = &d->restarts.v[i];
        if (!is_whole_restart(r) && r->slot == slot && r->attempt == by_rules.attempt)
            *plan = r->plan;
    }
}

/* The recorded restart of the whole job; NULL = none is recorded. */
static const struct restart_decision *find_whole_restart(const struct decisions *d)
{
    for (size_t i = d->restarts.n; i-- > 0;)
        if (is_whole_restart(&d->restarts.v[i]))
            return &d->restarts.v[i];
    return NULL;
}

bool decisions_whole_restart(struct job *j, bool allowed, int64_t *due_ms)
{
    struct decisions *d = &j->decisions;
    struct restart_decision by_rules = {
        .plan = { .scope = SCOPE_JOB, .whole = true, .due_ms = *due_ms }
    };
    const struct restart_decision *recorded = d->replaying ? find_whole_restart(d) : NULL;

    if (recorded)
        *due_ms = recorded->plan.due_ms;
    else if (allowed && !d->replaying)
        (void)vec_push(&d->restarts, by_rules);
    return d->replaying ? recorded != NULL : allowed;
}

const struct resize_decision *decisions_resize(const struct job *j)
{
    const struct decisions *d = &j->decisions;

    for (size_t i = d->replaying ? d->resizes.n : 0; i-- > 0;)
        if (d->resizes.v[i].outcome == RESIZE_OPEN && d->resizes.v[i].targets)
            return &d->resizes.v[i];
    return NULL;
}

bool decisions_resize_only_ends(const struct job *j)
{
    const struct decisions *d = &j->decisions;
    bool ends = false;

    for (size_t i = 0; d->replaying && i < d->resizes.n; i++) {
        if (d->resizes.v[i].outcome == RESIZE_OPEN)
            return false;
        ends = true;
    }
    return ends;
}

void decisions_resize_begun(struct job *j)
{
    AUTO(buf_done) struct buf targets = { 0 }, names = { 0 };

    if (j->decisions.replaying)
        return;
    for (uint32_t r = 0; r < j->n_roles; r++) {
        (void)buf_addf(&targets, "%s%s=%u", r ? "," : "", job_role_name(j, r), j->resize.target[r]);
        if (j->resize.by_restart[r])
            (void)buf_addf(&names, "%s%s", names.len ? "," : "", job_role_name(j, r));
    }
    bool failed = targets.failed || names.failed;
    (void)add_resize(&j->decisions, RESIZE_OPEN, failed ? NULL : buf_cstr(&targets),
                     names.len ? buf_cstr(&names) : NULL, NULL);
}

void decisions_resize_ended(struct job *j, enum resize_outcome *outcome, char *detail, size_t size)
{
    struct decisions *d = &j->decisions;

    if (!d->replaying) {
        (void)add_resize(d, *outcome, NULL, NULL, *detail ? detail : NULL);
        return;
    }
    /* One event may end two resizes: a new one replaces the old one, and is done at once. */
    while (d->n_outcomes_used < d->resizes.n) {
        const struct resize_decision *r = &d->resizes.v[d->n_outcomes_used++];
        if (r->outcome == RESIZE_OPEN)
            continue;
        *outcome = r->outcome;
        (void)str_copy(detail, size, r->detail ? r->detail : "");
        return;
    }
}

void decisions_verdict(struct job *j)
{
    const struct decisions *d = &j->decisions;

    if (!d->replaying)
        return;
    if (d->has_verdict) {
        j->decided = d->verdict.state;
        apply_verdict(j);
    } else if (!d->was_decided && j->decided && !find_whole_restart(d)) {
        j->decided = JOB_NONE;
        j->by_task = j->own_words = false;
        j->message[0] = 0;
    }
}
