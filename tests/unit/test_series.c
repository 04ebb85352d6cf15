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

/* Three values over 300 ms, in three intervals; the last begins at `newest_ms`. */
static void sample(double newest, int64_t newest_ms, double out[3])
{
    struct point points[] = { { 0, 4 }, { 100, 2 }, { newest_ms, newest } };
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_newest_value_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
