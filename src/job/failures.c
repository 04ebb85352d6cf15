/*
 * What has failed so far: of each slot its last attempt, if it failed, and of those before the last
 * ones in a ring. Nothing decides by it; it is for people (`tony why`).
 */
#include <stdlib.h>

#include "codec/json.h"
#include "job/job_int.h"

static void past_done(struct past_failure *p)
{
    free(p->detail);
    free(p->tail);
    *p = (struct past_failure){ 0 };
}

void failures_done(struct job *j)
{
    for (size_t i = 0; i < ARRAY_LEN(j->past); i++)
        past_done(&j->past[i]);
}

static struct past_failure view(const struct job *j, uint32_t slot)
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
                                  .note = s->note,
                                  .node = s->node,
                                  .known = s->known };
}

void failures_keep(struct job *j, uint32_t slot, const char *done)
{
    struct slot *s = &j->slots[slot];
    struct past_failure *p = &j->past[j->n_past++ % JOB_FAILURES_KEPT];

    past_done(p);
    *p = view(j, slot);
    p->done = done;
    s->detail = s->tail = NULL; /* the ring's now */
}

void failures_note_restart(struct job *j, uint32_t slot, const char *done)
{
    const struct slot *s = &j->slots[slot];

    j->last_restart.slot = slot;
    j->last_restart.attempt = s->attempt;
    j->last_restart.end = (struct slot_end){
        .reason = s->reason, .exit_code = s->exit_code, .signal = s->signal, .at_us = s->ended_us
    };
    j->last_restart.known = s->known;
    j->last_restart.step = s->step;
    j->last_restart.done = done;
}

/* ---- the list ---- */

struct list {
    struct past_failure v[JOB_FAILURES_SHOWN];
    size_t n;
};

/* In the order of time; the latest fall off at the end. */
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

static bool is_cause(const struct job *j, const struct past_failure *p)
{
    return j->cause.slot == (int64_t)p->slot && j->cause.at_us == p->at_us;
}

/* What was stopped counts only where it is the cause after all. */
static bool is_shown(const struct job *j, uint32_t slot)
{
    const struct slot *s = &j->slots[slot];
    struct past_failure p = { .slot = slot, .at_us = s->ended_us };

    return slot_settled(s) && (verdict_is_failure(s->result) || (s->known && is_cause(j, &p)));
}

static void add_number(struct buf *out, const char *key, int64_t v, bool there)
{
    if (there)
        (void)buf_addf(out, ",\"%s\":%lld", key, (long long)v);
    else
        (void)buf_addf(out, ",\"%s\":null", key);
}

static void add_meaning(const struct job *j, const struct past_failure *p, bool lines,
                        struct buf *out)
{
    struct known_end end = { .reason = p->reason,
                             .exit_code = p->exit_code,
                             .signal = p->signal,
                             .detail = p->detail,
                             .tail = p->tail,
                             .alone = j->n_tasks == 1 };
    AUTO(buf_done) struct buf remedy = { 0 };
    struct span line;
    const struct known *k = known_find(&end, &line);

    if (!k)
        return;
    (void)known_remedy(k, job_role_name(j, j->slots[p->slot].role), &remedy);
    status_text(out, "known", k->name);
    (void)buf_addf(out, ",\"victim\":%s", k->victim ? "true" : "false");
    status_text(out, "what", k->what);
    status_text(out, "remedy", buf_cstr(&remedy));
    (void)buf_adds(out, ",\"line\":");
    (void)json_add_str(out, lines ? line : span_of(""));
}

/* Whose peers all live has perhaps lost one that had ended well, and too early; or waits for one
 * that is behind. */
