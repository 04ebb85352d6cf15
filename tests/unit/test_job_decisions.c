/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decisions in the journal. A job is replayed with other rules: here with another job file, as a
 * later version might interpret the same file differently. It must reach the state that it had, not
 * the state that the other rules lead to. Journals of format 1 have no decisions: there the rules
 * decide.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "drive.h"
#include "job/job.h"
#include "torture.h"

struct life {
    const char *job;    /* the job whose journal is recorded */
    const char *script; /* the events of this job */
    const char *other;  /* the job file of the replay */
};

static const struct life lives[] = {
    /* by the other rules no task would restart; or a task would restart that did not; or other
     * tasks would; or the budget for lost nodes is another one */
    { "worker*3/on/max9", "go worker:1=1 +5000 worker:0=0 worker:1=0 worker:2=0", "worker*3" },
    { "worker*3", "go worker:1=1 +5000 worker:0=0 worker:2=0", "worker*3/on/max9" },
    { "worker*3/on/scope-task/max9", "go worker:1=1 +5000 worker:0=0 worker:1=0 worker:2=0",
      "worker*3/on/scope-job/max9" },
    { "worker*3/on/scope-job/max9", "go worker:1=1 +5000 worker:0=0 worker:1=0 worker:2=0",
      "worker*3/on/scope-task/max9" },
    { "worker*2 lost=3", "go worker:1=lost +5000 worker:0=0 worker:1=0", "worker*2 lost=0" },
    { "worker*2 lost=0", "go worker:1=lost +5000 worker:0=0", "worker*2 lost=3" },
    /* by the other rules the failure would end the job, although it did not; or the reverse */
    { "chief*1 worker*2", "go worker:1=1 +100 worker:0=0 chief:0=0", "chief*1 worker*2 fail=1" },
    { "chief*1 worker*2 fail=1", "go mute:worker:0 mute:chief:0 worker:1=1 +100",
      "chief*1 worker*2" },
    { "worker*2", "go worker:0=0 worker:1=7", "worker*2/on/max3" },
    /* by the other rules the whole job would not restart, although it did; or the reverse */
    { "worker*2/stop retries=1", "go worker:1=1 +60000 worker:0=0 worker:1=0", "worker*2/stop" },
    { "worker*2/stop", "go worker:1=1 +60000", "worker*2/stop retries=1" },
    { "single=1 retries=1", "go driver:0=1 +60000 driver:0=0", "single=1" },
    /* by the other rules the resize would be refused */
    { "worker*2/restart lost=9", "go resize:worker=4 +100 resize:worker=1 +100",
      "worker*2/fixed lost=9" },
    { "worker*2/restart lost=9 nogrant=2", "go resize:worker=3 +100", "worker*2/fixed lost=9" },
    /* one event ends two resizes: the second replaces the first, and is complete */
    { "worker*2/live nogrant=2", "go resize:worker=4 +100 resize:worker=1", "worker*2/fixed" },
    /* killed, and stopped because time ran out */
    { "worker*2", "go stop +60000", "worker*2/on/max3" },
};

static struct job *replay_with(const struct life *life, const struct drive *d, bool decisions,
                               struct drive *other)
{
    *other = (struct drive){ .spec = drive_spec(life->other) };
    struct job *j = job_new(other->spec, NULL);
    struct job_actions ignored = { 0 };

    assert_non_null(j);
    job_replaying(j, decisions);
    for (size_t i = 0; i < d->journal.n; i++) {
        struct job_event ev;
        struct err e = { 0 };
        void *holder;
        int64_t t;
        assert_int_equal(drive_record(d->journal.v[i], &ev, &t, &holder), 0);
        int rc = job_feed(j, &ev, t, &ignored, &e);
        if (rc < 0 || (rc > 0 && decisions))
            fail_msg("[%s] with the rules of [%s]: %s: %s", life->job, life->other, d->journal.v[i],
                     e.msg);
        job_event_release(holder);
    }
    job_replaying(j, false);
    free(ignored.v);
    return j;
}

