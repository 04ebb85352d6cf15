/* SPDX-License-Identifier: Apache-2.0 */
/* Series of metrics in tests: short calls that write one, and a reader that lists its values. */
#ifndef TONY_TESTS_METRICS_POINTS_H
#define TONY_TESTS_METRICS_POINTS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/vec.h"
#include "metrics/metrics.h"

struct point {
    char task[16], name[24];
    int64_t t_ms;
    double value; /* NAN = the task has ended; infinity = a gap in the series of all tasks */
};

struct points {
    struct metrics_reader *r; /* only during read_text() */
    VEC(struct point) v;
};

/* Begin a text of records as a file of metrics has them. */
void begin_text(struct buf *b);
/* Read such a text; the caller frees out->v. */
void read_text(struct span text, struct points *out);
uint32_t task(struct metrics *m, const char *label);
uint32_t name(struct metrics *m, const char *text);
uint64_t next_random(uint64_t *s);

#endif
