/* SPDX-License-Identifier: Apache-2.0 */
#include "history/container_counts.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/map.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "history/replay.h"
#include "job/job.h"
#include "storage/journal.h"

struct reading {
    struct container_counts *out;
    struct map containers; /* id -> the number of the master that saw it last */
    uintptr_t master;
    struct replay clocks;
};

static int add_step(struct reading *r, int64_t t_ms)
{
    struct container_count step = { replay_wall(&r->clocks, t_ms), (uint32_t)r->containers.n };
    size_t n = r->out->n;
    if (n > 0 && r->out->v[n - 1].n == step.n)
        return 0;
    if (n > 0) /* the wall clock may have been set back */
        step.wall_ms = MAX(step.wall_ms, r->out->v[n - 1].wall_ms);
    return vec_push(r->out, step);
}

static int see(struct reading *r, const char *container)
{
    return container ? map_set(&r->containers, container, (void *)r->master, NULL) : 0;
}

/* The containers that the new master has not found are gone. */
static void forget_lost(struct reading *r)
{
    for (struct map_entry *x = map_next(&r->containers, NULL); x; x = map_next(&r->containers, x))
        if ((uintptr_t)x->value != r->master)
            (void)map_remove(&r->containers, x->key);
}

static int read_event(struct reading *r, const struct job_event *ev)
{
    switch ((int)ev->type) { /* the other events do not change the counts */
    case EV_MASTER_STARTED:
        r->master++;
        return 0;
    case EV_CONTAINER_SEEN:
        return see(r, ev->container_seen.container);
    case EV_RESYNCED:
        forget_lost(r);
        return 0;
    case EV_ALLOCATED:
        return see(r, ev->allocated.container);
    case EV_COMPLETED:
        if (ev->completed.container)
            (void)map_remove(&r->containers, ev->completed.container);
        return 0;
    case EV_DECIDED_RESIZE:
        r->out->resizes += ev->decided_resize.outcome && str_eq(ev->decided_resize.outcome, "done");
        return 0;
    default:
        return 0;
    }
}

static int read_record(struct reading *r, const struct journal_record *rec, struct err *e)
{
    struct job_event ev;
    void *holder = NULL;
    int64_t t = 0;
    if (rec->kind == JOURNAL_SNAPSHOT)
        return err_set(e, ENODATA, "the journal does not have the beginning of the job any more");
    if (rec->kind != JOURNAL_EVENT)
        return 0;
    int rc = job_event_decode(rec->json, &ev, &t, &holder, e);
    if (rc < 0)
        return rc;
    replay_note(&r->clocks, &ev, t);
    rc = read_event(r, &ev);
    job_event_release(holder);
    if (rc == 0 && r->clocks.anchor_wall_ms > 0)
        rc = add_step(r, t);
    return rc < 0 ? err_set(e, -rc, "cannot read the journal: %m") : 0;
}

static int read_all(struct journal_reader *from, struct container_counts *out, struct err *e)
{
    struct reading r = { .out = out };
    struct journal_record rec;
    int rc;
    while ((rc = journal_reader_next(from, &rec, e)) == 1)
        if ((rc = read_record(&r, &rec, e)) < 0)
            break;
    map_done(&r.containers, NULL);
    if (rc == 0 && out->n > 0 && add_step(&r, r.clocks.last_t_ms) < 0)
        return err_set(e, ENOMEM, "cannot read the journal: %m");
    return rc;
}

int history_container_counts(struct span journal, struct container_counts *out, struct err *e)
{
    struct journal_reader r;
    journal_reader_text(&r, journal);
    return read_all(&r, out, e);
}

void container_counts_done(struct container_counts *h)
{
    vec_done(h);
}
