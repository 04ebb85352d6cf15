/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes and frees jobs, and dispatches events to their handlers. The handlers check events and pass
 * them on; the rules are in the other files, which job_int.h lists.
 */
#include "job/job.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "job/job_int.h"

/* ---- making and freeing a job ---- */

static uint32_t role_instances(const struct job *j, uint32_t role)
{
    return j->spec->single_node ? 1 : j->spec->roles[role].instances;
}

static uint32_t role_spares(const struct job *j, uint32_t role)
{
    return j->spec->single_node ? 0 : j->spec->roles[role].spares;
}

int job_reserve_slots(struct job *j, uint32_t n)
{
    uint32_t cap = j->n_slots + n;

    if (cap > j->cap_slots) {
        struct slot *slots = realloc(j->slots, ((size_t)cap + 1) * sizeof *slots);
        if (!slots)
            return -ENOMEM;
        j->slots = slots;
        j->cap_slots = cap;
    }
    if (vec_reserve(&j->restarts.todo, cap) < 0)
        return -ENOMEM;
    for (uint32_t r = 0; r < j->n_all_roles; r++) {
        struct role *role = &j->roles[r];
        uint32_t *ids = realloc(role->slots, ((size_t)role->n_slots + n + 1) * sizeof *ids);
        if (!ids)
            return -ENOMEM;
        role->slots = ids;
    }
    int rc = deadlines_reserve(&j->restarts.pauses, cap);
    return rc < 0 ? rc : limits_reserve(j, cap);
}

uint32_t job_add_slot(struct job *j, uint32_t role)
{
    struct role *r = &j->roles[role];
    uint32_t id = j->n_slots++, after = role < j->n_roles ? 0 : j->roles[r->of].n_first;

    slot_init(&j->slots[id], role, after + r->n_slots);
    r->slots[r->n_slots++] = id;
    slot_count(j, &j->slots[id]);
    return id;
}

/* Make the n slots of a role with which the job starts. They are members, and SLOT_HELD. */
static void make_members(struct job *j, uint32_t role, uint32_t n)
{
    j->roles[role].n = j->roles[role].n_first = n;
    for (uint32_t i = 0; i < n; i++) {
        struct slot *s = &j->slots[job_add_slot(j, role)];
        slot_uncount(j, s);
        s->state = SLOT_HELD;
        slot_count(j, s);
    }
}

static void make_roles(struct job *j)
{
    uint32_t r = j->n_roles;

    for (uint32_t i = 0; i < j->n_roles; i++) {
        j->roles[i].of = i;
        j->roles[i].kind = j->spec->single_node ? ROLE_TRACKED : j->spec->roles[i].kind;
        make_members(j, i, role_instances(j, i));
        j->n_tasks += j->roles[i].n;
    }
    for (uint32_t i = 0; i < j->n_roles; i++) {
        if (!role_spares(j, i))
            continue;
        j->roles[r].of = i;
        j->roles[r].kind = ROLE_SIDECAR;
        make_members(j, r++, role_spares(j, i));
    }
}

/* Allocate memory for the roles, groups and slots with which the job starts. 0 or -ENOMEM. */
static int make_room(struct job *j)
{
    uint32_t n_slots = 0;

    j->n_roles = j->spec->single_node ? 1 : (uint32_t)j->spec->n_roles;
    j->n_all_roles = j->n_roles;
    for (uint32_t r = 0; r < j->n_roles; r++) {
        n_slots += role_instances(j, r) + role_spares(j, r);
        j->n_all_roles += role_spares(j, r) > 0;
    }
    /* one element more than needed: calloc() of 0 elements may return NULL */
    j->roles = calloc((size_t)j->n_all_roles + 1, sizeof *j->roles);
    j->ready = calloc((size_t)j->n_roles + 1, sizeof *j->ready);
    j->groups = calloc(j->spec->n_group_timeouts + 1, sizeof *j->groups);
    if (!j->roles || !j->ready || !j->groups || limits_init(j) < 0)
        return -ENOMEM;
    return job_reserve_slots(j, n_slots);
}

