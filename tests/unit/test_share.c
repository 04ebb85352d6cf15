/* SPDX-License-Identifier: Apache-2.0 */
/* The translation between the pool's jobs and the input and answer of a policy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "pool/share.h"

enum { JOBS_MAX = 5 };

static const struct admission_amount machine = { 800, 8 };

/* kind, fixed, each, min, max, n, pin, weight; want: containers after the decision */
struct row {
    enum share_kind kind;
    struct admission_amount fixed, each;
    uint32_t min, max, n;
    enum share_pin pin;
    uint32_t weight;
    int priority;
    uint32_t want;
};

static const struct {
    const char *what, *policy;
    size_t n;
    struct row jobs[JOBS_MAX];
} cases[] = {
    { "a job grows into the empty machine",
      "dorm",
      1,
      { { SHARE_RUNS, { 0 }, { 100, 0 }, 1, 8, 4, SHARE_FREE, 1, 0, 8 } } },
    { "half for each",
      "drf",
      2,
      { { SHARE_RUNS, { 0 }, { 100, 0 }, 1, 8, 8, SHARE_FREE, 1, 0, 4 },
        { SHARE_WAITS, { 0 }, { 100, 0 }, 1, 8, 4, SHARE_FREE, 1, 0, 4 } } },
    { "by weight",
      "drf",
      2,
      { { SHARE_RUNS, { 0 }, { 100, 0 }, 1, 8, 8, SHARE_FREE, 3, 0, 6 },
        { SHARE_WAITS, { 0 }, { 100, 0 }, 1, 8, 4, SHARE_FREE, 1, 0, 2 } } },
    { "a pinned job keeps what it has",
      "drf",
      2,
      { { SHARE_RUNS, { 0 }, { 100, 0 }, 6, 6, 6, SHARE_PIN_FIXED, 1, 0, 6 },
        { SHARE_WAITS, { 0 }, { 100, 0 }, 1, 8, 4, SHARE_FREE, 1, 0, 2 } } },
    { "the fixed part of a running job is not divided",
      "drf",
      1,
      { { SHARE_RUNS, { 250, 0 }, { 100, 0 }, 1, 8, 1, SHARE_FREE, 1, 0, 5 } } },
    { "a waiting job gets no more than fits with its fixed part",
      "drf",
      1,
      { { SHARE_WAITS, { 250, 0 }, { 100, 0 }, 2, 8, 2, SHARE_FREE, 1, 0, 3 } } },
    { "GPUs bound the number",
      "dorm",
      1,
      { { SHARE_RUNS, { 0, 1 }, { 10, 2 }, 1, 8, 1, SHARE_FREE, 1, 0, 3 } } },
    { "an extension takes what a running job can give back",
      "drf",
      3,
      { { SHARE_RUNS, { 0 }, { 300, 0 }, 1, 1, 1, SHARE_PIN_FIXED, 1, 0, 1 },
        { SHARE_RUNS, { 0 }, { 100, 0 }, 1, 5, 5, SHARE_FREE, 1, 0, 3 },
        { SHARE_EXTENDS, { 0 }, { 200, 0 }, 1, 1, 1, SHARE_FREE, 1, 0, 1 } } },
    { "one that can never fit is passed over",
      "dorm",
      2,
      { { SHARE_WAITS, { 0 }, { 900, 0 }, 1, 1, 1, SHARE_FREE, 1, 0, 0 },
        { SHARE_WAITS, { 0 }, { 100, 0 }, 1, 1, 1, SHARE_FREE, 1, 0, 1 } } },
    { "more is held than the machine has: nothing starts, all keep theirs",
      "drf",
      2,
      { { SHARE_RUNS, { 0 }, { 100, 0 }, 9, 9, 9, SHARE_PIN_FIXED, 1, 0, 9 },
        { SHARE_WAITS, { 0 }, { 100, 0 }, 1, 2, 1, SHARE_FREE, 1, 0, 0 } } },
    { "priority counts in the queue",
      "static",
      3,
      { { SHARE_RUNS, { 0 }, { 500, 0 }, 1, 1, 1, SHARE_PIN_FIXED, 1, 0, 1 },
        { SHARE_WAITS, { 0 }, { 300, 0 }, 1, 1, 1, SHARE_FREE, 1, 0, 0 },
        { SHARE_WAITS, { 0 }, { 300, 0 }, 1, 1, 1, SHARE_FREE, 1, 5, 1 } } },
    { "without a resize a job gets what its file asks for",
      "static",
      1,
      { { SHARE_WAITS, { 0 }, { 100, 0 }, 1, 8, 3, SHARE_FREE, 1, 0, 3 } } },
    { "a small job passes a large one that waits",
      "backfill",
      3,
      { { SHARE_RUNS, { 0 }, { 500, 0 }, 1, 1, 1, SHARE_PIN_FIXED, 1, 0, 1 },
        { SHARE_WAITS, { 0 }, { 700, 0 }, 1, 1, 1, SHARE_FREE, 1, 0, 0 },
        { SHARE_WAITS, { 0 }, { 100, 0 }, 1, 1, 1, SHARE_FREE, 1, 0, 1 } } },
};

