/* SPDX-License-Identifier: Apache-2.0 */
/* Variables that grow with the number of tasks: when they are left out of the environment. */
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
#include "runtime_roles.h"

static int limited(const char *framework, const struct rt_input *more, struct strv *env,
                   struct err *e)
{
    struct rt_input in = *more;
    in.application_id = "a";
    in.distributed_mode = "GANG";
    in.roles = uneven_workers;
    in.n_roles = 2;
    in.role = in.role ? in.role : "worker";
    in.server = true;
    in.spec_file = "/w/spec.json";
    return runtime_env(runtime_find(framework), &in, env, e);
}

/* CLUSTER_SPEC has 116 bytes here, TF_CONFIG more. */
static void too_long_for_the_environment(void **state)
{
    static const struct {
        const char *framework, *role, *variable;
        size_t variable_max;
        bool file_only;
        int rc;
        bool there;
    } table[] = {
        { "generic", "worker", "CLUSTER_SPEC", 200, false, 0, true },
        { "generic", "worker", "CLUSTER_SPEC", 60, false, 0, false },
        { "generic", "worker", "CLUSTER_SPEC", 0, true, 0, false },
        { "horovod", "worker", "CLUSTER_SPEC", 60, false, 0, false },
        { "horovod", "driver", "CLUSTER_WORKER_LIST", 60, false, 0, true },
        { "horovod", "driver", "CLUSTER_WORKER_LIST", 40, false, -7, false },
        { "horovod", "driver", "CLUSTER_WORKER_LIST", 0, true, 0, false },
        { "tensorflow", "worker", "TF_CONFIG", 300, false, 0, true },
        { "tensorflow", "worker", "TF_CONFIG", 60, false, -7, false },
        { "tensorflow", "worker", "TF_CONFIG", 0, true, 0, false },
        { "lightgbm", "worker", "LIGHTGBM_MACHINES", 60, false, -7, false },
        { "lightgbm", "worker", "LIGHTGBM_MACHINES", 0, true, 0, false },
        { "pytorch", "worker", "TONY_SPEC_FILE", 10, false, 0, true },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        AUTO(strv_done) struct strv env = { 0 };
        struct err e = { 0 };
        struct rt_input in = { .role = table[i].role,
                               .variable_max = table[i].variable_max,
                               .file_only = table[i].file_only };
        int rc = limited(table[i].framework, &in, &env, &e);
        if (rc != table[i].rc ||
            (rc == 0 && (strv_env_get(&env, table[i].variable) != NULL) != table[i].there))
            fail_msg("row %zu: %d %s", i, rc, e.msg);
        if (rc < 0 && (!strstr(e.msg, "needs") || !strstr(e.hint, "TONY_SPEC_FILE")))
            fail_msg("row %zu: %s (%s)", i, e.msg, e.hint);
        if (rc == 0)
            assert_string_equal(strv_env_get(&env, "TONY_SPEC_FILE"), "/w/spec.json");
    }
}

/* Each variable is short enough, but not all together: tony's is removed, the user's stay. */
static void variables_are_too_long_together(void **state)
{
    static char users[2000] = "MINE=";
    struct rt_input in = { .total_max = 0 };
    AUTO(strv_done) struct strv env = { 0 }, all = { 0 }, none = { 0 }, more = { 0 };
    struct err e = { 0 };
    (void)state;
    memset(users + 5, 'x', sizeof users - 6);
    assert_int_equal(strv_push(&all, users), 0);
    assert_int_equal(limited("generic", &in, &all, &e), 0);
    assert_non_null(strv_env_get(&all, "CLUSTER_SPEC"));
    for (size_t i = 0; i < all.n; i++)
        in.total_max += strlen(all.v[i]) + 1 + sizeof(char *);
    in.total_max--;
    assert_int_equal(strv_push(&env, users), 0);
    assert_int_equal(limited("generic", &in, &env, &e), 0);
    assert_null(strv_env_get(&env, "CLUSTER_SPEC"));
    assert_string_equal(strv_env_get(&env, "MINE"), users + 5);
    assert_null(env.v[env.n]); /* the list still ends with NULL */
    assert_int_equal(limited("generic", &in, &none, &e), 0);
    assert_non_null(strv_env_get(&none, "CLUSTER_SPEC"));
    assert_int_equal(strv_push(&more, users), 0);
    assert_int_equal(limited("tensorflow", &in, &more, &e), -7);
    assert_non_null(strstr(e.msg, "such as TF_CONFIG, need"));
    strv_done(&more);
    in.total_max = 1000; /* the user's variables alone are too long: exec reports that */
    assert_int_equal(strv_push(&more, users), 0);
    assert_int_equal(limited("tensorflow", &in, &more, &e), 0);
}

/* Only the first addresses were sent. Variables that need no more are set, others are not. */
static void first_addresses_only(void **state)
{
    static const struct rt_role firsts[] = {
        { "chief", NULL, 1, TRACKED, 1, SPAN("\"10.0.0.1:1\"") },
        { "worker", NULL, 3, TRACKED, 2, SPAN("\"10.0.0.2:2\"") },
    };
    static const struct {
        const char *framework, *key, *value;
    } table[] = {
        { "generic", "CLUSTER_SPEC", NULL },       { "generic", "TONY_ADDRESS", "10.0.0.9:9" },
        { "tensorflow", "TF_CONFIG", NULL },       { "tensorflow", "CLUSTER_SPEC", NULL },
        { "lightgbm", "LIGHTGBM_MACHINES", NULL }, { "lightgbm", "LIGHTGBM_NUM_MACHINES", "4" },
        { "pytorch", "MASTER_ADDR", "10.0.0.1" },  { "pytorch", "RANK", "5" },
        { "jax", "JAX_PROCESS_ID", "5" },          { "xgboost", "DMLC_TRACKER_PORT", "1" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        AUTO(strv_done) struct strv env = { 0 };
        struct err e = { 0 };
        struct rt_input in = { .application_id = "a",
                               .distributed_mode = "GANG",
                               .roles = firsts,
                               .n_roles = 2,
                               .role = "worker",
                               .index = 2,
                               .first_addresses_only = true,
                               .address = "10.0.0.9:9" };
        assert_int_equal(runtime_env(runtime_find(table[i].framework), &in, &env, &e), 0);
        const char *got = strv_env_get(&env, table[i].key);
        if (!str_eq(got, table[i].value))
            fail_msg("%s: %s is %s", table[i].framework, table[i].key, got ? got : "(absent)");
    }
}

/* The executor asks for all addresses only if the framework uses them. */
static void which_frameworks_need_all_addresses(void **state)
{
    static const struct {
        const char *framework, *mode;
        size_t bytes;
        bool file_only, needs;
    } table[] = {
        { "generic", "GANG", 1000, false, true },      { "generic", "GANG", 200000, false, false },
        { "generic", "GANG", 1000, true, false },      { "generic", "FCFS", 1000, false, false },
        { "tensorflow", "GANG", 200000, false, true }, { "tensorflow", "GANG", 1, true, false },
        { "horovod", "GANG", 200000, true, true },     { "pytorch", "GANG", 1000, false, false },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct rt_input in = { .distributed_mode = table[i].mode,
                                     .file_only = table[i].file_only };
        if (runtime_needs_all(runtime_find(table[i].framework), &in, table[i].bytes) !=
            table[i].needs)
            fail_msg("row %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_long_for_the_environment),
        cmocka_unit_test(variables_are_too_long_together),
        cmocka_unit_test(first_addresses_only),
        cmocka_unit_test(which_frameworks_need_all_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
