/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of dorm_rooms.h. It is filled by rising room:
 *
 *   f(room) = max over v of f(room - d_v) + pi_v
 *
 * A row of the table has one amount of each type but one, the inner type, of which the largest node
 * has most units. So the inner loop runs over neighbours. Each row is filled only as far as a node
 * reaches that has so much of the other types. Cells with f = -infinity lie before each row: a room
 * that is too small for a container reads these, so the loop needs no test for it.
 */
#include "partition/dorm_rooms.h"

#include <math.h>
#include <string.h>

#include "base/util.h"

enum {
    CELLS_MAX = 300000,
    WITH_FRONTS_MAX = 600000, /* the same with the cells before each row */
    WORK_MAX = 15000000,      /* cells * demands */
    SHIFT_MAX = 20,
    PART = 32,        /* cells of a row that are computed at once */
    FRONT = PART,     /* cells before each row, for rooms that are too small for a container */
    STEP_CELLS = 512, /* cells * demands of one step */
};

/* Number the different demands, and find the units. */
static void list_demands(struct dorm_rooms *r)
{
    struct dorm_problem *p = r->p;
    const int64_t *last = NULL;
    for (uint32_t c = 0; c < p->n_all; c++) {
        uint32_t i = p->waste.order[c];
        const struct dorm_job *job = &p->jobs[i];
        if (i >= p->n || job->kind == DORM_FIXED)
            continue;
        if (!last || memcmp(last, job->d, sizeof(*last) * r->m) != 0)
            r->example[r->n_demands++] = i;
        last = job->d;
        r->demand_of[i] = r->n_demands - 1;
        for (uint32_t k = 0; k < r->m; k++)
            r->unit[k] = dorm_common_divisor(job->d[k], r->unit[k]);
    }
}

/* Set sizes and strides for the present shifts. Returns the number of cells. */
static double lay_out(struct dorm_rooms *r, const int64_t *largest)
{
    double cells = 1;
    uint32_t inner = 0;
    for (uint32_t k = 0; k < r->m; k++) {
        double size = (double)((r->unit[k] > 0 ? largest[k] : 0) >> r->shift[k]) + 1;
        r->size[k] = (uint32_t)MIN(size, (double)UINT32_MAX);
        cells *= size;
        if (r->size[k] > r->size[inner])
            inner = k;
    }
    size_t stride = 1;
    for (uint32_t c = 0; c < r->m; c++) {
        uint32_t k = c == 0 ? inner : c == inner ? 0 : c;
        r->order[c] = k;
        r->stride[k] = stride;
        stride *= c == 0 ? FRONT + (r->size[k] + PART - 1) / PART * PART : r->size[k];
    }
    r->cells = stride;
    r->row = r->m > 1 ? r->stride[r->order[1]] : stride;
    return cells;
}

/* Choose the table's cells. False: the demands are too different for a table of this size. */
static bool shape(struct dorm_rooms *r, uint32_t times)
{
    struct dorm_problem *p = r->p;
    int64_t largest[PART_TYPES_MAX] = { 0 };
    for (uint32_t k = 0; k < r->m; k++)
        for (uint32_t j = 0; j < p->n_nodes && r->unit[k] > 0; j++)
            largest[k] = MAX(largest[k], p->cap[(size_t)j * r->m + k] / r->unit[k]);
    for (double cells; (cells = lay_out(r, largest) / times) > CELLS_MAX ||
                       r->cells / times > WITH_FRONTS_MAX || cells * r->n_demands > WORK_MAX;)
        if (++r->shift[r->order[0]] > SHIFT_MAX)
            return false;
    r->f = dorm_alloc(p, r->cells, sizeof(*r->f));
    r->extent = dorm_alloc(p, r->cells / r->row, sizeof(*r->extent));
    r->sources = dorm_alloc(p, r->n_demands, sizeof(*r->sources));
    r->d = dorm_alloc(p, (size_t)r->n_demands * r->m, sizeof(*r->d));
    r->need = dorm_alloc(p, (size_t)r->n_demands * r->m, sizeof(*r->need));
    r->offset = dorm_alloc(p, r->n_demands, sizeof(*r->offset));
    for (uint32_t v = 0; v < r->n_demands && !p->failed; v++) {
        const int64_t *of = p->jobs[r->example[v]].d;
        for (uint32_t k = 0; k < r->m; k++) {
            int64_t need = r->unit[k] > 0 ? of[k] / r->unit[k] : 0, d = need >> r->shift[k];
            r->need[(size_t)v * r->m + k] = need;
            r->d[(size_t)v * r->m + k] = (uint32_t)MIN(d, (int64_t)UINT32_MAX);
            r->offset[v] += (size_t)d * r->stride[k];
            r->rounded |= need != d << r->shift[k];
        }
        if (r->offset[v] == 0) /* any number would fit */
            return false;
    }
    for (size_t row = 0; row < r->cells && !p->failed; row += r->row)
        for (uint32_t b = 0; b < FRONT; b++)
            r->f[row + b] = -INFINITY;
    return !p->failed;
}

