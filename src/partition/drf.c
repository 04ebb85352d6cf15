/* SPDX-License-Identifier: Apache-2.0 */
/* The rule of drf.h, and the policy `drf`: each job gets its count. */
#include "partition/drf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "partition/part_int.h"

typedef unsigned __int128 u128;

/* A job that may still get containers: it has n, and may have at most cap. Its level is its
 * dominant share divided by its weight: n * num / den. The job with the lowest level gets the next
 * container. */
struct filler {
    uint32_t job;
    uint32_t n, cap;
    uint64_t num; /* demand of the dominant type: <= 2^40 */
    u128 den;     /* capacity of that type times weight: <= 2^67 */
};

struct filling {
    const struct part_job *jobs;
    struct part_amount left;
    uint32_t n_types;
    struct filler *v; /* a heap with the lowest level at the top */
    size_t n;
    uint32_t *counts; /* of all jobs: the result */
};

void part_caps(const struct part_cluster *c, const struct part_job *jobs, size_t n, uint32_t *caps)
{
    struct part_classes classes;
    part_classes(c, &classes);
    for (size_t i = 0; i < n; i++)
        caps[i] = part_classes_fit(&classes, &jobs[i].demand, jobs[i].max);
}

/* Is a's level lower than b's? At equal levels the earlier job comes first. The products are below
 * 2^127, since a count is below 2^20. */
static bool lower(const struct filler *a, const struct filler *b)
{
    u128 x = (u128)(a->n * a->num) * b->den, y = (u128)(b->n * b->num) * a->den;
    return x != y ? x < y : a->job < b->job;
}

static void sift_down(struct filling *f, size_t i)
{
    struct filler moved = f->v[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= f->n)
            break;
        if (child + 1 < f->n && lower(&f->v[child + 1], &f->v[child]))
            child++;
        if (!lower(&f->v[child], &moved))
            break;
        f->v[i] = f->v[child];
        i = child;
    }
    f->v[i] = moved;
}

static void heapify(struct filling *f)
{
    for (size_t i = f->n / 2; i-- > 0;)
        sift_down(f, i);
}

static bool take(struct filling *f, const struct part_amount *demand, uint32_t n)
{
    for (uint32_t k = 0; k < f->n_types; k++)
        if (demand->v[k] * (int64_t)n > f->left.v[k])
            return false;
    part_take(&f->left, demand, f->n_types, n, -1);
    return true;
}

/* Level p stands for the level p / 2^LEVEL_BITS. All levels are shares, so at most 1. */
enum { LEVEL_BITS = 59 };

/* The number of containers of the job when all jobs have got containers up to level p. */
static uint32_t count_at(const struct filler *f, uint64_t p)
{
    u128 over = (u128)p * f->den;            /* < 2^127 */
    u128 under = (u128)f->num << LEVEL_BITS; /* < 2^100 */
    if (over >= under * f->cap)              /* < 2^120 */
        return f->cap;
    uint32_t n = (uint32_t)((over + under - 1) / under);
    return MAX(n, f->n);
}

/* Do all containers that the jobs get up to level p fit into f->left? apply: if they fit, give them
 * to the jobs. */
static bool fill_to(struct filling *f, uint64_t p, bool apply)
{
    struct part_amount left = f->left;
    for (size_t i = 0; i < f->n; i++) {
        struct filler *v = &f->v[i];
        uint32_t n = count_at(v, p);
        part_take(&left, &f->jobs[v->job].demand, f->n_types, n - v->n, -1);
        for (uint32_t k = 0; k < f->n_types; k++)
            if (left.v[k] < 0)
                return false;
        if (apply)
            v->n = n;
    }
    if (apply)
        f->left = left;
    return true;
}

/* Give many containers at once. If all containers up to a level fit, none of them would be refused
 * one by one. So the result equals that of single steps up to this level. Returns the number of
 * containers. */
static uint64_t fill_bulk(struct filling *f)
{
    uint64_t given = 0;
    uint64_t fits = 0, fails = (UINT64_C(1) << LEVEL_BITS) + 1;
    while (fails - fits > 1) {
        uint64_t middle = fits + (fails - fits) / 2;
        if (fill_to(f, middle, false))
            fits = middle;
        else
            fails = middle;
    }
    fill_to(f, fits, true);
    for (size_t i = 0; i < f->n;) {
        given += f->v[i].n - f->counts[f->v[i].job];
        f->counts[f->v[i].job] = f->v[i].n;
        if (f->v[i].n == f->v[i].cap)
            f->v[i] = f->v[--f->n];
        else
            i++;
    }
    heapify(f);
    return given;
}

