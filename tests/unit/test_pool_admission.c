/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/util.h"
#include "partition/partition.h"
#include "pool/admission.h"
#include "pool/share.h"

enum { JOBS_MAX = 6, NOBODY = -1 };

/* The capacity is 100 MiB and 4 GPUs. The jobs are in the order of the pool's list. want: 's'
 * starts, 'r' runs already, 'w' waits behind the job with that index. extends: the row is an
 * extension of the job with that index minus 1. */
static const struct {
    const char *what;
    size_t n;
    struct {
        uint64_t memory_mib;
        uint32_t gpus;
        int priority;
        uint32_t number;
        bool admitted;
        char want;
        int behind;
        uint32_t place;
        size_t extends;
    } jobs[JOBS_MAX];
    struct admission_amount left;
} rows[] = {
    { "an empty queue", 0, { { 0 } }, { 100, 4 } },
    { "one that fits exactly", 1, { { 100, 4, 0, 1, false, 's' } }, { 0, 0 } },
    { "one that needs nothing", 1, { { 0, 0, 0, 1, false, 's' } }, { 100, 4 } },
    { "two that fit together",
      2,
      { { 60, 0, 0, 1, false, 's' }, { 40, 4, 0, 2, false, 's' } },
      { 0, 0 } },
    { "memory is not given twice",
      2,
      { { 60, 0, 0, 1, false, 's' }, { 41, 0, 0, 2, false, 'w', 0, 1 } },
      { 40, 4 } },
    { "nor are GPUs",
      2,
      { { 1, 3, 0, 1, false, 's' }, { 1, 2, 0, 2, false, 'w', 0, 1 } },
      { 99, 1 } },
    { "a large job is not overtaken by small ones",
      4,
      { { 50, 0, 0, 1, true, 'r' },
        { 60, 0, 0, 2, false, 'w', 0, 1 },
        { 10, 0, 0, 3, false, 'w', 1, 2 },
        { 10, 0, 0, 4, false, 'w', 2, 3 } },
      { 50, 4 } },
    { "priority first, then arrival",
      4,
      { { 50, 0, 0, 1, false, 'w', 1, 1 },
        { 50, 0, 5, 2, false, 's' },
        { 50, 0, 0, 3, false, 'w', 0, 2 },
        { 50, 0, 5, 4, false, 's' } },
      { 0, 4 } },
    { "a higher priority blocks what would fit",
      3,
      { { 70, 0, 0, 1, true, 'r' },
        { 10, 0, 0, 2, false, 'w', 2, 2 },
        { 40, 0, 1, 3, false, 'w', 0, 1 } },
      { 30, 4 } },
    { "numbers count, not the place in the list",
      2,
      { { 60, 0, 0, 9, false, 'w', 1, 1 }, { 60, 0, 0, 8, false, 's' } },
      { 40, 4 } },
    { "behind the one that holds most of what is lacking: memory",
      4,
      { { 10, 3, 0, 1, true, 'r' },
        { 50, 0, 0, 2, true, 'r' },
        { 20, 0, 0, 3, true, 'r' },
        { 30, 0, 0, 4, false, 'w', 1, 1 } },
      { 20, 1 } },
    { "and GPUs",
      4,
      { { 10, 1, 0, 1, true, 'r' },
        { 50, 0, 0, 2, true, 'r' },
        { 20, 2, 0, 3, true, 'r' },
        { 1, 2, 0, 4, false, 'w', 2, 1 } },
      { 20, 1 } },
    { "more is held than there is: a pool that came back smaller",
      3,
      { { 80, 4, 0, 1, true, 'r' }, { 80, 4, 0, 2, true, 'r' }, { 1, 0, 0, 3, false, 'w', 0, 1 } },
      { 0, 0 } },
    { "what can never run waits behind nobody",
      1,
      { { 101, 0, 0, 1, false, 'w', NOBODY, 1 } },
      { 100, 4 } },
    { "an extension that fits",
      2,
      { { 30, 0, 0, 1, true, 'r' }, { 50, 2, 0, 1, false, 's', 0, 0, 1 } },
      { 20, 2 } },
    { "an extension stands behind the jobs that were there, and before later ones",
      5,
      { { 30, 0, 0, 1, true, 'r' },
        { 50, 0, 0, 2, true, 'r' },
        { 30, 0, 0, 3, false, 'w', 1, 1 },
        { 10, 0, 0, 4, false, 'w', 4, 3 },
        { 30, 0, 0, 3, false, 'w', 2, 2, 1 } },
      { 20, 4 } },
    { "it has the priority of its job",
      4,
      { { 30, 0, 2, 1, true, 'r' },
        { 20, 0, 1, 2, false, 'w', 0, 1 },
        { 10, 0, 3, 3, false, 's' },
        { 50, 0, 2, 9, false, 's', 0, 0, 1 } },
      { 10, 4 } },
    { "it does not wait for what its own job holds",
      3,
      { { 90, 0, 0, 1, true, 'r' },
        { 5, 0, 0, 2, true, 'r' },
        { 10, 0, 0, 2, false, 'w', 1, 1, 1 } },
      { 5, 4 } },
};

