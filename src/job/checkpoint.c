/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkpoints that the tasks have saved, and from which one their next attempts resume.
 *
 * Each slot keeps its reports, and struct job_checkpoints counts them for each step. When a step is
 * not counted any longer, only its element there is freed. Its reports stay in the slots until a
 * newer report of the same slot needs the memory, because clearing them would mean visiting all
 * slots.
 */
#include "job/checkpoint.h"

#include <errno.h>
#include <stdlib.h>

#include "job/job_int.h"

/* ---- reports of one slot ---- */

void checkpoint_done(struct slot *s)
{
    for (size_t i = 0; s->saved && i < CHECKPOINT_KEPT; i++)
        free(s->saved->reports[i].path);
    free(s->saved);
    s->saved = NULL;
}

static struct checkpoint_report *find_report(const struct slot *s, uint32_t generation,
                                             uint64_t step)
{
    for (size_t i = 0; s->saved && i < CHECKPOINT_KEPT; i++) {
        struct checkpoint_report *r = &s->saved->reports[i];
        if (r->path && r->step == step && r->generation == generation)
            return r;
    }
    return NULL;
}

/* Is the step of `generation` later than other_step of other_generation? */
static bool is_later(uint32_t generation, uint64_t step, uint32_t other_generation,
                     uint64_t other_step)
{
    return generation > other_generation || (generation == other_generation && step > other_step);
}

/* Is the step later than the newest whole checkpoint? */
static bool is_newer(const struct job_checkpoints *c, uint32_t generation, uint64_t step)
{
    return !c->has || is_later(generation, step, c->generation, c->step);
}

/* Is this a report of the newest whole checkpoint? */
static bool is_whole_one(const struct job_checkpoints *c, const struct checkpoint_report *r)
{
    return c->has && r->generation == c->generation && r->step == c->step;
}

/* The step that counts the report; NULL = none does. */
static struct checkpoint_step *step_of(struct job_checkpoints *c, const struct checkpoint_report *r)
{
    for (size_t i = 0; r->counted && i < CHECKPOINT_STEPS; i++)
        if (c->steps[i].id == r->counted)
            return &c->steps[i];
    return NULL;
}

static void drop_report(struct job_checkpoints *c, struct checkpoint_report *r)
{
    struct checkpoint_step *at = step_of(c, r);

    if (at && --at->n == 0)
        at->id = 0;
    free(r->path);
    *r = (struct checkpoint_report){ 0 };
}

/* Drop the slot's reports about steps that are newer than the newest whole checkpoint. */
static void drop_newer(struct job_checkpoints *c, struct slot *s)
{
    for (size_t i = 0; s->saved && i < CHECKPOINT_KEPT; i++) {
        struct checkpoint_report *r = &s->saved->reports[i];
        if (r->path && is_newer(c, r->generation, r->step))
            drop_report(c, r);
    }
}

/* Drop the slot's reports about steps that are older than the newest whole checkpoint: no task can
 * resume from them. */
static void drop_older(struct job_checkpoints *c, struct slot *s)
{
    for (size_t i = 0; i < CHECKPOINT_KEPT; i++) {
        struct checkpoint_report *r = &s->saved->reports[i];
        if (r->path && !is_newer(c, r->generation, r->step) && !is_whole_one(c, r))
            drop_report(c, r);
    }
}

/* A free element for a report of the slot. If none is free: that of the lowest step that no step
 * counts. NULL = all reports are needed. */
static struct checkpoint_report *find_place_for_report(struct job_checkpoints *c, struct slot *s)
{
    struct checkpoint_report *best = NULL;

    for (size_t i = 0; i < CHECKPOINT_KEPT; i++) {
        struct checkpoint_report *r = &s->saved->reports[i];
        if (!r->path)
            return r;
        if (step_of(c, r) || is_whole_one(c, r))
            continue;
        if (!best || is_later(best->generation, best->step, r->generation, r->step))
            best = r;
    }
    return best;
}

