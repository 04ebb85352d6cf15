/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The YARN back-end and its containers: starts, stops, status requests to their nodes, and the
 * reasons of their ends. The world is in yarn_world.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/clock.h"
#include "loop/loop.h"
#include "scheduler/yarn/yarn.h"
#include "scheduler/yarn/yarn_int.h"
#include "yarn_world.h"

static void test_ends(void **state)
{
    static const struct {
        int status;
        const char *said;
    } rows[] = {
        { 0, "exited" },           { 137, "unknown" },         { -104, "out_of_memory" },
        { -103, "out_of_memory" }, { -102, "preempted" },      { -101, "disk_failed" },
        { -100, "node_lost" },     { -1000, "launch_failed" }, { 143, "node_lost" },
        { 3, "exited" },           { 139, "unknown" },         { 255, "exited" },
    };
    (void)state;
    world_ask(0, ARRAY_LEN(rows), 100);
    world_until("got:", ARRAY_LEN(rows));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char text[40];
        world_ends((int)i, rows[i].status);
        (void)snprintf(text, sizeof text, "end:%u:%s", w->boxes[i].slot, rows[i].said);
        world_until(text, 1);
    }
}

/* The number of containers of which the back-end has a record. */
static size_t n_records(void)
{
    const struct yarn *y = (const struct yarn *)(const void *)w->s;
    return y->boxes.n;
}

/* Two slots get new containers again and again. No record of the ended ones is left. */
static void test_ends_are_forgotten(void **state)
{
    enum { ROUNDS = 60 };
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        world_ask(0, 2, 100);
        world_until("got:", 2 * (i + 1));
        assert_int_equal(n_records(), 2);
        world_ends(2 * i, 3);
        world_ends(2 * i + 1, i % 2 ? -100 : 0);
        world_until("end:", 2 * (i + 1));
        WORLD_UNTIL(n_records() == 0);
    }
    world_ends(0, 3); /* the ResourceManager repeats a report, as after its restart */
    world_ask(1, 1, 100);
    world_until("got:", 2 * ROUNDS + 1);
    world_until("end:", 2 * ROUNDS);
    assert_int_equal(n_records(), 1);
}

/* The report of a stopped container waits for its turn when the ResourceManager reports its end. */
static void test_an_end_that_crosses_a_stop(void **state)
{
    (void)state;
    w->launches = false;
    world_ask(0, 1, 100);
    world_until("got:", 1);
    w->holds = true;
    world_ends(0, -100);
    assert_int_equal(sched_yarn.stop(w->s, w->ids.v[0], 0, NULL), 0);
    w->holds = false;
    world_until("end:0:", 1);
    WORLD_UNTIL(n_records() == 0);
    world_until("end:0:", 1);
}

static void test_reports_of_the_node(void **state)
{
    (void)state;
    world_ask(0, 2, 100);
    world_until("got:", 2);
    w->health = "1/1 local-dirs are bad";
    world_ends(0, -100);
    world_until("end:0:node_lost", 1);
    assert_non_null(strstr(w->detail, "; node 'n0:45454' reports: 1/1 local-dirs are bad"));
    world_ends(1, -101);
    world_until("end:1:disk_failed", 1);
    assert_non_null(strstr(w->detail, "; node 'n1:45454'"));
    assert_null(strstr(w->detail, "reports"));
}

/* Of both kinds of contract; each is reported once although it is repeated. */
static void test_preemption_notices(void **state)
{
    (void)state;
    world_ask(0, 3, 100);
    world_until("got:", 3);
    w->preempt[0] = 2;
    world_until("preempting:1", 1);
    w->preempt[1] = 3;
    world_until("preempting:2", 1);
    int n = w->n_calls[K_ALLOCATE];
    for (int i = 0; i < 1000 && w->n_calls[K_ALLOCATE] < n + 3; i++)
        world_pass(5);
    assert_true(w->n_calls[K_ALLOCATE] >= n + 3);
    assert_null(strstr(strstr(buf_cstr(&w->said), "preempting:2") + 1, "preempting"));
    world_ends(1, -102);
    world_until("end:1:preempted", 1);
}

