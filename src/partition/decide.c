/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "partition/drf.h"
#include "partition/part_int.h"
#include "partition/worth.h"

#define ROUNDING 1e-8 /* sums of shares may differ by this although they are equal */

const struct part_options part_defaults = {
    .theta1 = 0.1,
    .theta2 = 0.1,
    .loss_max = -1,
    .adjust_max = -1,
};

const struct part_policy part_policies[] = {
    { .name = "static",
      .text = "a strict queue by priority and arrival; the first job that does not fit blocks it",
      .decide = static_decide },
    { .name = "fifo",
      .text =
          "as static, but a later job may start if this delays no start of the first that waits",
      .decide = fifo_decide },
    { .name = "backfill", .text = "another name of fifo", .decide = fifo_decide },
    { .name = "drf",
      .text = "weighted dominant resource fairness: each job gets its fair share",
      .resizes = true,
      .decide = drf_decide },
    { .name = "dorm",
      .text = "the best use of the cluster within bounds on unfairness and on adjusted jobs",
      .resizes = true,
      .decide = dorm_decide },
    { .name = "market",
      .text = "each job bids its budget on the nodes, and gets what its bids buy",
      .resizes = true,
      .decide = market_decide },
    { .name = "las",
      .text = "first the jobs that attained least service, in levels; they stop others",
      .preempts = true,
      .by_service = true,
      .decide = las_decide },
    { .name = "srtf",
      .text = "first the jobs with the shortest remaining run time; they stop others",
      .preempts = true,
      .decide = srtf_decide },
    { .name = "srtf-elastic",
      .text = "first the jobs with the shortest remaining run time; the others keep their min",
      .resizes = true,
      .decide = srtf_elastic_decide },
    { .name = "las-elastic",
      .text = "first the jobs that attained least service, in levels; the others keep their min",
      .resizes = true,
      .by_service = true,
      .decide = las_elastic_decide },
    { .name = NULL },
};

const struct part_policy *part_policy_find(const char *name)
{
    for (const struct part_policy *p = part_policies; p->name; p++)
        if (str_eq(p->name, name))
            return p;
    return NULL;
}

/* ---- the inputs ---- */

static int check_cluster(const struct part_cluster *c, struct part_amount *total, struct err *e)
{
    if (c->n_types == 0 || c->n_types > PART_TYPES_MAX)
        return err_set(e, EINVAL, "%" PRIu32 " types of resources: there must be 1 to %d",
                       c->n_types, PART_TYPES_MAX);
    if (c->n_nodes > PART_NODES_MAX)
        return err_set(e, EINVAL, "%" PRIu32 " nodes: the limit is %d", c->n_nodes, PART_NODES_MAX);
    *total = (struct part_amount){ 0 };
    for (uint32_t j = 0; j < c->n_nodes; j++)
        for (uint32_t k = 0; k < c->n_types; k++) {
            int64_t v = c->nodes[j].v[k];
            if (v < 0 || v > PART_AMOUNT_MAX)
                return err_set(e, EINVAL,
                               "node %" PRIu32 ": capacity of %s is %" PRId64
                               ", outside of 0 to %" PRId64,
                               j, c->types[k], v, PART_AMOUNT_MAX);
            total->v[k] += v;
            if (total->v[k] > PART_TOTAL_MAX)
                return err_set(e, EINVAL, "the nodes have more than %" PRId64 " of %s together",
                               PART_TOTAL_MAX, c->types[k]);
        }
    return 0;
}

static int check_demand(const struct part_cluster *c, const struct part_job *job, struct err *e)
{
    bool any = false;
    for (uint32_t k = 0; k < c->n_types; k++) {
        int64_t v = job->demand.v[k];
        if (v < 0 || v > PART_AMOUNT_MAX)
            return err_set(e, EINVAL,
                           "job '%s': demand of %s is %" PRId64 ", outside of 0 to %" PRId64,
                           job->id, c->types[k], v, PART_AMOUNT_MAX);
        any |= v > 0;
    }
    return any ? 0 : err_set(e, EINVAL, "job '%s': its containers demand nothing", job->id);
}