/* List the demands that are worth looking at: no other demand needs no more and pays no less. Those
 * that use only the inner type come last. Returns their number. */
static uint32_t list_active(struct dorm_rooms *r)
{
    uint32_t m = r->m, n = 0;
    for (int within = 0; within <= 1; within++) {
        for (uint32_t v = 0; v < r->n_demands; v++) {
            const uint32_t *d = r->d + (size_t)v * m;
            bool useful = r->pi[v] > 0, other_row = false;
            for (uint32_t k = 0; k < m; k++)
                other_row |= k != r->order[0] && d[k] > 0;
            for (uint32_t w = 0; w < r->n_demands && useful && other_row != within; w++) {
                const uint32_t *e = r->d + (size_t)w * m;
                bool better = r->pi[w] > r->pi[v] || (r->pi[w] == r->pi[v] && w < v);
                for (uint32_t k = 0; k < m && better; k++)
                    better = e[k] <= d[k];
                useful = !better;
            }
            if (useful && other_row != within)
                r->active[n++] = v;
        }
        if (!within)
            r->n_across = n;
    }
    return n;
}

/* List the sources of the row with these amounts: the demands that fit into them, by rising
 * `least`. extent: the cells of the row that are needed. Returns their number. */
static uint32_t list_sources(const struct dorm_rooms *r, const uint32_t *at, uint32_t extent,
                             struct dorm_source *sources)
{
    uint32_t n = 0, inner = r->order[0];
    for (uint32_t c = 0; c < r->n_across; c++) {
        uint32_t v = r->by_least[c];
        const uint32_t *d = r->d + (size_t)v * r->m;
        bool fits = true;
        if (d[inner] >= extent)
            break;
        for (uint32_t k = 0; k < r->m; k++)
            fits &= k == inner || d[k] <= at[k];
        if (fits)
            sources[n++] = (struct dorm_source){ r->offset[v], (float)r->pi[v], d[inner] };
    }
    return n;
}

/* Set PART cells of a row, from cell `first` of the row on, to the most that a source gives. */
static inline __attribute__((always_inline)) void
fill_part(float *to, uint32_t first, const struct dorm_source *sources, uint32_t n)
{
    float best[PART] = { 0 };
    for (uint32_t c = 0; c < n && sources[c].least < first + PART; c++) {
        const float *from = to - sources[c].back;
        float price = sources[c].price;
        for (uint32_t b = 0; b < PART; b++) {
            float v = from[b] + price;
            best[b] = v > best[b] ? v : best[b];
        }
    }
    memcpy(to, best, sizeof(best));
}

/* Fill the table from the active demands, as far as r->extent says. For more room, f is larger (or
 * equal) by itself: so it is in the first row, and each source of a room is also one of a larger
 * room. */
