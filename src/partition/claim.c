/* SPDX-License-Identifier: Apache-2.0 */
#include "partition/claim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* The input of part_decide(): the jobs in the order that it needs. */
struct problem {
    size_t *order; /* order[k]: the index of job k among the claims */
    struct part_job *jobs;
};

static void problem_done(struct problem *p)
{
    free(p->order);
    free(p->jobs);
}

static int compare(const void *a, const void *b, void *arg)
{
    const struct part_claim *claims = arg;
    size_t i = *(const size_t *)a, k = *(const size_t *)b;
    const struct part_claim *x = &claims[i], *y = &claims[k];
    if (x->runs != y->runs)
        return x->runs ? -1 : 1;
    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    if (x->arrival != y->arrival)
        return x->arrival < y->arrival ? -1 : 1;
    return i < k ? -1 : i > k;
}

/* The demand of one container of a waiting job: `each`, and a share of the fixed part. */
static struct part_amount with_fixed(const struct part_claim *c)
{
    struct part_amount sum = c->each;
    for (int t = 0; t < PART_TYPES_MAX; t++)
        sum.v[t] += c->fixed.v[t] / c->min + (c->fixed.v[t] % c->min != 0);
    return sum;
}

static void set_bounds(const struct part_claim *c, struct part_job *out)
{
    bool is_inside = c->n >= c->min && c->n <= c->max;
    out->min = c->min;
    out->max = c->max;
    out->fixed = is_inside ? c->n : 0;
    out->pinned = c->runs && (c->pinned != NULL || !is_inside);
    if (out->pinned)
        out->min = out->max = out->fixed = c->n;
}

static void fill_one(const struct part_claim *c, struct part_job *out)
{
    *out = (struct part_job){ .id = c->id,
                              .demand = c->runs ? c->each : with_fixed(c),
                              .weight = c->weight,
                              .priority = c->priority,
                              .at = c->runs ? c->at : NULL,
                              .n_at = c->runs ? c->n_at : 0,
                              .budget = c->budget,
                              .remaining_s = c->remaining_s,
                              .ends_in_s = c->ends_in_s,
                              .attained_s = c->attained_s,
                              .resize_s = c->resize_s,
                              .waited_s = c->waited_s };
    set_bounds(c, out);
}

static int problem_fill(const struct part_claim *claims, size_t n, struct problem *p)
{
    p->order = calloc(n + 1, sizeof *p->order);
    p->jobs = calloc(n + 1, sizeof *p->jobs);
    if (!p->order || !p->jobs)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        p->order[i] = i;
    if (n > 1)
        qsort_r(p->order, n, sizeof *p->order, compare, (void *)(uintptr_t)claims);
    for (size_t k = 0; k < n; k++)
        fill_one(&claims[p->order[k]], &p->jobs[k]);
    return 0;
}

/* "it keeps its 4 containers: REASON" with the caller's reason. */
static void put_reason(char why[PART_WHY_MAX], const char *reason)
{
    size_t n = strcspn(why, ":");
    (void)snprintf(why + n, PART_WHY_MAX - n, ": %s", reason);
}

static int take_result(const struct problem *p, const struct part_decision *d,
                       const struct part_cluster *c, const struct part_claim *claims, size_t n,
                       struct part_division *out)
{
    size_t n_places = 0;
    for (size_t k = 0; k < n; k++)
        n_places += d->jobs[k].n_at;
    struct part_target *targets = calloc(n + 1, sizeof *targets);
    struct part_place *next = calloc(n_places + 1, sizeof *next);
    if (!targets || !next) {
        free(targets);
        free(next);
        return -ENOMEM;
    }
    *out = (struct part_division){ .jobs = targets, .n = n, .places = next, .metrics = d->metrics };
    for (size_t k = 0; k < n; k++) {
        struct part_target *t = &targets[p->order[k]];
        const struct part_share *s = &d->jobs[k];
        *t = (struct part_target){ .verdict = s->verdict,
                                   .because = s->because,
                                   .n = s->n,
                                   .ideal = s->ideal,
                                   .at = next,
                                   .n_at = s->n_at };
        for (uint32_t i = 0; i < s->n_at; i++)
            *next++ = s->at[i];
        part_why(d, c, p->jobs, k, t->why);
        if (p->jobs[k].pinned && claims[p->order[k]].pinned)
            put_reason(t->why, claims[p->order[k]].pinned);
    }
    return 0;
}

int part_divide(const struct part_policy *policy, const struct part_options *o,
                const struct part_cluster *c, const struct part_claim *claims, size_t n,
                struct part_division *out, struct err *e)
{
    AUTO(problem_done) struct problem p = { 0 };
    AUTO(part_decision_done) struct part_decision d = { 0 };
    int rc = problem_fill(claims, n, &p);
    if (rc == 0)
        rc = part_decide(policy, c, p.jobs, n, o, &d, e);
    if (rc == 0)
        rc = take_result(&p, &d, c, claims, n, out);
    return rc == -ENOMEM ? err_set(e, ENOMEM, "cannot divide the resources: %m") : rc;
}

void part_division_done(struct part_division *d)
{
    free(d->jobs);
    free(d->places);
    *d = (struct part_division){ 0 };
}
