/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the records that snapshot.c has written, and restores the state of the job. A record may be
 * damaged, or of a newer version: each number, name and slot is checked.
 */
#include "job/snapshot.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "codec/json.h"
#include "job/job_int.h"

/* ---- values that are stored in another form ---- */

/* The index of a name in its table; 0 for NULL, -1 for a name that is not in the table. */
static int find_name(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 1; name && i < n; i++)
        if (str_eq(names[i], name))
            return (int)i;
    return name ? -1 : 0;
}

/* The time of a stored number; `none` if the number says that there is no time. */
static int64_t decode_time(int64_t stored, int64_t none)
{
    return stored > 0 ? stored - 1 : none;
}

/* The highest number of a list: the sum of some hundred such times has no overflow. */
#define LIST_NUMBER_MAX ((int64_t)1 << 52)

/* Read at most n numbers from 0 to max. If the list has fewer, the other elements of v stay as they
 * are. */
static int decode_numbers(const char *list, int64_t *v, size_t n, int64_t max, struct err *e)
{
    struct span rest = span_of(list ? list : ""), one;
    size_t i = 0;

    while (span_split(&rest, ',', &one)) {
        if (!one.len)
            continue;
        if (i == n || str_i64(one, 0, max, "number", &v[i++], NULL) < 0)
            return err_set(e, EBADMSG,
                           "snapshot: the list '%.60s' is too long, or has a wrong number", list);
    }
    return 0;
}

static int decode_i64s(const char *list, int64_t *v, size_t n, struct err *e)
{
    return decode_numbers(list, v, n, LIST_NUMBER_MAX, e);
}

static int decode_u32s(const char *list, uint32_t *v, size_t n, struct err *e)
{
    AUTO(free_p) int64_t *wide = calloc(n + 1, sizeof *wide);
    if (!wide)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        wide[i] = v[i];
    int rc = decode_numbers(list, wide, n, UINT32_MAX, e);
    for (size_t i = 0; rc == 0 && i < n; i++)
        v[i] = (uint32_t)wide[i];
    return rc;
}

/* ---- records ---- */

static int bad_snapshot(struct err *e, const char *what)
{
    return err_set(e, EBADMSG, "snapshot: %s", what);
}

/* Replace *to by a copy of text, which may be NULL. 0 or -ENOMEM. */
static int set_text(char **to, const char *text)
{
    free(TAKE(*to));
    *to = str_dup(text);
    return text && !*to ? -ENOMEM : 0;
}

static int job_state_named(const char *name)
{
    for (int s = JOB_NONE + 1; name && s < JOB_STATE_COUNT; s++)
        if (str_eq(job_state_name((enum job_state)s), name))
            return s;
    return name ? -1 : JOB_NONE;
}

/* Memory is allocated for at most so many slots before their records are read: the number in the
 * record of the job may be damaged. */
enum { SLOTS_AHEAD_MAX = 1 << 17 };

static int restore_job(struct job *j, const struct snap_job *s, struct err *e)
{
    int state = job_state_named(s->state), decided = job_state_named(s->decided);

    if (state <= JOB_NEW || decided < 0 || s->n_slots > UINT32_MAX / 8)
        return bad_snapshot(e, "the job has an unknown state or too many slots");
    uint32_t n = MIN(s->n_slots, (uint32_t)SLOTS_AHEAD_MAX);
    if (n > j->n_slots && job_reserve_slots(j, n - j->n_slots) < 0)
        return -ENOMEM;
    j->state = (enum job_state)state;
    j->decided = (enum job_state)decided;
    j->epoch = s->epoch;
    j->generation = s->generation;
    j->now_ms = s->now_ms;
    j->resyncing = s->resyncing;
    j->check_groups = s->check_groups;
    j->check_depends = s->check_depends;
    j->owned = s->owned;
    j->submitted_wall_ms = s->submitted_wall_ms;
    j->submitted_ms = s->submitted_ms;
    j->started_ms = decode_time(s->started, -1);
    j->ended_ms = decode_time(s->ended, -1);
    j->master_ms = s->master_ms;
    j->stalled_ms = s->stalled_ms;
    j->beats_from = s->beats_from;
    j->client_due_ms = decode_time(s->client_due, INT64_MAX);
    j->tensorboard = (int64_t)s->tensorboard - 1;
    j->by_task = s->by_task;
    j->own_words = s->own_words;
    j->wait_ms = s->wait_ms;
    j->save_ms = s->save_ms;
    (void)str_copy(j->message, sizeof j->message, s->message ? s->message : "");
    uint32_t *ready = j->ready, none = UINT32_MAX;
    for (uint32_t i = 0; i < j->n_roles; i++)
        ready[i] = none;
    int rc = decode_u32s(s->ready, ready, j->n_roles, e);
    for (j->n_ready = 0; j->n_ready < j->n_roles && ready[j->n_ready] != none;)
        if (ready[j->n_ready++] >= j->n_roles)
            return bad_snapshot(e, "the list 'ready' names a role that the job does not have");
    if (rc == 0)
        rc = set_text(&j->application_id, s->application_id);
    return rc == 0 ? set_text(&j->user, s->user) : rc;
}