/* A node may report the end of a container without knowing the reason: the ResourceManager had it
 * stopped, or the node has restarted. The reason then comes from the ResourceManager. If that gives
 * none, the node's report counts. */
static void test_a_node_without_the_reason_of_an_end(void **state)
{
    static const int32_t at_node[] = { -106, 154, 143, -106 };
    (void)state;
    world_ask(0, 4, 100);
    world_until("got:", 4);
    for (int i = 0; i < 4; i++)
        WORLD_UNTIL(w->boxes[i].starts);
    world_hurry(1);
    for (int i = 0; i < 4; i++)
        w->boxes[i].exit_status = at_node[i];
    for (int i = 0; i < 3; i++) {
        w->boxes[i].ended = true;
        sched_yarn.look(w->s, w->ids.v[i]);
        WORLD_UNTIL(w->boxes[i].looks > 0);
    }
    assert_null(strstr(buf_cstr(&w->said), "end:"));
    world_ends(0, -102);
    world_until("end:0:preempted", 1);
    world_ends(1, -101);
    world_until("end:1:disk_failed", 1);
    world_hurry(50);
    sched_yarn.look(w->s, w->ids.v[2]);
    world_until("end:2:node_lost", 1);
    assert_non_null(strstr(w->detail, "reported no reason"));
    w->boxes[3].ended = true;
    sched_yarn.look(w->s, w->ids.v[3]);
    world_until("end:3:node_lost", 1);
    assert_non_null(strstr(w->detail, "killed by the resource manager"));
}

static void test_stop(void **state)
{
    (void)state;
    w->launches = false;
    world_ask(0, 2, 100);
    world_until("got:", 2);
    /* never launched: the node does not know the container */
    assert_int_equal(sched_yarn.stop(w->s, w->ids.v[0], 0, NULL), 0);
    world_until("end:0:killed_by_master", 1);
    WORLD_UNTIL(w->boxes[0].released);
    assert_int_equal(w->boxes[0].stops, 0);
    /* running: stopped by its node, which is then asked for the result */
    struct sched_container c = { .id = w->ids.v[1], .slot = 1 };
    assert_int_equal(sched_yarn.launch(w->s, &c, 1, NULL), 0);
    WORLD_UNTIL(w->boxes[1].starts);
    assert_int_equal(sched_yarn.stop(w->s, w->ids.v[1], 0, NULL), 0);
    assert_int_equal(sched_yarn.stop(w->s, w->ids.v[1], 0, NULL), 0);
    world_until("end:1:killed_by_master", 1);
    assert_int_equal(w->boxes[1].stops, 1);
    WORLD_UNTIL(!sched_yarn.busy(w->s));
}

/* The ResourceManager reports a released container without waiting for its node. */
static void test_an_end_without_a_report_of_the_node(void **state)
{
    (void)state;
    world_ask(0, 1, 100);
    world_until("got:", 1);
    WORLD_UNTIL(w->boxes[0].starts);
    w->silent_node = true;
    assert_int_equal(sched_yarn.stop(w->s, w->ids.v[0], 0, NULL), 0);
    world_ends(0, -100);
    world_until("end:0:node_lost", 1);
}

static void test_node_does_not_answer(void **state)
{
    (void)state;
    w->silent_node = true;
    world_ask(0, 100, 10);
    world_until("got:", 100);
    for (int i = 0; i < 100; i += 2) /* n0 and n1 alternate */
        WORLD_UNTIL(w->boxes[i].starts == 1);
    for (int i = 1; i < 100; i += 2)
        assert_int_equal(w->boxes[i].starts, 0);
    assert_int_equal(sched_yarn.stop(w->s, w->ids.v[0], 0, NULL), 0);
    world_until("end:0:killed_by_master", 1);
    assert_true(sched_yarn.busy(w->s));
    int beats = w->n_calls[K_ALLOCATE];
    WORLD_UNTIL(w->n_calls[K_ALLOCATE] > beats); /* heartbeats continue */
    w->silent_node = false;
    loop_timer_set(w->timer, clock_mono_ms());
    WORLD_UNTIL(w->boxes[99].starts == 1);
}

