/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { TYPE_MEMORY, TYPE_GPUS, TYPES };

static const char *const type_names[TYPES] = { "memory_mib", "gpus" };

/* ---- amounts ---- */

struct admission_amount share_sum(const struct admission_amount *fixed,
                                  const struct admission_amount *each, uint32_t n)
{
    struct admission_amount sum;
    uint64_t gpus = fixed->gpus + (uint64_t)n * each->gpus;
    if (__builtin_mul_overflow(each->memory_mib, (uint64_t)n, &sum.memory_mib) ||
        __builtin_add_overflow(sum.memory_mib, fixed->memory_mib, &sum.memory_mib))
        sum.memory_mib = UINT64_MAX;
    sum.gpus = (uint32_t)MIN(gpus, (uint64_t)UINT32_MAX);
    return sum;
}

bool share_count(const struct admission_amount *fixed, const struct admission_amount *each,
                 const struct admission_amount *held, uint32_t *out)
{
    if (each->memory_mib == 0 || held->memory_mib < fixed->memory_mib || held->gpus < fixed->gpus)
        return false;
    uint64_t n = (held->memory_mib - fixed->memory_mib) / each->memory_mib;
    if (n > PART_CONTAINERS_MAX)
        return false;
    struct admission_amount sum = share_sum(fixed, each, (uint32_t)n);
    if (sum.memory_mib != held->memory_mib || sum.gpus != held->gpus)
        return false;
    *out = (uint32_t)n;
    return true;
}

static uint64_t divide_up(uint64_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}

/* One container of a job that waits: `each` and its part of the fixed part. */
static struct admission_amount with_fixed(const struct share_job *j)
{
    struct admission_amount part = { divide_up(j->fixed.memory_mib, j->min),
                                     (uint32_t)divide_up(j->fixed.gpus, j->min) };
    return share_sum(&j->each, &part, 1);
}

static int64_t cap(uint64_t v)
{
    return (int64_t)MIN(v, (uint64_t)PART_AMOUNT_MAX + 1); /* part_decide() refuses the last one */
}

static struct part_amount to_part(const struct admission_amount *a)
{
    struct part_amount p = { 0 };
    p.v[TYPE_MEMORY] = cap(a->memory_mib);
    p.v[TYPE_GPUS] = cap(a->gpus);
    return p;
}

/* The node: the capacity without the fixed parts of running jobs, but at least what their other
 * containers hold. */
static struct part_amount node_of(const struct admission_amount *capacity,
                                  const struct share_job *jobs, size_t n)
{
    struct admission_amount fixed = { 0 }, held = { 0 }, node = { 0 };
    for (size_t i = 0; i < n; i++) {
        if (jobs[i].kind != SHARE_RUNS)
            continue;
        fixed = share_sum(&fixed, &jobs[i].fixed, 1);
        held = share_sum(&held, &jobs[i].each, jobs[i].n);
    }
    if (fixed.memory_mib < capacity->memory_mib)
        node.memory_mib = capacity->memory_mib - fixed.memory_mib;
    if (fixed.gpus < capacity->gpus)
        node.gpus = capacity->gpus - fixed.gpus;
    node.memory_mib = MAX(node.memory_mib, held.memory_mib);
    node.gpus = MAX(node.gpus, held.gpus);
    return to_part(&node);
}

/* ---- the decision ---- */

/* The input of part_decide(), in its order. */
struct problem {
    size_t *order; /* order[k]: the index of its k-th job in the caller's list */
    struct part_job *jobs;
    struct part_place *places;
};

static void problem_done(struct problem *p)
{
    free(p->order);
    free(p->jobs);
    free(p->places);
}

static int compare(const void *a, const void *b, void *arg)
{
    const struct share_job *jobs = arg;
    size_t i = *(const size_t *)a, k = *(const size_t *)b;
    const struct share_job *x = &jobs[i], *y = &jobs[k];
    bool x_runs = x->kind == SHARE_RUNS, y_runs = y->kind == SHARE_RUNS;
    if (x_runs != y_runs)
        return x_runs ? -1 : 1;
    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return i < k ? -1 : i > k;
}

static void fill_one(const struct share_job *j, struct part_job *out, struct part_place *place)
{
    bool runs = j->kind == SHARE_RUNS;
    struct admission_amount one = runs ? j->each : with_fixed(j);
    *out = (struct part_job){ .id = j->id,
                              .demand = to_part(&one),
                              .weight = j->weight,
                              .min = j->min,
                              .max = j->max,
                              .fixed = j->n >= j->min && j->n <= j->max ? j->n : 0,
                              .priority = j->priority,
                              .pinned = runs && j->pinned,
                              .remaining_s = j->remaining_s,
                              .ends_in_s = j->ends_in_s,
                              .attained_s = j->attained_s,
                              .budget = j->budget };
    if (!runs)
        return;
    *place = (struct part_place){ .node = 0, .n = j->n };
    out->at = place;
    out->n_at = 1;
}

