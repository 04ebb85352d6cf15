/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simplex method for the program of dorm_simplex.h.
 *
 * Each group has a pattern that is its key: the key gets the nodes that the other patterns of the
 * group leave. So the equations of the groups need no rows in the basis (generalized upper bounds;
 * Dantzig, Van Slyke 1967), and the column of a pattern is x_q less that of the key.
 */
#include "partition/dorm_simplex.h"

#include <math.h>
#include <string.h>

#include "base/util.h"

enum {
    ROWS_MAX = 2000, /* the inverse has 8 bytes * ROWS_MAX * ROWS_MAX */
    PATTERNS_MAX = 20000,
    ITEMS_MAX = 160000,
    STEP_CELLS = 120,    /* cells of the inverse that are changed in one step */
    DOUBLES = 12,        /* arrays with a double for each row, and */
    FLAGS = 6,           /* with a flag */
    PAD = 4,             /* numbers of a vector */
    NEWEST = 25,         /* patterns of a group that are looked at first */
    GROUPS_SCANNED = 16, /* for patterns that may enter, after the first one was found */
};

static const double PENALTY = 3, PENALTY_MAX = 100;
/* A listed pattern is dropped when it gains less than this part of the best gain of its list. */
static const double STALE = 0.1;

/* LACKING of the demand n_demands stands for loss beyond the bound, SURPLUS for loss that is left.
 */
enum kind { BELOW, ABOVE, LACKING, SURPLUS, PATTERN };
struct dorm_variable {
    enum kind kind;
    uint32_t index; /* the row of the demand, or the pattern */
};

/* ---- the program */

/* A column has whole vectors of PAD numbers. */
static uint32_t stride_of(uint32_t rows)
{
    return (rows + PAD - 1) / PAD * PAD;
}

bool dorm_simplex_init(struct dorm_simplex *lp, struct dorm_problem *p, uint32_t n_demands)
{
    uint32_t R = stride_of(n_demands + 1);
    *lp = (struct dorm_simplex){ .p = p, .most_demands = n_demands };
    if (n_demands >= ROWS_MAX) /* the steps would not suffice for this many demands */
        return false;
    /* Not dorm_alloc(): most of these are never touched. */
    lp->patterns = part_alloc(p->out, sizeof(*lp->patterns) * PATTERNS_MAX);
    lp->items = part_alloc(p->out, sizeof(*lp->items) * ITEMS_MAX);
    lp->groups = dorm_alloc(p, p->n_nodes, sizeof(*lp->groups));
    lp->inverse = part_alloc(p->out, sizeof(*lp->inverse) * R * R);
    lp->candidates = dorm_alloc(p, GROUPS_SCANNED + 1, sizeof(*lp->candidates));
    lp->basis = dorm_alloc(p, R, sizeof(*lp->basis));
    lp->rows_of_doubles = dorm_alloc(p, (size_t)R * DOUBLES, sizeof(double));
    lp->rows_of_flags = dorm_alloc(p, (size_t)R * FLAGS, sizeof(bool));
    lp->demand_of = dorm_alloc(p, n_demands, sizeof(*lp->demand_of));
    lp->touched = dorm_alloc(p, p->n_nodes, sizeof(*lp->touched));
    lp->row_of = dorm_alloc(p, n_demands, sizeof(*lp->row_of));
    p->failed |= !lp->patterns || !lp->items || !lp->inverse;
    if (p->failed)
        return false;
    double **doubles[DOUBLES] = { &lp->alpha, &lp->dual,   &lp->x,        &lp->u,
                                  &lp->D,     &lp->minima, &lp->limit[0], &lp->limit[1],
                                  &lp->sold,  &lp->low,    &lp->high,     &lp->scale };
    for (unsigned c = 0; c < DOUBLES; c++)
        *doubles[c] = lp->rows_of_doubles + (size_t)c * R;
    bool **flags[FLAGS] = { &lp->full[0],  &lp->full[1],  &lp->basic[0],
                            &lp->basic[1], &lp->basic[2], &lp->basic[3] };
    for (unsigned c = 0; c < FLAGS; c++)
        *flags[c] = lp->rows_of_flags + (size_t)c * R;
    return true;
}

