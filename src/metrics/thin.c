/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thinning: a series is read, the values of each interval become one, and the result is written as
 * a new series. Old values get longer intervals than new ones (metrics_interval()).
 *
 * A value holds until the next one of its task and name. So the mean of an interval weighs each
 * value with the time for which it held. A new value is known to hold since the record before it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "base/vec.h"
#include "metrics/metrics_int.h"

/* ---- intervals ---- */

#define S INT64_C(1000)
#define M (60 * S)
#define H (60 * M)
#define D (24 * H)

enum { TIERS = 5, LEVELS = 4 };

/* Values up to this age have this interval. */
static const struct {
    int64_t age_ms, interval_ms;
} tiers[LEVELS][TIERS] = {
    { { 6 * H, 0 }, { D, 30 * S }, { 2 * D, 2 * M }, { 7 * D, 5 * M }, { INT64_MAX, 30 * M } },
    { { 2 * H, 0 }, { 6 * H, 30 * S }, { D, 2 * M }, { 7 * D, 15 * M }, { INT64_MAX, 1 * H } },
    { { 1 * H, 0 }, { 6 * H, 2 * M }, { D, 10 * M }, { 7 * D, 1 * H }, { INT64_MAX, 4 * H } },
    { { 1 * H, 0 }, { 6 * H, 5 * M }, { D, 20 * M }, { 7 * D, 2 * H }, { INT64_MAX, 8 * H } },
};

int64_t metrics_interval(int level, int64_t age_ms)
{
    int row = MIN(MAX(level, 0), LEVELS - 1),
        more = MIN(MAX(level, 0), (int)METRICS_LEVEL_MAX) - row;
    if (age_ms <= tiers[row][0].age_ms >> more)
        return 0;
    for (int i = 1; i < TIERS - 1; i++)
        if (age_ms <= tiers[row][i].age_ms)
            return tiers[row][i].interval_ms << more;
    return tiers[row][TIERS - 1].interval_ms << more;
}

/* ---- state ---- */

struct cell {
    uint32_t name; /* its number in the series that is read */
    bool live;
    double value;    /* the last value that was read */
    int64_t from_ms; /* `area` includes this value up to this time */
    double area;     /* sum of value * ms in this interval */
    int64_t weight;  /* ms */
    bool due;        /* a value was read in this interval */
};

struct thin_task {
    VEC(struct cell) cells;
    uint32_t out; /* the task's number in t->out; UINT32_MAX = not added yet */
    bool gone;    /* the task ended in this interval */
};

struct metrics_thin {
    int level;
    int64_t now_ms;
    metrics_put_fn *put;
    void *arg;
    struct metrics_reader *reader;
    struct metrics *out;
    VEC(struct thin_task) tasks; /* by the task's number in the series that is read */
    VEC(uint32_t) names;         /* numbers in t->out, by the number in the series that is read */
    int64_t interval, bucket;    /* of the current interval; interval -1 = none has begun */
    int64_t t_ms, before_ms;     /* of the current record, and of the record before it */
};

struct metrics_thin *metrics_thin_new(int level, int64_t now_ms, metrics_put_fn *put, void *arg)
{
    struct metrics_thin *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    *t = (struct metrics_thin){ .level = level,
                                .now_ms = now_ms,
                                .put = put,
                                .arg = arg,
                                .reader = metrics_reader_new(),
                                .out = metrics_new(),
                                .interval = -1 };
    if (!t->reader || !t->out) {
        metrics_thin_free(t);
        return NULL;
    }
    return t;
}

void metrics_thin_free(struct metrics_thin *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->tasks.n; i++)
        vec_done(&t->tasks.v[i].cells);
    vec_done(&t->tasks);
    vec_done(&t->names);
    metrics_reader_free(t->reader);
    metrics_free(t->out);
    free(t);
}

/* ---- the end of an interval ---- */

static void count(struct cell *c, double value, int64_t until_ms)
{
    if (until_ms <= c->from_ms)
        return;
    c->area += value * (double)(until_ms - c->from_ms);
    c->weight += until_ms - c->from_ms;
    c->from_ms = until_ms;
}

static int name_in_out(struct metrics_thin *t, uint32_t name, uint32_t *out)
{
    int rc = 0;
    while (rc == 0 && t->names.n <= name) {
        uint32_t number;
        const char *text = metrics_reader_name(t->reader, (uint32_t)t->names.n);
        rc = metrics_name(t->out, span_of(text), &number);
        if (rc == 0)
            rc = vec_push(&t->names, number);
    }
    if (rc == 0)
        *out = t->names.v[name];
    return rc;
}

static bool keeps_last(const struct metrics_thin *t, const struct cell *c)
{
    enum metric_kind kind = metrics_reader_kind(t->reader, c->name);
    return t->interval == 0 || c->weight == 0 || kind == METRIC_COUNTER || kind == METRIC_PEAK;
}

