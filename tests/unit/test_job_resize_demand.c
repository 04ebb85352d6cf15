/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler asks a job to shrink or to grow: at once, after a checkpoint, and while its gang
 * forms again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <jansson.h>

#include "base/base.h"
#include "drive.h"
#include "job/job_int.h"
#include "resize_rows.h"

static void test_resizes_by_the_scheduler(void **state)
{
    static const struct resize_row rows[] = {
        { "worker*4/live", "go shrink:2", "worker:0=1.1 worker:1=1.1", "steady", RESIZED },
        { "worker*4/restart ps*2/fixed", "go shrink:4",
          "worker:0=2.2 worker:1=2.2 ps:0=2.2 ps:1=2.2", "steady", RESIZED },
        { "worker*2/live/cap3", "go grow:9", "worker:0=1.1 worker:1=1.1 worker:2=1.1", "steady",
          RESIZED },
        /* a demand below the minimum: the job shrinks to the minimum */
        { "worker*4/live/min2", "go shrink:1", "worker:0=1.1 worker:1=1.1", "steady", RESIZED },
        { "worker*3/live/min2 ps*2/fixed", "go shrink:0",
          "worker:0=1.1 worker:1=1.1 ps:0=1.1 ps:1=1.1", "steady", RESIZED },
        { "worker*3/live/min2 ps*2/live", "go ps:0=0 shrink:1",
          "worker:0=1.1 worker:1=1.1 ps:0=ended ps:1=1.1", "steady", RESIZED },
        /* while the job waits for containers to grow */
        { "worker*2/live/min2 nogrant=2", "go resize:worker=4 shrink:1",
          "worker:0=1.1 worker:1=1.1", "steady", RESIZED },
    };
    (void)state;
    resize_check_all(rows, ARRAY_LEN(rows));
}

/* The scheduler demands that no work is lost: a gang that would restart waits for a checkpoint. */
static void test_waits_for_a_checkpoint(void **state)
{
    static const struct resize_row rows[] = {
        { "worker*3/restart", "go shrink-saved:2", "worker:0=1.1 worker:1=1.1 worker:2=1.1",
          "waiting", RESIZE_OPEN },
        /* an older checkpoint does not count */
        { "worker*3/restart", "go save:worker:0 shrink-saved:2",
          "worker:0=1.1 worker:1=1.1 worker:2=1.1", "waiting", RESIZE_OPEN },
        { "worker*3/restart", "go save:worker:0 shrink-saved:2 save:worker:0",
          "worker:0=2.2 worker:1=2.2", "steady", RESIZED },
        /* no checkpoint in time: the job keeps its size and runs on */
        { "worker*3/restart", "go shrink-saved:2 +16000", "worker:0=1.1 worker:1=1.1 worker:2=1.1",
          "steady", RESIZE_TIMED_OUT },
        { "worker*3/restart", "go shrink-saved:2 +16000 save:worker:0",
          "worker:0=1.1 worker:1=1.1 worker:2=1.1", "steady", RESIZE_TIMED_OUT },
        /* to grow: new containers come first, then the checkpoint */
        { "worker*2/restart/cap3", "go grow-saved:3", "worker:0=1.1 worker:1=1.1", "waiting",
          RESIZE_OPEN },
        { "worker*2/restart/cap3", "go grow-saved:3 save:worker:0",
          "worker:0=2.2 worker:1=2.2 worker:2=2.1", "steady", RESIZED },
        { "worker*2/restart/cap3", "go grow-saved:3 +16000", "worker:0=1.1 worker:1=1.1", "steady",
          RESIZE_TIMED_OUT },
        /* tasks that need not restart go on: no checkpoint is needed */
        { "worker*3/live", "go shrink-saved:2", "worker:0=1.1 worker:1=1.1", "steady", RESIZED },
        /* a new master waits on */
        { "worker*3/restart", "go shrink-saved:2 master", "worker:0=1.1 worker:1=1.1 worker:2=1.1",
          "waiting", RESIZE_OPEN },
        { "worker*3/restart", "go shrink-saved:2 master save:worker:0", "worker:0=2.2 worker:1=2.2",
          "steady", RESIZED },
        /* a user's resize replaces it, and does not wait */
        { "worker*3/restart", "go shrink-saved:2 resize:worker=1", "worker:0=2.2", "steady",
          RESIZED },
        /* a demand that came while the gang formed anew */
        { "worker*4/restart", "go mute:worker:3 resize:worker=3 shrink-saved:2 +100 worker:3!0",
          "worker:0=2.2 worker:1=2.2 worker:2=2.2", "waiting", RESIZED },
    };
    struct drive d;
    (void)state;
    resize_check_all(rows, ARRAY_LEN(rows));
    drive_init(&d, "worker*3/restart");
    drive_run(&d, "go shrink-saved:2");
    AUTO(buf_done) struct buf json = { 0 };
    assert_int_equal(job_status_json(d.job, false, &json), 0);
    assert_non_null(strstr(buf_cstr(&json), "\"awaits_checkpoint\":true"));
    drive_run(&d, "+16000");
    assert_string_equal(d.job->resize.detail, "no checkpoint was saved within 16.0 s");
    drive_done(&d);
}

