/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs whose count fits into all nodes together, but into no single node: drf and market move other
 * containers for them, or give their share to others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/base.h"
#include "partition/partition.h"

static const char *const types[] = { "memory_gib" };
static const struct part_amount of_8_gib[] = { { { 8 } }, { { 8 } }, { { 8 } }, { { 8 } } };
static const struct part_cluster two = { 1, types, 2, of_8_gib };
static const struct part_cluster four = { 1, types, 4, of_8_gib };

static struct part_job job(const char *id, int64_t gib, uint32_t min, uint32_t max)
{
    return (struct part_job){ .id = id,
                              .demand = { { gib } },
                              .weight = 1,
                              .min = min,
                              .max = max,
                              .remaining_s = INFINITY,
                              .ends_in_s = INFINITY };
}

static struct part_job running(const char *id, int64_t gib, uint32_t min, uint32_t max,
                               const struct part_place *at, uint32_t n_at)
{
    struct part_job j = job(id, gib, min, max);
    j.at = at;
    j.n_at = n_at;
    return j;
}

static void decide(const char *policy, bool repack, const struct part_cluster *c,
                   const struct part_job *jobs, size_t n, struct part_decision *d)
{
    struct part_options o = part_defaults;
    struct err e = { 0 };
    o.repack = repack;
    o.adjust_max = 9;
    if (part_decide(part_policy_find(policy), c, jobs, n, &o, d, &e) != 0)
        fail_msg("%s", e.msg);
}

/* 16 containers of 1 GiB fill both nodes. The fair counts are 7 of 1 GiB and 3 of 3 GiB. The 7 that
 * are left by first fit are all on the first node: only 2 of 3 GiB fit beside them. */
static void three_gib_beside_one(void **state)
{
    static const struct part_place both[] = { { 0, 8 }, { 1, 8 } };
    const struct part_job jobs[] = { running("small", 1, 1, 16, both, 2), job("large", 3, 3, 5) };
    AUTO(part_decision_done) struct part_decision d = { 0 };
    (void)state;
    decide("drf", false, &two, jobs, 2, &d);
    assert_int_equal(d.jobs[0].n, 7);
    assert_int_equal(d.jobs[1].n, 0);
    decide("drf", true, &two, jobs, 2, &d);
    assert_int_equal(d.jobs[0].n, 7);
    assert_int_equal(d.jobs[1].n, 3);
    assert_int_equal(d.jobs[1].verdict, PART_STARTS);
    assert_int_equal(d.metrics.changed, 9); /* it gives back 9 containers, and moves none */
    decide("market", true, &two, jobs, 2, &d);
    assert_true(d.jobs[1].n >= 3);
}

/* The small job has its fair count already, on the first node: two of its containers must move. */
static void containers_move(void **state)
{
    static const struct part_place first[] = { { 0, 7 } };
    const struct part_job jobs[] = { running("small", 1, 1, 7, first, 1), job("large", 3, 3, 3) };
    AUTO(part_decision_done) struct part_decision d = { 0 };
    (void)state;
    decide("drf", false, &two, jobs, 2, &d);
    assert_int_equal(d.jobs[1].n, 0);
    decide("drf", true, &two, jobs, 2, &d);
    assert_int_equal(d.jobs[0].n, 7);
    assert_int_equal(d.jobs[0].verdict, PART_CHANGES);
    assert_int_equal(d.jobs[1].n, 3);
}

/* A pinned job does not move, so the large one can never start beside it. The small one gets what
 * would have been the share of the large one. */
static void a_share_that_nobody_can_use(void **state)
{
    static const struct part_place pins[] = { { 0, 1 }, { 1, 1 } }, rest[] = { { 0, 4 } };
    struct part_job jobs[] = { running("pinned", 4, 1, 2, pins, 2),
                               running("small", 1, 1, 9, rest, 1), job("large", 5, 1, 1) };
    AUTO(part_decision_done) struct part_decision d = { 0 };
    char why[PART_WHY_MAX];
    (void)state;
    jobs[0].pinned = true;
    decide("drf", false, &two, jobs, 3, &d);
    assert_int_equal(d.jobs[1].n, 3);
    assert_int_equal(d.jobs[2].n, 0);
    decide("drf", true, &two, jobs, 3, &d);
    assert_int_equal(d.jobs[0].verdict, PART_KEEPS);
    assert_int_equal(d.jobs[1].n, 8);
    assert_int_equal(d.jobs[2].n, 0);
    part_why(&d, &two, jobs, 1, why);
    assert_string_equal(why, "it grows from 4 to 8 containers: its fair share is 8 containers");
    part_why(&d, &two, jobs, 2, why);
    assert_string_equal(
        why,
        "it waits: there is no room for it now, and job 'pinned' holds most of the memory_gib");
}

/* With all fair counts the large job does not fit. It gets its min, and another job one container
 * less. */
static void the_least_numbers_come_first(void **state)
{
    static const struct part_place at[] = { { 0, 2 }, { 1, 2 } };
    const struct part_job jobs[] = { running("a", 3, 1, 4, at, 2), job("b", 5, 1, 2) };
    AUTO(part_decision_done) struct part_decision d = { 0 };
    (void)state;
    decide("drf", true, &two, jobs, 2, &d);
    assert_int_equal(d.jobs[1].n, 1);
    assert_true(d.jobs[0].n >= 2);
}

/* Two jobs wait. The one that fits starts, though the other one does not. */
static void one_of_two(void **state)
{
    static const struct part_place at[] = { { 0, 7 }, { 1, 7 }, { 2, 7 }, { 3, 7 } };
    struct part_job jobs[] = { running("small", 1, 20, 28, at, 4), job("first", 8, 1, 1),
                               job("second", 8, 1, 1) };
    AUTO(part_decision_done) struct part_decision d = { 0 };
    (void)state;
    decide("drf", true, &four, jobs, 3, &d);
    assert_int_equal(d.jobs[1].n, 1);
    assert_int_equal(d.jobs[2].n, 0);
    assert_int_equal(d.jobs[0].n, 24);
}

/* A job of 7 GiB does not fit beside the min of three jobs of 1 GiB each. So these do not shrink
 * for it, although it could buy its min. */
static void nobody_shrinks_for_a_job_that_cannot_start(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    static const struct part_amount node[] = { { { 8 } } };
    static const struct part_place a[] = { { 0, 3 } }, b[] = { { 0, 4 } }, c[] = { { 0, 1 } };
    const struct part_cluster one = { 1, types, 1, node };
    struct part_job jobs[] = { job("a", 1, 1, 4), job("b", 1, 1, 4), job("c", 1, 1, 4),
                               job("large", 7, 1, 1) };
    jobs[0].at = a;
    jobs[1].at = b;
    jobs[2].at = c;
    jobs[0].n_at = jobs[1].n_at = jobs[2].n_at = 1;
    for (int market = 0; market <= 1; market++) {
        decide(market ? "market" : "drf", false, &one, jobs, 4, &d);
        assert_int_equal(d.jobs[0].n + d.jobs[1].n + d.jobs[2].n, 8);
        assert_int_equal(d.jobs[3].verdict, PART_WAITS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_gib_beside_one),
        cmocka_unit_test(containers_move),
        cmocka_unit_test(a_share_that_nobody_can_use),
        cmocka_unit_test(the_least_numbers_come_first),
        cmocka_unit_test(one_of_two),
        cmocka_unit_test(nobody_shrinks_for_a_job_that_cannot_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
