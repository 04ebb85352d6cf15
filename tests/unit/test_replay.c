/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Journals that are read back: with their decisions and their clocks, also from a snapshot. And the
 * containers that a job held, as its journal says.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "history/container_counts.h"
#include "history/replay.h"
#include "job/job.h"
#include "storage/crc32c.h"
#include "storage/journal.h"

enum { T0 = 1700000000 };

static struct job_spec *two_workers(void)
{
    struct err e = { 0 };
    struct job_spec *spec = NULL;
    AUTO(conf_freep) struct conf *c = conf_new();
    assert_int_equal(conf_set(c, CL_JOB, "tony.application.name", "digits", "t", false, &e), 0);
    assert_int_equal(conf_set(c, CL_JOB, "tony.worker.instances", "2", "t", false, &e), 0);
    assert_int_equal(conf_set(c, CL_JOB, "tony.containers.command", "./run", "t", false, &e), 0);
    assert_int_equal(job_spec_build(c, &spec, &e), 0);
    return spec;
}

/* A journal of these events in memory. */
static void add_line(struct buf *out, uint64_t n, const struct job_event *ev, int64_t t_ms)
{
    AUTO(buf_done) struct buf payload = { 0 };
    char line[512];
    assert_int_equal(job_event_encode(ev, t_ms, &payload), 0);
    int len = snprintf(line, sizeof line, "{\"n\":%llu,%.*s", (unsigned long long)n,
                       (int)payload.len - 2, payload.p + 1);
    assert_int_equal(buf_addf(out, "%s,\"c\":\"%08x\"}\n", line, crc32c(line, (size_t)len)), 0);
}

static void add_header(struct buf *out)
{
    static const char header[] = "{\"n\":1,\"e\":\"journal\",\"format\":2,\"snapshot\":0";
    assert_int_equal(
        buf_addf(out, "%s,\"c\":\"%08x\"}\n", header, crc32c(header, sizeof header - 1)), 0);
}

/* ---- decisions ---- */

/* worker:0 ends with exit code 3. Before it stands the decision that another version of tony made
 * about it: no rule of today writes this verdict. */
static const struct job_event story[] = {
    { .type = EV_SUBMITTED,
      .submitted = { .application_id = "application_1700000000000_0001",
                     .user = "ann",
                     .wall_ms = T0 * 1000LL } },
    { .type = EV_MASTER_STARTED,
      .master_started = { .epoch = 1, .wall_ms = T0 * 1000LL + 500, .mono_ms = 70000 } },
    { .type = EV_RESYNCED },
    { .type = EV_ALLOCATED, .allocated = { .slot = 0, .container = "c_1" } },
    { .type = EV_ALLOCATED, .allocated = { .slot = 1, .container = "c_2" } },
    { .type = EV_REGISTERED,
      .registered = { .slot = 0, .container = "c_1", .address = "127.0.0.1:1" } },
    { .type = EV_REGISTERED,
      .registered = { .slot = 1, .container = "c_2", .address = "127.0.0.1:2" } },
    { .type = EV_ATTEMPT_ENDED,
      .attempt_ended = { .slot = 1, .generation = 1, .attempt = 1, .reason = END_EXITED } },
    { .type = EV_DECIDED_VERDICT,
      .decided_verdict = { .by = "attempt_ended",
                           .state = "SUCCEEDED",
                           .over = true,
                           .message = "one worker is enough" } },
    { .type = EV_ATTEMPT_ENDED,
      .attempt_ended = { .slot = 0,
                         .generation = 1,
                         .attempt = 1,
                         .exit_code = 3,
                         .reason = END_EXITED } },
};
enum { N_BEFORE_THE_END = 7 };

static void a_recorded_verdict_is_kept(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf text = { 0 };
    struct job_spec *spec = two_workers();
    struct job *job = job_new(spec, NULL);
    struct replay r = { 0 };
    struct job_verdict v;
    struct err e = { 0 };
    add_header(&text);
    for (size_t i = 0; i < ARRAY_LEN(story); i++)
        add_line(&text, i + 2, &story[i], 100 * (int64_t)i);
    if (replay_journal(job, buf_span(&text), &r, &e) < 0)
        fail_msg("%s", e.msg);
    job_verdict(job, &v);
    assert_int_equal(v.state, JOB_SUCCEEDED);
    assert_string_equal(v.message, "one worker is enough");
    job_free(job);
    job_spec_free(spec);
}

