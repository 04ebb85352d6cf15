/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/plot.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"

enum {
    WIDTH = 900,
    LEFT = 70, /* left margin of a chart */
    CHART_W = 640,
    CHART_H = 220,
    CHART_GAP = 70,
    BAR_H = 8, /* of one job */
    BINS = 320,
    QUANTILES = 200,
    TICKS = 5,
    HUE_STEP = 137, /* degrees: makes the colours of neighbouring jobs very different */
};

struct bar {
    uint32_t job, n;
    double from_s, to_s;
};

struct line {
    const char *name;
    /* BINS values: the integral of utilization over each part of the horizon */
    double *area;
    double use, use_from_s; /* the present utilization, and since when */
    VEC(double) completions;
    VEC(struct bar) bars;
};

struct plot {
    const struct trace *t;
    struct sim_events events;
    struct line lines[PLOT_POLICIES_MAX];
    size_t n;
    double end_s;        /* of the last bar */
    double completion_s; /* the longest completion time */
    bool failed;         /* no memory */
};

static const char *const colours[] = { "#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                       "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f" };

/* ---- events ---- */

/* Utilization was l->use until now: add it to the bins of that time. */
static void fill_bins(const struct plot *p, struct line *l, double to_s)
{
    double bin_s = p->t->horizon_s / BINS, from = l->use_from_s;
    to_s = MIN(to_s, p->t->horizon_s);
    while (from < to_s && l->area) {
        size_t bin = MIN((size_t)(from / bin_s), (size_t)BINS - 1);
        double end = bin == BINS - 1 ? to_s : MIN(to_s, bin_s * (double)(bin + 1));
        if (!(end > from))
            end = nextafter(from, INFINITY);
        l->area[bin] += l->use * (end - from);
        from = end;
    }
}

static void on_used(void *ctx, double at_s, double utilization)
{
    struct plot *p = ctx;
    struct line *l = &p->lines[p->n - 1];
    fill_bins(p, l, at_s);
    l->use = utilization;
    l->use_from_s = at_s;
}

static void on_held(void *ctx, size_t job, double from_s, double to_s, uint32_t containers)
{
    struct plot *p = ctx;
    struct bar bar = { (uint32_t)job, containers, from_s, to_s };
    if (job >= PLOT_JOBS)
        return;
    p->end_s = MAX(p->end_s, to_s);
    p->failed |= vec_push(&p->lines[p->n - 1].bars, bar) < 0;
}

static void on_ended(void *ctx, size_t job, double completion_s)
{
    struct plot *p = ctx;
    (void)job;
    p->completion_s = MAX(p->completion_s, completion_s);
    p->failed |= vec_push(&p->lines[p->n - 1].completions, completion_s) < 0;
}

struct plot *plot_new(const struct trace *t)
{
    struct plot *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->t = t;
    p->events = (struct sim_events){ on_used, on_held, on_ended, p };
    return p;
}

void plot_policy(struct plot *p, const char *name)
{
    if (p->n == PLOT_POLICIES_MAX)
        return;
    struct line *l = &p->lines[p->n++];
    l->name = name;
    l->area = calloc(BINS, sizeof *l->area);
    p->failed |= !l->area;
}

const struct sim_events *plot_events(struct plot *p)
{
    return &p->events;
}

void plot_free(struct plot *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++) {
        free(p->lines[i].area);
        vec_done(&p->lines[i].completions);
        vec_done(&p->lines[i].bars);
    }
    free(p);
}

/* ---- the page ---- */

static const char *colour(size_t i)
{
    return colours[i % ARRAY_LEN(colours)];
}

/* The distance between two ticks: 1, 2 or 5 times a power of ten, and at most TICKS fit into max.
 */
static double tick_step(double max)
{
    double power = pow(10, floor(log10(max / TICKS)));
    static const double steps[] = { 1, 2, 5 };
    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        if (steps[i] * power * TICKS >= max * (1 - 1e-9))
            return steps[i] * power;
    return 10 * power;
}

