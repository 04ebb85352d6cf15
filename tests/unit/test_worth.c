/* SPDX-License-Identifier: Apache-2.0 */
/* No resize that costs more than it gains: one node of 8 slots, divided by `drf`. The random
 * instances are in test_partition_random.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/base.h"
#include "partition/partition.h"

enum { JOBS_MAX = 3 };

static const char *const types[] = { "slots" };
static const struct part_amount node = { { 8 } };
static const struct part_cluster cluster = { 1, types, 1, &node };
static const char *const ids[JOBS_MAX] = { "a", "b", "c" };

struct row {
    const char *what;
    double payback_s;
    struct {
        uint32_t now, min, max; /* now = 0: it waits */
        double resize_s, left_s, waited_s;
    } jobs[JOBS_MAX];
    uint32_t then[JOBS_MAX]; /* containers after the decision */
    double again_s;          /* 0: never */
    const char *why;         /* of the job `asked` */
    uint32_t asked;
};

static const struct row rows[] = {
    { "growth that does not pay",
      100,
      { { 4, 1, 8, 90 } },
      { 4 },
      0,
      "it keeps its 4 containers: a resize would cost 90 s of its work, and gain 10 s",
      0 },
    { "growth that pays",
      200,
      { { 4, 1, 8, 90 } },
      { 8 },
      0,
      "it grows from 4 to 8 containers: this is its largest size",
      0 },
    { "it ends soon",
      1000,
      { { 4, 1, 8, 90, 150 } },
      { 4 },
      0,
      "it keeps its 4 containers: a resize would cost 90 s of its work, and gain 60 s",
      0 },
    { "the rule is off",
      0,
      { { 4, 1, 8, 90, 1 } },
      { 8 },
      0,
      "it grows from 4 to 8 containers: this is its largest size",
      0 },
    { "a start that does not pay",
      80,
      { { 8, 1, 8, 90 }, { 0, 2, 8 } },
      { 8, 0 },
      10,
      "it waits: to make room would cost running jobs as much as 90 s of its work, and gain 80 s",
      1 },
    { "it has waited",
      80,
      { { 8, 1, 8, 90 }, { 0, 2, 8, 0, 0, 10 } },
      { 4, 4 },
      0,
      "it shrinks from 8 to 4 containers: its fair share is 4 containers",
      0 },
    { "room comes soon without it",
      1000,
      { { 8, 1, 8, 90, 50 }, { 0, 2, 8 } },
      { 8, 0 },
      40,
      "it keeps its 8 containers: to shrink it for others would cost 45 s of its work, and gain "
      "them as much as 25 s",
      0 },
    { "a short job",
      1000,
      { { 8, 1, 8, 90 }, { 0, 2, 8, 0, 30 } },
      { 8, 0 },
      60,
      "it waits: to make room would cost running jobs as much as 90 s of its work, and gain 30 s",
      1 },
    { "the first fits without a resize",
      80,
      { { 6, 1, 8, 90 }, { 0, 2, 2 }, { 0, 2, 2 } },
      { 6, 2, 0 },
      10,
      "it waits: to make room would cost running jobs as much as 180 s of its work, and gain 160 s",
      2 },
    { "nobody overtakes",
      80,
      { { 6, 4, 8, 90 }, { 0, 4, 4 }, { 0, 1, 1 } },
      { 6, 0, 0 },
      10,
      NULL,
      0 },
    { "an expensive one beside a cheap one",
      200,
      { { 2, 1, 3, 90 }, { 2, 1, 3, 1 }, { 4, 1, 8, 1 } },
      { 2, 3, 3 },
      0,
      "it keeps its 2 containers: a resize would cost 90 s of its work, and gain 55 s",
      0 },
    { "a resize that costs nothing", 1, { { 8, 1, 8 }, { 0, 2, 8 } }, { 4, 4 }, 0, NULL, 0 },
};

