/* SPDX-License-Identifier: Apache-2.0 */
/* The simulation of events (simulate.h): one list of the jobs that are present, and the loop over
 * the instants at which something happens. */
#include "simulate/simulate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "partition/drf.h"

static const double FIRST_HOURS_S = 5 * 3600;
static const double SAMPLE_FIRST_S = 300, SAMPLE_EVERY_S = 600;
/* A level of attained service counts as reached at this many seconds before its exact value,
 * against rounding errors. */
static const double LEVEL_SLACK_S = 1e-9;
/* Added to the time at which a job that waits because of the costs of resizes may start, against
 * rounding errors. */
static const double AGAIN_SLACK_S = 1e-3;

/* A job of the trace in the simulation. */
struct live {
    double left;       /* work */
    double rate;       /* work in a second with the containers that it has */
    double rate_fixed; /* the same with its fixed number of containers */
    double share;      /* dominant share of one container */
    double use;        /* utilization of one container */
    double attained;   /* integral of the dominant share */
    double stalled_until, ends_at;
    double held_since;
    double held_s; /* how long it has had containers */
    struct part_place *at;
    uint32_t n_at, cap_at, n;
    uint32_t slot; /* in sim.slots */
    uint32_t cap;  /* most containers that can ever run */
    bool started;
};

struct sim {
    const struct trace *t;
    const struct part_policy *policy;
    const struct sim_options *o;
    struct sim_result *r;
    struct estimates *estimates; /* NULL: none are made */
    /* for estimates: the start of each job of the trace; the work left of each slot */
    double *began_s, *left_s;
    /* jobs that have arrived; jobs whose start was estimated or skipped */
    uint32_t n_arrived, n_asked;
    struct part_options options;
    struct part_decision decision;

    struct live *live; /* one for each job of the trace */

    /* The jobs present, in the order of their arrival: slots[first .. end). A job that ends leaves
     * a gap, which the shorter side of the list closes. Each array has room for all jobs. */
    struct part_job *slots;
    uint32_t *job_of; /* job of each slot */
    uint32_t *caps;   /* most containers that can ever run */
    size_t first, end;

    uint32_t *running; /* jobs that have containers */
    size_t n_running;

    uint32_t *ideal; /* scratch for samples */
    double *completion;
    double *wait; /* the waiting times of the jobs in completion[] */
    size_t n_completed;

    double now;
    double use; /* utilization now */
    double area_first, area, stalled, held;
    double loss_sum, loss_now;
    uint64_t samples;
    double gap_sum;
    uint64_t gaps; /* decisions with an upper bound */
    bool loss_known;
    double learnt_s; /* the cost of a resize, known after the first one; 0 before */
};

/* ---- the list of jobs present ---- */

static void add_job(struct sim *s, uint32_t job)
{
    const struct trace_job *tj = &s->t->jobs[job];
    size_t slot = s->end++;
    s->n_arrived = job + 1;
    s->job_of[slot] = job;
    s->live[job].slot = (uint32_t)slot;
    s->slots[slot] = (struct part_job){ .id = tj->id,
                                        .demand = tj->demand,
                                        .weight = tj->weight,
                                        .min = tj->min,
                                        .max = tj->max,
                                        .fixed = tj->fixed,
                                        .remaining_s = tj->duration_s,
                                        .ends_in_s = INFINITY };
    s->caps[slot] = s->live[job].cap;
}

static void move_slot(struct sim *s, size_t from, size_t to)
{
    s->slots[to] = s->slots[from];
    s->job_of[to] = s->job_of[from];
    s->caps[to] = s->caps[from];
    s->live[s->job_of[to]].slot = (uint32_t)to;
}

static void remove_job(struct sim *s, uint32_t job)
{
    size_t slot = s->live[job].slot;
    if (slot - s->first < s->end - slot) {
        for (; slot > s->first; slot--)
            move_slot(s, slot - 1, slot);
        s->first++;
    } else {
        for (; slot + 1 < s->end; slot++)
            move_slot(s, slot + 1, slot);
        s->end--;
    }
    free(s->live[job].at);
    s->live[job].at = NULL;
}

