/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a series that writer and reader share (docs/metrics.md, "The file").
 *
 *   write.c    the latest values, and the writer of a series
 *   read.c     the reader of a series
 *   thin.c     makes an older series smaller
 *   names.c    which names a metric may have, and its kind
 *   number.c   a value as two whole numbers, and back
 *   summary.c  the eight metrics that the original TonY reports
 *   text.c     the text of metrics for Prometheus
 *   merge.c    puts the texts of several jobs together
 */
#ifndef TONY_METRICS_METRICS_INT_H
#define TONY_METRICS_METRICS_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "metrics/metrics.h"

enum metrics_op {
    OP_RESET = 1,   /* forget all names, tasks and numbers */
    OP_NAME = 2,    /* kind, length, text */
    OP_TASK = 3,    /* length, label */
    OP_TIME = 4,    /* milliseconds since the last OP_TIME, signed */
    OP_GONE = 5,    /* task */
    OP_GAP = 6,     /* all tasks have ended */
    OP_SAMPLE = 16, /* OP_SAMPLE + n - 1: n values of one task; up to OP 255 */
    SAMPLE_VALUES_MAX = 255 - OP_SAMPLE + 1,
};

#define NUMBER_MAX (INT64_C(1) << 53)
enum { EXPONENT_MAX = 400, PAGE_BYTES = 4096 };

/* Write a number as m * 10^e. e is 0 for a whole number. */
void number_of(double v, enum metric_kind kind, int64_t *out_m, int *out_e);
double number_value(int64_t m, int e, enum metric_kind kind);

static inline uint64_t zigzag(int64_t v)
{
    return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}
static inline int64_t unzigzag(uint64_t v)
{
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* The number that both writer and reader expect next, so that only the difference is stored: a
 * counter probably grows by the same step again. */
static inline int64_t predict(enum metric_kind kind, int64_t m, int64_t d)
{
    return kind == METRIC_COUNTER ? m + d : m;
}

static inline bool in_pages(enum metric_kind kind)
{
    return kind == METRIC_PAGES || kind == METRIC_PEAK;
}

/* Find the struct of this name in v: n structs of `size` bytes, each of which begins with the
 * number of its name, in ascending order. Returns its index; if it is missing, the index at which
 * to insert it. */
size_t name_at(const void *v, size_t n, size_t size, uint32_t name);

int put_varint(struct buf *b, uint64_t v);
/* false: the number is incomplete, or has more than 64 bits. */
bool get_varint(struct span *in, uint64_t *out);

#endif