static int check_job(const struct part_job *job, struct err *e)
{
    if (job->weight == 0 || job->weight > PART_WEIGHT_MAX)
        return err_set(e, EINVAL, "job '%s': weight is %" PRIu32 ", outside of 1 to %d", job->id,
                       job->weight, PART_WEIGHT_MAX);
    if (job->min == 0 || job->min > job->max || job->max > PART_CONTAINERS_MAX)
        return err_set(e, EINVAL,
                       "job '%s': min is %" PRIu32 " and max is %" PRIu32
                       ": they must be 1 <= min <= max <= %d",
                       job->id, job->min, job->max, PART_CONTAINERS_MAX);
    if (job->fixed != 0 && (job->fixed < job->min || job->fixed > job->max))
        return err_set(e, EINVAL,
                       "job '%s': fixed is %" PRIu32 ", outside of its min %" PRIu32
                       " to its max %" PRIu32,
                       job->id, job->fixed, job->min, job->max);
    if (!(job->remaining_s >= 0) || !(job->ends_in_s >= 0) || !(job->attained_s >= 0) ||
        !(job->resize_s >= 0 && job->resize_s < INFINITY) ||
        !(job->waited_s >= 0 && job->waited_s < INFINITY) ||
        !(job->budget >= 0 && job->budget < INFINITY))
        return err_set(e, EINVAL, "job '%s': a time or the budget is negative or not a number",
                       job->id);
    if (job->n_at == 0 && (job->pinned || job->lost))
        return err_set(e, EINVAL, "job '%s': it is %s but does not run", job->id,
                       job->pinned ? "pinned" : "lost");
    return 0;
}

/* Check the places of a running job, and subtract its containers from `free`. */
static int check_places(const struct part_cluster *c, const struct part_job *job,
                        struct part_amount *free, struct err *e)
{
    uint64_t count = 0;
    for (uint32_t p = 0; p < job->n_at; p++) {
        const struct part_place *at = &job->at[p];
        if (at->node >= c->n_nodes)
            return err_set(e, EINVAL, "job '%s': it runs on node %" PRIu32 " of %" PRIu32 " nodes",
                           job->id, at->node, c->n_nodes);
        if (p > 0 && at->node <= at[-1].node)
            return err_set(
                e, EINVAL,
                "job '%s': its places are not in the order of the nodes at node %" PRIu32, job->id,
                at->node);
        if (at->n == 0 || at->n > PART_CONTAINERS_MAX)
            return err_set(e, EINVAL,
                           "job '%s': it has %" PRIu32 " containers on node %" PRIu32
                           ": there must be 1 to %d",
                           job->id, at->n, at->node, PART_CONTAINERS_MAX);
        count += at->n;
        part_take(&free[at->node], &job->demand, c->n_types, at->n, -1);
        for (uint32_t k = 0; k < c->n_types; k++)
            if (free[at->node].v[k] < 0)
                return err_set(e, EINVAL,
                               "node %" PRIu32 ": with job '%s' it holds more than its %" PRId64
                               " of %s",
                               at->node, job->id, c->nodes[at->node].v[k], c->types[k]);
    }
    if (job->n_at > 0 && (count < job->min || count > job->max))
        return err_set(e, EINVAL,
                       "job '%s': it runs with %" PRIu64 " containers, outside of its min %" PRIu32
                       " to its max %" PRIu32,
                       job->id, count, job->min, job->max);
    return 0;
}

static int check_options(const struct part_options *o, struct err *e)
{
    if (!(o->theta1 >= 0 && o->theta1 <= 1) || !(o->theta2 >= 0 && o->theta2 <= 1))
        return err_set(e, EINVAL, "theta1 and theta2 must be 0 to 1");
    if (isnan(o->loss_max))
        return err_set(e, EINVAL, "the bound on the loss of fairness is not a number");
    if (!(o->payback_s >= 0))
        return err_set(e, EINVAL, "the time in which a resize must pay is negative");
    if (!(o->reserve >= 0 && o->reserve < INFINITY))
        return err_set(e, EINVAL, "the reserve price must not be negative");
    for (uint32_t v = 0; v < o->n_levels; v++)
        if (!(o->levels[v] >= 0) || (v > 0 && !(o->levels[v] > o->levels[v - 1])))
            return err_set(e, EINVAL, "the levels of attained service do not rise");
    return 0;
}

static int check(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                 const struct part_options *o, struct part_decision *out, struct err *e)
{
    struct part_amount total;
    int rc = check_options(o, e);
    if (rc == 0)
        rc = check_cluster(c, &total, e);
    if (rc == 0 && n > PART_JOBS_MAX)
        rc = err_set(e, EINVAL, "%zu jobs: the limit is %d", n, PART_JOBS_MAX);
    if (rc < 0)
        return rc;
    struct part_amount *free = part_free_now(c, jobs, 0, out);
    if (!free)
        return err_set(e, ENOMEM, "cannot divide the cluster: %m");
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = check_demand(c, &jobs[i], e);
        if (rc == 0)
            rc = check_job(&jobs[i], e);
        if (rc == 0)
            rc = check_places(c, &jobs[i], free, e);
    }
    return rc;
}