static const char *const ids[JOBS_MAX] = { "a", "b", "c", "d", "e" };

static void fill(const struct row *rows, size_t n, struct share_job *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (struct share_job){ .id = ids[i],
                                     .kind = rows[i].kind,
                                     .fixed = rows[i].fixed,
                                     .each = rows[i].each,
                                     .min = rows[i].min,
                                     .max = rows[i].max,
                                     .n = rows[i].n,
                                     .pin = rows[i].pin,
                                     .priority = rows[i].priority,
                                     .number = (uint32_t)i + 1,
                                     .weight = rows[i].weight,
                                     .remaining_s = INFINITY,
                                     .ends_in_s = INFINITY };
}

/* The resources that the jobs hold after the decision. */
static struct admission_amount held(const struct share_job *jobs, const struct part_division *d)
{
    struct admission_amount sum = { 0 };
    for (size_t i = 0; i < d->n; i++) {
        struct admission_amount one = share_sum(&jobs[i].fixed, &jobs[i].each, d->jobs[i].n);
        if (d->jobs[i].n > 0)
            sum = share_sum(&sum, &one, 1);
    }
    return sum;
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct share_job jobs[JOBS_MAX];
        struct part_division d = { 0 };
        struct err e = { 0 };
        struct part_options o = part_defaults;
        o.adjust_max = 10;
        fill(cases[k].jobs, cases[k].n, jobs);
        for (size_t i = 0; i < cases[k].n; i++) { /* backfill needs to know how long jobs run */
            jobs[i].ends_in_s = jobs[i].kind == SHARE_RUNS ? 60 : INFINITY;
            jobs[i].remaining_s = 30;
        }
        if (share_decide(part_policy_find(cases[k].policy), &o, &machine, jobs, cases[k].n, &d,
                         &e) < 0)
            fail_msg("%s: %s", cases[k].what, e.msg);
        for (size_t i = 0; i < cases[k].n; i++) {
            if (d.jobs[i].n != cases[k].jobs[i].want)
                fail_msg("%s: job %s has %u, not %u: %s", cases[k].what, ids[i], d.jobs[i].n,
                         cases[k].jobs[i].want, d.jobs[i].why);
            assert_true(d.jobs[i].why[0]);
        }
        part_division_done(&d);
    }
}

/* For any jobs: the decision gives no more than the capacity, pinned jobs keep their number, and
 * each number is within its bounds. */
static void test_random(void **state)
{
    static const char *const policies[] = { "static", "fifo", "backfill", "drf", "dorm", "market" };
    (void)state;
    unsigned seed = 7;
    for (int round = 0; round < 3000; round++) {
        struct share_job jobs[JOBS_MAX];
        struct part_division d = { 0 };
        struct err e = { 0 };
        size_t n = 1 + (size_t)rand_r(&seed) % JOBS_MAX;
        struct admission_amount left = machine;
        for (size_t i = 0; i < n; i++) {
            struct share_job *j = &jobs[i];
            *j = (struct share_job){
                .id = ids[i],
                .kind = SHARE_WAITS,
                .fixed = { (uint64_t)rand_r(&seed) % 100, (uint32_t)rand_r(&seed) % 2 },
                .each = { 1 + (uint64_t)rand_r(&seed) % 200, (uint32_t)rand_r(&seed) % 3 },
                .number = (uint32_t)i + 1,
                .weight = 1 + (uint32_t)rand_r(&seed) % 4,
                .remaining_s = INFINITY,
                .ends_in_s = INFINITY
            };
            j->min = 1 + (uint32_t)rand_r(&seed) % 3;
            j->max = j->min + (uint32_t)rand_r(&seed) % 6;
            j->n = j->min + (uint32_t)rand_r(&seed) % (j->max - j->min + 1);
            struct admission_amount all = share_sum(&j->fixed, &j->each, j->n);
            if (rand_r(&seed) % 2 && admission_possible(&left, &all)) {
                j->kind = SHARE_RUNS;
                j->pin = rand_r(&seed) % 3 == 0 ? SHARE_PIN_LATE : SHARE_FREE;
                left.memory_mib -= all.memory_mib;
                left.gpus -= all.gpus;
            }
        }
        const char *name = policies[(size_t)round % ARRAY_LEN(policies)];
        struct part_options o = part_defaults;
        o.limit.steps = 200;
        if (share_decide(part_policy_find(name), &o, &machine, jobs, n, &d, &e) < 0)
            fail_msg("round %d, %s: %s", round, name, e.msg);
        struct admission_amount sum = held(jobs, &d);
        if (!admission_possible(&machine, &sum))
            fail_msg("round %d, %s: %llu MiB and %u GPUs are given", round, name,
                     (unsigned long long)sum.memory_mib, sum.gpus);
        for (size_t i = 0; i < n; i++) {
            uint32_t got = d.jobs[i].n;
            if ((jobs[i].kind == SHARE_RUNS && jobs[i].pin && got != jobs[i].n) ||
                (got && (got < jobs[i].min || got > jobs[i].max)) ||
                (jobs[i].kind == SHARE_RUNS && !got))
                fail_msg("round %d, %s: job %s has %u", round, name, ids[i], got);
        }
        part_division_done(&d);
    }
}

