/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The problem of `dorm` as integer programs, for an external solver (solver.h).
 *
 * Columns:
 *   x   for each job and each node on which it fits: its containers there
 *   e   for each job: at least the distance of its count from the ideal count
 *   r   for each counted job: 1 if any of its x is not what it has now
 *   y   for each place of a running job: at least the distance of its x from what it has there
 *
 * Three programs follow each other. The first one finds the most utilization. The second one finds
 * the fewest adjusted jobs with that utilization. The third one finds the fewest moved containers
 * with both.
 *
 * The solver computes with rounding errors. Its answer is rounded to whole containers, and taken
 * only if it keeps all limits exactly.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "partition/dorm.h"

enum {
    CELLS_MAX = 1000000, /* columns x; the memory limit of tony-exact ends larger ones anyway */
};

/* Solvers ignore improvements below about 1e-5. Scaled by this, those are 1e-10 of utilization. */
static const double USE_SCALE = 1e5;
static const double USE_SLACK = 1e-9;

enum aim { MOST_USE, FEWEST_ADJUSTED, FEWEST_MOVED };

struct entry {
    int row, col;
    double value;
};

struct model {
    struct dorm_problem *p;
    enum aim aim;
    bool no_memory;
    VEC(double) lo, hi, cost, guess;
    VEC(bool) whole;
    VEC(double) row_lo, row_hi;
    VEC(struct entry) entries;
    VEC(struct dorm_change) cells; /* job and node of the columns x, which are the first columns */
    uint32_t *first;               /* [n + 1]: the first cell of each job */
    int *start, *row;
    double *value;
};

static void model_done(struct model *m)
{
    vec_done(&m->lo);
    vec_done(&m->hi);
    vec_done(&m->cost);
    vec_done(&m->guess);
    vec_done(&m->whole);
    vec_done(&m->row_lo);
    vec_done(&m->row_hi);
    vec_done(&m->entries);
    vec_done(&m->cells);
    free(m->first);
    free(m->start);
    free(m->row);
    free(m->value);
}

static int add_col(struct model *m, double lo, double hi, double cost, bool whole, double guess)
{
    m->no_memory |= vec_push(&m->lo, lo) < 0 || vec_push(&m->hi, hi) < 0 ||
                    vec_push(&m->cost, cost) < 0 || vec_push(&m->whole, whole) < 0 ||
                    vec_push(&m->guess, guess) < 0;
    return (int)m->lo.n - 1;
}

static int add_row(struct model *m, double lo, double hi)
{
    m->no_memory |= vec_push(&m->row_lo, lo) < 0 || vec_push(&m->row_hi, hi) < 0;
    return (int)m->row_lo.n - 1;
}

static void add_entry(struct model *m, int row, int col, double value)
{
    struct entry entry = { row, col, value };
    m->no_memory |= vec_push(&m->entries, entry) < 0;
}

/* The containers that the job has on the node now. */
static uint32_t has_on(const struct dorm_job *job, uint32_t node)
{
    for (uint32_t a = 0; a < job->n_at; a++)
        if (job->at[a].node == node)
            return job->at[a].n;
    return 0;
}

/* ---- the columns x, with the limits of nodes and jobs */

static void add_cells(struct model *m, const struct dorm_state *best)
{
    const struct dorm_problem *p = m->p;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct dorm_job *job = &p->jobs[i];
        m->first[i] = (uint32_t)m->cells.n;
        for (uint32_t v = 0; v < p->n_nodes && !m->no_memory; v++) {
            uint32_t j = p->place_of[v]; /* CBC is often faster with the caller's order */
            uint32_t now = has_on(job, j), fit = dorm_fit(&p->cap[(size_t)j * p->m], job->d, p->m);
            struct dorm_change cell = { .job = i, .node = j, .n = (int32_t)now };
            fit = MAX(MIN(fit, job->hi), now);
            if (fit == 0)
                continue;
            bool pinned = job->kind == DORM_PINNED;
            double cost = m->aim == MOST_USE                                ? -job->u * USE_SCALE
                          : m->aim == FEWEST_MOVED && job->runs && now == 0 ? 1
                                                                            : 0;
            m->no_memory |= vec_push(&m->cells, cell) < 0;
            add_col(m, pinned ? now : 0, pinned ? now : fit, cost, true,
                    best ? dorm_on(best, i, j) : 0);
        }
    }
    m->first[p->n] = (uint32_t)m->cells.n;
}

static void limit_nodes(struct model *m)
{
    const struct dorm_problem *p = m->p;
    int first = (int)m->row_lo.n;
    for (uint32_t j = 0; j < p->n_nodes * p->m; j++)
        add_row(m, -INFINITY, 1);
    for (size_t c = 0; c < m->cells.n; c++) {
        const struct dorm_change *cell = &m->cells.v[c];
        for (uint32_t k = 0; k < p->m; k++) {
            size_t at = (size_t)cell->node * p->m + k;
            if (p->jobs[cell->job].d[k] > 0)
                add_entry(m, first + (int)(p->node_of[cell->node] * p->m + k), (int)c,
                          (double)p->jobs[cell->job].d[k] / (double)p->cap[at]);
        }
    }
}