static void add_suspects(const struct job *j, const struct past_failure *p, struct buf *out)
{
    int64_t left = JOB_NO_SLOT, behind = JOB_NO_SLOT;

    for (uint32_t i = 0; i < j->n_tasks; i++) {
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
        add_number(out, "before_ms", (p->at_us - j->slots[left].ended_us) / 1000, true);
        (void)buf_addc(out, '}');
    } else if (behind >= 0) {
        (void)buf_addf(out, ",\"behind\":{\"task\":\"" SLOT_NAME "\"", SLOT_ARGS(j, behind));
        add_number(out, "step", (int64_t)(j->slots[behind].step & INT64_MAX), true);
        (void)buf_addc(out, '}');
    }
}

static void add_one(const struct job *j, const struct past_failure *p, enum failure_words words,
                    struct buf *out)
{
    bool exited = p->attempt > 0 && !p->signal && p->reason == END_EXITED;

    (void)buf_addf(out, "{\"task\":\"" SLOT_NAME "\"", SLOT_ARGS(j, p->slot));
    (void)buf_addf(out, ",\"first\":%s", is_cause(j, p) ? "true" : "false");
    add_number(out, "attempt", p->attempt, true);
    add_number(out, "generation", p->generation, true);
    status_text(out, "node", p->node >= 0 ? j->nodes.v[p->node].name : NULL);
    add_number(out, "at_ms", p->at_us / 1000, true);
    add_number(out, "exit_code", p->exit_code, exited);
    add_number(out, "signal", p->signal, p->signal != 0);
    status_text(out, "reason", end_reason_name(p->reason));
    status_text(out, "detail", p->detail ? p->detail : p->note);
    add_number(out, "step", (int64_t)(p->step & INT64_MAX), true);
    status_text(out, "done", p->done);
    add_meaning(j, p, words >= WORDS_LINE, out);
    if (p->known && p->known->victim && is_cause(j, p))
        add_suspects(j, p, out);
    if (words >= WORDS_TAIL)
        status_text(out, "stderr_tail", p->tail);
    (void)buf_addc(out, '}');
}

void failures_json(const struct job *j, enum failure_words words, struct buf *out)
{
    struct list l = { .n = 0 };

    for (size_t i = 0; i < MIN((size_t)j->n_past, ARRAY_LEN(j->past)); i++)
        insert(&l, j->past[i]);
    for (uint32_t i = 0; i < j->n_slots; i++)
        if (is_shown(j, i))
            insert(&l, view(j, i));
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
    const struct slot_end *end = &j->last_restart.end;
    bool exited = !end->signal && end->reason == END_EXITED;

    if (!j->n_restarts || !j->last_restart.done)
        return;
    (void)buf_addf(out, ",\"last_restart\":{\"task\":\"" SLOT_NAME "\"",
                   SLOT_ARGS(j, j->last_restart.slot));
    add_number(out, "attempt", j->last_restart.attempt, true);
    add_number(out, "at_ms", end->at_us / 1000, true);
    add_number(out, "exit_code", end->exit_code, exited);
    add_number(out, "signal", end->signal, end->signal != 0);
    status_text(out, "reason", end_reason_name(end->reason));
    status_text(out, "what", j->last_restart.known ? j->last_restart.known->what : NULL);
    add_number(out, "step", (int64_t)(j->last_restart.step & INT64_MAX), true);
    status_text(out, "done", j->last_restart.done);
    (void)buf_addc(out, '}');
}

void nodes_json(const struct job *j, struct buf *out)
{
    bool any = false;

    for (size_t i = 0; i < j->nodes.n; i++) {
        const struct node *n = &j->nodes.v[i];
        if (!n->n)
            continue;
        (void)buf_adds(out, any ? ",{\"node\":" : ",\"bad_nodes\":[{\"node\":");
        (void)json_add_str(out, span_of(n->name));
        add_number(out, "failures", (int64_t)n->n, true);
        (void)buf_addf(out, ",\"left_out\":%s}", n->until_ms >= 0 ? "true" : "false");
        any = true;
    }
    if (any)
        (void)buf_addc(out, ']');
}
