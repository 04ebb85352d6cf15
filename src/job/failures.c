/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of failures for people (`tony why`). It contains the last attempt of each slot, if that
 * failed, and the last JOB_FAILURES_KEPT failures that a restart followed. No decision of the core
 * depends on the list.
 */
#include <stdlib.h>

#include "codec/json.h"
#include "job/job_int.h"

static void past_done(struct past_failure *p)
{
    free(p->detail);
    free(p->tail);
    free(p->cause_line);
    *p = (struct past_failure){ 0 };
}

void failures_done(struct job *j)
{
    for (size_t i = 0; i < ARRAY_LEN(j->failures.past); i++)
        past_done(&j->failures.past[i]);
}

/* The last attempt of a slot as a failure. Its strings still belong to the slot. */
static struct past_failure last_attempt_of(const struct job *j, uint32_t slot)
{
    const struct slot *s = &j->slots[slot];

    return (struct past_failure){ .slot = slot,
                                  .generation = s->generation,
                                  .attempt = s->attempt,
                                  .reason = s->reason,
                                  .exit_code = s->exit_code,
                                  .signal = s->signal,
                                  .at_us = s->ended_us,
                                  .step = s->step,
                                  .detail = s->detail,
                                  .tail = s->tail,
                                  .cause_line = s->cause_line,
                                  .note = s->note,
                                  .node = s->node,
                                  .cause = s->cause };
}

void failures_keep(struct job *j, uint32_t slot, enum restart_kind done)
{
    struct slot *s = &j->slots[slot];
    struct past_failure *p = &j->failures.past[j->failures.n_past++ % JOB_FAILURES_KEPT];

    past_done(p);
    *p = last_attempt_of(j, slot);
    p->done = done;
    s->detail = s->tail = s->cause_line = NULL; /* the ring owns the strings now */
}

void failures_note_restart(struct job *j, uint32_t slot, enum restart_kind done)
{
    const struct slot *s = &j->slots[slot];

    j->restarts.last.slot = slot;
    j->restarts.last.attempt = s->attempt;
    j->restarts.last.reason = s->reason;
    j->restarts.last.exit_code = s->exit_code;
    j->restarts.last.signal = s->signal;
    j->restarts.last.at_us = s->ended_us;
    j->restarts.last.cause = s->cause;
    j->restarts.last.step = s->step;
    j->restarts.last.kind = done;
}

/* ---- the list ---- */

struct list {
    struct past_failure v[JOB_FAILURES_SHOWN];
    size_t n;
};

/* Insert by time. If the list is full, the latest failure is dropped. */
static void insert(struct list *l, struct past_failure p)
{
    size_t at = l->n < ARRAY_LEN(l->v) ? l->n++ : l->n;

    while (at > 0 && l->v[at - 1].at_us > p.at_us) {
        if (at < ARRAY_LEN(l->v))
            l->v[at] = l->v[at - 1];
        at--;
    }
    if (at < ARRAY_LEN(l->v))
        l->v[at] = p;
}

static bool is_first(const struct job *j, const struct past_failure *p)
{
    return j->failures.first.slot == (int64_t)p->slot && j->failures.first.at_us == p->at_us;
}

/* Is the last attempt of the slot in the list? The end of a stopped task is not a failure, but is
 * listed if it is the first failure (verdict_stopped_ended()). */
static bool is_shown(const struct job *j, uint32_t slot)
{
    const struct slot *s = &j->slots[slot];
    struct past_failure p = { .slot = slot, .at_us = s->ended_us };

    return slot_settled(s) && (verdict_is_failure(s->result) || (s->cause && is_first(j, &p)));
}

/* with_line: add the line of the task's output that shows the cause. */
static void add_cause(const struct job *j, const struct past_failure *p, bool with_line,
                      struct buf *out)
{
    AUTO(buf_done) struct buf remedy = { 0 };
    const struct cause *cause = p->cause;

    if (!cause)
        return;
    (void)cause_remedy(cause, job_role_name(j, j->slots[p->slot].role), &remedy);
    status_text(out, "known", cause->name);
    (void)buf_addf(out, ",\"victim\":%s", cause->victim ? "true" : "false");
    status_text(out, "what", cause->what);
    status_text(out, "remedy", buf_cstr(&remedy));
    (void)buf_adds(out, ",\"line\":");
    (void)json_add_str(out, span_of(with_line && p->cause_line ? p->cause_line : ""));
}

