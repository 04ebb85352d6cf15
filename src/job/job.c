/*
 * Life of a job, dispatch of events. What an event means is in the other files (job_int.h lists
 * them).
 */
#include "job/job.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "job/job_int.h"

/* ---- life ---- */

static uint32_t role_instances(const struct job *j, uint32_t role)
{
    return j->spec->single_node ? 1 : j->spec->roles[role].instances;
}

static uint32_t role_spares(const struct job *j, uint32_t role)
{
    return j->spec->single_node ? 0 : j->spec->roles[role].spares;
}

static void make_role(struct job *j, uint32_t r, uint32_t first, uint32_t n, uint32_t index)
{
    struct role *role = &j->roles[r];

    role->first = first;
    role->n = n;
    role->n_state[SLOT_HELD] = n;
    for (uint32_t i = 0; i < n; i++)
        j->slots[first + i] = (struct slot){ .role = r,
                                             .index = index + i,
                                             .state = SLOT_HELD,
                                             .stop_us = -1,
                                             .started_ms = -1,
                                             .ended_ms = -1,
                                             .node = -1,
                                             .quick = { -1, -1, -1 },
                                             .lent_to = UINT32_MAX };
}

static void make_slots(struct job *j)
{
    uint32_t at = 0, r = j->n_roles;

    for (uint32_t i = 0; i < j->n_roles; at += j->roles[i++].n) {
        j->roles[i].of = i;
        j->roles[i].kind = j->spec->single_node ? ROLE_TRACKED : j->spec->roles[i].kind;
        make_role(j, i, at, role_instances(j, i), 0);
    }
    j->n_state[SLOT_HELD] = at;
    for (uint32_t i = 0; i < j->n_roles; i++) {
        if (!role_spares(j, i))
            continue;
        j->roles[r].of = i;
        j->roles[r].kind = ROLE_SIDECAR;
        make_role(j, r, at, role_spares(j, i), j->roles[i].n);
        at += j->roles[r++].n;
    }
}

struct job *job_new(const struct job_spec *spec, struct err *e)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        goto no_memory;

    *j = (struct job){ .spec = spec,
                       .state = JOB_NEW,
                       .submitted_ms = 0,
                       .started_ms = -1,
                       .ended_ms = -1,
                       .asked_ms = -1,
                       .client_due_ms = INT64_MAX,
                       .pause_due_ms = INT64_MAX,
                       .restart_due_ms = INT64_MAX,
                       .cause = { .slot = JOB_NO_SLOT },
                       .fatal = { .slot = JOB_NO_SLOT } };
    j->n_roles = spec->single_node ? 1 : (uint32_t)spec->n_roles;
    j->n_all_roles = j->n_roles;
    for (uint32_t r = 0; r < j->n_roles; r++) {
        j->n_tasks += role_instances(j, r);
        j->n_slots += role_instances(j, r) + role_spares(j, r);
        j->n_all_roles += role_spares(j, r) > 0;
    }
    /* one more than needed, so that none is of size 0 */
    j->slots = calloc((size_t)j->n_slots + 1, sizeof *j->slots);
    j->roles = calloc((size_t)j->n_all_roles + 1, sizeof *j->roles);
    j->ready = calloc((size_t)j->n_roles + 1, sizeof *j->ready);
    j->groups = calloc(spec->n_group_timeouts + 1, sizeof *j->groups);
    if (!j->slots || !j->roles || !j->ready || !j->groups || limits_init(j) < 0)
        goto no_memory;
    make_slots(j);
    for (uint32_t r = 0; r < j->n_roles; r++)
        j->has_gates |= job_role_spec(j, r)->n_gates > 0;
    if (restart_init(j) < 0)
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
    nodes_free(j);
    free(j->slots);
    free(j->roles);
    free(j->ready);
    free(j->groups);
    free(j->application_id);
    free(j->user);
    free(j->tensorboard);
    free(j->stray);
    free(j);
}

/* ---- actions ---- */

struct job_action *job_act(struct job *j, enum job_action_type type, uint32_t slot)
{
    struct job_actions *out = j->out;

    assert(out && out->n < out->cap); /* job_feed reserved for the largest answer */
    out->v[out->n] = (struct job_action){ .type = type, .slot = slot };
    return &out->v[out->n++];
}

