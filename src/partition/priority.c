/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies that stop running jobs for more urgent ones: las (least attained service, in levels)
 * and srtf (shortest remaining run time first).
 *
 * The jobs are taken in the order of their priority. A job that runs stays where it is. A job that
 * waits gets its fixed number of containers by first fit. If it does not fit, running jobs of lower
 * priority are stopped, the lowest first, until the job fits. Of the stopped jobs, those whose old
 * places are still free continue to run. The others may start again elsewhere, when it is their
 * turn.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "partition/part_int.h"

struct contest {
    const struct part_cluster *c;
    const struct part_job *jobs;
    struct part_decision *out;
    struct part_room room;
    struct part_classes classes;
    const uint32_t *order; /* [rank]: the jobs, the highest priority first */
    size_t n;
    bool *runs;        /* of each job: it ran, and was not stopped */
    uint32_t *stopped; /* jobs that were stopped for the one that is being placed */
    uint32_t n_stopped;
    /* jobs that did not fit; jobs that need at least as much as one of these are left out */
    uint32_t *failed;
    uint32_t n_failed;
};

/* Could the job ever run with its fixed number of containers? */
static bool can_run(const struct contest *t, const struct part_job *job)
{
    return part_classes_fit(&t->classes, &job->demand, part_fixed(job)) == part_fixed(job);
}

/* Did a job that needs no more than this one fail to get containers? Then this one fails, too: a
 * job of lower priority never finds more room. */
static bool smaller_failed(const struct contest *t, const struct part_job *job)
{
    for (uint32_t f = 0; f < t->n_failed; f++) {
        const struct part_job *other = &t->jobs[t->failed[f]];
        bool smaller = part_fixed(other) <= part_fixed(job);
        for (uint32_t k = 0; k < t->c->n_types && smaller; k++)
            smaller = other->demand.v[k] <= job->demand.v[k];
        if (smaller)
            return true;
    }
    return false;
}

/* Stop running jobs with a lower priority than rank r, from the lowest up, until its job fits. */
static bool make_room(struct contest *t, size_t r)
{
    const struct part_job *job = &t->jobs[t->order[r]];
    uint32_t n_types = t->c->n_types;
    uint64_t fits = 0;
    for (uint32_t j = 0; j < t->c->n_nodes; j++)
        fits += part_fit(&t->room.free[j], &job->demand, n_types);
    t->n_stopped = 0;
    for (size_t v = t->n; v-- > r + 1 && fits < part_fixed(job);) {
        uint32_t i = t->order[v];
        const struct part_job *victim = &t->jobs[i];
        /* Another policy may have given this job less than its fixed number. If the fixed number
         * can never fit, the job could not start again. */
        if (!t->runs[i] || victim->pinned || !can_run(t, victim))
            continue;
        t->stopped[t->n_stopped++] = i;
        for (uint32_t p = 0; p < victim->n_at; p++) {
            const struct part_amount *free = &t->room.free[victim->at[p].node];
            fits -= part_fit(free, &job->demand, n_types);
            part_room_return(&t->room, &victim->demand, &victim->at[p], 1);
            fits += part_fit(free, &job->demand, n_types);
        }
    }
    return fits >= part_fixed(job);
}

/* Jobs that were stopped for job i continue to run if their places are still free, those of the
 * highest priority first. */
static void spare_victims(struct contest *t, uint32_t i)
{
    while (t->n_stopped > 0) {
        uint32_t v = t->stopped[--t->n_stopped];
        const struct part_job *victim = &t->jobs[v];
        if (part_room_has(&t->room, &victim->demand, victim->at, victim->n_at)) {
            part_room_take(&t->room, &victim->demand, victim->at, victim->n_at);
            continue;
        }
        t->runs[v] = false;
        part_give(t->out, t->jobs, v, NULL, 0);
        part_say(t->out, v, PART_BECAUSE_LEVEL, i);
    }
}

