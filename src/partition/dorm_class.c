/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides the nodes into classes. The nodes of a class have common prices (dorm_bound.c).
 *
 * If there are at most DORM_CLASSES_MAX different capacities, each is a class. Else nodes of
 * different capacity have to share a class. Any division gives a right bound. It is good if all
 * nodes of a class offer their types in about the same proportions: the prices add up the room of a
 * class, as if free cores of one node could be used with free memory of another one. What node j
 * offers of type k is its capacity less what its running jobs will probably keep:
 *
 *   offer[j][k] = (c[j][k] - (1 - a) * sum over the counted jobs i of p[i][j] * d[i][k]
 *                          - sum over the pinned jobs i of p[i][j] * d[i][k]) / C_k
 *   a           = the part of the counted jobs that may be adjusted
 *   mix[j][k]   = offer[j][k] / weight[j];  weight[j] = sum over k of offer[j][k]
 *
 * At first all nodes are one class. Then the class with the largest spread is split. The spread of
 * a class in a type is the sum of weight[j] * (mix[j][k] - mean)^2 over its nodes. The class is
 * split at the mean, which counts each node by its weight.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "partition/dorm.h"

/* If there are more than DORM_CLASSES_MAX capacities, the nodes are split into this many classes.
 * With more classes, the few rounds of the search for prices would not come near the best prices.
 */
enum { MIXES_MAX = 2 };

/* A class is split only if its spread is more than this part of the weight of all nodes. */
static const double LEAST_SPREAD = 1e-4;

struct part {
    uint32_t first, n; /* its nodes: order[first .. first + n) */
    uint32_t type;     /* the type with the largest spread */
    double spread, mean;
};

struct division {
    struct dorm_problem *p;
    double *mix, *weight; /* [node][m], [node] */
    uint32_t *order, *scratch;
    struct part parts[DORM_CLASSES_MAX];
    uint32_t n;
    bool from_one; /* there are too many capacities */
};

static bool equal_capacity(const struct dorm_problem *p, uint32_t a, uint32_t b)
{
    return memcmp(p->cap + (size_t)a * p->m, p->cap + (size_t)b * p->m, sizeof(*p->cap) * p->m) ==
           0;
}

/* Set mix and weight. */
static void find_offers(struct division *v, const struct part_job *jobs, size_t n)
{
    struct dorm_problem *p = v->p;
    uint32_t m = p->m, counted = 0;
    for (size_t i = 0; i < n; i++)
        counted += jobs[i].n_at > 0 && !jobs[i].lost && !jobs[i].pinned;
    double keep = counted > p->adjust_bound ? 1 - (double)p->adjust_bound / counted : 0;
    for (size_t c = 0; c < (size_t)p->n_nodes * m; c++)
        v->mix[c] = (double)p->cap[c] * p->inv[c % m];
    for (size_t i = 0; i < n; i++) {
        double part = jobs[i].pinned ? 1 : jobs[i].lost ? 0 : keep;
        for (uint32_t a = 0; a < jobs[i].n_at && part > 0; a++)
            for (uint32_t k = 0; k < m; k++)
                v->mix[(size_t)p->place_of[jobs[i].at[a].node] * m + k] -=
                    part * jobs[i].at[a].n * (double)jobs[i].demand.v[p->type[k]] * p->inv[k];
    }
    for (uint32_t j = 0; j < p->n_nodes; j++) {
        double *mix = v->mix + (size_t)j * m;
        for (uint32_t k = 0; k < m; k++)
            v->weight[j] += mix[k] = MAX(mix[k], 0.0);
        for (uint32_t k = 0; k < m && v->weight[j] > 0; k++)
            mix[k] /= v->weight[j];
    }
}

/* Set spread, type and mean of a part. */
static void measure(const struct division *v, struct part *part)
{
    uint32_t m = v->p->m;
    part->spread = 0;
    for (uint32_t k = 0; k < m; k++) {
        double weight = 0, sum = 0, squares = 0;
        for (uint32_t o = part->first; o < part->first + part->n; o++) {
            uint32_t j = v->order[o];
            double x = v->mix[(size_t)j * m + k];
            weight += v->weight[j];
            sum += v->weight[j] * x;
            squares += v->weight[j] * x * x;
        }
        double mean = weight > 0 ? sum / weight : 0, spread = squares - sum * mean;
        if (spread > part->spread) {
            part->spread = spread;
            part->type = k;
            part->mean = mean;
        }
    }
}