void job_discard(struct job *j, uint32_t slot, bool launched, struct kept *kept)
{
    free(j->stray);
    j->stray = TAKE(kept->container);
    job_act(j, launched ? ACT_STOP_CONTAINER : ACT_RELEASE, slot)->container = j->stray;
}

void job_place(struct job *j, struct slot *s, const struct job_event *ev, struct kept *kept)
{
    free(s->container);
    free(s->gpus);
    free(s->address);
    s->address = NULL;
    s->tb_port = s->pid = 0;
    s->container = TAKE(kept->container);
    s->gpus = TAKE(kept->text);
    s->node = nodes_enter(j, ev->node, &kept->node);
    s->seen = true;
    s->moved = false;
    s->elsewhere = s->attempt;
    s->left_ms = 0;
}

/* ---- events: what has to hold, and what it does ---- */

typedef int on_event(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e);

static int on_submitted(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    (void)e;
    j->application_id = TAKE(kept->text);
    j->user = TAKE(kept->who);
    j->state = JOB_WAITING;
    j->submitted_ms = j->now_ms;
    j->submitted_wall_ms = ev->wall_ms;
    j->owned = ev->running;
    if (j->owned && j->spec->client_away_ms >= 0)
        j->client_due_ms = j->now_ms + j->spec->client_away_ms;
    j->changed = true;
    limits_job(j);
    return 0;
}

static int on_master_started(struct job *j, const struct job_event *ev, struct kept *kept,
                             struct err *e)
{
    (void)kept;
    return recover_master_started(j, ev, e);
}

static int on_resynced(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    (void)ev;
    (void)kept;
    return recover_resynced(j, e);
}

static int on_seen(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    return recover_seen(j, ev, kept, e);
}

static int on_allocated(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    struct slot *s = &j->slots[ev->slot];

    if (s->state == SLOT_ASKED && !str_eq(s->container, ev->container)) {
        job_place(j, s, ev, kept);
        return slot_step(j, ev->slot, IN_GRANT, NULL, e);
    }
    if (slot_has_container(s->state) && str_eq(s->container, ev->container))
        return err_set(e, EALREADY, "slot '" SLOT_NAME "' has this container already",
                       SLOT_ARGS(j, ev->slot)),
               1;
    job_discard(j, ev->slot, false, kept);
    return err_set(e, ESTALE, "slot '" SLOT_NAME "' is %s: it wants no container",
                   SLOT_ARGS(j, ev->slot), slot_state_name(s->state)),
           1;
}

static int on_refused(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    if (!job_is_spare(j, ev->slot))
        j->hopeless = true;
    struct slot_end end = { .reason = END_LAUNCH_FAILED,
                            .at_us = j->now_ms * 1000,
                            .detail = &kept->text,
                            .note = "the scheduler refused it a container" };
    return slot_step(j, ev->slot, IN_REFUSE, &end, e);
}

static int on_completed(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    /* The scheduler's word on a container is a code, or 128 and a signal; an executor ends as its
     * task did. */
    bool signalled =
        ev->reason == END_EXITED && !ev->signal && ev->exit_code > 128 && ev->exit_code < 128 + 65;
    struct slot_end end = { .reason = ev->reason ? ev->reason : END_UNKNOWN,
                            .exit_code = signalled ? 0 : ev->exit_code,
                            .signal = signalled ? ev->exit_code - 128 : ev->signal,
                            .at_us = j->now_ms * 1000 -
                                     (int64_t)MIN(ev->age_us, (uint64_t)INT64_MAX / 4),
                            .detail = &kept->text };
    return restart_ended(j, ev->slot, IN_GONE, &end, e);
}

static int on_preempting(struct job *j, const struct job_event *ev, struct kept *kept,
                         struct err *e)
{
    (void)kept;
    return restart_preempting(j, ev->slot, ev->value_ms, e);
}

static void heard(struct job *j, struct slot *s)
{
    s->beat_ms = beat_clock(j);
    s->left_ms = 0;
    if (s->suspect)
        j->changed = true;
    s->suspect = false;
}

static int on_registered(struct job *j, const struct job_event *ev, struct kept *kept,
                         struct err *e)
{
    struct slot *s = &j->slots[ev->slot];

