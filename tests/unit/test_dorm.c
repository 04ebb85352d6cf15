/* SPDX-License-Identifier: Apache-2.0 */
/* The policy `dorm`: each of its rules by hand, on two nodes of 4 cores and 8 units of memory. */
#include "dorm_world.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/drf.h"
#include "torture.h"

static const struct part_amount two_nodes[] = { { { 4, 8 } }, { { 4, 8 } } };
static const struct part_cluster two = { 2, types, 2, two_nodes };
static const struct part_place four_each[] = { { 0, 4 }, { 1, 4 } };
static const struct part_place two_each[] = { { 0, 2 }, { 1, 2 } };
static const struct part_place on_first[] = { { 0, 4 } };

static void alone(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { job("a", 1, 1, 1, 20) };
    struct part_options o = bounds(1, 0);
    decide(&two, jobs, 1, &o, &d);
    expect(&d, 0, PART_STARTS, 8, PART_BECAUSE_ROOM);
    assert_float_equal(d.metrics.utilization, 1.5, 1e-9);
    assert_float_equal(d.metrics.upper_bound, 1.5, 1e-9);
    assert_true(d.metrics.proved);
    jobs[0].max = 3;
    decide(&two, jobs, 1, &o, &d);
    expect(&d, 0, PART_STARTS, 3, PART_BECAUSE_AT_MAX);
}

static void nothing(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    static const struct part_amount empty[] = { { { 0, 0 } } };
    const struct part_cluster none = { 2, types, 0, NULL }, zero = { 2, types, 1, empty };
    struct part_job jobs[] = { job("a", 1, 1, 1, 20) };
    decide(&two, NULL, 0, &part_defaults, &d);
    assert_float_equal(d.metrics.upper_bound, 0, 1e-9);
    decide(&none, jobs, 1, &part_defaults, &d);
    expect(&d, 0, PART_NEVER, 0, PART_BECAUSE_TOO_BIG);
    decide(&zero, jobs, 1, &part_defaults, &d);
    expect(&d, 0, PART_NEVER, 0, PART_BECAUSE_TOO_BIG);
}

static void bound_on_adjustments(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { running(job("a", 1, 1, 1, 20), four_each, 2), job("b", 1, 2, 2, 4) };
    struct part_options o = bounds(4, 0);
    decide(&two, jobs, 2, &o, &d);
    expect(&d, 0, PART_KEEPS, 8, PART_BECAUSE_ROOM);
    expect(&d, 1, PART_WAITS, 0, PART_BECAUSE_ADJUSTED);
    o.adjust_max = 1;
    decide(&two, jobs, 2, &o, &d);
    expect(&d, 0, PART_CHANGES, 4, PART_BECAUSE_USE);
    expect(&d, 1, PART_STARTS, 4, PART_BECAUSE_AT_MAX);
    assert_int_equal(d.metrics.adjusted, 1);
    assert_int_equal(d.metrics.adjust_bound, 1);
}

static void bound_on_loss(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { job("a", 1, 1, 1, 20), job("b", 1, 2, 1, 20) };
    struct part_options o = bounds(0, 0); /* exactly the ideal counts */
    decide(&two, jobs, 2, &o, &d);
    expect(&d, 0, PART_STARTS, 4, PART_BECAUSE_ROOM);
    expect(&d, 1, PART_STARTS, 4, PART_BECAUSE_ROOM);
    assert_float_equal(d.metrics.loss, 0, 1e-9);
    jobs[0] = job("a", 2, 1, 1, 20); /* all for b would use more */
    jobs[1] = job("b", 1, 2, 1, 20);
    decide(&two, jobs, 2, &o, &d);
    assert_true(d.metrics.loss < 1e-9);
    o.loss_max = 2;
    decide(&two, jobs, 2, &o, &d);
    assert_float_equal(d.metrics.utilization, 1.8125, 1e-9); /* 1 of a, 6 of b */
    expect(&d, 0, PART_STARTS, 1, PART_BECAUSE_ROOM);
}

