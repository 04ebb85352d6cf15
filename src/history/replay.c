/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a journal, and continues the job's own time. replay.h explains both.
 */
#include "history/replay.h"

#include <errno.h>
#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "codec/json.h"
#include "job/job.h"
#include "storage/journal.h"

void replay_note(struct replay *r, const struct job_event *ev, int64_t t_ms)
{
    bool is_start = ev->type == EV_MASTER_STARTED, is_submit = ev->type == EV_SUBMITTED;
    int64_t wall_ms = is_start ? ev->master_started.wall_ms : is_submit ? ev->submitted.wall_ms : 0;
    if (wall_ms > 0) {
        r->anchor_wall_ms = wall_ms;
        r->anchor_t_ms = t_ms;
    }
    if (is_start && ev->master_started.mono_ms > 0) {
        r->mono_ms = ev->master_started.mono_ms;
        r->mono_t_ms = t_ms;
    }
    if (is_submit && r->submitted_wall_ms == 0)
        r->submitted_wall_ms = wall_ms;
    if (is_start && r->started_wall_ms == 0)
        r->started_wall_ms = wall_ms;
    r->last_t_ms = t_ms;
    r->n_records++;
}

/* ---- writing ---- */

int replay_add_record(struct journal *to, const struct job_event *ev, int64_t t_ms,
                      struct replay *clocks, struct buf *scratch)
{
    buf_clear(scratch);
    replay_note(clocks, ev, t_ms);
    int rc = job_event_encode(ev, t_ms, scratch);
    return rc < 0 ? rc : journal_add(to, buf_span(scratch));
}

int replay_add_event(struct journal *to, const struct job *job, const struct job_event *ev,
                     struct replay *clocks, struct buf *scratch)
{
    struct job_event decision;
    bool write = job_must_record(job, ev);
    int rc = 0;
    for (size_t i = 0; rc == 0 && job_decision(job, i, &decision); i++) {
        write = true;
        rc = replay_add_record(to, &decision, job_now(job), clocks, scratch);
    }
    return rc == 0 && write ? replay_add_record(to, ev, job_now(job), clocks, scratch) : rc;
}

/* ---- the clocks in a snapshot ---- */

#define CLOCK_FIELD(kind, name)                                                                    \
    {                                                                                              \
#name, F_##kind, offsetof(struct replay, name), ""                                         \
    }
static const struct field clock_fields[] = {
    CLOCK_FIELD(I64, last_t_ms),
    CLOCK_FIELD(I64, anchor_t_ms),
    CLOCK_FIELD(I64, anchor_wall_ms),
    CLOCK_FIELD(I64, mono_t_ms),
    CLOCK_FIELD(I64, mono_ms),
    CLOCK_FIELD(I64, submitted_wall_ms),
    CLOCK_FIELD(I64, started_wall_ms),
    CLOCK_FIELD(U64, n_records),
    { 0 },
};
static const char clocks_name[] = "snapshot.clocks";

int replay_snapshot(const struct replay *r, struct buf *line)
{
    (void)buf_addf(line, "{\"e\":\"%s\"", clocks_name);
    record_add(line, clock_fields, r);
    return buf_adds(line, "}\n");
}

/* Restore the clocks if the record is named clocks_name. 1: it is another record. */
static int restore_clocks(struct span json, struct replay *r, struct err *e)
{
    AUTO(json_freep) json_t *obj = NULL;
    const char *key;
    json_t *v;
    int rc = json_parse("snapshot", json, &obj, e);
    if (rc < 0)
        return rc;
    if (!str_eq(json_string_value(json_object_get(obj, "e")), clocks_name))
        return 1;
    json_object_foreach(obj, key, v)
    {
        const struct field *f = record_field(clock_fields, key);
        if (f && (rc = record_read(f, v, r, e)) < 0)
            return rc;
    }
    return 0;
}

/* Feed one record to the job. The actions that the job returns are dropped: the master that
 * recorded the event has carried them out, and a new master repeats those that are still needed. */
