/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: the lines of a snapshot, and then records of events, as a journal has them. The job is
 * restored, and the events are replayed. Then a new master takes the job over, and the status is
 * written. Nothing may crash. A snapshot that was accepted, written again and read back is equal.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "drive.h"
#include "job/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Corpora are made from jobs of this text. */
static const char job_text[] =
    "prep*1 ps*2/live worker*3/restart/on/scope-job/max2/win5000/min1/cap6/spares1<prep "
    "tb*1/sidecar nodes=3 nodefail=2 nodewin=9000 limit=worker/3000/ps/ignored lost=2 pre=2 "
    "missed=3";

static const struct job_spec *job_spec(void)
{
    static struct job_spec *spec; /* stays: making it costs more than a small input */
    if (!spec)
        spec = drive_spec(job_text);
    return spec;
}

static bool is_snapshot_line(struct span line)
{
    static const char head[] = "{\"e\":\"snapshot.";
    return line.len >= sizeof head - 1 && memcmp(line.p, head, sizeof head - 1) == 0;
}

/* Restore a job from the lines of a snapshot at the beginning of *rest. NULL: it was refused. */
static struct job *restore(struct span *rest)
{
    struct job *j = job_new(job_spec(), NULL);
    struct span line, behind = *rest;
    bool good = j != NULL;
    while (good && span_split(&behind, '\n', &line) && is_snapshot_line(line)) {
        good = job_restore(j, line, NULL) == 0;
        *rest = behind;
    }
    if (good && job_restored(j, NULL) == 0)
        return j;
    job_free(j);
    return NULL;
}

static void check_again(const struct job *j)
{
    AUTO(buf_done) struct buf once = { .max = SIZE_MAX / 4 }, twice = { .max = SIZE_MAX / 4 };
    if (job_snapshot(j, &once) < 0)
        abort();
    struct span text = buf_span(&once);
    struct job *again = restore(&text);
    if (!again || job_snapshot(again, &twice) < 0 || once.len != twice.len ||
        memcmp(once.p, twice.p, once.len) != 0)
        abort();
    job_free(again);
}

static void feed(struct job *j, const struct job_event *ev, int64_t t, struct job_actions *acts)
{
    acts->n = 0;
    if (job_feed(j, ev, t, acts, NULL) == -ENOMEM)
        abort();
}

/* Replay the events. false: a record of a decision is damaged. */
static bool replay(struct job *j, struct span rest, struct job_actions *acts)
{
    struct span line;
    job_replaying(j, true);
    while (span_split(&rest, '\n', &line)) {
        struct job_event ev;
        int64_t t;
        void *holder;
        if (job_event_decode(line, &ev, &t, &holder, NULL) < 0)
            continue;
        acts->n = 0;
        int rc = job_feed(j, &ev, t, acts, NULL);
        job_event_release(holder);
        if (rc < 0)
            return false;
    }
    job_replaying(j, false);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span rest = span_mem(data, size);
    struct job_actions acts = { 0 };
    struct job_event due;
    struct job *j = restore(&rest);
    if (!j)
        return 0;
    check_again(j);
    if (replay(j, rest, &acts)) {
        struct job_event started = { .type = EV_MASTER_STARTED,
                                     .master_started = { .epoch = job_epoch(j) + 1 } };
        feed(j, &started, job_now(j), &acts);
        feed(j, &(struct job_event){ .type = EV_RESYNCED }, job_now(j), &acts);
        for (int i = 0; i < 16 && job_due(j, job_now(j) + 1000 * i, &due); i++)
            feed(j, &due, job_now(j) + 1000 * i, &acts);
    }
    AUTO(buf_done) struct buf json = { .max = SIZE_MAX / 4 };
    if (job_status_json(j, true, &json) < 0)
        abort();
    job_free(j);
    free(acts.v);
    return 0;
}