static int restore_gang(struct job *j, const struct snap_gang *s, struct err *e)
{
    (void)e;
    j->gang = (struct gang){ .gives_back = s->gives_back,
                             .asked_ms = decode_time(s->asked, -1),
                             .round = s->round,
                             .granted_ms = s->granted_ms,
                             .pause_due_ms = decode_time(s->pause_due, INT64_MAX),
                             .had = s->had,
                             .wanted = s->wanted,
                             .after_ms = s->after_ms };
    return 0;
}

static int restore_restarts(struct job *j, const struct snap_restarts *s, struct err *e)
{
    struct restarts *r = &j->restarts;
    int kind = find_name(snap_restart_kinds, RESTARTED_COUNT, s->kind);

    if (kind < 0)
        return bad_snapshot(e, "it names an unknown kind of restart");
    r->mending = s->mending;
    r->hopeless = s->hopeless;
    r->retries = s->retries;
    r->n = s->count;
    r->due_ms = decode_time(s->due, INT64_MAX);
    r->paused_ms = s->paused_ms;
    r->had_old = s->had_old;
    r->last.slot = s->slot;
    r->last.attempt = s->attempt;
    r->last.reason = s->reason;
    r->last.exit_code = s->exit_code;
    r->last.signal = s->signal;
    r->last.at_us = s->at_us;
    r->last.cause = cause_named(s->cause);
    r->last.kind = (enum restart_kind)kind;
    r->last.step = s->step;
    return 0;
}

static int restore_failures(struct job *j, const struct snap_failures *s, struct err *e)
{
    (void)e;
    j->failures.first = (struct failure){ .slot = (int64_t)s->first - 1,
                                          .at_us = s->first_us,
                                          .cause = cause_named(s->first_cause) };
    j->failures.fatal = (struct failure){ .slot = (int64_t)s->fatal - 1,
                                          .at_us = s->fatal_us,
                                          .cause = cause_named(s->fatal_cause) };
    j->failures.n_past = s->n_past;
    return 0;
}

static int restore_past(struct job *j, const struct snap_past *s, struct err *e)
{
    int note = find_name(snap_notes, NOTE_COUNT, s->note);
    int done = find_name(snap_restart_kinds, RESTARTED_COUNT, s->done);

    if (j->restored.n_past >= JOB_FAILURES_KEPT || note < 0 || done < 0)
        return bad_snapshot(e, "it has too many failures, or an unknown name in one");
    struct past_failure *p = &j->failures.past[j->restored.n_past++];
    *p = (struct past_failure){ .slot = s->slot,
                                .generation = s->generation,
                                .attempt = s->attempt,
                                .reason = s->reason,
                                .exit_code = s->exit_code,
                                .signal = s->signal,
                                .at_us = s->at_us,
                                .step = s->step,
                                .node = (int32_t)s->node - 1,
                                .note = (enum slot_note)note,
                                .done = (enum restart_kind)done,
                                .cause = cause_named(s->cause) };
    int rc = set_text(&p->detail, s->detail);
    if (rc == 0)
        rc = set_text(&p->tail, s->tail);
    return rc == 0 ? set_text(&p->cause_line, s->cause_line) : rc;
}

static int restore_checkpoints(struct job *j, const struct snap_checkpoints *s, struct err *e)
{
    struct job_checkpoints *c = &j->checkpoints;

    (void)e;
    c->has = s->has;
    c->generation = s->generation;
    c->step = s->step;
    c->first = s->first;
    c->furthest = s->furthest;
    c->ms = s->ms;
    c->timeline = s->timeline;
    return 0;
}

