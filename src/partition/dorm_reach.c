/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The room on a node that no container can use.
 *
 * If no running job on node j changes, the node keeps their containers. Only the rest can be given
 * to other jobs:
 *
 *   rest[j][k] = c[j][k] - sum over the running jobs i of p[i][j] * d[i][k]
 *
 * (A job that lost containers may always change, so the rest includes what it holds.) Often only
 * few combinations of containers fit into the rest, and a part of it stays unused for certain:
 *
 *   reach[j][k] = at least the amount of type k that any set of containers within rest[j] can use
 *   waste[j][k] = (rest[j][k] - reach[j][k]) / C_k
 *
 * So for each allowed division, each node and each t[j] from 0 to 1, with v[j] = the number of
 * running jobs on j that change:
 *
 *   used[j][k] / C_k <= c[j][k] / C_k - t[j] * waste[j][k] * (1 - v[j])
 *
 * Proof: if v[j] = 0, this is what the definition of reach says (or less). If v[j] >= 1, it is not
 * stricter than the capacity. The sum of this over the nodes of class g is a limit on the class
 * that the prices (dorm_bound.c) use instead of its capacity:
 *
 *   used[g][k] / C_k <= share[g][k] - lost[g][k] + sum over the changed jobs i of freed[i][g][k]
 *   lost[g][k]     = sum over j in g of t[j] * waste[j][k]
 *   freed[i][g][k] = sum over j in g with p[i][j] > 0 of t[j] * waste[j][k]
 *
 * t[j] (`part` in struct dorm_waste) is chosen like a price: it falls where more than one job
 * changes, else it rises.
 */
#include "partition/dorm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

enum {
    PACKINGS = 64, /* sets of containers that are tried for one node */
    /* nodes * demands * types: in larger problems no room is called waste */
    COMPARISONS_MAX = 24000000,
};

struct packing {
    const int64_t *const *fit; /* the demands that fit into the empty room */
    uint32_t n, m;
    int64_t all[PART_TYPES_MAX];   /* the room */
    int64_t most[PART_TYPES_MAX];  /* an upper limit of the use of each type */
    int64_t found[PART_TYPES_MAX]; /* the most that one of the sets so far uses */
    unsigned left;                 /* sets that may still be tried */
    bool cut;                      /* there are more sets than that */
};

static bool found_most(const struct packing *p)
{
    for (uint32_t k = 0; k < p->m; k++)
        if (p->found[k] < p->most[k])
            return false;
    return true;
}

/* Add containers of the demands from `from` on, in all ways. room: what is left. */
static void add(struct packing *p, uint32_t from, const int64_t *room)
{
    for (uint32_t k = 0; k < p->m; k++)
        p->found[k] = MAX(p->found[k], p->all[k] - room[k]);
    if (p->left == 0) {
        p->cut = true;
        return;
    }
    p->left--;
    for (uint32_t c = from; c < p->n && !p->cut && !found_most(p); c++) {
        int64_t less[PART_TYPES_MAX];
        if (!dorm_fits(room, p->fit[c], p->m))
            continue;
        for (uint32_t k = 0; k < p->m; k++)
            less[k] = room[k] - p->fit[c][k];
        add(p, c, less);
    }
}

/* floor(n * num / den), at most `most`. All are >= 0, den > 0. */
static int64_t scale(int64_t n, int64_t num, int64_t den, int64_t most)
{
    int64_t product;
    if (!__builtin_mul_overflow(n, num, &product))
        return MIN(most, product / den);
    return (int64_t)MIN((__int128)most, (__int128)n * num / den);
}

/* Limit the use of each type: to a multiple of the common divisor of all demands, and to the use of
 * each other type times the largest ratio of the two in a demand. The ratios are fractions of whole
 * numbers: a rounding error would take a whole container from the limit. */