static inline __attribute__((always_inline)) void fill(const struct dorm_rooms *r)
{
    uint32_t at[PART_TYPES_MAX] = { 0 };
    float *f = r->f + FRONT;
    for (size_t row = 0; row * r->row < r->cells; row++, f += r->row) {
        uint32_t extent = r->extent[row];
        uint32_t n = extent > 0 ? list_sources(r, at, extent, r->sources) : 0;
        for (uint32_t b = 0; b < extent; b += PART)
            fill_part(f + b, b, r->sources, n);
        for (uint32_t c = r->n_across; c < r->n_active && extent > 0; c++) {
            uint32_t v = r->active[c];
            float price = (float)r->pi[v];
            for (uint32_t b = (uint32_t)r->offset[v]; b < extent; b++)
                f[b] = MAX(f[b], f[b - r->offset[v]] + price);
        }
        for (uint32_t c = 1; c < r->m; c++) { /* the next row */
            if (++at[r->order[c]] < r->size[r->order[c]])
                break;
            at[r->order[c]] = 0;
        }
    }
}

DORM_WIDE static void fill_wide(const struct dorm_rooms *r)
{
    fill(r);
}

static void fill_narrow(const struct dorm_rooms *r)
{
    fill(r);
}

/* Sort the demands that use more than the inner type by what they need of it. */
static void sort_active(struct dorm_rooms *r)
{
    const uint32_t *d = r->d + r->order[0];
    for (uint32_t c = 0; c < r->n_across; c++) {
        uint32_t v = r->active[c], at = c;
        for (; at > 0 && d[r->by_least[at - 1] * r->m] > d[v * r->m]; at--)
            r->by_least[at] = r->by_least[at - 1];
        r->by_least[at] = v;
    }
}

void dorm_rooms_fill(struct dorm_rooms *r)
{
    r->n_active = list_active(r);
    sort_active(r);
    if (dorm_is_wide())
        fill_wide(r);
    else
        fill_narrow(r);
    dorm_work(&r->p->work, r->extents * (r->n_active + 4) / STEP_CELLS + r->n_demands);
}

void dorm_rooms_limit(struct dorm_rooms *r, const int64_t *rooms, uint32_t n)
{
    size_t rows = r->cells / r->row;
    memset(r->extent, 0, sizeof(*r->extent) * rows);
    for (uint32_t c = 0; c < n; c++) {
        size_t cell = dorm_rooms_cell(r, rooms + (size_t)c * r->m);
        uint32_t *extent = &r->extent[cell / r->row];
        *extent = MAX(*extent, (uint32_t)(cell % r->row) - FRONT + 1);
    }
    for (uint32_t c = 1; c < r->m; c++) { /* the rows of smaller rooms need as many cells */
        size_t stride = r->stride[r->order[c]] / r->row, size = r->size[r->order[c]];
        for (size_t row = rows - stride; row-- > 0;)
            if (row / stride % size + 1 < size)
                r->extent[row] = MAX(r->extent[row], r->extent[row + stride]);
    }
    r->extents = 0;
    for (size_t row = 0; row < rows; row++)
        r->extents += r->extent[row];
}

void dorm_rooms_limit_to_nodes(struct dorm_rooms *r)
{
    dorm_rooms_limit(r, r->largest, r->p->n_nodes);
}

size_t dorm_rooms_cell(const struct dorm_rooms *r, const int64_t *room)
{
    size_t cell = FRONT;
    for (uint32_t k = 0; k < r->m; k++) {
        int64_t at = room[k] >> r->shift[k];
        cell += r->stride[k] * (size_t)MIN(at, (int64_t)r->size[k] - 1);
    }
    return cell;
}

double dorm_rooms_worth(const struct dorm_rooms *r, const int64_t *room)
{
    return dorm_rooms_at(r, dorm_rooms_cell(r, room));
}

double dorm_rooms_at(const struct dorm_rooms *r, size_t cell)
{
    return (double)r->f[cell] * (1 + DORM_ROOMS_SLACK);
}

