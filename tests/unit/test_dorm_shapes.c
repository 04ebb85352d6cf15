/* SPDX-License-Identifier: Apache-2.0 */
/* The policy `dorm` on clusters of special shapes. Most are so large that dorm_patterns.c builds the
 * division from patterns. */
#include "dorm_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* More than 128 nodes, and more capacities than classes. */
static void many_kinds_of_nodes(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    enum { NODES = 200, JOBS = 30 };
    static struct part_amount nodes[NODES];
    static struct part_job jobs[JOBS];
    const struct part_cluster c = { 3, types, NODES, nodes };
    begin_instance(1);
    for (size_t v = 0; v < NODES; v++)
        nodes[v] = (struct part_amount){ { 4 + below(60), 16 + below(240), below(3) * 4 } };
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = job("x", 1 + below(8), 1 + below(32), 1 + below(3), 100);
        jobs[i].demand.v[2] = below(2);
    }
    decide(&c, jobs, JOBS, &part_defaults, &d);
    assert_int_equal(d.metrics.admitted, JOBS);
    assert_true(d.metrics.utilization > 0.8 * d.metrics.upper_bound);
    assert_true(d.metrics.loss <= d.metrics.loss_bound + 2e-9);
}

/* Many jobs could get containers on each node: more than the search looks at. No node is given more
 * than it has. */
static void many_jobs_for_each_node(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    enum { NODES = 60, JOBS = 400 };
    static struct part_amount nodes[NODES];
    static struct part_job jobs[JOBS];
    const struct part_cluster c = { 3, types, NODES, nodes };
    struct part_options o = part_defaults;
    begin_instance(1);
    o.loss_max = 2;
    for (size_t v = 0; v < NODES; v++)
        nodes[v] = (struct part_amount){ { 500, 2000, v % 2 * 100 } };
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = job("x", 1 + below(40), 1 + below(160), 1, 1 + below(30));
        jobs[i].demand.v[2] = below(3) / 2 * (1 + below(4));
    }
    decide(&c, jobs, JOBS, &o, &d);
    assert_true(d.metrics.utilization > 0.9 * d.metrics.upper_bound);
    for (size_t i = 0; i < JOBS; i++)
        for (uint32_t a = 0; a < d.jobs[i].n_at; a++)
            take(&nodes[d.jobs[i].at[a].node], &jobs[i].demand, d.jobs[i].at[a].n);
    for (size_t v = 0; v < NODES; v++)
        for (uint32_t k = 0; k < 3; k++)
            assert_true(nodes[v].v[k] >= 0);
}

/* Many capacities: half of the nodes have little memory for each core, the others have much. No
 * class may hold both kinds: the bound would be as if the cores of the former could be used with
 * the memory of the latter. */
static void classes_of_equal_proportions(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    enum { NODES = 200, JOBS = 40 };
    static struct part_amount nodes[NODES];
    static struct part_job jobs[JOBS];
    const struct part_cluster c = { 2, types, NODES, nodes };
    struct part_options o = part_defaults;
    begin_instance(1);
    o.loss_max = 2;
    for (size_t v = 0; v < NODES; v++) {
        int64_t cores = 8 + below(120);
        nodes[v] = (struct part_amount){ { cores, v % 2 ? cores : 16 * cores } };
    }
    for (size_t i = 0; i < JOBS; i++) {
        int64_t cores = 1 + below(2);
        jobs[i] = job("x", cores, 4 * cores, 1, 1000);
    }
    decide(&c, jobs, JOBS, &o, &d);
    assert_true(d.metrics.utilization > 0.99 * d.metrics.upper_bound);
}

/* Each of 1,500 nodes of 10 cores has room for one container only, of 7 or of 6 cores. So no
 * division uses more than 7 of 10 cores, although the cores of all nodes together would suffice for
 * more containers. running: a job that may change has containers on 300 nodes. */
static void check_whole_containers(bool with_running)
{
    enum { N = 1500, RUNNING = 300 };
    static struct part_amount nodes[N];
    static struct part_place at[RUNNING];
    struct part_cluster c = { 1, types, N, nodes };
    struct part_options o = bounds(2, 1);
    AUTO(part_decision_done) struct part_decision d = { 0 };
    for (uint32_t j = 0; j < N; j++)
        nodes[j].v[0] = 10;
    for (uint32_t j = 0; j < RUNNING; j++)
        at[j] = (struct part_place){ 4 * j, 1 };
    struct part_job jobs[] = { job("a", 6, 0, 1, N), job("b", 7, 0, 1, N), job("c", 6, 0, 1, N) };
    if (with_running)
        jobs[0] = running(jobs[0], at, RUNNING);
    decide(&c, jobs, 3, &o, &d);
    assert_true(d.metrics.utilization > 0.699);
    assert_true(d.metrics.upper_bound >= d.metrics.utilization);
    assert_true(d.metrics.upper_bound < 0.702);
}

