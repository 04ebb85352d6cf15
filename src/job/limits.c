/*
 * Deadlines. One heap with an entry per slot and per limit of the job, so that the next one is at
 * the top. An entry may be early: a beat moves only the slot's own mark (nothing else is touched),
 * and whoever takes an early entry from the top puts it back later.
 *
 * The clock of beats is job time less the time in which the master itself did nothing, so that its
 * own stalls kill nobody.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "job/job_int.h"

/* ---- the heap ---- */

static void heap_place(struct deadlines *d, uint32_t at, uint32_t id)
{
    d->heap[at] = id;
    d->pos[id] = at + 1;
}

static void heap_up(struct deadlines *d, uint32_t at, uint32_t id)
{
    while (at > 0 && d->due[d->heap[(at - 1) / 2]] > d->due[id]) {
        heap_place(d, at, d->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_place(d, at, id);
}

static void heap_down(struct deadlines *d, uint32_t at, uint32_t id)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= d->n)
            break;
        if (child + 1 < d->n && d->due[d->heap[child + 1]] < d->due[d->heap[child]])
            child++;
        if (d->due[d->heap[child]] >= d->due[id])
            break;
        heap_place(d, at, d->heap[child]);
        at = child;
    }
    heap_place(d, at, id);
}

static void heap_set(struct deadlines *d, uint32_t id, int64_t due)
{
    uint32_t pos = d->pos[id];
    int64_t old = d->due[id];

    d->due[id] = due;
    if (due == INT64_MAX) {
        if (!pos)
            return;
        uint32_t last = d->heap[--d->n];
        d->pos[id] = 0;
        if (last != id) { /* the last one fills the gap: it may belong above or below it */
            heap_up(d, pos - 1, last);
            heap_down(d, d->pos[last] - 1, last);
        }
    } else if (!pos) {
        heap_up(d, d->n++, id);
    } else if (due < old) {
        heap_up(d, pos - 1, id);
    } else {
        heap_down(d, pos - 1, id);
    }
}

/* ---- ids: slots first, then the job's own limits, then the groups ---- */

static uint32_t limit_id(const struct job *j, enum job_limit limit)
{
    return j->n_slots + (uint32_t)limit;
}

static uint32_t group_id(const struct job *j, uint32_t group)
{
    return j->n_slots + LIMIT_COUNT + group;
}

static uint32_t dead_beats(const struct job *j)
{
    return MAX((uint32_t)JOB_MIN_DEAD_BEATS, j->spec->max_missed_heartbeats);
}

static int64_t dead_ms(const struct job *j)
{
    return (int64_t)dead_beats(j) * j->spec->heartbeat_ms;
}

int limits_init(struct job *j)
{
    struct deadlines *d = &j->dl;
    char text[32];

    d->n_ids = j->n_slots + LIMIT_COUNT + (uint32_t)j->spec->n_group_timeouts;
    d->heap = calloc(d->n_ids, sizeof *d->heap);
    d->pos = calloc(d->n_ids, sizeof *d->pos);
    d->due = calloc(d->n_ids, sizeof *d->due);
    if (!d->heap || !d->pos || !d->due)
        return -ENOMEM;
    for (uint32_t i = 0; i < d->n_ids; i++)
        d->due[i] = INT64_MAX;
    (void)snprintf(j->silence_note, sizeof j->silence_note, "no heartbeat for %s",
                   limit_text(dead_ms(j), text, sizeof text));
    (void)snprintf(j->registration_note, sizeof j->registration_note,
                   "its executor did not register within %s",
                   limit_text((int64_t)j->spec->registration_timeout_ms, text, sizeof text));
    return 0;
}

void limits_done(struct job *j)
{
    free(j->dl.heap);
    free(j->dl.pos);
    free(j->dl.due);
}

const char *limit_text(int64_t ms, char *buf, size_t size)
{
    if (ms % 1000 == 0)
        (void)snprintf(buf, size, "%lld s", (long long)(ms / 1000));
    else
        (void)snprintf(buf, size, "%lld ms", (long long)ms);
    return buf;
}

/* ---- when ---- */

int64_t beat_clock(const struct job *j)
{
    return j->now_ms - j->stalled_ms;
}

