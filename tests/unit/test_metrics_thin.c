/* SPDX-License-Identifier: Apache-2.0 */
/* Series of metrics that are thinned: older values are merged, and the file keeps its bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "metrics/metrics.h"
#include "metrics_points.h"
#include "storage/metrics_file.h"

static void intervals_grow_with_age_and_level(void **state)
{
    (void)state;
    for (int level = 0; level <= METRICS_LEVEL_MAX; level++) {
        int64_t last = 0;
        for (int64_t age = 0; age < INT64_C(1000) * 3600 * 24 * 60; age += 600000) {
            int64_t now = metrics_interval(level, age);
            assert_true(now >= last);
            assert_true(level == 0 || now >= metrics_interval(level - 1, age));
            last = now;
        }
    }
    for (int level = 0; level < 4; level++)
        assert_int_equal(metrics_interval(level, 3600 * 1000), 0); /* the last hour is whole */
}

static void thin(struct buf *from, int level, int64_t now_ms, struct buf *to)
{
    struct metrics_records records;
    struct span record;
    begin_text(to);
    struct metrics_thin *t = metrics_thin_new(level, now_ms, metrics_file_put, to);
    assert_non_null(t);
    assert_int_equal(metrics_records_begin(&records, buf_span(from), NULL), 0);
    while (metrics_records_next(&records, &record))
        assert_int_equal(metrics_thin_add(t, record, NULL), 0);
    assert_int_equal(metrics_thin_end(t, NULL), 0);
    metrics_thin_free(t);
}

enum { STEP = 5000 };

/* 1 and 3 by turns, so the mean is 2, and it grows a little. */
static double noisy(int64_t at)
{
    return (at / STEP % 2 ? 1 : 3) + (double)at / 1e7;
}

/* Of an old value only the mean is left, of a counter the last value; the newest hour is unchanged.
 */
static void thinning_keeps_means_and_the_last_hour(void **state)
{
    const int64_t hours = 10, end = hours * 3600000;
    struct metrics *m = metrics_new();
    struct buf text = { 0 }, less = { 0 };
    struct points all, few;
    (void)state;
    begin_text(&text);
    uint32_t t = task(m, "w:0"), loss = name(m, "loss"), cpu = name(m, "cpu_ms"),
             quiet = name(m, "quiet");
    for (int64_t at = STEP; at <= end; at += STEP) {
        assert_int_equal(metrics_set(m, t, loss, noisy(at)), 0);
        assert_int_equal(metrics_set(m, t, cpu, (double)at), 0);
        assert_int_equal(metrics_set(m, t, quiet, at < end / 2 ? 5 : 6), 0);
        assert_int_equal(metrics_encode(m, at, metrics_file_put, &text), 0);
    }
    metrics_gone(m, t);
    assert_int_equal(metrics_encode(m, end + 1, metrics_file_put, &text), 0);
    thin(&text, 3, end, &less);
    assert_true(less.len < text.len / 3);
    read_text(buf_span(&text), &all);
    read_text(buf_span(&less), &few);
    size_t n_old = 0, n_new = 0, n_all_new = 0, n_quiet = 0, n_gone = 0;
    for (size_t i = 0; i < all.v.n; i++)
        n_all_new += all.v.v[i].t_ms >= end - 3600000 && !strcmp(all.v.v[i].name, "loss");
    for (size_t i = 0; i < few.v.n; i++) {
        const struct point *x = &few.v.v[i];
        if (!strcmp(x->name, "quiet")) {
            n_quiet++;
            assert_true(x->value == 5 || x->value == 6 || llabs(x->t_ms - end / 2) < 1200000);
        } else if (!strcmp(x->name, "cpu_ms")) {
            assert_true(x->value == (double)x->t_ms); /* the last value of its interval */
        } else if (!strcmp(x->name, "loss") && x->t_ms < end - 3600000) {
            n_old++;
            assert_true(fabs(x->value - 2 - (double)x->t_ms / 1e7) < 0.2);
        } else if (!strcmp(x->name, "loss")) {
            n_new++;
            assert_true(fabs(x->value - noisy(x->t_ms)) < 1e-5);
        } else {
            n_gone += isnan(x->value) ? 1 : 0;
        }
    }
    assert_int_equal(n_new, n_all_new);
    assert_in_range(n_old, 60, 120);
    assert_in_range(n_quiet, 2, 3);
    assert_int_equal(n_gone, 1);
    vec_done(&all.v);
    vec_done(&few.v);
    buf_done(&text);
    buf_done(&less);
    metrics_free(m);
}