static void test_the_outcome_names_the_smallest_size(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*4/live/min2");
    drive_run(&d, "go shrink:1");
    assert_string_equal(d.job->resize.detail, "the scheduler asked for at most 1 container, but "
                                              "this job needs at least 2");
    assert_string_equal(d.job->resize.why, "room");
    drive_run(&d, "resize:worker=3");
    assert_string_equal(d.job->resize.detail, "");
    drive_run(&d, "shrink:2");
    assert_string_equal(d.job->resize.detail, "");
    drive_run(&d, "resize:worker=4 shrink:0");
    assert_string_equal(d.job->resize.detail, "the scheduler asked for at most 0 containers, but "
                                              "this job needs at least 2");
    drive_done(&d);
}

/* A demand to shrink comes while the gang forms again. It is kept, and obeyed afterwards. worker:3
 * ends only when the script ends it. */
static void test_keeps_a_demand(void **state)
{
    static const struct resize_row rows[] = {
        { "worker*4/restart", "go mute:worker:3 resize:worker=3 shrink:2 +100",
          "worker:0=registered worker:1=registered worker:2=registered", "forming", 0 },
        { "worker*4/restart", "go mute:worker:3 resize:worker=3 shrink:2 +100 worker:3!0",
          "worker:0=3.3 worker:1=3.3", "steady", RESIZED },
        { "worker*4/restart/min2", "go mute:worker:3 resize:worker=3 shrink:0 +100 worker:3!0",
          "worker:0=3.3 worker:1=3.3", "steady", RESIZED },
        { "worker*3/restart ps*3/live", "go mute:worker:2 resize:worker=2 shrink:4 worker:2!0",
          "worker:0=2.2 worker:1=2.2 ps:0=2.2 ps:1=2.2", "steady", RESIZED },
        /* the newest demand counts */
        { "worker*5/restart", "go mute:worker:4 resize:worker=4 shrink:1 shrink:2 worker:4!0",
          "worker:0=3.3 worker:1=3.3", "steady", RESIZED },
        /* an offer cancels a part of the demand, or all of it */
        { "worker*5/restart", "go mute:worker:4 resize:worker=4 shrink:1 grow:3 worker:4!0",
          "worker:0=3.3 worker:1=3.3 worker:2=3.3", "steady", RESIZED },
        { "worker*5/restart", "go mute:worker:4 resize:worker=4 shrink:1 grow:9 worker:4!0",
          "worker:0=2.2 worker:1=2.2 worker:2=2.2 worker:3=2.2", "steady", RESIZED },
        /* the next master obeys the demand */
        { "worker*4/restart lost=9", "go mute:worker:3 resize:worker=3 shrink:2 master worker:3!0",
          "worker:0=3.3 worker:1=3.3", "steady", RESIZED },
    };
    (void)state;
    resize_check_all(rows, ARRAY_LEN(rows));
}

