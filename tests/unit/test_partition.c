/* SPDX-License-Identifier: Apache-2.0 */
/* Dividing a cluster: the inputs that are refused, the counts of weighted dominant resource
 * fairness, and the decisions of the policy `drf`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>

#include "base/base.h"
#include "partition/drf.h"
#include "partition/partition.h"
#include "torture.h"

static const char *const types[] = { "vcores", "memory_mib", "gpus" };

static struct part_job job(const char *id, int64_t cores, int64_t memory, int64_t gpus,
                           uint32_t min, uint32_t max)
{
    return (struct part_job){ .id = id,
                              .demand = { { cores, memory, gpus } },
                              .weight = 1,
                              .min = min,
                              .max = max,
                              .remaining_s = INFINITY,
                              .ends_in_s = INFINITY };
}

static void decide(const char *policy, const struct part_cluster *c, const struct part_job *jobs,
                   size_t n, struct part_decision *d)
{
    struct err e = { 0 };
    int rc = part_decide(part_policy_find(policy), c, jobs, n, &part_defaults, d, &e);
    if (rc != 0)
        fail_msg("%s", e.msg);
}

/* ---- refused inputs ---- */

static struct part_amount two_nodes[] = { { { 8, 100, 0 } }, { { 8, 100, 2 } } };
static const struct part_cluster two = { 3, types, 2, two_nodes };

static void refused(struct part_job bad, const char *sentence)
{
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct err e = { 0 };
    struct part_job jobs[] = { job("first", 1, 1, 0, 1, 1), bad };
    assert_int_equal(part_decide(part_policy_find("drf"), &two, jobs, 2, &part_defaults, &d, &e),
                     -EINVAL);
    assert_string_equal(e.msg, sentence);
    assert_int_equal(d.n, 0);
}

static void bad_jobs(void **state)
{
    (void)state;
    struct part_place outside[] = { { 0, 1 }, { 2, 1 } };
    struct part_place twice[] = { { 1, 1 }, { 1, 1 } };
    struct part_place none[] = { { 0, 0 } };
    struct part_place many[] = { { 0, 1 }, { 1, 3 } };
    struct part_job j;

    refused(job("x", 0, 0, 0, 1, 1), "job 'x': its containers demand nothing");
    refused(job("x", -1, 1, 0, 1, 1),
            "job 'x': demand of vcores is -1, outside of 0 to 1099511627776");
    refused(job("x", 1, 1, 0, 0, 1),
            "job 'x': min is 0 and max is 1: they must be 1 <= min <= max <= 1000000");
    refused(job("x", 1, 1, 0, 3, 2),
            "job 'x': min is 3 and max is 2: they must be 1 <= min <= max <= 1000000");
    j = job("x", 1, 1, 0, 1, 1);
    j.weight = 10001;
    refused(j, "job 'x': weight is 10001, outside of 1 to 10000");
    j = job("x", 1, 1, 0, 2, 4);
    j.fixed = 5;
    refused(j, "job 'x': fixed is 5, outside of its min 2 to its max 4");
    j = job("x", 1, 1, 0, 1, 1);
    j.attained_s = NAN;
    refused(j, "job 'x': a time or the budget is negative or not a number");
    j = job("x", 1, 1, 0, 1, 1);
    j.pinned = true;
    refused(j, "job 'x': it is pinned but does not run");

    j = job("x", 1, 1, 1, 1, 4);
    j.n_at = 2;
    j.at = outside;
    refused(j, "node 0: with job 'x' it holds more than its 0 of gpus");
    j.demand.v[2] = 0;
    refused(j, "job 'x': it runs on node 2 of 2 nodes");
    j.at = twice;
    refused(j, "job 'x': its places are not in the order of the nodes at node 1");
    j.at = many;
    j.max = 3;
    refused(j, "job 'x': it runs with 4 containers, outside of its min 1 to its max 3");
    j.at = none;
    j.n_at = 1;
    refused(j, "job 'x': it has 0 containers on node 0: there must be 1 to 1000000");
}

static void bad_clusters(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct err e = { 0 };
    struct part_amount huge[] = { { { PART_AMOUNT_MAX + 1, 0, 0 } } };
    struct part_cluster c = { 3, types, 1, huge };
    const struct part_policy *drf = part_policy_find("drf");
    assert_int_equal(part_decide(drf, &c, NULL, 0, &part_defaults, &d, &e), -EINVAL);
    assert_string_equal(
        e.msg, "node 0: capacity of vcores is 1099511627777, outside of 0 to 1099511627776");
    c.n_types = 9;
    assert_int_equal(part_decide(drf, &c, NULL, 0, &part_defaults, &d, &e), -EINVAL);
    assert_string_equal(e.msg, "9 types of resources: there must be 1 to 8");
    struct part_options o = part_defaults;
    o.theta1 = 1.5;
    assert_int_equal(part_decide(drf, &two, NULL, 0, &o, &d, &e), -EINVAL);
    assert_null(part_policy_find("nonsense"));
}

