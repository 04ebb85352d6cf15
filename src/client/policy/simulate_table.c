/* SPDX-License-Identifier: Apache-2.0 */
#include "client/policy/simulate_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum {
    WIDTH = 80,
    CELL_MAX = 32,
    GAP = 2, /* blanks between two columns */
};

/* A row: the name is that of the member in --json, where "_%" is "_percent". */
struct figure {
    const char *name;
    int decimals;
    bool unknown_if_real;
    double (*value)(const struct sim_result *r); /* NAN: there is none */
};

#define FIGURE(fn, value)                                                                          \
    static double fn(const struct sim_result *r)                                                   \
    {                                                                                              \
        return value;                                                                              \
    }
FIGURE(util_5h, r->util_5h)
FIGURE(util, r->util)
FIGURE(jct_mean, r->jct.mean_s)
FIGURE(jct_median, r->jct.median_s)
FIGURE(jct_p95, r->jct.p95_s)
FIGURE(wait_mean, r->wait.mean_s)
FIGURE(wait_median, r->wait.median_s)
FIGURE(wait_p95, r->wait.p95_s)
FIGURE(loss, r->loss)
FIGURE(adjustments, (double)r->adjustments)
FIGURE(overhead, r->overhead_percent)
FIGURE(lost, r->lost_s)
FIGURE(gap_percent, 100 * r->gap)

static const struct figure figures[] = {
    { "util_5h", 4, false, util_5h },
    { "util", 4, false, util },
    { "jct_mean_s", 1, false, jct_mean },
    { "jct_median_s", 1, false, jct_median },
    { "jct_p95_s", 1, false, jct_p95 },
    { "wait_mean_s", 1, false, wait_mean },
    { "wait_median_s", 1, false, wait_median },
    { "wait_p95_s", 1, false, wait_p95 },
    { "loss", 4, true, loss },
    { "adjustments", 0, false, adjustments },
    { "overhead_%", 2, true, overhead },
    { "lost_container_s", 1, true, lost },
    { "gap_%", 3, true, gap_percent },
};

static const char *cell(const struct figure *f, const struct sim_column *c, char out[CELL_MAX])
{
    double v = f->value(&c->result);
    if (isnan(v) || c->is_empty || (f->unknown_if_real && c->is_real))
        (void)str_copy(out, CELL_MAX, "-");
    else
        (void)snprintf(out, CELL_MAX, "%.*f", f->decimals, v);
    return out;
}

static int name_width(void)
{
    size_t width = 0;
    for (size_t i = 0; i < ARRAY_LEN(figures); i++)
        width = MAX(width, strlen(figures[i].name));
    return (int)width;
}

static int column_width(const struct sim_column *c)
{
    size_t width = strlen(c->name);
    char text[CELL_MAX];
    for (size_t i = 0; i < ARRAY_LEN(figures); i++)
        width = MAX(width, strlen(cell(&figures[i], c, text)));
    return (int)width;
}

/* Print the columns from `from` to before `to`. */
static void print_columns(const struct sim_table *t, size_t from, size_t to)
{
    int first = name_width();
    char text[CELL_MAX];
    (void)printf("%-*s", first, "policy");
    for (size_t k = from; k < to; k++)
        (void)printf("%*s", GAP + column_width(&t->columns.v[k]), t->columns.v[k].name);
    (void)printf("\n");
    for (size_t i = 0; i < ARRAY_LEN(figures); i++) {
        (void)printf("%-*s", first, figures[i].name);
        for (size_t k = from; k < to; k++)
            (void)printf("%*s", GAP + column_width(&t->columns.v[k]),
                         cell(&figures[i], &t->columns.v[k], text));
        (void)printf("\n");
    }
}

static void print_estimates(const struct sim_column *c)
{
    const struct estimates_result *x = &c->result.estimates;
    if (c->is_real)
        return;
    if (x->n == 0)
        (void)printf("%s: no job of the sample had to wait\n", c->name);
    else
        (void)printf("%s: starts of %zu job%s estimated at arrival\n"
                     "  median error %.0f s, median wait %.0f s, truth within the range: %.0f %%\n",
                     c->name, x->n, x->n == 1 ? "" : "s", x->error_s, x->wait_s, x->within_percent);
}

void sim_table_print(const struct sim_table *t, bool estimates)
{
    size_t n = t->columns.n;
    for (size_t from = 0, to; from < n; from = to) {
        int width = name_width() + GAP + column_width(&t->columns.v[from]);
        for (to = from + 1; to < n; to++) {
            width += GAP + column_width(&t->columns.v[to]);
            if (width > WIDTH)
                break;
        }
        if (from > 0)
            (void)printf("\n");
        print_columns(t, from, to);
    }
    if (estimates && n > 0)
        (void)printf("\n");
    for (size_t k = 0; k < n && estimates; k++)
        print_estimates(&t->columns.v[k]);
}

void sim_table_done(struct sim_table *t)
{
    vec_done(&t->columns);
}
