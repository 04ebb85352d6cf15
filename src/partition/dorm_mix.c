/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds a division from patterns, in large problems.
 *
 * It is known which running jobs change. Nodes with equal free room form a group. A pattern q is a
 * set of containers that fits into the room of its group: x_vq of demand v. How many nodes of each
 * group get which pattern is a linear program:
 *
 *   maximize   sum over v of u_v * (below_v + above_v - PENALTY * lacking_v)
 *   demand v   sum over q of x_vq * y_q + lacking_v = minima_v + below_v + above_v + surplus_v
 *   group g    sum over the patterns q of g of y_q = nodes of g
 *   loss       sum over v of D_v * (above_v - below_v) <= B - the loss if each job had its min
 *
 *   below_v    containers of the jobs with demand v beyond their minima, up to their ideal counts;
 *              above_v: those beyond that, up to their max
 *
 * Only patterns that pay are ever looked at (column generation, Gilmore and Gomory 1961): the
 * solution for the patterns so far gives each demand a price pi_v, and the table of dorm_rooms.h
 * the best pattern of each group at these prices. When that is worth no more than what the group
 * sells already, no pattern improves the solution. Prices half-way to the best ones so far are
 * tried first, since the first prices are wild.
 *
 * The program is solved by the simplex method. Each group has a pattern that is its key: the key
 * gets the nodes that the other patterns of the group leave. So the equations of the groups need no
 * rows in the basis (generalized upper bounds; Dantzig, Van Slyke 1967), and the column of a
 * pattern is x_q less that of the key.
 *
 * The numbers of nodes are then rounded to whole ones. What is missing for a min is placed by
 * force, and the rest of the room is filled as in dorm_build.c and dorm_refill.c.
 */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "partition/dorm_rooms.h"

enum {
    ROWS_MAX = 2000, /* the inverse has 8 bytes * ROWS_MAX * ROWS_MAX */
    PATTERNS_MAX = 20000,
    ITEMS_MAX = 160000,
    FIRST_PATTERNS = 4, /* of each group, from prices with noise */
    ROUNDS = 30,
    REFILL_STEPS = 50000,
    FORCED_MAX = 16,     /* containers that make way for one */
    GROUPS_SCANNED = 64, /* for an entering pattern, once one was found */
};

static const double PENALTY = 3;
static const double NOISE = 0.1;
static const double OLD_PRICES = 0.3; /* the part of the best prices in those that are tried */
static const double CLOSE = 5e-4;     /* ends the search for more patterns */

struct item {
    uint32_t demand, n;
};

struct pattern {
    uint32_t first, n; /* items */
    uint32_t group, next;
    bool basic; /* it is in the basis, or a key */
};

struct group {
    uint32_t node, size; /* one of the nodes, and their number */
    uint32_t head;       /* the list of its patterns */
    uint32_t key;
    double y;    /* of the key */
    double rate; /* by which y grows when the entering variable grows */
};

/* A variable. index: of the demand, or of the pattern. LACKING of the demand n_demands stands for
 * loss beyond the bound, SURPLUS for loss that is left. */
enum kind { BELOW, ABOVE, LACKING, SURPLUS, PATTERN };
struct variable {
    enum kind kind;
    uint32_t index;
};

struct mix {
    struct dorm_search *s;
    struct dorm_problem *p;
    struct dorm_rooms rooms;
    bool *changes; /* [job] */

    struct group *groups;
    uint32_t n_groups, scanned;
    uint32_t *group_of; /* [node] */
    int64_t *room;      /* [group][m] */
    struct pattern *patterns;
    struct item *items;
    uint32_t n_patterns, n_items;

    uint32_t rows;                                    /* the demands, then the loss */
    double *inverse, *alpha, *dual, *x;               /* of the basis */
    struct variable *basis;                           /* [row] */
    double *u, *D, *minima, *limit[2];                /* [demand]; limit: of below and above */
    bool *full[2], *basic[4];                         /* [demand]: at the limit; in the basis */
    double container;                                 /* the mean u: the unit of gains */
    double *sold, *best_pi, mu, best_mu, upper, base; /* base: utilization without the program */
};

/* ---- patterns */

static bool known(const struct mix *x, const struct group *group, const struct item *items,
                  uint32_t n)
{
    for (uint32_t q = group->head; q != DORM_END; q = x->patterns[q].next)
        if (x->patterns[q].n == n &&
            (n == 0 || memcmp(x->items + x->patterns[q].first, items, sizeof(*items) * n) == 0))
            return true;
    return false;
}

