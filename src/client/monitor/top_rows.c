/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of `tony top`: from the list of jobs and their status documents, or from one of these.
 */
#include <errno.h>
#include <math.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/monitor/series.h"
#include "client/monitor/top.h"
#include "cluster/cluster.h"

enum { JOBS_MAX = 200 };

static void row_done(struct top_row *r)
{
    free(r->key);
    free(r->label);
    free(r->state);
}

void top_done(struct top *t)
{
    for (size_t i = 0; i < t->n; i++)
        row_done(&t->v[i]);
    free(t->v);
    t->v = NULL;
    t->n = t->cap = 0;
}

/* ---- one row ---- */

/* Find the row with this key, or add an empty one. NULL = no memory. */
static struct top_row *row_of(struct top *t, const char *key)
{
    for (size_t i = 0; i < t->n; i++)
        if (str_eq(t->v[i].key, key))
            return &t->v[i];
    struct top_row r = {
        .key = str_dup(key), .rate = NAN, .cpu = NAN, .gpu = NAN, .memory = NAN, .limit = NAN
    };
    for (size_t i = 0; i < TOP_HISTORY; i++)
        r.history[i] = NAN;
    if (!r.key || vec_push(t, r) < 0) {
        free(r.key);
        return NULL;
    }
    return &t->v[t->n - 1];
}

static void set_text(char **at, const char *text)
{
    free(*at);
    *at = str_dup(text);
    if (*at)
        str_mask_controls(*at);
}

