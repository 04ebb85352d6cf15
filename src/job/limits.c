/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of the job and of its slots. Each limit of the job and each slot has an entry in one
 * heap of deadlines. An entry may be too early, because a heartbeat only changes slot.beat_ms, not
 * the heap. job_due() notices this and puts the entry back with its right time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "job/job_int.h"

/* ---- ids of deadlines: first the job's limits, then the groups, then the slots, whose number may
 * grow ---- */

static uint32_t group_id(uint32_t group)
{
    return LIMIT_COUNT + group;
}

static uint32_t first_slot_id(const struct job *j)
{
    return LIMIT_COUNT + (uint32_t)j->spec->n_group_timeouts;
}

static uint32_t slot_id(const struct job *j, uint32_t slot)
{
    return first_slot_id(j) + slot;
}

/* An executor that has been silent for this time counts as dead. */
static int64_t dead_ms(const struct job *j)
{
    uint32_t beats = MAX((uint32_t)JOB_MIN_DEAD_BEATS, j->spec->max_missed_heartbeats);

    return (int64_t)beats * j->spec->heartbeat_ms;
}

int limits_reserve(struct job *j, uint32_t n_slots)
{
    return deadlines_reserve(&j->limits.deadlines, slot_id(j, n_slots));
}

int limits_init(struct job *j)
{
    struct limits *l = &j->limits;
    char text[32];

    (void)snprintf(l->silent_text, sizeof l->silent_text, "no heartbeat for %s",
                   limit_text(dead_ms(j), text, sizeof text));
    (void)snprintf(l->unregistered_text, sizeof l->unregistered_text,
                   "its executor did not register within %s",
                   limit_text((int64_t)j->spec->registration_timeout_ms, text, sizeof text));
    return limits_reserve(j, 0);
}

void limits_done(struct job *j)
{
    deadlines_done(&j->limits.deadlines);
}

const char *limit_text(int64_t ms, char *buf, size_t size)
{
    if (ms % 1000 == 0)
        (void)snprintf(buf, size, "%lld s", (long long)(ms / 1000));
    else
        (void)snprintf(buf, size, "%lld ms", (long long)ms);
    return buf;
}

/* ---- when limits expire ---- */

int64_t beat_clock(const struct job *j)
{
    return j->now_ms - j->stalled_ms;
}

/* from + ms; INT64_MAX if that overflows. */
static int64_t after(int64_t from, uint64_t ms)
{
    int64_t due;

    return ms > INT64_MAX || __builtin_add_overflow(from, (int64_t)ms, &due) ? INT64_MAX : due;
}

/* Does the slot's executor run the rendezvous server? It stays alive for the ranks of other tasks
 * when its own task has ended. */
static bool runs_server(const struct job *j, const struct slot *s)
{
    return j->spec->server && s->index == 0 && j->roles[s->role].of == j->spec->server_role;
}

/*
 * The time from which on no attempt can run in the slot's container, whatever has happened to its
 * node (decision 0008). An executor that cannot reach the master ends its task after
 * master_away_ms. That time counts from the executor's last message. A new master does not know
 * when its predecessor got that message, so it counts from its own start. An executor that has
 * closed its connection and lives would have reconnected within JOB_LEFT_MS.
 */
static int64_t lease_due(const struct job *j, const struct slot *s)
{
    int64_t last_message_ms = MAX(s->beat_ms, j->beats_from) + j->stalled_ms;
    int64_t due = after(last_message_ms,
                        j->spec->master_away_ms + j->spec->kill_grace_ms + JOB_STOP_MARGIN_MS);

    return s->left_ms ? MIN(due, s->left_ms + j->stalled_ms + JOB_LEFT_MS) : due;
}

/* The lease counts from the last message of the executor. Messages are not in the journal, so this
 * function counts from a later time: when the job stopped waiting for the slot. If only the end of
 * the container was not confirmed, the executor may have sent messages until the end of the job. */
int64_t limits_orphan_end(const struct job *j, const struct slot *s)
{
    bool unconfirmed = s->stop_tries >= JOB_STOP_TRIES;

    if (!s->given_up || !restart_may_have_started(j, s))
        return -1;
    int64_t end = after(unconfirmed ? j->ended_ms : s->since_ms,
                        j->spec->master_away_ms + j->spec->kill_grace_ms + JOB_STOP_MARGIN_MS);
    return end > j->ended_ms ? end : -1;
}

