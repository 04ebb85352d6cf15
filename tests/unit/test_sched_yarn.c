/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The YARN back-end and its ResourceManager: requests and grants, lost answers, restarts, tokens,
 * and what a second master is told. The world is in yarn_world.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/clock.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "scheduler/yarn/yarn.h"
#include "scheduler/yarn/yarn_int.h"
#include "yarn_world.h"

static void test_a_job(void **state)
{
    (void)state;
    assert_string_equal(w->page, "http://10.1.2.3:7001/");
    world_ask(0, 3, 1024);
    world_until("got:", 3);
    WORLD_UNTIL(w->boxes[0].starts && w->boxes[1].starts && w->boxes[2].starts);
    assert_int_equal(w->n_asks, 3);  /* each node once */
    assert_int_equal(w->n_racks, 3); /* and its rack */
    for (int i = 0; i < 3; i++)
        assert_int_equal(w->boxes[i].starts, 1);
    assert_non_null(strstr(w->env, "TONY_MASTER_ADDRESS=10.1.2.3:7000\n"));
    assert_non_null(strstr(w->env, "TONY_SLOT="));
    assert_non_null(strstr(w->env, "K=v=1\n"));
    assert_non_null(strstr(w->env, "PATH=/usr/local/sbin:"));
    assert_string_equal(w->command,
                        "exec ./tony-executor --container 1>/dev/null 2><LOG_DIR>/executor.log");
    assert_true(w->n_tokens > 32);
    assert_int_equal(w->n_resources, 1); /* not the resource that only ps needs */
    world_ends(0, 0);
    world_ends(1, 3);
    world_until("end:", 2);
    assert_non_null(strstr(buf_cstr(&w->said), "end:0:exited"));
    assert_non_null(strstr(buf_cstr(&w->said), "end:1:exited"));
    world_ends(0, 0); /* reported again */
    world_pass(60);
    assert_null(strstr(strstr(buf_cstr(&w->said), "end:0") + 1, "end:0"));
    w->finish_after = 2;
    world_finish("FAILED", "task 'worker:1' failed");
    assert_int_equal(w->n_calls[K_FINISH], 3);
    assert_string_equal(w->diagnostics, "task 'worker:1' failed");
}

static void test_requests_above_the_clusters_limits(void **state)
{
    (void)state;
    world_ask(0, 1, 5000);
    world_until("refused:0:asks for 5000 MiB, and this cluster gives a container 4096 MiB at most",
                1);
    struct sched_ask a = { .slot = 1, .memory_mib = 10, .vcores = 9, .role = "worker" };
    assert_int_equal(sched_yarn.request(w->s, &a, 1, NULL), 0);
    world_until("refused:1:asks for 9 vcores", 1);
    struct sched_ask g = { .slot = 2, .memory_mib = 10, .vcores = 1, .role = "gpu" };
    assert_int_equal(sched_yarn.request(w->s, &g, 1, NULL), 0);
    world_until("refused:2:asks for 1 of 'yarn.io/gpu', which this cluster does not know", 1);
    /* the refusal of a request that was withdrawn does not count for the next one of this slot */
    world_ask(4, 1, 5000);
    assert_int_equal(sched_yarn.cancel(w->s, (uint32_t[]){ 4 }, 1, NULL), 0);
    world_ask(4, 1, 10);
    world_until("got:4", 1);
    assert_null(strstr(buf_cstr(&w->said), "refused:4"));
    /* the cluster refuses one of several requests: it is found */
    w->grants = false;
    w->fail[K_ALLOCATE].kind = RPC_FAULT_INVALID_RESOURCE;
    w->fail[K_ALLOCATE].line = "no such label";
    world_ask(3, 1, 10);
    world_until("refused:3:no such label", 1);
}

static void test_surplus_grants_and_cancelled_requests(void **state)
{
    (void)state;
    w->grants = false;
    world_ask(0, 2, 100);
    WORLD_UNTIL(w->want[0] && w->want[1]);
    uint32_t slots[] = { 1 };
    assert_int_equal(sched_yarn.cancel(w->s, slots, 1, NULL), 0);
    world_grant(1); /* the grant crosses the request */
    world_grant(0);
    world_until("got:0", 1);
    WORLD_UNTIL(w->boxes[0].released && !w->want[1]);
    assert_null(strstr(buf_cstr(&w->said), "got:1"));
    assert_false(w->boxes[1].released);
}