/* The scheduler names the slots that should leave. If the gang restarts, others take over their
 * indices. left: the slots that remain, by index. */
static void test_slots_that_should_leave(void **state)
{
    static const struct {
        const char *job, *script, *state;
        uint32_t left[3];
    } rows[] = {
        { "worker*4/restart", "go shrink-leave:2=1", "worker:0=2.2 worker:1=2.2", { 0, 3 } },
        { "worker*4/restart", "go shrink-leave:2=1,2", "worker:0=2.2 worker:1=2.2", { 0, 3 } },
        { "worker*4/restart", "go shrink-leave:2=3,2", "worker:0=2.2 worker:1=2.2", { 0, 1 } },
        { "worker*4/restart",
          "go shrink-leave:3=2,1",
          "worker:0=2.2 worker:1=2.2 worker:2=2.2",
          { 0, 1, 3 } },
        /* index 0 stays; names of no member are passed over */
        { "worker*4/restart",
          "go shrink-leave:2=0,9,x,,1,1",
          "worker:0=2.2 worker:1=2.2",
          { 0, 3 } },
        /* a task that continues keeps its index */
        { "worker*4/live", "go shrink-leave:2=1", "worker:0=1.1 worker:1=1.1", { 0, 1 } },
        /* the next master knows the new indices */
        { "worker*4/restart", "go shrink-leave:2=1 master", "worker:0=2.2 worker:1=2.2", { 0, 3 } },
        /* the slots that left come back with the indices that they have now */
        { "worker*3/restart",
          "go shrink-leave:2=1 resize:worker=3",
          "worker:0=3.3 worker:1=3.3 worker:2=3.2",
          { 0, 2, 1 } },
        /* logs are named by index and attempt: no number is used twice at an index */
        { "worker*4/restart/on/scope-task",
          "go worker:1=1 +9000 worker:1=1 +9000 shrink-leave:2=1",
          "worker:0=2.2 worker:1=2.4",
          { 0, 3 } },
        /* another resize names nobody */
        { "worker*4/restart",
          "go shrink-leave:3=1 resize:worker=2",
          "worker:0=3.3 worker:1=3.3",
          { 0, 3 } },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        AUTO(buf_done) struct buf got = { 0 };
        drive_init(&d, rows[i].job);
        drive_run(&d, rows[i].script);
        resize_shape(&d, &got);
        if (!str_eq(buf_cstr(&got), rows[i].state))
            fail_msg("%s: '%s', not '%s'", rows[i].script, buf_cstr(&got), rows[i].state);
        for (uint32_t k = 0; k < job_role_tasks(d.job, 0); k++)
            if (job_task(d.job, 0, k) != rows[i].left[k])
                fail_msg("%s: index %u is slot %u", rows[i].script, k, job_task(d.job, 0, k));
        drive_done(&d);
    }
}

/* A snapshot has the indices; one in which two tasks have the same index is damaged. */
static void test_indices_in_a_snapshot(void **state)
{
    struct drive d;
    struct err e = { 0 };
    AUTO(buf_done) struct buf lines = { 0 };
    (void)state;
    drive_init(&d, "worker*4/restart");
    drive_run(&d, "go shrink-leave:2=1");
    assert_int_equal(job_snapshot(d.job, &lines), 0);
    for (int bad = 0; bad < 2; bad++) {
        struct job *j = job_new(d.spec, &e);
        struct span rest = buf_span(&lines), line;
        if (bad) { /* slot 1 says that it has index 1, as slot 3 does */
            char *at = strstr(lines.p, "\"index\":4");
            assert_non_null(at);
            at[8] = '2';
        }
        while (span_split(&rest, '\n', &line) && line.len > 0)
            assert_int_equal(job_restore(j, line, &e), 0);
        assert_int_equal(job_restored(j, &e), bad ? -EBADMSG : 0);
        if (!bad)
            assert_int_equal(job_task(j, 0, 1), 3);
        job_free(j);
    }
    drive_done(&d);
}

