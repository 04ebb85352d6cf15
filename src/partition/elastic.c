/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies srtf-elastic and las-elastic: some jobs come first, but no job is ever stopped.
 *
 *   srtf-elastic   the shorter the remaining run time, the earlier; jobs whose remaining time is
 *                  unknown come last
 *   las-elastic    the lower the level of attained service, the earlier: the number of thresholds
 *                  that the integral of the dominant share has reached (options.levels), as las
 *
 * Among equal ones the earlier job comes first.
 *
 * 1. Each running job keeps its min.
 * 2. Jobs that wait start with their min, in this order. If one does not fit, it and all waiting
 *    jobs behind it wait.
 * 3. What is left goes to the jobs in this order: each grows to its max before the next one gets a
 *    container.
 *
 * With las-elastic, again_s of the metrics is the time after which the next job reaches a
 * threshold.
 *
 * The counts n_i are those of the pooled capacity C_k: sum over i of n_i * d_ik <= C_k. Then each
 * count gets nodes (counts.c).
 */
#include <errno.h>
#include <math.h>

#include "base/base.h"
#include "partition/drf.h"
#include "partition/part_int.h"

struct shares {
    const struct part_cluster *c;
    const struct part_job *jobs;
    const uint32_t *order; /* the jobs, the first to be served first */
    size_t n;
    uint32_t *caps, *want;
    struct part_amount left;
    uint32_t blocked_by; /* the first job that waits because of its min */
};

static bool fits(const struct shares *s, uint32_t i, uint32_t n)
{
    for (uint32_t k = 0; k < s->c->n_types; k++)
        if (s->jobs[i].demand.v[k] * (int64_t)n > s->left.v[k])
            return false;
    return true;
}

static void give(struct shares *s, uint32_t i, uint32_t n)
{
    s->want[i] += n;
    part_take(&s->left, &s->jobs[i].demand, s->c->n_types, n, -1);
}

static void give_minima(struct shares *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->jobs[i].n_at > 0)
            give(s, i, s->jobs[i].pinned ? part_count(&s->jobs[i]) : s->jobs[i].min);
    for (size_t t = 0; t < s->n; t++) {
        uint32_t i = s->order[t], min = s->jobs[i].min;
        if (s->jobs[i].n_at > 0 || s->caps[i] < min)
            continue;
        if (!fits(s, i, min)) {
            s->blocked_by = i;
            return;
        }
        give(s, i, min);
    }
}

/* The number of containers by which the job may grow. */
static uint32_t growth(const struct shares *s, uint32_t i)
{
    if (s->want[i] == 0 || s->jobs[i].pinned || s->want[i] >= s->caps[i])
        return 0;
    return MIN(s->caps[i] - s->want[i], part_fit(&s->left, &s->jobs[i].demand, s->c->n_types));
}

/* Say why jobs have less than their max: the room went to the job before them. */
static void explain(const struct shares *s, struct part_decision *out)
{
    uint32_t before = PART_NOBODY;
    for (size_t t = 0; t < s->n; t++) {
        uint32_t i = s->order[t];
        const struct part_share *got = &out->jobs[i];
        if (s->caps[i] < s->jobs[i].min || s->jobs[i].pinned)
            continue;
        if (got->n == 0 && s->want[i] == 0 && i != s->blocked_by && s->blocked_by != PART_NOBODY)
            part_say(out, i, PART_BECAUSE_BEHIND, s->blocked_by);
        else if (got->n > 0 && got->n < s->jobs[i].max && got->n == s->want[i] &&
                 before != PART_NOBODY)
            part_say(out, i, PART_BECAUSE_LEVEL, before);
        else if (got->n > 0 && got->n < s->jobs[i].max)
            part_say(out, i, PART_BECAUSE_ROOM, PART_NOBODY);
        if (got->n > 0)
            before = i;
    }
}

/* keys[i]: the place of job i in the order; the smaller, the earlier. */
static int in_order(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                    const double *keys, const struct part_options *o, struct part_decision *out)
{
    struct shares s = { .c = c, .jobs = jobs, .n = n, .blocked_by = PART_NOBODY };
    s.order = part_order(keys, n, out);
    s.caps = part_alloc(out, n * sizeof *s.caps + 1);
    s.want = part_alloc(out, n * sizeof *s.want + 1);
    if (!s.order || !s.caps || !s.want)
        return -ENOMEM;
    part_caps(c, jobs, n, s.caps);
    part_total(c, &s.left);
    for (uint32_t i = 0; i < n; i++)
        s.want[i] = 0;
    give_minima(&s);
    for (size_t t = 0; t < n; t++)
        give(&s, s.order[t], growth(&s, s.order[t]));
    int rc = part_apply(c, jobs, n, s.caps, s.want, PART_BECAUSE_LEVEL, out);
    if (rc == 0 && o->repack)
        rc = part_repack(c, jobs, n, s.caps, s.want, out);
    if (rc == 0)
        explain(&s, out);
    return rc;
}

int srtf_elastic_decide(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                        const struct part_options *o, struct part_decision *out)
{
    double *keys = part_alloc(out, n * sizeof *keys + 1);
    if (!keys)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        keys[i] = jobs[i].remaining_s;
    return in_order(c, jobs, n, keys, o, out);
}

/* The time until the job reaches its next threshold. A change may still be cancelled (worth.h), so
 * it counts with the larger of its present and its decided number of containers. */
static double next_level_s(const struct part_cluster *c, const struct part_amount *total,
                           const struct part_job *job, uint32_t decided,
                           const struct part_options *o)
{
    uint32_t n = MAX(part_count(job), decided);
    double rate = part_share_of_one(&job->demand, total, c->n_types) * (double)n;
    uint32_t level = part_level(job, o);
    return level < o->n_levels && rate > 0 ? (o->levels[level] - job->attained_s) / rate : INFINITY;
}

int las_elastic_decide(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                       const struct part_options *o, struct part_decision *out)
{
    struct part_amount total;
    double *keys = part_alloc(out, n * sizeof *keys + 1);
    if (!keys)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        keys[i] = part_level(&jobs[i], o);
    int rc = in_order(c, jobs, n, keys, o, out);
    part_total(c, &total);
    for (size_t i = 0; i < n && rc == 0; i++) {
        double s = next_level_s(c, &total, &jobs[i], out->jobs[i].n, o);
        out->metrics.again_s = MIN(out->metrics.again_s, s);
    }
    return rc;
}