static void test_answer_lost(void **state)
{
    (void)state;
    w->grants = false;
    w->fail[K_ALLOCATE].kind = RPC_FAULT_BROKEN;
    w->fail[K_ALLOCATE].maybe_done = true;
    world_ask(0, 1, 100); /* the server lost it: the request is repeated, at most twice */
    WORLD_UNTIL(w->want[0]);
    assert_in_range(w->n_asks, 1, 2);
    w->id += 4; /* the server expects another response id: the master adopts it */
    w->grants = true;
    world_ask(1, 1, 100);
    world_until("got:", 2);
}

static void test_rm_restart(void **state)
{
    (void)state;
    w->grants = false;
    world_ask(0, 2, 100);
    WORLD_UNTIL(w->want[0] && w->want[1]);
    world_grant(0);
    world_until("got:0", 1);
    memset(w->want, 0, sizeof w->want); /* the ResourceManager has forgotten the requests */
    w->fail[K_ALLOCATE].kind = RPC_FAULT_NOT_REGISTERED;
    WORLD_UNTIL(w->n_calls[K_REGISTER] == 2 && w->want[1]);
    assert_false(w->want[0]);
    assert_null(strstr(buf_cstr(&w->said) + 4, "reg"));
    w->fail[K_FINISH].kind = RPC_FAULT_NOT_REGISTERED;
    world_finish("SUCCEEDED", "");
    assert_int_equal(w->n_calls[K_REGISTER], 3);
    assert_string_equal(w->diagnostics, "SUCCEEDED");
}

/* Two threads take up two simultaneous calls in any order. */
static void test_finish_waits_for_the_heartbeat(void **state)
{
    (void)state;
    w->grants = false;
    w->holds = true;
    world_ask(0, 1, 100);
    WORLD_UNTIL(w->n_calls[K_ALLOCATE] > w->n_answered[K_ALLOCATE]);
    world_begin_finish("SUCCEEDED", "");
    world_pass(30);
    assert_int_equal(w->n_calls[K_FINISH], 0);
    world_grant(0);
    w->holds = false;
    loop_timer_set(w->timer, clock_mono_ms());
    world_until("finished ", 1);
    assert_int_equal(w->n_calls[K_ALLOCATE], w->n_answered[K_ALLOCATE]);
    assert_null(strstr(buf_cstr(&w->said), "got:"));
}

static void test_token_rolls(void **state)
{
    (void)state;
    w->roll = true;
    world_ask(0, 1, 100);
    world_until("got:0", 1);
    struct yarn *y = (struct yarn *)(void *)w->s;
    WORLD_UNTIL(str_eq(y->token.identifier, "rolled"));
    assert_string_equal(y->rm->token, "rolled");
    assert_int_equal(w->n_calls[K_REGISTER], 1);
}

static void test_attempt_is_over(void **state)
{
    (void)state;
    w->fail[K_ALLOCATE].kind = RPC_FAULT_AUTH;
    w->fail[K_ALLOCATE].line = "InvalidToken";
    world_ask(0, 1, 100);
    world_until("broken:the resource manager does not know this master any more", 1);
    /* The end cannot be reported, and is not waited for. */
    world_finish("KILLED", "killed");
}

static bool asked_again(int since)
{
    return w->n_calls[K_ALLOCATE] > since;
}

/* After an end was reported, the ResourceManager forgets it with the next call. So the next call
 * waits until the end is stored elsewhere. */
static void test_ends_are_stored(void **state)
{
    (void)state;
    world_ask(0, 1, 100);
    world_until("got:0", 1);
    WORLD_UNTIL(w->boxes[0].starts);
    w->not_stored = true;
    w->boxes[0].ended = true;
    w->boxes[0].exit_status = 9;
    w->complete[w->n_complete++] = 0;
    world_until("end:0:exited", 1);
    int n = w->n_calls[K_ALLOCATE], stored = w->n_stored;
    world_ask(1, 1, 100); /* a request makes a call necessary */
    for (int i = 0; i < 1000 && w->n_stored < stored + 3; i++)
        world_pass(5);
    assert_true(w->n_stored >= stored + 3);
    assert_false(asked_again(n));
    w->not_stored = false;
    world_until("got:1", 1);
}

static void expect_avoided(const char *a, const char *b)
{
    for (int i = 0; i < 1000 && w->avoided.n < 2; i++)
        world_pass(5);
    assert_int_equal(w->avoided.n, 2);
    assert_string_equal(w->avoided.v[0], a);
    assert_string_equal(w->avoided.v[1], b);
    strv_done(&w->avoided);
}

