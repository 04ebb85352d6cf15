/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that read the state of a job, and the names and texts of its states. */
#include "job/job.h"

#include "job/job_int.h"

/* ---- names ---- */

const char *job_state_name(enum job_state s)
{
    static const char *const names[JOB_STATE_COUNT] = {
#define X(id, name) [id] = name,
        JOB_STATES(X)
#undef X
    };
    return s > JOB_NONE && s < JOB_STATE_COUNT ? names[s] : "NONE";
}

const char *slot_note_text(const struct job *j, enum slot_note note)
{
    static const char *const texts[NOTE_COUNT] = {
#define X(id, name, text) [id] = text,
        SLOT_NOTES(X)
#undef X
    };
    if (note == NOTE_SILENT)
        return j->limits.silent_text;
    if (note == NOTE_UNREGISTERED)
        return j->limits.unregistered_text;
    return note > NOTE_NONE && note < NOTE_COUNT ? texts[note] : NULL;
}

const char *restart_text(enum restart_kind kind)
{
    static const char *const texts[RESTARTED_COUNT] = {
#define X(id, name, text) [id] = text,
        RESTART_KINDS(X)
#undef X
    };
    return kind > RESTARTED_NONE && kind < RESTARTED_COUNT ? texts[kind] : NULL;
}

const char *slot_state_name(enum slot_state s)
{
    static const char *const names[SLOT_STATE_COUNT] = {
#define X(id, name) [id] = name,
        SLOT_STATES(X)
#undef X
    };
    return s > SLOT_NONE && s < SLOT_STATE_COUNT ? names[s] : "none";
}

const struct role_spec *job_role_spec(const struct job *j, uint32_t role)
{
    return j->spec->single_node ? &j->spec->am : &j->spec->roles[j->roles[role].of];
}

const char *job_role_name(const struct job *j, uint32_t role)
{
    return j->spec->single_node ? "driver" : j->spec->roles[j->roles[role].of].name;
}

struct role *job_role_of(const struct job *j, uint32_t slot)
{
    return &j->roles[j->slots[slot].role];
}

bool job_is_chief(const struct job *j, uint32_t slot)
{
    return j->chief == (int64_t)j->slots[slot].role || j->chief_slot == (int64_t)slot;
}

bool job_is_sidecar(const struct job *j, uint32_t role)
{
    return j->roles[role].kind == ROLE_SIDECAR;
}

bool job_is_wanted(const struct job *j, const struct slot *s)
{
    return j->roles[s->role].n_unmet == 0;
}

bool job_is_spare(const struct job *j, uint32_t slot)
{
    return j->slots[slot].role >= j->n_roles;
}

bool job_is_member(const struct job *j, const struct slot *s)
{
    const struct role *r = &j->roles[s->role];
    uint32_t first = s->role < j->n_roles ? 0 : j->roles[r->of].n_first;

    return s->index - first < r->n;
}

bool job_is_task(const struct job *j, uint32_t slot)
{
    return !job_is_spare(j, slot) && job_is_member(j, &j->slots[slot]);
}

/* ---- views ---- */

bool job_over(const struct job *j)
{
    return j->state >= JOB_SUCCEEDED;
}

int64_t job_now(const struct job *j)
{
    return j->now_ms;
}

uint32_t job_n_slots(const struct job *j)
{
    return j->n_slots;
}

uint32_t job_n_tasks(const struct job *j)
{
    return j->n_tasks;
}

uint32_t job_slot_now(const struct job *j, uint32_t slot)
{
    bool lent = slot < j->n_slots && j->slots[slot].lent_to != UINT32_MAX;

    return lent ? j->slots[slot].lent_to : slot;
}

uint32_t job_restarts(const struct job *j)
{
    return j->restarts.n;
}

uint32_t job_retries(const struct job *j)
{
    return j->restarts.retries;
}

uint32_t job_n_roles(const struct job *j)
{
    return j->n_roles;
}

uint32_t job_role_tasks(const struct job *j, uint32_t role)
{
    return j->roles[role].n;
}

uint32_t job_task(const struct job *j, uint32_t role, uint32_t index)
{
    return j->roles[role].slots[index];
}

uint32_t job_n_tracked(const struct job *j)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < j->n_roles; r++)
        n += j->spec->single_node || j->spec->roles[r].kind == ROLE_TRACKED ? j->roles[r].n : 0;
    return n;
}

uint32_t job_epoch(const struct job *j)
{
    return j->epoch;
}

uint32_t job_generation(const struct job *j)
{
    return j->generation;
}

enum job_state job_state(const struct job *j)
{
    return j->state;
}

const char *job_application_id(const struct job *j)
{
    return j->application_id ? j->application_id : "";
}

const struct role_spec *job_slot_role(const struct job *j, uint32_t slot)
{
    return job_role_spec(j, j->slots[slot].role);
}

void job_slot(const struct job *j, uint32_t slot, struct slot_view *out)
{
    const struct slot *s = &j->slots[slot];
    /* The slot's container is gone. Its id is kept only to recognize late events about it. */
    bool no_container = s->state <= SLOT_ASKED;

    *out = (struct slot_view){
        .role = job_role_name(j, s->role),
        .role_index = j->roles[s->role].of,
        .index = s->index,
        .state = s->state,
        .result = s->result,
        .container = no_container ? NULL : s->container,
        .address = no_container ? NULL : s->address,
        .gpus = no_container ? NULL : s->gpus,
        .node = no_container || s->node < 0 ? NULL : j->nodes.v[s->node].name,
        .spare = job_is_spare(j, slot),
        .moved = s->moved,
        .generation = s->generation,
        .attempt = s->attempt,
        .elsewhere = s->elsewhere,
        .restart_count = s->attempt ? s->attempt - 1 : 0,
        .tb_port = s->tb_port,
        .pid = s->pid,
        .connected = s->connected,
        .chief = job_is_chief(j, slot),
        .suspect = s->suspect,
        .ready = s->ready,
        .exit_code = s->exit_code,
        .signal = s->signal,
        .reason = s->reason,
        .detail = s->detail ? s->detail : slot_note_text(j, s->note),
        .tail = s->tail,
        .started_ms = s->started_ms,
        .ended_ms = s->ended_ms,
        .step = s->step,
        .total = s->total,
        .tensorboard = s->tensorboard,
    };
}