static int restore_resize(struct job *j, const struct snap_resize *s, struct err *e)
{
    struct resize *z = &j->resize;
    int state = find_name(snap_resize_states, RESIZE_STATE_COUNT, s->state);
    int outcome = find_name(snap_resize_outcomes, RESIZE_OUTCOME_COUNT, s->outcome);

    if (state <= 0 || outcome < 0)
        return bad_snapshot(e, "it names an unknown state or outcome of a resize");
    z->state = (enum resize_state)state;
    z->outcome = (enum resize_outcome)outcome;
    z->asked_ms = s->asked_ms;
    z->due_ms = decode_time(s->due, INT64_MAX);
    z->save_due_ms = s->save_due_ms;
    z->failed = s->failed;
    z->n = s->count;
    z->ended_ms = s->ended_ms;
    z->below = s->below;
    z->kept.set = s->kept;
    z->kept.n_containers = s->kept_n;
    z->kept.due_ms = s->kept_due_ms;
    z->kept.saved = s->kept_saved;
    z->saved = s->saved;
    z->saved_generation = s->saved_generation;
    z->saved_step = s->saved_step;
    (void)str_copy(z->detail, sizeof z->detail, s->detail ? s->detail : "");
    int rc = decode_u32s(s->target, z->target, j->n_roles, e);
    if (rc == 0)
        rc = decode_u32s(s->from, z->from, j->n_roles, e);
    if (rc == 0) /* a snapshot without it is older: only `from` could be taken back */
        rc = decode_u32s(s->fallback ? s->fallback : s->from, z->fallback, j->n_roles, e);
    if (rc == 0)
        rc = decode_u32s(s->to, z->to, j->n_roles, e);
    if (rc == 0)
        rc = decode_u32s(s->by_restart, z->by_restart, j->n_roles, e);
    if (rc == 0)
        rc = set_text(&z->who, s->who);
    if (rc == 0)
        rc = set_text(&z->leave, s->leave);
    if (rc == 0)
        rc = set_text(&z->kept.why, s->kept_why);
    return rc == 0 ? set_text(&z->why, s->why) : rc;
}

static void decode_sample(const int64_t *v, struct cost_sample *out)
{
    for (size_t p = 0; p < COST_PART_COUNT; p++)
        out->ms[p] = v[p] - 1;
    out->by_resize = v[COST_PART_COUNT] != 0;
}

static int restore_costs(struct job *j, const struct snap_costs *s, struct err *e)
{
    struct costs *c = &j->costs;
    int64_t now[SNAP_SAMPLE] = { 0 }, recent[COSTS_KEPT * SNAP_SAMPLE] = { 0 };

    if (s->phase >= COST_PHASE_COUNT)
        return bad_snapshot(e, "it names an unknown phase of a restart");
    int rc = decode_i64s(s->parts, now, SNAP_SAMPLE, e);
    if (rc == 0)
        rc = decode_i64s(s->recent, recent, ARRAY_LEN(recent), e);
    if (rc < 0)
        return rc;
    *c = (struct costs){ .phase = (enum cost_phase)s->phase,
                         .since_ms = s->since_ms,
                         .delayed = s->delayed,
                         .resumed = s->resumed,
                         .step = s->step,
                         .kept_ms = s->kept_ms,
                         .n = s->count };
    decode_sample(now, &c->now);
    for (uint32_t i = 0; i < COSTS_KEPT; i++)
        decode_sample(&recent[i * SNAP_SAMPLE], &c->recent[i]);
    return 0;
}

static int restore_times(const struct job *j, uint32_t role, const char *list, struct tally *to,
                         struct err *e)
{
    uint32_t n = list && *list ? 1 : 0;

    for (const char *p = list; p && *p; p++)
        n += *p == ',';
    if (n && tally_reserve(to, job_role_spec(j, role), n) < 0)
        return -ENOMEM;
    return to->times ? decode_i64s(list, to->times, to->n_times, e) : 0;
}

static int restore_role(struct job *j, const struct snap_role *s, struct err *e)
{
    if (s->role >= j->n_all_roles)
        return bad_snapshot(e, "it has a role that the job does not have");
    struct role *r = &j->roles[s->role];
    if (s->of != r->of || s->spares != (s->role >= j->n_roles))
        return bad_snapshot(e, "its roles are in another order than those of the job");
    if (s->kind < ROLE_TRACKED || s->kind > ROLE_SIDECAR)
        return bad_snapshot(e, "it has a role of an unknown kind");
    r->n = s->instances; /* the records of its slots follow later */
    r->forming = s->forming;
    r->gated = s->gated;
    r->tally.n = s->restarts;
    r->tally.row = s->row;
    r->n_unmet = s->n_unmet;
    r->awaited = s->awaited;
    r->stopped = s->stopped;
    r->kind = (enum role_kind)s->kind;
    return restore_times(j, s->role, s->times, &r->tally, e);
}