/* The price of what a pattern sells. */
static double price_of(const struct mix *x, uint32_t pattern)
{
    const struct pattern *q = &x->patterns[pattern];
    double sum = 0;
    for (uint32_t c = q->first; c < q->first + q->n; c++)
        sum -= x->dual[x->items[c].demand] * x->items[c].n;
    return sum;
}

/* Add the best pattern of each group at the prices of x->rooms if it beats the key at the prices of
 * the basis. Returns what all nodes are worth. */
static double add_patterns(struct mix *x, bool *added)
{
    struct dorm_rooms *r = &x->rooms;
    double worth = 0;
    dorm_rooms_fill(r);
    for (uint32_t g = 0; g < x->n_groups; g++) {
        struct group *group = &x->groups[g];
        const int64_t *room = x->room + (size_t)g * r->m;
        double one = dorm_rooms_worth(r, room);
        worth += one * group->size;
        if (x->n_patterns == PATTERNS_MAX || x->n_items + r->n_demands > ITEMS_MAX)
            continue;
        struct pattern q = { .first = x->n_items, .group = g, .next = group->head };
        memset(x->sold, 0, sizeof(*x->sold) * r->n_demands);
        dorm_rooms_sell(r, room, x->sold);
        for (uint32_t v = 0; v < r->n_demands; v++)
            if (x->sold[v] > 0)
                x->items[q.first + q.n++] = (struct item){ v, (uint32_t)x->sold[v] };
        dorm_work(&x->p->work, 8 + r->n_active / 8);
        if (known(x, group, x->items + q.first, q.n))
            continue;
        *added = true;
        group->head = x->n_patterns;
        x->patterns[x->n_patterns++] = q;
        x->n_items += q.n;
    }
    return worth;
}

/* What the jobs are worth at the prices of x->rooms. */
static double buy_all(const struct mix *x)
{
    double value = x->mu * x->p->loss_bound, n;
    for (uint32_t i = 0; i < x->p->n; i++) {
        const struct dorm_job *job = &x->p->jobs[i];
        if (x->changes[i])
            value += dorm_rooms_buy(job, x->rooms.pi[x->rooms.demand_of[i]], x->mu, &n);
        else
            value += job->u * job->now - x->mu * job->D * fabs((double)job->now - job->ideal);
    }
    return value;
}

/* List the groups of nodes with equal room, without what the jobs that change hold. */
static bool list_groups(struct mix *x)
{
    struct dorm_problem *p = x->p;
    struct dorm_rooms *r = &x->rooms;
    uint32_t *by_cell = dorm_alloc(p, r->cells, sizeof(*by_cell));
    if (!by_cell)
        return false;
    for (uint32_t j = 0; j < p->n_nodes; j++) {
        int64_t *room = x->room + (size_t)x->n_groups * r->m;
        uint32_t set = 0;
        for (uint32_t c = r->first[j]; c < r->first[j + 1]; c++)
            if (x->changes[r->held[c].job])
                set |= 1u << MIN(c - r->first[j], 31u);
        dorm_rooms_room(r, j, set, room);
        uint32_t *at = &by_cell[dorm_rooms_cell(r, room)];
        if (*at == 0) {
            x->groups[x->n_groups++] = (struct group){ .node = j, .head = DORM_END };
            *at = x->n_groups;
        }
        x->group_of[j] = *at - 1;
        x->groups[*at - 1].size++;
    }
    return true;
}

/* ---- the simplex method */

static double limit_of(const struct mix *x, struct variable v)
{
    return v.kind <= ABOVE ? x->limit[v.kind][v.index] : INFINITY;
}

static double cost_of(const struct mix *x, struct variable v)
{
    if (v.kind <= ABOVE)
        return x->u[v.index];
    if (v.kind == LACKING)
        return v.index == x->rooms.n_demands ? -PENALTY : -PENALTY * x->u[v.index];
    return 0;
}

static void set_basic(struct mix *x, struct variable v, bool basic)
{
    if (v.kind == PATTERN)
        x->patterns[v.index].basic = basic;
    else
        x->basic[v.kind][v.index] = basic;
}

static void add_column(struct mix *x, uint32_t row, double value)
{
    for (uint32_t r = 0; r < x->rows; r++)
        x->alpha[r] += value * x->inverse[(size_t)r * x->rows + row];
}