/* Does the job wait for the end of the slot's attempt before it starts the next attempt or the next
 * generation? */
static bool must_end(const struct job *j, const struct slot *s)
{
    return s->state == SLOT_HALTING || s->state == SLOT_REPLACING ||
           (s->state == SLOT_LEAVING && !j->decided);
}

/* Is the end of the lease the only sign that the attempt is dead? Then the scheduler reports
 * nothing more about the container, or has not confirmed its end after JOB_STOP_TRIES tries. */
static bool waits_for_lease(const struct job *j, const struct slot *s)
{
    return must_end(j, s) && (s->given_up || s->stop_tries >= JOB_STOP_TRIES);
}

/* When the container should have ended, and is stopped again. */
static int64_t stop_due(const struct job *j, const struct slot *s, int64_t since)
{
    int64_t margin = (int64_t)JOB_STOP_MARGIN_MS * (s->stop_tries + 1);

    if (s->taken_ms)
        return MAX(since, s->taken_ms) + margin;
    return since + j->wait_ms + j->save_ms + j->spec->kill_grace_ms + margin;
}

static int64_t slot_due(const struct job *j, const struct slot *s)
{
    /* Executors could not register or report while no master ran. */
    int64_t since = MAX(s->since_ms, j->master_ms);

    /* If no attempt follows, the job does not wait for the end of a lease. */
    if (s->given_up)
        return must_end(j, s) ? lease_due(j, s) : slot_has_container(s->state) ? since : INT64_MAX;
    switch (s->state) {
    case SLOT_PLACED:
        return j->spec->registration_timeout_ms ? after(since, j->spec->registration_timeout_ms)
                                                : INT64_MAX;
    case SLOT_REGISTERED:
    case SLOT_RENEWING:
    case SLOT_RUNNING: {
        int64_t silence =
            s->suspect ? dead_ms(j) : (int64_t)JOB_SUSPECT_BEATS * j->spec->heartbeat_ms;
        return MAX(s->beat_ms, j->beats_from) + silence + j->stalled_ms;
    }
    case SLOT_HALTING:
    case SLOT_REPLACING:
    case SLOT_LEAVING:
    case SLOT_STOPPING:
        return MIN(stop_due(j, s, since), waits_for_lease(j, s) ? lease_due(j, s) : INT64_MAX);
    case SLOT_DRAINING:
        if (runs_server(j, s) && !j->decided)
            return INT64_MAX;
        return since + (int64_t)JOB_STOP_MARGIN_MS * (s->stop_tries + 1);
    case SLOT_NONE:
    case SLOT_ABSENT:
    case SLOT_HELD:
    case SLOT_ASKED:
    case SLOT_ENDED:
    case SLOT_STATE_COUNT:
        break;
    }
    return INT64_MAX;
}

int64_t limits_slot_due(const struct job *j, uint32_t slot)
{
    return slot_due(j, &j->slots[slot]);
}

void limits_slot(struct job *j, uint32_t slot)
{
    deadlines_set(&j->limits.deadlines, slot_id(j, slot), slot_due(j, &j->slots[slot]));
}

void limits_asked_slots(struct job *j)
{
    if (!j->n_state[SLOT_ASKED])
        j->gang.asked_ms = -1;
    else if (j->gang.asked_ms < 0)
        j->gang.asked_ms = j->now_ms;
    else
        return;
    limits_job(j);
}

/*
 * FNV-1a of application id, `which` and `number`, and a final mixing step: application ids differ
 * in few bits.
 */
