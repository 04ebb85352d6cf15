/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

int64_t clock_mono_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail for this clock */
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_mono_ms(void)
{
    return clock_mono_us() / 1000;
}

int64_t clock_wall_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/*
 * This function computes the civil date itself. gmtime_r() reads the time zone file at its first
 * call, which costs every short-lived program a file access.
 *
 * Days are counted from 0000-03-01, so that a leap day is the last day of its year. The calendar
 * repeats after 400 years, which have 146097 days; 719468 days lie between 0000-03-01 and
 * 1970-01-01. doe and doy are the day of the era and of the year, yoe is the year of the era, and
 * mp the month counted from March = 0.
 */
const char *clock_iso8601(int64_t wall_ms, char *buf, size_t n)
{
    const int64_t day_ms = 86400000;
    int64_t day = wall_ms / day_ms, ms = wall_ms % day_ms;
    if (ms < 0) {
        ms += day_ms;
        day--;
    }
    day += 719468;
    int64_t era = (day >= 0 ? day : day - 146096) / 146097;
    int64_t doe = day - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;
    int64_t month = mp < 10 ? mp + 3 : mp - 9;
    int64_t year = yoe + era * 400 + (month <= 2);
    (void)snprintf(buf, n, "%04lld-%02d-%02dT%02d:%02d:%02d.%03dZ", (long long)year, (int)month,
                   (int)(doy - (153 * mp + 2) / 5 + 1), (int)(ms / 3600000), (int)(ms / 60000 % 60),
                   (int)(ms / 1000 % 60), (int)(ms % 1000));
    return buf;
}
