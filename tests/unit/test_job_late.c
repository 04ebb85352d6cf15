/* SPDX-License-Identifier: Apache-2.0 */
/* Events that come late, twice, with an old fence, or never: masters that die, messages that are
 * lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "drive.h"
#include "job/job.h"

/* Events that repeat known facts or have an old fence. */
static void test_fences(void **state)
{
    struct drive d;

    (void)state;
    drive_init(&d, "worker*2");
    drive_run(&d, "go");
    uint32_t id = drive_slot(&d, "worker:1");
    const struct {
        struct job_event ev;
        int rc;
    } rows[] = {
        { { .type = EV_SUBMITTED }, 1 },
        { { .type = EV_MASTER_STARTED, .master_started = { .epoch = 1 } }, 1 },
        { { .type = EV_MASTER_STARTED, .master_started = { .epoch = 0 } }, 1 },
        { { .type = EV_RESYNCED }, 1 },
        { { .type = EV_NONE }, 1 },
        { { .type = EV_COUNT }, 1 },
        { { .type = EV_TIMER }, 1 },
        { { .type = EV_BEAT, .beat = { .slot = 2 } }, 1 },
        { { .type = EV_BEAT, .beat = { .slot = id } }, 0 },
        { { .type = EV_REGISTERED, .registered = { .slot = id, .container = "other" } }, 1 },
        { { .type = EV_REGISTERED, .registered = { .slot = id } }, 1 },
        { { .type = EV_COMPLETED, .completed = { .slot = id, .container = "other" } }, 1 },
        { { .type = EV_CONTAINER_SEEN, .container_seen = { .slot = id, .container = "other" } },
          1 },
        { { .type = EV_ALLOCATION_REFUSED, .allocation_refused = { .slot = id } }, 1 },
        { { .type = EV_ATTEMPT_STARTED,
            .attempt_started = { .slot = id, .generation = 1, .attempt = 2 } },
          1 },
        { { .type = EV_ATTEMPT_STARTED,
            .attempt_started = { .slot = id, .generation = 0, .attempt = 1 } },
          1 },
        { { .type = EV_ATTEMPT_STARTED,
            .attempt_started = { .slot = id, .generation = 1, .attempt = 1 } },
          0 },
        { { .type = EV_ATTEMPT_ENDED,
            .attempt_ended = { .slot = id, .generation = 0, .attempt = 1, .reason = END_EXITED } },
          1 },
        { { .type = EV_ATTEMPT_ENDED,
            .attempt_ended = { .slot = id, .generation = 1, .attempt = 0, .reason = END_EXITED } },
          1 },
        { { .type = EV_EXECUTOR_BACK,
            .executor_back = { .slot = id, .container = "c1.2", .generation = 1, .attempt = 2 } },
          1 },
        { { .type = EV_TIMER, .timer = { .slot = id, .limit = LIMIT_REGISTRATION } }, 1 },
        { { .type = EV_TIMER, .timer = { .slot = id, .limit = LIMIT_STOP } }, 1 },
        { { .type = EV_TIMER, .timer = { .limit = LIMIT_GROUP, .group = 0 } }, 1 },
        { { .type = EV_TIMER, .timer = { .limit = LIMIT_COUNT } }, 1 },
        { { .type = EV_SHRINK, .shrink = { .n_containers = 99 } },
          1 }, /* the job has fewer containers */
        { { .type = EV_STALLED, .stalled = { .stalled_ms = 1000 } },
          1 }, /* longer than the job's age */
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        int rc = job_feed(d.job, &rows[i].ev, 0, &d.acts, &e);
        if (rc != rows[i].rc || (rc && !e.msg[0]))
            fail_msg("row %zu (%s): %d '%s'", i, job_event_name(rows[i].ev.type), rc, e.msg);
        d.acts.n = 0;
    }
    /* each result is acknowledged, also a known or refused one */
    drive_run(&d, "mute:worker:1 worker:1=3");
    assert_string_equal(d.last_ack, "1 1.1");
    unsigned acks = d.n_acts[ACT_ACK];
    drive_feed(
        &d, &(struct job_event){ .type = EV_ATTEMPT_ENDED,
                                 .attempt_ended = { .slot = 1, .generation = 1, .attempt = 1 } });
    drive_feed(
        &d, &(struct job_event){ .type = EV_ATTEMPT_ENDED,
                                 .attempt_ended = { .slot = 1, .generation = 1, .attempt = 7 } });
    assert_int_equal(d.n_acts[ACT_ACK], acks + 2);
    assert_string_equal(d.last_ack, "1 1.7");
    /* of two reports about the same end, the first one counts */
    drive_run(&d, "worker:1!0");
    struct slot_view v;
    job_slot(d.job, 1, &v);
    assert_int_equal(v.result, RES_FAILED);
    assert_int_equal(v.exit_code, 3);
    assert_string_equal(v.tail, "last words\n");
    drive_done(&d);
}