static void add_pattern(struct mix *x, uint32_t pattern, double sign)
{
    const struct pattern *q = &x->patterns[pattern];
    for (uint32_t c = q->first; c < q->first + q->n; c++)
        add_column(x, x->items[c].demand, sign * x->items[c].n);
}

/* Set alpha: by how much each basic variable falls when v grows by 1. The same for the keys, with
 * the opposite sign: rate. */
static void column(struct mix *x, struct variable v)
{
    uint32_t loss = x->rows - 1;
    memset(x->alpha, 0, sizeof(*x->alpha) * x->rows);
    switch (v.kind) {
    case BELOW:
    case ABOVE:
        add_column(x, v.index, -1);
        add_column(x, loss, v.kind == ABOVE ? x->D[v.index] : -x->D[v.index]);
        break;
    case LACKING:
        add_column(x, v.index, v.index == loss ? -1 : 1);
        break;
    case SURPLUS:
        add_column(x, v.index, v.index == loss ? 1 : -1);
        break;
    case PATTERN:
        add_pattern(x, v.index, 1);
        add_pattern(x, x->groups[x->patterns[v.index].group].key, -1);
        break;
    }
    for (uint32_t r = 0; r < x->rows; r++)
        if (x->basis[r].kind == PATTERN)
            x->groups[x->patterns[x->basis[r].index].group].rate = 0;
    if (v.kind == PATTERN)
        x->groups[x->patterns[v.index].group].rate = -1;
    for (uint32_t r = 0; r < x->rows; r++)
        if (x->basis[r].kind == PATTERN)
            x->groups[x->patterns[x->basis[r].index].group].rate += x->alpha[r];
}

/* Choose a variable that gains when it grows, or falls from its limit. gain: for each unit by which
 * it grows. */
static bool choose(struct mix *x, struct variable *out, double *gain)
{
    double best = 1e-7, mu = x->dual[x->rows - 1], scale;
    for (uint32_t v = 0; v < x->rooms.n_demands; v++) {
        double gains[] = { [BELOW] = x->u[v] + x->dual[v] + mu * x->D[v],
                           [ABOVE] = x->u[v] + x->dual[v] - mu * x->D[v],
                           [LACKING] = -PENALTY * x->u[v] - x->dual[v],
                           [SURPLUS] = x->dual[v] };
        for (enum kind k = BELOW; k <= SURPLUS; k++) {
            scale = x->container / x->u[v];
            if (x->basic[k][v] || (k <= ABOVE && !(x->limit[k][v] > 0)))
                continue;
            if (k <= ABOVE && x->full[k][v])
                scale = -scale;
            if (gains[k] * scale > best && fabs(gains[k]) > 1e-7 * x->u[v]) {
                best = gains[k] * scale;
                *out = (struct variable){ k, v };
                *gain = gains[k];
            }
        }
    }
    if (-mu > best && !x->basic[SURPLUS][x->rows - 1]) {
        best = -mu;
        *out = (struct variable){ SURPLUS, x->rows - 1 };
        *gain = -mu;
    }
    uint32_t n = 0, after = DORM_END;
    for (; n < x->n_groups && n < after; n++) {
        struct group *group = &x->groups[x->scanned++ % x->n_groups];
        double key = price_of(x, group->key);
        for (uint32_t q = group->head; q != DORM_END; q = x->patterns[q].next) {
            double more = x->patterns[q].basic ? 0 : price_of(x, q) - key;
            if (more * group->size > best) {
                best = more * group->size;
                *out = (struct variable){ PATTERN, q };
                *gain = more;
                after = MIN(after, n + GROUPS_SCANNED);
            }
        }
    }
    dorm_work(&x->p->work, x->rows / 2 + n);
    return best > 1e-7;
}

/* Let another basic pattern of the group be its key. The earlier key takes its row, which is
 * returned. DORM_END: there is none. */
