/* SPDX-License-Identifier: Apache-2.0 */
/* An arbiter on a cluster that gives nodes: a decision is fitted to what the job can do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "client/arbiter/arbiter.h"

enum { NODES = 8 };

/* Node 0 is of the first allocation, 1 and 2 are of a further one, 3 of the next. Nodes 0 to 3 have
 * two containers each. */
static void make_job(struct arbiter_job *j)
{
    *j = (struct arbiter_job){ .id = "application_1_0001",
                               .is_elastic = true,
                               .runs = true,
                               .instances = 8,
                               .needs = { .n = 1, .min = 1, .max = 6, .each_mib = 1000 },
                               .step = { .base_nodes = 1, .base_n = 2, .n = 2, .max_n = 11 } };
    static const uint32_t groups[] = { 0, 1, 1, 2 };
    for (uint32_t i = 0; i < ARRAY_LEN(groups); i++) {
        assert_int_equal(vec_push(&j->shares, ((struct queue_share){ i, groups[i] })), 0);
        assert_int_equal(vec_push(&j->at, ((struct part_place){ .node = i, .n = 2 })), 0);
    }
}

static void job_free(struct arbiter_job *j)
{
    vec_done(&j->shares);
    vec_done(&j->at);
    vec_done(&j->placed);
}

static void take(struct arbiter_job *j, bool expected)
{
    bool lost = false;
    assert_int_equal(steps_take(j, &lost), 0);
    assert_int_equal(lost, expected);
    j->n = (uint32_t)j->at.n;
}

static void make_arbiter(struct arbiter *a)
{
    *a = (struct arbiter){ .queue = "all" };
    for (int i = 0; i < NODES; i++) {
        struct claims_node n = { .capacity = { { 2000, 0, 8 } } };
        struct part_amount used = { { i < 6 ? 1500 : 0, 0, 1 } }; /* 6 and 7 have room */
        assert_int_equal(vec_push(&a->nodes, n), 0);
        assert_int_equal(vec_push(&a->used, used), 0);
    }
}

static void arbiter_free(struct arbiter *a)
{
    vec_done(&a->nodes);
    vec_done(&a->used);
}

static void containers_become_nodes(void **state)
{
    struct arbiter_job j;
    (void)state;
    make_job(&j);
    j.at.n = 3; /* nothing is on node 3 any more */
    take(&j, false);
    assert_int_equal(j.n, 3);
    assert_int_equal(j.n_containers, 3);
    assert_int_equal(j.at.v[2].n, 1);
    assert_false(steps_uses(&j, &j.shares.v[3]));
    j.at.n = 0; /* the first allocation counts in any case */
    take(&j, false);
    assert_int_equal(j.n, 1);
    j.at.n = 0;
    assert_int_equal(vec_push(&j.at, ((struct part_place){ .node = 5, .n = 1 })), 0);
    take(&j, true);
    job_free(&j);
}

static void nodes_become_instances(void **state)
{
    struct arbiter_job j, plain = { .n = 7 };
    (void)state;
    make_job(&j);
    assert_int_equal(steps_instances(&j, 1), 2);
    assert_int_equal(steps_instances(&j, 2), 4);
    assert_int_equal(steps_instances(&j, 5), 10);
    assert_int_equal(steps_instances(&j, 6), 11); /* no more than max-instances */
    assert_int_equal(steps_instances(&j, 0), 2);
    assert_int_equal(steps_instances(&plain, 7), 7);
    job_free(&j);
}

/* Only whole allocations are given back, the newest first. */
static void it_shrinks_by_whole_allocations(void **state)
{
    static const struct {
        uint32_t wanted, nodes, instances;
    } cases[] = { { 3, 3, 6 }, { 2, 1, 2 }, { 1, 1, 2 } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arbiter a;
        struct arbiter_job j;
        struct steps_plan p;
        make_arbiter(&a);
        make_job(&j);
        take(&j, false);
        assert_int_equal(steps_fit(&a, &j, cases[i].wanted, &p), 0);
        assert_int_equal(p.nodes, cases[i].nodes);
        assert_int_equal(p.instances, cases[i].instances);
        assert_int_equal(p.at.n, cases[i].nodes);
        assert_int_equal(p.at.v[0].node, 0);
        assert_int_equal(p.at.v[0].n, 2);
        steps_plan_done(&p);
        job_free(&j);
        arbiter_free(&a);
    }
}

/* It gets nodes that are free, and that it does not have; no two jobs get the same ones. */
static void it_grows_by_what_is_free(void **state)
{
    struct arbiter a;
    struct arbiter_job j;
    struct steps_plan p;
    (void)state;
    make_arbiter(&a);
    make_job(&j);
    take(&j, false);
    assert_int_equal(steps_fit(&a, &j, 5, &p), 0);
    assert_int_equal(p.nodes, 5);
    assert_int_equal(p.instances, 10);
    assert_int_equal(p.at.n, 0);
    steps_plan_done(&p);
    assert_int_equal(steps_fit(&a, &j, 6, &p), 0); /* node 6 has room for one more */
    assert_int_equal(p.nodes, 6);
    steps_plan_done(&p);
    a.used.v[6] = a.used.v[7] = (struct part_amount){ { 1500, 0, 1 } };
    assert_int_equal(steps_fit(&a, &j, 6, &p), 0);
    assert_int_equal(p.nodes, 4);
    assert_int_equal(p.instances, 8);
    steps_plan_done(&p);
    a.used.v[7] = (struct part_amount){ { 0, 0, 9 } }; /* no core */
    j.needs.each_vcores = 1;
    assert_int_equal(steps_fit(&a, &j, 6, &p), 0);
    assert_int_equal(p.nodes, 4);
    steps_plan_done(&p);
    job_free(&j);
    arbiter_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(containers_become_nodes),
        cmocka_unit_test(nodes_become_instances),
        cmocka_unit_test(it_shrinks_by_whole_allocations),
        cmocka_unit_test(it_grows_by_what_is_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
