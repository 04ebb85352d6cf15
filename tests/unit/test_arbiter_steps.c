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

/* A job with three allocations: the first is node 0, the second nodes 1 and 2, the third node 3. It
 * has two containers on each of these nodes. */
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

/* The job gives back only whole allocations, the newest first. */
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

/* A job that grows gets free nodes that it does not have yet. No two jobs get the same ones. */
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

/* Check the amounts that are kept free: in all, on node 6 and on node 7. */
static void check_kept(struct queue_wanted w, const struct arbiter_job *j, int64_t all, int64_t six,
                       int64_t seven)
{
    struct arbiter a;
    make_arbiter(&a);
    if (j)
        assert_int_equal(vec_push(&a.jobs, *j), 0);
    assert_int_equal(vec_push(&a.wanted, w), 0);
    assert_int_equal(arbiter_keep_room(&a), 0);
    assert_int_equal(a.kept.v[CLAIM_MEMORY_MIB], all);
    assert_int_equal(a.used.v[6].v[CLAIM_MEMORY_MIB], six);
    assert_int_equal(a.used.v[7].v[CLAIM_MEMORY_MIB], seven);
    vec_done(&a.jobs);
    vec_done(&a.wanted);
    arbiter_free(&a);
}

static void room_is_kept_for_others(void **state)
{
    (void)state;
    const struct part_amount small = { { 1000, 0, 1 } }, whole = { { 2000, 0, 8 } };
    struct arbiter_job elastic = { .id = "application_1_0001", .is_elastic = true, .runs = true };
    struct arbiter_job rigid = { .id = "application_1_0001" };
    struct queue_wanted w = { .apart = true, .n = 2, .each = small };
    check_kept(w, NULL, 2000, 1000, 1000);
    check_kept((struct queue_wanted){ .n = 2, .each = small }, NULL, 2000, 2000, 0);
    /* Part of what the third node must have is free. */
    check_kept((struct queue_wanted){ .apart = true, .n = 3, .each = whole }, NULL, 4500, 2000,
               2000);
    /* No node has so much, or a GPU. */
    check_kept((struct queue_wanted){ .n = 1, .each = { { 3000, 0, 0 } } }, NULL, 0, 0, 0);
    check_kept((struct queue_wanted){ .n = 1, .each = { { 1000, 1, 0 } } }, NULL, 0, 0, 0);
    (void)str_copy(w.id, sizeof w.id, elastic.id);
    check_kept(w, &elastic, 0, 0, 0); /* for this job the policy keeps room, not this rule */
    check_kept(w, &rigid, 2000, 1000, 1000);
    w.further = true;
    check_kept(w, &elastic, 0, 0, 0);
    elastic.changing = true; /* no policy keeps room for it now, and it was told to grow */
    check_kept(w, &elastic, 2000, 1000, 1000);
    elastic.changing = false;
    w = (struct queue_wanted){ .of_all = true, .n = 1, .each = small };
    check_kept(w, &elastic, 1000, 1000, 0);
    elastic.changing = true; /* the sum may be what this job waits for */
    check_kept(w, &elastic, 0, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(containers_become_nodes),
        cmocka_unit_test(nodes_become_instances),
        cmocka_unit_test(it_shrinks_by_whole_allocations),
        cmocka_unit_test(it_grows_by_what_is_free),
        cmocka_unit_test(room_is_kept_for_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
