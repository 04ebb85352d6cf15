/* SPDX-License-Identifier: Apache-2.0 */
/* The series of metrics: what is written is read, also after a crash that cut the file. */
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
#include "metrics/metrics.h"
#include "metrics_points.h"
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
    read_text(buf_span(&text), &p);
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
    read_text(buf_span(&text), &p);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(values_come_back),
        cmocka_unit_test(only_changes_are_written),
        cmocka_unit_test(random_walks),
        cmocka_unit_test(a_torn_end_is_cut),
        cmocka_unit_test(the_original_s_metrics),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