/* ---- steps ---- */

/* The lowest slot whose report the step counts. It may be above at->first, since that slot may have
 * restarted. */
static uint32_t lowest_slot_of(const struct job *j, const struct checkpoint_step *at)
{
    uint32_t generation = j->checkpoints.timeline;

    for (uint32_t i = at->first; i < j->n_slots; i++) {
        const struct checkpoint_report *r = find_report(&j->slots[i], generation, at->step);
        if (r && r->counted == at->id)
            return i;
    }
    return at->first;
}

/* Make the step the newest whole checkpoint. */
static void set_whole(struct job *j, uint64_t step, uint32_t first)
{
    struct job_checkpoints *c = &j->checkpoints;

    if (!c->has || step > c->furthest) {
        c->furthest = step;
        c->ms = j->now_ms;
    }
    c->has = true;
    c->generation = c->timeline;
    c->step = step;
    c->first = first;
    costs_checkpoint_whole(j);
    for (size_t i = 0; i < CHECKPOINT_STEPS; i++)
        if (c->steps[i].id && c->steps[i].step <= step)
            c->steps[i].id = 0;
}

static bool is_complete(const struct job_checkpoints *c, const struct checkpoint_step *at)
{
    return at->id && (at->parts ? at->n >= at->parts : at->n == c->n_savers);
}

/* The number of savers has become smaller: find the highest step that is whole now. */
static void look_for_whole(struct job *j)
{
    struct job_checkpoints *c = &j->checkpoints;
    const struct checkpoint_step *best = NULL;

    for (size_t i = 0; i < CHECKPOINT_STEPS; i++)
        if (is_complete(c, &c->steps[i]) && (!best || c->steps[i].step > best->step))
            best = &c->steps[i];
    if (best)
        set_whole(j, best->step, lowest_slot_of(j, best));
}

static struct checkpoint_step *find_step(struct job_checkpoints *c, uint64_t step)
{
    for (size_t i = 0; i < CHECKPOINT_STEPS; i++)
        if (c->steps[i].id && c->steps[i].step == step)
            return &c->steps[i];
    return NULL;
}

/* A free element for a new step. If none is free: that of the lowest step. NULL = the new step is
 * lower than all counted steps. */
static struct checkpoint_step *find_place_for_step(struct job_checkpoints *c, uint64_t step)
{
    struct checkpoint_step *lowest = NULL;

    for (size_t i = 0; i < CHECKPOINT_STEPS; i++) {
        if (!c->steps[i].id)
            return &c->steps[i];
        if (!lowest || c->steps[i].step < lowest->step)
            lowest = &c->steps[i];
    }
    return lowest->step < step ? lowest : NULL;
}

/* Begin to count a step. NULL: the step is too old to become whole. */
static struct checkpoint_step *add_step(struct job *j, uint64_t step, uint32_t parts)
{
    struct job_checkpoints *c = &j->checkpoints;
    bool full = true;

    for (size_t i = 0; i < CHECKPOINT_STEPS; i++)
        full = full && c->steps[i].id;
    if (full && c->n_awaited) {
        c->n_savers -= c->n_awaited;
        c->n_awaited = 0;
        look_for_whole(j);
    }
    if (!is_newer(c, c->timeline, step))
        return NULL;
    struct checkpoint_step *at = find_place_for_step(c, step);
    if (at)
        *at = (struct checkpoint_step){
            .step = step, .id = ++c->last_id, .parts = parts, .first = UINT32_MAX
        };
    return at;
}

/* ---- the present generation ---- */

/* Was the slot a saver of the last generation, and has it not reported yet in this one? */
static bool is_awaited(const struct job_checkpoints *c, const struct slot_checkpoints *s)
{
    return c->n_awaited && s->awaited && s->reported != c->timeline;
}