/* ---- counts ---- */

/* The rule of drf.h one step at a time, with fractions in long double only where they are exact. */
static void drf_slowly(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                       uint32_t *counts)
{
    int64_t left[PART_TYPES_MAX] = { 0 }, total[PART_TYPES_MAX];
    bool frozen[64] = { 0 };
    uint32_t caps[64];
    part_caps(c, jobs, n, caps);
    for (uint32_t j = 0; j < c->n_nodes; j++)
        for (uint32_t k = 0; k < c->n_types; k++)
            left[k] += c->nodes[j].v[k];
    memcpy(total, left, sizeof left);
    for (size_t step = 0, i = 0;; step++) {
        uint32_t take = 1;
        if (step < n) {
            i = step;
            counts[i] = 0;
            take = jobs[i].min;
            frozen[i] = caps[i] < jobs[i].min;
            if (frozen[i])
                continue;
        } else {
            unsigned __int128 best_num = 0, best_den = 1;
            i = SIZE_MAX;
            for (size_t h = 0; h < n; h++) {
                if (frozen[h] || counts[h] >= caps[h])
                    continue;
                unsigned __int128 num = 0, den = 1;
                for (uint32_t k = 0; k < c->n_types; k++) {
                    unsigned __int128 d = (uint64_t)jobs[h].demand.v[k], t = (uint64_t)total[k];
                    if (t > 0 && d * den > num * t) {
                        num = d;
                        den = t;
                    }
                }
                num *= counts[h];
                den *= jobs[h].weight;
                if (i == SIZE_MAX || num * best_den < best_num * den) {
                    best_num = num;
                    best_den = den;
                    i = h;
                }
            }
            if (i == SIZE_MAX)
                return;
        }
        bool fits = true;
        for (uint32_t k = 0; k < c->n_types; k++)
            fits &= left[k] >= jobs[i].demand.v[k] * (int64_t)take;
        frozen[i] = !fits;
        if (!fits)
            continue;
        counts[i] += take;
        for (uint32_t k = 0; k < c->n_types; k++)
            left[k] -= jobs[i].demand.v[k] * (int64_t)take;
    }
}

static uint32_t random_below(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*seed >> 33) % n);
}

static void counts_are_exact(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (unsigned round = 0; round < 300; round++) {
        struct part_amount nodes[4];
        struct part_cluster c = { 3, types, 1 + random_below(&seed, 4), nodes };
        struct part_job jobs[12];
        uint32_t fast[12], slow[12];
        size_t n = 1 + random_below(&seed, 12);
        bool small = round % 2;
        for (uint32_t j = 0; j < c.n_nodes; j++)
            nodes[j] = (struct part_amount){ { random_below(&seed, small ? 20 : 9000),
                                               random_below(&seed, small ? 20 : 7000),
                                               random_below(&seed, small ? 4 : 3000) } };
        for (size_t i = 0; i < n; i++) {
            uint32_t min = 1 + random_below(&seed, 4);
            jobs[i] = job("x", 1 + random_below(&seed, 6), random_below(&seed, 6),
                          random_below(&seed, 2), min, min + random_below(&seed, small ? 9 : 5000));
            jobs[i].weight = 1 + random_below(&seed, 5);
        }
        assert_int_equal(part_drf(&c, jobs, n, NULL, fast), 0);
        drf_slowly(&c, jobs, n, slow);
        assert_memory_equal(fast, slow, n * sizeof *fast);
    }
}

/* 5,000 jobs that share 10^9 containers among them: one by one this takes minutes. */
static void counts_are_fast(void **state)
{
    (void)state;
    enum { N = 5000, NODES = 1000 };
    AUTO(free_p) struct part_job *jobs = calloc(N, sizeof *jobs);
    AUTO(free_p) struct part_amount *nodes = calloc(NODES, sizeof *nodes);
    AUTO(free_p) uint32_t *counts = calloc(N, sizeof *counts);
    struct part_cluster c = { 3, types, NODES, nodes };
    uint64_t seed = 2, sum = 0;
    for (size_t j = 0; j < NODES; j++)
        nodes[j] = (struct part_amount){ { 3000000, PART_AMOUNT_MAX, 1000000 } };
    for (size_t i = 0; i < N; i++) {
        jobs[i] = job("x", 1 + random_below(&seed, 9), 1 + random_below(&seed, 1000000),
                      random_below(&seed, 3), 1, 1000000);
        jobs[i].weight = 1 + random_below(&seed, 100);
    }
    int64_t began = clock_mono_ms();
    assert_int_equal(part_drf(&c, jobs, N, NULL, counts), 0);
    int64_t took = clock_mono_ms() - began;
    for (size_t i = 0; i < N; i++)
        sum += counts[i];
    print_message("# %llu containers for %d jobs in %lld ms\n", (unsigned long long)sum, N,
                  (long long)took);
    assert_true(sum > 100000000);
}