/* A container that is not needed is given back; an unknown one is stopped. */
static void test_containers_that_are_not_needed(void **state)
{
    struct drive d;

    (void)state;
    drive_init(&d, "worker*2");
    drive_run(&d, "go");
    assert_int_equal(job_feed(d.job,
                              &(struct job_event){ .type = EV_ALLOCATED,
                                                   .allocated = { .slot = 0, .container = "x" } },
                              0, &d.acts, NULL),
                     1);
    assert_int_equal(d.acts.n, 1);
    assert_int_equal(d.acts.v[0].type, ACT_RELEASE);
    assert_string_equal(d.acts.v[0].release.container, "x");
    d.acts.n = 0;
    drive_feed(&d,
               &(struct job_event){ .type = EV_MASTER_STARTED, .master_started = { .epoch = 2 } });
    struct job_event other = { .type = EV_CONTAINER_SEEN,
                               .container_seen = {
                                   .slot = 1, .container = "y", .launched = true } };
    assert_int_equal(job_feed(d.job, &other, 0, &d.acts, NULL), 1);
    assert_int_equal(d.acts.v[0].type, ACT_STOP_CONTAINER);
    assert_string_equal(d.acts.v[0].stop_container.container, "y");
    d.acts.n = 0;
    drive_done(&d);
    drive_init(&d, "worker*2");
    drive_run(&d, "mute:worker:1 go");
    assert_int_equal(
        drive_feed(&d, &(struct job_event){ .type = EV_ALLOCATED,
                                            .allocated = { .slot = 0, .container = "x" } }),
        1);
    assert_int_equal(d.n_acts[ACT_RELEASE], 1);
    drive_run(&d, "mute:worker:0 stop");
    assert_int_equal(
        drive_feed(&d, &(struct job_event){ .type = EV_ALLOCATED,
                                            .allocated = { .slot = 1, .container = "y" } }),
        1);
    assert_int_equal(d.n_acts[ACT_RELEASE], 2);
    drive_feed(&d,
               &(struct job_event){ .type = EV_MASTER_STARTED, .master_started = { .epoch = 2 } });
    unsigned stops = d.n_acts[ACT_STOP_CONTAINER];
    drive_feed(&d, &(struct job_event){
                       .type = EV_CONTAINER_SEEN,
                       .container_seen = { .slot = 1, .container = "z", .launched = true } });
    assert_int_equal(d.n_acts[ACT_STOP_CONTAINER], stops + 1);
    drive_feed(&d, &(struct job_event){ .type = EV_CONTAINER_SEEN,
                                        .container_seen = { .slot = 1, .container = "z" } });
    assert_int_equal(d.n_acts[ACT_RELEASE], 3);
    drive_done(&d);
}

