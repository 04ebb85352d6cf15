/* SPDX-License-Identifier: Apache-2.0 */
/* When waiting jobs start: situations on one node of 8 slots, and random queues. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/base.h"
#include "partition/estimate.h"

enum { JOBS_MAX = 4, DECISIONS = 100, QUEUE = 12 };

#define NEVER -1 /* in rows: INFINITY */
#define UNKNOWN                                                                                    \
    {                                                                                              \
        0, NEVER, NEVER                                                                            \
    }

static const char *const types[] = { "slots" };
static const struct part_amount node = { { 8 } };
static const struct part_cluster cluster = { 1, types, 1, &node };

struct row {
    const char *what, *policy;
    uint32_t decisions; /* 0: DECISIONS */
    struct {
        uint32_t now, min, max, each;
        double left[3];
        double told_s; /* what the policy knows of its end; 0: nothing */
    } jobs[JOBS_MAX];
    double start[JOBS_MAX][3];
    bool never[JOBS_MAX];
    double interval_s;
    double resize_s, payback_s, first_s;
};

static const struct row rows[] = {
    { "one after the other",
      "static",
      0,
      { { 8, 8, 8, 1, { 10, 20, 30 } }, { 0, 8, 8, 1, { 5, 5, 6 } }, { 0, 4, 4, 1, { 1, 1, 1 } } },
      { { 0, 0, 0 }, { 10, 20, 30 }, { 15, 25, 36 } },
      { false } },
    { "the last decision was just made",
      "static",
      0,
      { { 4, 4, 4, 1, { 10, 20, 30 } }, { 0, 4, 4, 1, { 5, 5, 6 } }, { 0, 4, 4, 1, { 1, 1, 1 } } },
      { { 0, 0, 0 }, { 4, 4, 4 }, { 9, 9, 10 } },
      { false },
      0,
      0,
      0,
      4 },
    { "an unknown run time",
      "static",
      0,
      { { 4, 4, 4, 1, UNKNOWN }, { 4, 4, 4, 1, { 7, 8, 9 } }, { 0, 8, 8, 1, { 5, 5, 5 } } },
      { { 0, 0, 0 }, { 0, 0, 0 }, { 7, NEVER, NEVER } },
      { false } },
    { "only a time limit",
      "static",
      0,
      { { 8, 8, 8, 1, { 0, NEVER, 40 } }, { 0, 8, 8, 1, UNKNOWN }, { 0, 1, 1, 1, UNKNOWN } },
      { { 0, 0, 0 }, { 0, NEVER, 40 }, { 0, NEVER, NEVER } },
      { false } },
    { "a small job passes a large one",
      "backfill",
      0,
      { { 6, 6, 6, 1, { 100, 100, 100 }, 100 },
        { 0, 8, 8, 1, { 10, 10, 10 }, 10 },
        { 0, 2, 2, 1, { 50, 50, 50 }, 50 },
        { 0, 2, 2, 1, { 200, 200, 200 }, 200 } },
      { { 0, 0, 0 }, { 100, 100, 100 }, { 0, 0, 0 }, { 110, 110, 110 } },
      { false } },
    { "a job that does not fit into the machine blocks nobody",
      "static",
      0,
      { { 0, 9, 9, 1, { 1, 1, 1 } }, { 0, 8, 8, 1, { 1, 1, 1 } } },
      { { NEVER, NEVER, NEVER }, { 0, 0, 0 } },
      { true } },
    { "a running job shrinks",
      "drf",
      0,
      { { 8, 1, 8, 1, UNKNOWN }, { 0, 2, 8, 1, UNKNOWN } },
      { { 0, 0, 0 }, { 0, 0, 0 } },
      { false } },
    { "a job that shrank needs longer",
      "drf",
      0,
      { { 8, 4, 8, 1, { 10, 10, 10 } }, { 0, 4, 4, 1, UNKNOWN }, { 0, 4, 4, 1, { 1, 1, 1 } } },
      { { 0, 0, 0 }, { 0, 0, 0 }, { 0, 20, 20 } },
      { false } },
    { "while it is resized, it does nothing",
      "drf",
      0,
      { { 8, 4, 8, 1, { 10, 10, 10 } }, { 0, 4, 4, 1, UNKNOWN }, { 0, 4, 4, 1, { 1, 1, 1 } } },
      { { 0, 0, 0 }, { 0, 0, 0 }, { 0, 22, 22 } },
      { false },
      0,
      2 },
    { "it waits until that is worth more than the resize costs",
      "drf",
      0,
      { { 8, 4, 8, 1, { 100, 100, 100 }, 100 }, { 0, 4, 4, 1, { 10, 10, 10 }, 10 } },
      { { 0, 0, 0 }, { 40, 40, 100 } },
      { false },
      0,
      50,
      1000 },
    { "no more decisions are allowed",
      "static",
      1,
      { { 8, 8, 8, 1, { 10, 20, 30 } }, { 0, 8, 8, 1, { 5, 5, 5 } }, { 0, 8, 8, 1, { 1, 1, 1 } } },
      { { 0, 0, 0 }, { 10, NEVER, NEVER }, { 10, NEVER, NEVER } },
      { false } },
    { "decisions are made once in 25 s",
      "static",
      0,
      { { 8, 8, 8, 1, { 10, 20, 30 } }, { 0, 8, 8, 1, { 5, 5, 5 } }, { 0, 8, 8, 1, { 1, 1, 1 } } },
      { { 0, 0, 0 }, { 25, 25, 30 }, { 50, 50, 55 } },
      { false },
      25 },
};

