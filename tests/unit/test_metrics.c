/* SPDX-License-Identifier: Apache-2.0 */
/* The series of metrics: what is written is read, thinning keeps its bound, a torn end is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "metrics/metrics.h"
#include "storage/metrics_file.h"
#include "torture.h"

/* ---- names ---- */

static void names(void **state)
{
    static const struct {
        const char *name;
        bool ok;
    } rows[] = {
        { "loss", true },
        { "train/loss", true },
        { "val:acc-1.5", true },
        { "_x", true },
        { "", false },
        { "1st", false },
        { "a b", false },
        { "a\"b", false },
        { "é", false },
        { "cpu_ms", false },           /* tony's own */
        { "MAX_MEMORY_BYTES", false }, /* the original's */
        { "gpu0_percent", false },     /* tony's own */
        { "gpu_percent", true },
        { "gpu99_percent", true }, /* there is no such GPU */
        { "a234567890123456789012345678901234567890123456789012345678901234", true },
        { "a2345678901234567890123456789012345678901234567890123456789012345", false },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        assert_int_equal(metric_name_check(span_of(rows[i].name), &e), rows[i].ok ? 0 : -EINVAL);
        assert_int_equal(e.msg[0] != '\0', !rows[i].ok);
    }
    unsigned gpu;
    enum metric_gpu which;
    assert_true(metric_is_gpu(SPAN("gpu12_power_watts"), &gpu, &which));
    assert_int_equal(gpu, 12);
    assert_int_equal(which, METRIC_GPU_POWER);
}

/* ---- writing and reading ---- */

struct point {
    char task[16], name[24];
    int64_t t_ms;
    double value; /* NAN = the task is gone; infinity = all are */
};

struct points {
    struct metrics_reader *r;
    VEC(struct point) v;
};

static int on_value(void *arg, uint32_t task, uint32_t name, int64_t t_ms, double value)
{
    struct points *p = arg;
    struct point x = { .t_ms = t_ms, .value = value };
    (void)str_copy(x.task, sizeof x.task, metrics_reader_label(p->r, task));
    (void)str_copy(x.name, sizeof x.name, metrics_reader_name(p->r, name));
    return vec_push(&p->v, x);
}

static int on_gone(void *arg, uint32_t task, int64_t t_ms)
{
    struct points *p = arg;
    struct point x = { .t_ms = t_ms, .value = NAN };
    (void)str_copy(x.task, sizeof x.task, metrics_reader_label(p->r, task));
    return vec_push(&p->v, x);
}

static int on_gap(void *arg, int64_t t_ms)
{
    struct points *p = arg;
    struct point x = { .t_ms = t_ms, .value = INFINITY };
    return vec_push(&p->v, x);
}

/* Read a text of records as the file has them; the caller frees out->v. */
static void read_text(struct span text, struct points *out)
{
    const struct metrics_sink sink = { on_value, on_gone, on_gap, out };
    struct metrics_records records;
    struct span record;
    struct err e = { 0 };
    *out = (struct points){ .r = metrics_reader_new() };
    assert_non_null(out->r);
    assert_int_equal(metrics_records_begin(&records, text, &e), 0);
    while (metrics_records_next(&records, &record))
        assert_int_equal(metrics_read(out->r, record, &sink, &e), 0);
    metrics_reader_free(TAKE(out->r));
}

static uint32_t task(struct metrics *m, const char *label)
{
    uint32_t t = 0;
    assert_int_equal(metrics_task(m, span_of(label), &t), 0);
    return t;
}

static uint32_t name(struct metrics *m, const char *text)
{
    uint32_t n = 0;
    assert_int_equal(metrics_name(m, span_of(text), &n), 0);
    return n;
}

static struct span with_line(struct buf *b)
{
    return buf_span(b);
}

static void begin_text(struct buf *b)
{
    b->max = 64 << 20;
    assert_int_equal(buf_adds(b, "tony-metrics 1\n"), 0);
}