struct job *job_new(const struct job_spec *spec, struct err *e)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        goto no_memory;

    *j = (struct job){ .spec = spec,
                       .state = JOB_NEW,
                       .started_ms = -1,
                       .ended_ms = -1,
                       .client_due_ms = INT64_MAX,
                       .gang = { .asked_ms = -1, .pause_due_ms = INT64_MAX },
                       .restarts = { .due_ms = INT64_MAX },
                       .tensorboard = JOB_NO_SLOT,
                       .failures = { .first = { .slot = JOB_NO_SLOT },
                                     .fatal = { .slot = JOB_NO_SLOT } } };
    if (make_room(j) < 0)
        goto no_memory;
    make_roles(j);
    for (uint32_t r = 0; r < j->n_roles; r++)
        j->has_gates |= job_role_spec(j, r)->n_gates > 0;
    if (resize_init(j) < 0)
        goto no_memory;
    policy_init(j);
    return j;

no_memory:
    job_free(j);
    (void)err_set(e, ENOMEM, "no memory for a job of %u tasks", spec->n_tasks);
    return NULL;
}

void job_free(struct job *j)
{
    if (!j)
        return;
    for (uint32_t i = 0; j->slots && i < j->n_slots; i++)
        slot_done(&j->slots[i]);
    limits_done(j);
    failures_done(j);
    restart_done(j);
    resize_done(j);
    decisions_done(j);
    nodes_done(j);
    for (uint32_t r = 0; j->roles && r < j->n_all_roles; r++)
        free(j->roles[r].slots);
    free(j->slots);
    free(j->roles);
    free(j->ready);
    free(j->groups);
    free(j->application_id);
    free(j->user);
    free(j->stray);
    free(j);
}

/* ---- actions ---- */

struct job_action *job_act(struct job *j, enum job_action_type type)
{
    struct job_actions *out = j->out;

    assert(out && out->n < out->cap); /* job_feed() has reserved actions_max() */
    out->v[out->n] = (struct job_action){ .type = type };
    return &out->v[out->n++];
}

void job_discard(struct job *j, uint32_t slot, bool launched, const char **container)
{
    free(j->stray);
    j->stray = event_take(container);
    if (launched)
        job_act(j, ACT_STOP_CONTAINER)->stop_container =
            (struct act_stop_container){ slot, j->stray, 0 };
    else
        job_act(j, ACT_RELEASE)->release = (struct act_release){ slot, j->stray };
}

void job_place(struct job *j, struct slot *s, const char **container, const char **gpus,
               const char **node)
{
    free(s->container);
    free(s->gpus);
    free(s->address);
    s->address = NULL;
    s->tb_port = s->pid = 0;
    s->container = event_take(container);
    s->gpus = event_take(gpus);
    s->node = nodes_enter(j, node);
    s->seen = true;
    s->moved = false;
    s->elsewhere = s->attempt;
    s->left_ms = 0;
}

/* ---- the handlers of events ---- */

/* Applies an event. 0; 1: refused, with e set; -ENOMEM. The event is a copy, so the handler may
 * take the strings that it keeps (event_take()). */
typedef int on_event(struct job *j, struct job_event *event, struct err *e);

static int on_submitted(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_submitted *ev = &event->submitted;
    (void)e;
    j->application_id = event_take(&ev->application_id);
    j->user = event_take(&ev->user);
    j->state = JOB_WAITING;
    j->submitted_ms = j->now_ms;
    j->submitted_wall_ms = ev->wall_ms;
    j->owned = ev->owned;
    if (j->owned && j->spec->client_away_ms >= 0)
        j->client_due_ms = j->now_ms + j->spec->client_away_ms;
    j->changed = true;
    limits_job(j);
    return 0;
}

static int on_master_started(struct job *j, struct job_event *event, struct err *e)
{
    return recover_master_started(j, &event->master_started, e);
}

static int on_resynced(struct job *j, struct job_event *event, struct err *e)
{
    return recover_resynced(j, &event->resynced, e);
}

static int on_seen(struct job *j, struct job_event *event, struct err *e)
{
    return recover_seen(j, &event->container_seen, e);
}

