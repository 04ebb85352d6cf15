/* SPDX-License-Identifier: Apache-2.0 */
/* How the arbiter divides a queue: nodes, other applications, the limit of the queue, fixed parts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>

#include "arbiter/claims.h"
#include "arbiter/patience.h"
#include "base/base.h"

/* Two nodes of 4 GiB. */
static const struct claims_node two_nodes[] = { { "n0:1", { { 4096 } }, { { 0 } } },
                                                { "n1:1", { { 4096 } }, { { 0 } } } };

#define GIB                                                                                        \
    {                                                                                              \
        {                                                                                          \
            1024                                                                                   \
        }                                                                                          \
    }

/* The places of 8 containers, and of 4. */
static const struct part_place on_both[] = { { 0, 4 }, { 1, 4 } };

static struct part_claim running(const char *id, uint32_t n)
{
    return (struct part_claim){ .id = id,
                                .runs = true,
                                .each = GIB,
                                .min = 1,
                                .max = 8,
                                .at = on_both,
                                .n_at = n / 4,
                                .n = n,
                                .weight = 1,
                                .remaining_s = INFINITY,
                                .ends_in_s = INFINITY };
}

static struct part_claim waiting(const char *id, uint32_t min)
{
    return (struct part_claim){
        .id = id, .each = GIB, .min = min, .max = 8, .n = min, .weight = 1, .remaining_s = INFINITY
    };
}

static void decide(const char *policy, const struct claims_node *nodes,
                   const struct part_amount *limit, const struct part_claim *claims, size_t n,
                   struct part_division *out)
{
    struct part_options o = part_defaults;
    struct err e = { 0 };
    o.loss_max = 2;
    o.adjust_max = 9;
    o.payback_s = 100;
    if (claims_decide(part_policy_find(policy), &o, nodes, 2, limit, claims, n, out, &e) < 0)
        fail_msg("%s", e.msg);
}

static void half_for_the_one_that_waits(void **state)
{
    const struct part_claim claims[] = { running("a", 8), waiting("b", 2) };
    (void)state;
    AUTO(part_division_done) struct part_division d = { 0 };
    decide("drf", two_nodes, NULL, claims, 2, &d);
    assert_int_equal(d.jobs[0].n, 4);
    assert_int_equal(d.jobs[0].verdict, PART_CHANGES);
    assert_int_equal(d.jobs[1].n, 4);
    assert_int_equal(d.jobs[1].verdict, PART_STARTS);
    assert_true(d.jobs[1].why[0]);
}

/* Nobody measures what the jobs of a queue have attained. */
static void no_least_attained_service(void **state)
{
    const struct part_claim one = running("a", 4);
    (void)state;
    AUTO(part_division_done) struct part_division d = { 0 };
    struct err e = { 0 };
    assert_int_equal(claims_decide(part_policy_find("las-elastic"), &part_defaults, two_nodes, 2,
                                   NULL, &one, 1, &d, &e),
                     -EINVAL);
    assert_non_null(strstr(e.msg, "'las-elastic'"));
    assert_non_null(strstr(e.hint, "srtf-elastic"));
}

/* The job would grow from 4 to 8 containers, with 80 s of run time left. */
static void a_resize_that_costs_too_much(void **state)
{
    struct part_claim one = running("a", 4);
    (void)state;
    AUTO(part_division_done) struct part_division d = { 0 };
    one.remaining_s = one.ends_in_s = 80;
    one.resize_s = 10;
    decide("drf", two_nodes, NULL, &one, 1, &d);
    assert_int_equal(d.jobs[0].n, 8);
    part_division_done(&d);
    one.resize_s = 60;
    decide("drf", two_nodes, NULL, &one, 1, &d);
    assert_int_equal(d.jobs[0].n, 4);
}

static void what_others_hold_is_not_divided(void **state)
{
    struct claims_node nodes[2] = { two_nodes[0], two_nodes[1] };
    const struct part_claim claims[] = { running("a", 4), waiting("b", 2) };
    (void)state;
    AUTO(part_division_done) struct part_division d = { 0 };
    nodes[1].taken.v[CLAIM_MEMORY_MIB] = 3072;
    decide("drf", nodes, NULL, claims, 2, &d);
    assert_int_equal(d.jobs[0].n + d.jobs[1].n, 5);
    assert_true(d.jobs[1].n >= 2);
    /* Others hold more than the node has left: the job keeps what it has. */
    part_division_done(&d);
    nodes[0].taken.v[CLAIM_MEMORY_MIB] = 4096;
    nodes[1].taken.v[CLAIM_MEMORY_MIB] = 4096;
    decide("drf", nodes, NULL, claims, 1, &d);
    assert_int_equal(d.jobs[0].n, 4);
    assert_int_equal(d.jobs[0].verdict, PART_KEEPS);
}

