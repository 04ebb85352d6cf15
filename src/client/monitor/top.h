/* SPDX-License-Identifier: Apache-2.0 */
/* `tony top`: a table of jobs, or of the tasks of one job, which is updated every 2 seconds. */
#ifndef TONY_CLIENT_MONITOR_TOP_H
#define TONY_CLIENT_MONITOR_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "storage/paths.h"

struct client;
struct cluster;
struct err;

int cmd_top(struct client *c);

/* ---- top_rows.c: what is shown ---- */

enum {
    TOP_HISTORY = 20,
    TOP_MINUTES = 10
}; /* columns of the bar, and the time that it shows at first */

struct top_row {
    char *key;   /* the id of the job, or the task */
    char *label; /* the text that the first column shows */
    char *state;
    uint64_t step, total;
    double rate;          /* steps a second; NaN = not known */
    double cpu, gpu;      /* percent of a core; mean of the GPUs in percent; NaN = not known */
    double memory, limit; /* bytes; NaN = not known */
    double history[TOP_HISTORY]; /* percent of a core, the newest last; NaN = not known */
    /* for the next round: */
    uint64_t last_step;
    int64_t last_ms; /* monotonic */
    bool seen;
};

enum top_sort { TOP_BY_NAME, TOP_BY_STATE, TOP_BY_STEP, TOP_BY_CPU, TOP_BY_MEMORY, TOP_BY_GPU };

struct top {
    struct cluster *k;
    char app[APP_ID_MAX]; /* the job whose tasks are shown; "" = all jobs */
    struct top_row *v;
    size_t n, cap;
    enum top_sort sort;
    bool reverse;
    char title[200]; /* "job 12 train RUNNING" */
    int n_rounds;
};
void top_done(struct top *t); /* frees the rows */
/* Ask again. 0, or minus the exit code with e set. */
int top_refresh(struct top *t, struct err *e);
void top_sort(struct top *t);
/* The heading, or a row, with at most n_cols columns of text. */
void top_head(const struct top *t, unsigned n_cols, struct buf *out);
void top_line(const struct top *t, const struct top_row *r, unsigned n_cols, bool unicode,
              struct buf *out);

#endif
