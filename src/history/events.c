/* SPDX-License-Identifier: Apache-2.0 */
#include "history/events.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "history/history_int.h"
#include "storage/jobfile.h"
#include "storage/journal.h"

enum {
    /* With more slots than this, only those that a record names are compared at each record, and
     * all of them at every SCAN_RECORDS records. */
    SCAN_ALWAYS_MAX = 1000,
    SCAN_RECORDS = 64,
};

struct seen { /* the state of a slot at the last comparison */
    enum slot_state state;
    enum slot_result result;
    uint32_t attempt, generation;
    bool ready;
};

struct history_events {
    struct job_file *file;
    struct job_spec *spec;
    struct job *job; /* after the records so far; NULL = there were none */
    struct replay clocks;
    struct job_actions scratch;
    uint32_t format;
    uint64_t next_n; /* the record with which the next text begins */
    uint64_t last_n; /* the last record whose changes were told; 0 = none */
    /* The state that the caller knows from the events so far. */
    struct seen *slots;
    uint32_t n_slots;
    uint32_t *sizes; /* by role */
    uint32_t n_sizes, epoch, generation;
    uint64_t step; /* of the newest whole checkpoint */
    char *checkpoint;
    enum job_state state;
    bool over;
    /* For the duration of one history_events_feed(): */
    uint64_t n;
    history_event_fn *fn;
    void *arg;
};

int history_events_new(struct span conf, struct history_events **out, struct err *e)
{
    AUTO(history_events_freep) struct history_events *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(e, ENOMEM, "no memory for the events of the job");
    int rc = job_file_decode(conf, &h->file, e);
    if (rc == 0)
        rc = job_spec_build(h->file->conf, &h->spec, e);
    if (rc == 0)
        *out = TAKE(h);
    return rc;
}

void history_events_free(struct history_events *h)
{
    if (!h)
        return;
    job_free(h->job);
    job_spec_free(h->spec);
    job_file_free(h->file);
    vec_done(&h->scratch);
    free(h->slots);
    free(h->sizes);
    free(h->checkpoint);
    free(h);
}

void history_events_freep(struct history_events **h)
{
    history_events_free(*h);
    *h = NULL;
}

bool history_events_over(const struct history_events *h)
{
    return h->over;
}

/* ---- telling ---- */

/* Pass an event to the caller. more: its members beside the common ones. Takes a reference to
 * `more`; NULL means that there was no memory for it. */
static int tell(struct history_events *h, const char *name, json_t *more)
{
    AUTO(json_freep) json_t *rest = more;
    int64_t at = job_now(h->job), wall = replay_wall(&h->clocks, at);
    AUTO(json_freep)
    json_t *doc =
        json_pack("{s:I, s:o, s:I, s:s}", "n", (json_int_t)h->n, "wall_ms",
                  wall ? json_integer(wall) : json_null(), "at_ms", (json_int_t)at, "event", name);
    if (!rest || !doc || json_object_update(doc, rest) < 0)
        return -ENOMEM;
    return h->fn(doc, h->arg);
}

static void set_text(json_t *doc, const char *name, const char *text)
{
    if (text && *text)
        (void)json_object_set_new(doc, name, json_string(text)); /* without memory it is missing */
}

static const char *result_name(enum slot_result r)
{
    static const char *const names[] = { NULL, "SUCCEEDED", "FAILED", "FINISHED", "LOST" };
    return (size_t)r < ARRAY_LEN(names) ? names[r] : NULL;
}

static void add_end(json_t *doc, const struct slot_view *v)
{
    set_text(doc, "result", result_name(v->result));
    if (v->ended_ms < 0)
        return;
    set_text(doc, "reason", end_reason_name(v->reason));
    set_text(doc, "detail", v->detail);
    if (v->reason == END_EXITED && v->signal)
        (void)json_object_set_new(doc, "signal", json_integer(v->signal));
    else if (v->reason == END_EXITED)
        (void)json_object_set_new(doc, "exit_code", json_integer(v->exit_code));
}