static void values_come_back(void **state)
{
    static const struct {
        const char *name;
        double in, out;
    } rows[] = {
        { "loss", 0.31, 0.31 },
        { "loss", 0.3099, 0.3099 },
        { "loss", 1, 1 },
        { "loss", -2.5e-7, -2.5e-7 },
        { "loss", 0.1234567, 0.123457 }, /* six digits */
        { "loss", 1e300, 1e300 },
        { "loss", 5e-324, 4.94066e-324 },
        { "loss", 1.7976931348623157e308, 1.79769e308 },
        { "loss", 0, 0 },
        { "n", 9007199254740992, 9007199254740992 },
        { "n", -9007199254740992, -9007199254740992 },
        { "n", 123456789012345, 123456789012345 },
        { "n", 1.5, 1.5 },
        { "n", -1, -1 },
        { "cpu_ms", 5000, 5000 },
        { "cpu_ms", 10000, 10000 },
        { "cpu_ms", 15001, 15001 },
        { "cpu_ms", 0, 0 },
        { "memory_bytes", 4096, 4096 },
        { "memory_bytes", 6000, 4096 }, /* whole pages */
        { "memory_bytes", 1e18, 1e18 },
        { "memory_peak_bytes", 8192, 8192 },
    };
    struct metrics *m = metrics_new();
    struct buf text = { 0 };
    struct points p;
    (void)state;
    begin_text(&text);
    uint32_t t = task(m, "worker:0");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(metrics_set(m, t, name(m, rows[i].name), rows[i].in), 0);
        assert_int_equal(metrics_encode(m, 1000 + (int64_t)i, metrics_file_put, &text), 0);
    }
    assert_int_equal(metrics_set(m, t, name(m, "loss"), NAN), -EINVAL);
    assert_int_equal(metrics_set(m, t, name(m, "loss"), INFINITY), -EINVAL);
    read_text(with_line(&text), &p);
    assert_int_equal(p.v.n, ARRAY_LEN(rows));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_string_equal(p.v.v[i].task, "worker:0");
        assert_string_equal(p.v.v[i].name, rows[i].name);
        assert_int_equal(p.v.v[i].t_ms, 1000 + (int64_t)i);
        double most = fabs(rows[i].out) * 1e-15;
        assert_true(fabs(p.v.v[i].value - rows[i].out) <= most);
    }
    vec_done(&p.v);
    buf_done(&text);
    metrics_free(m);
}

static void only_changes_are_written(void **state)
{
    struct metrics *m = metrics_new();
    struct buf text = { 0 };
    struct points p;
    (void)state;
    begin_text(&text);
    uint32_t t = task(m, "worker:0"), n = name(m, "loss"), k = name(m, "lr");
    assert_int_equal(metrics_set(m, t, n, 1), 0);
    assert_int_equal(metrics_set(m, t, k, 0.5), 0);
    assert_int_equal(metrics_encode(m, 1000, metrics_file_put, &text), 0);
    size_t before = text.len;
    assert_int_equal(metrics_set(m, t, n, 1), 0);
    assert_false(metrics_is_dirty(m));
    assert_int_equal(metrics_encode(m, 2000, metrics_file_put, &text), 0);
    assert_int_equal(text.len, before);
    assert_int_equal(metrics_set(m, t, n, 2), 0);
    metrics_gone(m, t); /* the value is written before the end */
    assert_int_equal(metrics_encode(m, 3000, metrics_file_put, &text), 0);
    assert_int_equal(metrics_set(m, t, n, 2), 0); /* the same value, but a new series */
    assert_int_equal(metrics_encode(m, 4000, metrics_file_put, &text), 0);
    metrics_begin_block(m, false); /* only what is live is repeated */
    assert_int_equal(metrics_encode(m, 5000, metrics_file_put, &text), 0);
    read_text(with_line(&text), &p);
    static const struct {
        const char *name;
        int64_t t_ms;
        double value;
    } want[] = { { "loss", 1000, 1 }, { "lr", 1000, 0.5 }, { "loss", 3000, 2 },
                 { "", 3000, NAN },   { "loss", 4000, 2 }, { "loss", 5000, 2 } };
    assert_int_equal(p.v.n, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_string_equal(p.v.v[i].name, want[i].name);
        assert_int_equal(p.v.v[i].t_ms, want[i].t_ms);
        assert_true(isnan(want[i].value) ? isnan(p.v.v[i].value) : p.v.v[i].value == want[i].value);
    }
    vec_done(&p.v);
    buf_done(&text);
    metrics_free(m);
}

static uint64_t next_random(uint64_t *s)
{
    *s = *s * 6364136223846793005U + 1442695040888963407U;
    return *s >> 33;
}

/* Many tasks and names, ends, and new blocks: a reader always knows the same values as the writer.
 */
struct known {
    struct metrics_reader *r;
    struct metrics *m;
    double value[40][40];
};

static int known_value(void *arg, uint32_t t, uint32_t n, int64_t t_ms, double value)
{
    struct known *k = arg;
    uint32_t i = (uint32_t)strtoul(metrics_reader_label(k->r, t) + 2, NULL, 10);
    uint32_t j = (uint32_t)strtoul(metrics_reader_name(k->r, n) + 1, NULL, 10);
    (void)t_ms;
    assert_true(i < 40 && j < 40);
    k->value[i][j] = value;
    return 0;
}