/* Place the job of rank r. before: a job of higher priority that has containers, or PART_NOBODY. */
static int place(struct contest *t, size_t r, uint32_t before)
{
    uint32_t i = t->order[r], n_at = 0;
    const struct part_job *job = &t->jobs[i];
    const struct part_place *at = NULL;
    bool fits = part_room_for(&t->room, &job->demand, part_fixed(job)) &&
                part_room_find(&t->room, &job->demand, part_fixed(job)) == part_fixed(job);
    t->n_stopped = 0;
    if (!fits && !smaller_failed(t, job)) {
        fits = make_room(t, r);
        if (fits)
            part_room_find(&t->room, &job->demand, part_fixed(job));
        else
            t->failed[t->n_failed++] = i;
    }
    if (fits) {
        at = part_room_places(&t->room, NULL, 0, &n_at);
        if (!at)
            return -ENOMEM;
        part_room_take(&t->room, &job->demand, at, n_at);
    }
    spare_victims(t, i);
    if (!fits && job->n_at > 0)
        return 0; /* the job keeps its verdict: it was stopped for the job that the verdict names */
    part_give(t->out, t->jobs, i, at, n_at);
    if (fits)
        part_say(t->out, i, PART_BECAUSE_ROOM, PART_NOBODY);
    else if (before == PART_NOBODY)
        part_say(t->out, i, PART_BECAUSE_FULL, PART_NOBODY);
    else
        part_say(t->out, i, PART_BECAUSE_LEVEL, before);
    return 0;
}

/* keys[i]: the priority of job i, lower first. */
static int by_priority(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                       const double *keys, struct part_decision *out)
{
    struct contest t = { .c = c, .jobs = jobs, .n = n, .out = out };
    struct part_amount *free = part_free_now(c, jobs, n, out);
    t.order = part_order(keys, n, out);
    t.runs = part_alloc(out, n * sizeof *t.runs + 1);
    t.stopped = part_alloc(out, n * sizeof *t.stopped + 1);
    t.failed = part_alloc(out, n * sizeof *t.failed + 1);
    if (!free || !t.order || !t.runs || !t.stopped || !t.failed)
        return -ENOMEM;
    int rc = part_room_init(&t.room, c, free, out);
    part_classes(c, &t.classes);
    for (size_t i = 0; i < n; i++) {
        t.runs[i] = jobs[i].n_at > 0;
        part_keep(out, jobs, i, PART_BECAUSE_FIXED);
    }
    uint32_t before = PART_NOBODY;
    for (size_t r = 0; r < n && rc == 0; r++) {
        uint32_t i = t.order[r];
        if (!t.runs[i] && !can_run(&t, &jobs[i]))
            part_never(out, jobs, i);
        else if (!t.runs[i])
            rc = place(&t, r, before);
        if (out->jobs[i].n > 0)
            before = i;
    }
    return rc;
}

static int compare(const void *a, const void *b, void *ctx)
{
    const double *keys = ctx;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (keys[x] != keys[y])
        return keys[x] < keys[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

uint32_t *part_order(const double *keys, size_t n, struct part_decision *out)
{
    uint32_t *order = part_alloc(out, n * sizeof *order + 1);
    if (!order)
        return NULL;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, n, sizeof *order, compare, (void *)(uintptr_t)keys);
    return order;
}

uint32_t part_level(const struct part_job *job, const struct part_options *o)
{
    const double slack_s = 1e-9;
    uint32_t level = 0;
    while (level < o->n_levels && job->attained_s >= o->levels[level] - slack_s)
        level++;
    return level;
}

int las_decide(const struct part_cluster *c, const struct part_job *jobs, size_t n,
               const struct part_options *o, struct part_decision *out)
{
    double *keys = part_alloc(out, n * sizeof *keys + 1);
    if (!keys)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        keys[i] = part_level(&jobs[i], o);
    return by_priority(c, jobs, n, keys, out);
}

int srtf_decide(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                const struct part_options *o, struct part_decision *out)
{
    (void)o; /* this policy has no options */
    double *keys = part_alloc(out, n * sizeof *keys + 1);
    if (!keys)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        keys[i] = jobs[i].remaining_s;
    return by_priority(c, jobs, n, keys, out);
}
