/* SPDX-License-Identifier: Apache-2.0 */
#include "job_sim_saves.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "drive.h"
#include "job/job_int.h"
#include "job_sim.h"

enum { STRIDE = 10 }; /* steps between two checkpoints of a task */

unsigned sim_saves, sim_late_saves, sim_whole, sim_resumed;

void saves_done(struct saves *s)
{
    vec_done(&s->reports);
}

/* ---- what tasks save ---- */

static void name_path(char *out, size_t size, const struct saved_report *r)
{
    (void)snprintf(out, size, "/g%u/a%u/s%llu/slot%u", r->generation, r->attempt,
                   (unsigned long long)r->step, r->slot);
}

static int report(struct sim *m, const struct saved_report *r)
{
    char path[80];

    name_path(path, sizeof path, r);
    return sim_feed(m, &(struct job_event){ .type = EV_CHECKPOINT,
                                            .checkpoint = { .slot = r->slot,
                                                            .generation = r->generation,
                                                            .attempt = r->attempt,
                                                            .step = r->step,
                                                            .path = path,
                                                            .parts = r->parts } });
}

static uint32_t parts_of(struct sim *m)
{
    switch (m->saves.saving) {
    case SAVING_PARTS:
        return m->job->n_tasks;
    case SAVING_WILD:
        return sim_chance(m, 4);
    case SAVING_RANK0:
    case SAVING_UNCOUNTED:
    case SAVING_COUNT:
        break;
    }
    return 0;
}

void saves_task_saves(struct sim *m, struct executor *x)
{
    if (m->saves.saving == SAVING_RANK0 && x->slot != 0)
        return;
    if (m->saves.saving == SAVING_PARTS && x->sidecar)
        return;
    if (x->saved_attempt != x->attempt) { /* its first checkpoint: it has resumed */
        x->saved_attempt = x->attempt;
        x->saved_step = x->resumed_step;
    }
    x->saved_step += STRIDE * (1 + (uint64_t)!sim_chance(m, 6));
    sim_saves++;
    x->heard_ms = m->now;
    (void)report(m, &(struct saved_report){ .slot = x->slot,
                                            .generation = x->generation,
                                            .attempt = x->attempt,
                                            .step = x->saved_step,
                                            .parts = parts_of(m) });
}

void saves_task_steps(struct sim *m, struct executor *x)
{
    uint64_t from = x->saved_attempt == x->attempt ? x->saved_step : x->resumed_step;

    x->heard_ms = m->now;
    (void)sim_feed(m, &(struct job_event){
                          .type = EV_PROGRESS,
                          .progress = { .slot = x->slot, .step = from + sim_chance(m, STRIDE) } });
}

void saves_late_report(struct sim *m)
{
    struct saves *s = &m->saves;

    if (s->reports.n == 0)
        return;
    struct saved_report r = s->reports.v[sim_chance(m, (uint32_t)s->reports.n)];
    const struct slot *slot = &m->job->slots[r.slot];
    bool sidecar = job_is_sidecar(m->job, slot->role);
    bool late = r.attempt != slot->attempt || r.generation != slot->generation ||
                (!sidecar && r.generation != s->timeline);
    r.step += STRIDE * sim_chance(m, 3);
    if (!late)
        return;
    sim_late_saves++;
    if (report(m, &r) == 0)
        fail_msg("the late report of slot %u, attempt %u.%u, about step %llu was accepted", r.slot,
                 r.generation, r.attempt, (unsigned long long)r.step);
}

/* ---- the second implementation ---- */

static bool counts(const struct saved_report *r, uint32_t generation, uint64_t step)
{
    return r->generation == generation && r->step == step && !r->sidecar && !r->undone;
}

static const struct saved_report *find(const struct saves *s, uint32_t slot, uint32_t generation,
                                       uint64_t step)
{
    const struct saved_report *last = NULL;

    for (size_t i = 0; i < s->reports.n; i++)
        if (s->reports.v[i].slot == slot && counts(&s->reports.v[i], generation, step))
            last = &s->reports.v[i];
    return last;
}

/* The number of tasks that have reported the step. *out_parts: what the last report said. (Reports
 * that contradict each other are refused only as long as the step is counted.) */
static uint32_t n_reported(const struct sim *m, uint32_t generation, uint64_t step,
                           uint32_t *out_parts)
{
    const struct saved_report *last = NULL;
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->job->n_slots; i++) {
        const struct saved_report *r = find(&m->saves, i, generation, step);
        n += r != NULL;
        last = r > last ? r : last;
    }
    *out_parts = last ? last->parts : 0;
    return n;
}

/* Have all savers reported the step? strictly: also those that are leaving the job, or that joined
 * it when the generation began. */
static bool all_savers_reported(const struct sim *m, uint64_t step, bool strictly)
{
    const struct saves *s = &m->saves;

    for (uint32_t i = 0; i < m->job->n_slots; i++) {
        bool saver = s->saver[i] || (s->awaited[i] && !s->gave_up && (s->stayed[i] || strictly));
        bool member = job_is_task(m->job, i) && m->job->slots[i].state != SLOT_ABSENT;
        if (saver && (member || strictly) && !find(s, i, s->timeline, step))
            return false;
    }
    return true;
}