/* A task lost a peer, but no peer has failed. Perhaps a peer ended well, but too early: add the
 * last one that did ("left_before"). Or the task waited until its timeout for a peer that is at an
 * earlier step: add the one that is furthest behind ("behind"). */
static void add_suspects(const struct job *j, const struct past_failure *p, struct buf *out)
{
    int64_t left = JOB_NO_SLOT, behind = JOB_NO_SLOT;

    FOR_TASKS(j, i)
    {
        const struct slot *s = &j->slots[i];
        if (i == p->slot || job_role_spec(j, s->role)->kind == ROLE_SIDECAR)
            continue;
        if (s->result == RES_SUCCEEDED && s->ended_us <= p->at_us &&
            (left < 0 || s->ended_us > j->slots[left].ended_us))
            left = i;
        if (s->step && s->step < p->step && (behind < 0 || s->step < j->slots[behind].step))
            behind = i;
    }
    if (left >= 0) {
        (void)buf_addf(out, ",\"left_before\":{\"task\":\"" SLOT_NAME "\"", SLOT_ARGS(j, left));
        status_number(out, "before_ms", (p->at_us - j->slots[left].ended_us) / 1000, true);
        (void)buf_addc(out, '}');
    } else if (behind >= 0) {
        (void)buf_addf(out, ",\"behind\":{\"task\":\"" SLOT_NAME "\"", SLOT_ARGS(j, behind));
        status_number(out, "step", (int64_t)(j->slots[behind].step & INT64_MAX), true);
        (void)buf_addc(out, '}');
    }
}

static void add_one(const struct job *j, const struct past_failure *p, enum failure_words words,
                    struct buf *out)
{
    bool exited = p->attempt > 0 && !p->signal && p->reason == END_EXITED;

    status_task_name(j, p->slot, out);
    (void)buf_addf(out, ",\"first\":%s", is_first(j, p) ? "true" : "false");
    status_number(out, "attempt", p->attempt, true);
    status_number(out, "generation", p->generation, true);
    status_text(out, "node", p->node >= 0 ? j->nodes.v[p->node].name : NULL);
    status_number(out, "at_ms", p->at_us / 1000, true);
    status_number(out, "exit_code", p->exit_code, exited);
    status_number(out, "signal", p->signal, p->signal != 0);
    status_text(out, "reason", end_reason_name(p->reason));
    status_text(out, "detail", p->detail ? p->detail : slot_note_text(j, p->note));
    status_number(out, "step", (int64_t)(p->step & INT64_MAX), true);
    status_text(out, "done", restart_text(p->done));
    add_cause(j, p, words >= WORDS_LINE, out);
    if (p->cause && p->cause->victim && is_first(j, p))
        add_suspects(j, p, out);
    if (words >= WORDS_TAIL)
        status_text(out, "stderr_tail", p->tail);
    (void)buf_addc(out, '}');
}

void failures_json(const struct job *j, enum failure_words words, struct buf *out)
{
    struct list l = { .n = 0 };

    for (size_t i = 0; i < MIN((size_t)j->failures.n_past, ARRAY_LEN(j->failures.past)); i++)
        insert(&l, j->failures.past[i]);
    for (uint32_t i = 0; i < j->n_slots; i++)
        if (is_shown(j, i))
            insert(&l, last_attempt_of(j, i));
    if (!l.n)
        return;
    (void)buf_adds(out, ",\"failures\":[");
    for (size_t i = 0; i < l.n; i++) {
        if (i)
            (void)buf_addc(out, ',');
        add_one(j, &l.v[i], words, out);
    }
    (void)buf_addc(out, ']');
}

void failures_restart_json(const struct job *j, struct buf *out)
{
    const struct restarts *r = &j->restarts;
    bool exited = !r->last.signal && r->last.reason == END_EXITED;

    if (!r->n || !r->last.kind)
        return;
    (void)buf_addf(out, ",\"last_restart\":{\"task\":\"" SLOT_NAME "\"",
                   SLOT_ARGS(j, r->last.slot));
    status_number(out, "attempt", r->last.attempt, true);
    status_number(out, "at_ms", r->last.at_us / 1000, true);
    status_number(out, "exit_code", r->last.exit_code, exited);
    status_number(out, "signal", r->last.signal, r->last.signal != 0);
    status_text(out, "reason", end_reason_name(r->last.reason));
    status_text(out, "what", r->last.cause ? r->last.cause->what : NULL);
    status_number(out, "step", (int64_t)(r->last.step & INT64_MAX), true);
    status_text(out, "done", restart_text(r->last.kind));
    (void)buf_addc(out, '}');
}