void dorm_simplex_clear(struct dorm_simplex *lp)
{
    size_t R = stride_of(lp->most_demands + 1);
    memset(lp->rows_of_doubles, 0, sizeof(double) * R * DOUBLES);
    memset(lp->rows_of_flags, 0, sizeof(bool) * R * FLAGS);
    memset(lp->row_of, 0xff, sizeof(*lp->row_of) * lp->most_demands);
    lp->n_demands = 0;
    lp->rows = 1;
    lp->stride = stride_of(1);
    lp->n_groups = lp->n_patterns = lp->n_items = lp->n_candidates = lp->scanned = 0;
    lp->n_touched = 0;
    lp->containers = lp->amount = 0;
    lp->penalty = PENALTY;
}

void dorm_simplex_add_demand(struct dorm_simplex *lp, uint32_t demand, double u, double D)
{
    uint32_t row = lp->n_demands++;
    lp->rows = lp->n_demands + 1;
    lp->stride = stride_of(lp->rows);
    lp->row_of[demand] = row;
    lp->demand_of[row] = demand;
    lp->u[row] = u;
    lp->D[row] = D;
}

uint32_t dorm_simplex_add_group(struct dorm_simplex *lp)
{
    lp->groups[lp->n_groups] = (struct dorm_pattern_group){ .head = DORM_END };
    return lp->n_groups++;
}

void dorm_simplex_add_job(struct dorm_simplex *lp, uint32_t demand, uint32_t min, uint32_t ideal,
                          uint32_t max)
{
    uint32_t row = lp->row_of[demand];
    lp->minima[row] += min;
    lp->limit[BELOW][row] += ideal - min;
    lp->limit[ABOVE][row] += max - ideal;
    lp->containers += max;
    lp->amount += max * lp->u[row];
}

static bool known(const struct dorm_simplex *lp, const struct dorm_pattern_group *group,
                  const struct dorm_item *items, uint32_t n)
{
    for (uint32_t q = group->head; q != DORM_END; q = lp->patterns[q].next)
        if (lp->patterns[q].n == n &&
            (n == 0 || memcmp(lp->items + lp->patterns[q].first, items, sizeof(*items) * n) == 0))
            return true;
    return false;
}

bool dorm_simplex_full(const struct dorm_simplex *lp)
{
    return lp->n_patterns == PATTERNS_MAX || lp->n_items + lp->n_demands > ITEMS_MAX;
}

bool dorm_simplex_add(struct dorm_simplex *lp, uint32_t group, const double *sold)
{
    struct dorm_pattern_group *of = &lp->groups[group];
    struct dorm_pattern q = { .first = lp->n_items, .group = group, .next = of->head };
    for (uint32_t r = 0; r < lp->n_demands; r++) {
        double n = sold[lp->demand_of[r]];
        if (n > 0)
            lp->items[q.first + q.n++] = (struct dorm_item){ r, (uint32_t)n };
    }
    if (known(lp, of, lp->items + q.first, q.n))
        return false;
    if (of->head == DORM_END)
        of->key = lp->n_patterns;
    of->head = lp->n_patterns;
    lp->patterns[lp->n_patterns++] = q;
    lp->n_items += q.n;
    return true;
}

/* ---- the first solution */

/* By how much the sum that is maximized grows with v. */
static double cost_of(const struct dorm_simplex *lp, struct dorm_variable v)
{
    if (v.kind <= ABOVE)
        return lp->u[v.index];
    if (v.kind == LACKING)
        return -lp->high[v.index];
    return v.kind == SURPLUS ? lp->low[v.index] : 0;
}