static void test_a_demand_is_refused_while_the_gang_forms(void **state)
{
    static const struct {
        const char *script, *why;
    } rows[] = {
        { "go mute:worker:3 resize:worker=3 shrink:3",
          "the job is being resized to this size already" },
        { "go mute:worker:3 resize:worker=2 shrink:1",
          "this job cannot run with fewer than 2 containers" },
        { "go mute:worker:3 resize:worker=3 shrink:2 grow:2", "the job is being resized" },
        { "go mute:worker:3 resize:worker=3 shrink:2 resize:worker=4",
          "the job is changing its size" },
        { "go mute:worker:3 resize:worker=3 stop shrink:2", "the job is ending" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        drive_init(&d, "worker*4/restart/min2");
        drive_run(&d, rows[i].script);
        if (d.rc != 1 || !strstr(d.e.msg, rows[i].why))
            fail_msg("[%s]: %d '%s'", rows[i].script, d.rc, d.e.msg);
        drive_done(&d);
    }
}

/* The demand had a deadline of 16 s. It counts from the arrival, not from the end of the first
 * resize. */
static void test_a_kept_demand_has_its_deadline(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*4/restart");
    drive_run(&d, "go mute:worker:3 resize:worker=3 shrink:2");
    int64_t due_ms = d.now + 16000;
    assert_int_equal(d.job->resize.kept.due_ms, due_ms);
    drive_run(&d, "+1000 mute:worker:2 worker:3!0");
    assert_string_equal(resize_state(&d), "forming");
    assert_int_equal(d.job->resize.target[0], 2);
    assert_int_equal(d.job->resize.save_due_ms, due_ms);
    assert_string_equal(d.job->resize.who, "the scheduler");
    assert_string_equal(d.job->resize.why, "room");
    assert_false(d.job->resize.kept.set);
    drive_done(&d);
    drive_init(&d, "worker*4/restart");
    drive_run(&d, "go mute:worker:3 resize:worker=3 shrink:2 stop");
    assert_false(d.job->resize.kept.set);
    drive_done(&d);
}

/* The status document shows the kept demand until the job obeys it. */
static void test_the_status_shows_a_kept_demand(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*4/restart");
    for (int kept = 0; kept < 3; kept++) {
        AUTO(buf_done) struct buf text = { 0 };
        static const char *const scripts[] = { "go mute:worker:3 resize:worker=3", "shrink:2",
                                               "mute:worker:2 worker:3!0" };
        drive_run(&d, scripts[kept]);
        assert_int_equal(job_status_json(d.job, false, &text), 0);
        json_t *doc = json_loadb(text.p, text.len, 0, NULL);
        const json_t *resize = json_object_get(doc, "resize"), *k = json_object_get(resize, "kept");
        assert_string_equal(json_string_value(json_object_get(resize, "state")), "forming");
        assert_int_equal(json_is_object(k), kept == 1);
        if (kept == 1) {
            assert_int_equal(json_integer_value(json_object_get(k, "containers")), 2);
            assert_int_equal(json_integer_value(json_object_get(k, "due_ms")), d.now + 16000);
            assert_string_equal(json_string_value(json_object_get(k, "why")), "room");
        }
        json_decref(doc);
    }
    drive_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resizes_by_the_scheduler),
        cmocka_unit_test(test_waits_for_a_checkpoint),
        cmocka_unit_test(test_the_outcome_names_the_smallest_size),
        cmocka_unit_test(test_keeps_a_demand),
        cmocka_unit_test(test_a_demand_is_refused_while_the_gang_forms),
        cmocka_unit_test(test_a_kept_demand_has_its_deadline),
        cmocka_unit_test(test_the_status_shows_a_kept_demand),
        cmocka_unit_test(test_slots_that_should_leave),
        cmocka_unit_test(test_indices_in_a_snapshot),
    };
    return cmocka_run_group_tests_name("job_resize_demand", tests, NULL, NULL);
}