static uint32_t change_key(struct mix *x, uint32_t g)
{
    uint32_t R = x->rows, to = DORM_END;
    for (uint32_t r = 0; r < R; r++)
        if (x->basis[r].kind == PATTERN && x->patterns[x->basis[r].index].group == g &&
            (to == DORM_END || x->x[r] > x->x[to]))
            to = r;
    if (to == DORM_END)
        return to;
    double *row = x->inverse + (size_t)to * R, y = x->x[to];
    for (uint32_t r = 0; r < R; r++)
        if (r != to && x->basis[r].kind == PATTERN && x->patterns[x->basis[r].index].group == g)
            for (uint32_t c = 0; c < R; c++)
                row[c] += x->inverse[(size_t)r * R + c];
    for (uint32_t c = 0; c < R; c++)
        row[c] = -row[c];
    uint32_t key = x->groups[g].key;
    x->groups[g].key = x->basis[to].index;
    x->basis[to].index = key;
    x->x[to] = x->groups[g].y;
    x->groups[g].y = y;
    return to;
}

/* The entering variable takes the row: update the inverse and the prices. */
static void enter(struct mix *x, struct variable in, uint32_t row, double gain, double value)
{
    uint32_t R = x->rows;
    double *by = x->inverse + (size_t)row * R, part = 1 / x->alpha[row];
    set_basic(x, x->basis[row], false);
    set_basic(x, in, true);
    x->basis[row] = in;
    x->x[row] = value;
    for (uint32_t c = 0; c < R; c++) {
        by[c] *= part;
        x->dual[c] += gain * by[c];
    }
    for (uint32_t r = 0; r < R; r++) {
        double a = x->alpha[r], *other = x->inverse + (size_t)r * R;
        if (r == row || fabs(a) < 1e-13)
            continue;
        for (uint32_t c = 0; c < R; c++)
            other[c] -= a * by[c];
    }
    dorm_work(&x->p->work, R * R / 64);
}

/* One step of the simplex method. False: this is the best solution. */
static bool pivot(struct mix *x)
{
    struct variable in;
    double gain = 0;
    if (!choose(x, &in, &gain))
        return false;
    column(x, in);
    double way = gain > 0 ? 1 : -1, t = limit_of(x, in);
    uint32_t row = DORM_END, group = DORM_END;
    for (uint32_t r = 0; r < x->rows; r++) {
        double fall = way * x->alpha[r], most = limit_of(x, x->basis[r]), at = INFINITY;
        if (fall > 1e-9)
            at = MAX(x->x[r], 0.0) / fall;
        else if (fall < -1e-9)
            at = MAX(most - x->x[r], 0.0) / -fall;
        if (at < t - 1e-12 ||
            (row != DORM_END && at < t + 1e-12 && fabs(x->alpha[r]) > fabs(x->alpha[row]))) {
            t = MIN(t, at);
            row = r;
        }
    }
    for (uint32_t r = 0; r <= x->rows; r++) { /* the keys of the groups whose patterns change */
        struct variable v = r < x->rows ? x->basis[r] : in;
        if (v.kind != PATTERN)
            continue;
        struct group *g = &x->groups[x->patterns[v.index].group];
        double at = way * g->rate < -1e-9 ? MAX(g->y, 0.0) / -(way * g->rate) : INFINITY;
        if (at < t - 1e-12) {
            t = at;
            group = (uint32_t)(g - x->groups);
        }
    }
    if (!isfinite(t))
        return false;
    for (uint32_t r = 0; r <= x->rows; r++) {
        struct variable v = r < x->rows ? x->basis[r] : in;
        if (v.kind == PATTERN) {
            x->groups[x->patterns[v.index].group].y +=
                t * way * x->groups[x->patterns[v.index].group].rate;
            x->groups[x->patterns[v.index].group].rate = 0;
        }
    }
    for (uint32_t r = 0; r < x->rows; r++)
        x->x[r] -= t * way * x->alpha[r];
    double value = way > 0 ? t : limit_of(x, in) - t;
    if (group != DORM_END) {
        row = change_key(x, group);
        if (row == DORM_END) { /* it is the only other pattern of its group */
            set_basic(x, (struct variable){ PATTERN, x->groups[group].key }, false);
            set_basic(x, in, true);
            x->groups[group].key = in.index;
            x->groups[group].y = value;
            return true;
        }
        column(x, in);
        if (in.kind == PATTERN)
            gain = price_of(x, in.index) - price_of(x, x->groups[x->patterns[in.index].group].key);
    } else if (row == DORM_END) { /* from one limit to the other */
        x->full[in.kind][in.index] = way > 0;
        return true;
    } else if (x->basis[row].kind <= ABOVE)
        x->full[x->basis[row].kind][x->basis[row].index] = way * x->alpha[row] < 0;
    if (in.kind <= ABOVE)
        x->full[in.kind][in.index] = false;
    if (fabs(x->alpha[row]) < 1e-11)
        return false;
    enter(x, in, row, gain, value);
    return true;
}

