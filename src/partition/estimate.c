/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a policy forward in simulated time: decide, carry the decision out, go on to the next end of
 * a job, decide again. n containers do n times the work of one. A start takes no time; a job that
 * is resized does no work for its resize_s.
 */
#include "partition/estimate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "partition/drf.h"
#include "partition/part_int.h"

/* The runs differ in the run times of the jobs: shortest, likely, longest. STRICT: the longest,
 * with the policy `static`. */
enum { LOW, LIKELY, HIGH, STRICT, RUNS };

/* Less work than this counts as done, because of rounding errors. */
static const double WORK_SLACK_S = 1e-6;

/* Added to the time at which a job that waits because of the costs of resizes may start, against
 * rounding errors. */
static const double AGAIN_SLACK_S = 1e-3;

/* One simulated run of the policy. Arrays have one entry for each job that is present. */
struct forward {
    const struct part_policy *policy;
    const struct part_cluster *c;
    const struct part_options *options;
    struct part_decision decision;
    struct part_job *jobs;
    struct part_place **at; /* owned: the places of each job */
    double *work;           /* seconds with one container */
    double *share;          /* dominant share of one container */
    uint32_t *of;           /* the index in the caller's list */
    size_t n, n_waiting;
    double now_s;
    double *start_s;   /* by the caller's index; INFINITY: it has not started */
    uint32_t *start_n; /* containers at that time; 0: it has not started, or ran before */
};

static void forward_done(struct forward *f)
{
    for (size_t i = 0; f->at && i < f->n; i++)
        free(f->at[i]);
    part_decision_done(&f->decision);
    free(f->jobs);
    free(f->at);
    free(f->work);
    free(f->share);
    free(f->of);
}

static int set_places(struct forward *f, size_t i, const struct part_place *at, uint32_t n_at)
{
    struct part_place *copy = NULL;
    if (n_at > 0 && !(copy = reallocarray(f->at[i], n_at, sizeof *copy)))
        return -ENOMEM;
    if (n_at > 0)
        memcpy(copy, at, n_at * sizeof *copy);
    else
        free(f->at[i]);
    f->at[i] = copy;
    f->jobs[i].at = copy;
    f->jobs[i].n_at = n_at;
    return 0;
}