static int on_allocated(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_allocated *ev = &event->allocated;
    struct slot *s = &j->slots[ev->slot];

    if (s->state == SLOT_ASKED && !str_eq(s->container, ev->container)) {
        job_place(j, s, &ev->container, &ev->gpus, &ev->node);
        return slot_step(j, ev->slot, IN_GRANT, NULL, e);
    }
    if (slot_has_container(s->state) && str_eq(s->container, ev->container))
        return err_set(e, EALREADY, "slot '" SLOT_NAME "' has this container already",
                       SLOT_ARGS(j, ev->slot)),
               1;
    job_discard(j, ev->slot, false, &ev->container);
    return err_set(e, ESTALE, "slot '" SLOT_NAME "' is %s: it wants no container",
                   SLOT_ARGS(j, ev->slot), slot_state_name(s->state)),
           1;
}

static int on_refused(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_allocation_refused *ev = &event->allocation_refused;
    bool is_task = job_is_task(j, ev->slot);
    struct slot_end end = { .reason = END_LAUNCH_FAILED,
                            .at_us = j->now_ms * 1000,
                            .detail = &ev->why,
                            .note = NOTE_REFUSED };
    if (resize_undo(j, ev->slot, ev->why))
        return 0;
    int rc = slot_step(j, ev->slot, IN_REFUSE, &end, e);

    j->restarts.hopeless |= rc == 0 && is_task; /* a refused event must not change anything */
    return rc;
}

static int on_completed(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_completed *ev = &event->completed;
    struct slot_end end = { .reason = ev->reason ? ev->reason : END_UNKNOWN,
                            .exit_code = ev->exit_code,
                            .at_us = j->now_ms * 1000 -
                                     (int64_t)MIN(ev->age_us, (uint64_t)JOB_AGE_MAX_US),
                            .detail = &ev->detail,
                            .with_master = j->resyncing,
                            .cause = ev->cause,
                            .cause_line = &ev->cause_line };
    end_container_code(end.reason, &end.exit_code, &end.signal);
    return restart_ended(j, ev->slot, IN_GONE, &end, e);
}

static int on_preempting(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_preempting *ev = &event->preempting;
    return restart_preempting(j, ev->slot, ev->within_ms, e);
}

/* The slot's executor has sent a message, so it is alive. */
static void note_sign_of_life(struct job *j, struct slot *s)
{
    s->beat_ms = beat_clock(j);
    s->left_ms = 0;
    if (!s->suspect)
        return;
    s->suspect = false;
    j->changed = true;
    limits_slot(j, (uint32_t)(s - j->slots)); /* a slot that is not suspect is due sooner */
}

static int on_registered(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_registered *ev = &event->registered;
    struct slot *s = &j->slots[ev->slot];

    if (ev->generation && ev->generation != j->generation)
        return err_set(e, ESTALE, "slot '" SLOT_NAME "' is ready for generation %u, not %u",
                       SLOT_ARGS(j, ev->slot), ev->generation, j->generation),
               1;
    int rc = slot_step(j, ev->slot, ev->generation ? IN_READY : IN_REGISTER, NULL, e);
    if (rc)
        return rc;
    note_sign_of_life(j, s);
    s->connected = true;
    free(s->address);
    s->address = event_take(&ev->address);
    s->tb_port = ev->tb_port;
    s->pid = ev->pid;
    policy_registered(j, ev->slot);
    return 0;
}

static int on_executor_gone(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_executor_gone *ev = &event->executor_gone;
    struct slot *s = &j->slots[ev->slot];

    (void)e;
    s->connected = false;
    s->left_ms = ev->broke ? 0 : MAX(beat_clock(j), (int64_t)1);
    limits_slot(j, ev->slot);
    j->changed = true;
    return 0;
}

/* Is this a first attempt that an earlier master started, and whose start is not in the journal?
 * The last records of a dead master may be lost. Only first attempts can be missing like this: the
 * start of any later attempt is stored before it is carried out (ACT_SYNC). */
static bool is_start_unwritten(const struct slot *s, uint32_t generation, uint32_t attempt)
{
    return s->state == SLOT_REGISTERED && !s->attempt && generation == 1 && attempt == 1;
}

