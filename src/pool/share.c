/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/share.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { TYPE_MEMORY, TYPE_GPUS, TYPES };

static const char *const type_names[TYPES] = { "memory", "GPUs" }; /* in sentences */

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

static int64_t cap(uint64_t v)
{
    uint64_t refused = (uint64_t)PART_AMOUNT_MAX + 1; /* part_divide() returns -EINVAL for it */
    return (int64_t)MIN(v, refused);
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

/* ---- jobs that must keep their size, or must not grow ---- */

/* why: a clause for the sentence about the job. change: what would change it. */
static const struct {
    const char *why, *change;
} pins[SHARE_PINS] = {
    [SHARE_FREE] = { NULL, NULL },
    [SHARE_NO_LARGER] = { "for now its master accepts no larger size: its tasks are being started "
                          "again",
                          "the start of all its tasks" },
    [SHARE_PIN_FIXED] = { "its job file allows no other size",
                          "min-instances and max-instances of one role in its job file" },
    [SHARE_PIN_STARTS] = { "an earlier decision has reserved this for it",
                           "it starts when the room is free" },
    [SHARE_PIN_CHANGES] = { "an earlier decision gave it this size, and the resize, or a task "
                            "that leaves, has not ended",
                            "the end of both; if that takes longer than resize-limit, the pool "
                            "gives the resize up" },
    [SHARE_PIN_PHASE] = { "it starts or ends, or its keeper is not connected to the pool",
                          "the end of its start" },
    [SHARE_PIN_EXTENDS] = { "it waits for the containers that its user has asked for",
                            "the start of these containers" },
    [SHARE_PIN_LATE] = { "it did not take the size of an earlier decision within resize-limit",
                         "time: the pool may resize it again after another resize-limit" },
    [SHARE_PIN_UNHEARD] = { "its master has not reported yet which sizes it accepts",
                            "the report of its master" },
    [SHARE_PIN_BOUNDS] = { "its master accepts no other size now: the job ends, its tasks are "
                           "being started again, or one of them has ended for good",
                           "the start of all its tasks, or the end of the job" },
};

/* ---- the decision ---- */

static struct part_claim to_claim(const struct share_job *j, const struct part_place *place)
{
    bool runs = j->kind == SHARE_RUNS;
    return (struct part_claim){ .id = j->id,
                                .runs = runs,
                                .pinned = share_is_pinned(j->pin) ? pins[j->pin].why : NULL,
                                .fixed = to_part(&j->fixed),
                                .each = to_part(&j->each),
                                .min = j->min,
                                .max = j->max,
                                .n = j->n,
                                .at = place,
                                .n_at = 1,
                                .priority = j->priority,
                                .arrival = j->number,
                                .weight = j->weight,
                                .budget = j->budget,
                                .remaining_s = j->remaining_s,
                                .ends_in_s = j->ends_in_s,
                                .attained_s = j->attained_s,
                                .resize_s = runs ? j->resize_s : 0,
                                .waited_s = j->waited_s };
}

/* The start of the job was decided before. For the policy the job runs, but the sentence must not
 * say so. */
static void say_start(const struct share_job *j, struct part_target *t)
{
    t->verdict = PART_STARTS;
    if (j->max == 1)
        (void)snprintf(t->why, sizeof t->why, "it starts: %s", pins[j->pin].why);
    else
        (void)snprintf(t->why, sizeof t->why, "it starts with %u container%s: %s", t->n,
                       t->n == 1 ? "" : "s", pins[j->pin].why);
}

/* The largest size of the job is smaller than its job file says. */
static void say_no_larger(struct part_target *t)
{
    size_t n = strcspn(t->why, ":");
    (void)snprintf(t->why + n, sizeof t->why - n, ": %s", pins[SHARE_NO_LARGER].why);
}

int share_decide(const struct part_policy *policy, const struct part_options *o,
                 const struct admission_amount *capacity, const struct share_job *jobs, size_t n,
                 struct part_division *out, struct err *e)
{
    AUTO(free_p) struct part_claim *claims = calloc(n + 1, sizeof *claims);
    AUTO(free_p) struct part_place *places = calloc(n + 1, sizeof *places);
    struct part_amount node = node_of(capacity, jobs, n);
    struct part_cluster c = { .n_types = TYPES, .types = type_names, .n_nodes = 1, .nodes = &node };
    if (!claims || !places)
        return err_set(e, ENOMEM, "cannot divide the machine: %m");
    for (size_t i = 0; i < n; i++) {
        places[i] = (struct part_place){ .node = 0, .n = jobs[i].n };
        claims[i] = to_claim(&jobs[i], &places[i]);
    }
    int rc = part_divide(policy, o, &c, claims, n, out, e);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (jobs[i].pin == SHARE_PIN_STARTS)
            say_start(&jobs[i], &out->jobs[i]);
        else if (jobs[i].pin == SHARE_NO_LARGER && out->jobs[i].because == PART_BECAUSE_AT_MAX)
            say_no_larger(&out->jobs[i]);
    return rc;
}

/* ---- what would change it ---- */

static const char *const waiting_hints[PART_BECAUSE_N] = {
    [PART_BECAUSE_FULL] = "it can start when running jobs have ended, or have become small enough",
    [PART_BECAUSE_BEHIND] = "it can start when that job has started or ended; a higher "
                            "tony.application.priority moves it forward",
    [PART_BECAUSE_RESERVED] = "it can start when that job has started or ended",
    [PART_BECAUSE_LOSS] = "a larger bound on the loss of fairness would let it start: tony pool "
                          "set loss-max=...",
    [PART_BECAUSE_ADJUSTED] = "it could start if more running jobs might be adjusted: tony pool "
                              "set adjust-max=...",
    [PART_BECAUSE_COST] =
        "it starts when a running job ends; if none ends soon, when it has waited "
        "for longer",
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
    [PART_BECAUSE_COST] = "a program that saves and starts faster, or more time to gain it back "
                          "(tony pool set payback=...)",
    [PART_BECAUSE_AT_MAX] = "a larger max-instances",
};

const char *share_hint(enum part_verdict verdict, enum part_because because, enum share_pin pin)
{
    if (share_is_pinned(pin) || (pin == SHARE_NO_LARGER && because == PART_BECAUSE_AT_MAX))
        return pins[pin].change;
    bool waits = verdict == PART_WAITS || verdict == PART_NEVER;
    const char *hint = waits ? waiting_hints[because] : running_hints[because];
    return hint ? hint : "";
}
