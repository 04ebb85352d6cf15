/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status document (docs/json.md), of a live job or one replayed from its journal.
 */
#include <stdio.h>

#include "codec/json.h"
#include "job/job_int.h"
#include "job/record.h"

void status_text(struct buf *out, const char *key, const char *s)
{
    record_add_key(out, key); /* a failed append shows in out->failed */
    if (s)
        (void)json_add_str(out, span_of(s));
    else
        (void)buf_adds(out, "null");
}

static void add_bool(struct buf *out, const char *key, bool v)
{
    record_add_key(out, key);
    (void)buf_adds(out, v ? "true" : "false");
}

void status_number(struct buf *out, const char *key, int64_t v, bool known)
{
    record_add_key(out, key);
    if (known)
        record_add_number(out, v);
    else
        (void)buf_adds(out, "null");
}

static const char *result_name(enum slot_result r)
{
    switch (r) {
    case RES_SUCCEEDED:
        return "SUCCEEDED";
    case RES_FAILED:
        return "FAILED";
    case RES_FINISHED:
        return "FINISHED";
    case RES_LOST:
        return "LOST";
    case RES_NONE:
        break;
    }
    return NULL;
}

/* How a task ended: the members that "cause" and an entry of "tasks" share. */
static void add_end(const struct job *j, const struct slot *s, struct buf *out)
{
    /* Without an attempt, END_EXITED is the end of an executor: no command has exited. */
    bool exited = s->attempt > 0 && slot_settled(s) && !s->signal && s->reason == END_EXITED;

    status_number(out, "exit_code", s->exit_code, exited);
    status_number(out, "signal", s->signal, s->signal != 0);
    status_text(out, "reason", slot_settled(s) ? end_reason_name(s->reason) : NULL);
    status_text(out, "detail", s->detail ? s->detail : slot_note_text(j, s->note));
}

void status_task_name(const struct job *j, uint32_t slot, struct buf *out)
{
    (void)buf_adds(out, "{\"task\":\""); /* role names have no quotes in them */
    (void)buf_adds(out, job_role_name(j, j->slots[slot].role));
    (void)buf_addc(out, ':');
    record_add_number(out, j->slots[slot].index);
    (void)buf_addc(out, '"');
}

static void add_name(const struct job *j, uint32_t slot, struct buf *out)
{
    const struct slot *s = &j->slots[slot];

    status_task_name(j, slot, out);
    status_text(out, "role", job_role_name(j, s->role));
    record_add_int(out, "index", s->index);
}

static void add_cause(const struct job *j, bool tail, struct buf *out)
{
    struct job_verdict v;

    job_verdict(j, &v);
    if (v.cause_slot == UINT32_MAX)
        return;
    const struct slot *s = &j->slots[v.cause_slot];
    (void)buf_adds(out, ",\"cause\":");
    add_name(j, v.cause_slot, out);
    record_add_int(out, "attempt", s->attempt);
    status_number(out, "rank", s->rank, s->rank > 0);
    add_end(j, s, out);
    status_text(out, "stderr_tail", tail ? s->tail : NULL);
    (void)buf_addc(out, '}');
}

/* The progress of a role is that of its furthest task. The time left follows from the speed at
 * which that task has progressed so far. */
static void add_progress(const struct job *j, uint32_t role, struct buf *out)
{
    const struct role *r = &j->roles[role];
    const struct slot *furthest = r->n ? &j->slots[r->slots[0]] : NULL;
    int64_t left_ms = -1;

    FOR_MEMBERS(j, role, i)
    if (j->slots[i].step > furthest->step)
        furthest = &j->slots[i];
    uint64_t step = furthest ? furthest->step : 0, total = furthest ? furthest->total : 0;
    uint64_t steps_done = furthest && step > furthest->first_step ? step - furthest->first_step : 0;
    int64_t took_ms = furthest ? furthest->step_ms - furthest->first_ms : 0;
    if (steps_done > 0 && total >= step && took_ms > 0 && !job_over(j))
        left_ms = (int64_t)((double)took_ms / (double)steps_done * (double)(total - step));
    record_add_int(out, "step", (int64_t)(step & INT64_MAX));
    record_add_int(out, "total", (int64_t)(total & INT64_MAX));
    status_number(out, "left_ms", left_ms, left_ms >= 0);
}

static const struct role *spares_of(const struct job *j, uint32_t role)
{
    for (uint32_t r = j->n_roles; r < j->n_all_roles; r++) {
        if (j->roles[r].of == role)
            return &j->roles[r];
    }
    return NULL;
}

/* Add "waits_for" if tasks of the role wait for another role before they start. */
static void add_waits(const struct job *j, uint32_t role, struct buf *out)
{
    AUTO(buf_done) struct buf text = { 0 };

    if (depends_text(j, role, &text))
        status_text(out, "waits_for", text.failed ? NULL : buf_cstr(&text));
}