/* Set the limits of the variables, and a first basis: the keys sell all, and the jobs with a demand
 * buy as much of it as they can. */
static void begin(struct mix *x)
{
    struct dorm_problem *p = x->p;
    uint32_t m = x->rooms.n_demands, R = x->rows;
    double loss = 0, containers = 0, amount = 0;
    for (uint32_t v = 0; v < m; v++) {
        x->u[v] = p->jobs[x->rooms.example[v]].u;
        x->D[v] = p->jobs[x->rooms.example[v]].D;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        const struct dorm_job *job = &p->jobs[i];
        uint32_t n = x->changes[i] ? job->lo : job->now;
        loss += job->D * fabs((double)n - job->ideal);
        x->base += job->u * n;
        if (!x->changes[i])
            continue;
        uint32_t v = x->rooms.demand_of[i], ideal = MIN(MAX(job->ideal, job->lo), job->hi);
        x->minima[v] += job->lo;
        x->limit[BELOW][v] += ideal - job->lo;
        x->limit[ABOVE][v] += job->hi - ideal;
        containers += job->hi;
        amount += job->hi * job->u;
    }
    x->container = containers > 0 ? 10 * amount / containers : 1;
    memset(x->sold, 0, sizeof(*x->sold) * m);
    for (uint32_t g = 0; g < x->n_groups; g++) {
        const struct pattern *q = &x->patterns[x->groups[g].key];
        x->groups[g].y = x->groups[g].size;
        x->patterns[x->groups[g].key].basic = true;
        for (uint32_t c = q->first; c < q->first + q->n; c++)
            x->sold[x->items[c].demand] += (double)x->items[c].n * x->groups[g].size;
    }
    double *in_loss = x->inverse + (size_t)m * R; /* the last row */
    double left = p->loss_bound - loss;
    for (uint32_t v = 0; v < m; v++) {
        double more = x->sold[v] - x->minima[v], sign = -1;
        struct variable in = { LACKING, v };
        if (more < 0)
            sign = 1;
        else
            for (in.kind = BELOW; in.kind <= ABOVE && more > x->limit[in.kind][v]; in.kind++) {
                more -= x->limit[in.kind][v];
                x->full[in.kind][v] = true;
                left -= (in.kind == ABOVE ? x->D[v] : -x->D[v]) * x->limit[in.kind][v];
            }
        if (in.kind > ABOVE && sign < 0)
            in.kind = SURPLUS;
        double in_row = in.kind == ABOVE ? x->D[v] : in.kind == BELOW ? -x->D[v] : 0;
        x->basis[v] = in;
        x->x[v] = fabs(more);
        x->inverse[(size_t)v * R + v] = sign;
        in_loss[v] = -in_row * sign;
        left -= in_row * x->x[v];
        x->basic[in.kind][v] = true;
    }
    struct variable last = { left < 0 ? LACKING : SURPLUS, m };
    in_loss[m] = 1;
    for (uint32_t c = 0; c < R && left < 0; c++)
        in_loss[c] = -in_loss[c];
    x->basis[m] = last;
    x->x[m] = fabs(left);
    x->basic[last.kind][m] = true;
    for (uint32_t c = 0; c < R; c++)
        for (uint32_t r = 0; r < R; r++)
            x->dual[c] += cost_of(x, x->basis[r]) * x->inverse[(size_t)r * R + c];
}

/* The utilization of the present solution. */
static double solution(const struct mix *x)
{
    double sum = x->base;
    for (uint32_t r = 0; r < x->rows; r++)
        sum += cost_of(x, x->basis[r]) * x->x[r];
    for (uint32_t v = 0; v < x->rooms.n_demands; v++)
        for (enum kind k = BELOW; k <= ABOVE; k++)
            sum += x->full[k][v] ? x->u[v] * x->limit[k][v] : 0;
    return sum;
}