static int64_t after(int64_t from, uint64_t ms)
{
    int64_t due;

    return ms > INT64_MAX || __builtin_add_overflow(from, (int64_t)ms, &due) ? INT64_MAX : due;
}

/* Its executor stays for the ranks of others when its own have ended: it has their server. */
static bool keeps_server(const struct job *j, const struct slot *s)
{
    return j->spec->server && s->index == 0 && j->roles[s->role].of == j->spec->server_role;
}

/*
 * When nothing of a container whose node was given up can live any more. Its executor ends its task
 * when so long nothing that it said has arrived, and the last that did is what we heard of it last;
 * or it has hung up, and one that lives would have been back by now.
 */
static int64_t lease_due(const struct job *j, const struct slot *s)
{
    int64_t heard_ms = MAX(s->beat_ms, j->beats_from) + j->stalled_ms;
    int64_t due =
        after(heard_ms, j->spec->master_away_ms + j->spec->kill_grace_ms + JOB_STOP_MARGIN_MS);

    return s->left_ms ? MIN(due, s->left_ms + JOB_LEFT_MS) : due;
}

static int64_t slot_due(const struct job *j, const struct slot *s)
{
    /* While there was no master nobody could register or report. */
    int64_t since = MAX(s->since_ms, j->master_ms);

    if (s->given_up) /* who is stopped for good is not waited for */
        return s->state == SLOT_REPLACING ? lease_due(j, s) : since;
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
    case SLOT_STOPPING:
        if (s->taken_ms)
            return MAX(since, s->taken_ms) + (int64_t)JOB_STOP_MARGIN_MS * (s->stop_tries + 1);
        return since + j->wait_ms + j->save_ms + j->spec->kill_grace_ms +
               (int64_t)JOB_STOP_MARGIN_MS * (s->stop_tries + 1);
    case SLOT_DRAINING:
        if (keeps_server(j, s) && !j->decided)
            return INT64_MAX;
        return since + (int64_t)JOB_STOP_MARGIN_MS * (s->stop_tries + 1);
    case SLOT_NONE:
    case SLOT_HELD:
    case SLOT_ASKED:
    case SLOT_ENDED:
    case SLOT_STATE_COUNT:
        break;
    }
    return INT64_MAX;
}

void limits_slot(struct job *j, uint32_t slot)
{
    heap_set(&j->dl, slot, slot_due(j, &j->slots[slot]));
}

void limits_asked(struct job *j)
{
    if (!j->n_state[SLOT_ASKED])
        j->asked_ms = -1;
    else if (j->asked_ms < 0)
        j->asked_ms = j->now_ms;
    else
        return;
    limits_job(j);
}

/*
 * Up to max, from application id and number: it differs between jobs and between the rounds of one,
 * and a replay finds the same. FNV-1a, and a last stir because ids differ in few bits.
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
    return MIN((int64_t)GANG_PAUSE_MIN_MS << MIN(j->round, 16u), (int64_t)GANG_PAUSE_MAX_MS) +
           jitter_ms(j, 'p', j->round, GANG_PAUSE_JITTER_MS);
}

/* Counted from the last grant: a gang that still grows holds up nobody for ever, and one that has
 * nothing has nothing to give. With a limit of the user's on the allocation that one counts alone.
 */
void limits_gang(struct job *j)
{
    bool open = j->state != JOB_NEW && !j->decided;
    bool stuck = open && j->gives_back && j->spec->gang && !j->spec->allocation_timeout_ms &&
                 j->n_state[SLOT_ASKED] && (j->n_state[SLOT_PLACED] || j->n_state[SLOT_REGISTERED]);

    heap_set(&j->dl, limit_id(j, LIMIT_GANG),
             stuck ? j->granted_ms + GANG_HOLD_MS + jitter_ms(j, 'h', j->round, GANG_HOLD_JITTER_MS)
                   : INT64_MAX);
}