static double real_of(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* Steps a second since the last round; at first since the start of the task. */
static void set_step(struct top_row *r, int64_t step, int64_t total, int64_t ran_ms)
{
    int64_t now = clock_mono_ms();
    r->step = step > 0 ? (uint64_t)step : 0;
    r->total = total > 0 ? (uint64_t)total : 0;
    if (!r->last_ms && r->step && ran_ms > 0)
        r->rate = 1000.0 * (double)r->step / (double)ran_ms;
    else if (r->last_ms && now > r->last_ms && r->step > r->last_step)
        r->rate = 1000.0 * (double)(r->step - r->last_step) / (double)(now - r->last_ms);
    /* between two steps keep the rate: it must not jump to 0 while a step takes long */
    if (r->step != r->last_step || !r->last_ms) {
        r->last_step = r->step;
        r->last_ms = now;
    }
}

static void push_history(struct top_row *r)
{
    memmove(r->history, r->history + 1, (TOP_HISTORY - 1) * sizeof *r->history);
    r->history[TOP_HISTORY - 1] = r->cpu;
}

/* ---- tasks ---- */

static double mean_gpu(const json_t *metrics)
{
    const char *key;
    json_t *v;
    double sum = 0;
    unsigned n = 0, gpu;
    enum metric_gpu which;
    json_object_foreach((json_t *)(uintptr_t)metrics, key,
                        v) if (metric_is_gpu(span_of(key), &gpu, &which) &&
                               which == METRIC_GPU_PERCENT) sum += json_number_value(v),
        n++;
    return n ? sum / n : NAN;
}

static int add_task(struct top *t, const json_t *doc, const json_t *task)
{
    struct top_row *r = row_of(t, doc_str(task, "task"));
    const json_t *m = json_object_get(task, "metrics");
    const char *result = doc_str(task, "result");
    if (!r)
        return -ENOMEM;
    int64_t now = doc_int(json_object_get(doc, "times"), "now_ms", 0),
            started = doc_int(task, "started_ms", -1), ended = doc_int(task, "ended_ms", -1);
    set_text(&r->label, r->key);
    set_text(&r->state, result[0] ? result : doc_str(task, "state"));
    set_step(r, doc_int(task, "step", 0), doc_int(task, "total", 0),
             started >= 0 ? (ended >= 0 ? ended : now) - started : 0);
    r->cpu = real_of(task, "cpu_percent");
    r->memory = real_of(m, result[0] ? "memory_peak_bytes" : "memory_bytes");
    r->limit = real_of(task, "memory_limit_bytes");
    r->gpu = result[0] ? NAN : mean_gpu(m);
    if (result[0])
        r->rate = NAN;
    r->seen = true;
    return 0;
}

static int refresh_tasks(struct top *t, struct err *e)
{
    json_t *doc = NULL, *task;
    size_t i;
    int rc = cluster_ops_of(t->k)->status(t->k, t->app, &doc, e);
    if (rc < 0)
        return rc;
    (void)snprintf(t->title, sizeof t->title, "%.60s  %.60s  %s", t->app, doc_str(doc, "name"),
                   doc_str(doc, "state"));
    json_array_foreach(json_object_get(doc, "tasks"), i, task)
    {
        if (rc == 0)
            rc = add_task(t, doc, task);
    }
    json_decref(doc);
    if (rc < 0)
        (void)err_set(e, ENOMEM, "no memory for the tasks");
    return rc < 0 ? -EXIT_CLUSTER : 0;
}

/* ---- jobs ---- */

static void add_usage(struct top_row *r, const json_t *doc)
{
    const json_t *u = json_object_get(doc, "usage"), *role;
    int64_t step = 0, total = 0;
    size_t i;
    json_array_foreach(json_object_get(doc, "roles"), i, role)
    {
        if (step == 0) {
            step = doc_int(role, "step", 0);
            total = doc_int(role, "total", 0);
        }
    }
    set_step(r, step, total, doc_int(doc, "ran_ms", 0));
    r->cpu = real_of(u, "cpu_percent");
    r->memory = real_of(u, "memory_bytes");
    r->limit = real_of(u, "memory_limit_bytes");
    r->gpu = real_of(u, "gpu_percent");
    if (doc_str(doc, "state")[0])
        set_text(&r->state, doc_str(doc, "state"));
}

static int add_job(struct top *t, const json_t *job)
{
    const char *id = doc_str(job, "application_id"), *under = strrchr(id, '_');
    struct top_row *r = row_of(t, id);
    if (!r)
        return -ENOMEM;
    AUTO(free_p) char *label = str_printf("%s %s", under ? under + 1 : id, doc_str(job, "name"));
    set_text(&r->label, label ? label : id);
    set_text(&r->state, doc_str(job, "state"));
    r->seen = true;
    json_t *doc = NULL;
    struct err unread = { 0 };
    if (str_eq(r->state, "RUNNING") && cluster_ops_of(t->k)->status(t->k, id, &doc, &unread) == 0)
        add_usage(r, doc);
    json_decref(doc);
    return 0;
}

static int refresh_jobs(struct top *t, struct err *e)
{
    json_t *rows = json_array(), *job;
    bool more;
    size_t i, n = 0;
    int rc = rows ? cluster_ops_of(t->k)->list(t->k, JOBS_MAX, rows, &more, e) : -EXIT_CLUSTER;
    json_array_foreach(rows, i, job)
    {
        if (rc == 0 && json_is_true(json_object_get(job, "live"))) {
            rc = add_job(t, job) < 0 ? -EXIT_CLUSTER : 0;
            n++;
        }
    }
    json_decref(rows);
    (void)snprintf(t->title, sizeof t->title, "%zu live job%s on %s", n, n == 1 ? "" : "s",
                   cluster_ops_of(t->k)->title);
    return rc;
}

/* ---- the history of a new row ---- */

/* Add the CPU use of one task in the last minutes to the row. */
static void add_past(struct top_row *r, const struct series *s, int64_t last_ms)
{
    double v[TOP_HISTORY];
    series_sample(s, last_ms - TOP_MINUTES * 60000, last_ms, v, TOP_HISTORY);
    for (size_t i = 0; i < TOP_HISTORY; i++)
        if (!isnan(v[i]))
            r->history[i] = isnan(r->history[i]) ? v[i] : r->history[i] + v[i];
}

static void load_past(struct top *t, const char *id, struct top_row *sum)
{
    static const char *const names[] = { "cpu_ms" };
    const struct series_wish w = { .names = names, .n_names = 1 };
    AUTO(buf_done) struct buf text = { 0 };
    struct series_set set = { 0 };
    if (cluster_metrics(t->k, id, &text, NULL) < 0 ||
        series_read(buf_span(&text), &w, &set, NULL) < 0)
        return;
    for (size_t i = 0; i < set.n; i++) {
        struct top_row *r = sum;
        for (size_t k = 0; k < t->n && !sum && !r; k++)
            if (str_eq(t->v[k].key, set.v[i].task))
                r = &t->v[k];
        if (r)
            add_past(r, &set.v[i], set.last_ms);
    }
    series_done(&set);
}

int top_refresh(struct top *t, struct err *e)
{
    size_t before = t->n, n = 0;
    for (size_t i = 0; i < t->n; i++)
        t->v[i].seen = false;
    int rc = t->app[0] ? refresh_tasks(t, e) : refresh_jobs(t, e);
    if (rc < 0)
        return rc;
    if (t->app[0] && t->n_rounds == 0)
        load_past(t, t->app, NULL);
    for (size_t i = before; !t->app[0] && i < t->n; i++)
        if (str_eq(t->v[i].state, "RUNNING"))
            load_past(t, t->v[i].key, &t->v[i]);
    for (size_t i = 0; i < t->n; i++) {
        if (!t->v[i].seen) {
            row_done(&t->v[i]);
            continue;
        }
        if (t->n_rounds > 0)
            push_history(&t->v[i]);
        t->v[n++] = t->v[i];
    }
    t->n = n;
    t->n_rounds++;
    top_sort(t);
    return 0;
}

/* ---- order ---- */

static int by_number(double a, double b) /* the largest first, unknown ones last */
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return a < b ? 1 : a > b ? -1 : 0;
}

