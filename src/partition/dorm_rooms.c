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
    CELLS_MAX = 500000,
    WITH_FRONTS_MAX = 1000000, /* the same with the cells before each row */
    ROWS_MAX = 100000,
    WORK_MAX = 80000000, /* cells * demands that fit into their row */
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
        if (i >= p->n || job->kind == DORM_PINNED)
            continue;
        if (!last || memcmp(last, job->d, sizeof(*last) * r->m) != 0)
            r->example[r->n_demands++] = i;
        last = job->d;
        r->demand_of[i] = r->n_demands - 1;
        for (uint32_t k = 0; k < r->m; k++)
            r->unit[k] = dorm_common_divisor(job->d[k], r->unit[k]);
    }
}

/* Set the sizes, and the strides of the rows, for the present shifts. Returns the number of rows.
 */
static double lay_out(struct dorm_rooms *r, const int64_t *largest)
{
    double rows = 1;
    uint32_t inner = 0;
    for (uint32_t k = 0; k < r->m; k++) {
        double size = (double)((r->unit[k] > 0 ? largest[k] : 0) >> r->shift[k]) + 1;
        r->size[k] = (uint32_t)MIN(size, (double)UINT32_MAX);
        rows *= size;
        if (r->size[k] > r->size[inner])
            inner = k;
    }
    r->n_rows = 1;
    for (uint32_t c = 0; c < r->m; c++) {
        uint32_t k = c == 0 ? inner : c == inner ? 0 : c;
        r->order[c] = k;
        r->stride[k] = c == 0 ? 0 : r->n_rows;
        r->n_rows *= c == 0 ? 1 : r->size[k];
    }
    return rows / r->size[inner];
}

/* The row with these units of each type. */
static size_t row_of(const struct dorm_rooms *r, const int64_t *room)
{
    size_t row = 0;
    for (uint32_t k = 0; k < r->m; k++)
        row += r->stride[k] * (size_t)MIN(room[k] >> r->shift[k], (int64_t)r->size[k] - 1);
    return row;
}

/* The cell of this row. */
static uint32_t inner_of(const struct dorm_rooms *r, const int64_t *room)
{
    uint32_t k = r->order[0];
    return (uint32_t)MIN(room[k] >> r->shift[k], (int64_t)r->size[k] - 1);
}

void dorm_rooms_limit(struct dorm_rooms *r, const int64_t *rooms, uint32_t n)
{
    memset(r->extent, 0, sizeof(*r->extent) * r->n_rows);
    r->is_filled = false;
    for (uint32_t c = 0; c < n; c++) {
        const int64_t *room = rooms + (size_t)c * r->m;
        uint32_t *extent = &r->extent[row_of(r, room)];
        *extent = MAX(*extent, inner_of(r, room) + 1);
    }
    for (uint32_t c = 1; c < r->m; c++) { /* the rows of smaller rooms need as many cells */
        size_t stride = r->stride[r->order[c]], size = r->size[r->order[c]];
        for (size_t row = r->n_rows - stride; row-- > 0;)
            if (row / stride % size + 1 < size)
                r->extent[row] = MAX(r->extent[row], r->extent[row + stride]);
    }
    r->extents = 0;
    for (size_t row = 0; row < r->n_rows; row++)
        r->extents += r->extent[row];
}

/* Set `at` to the amounts of the next row, in cells. */
static void next_row(const struct dorm_rooms *r, uint32_t *at)
{
    for (uint32_t c = 1; c < r->m; c++) {
        if (++at[r->order[c]] < r->size[r->order[c]])
            return;
        at[r->order[c]] = 0;
    }
}

/* Do the cells of a container of demand v fit into the row with these amounts? */
static bool fits_row(const struct dorm_rooms *r, uint32_t v, const uint32_t *at)
{
    const uint32_t *d = r->d + (size_t)v * r->m;
    bool fits = true;
    for (uint32_t k = 0; k < r->m; k++)
        fits &= k == r->order[0] || d[k] <= at[k];
    return fits;
}

