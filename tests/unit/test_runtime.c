/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that are equal for all tasks of a job: which jobs a framework accepts, which task runs
 * the server, which tasks can be replaced, and the cluster spec. test_runtime_env.c tests the
 * environment of each task. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "runtime/runtime.h"

enum { TRACKED = 1, UNTRACKED, SIDECAR };

static void checks(void **state)
{
    static const struct {
        const char *framework;
        struct rt_role roles[2];
        size_t n;
        int rc;
        bool fcfs;
    } table[] = {
        { "pytorch", { { "worker", NULL, 2, TRACKED, 1 } }, 1, 0 },
        { "pytorch", { { "trainer", NULL, 2, TRACKED, 1 } }, 1, -22 },
        { "pytorch", { { "worker", NULL, 0, TRACKED, 1 }, { "x", NULL, 1, TRACKED, 1 } }, 2, -22 },
        { "standalone", { { "worker", NULL, 1, TRACKED, 1 } }, 1, 0 },
        { "standalone", { { "worker", NULL, 2, TRACKED, 1 } }, 1, -22 },
        { "standalone",
          { { "worker", NULL, 1, TRACKED, 1 }, { "slave", NULL, 1, TRACKED, 1 } },
          2,
          -22 },
        { "standalone", { { "worker", NULL, 0, TRACKED, 1 } }, 1, -22 },
        { "mxnet",
          { { "scheduler", NULL, 1, TRACKED, 1 }, { "worker", NULL, 1, TRACKED, 1 } },
          2,
          -22 },
        { "mxnet", { { "scheduler", NULL, 2, TRACKED, 1 } }, 1, -22 },
        { "ray", { { "head", NULL, 1, TRACKED, 1 } }, 1, 0 },
        { "ray", { { "head", NULL, 2, TRACKED, 1 } }, 1, -22 },
        { "ray", { { "worker", NULL, 2, TRACKED, 1 } }, 1, -22 },
        { "dask", { { "scheduler", NULL, 1, UNTRACKED, 1 } }, 1, 0 },
        { "dask", { { "client", NULL, 1, TRACKED, 1 } }, 1, -22 },
        { "jax", { { "worker", NULL, 2, TRACKED, 1 } }, 1, 0 },
        { "jax", { { "worker", NULL, 2, TRACKED, 1 } }, 1, -22, true },
        { "mpi", { { "worker", NULL, 2, TRACKED, 1 } }, 1, -22, true },
        { "horovod", { { "worker", NULL, 2, TRACKED, 1 } }, 1, -22, true },
        { "tensorflow", { { "worker", NULL, 2, TRACKED, 1 } }, 1, 0, true },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct err e = { 0 };
        const struct runtime *rt = runtime_find(table[i].framework);
        int rc = runtime_check(rt, table[i].roles, table[i].n, !table[i].fcfs, &e);
        if (rc != table[i].rc)
            fail_msg("row %zu: %d, %s", i, rc, e.msg);
        assert_int_equal(e.msg[0] != '\0' && e.hint[0] != '\0', table[i].rc != 0);
    }
    assert_null(runtime_find("tensorflow")->check);
    assert_null(runtime_find("keras"));
    assert_null(runtime_find(NULL));
    size_t n;
    const char *const *names = runtime_names(&n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(runtime_find(names[i])->name, names[i]);
    assert_int_equal(n, 12);
}

static void which_task_runs_the_server(void **state)
{
    static const struct rt_role rays[] = { { "worker", NULL, 2, UNTRACKED, 1 },
                                           { "head", NULL, 1, UNTRACKED, 1 },
                                           { "driver", NULL, 1, TRACKED, 1 } };
    static const struct rt_role dasks[] = { { "scheduler", NULL, 1, UNTRACKED, 1 },
                                            { "worker", NULL, 2, UNTRACKED, 1 },
                                            { "client", NULL, 1, TRACKED, 1 } };
    static const struct rt_role ps_worker[] = { { "ps", NULL, 1, UNTRACKED, 0 },
                                                { "worker", NULL, 2, TRACKED, 1 } };
    static const struct rt_role tracked_by_two[] = { { "worker", NULL, 2, TRACKED, 1 },
                                                     { "tracker", NULL, 1, UNTRACKED, 1 } };
    static const struct {
        const char *framework;
        const struct rt_role *roles;
        size_t n;
        const char *role;
        bool serves;
    } table[] = {
        { "ray", rays, 3, "head", true },
        { "ray", rays, 3, "worker", true },
        { "ray", rays, 3, "driver", false },
        { "ray", rays, 2, "head", false },
        { "ray", rays, 2, "worker", true },
        { "dask", dasks, 3, "scheduler", true },
        { "dask", dasks, 3, "worker", true },
        { "dask", dasks, 3, "client", false },
        { "tensorflow", ps_worker, 2, "ps", true },
        { "tensorflow", ps_worker, 2, "worker", false },
        { "xgboost", tracked_by_two, 2, "tracker", true },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (runtime_find(table[i].framework)->serves(table[i].roles, table[i].n, table[i].role) !=
            table[i].serves)
            fail_msg("row %zu: %s %s", i, table[i].framework, table[i].role);
}

static void tensorboard_port(void **state)
{
    static const struct {
        const char *framework, *role;
        bool chief, has_tensorboard, wants;
    } table[] = {
        { "tensorflow", "chief", true, false, true },
        { "tensorflow", "chief", true, true, false },
        { "tensorflow", "worker", false, false, false },
        { "tensorflow", "worker", true, false, true },
        { "tensorflow", "tensorboard", false, true, true },
        { "pytorch", "worker", true, false, true },
        { "standalone", "worker", true, false, false },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_int_equal(runtime_wants_tb_port(table[i].framework, table[i].role, table[i].chief,
                                               table[i].has_tensorboard),
                         table[i].wants);
}

static void spec_is_json_whatever_the_names(void **state)
{
    static const char *const odd[] = { "a\"b\\\n" };
    const struct rt_role role = { "x\"y", odd, 1, TRACKED, 1 };
    struct buf out = { 0 };
    (void)state;
    assert_int_equal(runtime_spec_json(&role, 1, NULL, NULL, &out), 0);
    assert_string_equal(buf_cstr(&out), "{\"x\\\"y\":[\"a\\\"b\\\\\\n\"]}");
    buf_clear(&out);
    assert_int_equal(runtime_spec_json(NULL, 0, NULL, NULL, &out), 0);
    assert_string_equal(buf_cstr(&out), "{}");
    buf_done(&out);
}

static void one_address(void **state)
{
    static const struct rt_role r = { .name = "w",
                                      .n = 3,
                                      .list = SPAN("\"a:1\",\"\",\"c\\u0041:3\"") };
    static const struct rt_role torn = { .name = "w", .n = 2, .list = SPAN("\"a:1\",\"b") };
    static const struct rt_role quote = { .name = "w",
                                          .n = 3,
                                          .list = SPAN("\"a\\\"b\",\"c\\\\\",\"d:4\"") };
    char out[16];
    (void)state;
    assert_true(runtime_address(&r, 0, out, sizeof out));
    assert_string_equal(out, "a:1");
    assert_false(runtime_address(&r, 1, out, sizeof out)); /* no address yet */
    /* An escaped character cannot be part of an address. */
    assert_false(runtime_address(&r, 2, out, sizeof out));
    assert_false(runtime_address(&r, 3, out, sizeof out));
    assert_false(runtime_address(&r, 0, out, 3)); /* the buffer is too small */
    assert_false(runtime_address(&torn, 1, out, sizeof out));
    /* An escaped quote does not end a string; a quote after an escaped backslash does. */
    assert_true(runtime_address(&quote, 2, out, sizeof out));
    assert_string_equal(out, "d:4");
}

/* A spec of runtime_spec_json() is split into its lists again, for all host names. */
static void lists_of_a_spec(void **state)
{
    static const char *const workers[] = { "10.0.0.1:1", "", "[fd00::1]:3" };
    static const char *const nobody[] = { "", NULL };
    static const char *const one[] = { "h:9" };
    const struct rt_role made[] = { { "worker", workers, 3, TRACKED, 1 },
                                    { "later", nobody, 2, TRACKED, 1 },
                                    { "ps", one, 1, UNTRACKED, 1 } };
    static const char *const torn[] = { "",
                                        "{",
                                        "{\"worker\":[\"a:1\"",
                                        "[]",
                                        "{\"x\":[]}",
                                        "{\"worker\":[\"a:1\"]",
                                        "{\"ps\":[],\"worker\":[]}" };
    struct rt_role read[] = { { "worker", NULL, 3, TRACKED, 1 },
                              { "later", NULL, 2, TRACKED, 1 },
                              { "ps", NULL, 1, UNTRACKED, 1 } };
    struct buf text = { 0 }, again = { 0 };
    char address[32];
    (void)state;
    assert_int_equal(runtime_spec_json(made, 3, NULL, NULL, &text), 0);
    assert_int_equal(runtime_spec_lists(buf_span(&text), read, 3), 0);
    assert_true(runtime_address(&read[0], 2, address, sizeof address));
    assert_string_equal(address, "[fd00::1]:3");
    assert_false(runtime_address(&read[0], 1, address, sizeof address));
    assert_false(runtime_address(&read[1], 0, address, sizeof address));
    assert_true(runtime_address(&read[2], 0, address, sizeof address));
    assert_int_equal(runtime_spec_json(read, 3, NULL, NULL, &again), 0);
    assert_string_equal(buf_cstr(&again), buf_cstr(&text));
    for (size_t i = 0; i < ARRAY_LEN(torn); i++)
        if (runtime_spec_lists(span_of(torn[i]), read, 3) != -22)
            fail_msg("%s", torn[i]);
    assert_int_equal(runtime_spec_lists(SPAN("{}"), read, 3), 0);
    buf_done(&text);
    buf_done(&again);
}

/* Refused before anything runs: an address needs at least 17 bytes on this machine, 15
 * elsewhere. */
static void too_many_tasks(void **state)
{
    static const struct {
        const char *framework, *variable;
        uint32_t n;
        bool fcfs, local, file_only;
        int rc;
    } table[] = {
        { "tensorflow", "CLUSTER_SPEC", 7000, false, true, false, 0 },
        { "tensorflow", "CLUSTER_SPEC", 7800, false, true, false, -7 },
        { "tensorflow", "CLUSTER_SPEC", 7800, false, false, false, 0 },
        { "tensorflow", "CLUSTER_SPEC", 8800, false, false, false, -7 },
        { "tensorflow", "CLUSTER_SPEC", 100000, true, false, false, 0 },
        { "tensorflow", "CLUSTER_SPEC", 100000, false, false, true, 0 },
        { "lightgbm", "LIGHTGBM_MACHINES", 10000, false, false, false, 0 },
        { "lightgbm", "LIGHTGBM_MACHINES", 10100, false, false, false, -7 },
        { "lightgbm", "LIGHTGBM_MACHINES", 10100, false, false, true, 0 },
        { "generic", NULL, 100000, false, false, false, 0 },
        { "horovod", NULL, 20000, false, false, false, 0 },
        { "pytorch", NULL, 100000, false, false, false, 0 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct err e = { 0 };
        const struct rt_role role = { "worker", NULL, table[i].n, TRACKED, 1 };
        const struct rt_job job = { &role, 1, !table[i].fcfs, table[i].local, table[i].file_only };
        int rc = runtime_check_lengths(runtime_find(table[i].framework), &job, &e);
        if (rc != table[i].rc)
            fail_msg("row %zu: %d, %s", i, rc, e.msg);
        if (rc < 0 && (!strstr(e.msg, table[i].variable) || !strstr(e.msg, "131072") ||
                       !strstr(e.hint, "TONY_SPEC_FILE")))
            fail_msg("row %zu: %s (%s)", i, e.msg, e.hint);
    }
}

static void lengths_before_anything_runs(void **state)
{
    const struct rt_role roles[] = { { "ps", NULL, 2, UNTRACKED, 1 },
                                     { "evaluator", NULL, 1, TRACKED, 1 } };
    const struct rt_job job = { roles, 2, .gang = true, .local = false };
    struct rt_length v[RT_LENGTHS_MAX];
    struct err e = { 0 };
    size_t n;
    (void)state;
    assert_int_equal(runtime_lengths(runtime_find("tensorflow"), &job, v, &n, &e), 0);
    assert_int_equal(n, 2);
    assert_string_equal(v[0].name, "CLUSTER_SPEC");
    static const char spec[] = "CLUSTER_SPEC={\"ps\":[\"1.1.1.1:1024\",\"1.1.1.1:1024\"],"
                               "\"evaluator\":[\"1.1.1.1:1024\"]}";
    assert_int_equal(v[0].least, sizeof spec);
    assert_int_equal(v[0].most, sizeof spec + 3 * 9);
    /* the evaluator's text is the longest: it includes the evaluator */
    static const char tf[] = "TF_CONFIG={\"cluster\":{\"ps\":[\"1.1.1.1:1024\",\"1.1.1.1:1024\"],"
                             "\"evaluator\":[\"1.1.1.1:1024\"]},"
                             "\"task\":{\"type\":\"evaluator\",\"index\":0}}";
    assert_string_equal(v[1].name, "TF_CONFIG");
    assert_int_equal(v[1].least, sizeof tf);
    assert_true(v[0].needed && v[1].needed);
}

static void which_tasks_survive_a_replaced_peer(void **state)
{
    static const struct {
        const char *framework, *role;
        bool chief, gang, has_ps, lives;
    } lives[] = {
        { "pytorch", "worker", false, true, false, false },
        { "pytorch", "tensorboard", false, true, false, true },
        { "pytorch", "worker", false, false, false, true },
        { "tensorflow", "worker", false, true, false, false },
        { "tensorflow", "worker", false, true, true, true },
        { "tensorflow", "worker", true, true, true, false },
        { "tensorflow", "ps", false, true, true, false },
        { "tensorflow", "chief", true, true, true, false },
        { "tensorflow", "evaluator", false, true, false, true },
        { "mpi", "worker", false, true, false, false },
        { "mpi", "evaluator", false, true, false, false }, /* a rank like any other */
        { "horovod", "evaluator", false, true, false, false },
        { "generic", "evaluator", false, true, false, true },
        { "jax", "worker", false, true, false, false },
        { "mxnet", "server", false, true, false, false },
        { "mxnet", "watcher", false, true, false, true },
        { "ray", "worker", false, true, false, true },
        { "ray", "head", false, true, false, false },
        { "dask", "worker", false, true, false, true },
        { "dask", "scheduler", false, true, false, false },
        { "generic", "worker", true, true, false, true },
        { "standalone", "worker", true, true, false, true },
        { NULL, "worker", true, true, false, true },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lives); i++)
        if (runtime_lives_with_new(lives[i].framework, lives[i].role, lives[i].chief, lives[i].gang,
                                   lives[i].has_ps) != lives[i].lives)
            fail_msg("row %zu: %s %s", i, lives[i].framework, lives[i].role);
}

/* Adding a task needs more than replacing one: a tensorflow gang knows its peers from its start. */
static void which_tasks_accept_additional_peers(void **state)
{
    static const struct {
        const char *framework, *role;
        bool gang, has_ps, more;
    } rows[] = {
        { "tensorflow", "worker", true, true, false },
        { "tensorflow", "worker", false, true, true },
        { "tensorflow", "tensorboard", true, true, true },
        { "pytorch", "worker", true, false, false },
        { "pytorch", "worker", false, false, true },
        { "ray", "worker", true, false, true },
        { "dask", "worker", true, false, true },
        { "dask", "scheduler", true, false, false },
        { "generic", "worker", true, false, true },
        { "mxnet", "worker", true, false, false },
        { NULL, "worker", true, false, true },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (runtime_takes_more(rows[i].framework, rows[i].role, false, rows[i].gang,
                               rows[i].has_ps) != rows[i].more)
            fail_msg("row %zu: %s %s", i, rows[i].framework, rows[i].role);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checks),
        cmocka_unit_test(which_task_runs_the_server),
        cmocka_unit_test(tensorboard_port),
        cmocka_unit_test(spec_is_json_whatever_the_names),
        cmocka_unit_test(one_address),
        cmocka_unit_test(which_tasks_survive_a_replaced_peer),
        cmocka_unit_test(lists_of_a_spec),
        cmocka_unit_test(too_many_tasks),
        cmocka_unit_test(lengths_before_anything_runs),
        cmocka_unit_test(which_tasks_accept_additional_peers),
    };
    return cmocka_run_group_tests_name("runtime", tests, NULL, NULL);
}