/* ---- time ---- */

/* Compute the loss of fairness over all present jobs, also those that wait. */
static int find_loss(struct sim *s)
{
    size_t n = s->end - s->first;
    int rc = part_drf(&s->t->cluster, &s->slots[s->first], n, &s->caps[s->first], s->ideal);
    s->loss_now = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct live *j = &s->live[s->job_of[s->first + i]];
        s->loss_now += j->share * fabs((double)j->n - (double)s->ideal[i]);
    }
    s->loss_known = rc == 0;
    return rc;
}

static double overlap(double from, double to, double limit)
{
    return MAX(0.0, MIN(to, limit) - MIN(from, limit));
}

/* Advance the time to t, and add [now, t) to the metrics. */
static int pass(struct sim *s, double t)
{
    double horizon = s->t->horizon_s, next;
    while ((next = SAMPLE_FIRST_S + SAMPLE_EVERY_S * (double)s->samples) < MIN(t, horizon)) {
        if (!s->loss_known && find_loss(s) < 0)
            return -ENOMEM;
        s->loss_sum += s->loss_now;
        s->samples++;
    }
    s->area_first += s->use * overlap(s->now, t, FIRST_HOURS_S);
    s->area += s->use * overlap(s->now, t, horizon);
    for (size_t i = 0; i < s->n_running; i++) {
        struct live *j = &s->live[s->running[i]];
        double passed = t - s->now;
        double stalled = MAX(0.0, MIN(t, j->stalled_until) - s->now);
        j->left -= (passed - stalled) * j->rate;
        j->attained += j->share * j->n * passed;
        j->held_s += passed;
        s->stalled += j->n * stalled;
        s->held += j->n * passed;
    }
    s->now = t;
    return 0;
}

/* The time at which a running job reaches the next level of attained service. */
static double next_level(const struct sim *s, const struct live *j)
{
    for (uint32_t v = 0; v < s->t->n_levels; v++)
        if (s->t->levels[v] > j->attained + LEVEL_SLACK_S)
            return s->now + (s->t->levels[v] - j->attained) / (j->share * j->n);
    return INFINITY;
}

/* The next event of the running jobs. The result is not before now; levels are always after now. */
static double next_event(const struct sim *s, bool levels)
{
    double t = INFINITY;
    for (size_t i = 0; i < s->n_running; i++) {
        const struct live *j = &s->live[s->running[i]];
        t = MIN(t, j->ends_at);
        if (levels)
            t = MIN(t, MAX(next_level(s, j), nextafter(s->now, INFINITY)));
    }
    return t;
}

/* ---- what happens ---- */

/* Report to the events that the job had the same containers from held_since until now. */
static void tell_held(struct sim *s, uint32_t job)
{
    const struct sim_events *ev = s->o->events;
    struct live *j = &s->live[job];
    if (ev && ev->held && j->n > 0 && s->now > j->held_since)
        ev->held(ev->ctx, job, j->held_since, s->now, j->n);
    j->held_since = s->now;
}

static void find_use(struct sim *s)
{
    s->use = 0;
    for (size_t i = 0; i < s->n_running; i++)
        s->use += s->live[s->running[i]].use * s->live[s->running[i]].n;
    if (s->o->events && s->o->events->used)
        s->o->events->used(s->o->events->ctx, s->now, s->use);
}

static void end_jobs(struct sim *s)
{
    const struct sim_events *ev = s->o->events;
    size_t kept = 0;
    for (size_t i = 0; i < s->n_running; i++) {
        uint32_t job = s->running[i];
        if (s->live[job].ends_at > s->now) {
            s->running[kept++] = job;
            continue;
        }
        double completion = s->now - s->t->jobs[job].arrival_s;
        tell_held(s, job);
        if (ev && ev->ended)
            ev->ended(ev->ctx, job, completion);
        s->wait[s->n_completed] = MAX(0.0, completion - s->live[job].held_s);
        s->completion[s->n_completed++] = completion;
        remove_job(s, job);
    }
    if (kept < s->n_running) {
        s->n_running = kept;
        find_use(s);
    }
}

