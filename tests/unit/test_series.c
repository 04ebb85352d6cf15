/* SPDX-License-Identifier: Apache-2.0 */
/* The values of a series that the charts of `tony metrics` and `tony top` draw. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "client/monitor/series.h"
#include "storage/metrics_file.h"

/* Three values over 300 ms, in three intervals; the last begins at `newest_ms`. */
static void sample(double newest, int64_t newest_ms, double out[3])
{
    struct point points[] = { { 0, 4, 0 }, { 100, 2, 100 }, { newest_ms, newest, newest_ms } };
    struct series s = { .kind = METRIC_GAUGE };
    s.points.v = points;
    s.points.n = ARRAY_LEN(points);
    series_sample(&s, 0, 300, out, 3);
}

static void test_the_newest_value_is_shown(void **state)
{
    (void)state;
    double out[3];
    sample(1, 200, out); /* each value has an interval of its own */
    assert_float_equal(out[0], 4, 1e-6);
    assert_float_equal(out[1], 2, 1e-6);
    assert_float_equal(out[2], 1, 1e-6);
    sample(1, 300, out); /* no time has passed since the newest value */
    assert_float_equal(out[1], 2, 1e-6);
    assert_float_equal(out[2], 1, 1e-6);
    sample(NAN, 250, out); /* the series has ended: its last interval keeps the mean */
    assert_float_equal(out[2], 2, 1e-6);
}

/* The rate of a counter is that of the interval in which it grew, and 0 while it stays the same. */
static void test_a_rate_is_not_spread_over_idle_time(void **state)
{
    (void)state;
    double out[5];
    struct point points[] = { { 0, 10, 0 }, { 300, 40, 200 } };
    struct series s = { .name = (char *)(uintptr_t) "cpu_ms", .kind = METRIC_COUNTER };
    s.points.v = points;
    s.points.n = 1;
    series_sample(&s, 0, 500, out, 5);
    for (size_t i = 0; i < ARRAY_LEN(out); i++)
        assert_float_equal(out[i], 0, 1e-6);
    s.points.n = 2;
    series_sample(&s, 0, 500, out, 5);
    assert_float_equal(out[0], 0, 1e-6);
    assert_float_equal(out[1], 0, 1e-6);
    assert_float_equal(out[2], 30, 1e-6); /* percent of a core */
    assert_float_equal(out[4], 0, 1e-6);
}

/* A series has a point only where its value changes: when its task was measured in between, the
 * changes of other series tell. */
static void test_when_a_value_was_measured_last(void **state)
{
    (void)state;
    struct metrics *m = metrics_new();
    AUTO(buf_done) struct buf text = { 0 };
    const struct series_wish wish = { 0 };
    struct series_set set = { 0 };
    struct err e = { 0 };
    uint32_t task, cpu, threads;
    assert_int_equal(buf_adds(&text, "tony-metrics 1\n"), 0);
    assert_int_equal(metrics_task(m, span_of("worker:0"), &task), 0);
    assert_int_equal(metrics_name(m, span_of("cpu_ms"), &cpu), 0);
    assert_int_equal(metrics_name(m, span_of("threads"), &threads), 0);
    for (int i = 0; i < 5; i++) { /* the CPU time grows at the fourth measurement only */
        assert_int_equal(metrics_set(m, task, cpu, i < 3 ? 10 : 40), 0);
        assert_int_equal(metrics_set(m, task, threads, i + 1), 0);
        assert_int_equal(metrics_encode(m, 1000 + 100 * i, metrics_file_put, &text), 0);
    }
    assert_int_equal(series_read(buf_span(&text), &wish, &set, &e), 0);
    const struct series *s = str_eq(set.v[0].name, "cpu_ms") ? &set.v[0] : &set.v[1];
    assert_int_equal(s->points.n, 2);
    assert_int_equal(s->points.v[1].t_ms, 1300);
    assert_int_equal(s->points.v[1].held_ms, 1200);
    series_done(&set);
    metrics_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_newest_value_is_shown),
        cmocka_unit_test(test_a_rate_is_not_spread_over_idle_time),
        cmocka_unit_test(test_when_a_value_was_measured_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