static void add_role(const struct job *j, uint32_t role, struct buf *out)
{
    const struct role *r = &j->roles[role];
    /* A task has no process while it waits for another container, or between two attempts. */
    uint32_t waiting = r->n_state[SLOT_HELD] + r->n_state[SLOT_ASKED] + r->n_state[SLOT_REPLACING];
    uint32_t placed = r->n_state[SLOT_PLACED] + r->n_state[SLOT_RENEWING];
    uint32_t registered = r->n_state[SLOT_REGISTERED];

    (void)buf_adds(out, "{\"name\":");
    (void)json_add_str(out, span_of(job_role_name(j, role)));
    record_add_int(out, "instances", r->n);
    record_add_int(out, "waiting", waiting);
    record_add_int(out, "placed", placed);
    record_add_int(out, "registered", registered);
    /* A task that was told to stop and has not ended counts as running. */
    record_add_int(out, "running", r->n - waiting - placed - registered - r->n_settled);
    record_add_int(out, "succeeded", r->n_result[RES_SUCCEEDED]);
    record_add_int(out, "failed", r->n_result[RES_FAILED] + r->n_result[RES_LOST]);
    record_add_int(out, "finished", r->n_result[RES_FINISHED]);
    add_progress(j, role, out);
    add_waits(j, role, out);
    uint32_t n_suspect = 0;
    FOR_MEMBERS(j, role, i)
    n_suspect += j->slots[i].suspect;
    if (n_suspect)
        record_add_int(out, "suspect", n_suspect);
    if (spares_of(j, role))
        record_add_int(out, "spares", spares_of(j, role)->n_state[SLOT_REGISTERED]);
    if (r->n_outside[SLOT_LEAVING])
        record_add_int(out, "leaving", r->n_outside[SLOT_LEAVING]);
    (void)buf_addc(out, '}');
}

static void add_checkpoint(uint64_t step, const char *path, struct buf *out)
{
    (void)buf_addf(out, ",\"checkpoint\":{\"step\":%llu", (unsigned long long)(step & INT64_MAX));
    status_text(out, "path", path);
    (void)buf_addc(out, '}');
}

static void add_task(const struct job *j, uint32_t slot, const struct job_status_more *more,
                     struct buf *out)
{
    const struct slot *s = &j->slots[slot];
    uint64_t step = 0;
    const char *path;
    bool has_container = s->state > SLOT_ASKED; /* before that, s->container was given back */

    add_name(j, slot, out);
    record_add_int(out, "slot", slot);
    status_text(out, "state", slot_state_name(s->state));
    status_text(out, "result", result_name(s->result));
    if (job_slot_role(j, slot)->ranks > 1)
        record_add_int(out, "ranks", job_slot_role(j, slot)->ranks);
    add_bool(out, "chief", job_is_chief(j, slot));
    add_bool(out, "connected", s->connected);
    add_bool(out, "suspect", s->suspect);
    record_add_int(out, "attempt", s->attempt);
    record_add_int(out, "generation", s->generation);
    status_text(out, "container", has_container ? s->container : NULL);
    status_text(out, "address", has_container ? s->address : NULL);
    status_text(out, "gpus", has_container && s->gpus ? s->gpus : "");
    status_number(out, "pid", s->pid, has_container && s->pid != 0 && s->state != SLOT_ENDED);
    add_end(j, s, out);
    status_number(out, "started_ms", s->started_ms, s->started_ms >= 0);
    status_number(out, "ended_ms", s->ended_ms, s->ended_ms >= 0);
    record_add_int(out, "step", (int64_t)(s->step & INT64_MAX));
    record_add_int(out, "total", (int64_t)(s->total & INT64_MAX));
    if (job_role_spec(j, s->role)->ready)
        add_bool(out, "ready", s->ready);
    status_text(out, "tensorboard", s->tensorboard);
    path = checkpoint_newest(s, &step);
    if (path)
        add_checkpoint(step, path, out);
    if (more->of_task)
        more->of_task(slot, out, more->arg);
    (void)buf_addc(out, '}');
}

/* The tasks of a role: its members, then those that a resize has told to leave and that have not
 * ended. *comma: what to write before the next entry. */
static void add_tasks(const struct job *j, uint32_t role, const struct job_status_more *more,
                      const char **comma, struct buf *out)
{
    const struct role *r = &j->roles[role];
    uint32_t n = r->n_outside[SLOT_LEAVING] ? r->n_slots : r->n;

    for (uint32_t k = 0; k < n; k++) {
        if (k >= r->n && j->slots[r->slots[k]].state != SLOT_LEAVING)
            continue;
        (void)buf_adds(out, *comma);
        add_task(j, r->slots[k], more, out);
        *comma = ",";
    }
}

