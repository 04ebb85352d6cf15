/* SPDX-License-Identifier: Apache-2.0 */
/* Simulations, traces and charts: small cases by hand, and each allocation failing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>

#include "base/base.h"
#include "partition/instance.h"
#include "simulate/generate.h"
#include "simulate/plot.h"
#include "simulate/real.h"
#include "simulate/simulate.h"
#include "torture.h"

#define COLUMNS "id,arrival_s,cores,weight,min,max,static,duration_s,exponent\n"

/* The mean completion time under a policy. */
static double mean(const char *text, const char *policy, struct sim_result *r)
{
    AUTO(trace_done) struct trace t = { 0 };
    struct sim_options o = { 0 };
    struct err e = { 0 };
    if (trace_parse("t", span_of(text), &t, &e) < 0 ||
        sim_run(&t, part_policy_find(policy), &o, r, &e) < 0)
        fail_msg("%s", e.msg);
    return r->jct.mean_s;
}

static void by_hand(void **state)
{
    (void)state;
    struct sim_result r;
    /* Two jobs that want the whole node: one after the other, or half each. */
    const char *two = "# resources cores\n# nodes 1 4\n# resize_s 10\n" COLUMNS
                      "a,0,1,1,1,4,4,100,1\nb,0,1,1,1,4,4,100,1\n";
    assert_true(fabs(mean(two, "static", &r) - 150) < 1e-9);
    assert_int_equal(r.adjustments, 0);
    assert_true(fabs(r.jct.median_s - 100) < 1e-9 && fabs(r.jct.p95_s - 200) < 1e-9);
    assert_true(fabs(r.wait.mean_s - 50) < 1e-9 && fabs(r.wait.median_s) < 1e-9);
    assert_true(fabs(r.wait.p95_s - 100) < 1e-9);
    assert_true(fabs(mean(two, "drf", &r) - 200) < 1e-9);
    assert_int_equal(r.adjustments, 0);
    assert_true(fabs(r.util_5h - 200.0 / 18000) < 1e-12);
    assert_true(fabs(r.wait.p95_s) < 1e-9);

    /* a shrinks when b arrives. A job that is resized stands still for 10 s (resize_s), so only a
     * does. */
    const char *later = "# resources cores\n# nodes 1 4\n# resize_s 10\n" COLUMNS
                        "a,0,1,1,1,4,4,100,1\nb,50,1,1,1,2,2,50,1\n";
    mean(later, "drf", &r);
    assert_int_equal(r.adjustments, 2); /* a shrinks, and grows again */
    /* a has 200 of its 400 core seconds left at 50 s, stands still until 60, does 80 until 100,
     * stands still until 110, and does the last 120 until 140. */
    assert_true(fabs(r.end_s - 140) < 1e-9);
    assert_true(fabs(r.overhead_percent - 100 * (2 * 10 + 4 * 10) / (4 * 140.0)) < 1e-9);
    assert_true(fabs(r.lost_s - (2 * 10 + 4 * 10)) < 1e-9);

    /* Decisions are 100 s apart: b starts at 100. */
    const char *slow = "# resources cores\n# nodes 1 4\n# interval_s 100\n" COLUMNS
                       "a,0,1,1,1,4,1,10,1\nb,5,1,1,1,4,1,10,1\n";
    mean(slow, "static", &r);
    assert_true(fabs(r.end_s - 110) < 1e-9);

    /* las: b has less service, and stops a at its level. */
    const char *levels = "# resources cores\n# nodes 1 4\n# las 20\n" COLUMNS
                         "a,0,1,1,1,4,4,100,1\nb,5,1,1,1,4,4,30,1\n";
    mean(levels, "las", &r);
    assert_int_equal(r.adjustments, 2); /* a at 20 s; b at 40 s, since a then comes first again */
    assert_true(fabs(r.end_s - 130) < 1e-9);
}

/* The first resize is free, since nobody knows its cost. From then on the cost counts. */
static void payback(void **state)
{
    (void)state;
    struct sim_result r;
    /* As in by_hand(), but a does not grow again at 100: 5 s of two more containers are less than
     * 10 s of two. So its 120 left need 60 s. */
    const char *later = "# resources cores\n# nodes 1 4\n# resize_s 10\n# payback_s 15\n" COLUMNS
                        "a,0,1,1,1,4,4,100,1\nb,50,1,1,1,2,2,50,1\n";
    mean(later, "drf", &r);
    assert_int_equal(r.adjustments, 1);
    assert_true(fabs(r.end_s - 160) < 1e-9);

    /* c comes at 100 and needs a to shrink from 2 to 1. That costs 10 s of 1 container, and c gains
     * 3 s of 3. When it has waited for 1/3 s, it starts (and a ms later, to be sure). */
    const char *held = "# resources cores\n# nodes 1 4\n# resize_s 10\n# payback_s 3\n" COLUMNS
                       "a,0,1,1,1,4,4,100,1\nb,50,1,1,2,2,2,10,1\nc,100,1,1,3,3,3,10,1\n";
    mean(held, "drf", &r);
    double at_s = 100 + 1.0 / 3 + 0.001;
    assert_int_equal(r.adjustments, 2);
    assert_true(fabs(r.end_s - (at_s + 10 + 120 - 2 * (at_s - 100))) < 1e-6);
}