static int problem_fill(const struct share_job *jobs, size_t n, struct problem *p)
{
    p->order = calloc(n + 1, sizeof *p->order);
    p->jobs = calloc(n + 1, sizeof *p->jobs);
    p->places = calloc(n + 1, sizeof *p->places);
    if (!p->order || !p->jobs || !p->places)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        p->order[i] = i;
    if (n > 1)
        qsort_r(p->order, n, sizeof *p->order, compare, (void *)(uintptr_t)jobs);
    for (size_t k = 0; k < n; k++)
        fill_one(&jobs[p->order[k]], &p->jobs[k], &p->places[k]);
    return 0;
}

static int take_result(const struct problem *p, const struct part_decision *d,
                       const struct part_cluster *c, size_t n, struct share_decision *out)
{
    struct share_target *targets = calloc(n + 1, sizeof *targets);
    if (!targets)
        return -ENOMEM;
    for (size_t k = 0; k < n; k++) {
        struct share_target *t = &targets[p->order[k]];
        *t = (struct share_target){ .verdict = d->jobs[k].verdict,
                                    .because = d->jobs[k].because,
                                    .n = d->jobs[k].n,
                                    .ideal = d->jobs[k].ideal };
        part_why(d, c, p->jobs, k, t->why);
    }
    *out = (struct share_decision){ .jobs = targets, .n = n, .metrics = d->metrics };
    return 0;
}

int share_decide(const struct part_policy *policy, const struct part_options *o,
                 const struct admission_amount *capacity, const struct share_job *jobs, size_t n,
                 struct share_decision *out, struct err *e)
{
    AUTO(problem_done) struct problem p = { 0 };
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_amount node = node_of(capacity, jobs, n);
    struct part_cluster c = { .n_types = TYPES, .types = type_names, .n_nodes = 1, .nodes = &node };
    if (problem_fill(jobs, n, &p) < 0)
        return err_set(e, ENOMEM, "cannot divide the machine: %m");
    int rc = part_decide(policy, &c, p.jobs, n, o, &d, e);
    if (rc == 0 && take_result(&p, &d, &c, n, out) < 0)
        rc = err_set(e, ENOMEM, "cannot divide the machine: %m");
    return rc;
}

void share_decision_done(struct share_decision *d)
{
    free(d->jobs);
    *d = (struct share_decision){ 0 };
}

/* ---- what would change it ---- */

static const char *const waiting_hints[PART_BECAUSE_N] = {
    [PART_BECAUSE_FULL] = "it can start when a running job ends or shrinks",
    [PART_BECAUSE_BEHIND] = "it can start when that job has started or ended; a higher "
                            "tony.application.priority moves it forward",
    [PART_BECAUSE_RESERVED] = "it can start when that job has started or ended",
    [PART_BECAUSE_LOSS] = "a larger bound on the loss of fairness would let it start: tony pool "
                          "set loss-max=...",
    [PART_BECAUSE_ADJUSTED] = "it could start if more running jobs might be adjusted: tony pool "
                              "set adjust-max=...",
    [PART_BECAUSE_TOO_BIG] = "fewer or smaller containers: it does not fit into the empty machine",
};

static const char *const running_hints[PART_BECAUSE_N] = {
    [PART_BECAUSE_ROOM] = "other jobs that come and end",
    [PART_BECAUSE_FULL] = "other jobs that come and end",
    [PART_BECAUSE_USE] = "other jobs that come and end",
    [PART_BECAUSE_FAIR] = "its tony.application.weight, or other jobs that come and end",
    [PART_BECAUSE_BID] = "its tony.application.budget, or other jobs that come and end",
    [PART_BECAUSE_LOSS] = "a larger bound on the loss of fairness (tony pool set loss-max=...), or "
                          "other jobs that end",
    [PART_BECAUSE_ADJUSTED] = "a larger bound on adjusted jobs: tony pool set adjust-max=...",
    [PART_BECAUSE_AT_MAX] = "a larger max-instances",
};

const char *share_hint(enum part_verdict verdict, enum part_because because)
{
    bool waits = verdict == PART_WAITS || verdict == PART_NEVER;
    const char *hint = waits ? waiting_hints[because] : running_hints[because];
    return hint ? hint : "";
}