static int on_executor_back(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_executor_back *ev = &event->executor_back;
    struct slot *s = &j->slots[ev->slot];
    bool current = ev->generation == s->generation && ev->attempt == s->attempt;
    bool unwritten = is_start_unwritten(s, ev->generation, ev->attempt);

    if (unwritten)
        current = false;
    else if (ev->generation > s->generation ||
             (ev->generation == s->generation && ev->attempt > s->attempt))
        return err_set(e, ESTALE,
                       "the executor of slot '" SLOT_NAME
                       "' reports attempt %u.%u, which no master has started",
                       SLOT_ARGS(j, ev->slot), ev->generation, ev->attempt),
               1;
    enum slot_input in = current ? IN_RETURN : IN_REGISTER;
    enum slot_state to = slot_table[s->state][in].to;
    if (to != SLOT_NONE &&
        to != s->state) /* this event is not in the journal, so no state changes */
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: its executor must register first",
                       SLOT_ARGS(j, ev->slot), slot_state_name(s->state)),
               1;
    int rc = slot_step(j, ev->slot, in, NULL, e);
    if (rc)
        return rc;
    s->connected = true;
    note_sign_of_life(j, s);
    return 0;
}

/* Is the event about the slot's current attempt? If that has ended, the slot has no current attempt
 * until the next one starts. */
static int fence(const struct job *j, const struct job_event *event, struct err *e)
{
    uint32_t slot = event->of_attempt.slot, generation = event->of_attempt.generation,
             attempt = event->of_attempt.attempt;
    const struct slot *s = &j->slots[slot];
    bool over = s->attempt && (s->state < SLOT_RUNNING || s->state == SLOT_RENEWING);

    if (over && attempt == s->attempt)
        return err_set(e, ESTALE, "slot '" SLOT_NAME "' is %s: attempt %u.%u is over",
                       SLOT_ARGS(j, slot), slot_state_name(s->state), s->generation, s->attempt),
               1;
    if (attempt == s->attempt && (generation == s->generation || !s->attempt))
        return 0;
    return err_set(e, ESTALE, "slot '" SLOT_NAME "' is at attempt %u.%u, not %u.%u",
                   SLOT_ARGS(j, slot), s->generation, s->attempt, generation, attempt),
           1;
}

static int on_attempt_started(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_attempt_started *ev = &event->attempt_started;
    struct slot *s = &j->slots[ev->slot];

    if (s->state != SLOT_RUNNING && s->state != SLOT_STOPPING && s->state != SLOT_HALTING)
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: no attempt can have started",
                       SLOT_ARGS(j, ev->slot), slot_state_name(s->state)),
               1;
    s->pid = ev->pid;
    s->started_ms = j->now_ms;
    j->changed = true;
    return 0;
}

static void note_progress(struct job *j, struct slot *s, uint64_t step, uint64_t total)
{
    if (!s->first_ms || step < s->first_step) {
        s->first_step = step;
        s->first_ms = MAX(j->now_ms, (int64_t)1);
    }
    s->step = step;
    s->total = total;
    s->step_ms = j->now_ms;
    j->changed = true;
    costs_progress(j, s, step);
}

static int apply_attempt_end(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_attempt_ended *ev = &event->attempt_ended;
    int rc = fence(j, event, e);
    if (rc)
        return rc;
    if (ev->step || ev->total)
        note_progress(j, &j->slots[ev->slot], ev->step, ev->total);
    struct slot_end end = { .reason = ev->reason ? ev->reason : END_UNKNOWN,
                            .rank = ev->rank,
                            .exit_code = ev->exit_code,
                            .signal = ev->signal,
                            .at_us = j->now_ms * 1000 -
                                     (int64_t)MIN(ev->age_us, (uint64_t)JOB_AGE_MAX_US),
                            .detail = &ev->detail,
                            .tail = &ev->tail,
                            .cause = ev->cause,
                            .cause_line = &ev->cause_line };
    return restart_ended(j, ev->slot, IN_END, &end, e);
}

static int on_attempt_ended(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_attempt_ended *ev = &event->attempt_ended;
    /* The journal lacks the start of this attempt. Do not acknowledge its end: when the core starts
     * the attempt, the executor will report the end again. */
    if (is_start_unwritten(&j->slots[ev->slot], ev->generation, ev->attempt))
        return err_set(e, ESTALE, "the journal has no start of attempt 1.1 of slot '" SLOT_NAME "'",
                       SLOT_ARGS(j, ev->slot)),
               1;
    int rc = apply_attempt_end(j, event, e);
    /* Acknowledge the report even if it was refused: the executor repeats it until then. */
    job_act(j, ACT_ACK)->ack = (struct act_ack){ .slot = ev->slot,
                                                 .generation = ev->generation,
                                                 .attempt = ev->attempt,
                                                 .finish = !restart_wants_executor(j, ev->slot) };
    return rc;
}