static void the_queue_has_a_limit(void **state)
{
    const struct part_amount limit = { { 6144 } };
    const struct part_claim claims[] = { running("a", 4), waiting("b", 2) };
    (void)state;
    AUTO(part_division_done) struct part_division d = { 0 };
    decide("drf", two_nodes, &limit, claims, 2, &d);
    assert_true(d.jobs[0].n + d.jobs[1].n <= 6);
    assert_true(d.jobs[1].n >= 2);
    /* A job that holds more than the limit is not changed by it alone. */
    const struct part_amount low = { { 2048 } };
    part_division_done(&d);
    decide("drf", two_nodes, &low, claims, 1, &d);
    assert_int_equal(d.jobs[0].n, 4);
}

/* 2 GiB beside the containers: with 2 containers it needs 4 GiB. */
static void a_waiting_job_has_a_fixed_part(void **state)
{
    struct part_claim claims[] = { running("a", 8), waiting("b", 2) };
    (void)state;
    AUTO(part_division_done) struct part_division d = { 0 };
    claims[1].fixed.v[CLAIM_MEMORY_MIB] = 2048;
    claims[0].min = 5;
    decide("drf", two_nodes, NULL, claims, 2, &d);
    assert_int_equal(d.jobs[1].n, 0);
    assert_int_equal(d.jobs[0].n, 8);
    claims[0].min = 4;
    part_division_done(&d);
    decide("drf", two_nodes, NULL, claims, 2, &d);
    assert_int_equal(d.jobs[1].n, 2);
    assert_int_equal(d.jobs[0].n, 4);
}

static void jobs_that_keep_their_allocation(void **state)
{
    struct part_claim claims[] = { running("a", 8), waiting("b", 2) };
    (void)state;
    AUTO(part_division_done) struct part_division d = { 0 };
    claims[0].pinned = "it saves just now";
    decide("drf", two_nodes, NULL, claims, 2, &d);
    assert_int_equal(d.jobs[0].verdict, PART_KEEPS);
    assert_int_equal(d.jobs[1].verdict, PART_WAITS);
    part_division_done(&d);
    claims[0].pinned = NULL;
    claims[0].max = 6; /* it has 8 */
    decide("dorm", two_nodes, NULL, claims, 2, &d);
    assert_int_equal(d.jobs[0].n, 8);
    assert_int_equal(d.jobs[0].verdict, PART_KEEPS);
}

static void an_unknown_node_is_an_error(void **state)
{
    static const struct part_place elsewhere[] = { { 0, 1 }, { 2, 1 } };
    struct part_claim claim = running("a", 4);
    struct part_division d = { 0 };
    struct err e = { 0 };
    (void)state;
    claim.at = elsewhere;
    claim.n_at = 2;
    claim.n = 2;
    assert_int_equal(claims_decide(part_policy_find("drf"), &part_defaults, two_nodes, 2, NULL,
                                   &claim, 1, &d, &e),
                     -EINVAL);
    assert_non_null(strstr(e.msg, "'a'"));
}

/* ---- how long one job may hold up the others ---- */

static void a_job_holds_up_the_others_for_the_limit_only(void **state)
{
    struct patience p = { 0 };
    (void)state;
    assert_true(patience_wait(&p, 1000, 500));
    assert_true(patience_wait(&p, 1500, 500));
    assert_false(patience_wait(&p, 1501, 500));
    assert_true(patience_is_over(&p, 1501));
    assert_false(patience_wait(&p, 2000, 500));
    assert_int_equal(p.failures, 1); /* counted once, although two calls returned false */
    assert_false(patience_is_over(&p, 2001));
    assert_true(patience_wait(&p, 2001, 500));
}

static void only_time_without_a_pause_counts(void **state)
{
    struct patience p = { 0 };
    (void)state;
    assert_true(patience_wait(&p, 1000, 500));
    patience_pause(&p);
    assert_true(patience_wait(&p, 2000, 500));
    assert_true(patience_wait(&p, 2500, 500));
    assert_false(patience_wait(&p, 2501, 500));
}

static void pauses_double_up_to_eight_times(void **state)
{
    static const int64_t pauses_ms[] = { 300, 600, 1200, 2400, 2400 };
    struct patience p = { 0 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(pauses_ms); i++) {
        patience_fail(&p, 7, 300);
        assert_int_equal(p.until_ms, 7 + pauses_ms[i]);
    }
    patience_succeed(&p);
    assert_false(patience_is_over(&p, 7));
    patience_fail(&p, 7, 300);
    assert_int_equal(p.until_ms, 7 + 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_holds_up_the_others_for_the_limit_only),
        cmocka_unit_test(only_time_without_a_pause_counts),
        cmocka_unit_test(pauses_double_up_to_eight_times),
        cmocka_unit_test(half_for_the_one_that_waits),
        cmocka_unit_test(no_least_attained_service),
        cmocka_unit_test(a_resize_that_costs_too_much),
        cmocka_unit_test(what_others_hold_is_not_divided),
        cmocka_unit_test(the_queue_has_a_limit),
        cmocka_unit_test(a_waiting_job_has_a_fixed_part),
        cmocka_unit_test(jobs_that_keep_their_allocation),
        cmocka_unit_test(an_unknown_node_is_an_error),
    };
    return cmocka_run_group_tests_name("claims", tests, NULL, NULL);
}