int64_t jitter_ms(const struct job *j, char which, uint32_t number, uint32_t max)
{
    uint64_t h = 0xcbf29ce484222325;

    for (const char *s = j->application_id ? j->application_id : ""; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3;
    h = (h ^ (unsigned char)which) * 0x100000001b3;
    h = (h ^ number) * 0x100000001b3;
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccd;
    h ^= h >> 33;
    return (int64_t)(h % ((uint64_t)max + 1));
}

int64_t gang_pause_ms(const struct job *j)
{
    return MIN((int64_t)GANG_PAUSE_MIN_MS << MIN(j->gang.round, 16u), (int64_t)GANG_PAUSE_MAX_MS) +
           jitter_ms(j, 'p', j->gang.round, GANG_PAUSE_JITTER_MS);
}

/* Set LIMIT_GANG if the gang has some containers and waits for others. The time counts from the
 * last grant: as long as a gang gets containers, it may get all of them. If the user has set a
 * limit on the allocation, only that one applies. */
void limits_gang(struct job *j)
{
    bool open = j->state != JOB_NEW && !j->decided;
    bool stuck = open && j->gang.gives_back && j->spec->gang && !j->spec->allocation_timeout_ms &&
                 j->n_state[SLOT_ASKED] && (j->n_state[SLOT_PLACED] || j->n_state[SLOT_REGISTERED]);

    deadlines_set(&j->limits.deadlines, LIMIT_GANG,
                  stuck ? j->gang.granted_ms + GANG_HOLD_MS +
                              jitter_ms(j, 'h', j->gang.round, GANG_HOLD_JITTER_MS)
                        : INT64_MAX);
}

void limits_job(struct job *j)
{
    const struct job_spec *spec = j->spec;
    bool open = j->state != JOB_NEW && !j->decided;
    bool gang = open && spec->gang && j->gang.asked_ms >= 0;

    deadlines_set(&j->limits.deadlines, LIMIT_APPLICATION,
                  open && spec->app_timeout_ms ? after(j->submitted_ms, spec->app_timeout_ms)
                                               : INT64_MAX);
    deadlines_set(&j->limits.deadlines, LIMIT_ALLOCATION,
                  gang && spec->allocation_timeout_ms
                      ? after(j->gang.asked_ms, spec->allocation_timeout_ms)
                      : INT64_MAX);
    deadlines_set(&j->limits.deadlines, LIMIT_PAUSE, open ? j->gang.pause_due_ms : INT64_MAX);
    limits_gang(j);
    deadlines_set(&j->limits.deadlines, LIMIT_RESTART, open ? j->restarts.due_ms : INT64_MAX);
    deadlines_set(&j->limits.deadlines, LIMIT_RESIZE, open ? j->resize.due_ms : INT64_MAX);
    deadlines_set(&j->limits.deadlines, LIMIT_NODE, open ? nodes_due(j) : INT64_MAX);
    deadlines_set(&j->limits.deadlines, LIMIT_CLIENT, open ? j->client_due_ms : INT64_MAX);
    for (uint32_t g = 0; g < spec->n_group_timeouts; g++)
        deadlines_set(&j->limits.deadlines, group_id(g),
                      open && j->groups[g].armed ? j->groups[g].due_ms : INT64_MAX);
}

/* ---- expired limits ---- */

int64_t job_deadline(const struct job *j)
{
    bool waits = !j->resyncing && j->epoch && !job_over(j);

    return waits ? deadlines_next(&j->limits.deadlines) : INT64_MAX;
}

/* Must the executor of a slot in this state send heartbeats? */
static bool must_beat(enum slot_state s)
{
    return s == SLOT_REGISTERED || s == SLOT_RUNNING || s == SLOT_RENEWING;
}

/* The event for an expired deadline. */
static void make_due_event(const struct job *j, uint32_t id, int64_t now_ms, struct job_event *out)
{
    struct ev_timer *timer = &out->timer;

    *out = (struct job_event){ .type = EV_TIMER };
    if (id < LIMIT_COUNT) {
        timer->limit = (enum job_limit)id;
        return;
    }
    if (id < first_slot_id(j)) {
        timer->limit = LIMIT_GROUP;
        timer->group = id - LIMIT_COUNT;
        return;
    }
    uint32_t slot = id - first_slot_id(j);
    const struct slot *s = &j->slots[slot];
    timer->slot = slot;
    if (s->state == SLOT_PLACED)
        timer->limit = LIMIT_REGISTRATION;
    else if (waits_for_lease(j, s) && lease_due(j, s) <= now_ms)
        timer->limit = LIMIT_LEASE; /* a replay needs it: heartbeats are not in the journal */
    else if (!must_beat(s->state))
        timer->limit = LIMIT_STOP;
    else if (s->suspect)
        timer->limit = LIMIT_SILENCE;
    else
        *out = (struct job_event){ .type = EV_SUSPECT, .suspect = { .slot = slot } };
}

bool job_due(struct job *j, int64_t now_ms, struct job_event *out)
{
    struct deadlines *d = &j->limits.deadlines;

    now_ms = MAX(now_ms, j->now_ms);
    while (job_deadline(j) <= now_ms) {
        uint32_t id = d->heap[0];
        bool of_slot = id >= first_slot_id(j);
        int64_t due = of_slot ? slot_due(j, &j->slots[id - first_slot_id(j)]) : d->due[id];
        if (due > now_ms) {
            deadlines_set(d, id, due);
            continue;
        }
        /* If the caller cannot feed the event, it gets the same event again after 1 s. */
        deadlines_set(d, id, now_ms + 1000);
        make_due_event(j, id, now_ms, out);
        return true;
    }
    return false;
}

int limits_suspect(struct job *j, uint32_t slot, struct err *e)
{
    struct slot *s = &j->slots[slot];

    if (!must_beat(s->state))
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: its heartbeats do not count",
                       SLOT_ARGS(j, slot), slot_state_name(s->state)),
               1;
    s->suspect = true;
    j->changed = true;
    limits_slot(j, slot);
    return 0;
}