/* The first task of a new generation starts, and resumes from the newest whole checkpoint. */
static void begin_timeline(struct job *j)
{
    struct job_checkpoints *c = &j->checkpoints;
    uint32_t n = 0;

    for (uint32_t i = 0; i < j->n_slots; i++) {
        struct slot *s = &j->slots[i];
        if (!s->saved || job_is_sidecar(j, s->role))
            continue;
        bool saver = c->timeline && s->saved->reported == c->timeline;
        s->saved->awaited = (saver || is_awaited(c, s->saved)) && job_is_task(j, i);
        s->saved->reported = 0;
        n += s->saved->awaited;
        drop_newer(c, s);
    }
    for (size_t i = 0; i < CHECKPOINT_STEPS; i++)
        c->steps[i].id = 0;
    c->timeline = j->generation;
    c->n_savers = c->n_awaited = n;
}

void checkpoint_begin(struct job *j, struct slot *s)
{
    if (job_is_sidecar(j, s->role))
        return; /* a sidecar does not restart with the gang, so it begins no timeline */
    if (j->checkpoints.timeline != s->generation)
        begin_timeline(j);
    else
        drop_newer(&j->checkpoints, s);
}

void checkpoint_leave(struct job *j, struct slot *s)
{
    struct job_checkpoints *c = &j->checkpoints;

    if (!s->saved || j->generation != c->timeline || job_is_sidecar(j, s->role))
        return;
    bool awaited = is_awaited(c, s->saved);
    if (!awaited && s->saved->reported != c->timeline)
        return;
    drop_newer(c, s);
    c->n_savers--;
    c->n_awaited -= awaited;
    s->saved->reported = 0;
    s->saved->awaited = false;
    look_for_whole(j);
}

/* The slot has reported in this generation: it is a saver. */
static void count_saver(struct job_checkpoints *c, struct slot_checkpoints *s)
{
    if (s->reported == c->timeline)
        return;
    if (is_awaited(c, s))
        c->n_awaited--;
    else
        c->n_savers++;
    s->reported = c->timeline;
}

/* ---- a report ---- */

/* Refuse a report unless it comes from the slot's last attempt, and that attempt belongs to the
 * present generation. A report of an older attempt is late: later attempts have already resumed
 * without it. */
static int check_timeline(const struct job *j, const struct ev_checkpoint *ev, struct err *e)
{
    const struct job_checkpoints *c = &j->checkpoints;
    const struct slot *s = &j->slots[ev->slot];
    bool of_timeline = ev->generation == c->timeline || job_is_sidecar(j, s->role);

    if (s->state == SLOT_ABSENT)
        return err_set(e, ESTALE, "slot '" SLOT_NAME "' does not belong to the job any more",
                       SLOT_ARGS(j, ev->slot)),
               1;
    if (ev->attempt != s->attempt || ev->generation != s->generation)
        return err_set(e, ESTALE,
                       "slot '" SLOT_NAME
                       "' is at attempt %u.%u: step %llu of attempt %u.%u comes too late",
                       SLOT_ARGS(j, ev->slot), s->generation, s->attempt,
                       (unsigned long long)ev->step, ev->generation, ev->attempt),
               1;
    if (!of_timeline)
        return err_set(e, ESTALE,
                       "generation %u has begun: step %llu that slot '" SLOT_NAME
                       "' saved in generation %u comes too late",
                       c->timeline, (unsigned long long)ev->step, SLOT_ARGS(j, ev->slot),
                       ev->generation),
               1;
    return 0;
}

