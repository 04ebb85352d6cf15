/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what resizes cost, by the names of jobs, and its file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "pool/costs.h"

static char dir[] = "/tmp/tony-test-costs-XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    AUTO(free_p) char *path = fs_join(dir, "costs");
    (void)unlink(path);
    return rmdir(dir);
}

static int64_t cost(const struct costs_table *t, const char *name)
{
    uint64_t ms = 0;
    return costs_find(t, name, &ms) ? (int64_t)ms : -1;
}

static void open_table(struct costs_table *t)
{
    struct err e = { 0 };
    *t = (struct costs_table){ 0 };
    assert_int_equal(costs_load(t, dir, &e), 0);
}

static void test_next_pool(void **state)
{
    struct costs_table t;
    (void)state;
    open_table(&t);
    assert_int_equal(cost(&t, "digits"), -1);
    assert_int_equal(costs_learn(&t, "digits", 14000, NULL), 0);
    assert_int_equal(costs_learn(&t, "a \"name\"\n", 0, NULL), 0);
    assert_int_equal(costs_learn(&t, "digits", 15000, NULL), 0);
    assert_int_equal(costs_learn(&t, NULL, 1, NULL), 0);
    costs_done(&t);
    open_table(&t);
    assert_int_equal(cost(&t, "digits"), 15000);
    assert_int_equal(cost(&t, "a \"name\"\n"), 0);
    assert_int_equal(t.v.n, 2);
    costs_done(&t);
}

/* The name that was told for the longest time ago is forgotten. */
static void test_full(void **state)
{
    struct costs_table t;
    char name[COSTS_NAME_MAX + 1];
    (void)state;
    open_table(&t);
    for (unsigned i = 0; i <= COSTS_NAMES_MAX; i++) {
        (void)snprintf(name, sizeof name, "job %u", i);
        assert_int_equal(costs_learn(&t, name, i, NULL), 0);
        if (i == 5)
            assert_int_equal(costs_learn(&t, "job 0", 7, NULL), 0);
    }
    memset(name, 'x', COSTS_NAME_MAX);
    name[COSTS_NAME_MAX] = 0;
    assert_int_equal(costs_learn(&t, name, 1, NULL), 0); /* too long */
    costs_done(&t);
    open_table(&t);
    assert_int_equal(t.v.n, COSTS_NAMES_MAX);
    assert_int_equal(cost(&t, "job 0"), 7);
    assert_int_equal(cost(&t, "job 4"), 4);
    assert_int_equal(cost(&t, "job 256"), 256);
    assert_int_equal(cost(&t, "job 1"), -1);
    assert_int_equal(cost(&t, name), -1);
    costs_done(&t);
}

static void test_damaged(void **state)
{
    static const char *const texts[] = { "", "{", "[1]", "{\"digits\":\"x\"}", "{\"digits\":-1}" };
    struct costs_table t;
    (void)state;
    AUTO(free_p) char *path = fs_join(dir, "costs");
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        assert_int_equal(fs_write_atomic(AT_FDCWD, path, span_of(texts[i]), 0600, false, NULL), 0);
        open_table(&t);
        assert_int_equal(cost(&t, "digits"), -1);
        assert_int_equal(costs_learn(&t, "digits", 9, NULL), 0);
        costs_done(&t);
        open_table(&t);
        assert_int_equal(cost(&t, "digits"), 9);
        costs_done(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_next_pool),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests_name("pool_costs", tests, setup, teardown);
}