static int tell_task(struct history_events *h, const struct slot_view *v)
{
    json_t *doc = json_pack("{s:o, s:s, s:i, s:s, s:i, s:i}", "task",
                            json_sprintf("%s:%u", v->role, v->index), "role", v->role, "index",
                            (int)v->index, "state", slot_state_name(v->state), "attempt",
                            (int)v->attempt, "generation", (int)v->generation);
    if (!doc)
        return -ENOMEM;
    set_text(doc, "container", v->container);
    set_text(doc, "node", v->node);
    set_text(doc, "gpus", v->gpus);
    if (v->ready)
        (void)json_object_set_new(doc, "ready", json_true());
    if (v->spare)
        (void)json_object_set_new(doc, "spare", json_true());
    add_end(doc, v);
    return tell(h, "task", doc);
}

/* ---- comparing ---- */

static int grow_slots(struct history_events *h)
{
    uint32_t n = job_n_slots(h->job);
    if (n <= h->n_slots)
        return 0;
    struct seen *more = realloc(h->slots, n * sizeof *more);
    if (!more)
        return -ENOMEM;
    memset(more + h->n_slots, 0, (n - h->n_slots) * sizeof *more);
    h->slots = more;
    h->n_slots = n;
    return 0;
}

static int compare_slot(struct history_events *h, uint32_t i)
{
    struct slot_view v;
    if (i >= job_n_slots(h->job))
        return 0;
    job_slot(h->job, i, &v);
    struct seen *was = &h->slots[i];
    const struct seen is = { v.state, v.result, v.attempt, v.generation, v.ready };
    if (is.state == was->state && is.result == was->result && is.attempt == was->attempt &&
        is.generation == was->generation && is.ready == was->ready)
        return 0;
    /* A slot that the job does not use yet is no task. */
    bool unused = is.state == SLOT_ABSENT && was->state == SLOT_NONE;
    *was = is;
    return unused ? 0 : tell_task(h, &v);
}

/* The slot that a record names; UINT32_MAX = none. */
static uint32_t slot_in(struct span record)
{
    static const char name[] = ",\"slot\":";
    const char *at = memmem(record.p, record.len, name, sizeof name - 1);
    const char *end = record.p + record.len;
    uint32_t n = 0;
    bool any = false;
    for (at = at ? at + sizeof name - 1 : end; at < end && *at >= '0' && *at <= '9'; at++) {
        n = n * 10 + (uint32_t)(*at - '0');
        any = true;
    }
    return any ? n : UINT32_MAX;
}

static int compare_slots(struct history_events *h, struct span record)
{
    int rc = grow_slots(h);
    uint32_t n = job_n_slots(h->job), one = slot_in(record);
    bool all = n <= SCAN_ALWAYS_MAX || h->n % SCAN_RECORDS == 0 || !record.len;
    if (rc == 0 && !all && one != UINT32_MAX)
        rc = compare_slot(h, one);
    for (size_t i = 0; rc == 0 && !all && i < h->scratch.n; i++)
        rc = compare_slot(h, job_action_slot(&h->scratch.v[i]));
    for (uint32_t i = 0; rc == 0 && all && i < n; i++)
        rc = compare_slot(h, i);
    return rc;
}

static int compare_sizes(struct history_events *h)
{
    uint32_t n = job_n_roles(h->job);
    bool first = h->n_sizes == 0;
    if (first && !(h->sizes = calloc(n ? n : 1, sizeof *h->sizes)))
        return -ENOMEM;
    h->n_sizes = n;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        uint32_t is = job_role_tasks(h->job, i);
        struct slot_view v;
        if (!first && is != h->sizes[i] && is > 0) {
            job_slot(h->job, job_task(h->job, i, 0), &v);
            rc = tell(h, "size",
                      json_pack("{s:s, s:i, s:i}", "role", v.role, "from", (int)h->sizes[i], "to",
                                (int)is));
        }
        h->sizes[i] = is;
    }
    return rc;
}

static int compare_checkpoint(struct history_events *h)
{
    uint64_t step = 0;
    const char *path = job_n_slots(h->job) ? job_checkpoint(h->job, 0, &step) : NULL;
    if (!path || (step == h->step && str_eq(path, h->checkpoint)))
        return 0;
    h->step = step;
    free(h->checkpoint);
    h->checkpoint = str_dup(path);
    if (!h->checkpoint)
        return -ENOMEM;
    return tell(h, "checkpoint",
                json_pack("{s:I, s:s}", "step", (json_int_t)(step & INT64_MAX), "path", path));
}