static bool has_savers(const struct saves *s)
{
    for (size_t i = 0; i < ARRAY_LEN(s->saver); i++)
        if (s->saver[i])
            return true;
    return false;
}

static bool sidecar_saved(const struct saves *s, uint64_t step)
{
    for (size_t i = 0; i < s->reports.n; i++)
        if (s->reports.v[i].sidecar && s->reports.v[i].step == step && s->reports.v[i].parts <= 1)
            return true;
    return false;
}

/* The job says that another step is whole. Is it? */
static void check_new_whole(struct sim *m)
{
    struct saves *s = &m->saves;
    const struct job_checkpoints *c = &m->job->checkpoints;
    uint32_t parts, n = n_reported(m, c->generation, c->step, &parts);

    if (s->has && !c->has)
        fail_msg("step %llu is not whole any more", (unsigned long long)s->step);
    if (!c->has || (s->has && s->generation == c->generation && s->step == c->step))
        return;
    sim_whole++;
    if (c->generation != s->timeline && !(n == 0 && sidecar_saved(s, c->step)))
        fail_msg("step %llu of generation %u became whole in generation %u",
                 (unsigned long long)c->step, c->generation, s->timeline);
    if (s->has && s->generation == c->generation && s->step > c->step)
        fail_msg("step %llu replaces the newer step %llu", (unsigned long long)c->step,
                 (unsigned long long)s->step);
    bool whole = parts ? n >= parts : n > 0 && all_savers_reported(m, c->step, false);
    if (n == 0)
        whole = !has_savers(s) && sidecar_saved(s, c->step);
    if (!whole)
        fail_msg("step %llu of generation %u is not whole: %u tasks of %u parts reported it",
                 (unsigned long long)c->step, c->generation, n, parts);
    s->has = true;
    s->generation = c->generation;
    s->step = c->step;
}

/* The step was reported now. If it is whole, does the job know? */
static void check_known_whole(const struct sim *m, uint64_t step)
{
    const struct saves *s = &m->saves;
    uint32_t parts, n = n_reported(m, s->timeline, step, &parts);
    bool newer = !s->has || s->generation < s->timeline || s->step < step;

    if (s->gave_up || !newer)
        return;
    if (parts ? n >= parts : all_savers_reported(m, step, true))
        fail_msg("step %llu of generation %u is whole, the job does not know it: %u tasks, %u "
                 "parts; the job knows %u savers, awaits %u",
                 (unsigned long long)step, s->timeline, n, parts, m->job->checkpoints.n_savers,
                 m->job->checkpoints.n_awaited);
}

/* A step is reported. More than CHECKPOINT_STEPS steps that are not whole cannot wait. */
static void note_step(struct saves *s, uint64_t step)
{
    uint64_t waiting[CHECKPOINT_STEPS];
    size_t n = 0;

    if (s->has && s->generation == s->timeline && step <= s->step)
        return;
    for (size_t i = 0; i < s->reports.n && !s->gave_up; i++) {
        const struct saved_report *r = &s->reports.v[i];
        bool newer = !s->has || s->generation < s->timeline || s->step < r->step;
        bool seen = !newer || !counts(r, s->timeline, r->step);
        for (size_t k = 0; k < n; k++)
            seen |= waiting[k] == r->step;
        if (r->step == step && !seen)
            return;
        if (!seen && n < CHECKPOINT_STEPS)
            waiting[n++] = r->step;
    }
    s->gave_up |= n == CHECKPOINT_STEPS;
}

static void note_report(struct sim *m, const struct ev_checkpoint *ev)
{
    struct saves *s = &m->saves;
    const struct slot *slot = &m->job->slots[ev->slot];
    bool sidecar = job_is_sidecar(m->job, slot->role);
    struct saved_report r = { .slot = ev->slot,
                              .generation = ev->generation,
                              .attempt = ev->attempt,
                              .parts = ev->parts,
                              .step = ev->step,
                              .sidecar = sidecar };

    if (ev->generation != slot->generation || ev->attempt != slot->attempt)
        fail_msg("slot %u is at attempt %u.%u: a report of %u.%u was accepted", ev->slot,
                 slot->generation, slot->attempt, ev->generation, ev->attempt);
    if (!sidecar)
        note_step(s, ev->step);
    assert_int_equal(vec_push(&s->reports, r), 0);
    if (sidecar)
        return;
    s->saver[ev->slot] = true;
    s->awaited[ev->slot] = false;
}