/* ---- the policy drf ---- */

static void shares_and_sentences(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    char why[PART_WHY_MAX];
    struct part_place has[] = { { 0, 8 }, { 1, 4 } };
    struct part_job jobs[] = { job("old", 1, 10, 0, 1, 12), job("new", 1, 10, 0, 4, 100),
                               job("big", 9, 10, 0, 1, 1), job("gpu", 1, 10, 1, 3, 9) };
    jobs[0].at = has;
    jobs[0].n_at = 2;
    decide("drf", &two, jobs, 4, &d);
    assert_int_equal(d.jobs[0].verdict, PART_CHANGES);
    assert_int_equal(d.jobs[0].n, 8);
    assert_int_equal(d.jobs[0].n_at, 1); /* the highest node was given up first */
    assert_int_equal(d.jobs[1].n, 8);
    assert_int_equal(d.jobs[1].at[0].node, 1);
    assert_int_equal(d.jobs[2].verdict, PART_NEVER);
    assert_int_equal(d.jobs[3].verdict, PART_NEVER);
    assert_int_equal(d.metrics.adjusted, 1);
    assert_int_equal(d.metrics.changed, 4);
    assert_int_equal(d.metrics.admitted, 1);
    assert_true(fabs(d.metrics.utilization - (1 + 0.8)) < 1e-12);
    assert_true(d.metrics.loss < 1e-12);
    part_why(&d, &two, jobs, 0, why);
    assert_string_equal(why, "it shrinks from 12 to 8 containers: its fair share is 8 containers");
    part_why(&d, &two, jobs, 2, why);
    assert_string_equal(why,
                        "it can never run: its smallest size does not fit into the empty cluster");

    /* A pinned job keeps what it has, and so the other waits. */
    jobs[0].pinned = true;
    jobs[1].min = 5;
    decide("drf", &two, jobs, 2, &d);
    assert_int_equal(d.jobs[0].verdict, PART_KEEPS);
    assert_int_equal(d.jobs[1].verdict, PART_WAITS);
    part_why(&d, &two, jobs, 1, why);
    assert_string_equal(
        why, "it waits: there is no room for it now, and job 'old' holds most of the vcores");
}

/* A job with one possible size: the sentences name no number of containers if it is 1. */
static void sentences_of_a_fixed_size(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    char why[PART_WHY_MAX];
    struct part_place has[] = { { 0, 1 }, { 1, 4 } };
    struct part_job jobs[] = { job("one", 1, 10, 0, 1, 1), job("four", 1, 10, 0, 4, 4),
                               job("new", 1, 10, 0, 1, 1) };
    jobs[0].at = &has[0];
    jobs[1].at = &has[1];
    jobs[0].n_at = jobs[1].n_at = 1;
    static const char *const policies[] = { "drf", "dorm", "market" };
    for (size_t p = 0; p < ARRAY_LEN(policies); p++) {
        decide(policies[p], &two, jobs, 3, &d);
        part_why(&d, &two, jobs, 0, why);
        assert_string_equal(why, "it keeps what it has: its size is fixed");
        part_why(&d, &two, jobs, 1, why);
        assert_string_equal(why, "it keeps its 4 containers: its size is fixed");
        part_why(&d, &two, jobs, 2, why);
        assert_string_equal(why, "it starts: there is room for it");
    }
}

static void how_far_from_the_best(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { job("a", 1, 10, 0, 1, 4) };
    decide("drf", &two, jobs, 1, &d);
    assert_true(isnan(part_gap(&d.metrics)));
    decide("dorm", &two, jobs, 1, &d);
    assert_true(d.metrics.proved && part_gap(&d.metrics) == 0);
    d.metrics.utilization = 0.9 * d.metrics.upper_bound;
    assert_true(fabs(part_gap(&d.metrics) - 0.1) < 1e-12);
}

/* ---- the policy srtf-elastic ---- */

