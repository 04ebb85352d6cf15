/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the whole state of a job as records of the journal; snapshot_read.c restores it. A new
 * master that reads a snapshot and the events after it gets the same state as from a replay of all
 * events.
 *
 * A snapshot does not contain:
 *   - connections and heartbeats, which are in no journal either
 *   - state that follows from other state: counters, deadlines, the list of slots for mend_run()
 */
#include "job/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "job/job_int.h"

/* ---- tables ---- */

/* clang-format off */
#define FIELD(kind, field) { #field, F_##kind, offsetof(struct SNAP_OF, field), "" },
#define SNAP_OF snap_job
static const struct field fields_job[] = { SNAP_job(FIELD) { 0 } };
#undef SNAP_OF
#define SNAP_OF snap_gang
static const struct field fields_gang[] = { SNAP_gang(FIELD) { 0 } };
#undef SNAP_OF
#define SNAP_OF snap_restarts
static const struct field fields_restarts[] = { SNAP_restarts(FIELD) { 0 } };
#undef SNAP_OF
#define SNAP_OF snap_failures
static const struct field fields_failures[] = { SNAP_failures(FIELD) { 0 } };
#undef SNAP_OF
#define SNAP_OF snap_checkpoints
static const struct field fields_checkpoints[] = { SNAP_checkpoints(FIELD) { 0 } };
#undef SNAP_OF
#define SNAP_OF snap_resize
static const struct field fields_resize[] = { SNAP_resize(FIELD) { 0 } };
#undef SNAP_OF
#define SNAP_OF snap_costs
static const struct field fields_costs[] = { SNAP_costs(FIELD) { 0 } };
#undef SNAP_OF
#define SNAP_OF snap_role
static const struct field fields_role[] = { SNAP_role(FIELD) { 0 } };
#undef SNAP_OF
#define SNAP_OF snap_group
static const struct field fields_group[] = { SNAP_group(FIELD) { 0 } };
#undef SNAP_OF
#define SNAP_OF snap_node
static const struct field fields_node[] = { SNAP_node(FIELD) { 0 } };
#undef SNAP_OF
#define SNAP_OF snap_slot
static const struct field fields_slot[] = { SNAP_slot(FIELD) { 0 } };
#undef SNAP_OF
#define SNAP_OF snap_saver
static const struct field fields_saver[] = { SNAP_saver(FIELD) { 0 } };
#undef SNAP_OF
#define SNAP_OF snap_report
static const struct field fields_report[] = { SNAP_report(FIELD) { 0 } };
#undef SNAP_OF
#define SNAP_OF snap_past
static const struct field fields_past[] = { SNAP_past(FIELD) { 0 } };
#undef SNAP_OF
#undef FIELD

const struct snap_record snap_records[SNAP_KIND_COUNT] = {
#define RECORD(name) [SNAP_KIND_##name] = { "snapshot." #name, fields_##name },
    SNAP_RECORDS(RECORD)
#undef RECORD
};

#define X(id, name) [id] = name,
const char *const snap_resize_states[RESIZE_STATE_COUNT] = { RESIZE_STATES(X) };
const char *const snap_resize_outcomes[RESIZE_OUTCOME_COUNT] = { RESIZE_OUTCOMES(X) };
#undef X
#define X(id, name, text) [id] = name,
const char *const snap_notes[NOTE_COUNT] = { SLOT_NOTES(X) };
const char *const snap_restart_kinds[RESTARTED_COUNT] = { RESTART_KINDS(X) };
#undef X
/* clang-format on */
const char *const snap_results[RES_LOST + 1] = { [RES_SUCCEEDED] = "succeeded",
                                                 [RES_FAILED] = "failed",
                                                 [RES_FINISHED] = "finished",
                                                 [RES_LOST] = "lost" };

/* ---- values that are stored in another form ---- */

/* t = -1 or INT64_MAX: there is no time. */
static int64_t encode_time(int64_t t)
{
    return t < 0 || t == INT64_MAX ? 0 : t + 1;
}

/* id = -1: there is none. */
static uint32_t encode_id(int64_t id)
{
    return (uint32_t)(id + 1);
}

/* ---- writing ---- */

enum { LISTS_MAX = 5 }; /* in one record */

