/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of containers between which the scheduler may resize a job. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/base.h"
#include "drive.h"
#include "job/job_int.h"

static void check_bounds(const char *job, const char *script, uint32_t min, uint32_t max)
{
    struct drive d;
    uint32_t low, high;

    drive_init(&d, job);
    drive_run(&d, script);
    job_bounds(d.job, &low, &high);
    if (low != min || high != max)
        fail_msg("[%s] [%s]: %u..%u, but designed: %u..%u", job, script, low, high, min, max);
    drive_done(&d);
}

static void test_bounds(void **state)
{
    static const struct {
        const char *job, *script;
        uint32_t min, max;
    } rows[] = {
        { "worker*4", "go", 1, 4 }, /* no maximum: the job does not grow */
        { "worker*4/min2/cap8", "go", 2, 8 },
        { "worker*4/min2/cap8 ps*2/fixed tb*1/sidecar", "go", 5, 11 },
        { "worker*4/min2/cap8/on/max3/spares2", "go", 4, 10 },
        { "worker*2/live/cap3 ps*2/live/min2/cap5", "go", 3, 8 },
        { "single=1", "go", 1, 1 },
        /* a role with an ended task keeps its size */
        { "worker*4/cap8 ps*2/live", "go ps:0=0", 3, 10 },
        { "worker*4/cap8", "go worker:1=0", 4, 4 },
        /* before the start, and in a stage that has not begun */
        { "prep*1 train*2/restart/cap4<prep", "go", 2, 5 },
        /* with the size to which the job changes */
        { "worker*2/restart/cap8 nogrant=2", "go resize:worker=4", 1, 8 },
        { "worker*2/restart nogrant=2", "go resize:worker=4", 1, 4 },
        { "worker*2/restart nogrant=2", "go resize:worker=4 +61000", 1, 2 },
        { "worker*2/live", "go resize:worker=4 resize:worker=3", 1, 3 },
        /* while the gang forms again: a demand is kept, an offer is refused */
        { "worker*4/restart/cap8", "go mute:worker:3 resize:worker=3", 1, 3 },
        { "worker*4/restart/cap8", "go mute:worker:3 resize:worker=3 worker:3!0", 1, 8 },
        { "worker*4/cap8", "go mute:worker:1 stop", 4, 4 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check_bounds(rows[i].job, rows[i].script, rows[i].min, rows[i].max);
}

/* The limits on totals may allow less than the limits of the roles. */
static void test_bounds_and_totals(void **state)
{
    static const struct {
        uint64_t tasks, memory_mib;
        uint32_t max;
    } rows[] = {
        { 0, 0, 16 }, { 10, 0, 10 }, { 0, 7, 7 }, { 16, 16, 16 }, { 9, 5, 5 }, { 3, 0, 4 }
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        uint32_t min, max;
        drive_init(&d, "worker*2/live/cap8 ps*2/live/cap8");
        for (size_t r = 0; r < d.spec->n_roles; r++)
            d.spec->roles[r].memory_mib = 1;
        d.spec->max_total[TOTAL_INSTANCES] = rows[i].tasks;
        d.spec->max_total[TOTAL_MEMORY] = rows[i].memory_mib;
        drive_run(&d, "go");
        job_bounds(d.job, &min, &max);
        if (min != 2 || max != rows[i].max)
            fail_msg("row %zu: %u..%u", i, min, max);
        drive_run(&d, "grow:99");
        assert_int_equal(job_n_tasks(d.job), max);
        job_bounds(d.job, &min, &max);
        assert_int_equal(max, rows[i].max);
        drive_done(&d);
    }
    check_bounds("worker*2/live/cap100000 ps*2/live/cap100000", "go", 2, 100000);
}

/* The rule in its simplest form: one instance after the other goes to the role that has the most
 * room. Returns false if no role can change. */
static bool change_one(const struct job_spec *spec, uint32_t *sizes, bool grow)
{
    int64_t most = 0;
    size_t best = 0;
    for (size_t r = 0; r < spec->n_roles; r++) {
        const struct role_spec *role = &spec->roles[r];
        int64_t room = grow ? role->max_instances - sizes[r]
                            : (int64_t)sizes[r] - (int64_t)role->min_instances;
        sizes[r]++;
        bool allowed = !grow || job_spec_in_caps(spec, sizes);
        sizes[r]--;
        if (allowed && room > most) {
            most = room;
            best = r;
        }
    }
    sizes[best] += most == 0 ? 0 : grow ? 1u : -1u;
    return most > 0;
}

/* Jobs of random bounds and totals grow and shrink as that rule says. */
static void test_sizes_by_the_scheduler(void **state)
{
    enum { JOBS = 400, STEPS = 6 };
    static const char *const jobs[] = { "a*3/live", "a*2/live b*5/live",
                                        "a*4/live b*4/live c*1/live",
                                        "a*2/live b*2/live c*2/live d*2/live" };
    unsigned seed = 7, n_changes = 0;
    (void)state;
    for (int i = 0; i < JOBS; i++) {
        struct drive d;
        drive_init(&d, jobs[i % 4]);
        struct job_spec *spec = d.spec;
        for (size_t r = 0; r < spec->n_roles; r++) {
            spec->roles[r].memory_mib = 1 + (uint64_t)(rand_r(&seed) % 3);
            spec->roles[r].min_instances = 1;
            spec->roles[r].max_instances = (int64_t)spec->roles[r].instances + rand_r(&seed) % 30;
        }
        spec->max_total[TOTAL_INSTANCES] = i % 3 ? 0 : 20 + (uint64_t)(rand_r(&seed) % 40);
        spec->max_total[TOTAL_MEMORY] = i % 2 ? 0 : 40 + (uint64_t)(rand_r(&seed) % 80);
        drive_run(&d, "go");
        for (int k = 0; k < STEPS; k++) {
            uint32_t sizes[4] = { 0 }, n = 0, want = 1 + (uint32_t)rand_r(&seed) % 70;
            for (size_t r = 0; r < spec->n_roles; r++)
                n += sizes[r] = d.job->resize.target[r];
            bool grow = want > n;
            while (n != want && change_one(spec, sizes, grow)) {
                n += grow ? 1u : -1u;
                n_changes++;
            }
            AUTO(free_p) char *words = str_printf("%s:%u +10", grow ? "grow" : "shrink", want);
            drive_run(&d, words);
            for (size_t r = 0; r < spec->n_roles; r++)
                if (d.job->resize.target[r] != sizes[r])
                    fail_msg("job %d, step %d, '%s': role %zu has %u, not %u", i, k, words, r,
                             d.job->resize.target[r], sizes[r]);
        }
        drive_done(&d);
    }
    assert_true(n_changes > JOBS * STEPS);
}

/* The job shrinks and grows to each number between the bounds, and not further. */
static void test_each_size_in_the_bounds(void **state)
{
    static const char *const jobs[] = { "worker*4/live/min2/cap7",
                                        "worker*3/restart/cap5 ps*2/live/min2/cap3 tb*1/sidecar",
                                        "worker*3/live/min3/cap3 ps*2/fixed",
                                        "worker*2/live/cap4/on/max9/spares1" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        struct drive d;
        uint32_t min, max, low, high;
        drive_init(&d, jobs[i]);
        drive_run(&d, "go");
        job_bounds(d.job, &min, &max);
        uint32_t spares = strstr(jobs[i], "spares1") ? 1 : 0;
        for (uint32_t n = 0; n <= max + 2; n++) {
            AUTO(free_p) char *words = str_printf("shrink:%u grow:%u", n, n);
            drive_run(&d, words);
            uint32_t designed = MIN(MAX(n, min), max);
            if (job_n_tasks(d.job) + spares != designed)
                fail_msg("[%s] %u: %u tasks, not %u", jobs[i], n, job_n_tasks(d.job), designed);
            job_bounds(d.job, &low, &high);
            assert_int_equal(low, min);
            assert_int_equal(high, max);
        }
        drive_run(&d, "shrink:0");
        assert_int_equal(job_n_tasks(d.job) + spares, min);
        drive_done(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_bounds_and_totals),
        cmocka_unit_test(test_sizes_by_the_scheduler),
        cmocka_unit_test(test_each_size_in_the_bounds),
    };
    return cmocka_run_group_tests_name("job_resize", tests, NULL, NULL);
}