/* The parts of the state that users see. */
static void describe(const struct job *j, struct buf *out)
{
    assert_int_equal(job_status_json(j, true, out), 0);
}

static void test_a_replay_with_other_rules(void **state)
{
    unsigned n_different = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lives); i++) {
        struct drive d, by_decisions, by_rules;
        AUTO(buf_done) struct buf then = { 0 }, now = { 0 }, ruled = { 0 };
        drive_init(&d, lives[i].job);
        drive_run(&d, lives[i].script);
        describe(d.job, &then);

        struct job *j = replay_with(&lives[i], &d, true, &by_decisions);
        describe(j, &now);
        if (!str_eq(buf_cstr(&then), buf_cstr(&now)))
            fail_msg("[%s] %s\nthen %s\nwith the rules of [%s]\n now %s", lives[i].job,
                     lives[i].script, buf_cstr(&then), lives[i].other, buf_cstr(&now));
        job_free(j);

        struct job *k = replay_with(&lives[i], &d, false, &by_rules);
        describe(k, &ruled);
        if (str_eq(buf_cstr(&then), buf_cstr(&ruled)))
            print_message("[%s] and [%s] are the same\n", lives[i].job, lives[i].other);
        else
            n_different++;
        job_free(k);
        drive_spec_free(by_decisions.spec);
        drive_spec_free(by_rules.spec);
        drive_done(&d);
    }
    /* Otherwise the rules did not differ, and the test proves nothing. */
    assert_int_equal(n_different, ARRAY_LEN(lives) - 1); /* all but the last */
}

static unsigned count(const struct drive *d, const char *event)
{
    unsigned n = 0;
    for (size_t i = 0; i < d->journal.n; i++)
        n += strstr(d->journal.v[i], event) != NULL;
    return n;
}

/* Each decision has a record, and without a decision there is none. */
static void test_which_decisions_are_recorded(void **state)
{
    static const struct {
        const char *job, *script;
        unsigned n_restarts, n_resizes, n_verdicts;
    } rows[] = {
        { "worker*3", "go +100 worker:0=0 worker:1=0", 0, 0, 0 },
        { "worker*3", "go +100 worker:0=0 worker:1=0 worker:2=0", 0, 0, 1 },
        { "worker*2/on/max9", "go worker:1=1 +5000", 1, 0, 0 },
        { "chief*1 worker*2", "go worker:1=1 +100", 1, 0, 0 }, /* no task restarts */
        { "worker*2/restart lost=9", "go resize:worker=4 +100", 0, 2, 0 },
        { "worker*2", "go stop +60000", 0, 0, 2 }, /* the verdict, and the end of the job */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        drive_init(&d, rows[i].job);
        drive_run(&d, rows[i].script);
        unsigned restarts = count(&d, "decided_restart"), resizes = count(&d, "decided_resize"),
                 verdicts = count(&d, "decided_verdict");
        if (restarts != rows[i].n_restarts || resizes != rows[i].n_resizes ||
            verdicts != rows[i].n_verdicts)
            fail_msg("[%s] %s: %u restarts, %u resizes, %u verdicts", rows[i].job, rows[i].script,
                     restarts, resizes, verdicts);
        drive_done(&d);
    }
}

/* A crash between the decision and its event: the next master ignores the decision, and writes its
 * own records after it. */
static void test_torn(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*2");
    drive_run(&d, "go mute:worker:1 worker:0=1");
    assert_int_equal(job_state(d.job), JOB_STOPPING);
    while (!strstr(d.journal.v[d.journal.n - 1], "\"e\":\"attempt_ended\""))
        free(d.journal.v[--d.journal.n]);
    free(d.journal.v[--d.journal.n]);
    assert_non_null(strstr(d.journal.v[d.journal.n - 1], "decided_verdict"));
    drive_resume(&d, d.journal.n, true);
    assert_int_equal(job_state(d.job), JOB_RUNNING);
    drive_run(&d, "heal:worker:1 worker:0=0 worker:1=0");
    assert_int_equal(job_state(d.job), JOB_SUCCEEDED);
    struct job *again = drive_replay(&d, d.journal.n);
    assert_int_equal(job_state(again), JOB_SUCCEEDED);
    job_free(again);
    drive_done(&d);
}