/* Each key gets all nodes of its group. Sets sold. False: a group has no key. */
static bool begin_with_keys(struct dorm_simplex *lp)
{
    for (uint32_t g = 0; g < lp->n_groups; g++) {
        struct dorm_pattern_group *group = &lp->groups[g];
        if (group->head == DORM_END)
            return false;
        struct dorm_pattern *q = &lp->patterns[group->key];
        group->y = group->size;
        q->basic = true;
        for (uint32_t c = q->first; c < q->first + q->n; c++)
            lp->sold[lp->items[c].row] += (double)lp->items[c].n * group->size;
    }
    return true;
}

bool dorm_simplex_begin(struct dorm_simplex *lp, double loss_left)
{
    uint32_t m = lp->n_demands, R = lp->rows, S = lp->stride;
    memset(lp->inverse, 0, sizeof(*lp->inverse) * R * S);
    lp->unit = lp->containers > 0 ? 10 * lp->amount / lp->containers : 1;
    if (!begin_with_keys(lp))
        return false;
    for (uint32_t v = 0; v < m; v++) { /* the jobs buy as much of the demand as they can */
        double more = lp->sold[v] - lp->minima[v], sign = -1;
        struct dorm_variable in = { LACKING, v };
        if (more < 0)
            sign = 1;
        else
            for (in.kind = BELOW; in.kind <= ABOVE && more > lp->limit[in.kind][v]; in.kind++) {
                more -= lp->limit[in.kind][v];
                lp->full[in.kind][v] = true;
                loss_left -= (in.kind == ABOVE ? lp->D[v] : -lp->D[v]) * lp->limit[in.kind][v];
            }
        if (in.kind > ABOVE && sign < 0)
            in.kind = SURPLUS;
        double in_row = in.kind == ABOVE ? lp->D[v] : in.kind == BELOW ? -lp->D[v] : 0;
        lp->basis[v] = in;
        lp->x[v] = fabs(more);
        lp->inverse[(size_t)v * S + v] = sign;
        lp->inverse[(size_t)v * S + m] = -in_row * sign;
        lp->scale[v] = lp->unit / lp->u[v];
        loss_left -= in_row * lp->x[v];
        lp->basic[in.kind][v] = true;
    }
    struct dorm_variable last = { loss_left < 0 ? LACKING : SURPLUS, m };
    lp->inverse[(size_t)m * S + m] = 1;
    for (uint32_t c = 0; c < R && loss_left < 0; c++)
        lp->inverse[(size_t)c * S + m] *= -1;
    lp->basis[m] = last;
    lp->x[m] = fabs(loss_left);
    lp->basic[last.kind][m] = true;
    dorm_simplex_limit_prices(lp, NULL, 0, 0);
    return true;
}

void dorm_simplex_limit_prices(struct dorm_simplex *lp, const double *pi, double mu, double part)
{
    uint32_t R = lp->rows;
    for (uint32_t v = 0; v < R; v++) {
        double u = v < lp->n_demands ? lp->u[v] : 1;
        double at = !pi ? 0 : v < lp->n_demands ? pi[lp->demand_of[v]] : mu;
        lp->low[v] = pi ? MAX(at - part * u, 0.0) : 0;
        lp->high[v] = pi ? at + part * u : lp->penalty * u;
    }
    memset(lp->dual, 0, sizeof(*lp->dual) * R);
    for (uint32_t c = 0; c < R; c++)
        for (uint32_t r = 0; r < R; r++)
            lp->dual[c] += cost_of(lp, lp->basis[r]) * lp->inverse[(size_t)c * lp->stride + r];
    lp->n_candidates = 0;
    dorm_work(&lp->p->work, (uint64_t)R * R / 32);
}

bool dorm_simplex_forbid_lacking(struct dorm_simplex *lp)
{
    bool lacks = false;
    for (uint32_t r = 0; r < lp->rows; r++)
        lacks |= lp->basis[r].kind == LACKING && lp->x[r] > 1e-6;
    if (!lacks || lp->penalty > PENALTY_MAX)
        return false;
    lp->penalty *= 10;
    dorm_simplex_limit_prices(lp, NULL, 0, 0);
    return true;
}