static void pinned(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { running(job("a", 1, 1, 1, 8), two_each, 2),
                               running(job("b", 1, 1, 1, 4), two_each, 2), job("c", 1, 2, 2, 4) };
    struct part_options o = bounds(4, 2);
    jobs[0].pinned = true;
    decide(&two, jobs, 3, &o, &d);
    expect(&d, 0, PART_KEEPS, 4, PART_BECAUSE_PINNED);
    assert_int_equal(d.jobs[2].verdict, PART_STARTS);
    jobs[1].pinned = true;
    decide(&two, jobs, 3, &o, &d);
    expect(&d, 1, PART_KEEPS, 4, PART_BECAUSE_PINNED);
    expect(&d, 2, PART_WAITS, 0, PART_BECAUSE_FULL);
    assert_int_equal(d.metrics.adjusted, 0);
}

static void lost(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { running(job("a", 1, 1, 1, 4), two_each, 2),
                               running(job("b", 1, 2, 1, 4), two_each, 1) };
    struct part_options o = bounds(4, 0);
    jobs[1].lost = true;
    decide(&two, jobs, 2, &o, &d);
    expect(&d, 0, PART_KEEPS, 4, PART_BECAUSE_AT_MAX);
    expect(&d, 1, PART_CHANGES, 4, PART_BECAUSE_AT_MAX);
    assert_int_equal(d.metrics.adjusted, 0);
    assert_int_equal(d.metrics.changed, 2);
}

static void strict_queue(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { job("never", 5, 1, 1, 1), job("first", 1, 1, 6, 6),
                               job("second", 1, 1, 3, 3), job("third", 1, 1, 1, 1) };
    struct part_options o = bounds(4, 0);
    decide(&two, jobs, 4, &o, &d);
    expect(&d, 0, PART_NEVER, 0, PART_BECAUSE_TOO_BIG);
    expect(&d, 1, PART_STARTS, 6, PART_BECAUSE_AT_MAX);
    expect(&d, 2, PART_WAITS, 0, PART_BECAUSE_FULL);
    expect(&d, 3, PART_WAITS, 0, PART_BECAUSE_BEHIND);
    assert_int_equal(d.jobs[2].other, 1);
    assert_int_equal(d.jobs[3].other, 2);
    assert_int_equal(d.metrics.admitted, 1);
}

/* The second waits because the two together cannot be as fair as that. */
static void too_unfair_to_admit(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    static const struct part_amount one[] = { { { 8, 8 } } };
    const struct part_cluster c = { 2, types, 1, one };
    struct part_job jobs[] = { running(job("a", 1, 1, 4, 8), on_first, 1), job("b", 1, 1, 1, 2) };
    jobs[0].pinned = true;
    struct part_options o = bounds(0.1, 0);
    decide(&c, jobs, 2, &o, &d);
    assert_true(d.metrics.relaxed); /* pinned at 4 of the ideal 8 */
    assert_float_equal(d.metrics.loss_bound, 0.5, 1e-9);
    expect(&d, 1, PART_WAITS, 0, PART_BECAUSE_LOSS);
}

static void relaxed(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { running(job("a", 1, 1, 1, 6), two_each, 2),
                               running(job("b", 1, 2, 1, 2), two_each, 1) };
    struct part_options o = bounds(0, 0);
    decide(&two, jobs, 2, &o, &d);
    assert_true(d.metrics.relaxed);
    assert_float_equal(d.metrics.loss_bound, 0.25, 1e-9);
    assert_float_equal(d.metrics.loss, 0.25, 1e-9);
    expect(&d, 0, PART_KEEPS, 4, PART_BECAUSE_ADJUSTED);
    o.adjust_max = 1;
    decide(&two, jobs, 2, &o, &d);
    assert_false(d.metrics.relaxed);
    assert_float_equal(d.metrics.loss, 0, 1e-9);
}

/* Running jobs come first whatever their place in the list; the answer is in the order of the list.
 */