/* ---- the metrics ---- */

/* The number of containers of the job that appear on a node or vanish from it. Both lists are in
 * the order of the nodes. */
static uint64_t changed(const struct part_job *job, const struct part_share *share)
{
    uint64_t sum = 0;
    uint32_t a = 0, b = 0;
    while (a < job->n_at || b < share->n_at) {
        if (b == share->n_at || (a < job->n_at && job->at[a].node < share->at[b].node)) {
            sum += job->at[a++].n;
        } else if (a == job->n_at || share->at[b].node < job->at[a].node) {
            sum += share->at[b++].n;
        } else {
            uint32_t was = job->at[a++].n, is = share->at[b++].n;
            sum += was > is ? was - is : is - was;
        }
    }
    return sum;
}

/* Compute ideal counts over the jobs that have containers after the decision; jobs that ran
 * before come first. */
static int find_ideals(const struct part_cluster *c, const struct part_job *jobs,
                       struct part_decision *out)
{
    size_t m = 0, n = out->n;
    bool unset = false;
    for (size_t i = 0; i < n; i++)
        unset |= out->jobs[i].ideal == PART_IDEAL_UNSET;
    if (!unset)
        return 0;
    struct part_job *order = part_alloc(out, n * sizeof *order + 1);
    uint32_t *from = part_alloc(out, n * sizeof *from + 1);
    uint32_t *counts = part_alloc(out, n * sizeof *counts + 1);
    if (!order || !from || !counts)
        return -ENOMEM;
    for (int ran = 1; ran >= 0; ran--)
        for (size_t i = 0; i < n; i++)
            if (out->jobs[i].n > 0 && (jobs[i].n_at > 0) == (ran != 0)) {
                order[m] = jobs[i];
                from[m++] = (uint32_t)i;
            }
    int rc = part_drf(c, order, m, NULL, counts);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < m; i++)
        if (out->jobs[from[i]].ideal == PART_IDEAL_UNSET)
            out->jobs[from[i]].ideal = counts[i];
    for (size_t i = 0; i < n; i++)
        if (out->jobs[i].ideal == PART_IDEAL_UNSET)
            out->jobs[i].ideal = 0;
    return 0;
}

static int measure(const struct part_cluster *c, const struct part_job *jobs,
                   struct part_decision *out)
{
    struct part_metrics *m = &out->metrics;
    struct part_amount total;
    part_total(c, &total);
    for (size_t i = 0; i < out->n; i++) {
        const struct part_share *s = &out->jobs[i];
        for (uint32_t k = 0; k < c->n_types; k++)
            m->used[k] += (double)s->n * (double)jobs[i].demand.v[k];
        m->admitted += s->verdict == PART_STARTS;
        if (jobs[i].n_at > 0) {
            m->adjusted += !jobs[i].lost && s->verdict != PART_KEEPS;
            m->changed += changed(&jobs[i], s);
        }
    }
    for (uint32_t k = 0; k < c->n_types; k++)
        if (total.v[k] > 0)
            m->utilization += m->used[k] / (double)total.v[k];
    int rc = find_ideals(c, jobs, out);
    for (size_t i = 0; i < out->n && rc == 0; i++)
        if (out->jobs[i].n > 0)
            m->loss += part_share_of_one(&jobs[i].demand, &total, c->n_types) *
                       fabs((double)out->jobs[i].n - (double)out->jobs[i].ideal);
    return rc;
}

double part_gap(const struct part_metrics *m)
{
    if (isnan(m->upper_bound))
        return NAN;
    double gap = m->upper_bound > 0 ? 1 - m->utilization / m->upper_bound : 0;
    return gap > ROUNDING ? gap : 0;
}

/* ---- the jobs that hold missing resources ---- */

/* For each type of resource: the amount that is free after the decision, and the job that holds
 * most of it. */
struct holders {
    struct part_amount free;
    uint32_t job[PART_TYPES_MAX];
};