    if (ev->generation && ev->generation != j->generation)
        return err_set(e, ESTALE, "slot '" SLOT_NAME "' is ready for generation %u, not %u",
                       SLOT_ARGS(j, ev->slot), ev->generation, j->generation),
               1;
    int rc = slot_step(j, ev->slot, ev->generation ? IN_READY : IN_REGISTER, NULL, e);
    if (rc)
        return rc;
    heard(j, s);
    s->connected = true;
    free(s->address);
    s->address = TAKE(kept->text);
    s->tb_port = ev->tb_port;
    s->pid = ev->pid;
    policy_registered(j, ev->slot);
    return 0;
}

static int on_executor_gone(struct job *j, const struct job_event *ev, struct kept *kept,
                            struct err *e)
{
    struct slot *s = &j->slots[ev->slot];

    (void)kept;
    (void)e;
    s->connected = false;
    s->left_ms = ev->running ? 0 : MAX(j->now_ms, (int64_t)1);
    limits_slot(j, ev->slot);
    j->changed = true;
    return 0;
}

/* Is it about a first attempt that a master before us began? The end of our journal may be lost,
 * but what was restarted is in it (ACT_SYNC). */
static bool is_unwritten(const struct slot *s, const struct job_event *ev)
{
    return s->state == SLOT_REGISTERED && !s->attempt && ev->generation == 1 && ev->attempt == 1;
}

static int on_executor_back(struct job *j, const struct job_event *ev, struct kept *kept,
                            struct err *e)
{
    struct slot *s = &j->slots[ev->slot];
    bool current = ev->generation == s->generation && ev->attempt == s->attempt;
    bool first = is_unwritten(s, ev);

    (void)kept;
    if (first)
        current = false;
    else if (ev->generation > s->generation ||
             (ev->generation == s->generation && ev->attempt > s->attempt))
        return err_set(e, ESTALE,
                       "the executor of slot '" SLOT_NAME
                       "' speaks of attempt %u.%u, which was never begun",
                       SLOT_ARGS(j, ev->slot), ev->generation, ev->attempt),
               1;
    enum slot_input in = current ? IN_RETURN : IN_REGISTER;
    enum slot_state to = slot_table[s->state][in].to;
    if (to != SLOT_NONE && to != s->state) /* this event is not in the journal */
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: its executor has to register",
                       SLOT_ARGS(j, ev->slot), slot_state_name(s->state)),
               1;
    int rc = slot_step(j, ev->slot, in, NULL, e);
    if (rc)
        return rc;
    s->connected = true;
    heard(j, s);
    return 0;
}

/* Is the event about the attempt that is going on? What has ended, or is between two, has none. */
static int fence(const struct job *j, const struct job_event *ev, struct err *e)
{
    const struct slot *s = &j->slots[ev->slot];
    bool over = s->attempt && (s->state < SLOT_RUNNING || s->state == SLOT_RENEWING);

    if (over && ev->attempt == s->attempt)
        return err_set(e, ESTALE, "slot '" SLOT_NAME "' is %s: attempt %u.%u is over",
                       SLOT_ARGS(j, ev->slot), slot_state_name(s->state), s->generation,
                       s->attempt),
               1;
    if (ev->attempt == s->attempt && (ev->generation == s->generation || !s->attempt))
        return 0;
    return err_set(e, ESTALE, "slot '" SLOT_NAME "' is at attempt %u.%u, not %u.%u",
                   SLOT_ARGS(j, ev->slot), s->generation, s->attempt, ev->generation, ev->attempt),
           1;
}

static int on_attempt_started(struct job *j, const struct job_event *ev, struct kept *kept,
                              struct err *e)
{
    struct slot *s = &j->slots[ev->slot];

    (void)kept;
    if (s->state != SLOT_RUNNING && s->state != SLOT_STOPPING && s->state != SLOT_HALTING)
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: no attempt can have begun",
                       SLOT_ARGS(j, ev->slot), slot_state_name(s->state)),
               1;
    s->pid = ev->pid;
    s->started_ms = j->now_ms;
    j->changed = true;
    return 0;
}

static void note_progress(struct job *j, const struct job_event *ev)
{
    struct slot *s = &j->slots[ev->slot];

    if (!s->first_ms || ev->step < s->first_step) {
        s->first_step = ev->step;
        s->first_ms = MAX(j->now_ms, (int64_t)1);
    }
    s->step = ev->step;
    s->total = ev->total;
    s->step_ms = j->now_ms;
    j->changed = true;
}

