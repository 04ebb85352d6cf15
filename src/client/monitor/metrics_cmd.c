/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tony metrics`: the series of a job as a table, as CSV, as JSON, or drawn.
 */
#include "client/monitor/metrics_cmd.h"

#include <errno.h>
#include <math.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/monitor/series.h"
#include "cluster/cluster.h"

enum {
    BAR_COLS = 24,
    CHART_ROWS = 10,
    CHARTS_MAX = 40,
    COLS_DEFAULT = 80,
};

/* ---- output ---- */

static int print_csv(const struct series_set *set)
{
    (void)printf("time_ms,task,name,value\n");
    for (size_t i = 0; i < set->n; i++)
        for (size_t k = 0; k < set->v[i].points.n; k++) {
            const struct point *p = &set->v[i].points.v[k];
            char value[32] = ""; /* empty: the series ends */
            if (!isnan(p->value))
                (void)snprintf(value, sizeof value, "%.15g", p->value);
            (void)printf("%lld,%s,%s,%s\n", (long long)p->t_ms, set->v[i].task, set->v[i].name,
                         value);
        }
    return client_flush_stdout();
}

static json_t *number(double v)
{
    if (isnan(v))
        return json_null();
    return v == floor(v) && fabs(v) < 9e15 ? json_integer((json_int_t)v) : json_real(v);
}

static json_t *points_json(const struct series *s)
{
    json_t *out = json_array();
    for (size_t i = 0; i < s->points.n; i++)
        (void)json_array_append_new(out, json_pack("[I, o]", (json_int_t)s->points.v[i].t_ms,
                                                   number(s->points.v[i].value)));
    return out;
}

json_t *series_json(const char *id, const struct series_set *set)
{
    json_t *all = json_array();
    for (size_t i = 0; i < set->n; i++)
        (void)json_array_append_new(all,
                                    json_pack("{s:s, s:s, s:o}", "task", set->v[i].task, "name",
                                              set->v[i].name, "points", points_json(&set->v[i])));
    return json_pack("{s:s, s:I, s:I, s:o}", "application_id", id, "first_ms",
                     (json_int_t)set->first_ms, "last_ms", (json_int_t)set->last_ms, "series", all);
}

static int print_table(const struct series_set *set)
{
    bool unicode = chart_unicode();
    struct table t = { .n_cols = 7 };
    table_add(&t, "TASK", "NAME", "LAST", "LEAST", "MOST", "MEAN", "HISTORY", NULL);
    for (size_t i = 0; i < set->n; i++) {
        const struct series *s = &set->v[i];
        struct series_sum sum;
        struct series plain = *s; /* the column LAST shows the value of a counter, not its rate */
        double v[BAR_COLS];
        char last[32], least[32], most[32], mean[32];
        AUTO(buf_done) struct buf bar = { 0 };
        series_sum(s, set->last_ms, &sum);
        plain.kind = series_is_rate(s) && !str_eq(s->name, "cpu_ms") ? METRIC_PAGES : s->kind;
        if (str_eq(s->name, "cpu_ms")) {
            (void)snprintf(last, sizeof last, "%.0f", sum.last);
            least[0] = most[0] = mean[0] = '\0';
        } else {
            series_format(&plain, sum.last, last, sizeof last);
            series_format(&plain, sum.least, least, sizeof least);
            series_format(&plain, sum.most, most, sizeof most);
            series_format(&plain, sum.mean, mean, sizeof mean);
        }
        if (s->kind == METRIC_COUNTER)
            least[0] = most[0] = mean[0] = '\0';
        series_sample(s, set->first_ms, set->last_ms, v, BAR_COLS);
        chart_bar(v, BAR_COLS, unicode, &bar);
        table_add(&t, s->task, s->name, last, least, most, mean, sum.n > 1 ? buf_cstr(&bar) : "",
                  NULL);
    }
    table_print(&t);
    return client_flush_stdout();
}

static unsigned terminal_cols(void)
{
    struct winsize w;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20)
        return w.ws_col;
    return COLS_DEFAULT;
}

static int print_plots(const struct series_set *set)
{
    bool unicode = chart_unicode();
    for (size_t i = 0; i < set->n && i < CHARTS_MAX; i++) {
        AUTO(buf_done) struct buf out = { 0 };
        chart_draw(&set->v[i], set->first_ms, set->last_ms, terminal_cols() - 1, CHART_ROWS,
                   unicode, &out);
        (void)printf("%s%s", i ? "\n" : "", buf_cstr(&out));
    }
    if (set->n > CHARTS_MAX)
        client_note("%zu more series are not drawn: choose some by TASK and --name",
                    set->n - CHARTS_MAX);
    return client_flush_stdout();
}

/* ---- the command ---- */

static bool is_eight(const char *name)
{
    for (int i = 0; i < METRICS_SUMMARY_COUNT; i++)
        if (str_eq(name, metrics_summary_names[i]))
            return true;
    return false;
}

/* Tables and charts leave out the eight metrics of the original, which have only one value. */
static void drop_eight(struct series_set *set)
{
    size_t n = 0;
    for (size_t i = 0; i < set->n; i++) {
        if (!is_eight(set->v[i].name)) {
            set->v[n++] = set->v[i];
            continue;
        }
        free(set->v[i].task);
        free(set->v[i].name);
        vec_done(&set->v[i].points);
    }
    set->n = n;
}

static int compare(const void *a, const void *b)
{
    const struct series *x = a, *y = b;
    int rc = strcmp(x->task, y->task);
    return rc ? rc : strcmp(x->name, y->name);
}

/* Is there any series of a task that this word names? */
static bool has_task(const struct series_set *all, const char *word)
{
    for (size_t i = 0; i < all->n; i++)
        if (series_is_of_task(&all->v[i], word))
            return true;
    return false;
}

static bool has_name(const struct series_set *all, const char *name)
{
    for (size_t i = 0; i < all->n; i++)
        if (str_eq(all->v[i].name, name))
            return true;
    return false;
}

/* The job has no series that the user asked for: say which task or name is wrong. all: all series
 * of the job. */
static int nothing(const char *id, const struct series_wish *w, const struct series_set *all)
{
    struct err e = { 0 };
    const char *task = NULL, *name = NULL;
    for (size_t i = 0; i < w->n_tasks && !task; i++)
        task = has_task(all, w->tasks[i]) ? NULL : w->tasks[i];
    for (size_t i = 0; i < w->n_names && !name; i++)
        name = has_name(all, w->names[i]) ? NULL : w->names[i];
    if (!all->n) {
        (void)err_set(&e, ENOENT, "job '%s' has no metrics yet", id);
        err_hint(&e, "tasks are measured while they run; tony status %s shows whether they do", id);
        return client_fail(EXIT_JOB_FAILED, &e);
    }
    if (task)
        (void)err_set(&e, ENOENT, "job '%s' has no metrics of a task '%s'", id, task);
    else if (name)
        (void)err_set(&e, ENOENT, "job '%s' has no metric '%s'", id, name);
    else
        (void)err_set(&e, ENOENT, "job '%s' has no such metrics", id);
    err_hint(&e, "tony metrics %s lists those that it has", id);
    return client_fail(EXIT_JOB_FAILED, &e);
}

static int names_of(const struct client *c, const char ***out, size_t *out_n)
{
    const char **names = calloc(c->o.n + 1, sizeof *names);
    for (size_t i = 0; names && i < c->o.n; i++)
        if (c->o.v[i].id == OPT_NAME)
            names[(*out_n)++] = c->o.v[i].value;
    *out = names;
    return names ? 0 : -ENOMEM;
}

int cmd_metrics(struct client *c)
{
    struct err e = { 0 };
    char id[APP_ID_MAX] = "";
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(free_p) const char **names = NULL;
    struct series_wish w = { .tasks = c->o.args + 1, .n_tasks = c->o.n_args - 1 };
    struct series_set set = { 0 }, all = { 0 };
    int json = options_has(&c->o, OPT_JSON), csv = options_has(&c->o, OPT_CSV),
        plot = options_has(&c->o, OPT_DRAW);
    if (json + csv + plot > 1) {
        (void)err_set(&e, EINVAL, "only one of --json, --csv and --plot can be given");
        return client_fail(EXIT_MISUSE, &e);
    }
    if (names_of(c, &names, &w.n_names) < 0) {
        (void)err_set(&e, ENOMEM, "no memory for the names of the metrics");
        return client_fail(EXIT_CLUSTER, &e);
    }
    w.names = names;
    struct cluster *k = NULL;
    int code = client_find(c, c->o.args[0], &k, id, &e);
    if (code < 0)
        return client_fail(-code, &e);
    if (cluster_metrics(k, id, &text, &e) < 0)
        return client_fail(e.num == ENOENT ? EXIT_JOB_FAILED : EXIT_CLUSTER, &e);
    if (series_read(buf_span(&text), &w, &set, &e) < 0)
        return client_fail(EXIT_CLUSTER, &e);
    if (!json && !csv && w.n_names == 0)
        drop_eight(&set);
    if (set.n)
        qsort(set.v, set.n, sizeof *set.v, compare);
    const struct series_wish any = { 0 };
    if (set.n == 0 && !json && !csv)
        code = series_read(buf_span(&text), &any, &all, &e) < 0 ? client_fail(EXIT_CLUSTER, &e)
                                                                : nothing(id, &w, &all);
    else
        code = json   ? client_print_json(series_json(id, &set))
               : csv  ? print_csv(&set)
               : plot ? print_plots(&set)
                      : print_table(&set);
    series_done(&set);
    series_done(&all);
    return code;
}