static unsigned n_restarts_decided(const struct job *j)
{
    struct job_event ev;
    unsigned n = 0;
    for (size_t i = 0; job_decision(j, i, &ev); i++)
        n += ev.type == EV_DECIDED_RESTART;
    return n;
}

/* decisions_reserve(): an event is refused for want of memory, or all its decisions about restarts
 * are noted. A resync that finds all containers lost decides on each slot. */
static void test_no_decision_is_lost_without_memory(void **state)
{
    static const struct job_event resynced = { .type = EV_RESYNCED };
    enum { N = 40 };
    bool hit = true;
    unsigned n_refused = 0;
    (void)state;
    for (unsigned nth = 1; hit; nth++) {
        struct drive d;
        struct job_actions acts = { 0 };
        struct err e = { 0 };
        drive_init(&d, "worker*40/on/max9/scope-task lost=9");
        drive_run(&d, "go");
        struct job_event started = { .type = EV_MASTER_STARTED, .master_started = { .epoch = 2 } };
        assert_int_equal(job_feed(d.job, &started, d.now, &acts, &e), 0);
        torture_arm(nth, true);
        int rc = job_feed(d.job, &resynced, d.now, &acts, &e);
        hit = torture_hit();
        torture_arm(0, false);
        if (rc == -ENOMEM) { /* it may be fed again */
            n_refused++;
            rc = job_feed(d.job, &resynced, d.now, &acts, &e);
        }
        assert_int_equal(rc, 0);
        if (n_restarts_decided(d.job) != N)
            fail_msg("allocation %u fails: %u restarts are noted", nth, n_restarts_decided(d.job));
        vec_done(&acts);
        drive_done(&d);
    }
    assert_true(n_refused > 0);
}

/* Records that only a newer version, or no version, writes. */
static void test_bad_records(void **state)
{
    static const char *const bad[] = {
        "{\"e\":\"decided_restart\",\"t\":1,\"by\":\"stop\",\"slot\":0,\"attempt\":1,\"scope\":"
        "\"rack\"}",
        "{\"e\":\"decided_resize\",\"t\":1,\"by\":\"resize\",\"outcome\":\"perhaps\"}",
        "{\"e\":\"decided_resize\",\"t\":1,\"by\":\"resize\"}",
        "{\"e\":\"decided_verdict\",\"t\":1,\"state\":\"FAILED\"}",
        "{\"e\":\"decided_verdict\",\"t\":1,\"by\":\"sunset\",\"state\":\"FAILED\"}",
        "{\"e\":\"decided_verdict\",\"t\":1,\"by\":\"stop\",\"state\":\"RUNNING\",\"slot\":0}",
        "{\"e\":\"decided_verdict\",\"t\":1,\"by\":\"stop\",\"slot\":0}",
        "{\"e\":\"decided_verdict\",\"t\":1,\"by\":\"stop\",\"state\":\"FAILED\",\"has_first\":"
        "true,\"slot\":9}",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct drive d;
        struct job_event ev;
        struct err e = { 0 };
        void *holder;
        int64_t t;
        drive_init(&d, "worker*2");
        drive_run(&d, "go");
        job_replaying(d.job, true);
        assert_int_equal(drive_record(bad[i], &ev, &t, &holder), 0);
        if (job_feed(d.job, &ev, t, &d.acts, &e) != -EBADMSG || !*e.msg)
            fail_msg("%s: taken", bad[i]);
        job_event_release(holder);
        drive_done(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_replay_with_other_rules),
        cmocka_unit_test(test_which_decisions_are_recorded),
        cmocka_unit_test(test_torn),
        cmocka_unit_test(test_no_decision_is_lost_without_memory),
        cmocka_unit_test(test_bad_records),
    };
    return cmocka_run_group_tests_name("job_decisions", tests, NULL, NULL);
}