static int put_cell(struct metrics_thin *t, struct thin_task *task, uint32_t number, struct cell *c)
{
    uint32_t name;
    if (c->live)
        count(c, c->value, t->t_ms);
    if (!c->due && !(c->live && c->weight))
        return 0;
    double value = keeps_last(t, c) ? c->value : c->area / (double)c->weight;
    int rc = 0;
    if (task->out == UINT32_MAX)
        rc = metrics_task(t->out, span_of(metrics_reader_label(t->reader, number)), &task->out);
    if (rc == 0)
        rc = name_in_out(t, c->name, &name);
    if (rc == 0)
        rc = metrics_set(t->out, task->out, name, value);
    c->area = 0;
    c->weight = 0;
    c->due = false;
    return rc == -EINVAL ? 0 : rc; /* the sum was too large for a double */
}

static int end_interval(struct metrics_thin *t)
{
    int rc = 0;
    for (size_t i = 0; i < t->tasks.n && rc == 0; i++) {
        struct thin_task *task = &t->tasks.v[i];
        for (size_t k = 0; k < task->cells.n && rc == 0; k++)
            rc = put_cell(t, task, (uint32_t)i, &task->cells.v[k]);
    }
    if (rc == 0 && t->interval >= 0)
        rc = metrics_encode(t->out, t->t_ms, t->put, t->arg);
    for (size_t i = 0; i < t->tasks.n && rc == 0; i++) {
        struct thin_task *task = &t->tasks.v[i];
        if (task->gone && task->out != UINT32_MAX)
            metrics_gone(t->out, task->out);
        task->gone = false;
    }
    return rc;
}

/* A record with this time begins: end the intervals before it. */
static int move_to(struct metrics_thin *t, int64_t t_ms)
{
    if (t->interval >= 0 && t_ms == t->t_ms)
        return 0;
    int64_t interval = metrics_interval(t->level, t->now_ms - t_ms);
    int64_t bucket = interval ? t_ms / interval : t_ms;
    int rc = 0;
    if (interval != t->interval || bucket != t->bucket)
        rc = end_interval(t);
    t->interval = interval;
    t->bucket = bucket;
    t->before_ms = t->t_ms;
    t->t_ms = t_ms;
    return rc;
}

/* ---- the series that is read ---- */

static struct cell *cell_of(struct metrics_thin *t, uint32_t task, uint32_t name)
{
    while (t->tasks.n <= task) {
        struct thin_task fresh = { .out = UINT32_MAX };
        if (vec_push(&t->tasks, fresh) < 0)
            return NULL;
    }
    struct thin_task *x = &t->tasks.v[task];
    size_t at = name_at(x->cells.v, x->cells.n, sizeof *x->cells.v, name);
    if (at < x->cells.n && x->cells.v[at].name == name)
        return &x->cells.v[at];
    if (vec_reserve(&x->cells, x->cells.n + 1) < 0)
        return NULL;
    struct cell *v = x->cells.v;
    memmove(v + at + 1, v + at, (x->cells.n - at) * sizeof *v);
    v[at] = (struct cell){ .name = name };
    x->cells.n++;
    return &v[at];
}

static int on_value(void *arg, uint32_t task, uint32_t name, int64_t t_ms, double value)
{
    struct metrics_thin *t = arg;
    int rc = move_to(t, t_ms);
    struct cell *c = rc < 0 ? NULL : cell_of(t, task, name);
    if (!c)
        return rc < 0 ? rc : -ENOMEM;
    int64_t since = t->before_ms && t->before_ms < t_ms ? t->before_ms : t_ms - 1;
    if (c->live)
        count(c, c->value, since);
    else
        c->from_ms = since;
    count(c, value, t_ms);
    c->from_ms = t_ms; /* even if it is earlier than before: the clock may have been set back */
    c->value = value;
    c->live = c->due = true;
    t->tasks.v[task].gone = false;
    return 0;
}

static int on_gone(void *arg, uint32_t task, int64_t t_ms)
{
    struct metrics_thin *t = arg;
    int rc = move_to(t, t_ms);
    if (rc < 0 || task >= t->tasks.n)
        return rc;
    struct thin_task *x = &t->tasks.v[task];
    for (size_t i = 0; i < x->cells.n; i++) {
        struct cell *c = &x->cells.v[i];
        if (!c->live)
            continue;
        count(c, c->value, t_ms);
        c->live = false;
        c->due = true;
        x->gone = true;
    }
    return 0;
}

static int on_gap(void *arg, int64_t t_ms)
{
    struct metrics_thin *t = arg;
    for (size_t i = 0; i < t->tasks.n; i++) {
        int rc = on_gone(arg, (uint32_t)i, t->interval >= 0 ? t->t_ms : t_ms);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int metrics_thin_add(struct metrics_thin *t, struct span record, struct err *e)
{
    const struct metrics_sink sink = {
        .value = on_value, .gone = on_gone, .gap = on_gap, .arg = t
    };
    return metrics_read(t->reader, record, &sink, e);
}

int metrics_thin_end(struct metrics_thin *t, struct err *e)
{
    int rc = end_interval(t);
    if (rc == 0 && t->interval >= 0)
        rc = metrics_encode(t->out, t->t_ms, t->put, t->arg); /* the ends of tasks */
    return rc < 0 ? err_set(e, -rc, "cannot thin a series of metrics: %m") : 0;
}