static int attempt_ended(struct job *j, const struct job_event *ev, struct kept *kept,
                         struct err *e)
{
    int rc = fence(j, ev, e);
    if (rc)
        return rc;
    if (ev->step || ev->total)
        note_progress(j, ev);
    struct slot_end end = { .reason = ev->reason ? ev->reason : END_UNKNOWN,
                            .rank = ev->rank,
                            .exit_code = ev->exit_code,
                            .signal = ev->signal,
                            .at_us = j->now_ms * 1000 -
                                     (int64_t)MIN(ev->age_us, (uint64_t)INT64_MAX / 4),
                            .detail = &kept->text,
                            .tail = &kept->tail };
    return restart_ended(j, ev->slot, IN_END, &end, e);
}

static int on_attempt_ended(struct job *j, const struct job_event *ev, struct kept *kept,
                            struct err *e)
{
    if (is_unwritten(&j->slots[ev->slot], ev)) /* asked to begin it, the executor tells it again */
        return err_set(e, ESTALE, "slot '" SLOT_NAME "' has not begun attempt 1.1 for all we know",
                       SLOT_ARGS(j, ev->slot)),
               1;
    int rc = attempt_ended(j, ev, kept, e);
    /* Also for one that we know already, or refuse: the executor tells it until it was heard. */
    struct job_action *ack = job_act(j, ACT_ACK, ev->slot);

    ack->generation = ev->generation;
    ack->attempt = ev->attempt;
    ack->finish = !restart_wants_executor(j, ev->slot);
    return rc;
}

static int on_beat(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    struct slot *s = &j->slots[ev->slot];

    (void)kept;
    if (!slot_has_container(s->state))
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: nobody can beat for it",
                       SLOT_ARGS(j, ev->slot), slot_state_name(s->state)),
               1;
    heard(j, s);
    return 0;
}

static int on_progress(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    struct slot *s = &j->slots[ev->slot];

    (void)kept;
    if (s->state != SLOT_RUNNING)
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: it makes no progress",
                       SLOT_ARGS(j, ev->slot), slot_state_name(s->state)),
               1;
    note_progress(j, ev);
    return 0;
}

/* What an attempt before the present one has saved lies there as well, and may be told late: its
 * executor had no master meanwhile. */
static int on_checkpoint(struct job *j, const struct job_event *ev, struct kept *kept,
                         struct err *e)
{
    const struct slot *s = &j->slots[ev->slot];

    if (!ev->attempt || ev->attempt > s->attempt || ev->generation > s->generation)
        return err_set(e, ESTALE, "slot '" SLOT_NAME "' never began attempt %u.%u",
                       SLOT_ARGS(j, ev->slot), ev->generation, ev->attempt),
               1;
    return checkpoint_saved(j, ev, kept, e);
}

static int on_tensorboard(struct job *j, const struct job_event *ev, struct kept *kept,
                          struct err *e)
{
    (void)e;
    free(j->slots[ev->slot].tensorboard);
    j->slots[ev->slot].tensorboard = TAKE(kept->text);
    free(j->tensorboard);
    j->tensorboard =
        TAKE(kept->tail); /* the second copy of the text that kept_init() made for this */
    j->changed = true;
    return 0;
}

static int on_task_ready(struct job *j, const struct job_event *ev, struct kept *kept,
                         struct err *e)
{
    struct slot *s = &j->slots[ev->slot];

    (void)kept;
    if (s->state != SLOT_RUNNING)
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: nobody waits for it to be ready",
                       SLOT_ARGS(j, ev->slot), slot_state_name(s->state)),
               1;
    if (!s->ready)
        j->changed = true;
    s->ready = true;
    return 0;
}

static int on_client(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    (void)kept;
    (void)e;
    j->owned = true;
    j->client_due_ms = INT64_MAX;
    if (ev->type == EV_CLIENT_AWAY && j->spec->client_away_ms >= 0)
        j->client_due_ms = j->now_ms + j->spec->client_away_ms;
    limits_job(j);
    return 0;
}

static int on_stop(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    (void)kept;
    if (j->decided && !(j->save_ms && !ev->value_ms))
        return err_set(e, EALREADY, "the job is already ending"), 1;
    if (j->decided) { /* it waits for checkpoints, which nobody wants any more */
        policy_stop_now(j);
        return 0;
    }
    j->save_ms = (uint32_t)MIN(MAX(ev->value_ms, (int64_t)0), (int64_t)UINT32_MAX);
    bool who = ev->who && *ev->who, why = ev->text && *ev->text;
    policy_decide(j, JOB_KILLED, "killed%s%.120s%s%.200s", who ? " by " : "", who ? ev->who : "",
                  why ? ": " : "", why ? ev->text : "");
    (void)job_act(j, ACT_SYNC, 0);
    return 0;
}

