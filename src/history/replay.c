#include "history/replay.h"

#include <errno.h>

#include "base/err.h"
#include "base/util.h"
#include "base/vec.h"
#include "job/job.h"
#include "storage/journal.h"

/* One record. Actions are of no interest: whoever did them is gone, and the new master asks again
 * for what is still wanted. */
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
    if (ev.wall_ms > 0) {
        r->anchor_wall_ms = ev.wall_ms;
        r->anchor_t_ms = t;
    }
    if (ev.type == EV_MASTER_STARTED && ev.value_ms > 0) {
        r->mono_ms = ev.value_ms;
        r->mono_t_ms = t;
    }
    if (ev.type == EV_SUBMITTED && r->submitted_wall_ms == 0)
        r->submitted_wall_ms = ev.wall_ms;
    if (ev.type == EV_MASTER_STARTED && r->started_wall_ms == 0)
        r->started_wall_ms = ev.wall_ms;
    r->last_t_ms = t;
    r->n_records++;
    job_event_release(holder);
    return rc < 0 ? rc : 0; /* 1: refused now as it was then */
}

int replay_journal(struct job *job, struct span text, struct replay *out, struct err *e)
{
    struct replay r = { 0 };
    struct job_actions scratch = { 0 };
    size_t pos = 0;
    uint64_t n = 1;
    int rc = 0;
    for (;;) {
        struct span payload;
        rc = journal_next(text, &pos, &n, &payload, &r.torn, e);
        if (rc <= 0)
            break;
        rc = replay_record(job, payload, &scratch, &r, e);
        if (rc < 0) {
            err_wrap(e, rc, "record %llu", (unsigned long long)r.n_records + 1);
            break;
        }
    }
    vec_done(&scratch);
    if (rc == 0)
        *out = r;
    return rc;
}

int64_t replay_wall(const struct replay *r, int64_t t_ms)
{
    return r->anchor_wall_ms ? r->anchor_wall_ms + (t_ms - r->anchor_t_ms) : 0;
}

int64_t replay_resume(const struct replay *r, int64_t wall_now_ms, int64_t mono_now_ms)
{
    int64_t then = replay_wall(r, r->last_t_ms);
    int64_t gap = then ? wall_now_ms - then : 0;
    int64_t mono_then = r->mono_ms + (r->last_t_ms - r->mono_t_ms);
    if (r->mono_ms && mono_now_ms >= mono_then) /* else the machine was started since */
        gap = mono_now_ms - mono_then;
    return r->last_t_ms + MIN(MAX(gap, (int64_t)0), (int64_t)CLOCK_GAP_MAX_MS);
}