static int on_beat(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_beat *ev = &event->beat;
    struct slot *s = &j->slots[ev->slot];
    bool ended = s->state == SLOT_ENDED && s->given_up;

    if (!slot_has_container(s->state) && !ended)
        return err_set(e, EPROTO,
                       "slot '" SLOT_NAME "' is %s: it has no executor that could send heartbeats",
                       SLOT_ARGS(j, ev->slot), slot_state_name(s->state)),
               1;
    note_sign_of_life(j, s);
    if (ended || s->state == SLOT_REPLACING)
        restart_end_executor(j, ev->slot);
    return 0;
}

static int on_progress(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_progress *ev = &event->progress;
    struct slot *s = &j->slots[ev->slot];

    if (s->state != SLOT_RUNNING)
        return err_set(e, EPROTO,
                       "slot '" SLOT_NAME "' is %s: no attempt runs that could report progress",
                       SLOT_ARGS(j, ev->slot), slot_state_name(s->state)),
               1;
    note_progress(j, s, ev->step, ev->total);
    return 0;
}

/* The report need not be about the current attempt: it is late if the executor had no master for
 * some time. checkpoint_saved() makes all other checks. */
static int on_checkpoint(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_checkpoint *ev = &event->checkpoint;
    const struct slot *s = &j->slots[ev->slot];

    if (!ev->attempt || ev->attempt > s->attempt || ev->generation > s->generation)
        return err_set(e, ESTALE, "slot '" SLOT_NAME "' never started attempt %u.%u",
                       SLOT_ARGS(j, ev->slot), ev->generation, ev->attempt),
               1;
    return checkpoint_saved(j, ev, e);
}

static int on_tensorboard(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_tensorboard *ev = &event->tensorboard;

    (void)e;
    free(j->slots[ev->slot].tensorboard);
    j->slots[ev->slot].tensorboard = event_take(&ev->url);
    j->tensorboard = ev->slot;
    j->changed = true;
    return 0;
}

static int on_task_ready(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_task_ready *ev = &event->task_ready;
    struct slot *s = &j->slots[ev->slot];

    if (s->state != SLOT_RUNNING)
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: no attempt runs that could be ready",
                       SLOT_ARGS(j, ev->slot), slot_state_name(s->state)),
               1;
    if (!s->ready)
        j->changed = true;
    slot_uncount(j, s);
    s->ready = true;
    slot_count(j, s);
    return 0;
}

static int on_client(struct job *j, struct job_event *event, struct err *e)
{
    (void)e;
    j->owned = true;
    j->client_due_ms = INT64_MAX;
    if (event->type == EV_CLIENT_AWAY && j->spec->client_away_ms >= 0)
        j->client_due_ms = j->now_ms + j->spec->client_away_ms;
    limits_job(j);
    return 0;
}

static int on_stop(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_stop *ev = &event->stop;
    if (j->decided && !(j->save_ms && !ev->save_ms))
        return job_refuse(e, EALREADY, "the job is already ending");
    if (j->decided) { /* an earlier stop waits for checkpoints, this one does not */
        policy_stop_now(j);
        return 0;
    }
    j->save_ms = (uint32_t)MIN(MAX(ev->save_ms, (int64_t)0), (int64_t)UINT32_MAX);
    bool who = ev->who && *ev->who, why = ev->why && *ev->why;
    policy_decide(j, JOB_KILLED, "killed%s%.120s%s%.200s", who ? " by " : "", who ? ev->who : "",
                  why ? ": " : "", why ? ev->why : "");
    (void)job_act(j, ACT_SYNC);
    return 0;
}

static int on_stalled(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_stalled *ev = &event->stalled;
    if (ev->stalled_ms < 0 || ev->stalled_ms > j->now_ms)
        return err_set(e, ERANGE, "a stall of %lld ms is impossible: the job is %lld ms old",
                       (long long)ev->stalled_ms, (long long)j->now_ms),
               1;
    j->stalled_ms += ev->stalled_ms;
    return 0;
}