static void fill(struct filling *f)
{
    /* fill_bulk() takes about as long as this number of single steps for each job. If it gave more
     * containers than that, the next one follows after about one step for each job. */
    enum { STEPS_PER_BULK = 64 };
    uint64_t steps = 0, until = STEPS_PER_BULK;
    heapify(f);
    while (f->n > 0) {
        struct filler *v = &f->v[0];
        bool got = take(f, &f->jobs[v->job].demand, 1);
        v->n += got;
        f->counts[v->job] = v->n;
        if (!got || v->n == v->cap)
            *v = f->v[--f->n];
        if (f->n > 0)
            sift_down(f, 0);
        if (++steps >= until * f->n) {
            steps = 0;
            until = fill_bulk(f) > STEPS_PER_BULK * f->n ? 1 : STEPS_PER_BULK;
        }
    }
}

/* Find the dominant type of the job: that of which its container needs the largest part of the
 * cluster. The fractions are compared without rounding. */
static struct filler filler_of(const struct part_job *job, const struct part_amount *total,
                               uint32_t n_types)
{
    struct filler f = { .num = 0, .den = 1 };
    for (uint32_t k = 0; k < n_types; k++) {
        uint64_t num = (uint64_t)job->demand.v[k], den = (uint64_t)total->v[k];
        if (den > 0 && (u128)num * f.den > (u128)f.num * den)
            f = (struct filler){ .num = num, .den = den };
    }
    f.den *= job->weight;
    return f;
}

int part_drf(const struct part_cluster *c, const struct part_job *jobs, size_t n,
             const uint32_t *caps, uint32_t *counts)
{
    AUTO(free_p) uint32_t *own_caps = NULL;
    AUTO(free_p) struct filler *v = malloc(n * sizeof *v + 1);
    struct filling f = { .jobs = jobs, .n_types = c->n_types, .v = v, .counts = counts };
    if (!v)
        return -ENOMEM;
    if (!caps) {
        own_caps = malloc(n * sizeof *own_caps + 1);
        if (!own_caps)
            return -ENOMEM;
        part_caps(c, jobs, n, own_caps);
        caps = own_caps;
    }
    struct part_amount total;
    part_total(c, &total);
    f.left = total;
    for (size_t i = 0; i < n; i++) {
        counts[i] = 0;
        if (caps[i] < jobs[i].min || !take(&f, &jobs[i].demand, jobs[i].min))
            continue;
        counts[i] = jobs[i].min;
        if (jobs[i].min == caps[i])
            continue;
        v[f.n] = filler_of(&jobs[i], &total, c->n_types);
        v[f.n].job = (uint32_t)i;
        v[f.n].n = jobs[i].min;
        v[f.n++].cap = caps[i];
    }
    fill(&f);
    return 0;
}

/* ---- the policy ---- */

/* Pinned jobs come first and want exactly what they have. */
static int want_counts(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                       const uint32_t *job_caps, uint32_t *want)
{
    AUTO(free_p) struct part_job *order = malloc(n * sizeof *order + 1);
    AUTO(free_p) uint32_t *caps = malloc(n * sizeof *caps + 1);
    AUTO(free_p) uint32_t *counts = malloc(n * sizeof *counts + 1);
    AUTO(free_p) uint32_t *from = malloc(n * sizeof *from + 1);
    size_t m = 0;
    if (!order || !caps || !counts || !from)
        return -ENOMEM;
    for (int pinned = 1; pinned >= 0; pinned--)
        for (size_t i = 0; i < n; i++) {
            if (jobs[i].pinned != (pinned != 0))
                continue;
            order[m] = jobs[i];
            caps[m] = job_caps[i];
            if (pinned)
                order[m].min = order[m].max = caps[m] = part_count(&jobs[i]);
            from[m++] = (uint32_t)i;
        }
    int rc = part_drf(c, order, m, caps, counts);
    for (size_t i = 0; rc == 0 && i < m; i++)
        want[from[i]] = counts[i];
    return rc;
}

struct fair {
    const struct part_cluster *c;
    const struct part_job *jobs;
    size_t n;
    struct part_decision *out;
};

static int count_fairly(void *ctx, const uint32_t *caps, uint32_t *want)
{
    const struct fair *f = ctx;
    int rc = want_counts(f->c, f->jobs, f->n, caps, want);
    for (size_t i = 0; i < f->n && rc == 0; i++)
        f->out->jobs[i].ideal = want[i];
    return rc;
}

int drf_decide(const struct part_cluster *c, const struct part_job *jobs, size_t n,
               const struct part_options *o, struct part_decision *out)
{
    struct fair f = { c, jobs, n, out };
    uint32_t *caps = part_alloc(out, n * sizeof *caps + 1);
    if (!caps)
        return -ENOMEM;
    part_caps(c, jobs, n, caps);
    return part_give_counts(c, jobs, n, caps, count_fairly, &f, PART_BECAUSE_FAIR, o->repack,
                            o->repack, out);
}