static int on_stalled(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    (void)kept;
    if (ev->value_ms < 0 || ev->value_ms > j->now_ms)
        return err_set(e, ERANGE, "a stall of %lld ms", (long long)ev->value_ms), 1;
    j->stalled_ms += ev->value_ms;
    return 0;
}

static int on_timer(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    (void)kept;
    return limits_fired(j, ev, e);
}

static int on_suspect(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    (void)kept;
    return limits_suspect(j, ev->slot, e);
}

static int on_shrink(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    (void)j;
    (void)ev;
    (void)kept;
    return err_set(e, EOPNOTSUPP, "this job cannot run with fewer containers"), 1;
}

static int on_launch_failed(struct job *j, const struct job_event *ev, struct kept *kept,
                            struct err *e)
{
    (void)kept;
    (void)e;
    j->hopeless = true;
    policy_decide(j, JOB_FAILED, "the job's master could not be run%s%.300s",
                  ev->text && *ev->text ? ": " : "", ev->text ? ev->text : "");
    policy_abandon(j);
    return 0;
}

/* slot: ev->slot must be one of ours. container: it must be given; held: and be the slot's.
 * fenced: only of the attempt that is going on. quiet: policy has nothing to say. */
static const struct handler {
    on_event *fn;
    bool slot, container, held, fenced, quiet;
} handlers[EV_COUNT] = {
    [EV_SUBMITTED] = { on_submitted },
    [EV_MASTER_STARTED] = { on_master_started },
    [EV_RESYNCED] = { on_resynced },
    [EV_CONTAINER_SEEN] = { on_seen, .slot = true, .container = true },
    [EV_ALLOCATED] = { on_allocated, .slot = true, .container = true },
    [EV_ALLOCATION_REFUSED] = { on_refused, .slot = true },
    [EV_COMPLETED] = { on_completed, .slot = true, .container = true, .held = true },
    [EV_PREEMPTING] = { on_preempting, .slot = true, .container = true, .held = true },
    [EV_REGISTERED] = { on_registered, .slot = true, .container = true, .held = true },
    [EV_EXECUTOR_GONE] = { on_executor_gone, .slot = true, .container = true, .held = true,
                           .quiet = true },
    [EV_EXECUTOR_BACK] = { on_executor_back, .slot = true, .container = true, .held = true },
    [EV_ATTEMPT_STARTED] = { on_attempt_started, .slot = true, .fenced = true, .quiet = true },
    [EV_ATTEMPT_ENDED] = { on_attempt_ended, .slot = true },
    [EV_BEAT] = { on_beat, .slot = true, .quiet = true },
    [EV_PROGRESS] = { on_progress, .slot = true, .quiet = true },
    [EV_CHECKPOINT] = { on_checkpoint, .slot = true, .quiet = true },
    [EV_TENSORBOARD] = { on_tensorboard, .slot = true, .quiet = true },
    [EV_TASK_READY] = { on_task_ready, .slot = true, .fenced = true },
    [EV_CLIENT_OWNS] = { on_client, .quiet = true },
    [EV_CLIENT_AWAY] = { on_client, .quiet = true },
    [EV_STOP] = { on_stop },
    [EV_STALLED] = { on_stalled, .quiet = true },
    [EV_TIMER] = { on_timer, .slot = true },
    [EV_SUSPECT] = { on_suspect, .slot = true, .quiet = true },
    [EV_SHRINK] = { on_shrink, .quiet = true },
    [EV_LAUNCH_FAILED_JOB] = { on_launch_failed },
};

/* ---- the one entrance ---- */