static int forward_init(struct forward *f, const struct part_job *jobs, size_t n,
                        const struct part_range *left, int which)
{
    struct part_amount total;
    f->jobs = calloc(n + 1, sizeof *f->jobs);
    f->at = calloc(n + 1, sizeof(struct part_place *));
    f->work = calloc(n + 1, sizeof *f->work);
    f->share = calloc(n + 1, sizeof *f->share);
    f->of = calloc(n + 1, sizeof *f->of);
    if (!f->jobs || !f->at || !f->work || !f->share || !f->of)
        return -ENOMEM;
    part_total(f->c, &total);
    for (size_t i = 0; i < n; i++) {
        bool runs = jobs[i].n_at > 0;
        uint32_t containers = runs ? part_count(&jobs[i]) : part_fixed(&jobs[i]);
        double s = which == LOW ? left[i].low : which == LIKELY ? left[i].likely : left[i].high;
        f->jobs[i] = jobs[i];
        f->of[i] = (uint32_t)i;
        f->work[i] = s * containers;
        f->share[i] = part_share_of_one(&jobs[i].demand, &total, f->c->n_types);
        f->start_s[i] = runs ? 0 : INFINITY;
        f->n_waiting += !runs;
        f->n = i + 1;
        if (set_places(f, i, jobs[i].at, jobs[i].n_at) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Remove the jobs that have ended, or that can never run. */
static void drop(struct forward *f, bool never)
{
    size_t kept = 0;
    for (size_t i = 0; i < f->n; i++) {
        bool runs = f->jobs[i].n_at > 0;
        bool gone =
            never ? f->decision.jobs[i].verdict == PART_NEVER : runs && f->work[i] <= WORK_SLACK_S;
        if (gone) {
            f->n_waiting -= never;
            free(f->at[i]);
            continue;
        }
        f->jobs[kept] = f->jobs[i];
        f->at[kept] = f->at[i];
        f->work[kept] = f->work[i];
        f->share[kept] = f->share[i];
        f->of[kept++] = f->of[i];
    }
    f->n = kept;
}

/* While a running job is resized it does no work. Add the work that it would have done in that
 * time. */
static void add_resize(struct forward *f, size_t i, uint32_t n)
{
    struct part_job *j = &f->jobs[i];
    f->work[i] += j->resize_s * n;
    j->remaining_s += j->resize_s * n / part_fixed(j);
}

/* Carry the decision out. *out_never: some jobs can never run. */
static int apply(struct forward *f, bool *out_never)
{
    *out_never = false;
    for (size_t i = 0; i < f->n; i++) {
        const struct part_share *s = &f->decision.jobs[i];
        *out_never |= s->verdict == PART_NEVER;
        if (s->verdict == PART_WAITS || s->verdict == PART_NEVER || s->verdict == PART_KEEPS)
            continue;
        if (s->verdict == PART_CHANGES && !f->jobs[i].lost)
            add_resize(f, i, s->n);
        if (set_places(f, i, s->at, s->n_at) < 0)
            return -ENOMEM;
        if (s->n > 0)
            f->jobs[i].ends_in_s = f->jobs[i].remaining_s * part_fixed(&f->jobs[i]) / (double)s->n;
        if (s->verdict == PART_STARTS && isinf(f->start_s[f->of[i]])) {
            f->start_s[f->of[i]] = f->now_s;
            f->start_n[f->of[i]] = s->n;
            f->n_waiting--;
        }
    }
    return 0;
}

/* The time until the next running job ends; INFINITY: none does. */
static double next_end(const struct forward *f)
{
    double least = INFINITY;
    for (size_t i = 0; i < f->n; i++)
        if (f->jobs[i].n_at > 0)
            least = MIN(least, f->work[i] / part_count(&f->jobs[i]));
    return MAX(least, 0.0);
}

static void pass(struct forward *f, double s)
{
    f->now_s += s;
    for (size_t i = 0; i < f->n; i++) {
        struct part_job *j = &f->jobs[i];
        uint32_t containers = j->n_at > 0 ? part_count(j) : 0;
        if (containers == 0) {
            j->waited_s += s;
            continue;
        }
        f->work[i] -= s * containers;
        j->ends_in_s = MAX(j->ends_in_s - s, 0.0);
        j->remaining_s = MAX(j->remaining_s - s * containers / part_fixed(j), 0.0);
        j->attained_s += f->share[i] * containers * s;
    }
}

/* The time until a running job reaches the next level of attained service; INFINITY: none does, or
 * the policy has no levels. */
static double next_level(const struct forward *f)
{
    double least = INFINITY;
    for (size_t i = 0; f->policy->by_service && i < f->n; i++) {
        const struct part_job *j = &f->jobs[i];
        uint32_t level = part_level(j, f->options);
        double rate = j->n_at > 0 ? f->share[i] * part_count(j) : 0;
        if (rate > 0 && level < f->options->n_levels)
            least = MIN(least, (f->options->levels[level] - j->attained_s) / rate);
    }
    return MAX(least, 0.0);
}

/* The time until the next decision can change something: when a job ends or reaches a level, or
 * when a job that waits because of the costs of resizes has waited long enough. */
static double next_change(const struct forward *f)
{
    double again = MIN(f->decision.metrics.again_s, next_level(f)) + AGAIN_SLACK_S;
    return MIN(next_end(f), again);
}

/* Run until all jobs have started, or no further end is known. *out_reached: the remaining jobs do
 * not start before this time. */
static int run(struct forward *f, const struct part_horizon *until, double *out_reached,
               struct err *e)
{
    uint32_t decisions = until->decisions, only = until->only;
    if (until->first_s > 0) {
        pass(f, until->first_s);
        drop(f, false);
    }
    while (decisions-- > 0 && f->n_waiting > 0 &&
           (only == PART_NOBODY || isinf(f->start_s[only]))) {
        bool never;
        int rc = part_decide(f->policy, f->c, f->jobs, f->n, f->options, &f->decision, e);
        if (rc < 0)
            return rc;
        if (apply(f, &never) < 0)
            return err_set(e, ENOMEM, "cannot estimate the starts: %m");
        if (never)
            drop(f, true);
        double s = next_change(f);
        if (f->n_waiting == 0 || isinf(s))
            break;
        pass(f, MAX(s, until->interval_s));
        drop(f, false);
    }
    *out_reached = f->now_s;
    return 0;
}

static int run_one(const struct forward *with, const struct part_job *jobs,
                   const struct part_range *left, size_t n, int which,
                   const struct part_horizon *until, double *start_s, uint32_t *start_n,
                   double *out_reached, struct err *e)
{
    AUTO(forward_done)
    struct forward f = { .policy = with->policy,
                         .c = with->c,
                         .options = with->options,
                         .start_s = start_s,
                         .start_n = start_n };
    if (forward_init(&f, jobs, n, left, which) < 0)
        return err_set(e, ENOMEM, "cannot estimate the starts: %m");
    return run(&f, until, out_reached, e);
}

static void conclude(const double *start_s, const uint32_t *start_n, size_t i, size_t n,
                     double reached, struct part_start *out)
{
    static const int sources[] = { LIKELY, HIGH, LOW };
    out->n = 0;
    for (size_t k = 0; k < ARRAY_LEN(sources) && out->n == 0; k++)
        out->n = start_n[(size_t)sources[k] * n + i];
    double low = MIN(start_s[LOW * n + i], reached), likely = start_s[LIKELY * n + i];
    double high = start_s[HIGH * n + i];
    low = MIN(low, MIN(likely, high));
    out->in_s.low = low;
    out->in_s.high = MAX(isinf(likely) ? low : likely, high);
    if (out->in_s.high > 0)
        out->in_s.high = MAX(out->in_s.high, start_s[STRICT * n + i]);
    out->in_s.likely = likely;
}

int part_estimate(const struct part_policy *policy, const struct part_cluster *c,
                  const struct part_job *jobs, const struct part_range *left, size_t n,
                  const struct part_options *o, const struct part_horizon *until,
                  struct part_start *out, struct err *e)
{
    struct part_options options = *o;
    options.quick = true;
    struct forward with = { .policy = policy, .c = c, .options = &options };
    AUTO(free_p) double *start_s = calloc(RUNS * n + 1, sizeof *start_s);
    AUTO(free_p) uint32_t *start_n = calloc(RUNS * n + 1, sizeof *start_n);
    AUTO(free_p) uint32_t *caps = calloc(n + 1, sizeof *caps);
    double reached[RUNS] = { 0 };
    int rc = start_s && start_n && caps ? 0 : err_set(e, ENOMEM, "cannot estimate the starts: %m");
    for (int which = LOW; rc == 0 && which < RUNS; which++) {
        with.policy = which == STRICT ? part_policy_find("static") : policy;
        rc = run_one(&with, jobs, left, n, which, until, &start_s[(size_t)which * n],
                     &start_n[(size_t)which * n], &reached[which], e);
    }
    if (rc < 0)
        return rc;
    part_caps(c, jobs, n, caps);
    for (size_t i = 0; i < n; i++) {
        conclude(start_s, start_n, i, n, reached[LOW], &out[i]);
        out[i].never = caps[i] < jobs[i].min;
    }
    return 0;
}
