/* SPDX-License-Identifier: Apache-2.0 */
/* An arbiter reads two texts of jobs of other users: the tag with their needs, and the answers of
 * their masters. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "arbiter/share.h"
#include "base/base.h"

static const struct share_needs needs = { .n = 4,
                                          .min = 2,
                                          .max = 8,
                                          .each_mib = 8192,
                                          .each_gpus = 1,
                                          .fixed_containers = 3,
                                          .fixed_mib = 4096,
                                          .fixed_gpus = 0,
                                          .master_mib = 2048,
                                          .weight = 2,
                                          .budget = 12.5 };

static void a_tag_and_back(void **state)
{
    struct share_needs back;
    struct err e = { 0 };
    char tag[SHARE_TAG_MAX];
    (void)state;
    assert_true(share_needs_tag(&needs, tag));
    assert_string_equal(tag, "tony-size:4:2:8:8192:1:3:4096:0:2048:2:12.5");
    memset(&back, 0, sizeof back);
    assert_int_equal(share_needs_read(tag, &back, &e), 0);
    assert_int_equal(back.n, 4);
    assert_int_equal(back.min, 2);
    assert_int_equal(back.max, 8);
    assert_int_equal(back.each_mib, 8192);
    assert_int_equal(back.each_gpus, 1);
    assert_int_equal(back.fixed_containers, 3);
    assert_int_equal(back.fixed_mib, 4096);
    assert_int_equal(back.fixed_gpus, 0);
    assert_int_equal(back.master_mib, 2048);
    assert_int_equal(back.weight, 2);
    assert_true(back.budget > 12.4 && back.budget < 12.6);
}

static void the_largest_needs_have_no_tag(void **state)
{
    struct share_needs s = needs;
    char tag[SHARE_TAG_MAX];
    (void)state;
    s.each_mib = s.fixed_mib = s.master_mib = UINT64_MAX;
    s.n = s.min = s.max = s.fixed_containers = UINT32_MAX;
    assert_false(share_needs_tag(&s, tag));
}

static void bad_tags(void **state)
{
    static const char *const bad[] = {
        "",
        "tony-size:",
        "size:4:2:8:8192:1:3:4096:0:2048:2:0",
        "tony-size:4:2:8:8192:1:3:4096:0:2048:2",
        "tony-size:4:2:8:8192:1:3:4096:0:2048:2:0:0",
        "tony-size:4:2:8:8192:1:3:4096:0:2048:2:",
        "tony-size:4:2:8:8192:1:3:4096:0:2048:2:nan",
        "tony-size:4:2:8:8192:1:3:4096:0:2048:2:-1",
        "tony-size:0:2:8:8192:1:3:4096:0:2048:2:0",
        "tony-size:4:0:8:8192:1:3:4096:0:2048:2:0",
        "tony-size:4:8:8:8192:1:3:4096:0:2048:2:0",
        "tony-size:4:2:8:0:1:3:4096:0:2048:2:0",
        "tony-size:4:2:8:99999999999:1:3:4096:0:2048:2:0",
        "tony-size:4:2:8:8192:-1:3:4096:0:2048:2:0",
        "tony-size:4:2:8:8192:1:3:4096:0:2048:0:0",
        "tony-size:4:2:8:8192:1:3:4096:0:2048:10001:0",
    };
    struct share_needs out;
    struct err e = { 0 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (share_needs_read(bad[i], &out, &e) >= 0)
            fail_msg("accepted: %s", bad[i]);
}

struct nodes {
    uint32_t n, containers;
    bool fail;
};

static int add_node(const char *name, uint32_t n, void *arg)
{
    struct nodes *nodes = arg;
    assert_true(str_starts(name, "n"));
    nodes->n++;
    nodes->containers += n;
    return nodes->fail ? -ENOMEM : 0;
}

static void answers_of_masters(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"instances\":3}",
        "{\"instances\":-1,\"nodes\":{}}",
        "{\"instances\":99999999,\"nodes\":{}}",
        "{\"instances\":3,\"target\":99999999,\"nodes\":{}}",
        "{\"instances\":3,\"nodes\":[]}",
        "{\"instances\":3,\"nodes\":{\"n0:1\":0}}",
        "{\"instances\":3,\"nodes\":{\"n0:1\":4294967297}}",
        "{\"instances\":3,\"nodes\":{\"n0:1\":\"3\"}}",
        "{\"instances\":3,\"nodes\":{\"n0:1\":2,\"n1:1\":2}}",
        "{\"instances\":1000000,\"nodes\":{\"n0:1\":1000000,\"n1:1\":1}}",
        "{\"runs\":true,\"changing\":false,\"instances\":0,\"nodes\":{}}",
    };
    struct nodes nodes = { 0 };
    struct share_state s;
    struct err e = { 0 };
    (void)state;
    const char *good = "{\"runs\":true,\"changing\":false,\"instances\":3,\"left_ms\":1000,"
                       "\"cost_ms\":null,\"nodes\":{\"n0:1\":2,\"n1:1\":1}}";
    assert_int_equal(share_state_read(span_of(good), &s, add_node, &nodes, &e), 0);
    assert_true(s.runs);
    assert_false(s.changing);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.target, 3);
    assert_int_equal(s.left_ms, 1000);
    assert_int_equal(s.cost_ms, -1);
    assert_int_equal(nodes.n, 2);
    assert_int_equal(nodes.containers, 3);
    nodes.fail = true;
    assert_int_equal(share_state_read(span_of(good), &s, add_node, &nodes, &e), -ENOMEM);
    nodes.fail = false;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (share_state_read(span_of(bad[i]), &s, add_node, &nodes, &e) >= 0)
            fail_msg("accepted: %s", bad[i]);
    /* If the master does not say whether the job is being resized, the arbiter leaves the job
     * alone. */
    assert_int_equal(
        share_state_read(span_of("{\"instances\":3,\"nodes\":{}}"), &s, add_node, &nodes, &e), 0);
    assert_true(s.changing);
    assert_false(s.runs);
    assert_int_equal(share_state_read(span_of("{\"instances\":3,\"target\":5,\"nodes\":{}}"), &s,
                                      add_node, &nodes, &e),
                     0);
    assert_int_equal(s.target, 5);
}

/* The needs above: 4096 MiB of other containers, 2048 of the master, 8192 of each instance. */
static void what_a_job_lacks(void **state)
{
    (void)state;
    assert_true(share_lacks(&needs, 4, 0));
    assert_true(share_lacks(&needs, 4, 2048 + 4096 + 3 * 8192));
    assert_true(share_lacks(&needs, 4, 2048 + 4096 + 4 * 8192 - 1));
    assert_false(share_lacks(&needs, 4, 2048 + 4096 + 4 * 8192));
    assert_false(share_lacks(&needs, 4, 2048 + 4096 + 5 * 8192)); /* it gives one back */
    assert_true(share_lacks(&needs, 1000000, UINT32_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tag_and_back),   cmocka_unit_test(the_largest_needs_have_no_tag),
        cmocka_unit_test(bad_tags),         cmocka_unit_test(answers_of_masters),
        cmocka_unit_test(what_a_job_lacks),
    };
    return cmocka_run_group_tests_name("arbiter_share", tests, NULL, NULL);
}