void limits_job(struct job *j)
{
    const struct job_spec *spec = j->spec;
    bool open = j->state != JOB_NEW && !j->decided;
    bool gang = open && spec->gang && j->asked_ms >= 0;

    heap_set(&j->dl, limit_id(j, LIMIT_APPLICATION),
             open && spec->app_timeout_ms ? after(j->submitted_ms, spec->app_timeout_ms)
                                          : INT64_MAX);
    heap_set(&j->dl, limit_id(j, LIMIT_ALLOCATION),
             gang && spec->allocation_timeout_ms ? after(j->asked_ms, spec->allocation_timeout_ms)
                                                 : INT64_MAX);
    heap_set(&j->dl, limit_id(j, LIMIT_PAUSE), open ? j->pause_due_ms : INT64_MAX);
    limits_gang(j);
    heap_set(&j->dl, limit_id(j, LIMIT_RESTART), open ? j->restart_due_ms : INT64_MAX);
    heap_set(&j->dl, limit_id(j, LIMIT_NODE), open ? nodes_due(j) : INT64_MAX);
    heap_set(&j->dl, limit_id(j, LIMIT_CLIENT), open ? j->client_due_ms : INT64_MAX);
    for (uint32_t g = 0; g < spec->n_group_timeouts; g++)
        heap_set(&j->dl, group_id(j, g),
                 open && j->groups[g].armed ? j->groups[g].due_ms : INT64_MAX);
}

/* ---- what is due ---- */

int64_t job_deadline(const struct job *j)
{
    return j->resyncing || !j->epoch || job_over(j) || !j->dl.n ? INT64_MAX
                                                                : j->dl.due[j->dl.heap[0]];
}

/* Is its silence a sign? */
static bool slot_beats(enum slot_state s)
{
    return s == SLOT_REGISTERED || s == SLOT_RUNNING || s == SLOT_RENEWING;
}

static void due_event(const struct job *j, uint32_t id, struct job_event *out)
{
    *out = (struct job_event){ .type = EV_TIMER };
    if (id >= j->n_slots + LIMIT_COUNT) {
        out->limit = LIMIT_GROUP;
        out->group = id - j->n_slots - LIMIT_COUNT;
        return;
    }
    if (id >= j->n_slots) {
        out->limit = (enum job_limit)(id - j->n_slots);
        return;
    }
    const struct slot *s = &j->slots[id];
    out->slot = id;
    if (s->state == SLOT_PLACED)
        out->limit = LIMIT_REGISTRATION;
    else if (s->state == SLOT_REPLACING && s->given_up)
        out->limit = LIMIT_LEASE;
    else if (!slot_beats(s->state))
        out->limit = LIMIT_STOP;
    else if (s->suspect)
        out->limit = LIMIT_SILENCE;
    else
        out->type = EV_SUSPECT;
}

bool job_due(struct job *j, int64_t now_ms, struct job_event *out)
{
    struct deadlines *d = &j->dl;

    now_ms = MAX(now_ms, j->now_ms);
    while (job_deadline(j) <= now_ms) {
        uint32_t id = d->heap[0];
        int64_t due = id < j->n_slots ? slot_due(j, &j->slots[id]) : d->due[id];
        if (due > now_ms) {
            heap_set(d, id, due);
            continue;
        }
        heap_set(
            d, id,
            now_ms +
                1000); /* so that an event which the caller loses is made again, but not at once */
        due_event(j, id, out);
        return true;
    }
    return false;
}

int limits_suspect(struct job *j, uint32_t slot, struct err *e)
{
    struct slot *s = &j->slots[slot];

    if (!slot_beats(s->state))
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: its beats do not count",
                       SLOT_ARGS(j, slot), slot_state_name(s->state)),
               1;
    s->suspect = true;
    j->changed = true;
    limits_slot(j, slot);
    return 0;
}

static bool slot_replaced(enum slot_state s)
{
    return s == SLOT_HALTING || s == SLOT_REPLACING;
}

/* An executor that hears of no master ends its task and itself after this. */
static bool lease_over(const struct job *j, const struct slot *s)
{
    return j->now_ms - s->since_ms >=
           (int64_t)j->spec->master_away_ms + j->spec->kill_grace_ms + JOB_STOP_MARGIN_MS;
}

