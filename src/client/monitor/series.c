/* SPDX-License-Identifier: Apache-2.0 */
#include "client/monitor/series.h"

#include <errno.h>
#include <math.h>

#include "base/base.h"
#include "base/map.h"
#include "storage/metrics_file.h"

/* ---- reading ---- */

struct seen {
    int64_t now_ms, before_ms;
};

struct reading {
    const struct series_wish *wish;
    struct series_set *set;
    struct metrics_reader *r;
    /* "task name" -> 1 + the index of the series; SKIP for a series that is not wanted */
    struct map index;
    /* When each task was measured last, by the number of the task. A series has a point only where
     * its value changes, but a change of another series of the task shows a measurement, too. */
    VEC(struct seen) seen;
};
#define SKIP ((void *)(uintptr_t)UINTPTR_MAX)

static bool task_matches(const char *task, const char *word)
{
    size_t n = strlen(word);
    return strncmp(task, word, n) == 0 &&
           (task[n] == '\0' || (task[n] == ':' && !strchr(word, ':')));
}

bool series_is_of_task(const struct series *s, const char *word)
{
    return task_matches(s->task, word);
}

static bool is_wanted(const struct series_wish *w, const char *task, const char *name)
{
    bool task_ok = w->n_tasks == 0, name_ok = w->n_names == 0;
    for (size_t i = 0; i < w->n_tasks && !task_ok; i++)
        task_ok = task_matches(task, w->tasks[i]);
    for (size_t i = 0; i < w->n_names && !name_ok; i++)
        name_ok = str_eq(name, w->names[i]);
    return task_ok && name_ok;
}

/* Find or add the series of a task and a name. *out = NULL: it is not wanted. */
static int find(struct reading *x, uint32_t task, uint32_t name, struct series **out)
{
    char key[METRICS_LABEL_MAX + METRIC_NAME_MAX + 2];
    const char *label = metrics_reader_label(x->r, task), *text = metrics_reader_name(x->r, name);
    (void)snprintf(key, sizeof key, "%s %s", label, text);
    void *known = map_get(&x->index, key);
    *out = NULL;
    if (known == SKIP)
        return 0;
    if (known) {
        *out = &x->set->v[(uintptr_t)known - 1];
        return 0;
    }
    if (!is_wanted(x->wish, label, text))
        return map_set(&x->index, key, SKIP, NULL);
    struct series s = { .task = str_dup(label),
                        .name = str_dup(text),
                        .kind = metrics_reader_kind(x->r, name) };
    int rc = s.task && s.name ? vec_push(x->set, s) : -ENOMEM;
    if (rc < 0) {
        free(s.task);
        free(s.name);
        return rc;
    }
    *out = &x->set->v[x->set->n - 1];
    return map_set(&x->index, key, (void *)(uintptr_t)x->set->n, NULL);
}

static void note_time(struct series_set *set, int64_t t_ms)
{
    if (!set->first_ms || t_ms < set->first_ms)
        set->first_ms = t_ms;
    set->last_ms = MAX(set->last_ms, t_ms);
}

/* The task was measured at t_ms. *out_before_ms: the time of the measurement before; 0 = there was
 * none. */
static int note_seen(struct reading *x, uint32_t task, int64_t t_ms, int64_t *out_before_ms)
{
    const struct seen none = { 0 };
    while (x->seen.n <= task)
        if (vec_push(&x->seen, none) < 0)
            return -ENOMEM;
    struct seen *s = &x->seen.v[task];
    if (t_ms != s->now_ms)
        *s = (struct seen){ t_ms, s->now_ms };
    *out_before_ms = s->before_ms;
    return 0;
}

static int on_value(void *arg, uint32_t task, uint32_t name, int64_t t_ms, double value)
{
    struct reading *x = arg;
    struct series *s = NULL;
    int64_t before_ms;
    int rc = note_seen(x, task, t_ms, &before_ms);
    if (rc == 0)
        rc = find(x, task, name, &s);
    note_time(x->set, t_ms);
    if (rc < 0 || !s)
        return rc;
    s->ended = false;
    const struct point *last = s->points.n ? &s->points.v[s->points.n - 1] : NULL;
    if (last && last->value == value)
        return 0; /* the value at the beginning of a block, which repeats the last one */
    struct point p = { t_ms, value, MAX(before_ms, last ? last->t_ms : t_ms) };
    return vec_push(&s->points, p);
}

static int end_series(struct series *s, int64_t t_ms)
{
    int64_t at = MAX(t_ms, s->points.n ? s->points.v[s->points.n - 1].t_ms : 0);
    struct point p = { at, NAN, at };
    if (s->ended)
        return 0;
    s->ended = true;
    return vec_push(&s->points, p);
}

static int on_gone(void *arg, uint32_t task, int64_t t_ms)
{
    struct reading *x = arg;
    const char *label = metrics_reader_label(x->r, task);
    int rc = 0;
    note_time(x->set, t_ms);
    for (size_t i = 0; i < x->set->n && rc == 0; i++)
        if (str_eq(x->set->v[i].task, label))
            rc = end_series(&x->set->v[i], t_ms);
    return rc;
}

static int on_gap(void *arg, int64_t t_ms)
{
    struct reading *x = arg;
    int rc = 0;
    for (size_t i = 0; i < x->set->n && rc == 0; i++)
        rc = end_series(&x->set->v[i], t_ms);
    return rc;
}