static int compare_job(struct history_events *h)
{
    enum job_state is = job_state(h->job);
    if (is == h->state || is == JOB_NONE || is == JOB_NEW)
        return 0;
    h->state = is;
    h->over = history_decided(h->job);
    json_t *doc = json_pack("{s:s}", "state", job_state_name(is));
    if (doc && h->over) {
        struct job_verdict v;
        struct slot_view cause;
        job_verdict(h->job, &v);
        (void)json_object_set_new(doc, "exit_code", json_integer(v.exit_code));
        set_text(doc, "message", v.message);
        if (v.cause_slot != UINT32_MAX) {
            job_slot(h->job, v.cause_slot, &cause);
            (void)json_object_set_new(doc, "cause", json_sprintf("%s:%u", cause.role, cause.index));
        }
    }
    return tell(h, "job", doc);
}

/* Tell what has changed since the last call. record: its text; empty = a snapshot was restored. */
static int compare(struct history_events *h, struct span record)
{
    int rc = 0;
    uint32_t epoch = job_epoch(h->job), generation = job_generation(h->job);
    if (epoch != h->epoch) {
        h->epoch = epoch;
        rc = tell(h, "master", json_pack("{s:i}", "epoch", (int)epoch));
    }
    if (rc == 0 && job_state(h->job) != JOB_STOPPING && !history_decided(h->job))
        rc = compare_job(h);
    if (rc == 0 && generation != h->generation) {
        h->generation = generation;
        rc = tell(h, "gang", json_pack("{s:i}", "generation", (int)generation));
    }
    if (rc == 0)
        rc = compare_sizes(h);
    /* The verdict must come last, and it follows from the ends of tasks. */
    bool over = history_decided(h->job);
    if (rc == 0)
        rc = compare_slots(h, over ? (struct span){ 0 } : record);
    if (rc == 0)
        rc = compare_checkpoint(h);
    return rc == 0 ? compare_job(h) : rc;
}

/* ---- reading ---- */

static int tell_earlier(struct history_events *h, uint64_t first_n)
{
    return tell(h, "earlier", json_pack("{s:I}", "records", (json_int_t)(first_n - 1)));
}

static int read_records(struct history_events *h, struct journal_reader *r, bool first,
                        struct err *e)
{
    struct journal_record rec;
    int rc;
    while ((rc = replay_next(h->job, r, &h->scratch, &h->clocks, &rec, e)) == 1) {
        bool restored = rec.kind == JOURNAL_SNAPSHOT && r->snapshot_left == 0;
        if (rec.n <= h->last_n || (rec.kind != JOURNAL_EVENT && !restored))
            continue;
        bool lost = first && restored && h->last_n == 0 && r->first_n > 1;
        h->n = h->last_n = rec.n;
        int told = lost ? tell_earlier(h, r->first_n) : 0;
        if (told == 0)
            told = compare(h, restored ? (struct span){ 0 } : rec.json);
        if (told < 0)
            return err_set(e, -told, "cannot tell the events of the job: %m");
    }
    return rc;
}

int history_events_feed(struct history_events *h, struct span text, bool first,
                        history_event_fn *fn, void *arg, struct err *e)
{
    struct journal_reader r;
    h->fn = fn;
    h->arg = arg;
    if (first) {
        job_free(h->job);
        h->clocks = (struct replay){ 0 };
        h->job = job_new(h->spec, e);
        if (!h->job)
            return -ENOMEM;
        journal_reader_text(&r, text);
    } else if (!h->job) {
        return err_set(e, EBADMSG, "the beginning of the journal is missing");
    } else {
        journal_reader_part(&r, text, h->next_n);
        r.format = h->format;
    }
    int rc = read_records(h, &r, first, e);
    h->format = r.format;
    h->next_n = r.next_n;
    job_replaying(h->job, false);
    journal_reader_close(&r);
    return rc;
}