static void whole_containers(void **state)
{
    (void)state;
    check_whole_containers(false);
    check_whole_containers(true);
}

/* On each of 1,000 nodes of 12 cores, job 0 has one container of 5 cores, and one of ten other
 * jobs, too. A container of 11 cores uses more, but both must make way for it, and only one job may
 * change. So nearly all nodes keep 2 unused cores. */
static void two_must_make_way(void **state)
{
    enum { N = 1000, OTHERS = 10 };
    static struct part_amount nodes[N + 1];
    static struct part_place all[N], at[OTHERS][N / OTHERS];
    struct part_cluster c = { 1, types, N + 1, nodes };
    struct part_options o = bounds(2, 1);
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[OTHERS + 2] = { running(job("a", 5, 0, 1, N), all, N) };
    (void)state;
    for (uint32_t j = 0; j <= N; j++)
        nodes[j].v[0] = 12;
    for (uint32_t j = 0; j < N; j++) {
        all[j] = (struct part_place){ j, 1 };
        at[j % OTHERS][j / OTHERS] = (struct part_place){ j, 1 };
    }
    for (uint32_t i = 0; i < OTHERS; i++)
        jobs[1 + i] = running(job("b", 5, 0, 1, N / OTHERS), at[i], N / OTHERS);
    jobs[OTHERS + 1] = job("c", 11, 0, 1, N);
    decide(&c, jobs, OTHERS + 2, &o, &d);
    assert_true(d.metrics.utilization > 0.833);
    assert_true(d.metrics.upper_bound >= d.metrics.utilization);
    assert_true(d.metrics.upper_bound < 0.85);
}

/* Nodes of 20 cores, and jobs with containers of 9 and 11 cores, whose max are such that all nodes
 * are full only if each holds one of both. Jobs that are served one after the other would put two
 * of 9 cores on a node. */
static void pairs(void **state)
{
    enum { N = 1500 };
    static struct part_amount nodes[N];
    struct part_cluster c = { 1, types, N, nodes };
    struct part_options o = bounds(2, 0);
    AUTO(part_decision_done) struct part_decision d = { 0 };
    (void)state;
    for (uint32_t j = 0; j < N; j++)
        nodes[j].v[0] = 20;
    const struct part_job jobs[] = { job("a", 9, 0, 1, N / 2), job("b", 11, 0, 1, N),
                                     job("c", 9, 0, 1, N / 2) };
    decide(&c, jobs, 3, &o, &d);
    assert_true(d.metrics.utilization > 0.999);
}

/* Two kinds of nodes, and nearly as many different demands as jobs, so that a good division needs
 * many patterns. least: the min of each job; if it is large, some jobs must buy their containers at
 * a price above their value. gap: the part of the bound that may be missing. */
static void check_many_demands(uint32_t least, double gap)
{
    enum { NODES = 1000, JOBS = 100 };
    static struct part_amount nodes[NODES];
    static struct part_job jobs[JOBS];
    const struct part_cluster c = { 3, types, NODES, nodes };
    struct part_options o = bounds(2, 0);
    AUTO(part_decision_done) struct part_decision d = { 0 };
    begin_instance(1);
    for (size_t v = 0; v < NODES; v++)
        nodes[v] = below(2) ? (struct part_amount){ { 48, 256, 0 } }
                            : (struct part_amount){ { 64, 512, 8 } };
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = job("x", 1 + below(8), 4 + 4 * below(8), least, least + 40 + below(200));
        jobs[i].demand.v[2] = below(3) == 0 ? 1 + below(4) : 0;
    }
    decide(&c, jobs, JOBS, &o, &d);
    assert_int_equal(d.metrics.admitted, JOBS);
    assert_true(d.metrics.utilization > (1 - gap) * d.metrics.upper_bound);
}

static void many_demands(void **state)
{
    (void)state;
    check_many_demands(1, 0.005);
    check_many_demands(20, 0.0055);
    check_many_demands(40, 0.001);
}

enum { ODD_NODES = 1000, ODD_JOBS = 200, ODD_PLACES = 64 };