static void any_order(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { job("new", 1, 2, 1, 2),
                               running(job("old", 1, 1, 6, 8), four_each, 2) };
    struct part_options o = bounds(4, 1);
    decide(&two, jobs, 2, &o, &d);
    expect(&d, 0, PART_STARTS, 2, PART_BECAUSE_AT_MAX);
    expect(&d, 1, PART_CHANGES, 6, PART_BECAUSE_USE);
}

/* The search for the price of memory on a node came near a mean of 0, and made a step of 1e6. */
static void no_step_is_too_long(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    static const struct part_amount nodes[2] = { { { 5, 9 } }, { { 5, 9 } } };
    static const struct part_place a[] = { { 0, 1 }, { 1, 1 } }, b[] = { { 0, 1 }, { 1, 2 } };
    const struct part_cluster pair = { 2, types, 2, nodes };
    struct part_job jobs[] = { running(job("a", 3, 3, 2, 2), a, 2),
                               running(job("b", 1, 3, 2, 3), b, 2), job("c", 2, 1, 1, 1) };
    struct part_options o = bounds(0.1, 1);
    jobs[0].pinned = true;
    decide(&pair, jobs, 3, &o, &d);
    assert_true(d.metrics.proved);
    assert_int_equal(d.metrics.admitted, 1);
    assert_int_equal(d.metrics.adjusted, 1);
    assert_int_equal(d.metrics.changed, 1);
}

/* Amounts in bytes: 13 GiB for 3 cores is no exact number of bytes for one core. A node with 54
 * cores has room for 18 containers, and not for one less. */
static void amounts_in_bytes(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    const int64_t gib = INT64_C(1) << 30;
    struct part_amount nodes[4];
    const struct part_cluster c = { 2, types, 4, nodes };
    struct part_options o = bounds(4, 0);
    for (uint32_t j = 0; j < 4; j++)
        nodes[j] = (struct part_amount){ { 54, 512 * gib } };
    struct part_job jobs[] = { job("a", 3, 13 * gib, 72, 72) };
    decide(&c, jobs, 1, &o, &d);
    expect(&d, 0, PART_STARTS, 72, PART_BECAUSE_AT_MAX);
    assert_true(d.metrics.proved);
    /* More than 64 sets of containers fit on a node. */
    nodes[0] = (struct part_amount){ { 255, PART_AMOUNT_MAX } };
    const struct part_cluster one = { 2, types, 1, nodes };
    jobs[0] = job("a", 3, 3 * gib + 1, 1, 100);
    decide(&one, jobs, 1, &o, &d);
    expect(&d, 0, PART_STARTS, 85, PART_BECAUSE_ROOM);
    assert_true(d.metrics.upper_bound > d.metrics.utilization - 1e-9);
}

static int without_memory(void *ctx)
{
    (void)ctx;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct err e = { 0 };
    struct part_job jobs[] = { running(job("a", 1, 1, 1, 8), two_each, 2),
                               running(job("b", 1, 1, 1, 4), two_each, 2), job("c", 1, 2, 2, 4),
                               job("d", 1, 1, 8, 8) };
    struct part_options o = bounds(1, 1);
    return part_decide(part_policy_find("dorm"), &two, jobs, 4, &o, &d, &e);
}

static void memory_runs_out(void **state)
{
    (void)state;
    assert_true(torture(without_memory, NULL) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),
        cmocka_unit_test(nothing),
        cmocka_unit_test(bound_on_adjustments),
        cmocka_unit_test(bound_on_loss),
        cmocka_unit_test(pinned),
        cmocka_unit_test(lost),
        cmocka_unit_test(strict_queue),
        cmocka_unit_test(too_unfair_to_admit),
        cmocka_unit_test(relaxed),
        cmocka_unit_test(any_order),
        cmocka_unit_test(no_step_is_too_long),
        cmocka_unit_test(amounts_in_bytes),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests_name("dorm", tests, NULL, NULL);
}