static void random_walks(void **state)
{
    struct known k = { .r = metrics_reader_new(), .m = metrics_new() };
    const struct metrics_sink sink = { known_value, NULL, NULL, &k };
    double truth[40][40] = { { 0 } };
    uint64_t seed = 7;
    struct buf text = { 0 };
    (void)state;
    begin_text(&text);
    for (int round = 0; round < 400; round++) {
        for (int c = 0; c < 60; c++) {
            unsigned i = (unsigned)next_random(&seed) % 40, j = (unsigned)next_random(&seed) % 40;
            char label[16], text_of[16];
            (void)snprintf(label, sizeof label, "w:%u", i);
            (void)snprintf(text_of, sizeof text_of, "m%u", j);
            double v = (double)(int64_t)next_random(&seed) - 1e9;
            v = j % 3 == 0 ? v : j % 3 == 1 ? floor(v) / 1024 : (double)(round * 100 + c) * 1e-6;
            assert_int_equal(metrics_set(k.m, task(k.m, label), name(k.m, text_of), v), 0);
            truth[i][j] = v;
            if (next_random(&seed) % 50 == 0)
                metrics_gone(k.m, task(k.m, label));
        }
        if (next_random(&seed) % 20 == 0)
            metrics_begin_block(k.m, false);
        assert_int_equal(metrics_encode(k.m, 1000 * round, metrics_file_put, &text), 0);
    }
    struct metrics_records records;
    struct span record;
    assert_int_equal(metrics_records_begin(&records, buf_span(&text), NULL), 0);
    while (metrics_records_next(&records, &record))
        assert_int_equal(metrics_read(k.r, record, &sink, NULL), 0);
    assert_false(records.torn);
    for (unsigned i = 0; i < 40; i++)
        for (unsigned j = 0; j < 40; j++)
            assert_true(fabs(k.value[i][j] - truth[i][j]) <= 1e-5 * fabs(truth[i][j]));
    metrics_reader_free(k.r);
    metrics_free(k.m);
    buf_done(&text);
}

/* ---- the file ---- */

static void a_torn_end_is_cut(void **state)
{
    char path[] = "/tmp/tony-metrics-XXXXXX";
    int fd = mkstemp(path);
    struct err e = { 0 };
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    struct metrics *m = metrics_new();
    struct metrics_file f;
    struct buf records = { 0 }, whole = { 0 };
    assert_int_equal(metrics_file_open(&f, path, NULL, &e), 0);
    for (int i = 0; i < 3; i++) {
        buf_clear(&records);
        assert_int_equal(metrics_set(m, task(m, "w:0"), name(m, "loss"), i), 0);
        assert_int_equal(metrics_encode(m, 1000 * i, metrics_file_put, &records), 0);
        assert_int_equal(metrics_file_write(&f, buf_span(&records), &e), 0);
    }
    int64_t size = f.size, last = (int64_t)records.len;
    metrics_file_close(&f);
    assert_int_equal(metrics_file_read(path, &whole, &e), 0);
    assert_int_equal(whole.len, size);

    /* every place at which a crash can cut the last record, and a damaged byte in it */
    for (int64_t cut = size - last; cut < size; cut++) {
        struct buf text = { 0 };
        assert_int_equal(
            fs_write_atomic(AT_FDCWD, path, span_mem(whole.p, (size_t)cut), 0600, false, &e), 0);
        assert_int_equal(metrics_file_open(&f, path, &text, &e), 0);
        assert_int_equal(f.size, size - last);
        assert_int_equal(text.len, size - last);
        buf_clear(&records);
        metrics_begin_block(m, true);
        assert_int_equal(metrics_set(m, task(m, "w:0"), name(m, "loss"), 7), 0);
        assert_int_equal(metrics_encode(m, 9000, metrics_file_put, &records), 0);
        assert_int_equal(metrics_file_write(&f, buf_span(&records), &e), 0);
        metrics_file_close(&f);
        buf_clear(&text);
        assert_int_equal(metrics_file_read(path, &text, &e), 0);
        struct points p;
        read_text(buf_span(&text), &p);
        assert_int_equal(p.v.n, 4); /* 0, 1, the gap, 7 */
        assert_true(isinf(p.v.v[2].value));
        assert_true(p.v.v[3].value == 7);
        vec_done(&p.v);
        buf_done(&text);
    }
    whole.p[size - 1] ^= 1;
    assert_int_equal(fs_write_atomic(AT_FDCWD, path, buf_span(&whole), 0600, false, &e), 0);
    assert_int_equal(metrics_file_open(&f, path, NULL, &e), 0);
    assert_int_equal(f.size, size - last);
    metrics_file_close(&f);

    /* a file that is no file of metrics, and one of a later version */
    assert_int_equal(fs_write_atomic(AT_FDCWD, path, SPAN("nonsense and more\n"), 0600, false, &e),
                     0);
    assert_int_equal(metrics_file_open(&f, path, NULL, &e), -EBADMSG);
    assert_int_equal(fs_write_atomic(AT_FDCWD, path, SPAN("tony-metrics 2\n"), 0600, false, &e), 0);
    assert_int_equal(metrics_file_open(&f, path, NULL, &e), -EINVAL);
    (void)unlink(path);
    metrics_free(m);
    buf_done(&records);
    buf_done(&whole);
}

