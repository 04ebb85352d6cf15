/* SPDX-License-Identifier: Apache-2.0 */
/* The series of metrics of a job, read from its file or from its master. */
#ifndef TONY_CLIENT_MONITOR_SERIES_H
#define TONY_CLIENT_MONITOR_SERIES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/vec.h"
#include "metrics/metrics.h"

struct client;
struct err;

struct point {
    int64_t t_ms;    /* wall time */
    double value;    /* NaN: the series ends here; it may continue later */
    int64_t held_ms; /* the previous value held at least until this time, which is at most t_ms */
};

struct series {
    char *task, *name;
    enum metric_kind kind;
    /* only the changes, in the order of the file; a value holds until the next point */
    VEC(struct point) points;
    bool ended;
};

struct series_set {
    struct series *v; /* one for each task and name, in the order in which they began */
    size_t n, cap;
    int64_t first_ms, last_ms; /* of all records; 0 = there are none */
};

/* Which series to read. Each list may be empty: all. */
struct series_wish {
    const char *const *tasks; /* "worker:1", or "worker" for all of a role */
    size_t n_tasks;
    const char *const *names;
    size_t n_names;
};

/* Read the text of a file (storage/metrics_file.h). The caller frees *out with series_done(). */
int series_read(struct span text, const struct series_wish *w, struct series_set *out,
                struct err *e);
void series_done(struct series_set *s);
/* Does the word of a wish, the name of a task or of a role, name the task of this series? */
bool series_is_of_task(const struct series *s, const char *word);
/* The document of `tony metrics --json`. NULL = no memory. */
json_t *series_json(const char *id, const struct series_set *set);

/* The figures of one series, for people. */
struct series_sum {
    size_t n;                       /* points */
    double last, least, most, mean; /* mean: over the time in which each value held */
};
void series_sum(const struct series *s, int64_t last_ms, struct series_sum *out);

/* The values of a series at n >= 1 equal intervals from first_ms to last_ms: the mean of each, NaN
 * where it has none. The last interval of a series that continues has its newest value, not a mean,
 * so that a chart shows what came last. A counter becomes its rate: cpu_ms in percent of a core,
 * bytes in bytes a second. The rate is 0 while the counter stays the same. */
void series_sample(const struct series *s, int64_t first_ms, int64_t last_ms, double *out,
                   size_t n);
bool series_is_rate(const struct series *s); /* does series_sample() give a rate? */
/* The unit of the values of series_sample(), for a heading: "bytes", "percent of a core", or "". */
const char *series_unit(const struct series *s);
/* Write a value in the form that suits its unit: "1.2 GB", "0.3125", "97.5". */
void series_format(const struct series *s, double value, char *out, size_t n);

/* ---- chart.c ---- */

bool chart_unicode(void); /* does the locale of the user have UTF-8? */

/* A bar of one character for each value, as high as the value between least and most; a blank for
 * NaN. unicode: else digits are used. */
void chart_bar(const double *v, size_t n, bool unicode, struct buf *out);
/* A chart of n_cols by n_rows characters with a scale, for a terminal. */
void chart_draw(const struct series *s, int64_t first_ms, int64_t last_ms, unsigned n_cols,
                unsigned n_rows, bool unicode, struct buf *out);

#endif