/* Set need and d for the present shifts. False: any number of some container would fit. */
static bool set_demands(struct dorm_rooms *r)
{
    bool any = true;
    r->rounded = false;
    r->most_next = 0;
    for (uint32_t v = 0; v < r->n_demands; v++) {
        const int64_t *of = r->p->jobs[r->example[v]].d;
        int64_t cells = 0;
        r->rows_back[v] = 0;
        for (uint32_t k = 0; k < r->m; k++) {
            int64_t need = r->unit[k] > 0 ? of[k] / r->unit[k] : 0, d = need >> r->shift[k];
            r->need[(size_t)v * r->m + k] = need;
            r->d[(size_t)v * r->m + k] = (uint32_t)MIN(d, (int64_t)UINT32_MAX);
            r->rounded |= need != d << r->shift[k];
            r->rows_back[v] += r->stride[k] * (size_t)d;
            cells |= d;
        }
        any &= cells > 0;
        r->most_next = MAX(r->most_next, r->d[(size_t)v * r->m + r->order[1]]);
    }
    return any;
}

/* The steps of filling all rows from all demands: cells * demands that fit into their row. */
static double work_of(const struct dorm_rooms *r)
{
    uint32_t at[PART_TYPES_MAX] = { 0 };
    double work = 0;
    for (size_t row = 0; row < r->n_rows; row++, next_row(r, at)) {
        uint32_t n = 0;
        for (uint32_t v = 0; v < r->n_demands && r->extent[row] > 0; v++)
            n += fits_row(r, v, at);
        work += (double)n * r->extent[row];
    }
    return work;
}

/* Place the reachable rows one after the other, each behind its front. Returns the cells. */
static size_t place_rows(const struct dorm_rooms *r, size_t *start)
{
    size_t cells = 0;
    for (size_t row = 0; row < r->n_rows; row++) {
        uint32_t extent = r->extent[row];
        cells += extent > 0 ? FRONT : 0;
        if (start)
            start[row] = cells;
        cells += (extent + PART - 1) / PART * PART;
    }
    return cells;
}

/* Is the table for the present shifts too large? times: see dorm_rooms_init(). */
static bool is_too_large(struct dorm_rooms *r, const int64_t *rooms, uint32_t n, uint32_t times)
{
    dorm_rooms_limit(r, rooms, n);
    return r->extents / times > CELLS_MAX || place_rows(r, NULL) / times > WITH_FRONTS_MAX ||
           ((double)r->extents * r->n_demands / times > WORK_MAX && work_of(r) / times > WORK_MAX);
}

/* Set the slack: no node has more containers than the sum over the types of its cells divided by
 * the least number of cells, above 0, of a demand. Each container needs a cell of some type. */
static void set_slack(struct dorm_rooms *r)
{
    double most = 0;
    for (uint32_t k = 0; k < r->m; k++) {
        uint32_t least = UINT32_MAX;
        for (uint32_t v = 0; v < r->n_demands; v++)
            if (r->d[(size_t)v * r->m + k] > 0)
                least = MIN(least, r->d[(size_t)v * r->m + k]);
        most += (r->size[k] - 1) / least;
    }
    r->slack = MAX(DORM_ROOMS_SLACK, DORM_ROOMS_SLACK_OF_ONE * (most + 1));
}