/* The order in which the pool lists its jobs changes nothing. */
static void test_order_of_the_list(void **state)
{
    (void)state;
    struct share_job jobs[3], turned[3];
    struct part_division d = { 0 }, t = { 0 };
    fill(cases[7].jobs, 3, jobs);
    for (size_t i = 0; i < 3; i++)
        turned[i] = jobs[2 - i];
    const struct part_policy *drf = part_policy_find("drf");
    assert_int_equal(share_decide(drf, &part_defaults, &machine, jobs, 3, &d, NULL), 0);
    assert_int_equal(share_decide(drf, &part_defaults, &machine, turned, 3, &t, NULL), 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(d.jobs[i].n, t.jobs[2 - i].n);
    part_division_done(&d);
    part_division_done(&t);
}

static void test_no_jobs(void **state)
{
    (void)state;
    struct part_division d = { 0 };
    assert_int_equal(
        share_decide(part_policy_find("dorm"), &part_defaults, &machine, NULL, 0, &d, NULL), 0);
    assert_int_equal(d.n, 0);
    part_division_done(&d);
}

static void test_too_large(void **state)
{
    (void)state;
    struct part_division d = { 0 };
    struct err e = { 0 };
    struct share_job j = { .id = "a",
                           .kind = SHARE_WAITS,
                           .each = { UINT64_MAX, 0 },
                           .min = 1,
                           .max = 1,
                           .n = 1,
                           .weight = 1 };
    assert_int_equal(
        share_decide(part_policy_find("dorm"), &part_defaults, &machine, &j, 1, &d, &e), -EINVAL);
    assert_true(e.msg[0]);
}

static void test_count(void **state)
{
    static const struct {
        struct admission_amount fixed, each, held;
        int want; /* number of containers; -1 = `held` is not fixed + n * each for any n */
    } rows[] = {
        { { 0, 0 }, { 100, 0 }, { 300, 0 }, 3 },   { { 50, 1 }, { 100, 2 }, { 250, 5 }, 2 },
        { { 50, 0 }, { 100, 0 }, { 300, 0 }, -1 }, { { 50, 0 }, { 100, 0 }, { 49, 0 }, -1 },
        { { 0, 0 }, { 100, 1 }, { 300, 2 }, -1 },  { { 0, 0 }, { 0, 1 }, { 300, 2 }, -1 },
        { { 50, 1 }, { 100, 2 }, { 50, 1 }, 0 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint32_t n = 0;
        bool known = share_count(&rows[i].fixed, &rows[i].each, &rows[i].held, &n);
        assert_int_equal(known ? (int)n : -1, rows[i].want);
    }
}

static void test_sum_is_capped(void **state)
{
    (void)state;
    struct admission_amount fixed = { 10, 1 }, each = { UINT64_MAX / 2, UINT32_MAX };
    struct admission_amount sum = share_sum(&fixed, &each, 3);
    assert_true(sum.memory_mib == UINT64_MAX && sum.gpus == UINT32_MAX);
}

static void test_hints(void **state)
{
    (void)state;
    for (int b = 0; b < PART_BECAUSE_N; b++)
        for (int v = PART_WAITS; v <= PART_STOPS; v++)
            assert_non_null(share_hint((enum part_verdict)v, (enum part_because)b, SHARE_FREE));
    assert_non_null(strstr(share_hint(PART_WAITS, PART_BECAUSE_LOSS, SHARE_FREE), "loss-max"));
}

/* The sentence about a job that must keep its size names the reason, also if the job has its
 * largest size. A job whose start is decided does not keep anything yet. */
static void test_pins(void **state)
{
    static const char *const says[SHARE_PINS] = {
        [SHARE_PIN_FIXED] = "it keeps its 4 containers: its job file",
        [SHARE_PIN_STARTS] = "it starts with 4 containers: ",
        [SHARE_PIN_CHANGES] = "or a task that leaves, has not ended",
        [SHARE_PIN_PHASE] = "its keeper is not connected",
        [SHARE_PIN_EXTENDS] = "its user has asked for",
        [SHARE_PIN_LATE] = "within resize-limit",
        [SHARE_PIN_UNHEARD] = "its master has not reported",
        [SHARE_PIN_BOUNDS] = "its master accepts no other size",
    };
    (void)state;
    for (enum share_pin pin = SHARE_PIN_FIXED; pin < SHARE_PINS; pin++) {
        struct share_job j = { .id = "a",
                               .kind = SHARE_RUNS,
                               .each = { 100, 0 },
                               .min = 4,
                               .max = 4,
                               .n = 4,
                               .pin = pin,
                               .weight = 1,
                               .remaining_s = INFINITY,
                               .ends_in_s = INFINITY };
        struct part_division d = { 0 };
        const struct part_policy *drf = part_policy_find("drf");
        assert_int_equal(share_decide(drf, &part_defaults, &machine, &j, 1, &d, NULL), 0);
        if (!strstr(d.jobs[0].why, says[pin]))
            fail_msg("pin %d: %s", (int)pin, d.jobs[0].why);
        assert_int_equal(d.jobs[0].verdict, pin == SHARE_PIN_STARTS ? PART_STARTS : PART_KEEPS);
        assert_true(share_hint(d.jobs[0].verdict, d.jobs[0].because, pin)[0]);
        part_division_done(&d);
    }
}

/* A job whose tasks are being started again may not grow for now. If it has its largest size
 * therefore, no larger max-instances would help. It may still shrink. */
static void test_no_larger(void **state)
{
    (void)state;
    struct share_job jobs[] = { { .id = "a",
                                  .kind = SHARE_RUNS,
                                  .each = { 100, 0 },
                                  .min = 1,
                                  .max = 4,
                                  .n = 4,
                                  .pin = SHARE_NO_LARGER,
                                  .weight = 1,
                                  .remaining_s = INFINITY,
                                  .ends_in_s = INFINITY },
                                { .id = "b",
                                  .kind = SHARE_WAITS,
                                  .each = { 600, 0 },
                                  .min = 1,
                                  .max = 1,
                                  .n = 1,
                                  .number = 1,
                                  .weight = 1,
                                  .remaining_s = INFINITY,
                                  .ends_in_s = INFINITY } };
    const struct part_policy *drf = part_policy_find("drf");
    struct part_division d = { 0 };
    assert_int_equal(share_decide(drf, &part_defaults, &machine, jobs, 1, &d, NULL), 0);
    assert_non_null(strstr(d.jobs[0].why, "for now its master accepts no larger size"));
    assert_non_null(strstr(share_hint(d.jobs[0].verdict, d.jobs[0].because, jobs[0].pin), "start"));
    part_division_done(&d);
    assert_int_equal(share_decide(drf, &part_defaults, &machine, jobs, 2, &d, NULL), 0);
    assert_int_equal(d.jobs[0].n, 2);
    assert_null(strstr(d.jobs[0].why, "master"));
    part_division_done(&d);
}

/* Under a policy the allowed entries start; another one that does not fit blocks none of them. */
static void test_admission_of_allowed(void **state)
{
    (void)state;
    struct admission_job jobs[] = {
        { .needs = { 500, 0 }, .number = 1, .admitted = true },
        { .needs = { 100, 0 }, .number = 2 },                  /* first in the queue, not allowed */
        { .needs = { 400, 0 }, .number = 3, .allowed = true }, /* does not fit yet */
        { .needs = { 200, 8 }, .number = 4, .allowed = true },
        { .needs = { 100, 1 }, .number = 5, .allowed = true }, /* no GPU is left */
    };
    size_t order[ARRAY_LEN(jobs)];
    struct admission_amount left;
    admission_allowed(&machine, jobs, ARRAY_LEN(jobs), order, &left);
    static const bool start[] = { false, false, false, true, false };
    static const uint32_t place[] = { 0, 1, 2, 0, 3 };
    static const size_t behind[] = { ADMISSION_NOBODY, 0, 1, ADMISSION_NOBODY, 2 };
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        assert_int_equal(jobs[i].start, start[i]);
        assert_int_equal(jobs[i].place, place[i]);
        assert_int_equal(jobs[i].behind, behind[i]);
    }
    assert_int_equal(order[0], 3);
    assert_int_equal(left.memory_mib, 100);
    assert_int_equal(left.gpus, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_order_of_the_list),
        cmocka_unit_test(test_no_jobs),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_sum_is_capped),
        cmocka_unit_test(test_hints),
        cmocka_unit_test(test_pins),
        cmocka_unit_test(test_no_larger),
        cmocka_unit_test(test_admission_of_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