/* Split the part at its mean. False: all its nodes are on one side. */
static bool split(struct division *v, uint32_t at)
{
    struct part *part = &v->parts[at];
    uint32_t low = 0, high = 0, m = v->p->m;
    for (uint32_t o = part->first; o < part->first + part->n; o++) {
        uint32_t j = v->order[o];
        if (v->mix[(size_t)j * m + part->type] <= part->mean)
            v->order[part->first + low++] = j;
        else
            v->scratch[high++] = j;
    }
    memcpy(v->order + part->first + low, v->scratch, sizeof(*v->order) * high);
    part->spread = 0;
    if (low == 0 || high == 0)
        return false;
    v->parts[v->n] = (struct part){ .first = part->first + low, .n = high };
    part->n = low;
    measure(v, part);
    measure(v, &v->parts[v->n++]);
    return true;
}

/* The first parts: the different capacities, or one part. Equal nodes are neighbours
 * (dorm_order.c). */
static void begin(struct division *v)
{
    const struct dorm_problem *p = v->p;
    uint32_t kinds = p->n_nodes > 0;
    for (uint32_t j = 0; j < p->n_nodes; j++) {
        v->order[j] = j;
        kinds += j > 0 && !equal_capacity(p, j - 1, j);
    }
    v->from_one = kinds > DORM_CLASSES_MAX;
    for (uint32_t j = 0; j < p->n_nodes; j++) {
        if (j == 0 || (kinds <= DORM_CLASSES_MAX && !equal_capacity(p, j - 1, j)))
            v->parts[v->n++] = (struct part){ .first = j };
        v->parts[v->n - 1].n++;
    }
    for (uint32_t g = 0; g < v->n; g++)
        measure(v, &v->parts[g]);
}

static void add_classes(struct division *v)
{
    struct dorm_problem *p = v->p;
    p->n_classes = v->n;
    p->classes = dorm_alloc(p, v->n, sizeof(*p->classes));
    for (uint32_t g = 0; g < v->n && p->classes; g++) {
        struct dorm_class *class = &p->classes[g];
        class->size = v->parts[g].n;
        for (uint32_t o = v->parts[g].first; o < v->parts[g].first + class->size; o++) {
            uint32_t j = v->order[o];
            p->class_of[j] = g;
            for (uint32_t k = 0; k < p->m; k++)
                class->share[k] += (double)p->cap[(size_t)j * p->m + k] * p->inv[k];
        }
    }
}

/* List the kinds: nodes of equal capacity in the same class. */
static void list_kinds(struct dorm_problem *p)
{
    uint32_t kind[DORM_CLASSES_MAX], first = 0;
    for (uint32_t j = 0; j < p->n_nodes; j++) {
        uint32_t g = p->class_of[j];
        if (j == 0 || !equal_capacity(p, j - 1, j)) {
            memset(kind, 0xff, sizeof(kind));
            first = j;
        }
        if (kind[g] == UINT32_MAX) {
            kind[g] = p->n_kinds;
            p->kinds[p->n_kinds++] = (struct dorm_kind_of_node){ .node = first, .class = g };
        }
        p->kinds[kind[g]].n++;
    }
}

int dorm_classify(struct dorm_problem *p, const struct part_job *jobs, size_t n)
{
    struct division v = { .p = p };
    double all = 0;
    v.mix = dorm_alloc(p, (size_t)p->n_nodes * p->m, sizeof(*v.mix));
    v.weight = dorm_alloc(p, p->n_nodes, sizeof(*v.weight));
    v.order = dorm_alloc(p, p->n_nodes, sizeof(*v.order));
    v.scratch = dorm_alloc(p, p->n_nodes, sizeof(*v.scratch));
    p->class_of = dorm_alloc(p, p->n_nodes, sizeof(*p->class_of));
    p->kinds = dorm_alloc(p, p->n_nodes, sizeof(*p->kinds));
    if (p->failed)
        return -ENOMEM;
    find_offers(&v, jobs, n);
    begin(&v);
    for (uint32_t j = 0; j < p->n_nodes; j++)
        all += v.weight[j];
    while (p->n_nodes > 0 && v.from_one && v.n < MIXES_MAX) {
        uint32_t widest = 0;
        for (uint32_t g = 1; g < v.n; g++)
            if (v.parts[g].spread > v.parts[widest].spread)
                widest = g;
        if (!(v.parts[widest].spread > LEAST_SPREAD * all))
            break;
        (void)split(&v, widest); /* a part that cannot be split has no spread any more */
    }
    add_classes(&v);
    list_kinds(p);
    return p->failed ? -ENOMEM : 0;
}