/* A job as its master would write it: `n` tasks, a sample each 5 s, thinned when it is due. */
struct job {
    struct metrics *m;
    struct metrics_file f;
    int level, n_thinned;
    int64_t largest;
};

static void thin_job(struct job *j, uint32_t n, int64_t now_ms)
{
    struct err e = { 0 };
    struct metrics_thinning t = { .path = j->f.path,
                                  .size = j->f.size,
                                  .goal = metrics_file_limit(n) * 6 / 10,
                                  .now_ms = now_ms,
                                  .level = j->level,
                                  .e = &e };
    metrics_begin_block(j->m, false);
    assert_int_equal(metrics_file_thin(&t), 0);
    assert_int_equal(metrics_file_replace(&j->f, &t, &e), 0);
    assert_true(j->f.size <= t.goal);
    j->level = t.level;
    j->n_thinned++;
}

static void run_job(struct job *j, const char *path, uint32_t n, int64_t hours)
{
    static const char *const metric[] = { "memory_bytes",  "memory_peak_bytes",
                                          "cpu_ms",        "read_bytes",
                                          "written_bytes", "threads",
                                          "loss",          "step" };
    struct buf records = { 0 };
    struct err e = { 0 };
    uint64_t seed = 3;
    uint32_t names_of[ARRAY_LEN(metric)];
    double(*v)[ARRAY_LEN(metric)] = calloc(n, sizeof *v);
    assert_non_null(v);
    *j = (struct job){ .m = metrics_new() };
    assert_int_equal(metrics_file_open(&j->f, path, NULL, &e), 0);
    for (size_t k = 0; k < ARRAY_LEN(metric); k++)
        names_of[k] = name(j->m, metric[k]);
    for (int64_t at = 5000; at <= hours * 3600000; at += 5000) {
        for (uint32_t i = 0; i < n; i++) {
            char label[24];
            uint64_t r = next_random(&seed);
            if (at == 5000) {
                (void)snprintf(label, sizeof label, "worker:%u", i);
                assert_int_equal(task(j->m, label), i);
            }
            v[i][0] = 4e9 + (double)(r % 1000) * 4096; /* noise of 4 MB */
            v[i][1] = MAX(v[i][1], v[i][0]);
            v[i][2] += 4950 + (double)(r % 97);
            v[i][3] += r % 20 == 0 ? 1 << 20 : 0;
            v[i][5] = 40;
            v[i][6] = i == 0 ? 2.5 / (1 + (double)at / 1e7) + (double)(r % 100) * 1e-4 : 0;
            v[i][7] = i == 0 ? (double)(at / 700) : 0;
            for (size_t k = 0; k < (i == 0 ? ARRAY_LEN(metric) : 6); k++)
                assert_int_equal(metrics_set(j->m, i, names_of[k], v[i][k]), 0);
        }
        buf_clear(&records);
        assert_int_equal(metrics_encode(j->m, at, metrics_file_put, &records), 0);
        assert_int_equal(metrics_file_write(&j->f, buf_span(&records), &e), 0);
        j->largest = MAX(j->largest, j->f.size);
        if (j->f.size > metrics_file_limit(n) - 64 * 1024)
            thin_job(j, n, at);
    }
    buf_done(&records);
    free(v);
}

