/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the harness itself: it must detect an ignored failure and a leak, and pass correct
 * code. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "torture.h"

static int three_allocations(void *ctx)
{
    unsigned *runs = ctx;
    ++*runs;
    AUTO(free_p) char *a = strdup("a");
    AUTO(free_p) char *b = a ? str_printf("%s%s", a, "b") : NULL;
    AUTO(free_p) void *c = b ? calloc(2, 8) : NULL;
    if (!c)
        return -ENOMEM;
    assert_string_equal(b, "ab");
    return 0;
}

static void test_fails_each_in_turn(void **state)
{
    (void)state;
    unsigned runs = 0;
    assert_int_equal(torture(three_allocations, &runs), 3);
    assert_int_equal(runs, 1 + 3 + 1);
}

static void test_one_failed_allocation(void **state)
{
    (void)state;
    torture_arm(2, false);
    /* Not strdup() itself: a compiler may do without the call. */
    char *a = str_dup("a"), *b = str_dup("b"), *c = str_dup("c");
    assert_true(torture_hit());
    assert_int_equal(torture_count(), 3);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    torture_arm(1, true);
    VEC(int) v = { 0 };
    assert_int_equal(vec_reserve(&v, 1), -ENOMEM);
    assert_null(str_dup("d"));
    torture_arm(0, false);
    assert_false(torture_hit());
    free(a);
    free(c);
}

static int grows_a_vector(void *ctx)
{
    (void)ctx;
    VEC(int) v = { 0 };
    int rc = 0;
    for (int i = 0; rc == 0 && i < 100; i++)
        rc = vec_push(&v, i);
    if (rc == 0)
        assert_int_equal(v.v[99], 99);
    vec_done(&v);
    return rc;
}

static int fills_a_map(void *ctx)
{
    (void)ctx;
    struct map m = { 0 };
    int rc = 0;
    size_t n = 0;
    for (int i = 0; rc == 0 && i < 40; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "k%d", i);
        rc = map_set(&m, key, &m, NULL);
        n += rc == 0;
    }
    assert_int_equal(m.n, n); /* a failed insertion has changed nothing */
    for (struct map_entry *x = map_next(&m, NULL); x; x = map_next(&m, x))
        assert_ptr_equal(x->value, &m);
    map_done(&m, NULL);
    return rc;
}

static int fills_an_environment(void *ctx)
{
    (void)ctx;
    struct strv env = { 0 };
    int rc = strv_env_set(&env, "A", "1");
    if (rc == 0)
        rc = strv_pushf(&env, "B=%d", 2);
    if (rc == 0)
        rc = strv_env_set(&env, "A", "3");
    if (rc == 0)
        assert_string_equal(strv_env_get(&env, "A"), "3");
    strv_done(&env);
    return rc;
}

static int fills_a_buffer(void *ctx)
{
    (void)ctx;
    struct buf b = { 0 };
    for (int i = 0; i < 200; i++)
        (void)buf_addf(&b, "%d,", i); /* errors are checked once at the end */
    int rc = b.failed ? -ENOMEM : 0;
    AUTO(free_p) char *s = buf_steal(&b);
    if (rc == 0 && !s)
        rc = -ENOMEM;
    if (rc == 0)
        assert_memory_equal(s, "0,1,2,3,", 8);
    return rc;
}

static void test_base_under_torture(void **state)
{
    (void)state;
    assert_in_range(torture(grows_a_vector, NULL), 2, 10);
    assert_in_range(torture(fills_a_map, NULL), 40, 60);
    assert_int_equal(torture(fills_an_environment, NULL), 4);
    assert_in_range(torture(fills_a_buffer, NULL), 2, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fails_each_in_turn),
        cmocka_unit_test(test_one_failed_allocation),
        cmocka_unit_test(test_base_under_torture),
    };
    return cmocka_run_group_tests_name("torture", tests, NULL, NULL);
}