static bool init(struct mix *x)
{
    struct dorm_problem *p = x->p;
    uint32_t m = x->rooms.n_demands, R = m + 1;
    if (R > ROWS_MAX) /* the steps would not suffice for so many demands */
        return false;
    x->rows = R;
    x->groups = dorm_alloc(p, p->n_nodes, sizeof(*x->groups));
    x->group_of = dorm_alloc(p, p->n_nodes, sizeof(*x->group_of));
    x->room = dorm_alloc(p, (size_t)p->n_nodes * x->rooms.m, sizeof(*x->room));
    x->patterns = dorm_alloc(p, PATTERNS_MAX, sizeof(*x->patterns));
    x->items = dorm_alloc(p, ITEMS_MAX, sizeof(*x->items));
    x->inverse = dorm_alloc(p, (size_t)R * R, sizeof(*x->inverse));
    x->basis = dorm_alloc(p, R, sizeof(*x->basis));
    double **rows[] = { &x->alpha,  &x->dual,     &x->x,        &x->u,    &x->D,
                        &x->minima, &x->limit[0], &x->limit[1], &x->sold, &x->best_pi };
    for (unsigned c = 0; c < ARRAY_LEN(rows); c++)
        *rows[c] = dorm_alloc(p, R, sizeof(double));
    bool **flags[] = { &x->full[0],  &x->full[1],  &x->basic[0],
                       &x->basic[1], &x->basic[2], &x->basic[3] };
    for (unsigned c = 0; c < ARRAY_LEN(flags); c++)
        *flags[c] = dorm_alloc(p, R, sizeof(bool));
    return !p->failed && list_groups(x);
}

/* The loose jobs change, and the running ones that the best division so far adjusts. */
static bool init_changes(struct mix *x)
{
    struct dorm_state *state = &x->s->state;
    dorm_plan_load(&x->s->best, state);
    for (uint32_t i = 0; i < x->p->n; i++)
        x->changes[i] = x->p->jobs[i].kind == DORM_LOOSE || state->moved[i] > 0;
    return !x->p->failed;
}

/* Has each group a pattern? Else PATTERNS_MAX or ITEMS_MAX was reached before all had one. */
static bool all_have_patterns(const struct mix *x)
{
    for (uint32_t g = 0; g < x->n_groups; g++)
        if (x->groups[g].head == DORM_END)
            return false;
    return true;
}

/* Find patterns and the best numbers of nodes for them. end: of the steps. False: there are too
 * many groups. Only x->upper is set then. */
static bool solve(struct mix *x, uint64_t end)
{
    struct dorm_rooms *r = &x->rooms;
    struct dorm_work *work = &x->p->work;
    uint64_t seed = 1;
    bool added = true;
    x->upper = add_patterns(x, &added) + buy_all(x);
    memcpy(x->best_pi, r->pi, sizeof(*r->pi) * r->n_demands);
    x->best_mu = x->mu;
    if (!all_have_patterns(x))
        return false;
    for (uint32_t g = 0; g < x->n_groups; g++)
        x->groups[g].key = x->groups[g].head;
    for (unsigned c = 1; c < FIRST_PATTERNS && work->steps < end; c++) {
        for (uint32_t v = 0; v < r->n_demands; v++)
            r->pi[v] = x->best_pi[v] * (1 + NOISE * (2 * dorm_uniform(&seed) - 1));
        (void)add_patterns(x, &added);
    }
    begin(x);
    double lp = 0;
    for (unsigned round = 0; round < ROUNDS && !work->over; round++) {
        unsigned n = 0;
        while (work->steps < end && pivot(x))
            n++;
        lp = solution(x);
        if (x->upper - lp < CLOSE * x->upper || work->steps >= end)
            break;
        double old = added ? OLD_PRICES : 0;
        for (uint32_t v = 0; v < r->n_demands; v++)
            r->pi[v] = old * x->best_pi[v] + (1 - old) * MAX(-x->dual[v], 0.0);
        x->mu = old * x->best_mu + (1 - old) * MAX(x->dual[x->rows - 1], 0.0);
        bool before = added;
        added = false;
        double upper = add_patterns(x, &added) + buy_all(x);
        if (!added && !before)
            break;
        if (upper >= x->upper)
            continue;
        x->upper = upper;
        x->best_mu = x->mu;
        memcpy(x->best_pi, r->pi, sizeof(*r->pi) * r->n_demands);
    }
    return true;
}

/* ---- from the solution to a division */

/* Round the numbers of nodes: down, then up where the largest parts are missing. Returns them by
 * pattern. NULL: out of memory. */