static void check(const struct row *r)
{
    struct part_job jobs[JOBS_MAX];
    struct part_place places[JOBS_MAX];
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_options o = part_defaults;
    char why[PART_WHY_MAX];
    size_t n = 0;

    o.payback_s = r->payback_s;
    for (; n < JOBS_MAX && r->jobs[n].max; n++) {
        bool runs = r->jobs[n].now > 0;
        double left_s = r->jobs[n].left_s > 0 ? r->jobs[n].left_s : (double)INFINITY;
        places[n] = (struct part_place){ 0, r->jobs[n].now };
        jobs[n] = (struct part_job){ .id = ids[n],
                                     .demand = { { 1 } },
                                     .weight = 1,
                                     .min = r->jobs[n].min,
                                     .max = r->jobs[n].max,
                                     .at = runs ? &places[n] : NULL,
                                     .n_at = runs,
                                     .remaining_s = left_s,
                                     .ends_in_s = left_s,
                                     .resize_s = r->jobs[n].resize_s,
                                     .waited_s = r->jobs[n].waited_s };
    }
    assert_int_equal(part_decide(part_policy_find("drf"), &cluster, jobs, n, &o, &d, NULL), 0);
    part_why(&d, &cluster, jobs, r->asked, why);
    for (size_t i = 0; i < n; i++)
        if (d.jobs[i].n != r->then[i])
            fail_msg("%s: job '%s' gets %u containers, not %u (%s)", r->what, ids[i], d.jobs[i].n,
                     r->then[i], why);
    if (r->why && !str_eq(why, r->why))
        fail_msg("%s: \"%s\" instead of \"%s\"", r->what, why, r->why);
    double again_s = r->again_s > 0 ? r->again_s : (double)INFINITY;
    if (!(fabs(d.metrics.again_s - again_s) < 1e-6) &&
        !(isinf(again_s) && isinf(d.metrics.again_s)))
        fail_msg("%s: again after %g s, not %g s", r->what, d.metrics.again_s, again_s);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check(&rows[i]);
}

/* A job that is held back starts once it has waited for again_s. */
static void test_again(void **state)
{
    struct row r = rows[4];

    (void)state;
    r.jobs[1].waited_s = r.again_s;
    r.then[0] = r.then[1] = 4;
    r.again_s = 0;
    r.why = NULL;
    check(&r);
}

/* Two nodes of 4 slots. A new job with containers of 4 slots needs one of them whole, and the
 * running job has 2 containers on each. By drf the running job keeps 4 containers, all on the other
 * node: two of them move. */
static void test_move(void **state)
{
    static const struct part_amount nodes[] = { { { 4 } }, { { 4 } } };
    static const struct part_cluster two = { 1, types, 2, nodes };
    static const struct part_place spread[] = { { 0, 2 }, { 1, 2 } };
    struct part_job jobs[] = {
        { .id = "a",
          .demand = { { 1 } },
          .weight = 1,
          .min = 4,
          .max = 4,
          .at = spread,
          .n_at = 2 },
        { .id = "b", .demand = { { 4 } }, .weight = 1, .min = 1, .max = 1 },
    };
    struct part_options o = part_defaults;

    (void)state;
    jobs[0].resize_s = 60;
    jobs[0].ends_in_s = jobs[0].remaining_s = jobs[1].ends_in_s = jobs[1].remaining_s = INFINITY;
    o.payback_s = 100;
    o.repack = true;
    for (int twice = 0; twice <= 1; twice++) {
        AUTO(part_decision_done) struct part_decision d = { 0 };
        char why[PART_WHY_MAX];
        o.move_in_two = twice == 1;
        assert_int_equal(part_decide(part_policy_find("drf"), &two, jobs, 2, &o, &d, NULL), 0);
        assert_int_equal(d.jobs[0].n, 4);
        assert_int_equal(d.jobs[1].verdict, twice ? PART_WAITS : PART_STARTS);
        part_why(&d, &two, jobs, 1, why);
        if (twice)
            assert_string_equal(why, "it waits: to make room would cost running jobs as much as "
                                     "120 s of its work, and gain 100 s");
    }
}

/* By dorm, half of the running job's containers go to the waiting one: the use is as large as it
 * was, but one more job is admitted. If the rule keeps the running job as it is, the proof is void.
 */
static void test_proof(void **state)
{
    static const struct part_place all = { 0, 8 };
    struct part_job jobs[] = {
        { .id = "a", .demand = { { 1 } }, .weight = 1, .min = 4, .max = 8, .at = &all, .n_at = 1 },
        { .id = "b", .demand = { { 1 } }, .weight = 1, .min = 4, .max = 4 },
    };
    struct part_options o = part_defaults;

    (void)state;
    jobs[0].resize_s = 90;
    jobs[0].ends_in_s = jobs[0].remaining_s = jobs[1].ends_in_s = jobs[1].remaining_s = INFINITY;
    o.adjust_max = 1;
    for (int rule = 0; rule <= 1; rule++) {
        AUTO(part_decision_done) struct part_decision d = { 0 };
        o.payback_s = rule ? 10 : 0;
        assert_int_equal(part_decide(part_policy_find("dorm"), &cluster, jobs, 2, &o, &d, NULL), 0);
        assert_int_equal(d.jobs[0].n, rule ? 8 : 4);
        assert_int_equal(d.jobs[1].n, rule ? 0 : 4);
        assert_int_equal(d.metrics.proved, !rule);
        assert_true(rule ? isnan(part_gap(&d.metrics)) : part_gap(&d.metrics) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_move),
        cmocka_unit_test(test_proof),
    };
    return cmocka_run_group_tests_name("worth", tests, NULL, NULL);
}
