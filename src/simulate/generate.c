/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of `heavy` come from the summary of published traces in the repository
 * InternLM/AcmeTrace (data/cluster_summary.csv). GPU jobs of Helios (SenseTime, 2020) have a mean
 * run time of 6,652 s and a median of 206 s; those of PAI (Alibaba, 2020) 4,787 s and 481 s. A
 * log-normal distribution with these has sigma = sqrt(2 ln(mean / median)) = 2.64 and 2.14.
 * Demands, bounds and exponents are our own choice.
 */
#include "simulate/generate.h"

#include <errno.h>
#include <math.h>

#include "base/base.h"

/* The names of the kinds of workload. */
static const char generate_kinds[] = "small, heavy";

/* ---- random numbers: splitmix64, the same on every machine ---- */

struct chance {
    uint64_t state;
};

static uint64_t next(struct chance *c)
{
    uint64_t z = c->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* A random number between 0 and 1, both excluded. */
static double uniform(struct chance *c)
{
    return ((double)(next(c) >> 11) + 0.5) / 9007199254740992.0; /* 2^53 */
}

static size_t below(struct chance *c, size_t n)
{
    return (size_t)(uniform(c) * (double)n);
}

static double exponential(struct chance *c, double mean)
{
    return -mean * log(uniform(c));
}

static double log_normal(struct chance *c, double median, double sigma)
{
    double normal = sqrt(-2 * log(uniform(c))) * cos(2 * 3.14159265358979323846 * uniform(c));
    return median * exp(sigma * normal);
}

/* Choose one of n values at random, each with a probability in proportion to its weight. */
static uint32_t choose(struct chance *c, const uint32_t *values, const double *weights, size_t n)
{
    double sum = 0, at;
    for (size_t i = 0; i < n; i++)
        sum += weights[i];
    at = uniform(c) * sum;
    for (size_t i = 0; i + 1 < n; i++) {
        at -= weights[i];
        if (at < 0)
            return values[i];
    }
    return values[n - 1];
}

/* Round to milliseconds, as trace_write() does. */
static double rounded(double v)
{
    return round(v * 1000) / 1000;
}

/* ---- the jobs of each kind ---- */

static void small_job(struct chance *c, struct trace_job *job)
{
    static const struct {
        struct part_amount demand;
        uint32_t weight, max, fixed;
    } shapes[] = {
        { { { 2, 8192, 0 } }, 1, 32, 8 },
        { { { 2, 6144, 0 } }, 2, 32, 8 },
        { { { 4, 6144, 1 } }, 4, 5, 2 },
        { { { 4, 16384, 1 } }, 4, 5, 1 },
    };
    static const double weights[] = { 20, 20, 6, 4 };
    static const uint32_t indexes[] = { 0, 1, 2, 3 };
    uint32_t s = choose(c, indexes, weights, ARRAY_LEN(indexes));
    job->demand = shapes[s].demand;
    job->weight = shapes[s].weight;
    job->min = 1;
    job->max = shapes[s].max;
    job->fixed = shapes[s].fixed;
    job->duration_s = rounded((180 + 300 * uniform(c)) * 60);
    job->exponent = 1;
}

static void heavy_job(struct chance *c, struct trace_job *job)
{
    static const uint32_t gpus[] = { 1, 2, 4, 8, 16, 32, 64 }, cpus[] = { 1, 2, 4, 8, 16 };
    static const double gpu_weights[] = { 575, 120, 100, 150, 35, 15, 5 };
    static const double cpu_weights[] = { 5, 3, 3, 2, 1 };
    static const uint32_t weights[] = { 1, 1, 2, 4 };
    double seconds;
    uint32_t n;
    if (uniform(c) < 0.47) {
        n = choose(c, gpus, gpu_weights, ARRAY_LEN(gpus));
        job->demand.v[0] = 2 + 2 * (int64_t)below(c, 3);
        job->demand.v[1] = 16 + 16 * (int64_t)below(c, 3);
        job->demand.v[2] = 1;
        seconds = log_normal(c, 206, 2.64);
    } else {
        n = choose(c, cpus, cpu_weights, ARRAY_LEN(cpus));
        job->demand.v[0] = INT64_C(2) << below(c, 3);
        job->demand.v[1] = INT64_C(4) << below(c, 4);
        seconds = log_normal(c, 481, 2.14);
    }
    bool rigid = n == 1 && uniform(c) < 0.5;
    job->min = rigid ? 1 : MAX(1u, n / 4);
    job->max = rigid ? 1 : 2 * n;
    job->fixed = n;
    job->weight = weights[below(c, ARRAY_LEN(weights))];
    job->duration_s = rounded(MIN(MAX(seconds, 10.0), 172800.0));
    job->exponent = 0.9;
}

static const struct kind {
    const char *name;
    const char *head; /* settings and columns */
    size_t n_jobs;
    double gap_s; /* mean time between two arrivals */
    void (*job)(struct chance *c, struct trace_job *job);
} kinds[] = {
    { "small",
      "# resources vcores memory_mib gpus\n# nodes 15 12 131072 0\n# nodes 5 12 131072 1\n"
      "# resize_s 180\n# interval_s 0\n# horizon_s 86400\n# theta 0.1 0.2\n# las 400 1600\n"
      "id,arrival_s,vcores,memory_mib,gpus,weight,min,max,static,duration_s,exponent\n",
      50, 1200, small_job },
    { "heavy",
      "# resources vcores memory_gib gpus\n# nodes 24 64 512 8\n# nodes 176 64 256 0\n"
      "# resize_s 60\n# interval_s 300\n# horizon_s 86400\n# theta 0.02 0.1\n# las 2 20\n"
      "id,arrival_s,vcores,memory_gib,gpus,weight,min,max,static,duration_s,exponent\n",
      2000, 21.6, heavy_job },
};

int trace_generate(const char *kind, uint64_t seed, size_t n_jobs, struct trace *out, struct err *e)
{
    const struct kind *k = NULL;
    struct chance c = { seed };
    double t = 0;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (str_eq(kinds[i].name, kind))
            k = &kinds[i];
    if (!k)
        return err_set(e, EINVAL, "there is no workload '%s'; there are: %s", kind, generate_kinds);
    int rc = trace_parse(kind, span_of(k->head), out, e);
    if (rc < 0)
        return rc;
    size_t n = n_jobs ? n_jobs : k->n_jobs;
    out->jobs = arena_alloc(&out->arena, n * sizeof *out->jobs);
    if (!out->jobs)
        return err_set(e, ENOMEM, "cannot make %zu jobs: %m", n);
    for (size_t i = 0; i < n; i++) {
        char id[24];
        int len = snprintf(id, sizeof id, "j%04zu", i);
        out->jobs[i].id = arena_dup(&out->arena, id, (size_t)len);
        if (!out->jobs[i].id)
            return err_set(e, ENOMEM, "cannot make %zu jobs: %m", n);
        out->jobs[i].arrival_s = rounded(t);
        k->job(&c, &out->jobs[i]);
        t += exponential(&c, k->gap_s);
    }
    out->n_jobs = n;
    return 0;
}