static int check_event(struct job *j, const struct job_event *ev, struct err *e)
{
    const struct handler *h = (unsigned)ev->type < EV_COUNT ? &handlers[ev->type] : NULL;
    bool restart = ev->type == EV_MASTER_STARTED || ev->type == EV_RESYNCED;

    if (!h || !h->fn)
        return err_set(e, EPROTO, "no such event: %u", (unsigned)ev->type), 1;
    if ((j->state == JOB_NEW) != (ev->type == EV_SUBMITTED))
        return err_set(e, EPROTO, "'%s' of a job that was %ssubmitted", job_event_name(ev->type),
                       j->state == JOB_NEW ? "not yet " : "already "),
               1;
    if (h->slot && ev->slot >= j->n_slots)
        return err_set(e, EPROTO, "'%s' of slot %u, but there are %u", job_event_name(ev->type),
                       ev->slot, j->n_slots),
               1;
    if (job_over(j) && !restart && ev->type != EV_ATTEMPT_ENDED)
        return err_set(e, EALREADY, "the job is over: '%s' comes too late",
                       job_event_name(ev->type)),
               1;
    if (h->container && (!ev->container || !*ev->container))
        return err_set(e, EPROTO, "'%s' without a container", job_event_name(ev->type)), 1;
    const struct slot *s = &j->slots[h->slot ? ev->slot : 0];
    if (h->held && (!slot_has_container(s->state) || !str_eq(s->container, ev->container)))
        return err_set(e, ESTALE, "container '%s' is not that of slot '" SLOT_NAME "' (%s)",
                       ev->container, SLOT_ARGS(j, ev->slot), s->container ? s->container : "none"),
               1;
    return h->fenced ? fence(j, ev, e) : 0;
}

static bool keep(char **out, const char *s, size_t max, bool wanted)
{
    if (!s || !wanted)
        return true;
    *out = strndup(s, max);
    return *out != NULL;
}

/* Copies what the event's handler may keep. */
static int kept_init(struct job *j, struct kept *k, const struct job_event *ev)
{
    bool ended = ev->type == EV_ATTEMPT_ENDED, tb = ev->type == EV_TENSORBOARD;
    size_t tail = ended && ev->tail ? strlen(ev->tail) : 0;
    bool container = ev->type == EV_ALLOCATED || ev->type == EV_CONTAINER_SEEN;
    bool text = container || ended || tb || ev->type == EV_SUBMITTED || ev->type == EV_REGISTERED ||
                ev->type == EV_COMPLETED || ev->type == EV_ALLOCATION_REFUSED ||
                ev->type == EV_CHECKPOINT;

    return keep(&k->container, ev->container, JOB_TEXT_MAX, container) &&
                   keep(&k->text, ev->text, JOB_TEXT_MAX, text) &&
                   keep(&k->who, ev->who, JOB_TEXT_MAX, ev->type == EV_SUBMITTED) &&
                   keep(&k->tail,
                        ended && tail ? ev->tail + (tail > JOB_TAIL_MAX ? tail - JOB_TAIL_MAX : 0)
                                      : ev->text,
                        JOB_TAIL_MAX, (ended && tail) || tb) &&
                   (!container || !ev->node || nodes_keep(j, ev, &k->node) == 0)
               ? 0
               : -ENOMEM;
}

static void kept_done(struct kept *k)
{
    free(k->container);
    free(k->text);
    free(k->who);
    free(k->tail);
    node_done(&k->node);
}

int job_feed(struct job *j, const struct job_event *ev, int64_t now_ms, struct job_actions *out,
             struct err *e)
{
    AUTO(kept_done) struct kept kept = { 0 };
    struct job_event moved;

    if ((unsigned)ev->type < EV_COUNT && handlers[ev->type].slot &&
        job_slot_now(j, ev->slot) != ev->slot) {
        moved = *ev;
        moved.slot = job_slot_now(j, ev->slot);
        ev = &moved;
    }
    int rc = check_event(j, ev, e);
    if (rc)
        return rc;
    /* A slot is acted on at most four times in one event: asked for, taken or started, stopped; and
     * a few for the job. */
    size_t most = 4 * (size_t)j->n_slots + j->nodes.n + 16;
    if (vec_reserve(out, out->n + most) < 0 || kept_init(j, &kept, ev) < 0)
        return err_set(e, ENOMEM, "no memory for event '%s'", job_event_name(ev->type));
    j->now_ms = MAX(j->now_ms, now_ms);
    j->out = out;
    rc = handlers[ev->type].fn(j, ev, &kept, e);
    if (rc == 0 && !handlers[ev->type].quiet)
        policy_run(j);
    if (j->changed)
        (void)job_act(j, ACT_NOTIFY, 0);
    j->changed = false;
    j->out = NULL;
    return rc;
}