/* ---- a step */

/* The most that v can be. */
static double limit_of(const struct dorm_simplex *lp, struct dorm_variable v)
{
    return v.kind <= ABOVE ? lp->limit[v.kind][v.index] : INFINITY;
}

static void set_basic(struct dorm_simplex *lp, struct dorm_variable v, bool basic)
{
    if (v.kind == PATTERN)
        lp->patterns[v.index].basic = basic;
    else
        lp->basic[v.kind][v.index] = basic;
}

/* to -= by * column. n: a multiple of PAD. */
static inline __attribute__((always_inline)) void
subtract(double *restrict to, const double *restrict column, double by, uint32_t n)
{
    for (uint32_t r = 0; r < n / PAD * PAD; r++) /* so no vector is left over */
        to[r] -= by * column[r];
}

DORM_WIDE static void subtract_wide(double *to, const double *column, double by, uint32_t n)
{
    subtract(to, column, by, n);
}

/* Add value times column c of the inverse to alpha. */
static void add_column(struct dorm_simplex *lp, uint32_t c, double value)
{
    const double *column = lp->inverse + (size_t)c * lp->stride;
    if (dorm_is_wide())
        subtract_wide(lp->alpha, column, -value, lp->stride);
    else
        subtract(lp->alpha, column, -value, lp->stride);
}

static void add_pattern(struct dorm_simplex *lp, uint32_t pattern, double sign)
{
    const struct dorm_pattern *q = &lp->patterns[pattern];
    for (uint32_t c = q->first; c < q->first + q->n; c++)
        add_column(lp, lp->items[c].row, sign * lp->items[c].n);
}

static void touch(struct dorm_simplex *lp, uint32_t pattern, double rate)
{
    uint32_t g = lp->patterns[pattern].group;
    lp->groups[g].rate += rate;
    if (!lp->groups[g].touched)
        lp->touched[lp->n_touched++] = g;
    lp->groups[g].touched = true;
}

/* Set the rates of the keys for the present alpha, and list the groups. */
static void list_touched(struct dorm_simplex *lp, struct dorm_variable v)
{
    for (uint32_t c = 0; c < lp->n_touched; c++) {
        lp->groups[lp->touched[c]].touched = false;
        lp->groups[lp->touched[c]].rate = 0;
    }
    lp->n_touched = 0;
    if (v.kind == PATTERN)
        touch(lp, v.index, -1);
    for (uint32_t r = 0; r < lp->rows; r++)
        if (lp->alpha[r] != 0 && lp->basis[r].kind == PATTERN)
            touch(lp, lp->basis[r].index, lp->alpha[r]);
}

/* Set alpha: by how much each basic variable falls when v grows by 1. The same for the keys, with
 * the opposite sign: rate. */
static void column(struct dorm_simplex *lp, struct dorm_variable v)
{
    uint32_t loss = lp->rows - 1;
    memset(lp->alpha, 0, sizeof(*lp->alpha) * lp->stride);
    switch (v.kind) {
    case BELOW:
    case ABOVE:
        add_column(lp, v.index, -1);
        add_column(lp, loss, v.kind == ABOVE ? lp->D[v.index] : -lp->D[v.index]);
        break;
    case LACKING:
        add_column(lp, v.index, v.index == loss ? -1 : 1);
        break;
    case SURPLUS:
        add_column(lp, v.index, v.index == loss ? 1 : -1);
        break;
    case PATTERN:
        add_pattern(lp, v.index, 1);
        add_pattern(lp, lp->groups[lp->patterns[v.index].group].key, -1);
        break;
    }
    list_touched(lp, v);
}

/* The price of what a pattern sells. */
static double price_of(const struct dorm_simplex *lp, uint32_t pattern)
{
    const struct dorm_pattern *q = &lp->patterns[pattern];
    double sum = 0;
    for (uint32_t c = q->first; c < q->first + q->n; c++)
        sum -= lp->dual[lp->items[c].row] * lp->items[c].n;
    return sum;
}