static void limit_most(struct packing *p)
{
    /* [k][a]: the largest ratio of type k to type a is num / den; den = 0: there is no largest */
    int64_t num[PART_TYPES_MAX][PART_TYPES_MAX], den[PART_TYPES_MAX][PART_TYPES_MAX];
    int64_t divisor[PART_TYPES_MAX] = { 0 };
    for (uint32_t k = 0; k < p->m; k++)
        for (uint32_t a = 0; a < p->m; a++) {
            num[k][a] = 0;
            den[k][a] = 1;
        }
    for (uint32_t c = 0; c < p->n; c++)
        for (uint32_t k = 0; k < p->m; k++) {
            int64_t d = p->fit[c][k];
            divisor[k] = dorm_common_divisor(divisor[k], d);
            for (uint32_t a = 0; a < p->m && d > 0; a++) {
                int64_t other = p->fit[c][a];
                if (other == 0) {
                    den[k][a] = 0;
                } else if (den[k][a] > 0 && (__int128)d * den[k][a] > (__int128)num[k][a] * other) {
                    num[k][a] = d;
                    den[k][a] = other;
                }
            }
        }
    for (unsigned pass = 0; pass < 2; pass++)
        for (uint32_t k = 0; k < p->m; k++) {
            for (uint32_t a = 0; a < p->m; a++)
                if (den[k][a] > 0)
                    p->most[k] = scale(p->most[a], num[k][a], den[k][a], p->most[k]);
            p->most[k] = divisor[k] ? p->most[k] - p->most[k] % divisor[k] : 0;
        }
}

void dorm_reach(const int64_t *const *demands, uint32_t n, const int64_t **scratch,
                const int64_t *room, uint32_t m, int64_t *reach)
{
    struct packing p = { .fit = scratch, .m = m, .left = PACKINGS };
    for (uint32_t c = 0; c < n; c++)
        if (dorm_fits(room, demands[c], m))
            scratch[p.n++] = demands[c];
    memcpy(p.all, room, sizeof(*room) * m);
    memcpy(p.most, room, sizeof(*room) * m);
    if (p.n == 0) {
        memset(reach, 0, sizeof(*reach) * m);
        return;
    }
    limit_most(&p);
    add(&p, 0, room);
    memcpy(reach, p.cut ? p.most : p.found, sizeof(*reach) * m);
}

/* ---- the waste of all nodes */

/* Jobs with equal demands are neighbours; larger demands come first. */
static int by_demand(const void *a, const void *b, void *ctx)
{
    const struct dorm_problem *p = ctx;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    for (uint32_t k = p->m; k-- > 0;)
        if (p->jobs[x].d[k] != p->jobs[y].d[k])
            return p->jobs[x].d[k] > p->jobs[y].d[k] ? -1 : 1;
    return x < y ? -1 : x > y;
}

int dorm_waste_init(struct dorm_problem *p)
{
    struct dorm_waste *w = &p->waste;
    size_t cells = (size_t)p->n_nodes * p->m, row = (size_t)p->n_classes * p->m;
    w->order = dorm_alloc(p, p->n_all, sizeof(*w->order));
    w->demands = dorm_alloc(p, p->n_all, sizeof(*w->demands));
    w->scratch = dorm_alloc(p, p->n_all, sizeof(*w->scratch));
    w->rest = dorm_alloc(p, cells, sizeof(*w->rest));
    w->waste = dorm_alloc(p, cells, sizeof(*w->waste));
    w->part = dorm_alloc(p, p->n_nodes, sizeof(*w->part));
    w->n_change = dorm_alloc(p, p->n_nodes, sizeof(*w->n_change));
    w->lost = dorm_alloc(p, row, sizeof(*w->lost));
    w->freed = dorm_alloc(p, p->n_running * row, sizeof(*w->freed));
    if (p->failed)
        return -ENOMEM;
    for (uint32_t i = 0; i < p->n_all; i++)
        w->order[i] = i;
    qsort_r(w->order, p->n_all, sizeof(*w->order), by_demand, p);
    memcpy(w->rest, p->cap, sizeof(*w->rest) * cells);
    for (uint32_t i = 0; i < p->n_running; i++)
        for (uint32_t a = 0; a < p->jobs[i].n_at && p->jobs[i].kind != DORM_LOOSE; a++)
            for (uint32_t k = 0; k < p->m; k++)
                w->rest[(size_t)p->jobs[i].at[a].node * p->m + k] -=
                    p->jobs[i].d[k] * p->jobs[i].at[a].n;
    return 0;
}

