/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prepares the problem of `dorm` (struct dorm_problem in dorm.h): the types, the classes of nodes,
 * the jobs that can run with their limits, and the bounds B (loss) and Q (adjustments). Also counts
 * the work of the search.
 *
 *   C_k    = sum over the nodes of c_jk; m = the number of types with C_k > 0
 *   u_i    = sum over k of d_ik / C_k;  D_i = max over k of d_ik / C_k
 *   fit_ij = min over k with d_ik > 0 of floor(c_jk / d_ik)
 *   hi_i   = min(max_i, sum over j of fit_ij); a job with hi_i < min_i can never run
 *   B      = loss_max, or ceil(theta1 * 2 * m);  Q = adjust_max, or ceil(theta2 * counted jobs)
 * (ceil() with a margin of 1e-9, so that 0.1 * 30 does not become 4.)
 */
#include "partition/dorm.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "partition/drf.h"

enum {
    ASK_EVERY = 1024, /* steps between two calls of `stop`: a few microseconds */
};

void *dorm_alloc(struct dorm_problem *p, size_t n, size_t size)
{
    size_t bytes;
    void *memory = NULL;
    if (!__builtin_mul_overflow(MAX(n, (size_t)1), size, &bytes))
        memory = part_alloc(p->out, bytes);
    if (memory)
        memset(memory, 0, bytes);
    else
        p->failed = true;
    return memory;
}

void dorm_work_ask(struct dorm_work *w)
{
    w->ask_at = MIN(w->steps + ASK_EVERY, w->end);
    if (w->steps >= w->end || (w->stop && w->stop(w->ctx))) {
        w->over = true;
        w->ask_at = UINT64_MAX;
    }
}

/* ---- types, nodes, jobs */

static void init_nodes(struct dorm_problem *p)
{
    const struct part_cluster *c = p->cluster;
    struct part_amount total;
    part_total(c, &total);
    for (uint32_t k = 0; k < p->m; k++) {
        p->inv[k] = 1 / (double)total.v[p->type[k]];
        p->scarce[k] = true;
    }
    p->cap = dorm_alloc(p, (size_t)p->n_nodes * p->m, sizeof(*p->cap));
    for (uint32_t j = 0; p->cap && j < p->n_nodes; j++)
        for (uint32_t k = 0; k < p->m; k++) {
            int64_t v = c->nodes[p->node_of[j]].v[p->type[k]];
            p->cap[(size_t)j * p->m + k] = v;
            p->scarce[k] &= v <= DORM_FEW_UNITS;
        }
}

static void init_job(struct dorm_problem *p, struct dorm_job *job, const struct part_job *from,
                     uint32_t index)
{
    *job = (struct dorm_job){ .index = index, .lo = from->min, .hi = from->max };
    for (uint32_t k = 0; k < p->m; k++) {
        job->d[k] = from->demand.v[p->type[k]];
        job->dn[k] = (double)job->d[k] * p->inv[k];
        job->u += job->dn[k];
        job->D = MAX(job->D, job->dn[k]);
    }
    job->at = from->n_at > 0 ? dorm_order_places(p, from) : NULL;
    job->n_at = job->at ? from->n_at : 0;
    job->now = part_count(from);
    job->runs = from->n_at > 0;
    job->kind = !job->runs     ? DORM_LOOSE
                : from->pinned ? DORM_PINNED
                : from->lost   ? DORM_LOOSE
                               : DORM_COUNTED;
}

/* Does the job need a type of which the cluster has nothing? */
static bool needs_absent_type(const struct dorm_problem *p, const struct part_job *job)
{
    uint32_t needed = 0;
    for (uint32_t k = 0; k < p->cluster->n_types; k++)
        needed += job->demand.v[k] > 0;
    for (uint32_t t = 0; t < p->m; t++)
        needed -= job->demand.v[p->type[t]] > 0;
    return needed > 0;
}

/* Set hi, fit_class and at_class. False: the min of the job does not fit into the empty cluster. */
static bool limit_job(struct dorm_problem *p, uint32_t i, const struct part_job *from)
{
    struct dorm_job *job = &p->jobs[i];
    uint32_t *fit = p->fit_class + (size_t)i * p->n_classes;
    uint32_t *at = p->at_class + (size_t)i * p->n_classes;
    memset(fit, 0, sizeof(*fit) * p->n_classes);
    memset(at, 0, sizeof(*at) * p->n_classes);
    uint64_t sum = 0;
    if (needs_absent_type(p, from))
        return false;
    for (uint32_t k = 0; k < p->n_kinds; k++) {
        const int64_t *cap = p->cap + (size_t)p->kinds[k].node * p->m;
        uint64_t n = (uint64_t)dorm_fit(cap, job->d, p->m) * p->kinds[k].n;
        n = MIN(n + fit[p->kinds[k].class], (uint64_t)job->hi);
        sum += n - fit[p->kinds[k].class];
        fit[p->kinds[k].class] = (uint32_t)n;
    }
    for (uint32_t a = 0; a < job->n_at; a++)
        at[p->class_of[job->at[a].node]] += job->at[a].n;
    job->hi = (uint32_t)MIN(sum, (uint64_t)job->hi);
    return job->hi >= job->lo;
}