/* Go on through the groups, and list of each the pattern that gains most. Enough are listed when
 * GROUPS_SCANNED groups were looked at since the first one was found. most: of each group, only so
 * many patterns are looked at, the newest ones. False: there is none. */
static bool list_candidates(struct dorm_simplex *lp, uint32_t most)
{
    uint32_t n = 0, after = DORM_END;
    uint64_t items = 0;
    lp->n_candidates = 0;
    lp->candidates_gain = 0;
    for (; n < lp->n_groups && n < after; n++) {
        const struct dorm_pattern_group *group = &lp->groups[lp->scanned++ % lp->n_groups];
        double key = price_of(lp, group->key), best = 1e-7;
        uint32_t found = DORM_END, looked_at = 0;
        for (uint32_t q = group->head; q != DORM_END && looked_at++ < most;
             q = lp->patterns[q].next) {
            double more = lp->patterns[q].basic ? 0 : price_of(lp, q) - key;
            items += lp->patterns[q].n + 2;
            if (more * group->size > best) {
                best = more * group->size;
                found = q;
            }
        }
        if (found == DORM_END)
            continue;
        lp->candidates[lp->n_candidates++] = found;
        lp->candidates_gain = MAX(lp->candidates_gain, best);
        after = MIN(after, n + GROUPS_SCANNED);
    }
    dorm_work(&lp->p->work, n / 2 + items / 12);
    return lp->n_candidates > 0;
}

/* Choose the listed pattern that gains most now, if that is more than *best, and more than a part
 * of what the best one gained when the list was made. */
static bool best_candidate(struct dorm_simplex *lp, double *best, struct dorm_variable *out,
                           double *gain)
{
    bool found = false;
    for (uint32_t c = 0; c < lp->n_candidates;) {
        uint32_t q = lp->candidates[c];
        const struct dorm_pattern_group *group = &lp->groups[lp->patterns[q].group];
        double more = lp->patterns[q].basic ? 0 : price_of(lp, q) - price_of(lp, group->key);
        if (!(more * group->size > STALE * lp->candidates_gain)) {
            lp->candidates[c] = lp->candidates[--lp->n_candidates];
            continue;
        }
        if (more * group->size > *best) {
            *best = more * group->size;
            *out = (struct dorm_variable){ PATTERN, q };
            *gain = more;
            found = true;
        }
        c++;
    }
    dorm_work(&lp->p->work, 3 * lp->n_candidates + lp->rows / 4 + 1);
    return found;
}

/* Choose a variable that gains when it grows, or falls from its limit. gain: for each unit by which
 * it grows. */
static bool choose(struct dorm_simplex *lp, struct dorm_variable *out, double *gain)
{
    double best = 1e-7, mu = lp->dual[lp->rows - 1];
    for (uint32_t v = 0; v < lp->n_demands; v++) {
        double gains[] = { [BELOW] = lp->u[v] + lp->dual[v] + mu * lp->D[v],
                           [ABOVE] = lp->u[v] + lp->dual[v] - mu * lp->D[v],
                           [LACKING] = -lp->high[v] - lp->dual[v],
                           [SURPLUS] = lp->low[v] + lp->dual[v] };
        for (enum kind k = BELOW; k <= SURPLUS; k++) {
            double scale = lp->scale[v];
            if (lp->basic[k][v] || (k <= ABOVE && !(lp->limit[k][v] > 0)))
                continue;
            if (k <= ABOVE && lp->full[k][v])
                scale = -scale;
            if (gains[k] * scale > best && fabs(gains[k]) > 1e-7 * lp->u[v]) {
                best = gains[k] * scale;
                *out = (struct dorm_variable){ k, v };
                *gain = gains[k];
            }
        }
    }
    for (enum kind k = LACKING; k <= SURPLUS; k++) {
        uint32_t loss = lp->rows - 1;
        double more = k == LACKING ? mu - lp->high[loss] : lp->low[loss] - mu;
        if (more > best && !lp->basic[k][loss]) {
            best = *gain = more;
            *out = (struct dorm_variable){ k, loss };
        }
    }
    if (!best_candidate(lp, &best, out, gain) &&
        (list_candidates(lp, NEWEST) || list_candidates(lp, UINT32_MAX)))
        (void)best_candidate(lp, &best, out, gain);
    return best > 1e-7;
}