/* ---- time ---- */

static const struct resume_case {
    int64_t last_t, anchor_t, anchor_wall, now, want;
} resumes[] = {
    { 0, 0, 0, 5000, 0 },                           /* no record */
    { 1000, 0, 100000, 101000, 1000 },              /* at once */
    { 1000, 0, 100000, 131000, 31000 },             /* half a minute without a master */
    { 1000, 0, 100000, 50000, 1000 },               /* the clock was set back */
    { 1000, 0, 100000, 999999999, 1000 + 3600000 }, /* and far ahead */
    { 9000, 8000, 200000, 203000, 11000 },          /* after an earlier change of masters */
    { 1000, 0, 0, 999999999, 1000 },                /* no wall time known */
};

static void job_time_after_a_restart(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(resumes); i++) {
        const struct resume_case *c = &resumes[i];
        struct replay r = { .n_records = 1,
                            .last_t_ms = c->last_t,
                            .anchor_t_ms = c->anchor_t,
                            .anchor_wall_ms = c->anchor_wall };
        assert_int_equal(replay_resume(&r, c->now, 0), c->want);
    }
    /* on one machine the wall clock counts only if the machine has booted since */
    struct replay r = { .n_records = 2,
                        .last_t_ms = 9000,
                        .anchor_t_ms = 8000,
                        .anchor_wall_ms = 200000,
                        .mono_t_ms = 8000,
                        .mono_ms = 70000 };
    assert_int_equal(replay_resume(&r, 3803000, 71500), 9500);
    assert_int_equal(replay_resume(&r, 100000, 71500), 9500);
    assert_int_equal(replay_resume(&r, 203000, 500), 11000);
    assert_int_equal(replay_resume(&r, 203000, 0), 11000);
}

/* Add the event to the journal as a master does. */
static void live_event(struct journal *j, struct job *job, const struct job_event *ev, int64_t t_ms,
                       struct replay *clocks)
{
    AUTO(buf_done) struct buf scratch = { 0 };
    struct job_actions ignored = { 0 };
    assert_int_equal(job_feed(job, ev, t_ms, &ignored, NULL), 0);
    assert_int_equal(replay_add_event(j, job, ev, clocks, &scratch), 0);
    vec_done(&ignored);
}

static void begin_segment(struct journal *j, const struct job *job, const struct replay *clocks)
{
    AUTO(buf_done) struct buf lines = { 0 };
    struct span payloads[50], rest;
    struct err e = { 0 };
    size_t n = 0;
    assert_int_equal(replay_snapshot(clocks, &lines), 0);
    assert_int_equal(job_snapshot(job, &lines), 0);
    rest = buf_span(&lines);
    while (n < ARRAY_LEN(payloads) && span_split(&rest, '\n', &payloads[n]))
        n += payloads[n].len > 0;
    assert_true(n < ARRAY_LEN(payloads));
    if (journal_begin_segment(j, payloads, n, &e) < 0)
        fail_msg("%s", e.msg);
}