/* A node is avoided under both of its names. It is sent again after the ResourceManager has
 * forgotten it, and ends when the node is allowed again. */
static void test_avoid(void **state)
{
    (void)state;
    sched_yarn.avoid(w->s, "n1:45454", true);
    expect_avoided("+n1:45454", "+n1");
    sched_yarn.avoid(w->s, "n1:45454", true);
    world_pass(100);
    assert_int_equal(w->avoided.n, 0); /* sent only once */
    w->fail[K_ALLOCATE].kind = RPC_FAULT_NOT_REGISTERED;
    world_ask(0, 1, 100);
    expect_avoided("+n1:45454", "+n1");
    sched_yarn.avoid(w->s, "n1:45454", false);
    expect_avoided("-n1:45454", "-n1");
    assert_true(w->progress > 0.4F && w->progress < 0.6F);
}

static void on_fate(bool over, const char *who, const char *text, void *arg)
{
    (void)arg;
    (void)buf_addf(&w->said, "fate:%d:%s:%s ", over, who ? who : "?", text ? text : "");
}

static void test_who_killed_the_application(void **state)
{
    (void)state;
    w->killed_after = 3; /* the ResourceManager reports it a moment later */
    assert_int_equal(sched_yarn.fate(w->s, 5000, on_fate, NULL), 0);
    world_until("fate:1:ann:Application application_1_0001 was killed by user ann", 1);
    w->killed_after = 0;
    assert_int_equal(sched_yarn.fate(w->s, 50, on_fate, NULL), 0);
    world_until("fate:0:?: ", 1);
    w->killed_after = 1; /* another master runs by now, so this one is over */
    w->attempt = 2;
    assert_int_equal(sched_yarn.fate(w->s, 5000, on_fate, NULL), 0);
    world_until("fate:0:?: ", 2);
}

/* For the second master: two containers of the first master run, one has ended and only its id is
 * known, and one is kept and its end is known. */
static void test_second_master(void **state)
{
    (void)state;
    sched_yarn.close(w->s);
    w->s = NULL;
    buf_clear(&w->said);
    w->second = true;
    w->n_boxes = w->told = 3;
    for (int i = 0; i < 3; i++)
        w->boxes[i] = (struct fake_box){ .slot = (uint32_t)i + 4, .starts = 1 };
    w->boxes[1].ended = w->boxes[2].ended = true;
    w->boxes[1].exit_status = 7;
    w->n_calls[K_ALLOCATE] = 0;
    w->complete[0] = 1;
    w->complete[1] = 2;
    w->n_complete = 2;
    world_open(2);
    assert_string_equal(buf_cstr(&w->said), "reg:5=7:4294967295=0:4 ");
    assert_int_equal(w->n_asked_before, 1);
    /* a running container is stopped with the older tokens, and not started */
    struct sched_container c = { .id = "container_1_0001_01_000002", .slot = 4 };
    assert_int_equal(sched_yarn.launch(w->s, &c, 1, NULL), 0);
    assert_int_equal(sched_yarn.stop(w->s, c.id, 0, NULL), 0);
    world_until("end:4:killed_by_master", 1);
    assert_int_equal(w->n_calls[K_START], 0);
}

/* The world's tables end at BOXES_MAX: this slot is requested, found in the request, and never
 * granted. */
static void test_a_slot_with_the_highest_number(void **state)
{
    (void)state;
    struct yarn *y = (struct yarn *)(void *)w->s;
    uint32_t far = SCHED_NO_SLOT - 1;
    w->grants = false;
    struct sched_ask asks[] = { { .slot = far, .memory_mib = 10, .vcores = 1, .role = "ps" },
                                { .slot = 7, .memory_mib = 10, .vcores = 1, .role = "worker" },
                                { .slot = 3, .memory_mib = 10, .vcores = 1, .role = "worker" } };
    assert_int_equal(sched_yarn.request(w->s, asks, 3, NULL), 0);
    assert_int_equal(y->asks.n, 3); /* not one entry for each lower number */
    for (size_t i = 0; i + 1 < y->asks.n; i++)
        assert_true(y->asks.v[i].slot < y->asks.v[i + 1].slot);
    assert_string_equal(yarn_slot_role(y, far), "ps");
    WORLD_UNTIL(w->want[3] && w->want[7] && w->far_slot == far);
    assert_int_equal(sched_yarn.cancel(w->s, (uint32_t[]){ far, 4, 9999 }, 3, NULL), 0);
    WORLD_UNTIL(w->far_slot == 0);
    world_grant(3);
    world_grant(7);
    world_until("got:3", 1);
    world_until("got:7", 1);
}