/* A row whose entries are the x of the job, each times `value`. */
static int add_count_row(struct model *m, uint32_t i, double lo, double hi, double value)
{
    int row = add_row(m, lo, hi);
    for (uint32_t c = m->first[i]; c < m->first[i + 1]; c++)
        add_entry(m, row, (int)c, value);
    return row;
}

static void limit_counts(struct model *m)
{
    for (uint32_t i = 0; i < m->p->n; i++)
        add_count_row(m, i, m->p->jobs[i].lo, m->p->jobs[i].hi, 1);
}

/* ---- the bounds on loss and adjustments */

static void limit_loss(struct model *m, const struct dorm_state *best)
{
    const struct dorm_problem *p = m->p;
    int sum = add_row(m, -INFINITY, dorm_loss_limit(p));
    for (uint32_t i = 0; i < p->n; i++) {
        const struct dorm_job *job = &p->jobs[i];
        double ideal = job->ideal, far = MAX((double)job->hi, ideal);
        int e = add_col(m, 0, far, 0, false, best ? fabs(best->n[i] - ideal) : 0);
        add_entry(m, sum, e, job->D);
        add_entry(m, add_count_row(m, i, -INFINITY, ideal, 1), e, -1);
        add_entry(m, add_count_row(m, i, ideal, INFINITY, 1), e, 1);
    }
}

static void limit_adjustments(struct model *m, const struct dorm_state *best, uint32_t most)
{
    const struct dorm_problem *p = m->p;
    int sum = add_row(m, -INFINITY, most);
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->jobs[i].kind != DORM_COUNTED)
            continue;
        int r = add_col(m, 0, 1, m->aim == FEWEST_ADJUSTED, true, best && best->moved[i] > 0);
        add_entry(m, sum, r, 1);
        for (uint32_t c = m->first[i]; c < m->first[i + 1]; c++) {
            double now = m->cells.v[c].n, most_here = m->hi.v[c];
            if (most_here > now) { /* x <= now + r * (most_here - now) */
                int row = add_row(m, -INFINITY, now);
                add_entry(m, row, (int)c, 1);
                add_entry(m, row, r, now - most_here);
            }
            if (now > 0) { /* x >= now - r * now */
                int row = add_row(m, now, INFINITY);
                add_entry(m, row, (int)c, 1);
                add_entry(m, row, r, now);
            }
        }
    }
}

/* ---- rows that keep the results of the earlier programs */

static void keep_use(struct model *m, double use)
{
    int row = add_row(m, (use - USE_SLACK) * USE_SCALE, INFINITY);
    for (size_t c = 0; c < m->cells.n; c++)
        add_entry(m, row, (int)c, m->p->jobs[m->cells.v[c].job].u * USE_SCALE);
}

static void count_moved(struct model *m, const struct dorm_state *best)
{
    for (size_t c = 0; c < m->cells.n; c++) {
        const struct dorm_change *cell = &m->cells.v[c];
        double now = cell->n;
        if (now == 0)
            continue;
        double there = best ? dorm_on(best, cell->job, cell->node) : 0;
        int y = add_col(m, 0, MAX(now, m->hi.v[c]), 1, false, fabs(there - now));
        int above = add_row(m, -INFINITY, now), below = add_row(m, now, INFINITY);
        add_entry(m, above, (int)c, 1);
        add_entry(m, above, y, -1);
        add_entry(m, below, (int)c, 1);
        add_entry(m, below, y, 1);
    }
}

/* ---- a program and its answer */

/* Sort the entries, which have any order, into columns. */
static void sort_entries(struct model *m)
{
    size_t n = m->lo.n;
    m->start = calloc(n + 2, sizeof *m->start);
    m->row = calloc(m->entries.n + 1, sizeof *m->row);
    m->value = calloc(m->entries.n + 1, sizeof *m->value);
    if (m->no_memory || !m->start || !m->row || !m->value) {
        m->no_memory = true;
        return;
    }
    for (size_t i = 0; i < m->entries.n; i++)
        m->start[m->entries.v[i].col + 2]++;
    for (size_t c = 2; c < n + 2; c++)
        m->start[c] += m->start[c - 1];
    for (size_t i = 0; i < m->entries.n; i++) {
        const struct entry *entry = &m->entries.v[i];
        int at = m->start[entry->col + 1]++; /* start[c + 1] ends as the end of column c */
        m->row[at] = entry->row;
        m->value[at] = entry->value;
    }
}

static bool too_large(const struct dorm_problem *p)
{
    return (uint64_t)p->n * p->n_nodes > CELLS_MAX;
}