/* ---- thinning ---- */

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

/* ---- the summary ---- */

static void the_original_s_metrics(void **state)
{
    struct metrics_summary s = { 0 };
    double v[METRICS_SUMMARY_COUNT];
    (void)state;
    metrics_summary_get(&s, 0, v);
    for (int i = 0; i < METRICS_SUMMARY_COUNT; i++)
        assert_true(v[i] == -1);
    assert_int_equal(metrics_summary_add(&s, SPAN("memory_bytes"), 0, 100), 0);
    assert_int_equal(metrics_summary_add(&s, SPAN("memory_bytes"), 1000, 300), 0);
    assert_int_equal(metrics_summary_add(&s, SPAN("gpu0_percent"), 0, 50), 0);
    assert_int_equal(metrics_summary_add(&s, SPAN("gpu1_percent"), 0, 70), 0);
    assert_int_equal(metrics_summary_add(&s, SPAN("gpu1_memory_percent"), 0, 7), 0);
    assert_int_equal(metrics_summary_add(&s, SPAN("loss"), 0, 7), 0);
    metrics_summary_pause(&s, 3000); /* 100 for 1 s, 300 for 2 s */
    metrics_summary_get(&s, 9000, v);
    assert_true(v[SUMMARY_MAX_MEMORY_BYTES] == 300);
    assert_true(fabs(v[SUMMARY_AVG_MEMORY_BYTES] - 700. / 3) < 1e-9);
    assert_true(v[SUMMARY_MAX_GPU_UTILIZATION] == 70);
    assert_true(v[SUMMARY_AVG_GPU_UTILIZATION] == 60);
    assert_true(v[SUMMARY_AVG_GPU_FB_MEMORY_USAGE] == 7);
    assert_true(v[SUMMARY_MAX_GPU_MAIN_MEMORY_USAGE] == -1);
    metrics_summary_done(&s);
}

/* ---- without memory ---- */

static int use_all(void *arg)
{
    struct metrics *m = metrics_new();
    struct buf text = { .max = 1 << 20 }, out = { .max = 1 << 20 };
    struct metrics_thin *x = NULL;
    uint32_t t, n;
    (void)arg;
    int rc = m ? metrics_task(m, SPAN("w:0"), &t) : -ENOMEM;
    if (rc == 0)
        rc = metrics_name(m, SPAN("loss"), &n);
    if (rc == 0)
        rc = metrics_set(m, t, n, 0.5);
    if (rc == 0)
        rc = metrics_encode(m, 1000, metrics_file_put, &text);
    if (rc == 0 && !(x = metrics_thin_new(0, 1000, metrics_file_put, &out)))
        rc = -ENOMEM;
    if (rc == 0)
        rc = metrics_thin_add(x, span_mem(text.p + 8, text.len - 8), NULL);
    if (rc == 0)
        rc = metrics_thin_end(x, NULL);
    if (rc == 0)
        assert_true(out.len > 0);
    metrics_thin_free(x);
    buf_done(&out);
    buf_done(&text);
    metrics_free(m);
    return rc;
}

static void without_memory(void **state)
{
    (void)state;
    (void)torture(use_all, NULL);
}

/* ---- texts of several jobs ---- */

#define GAUGE "# TYPE g gauge\n# HELP g A gauge.\n"
#define COUNTER "# TYPE c counter\n# HELP c A counter.\n"
#define VALUE "# TYPE tony_task_value gauge\n# HELP tony_task_value A number.\n"
#define END "# EOF\n"

static int merge(struct metrics_merge *m, const char *text)
{
    struct err e = { 0 };
    int rc = metrics_merge_add(m, span_of(text), &e);
    assert_true(rc == 0 || e.msg[0]);
    return rc;
}