static uint32_t *whole_nodes(struct mix *x)
{
    uint32_t *count = dorm_alloc(x->p, x->n_patterns, sizeof(*count));
    double *y = dorm_alloc(x->p, x->n_patterns, sizeof(*y));
    uint32_t *left = dorm_alloc(x->p, x->n_groups, sizeof(*left));
    if (x->p->failed)
        return NULL;
    for (uint32_t r = 0; r < x->rows; r++)
        if (x->basis[r].kind == PATTERN)
            y[x->basis[r].index] = MAX(x->x[r], 0.0);
    for (uint32_t g = 0; g < x->n_groups; g++) {
        y[x->groups[g].key] = MAX(x->groups[g].y, 0.0);
        left[g] = x->groups[g].size;
    }
    for (uint32_t q = 0; q < x->n_patterns; q++) {
        uint32_t *nodes = &left[x->patterns[q].group];
        count[q] = MIN((uint32_t)MIN(y[q] + 1e-6, 1e9), *nodes);
        *nodes -= count[q];
        y[q] -= count[q];
    }
    for (uint32_t g = 0; g < x->n_groups; g++)
        for (; left[g] > 0; left[g]--) {
            uint32_t most = x->groups[g].key;
            for (uint32_t q = x->groups[g].head; q != DORM_END; q = x->patterns[q].next)
                if (y[q] > y[most])
                    most = q;
            y[most]--;
            count[most]++;
        }
    return count;
}

/* The jobs buy what is sold of their demand: first each its min, then up to its ideal count, then
 * up to its max. Returns the counts of the jobs; NULL: out of memory. */
static uint32_t *share_out(struct mix *x)
{
    uint32_t *goal = dorm_alloc(x->p, x->p->n, sizeof(*goal));
    for (int stage = 0; goal && stage < 3; stage++)
        for (uint32_t i = 0; i < x->p->n; i++) {
            const struct dorm_job *job = &x->p->jobs[i];
            if (!x->changes[i])
                continue;
            uint32_t ideal = MIN(MAX(job->ideal, job->lo), job->hi);
            uint32_t to = stage == 0 ? job->lo : stage == 1 ? ideal : job->hi;
            double *left = &x->sold[x->rooms.demand_of[i]];
            uint32_t more = (uint32_t)MIN((double)(to - goal[i]), *left);
            goal[i] += more;
            *left -= more;
        }
    return goal;
}

/* Place the patterns. */
static void build(struct mix *x)
{
    struct dorm_problem *p = x->p;
    struct dorm_state *state = &x->s->state;
    uint32_t m = x->rooms.n_demands, *count = whole_nodes(x);
    uint32_t *first = dorm_alloc(p, m, sizeof(*first)), *next = dorm_alloc(p, p->n, sizeof(*next));
    if (p->failed)
        return;
    memset(x->sold, 0, sizeof(*x->sold) * m);
    for (uint32_t q = 0; q < x->n_patterns; q++)
        for (uint32_t c = x->patterns[q].first; c < x->patterns[q].first + x->patterns[q].n; c++)
            x->sold[x->items[c].demand] += (double)count[q] * x->items[c].n;
    const uint32_t *goal = share_out(x);
    if (!goal)
        return;
    dorm_state_keep(state);
    memset(first, 0xff, sizeof(*first) * m);
    for (uint32_t i = p->n; i-- > 0;)
        if (x->changes[i]) {
            dorm_take_all(state, i);
            next[i] = first[x->rooms.demand_of[i]];
            first[x->rooms.demand_of[i]] = i;
        }
    for (uint32_t j = 0; j < p->n_nodes; j++) {
        uint32_t q = x->groups[x->group_of[j]].head;
        while (q != DORM_END && count[q] == 0)
            q = x->patterns[q].next;
        if (q == DORM_END)
            continue;
        count[q]--;
        for (uint32_t c = x->patterns[q].first; c < x->patterns[q].first + x->patterns[q].n; c++) {
            uint32_t *i = &first[x->items[c].demand], n = x->items[c].n;
            while (n > 0 && *i != DORM_END) {
                uint32_t more = MIN(n, goal[*i] - MIN(goal[*i], state->n[*i]));
                more = MIN(more, dorm_fit(dorm_free(state, j), p->jobs[*i].d, p->m));
                if (more > 0)
                    dorm_put(state, *i, j, (int32_t)more);
                n -= more;
                if (state->n[*i] < goal[*i])
                    break;
                *i = next[*i];
            }
        }
        dorm_work(&p->work, 4 * x->patterns[q].n);
    }
}