/* The clocks are the same after a replay of all events and after one of a snapshot. */
static void the_clocks_of_a_snapshot(void **state)
{
    (void)state;
    struct job_spec *spec = two_workers();
    struct job *job = job_new(spec, NULL), *next = job_new(spec, NULL);
    struct replay lived = { 0 }, found = { 0 };
    struct journal j;
    struct err e = { 0 };
    char dir[] = "/tmp/tony-replay-XXXXXX";
    assert_non_null(mkdtemp(dir));
    AUTO(free_p) char *path = str_printf("%s/journal", dir);
    assert_int_equal(journal_open(&j, path, &e), 0);
    for (size_t i = 0; i < N_BEFORE_THE_END; i++)
        live_event(&j, job, &story[i], 100 * (int64_t)i, &lived);
    begin_segment(&j, job, &lived);
    journal_close(&j);
    if (replay_file(next, path, &found, &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(lived.mono_ms > 0 && lived.mono_t_ms > 0 && lived.anchor_t_ms > 0);
    assert_int_equal(found.n_records, lived.n_records);
    assert_int_equal(found.last_t_ms, lived.last_t_ms);
    assert_int_equal(found.anchor_t_ms, lived.anchor_t_ms);
    assert_int_equal(found.anchor_wall_ms, lived.anchor_wall_ms);
    assert_int_equal(found.mono_t_ms, lived.mono_t_ms);
    assert_int_equal(found.mono_ms, lived.mono_ms);
    assert_int_equal(found.submitted_wall_ms, lived.submitted_wall_ms);
    assert_int_equal(found.started_wall_ms, lived.started_wall_ms);
    job_free(job);
    job_free(next);
    job_spec_free(spec);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* ---- containers held ---- */

static void held_over_time(void **state)
{
    (void)state;
    static const struct {
        int64_t t_ms;
        struct job_event ev;
    } events[] = {
        { 0, { .type = EV_SUBMITTED, .submitted = { .wall_ms = T0 * 1000LL } } },
        { 10,
          { .type = EV_MASTER_STARTED,
            .master_started = { .epoch = 1, .wall_ms = T0 * 1000LL + 500 } } },
        { 10, { .type = EV_RESYNCED } },
        { 20, { .type = EV_ALLOCATED, .allocated = { .slot = 0, .container = "c_1" } } },
        { 20, { .type = EV_ALLOCATED, .allocated = { .slot = 1, .container = "c_2" } } },
        { 100,
          { .type = EV_DECIDED_RESIZE, .decided_resize = { .by = "grow", .outcome = "began" } } },
        { 110, { .type = EV_ALLOCATED, .allocated = { .slot = 2, .container = "c_3" } } },
        { 120,
          { .type = EV_DECIDED_RESIZE,
            .decided_resize = { .by = "registered", .outcome = "done" } } },
        { 200, { .type = EV_COMPLETED, .completed = { .slot = 1, .container = "c_2" } } },
        { 200, { .type = EV_COMPLETED, .completed = { .slot = 1, .container = "c_2" } } },
        /* The next master finds only c_3. */
        { 300,
          { .type = EV_MASTER_STARTED,
            .master_started = { .epoch = 2, .wall_ms = T0 * 1000LL + 900 } } },
        { 310, { .type = EV_CONTAINER_SEEN, .container_seen = { .slot = 2, .container = "c_3" } } },
        { 320, { .type = EV_RESYNCED } },
        { 400, { .type = EV_STALLED } },
    };
    /* Only the first record of a master says the time; the job's time leads from there. */
    static const struct container_count wanted[] = {
        { T0 * 1000LL, 0 },        { T0 * 1000LL + 510, 1 }, { T0 * 1000LL + 510, 2 },
        { T0 * 1000LL + 600, 3 },  { T0 * 1000LL + 690, 2 }, { T0 * 1000LL + 920, 1 },
        { T0 * 1000LL + 1000, 0 },
    };
    AUTO(buf_done) struct buf text = { 0 };
    struct container_counts counts = { 0 };
    struct err e = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(events); i++)
        add_line(&text, i + 1, &events[i].ev, events[i].t_ms);
    if (history_container_counts(buf_span(&text), &counts, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(counts.n, ARRAY_LEN(wanted));
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        assert_int_equal(counts.v[i].wall_ms, wanted[i].wall_ms);
        assert_int_equal(counts.v[i].n, wanted[i].n);
    }
    assert_int_equal(counts.resizes, 1);
    container_counts_done(&counts);

    /* The first events are gone. */
    static const char header[] = "{\"n\":9,\"e\":\"journal\",\"format\":2,\"snapshot\":1";
    static const char snapshot[] = "{\"n\":10,\"e\":\"snapshot.gang\"";
    AUTO(buf_done) struct buf later = { 0 };
    (void)buf_addf(&later, "%s,\"c\":\"%08x\"}\n", header, crc32c(header, sizeof header - 1));
    (void)buf_addf(&later, "%s,\"c\":\"%08x\"}\n", snapshot, crc32c(snapshot, sizeof snapshot - 1));
    assert_int_equal(history_container_counts(buf_span(&later), &counts, &e), -ENODATA);
    container_counts_done(&counts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recorded_verdict_is_kept),
        cmocka_unit_test(job_time_after_a_restart),
        cmocka_unit_test(the_clocks_of_a_snapshot),
        cmocka_unit_test(held_over_time),
    };
    log_setup(-1, LOG_ERROR, false);
    return cmocka_run_group_tests_name("replay", tests, NULL, NULL);
}