/* Facts that the old master did not write, or did not send, before it died. */
static void test_facts_that_the_old_master_did_not_write(void **state)
{
    struct drive d;
    struct slot_view v;

    (void)state;
    drive_init(&d, "worker*2");
    drive_run(&d, "mute:worker:1 go");
    /* The job does not know this container. */
    str_copy(d.slots[1].container, sizeof d.slots[1].container, "granted");
    d.slots[1].mute = false;
    drive_run(&d, "master");
    job_slot(d.job, 1, &v);
    assert_string_equal(v.container, "granted");
    assert_int_equal(v.state, SLOT_RUNNING);
    unsigned starts = d.n_acts[ACT_START];
    struct job_event back = {
        .type = EV_EXECUTOR_BACK,
        .executor_back = { .slot = 1, .container = "granted", .generation = 1, .attempt = 1 }
    };
    assert_int_equal(drive_feed(&d, &back), 0);
    assert_int_equal(d.n_acts[ACT_START], starts);
    /* The executor did not get the Start. */
    back.executor_back.generation = back.executor_back.attempt = 0;
    assert_int_equal(drive_feed(&d, &back), 0);
    assert_int_equal(d.n_acts[ACT_START], starts + 1);
    job_slot(d.job, 1, &v);
    assert_int_equal(v.attempt, 1);
    /* the same when it registers again; its new address counts */
    assert_int_equal(drive_feed(&d, &(struct job_event){ .type = EV_REGISTERED,
                                                         .registered = { .slot = 1,
                                                                         .container = "granted",
                                                                         .address = "h:2" } }),
                     0);
    assert_int_equal(d.n_acts[ACT_START], starts + 2);
    job_slot(d.job, 1, &v);
    assert_string_equal(v.address, "h:2");
    drive_done(&d);
}

/* The old master died before it wrote that it asked for the container of a slot whose stage had not
 * come. If an executor was started in it, the stage had come: the slot keeps it. If not, the
 * container is given back, and the slot waits for its stage. */
static void test_a_container_of_a_slot_that_has_not_asked(void **state)
{
    struct drive d;
    struct slot_view v;
    struct job_event seen = { .type = EV_CONTAINER_SEEN,
                              .container_seen = { .slot = 1, .container = "granted" } };
    (void)state;
    drive_init(&d, "prep*1 train*1<prep");
    drive_run(&d, "go");
    (void)drive_feed(
        &d, &(struct job_event){ .type = EV_MASTER_STARTED, .master_started = { .epoch = 2 } });
    assert_int_equal(drive_feed(&d, &seen), 1);
    assert_int_equal(d.n_acts[ACT_RELEASE], 1);
    job_slot(d.job, 1, &v);
    assert_int_equal(v.state, SLOT_HELD);
    seen.container_seen.launched = true;
    assert_int_equal(drive_feed(&d, &seen), 0);
    job_slot(d.job, 1, &v);
    assert_int_equal(v.state, SLOT_PLACED);
    assert_string_equal(v.container, "granted");
    drive_done(&d);
}

/* The report of an end arrives before the record of the start. The executor keeps the end until the
 * start is recorded. */
static void test_an_end_is_reported_before_the_start(void **state)
{
    struct drive d;
    struct slot_view v;

    (void)state;
    drive_init(&d, "worker*2");
    drive_run(&d, "mute:worker:1 go"); /* the gang waits for this task */
    struct job_event end = { .type = EV_ATTEMPT_ENDED,
                             .attempt_ended = { .slot = 0,
                                                .generation = 1,
                                                .attempt = 1,
                                                .exit_code = 3,
                                                .reason = END_EXITED } };
    assert_int_equal(drive_feed(&d, &end), 1);
    assert_int_equal(d.n_acts[ACT_ACK], 0);
    const struct job_event other[] = {
        { .type = EV_ALLOCATED, .allocated = { .slot = 1, .container = "granted" } },
        { .type = EV_REGISTERED,
          .registered = { .slot = 1, .container = "granted", .address = "h:2" } },
    };
    for (size_t i = 0; i < ARRAY_LEN(other); i++)
        assert_int_equal(drive_feed(&d, &other[i]), 0);
    assert_int_equal(d.n_acts[ACT_START], 2);
    assert_int_equal(drive_feed(&d, &end), 0);
    assert_int_equal(d.n_acts[ACT_ACK], 1);
    job_slot(d.job, 0, &v);
    assert_int_equal(v.exit_code, 3);
    /* the master does not ask again about an attempt that cannot have begun */
    end.attempt_ended.attempt = 2;
    assert_int_equal(drive_feed(&d, &end), 1);
    assert_int_equal(d.n_acts[ACT_ACK], 2);
    drive_done(&d);
}