struct writer {
    struct buf *out;
    struct buf lists[LISTS_MAX]; /* texts of the lists of the record that is being written */
    size_t n_lists;
    bool failed; /* a list could not be written, so the snapshot is not whole */
};

/* Write the numbers as "1,2,3", for the record that add_record() writes next. NULL if n = 0. */
static const char *encode_u32s(struct writer *w, const uint32_t *v, size_t n)
{
    struct buf *b = &w->lists[w->n_lists++];

    for (size_t i = 0; i < n; i++) {
        if (i)
            (void)buf_addc(b, ',');
        record_add_number(b, v[i]);
    }
    return n && !b->failed ? buf_cstr(b) : NULL;
}

/* The same without the zeros at the end: most lists of times are long and empty. v may be NULL. */
static const char *encode_i64s(struct writer *w, const int64_t *v, size_t n)
{
    struct buf *b = &w->lists[w->n_lists++];

    while (v && n > 0 && v[n - 1] == 0)
        n--;
    for (size_t i = 0; v && i < n; i++) {
        if (i)
            (void)buf_addc(b, ',');
        record_add_number(b, v[i]);
    }
    return v && n && !b->failed ? buf_cstr(b) : NULL;
}

static void add_record(struct writer *w, enum snap_kind kind, const void *from)
{
    (void)buf_adds(w->out, "{\"e\":\"");
    (void)buf_adds(w->out, snap_records[kind].name);
    (void)buf_addc(w->out, '"');
    record_add(w->out, snap_records[kind].fields, from);
    (void)buf_adds(w->out, "}\n");
    while (w->n_lists > 0) {
        struct buf *list = &w->lists[--w->n_lists];
        w->failed |= list->failed;
        buf_clear(list);
    }
}

