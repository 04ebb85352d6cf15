/* SPDX-License-Identifier: Apache-2.0 */
/* Charts of characters. */
#include <langinfo.h>
#include <locale.h>
#include <math.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/monitor/series.h"

enum { LEVELS = 8, COLS_MAX = 400, LABEL = 11 };

bool chart_unicode(void)
{
    (void)setlocale(LC_CTYPE, "");
    bool yes = str_eq(nl_langinfo(CODESET), "UTF-8");
    (void)setlocale(LC_CTYPE, "C");
    return yes;
}

static void range_of(const double *v, size_t n, double *least, double *most)
{
    *least = *most = NAN;
    for (size_t i = 0; i < n; i++) {
        if (isnan(v[i]))
            continue;
        *least = isnan(*least) ? v[i] : MIN(*least, v[i]);
        *most = isnan(*most) ? v[i] : MAX(*most, v[i]);
    }
}

void chart_bar(const double *v, size_t n, bool unicode, struct buf *out)
{
    static const char *const blocks[LEVELS] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    double least, most;
    range_of(v, n, &least, &most);
    for (size_t i = 0; i < n; i++) {
        double part = most > least ? (v[i] - least) / (most - least) : 0;
        int level = isnan(v[i]) ? -1 : (int)MIN(part * LEVELS, LEVELS - 1.0);
        if (level < 0)
            (void)buf_addc(out, ' ');
        else if (unicode)
            (void)buf_adds(out, blocks[level]);
        else
            (void)buf_addc(out, (char)('0' + level));
    }
}

/* The character for a cell whose lower edge is the value `low`, in a column with the value v. */
static const char *cell_of(double v, double low, double step, bool unicode)
{
    static const char *const marks[LEVELS] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    if (isnan(v) || v < low)
        return " ";
    double part = (v - low) / step;
    if (!unicode)
        return part >= 1 ? ":" : "*";
    return part >= 1 ? "█" : marks[(int)MIN(part * LEVELS, LEVELS - 1.0)];
}

void chart_draw(const struct series *s, int64_t first_ms, int64_t last_ms, unsigned n_cols,
                unsigned n_rows, bool unicode, struct buf *out)
{
    double v[COLS_MAX], least, most;
    char label[32], from[16], to[16];
    unsigned cols = MAX(MIN(n_cols, (unsigned)COLS_MAX + LABEL) - LABEL, 10U);
    series_sample(s, first_ms, last_ms, v, cols);
    range_of(v, cols, &least, &most);
    (void)buf_addf(out, "%s %s%s%s%s\n", s->task, s->name, series_unit(s)[0] ? " (" : "",
                   series_unit(s), series_unit(s)[0] ? ")" : "");
    if (isnan(least)) {
        (void)buf_adds(out, "  no values\n");
        return;
    }
    if (series_is_rate(s)) { /* a rate is compared with 0 */
        least = 0;
        most = most > 0 ? most : 1;
    }
    if (most <= least)
        least -= least == 0 ? 1 : fabs(least) * 0.1;
    double step = (most - least) / n_rows;
    for (unsigned row = n_rows; row-- > 0;) {
        double low = least + step * row;
        label[0] = '\0';
        if (row == n_rows - 1 || row == 0 || row == n_rows / 2)
            series_format(s, row == n_rows - 1 ? most : low, label, sizeof label);
        (void)buf_addf(out, "%*s %s", LABEL - 2, label, unicode ? "│" : "|");
        for (unsigned i = 0; i < cols; i++)
            (void)buf_adds(out, cell_of(v[i], low, step, unicode));
        (void)buf_addc(out, '\n');
    }
    time_of_day(first_ms, from, sizeof from);
    time_of_day(last_ms, to, sizeof to);
    (void)buf_addf(out, "%*s%-*s%s\n", LABEL, "", (int)(cols - strlen(to)), from, to);
}