/* Full rate in the last hour, and some values of the beginning. */
static void check_job(const struct job *j, const char *label, int64_t hours, bool whole_hour)
{
    struct buf text = { 0 };
    struct points p;
    size_t n_hour = 0, n_first_day = 0;
    int64_t end = hours * 3600000;
    assert_int_equal(metrics_file_read(j->f.path, &text, NULL), 0);
    read_text(buf_span(&text), &p);
    for (size_t i = 0; i < p.v.n; i++) {
        if (strcmp(p.v.v[i].task, label) != 0 || strcmp(p.v.v[i].name, "cpu_ms") != 0)
            continue;
        n_hour += p.v.v[i].t_ms > end - 3600000;
        n_first_day += p.v.v[i].t_ms < 24 * 3600000;
    }
    if (whole_hour)
        assert_in_range(n_hour, 720, 730);
    assert_true(n_first_day >= 8);
    vec_done(&p.v);
    buf_done(&text);
}

static void jobs_keep_their_bounds(void **state)
{
    static const struct {
        uint32_t n;
        int64_t hours, slow_hours;
    } rows[] = { { 1, 168, 168 }, { 1000, 4, 168 } };
    const char *slow = getenv("TONY_SLOW");
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char path[] = "/tmp/tony-metrics-XXXXXX";
        int fd = mkstemp(path);
        struct job j;
        assert_true(fd >= 0);
        close(fd);
        int64_t hours = slow && *slow ? rows[i].slow_hours : rows[i].hours;
        run_job(&j, path, rows[i].n, hours);
        print_message("# %u tasks, %lld hours: thinned %d times, level %d, at most %lld bytes, now "
                      "%lld\n",
                      rows[i].n, (long long)hours, j.n_thinned, j.level, (long long)j.largest,
                      (long long)j.f.size);
        assert_true(j.n_thinned > 0);
        assert_true(j.largest <= METRICS_FILE_MAX);
        assert_true(j.largest <= metrics_file_limit(rows[i].n));
        assert_true(j.level <= 3); /* the last hour is whole */
        check_job(&j, rows[i].n > 1 ? "worker:777" : "worker:0", hours, true);
        metrics_file_close(&j.f);
        metrics_free(j.m);
        (void)unlink(path);
    }
}

/* More names than fit: the bound holds, at the price of the last hour. */
static void a_chatty_job_keeps_its_bound(void **state)
{
    char path[] = "/tmp/tony-metrics-XXXXXX";
    int fd = mkstemp(path);
    struct job j = { .m = metrics_new() };
    struct err e = { 0 };
    struct buf records = { 0 };
    uint64_t seed = 5;
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    records.max = 64 << 20;
    assert_int_equal(metrics_file_open(&j.f, path, NULL, &e), 0);
    for (int64_t at = 5000; at <= 3600000; at += 5000) {
        for (uint32_t i = 0; i < 4; i++)
            for (unsigned k = 0; k < METRICS_OWN_MAX; k++) {
                char label[16], text[16];
                (void)snprintf(label, sizeof label, "w:%u", i);
                (void)snprintf(text, sizeof text, "own%u", k);
                assert_int_equal(metrics_set(j.m, task(j.m, label), name(j.m, text),
                                             (double)next_random(&seed) * 1e-9),
                                 0);
            }
        buf_clear(&records);
        assert_int_equal(metrics_encode(j.m, at, metrics_file_put, &records), 0);
        assert_int_equal(metrics_file_write(&j.f, buf_span(&records), &e), 0);
        j.largest = MAX(j.largest, j.f.size);
        if (j.f.size > metrics_file_limit(4) - 64 * 1024)
            thin_job(&j, 4, at);
    }
    assert_true(j.largest <= metrics_file_limit(4));
    assert_true(j.level > 3);
    buf_done(&records);
    metrics_file_close(&j.f);
    metrics_free(j.m);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_grow_with_age_and_level),
        cmocka_unit_test(thinning_keeps_means_and_the_last_hour),
        cmocka_unit_test(jobs_keep_their_bounds),
        cmocka_unit_test(a_chatty_job_keeps_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