static int stop_overdue(struct job *j, uint32_t slot, struct err *e)
{
    struct slot *s = &j->slots[slot];

    if (s->state != SLOT_STOPPING && s->state != SLOT_DRAINING && !slot_replaced(s->state))
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s, not told to end", SLOT_ARGS(j, slot),
                       slot_state_name(s->state)),
               1;
    /* What is to be replaced must be dead: by the scheduler's word, or by its own lease. */
    bool waits = !s->given_up || slot_replaced(s->state);
    if ((waits && s->stop_tries < JOB_STOP_TRIES) ||
        (slot_replaced(s->state) && !lease_over(j, s))) {
        s->stop_tries++;
        return slot_step(j, slot, IN_OVERDUE, NULL, e);
    }
    if (slot_replaced(s->state))
        return slot_step(j, slot, IN_LOST, NULL, e);
    struct slot_end end = { .reason = END_NODE_LOST,
                            .at_us = j->now_ms * 1000,
                            .note = "the scheduler never confirmed the end of its container" };
    return slot_step(j, slot, IN_ABANDON, &end, e);
}

static int lease_fired(struct job *j, uint32_t slot, struct err *e)
{
    struct slot *s = &j->slots[slot];

    if (s->state != SLOT_REPLACING || !s->given_up)
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: nothing of it is waited for",
                       SLOT_ARGS(j, slot), slot_state_name(s->state)),
               1;
    return slot_step(j, slot, IN_LOST, NULL, e);
}

static int slot_silent(struct job *j, const struct job_event *ev, struct err *e)
{
    enum slot_state s = j->slots[ev->slot].state;
    bool placed = ev->limit == LIMIT_REGISTRATION;

    if (placed ? s != SLOT_PLACED : !slot_beats(s))
        return err_set(e, EPROTO, "slot '" SLOT_NAME "' is %s: it has no such limit",
                       SLOT_ARGS(j, ev->slot), slot_state_name(s)),
               1;
    /* What was silent for so long died when it fell silent: its peers may have failed of that
     * since. */
    struct slot_end silent = { .reason = END_NODE_LOST,
                               .at_us = (j->now_ms - dead_ms(j)) * 1000,
                               .note = j->silence_note };
    struct slot_end unregistered = { .reason = END_LAUNCH_FAILED,
                                     .at_us = j->now_ms * 1000,
                                     .note = j->registration_note };
    return restart_ended(j, ev->slot, IN_SILENT, placed ? &unregistered : &silent, e);
}

static int gang_fired(struct job *j, enum job_limit limit, struct err *e)
{
    if (limit == LIMIT_GANG && j->n_state[SLOT_ASKED] &&
        (j->n_state[SLOT_PLACED] || j->n_state[SLOT_REGISTERED])) {
        policy_give_back(j);
        return 0;
    }
    if (limit == LIMIT_PAUSE && j->pause_due_ms != INT64_MAX) {
        policy_ask_again(j);
        return 0;
    }
    return err_set(e, EPROTO, "the gang does not wait for '%s'",
                   limit == LIMIT_GANG ? "containers" : "its next try"),
           1;
}

/* Of which roles, and how large each is: what the scheduler could not find room for. */
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

int limits_fired(struct job *j, const struct job_event *ev, struct err *e)
{
    char missing[200];
    char text[32];

    if (ev->limit == LIMIT_STOP)
        return stop_overdue(j, ev->slot, e);
    if (ev->limit == LIMIT_LEASE)
        return lease_fired(j, ev->slot, e);
    if (ev->limit == LIMIT_REGISTRATION || ev->limit == LIMIT_SILENCE)
        return slot_silent(j, ev, e);
    if (j->decided)
        return err_set(e, EALREADY, "the job is already ending"), 1;
    if (ev->limit == LIMIT_GANG || ev->limit == LIMIT_PAUSE)
        return gang_fired(j, ev->limit, e);
    if (ev->limit == LIMIT_RESTART)
        return mend_fired(j, e);
    if (ev->limit == LIMIT_NODE)
        return nodes_fired(j, e);
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
                      j->n_state[SLOT_ASKED], j->n_slots - j->n_state[SLOT_HELD],
                      limit_text((int64_t)j->spec->allocation_timeout_ms, text, sizeof text),
                      missing);
    } else if (ev->limit == LIMIT_GROUP && ev->group < j->spec->n_group_timeouts) {
        policy_group_due(j, ev->group);
    } else {
        return err_set(e, EPROTO, "a timer event without a limit (job_due makes them)"), 1;
    }
    return 0;
}