#define ADD_RECORD(w, name, ...)                                                                   \
    add_record(w, SNAP_KIND_##name, &(struct snap_##name){ __VA_ARGS__ })

static const char *cause_name(const struct cause *c)
{
    return c ? c->name : NULL;
}

static const char *state_text(enum job_state s)
{
    return s ? job_state_name(s) : NULL;
}

static void add_job(struct writer *w, const struct job *j)
{
    ADD_RECORD(
        w, job, .application_id = j->application_id, .user = j->user, .state = state_text(j->state),
        .decided = state_text(j->decided), .epoch = j->epoch, .generation = j->generation,
        .now_ms = j->now_ms, .ready = encode_u32s(w, j->ready, j->n_ready),
        .resyncing = j->resyncing, .check_groups = j->check_groups,
        .check_depends = j->check_depends, .owned = j->owned,
        .submitted_wall_ms = j->submitted_wall_ms, .submitted_ms = j->submitted_ms,
        .started = encode_time(j->started_ms), .ended = encode_time(j->ended_ms),
        .master_ms = j->master_ms, .stalled_ms = j->stalled_ms, .beats_from = j->beats_from,
        .client_due = encode_time(j->client_due_ms), .tensorboard = encode_id(j->tensorboard),
        .by_task = j->by_task, .own_words = j->own_words, .wait_ms = j->wait_ms,
        .save_ms = j->save_ms, .message = *j->message ? j->message : NULL, .n_slots = j->n_slots);
    const struct gang *g = &j->gang;
    ADD_RECORD(w, gang, .gives_back = g->gives_back, .asked = encode_time(g->asked_ms),
               .round = g->round, .granted_ms = g->granted_ms,
               .pause_due = encode_time(g->pause_due_ms), .had = g->had, .wanted = g->wanted,
               .after_ms = g->after_ms);
}

static void add_restarts(struct writer *w, const struct job *j)
{
    const struct restarts *r = &j->restarts;
    const struct failures *f = &j->failures;

    ADD_RECORD(w, restarts, .mending = r->mending, .hopeless = r->hopeless, .retries = r->retries,
               .count = r->n, .due = encode_time(r->due_ms), .paused_ms = r->paused_ms,
               .had_old = r->had_old, .slot = r->last.slot, .attempt = r->last.attempt,
               .reason = r->last.reason, .exit_code = r->last.exit_code, .signal = r->last.signal,
               .at_us = r->last.at_us, .cause = cause_name(r->last.cause),
               .kind = snap_restart_kinds[r->last.kind], .step = r->last.step);
    ADD_RECORD(w, failures, .first = encode_id(f->first.slot), .first_us = f->first.at_us,
               .first_cause = cause_name(f->first.cause), .fatal = encode_id(f->fatal.slot),
               .fatal_us = f->fatal.at_us, .fatal_cause = cause_name(f->fatal.cause),
               .n_past = f->n_past);
    for (size_t i = 0; i < MIN((size_t)f->n_past, ARRAY_LEN(f->past)); i++) {
        const struct past_failure *p = &f->past[i];
        ADD_RECORD(w, past, .slot = p->slot, .generation = p->generation, .attempt = p->attempt,
                   .reason = p->reason, .exit_code = p->exit_code, .signal = p->signal,
                   .at_us = p->at_us, .step = p->step, .detail = p->detail, .tail = p->tail,
                   .cause_line = p->cause_line, .node = encode_id(p->node),
                   .note = snap_notes[p->note], .done = snap_restart_kinds[p->done],
                   .cause = cause_name(p->cause));
    }
}

static void add_resize(struct writer *w, const struct job *j)
{
    const struct resize *z = &j->resize;

    ADD_RECORD(w, resize, .state = snap_resize_states[z->state],
               .target = encode_u32s(w, z->target, j->n_roles),
               .from = encode_u32s(w, z->from, j->n_roles),
               .fallback = encode_u32s(w, z->fallback, j->n_roles),
               .to = encode_u32s(w, z->to, j->n_roles),
               .by_restart = encode_u32s(w, z->by_restart, j->n_roles), .asked_ms = z->asked_ms,
               .due = encode_time(z->due_ms), .save_due_ms = z->save_due_ms, .failed = z->failed,
               .who = z->who, .why = z->why, .count = z->n,
               .outcome = snap_resize_outcomes[z->outcome], .ended_ms = z->ended_ms,
               .detail = *z->detail ? z->detail : NULL, .below = z->below, .kept = z->kept.set,
               .kept_n = z->kept.n_containers, .kept_due_ms = z->kept.due_ms,
               .kept_why = z->kept.why, .saved = z->saved, .saved_generation = z->saved_generation,
               .saved_step = z->saved_step, .kept_saved = z->kept.saved, .leave = z->leave);
}

/* Each part plus 1, and at the end whether it was a resize. */
static void encode_sample(const struct cost_sample *s, int64_t *out)
{
    for (size_t p = 0; p < COST_PART_COUNT; p++)
        out[p] = s->ms[p] + 1;
    out[COST_PART_COUNT] = s->by_resize;
}

static void add_costs(struct writer *w, const struct job *j)
{
    const struct costs *c = &j->costs;
    int64_t now[SNAP_SAMPLE] = { 0 }, recent[COSTS_KEPT * SNAP_SAMPLE] = { 0 };

    if (c->phase)
        encode_sample(&c->now, now);
    for (uint32_t i = 0; i < MIN(c->n, (uint32_t)COSTS_KEPT); i++)
        encode_sample(&c->recent[i], &recent[i * SNAP_SAMPLE]);
    ADD_RECORD(w, costs, .phase = (uint32_t)c->phase, .parts = encode_i64s(w, now, SNAP_SAMPLE),
               .since_ms = c->since_ms, .delayed = c->delayed, .resumed = c->resumed,
               .step = c->step, .kept_ms = c->kept_ms, .count = c->n,
               .recent = encode_i64s(w, recent, ARRAY_LEN(recent)));
}

static void add_roles(struct writer *w, const struct job *j)
{
    for (uint32_t r = 0; r < j->n_all_roles; r++) {
        const struct role *role = &j->roles[r];
        ADD_RECORD(w, role, .role = r, .instances = role->n, .of = role->of,
                   .spares = r >= j->n_roles, .forming = role->forming, .gated = role->gated,
                   .restarts = role->tally.n, .row = role->tally.row, .n_unmet = role->n_unmet,
                   .awaited = role->awaited,
                   .times = encode_i64s(w, role->tally.times, role->tally.n_times),
                   .stopped = role->stopped, .kind = (uint32_t)role->kind);
    }
    for (uint32_t g = 0; g < j->spec->n_group_timeouts; g++)
        ADD_RECORD(w, group, .group = g, .armed = j->groups[g].armed, .over = j->groups[g].over,
                   .due_ms = j->groups[g].due_ms);
    for (size_t i = 0; i < j->nodes.n; i++) {
        const struct node *n = &j->nodes.v[i];
        ADD_RECORD(w, node, .name = n->name, .failures = n->n, .until = encode_time(n->until_ms),
                   .times = encode_i64s(w, n->times, j->spec->node_max_failures));
    }
}

static void add_slot(struct writer *w, const struct job *j, uint32_t slot)
{
    const struct slot *s = &j->slots[slot];
    uint32_t quick[RESTART_QUICK_NODES];
    bool any_spent = false;

    for (size_t i = 0; i < ARRAY_LEN(quick); i++)
        quick[i] = encode_id(s->quick[i]);
    for (size_t i = 0; i < END_COUNT; i++)
        any_spent |= s->spent[i] > 0;
    ADD_RECORD(w, slot, .slot = slot, .role = s->role, .state = slot_state_name(s->state),
               .result = snap_results[s->result], .reason = s->reason, .ready = s->ready,
               .seen = s->seen, .stop_tries = s->stop_tries, .generation = s->generation,
               .attempt = s->attempt, .tb_port = s->tb_port, .pid = s->pid, .rank = s->rank,
               .exit_code = s->exit_code, .signal = s->signal, .since_ms = s->since_ms,
               .stop = encode_time(s->stop_us), .started = encode_time(s->started_ms),
               .ended = encode_time(s->ended_ms), .ended_us = s->ended_us,
               .cause = cause_name(s->cause), .step = s->step, .total = s->total,
               .first_step = s->first_step, .first_ms = s->first_ms, .step_ms = s->step_ms,
               .container = s->container, .address = s->address, .gpus = s->gpus,
               .tensorboard = s->tensorboard, .detail = s->detail, .tail = s->tail,
               .cause_line = s->cause_line, .note = snap_notes[s->note], .restarts = s->tally.n,
               .row = s->tally.row, .times = encode_i64s(w, s->tally.times, s->tally.n_times),
               .spent = any_spent ? encode_u32s(w, s->spent, END_COUNT) : NULL, .due_ms = s->due_ms,
               .node = encode_id(s->node),
               .quick = quick[0] ? encode_u32s(w, quick, ARRAY_LEN(quick)) : NULL,
               .lent_to = s->lent_to + 1, .moved = s->moved, .elsewhere = s->elsewhere,
               .given_up = s->given_up, .taken_ms = s->taken_ms, .leaves = s->leaves,
               .index = s->renumbered ? s->index + 1 : 0, .attempts_before = s->attempts_before);
}

static void add_checkpoints(struct writer *w, const struct job *j)
{
    const struct job_checkpoints *c = &j->checkpoints;

    ADD_RECORD(w, checkpoints, .has = c->has, .generation = c->generation, .step = c->step,
               .first = c->first, .furthest = c->furthest, .ms = c->ms, .timeline = c->timeline);
    for (uint32_t i = 0; i < j->n_slots; i++) {
        struct checkpoint_record r;
        uint32_t reported, at = 0;
        bool awaited;
        if (!checkpoint_saver(j, i, &reported, &awaited))
            continue;
        ADD_RECORD(w, saver, .slot = i, .reported = reported, .awaited = awaited);
        while (checkpoint_walk(j, i, &at, &r))
            ADD_RECORD(w, report, .slot = i, .generation = r.generation, .attempt = r.attempt,
                       .parts = r.parts, .step = r.step, .path = r.path, .counts = r.counts);
    }
}

int job_snapshot(const struct job *j, struct buf *lines)
{
    struct writer w = { .out = lines };

    add_job(&w, j);
    add_restarts(&w, j);
    add_roles(&w, j);
    add_resize(&w, j);
    add_costs(&w, j);
    for (uint32_t i = 0; i < j->n_slots; i++)
        add_slot(&w, j, i);
    add_checkpoints(&w, j);
    for (size_t i = 0; i < LISTS_MAX; i++)
        buf_done(&w.lists[i]);
    return lines->failed || w.failed ? -ENOMEM : 0;
}