static int restore_group(struct job *j, const struct snap_group *s, struct err *e)
{
    if (s->group >= j->spec->n_group_timeouts)
        return bad_snapshot(e, "it has a group that the job does not have");
    j->groups[s->group] = (struct group){ .armed = s->armed, .over = s->over, .due_ms = s->due_ms };
    return 0;
}

static int restore_node(struct job *j, const struct snap_node *s, struct err *e)
{
    if (!s->name || nodes_reserve(j, s->name) < 0)
        return s->name ? -ENOMEM : bad_snapshot(e, "it has a node without a name");
    const char *name = str_dup(s->name);
    int32_t i = name ? nodes_enter(j, &name) : -1;
    free((char *)(uintptr_t)name);
    if (i < 0)
        return -ENOMEM;
    struct node *n = &j->nodes.v[i];
    n->n = s->failures;
    n->until_ms = decode_time(s->until, -1);
    j->nodes.n_out += n->until_ms >= 0;
    return decode_i64s(s->times, n->times, j->spec->node_max_failures, e);
}

static int slot_state_named(const char *name)
{
    for (int s = SLOT_NONE + 1; name && s < SLOT_STATE_COUNT; s++)
        if (str_eq(slot_state_name((enum slot_state)s), name))
            return s;
    return -1;
}

static int restore_slot_texts(struct slot *to, const struct snap_slot *s)
{
    int rc = set_text(&to->container, s->container);
    if (rc == 0)
        rc = set_text(&to->address, s->address);
    if (rc == 0)
        rc = set_text(&to->gpus, s->gpus);
    if (rc == 0)
        rc = set_text(&to->tensorboard, s->tensorboard);
    if (rc == 0)
        rc = set_text(&to->detail, s->detail);
    if (rc == 0)
        rc = set_text(&to->tail, s->tail);
    return rc == 0 ? set_text(&to->cause_line, s->cause_line) : rc;
}

static int restore_slot_lists(const struct job *j, struct slot *to, const struct snap_slot *s,
                              struct err *e)
{
    uint32_t quick[RESTART_QUICK_NODES] = { 0 };
    int rc = decode_u32s(s->spent, to->spent, END_COUNT, e);
    if (rc == 0)
        rc = decode_u32s(s->quick, quick, ARRAY_LEN(quick), e);
    for (size_t i = 0; i < ARRAY_LEN(quick); i++)
        to->quick[i] = (int32_t)quick[i] - 1;
    return rc == 0 ? restore_times(j, to->role, s->times, &to->tally, e) : rc;
}

static int restore_slot(struct job *j, const struct snap_slot *s, struct err *e)
{
    int state = slot_state_named(s->state), note = find_name(snap_notes, NOTE_COUNT, s->note);
    int result = find_name(snap_results, ARRAY_LEN(snap_results), s->result);

    if (s->slot > j->n_slots || s->role >= j->n_all_roles || state < 0 || note < 0 || result < 0)
        return bad_snapshot(e, "a slot has a wrong number or role, or an unknown state");
    if (s->slot == j->n_slots && job_reserve_slots(j, 1) < 0)
        return -ENOMEM;
    if (s->slot == j->n_slots)
        (void)job_add_slot(j, s->role);
    struct slot *to = &j->slots[s->slot];
    if (to->role != s->role || (s->node && s->node > j->nodes.n))
        return bad_snapshot(e, "a slot has another role than in the job, or a missing node");
    to->state = (enum slot_state)state;
    to->result = (enum slot_result)result;
    to->reason = s->reason;
    to->ready = s->ready;
    to->seen = s->seen;
    to->stop_tries = s->stop_tries;
    to->generation = s->generation;
    to->attempt = s->attempt;
    to->tb_port = s->tb_port;
    to->pid = s->pid;
    to->rank = s->rank;
    to->exit_code = s->exit_code;
    to->signal = s->signal;
    to->since_ms = s->since_ms;
    to->stop_us = decode_time(s->stop, -1);
    to->started_ms = decode_time(s->started, -1);
    to->ended_ms = decode_time(s->ended, -1);
    to->ended_us = s->ended_us;
    to->cause = cause_named(s->cause);
    to->step = s->step;
    to->total = s->total;
    to->first_step = s->first_step;
    to->first_ms = s->first_ms;
    to->step_ms = s->step_ms;
    to->note = (enum slot_note)note;
    to->tally.n = s->restarts;
    to->tally.row = s->row;
    to->due_ms = s->due_ms;
    to->node = (int32_t)s->node - 1;
    to->lent_to = s->lent_to - 1;
    to->moved = s->moved;
    to->attempts_before = s->attempts_before;
    to->renumbered = s->index > 0;
    if (to->renumbered)
        to->index = s->index - 1;
    to->elsewhere = s->elsewhere;
    to->given_up = s->given_up;
    to->taken_ms = s->taken_ms;
    to->leaves = s->leaves;
    int rc = restore_slot_texts(to, s);
    return rc == 0 ? restore_slot_lists(j, to, s, e) : rc;
}