/* Let another basic pattern of the group be its key. The earlier key takes its row, which is
 * returned. DORM_END: there is none. */
static uint32_t change_key(struct dorm_simplex *lp, uint32_t g)
{
    uint32_t R = lp->rows, S = lp->stride, to = DORM_END;
    for (uint32_t r = 0; r < R; r++)
        if (lp->basis[r].kind == PATTERN && lp->patterns[lp->basis[r].index].group == g &&
            (to == DORM_END || lp->x[r] > lp->x[to]))
            to = r;
    if (to == DORM_END)
        return to;
    double y = lp->x[to];
    for (uint32_t r = 0; r < R; r++)
        if (r != to && lp->basis[r].kind == PATTERN && lp->patterns[lp->basis[r].index].group == g)
            for (uint32_t c = 0; c < R; c++)
                lp->inverse[(size_t)c * S + to] += lp->inverse[(size_t)c * S + r];
    for (uint32_t c = 0; c < R; c++)
        lp->inverse[(size_t)c * S + to] *= -1;
    uint32_t key = lp->groups[g].key;
    lp->groups[g].key = lp->basis[to].index;
    lp->basis[to].index = key;
    lp->x[to] = lp->groups[g].y;
    lp->groups[g].y = y;
    return to;
}

/* The entering column takes the row of the inverse: update that, and the prices. Returns the number
 * of columns that change. */
static inline __attribute__((always_inline)) uint32_t update(struct dorm_simplex *lp, uint32_t row,
                                                             double gain)
{
    double part = 1 / lp->alpha[row];
    uint32_t n = 0;
    for (uint32_t c = 0; c < lp->rows; c++) {
        double *column = lp->inverse + (size_t)c * lp->stride, by = column[row] * part;
        if (by == 0)
            continue;
        subtract(column, lp->alpha, by, lp->stride);
        column[row] = by;
        lp->dual[c] += gain * by;
        n++;
    }
    return n;
}

DORM_WIDE static uint32_t update_wide(struct dorm_simplex *lp, uint32_t row, double gain)
{
    return update(lp, row, gain);
}

static void enter(struct dorm_simplex *lp, struct dorm_variable in, uint32_t row, double gain,
                  double value)
{
    set_basic(lp, lp->basis[row], false);
    set_basic(lp, in, true);
    lp->basis[row] = in;
    lp->x[row] = value;
    uint64_t columns = dorm_is_wide() ? update_wide(lp, row, gain) : update(lp, row, gain);
    dorm_work(&lp->p->work, columns * lp->rows / STEP_CELLS);
}

/* What ends the growth of the entering variable. */
struct leaving {
    double t;       /* the growth */
    uint32_t row;   /* of the basic variable that reaches 0 or its limit; DORM_END: none */
    uint32_t group; /* whose key gets no more nodes, before that; DORM_END: none */
};

/* way: 1: the entering variable `in` grows; -1: it falls. */
static struct leaving choose_leaving(const struct dorm_simplex *lp, struct dorm_variable in,
                                     double way)
{
    struct leaving out = { limit_of(lp, in), DORM_END, DORM_END };
    for (uint32_t r = 0; r < lp->rows; r++) {
        double fall = way * lp->alpha[r], at;
        if (fall > 1e-9)
            at = MAX(lp->x[r], 0.0) / fall;
        else if (fall < -1e-9)
            at = MAX(limit_of(lp, lp->basis[r]) - lp->x[r], 0.0) / -fall;
        else
            continue;
        if (at < out.t - 1e-12 || (out.row != DORM_END && at < out.t + 1e-12 &&
                                   fabs(lp->alpha[r]) > fabs(lp->alpha[out.row]))) {
            out.t = MIN(out.t, at);
            out.row = r;
        }
    }
    for (uint32_t c = 0; c < lp->n_touched; c++) {
        const struct dorm_pattern_group *g = &lp->groups[lp->touched[c]];
        double at = way * g->rate < -1e-9 ? MAX(g->y, 0.0) / -(way * g->rate) : INFINITY;
        if (at < out.t - 1e-12) {
            out.t = at;
            out.group = lp->touched[c];
        }
    }
    return out;
}