static int by_key(const struct top_row *a, const struct top_row *b)
{
    return strverscmp(a->key, b->key); /* worker:2 before worker:10 */
}

static int compare(const void *x, const void *y, void *arg)
{
    const struct top_row *a = x, *b = y;
    const struct top *t = arg;
    int rc = 0;
    switch (t->sort) {
    case TOP_BY_NAME:
        break;
    case TOP_BY_STATE:
        rc = strcmp(a->state ? a->state : "", b->state ? b->state : "");
        break;
    case TOP_BY_STEP:
        rc = by_number((double)a->step, (double)b->step);
        break;
    case TOP_BY_CPU:
        rc = by_number(a->cpu, b->cpu);
        break;
    case TOP_BY_MEMORY:
        rc = by_number(a->memory, b->memory);
        break;
    case TOP_BY_GPU:
        rc = by_number(a->gpu, b->gpu);
        break;
    }
    if (rc == 0)
        rc = by_key(a, b);
    return t->reverse ? -rc : rc;
}

void top_sort(struct top *t)
{
    if (t->n)
        qsort_r(t->v, t->n, sizeof *t->v, compare, t);
}

/* ---- text ---- */

/* Columns of each cell. A blank follows each but the bar. */
struct layout {
    int name, state, step, rate, cpu, memory, limit, gpu, bar;
};

enum {
    NAME_LEAST = 12, /* "worker:1000" */
    NAME_COLS = 24,
    NAME_MOST = 50,
    BAR_SHORT = 7, /* beside the shortest name in a terminal of 80 columns */
};

static int fixed_cols(const struct layout *l)
{
    return l->state + l->step + l->rate + l->cpu + l->memory + l->limit + l->gpu + 8;
}

/* A terminal of 80 columns has room for all cells, with a short name and a short bar. In a wider
 * terminal, first the name and the bar get more columns, and then the numbers. */