static int merge_two(void *arg)
{
    (void)arg;
    struct buf text = { 0 }, old = { 0 };
    struct metrics_merge *m = metrics_merge_new();
    int rc = m ? metrics_merge_add(
                     m, SPAN(GAUGE "g{j=\"1\"} 1\ng 2\n" COUNTER "c_total{j=\"1\"} 3\n" END), NULL)
               : -ENOMEM;
    if (rc == 0)
        rc = metrics_merge_add(
            m, SPAN(COUNTER "c_total{j=\"2\"} 4\n" GAUGE "g{j=\"2\"} 5\n" VALUE END), NULL);
    if (rc == 0)
        rc = metrics_merge_text(m, true, &text);
    if (rc == 0)
        rc = metrics_merge_text(m, false, &old);
    if (rc == 0) {
        assert_string_equal(buf_cstr(&text),
                            GAUGE "g{j=\"1\"} 1\ng 2\ng{j=\"2\"} 5\n" COUNTER
                                  "c_total{j=\"1\"} 3\nc_total{j=\"2\"} 4\n" VALUE);
        assert_true(span_has(buf_span(&old), "# TYPE c_total counter\n"));
    }
    metrics_merge_free(m);
    buf_done(&text);
    buf_done(&old);
    return rc;
}

static void families_of_several_jobs_stand_together(void **state)
{
    (void)state;
    assert_int_equal(merge_two(NULL), 0);
    (void)torture(merge_two, NULL);
}

static void other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "g 1\n" END,
        GAUGE "g 1\n",
        GAUGE "g 1" END,
        GAUGE "h 1\n" END,
        GAUGE "g\n" END,
        GAUGE "gg 1\n" END,
        COUNTER "c 1\n" END,
        GAUGE "g 1\n\n" END,
        GAUGE "g 1\n" END "g 2\n",
        "# TYPE g gauge\ng 1\n" END,
        "# TYPE g histogram\n# HELP g x\n" END,
        "# TYPE g gauge\n# HELP h x\n" END,
        "# TYPE  gauge\n# HELP  x\n" END,
        GAUGE "g 1\t\n" END,
        "# TYPE g counter\n# HELP g It was a gauge.\n" END,
        "# other\n" END,
    };
    struct metrics_merge *m = metrics_merge_new();
    struct buf text = { 0 };
    assert_int_equal(merge(m, GAUGE END), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (merge(m, bad[i]) != -EBADMSG)
            fail_msg("text %zu is accepted", i);
    assert_int_equal(merge(m, GAUGE "g 7\n" END), 0);
    assert_int_equal(metrics_merge_text(m, true, &text), 0);
    assert_true(span_has(buf_span(&text), "g 7\n"));
    assert_false(span_has(buf_span(&text), "g 1\n"));
    metrics_merge_free(m);
    buf_done(&text);
}

static void names_of_programs_are_bounded(void **state)
{
    (void)state;
    struct metrics_merge *m = metrics_merge_new();
    struct buf text = { 0 };
    for (int job = 0; job < 2; job++) {
        struct buf one = { 0 };
        (void)buf_adds(&one, VALUE);
        for (int i = 0; i < 40; i++)
            (void)buf_addf(&one, "tony_task_value{j=\"%d\",name=\"n%d\"} 1\n", job, 30 * job + i);
        (void)buf_adds(&one, "tony_task_value 1\ntony_task_value{j=\"1\",name=\"} 1\n" END);
        assert_int_equal(merge(m, buf_cstr(&one)), 0);
        buf_done(&one);
    }
    assert_int_equal(metrics_merge_text(m, true, &text), 0);
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += text.p[i] == '\n';
    assert_int_equal(n, 2 + 40 + 34); /* 40 names, 10 of them again, and 24 more */
    assert_true(span_has(buf_span(&text), "{j=\"1\",name=\"n30\"}"));
    assert_false(span_has(buf_span(&text), "\"n64\""));
    metrics_merge_free(m);
    buf_done(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(values_come_back),
        cmocka_unit_test(only_changes_are_written),
        cmocka_unit_test(random_walks),
        cmocka_unit_test(a_torn_end_is_cut),
        cmocka_unit_test(intervals_grow_with_age_and_level),
        cmocka_unit_test(thinning_keeps_means_and_the_last_hour),
        cmocka_unit_test(jobs_keep_their_bounds),
        cmocka_unit_test(a_chatty_job_keeps_its_bound),
        cmocka_unit_test(the_original_s_metrics),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(families_of_several_jobs_stand_together),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(names_of_programs_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
