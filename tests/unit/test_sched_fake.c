/* SPDX-License-Identifier: Apache-2.0 */
/* The behaviour of the scripted scheduler when a job is resized. Tests of the core rely on it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/base.h"
#include "sched_fake.h"

struct stage {
    struct fake_cluster *cluster;
    const struct sched_ops *ops;
    struct sched *s;
    char heard[400];
    size_t n_whole;
};

static void on_event(const struct sched_event *ev, void *arg)
{
    struct stage *st = arg;
    size_t at = strlen(st->heard);
    char *to = st->heard + at;
    size_t left = sizeof st->heard - at;
    if (ev->type == SE_ALLOCATED)
        (void)snprintf(to, left, "got %u, ", ev->containers[0].slot);
    else if (ev->type == SE_REFUSED)
        (void)snprintf(to, left, "refused %u: %s, ", ev->slot, ev->text);
    else if (ev->type == SE_SHRINK || ev->type == SE_GROW)
        (void)snprintf(to, left, "%s to %zu in %lld: %s, ", ev->type == SE_GROW ? "grow" : "shrink",
                       ev->n, (long long)ev->deadline_ms, ev->text);
}

static void on_resized(const struct sched_ask *whole, size_t n, void *arg)
{
    (void)whole;
    ((struct stage *)arg)->n_whole = n;
}

static void request(struct stage *st, uint32_t slot)
{
    struct sched_ask a = { .slot = slot, .memory_mib = 1 };
    assert_int_equal(st->ops->request(st->s, &a, 1, NULL), 0);
}

static void open_stage(struct stage *st)
{
    static const struct fake_rule rules[] = { { .slot = 0, .complete_ms = -1 },
                                              { .slot = FAKE_ANY, .grant_ms = -1 } };
    *st = (struct stage){ .cluster = fake_cluster_new(rules, ARRAY_LEN(rules)) };
    st->ops = sched_fake_ops(st->cluster);
    fake_cluster_hooks(st->cluster, &(struct fake_hooks){ .resized = on_resized, .arg = st });
    struct sched_config cfg = { .on_event = on_event, .arg = st };
    assert_int_equal(st->ops->open(&cfg, &st->s, NULL), 0);
    fake_cluster_run(st->cluster, 1);
}

static void close_stage(struct stage *st)
{
    st->ops->close(st->s);
    fake_cluster_free(st->cluster);
}

static void requests_wait_until_the_cluster_runs(void **state)
{
    struct stage st;
    (void)state;
    open_stage(&st);
    for (uint32_t slot = 0; slot < 4; slot++)
        request(&st, slot);
    request(&st, 3); /* two requests for one slot wait once */
    fake_cluster_run(st.cluster, 1000);
    assert_string_equal(st.heard, "got 0, ");
    assert_int_equal(fake_cluster_n_waiting(st.cluster), 3);
    assert_int_equal(st.ops->cancel(st.s, (uint32_t[]){ 1 }, 1, NULL), 0);
    assert_int_equal(fake_cluster_answer(st.cluster, 1, NULL), -ENOENT);
    assert_int_equal(fake_cluster_answer(st.cluster, 2, NULL), 0);
    assert_int_equal(fake_cluster_answer(st.cluster, 3, "no room"), 0);
    assert_string_equal(st.heard, "got 0, "); /* no callback runs inside the call */
    fake_cluster_run(st.cluster, 1001);
    assert_string_equal(st.heard, "got 0, got 2, refused 3: no room, ");
    assert_int_equal(fake_cluster_n_waiting(st.cluster), 0);
    close_stage(&st);
}

static void a_resize_is_remembered(void **state)
{
    struct sched_ask whole[] = { { .slot = 0 }, { .slot = 4000000000 } };
    struct err e = { 0 };
    struct stage st;
    (void)state;
    open_stage(&st);
    request(&st, 7);
    assert_int_equal(fake_cluster_n_beyond(st.cluster), 0); /* before the first call */
    assert_int_equal(st.ops->resize(st.s, whole, 2, NULL), 0);
    assert_int_equal(st.n_whole, 2);
    assert_int_equal(fake_cluster_whole(st.cluster), 2);
    assert_true(fake_cluster_in_whole(st.cluster, 4000000000));
    assert_false(fake_cluster_in_whole(st.cluster, 7));
    request(&st, 4000000000);
    request(&st, 7);
    assert_int_equal(fake_cluster_n_beyond(st.cluster), 1);
    fake_cluster_fail_resize(st.cluster, EIO);
    assert_int_equal(st.ops->resize(st.s, whole, 1, &e), -EIO);
    assert_int_equal(fake_cluster_whole(st.cluster), 2);
    close_stage(&st);
}

static void the_bounds_are_noted(void **state)
{
    struct stage st;
    (void)state;
    open_stage(&st);
    assert_string_equal(fake_cluster_bounds(st.cluster), "");
    assert_int_equal(st.ops->bounds(st.s, 1, 4, -1, NULL), 0);
    assert_int_equal(st.ops->bounds(st.s, 3, 3, -1, NULL), 0);
    assert_string_equal(fake_cluster_bounds(st.cluster), "1..4 3..3 ");
    close_stage(&st);
}

static void the_schedulers_wish(void **state)
{
    struct stage st;
    (void)state;
    open_stage(&st);
    assert_int_equal(fake_cluster_wish(st.cluster, SE_SHRINK, 2, 5000, "others wait"), 0);
    assert_int_equal(fake_cluster_wish(st.cluster, SE_GROW, 9, 6000, "there is room"), 0);
    fake_cluster_run(st.cluster, 2);
    assert_string_equal(st.heard,
                        "shrink to 2 in 5000: others wait, grow to 9 in 6000: there is room, ");
    close_stage(&st);
}

enum { MANY = 20000 };

static uint32_t got[MANY];
static size_t n_got;

static void note_grant(const struct sched_event *ev, void *arg)
{
    (void)arg;
    if (ev->type == SE_ALLOCATED)
        got[n_got++] = ev->containers[0].slot;
}

/* Requests that are due at the same time are granted in their order. */
static void thousands_keep_their_order(void **state)
{
    static struct sched_ask asks[MANY];
    static uint32_t odd[MANY / 2];
    struct fake_cluster *c = fake_cluster_new(NULL, 0);
    const struct sched_ops *ops = sched_fake_ops(c);
    struct sched_config cfg = { .on_event = note_grant };
    struct sched *s;
    (void)state;
    assert_int_equal(ops->open(&cfg, &s, NULL), 0);
    fake_cluster_run(c, 1);
    for (uint32_t i = 0; i < MANY; i++)
        asks[i].slot = MANY - 1 - i;
    for (uint32_t i = 0; i < MANY / 2; i++)
        odd[i] = 2 * i + 1;
    assert_int_equal(ops->request(s, asks, MANY, NULL), 0);
    assert_int_equal(ops->cancel(s, odd, MANY / 2, NULL), 0);
    fake_cluster_run(c, 2);
    assert_int_equal(n_got, MANY / 2);
    for (uint32_t i = 0; i < MANY / 2; i++)
        assert_int_equal(got[i], MANY - 2 - 2 * i);
    /* Slots with a container get no second one. */
    assert_int_equal(ops->request(s, asks, MANY, NULL), 0);
    fake_cluster_run(c, 3);
    assert_int_equal(n_got, MANY);
    ops->close(s);
    fake_cluster_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_wait_until_the_cluster_runs),
        cmocka_unit_test(a_resize_is_remembered),
        cmocka_unit_test(the_bounds_are_noted),
        cmocka_unit_test(the_schedulers_wish),
        cmocka_unit_test(thousands_keep_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
