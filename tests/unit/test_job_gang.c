/* SPDX-License-Identifier: Apache-2.0 */
/* A gang that gets only some of its containers: it gives them back, pauses, and asks again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "drive.h"
#include "job/job.h"

/* Two jobs that each have half of the cluster. */
static void test_gang_gives_back(void **state)
{
    struct drive d;
    struct slot_view v;
    (void)state;

    drive_init(&d, "worker*3 gives=1");
    drive_run(&d, "mute:worker:2 go +20000");
    assert_int_equal(d.n_acts[ACT_CANCEL], 0);
    job_slot(d.job, 0, &v);
    assert_int_equal(v.state, SLOT_REGISTERED);
    drive_run(&d, "+20001"); /* 30 s plus up to 10 s at random */
    assert_int_equal(d.n_acts[ACT_CANCEL], 1);
    assert_int_equal(d.n_acts[ACT_STOP_CONTAINER], 2);
    assert_int_equal(job_state(d.job), JOB_WAITING);
    for (uint32_t i = 0; i < 3; i++) {
        job_slot(d.job, i, &v);
        assert_int_equal(v.state, SLOT_HELD);
        assert_null(v.container);
        assert_null(v.address);
        assert_false(v.connected);
        assert_int_equal(v.result, RES_NONE);
    }
    AUTO(buf_done) struct buf status = { 0 };
    assert_int_equal(job_status_json(d.job, true, &status), 0);
    assert_non_null(strstr(buf_cstr(&status), "\"pausing\":\"only 2 of 3 containers were granted"));
    assert_non_null(strstr(buf_cstr(&status), "(try 2)"));
    /* 5 s plus up to 5 s at random; then it asks again and gets all. */
    drive_run(&d, "heal:worker:2 +10000");
    assert_int_equal(d.n_acts[ACT_ASK], 6);
    assert_int_equal(job_state(d.job), JOB_RUNNING);
    buf_clear(&status);
    assert_int_equal(job_status_json(d.job, true, &status), 0);
    assert_non_null(strstr(buf_cstr(&status), "\"pausing\":null"));
    drive_run(&d, "worker:0=0 worker:1=0 worker:2=0");
    assert_int_equal(job_state(d.job), JOB_SUCCEEDED);
    drive_done(&d);
}

/* Reasons for a gang to keep its containers: the back-end admits whole jobs, the user set a limit,
 * there is no gang, containers still arrive, or there is none to give back. */