/* The entering variable changes by `by`: change the basic variables and the keys with it. */
static void move(struct dorm_simplex *lp, double by)
{
    for (uint32_t c = 0; c < lp->n_touched; c++)
        lp->groups[lp->touched[c]].y += by * lp->groups[lp->touched[c]].rate;
    for (uint32_t r = 0; r < lp->rows; r++)
        lp->x[r] -= by * lp->alpha[r];
}

bool dorm_simplex_pivot(struct dorm_simplex *lp)
{
    struct dorm_variable in;
    double gain = 0;
    if (!choose(lp, &in, &gain))
        return false;
    column(lp, in);
    double way = gain > 0 ? 1 : -1;
    struct leaving out = choose_leaving(lp, in, way);
    if (!isfinite(out.t))
        return false;
    move(lp, out.t * way);
    double value = way > 0 ? out.t : limit_of(lp, in) - out.t;
    if (out.group != DORM_END) {
        out.row = change_key(lp, out.group);
        if (out.row == DORM_END) { /* the entering one is the only other pattern of its group */
            set_basic(lp, (struct dorm_variable){ PATTERN, lp->groups[out.group].key }, false);
            set_basic(lp, in, true);
            lp->groups[out.group].key = in.index;
            lp->groups[out.group].y = value;
            return true;
        }
        column(lp, in);
        if (in.kind == PATTERN)
            gain =
                price_of(lp, in.index) - price_of(lp, lp->groups[lp->patterns[in.index].group].key);
    } else if (out.row == DORM_END) { /* from one limit to the other */
        lp->full[in.kind][in.index] = way > 0;
        return true;
    } else if (lp->basis[out.row].kind <= ABOVE)
        lp->full[lp->basis[out.row].kind][lp->basis[out.row].index] = way * lp->alpha[out.row] < 0;
    if (in.kind <= ABOVE)
        lp->full[in.kind][in.index] = false;
    if (fabs(lp->alpha[out.row]) < 1e-11)
        return false;
    enter(lp, in, out.row, gain, value);
    return true;
}

/* ---- the present solution */

double dorm_simplex_value(const struct dorm_simplex *lp)
{
    double sum = 0;
    for (uint32_t r = 0; r < lp->rows; r++)
        sum += cost_of(lp, lp->basis[r]) * lp->x[r];
    for (uint32_t v = 0; v < lp->n_demands; v++)
        for (enum kind k = BELOW; k <= ABOVE; k++)
            sum += lp->full[k][v] ? lp->u[v] * lp->limit[k][v] : 0;
    return sum;
}

double dorm_simplex_price(const struct dorm_simplex *lp, uint32_t demand)
{
    uint32_t row = lp->row_of[demand];
    return row == DORM_END ? 0 : MAX(-lp->dual[row], 0.0);
}

double dorm_simplex_loss_price(const struct dorm_simplex *lp)
{
    return MAX(lp->dual[lp->n_demands], 0.0);
}

void dorm_simplex_nodes(const struct dorm_simplex *lp, double *y)
{
    memset(y, 0, sizeof(*y) * lp->n_patterns);
    for (uint32_t r = 0; r < lp->rows; r++)
        if (lp->basis[r].kind == PATTERN)
            y[lp->basis[r].index] = MAX(lp->x[r], 0.0);
    for (uint32_t g = 0; g < lp->n_groups; g++)
        y[lp->groups[g].key] = MAX(lp->groups[g].y, 0.0);
}