/* The unit of a time axis that reaches to max_s. */
struct unit {
    double seconds;
    const char *name;
};

static struct unit unit_of(double max_s)
{
    static const struct unit s = { 1, "s" }, min = { 60, "min" }, h = { 3600, "h" };
    return max_s < 10 * min.seconds ? s : max_s < 3 * h.seconds ? min : h;
}

/* Draw the vertical lines and the times of a chart of this height with its top at y. The axis
 * ends at max_s. */
static void add_times(struct buf *b, double y, double height, double max_s)
{
    struct unit unit = unit_of(max_s);
    double max = max_s / unit.seconds, step = tick_step(max);
    for (int i = 0; i * step <= max * (1 + 1e-9); i++) {
        double x = LEFT + i * step / max * CHART_W;
        (void)buf_addf(b, "<path d='M%.1f %.1fv%.1f' stroke='#eee'/>\n", x, y, height);
        (void)buf_addf(b, "<text x='%.1f' y='%.1f' text-anchor='middle'>%.4g %s</text>\n", x,
                       y + height + 18, i * step, unit.name);
    }
}

/* Draw title, frame and ticks of a chart with its top at y. The axes end at max_s and max_y. */
static void add_frame(struct buf *b, double y, const char *title, double max_s, double max_y)
{
    double step = tick_step(max_y);
    (void)buf_addf(b, "<text x='%d' y='%.0f' font-weight='bold'>%s</text>\n", LEFT, y - 12, title);
    add_times(b, y, CHART_H, max_s);
    for (int i = 0; i * step <= max_y * (1 + 1e-9); i++) {
        double at = y + CHART_H * (1 - i * step / max_y);
        (void)buf_addf(b, "<path d='M%d %.1fh%d' stroke='#eee'/>\n", LEFT, at, CHART_W);
        (void)buf_addf(b, "<text x='%d' y='%.1f' text-anchor='end'>%.3g</text>\n", LEFT - 6, at + 4,
                       i * step);
    }
    (void)buf_addf(b, "<rect x='%d' y='%.0f' width='%d' height='%d' fill='none' stroke='#999'/>\n",
                   LEFT, y, CHART_W, CHART_H);
}

static void add_legend(const struct plot *p, struct buf *b, double y)
{
    for (size_t i = 0; i < p->n; i++)
        (void)buf_addf(b, "<text x='%d' y='%.0f' fill='%s'>%s</text>\n", LEFT + CHART_W + 12,
                       y + 16 * (double)(i + 1), colour(i), p->lines[i].name);
}

static void add_utilization(struct plot *p, struct buf *b, double y)
{
    double most = p->t->cluster.n_types, bin_s = p->t->horizon_s / BINS;
    add_frame(b, y, "Utilization (sum over the types) over time", p->t->horizon_s, most);
    add_legend(p, b, y);
    for (size_t i = 0; i < p->n; i++) {
        (void)buf_addf(b, "<polyline fill='none' stroke='%s' points='", colour(i));
        for (size_t bin = 0; bin < BINS; bin++)
            (void)buf_addf(b, "%.1f,%.1f ", LEFT + ((double)bin + 0.5) / BINS * CHART_W,
                           y + CHART_H * (1 - p->lines[i].area[bin] / bin_s / most));
        (void)buf_adds(b, "'/>\n");
    }
}

static void add_completions(struct plot *p, struct buf *b, double y)
{
    double most = MAX(p->completion_s, 1.0);
    add_frame(b, y, "Part of the jobs that complete within a time", most, 1);
    add_legend(p, b, y);
    for (size_t i = 0; i < p->n; i++) {
        size_t n = p->lines[i].completions.n;
        double *v = p->lines[i].completions.v;
        if (n == 0)
            continue;
        sort_doubles(v, n);
        (void)buf_addf(b, "<polyline fill='none' stroke='%s' points='", colour(i));
        for (size_t q = 0; q <= QUANTILES; q++) {
            size_t at = q * (n - 1) / QUANTILES;
            (void)buf_addf(b, "%.1f,%.1f ", LEFT + v[at] / most * CHART_W,
                           y + CHART_H * (1 - (double)(at + 1) / (double)n));
        }
        (void)buf_adds(b, "'/>\n");
    }
}