/* Fill in the policy's input about running jobs. */
static void describe_running(struct sim *s)
{
    for (size_t i = 0; i < s->n_running; i++) {
        const struct live *j = &s->live[s->running[i]];
        struct part_job *slot = &s->slots[j->slot];
        slot->at = j->at;
        slot->n_at = j->n_at;
        slot->attained_s = j->attained;
        slot->remaining_s = MAX(0.0, j->left) / j->rate_fixed;
        slot->ends_in_s = MAX(0.0, j->ends_at - s->now);
        slot->resize_s = s->learnt_s;
    }
    for (size_t i = s->first; i < s->end && s->options.payback_s > 0; i++)
        s->slots[i].waited_s = s->now - s->t->jobs[s->job_of[i]].arrival_s;
}

/* Carry out the decision for the job. */
static int apply_one(struct sim *s, uint32_t job, const struct part_share *share)
{
    struct live *j = &s->live[job];
    struct part_job *slot = &s->slots[j->slot];
    if (share->n_at > j->cap_at) {
        struct part_place *at = reallocarray(j->at, share->n_at, sizeof *at);
        if (!at)
            return -ENOMEM;
        j->at = at;
        j->cap_at = share->n_at;
    }
    tell_held(s, job);
    if (share->n_at > 0)
        memcpy(j->at, share->at, share->n_at * sizeof *j->at);
    if (j->started) {
        s->r->adjustments += j->n > 0;
        s->learnt_s = s->t->resize_s;
        j->stalled_until = s->now + s->t->resize_s;
    }
    j->n = share->n;
    j->n_at = share->n_at;
    j->rate = pow(j->n, s->t->jobs[job].exponent);
    if (!j->started && s->estimates)
        s->began_s[job] = s->now;
    j->started = true;
    slot->at = j->n_at ? j->at : NULL;
    slot->n_at = j->n_at;
    if (j->n == 0) {
        slot->ends_in_s = INFINITY;
        slot->attained_s = j->attained;
        slot->remaining_s = MAX(0.0, j->left) / j->rate_fixed;
    }
    return 0;
}

static int apply(struct sim *s)
{
    /* Removing a job moves other jobs to new slots, so jobs are removed last. */
    size_t n = s->decision.n, never = 0;
    s->n_running = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t job = s->job_of[s->first + i];
        const struct part_share *share = &s->decision.jobs[i];
        bool changed = share->verdict == PART_STARTS || share->verdict == PART_CHANGES ||
                       share->verdict == PART_STOPS;
        if (share->verdict == PART_WAITS)
            continue; /* a shortcut: nearly all jobs of a long queue are handled here */
        if (changed && apply_one(s, job, share) < 0)
            return -ENOMEM;
        if (share->verdict == PART_NEVER)
            s->ideal[never++] = job;
        struct live *j = &s->live[job];
        if (j->n == 0)
            continue;
        j->ends_at = MAX(s->now, j->stalled_until) + MAX(0.0, j->left) / j->rate;
        s->running[s->n_running++] = job;
    }
    for (size_t i = 0; i < never; i++)
        remove_job(s, s->ideal[i]);
    s->r->never += never;
    find_use(s);
    return 0;
}

/* Set left_s: the true remaining run time of each present job, which the estimates do not know. */
static void fill_left(struct sim *s)
{
    for (size_t slot = s->first; slot < s->end; slot++) {
        const struct live *j = &s->live[s->job_of[slot]];
        s->left_s[slot] =
            j->n > 0 ? MAX(0.0, j->ends_at - s->now) : MAX(0.0, j->left) / j->rate_fixed;
    }
}