static void find_holders(const struct part_cluster *c, const struct part_job *jobs,
                         const struct part_decision *d, struct holders *h)
{
    int64_t most[PART_TYPES_MAX] = { 0 };
    part_total(c, &h->free);
    for (uint32_t k = 0; k < c->n_types; k++)
        h->job[k] = PART_NOBODY;
    for (size_t i = 0; i < d->n; i++) {
        part_take(&h->free, &jobs[i].demand, c->n_types, d->jobs[i].n, -1);
        for (uint32_t k = 0; k < c->n_types; k++) {
            int64_t held = jobs[i].demand.v[k] * (int64_t)d->jobs[i].n;
            if (held > most[k]) {
                most[k] = held;
                h->job[k] = (uint32_t)i;
            }
        }
    }
}

/* The type that the job lacks most: the type with the largest ratio of demand to free amount. */
static uint32_t scarcest(const struct part_cluster *c, const struct part_job *job,
                         const struct holders *h)
{
    uint32_t type = 0;
    double most = -1;
    for (uint32_t k = 0; k < c->n_types; k++) {
        double lack = (double)job->demand.v[k] / ((double)h->free.v[k] + 0.5);
        if (lack > most) {
            most = lack;
            type = k;
        }
    }
    return type;
}

static void name_holders(const struct part_cluster *c, const struct part_job *jobs,
                         struct part_decision *out)
{
    struct holders h;
    bool known = false;
    for (size_t i = 0; i < out->n; i++) {
        struct part_share *s = &out->jobs[i];
        if (s->because != PART_BECAUSE_FULL)
            continue;
        if (!known)
            find_holders(c, jobs, out, &h);
        known = true;
        s->type = scarcest(c, &jobs[i], &h);
        if (s->other == PART_NOBODY)
            s->other = h.job[s->type];
    }
}

/* ---- a decision ---- */

int part_decide(const struct part_policy *policy, const struct part_cluster *c,
                const struct part_job *jobs, size_t n, const struct part_options *o,
                struct part_decision *out, struct err *e)
{
    int rc = part_begin(out, n);
    if (rc < 0)
        return err_set(e, -rc, "cannot divide the cluster: %m");
    rc = o->quick ? 0 : check(c, jobs, n, o, out, e);
    if (rc == 0) {
        for (size_t i = 0; i < n; i++)
            out->jobs[i] = (struct part_share){ .other = PART_NOBODY, .ideal = PART_IDEAL_UNSET };
        out->metrics.loss_bound = INFINITY;
        out->metrics.adjust_bound = -1;
        out->metrics.upper_bound = NAN;
        out->metrics.again_s = INFINITY;
        rc = policy->decide(c, jobs, n, o, out);
        if (rc == 0 && o->payback_s > 0 && policy->resizes && !policy->preempts)
            rc = part_worth(c, jobs, o, out);
        if (rc == 0 && !o->quick)
            rc = measure(c, jobs, out);
        /* part_worth() may leave a division that is less fair than the bound. It may use more than
         * any allowed one, so the upper bound does not hold for it. */
        if (out->metrics.loss > out->metrics.loss_bound + ROUNDING)
            out->metrics.upper_bound = NAN;
        if (rc < 0)
            err_set(e, -rc, "policy '%s' cannot divide the cluster: %m", policy->name);
    }
    if (rc < 0) {
        out->jobs = NULL;
        out->n = 0;
        out->metrics = (struct part_metrics){ 0 };
        return rc;
    }
    if (!o->quick)
        name_holders(c, jobs, out);
    return 0;
}

/* ---- sentences ---- */

static const char *containers(uint32_t n, char buf[32])
{
    snprintf(buf, 32, "%" PRIu32 " container%s", n, n == 1 ? "" : "s");
    return buf;
}

/* Can the job have only one number of containers? */
static bool is_fixed(const struct part_job *job)
{
    return job->min == job->max;
}

static void say_what(const struct part_share *s, const struct part_job *job, char *out, size_t size)
{
    char is[32];
    uint32_t was = part_count(job);
    containers(s->n, is);
    bool whole = is_fixed(job) && s->n == 1; /* its one container may stand for several tasks */
    if (s->verdict == PART_NEVER)
        snprintf(out, size, "can never run");
    else if (whole && s->verdict == PART_STARTS)
        snprintf(out, size, "starts");
    else if (whole && s->verdict == PART_KEEPS)
        snprintf(out, size, "keeps what it has");
    else if (whole && s->verdict == PART_CHANGES)
        snprintf(out, size, "moves");
    else if (s->verdict == PART_STARTS)
        snprintf(out, size, "starts with %s", is);
    else if (s->verdict == PART_KEEPS)
        snprintf(out, size, "keeps its %s", is);
    else if (s->verdict == PART_STOPS)
        snprintf(out, size, "is stopped and waits again");
    else if (s->verdict == PART_CHANGES && s->n > was)
        snprintf(out, size, "grows from %" PRIu32 " to %s", was, is);
    else if (s->verdict == PART_CHANGES && s->n < was)
        snprintf(out, size, "shrinks from %" PRIu32 " to %s", was, is);
    else if (s->verdict == PART_CHANGES)
        snprintf(out, size, "moves some of its %s", is);
    else
        snprintf(out, size, "waits");
}