static int check_report(struct job *j, const struct ev_checkpoint *ev, struct err *e)
{
    struct job_checkpoints *c = &j->checkpoints;
    const struct slot *s = &j->slots[ev->slot];

    if (!ev->path || !*ev->path)
        return err_set(e, EPROTO, "a checkpoint of slot '" SLOT_NAME "' without a path",
                       SLOT_ARGS(j, ev->slot)),
               1;
    int rc = check_timeline(j, ev, e);
    if (rc)
        return rc;
    const struct checkpoint_step *at = find_step(c, ev->step);
    if (at && at->parts != ev->parts && !job_is_sidecar(j, s->role))
        return err_set(e, EINVAL,
                       "slot '" SLOT_NAME "' says that step %llu has %u parts, slot '" SLOT_NAME
                       "' said %u (0: not said)",
                       SLOT_ARGS(j, ev->slot), (unsigned long long)ev->step, ev->parts,
                       SLOT_ARGS(j, at->first), at->parts),
               1;
    const struct checkpoint_report *r = find_report(s, c->timeline, ev->step);
    bool counts = r && (step_of(c, r) || !is_newer(c, c->timeline, ev->step));
    if (counts && r->attempt == ev->attempt && str_eq(r->path, ev->path))
        return err_set(e, EALREADY, "step %llu of slot '" SLOT_NAME "' is known",
                       (unsigned long long)ev->step, SLOT_ARGS(j, ev->slot)),
               1;
    return 0;
}

static void keep_report(struct job *j, struct ev_checkpoint *ev, uint32_t counted)
{
    struct job_checkpoints *c = &j->checkpoints;
    struct slot *s = &j->slots[ev->slot];
    struct checkpoint_report *r = find_report(s, c->timeline, ev->step);

    if (!r)
        r = find_place_for_report(c, s);
    if (!r)
        return; /* all reports that the slot keeps are needed; this one is not */
    free(r->path);
    *r = (struct checkpoint_report){ .step = ev->step,
                                     .generation = c->timeline,
                                     .attempt = ev->attempt,
                                     .counted = counted,
                                     .path = event_take(&ev->path) };
}

/* Count the slot's report for its step. Returns the step's id; 0: no step counts the report. */
static uint32_t count_report(struct job *j, const struct ev_checkpoint *ev)
{
    struct job_checkpoints *c = &j->checkpoints;
    const struct checkpoint_report *r = find_report(&j->slots[ev->slot], c->timeline, ev->step);

    if (!is_newer(c, c->timeline, ev->step))
        return 0;
    struct checkpoint_step *at = find_step(c, ev->step);
    if (!at)
        at = add_step(j, ev->step, ev->parts);
    if (at && (!r || r->counted != at->id)) {
        at->n++;
        at->first = MIN(at->first, ev->slot);
    }
    return at ? at->id : 0;
}

/* A report of a sidecar is whole by itself, if no other task saves checkpoints. */
static void sidecar_saved(struct job *j, struct ev_checkpoint *ev)
{
    struct job_checkpoints *c = &j->checkpoints;
    bool is_whole = !c->n_savers && ev->parts <= 1;

    keep_report(j, ev, 0);
    if (is_whole && (!c->has || ev->step > c->step))
        set_whole(j, ev->step, ev->slot);
}

int checkpoint_saved(struct job *j, struct ev_checkpoint *ev, struct err *e)
{
    struct job_checkpoints *c = &j->checkpoints;
    struct slot *s = &j->slots[ev->slot];
    int rc = check_report(j, ev, e);

    if (rc)
        return rc;
    if (!s->saved && !(s->saved = calloc(1, sizeof *s->saved)))
        return err_set(e, ENOMEM, "no memory for a checkpoint");
    drop_older(c, s);
    j->changed = true;
    if (job_is_sidecar(j, s->role)) {
        sidecar_saved(j, ev);
        return 0;
    }
    count_saver(c, s->saved);
    uint32_t counted = count_report(j, ev);
    keep_report(j, ev, counted);
    const struct checkpoint_step *at = counted ? find_step(c, ev->step) : NULL;
    if (at && is_complete(c, at))
        set_whole(j, at->step, lowest_slot_of(j, at));
    return 0;
}

/* ---- reading ---- */

