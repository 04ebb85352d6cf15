/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/real.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"

static const double FIRST_HOURS_S = 5 * 3600;

/* The utilization of one container of the job. */
static double use_of(const struct part_cluster *c, const struct trace_job *job)
{
    double use = 0;
    for (uint32_t k = 0; k < c->n_types; k++) {
        double total = 0;
        for (uint32_t j = 0; j < c->n_nodes; j++)
            total += (double)c->nodes[j].v[k];
        use += total > 0 ? (double)job->demand.v[k] / total : 0;
    }
    return use;
}

static double overlap(double from, double to, double limit)
{
    return MAX(0.0, MIN(to, limit) - MIN(from, limit));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int sim_real(const struct trace *t, const double *waits_s, struct sim_result *out)
{
    struct sim_result r = { 0 };
    double *completion = calloc(t->n_jobs + 1, sizeof *completion);
    if (!completion)
        return -ENOMEM;
    for (size_t i = 0; i < t->n_jobs; i++) {
        const struct trace_job *job = &t->jobs[i];
        double start = job->arrival_s + waits_s[i], end = start + job->duration_s;
        double use = use_of(&t->cluster, job) * job->fixed;
        completion[i] = end - job->arrival_s;
        r.jct_mean_s += completion[i] / (double)t->n_jobs;
        r.util_5h += use * overlap(start, end, FIRST_HOURS_S) / FIRST_HOURS_S;
        r.util += use * overlap(start, end, t->horizon_s) / t->horizon_s;
        r.end_s = MAX(r.end_s, end);
    }
    qsort(completion, t->n_jobs, sizeof *completion, by_value);
    if (t->n_jobs > 0)
        r.jct_p95_s = completion[(size_t)ceil(0.95 * (double)t->n_jobs) - 1];
    free(completion);
    *out = r;
    return 0;
}