static void shortest_first_but_nobody_stops(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    char why[PART_WHY_MAX];
    struct part_amount node[] = { { { 10, 100, 0 } } };
    const struct part_cluster one = { 3, types, 1, node };
    struct part_place has[] = { { 0, 8 } };
    struct part_job jobs[] = { job("long", 1, 1, 0, 2, 10), job("short", 1, 1, 0, 1, 4),
                               job("middle", 1, 1, 0, 3, 4), job("huge", 5, 1, 0, 1, 2),
                               job("last", 1, 1, 0, 1, 9) };
    jobs[0].at = has;
    jobs[0].n_at = 1;
    const double remaining_s[] = { 900, 10, 50, 60, INFINITY };
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
        jobs[i].remaining_s = remaining_s[i];
    decide("srtf-elastic", &one, jobs, ARRAY_LEN(jobs), &d);
    /* minima: 2 + 1 + 3; "huge" does not fit, so "last" waits; the 4 left go to the shortest */
    const uint32_t n[] = { 2, 4, 4, 0, 0 };
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
        assert_int_equal(d.jobs[i].n, n[i]);
    part_why(&d, &one, jobs, 0, why);
    assert_string_equal(why,
                        "it shrinks from 8 to 2 containers: this policy serves job 'middle' first");
    part_why(&d, &one, jobs, 1, why);
    assert_string_equal(why, "it starts with 4 containers: this is its largest size");
    part_why(&d, &one, jobs, 3, why);
    assert_string_equal(
        why, "it waits: there is no room for it now, and job 'short' holds most of the vcores");
    part_why(&d, &one, jobs, 4, why);
    assert_string_equal(why, "it waits: job 'huge' is before it in the queue");
    /* A pinned job keeps what it has. */
    jobs[0].pinned = true;
    decide("srtf-elastic", &one, jobs, ARRAY_LEN(jobs), &d);
    assert_int_equal(d.jobs[0].n, 8);
    assert_int_equal(d.jobs[1].n, 2);
    assert_int_equal(d.jobs[2].n, 0);
}

/* ---- the policy las-elastic ---- */

static void least_served_first_but_nobody_stops(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct err e = { 0 };
    char why[PART_WHY_MAX];
    struct part_amount node[] = { { { 10, 100, 0 } } };
    const struct part_cluster one = { 3, types, 1, node };
    const double levels[] = { 60, 600 };
    struct part_options o = part_defaults;
    struct part_place has[] = { { 0, 8 } };
    struct part_job jobs[] = { job("old", 1, 1, 0, 2, 10), job("middle", 1, 1, 0, 1, 4),
                               job("new", 1, 1, 0, 1, 6) };
    jobs[0].at = has;
    jobs[0].n_at = 1;
    jobs[0].attained_s = 600;
    jobs[1].attained_s = 59;
    o.levels = levels;
    o.n_levels = ARRAY_LEN(levels);
    const struct part_policy *p = part_policy_find("las-elastic");
    assert_int_equal(part_decide(p, &one, jobs, ARRAY_LEN(jobs), &o, &d, &e), 0);
    /* "middle" and "new" are in the same level: the earlier one grows first */
    const uint32_t n[] = { 2, 4, 4 };
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
        assert_int_equal(d.jobs[i].n, n[i]);
    part_why(&d, &one, jobs, 0, why);
    assert_string_equal(why,
                        "it shrinks from 8 to 2 containers: this policy serves job 'new' first");
    /* With 4 of 10 cores, "middle" needs 2.5 s for its last second. */
    assert_true(d.metrics.again_s > 2.499 && d.metrics.again_s < 2.501);
    jobs[1].attained_s = 60;
    assert_int_equal(part_decide(p, &one, jobs, ARRAY_LEN(jobs), &o, &d, &e), 0);
    const uint32_t later[] = { 2, 2, 6 };
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
        assert_int_equal(d.jobs[i].n, later[i]);
    /* All are above the last threshold: nobody reaches another one. */
    jobs[1].attained_s = jobs[2].attained_s = 1000;
    assert_int_equal(part_decide(p, &one, jobs, ARRAY_LEN(jobs), &o, &d, &e), 0);
    assert_true(isinf(d.metrics.again_s));
    assert_int_equal(d.jobs[0].n, 8);
}

static int decide_once(void *ctx)
{
    (void)ctx;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct err e = { 0 };
    struct part_place has[] = { { 0, 8 }, { 1, 4 } };
    struct part_job jobs[] = { job("a", 1, 10, 0, 1, 12), job("b", 1, 10, 0, 4, 100) };
    jobs[0].at = has;
    jobs[0].n_at = 2;
    for (const struct part_policy *p = part_policies; p->name; p++) {
        int rc = part_decide(p, &two, jobs, 2, &part_defaults, &d, &e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void without_memory(void **state)
{
    (void)state;
    torture(decide_once, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_jobs),
        cmocka_unit_test(bad_clusters),
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(counts_are_fast),
        cmocka_unit_test(shares_and_sentences),
        cmocka_unit_test(sentences_of_a_fixed_size),
        cmocka_unit_test(how_far_from_the_best),
        cmocka_unit_test(shortest_first_but_nobody_stops),
        cmocka_unit_test(least_served_first_but_nobody_stops),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests_name("partition", tests, NULL, NULL);
}