static void test_table(void **state)
{
    (void)state;
    const struct admission_amount capacity = { 100, 4 };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct admission_job jobs[JOBS_MAX] = { 0 };
        size_t order[JOBS_MAX];
        struct admission_amount left;
        for (size_t k = 0; k < rows[i].n; k++)
            jobs[k] = (struct admission_job){ .needs = { rows[i].jobs[k].memory_mib,
                                                         rows[i].jobs[k].gpus },
                                              .priority = rows[i].jobs[k].priority,
                                              .number = rows[i].jobs[k].number,
                                              .admitted = rows[i].jobs[k].admitted,
                                              .extension = rows[i].jobs[k].extends > 0,
                                              .of = rows[i].jobs[k].extends - 1 };
        admission_decide(&capacity, jobs, rows[i].n, order, &left);
        for (size_t k = 0; k < rows[i].n; k++) {
            char got = jobs[k].admitted ? 'r' : jobs[k].start ? 's' : 'w';
            size_t behind = got != 'w' || rows[i].jobs[k].behind == NOBODY
                                ? ADMISSION_NOBODY
                                : (size_t)rows[i].jobs[k].behind;
            if (got != rows[i].jobs[k].want || jobs[k].behind != behind ||
                jobs[k].place != rows[i].jobs[k].place)
                fail_msg("%s: job %zu: '%c' behind %zd at %u", rows[i].what, k, got,
                         (ssize_t)jobs[k].behind, jobs[k].place);
        }
        if (left.memory_mib != rows[i].left.memory_mib || left.gpus != rows[i].left.gpus)
            fail_msg("%s: %llu MiB and %u GPUs are left", rows[i].what,
                     (unsigned long long)left.memory_mib, left.gpus);
    }
}

/* For random queues: never more is granted than there is, and no job starts before an earlier one
 * that waits. */
static void test_random(void **state)
{
    (void)state;
    enum { N = 40, ROUNDS = 20000 };
    unsigned seed = 4711;
    for (int round = 0; round < ROUNDS; round++) {
        struct admission_job jobs[N] = { 0 };
        size_t order[N];
        struct admission_amount capacity = { 1000, 8 }, left, given = { 0 };
        size_t n = (size_t)rand_r(&seed) % N;
        for (size_t i = 0; i < n; i++) {
            jobs[i].needs = (struct admission_amount){ (uint64_t)rand_r(&seed) % 300,
                                                       (uint32_t)rand_r(&seed) % 4 };
            jobs[i].priority = rand_r(&seed) % 3;
            jobs[i].number = (uint32_t)(i + 1);
            struct admission_amount with = { given.memory_mib + jobs[i].needs.memory_mib,
                                             given.gpus + jobs[i].needs.gpus };
            jobs[i].admitted = rand_r(&seed) % 4 == 0 && admission_possible(&capacity, &with);
            if (jobs[i].admitted)
                given = with;
            else if (i > 0 && jobs[0].admitted && rand_r(&seed) % 4 == 0)
                jobs[i].extension = true; /* of the first job */
        }
        admission_decide(&capacity, jobs, n, order, &left);
        for (size_t i = 0; i < n; i++) {
            if (jobs[i].start) {
                given.memory_mib += jobs[i].needs.memory_mib;
                given.gpus += jobs[i].needs.gpus;
            }
            for (size_t k = 0; k < n; k++)
                if (jobs[k].start && !jobs[i].start && !jobs[i].admitted)
                    assert_true(
                        jobs[k].priority > jobs[i].priority ||
                        (jobs[k].priority == jobs[i].priority && jobs[k].number < jobs[i].number));
        }
        assert_true(given.memory_mib + left.memory_mib == capacity.memory_mib);
        assert_int_equal(given.gpus + left.gpus, capacity.gpus);
    }
}

/* `tony simulate` knows the pool's queue as the policy `static`. Both codes must start the same
 * jobs. */
static void test_the_simulated_queue_is_the_same(void **state)
{
    static const struct admission_amount capacity = { 100, 8 };
    unsigned seed = 7;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct admission_job jobs[JOBS_MAX] = { { { 0 } } };
        struct share_job shared[JOBS_MAX] = { { .id = NULL } };
        struct admission_amount held = { 0 }, left;
        struct part_division d = { 0 };
        struct err e = { 0 };
        size_t order[JOBS_MAX], n = 1 + (size_t)rand_r(&seed) % JOBS_MAX;
        for (size_t i = 0; i < n; i++) {
            struct admission_amount needs = { 1 + (uint64_t)rand_r(&seed) % 60,
                                              (uint32_t)rand_r(&seed) % 5 };
            bool runs = rand_r(&seed) % 3 == 0 &&
                        held.memory_mib + needs.memory_mib <= capacity.memory_mib &&
                        held.gpus + needs.gpus <= capacity.gpus;
            if (runs) {
                held.memory_mib += needs.memory_mib;
                held.gpus += needs.gpus;
            }
            jobs[i] = (struct admission_job){ .needs = needs,
                                              .priority = rand_r(&seed) % 3,
                                              .number = (uint32_t)i + 1,
                                              .admitted = runs };
            shared[i] = (struct share_job){ .id = "job",
                                            .kind = runs ? SHARE_RUNS : SHARE_WAITS,
                                            .pin = runs ? SHARE_PIN_FIXED : SHARE_FREE,
                                            .each = needs,
                                            .n = 1,
                                            .min = 1,
                                            .max = 1,
                                            .weight = 1,
                                            .priority = jobs[i].priority,
                                            .number = jobs[i].number,
                                            .remaining_s = INFINITY,
                                            .ends_in_s = INFINITY };
        }
        admission_decide(&capacity, jobs, n, order, &left);
        if (share_decide(part_policy_find("static"), &part_defaults, &capacity, shared, n, &d, &e) <
            0)
            fail_msg("%s", e.msg);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(d.jobs[i].verdict == PART_STARTS, jobs[i].start);
        part_division_done(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_the_simulated_queue_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