/* A master whose predecessor grew the job learns the roles of the new slots. */
static void test_resize_tells_the_roles(void **state)
{
    (void)state;
    sched_yarn.close(w->s);
    w->s = NULL;
    buf_clear(&w->said);
    w->second = true;
    w->n_boxes = w->told = 1;
    w->boxes[0] = (struct fake_box){ .slot = 120, .starts = 1 };
    world_open(2);
    struct yarn *y = (struct yarn *)(void *)w->s;
    assert_string_equal(yarn_slot_role(y, 120), "");
    struct sched_ask whole[] = { { .slot = 0, .memory_mib = 10, .role = "ps" },
                                 { .slot = 120, .memory_mib = 10, .role = "worker" } };
    int asks = w->n_asks;
    assert_int_equal(sched_yarn.resize(w->s, whole, 2, NULL), 0);
    assert_string_equal(yarn_slot_role(y, 120), "worker");
    const struct box *b = map_next(&y->boxes, NULL)->value;
    assert_string_equal(b->role, "worker");
    world_pass(30);
    assert_int_equal(w->n_asks, asks); /* it requests nothing by itself */
}

static void ask_on(uint32_t slot, const char *node)
{
    const struct sched_ask a = {
        .slot = slot, .memory_mib = 100, .vcores = 1, .role = "worker", .node = node
    };
    assert_int_equal(sched_yarn.request(w->s, &a, 1, NULL), 0);
}

/* A request names its preferred node under both names that YARN may use. A repeated request may
 * name another node; the first one is withdrawn. The container may still come from any node. */
static void test_a_preferred_node(void **state)
{
    (void)state;
    w->grants = false;
    ask_on(0, "n1:8041");
    WORLD_UNTIL(w->want[0]);
    assert_string_equal(buf_cstr(&w->node_asks), "0 n1:8041 1\n0 n1 1\n");
    buf_clear(&w->node_asks);
    ask_on(0, "n1:8041"); /* the same again: nothing to say */
    world_pass(30);
    assert_int_equal(w->node_asks.len, 0);
    ask_on(0, "n2:8041");
    WORLD_UNTIL(w->node_asks.len > 0);
    assert_string_equal(buf_cstr(&w->node_asks), "0 n1:8041 0\n0 n1 0\n0 n2:8041 1\n0 n2 1\n");
    buf_clear(&w->node_asks);
    assert_int_equal(sched_yarn.cancel(w->s, (uint32_t[]){ 0 }, 1, NULL), 0);
    WORLD_UNTIL(!w->want[0]);
    assert_string_equal(buf_cstr(&w->node_asks), "0 n2:8041 0\n0 n2 0\n");
    /* Later, for any node. */
    buf_clear(&w->node_asks);
    w->grants = true;
    world_ask(0, 1, 100);
    world_until("got:0", 1);
    assert_string_equal(buf_cstr(&w->node_asks), "0 n2:8041 0\n0 n2 0\n");
}

/* The NodeManager of an executor gets the job's container environment, as that of the master does,
 * and can write each value into its script. */
static void test_container_environment(void **state)
{
    (void)state;
    struct job_spec spec = { .cluster = NULL };
    assert_int_equal(strv_env_set(&spec.container_env, "YARN_CONTAINER_RUNTIME_TYPE", "docker"), 0);
    assert_int_equal(strv_env_set(&spec.container_env, "WORDS", "a \"b\" `c` \\ $HOME"), 0);
    assert_int_equal(strv_env_set(&spec.container_env, "TONY_SLOT", "77"), 0);
    sched_yarn.close(w->s);
    buf_clear(&w->said);
    w->spec = &spec;
    world_open(1);
    world_ask(0, 1, 100);
    world_until("got:0", 1);
    WORLD_UNTIL(w->boxes[0].starts);
    assert_non_null(strstr(w->env, "YARN_CONTAINER_RUNTIME_TYPE=docker\n"));
    assert_non_null(strstr(w->env, "WORDS=a \\\"b\\\" \\`c\\` \\\\ $HOME\n"));
    assert_non_null(strstr(w->env, "TONY_SLOT=0\n"));
    assert_null(strstr(w->env, "TONY_SLOT=77"));
    sched_yarn.close(w->s); /* it borrows spec */
    w->s = NULL;
    strv_done(&spec.container_env);
}

