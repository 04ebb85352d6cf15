/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics_points.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <math.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "storage/metrics_file.h"

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

void read_text(struct span text, struct points *out)
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

uint32_t task(struct metrics *m, const char *label)
{
    uint32_t t = 0;
    assert_int_equal(metrics_task(m, span_of(label), &t), 0);
    return t;
}

uint32_t name(struct metrics *m, const char *text)
{
    uint32_t n = 0;
    assert_int_equal(metrics_name(m, span_of(text), &n), 0);
    return n;
}

void begin_text(struct buf *b)
{
    b->max = 64 << 20;
    assert_int_equal(buf_adds(b, "tony-metrics 1\n"), 0);
}

uint64_t next_random(uint64_t *s)
{
    *s = *s * 6364136223846793005U + 1442695040888963407U;
    return *s >> 33;
}