/* Choose the table's cells. False: the demands are too different for a table of this size. */
static bool shape(struct dorm_rooms *r, uint32_t times)
{
    struct dorm_problem *p = r->p;
    int64_t largest[PART_TYPES_MAX] = { 0 };
    int64_t *rooms = dorm_alloc(p, (size_t)p->n_kinds * r->m, sizeof(*rooms));
    r->d = dorm_alloc(p, (size_t)r->n_demands * r->m, sizeof(*r->d));
    r->need = dorm_alloc(p, (size_t)r->n_demands * r->m, sizeof(*r->need));
    r->sources = dorm_alloc(p, r->n_demands, sizeof(*r->sources));
    r->rows_back = dorm_alloc(p, r->n_demands, sizeof(*r->rows_back));
    if (p->failed)
        return false;
    for (uint32_t c = 0; c < p->n_kinds; c++)
        for (uint32_t k = 0; k < r->m; k++) {
            int64_t cap = p->cap[(size_t)p->kinds[c].node * r->m + k];
            rooms[(size_t)c * r->m + k] = r->unit[k] > 0 ? cap / r->unit[k] : 0;
            largest[k] = MAX(largest[k], rooms[(size_t)c * r->m + k]);
        }
    while (lay_out(r, largest) > ROWS_MAX)
        if (++r->shift[r->order[0]] > SHIFT_MAX)
            return false;
    r->extent = dorm_alloc(p, r->n_rows, sizeof(*r->extent)); /* later there are no more rows */
    r->start = dorm_alloc(p, r->n_rows, sizeof(*r->start));
    if (p->failed)
        return false;
    while (set_demands(r) && is_too_large(r, rooms, p->n_kinds, times)) {
        if (++r->shift[r->order[0]] > SHIFT_MAX)
            return false;
        (void)lay_out(r, largest);
    }
    if (!set_demands(r))
        return false;
    set_slack(r);
    r->cells = place_rows(r, r->start);
    r->f = dorm_alloc(p, r->cells, sizeof(*r->f));
    for (size_t row = 0; row < r->n_rows && !p->failed; row++)
        for (uint32_t b = 1; b <= FRONT && r->extent[row] > 0; b++)
            r->f[r->start[row] - b] = -INFINITY;
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
 * `least`. Returns their number. */
static uint32_t list_sources(const struct dorm_rooms *r, const uint32_t *at)
{
    uint32_t n = 0, inner = r->order[0];
    for (uint32_t c = 0; c < r->n_across; c++) {
        uint32_t v = r->by_least[c];
        if (fits_row(r, v, at))
            r->sources[n++] = (struct dorm_source){ .rows_back = r->rows_back[v],
                                                    .price = (float)r->pi[v],
                                                    .least = r->d[(size_t)v * r->m + inner] };
    }
    return n;
}

/* Set `back` of the n sources for this row. Returns the number of those that some cell of the row
 * can hold. */
static uint32_t find_sources(const struct dorm_rooms *r, size_t row, uint32_t n)
{
    uint32_t c = 0;
    for (; c < n && r->sources[c].least < r->extent[row]; c++)
        r->sources[c].back =
            r->start[row] - r->start[row - r->sources[c].rows_back] + r->sources[c].least;
    return c;
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
    uint32_t at[PART_TYPES_MAX] = { 0 }, fit = 0;
    for (size_t row = 0; row < r->n_rows; row++, next_row(r, at)) {
        uint32_t extent = r->extent[row];
        if (at[r->order[1]] <= r->most_next) /* else the same demands fit as into the row before */
            fit = list_sources(r, at);
        if (extent == 0)
            continue;
        float *f = r->f + r->start[row];
        uint32_t n = find_sources(r, row, fit);
        for (uint32_t b = 0; b < extent; b += PART)
            fill_part(f + b, b, r->sources, n);
        for (uint32_t c = r->n_across; c < r->n_active; c++) {
            uint32_t v = r->active[c], d = r->d[(size_t)v * r->m + r->order[0]];
            float price = (float)r->pi[v];
            for (uint32_t b = d; b < extent; b++)
                f[b] = MAX(f[b], f[b - d] + price);
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
    if (r->is_filled && memcmp(r->filled, r->pi, sizeof(*r->pi) * r->n_demands) == 0)
        return;
    memcpy(r->filled, r->pi, sizeof(*r->pi) * r->n_demands);
    r->is_filled = true;
    r->n_active = list_active(r);
    sort_active(r);
    if (dorm_is_wide())
        fill_wide(r);
    else
        fill_narrow(r);
    dorm_work(&r->p->work, r->extents * (r->n_active + 4) / STEP_CELLS + r->n_demands);
}

void dorm_rooms_limit_to_nodes(struct dorm_rooms *r)
{
    dorm_rooms_limit(r, r->largest, r->p->n_nodes);
}

size_t dorm_rooms_cell(const struct dorm_rooms *r, const int64_t *room)
{
    return r->start[row_of(r, room)] + inner_of(r, room);
}

double dorm_rooms_worth(const struct dorm_rooms *r, const int64_t *room)
{
    return dorm_rooms_at(r, dorm_rooms_cell(r, room));
}

double dorm_rooms_at(const struct dorm_rooms *r, size_t cell)
{
    return (double)r->f[cell] * (1 + r->slack);
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
        double value = (job->u - pi) * at[c] - dorm_loss_cost(job, at[c], mu);
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

/* A room, in cells. */
struct place_in_table {
    uint32_t at[PART_TYPES_MAX];
    size_t row;
    float worth;
};

/* Set `at` to the amounts of the room with this cell. */
static void amounts_of(const struct dorm_rooms *r, size_t cell, struct place_in_table *room)
{
    size_t low = 0, high = r->n_rows;
    while (high - low > 1) { /* the last row that starts no later */
        size_t mid = low + (high - low) / 2;
        if (r->start[mid] <= cell)
            low = mid;
        else
            high = mid;
    }
    room->row = low;
    for (uint32_t c = 1; c < r->m; c++) {
        uint32_t k = r->order[c];
        room->at[k] = (uint32_t)(low / r->stride[k] % r->size[k]);
    }
    room->at[r->order[0]] = (uint32_t)(cell - r->start[low]);
    room->worth = r->f[cell];
}

/* Reduce the amounts to the least room that is worth as much. */
static void shrink(const struct dorm_rooms *r, struct place_in_table *room)
{
    for (uint32_t k = 0; k < r->m; k++) {
        uint32_t low = 0, high = room->at[k], inner = r->order[0];
        while (low < high) {
            uint32_t mid = low + (high - low) / 2;
            size_t row = room->row - (room->at[k] - mid) * r->stride[k];
            if (r->f[r->start[row] + (k == inner ? mid : room->at[inner])] < room->worth)
                low = mid + 1;
            else
                high = mid;
        }
        room->row -= (room->at[k] - low) * r->stride[k];
        room->at[k] = low;
    }
}

/* Is a container of demand v part of what this room is worth? Then it leaves the room. */
static bool sell_one(const struct dorm_rooms *r, uint32_t v, struct place_in_table *room)
{
    const uint32_t *d = r->d + (size_t)v * r->m;
    uint32_t inner = r->order[0];
    for (uint32_t k = 0; k < r->m; k++)
        if (d[k] > room->at[k])
            return false;
    size_t row = room->row - r->rows_back[v];
    float worth = r->f[r->start[row] + room->at[inner] - d[inner]];
    if (!(room->worth > 0) || worth + (float)r->pi[v] != room->worth)
        return false;
    for (uint32_t k = 0; k < r->m; k++)
        room->at[k] -= d[k];
    room->row = row;
    room->worth = worth;
    return true;
}

void dorm_rooms_sell(const struct dorm_rooms *r, size_t cell, double n, double *sold)
{
    struct place_in_table room;
    amounts_of(r, cell, &room);
    while (room.worth > 0) {
        uint32_t c = 0;
        shrink(r, &room);
        while (c < r->n_active && !sell_one(r, r->active[c], &room))
            c++;
        if (c == r->n_active)
            return; /* cannot happen: the worth came from one of them */
        do          /* often several containers of one demand */
            sold[r->active[c]] += n;
        while (sell_one(r, r->active[c], &room));
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
            if (p->jobs[i].kind != DORM_PINNED && r->demand_of[i] == v) {
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
    r->filled = dorm_alloc(p, r->n_demands, sizeof(*r->filled));
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