/* Add "pausing": a sentence if the gang has given its containers back and pauses, else null. */
static void add_pausing(const struct job *j, int64_t now_ms, struct buf *out)
{
    char after[32], in[32], text[240];
    bool pauses = j->gang.pause_due_ms != INT64_MAX && !j->decided;

    if (pauses)
        (void)snprintf(text, sizeof text,
                       "only %u of %u containers were granted within %s; they were given back for "
                       "other jobs, and all are asked for again in %s (try %u)",
                       j->gang.had, j->gang.wanted,
                       str_duration(j->gang.after_ms, after, sizeof after),
                       str_duration(MAX(j->gang.pause_due_ms - now_ms, (int64_t)0), in, sizeof in),
                       j->gang.round + 1);
    status_text(out, "pausing", pauses ? text : NULL);
}

static void add_times(const struct job *j, int64_t now_ms, struct buf *out)
{
    (void)buf_addf(out, ",\"times\":{\"submitted_wall_ms\":%lld", (long long)j->submitted_wall_ms);
    record_add_int(out, "now_ms", now_ms);
    status_number(out, "started_ms", j->started_ms, j->started_ms >= 0);
    status_number(out, "ended_ms", j->ended_ms, j->ended_ms >= 0);
    (void)buf_addc(out, '}');
}

int64_t job_ran_ms(const struct job *j, int64_t now_ms)
{
    int64_t until = j->ended_ms >= 0 ? j->ended_ms : now_ms;
    return j->started_ms >= 0 ? MAX(until - j->started_ms, (int64_t)0) : 0;
}

int job_resize_json(const struct job *j, struct buf *out)
{
    (void)buf_adds(out, "{\"application_id\":");
    (void)json_add_str(out, span_of(job_application_id(j)));
    status_text(out, "state", job_state_name(j->state));
    resize_json(j, out);
    return buf_addc(out, '}');
}

enum { ORPHANS_MAX = 1000 }; /* entries of "orphans": a client gets all of them in one message */

/* Add "orphans" if the job is over and attempts may still run: their nodes were lost, or their end
 * was never confirmed (decision 0008). */
static void add_orphans(const struct job *j, struct buf *out)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < j->n_slots && job_over(j) && n < ORPHANS_MAX; i++) {
        const struct slot *s = &j->slots[i];
        int64_t end_ms = limits_orphan_end(j, s);
        if (end_ms < 0)
            continue;
        (void)buf_adds(out, n ? "," : ",\"orphans\":[");
        add_name(j, i, out);
        record_add_int(out, "attempt", s->attempt);
        status_text(out, "node", s->node >= 0 ? j->nodes.v[s->node].name : NULL);
        record_add_int(out, "until_ms", end_ms);
        (void)buf_addc(out, '}');
        n++;
    }
    if (n)
        (void)buf_addc(out, ']');
}

int job_status_json(const struct job *j, bool full, struct buf *out)
{
    return job_status_json_more(j, full, &(struct job_status_more){ 0 }, out);
}

int job_status_json_more(const struct job *j, bool full, const struct job_status_more *more,
                         struct buf *out)
{
    uint64_t step = 0;
    const char *path = j->checkpoints.has ? job_checkpoint(j, 0, &step) : NULL;
    int64_t now_ms = MAX(j->now_ms, job_over(j) ? 0 : more->now_ms);

    (void)buf_adds(out, "{\"application_id\":");
    (void)json_add_str(out, span_of(job_application_id(j)));
    status_text(out, "name", j->spec->name);
    status_text(out, "user", j->user);
    status_text(out, "state", job_state_name(j->state));
    status_number(out, "exit_code", verdict_exit_code(j->state), job_over(j));
    status_text(out, "message", j->decided ? j->message : NULL);
    add_pausing(j, now_ms, out);
    record_add_int(out, "epoch", j->epoch);
    record_add_int(out, "generation", j->generation);
    record_add_int(out, "restarts", j->restarts.n);
    record_add_int(out, "retries", j->restarts.retries);
    failures_restart_json(j, out);
    resize_json(j, out);
    costs_json(j, out);
    nodes_left_out_json(j, out);
    record_add_int(out, "ran_ms", job_ran_ms(j, now_ms));
    status_text(out, "tensorboard",
                j->tensorboard >= 0 ? j->slots[j->tensorboard].tensorboard : NULL);
    add_times(j, now_ms, out);
    if (path)
        add_checkpoint(step, path, out);
    if (more->of_job)
        more->of_job(out, more->arg);
    add_cause(j, !more->no_tail, out);
    failures_json(j, more->no_tail ? WORDS_NONE : full ? WORDS_TAIL : WORDS_LINE, out);
    nodes_bad_json(j, out);
    add_orphans(j, out);
    (void)buf_adds(out, ",\"roles\":[");
    for (uint32_t r = 0; r < j->n_roles; r++) {
        if (r)
            (void)buf_addc(out, ',');
        add_role(j, r, out);
    }
    (void)buf_addc(out, ']');
    if (full) {
        (void)buf_adds(out, ",\"tasks\":[");
        const char *comma = "";
        for (uint32_t r = 0; r < j->n_roles; r++)
            add_tasks(j, r, more, &comma, out);
        (void)buf_addc(out, ']');
    }
    return buf_addc(out, '}');
}