static void test_gang_keeps(void **state)
{
    static const struct {
        const char *job, *script;
        unsigned n_cancels;
    } rows[] = {
        { "worker*3", "mute:worker:2 go +400000", 0 },
        { "worker*3 gives=1 gang=0", "mute:worker:2 go +400000", 0 },
        { "worker*3 gives=1 alloc=500000", "mute:worker:2 go +400000", 0 },
        { "worker*3 gives=1", "mute:worker:0 mute:worker:1 mute:worker:2 go +400000", 0 },
        { "worker*4 gives=1",
          "mute:worker:1 mute:worker:2 mute:worker:3 go +29000 grant:worker:1 +29000 "
          "grant:worker:2 +29000",
          0 },
        { "worker*4 gives=1",
          "mute:worker:1 mute:worker:2 mute:worker:3 go +29000 grant:worker:1 +29000 "
          "grant:worker:2 +40001",
          1 },
        /* tasks of an earlier stage keep running: only train gives back; a role that becomes ready
         * in the pause waits until the pause ends */
        { "ps*1 prep*1 train*2<prep eval*1<ps gives=1", "mute:train:1 go prep:0=0 +40001 ps:0=0",
          1 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        drive_init(&d, rows[i].job);
        drive_run(&d, rows[i].script);
        if (d.n_acts[ACT_CANCEL] != rows[i].n_cancels || job_state(d.job) >= JOB_STOPPING)
            fail_msg("[%s] after [%s]: %u cancels, %s", rows[i].job, rows[i].script,
                     d.n_acts[ACT_CANCEL], job_state_name(job_state(d.job)));
        drive_done(&d);
    }
}

/* A host name of 252 characters. With the port and the characters beside it in the list, an address
 * has 261: 500 of them fit into the 131,072 bytes that Linux allows, and 510 do not. */
static const char long_host[] =
    "long-host-name-long-host-name-long-host-name-long-host-name-long-host-name-long-host-name-"
    "long-host-name-long-host-name-long-host-name-long-host-name-long-host-name-long-host-name-"
    "long-host-name-long-host-name-long-host-name-long-host-name-long.example";

static void test_addresses_that_do_not_fit(void **state)
{
    static const struct {
        const char *job, *framework;
        bool file_only;
        unsigned n_starts; /* 0: the job fails */
    } rows[] = {
        { "worker*500", "tensorflow", false, 500 },
        { "worker*510", "tensorflow", false, 0 },
        { "worker*510 retries=3", "tensorflow", false, 0 },
        { "ps*255/untracked worker*255", "tensorflow", false, 0 },
        { "worker*510", "tensorflow", true, 510 },
        { "worker*510", "pytorch", false, 510 },
        { "worker*510 gang=0", "tensorflow", false, 510 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        drive_init(&d, rows[i].job);
        d.host = long_host;
        d.spec->framework = (char *)(uintptr_t)rows[i].framework;
        d.spec->addresses_in_file_only = rows[i].file_only;
        drive_run(&d, "go");
        if (d.n_acts[ACT_START] != rows[i].n_starts)
            fail_msg("row %zu: %u tasks started", i, d.n_acts[ACT_START]);
        if (rows[i].n_starts) {
            assert_int_equal(job_state(d.job), JOB_RUNNING);
        } else {
            struct job_verdict v;
            job_verdict(d.job, &v);
            assert_int_equal(v.state, JOB_FAILED);
            assert_non_null(strstr(v.message, "'tensorflow' needs CLUSTER_SPEC with 13"));
            assert_non_null(strstr(v.message, "TONY_SPEC_FILE"));
            struct job *again = drive_replay(&d, d.journal.n); /* a new master says the same */
            struct job_verdict w;
            job_verdict(again, &w);
            assert_string_equal(w.message, v.message);
            job_free(again);
        }
        drive_done(&d);
    }
}

/* A resize that needs a new gang is refused while the old gang still runs. */
static void test_a_larger_gang_that_does_not_fit(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*450/restart");
    d.host = long_host;
    d.spec->framework = (char *)(uintptr_t) "tensorflow";
    drive_run(&d, "go");
    assert_int_equal(d.n_acts[ACT_START], 450);
    drive_run(&d, "resize:worker=500");
    assert_int_equal(d.n_acts[ACT_START], 450 + 500);
    drive_run(&d, "resize:worker=510");
    assert_int_equal(d.n_acts[ACT_START], 450 + 500);
    assert_int_equal(job_state(d.job), JOB_RUNNING);
    AUTO(buf_done) struct buf status = { 0 };
    assert_int_equal(job_status_json(d.job, false, &status), 0);
    assert_non_null(strstr(buf_cstr(&status), "\"outcome\":\"refused\""));
    assert_non_null(strstr(buf_cstr(&status), "needs CLUSTER_SPEC with 13"));
    drive_done(&d);
}

/* The pause grows up to a limit, and differs between jobs. */
static void test_gang_pauses(void **state)
{
    int64_t gap = 0;
    (void)state;
    for (int other = 0; other < 2; other++) {
        struct drive d;
        drive_init(&d, "worker*2 gives=1");
        drive_feed(&d, &(struct job_event){
                           .type = EV_SUBMITTED,
                           .submitted = { .application_id = other ? "application_1_0002"
                                                                  : "application_1_0001" } });
        drive_run(&d, "mute:worker:1 master");
        for (int round = 0; round < 8; round++) {
            int64_t from = d.now, gave, again;
            while (d.n_acts[ACT_CANCEL] == (unsigned)round)
                drive_run(&d, "+10");
            gave = d.now;
            assert_in_range(gave - from, 30000, 40020);
            while (d.n_acts[ACT_ASK] == 2 + 2 * (unsigned)round)
                drive_run(&d, "+10");
            again = d.now;
            assert_in_range(again - gave, MIN(5000 << round, 60000),
                            MIN(5000 << round, 60000) + 5020);
            if (!round && other)
                assert_true(gave - gap > 100 || gap - gave > 100);
            gap = round ? gap : gave;
        }
        drive_done(&d);
    }
}

/* The master dies while the gang pauses. The next one must not use the containers that were given
 * back. */
static void test_gang_master_dies(void **state)
{
    struct drive d;
    struct slot_view v;
    (void)state;

    drive_init(&d, "worker*2 gives=1");
    drive_run(&d, "mute:worker:0 mute:worker:1 go grant:worker:0 +40001");
    assert_int_equal(d.n_acts[ACT_CANCEL], 1);
    assert_int_equal(d.n_acts[ACT_STOP_CONTAINER], 1);
    drive_run(&d, "master"); /* its container is still there: the stop was lost */
    job_slot(d.job, 0, &v);
    assert_int_equal(v.state, SLOT_HELD);
    assert_int_equal(d.n_acts[ACT_RELEASE] + d.n_acts[ACT_STOP_CONTAINER], 2);
    /* The container is requested again, and the old one is reported. */
    drive_run(&d, "+10001 master");
    job_slot(d.job, 0, &v);
    assert_int_equal(v.state, SLOT_ASKED);
    drive_run(&d, "heal:worker:0 heal:worker:1 grant:worker:0 grant:worker:1");
    drive_run(&d, "worker:0=0 worker:1=0");
    drive_done(&d);
}

/* Stopped in the pause: the job ends at once. */
static void test_gang_stopped_in_pause(void **state)
{
    struct drive d;
    (void)state;

    drive_init(&d, "worker*2 gives=1");
    drive_run(&d, "mute:worker:1 go +40001 stop");
    assert_int_equal(job_state(d.job), JOB_KILLED);
    drive_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gang_gives_back),
        cmocka_unit_test(test_gang_keeps),
        cmocka_unit_test(test_addresses_that_do_not_fit),
        cmocka_unit_test(test_a_larger_gang_that_does_not_fit),
        cmocka_unit_test(test_gang_pauses),
        cmocka_unit_test(test_gang_master_dies),
        cmocka_unit_test(test_gang_stopped_in_pause),
    };
    return cmocka_run_group_tests_name("job_gang", tests, NULL, NULL);
}
