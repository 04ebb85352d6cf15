/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/estimates.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "partition/estimate.h"

/* A pseudo-random number above 0 and at most 1: splitmix64 of the seed, the job, and `which` of
 * the job's numbers. */
static double uniform(uint64_t seed, uint32_t job, uint32_t which)
{
    uint64_t z = seed + UINT64_C(0x9E3779B97F4A7C15) * (2 * (uint64_t)job + which + 1);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    return ((double)(z >> 11) + 1) / 9007199254740992.0;
}

double estimate_factor(uint64_t seed, uint32_t job)
{
    double radius = sqrt(-2 * log(uniform(seed, job, 0)));
    return exp(ESTIMATE_SIGMA * radius * cos(2 * M_PI * uniform(seed, job, 1)));
}

int estimates_take(struct estimates *x, const struct part_policy *policy,
                   const struct part_cluster *c, const struct part_job *jobs,
                   const uint32_t *job_of, const double *left_s, size_t n,
                   const struct part_options *o, uint32_t which, double interval_s, double now_s)
{
    AUTO(free_p) struct part_job *told = calloc(n + 1, sizeof *told);
    AUTO(free_p) struct part_range *left = calloc(n + 1, sizeof *left);
    AUTO(free_p) struct part_start *starts = calloc(n + 1, sizeof *starts);
    if (!told || !left || !starts)
        return -ENOMEM;
    if (x->n == ESTIMATES_MAX)
        return 0;
    for (size_t i = 0; i < n; i++) {
        double likely = left_s[i] * estimate_factor(x->seed, job_of[i]);
        left[i] = (struct part_range){ likely / 2, likely, likely * 2 };
        told[i] = jobs[i];
        told[i].remaining_s = likely;
        told[i].ends_in_s = jobs[i].n_at > 0 ? likely : (double)INFINITY;
    }
    struct part_horizon until = {
        .decisions = policy->resizes ? ESTIMATE_DECISIONS_RESIZING : ESTIMATE_DECISIONS,
        .only = which,
        .interval_s = interval_s,
        .first_s = interval_s, /* the simulation has just decided that the job waits */
    };
    int rc = part_estimate(policy, c, told, left, n, o, &until, starts, NULL);
    if (rc < 0)
        return rc;
    x->v[x->n++] = (struct estimate_sample){ job_of[which], now_s, starts[which].in_s.low,
                                             starts[which].in_s.likely, starts[which].in_s.high };
    return 0;
}

static double median(double *v, size_t n)
{
    if (n == 0)
        return 0;
    sort_doubles(v, n);
    return v[n / 2];
}

void estimates_conclude(const struct estimates *x, const double *began_s,
                        struct estimates_result *out)
{
    double errors[ESTIMATES_MAX], waits[ESTIMATES_MAX];
    size_t within = 0, known = 0;
    for (size_t i = 0; i < x->n; i++) {
        const struct estimate_sample *s = &x->v[i];
        double wait = began_s[s->job] - s->at_s;
        within += s->low <= wait + 1 && wait <= s->high + 1;
        waits[i] = wait;
        if (isfinite(s->likely))
            errors[known++] = fabs(s->likely - wait);
    }
    *out = (struct estimates_result){
        .n = x->n,
        .n_open = x->n - known,
        .error_s = median(errors, known),
        .wait_s = median(waits, x->n),
        .within_percent = x->n > 0 ? 100 * (double)within / (double)x->n : 0,
    };
}