static int on_timer(struct job *j, struct job_event *event, struct err *e)
{
    return limits_fired(j, &event->timer, e);
}

static int on_suspect(struct job *j, struct job_event *event, struct err *e)
{
    return limits_suspect(j, event->suspect.slot, e);
}

static int on_resize(struct job *j, struct job_event *event, struct err *e)
{
    return resize_asked(j, &event->resize, e);
}

static int on_grow(struct job *j, struct job_event *event, struct err *e)
{
    const struct ev_grow *ev = &event->grow;
    struct ev_shrink d = { .n_containers = ev->n_containers,
                           .within_ms = ev->within_ms,
                           .why = ev->why,
                           .saved = ev->saved };
    return resize_by_scheduler(j, &d, true, e);
}

static int on_shrink(struct job *j, struct job_event *event, struct err *e)
{
    return resize_by_scheduler(j, &event->shrink, false, e);
}

static int on_decision(struct job *j, struct job_event *event, struct err *e)
{
    return decisions_read(j, event, e);
}

static int on_launch_failed(struct job *j, struct job_event *event, struct err *e)
{
    struct ev_launch_failed_job *ev = &event->launch_failed_job;
    (void)e;
    j->restarts.hopeless = true;
    policy_decide(j, JOB_FAILED, "%s%s%.300s",
                  ev->stopped ? "the job was lost" : "the job's master could not be run",
                  ev->why && *ev->why ? ": " : "", ev->why ? ev->why : "");
    policy_abandon(j);
    return 0;
}

static const struct handler {
    on_event *fn;
    bool checks_container; /* refuse the event unless the slot has the event's container */
    bool fenced;           /* refuse the event unless it is about the slot's current attempt */
    bool quiet;            /* no rule of policy_run() depends on it */
} handlers[EV_COUNT] = {
    [EV_SUBMITTED] = { on_submitted },
    [EV_MASTER_STARTED] = { on_master_started },
    [EV_RESYNCED] = { on_resynced },
    [EV_CONTAINER_SEEN] = { on_seen },
    [EV_ALLOCATED] = { on_allocated },
    [EV_ALLOCATION_REFUSED] = { on_refused },
    [EV_COMPLETED] = { on_completed, .checks_container = true },
    [EV_PREEMPTING] = { on_preempting, .checks_container = true },
    [EV_REGISTERED] = { on_registered, .checks_container = true },
    [EV_EXECUTOR_GONE] = { on_executor_gone, .checks_container = true, .quiet = true },
    [EV_EXECUTOR_BACK] = { on_executor_back, .checks_container = true },
    [EV_ATTEMPT_STARTED] = { on_attempt_started, .fenced = true, .quiet = true },
    [EV_ATTEMPT_ENDED] = { on_attempt_ended },
    [EV_BEAT] = { on_beat, .quiet = true },
    [EV_PROGRESS] = { on_progress, .quiet = true },
    [EV_CHECKPOINT] = { on_checkpoint, .quiet = true },
    [EV_TENSORBOARD] = { on_tensorboard, .quiet = true },
    [EV_TASK_READY] = { on_task_ready, .fenced = true },
    [EV_CLIENT_OWNS] = { on_client, .quiet = true },
    [EV_CLIENT_AWAY] = { on_client, .quiet = true },
    [EV_STOP] = { on_stop },
    [EV_STALLED] = { on_stalled, .quiet = true },
    [EV_TIMER] = { on_timer },
    [EV_SUSPECT] = { on_suspect, .quiet = true },
    [EV_RESIZE] = { on_resize },
    [EV_SHRINK] = { on_shrink },
    [EV_GROW] = { on_grow },
    [EV_LAUNCH_FAILED_JOB] = { on_launch_failed },
    [EV_DECIDED_RESTART] = { on_decision, .quiet = true },
    [EV_DECIDED_RESIZE] = { on_decision, .quiet = true },
    [EV_DECIDED_VERDICT] = { on_decision, .quiet = true },
};

/* ---- feeding events ---- */