/* List the different demands of the jobs that may get other containers. Returns their number. */
static uint32_t list_demands(const struct dorm_problem *p)
{
    const struct dorm_waste *w = &p->waste;
    uint32_t n = 0;
    for (uint32_t c = 0; c < p->n_all; c++) {
        const struct dorm_job *job = &p->jobs[w->order[c]];
        if (w->order[c] >= p->n || job->kind == DORM_PINNED)
            continue;
        if (n == 0 || memcmp(w->demands[n - 1], job->d, sizeof(*job->d) * p->m) != 0)
            w->demands[n++] = job->d;
    }
    return n;
}

void dorm_waste_find(struct dorm_problem *p)
{
    struct dorm_waste *w = &p->waste;
    uint32_t n = list_demands(p), m = p->m;
    w->any = false;
    for (uint32_t j = 0; j < p->n_nodes; j++)
        w->part[j] = 1;
    if ((uint64_t)n * p->n_nodes * m > COMPARISONS_MAX)
        return;
    for (uint32_t j = 0; j < p->n_nodes; j++) {
        int64_t reach[PART_TYPES_MAX];
        const int64_t *rest = w->rest + (size_t)j * m;
        double *waste = w->waste + (size_t)j * m;
        if (j > 0 && memcmp(rest, rest - m, sizeof(*rest) * m) == 0) {
            memcpy(waste, waste - m, sizeof(*waste) * m);
            continue;
        }
        dorm_reach(w->demands, n, w->scratch, rest, m, reach);
        for (uint32_t k = 0; k < m; k++) {
            waste[k] = (double)(rest[k] - reach[k]) * p->inv[k];
            w->any |= waste[k] > 0;
        }
        dorm_work(&p->work, n / 4 + 1);
    }
}

void dorm_waste_sum(struct dorm_problem *p)
{
    struct dorm_waste *w = &p->waste;
    uint32_t m = p->m, row = p->n_classes * m;
    if (!w->any)
        return;
    memset(w->lost, 0, sizeof(*w->lost) * row);
    memset(w->freed, 0, sizeof(*w->freed) * row * p->n_running);
    for (uint32_t j = 0; j < p->n_nodes; j++)
        for (uint32_t k = 0; k < m; k++)
            w->lost[p->class_of[j] * m + k] += w->part[j] * w->waste[(size_t)j * m + k];
    for (uint32_t i = 0; i < p->n_running; i++) {
        if (p->jobs[i].kind != DORM_COUNTED)
            continue;
        double *freed = w->freed + (size_t)i * row;
        for (uint32_t a = 0; a < p->jobs[i].n_at; a++) {
            uint32_t j = p->jobs[i].at[a].node;
            for (uint32_t k = 0; k < m; k++)
                freed[p->class_of[j] * m + k] += w->part[j] * w->waste[(size_t)j * m + k];
        }
    }
}

void dorm_waste_step(struct dorm_problem *p, const bool *changes, double step)
{
    struct dorm_waste *w = &p->waste;
    if (!w->any)
        return;
    memset(w->n_change, 0, sizeof(*w->n_change) * p->n_nodes);
    for (uint32_t i = 0; i < p->n_running; i++)
        if (p->jobs[i].kind == DORM_COUNTED && changes[i])
            for (uint32_t a = 0; a < p->jobs[i].n_at; a++)
                w->n_change[p->jobs[i].at[a].node]++;
    for (uint32_t j = 0; j < p->n_nodes; j++)
        w->part[j] = MIN(MAX(w->part[j] + step * (1 - (double)w->n_change[j]), 0.0), 1.0);
    dorm_waste_sum(p);
}