/* Estimate the start of some of the jobs that have arrived since the last decision, and wait. */
static int estimate(struct sim *s)
{
    uint32_t stride = (uint32_t)(s->t->n_jobs / ESTIMATES_MAX + 1);
    for (; s->n_asked < s->n_arrived; s->n_asked++) {
        uint32_t job = s->n_asked, slot = s->live[job].slot;
        bool present = slot >= s->first && slot < s->end && s->job_of[slot] == job;
        if (!present || s->live[job].started || job % stride != 0)
            continue;
        fill_left(s);
        int rc = estimates_take(s->estimates, s->policy, &s->t->cluster, &s->slots[s->first],
                                &s->job_of[s->first], &s->left_s[s->first], s->end - s->first,
                                &s->options, slot - (uint32_t)s->first, s->t->interval_s, s->now);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void add_gap(struct sim *s)
{
    struct part_metrics m = s->decision.metrics;
    if (isnan(m.upper_bound))
        return;
    m.utilization = s->use; /* a quick decision does not compute it */
    double gap = part_gap(&m);
    s->gap_sum += gap;
    s->gaps++;
    s->r->gap_worst = MAX(s->r->gap_worst, gap);
}

static int decide(struct sim *s, struct err *e)
{
    int64_t began = s->o->clock_us ? s->o->clock_us() : 0;
    describe_running(s);
    int rc = part_decide(s->policy, &s->t->cluster, &s->slots[s->first], s->end - s->first,
                         &s->options, &s->decision, e);
    if (rc < 0)
        return rc;
    double took = s->o->clock_us ? (double)(s->o->clock_us() - began) / 1e6 : 0;
    s->r->decide_s += took;
    s->r->longest_s = MAX(s->r->longest_s, took);
    s->r->decisions++;
    if (apply(s) < 0)
        return err_set(e, ENOMEM, "cannot simulate: %m");
    add_gap(s);
    if (s->estimates && estimate(s) < 0)
        return err_set(e, ENOMEM, "cannot simulate: %m");
    return 0;
}

/* ---- the whole ---- */

struct sim_times sim_times_of(double *times, size_t n)
{
    struct sim_times t = { 0 };
    if (n == 0)
        return t;
    sort_doubles(times, n);
    for (size_t i = 0; i < n; i++)
        t.mean_s += times[i] / (double)n;
    t.median_s = times[(n - 1) / 2];
    t.p95_s = times[(size_t)ceil(0.95 * (double)n) - 1];
    return t;
}

static void conclude(struct sim *s)
{
    struct sim_result *r = s->r;
    size_t n = s->n_completed;
    r->util_5h = s->area_first / FIRST_HOURS_S;
    r->util = s->area / s->t->horizon_s;
    r->loss = s->samples > 0 ? s->loss_sum / (double)s->samples : 0;
    r->overhead_percent = s->held > 0 ? 100 * s->stalled / s->held : 0;
    r->end_s = s->now;
    if (s->estimates)
        estimates_conclude(s->estimates, s->began_s, &r->estimates);
    r->lost_s = s->stalled;
    r->gap = s->gaps > 0 ? s->gap_sum / (double)s->gaps : (double)NAN;
    r->gap_worst = s->gaps > 0 ? r->gap_worst : (double)NAN;
    r->jct = sim_times_of(s->completion, n);
    r->wait = sim_times_of(s->wait, n);
}

static int run(struct sim *s, struct err *e)
{
    size_t coming = 0, n = s->t->n_jobs;
    double decide_at = INFINITY, last = -INFINITY;
    bool levels = s->t->n_levels > 0 && str_eq(s->policy->name, "las");
    while (coming < n || s->end > s->first) {
        double t = MIN(decide_at, next_event(s, levels));
        if (coming < n)
            t = MIN(t, s->t->jobs[coming].arrival_s);
        if (isinf(t))
            return err_set(e, EINVAL, "policy '%s' never starts job '%s'", s->policy->name,
                           s->slots[s->first].id);
        if (pass(s, t) < 0)
            return err_set(e, ENOMEM, "cannot simulate: %m");
        end_jobs(s);
        while (coming < n && s->t->jobs[coming].arrival_s <= t)
            add_job(s, (uint32_t)coming++);
        s->loss_known = false;
        decide_at = MAX(t, last + s->t->interval_s);
        if (decide_at > t)
            continue;
        last = t;
        decide_at = INFINITY;
        int rc = decide(s, e);
        if (rc < 0)
            return rc;
        if (s->decision.metrics.again_s < INFINITY)
            decide_at = t + MAX(s->decision.metrics.again_s + AGAIN_SLACK_S, s->t->interval_s);
    }
    return 0;
}

static void prepare(struct sim *s)
{
    const struct part_cluster *c = &s->t->cluster;
    double total[PART_TYPES_MAX] = { 0 };
    for (uint32_t j = 0; j < c->n_nodes; j++)
        for (uint32_t k = 0; k < c->n_types; k++)
            total[k] += (double)c->nodes[j].v[k];
    for (size_t i = 0; i < s->t->n_jobs; i++) {
        const struct trace_job *tj = &s->t->jobs[i];
        s->live[i].rate_fixed = pow(tj->fixed, tj->exponent);
        s->live[i].left = tj->duration_s * s->live[i].rate_fixed;
        for (uint32_t k = 0; k < c->n_types; k++) {
            double part = total[k] > 0 ? (double)tj->demand.v[k] / total[k] : 0;
            s->live[i].share = MAX(s->live[i].share, part);
            s->live[i].use += part;
        }
    }
    /* One call for all jobs, because each call reads all nodes. No job is present yet, so the
     * slots are free. */
    for (size_t i = 0; i < s->t->n_jobs; i++)
        s->slots[i] = (struct part_job){ .demand = s->t->jobs[i].demand,
                                         .min = s->t->jobs[i].min,
                                         .max = s->t->jobs[i].max };
    part_caps(c, s->slots, s->t->n_jobs, s->caps);
    for (size_t i = 0; i < s->t->n_jobs; i++)
        s->live[i].cap = s->caps[i];
    s->options = part_defaults;
    s->options.theta1 = s->t->theta1;
    s->options.theta2 = s->t->theta2;
    s->options.payback_s = s->t->payback_s;
    s->options.repack = s->t->repack > 0;
    s->options.levels = s->t->levels;
    s->options.n_levels = s->t->n_levels;
    s->options.limit = s->o->limit;
    s->options.solver = s->o->solver;
    s->options.quick = true;
}

int sim_run(const struct trace *t, const struct part_policy *policy, const struct sim_options *o,
            struct sim_result *out, struct err *e)
{
    size_t n = t->n_jobs + 1;
    struct sim_result r = { 0 };
    struct sim s = { .t = t, .policy = policy, .o = o, .r = &r };
    s.live = calloc(n, sizeof *s.live);
    s.slots = calloc(n, sizeof *s.slots);
    s.job_of = calloc(n, sizeof *s.job_of);
    s.caps = calloc(n, sizeof *s.caps);
    s.running = calloc(n, sizeof *s.running);
    s.ideal = calloc(n, sizeof *s.ideal);
    s.completion = calloc(n, sizeof *s.completion);
    s.wait = calloc(n, sizeof *s.wait);
    if (o->estimates && (s.estimates = calloc(1, sizeof *s.estimates)))
        s.estimates->seed = o->estimates_seed;
    s.began_s = calloc(n, sizeof *s.began_s);
    s.left_s = calloc(n, sizeof *s.left_s);
    int rc;
    if ((s.estimates || !o->estimates) && s.began_s && s.left_s && s.live && s.slots && s.job_of &&
        s.caps && s.running && s.ideal && s.completion && s.wait) {
        prepare(&s);
        rc = run(&s, e);
    } else {
        rc = err_set(e, ENOMEM, "cannot simulate: %m");
    }
    if (rc == 0) {
        conclude(&s);
        *out = r;
    }
    for (size_t i = 0; i < t->n_jobs && s.live; i++)
        free(s.live[i].at);
    part_decision_done(&s.decision);
    free(s.estimates);
    free(s.began_s);
    free(s.left_s);
    free(s.live);
    free(s.slots);
    free(s.job_of);
    free(s.caps);
    free(s.running);
    free(s.ideal);
    free(s.completion);
    free(s.wait);
    return rc;
}