/* The sentences that name neither a job nor a number. */
static const char *const reasons[PART_BECAUSE_N] = {
    [PART_BECAUSE_ROOM] = "there is room for this and no more",
    [PART_BECAUSE_FULL] = "there is no room for it now",
    [PART_BECAUSE_BEHIND] = "other jobs come first",
    [PART_BECAUSE_RESERVED] = "the room is reserved",
    [PART_BECAUSE_USE] = "with this, the cluster is used best",
    [PART_BECAUSE_LOSS] = "more would be too unfair to other jobs",
    [PART_BECAUSE_ADJUSTED] = "a change would adjust too many running jobs",
    [PART_BECAUSE_PINNED] = "it must not be changed",
    [PART_BECAUSE_AT_MAX] = "this is its largest size",
    [PART_BECAUSE_LEVEL] = "this policy serves other jobs first",
    [PART_BECAUSE_BID] = "its budget buys this much",
    [PART_BECAUSE_TOO_BIG] = "its smallest size does not fit into the empty cluster",
    [PART_BECAUSE_FIXED] = "this policy does not resize jobs that run",
};

/* Is the number of containers the choice of the policy, and not forced by another rule? */
static bool is_choice(enum part_because because)
{
    return because == PART_BECAUSE_ROOM || because == PART_BECAUSE_FAIR ||
           because == PART_BECAUSE_USE || because == PART_BECAUSE_AT_MAX ||
           because == PART_BECAUSE_BID;
}

static void say_why(const struct part_share *s, const struct part_job *job, const char *other,
                    const char *type, char *out, size_t size)
{
    char n[32];
    if (is_fixed(job) && s->verdict == PART_KEEPS && is_choice(s->because))
        snprintf(out, size, "its size is fixed");
    else if (is_fixed(job) && s->verdict == PART_STARTS && is_choice(s->because))
        snprintf(out, size, "there is room for it");
    else if (s->because == PART_BECAUSE_FAIR)
        snprintf(out, size, "its fair share is %s", containers(s->ideal, n));
    else if (other && s->because == PART_BECAUSE_FULL)
        snprintf(out, size, "there is no room for it now, and job '%s' holds most of the %s", other,
                 type);
    else if (other && s->because == PART_BECAUSE_BEHIND)
        snprintf(out, size, "job '%s' is before it in the queue", other);
    else if (other && s->because == PART_BECAUSE_RESERVED)
        snprintf(out, size, "the room is reserved for job '%s'", other);
    else if (other && s->because == PART_BECAUSE_LEVEL)
        snprintf(out, size, "this policy serves job '%s' first", other);
    else if (s->because == PART_BECAUSE_COST && s->verdict == PART_WAITS)
        snprintf(out, size,
                 "to make room would cost running jobs as much as %.0f s of its work, and gain "
                 "%.0f s",
                 s->cost_s, s->gain_s);
    else if (s->because == PART_BECAUSE_COST && s->gives)
        snprintf(out, size,
                 "to shrink it for others would cost %.0f s of its work, and gain them as much as "
                 "%.0f s",
                 s->cost_s, s->gain_s);
    else if (s->because == PART_BECAUSE_COST)
        snprintf(out, size, "a resize would cost %.0f s of its work, and gain %.0f s", s->cost_s,
                 s->gain_s);
    else
        snprintf(out, size, "%s", reasons[s->because] ? reasons[s->because] : "");
}

void part_why(const struct part_decision *d, const struct part_cluster *c,
              const struct part_job *jobs, size_t i, char out[PART_WHY_MAX])
{
    const struct part_share *s = &d->jobs[i];
    char what[64], why[160], other[64];
    bool named = s->other != PART_NOBODY;
    if (named)
        str_copy(other, sizeof other, jobs[s->other].id);
    say_what(s, &jobs[i], what, sizeof what);
    say_why(s, &jobs[i], named ? other : NULL, c->types[s->type], why, sizeof why);
    snprintf(out, PART_WHY_MAX, "it %s: %s", what, why);
}