static int restore_saver(struct job *j, const struct snap_saver *s, struct err *e)
{
    if (s->slot >= j->n_slots)
        return bad_snapshot(e, "a saver of checkpoints is a slot that is missing");
    return checkpoint_put_saver(j, s->slot, s->reported, s->awaited);
}

static int restore_report(struct job *j, const struct snap_report *s, struct err *e)
{
    if (s->slot >= j->n_slots || !s->path)
        return bad_snapshot(e, "a checkpoint has no path, or a slot that is missing");
    return checkpoint_put(j, s->slot,
                          &(struct checkpoint_record){ .generation = s->generation,
                                                       .attempt = s->attempt,
                                                       .parts = s->parts,
                                                       .step = s->step,
                                                       .path = s->path,
                                                       .counts = s->counts });
}

union snap {
#define RECORD(name) struct snap_##name name;
    SNAP_RECORDS(RECORD)
#undef RECORD
};

/* May a snapshot have several records of this kind? */
static bool may_repeat(enum snap_kind kind)
{
    return kind == SNAP_KIND_role || kind == SNAP_KIND_group || kind == SNAP_KIND_node ||
           kind == SNAP_KIND_slot || kind == SNAP_KIND_saver || kind == SNAP_KIND_report ||
           kind == SNAP_KIND_past;
}

static int restore_record(struct job *j, enum snap_kind kind, const union snap *s, struct err *e)
{
    switch (kind) {
#define RECORD(name)                                                                               \
    case SNAP_KIND_##name:                                                                         \
        return restore_##name(j, &s->name, e);
        SNAP_RECORDS(RECORD)
#undef RECORD
    case SNAP_NONE:
    case SNAP_KIND_COUNT:
        break;
    }
    return bad_snapshot(e, "it has an unknown record");
}

/* Read the members of a record into *s, except those that every record of the journal has: "e" is
 * its name, "n" its number, "c" its checksum. */
