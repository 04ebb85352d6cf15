/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays the journal of a job, as a whole and from each prefix.
 *
 *     job-replay [--expect STATE] JOBDIR
 *
 * The whole journal must be readable; the final state and message are printed. After each prefix
 * (of a long journal: after 500 prefixes, evenly spread) a new master that finds no container and
 * is told to stop must end the job at once. If the journal begins with a snapshot, it is in each
 * prefix.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "conf/conf.h"
#include "history/replay.h"
#include "job/job.h"
#include "storage/jobfile.h"
#include "storage/journal.h"

enum { MAX_PREFIXES = 500 };

struct record {
    struct job_event ev;
    int64_t t_ms;
    void *holder;
};

struct recording {
    struct job_file *file;
    struct job_spec *spec;
    struct buf head; /* the journal's header and snapshot; empty = it has no snapshot */
    VEC(struct record) records;
};

static void recording_done(struct recording *r)
{
    for (size_t i = 0; i < r->records.n; i++)
        job_event_release(r->records.v[i].holder);
    vec_done(&r->records);
    buf_done(&r->head);
    job_spec_free(r->spec);
    job_file_free(r->file);
}

static int read_spec(struct recording *r, const char *dir, struct err *e)
{
    AUTO(free_p) char *path = fs_join(dir, "job.conf");
    AUTO(buf_done) struct buf conf = { 0 };

    if (!path)
        return err_set(e, ENOMEM, "no memory");
    int rc = fs_read(AT_FDCWD, path, &conf, e);
    if (rc == 0)
        rc = job_file_decode(buf_span(&conf), &r->file, e);
    return rc < 0 ? rc : job_spec_build(r->file->conf, &r->spec, e);
}

static int read_records(struct recording *r, const char *dir, struct err *e)
{
    AUTO(free_p) char *path = fs_join(dir, "journal");
    struct journal_reader from;
    struct journal_record rec;

    if (!path)
        return err_set(e, ENOMEM, "no memory");
    int rc = journal_reader_open(&from, path, e);
    if (rc < 0)
        return rc;
    while (rc >= 0 && (rc = journal_reader_next(&from, &rec, e)) == 1) {
        struct record x;
        if (rec.kind != JOURNAL_EVENT)
            continue;
        rc = job_event_decode(rec.json, &x.ev, &x.t_ms, &x.holder, e);
        if (rc == 0)
            rc = vec_push(&r->records, x);
    }
    if (rc == 0 && from.snapshot_n > 0)
        rc = journal_read(path, &r->head, e);
    if (rc == 0 && r->head.len > 0)
        r->head.len = (size_t)from.head_end;
    journal_reader_close(&from);
    return rc;
}

static int feed(struct job *j, const struct job_event *ev, int64_t t_ms,
                struct job_actions *scratch, struct err *e)
{
    scratch->n = 0;
    return job_feed(j, ev, t_ms, scratch, e);
}

/* The job after the first n records. Records that the core had refused are refused again. */
static struct job *replay(const struct recording *r, size_t n, struct job_actions *scratch,
                          struct err *e)
{
    struct job *j = job_new(r->spec, e);
    struct replay clocks;

    if (j && r->head.len > 0 && replay_journal(j, buf_span(&r->head), &clocks, e) < 0) {
        job_free(j);
        return NULL;
    }
    for (size_t i = 0; j && i < n; i++) {
        if (feed(j, &r->records.v[i].ev, r->records.v[i].t_ms, scratch, e) < 0) {
            job_free(j);
            return NULL;
        }
    }
    return j;
}

static bool ends_from(const struct recording *r, size_t n, struct job_actions *scratch,
                      struct err *e)
{
    struct job *j = replay(r, n, scratch, e);
    if (!j)
        return false;
    int64_t t = job_now(j);
    if (job_state(j) == JOB_NEW)
        (void)feed(
            j, &(struct job_event){ .type = EV_SUBMITTED, .submitted = { .application_id = "" } },
            t, scratch, e);
    (void)feed(j,
               &(struct job_event){ .type = EV_MASTER_STARTED,
                                    .master_started = { .epoch = job_epoch(j) + 1 } },
               t, scratch, e);
    (void)feed(j, &(struct job_event){ .type = EV_RESYNCED }, t, scratch, e);
    if (job_state(j) < JOB_SUCCEEDED)
        (void)feed(j, &(struct job_event){ .type = EV_STOP, .stop = { .who = "job-replay" } }, t,
                   scratch, e);
    bool over = job_state(j) >= JOB_SUCCEEDED;
    if (!over)
        (void)err_set(e, EPROTO, "from the first %zu records the job does not come to its end", n);
    job_free(j);
    return over;
}

static int check(const struct recording *r, const char *expect, struct err *e)
{
    struct job_actions scratch = { 0 };
    struct job_verdict v = { 0 };
    size_t n = r->records.n, step = n / MAX_PREFIXES + 1, n_prefixes = 0;
    struct job *whole = replay(r, n, &scratch, e);
    bool good = whole != NULL;

    if (good) {
        job_verdict(whole, &v);
        if (expect && !str_eq(expect, job_state_name(v.state)))
            good =
                err_set(e, EPROTO, "the job is %s, not %s", job_state_name(v.state), expect) == 0;
    }
    for (size_t i = 0; good && i <= n; i += step, n_prefixes++)
        good = ends_from(r, i, &scratch, e);
    if (good)
        printf("%s: %s (%zu records, %zu prefixes)\n", job_state_name(v.state), v.message, n,
               n_prefixes);
    job_free(whole);
    vec_done(&scratch);
    return good ? 0 : -1;
}

int main(int argc, char **argv)
{
    const char *expect = argc == 4 && str_eq(argv[1], "--expect") ? argv[2] : NULL;
    AUTO(recording_done) struct recording r = { 0 };
    struct err e = { 0 };

    if (argc != (expect ? 4 : 2)) {
        (void)fprintf(stderr, "usage: job-replay [--expect STATE] JOBDIR\n");
        return 2;
    }
    const char *dir = argv[argc - 1];
    if (read_spec(&r, dir, &e) < 0 || read_records(&r, dir, &e) < 0 || check(&r, expect, &e) < 0) {
        (void)fprintf(stderr, "job-replay: %s: %s\n", dir, e.msg);
        return 1;
    }
    return 0;
}