static void add_jobs(struct dorm_problem *p, const struct part_job *jobs, size_t n, bool running)
{
    for (size_t i = 0; i < n; i++) {
        if ((jobs[i].n_at > 0) != running)
            continue;
        init_job(p, &p->jobs[p->n_all], &jobs[i], (uint32_t)i);
        if (!limit_job(p, p->n_all, &jobs[i]) && !running)
            continue;
        p->drf_jobs[p->n_all] = jobs[i];
        p->drf_caps[p->n_all] = p->jobs[p->n_all].hi;
        p->n_all++;
    }
}

static int by_size(const void *a, const void *b, void *ctx)
{
    const struct dorm_problem *p = ctx;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    double v = p->jobs[x].D, w = p->jobs[y].D;
    return v > w ? -1 : v < w ? 1 : x < y ? -1 : x > y;
}

static void init_bounds(struct dorm_problem *p, const struct part_job *jobs, size_t n,
                        const struct part_options *o)
{
    size_t counted = 0;
    for (size_t i = 0; i < n; i++)
        counted += jobs[i].n_at > 0 && !jobs[i].lost;
    p->loss_bound = o->loss_max >= 0 ? o->loss_max : ceil(o->theta1 * 2 * p->m - 1e-9);
    double adjust =
        o->adjust_max >= 0 ? (double)o->adjust_max : ceil(o->theta2 * (double)counted - 1e-9);
    p->adjust_bound = (uint32_t)MIN(MAX(adjust, 0.0), (double)PART_JOBS_MAX);
    p->seed = o->seed;
    p->work = (struct dorm_work){
        .end = o->limit.steps ? o->limit.steps : UINT64_MAX,
        .stop = o->limit.stop,
        .ctx = o->limit.ctx,
    };
    p->work.ask_at = MIN((uint64_t)ASK_EVERY, p->work.end);
}

int dorm_problem_init(struct dorm_problem *p, const struct part_cluster *c,
                      const struct part_job *jobs, size_t n, const struct part_options *o,
                      struct part_decision *out)
{
    *p = (struct dorm_problem){ .out = out, .cluster = c, .n_nodes = c->n_nodes };
    if (dorm_order_types(p, jobs, n) < 0 || dorm_order_nodes(p, jobs, n) < 0)
        return -ENOMEM;
    init_nodes(p);
    if (p->failed)
        return -ENOMEM;
    init_bounds(p, jobs, n, o);
    if (dorm_classify(p, jobs, n) < 0)
        return -ENOMEM;
    p->jobs = dorm_alloc(p, n + 1, sizeof(*p->jobs));
    p->drf_jobs = dorm_alloc(p, n + 1, sizeof(*p->drf_jobs));
    p->drf_caps = dorm_alloc(p, n + 1, sizeof(*p->drf_caps));
    p->drf_counts = dorm_alloc(p, n + 1, sizeof(*p->drf_counts));
    p->big_first = dorm_alloc(p, n + 1, sizeof(*p->big_first));
    p->fit_class = dorm_alloc(p, (n + 1) * p->n_classes, sizeof(*p->fit_class));
    p->at_class = dorm_alloc(p, (n + 1) * p->n_classes, sizeof(*p->at_class));
    if (p->failed)
        return -ENOMEM;
    add_jobs(p, jobs, n, true);
    p->n_running = p->n_all;
    add_jobs(p, jobs, n, false);
    return p->failed ? -ENOMEM : dorm_waste_init(p);
}

int dorm_problem_admit(struct dorm_problem *p, uint32_t queued)
{
    p->n = p->n_running + queued;
    int rc = part_drf(p->cluster, p->drf_jobs, p->n, p->drf_caps, p->drf_counts);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < p->n; i++) {
        p->jobs[i].ideal = p->drf_counts[i];
        p->big_first[i] = i;
    }
    qsort_r(p->big_first, p->n, sizeof(*p->big_first), by_size, p);
    return 0;
}

double dorm_loss_now(const struct dorm_problem *p)
{
    double loss = 0;
    for (uint32_t i = 0; i < p->n; i++)
        loss += dorm_loss_of(&p->jobs[i], p->jobs[i].now);
    return loss;
}