/* LIMIT_STOP: the slot's container should have ended by now. */
static int stop_overdue(struct job *j, uint32_t slot, struct err *e)
{
    struct slot *s = &j->slots[slot];

    if (s->state != SLOT_STOPPING && s->state != SLOT_DRAINING && s->state != SLOT_LEAVING &&
        !must_end(j, s))
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s, not told to end", SLOT_ARGS(j, slot),
                       slot_state_name(s->state)),
               1;
    /* If the job must wait for the end, it continues to try until the scheduler or the executor
     * reports the end, or until LIMIT_LEASE. */
    if (must_end(j, s) || (!s->given_up && s->stop_tries < JOB_STOP_TRIES)) {
        s->stop_tries++;
        return slot_step(j, slot, IN_OVERDUE, NULL, e);
    }
    struct slot_end end = { .reason = END_NODE_LOST,
                            .at_us = j->now_ms * 1000,
                            .note = NOTE_UNCONFIRMED };
    bool unconfirmed = !s->given_up;
    s->given_up = true; /* if the task restarts later, it first waits for the end of the lease */
    int rc = slot_step(j, slot, IN_ABANDON, &end, e);
    /* The next two are for limits_orphan_end(); slot_step() has reset them. */
    if (s->state == SLOT_ABSENT)
        s->given_up = true;
    if (s->given_up && unconfirmed)
        s->stop_tries = JOB_STOP_TRIES;
    return rc;
}

static int lease_fired(struct job *j, uint32_t slot, struct err *e)
{
    struct slot *s = &j->slots[slot];

    if (!waits_for_lease(j, s))
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: the job does not wait for its lease",
                       SLOT_ARGS(j, slot), slot_state_name(s->state)),
               1;
    return slot_step(j, slot, IN_LOST, NULL, e);
}

/* LIMIT_REGISTRATION and LIMIT_SILENCE. */
static int executor_silent(struct job *j, const struct ev_timer *ev, struct err *e)
{
    enum slot_state s = j->slots[ev->slot].state;
    bool placed = ev->limit == LIMIT_REGISTRATION;

    if (placed ? s != SLOT_PLACED : !must_beat(s))
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: it has no such limit",
                       SLOT_ARGS(j, ev->slot), slot_state_name(s)),
               1;
    /* The executor probably died when its silence began. Date its end back to then: peers that have
     * failed since may have failed because of it. */
    struct slot_end silent = { .reason = END_NODE_LOST,
                               .at_us = (j->now_ms - dead_ms(j)) * 1000,
                               .note = NOTE_SILENT };
    struct slot_end unregistered = { .reason = END_LAUNCH_FAILED,
                                     .at_us = j->now_ms * 1000,
                                     .note = NOTE_UNREGISTERED };
    return restart_ended(j, ev->slot, IN_SILENT, placed ? &unregistered : &silent, e);
}