static void add_bars(struct plot *p, struct buf *b, const struct line *l, size_t n_jobs, double y)
{
    double end = MAX(p->end_s, 1.0);
    (void)buf_addf(b,
                   "<text x='%d' y='%.0f' font-weight='bold'>%s: containers of the first %zu "
                   "jobs</text>\n",
                   LEFT, y - 12, l->name, n_jobs);
    add_times(b, y, (double)(n_jobs * BAR_H), end);
    (void)buf_addf(b, "<rect x='%d' y='%.0f' width='%d' height='%zu' fill='none' stroke='#999'/>\n",
                   LEFT, y, CHART_W, n_jobs * BAR_H);
    for (size_t i = 0; i < l->bars.n; i++) {
        const struct bar *bar = &l->bars.v[i];
        double part = (double)bar->n / p->t->jobs[bar->job].max;
        (void)buf_addf(b,
                       "<rect x='%.2f' y='%.0f' width='%.2f' height='%d' fill='#1f77b4'"
                       " fill-opacity='%.2f'/>\n",
                       LEFT + bar->from_s / end * CHART_W, y + (double)(bar->job * BAR_H),
                       MAX((bar->to_s - bar->from_s) / end * CHART_W, 0.2), BAR_H - 1,
                       0.15 + 0.85 * part);
    }
}

/* ---- the partitions ---- */

/* A change of the part of the cluster that a job holds. */
struct edge {
    double at_s, by;
    uint32_t job;
};

static int by_time(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    if (x->at_s != y->at_s)
        return x->at_s < y->at_s ? -1 : 1;
    return (x->job > y->job) - (x->job < y->job);
}

/* The part of the cluster that one container of the job holds: the largest over the types. */
static double part_of(const struct part_cluster *c, const struct trace_job *job)
{
    double part = 0;
    for (uint32_t k = 0; k < c->n_types; k++) {
        double total = 0;
        for (uint32_t j = 0; j < c->n_nodes; j++)
            total += (double)c->nodes[j].v[k];
        part = MAX(part, total > 0 ? (double)job->demand.v[k] / total : 0);
    }
    return part;
}

static struct edge *edges_of(const struct plot *p, const struct line *l)
{
    struct edge *edges = calloc(2 * l->bars.n + 1, sizeof *edges);
    for (size_t i = 0; i < l->bars.n && edges; i++) {
        const struct bar *bar = &l->bars.v[i];
        double part = bar->n * part_of(&p->t->cluster, &p->t->jobs[bar->job]);
        edges[2 * i] = (struct edge){ bar->from_s, part, bar->job };
        edges[2 * i + 1] = (struct edge){ bar->to_s, -part, bar->job };
    }
    if (edges)
        qsort(edges, 2 * l->bars.n, sizeof *edges, by_time);
    return edges;
}

/*
 * Draw the area below the sum of the jobs 0 to `job`, while `job` holds containers. The areas of
 * the earlier jobs are drawn later and hide the lower part.
 */
static void add_area(const struct plot *p, struct buf *b, const struct edge *edges, size_t n,
                     uint32_t job, double y)
{
    double end = MAX(p->end_s, 1.0), sum = 0, own = 0, last = -1, bottom = y + CHART_H;
    bool open = false;
    for (size_t i = 0; i < n; i++) {
        sum += edges[i].job <= job ? edges[i].by : 0;
        own += edges[i].job == job ? edges[i].by : 0;
        if (i + 1 < n && !(edges[i + 1].at_s > edges[i].at_s))
            continue; /* another change has the same time, perhaps that of a later job */
        double x = LEFT + edges[i].at_s / end * CHART_W, top = bottom - MIN(sum, 1.0) * CHART_H;
        bool holds = own > 1e-9;
        if (holds && !open)
            (void)buf_addf(b,
                           "<path fill='hsl(%u,60%%,60%%)' stroke='white' stroke-width='0.4' "
                           "d='M%.1f %.1fV%.1f",
                           job * HUE_STEP % 360, x, bottom, top);
        else if (holds && fabs(top - last) > 0.05)
            (void)buf_addf(b, "H%.1fV%.1f", x, top);
        else if (!holds && open)
            (void)buf_addf(b, "H%.1fV%.1fZ'/>\n", x, bottom);
        open = holds;
        last = top;
    }
    if (open) /* rounding errors left the area open */
        (void)buf_adds(b, "Z'/>\n");
}