static int read_members(const json_t *obj, enum snap_kind kind, union snap *s, struct err *e)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)obj, key, v)
    {
        if (str_eq(key, "e") || str_eq(key, "n") || str_eq(key, "c"))
            continue;
        const struct field *f = record_field(snap_records[kind].fields, key);
        int rc = f ? record_read(f, v, s, e)
                   : err_set(e, EBADMSG, "snapshot: a record %s has no member '%.40s'",
                             snap_records[kind].name, key);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int job_restore(struct job *j, struct span json, struct err *e)
{
    AUTO(json_freep) json_t *obj = NULL;
    union snap s;
    struct err why = { 0 };
    int rc = json_parse("snapshot", json, &obj, &why);

    if (rc < 0)
        return rc == -ENOMEM ? err_set(e, ENOMEM, "no memory for a snapshot")
                             : err_set(e, EBADMSG, "%s", why.msg);
    const char *name = json_string_value(json_object_get(obj, "e"));
    enum snap_kind kind = SNAP_NONE;
    for (int k = 1; k < SNAP_KIND_COUNT; k++)
        if (str_eq(snap_records[k].name, name))
            kind = (enum snap_kind)k;
    if (!kind)
        return err_set(e, EBADMSG, "snapshot: unknown record '%.40s'", name ? name : "");
    if ((kind == SNAP_KIND_job) != (j->state == JOB_NEW))
        return bad_snapshot(e, "the record of the job must be the first one, and the only one");
    if (!may_repeat(kind) && j->restored.kinds & 1u << kind)
        return bad_snapshot(e, "a record that must be the only one of its kind is there twice");
    j->restored.kinds |= 1u << kind;
    memset(&s, 0, sizeof s);
    rc = read_members(obj, kind, &s, e);
    if (rc == 0)
        rc = restore_record(j, kind, &s, e);
    return rc < 0 && !(e && e->num) ? err_set(e, -rc, "no memory for a snapshot") : rc;
}

static bool is_slot(const struct job *j, int64_t slot)
{
    return slot >= 0 && slot < j->n_slots;
}

static bool is_slot_or_none(const struct job *j, int64_t slot)
{
    return slot == JOB_NO_SLOT || is_slot(j, slot);
}

/* A damaged snapshot may name slots or nodes that it does not have. */
static int check_slots(const struct job *j, struct err *e)
{
    const struct failures *f = &j->failures;
    bool good = is_slot_or_none(j, f->first.slot) && is_slot_or_none(j, f->fatal.slot) &&
                is_slot_or_none(j, j->tensorboard) &&
                (!j->restarts.last.kind || is_slot(j, j->restarts.last.slot)) &&
                (!j->checkpoints.has || is_slot(j, j->checkpoints.first));

    for (size_t i = 0; i < j->restored.n_past; i++)
        good = good && is_slot(j, f->past[i].slot) && f->past[i].node < (int64_t)j->nodes.n;
    for (uint32_t r = 0; r < j->n_all_roles; r++) {
        good = good && j->roles[r].n <= j->roles[r].n_slots;
        good = good && (r >= j->n_roles || j->resize.target[r] <= j->roles[r].n_slots);
    }
    for (uint32_t i = 0; i < j->n_slots; i++)
        good = good && (j->slots[i].lent_to == UINT32_MAX || is_slot(j, j->slots[i].lent_to));
    if (j->restored.n_past != MIN(f->n_past, (uint32_t)JOB_FAILURES_KEPT))
        return bad_snapshot(e, "failures are missing");
    return good ? 0 : bad_snapshot(e, "it names slots or nodes that it does not have");
}

/* Resizes may have changed indices. Sort the slots of each role by them. */
static int restore_indices(struct job *j, struct err *e)
{
    bool good = true;

    for (uint32_t i = 0; i < j->n_slots && good; i++) {
        const struct slot *s = &j->slots[i];
        good = !s->renumbered || (s->role < j->n_roles && s->index < j->roles[s->role].n_slots);
        if (good && s->renumbered)
            j->roles[s->role].slots[s->index] = i;
    }
    for (uint32_t r = 0; r < j->n_roles && good; r++)
        for (uint32_t k = 0; k < j->roles[r].n_slots && good; k++)
            good = j->slots[j->roles[r].slots[k]].index == k;
    return good ? 0 : bad_snapshot(e, "two tasks have the same index");
}

/* Check the restored state, and compute the counters and deadlines from it. */
int job_restored(struct job *j, struct err *e)
{
    int rc = j->state == JOB_NEW ? bad_snapshot(e, "the record of the job is missing")
                                 : check_slots(j, e);

    if (rc == 0)
        rc = restore_indices(j, e);
    if (rc < 0)
        return rc;
    decisions_restored(j);
    memset(j->n_state, 0, sizeof j->n_state);
    memset(j->n_outside, 0, sizeof j->n_outside);
    j->n_tasks = j->n_waited = j->n_awaited = 0;
    for (uint32_t r = 0; r < j->n_all_roles; r++) {
        struct role *role = &j->roles[r];
        memset(role->n_state, 0, sizeof role->n_state);
        memset(role->n_result, 0, sizeof role->n_result);
        memset(role->n_outside, 0, sizeof role->n_outside);
        role->n_settled = role->n_started = role->n_ready = role->n_forming = role->n_set_up = 0;
        if (r < j->n_roles) {
            j->n_tasks += role->n;
            j->n_awaited += role->awaited ? role->n : 0;
        }
    }
    for (uint32_t i = 0; i < j->n_slots; i++)
        slot_count(j, &j->slots[i]);
    for (uint32_t i = 0; i < j->n_slots; i++)
        limits_slot(j, i);
    limits_job(j);
    mend_look_at_all(j);
    return 0;
}