const char *job_checkpoint(const struct job *j, uint32_t slot, uint64_t *out_step)
{
    const struct job_checkpoints *c = &j->checkpoints;

    if (!c->has)
        return NULL;
    const struct checkpoint_report *r = find_report(&j->slots[slot], c->generation, c->step);
    if (!r)
        r = find_report(&j->slots[c->first], c->generation, c->step);
    if (!r)
        return NULL;
    *out_step = r->step;
    return r->path;
}

const char *checkpoint_newest(const struct slot *s, uint64_t *out_step)
{
    const struct checkpoint_report *best = NULL;

    for (size_t i = 0; s->saved && i < CHECKPOINT_KEPT; i++) {
        const struct checkpoint_report *r = &s->saved->reports[i];
        if (r->path && (!best || is_later(r->generation, r->step, best->generation, best->step)))
            best = r;
    }
    if (!best)
        return NULL;
    *out_step = best->step;
    return best->path;
}

/* ---- for snapshots ---- */

bool checkpoint_walk(const struct job *j, uint32_t slot, uint32_t *at,
                     struct checkpoint_record *out)
{
    const struct slot_checkpoints *s = j->slots[slot].saved;

    for (; s && *at < CHECKPOINT_KEPT; (*at)++) {
        const struct checkpoint_report *r = &s->reports[*at];
        if (!r->path)
            continue;
        const struct checkpoint_step *counted_by = NULL;
        for (size_t i = 0; r->counted && i < CHECKPOINT_STEPS; i++)
            if (j->checkpoints.steps[i].id == r->counted)
                counted_by = &j->checkpoints.steps[i];
        *out = (struct checkpoint_record){ .generation = r->generation,
                                           .attempt = r->attempt,
                                           .parts = counted_by ? counted_by->parts : 0,
                                           .step = r->step,
                                           .path = r->path,
                                           .counts = counted_by != NULL };
        (*at)++;
        return true;
    }
    return false;
}

static int allocate_saved(struct slot *s)
{
    if (!s->saved)
        s->saved = calloc(1, sizeof *s->saved);
    return s->saved ? 0 : -ENOMEM;
}

int checkpoint_put(struct job *j, uint32_t slot, const struct checkpoint_record *rec)
{
    struct job_checkpoints *c = &j->checkpoints;
    struct slot *s = &j->slots[slot];
    char *path = str_dup(rec->path);

    if (!path || allocate_saved(s) < 0) {
        free(path);
        return -ENOMEM;
    }
    struct checkpoint_report *r = find_place_for_report(c, s);
    if (!r) { /* more than CHECKPOINT_KEPT reports of a slot: job_snapshot() did not write this */
        free(path);
        return 0;
    }
    free(r->path);
    bool counts = rec->counts && rec->generation == c->timeline;
    struct checkpoint_step *at = counts ? find_step(c, rec->step) : NULL;
    if (counts && !at)
        at = add_step(j, rec->step, rec->parts);
    if (at) {
        at->n++;
        at->first = MIN(at->first, slot);
    }
    *r = (struct checkpoint_report){ .step = rec->step,
                                     .generation = rec->generation,
                                     .attempt = rec->attempt,
                                     .counted = at ? at->id : 0,
                                     .path = path };
    return 0;
}

bool checkpoint_saver(const struct job *j, uint32_t slot, uint32_t *out_reported, bool *out_awaited)
{
    const struct slot_checkpoints *s = j->slots[slot].saved;

    if (!s)
        return false;
    *out_reported = s->reported;
    *out_awaited = is_awaited(&j->checkpoints, s);
    return true;
}

int checkpoint_put_saver(struct job *j, uint32_t slot, uint32_t reported, bool awaited)
{
    struct job_checkpoints *c = &j->checkpoints;
    struct slot *s = &j->slots[slot];

    if (allocate_saved(s) < 0)
        return -ENOMEM;
    s->saved->reported = reported;
    s->saved->awaited = awaited;
    awaited = awaited && reported != c->timeline;
    c->n_awaited += awaited;
    c->n_savers += awaited || (reported && reported == c->timeline);
    return 0;
}