static int add_partitions(const struct plot *p, struct buf *b, const struct line *l, size_t n_jobs,
                          double y)
{
    AUTO(free_p) struct edge *edges = edges_of(p, l);
    double end = MAX(p->end_s, 1.0);
    char title[160];
    if (!edges)
        return -ENOMEM;
    (void)snprintf(title, sizeof title, "%s: the part of the cluster that each job holds", l->name);
    add_frame(b, y, title, end, 1);
    for (uint32_t job = (uint32_t)n_jobs; job-- > 0;)
        add_area(p, b, edges, 2 * l->bars.n, job, y);
    return 0;
}

/* ---- all of it ---- */

static const struct {
    const char *name;
    enum plot_chart chart;
} chart_names[] = {
    { "utilization", PLOT_UTILIZATION },
    { "completion", PLOT_COMPLETION },
    { "partitions", PLOT_PARTITIONS },
    { "held", PLOT_HELD },
};

int plot_charts(const char *list, unsigned *out, struct err *e)
{
    struct span rest = span_of(list), name;
    unsigned charts = 0;
    while (span_split(&rest, ',', &name)) {
        size_t i = 0;
        while (i < ARRAY_LEN(chart_names) && !span_eq(name, span_of(chart_names[i].name)))
            i++;
        if (i == ARRAY_LEN(chart_names)) {
            (void)err_set(e, EINVAL, "there is no chart '%.*s'", (int)MIN(name.len, (size_t)40),
                          name.p);
            return err_hint(e, "the charts are utilization, completion, partitions and held");
        }
        charts |= chart_names[i].chart;
    }
    *out = charts;
    return 0;
}

static double page_height(const struct plot *p, unsigned charts, double rows)
{
    double each = CHART_H + CHART_GAP;
    return 50 + each * !!(charts & PLOT_UTILIZATION) + each * !!(charts & PLOT_COMPLETION) +
           (double)p->n *
               (each * !!(charts & PLOT_PARTITIONS) + (rows + CHART_GAP) * !!(charts & PLOT_HELD));
}

int plot_write(struct plot *p, unsigned charts, struct buf *out)
{
    size_t n_jobs = MIN(p->t->n_jobs, (size_t)PLOT_JOBS);
    double y = 50, rows = (double)(n_jobs * BAR_H);
    if (p->failed)
        return -ENOMEM;
    (void)buf_addf(out,
                   "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%.0f' "
                   "font-family='sans-serif' font-size='12'>\n"
                   "<rect width='100%%' height='100%%' fill='white'/>\n",
                   WIDTH, page_height(p, charts, rows));
    if (charts & PLOT_UTILIZATION) {
        add_utilization(p, out, y);
        y += CHART_H + CHART_GAP;
    }
    if (charts & PLOT_COMPLETION) {
        add_completions(p, out, y);
        y += CHART_H + CHART_GAP;
    }
    for (size_t i = 0; i < p->n && charts & PLOT_PARTITIONS; i++, y += CHART_H + CHART_GAP)
        if (add_partitions(p, out, &p->lines[i], n_jobs, y) < 0)
            return -ENOMEM;
    for (size_t i = 0; i < p->n && charts & PLOT_HELD; i++, y += rows + CHART_GAP)
        add_bars(p, out, &p->lines[i], n_jobs, y);
    return buf_adds(out, "</svg>\n") < 0 ? -ENOMEM : 0;
}