/* List the room that is free on each node, and the jobs that could leave more. */
static void list_nodes(struct dorm_rooms *r)
{
    struct dorm_problem *p = r->p;
    uint32_t m = r->m, places = 0;
    for (uint32_t i = 0; i < p->n_running; i++)
        for (uint32_t a = 0; a < p->jobs[i].n_at; a++)
            if (p->jobs[i].kind == DORM_COUNTED) {
                r->first[p->jobs[i].at[a].node + 2]++;
                places++;
            }
    for (uint32_t j = 0; j < p->n_nodes; j++) {
        r->first[j + 2] += r->first[j + 1];
        for (uint32_t k = 0; k < m; k++)
            r->rest[(size_t)j * m + k] =
                r->unit[k] > 0 ? p->waste.rest[(size_t)j * m + k] / r->unit[k] : 0;
    }
    r->held = dorm_alloc(p, places, sizeof(*r->held));
    for (uint32_t i = 0; i < p->n_running && !p->failed; i++)
        for (uint32_t a = 0; a < p->jobs[i].n_at; a++)
            if (p->jobs[i].kind == DORM_COUNTED)
                r->held[r->first[p->jobs[i].at[a].node + 1]++] =
                    (struct dorm_held){ i, p->jobs[i].at[a].n };
}

void dorm_rooms_more(const struct dorm_rooms *r, uint32_t i, int64_t n, const int64_t *room,
                     int64_t *more)
{
    for (uint32_t k = 0; k < r->m; k++)
        more[k] = room[k] + r->need[r->demand_of[i] * r->m + k] * n;
}

void dorm_rooms_room(const struct dorm_rooms *r, uint32_t j, uint32_t set, int64_t *room)
{
    uint32_t m = r->m, n = r->first[j + 1] - r->first[j];
    memcpy(room, r->rest + (size_t)j * m, sizeof(*room) * m);
    for (uint32_t c = 0; c < n; c++) {
        const struct dorm_held *held = &r->held[r->first[j] + c];
        if (set >> MIN(c, 31u) & 1)
            dorm_rooms_more(r, held->job, held->n, room, room);
    }
}

double dorm_rooms_buy(const struct dorm_job *job, double pi, double mu, double *n)
{
    double at[] = { job->lo, MIN(MAX(job->ideal, job->lo), job->hi), job->hi }, best = -INFINITY;
    for (unsigned c = 0; c < 3; c++) {
        double value = (job->u - pi) * at[c] - mu * job->D * fabs(at[c] - job->ideal);
        if (value > best) {
            best = value;
            *n = at[c];
        }
    }
    return best;
}

uint32_t dorm_rooms_fit(const struct dorm_rooms *r, uint32_t v, const int64_t *room)
{
    return dorm_fit(room, r->need + (size_t)v * r->m, r->m);
}

void dorm_rooms_less(const struct dorm_rooms *r, uint32_t v, uint32_t n, const int64_t *room,
                     int64_t *rest)
{
    for (uint32_t k = 0; k < r->m; k++)
        rest[k] = room[k] - r->need[(size_t)v * r->m + k] * n;
}

/* Move to the least room that is worth as much as the cell. at: its amounts. */
static size_t shrink(const struct dorm_rooms *r, size_t cell, uint32_t *at)
{
    for (uint32_t k = 0; k < r->m; k++) {
        uint32_t low = 0, high = at[k];
        while (low < high) {
            uint32_t mid = low + (high - low) / 2;
            if (r->f[cell - (at[k] - mid) * r->stride[k]] < r->f[cell])
                low = mid + 1;
            else
                high = mid;
        }
        cell -= (at[k] - low) * r->stride[k];
        at[k] = low;
    }
    return cell;
}

/* Is a container of demand v part of what this room is worth? */
static bool sells(const struct dorm_rooms *r, uint32_t v, size_t cell, const uint32_t *at)
{
    const uint32_t *d = r->d + (size_t)v * r->m;
    for (uint32_t k = 0; k < r->m; k++)
        if (d[k] > at[k])
            return false;
    return r->f[cell - r->offset[v]] + (float)r->pi[v] == r->f[cell];
}

void dorm_rooms_sell(const struct dorm_rooms *r, size_t cell, double n, double *sold)
{
    uint32_t at[PART_TYPES_MAX];
    for (uint32_t k = 0; k < r->m; k++)
        at[k] =
            (uint32_t)(k == r->order[0] ? cell % r->row - FRONT : cell / r->stride[k] % r->size[k]);
    while (r->f[cell] > 0) {
        uint32_t c = 0;
        cell = shrink(r, cell, at);
        while (c < r->n_active && !sells(r, r->active[c], cell, at))
            c++;
        if (c == r->n_active)
            return; /* cannot happen: f(cell) came from one of them */
        uint32_t v = r->active[c];
        do { /* often several containers of one demand */
            sold[v] += n;
            for (uint32_t k = 0; k < r->m; k++)
                at[k] -= r->d[(size_t)v * r->m + k];
            cell -= r->offset[v];
        } while (r->f[cell] > 0 && sells(r, v, cell, at));
    }
}