/* The checks that come before the handler. ev names the slot that has the container now. */
static int check_event(struct job *j, const struct job_event *ev, struct err *e)
{
    const struct handler *h = &handlers[ev->type];
    enum event_whose whose = job_event_whose(ev->type);
    const char *container = whose == OF_CONTAINER ? ev->of_container.container : NULL;
    bool restart = ev->type == EV_MASTER_STARTED || ev->type == EV_RESYNCED;

    if ((j->state == JOB_NEW) != (ev->type == EV_SUBMITTED))
        return err_set(e, EPROTO, "event '%s' is impossible: the job was %ssubmitted",
                       job_event_name(ev->type), j->state == JOB_NEW ? "not yet " : "already "),
               1;
    uint32_t slot = job_event_slot(ev);
    if (slot >= j->n_slots && whose != OF_JOB)
        return err_set(e, EPROTO, "event '%s' names slot %u, but the job has %u slots",
                       job_event_name(ev->type), slot, j->n_slots),
               1;
    if (job_over(j) && !restart && ev->type != EV_ATTEMPT_ENDED && h->fn != on_decision)
        return err_set(e, EALREADY, "the job is over: event '%s' comes too late",
                       job_event_name(ev->type)),
               1;
    if (whose == OF_CONTAINER && (!container || !*container))
        return job_refuse(e, EPROTO, "event '%s' names no container", job_event_name(ev->type));
    const struct slot *s = &j->slots[slot];
    if (h->checks_container && (!slot_has_container(s->state) || !str_eq(s->container, container)))
        return err_set(e, ESTALE, "container '%s' is not that of slot '" SLOT_NAME "' (%s)",
                       container, SLOT_ARGS(j, slot), s->container ? s->container : "none"),
               1;
    return h->fenced ? fence(j, ev, e) : 0;
}

/* The most actions that one event can cause: four for each slot (for example request, take, start
 * and stop), one for each node, and a few for the job. */
static size_t actions_max(const struct job *j)
{
    size_t most = 4 * (size_t)j->n_slots + j->nodes.n + 16;

    return j->resize.kept.set ? 2 * most : most; /* one resize ends, and the next one begins */
}

/* The name of the node in an event; NULL: the event has none. */
static const char *node_of(const struct job_event *ev)
{
    return ev->type == EV_ALLOCATED        ? ev->allocated.node
           : ev->type == EV_CONTAINER_SEEN ? ev->container_seen.node
                                           : NULL;
}

int job_feed(struct job *j, const struct job_event *ev, int64_t now_ms, struct job_actions *out,
             struct err *e)
{
    AUTO(event_copy_done) struct job_event copy = { 0 };
    struct job_event routed = *ev; /* names the slot that has the container now */

    if ((unsigned)ev->type >= EV_COUNT || !handlers[ev->type].fn)
        return job_refuse(e, EPROTO, "no such event: %u", (unsigned)ev->type);
    if (job_event_whose(ev->type) != OF_JOB)
        routed.of_slot.slot = job_slot_now(j, ev->of_slot.slot);
    int rc = check_event(j, &routed, e);
    if (rc)
        return rc;
    bool ends = ev->type == EV_ATTEMPT_ENDED || ev->type == EV_COMPLETED;
    if (vec_reserve(out, out->n + actions_max(j)) < 0 || nodes_reserve(j, node_of(ev)) < 0 ||
        (ends && restart_reserve(j, routed.of_slot.slot) < 0) ||
        decisions_reserve(j, ev->type) < 0 || event_copy(&routed, &copy) < 0)
        return err_set(e, ENOMEM, "no memory for event '%s'", job_event_name(ev->type));
    bool is_decision = handlers[ev->type].fn == on_decision; /* it belongs to the next event */
    j->now_ms = MAX(j->now_ms, now_ms);
    j->out = out;
    j->resize.shape_requested = false;
    j->costs.must_record = false;
    if (!is_decision)
        decisions_begin_event(j, ev->type);
    bool quiet =
        handlers[ev->type].quiet && !(ev->type == EV_CHECKPOINT && resize_awaits_checkpoint(j));
    rc = handlers[ev->type].fn(j, &copy, e);
    if (rc == 0 && !quiet)
        policy_run(j);
    if (rc == 0)
        costs_run(j);
    if (!is_decision)
        decisions_end_event(j);
    if (j->changed)
        (void)job_act(j, ACT_NOTIFY);
    j->changed = false;
    j->out = NULL;
    return rc;
}