/* The attempt must resume from the newest whole step, and from a path of that step. */
static void check_resumed(struct sim *m, uint32_t slot)
{
    const struct saves *s = &m->saves;
    uint64_t step = 0;
    const char *path = job_checkpoint(m->job, slot, &step);
    /* A task does not keep a report about a step that has fallen out of those that wait. */
    const struct saved_report *own = s->gave_up ? NULL : find(s, slot, s->generation, s->step);
    bool known = false;
    char want[80];

    if (!path != !s->has)
        fail_msg("slot %u resumes from %s", slot, path ? path : "nothing");
    if (!path)
        return;
    sim_resumed++;
    assert_int_equal(step, s->step);
    for (size_t i = 0; i < s->reports.n && !known; i++) {
        const struct saved_report *r = own ? own : &s->reports.v[i];
        name_path(want, sizeof want, r);
        known = str_eq(path, want) && (r->sidecar || counts(r, s->generation, s->step));
    }
    if (!known)
        fail_msg("slot %u resumes from '%s', which no task saved for step %llu of generation %u",
                 slot, path, (unsigned long long)s->step, s->generation);
}

static void begin_timeline(struct sim *m, uint32_t generation)
{
    struct saves *s = &m->saves;

    for (uint32_t i = 0; i < m->job->n_slots; i++) {
        bool awaited = s->saver[i] || (s->awaited[i] && !s->gave_up);
        s->awaited[i] = awaited && m->job->slots[i].state != SLOT_ABSENT;
        s->stayed[i] = (s->saver[i] || s->stayed[i]) && s->member[i] && job_is_task(m->job, i);
        s->saver[i] = false;
    }
    s->timeline = generation;
    s->gave_up = false;
}

/* Drop the slot's reports about steps after the newest whole one. */
static void undo_newer(struct saves *s, uint32_t slot)
{
    for (size_t i = 0; i < s->reports.n; i++) {
        struct saved_report *r = &s->reports.v[i];
        bool newer = !s->has || s->generation < r->generation || s->step < r->step;
        r->undone |= r->slot == slot && r->generation == s->timeline && newer;
    }
}

static void attempt_begins(struct sim *m, uint32_t slot)
{
    struct saves *s = &m->saves;
    const struct slot *at = &m->job->slots[slot];

    if (job_is_sidecar(m->job, at->role))
        return;
    if (at->generation != s->timeline)
        begin_timeline(m, at->generation);
    else
        undo_newer(s, slot);
    check_resumed(m, slot);
}

void saves_before(struct sim *m)
{
    struct saves *s = &m->saves;

    s->generation_before = m->job->generation;
    for (uint32_t i = 0; i < ARRAY_LEN(s->attempts); i++) {
        const struct slot *slot = i < m->job->n_slots ? &m->job->slots[i] : NULL;
        s->attempts[i] = slot ? slot->attempt : 0;
        s->member[i] = slot && job_is_task(m->job, i);
        s->leaving[i] = slot && slot->state == SLOT_LEAVING;
    }
}

/* A slot that has left the job is no saver, and its part of a step is not counted. While the
 * generation changes both still count: a step that it reported may become whole. A slot may have
 * joined again at once. */
static void note_leavers(struct sim *m)
{
    struct saves *s = &m->saves;

    if (s->generation_before != s->timeline)
        return;
    for (uint32_t i = 0; i < m->job->n_slots; i++) {
        enum slot_state now = m->job->slots[i].state;
        bool left = now == SLOT_ABSENT || (s->leaving[i] && now != SLOT_LEAVING);
        if (!left || (!s->saver[i] && !s->awaited[i]))
            continue;
        undo_newer(s, i);
        s->saver[i] = s->awaited[i] = false;
    }
}

void saves_after(struct sim *m, const struct job_event *ev)
{
    bool report = ev->type == EV_CHECKPOINT;

    if (report)
        note_report(m, &ev->checkpoint);
    note_leavers(m);
    check_new_whole(m);
    if (report && !job_is_sidecar(m->job, m->job->slots[ev->checkpoint.slot].role))
        check_known_whole(m, ev->checkpoint.step);
    for (uint32_t i = 0; i < m->job->n_slots; i++)
        if (m->job->slots[i].attempt != m->saves.attempts[i])
            attempt_begins(m, i);
}

/* ---- a new master that lacks the last records ---- */

void saves_rebuild(struct sim *m)
{
    enum saving saving = m->saves.saving;
    unsigned whole = sim_whole, resumed = sim_resumed;
    struct job_actions ignored = { 0 };
    struct job *now = m->job;

    saves_done(&m->saves);
    m->saves = (struct saves){ .saving = saving };
    m->job = job_new(m->spec, NULL);
    job_replaying(m->job, true);
    for (size_t i = 0; i < m->journal.n; i++) {
        struct job_event ev;
        int64_t t;
        void *holder;
        saves_before(m);
        assert_int_equal(drive_record(m->journal.v[i], &ev, &t, &holder), 0);
        ignored.n = 0;
        assert_int_equal(job_feed(m->job, &ev, t, &ignored, NULL), 0);
        job_event_release(holder); /* the job may have taken its strings: read them again */
        assert_int_equal(drive_record(m->journal.v[i], &ev, &t, &holder), 0);
        saves_after(m, &ev);
        job_event_release(holder);
    }
    vec_done(&ignored);
    job_free(m->job);
    m->job = now;
    sim_whole = whole;
    sim_resumed = resumed;
}