/* ---- prices to start with */

/* The price of a container of demand v that follows from the class prices: the cost in the cheapest
 * classes that together hold as many containers as the jobs want at this price. Beside the costs,
 * the values of a container below and above the ideal count are tried. dear: the price may be above
 * these values, as the minima may force jobs to buy at a higher one. */
static double clearing_price(const struct dorm_rooms *r, const struct dorm_prices *prices,
                             uint32_t v, bool dear)
{
    const struct dorm_problem *p = r->p;
    const struct dorm_job *job = &p->jobs[r->example[v]];
    double cost[DORM_CLASSES_MAX], supply[DORM_CLASSES_MAX] = { 0 }, mu = prices->least_loss;
    double price = job->u + mu * job->D, n;
    uint32_t G = p->n_classes;
    for (uint32_t g = 0; g < G; g++) {
        cost[g] = 0;
        for (uint32_t k = 0; k < r->m; k++)
            cost[g] += prices->least[g * r->m + k] * job->dn[k];
    }
    for (uint32_t g = 0; g < G && dear; g++)
        price = MAX(price, cost[g]);
    for (uint32_t k = 0; k < p->n_kinds; k++)
        supply[p->kinds[k].class] +=
            (double)dorm_fit(p->cap + (size_t)p->kinds[k].node * r->m, job->d, r->m) *
            p->kinds[k].n;
    for (uint32_t g = 0; g < G + 2; g++) {
        double value = job->u + (g == G ? -1 : 1) * mu * job->D;
        double at = g < G ? cost[g] : value, offered = 0, wanted = 0;
        if (at < 0 || at >= price)
            continue;
        for (uint32_t h = 0; h < G; h++)
            offered += cost[h] <= at ? supply[h] : 0;
        for (uint32_t i = 0; i < p->n && offered >= wanted; i++)
            if (p->jobs[i].kind != DORM_FIXED && r->demand_of[i] == v) {
                (void)dorm_rooms_buy(&p->jobs[i], at + 1e-12, mu, &n);
                wanted += n;
            }
        if (offered >= wanted)
            price = at;
    }
    return price;
}

void dorm_rooms_start(struct dorm_rooms *r, const struct dorm_prices *prices, bool dear)
{
    for (uint32_t v = 0; v < r->n_demands; v++)
        r->pi[v] = clearing_price(r, prices, v, dear);
    dorm_work(&r->p->work, (uint64_t)r->p->n * r->p->n_classes);
}

bool dorm_rooms_init(struct dorm_rooms *r, struct dorm_problem *p, uint32_t times)
{
    *r = (struct dorm_rooms){ .p = p, .m = p->m };
    r->demand_of = dorm_alloc(p, p->n_all, sizeof(*r->demand_of));
    r->example = dorm_alloc(p, p->n_all, sizeof(*r->example));
    r->rest = dorm_alloc(p, (size_t)p->n_nodes * r->m, sizeof(*r->rest));
    r->first = dorm_alloc(p, (size_t)p->n_nodes + 2, sizeof(*r->first));
    if (p->failed)
        return false;
    list_demands(r);
    r->pi = dorm_alloc(p, r->n_demands, sizeof(*r->pi));
    r->active = dorm_alloc(p, r->n_demands, sizeof(*r->active));
    r->by_least = dorm_alloc(p, r->n_demands, sizeof(*r->by_least));
    if (r->n_demands == 0 || !shape(r, times))
        return false;
    list_nodes(r);
    r->largest = dorm_alloc(p, (size_t)p->n_nodes * r->m, sizeof(*r->largest));
    if (p->failed)
        return false;
    for (uint32_t j = 0; j < p->n_nodes; j++)
        dorm_rooms_room(r, j, ~0u, r->largest + (size_t)j * r->m);
    dorm_rooms_limit_to_nodes(r);
    return true;
}