static int run_all(void *ctx)
{
    AUTO(trace_done) struct trace made = { 0 };
    AUTO(trace_done) struct trace t = { 0 };
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(buf_done) struct buf page = { 0 };
    struct err e = { 0 };
    (void)ctx;
    int rc = trace_generate("small", 3, 4, &made, &e);
    if (rc == 0)
        rc = trace_write(&made, &text);
    if (rc == 0)
        rc = trace_parse("t", buf_span(&text), &t, &e);
    if (rc == 0)
        rc = trace_set_nodes(&t, SPAN("2x12,131072,1 1x12,131072,0"), &e);
    struct plot *plot = rc == 0 ? plot_new(&t) : NULL;
    if (rc == 0 && !plot)
        rc = -ENOMEM;
    const char *const names[] = { "fifo", "drf", "las" };
    for (size_t i = 0; i < ARRAY_LEN(names) && rc == 0; i++) {
        struct sim_result r;
        plot_policy(plot, names[i]);
        struct sim_options o = { .events = plot_events(plot) };
        rc = sim_run(&t, part_policy_find(names[i]), &o, &r, &e);
    }
    if (rc == 0)
        rc = plot_write(plot, PLOT_ALL, &page);
    plot_free(plot);
    return rc;
}

static int answer_all(void *ctx)
{
    static const char market[] = "{\"kind\": \"market\", \"weights\": [[1, 2, 3], [3, 1, 1]],"
                                 "\"budgets\": [1, 2], \"parallel\": [2, 1]}";
    static const char jobs[] =
        "{\"kind\": \"drf\", \"resources\": [\"cores\"], \"nodes\": [{\"count\": 3, \"capacity\": "
        "[4]}], \"levels\": [1], \"apps\": [{\"id\": \"a\", \"demand\": [1], \"min\": 1, \"max\": "
        "9, \"at\": [[0, 2]]}, {\"id\": \"b\", \"demand\": [2], \"min\": 1, \"max\": 3}]}";
    AUTO(buf_done) struct buf answer = { 0 };
    struct err e = { 0 };
    (void)ctx;
    int rc = instance_answer("market", span_of(market), NULL, NULL, NULL, &answer, &e);
    if (rc == 0)
        rc = instance_answer("jobs", span_of(jobs), NULL, NULL, NULL, &answer, &e);
    if (rc == 0)
        rc = instance_answer("jobs", span_of(jobs), part_policy_find("market"), NULL, NULL, &answer,
                             &e);
    /* jansson takes some failed allocations of its own for errors in the text. */
    return rc == -EINVAL && strstr(e.msg, "cannot be read as JSON") ? -ENOMEM : rc;
}

static void without_memory(void **state)
{
    (void)state;
    torture(run_all, NULL);
    torture(answer_all, NULL);
}

/* Two jobs in a cluster of 4 cores: one grows from 1 to 3 containers, the other has 2 for 10 s. */
static void what_really_ran(void **state)
{
    (void)state;
    const char *text = "# resources cores\n# nodes 1 4\n# horizon_s 40\n" COLUMNS
                       "a,0,1,1,1,4,1,40,1\nb,10,1,1,2,2,2,10,1\n";
    struct real_bar bars[] = { { 0, 2, 12, 1 }, { 0, 12, 32, 3 }, { 1, 15, 25, 2 } };
    double completion[] = { 33, 15 };
    struct real real = {
        .bars = bars, .n_bars = ARRAY_LEN(bars), .completion_s = completion, .adjustments = 1
    };
    AUTO(trace_done) struct trace t = { 0 };
    AUTO(buf_done) struct buf page = { 0 };
    struct err e = { 0 };
    struct sim_result r;
    unsigned charts = 0;
    assert_int_equal(trace_parse("t", span_of(text), &t, &e), 0);
    struct plot *plot = plot_new(&t);
    assert_non_null(plot);
    plot_policy(plot, "real");
    assert_int_equal(sim_real(&t, &real, plot_events(plot), &r), 0);
    assert_true(fabs(r.util - (10 * 1 + 20 * 3 + 10 * 2) / 4.0 / 40) < 1e-12);
    assert_true(fabs(r.jct.mean_s - 24) < 1e-12);
    assert_true(fabs(r.end_s - 33) < 1e-12);
    assert_int_equal(r.adjustments, 1);

    assert_int_equal(plot_charts("partitions", &charts, &e), 0);
    assert_int_equal(charts, PLOT_PARTITIONS);
    assert_int_equal(plot_write(plot, charts, &page), 0);
    /* Job a: a quarter of the height 220 from 2 s on, three quarters from 12 to 32 s. The axis ends
     * with the last bar, at x = 710. Job b lies upon it from 15 s to 25 s, and is drawn first. */
    const char *b_area = strstr(buf_cstr(&page), "M370.0 270.0V50.0H570.0V270.0Z");
    const char *a_area = strstr(buf_cstr(&page), "M110.0 270.0V215.0H310.0V105.0H710.0V270.0Z");
    assert_non_null(b_area);
    assert_non_null(a_area);
    assert_true(b_area < a_area);
    plot_free(plot);

    assert_int_equal(plot_charts("held,utilization", &charts, &e), 0);
    assert_int_equal(charts, PLOT_HELD | PLOT_UTILIZATION);
    assert_int_equal(plot_charts("held,gantt", &charts, &e), -EINVAL);
    assert_string_equal(e.msg, "there is no chart 'gantt'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_really_ran),
        cmocka_unit_test(by_hand),
        cmocka_unit_test(payback),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests_name("simulate", tests, NULL, NULL);
}