static double real(double s)
{
    return s < 0 ? (double)INFINITY : s;
}

static void check(const char *what, size_t job, double is, double expected)
{
    if (is != expected && !(fabs(is - expected) < 1e-3))
        fail_msg("%s: job %zu: %g, not %g", what, job, is, expected);
}

static size_t fill(const struct row *r, struct part_job *jobs, struct part_place *places,
                   struct part_range *left)
{
    size_t n = 0;
    for (; n < JOBS_MAX && r->jobs[n].min; n++) {
        double told = r->jobs[n].told_s > 0 ? r->jobs[n].told_s : (double)INFINITY;
        places[n] = (struct part_place){ 0, r->jobs[n].now };
        jobs[n] = (struct part_job){ .id = "job",
                                     .demand = { { r->jobs[n].each } },
                                     .weight = 1,
                                     .min = r->jobs[n].min,
                                     .max = r->jobs[n].max,
                                     .at = r->jobs[n].now ? &places[n] : NULL,
                                     .n_at = r->jobs[n].now > 0,
                                     .remaining_s = told,
                                     .resize_s = r->resize_s,
                                     .ends_in_s = told };
        left[n] = (struct part_range){ real(r->jobs[n].left[0]), real(r->jobs[n].left[1]),
                                       real(r->jobs[n].left[2]) };
    }
    return n;
}

static void test_situations(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        const struct row *r = &rows[k];
        struct part_job jobs[JOBS_MAX];
        struct part_place places[JOBS_MAX];
        struct part_range left[JOBS_MAX];
        struct part_start out[JOBS_MAX];
        struct err e = { 0 };
        struct part_horizon until = { r->decisions ? r->decisions : DECISIONS, PART_NOBODY,
                                      r->interval_s, r->first_s };
        size_t n = fill(r, jobs, places, left);
        struct part_options o = part_defaults;
        o.payback_s = r->payback_s;
        assert_int_equal(part_estimate(part_policy_find(r->policy), &cluster, jobs, left, n, &o,
                                       &until, out, &e),
                         0);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(out[i].never, r->never[i]);
            if (out[i].never)
                continue;
            bool starts = r->jobs[i].now == 0 && isfinite(out[i].in_s.low);
            assert_true(out[i].n == 0 || (starts && out[i].n >= jobs[i].min));
            assert_true(out[i].n <= jobs[i].max);
            assert_true(out[i].n > 0 || !starts || isinf(out[i].in_s.likely));
            check(r->what, i, out[i].in_s.low, real(r->start[i][0]));
            check(r->what, i, out[i].in_s.likely, real(r->start[i][1]));
            check(r->what, i, out[i].in_s.high, real(r->start[i][2]));
        }
    }
}

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(*seed >> 33) % n;
}

/* If each run time is within its range, then with `static` each start is within its range. If the
 * run times are exact, so are the starts. */
static void test_truth_is_within(void **state)
{
    (void)state;
    static const struct part_horizon all = { DECISIONS, PART_NOBODY, 0, 0 };
    uint64_t seed = 7;
    for (int round = 0; round < 2000; round++) {
        struct part_job jobs[QUEUE];
        struct part_range left[QUEUE], truth[QUEUE];
        struct part_start out[QUEUE], real_out[QUEUE];
        size_t n = 1 + draw(&seed, QUEUE);
        for (size_t i = 0; i < n; i++) {
            uint32_t size = 1 + draw(&seed, 8);
            double low = draw(&seed, 100), is = low + draw(&seed, 100);
            double likely = low + draw(&seed, 100);
            jobs[i] = (struct part_job){ .id = "job",
                                         .demand = { { 1 } },
                                         .weight = 1,
                                         .min = size,
                                         .max = size,
                                         .priority = (int)draw(&seed, 3),
                                         .remaining_s = (double)INFINITY,
                                         .ends_in_s = (double)INFINITY };
            left[i] = (struct part_range){ low, likely, low + 200 };
            truth[i] = (struct part_range){ is, is, is };
        }
        const struct part_policy *policy = part_policy_find("static");
        assert_int_equal(
            part_estimate(policy, &cluster, jobs, left, n, &part_defaults, &all, out, NULL), 0);
        assert_int_equal(
            part_estimate(policy, &cluster, jobs, truth, n, &part_defaults, &all, real_out, NULL),
            0);
        for (size_t i = 0; i < n; i++) {
            double start = real_out[i].in_s.likely;
            assert_true(real_out[i].in_s.low == start && real_out[i].in_s.high == start);
            assert_true(out[i].in_s.low <= start + 1e-3 && start <= out[i].in_s.high + 1e-3);
            assert_true(out[i].in_s.low <= out[i].in_s.likely + 1e-3);
            assert_true(out[i].in_s.likely <= out[i].in_s.high + 1e-3);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_situations),
        cmocka_unit_test(test_truth_is_within),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