/* Make the model. If the loaded state is feasible, it becomes the guess. */
static void model_make(struct model *m, struct dorm_search *s)
{
    struct dorm_problem *p = s->p;
    const struct dorm_state *best = NULL;
    m->p = p;
    if (dorm_has_division(s)) {
        dorm_plan_load(&s->best, &s->state);
        best = &s->state;
    }
    m->first = calloc((size_t)p->n + 1, sizeof *m->first);
    m->no_memory = !m->first;
    if (m->no_memory)
        return;
    add_cells(m, best);
    limit_nodes(m);
    limit_counts(m);
    limit_loss(m, best);
    limit_adjustments(m, best, m->aim == FEWEST_MOVED ? s->best.score.adjusted : p->adjust_bound);
    if (m->aim != MOST_USE)
        keep_use(m, s->best.score.util);
    if (m->aim == FEWEST_MOVED)
        count_moved(m, best);
    if (!best)
        m->guess.n = 0;
    sort_entries(m);
}

/* Rounded to whole containers, does x keep the capacity of each node? */
static bool within_nodes(const struct model *m, const double *x)
{
    const struct dorm_problem *p = m->p;
    int64_t *free_now = dorm_alloc(m->p, (size_t)p->n_nodes * p->m, sizeof *free_now);
    if (!free_now)
        return false;
    memcpy(free_now, p->cap, (size_t)p->n_nodes * p->m * sizeof *free_now);
    for (size_t c = 0; c < m->cells.n; c++) {
        const struct dorm_change *cell = &m->cells.v[c];
        for (uint32_t k = 0; k < p->m; k++) {
            int64_t *left = &free_now[(size_t)cell->node * p->m + k];
            *left -= llround(x[c]) * p->jobs[cell->job].d[k];
            if (*left < 0)
                return false;
        }
    }
    return true;
}

/* Make x the best allocation if it is better. False: it breaks a limit by a rounding error. */
static bool take(struct dorm_search *s, const struct model *m, const double *x)
{
    if (!within_nodes(m, x))
        return false;
    dorm_state_keep(&s->state);
    for (int grow = 0; grow <= 1; grow++)
        for (size_t c = 0; c < m->cells.n; c++) {
            const struct dorm_change *cell = &m->cells.v[c];
            int64_t more = llround(x[c]) - cell->n;
            if (more != 0 && (more > 0) == grow)
                dorm_put(&s->state, cell->job, cell->node, (int32_t)more);
        }
    dorm_forget(&s->state);
    struct dorm_score score = dorm_score(&s->state);
    bool good = !(score.bad > 0) && !s->p->failed;
    if (good && (!s->best.any || dorm_compare(&score, &s->best.score) > 0))
        dorm_plan_save(&s->best, &s->state);
    return good;
}

/* Solve one program. bound: a lower bound of its cost. */
static enum part_solved solve(struct dorm_search *s, const struct part_solver *solver, enum aim aim,
                              double *bound)
{
    AUTO(model_done) struct model m = { .aim = aim };
    enum part_solved solved = PART_SOLVED_NOT;
    *bound = -INFINITY;
    model_make(&m, s);
    double *x = m.no_memory ? NULL : calloc(m.lo.n + 1, sizeof *x);
    if (x) {
        struct part_program program = { .n_cols = (int)m.lo.n,
                                        .n_rows = (int)m.row_lo.n,
                                        .lo = m.lo.v,
                                        .hi = m.hi.v,
                                        .cost = m.cost.v,
                                        .whole = m.whole.v,
                                        .row_lo = m.row_lo.v,
                                        .row_hi = m.row_hi.v,
                                        .start = m.start,
                                        .row = m.row,
                                        .value = m.value,
                                        .guess = m.guess.n ? m.guess.v : NULL };
        solved = solver->solve(solver->ctx, &program, x, bound);
        if (solved >= PART_SOLVED_SOME && !take(s, &m, x))
            solved = PART_SOLVED_NOT;
    }
    free(x);
    return solved;
}

enum dorm_proof dorm_solve(struct dorm_search *s, const struct part_solver *solver)
{
    double bound;
    if (too_large(s->p) || s->p->failed)
        return DORM_UNKNOWN;
    enum part_solved solved = solve(s, solver, MOST_USE, &bound);
    if (solved == PART_SOLVED_IMPOSSIBLE && !dorm_has_division(s))
        return DORM_IMPOSSIBLE;
    if (isfinite(bound) && solved != PART_SOLVED_IMPOSSIBLE)
        s->prices.upper = MIN(s->prices.upper, -bound / USE_SCALE + USE_SLACK);
    if (solved != PART_SOLVED_BEST)
        return DORM_UNKNOWN;
    if (s->best.score.adjusted > 0 && solve(s, solver, FEWEST_ADJUSTED, &bound) != PART_SOLVED_BEST)
        return DORM_BEST_USE;
    if (s->best.score.changed > 0 && solve(s, solver, FEWEST_MOVED, &bound) != PART_SOLVED_BEST)
        return DORM_BEST_USE;
    return DORM_BEST;
}