/* Let the job run on random nodes. at: memory for its places. free: of the nodes. */
static void run_somewhere(struct part_job *j, struct part_place *at, struct part_amount *free)
{
    uint32_t want = j->min + below(j->max - j->min + 1), n = 0, n_at = 0;
    uint32_t v = below(ODD_NODES / 2);
    for (; v < ODD_NODES && n < want && n_at < ODD_PLACES; v += 1 + below(20)) {
        uint32_t here = 0;
        for (uint32_t more = 1 + below(4); more > 0 && n + here < want; more--)
            if (fits(&free[v], &j->demand)) {
                take(&free[v], &j->demand, 1);
                here++;
            }
        if (here > 0)
            at[n_at++] = (struct part_place){ v, here };
        n += here;
    }
    j->min = n > 0 ? MIN(j->min, n) : j->min;
    *j = n > 0 ? running(*j, at, n_at) : *j;
}

/* Nearly every job has another demand, of up to a whole small node, and memory has no large common
 * divisor. The table of dorm_rooms.h is then large, and the program has as many rows as jobs.
 * n_running: jobs that run, of which a tenth may be adjusted. gap: the part of the bound that may
 * be missing. */
static void check_odd_demands(uint64_t number, size_t n_running, double gap)
{
    static const int64_t cores[] = { 16, 32, 64, 96 }, memory[] = { 64, 128, 256, 512 },
                         gpus[] = { 0, 0, 4, 8 }, of_job[] = { 1, 1, 1, 2, 4 };
    enum { KINDS = 4 };
    static struct part_amount nodes[ODD_NODES], free[ODD_NODES];
    static struct part_job jobs[ODD_JOBS];
    static struct part_place at[ODD_JOBS][ODD_PLACES];
    struct part_amount kinds[KINDS];
    const struct part_cluster c = { 3, types, ODD_NODES, nodes };
    struct part_options o = bounds(2, (int64_t)n_running / 10);
    AUTO(part_decision_done) struct part_decision d = { 0 };
    begin_instance(number);
    for (size_t v = 0; v < KINDS; v++)
        kinds[v] = (struct part_amount){ { cores[below(4)], memory[below(4)], gpus[below(4)] } };
    for (size_t v = 0; v < ODD_NODES; v++)
        nodes[v] = kinds[below(KINDS)];
    memcpy(free, nodes, sizeof(free));
    for (size_t i = 0; i < ODD_JOBS; i++) {
        uint32_t min = 1 + below(8);
        jobs[i] = job("x", 1 + below(8), 1 + below(64), min, min * (1 + below(8)) + below(31));
        jobs[i].demand.v[2] = below(2) ? of_job[below(5)] : 0;
        if (i < n_running)
            run_somewhere(&jobs[i], at[i], free);
    }
    decide(&c, jobs, ODD_JOBS, &o, &d);
    HOLDS(d.metrics.utilization > (1 - gap) * d.metrics.upper_bound);
    HOLDS(d.metrics.utilization <= d.metrics.upper_bound + 1e-9);
}

static void odd_demands(void **state)
{
    (void)state;
    check_odd_demands(1, 0, 0.035);
    check_odd_demands(2, 0, 0.035);
    check_odd_demands(3, 0, 0.02);
    check_odd_demands(4, 0, 0.01);
}

static void odd_demands_of_running_jobs(void **state)
{
    (void)state;
    check_odd_demands(7, 150, 0.0145);
    check_odd_demands(8, 100, 0.02);
    check_odd_demands(17, 150, 0.06);
    check_odd_demands(25, 150, 0.025);
}

/* Each node has another capacity: more groups of nodes than the patterns of dorm_patterns.c. */
static void all_nodes_differ(void **state)
{
    enum { N = 20500 };
    static struct part_amount nodes[N];
    struct part_cluster c = { 1, types, N, nodes };
    struct part_options o = bounds(2, 0);
    AUTO(part_decision_done) struct part_decision d = { 0 };
    (void)state;
    for (uint32_t j = 0; j < N; j++)
        nodes[j].v[0] = 100 + j;
    const struct part_job jobs[] = { job("a", 7, 0, 1, N), job("b", 9, 0, 1, N) };
    decide(&c, jobs, 2, &o, &d);
    expect(&d, 0, PART_STARTS, N, PART_BECAUSE_AT_MAX);
    expect(&d, 1, PART_STARTS, N, PART_BECAUSE_AT_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_kinds_of_nodes),
        cmocka_unit_test(whole_containers),
        cmocka_unit_test(two_must_make_way),
        cmocka_unit_test(pairs),
        cmocka_unit_test(many_demands),
        cmocka_unit_test(odd_demands),
        cmocka_unit_test(odd_demands_of_running_jobs),
        cmocka_unit_test(all_nodes_differ),
        cmocka_unit_test(many_jobs_for_each_node),
        cmocka_unit_test(classes_of_equal_proportions),
    };
    return cmocka_run_group_tests_name("dorm_shapes", tests, NULL, NULL);
}