int series_read(struct span text, const struct series_wish *w, struct series_set *out,
                struct err *e)
{
    struct series_set set = { 0 };
    struct reading x = { .wish = w, .set = &set, .r = metrics_reader_new() };
    const struct metrics_sink sink = { on_value, on_gone, on_gap, &x };
    struct metrics_records records;
    struct span record;
    int rc = x.r ? metrics_records_begin(&records, text, e) : -ENOMEM;
    while (rc == 0 && metrics_records_next(&records, &record))
        rc = metrics_read(x.r, record, &sink, e);
    metrics_reader_free(x.r);
    vec_done(&x.seen);
    map_done(&x.index, NULL);
    if (rc < 0) {
        series_done(&set);
        return rc == -ENOMEM ? err_set(e, ENOMEM, "no memory for the metrics") : rc;
    }
    *out = set;
    return 0;
}

void series_done(struct series_set *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->v[i].task);
        free(s->v[i].name);
        vec_done(&s->v[i].points);
    }
    free(s->v);
    *s = (struct series_set){ 0 };
}

/* ---- figures ---- */

void series_sum(const struct series *s, int64_t last_ms, struct series_sum *out)
{
    double area = 0, weight = 0;
    *out = (struct series_sum){ .last = NAN, .least = NAN, .most = NAN, .mean = NAN };
    for (size_t i = 0; i < s->points.n; i++) {
        const struct point *p = &s->points.v[i];
        int64_t until = i + 1 < s->points.n ? p[1].t_ms : last_ms;
        if (isnan(p->value))
            continue;
        out->n++;
        out->last = p->value;
        out->least = isnan(out->least) ? p->value : MIN(out->least, p->value);
        out->most = isnan(out->most) ? p->value : MAX(out->most, p->value);
        area += p->value * (double)MAX(until - p->t_ms, (int64_t)0);
        weight += (double)MAX(until - p->t_ms, (int64_t)0);
    }
    out->mean = weight > 0 ? area / weight : out->last;
}

bool series_is_rate(const struct series *s)
{
    return s->kind == METRIC_COUNTER && !str_eq(s->name, "step");
}

const char *series_unit(const struct series *s)
{
    if (str_eq(s->name, "cpu_ms"))
        return "percent of a core";
    if (series_is_rate(s))
        return "bytes a second";
    if (str_ends(s->name, "bytes") || s->kind == METRIC_PAGES || s->kind == METRIC_PEAK ||
        str_ends(s->name, "_BYTES"))
        return "bytes";
    return str_ends(s->name, "percent") ? "percent" : "";
}

void series_format(const struct series *s, double value, char *out, size_t n)
{
    const char *unit = series_unit(s);
    if (isnan(value))
        (void)str_copy(out, n, "-");
    else if (str_starts(unit, "bytes") && value >= 0)
        (void)str_size((uint64_t)value, out, n);
    else if (str_starts(unit, "percent"))
        (void)snprintf(out, n, value > 0 && value < 1 ? "%.2f" : "%.1f", value);
    else
        (void)snprintf(out, n, "%.6g", value);
}

/* ---- sampling ---- */

/* The growth of a counter up to a point, spread over the time since the measurement before. */
static double rate_of(const struct series *s, const struct point *p, const struct point *next)
{
    double ms = (double)(next->t_ms - next->held_ms), grown = next->value - p->value;
    if (ms <= 0 || grown < 0)
        return NAN; /* another attempt has begun, or the series ends */
    return str_eq(s->name, "cpu_ms") ? 100 * grown / ms : 1000 * grown / ms;
}

struct sampling {
    double *out, *weight;
    size_t n;
    int64_t first_ms;
    double step; /* length of an interval in ms */
};

/* The value v held from from_ms to until_ms. */
static void add_value(const struct sampling *x, double v, int64_t from_ms, int64_t until_ms)
{
    double from = x->step > 0 ? (double)(from_ms - x->first_ms) / x->step : 0;
    double to = x->step > 0 ? (double)(until_ms - x->first_ms) / x->step : (double)x->n;
    if (isnan(v))
        return;
    for (size_t k = (size_t)MIN(MAX(from, 0.0), (double)(x->n - 1)); k < x->n; k++) {
        double part = MIN(to, (double)k + 1) - MAX(from, (double)k);
        double *out = &x->out[k], *weight = &x->weight[k];
        if ((double)k > to)
            break;
        part = MAX(part, 1e-9); /* a value that held for 0 ms counts, too */
        *out = isnan(*out) ? v : (*out * *weight + v * part) / (*weight + part);
        *weight += part;
    }
}

void series_sample(const struct series *s, int64_t first_ms, int64_t last_ms, double *out, size_t n)
{
    AUTO(free_p) double *weight = calloc(n, sizeof *weight);
    const struct sampling x = { out, weight, n, first_ms,
                                (double)(last_ms - first_ms) / (double)n };
    for (size_t i = 0; i < n; i++)
        out[i] = NAN;
    for (size_t i = 0; weight && i < s->points.n; i++) {
        const struct point *p = &s->points.v[i], *next = i + 1 < s->points.n ? p + 1 : NULL;
        int64_t until = next ? next->t_ms : last_ms;
        if (!series_is_rate(s)) {
            add_value(&x, p->value, p->t_ms, until);
        } else if (!isnan(p->value)) {
            int64_t held = next ? next->held_ms : last_ms;
            if (held > p->t_ms)
                add_value(&x, 0, p->t_ms, held);
            if (next)
                add_value(&x, rate_of(s, p, next), held, until);
        }
    }
    const struct point *newest = s->points.n ? &s->points.v[s->points.n - 1] : NULL;
    if (newest && !series_is_rate(s) && !isnan(newest->value) && newest->t_ms <= last_ms)
        out[n - 1] = newest->value;
}
