/* SPDX-License-Identifier: Apache-2.0 */
/* The digest of a plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/base.h"
#include "conf/conf.h"
#include "conf_spec_world.h"
#include "storage/plan.h"
#include "storage/store.h"

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B64 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static void digest_of(const char *lines, const char *content, char out[DIGEST_HEX])
{
    struct job_spec *s = built(lines);
    char name[] = "data", role[] = "", digest[DIGEST_HEX];
    (void)snprintf(digest, sizeof digest, "%s", content);
    const struct ship_item item = {
        .kind = SHIP_FILE, .name = name, .role = role, .digest = digest
    };
    assert_int_equal(plan_of_job(s, &item, 1, out), 0);
    job_spec_free(s);
}

static void each_change_changes_the_digest(void **state)
{
    (void)state;
#define BASE CMD ROLE("worker", 2) "tony.worker.memory=1g\n"
    static const struct {
        const char *lines, *content;
        bool same;
    } cases[] = {
        { BASE, A64, true },
        { BASE "tony.cluster=slurm\n", A64, true },
        { BASE "tony.cluster=yarn\n", A64, true },
        { BASE "tony.application.name=other\n", A64, true },
        { BASE, B64, false },
        { CMD ROLE("worker", 3) "tony.worker.memory=1g\n", A64, false },
        { BASE "tony.worker.spares=1\n", A64, false },
        { BASE "tony.worker.vcores=2\n", A64, false },
        { BASE "tony.worker.gpus=1\n", A64, false },
        { BASE "tony.worker.command=y\n", A64, false },
        { BASE "tony.execution.envs=A=1\n", A64, false },
        { BASE "tony.containers.envs=A=1\n", A64, false },
        { BASE ROLE("ps", 1), A64, false },
    };
    char first[DIGEST_HEX], other[DIGEST_HEX];
    digest_of(BASE, A64, first);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        digest_of(cases[i].lines, cases[i].content, other);
        if (str_eq(first, other) != cases[i].same)
            fail_msg("case %zu: %s", i, cases[i].lines);
    }
}

static void lines_in_any_order_and_a_path_of_the_store(void **state)
{
    (void)state;
    struct plan a = { 0 }, b = { 0 };
    char one[DIGEST_HEX], two[DIGEST_HEX];
    plan_ask(&a, "worker", 2, 100, 1, 0, 0);
    plan_run(&a, "worker", "command", "x");
    plan_run(&a, "worker", "resume", "");
    plan_ship(&a, "worker", "data", A64);
    plan_ship(&b, "worker", "data", "/home/ada/.tony/store/f-" A64);
    plan_run(&b, "worker", "command", "x");
    plan_ask(&b, "worker", 2, 100, 1, 0, 1);
    assert_int_equal(plan_digest(&a, one), 0);
    assert_int_equal(plan_digest(&b, two), 0);
    assert_string_equal(one, two);
    plan_run(&b, "worker", "env A", "1\nrun worker command=1:x");
    assert_int_equal(plan_digest(&b, two), 0);
    assert_string_not_equal(one, two);
    plan_done(&a);
    plan_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_change_changes_the_digest),
        cmocka_unit_test(lines_in_any_order_and_a_path_of_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