static void test_silence_is_shown_and_stalls_are_forgiven(void **state)
{
    struct drive d;
    struct slot_view v;

    (void)state;
    drive_init(&d, "worker*2 missed=5");
    drive_run(&d, "go +100 mute:worker:1 +2800");
    job_slot(d.job, 1, &v);
    assert_false(v.suspect);
    drive_run(&d, "+1000");
    job_slot(d.job, 1, &v);
    assert_true(v.suspect);
    drive_run(&d, "beat:worker:1");
    job_slot(d.job, 1, &v);
    assert_false(v.suspect);
    /* the master was stopped for 10 s: no executor is blamed */
    d.now += 10000;
    drive_feed(&d, &(struct job_event){ .type = EV_STALLED, .stalled = { .stalled_ms = 10000 } });
    d.next_beat = d.now + 1000;
    drive_run(&d, "+2500");
    job_slot(d.job, 1, &v);
    assert_int_equal(v.state, SLOT_RUNNING);
    assert_false(v.suspect);
    drive_run(&d, "+4000");
    job_slot(d.job, 1, &v);
    assert_int_equal(v.result, RES_LOST);
    assert_int_equal(d.n_acts[ACT_STOP_CONTAINER] > 0, true);
    drive_done(&d);
}

/* An executor whose task has ended gets time to exit by itself. */
static void test_draining_has_time(void **state)
{
    struct drive d;

    (void)state;
    drive_init(&d, "prep*1 train*1<prep");
    drive_run(&d, "go mute:prep:0 prep:0=0 +2900");
    assert_int_equal(d.n_acts[ACT_STOP_CONTAINER], 0);
    drive_run(&d, "+200");
    assert_int_equal(d.n_acts[ACT_STOP_CONTAINER], 1);
    drive_run(&d, "+2700");
    assert_int_equal(d.n_acts[ACT_STOP_CONTAINER], 1);
    drive_run(&d, "+300");
    assert_int_equal(d.n_acts[ACT_STOP_CONTAINER], 2);
    drive_done(&d);
}

/* The scheduler refuses a container for a slot that has one: the event is refused, so the journal
 * does not have it. */
static void test_a_refusal_that_comes_late(void **state)
{
    struct drive d;

    (void)state;
    drive_init(&d, "worker*1 retries=1 lost=0");
    drive_run(&d, "go");
    assert_int_equal(drive_feed(&d, &(struct job_event){ .type = EV_ALLOCATION_REFUSED,
                                                         .allocation_refused = { .slot = 0 } }),
                     1);
    drive_run(&d, "mute:worker:0 worker:0!1 +1");
    struct job *again = drive_replay(&d, d.journal.n);
    assert_int_equal(job_state(d.job), job_state(again));
    assert_int_equal(job_retries(d.job), 1);
    job_free(again);
    drive_done(&d);
}

static void test_stop_is_durable_first(void **state)
{
    struct drive d;

    (void)state;
    drive_init(&d, "worker*2");
    drive_run(&d, "go");
    assert_int_equal(job_feed(d.job,
                              &(struct job_event){ .type = EV_STOP, .stop = { .why = "enough" } },
                              0, &d.acts, NULL),
                     0);
    assert_true(d.acts.n >= 3);
    assert_int_equal(d.acts.v[0].type, ACT_SYNC);
    assert_int_equal(d.acts.v[1].type, ACT_STOP_ATTEMPT);
    assert_int_equal(d.acts.v[1].stop_attempt.grace_ms, 5000);
    assert_int_equal(d.acts.v[1].stop_attempt.reason, END_KILLED_BY_MASTER);
    struct job_verdict v;
    job_verdict(d.job, &v);
    assert_int_equal(v.state, JOB_STOPPING);
    assert_string_equal(v.message, "killed: enough");
    drive_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fences),
        cmocka_unit_test(test_containers_that_are_not_needed),
        cmocka_unit_test(test_facts_that_the_old_master_did_not_write),
        cmocka_unit_test(test_a_container_of_a_slot_that_has_not_asked),
        cmocka_unit_test(test_an_end_is_reported_before_the_start),
        cmocka_unit_test(test_silence_is_shown_and_stalls_are_forgiven),
        cmocka_unit_test(test_draining_has_time),
        cmocka_unit_test(test_a_refusal_that_comes_late),
        cmocka_unit_test(test_stop_is_durable_first),
    };
    return cmocka_run_group_tests_name("job_late", tests, NULL, NULL);
}