static struct layout layout_of(unsigned n_cols)
{
    static const struct layout wide = { NAME_COLS, 10, 13, 8, 6, 9, 9, 5, TOP_HISTORY },
                               narrow = { NAME_LEAST, 9, 11, 7, 6, 8, 8, 4, 0 };
    int n = (int)MIN(n_cols, 1000U);
    struct layout l = wide;
    int spare = n - fixed_cols(&wide) - wide.name - wide.bar;
    if (spare >= 0) {
        l.name = MIN(wide.name + spare, (int)NAME_MOST);
        return l;
    }
    l = narrow;
    int left = n - fixed_cols(&narrow);
    l.name += MAX(MIN((left - NAME_LEAST - BAR_SHORT) / 2, NAME_COLS - NAME_LEAST), 0);
    l.bar = MAX(MIN(left - l.name, (int)TOP_HISTORY), 0);
    return l;
}

/* Append the first n columns of a text that may have UTF-8. */
static void add_cut(const char *text, unsigned n, struct buf *out)
{
    unsigned cols = 0;
    const char *p = text;
    for (; *p; p++) {
        if (((unsigned char)*p & 0xc0) != 0x80 && ++cols > n)
            break;
    }
    (void)buf_add(out, text, (size_t)(p - text));
}

static void add_cell(struct buf *out, const char *text, int cols)
{
    size_t before = out->len;
    add_cut(text, (unsigned)cols, out);
    int shown = 0;
    for (size_t i = before; i < out->len; i++)
        shown += ((unsigned char)out->p[i] & 0xc0) != 0x80;
    (void)buf_addf(out, "%*s ", cols - shown, "");
}

static void number_text(double v, int decimals, char *out, size_t n)
{
    if (isnan(v))
        (void)str_copy(out, n, "-");
    else
        (void)snprintf(out, n, "%.*f", decimals, v);
}

void top_head(const struct top *t, unsigned n_cols, struct buf *out)
{
    static const char history[] = "CPU HISTORY";
    AUTO(buf_done) struct buf line = { 0 };
    struct layout l = layout_of(n_cols);
    bool is_long = l.bar >= (int)strlen(history);
    (void)buf_addf(&line, "%-*s %-*s %*s %*s %*s %*s %*s %*s %s", l.name,
                   t->app[0] ? "TASK" : "JOB", l.state, "STATE", l.step, "STEP", l.rate, "STEPS/S",
                   l.cpu, "CPU%", l.memory, "MEMORY", l.limit, "LIMIT", l.gpu, "GPU%",
                   is_long ? history : strchr(history, 'H'));
    add_cut(buf_cstr(&line), n_cols, out);
}

void top_line(const struct top *t, const struct top_row *r, unsigned n_cols, bool unicode,
              struct buf *out)
{
    AUTO(buf_done) struct buf line = { 0 };
    char step[48] = "-", rate[24], cpu[24], memory[24] = "-", limit[24] = "-", gpu[24];
    (void)t;
    if (r->step && r->total)
        (void)snprintf(step, sizeof step, "%llu/%llu", (unsigned long long)r->step,
                       (unsigned long long)r->total);
    else if (r->step)
        (void)snprintf(step, sizeof step, "%llu", (unsigned long long)r->step);
    number_text(r->rate, r->rate < 10 ? 2 : 0, rate, sizeof rate);
    number_text(r->cpu, 1, cpu, sizeof cpu);
    number_text(r->gpu, 0, gpu, sizeof gpu);
    if (!isnan(r->memory))
        (void)str_size((uint64_t)r->memory, memory, sizeof memory);
    if (!isnan(r->limit))
        (void)str_size((uint64_t)r->limit, limit, sizeof limit);
    struct layout l = layout_of(n_cols);
    add_cell(&line, r->label ? r->label : r->key, l.name);
    add_cell(&line, r->state ? r->state : "", l.state);
    (void)buf_addf(&line, "%*s %*s %*s %*s %*s %*s ", l.step, step, l.rate, rate, l.cpu, cpu,
                   l.memory, memory, l.limit, limit, l.gpu, gpu);
    chart_bar(r->history + TOP_HISTORY - l.bar, (size_t)l.bar, unicode, &line);
    add_cut(buf_cstr(&line), n_cols, out);
}