/* A job that waits long asks no more often than a master of YARN's own. */
static void test_waiting_backs_off(void **state)
{
    (void)state;
    struct yarn *y = (struct yarn *)(void *)w->s;
    static const struct {
        int64_t open_ms, least, most;
    } rows[] = { { 0, 20, 20 },      { 1900, 20, 20 },      { 3000, 300, 310 },
                 { 9000, 900, 910 }, { 10000, 1000, 1000 }, { 3600000, 1000, 1000 } };
    assert_int_equal(yarn_beat_ms(y), 1000); /* no ask is open */
    w->grants = false;
    world_ask(0, 1, 100);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        y->open_since = clock_mono_ms() - rows[i].open_ms;
        y->beat_soon = false;
        assert_in_range(yarn_beat_ms(y), rows[i].least, rows[i].most);
    }
    y->beat_soon = true; /* a node's report shows that there is news */
    assert_int_equal(yarn_beat_ms(y), 20);
    y->open_since = clock_mono_ms() - 3600000;
    y->beat_soon = false;
    world_ask(1, 1, 100); /* a new ask is waited for as closely as the first one */
    assert_int_equal(yarn_beat_ms(y), 20);
}

/* The wall clock's time of an expire_time: "2026-11-24T08:45:00.250+0000". */
static int64_t wall_ms_of(const char *text)
{
    struct tm tm = { 0 };
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    assert_non_null(rest);
    assert_int_equal(strlen(rest), strlen(".250+0000"));
    assert_string_equal(rest + 4, "+0000");
    return (int64_t)timegm(&tm) * 1000 + (rest[1] - '0') * 100 + (rest[2] - '0') * 10 + rest[3] -
           '0';
}

/* A job with a limit: the ResourceManager is told its LIFETIME when the master starts, 120 s more
 * than what is left of the limit. The call is repeated if the ResourceManager is away. */
static void test_lifetime(void **state)
{
    (void)state;
    assert_int_equal(w->n_calls[K_TIMEOUTS], 0); /* setup's job has no limit */
    sched_yarn.close(w->s);
    buf_clear(&w->said);
    w->time_left_ms = 7000;
    w->fail[K_TIMEOUTS].kind = RPC_FAULT_UNREACHABLE;
    int64_t before = clock_wall_ms();
    world_open(1);
    WORLD_UNTIL(w->n_calls[K_TIMEOUTS] == 2 && *w->expires);
    assert_in_range(wall_ms_of(w->expires), before + 127000, clock_wall_ms() + 127000);
    w->fail[K_ALLOCATE].kind =
        RPC_FAULT_NOT_REGISTERED; /* registering again does not set it again */
    world_ask(0, 1, 100);
    world_until("got:0", 1);
    world_pass(50);
    assert_int_equal(w->n_calls[K_TIMEOUTS], 2);
}

/* If the ResourceManager refuses the call, the job runs without the LIFETIME. */
static void test_lifetime_refused(void **state)
{
    (void)state;
    sched_yarn.close(w->s);
    buf_clear(&w->said);
    w->time_left_ms = 7000;
    w->fail[K_TIMEOUTS].kind = RPC_FAULT_APPLICATION;
    world_open(1);
    world_ask(0, 1, 100);
    world_until("got:0", 1);
    world_pass(200);
    assert_int_equal(w->n_calls[K_TIMEOUTS], 1);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_a_job),
        CASE(test_requests_above_the_clusters_limits),
        CASE(test_surplus_grants_and_cancelled_requests),
        CASE(test_answer_lost),
        CASE(test_rm_restart),
        CASE(test_finish_waits_for_the_heartbeat),
        CASE(test_token_rolls),
        CASE(test_attempt_is_over),
        CASE(test_ends_are_stored),
        CASE(test_avoid),
        CASE(test_who_killed_the_application),
        CASE(test_second_master),
        CASE(test_a_slot_with_the_highest_number),
        CASE(test_resize_tells_the_roles),
        CASE(test_a_preferred_node),
        CASE(test_container_environment),
        CASE(test_waiting_backs_off),
        CASE(test_lifetime),
        CASE(test_lifetime_refused),
    };
    log_setup(2, getenv("TONY_TEST_LOG") ? LOG_DEBUG : LOG_ERROR, false);
    return cmocka_run_group_tests_name("sched_yarn", tests, NULL, NULL);
}