static void test_start_errors(void **state)
{
    static const struct {
        const char *class_name, *message, *said;
        int starts, calls;
    } rows[] = {
        { "org.apache.hadoop.yarn.exceptions.YarnException",
          "Unauthorized request to start container. Attempt to relaunch the same container with id "
          "x.",
          NULL, 0, 1 },
        { "org.apache.hadoop.yarn.exceptions.NMNotYetReadyException", "not yet", NULL, 1, 3 },
        { "org.apache.hadoop.yarn.exceptions.YarnException",
          "This token is expired. current time is 1", "end:2:launch_failed", 0, 4 },
        { "org.apache.hadoop.yarn.exceptions.InvalidContainerException", "of another one",
          "end:3:launch_failed", 0, 5 },
    };
    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(rows); i++) {
        w->refuse.class_name = rows[i].class_name;
        w->refuse.message = rows[i].message;
        world_ask(i, 1, 100);
        world_until("got:", (int)i + 1);
        if (rows[i].said)
            world_until(rows[i].said, 1);
        WORLD_UNTIL(w->n_answered[K_START] == rows[i].calls);
        assert_int_equal(w->boxes[i].starts, rows[i].starts);
        if (!rows[i].said)
            assert_null(strstr(buf_cstr(&w->said), "end:"));
        w->boxes[i].starts++; /* the count of the answers */
    }
}

static void test_a_start_without_an_answer_is_repeated(void **state)
{
    (void)state;
    /* The connection broke during the call, and nothing was started. The master asks the node for
     * the status of the container, and starts it again. */
    w->fail[K_START].kind = RPC_FAULT_BROKEN;
    w->fail[K_START].maybe_done = true;
    world_ask(0, 1, 100);
    world_until("got:0", 1);
    WORLD_UNTIL(w->boxes[0].starts == 1);
    assert_int_equal(w->n_calls[K_START], 2);
    /* the node refuses the token: the master gives up after a while */
    w->fail[K_START].kind = RPC_FAULT_AUTH;
    world_ask(1, 1, 100);
    world_until("got:1", 1);
    WORLD_UNTIL(w->boxes[1].starts == 1);
}

static void test_a_status_request_finds_an_end(void **state)
{
    (void)state;
    world_ask(0, 1, 100);
    world_until("got:0", 1);
    WORLD_UNTIL(w->boxes[0].starts);
    w->boxes[0].ended = true; /* the node knows the end before the ResourceManager does */
    w->boxes[0].exit_status = 9;
    sched_yarn.look(w->s, w->ids.v[0]);
    world_until("end:0:exited", 1);
    sched_yarn.look(w->s, w->ids.v[0]);
    sched_yarn.look(w->s, "container_nobody_knows");
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_ends),
        CASE(test_reports_of_the_node),
        CASE(test_preemption_notices),
        CASE(test_a_node_without_the_reason_of_an_end),
        CASE(test_stop),
        CASE(test_an_end_without_a_report_of_the_node),
        CASE(test_node_does_not_answer),
        CASE(test_start_errors),
        CASE(test_a_start_without_an_answer_is_repeated),
        CASE(test_a_status_request_finds_an_end),
        CASE(test_ends_are_forgotten),
        CASE(test_an_end_that_crosses_a_stop),
    };
    log_setup(2, getenv("TONY_TEST_LOG") ? LOG_DEBUG : LOG_ERROR, false);
    return cmocka_run_group_tests_name("sched_yarn_boxes", tests, NULL, NULL);
}