static int replay_record(struct job *job, struct span payload, struct job_actions *scratch,
                         struct replay *r, struct err *e)
{
    struct job_event ev;
    void *holder = NULL;
    int64_t t = 0;
    int rc = job_event_decode(payload, &ev, &t, &holder, e);
    if (rc < 0)
        return rc;
    scratch->n = 0;
    rc = job_feed(job, &ev, t, scratch, e);
    replay_note(r, &ev, t);
    job_event_release(holder);
    return rc < 0 ? rc : 0; /* 1: the job refused the event, as it did when it was recorded */
}

/* Replay one record of the journal: an event, or a line of the snapshot. */
static int replay_one(struct job *job, const struct journal_reader *from,
                      const struct journal_record *rec, struct job_actions *scratch,
                      struct replay *r, struct err *e)
{
    int rc = 0;
    if (rec->kind == JOURNAL_EVENT)
        job_replaying(job, from->format >= JOURNAL_FORMAT_DECISIONS);
    if (rec->kind == JOURNAL_EVENT)
        rc = replay_record(job, rec->json, scratch, r, e);
    else if (rec->kind == JOURNAL_SNAPSHOT)
        rc = restore_clocks(rec->json, r, e);
    if (rc == 1 && rec->kind == JOURNAL_SNAPSHOT)
        rc = job_restore(job, rec->json, e);
    if (rc == 0 && rec->kind == JOURNAL_SNAPSHOT && from->snapshot_left == 0)
        rc = job_restored(job, e);
    return rc < 0 ? err_wrap(e, rc, "record %llu", (unsigned long long)rec->n) : 0;
}

int replay_next(struct job *job, struct journal_reader *from, struct job_actions *scratch,
                struct replay *r, struct journal_record *out, struct err *e)
{
    int rc = journal_reader_next(from, out, e);
    if (rc == 1)
        rc = replay_one(job, from, out, scratch, r, e);
    else
        return rc;
    return rc < 0 ? rc : 1;
}

static int replay_records(struct job *job, struct journal_reader *from, struct replay *out,
                          struct err *e)
{
    struct replay r = { 0 };
    struct job_actions scratch = { 0 };
    struct journal_record rec;
    int rc;
    while ((rc = replay_next(job, from, &scratch, &r, &rec, e)) == 1)
        ;
    vec_done(&scratch);
    job_replaying(job, false);
    r.torn = from->torn;
    if (rc == 0)
        *out = r;
    return rc;
}

int replay_journal(struct job *job, struct span text, struct replay *out, struct err *e)
{
    struct journal_reader r;
    journal_reader_text(&r, text);
    return replay_records(job, &r, out, e);
}

int replay_file(struct job *job, const char *path, struct replay *out, struct err *e)
{
    struct journal_reader r;
    int rc = journal_reader_open(&r, path, e);
    if (rc < 0)
        return rc;
    rc = replay_records(job, &r, out, e);
    journal_reader_close(&r);
    return rc;
}

int64_t replay_wall(const struct replay *r, int64_t t_ms)
{
    return r->anchor_wall_ms ? r->anchor_wall_ms + (t_ms - r->anchor_t_ms) : 0;
}

int64_t replay_resume(const struct replay *r, int64_t wall_now_ms, int64_t mono_now_ms)
{
    int64_t last_wall_ms = replay_wall(r, r->last_t_ms);
    int64_t gap_ms = last_wall_ms ? wall_now_ms - last_wall_ms : 0;
    int64_t last_mono_ms = r->mono_ms + (r->last_t_ms - r->mono_t_ms);
    if (r->mono_ms && mono_now_ms >= last_mono_ms) /* if it is less, the machine was rebooted */
        gap_ms = mono_now_ms - last_mono_ms;
    return r->last_t_ms + MIN(MAX(gap_ms, (int64_t)0), (int64_t)CLOCK_GAP_MAX_MS);
}