static int gang_fired(struct job *j, enum job_limit limit, struct err *e)
{
    if (limit == LIMIT_GANG && j->n_state[SLOT_ASKED] &&
        (j->n_state[SLOT_PLACED] || j->n_state[SLOT_REGISTERED])) {
        policy_give_back(j);
        return 0;
    }
    if (limit == LIMIT_PAUSE && j->gang.pause_due_ms != INT64_MAX) {
        policy_ask_again(j);
        return 0;
    }
    return err_set(e, EPROTO, "the gang %s",
                   limit == LIMIT_GANG ? "does not wait for containers" : "does not pause"),
           1;
}

/* The containers that were not granted, by role, with the size of each: ": 2 of 'ps' (...)". */
static void missing_text(const struct job *j, char *out, size_t size)
{
    struct buf b = { 0 };

    for (uint32_t r = 0; r < j->n_roles; r++) {
        const struct role_spec *spec = job_role_spec(j, r);
        uint32_t n = j->roles[r].n_state[SLOT_ASKED];
        char memory[32];
        if (!n)
            continue;
        (void)buf_addf(&b, "%s%u of '%s' (%s, %u core%s", b.len ? ", " : ": ", n,
                       job_role_name(j, j->roles[r].of),
                       str_size(spec->memory_mib << 20, memory, sizeof memory), spec->vcores,
                       spec->vcores == 1 ? "" : "s");
        if (spec->gpus)
            (void)buf_addf(&b, ", %u GPU%s", spec->gpus, spec->gpus == 1 ? "" : "s");
        (void)buf_addc(&b, ')');
    }
    (void)str_copy(out, size, b.failed ? "" : buf_cstr(&b)); /* too long is cut */
    buf_done(&b);
}

int limits_fired(struct job *j, const struct ev_timer *ev, struct err *e)
{
    char missing[200];
    char text[32];

    if (ev->limit == LIMIT_STOP)
        return stop_overdue(j, ev->slot, e);
    if (ev->limit == LIMIT_LEASE)
        return lease_fired(j, ev->slot, e);
    if (ev->limit == LIMIT_REGISTRATION || ev->limit == LIMIT_SILENCE)
        return executor_silent(j, ev, e);
    if (j->decided)
        return job_refuse(e, EALREADY, "the job is already ending");
    if (ev->limit == LIMIT_GANG || ev->limit == LIMIT_PAUSE)
        return gang_fired(j, ev->limit, e);
    if (ev->limit == LIMIT_RESTART)
        return mend_fired(j, e);
    if (ev->limit == LIMIT_NODE)
        return nodes_fired(j, e);
    if (ev->limit == LIMIT_RESIZE)
        return resize_fired(j, e);
    if (ev->limit == LIMIT_APPLICATION) {
        policy_decide(j, JOB_KILLED, "killed: the application timeout of %s ran out",
                      limit_text((int64_t)j->spec->app_timeout_ms, text, sizeof text));
    } else if (ev->limit == LIMIT_CLIENT) {
        policy_decide(j, JOB_KILLED, "killed: its client was away for more than %s",
                      limit_text(j->spec->client_away_ms, text, sizeof text));
    } else if (ev->limit == LIMIT_ALLOCATION && !j->n_state[SLOT_ASKED]) {
        policy_decide(j, JOB_FAILED, "the job waited for its containers for more than %s",
                      limit_text((int64_t)j->spec->allocation_timeout_ms, text, sizeof text));
    } else if (ev->limit == LIMIT_ALLOCATION) {
        missing_text(j, missing, sizeof missing);
        policy_decide(j, JOB_FAILED, "%u of %u containers were not granted within %s%s",
                      j->n_state[SLOT_ASKED], j->n_tasks - j->n_state[SLOT_HELD],
                      limit_text((int64_t)j->spec->allocation_timeout_ms, text, sizeof text),
                      missing);
    } else if (ev->limit == LIMIT_GROUP && ev->group < j->spec->n_group_timeouts) {
        policy_group_due(j, ev->group);
    } else {
        return job_refuse(e, EPROTO, "the timer event names no limit of this job");
    }
    return 0;
}