/* Containers that could leave a node so that another one fits. */
struct room_made {
    uint32_t node, n, jobs[FORCED_MAX];
    double u; /* of these containers together */
};

/* Find containers on node j that could make way for one of job i: again and again the one that
 * gives most of what is missing for its utilization. False: there are none, or cheaper ones are
 * known. */
static bool find_room(struct dorm_search *s, uint32_t i, uint32_t j, struct room_made *best)
{
    struct dorm_problem *p = s->p;
    const struct dorm_state *state = &s->state;
    struct room_made made = { .node = j };
    int64_t room[PART_TYPES_MAX];
    memcpy(room, dorm_free(state, j), sizeof(*room) * p->m);
    while (!dorm_fits(room, p->jobs[i].d, p->m)) {
        double most = 0;
        uint32_t out = DORM_END;
        for (uint32_t e = state->node_head[j]; e != DORM_END; e = state->entries[e].of_node) {
            uint32_t a = state->entries[e].job, gone = 0;
            for (uint32_t c = 0; c < made.n; c++)
                gone += made.jobs[c] == a;
            if (a == i || !s->picked[a] || state->entries[e].n <= gone ||
                state->n[a] <= p->jobs[a].lo + gone)
                continue;
            double gives = 0;
            for (uint32_t k = 0; k < p->m; k++) {
                int64_t lacks = p->jobs[i].d[k] - room[k];
                if (lacks > 0)
                    gives += (double)MIN(lacks, p->jobs[a].d[k]) / (double)lacks;
            }
            if (gives / p->jobs[a].u > most) {
                most = gives / p->jobs[a].u;
                out = a;
            }
        }
        if (out == DORM_END || made.n == FORCED_MAX || made.u + p->jobs[out].u >= best->u)
            return false;
        made.u += p->jobs[out].u;
        made.jobs[made.n++] = out;
        for (uint32_t k = 0; k < p->m; k++)
            room[k] += p->jobs[out].d[k];
    }
    *best = made;
    return true;
}

/* Place one container of job i on the node where this costs the least utilization. */
static bool force_one(struct dorm_search *s, uint32_t i)
{
    struct room_made best = { .u = INFINITY };
    bool found = false;
    for (uint32_t j = 0; j < s->p->n_nodes; j++)
        if (dorm_fits(s->p->cap + (size_t)j * s->p->m, s->p->jobs[i].d, s->p->m))
            found |= find_room(s, i, j, &best);
    dorm_work(&s->p->work, s->p->n_nodes * 4);
    for (uint32_t c = 0; c < best.n && found; c++)
        dorm_put(&s->state, best.jobs[c], best.node, -1);
    if (found)
        dorm_put(&s->state, i, best.node, 1);
    return found;
}

/* Give each job its min: on free room, else in the place of containers of jobs above theirs. */
static void force_minima(struct dorm_search *s)
{
    for (uint32_t i = 0; i < s->p->n && s->state.lacking > 0; i++)
        while (s->picked[i] && s->state.n[i] < s->p->jobs[i].lo)
            if (dorm_place(s, i, 1) == 0 && !force_one(s, i))
                break;
}

static void keep_if_better(struct dorm_search *s)
{
    struct dorm_score now = dorm_score(&s->state);
    if (!s->p->failed && (!s->best.any || dorm_compare(&now, &s->best.score) > 0))
        dorm_plan_save(&s->best, &s->state);
}

void dorm_mix(struct dorm_search *s, uint64_t steps)
{
    struct dorm_problem *p = s->p;
    struct mix x = { .s = s, .p = p, .mu = s->prices.least_loss, .changes = s->picked };
    uint64_t end = p->work.steps + steps;
    if (!dorm_rooms_init(&x.rooms, p) || !init_changes(&x) || !init(&x))
        return;
    dorm_rooms_start(&x.rooms, &s->prices);
    bool solved = solve(&x, end);
    if (!dorm_counted_may_change(p)) /* else other jobs could change, too */
        s->prices.upper = MIN(s->prices.upper, x.upper);
    if (!solved)
        return;
    build(&x);
    force_minima(s);
    dorm_finish_build(s);
    dorm_forget(&s->state);
    keep_if_better(s);
    s->prices.loss = x.best_mu;
    dorm_refill(s, REFILL_STEPS);
    keep_if_better(s);
}
