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

/* A change of the utilization. */
struct change {
    double at_s, by;
};

static int by_time(const void *a, const void *b)
{
    double x = ((const struct change *)a)->at_s, y = ((const struct change *)b)->at_s;
    return x < y ? -1 : x > y;
}

/* Add the changes of utilization of all bars, and report what each job held. changes: room for
 * two of each bar. */
static void add_bars(const struct trace *t, const struct real *real, const struct sim_events *ev,
                     struct change *changes, struct sim_result *r)
{
    double now = 0;
    for (size_t i = 0; i < real->n_bars; i++) {
        const struct real_bar *bar = &real->bars[i];
        double use = use_of(&t->cluster, &t->jobs[bar->job]) * bar->n;
        r->util_5h += use * overlap(bar->from_s, bar->to_s, FIRST_HOURS_S) / FIRST_HOURS_S;
        r->util += use * overlap(bar->from_s, bar->to_s, t->horizon_s) / t->horizon_s;
        changes[2 * i] = (struct change){ bar->from_s, use };
        changes[2 * i + 1] = (struct change){ bar->to_s, -use };
        if (ev && ev->held)
            ev->held(ev->ctx, bar->job, bar->from_s, bar->to_s, bar->n);
    }
    qsort(changes, 2 * real->n_bars, sizeof *changes, by_time);
    for (size_t i = 0; i < 2 * real->n_bars; i++) {
        now += changes[i].by;
        if (ev && ev->used)
            ev->used(ev->ctx, changes[i].at_s, MAX(now, 0.0));
    }
}

static void add_completions(const struct trace *t, const struct real *real,
                            const struct sim_events *ev, double *sorted, struct sim_result *r)
{
    for (size_t i = 0; i < t->n_jobs; i++) {
        sorted[i] = real->completion_s[i];
        r->end_s = MAX(r->end_s, t->jobs[i].arrival_s + sorted[i]);
        if (ev && ev->ended)
            ev->ended(ev->ctx, i, sorted[i]);
    }
    r->jct = sim_times_of(sorted, t->n_jobs);
}

/* Compute the time for which each job had no containers. wait: room for all jobs. */
static void add_waits(const struct trace *t, const struct real *real, double *wait,
                      struct sim_result *r)
{
    for (size_t i = 0; i < t->n_jobs; i++)
        wait[i] = real->completion_s[i];
    for (size_t i = 0; i < real->n_bars; i++)
        wait[real->bars[i].job] -= real->bars[i].to_s - real->bars[i].from_s;
    for (size_t i = 0; i < t->n_jobs; i++)
        wait[i] = MAX(wait[i], 0.0);
    r->wait = sim_times_of(wait, t->n_jobs);
}

int sim_real(const struct trace *t, const struct real *real, const struct sim_events *events,
             struct sim_result *out)
{
    struct sim_result r = { .adjustments = real->adjustments };
    double *sorted = calloc(t->n_jobs + 1, sizeof *sorted);
    struct change *changes = calloc(2 * real->n_bars + 1, sizeof *changes);
    int rc = sorted && changes ? 0 : -ENOMEM;
    if (rc == 0) {
        add_bars(t, real, events, changes, &r);
        add_completions(t, real, events, sorted, &r);
        add_waits(t, real, sorted, &r);
        *out = r;
    }
    free(sorted);
    free(changes);
    return rc;
}
