/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/admission.h"

#include <stdlib.h>

bool admission_possible(const struct admission_amount *capacity,
                        const struct admission_amount *needs)
{
    return needs->memory_mib <= capacity->memory_mib && needs->gpus <= capacity->gpus;
}

/* Subtract, but not below zero. A restarted pool may find a smaller machine than its running jobs
 * occupy; then it admits no job until the running ones leave room. */
static void amount_take(struct admission_amount *left, const struct admission_amount *take)
{
    left->memory_mib -= take->memory_mib < left->memory_mib ? take->memory_mib : left->memory_mib;
    left->gpus -= take->gpus < left->gpus ? take->gpus : left->gpus;
}

static bool before(const struct admission_job *a, const struct admission_job *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (a->number != b->number)
        return a->number < b->number;
    return b->extension && !a->extension;
}

static int compare(const void *a, const void *b, void *arg)
{
    const struct admission_job *jobs = arg;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    if (before(&jobs[x], &jobs[y]))
        return -1;
    if (before(&jobs[y], &jobs[x]))
        return 1;
    return x < y ? -1 : x > y; /* two extensions with the same number */
}

/* Returns the running job with the most GPUs if `job` lacks GPUs, else the running job with the
 * most memory. */
static size_t main_holder(const struct admission_job *jobs, size_t n,
                          const struct admission_job *job, const struct admission_amount *left)
{
    bool lacks_gpus = job->needs.gpus > left->gpus;
    size_t found = ADMISSION_NOBODY;
    uint64_t most = 0;
    for (size_t i = 0; i < n; i++) {
        if ((!jobs[i].admitted && !jobs[i].start) || jobs[i].extension ||
            (job->extension && job->of == i))
            continue;
        uint64_t holds = lacks_gpus ? jobs[i].needs.gpus : jobs[i].needs.memory_mib;
        if (holds > most) {
            most = holds;
            found = i;
        }
    }
    return found;
}

/* Write the indexes of the waiting entries to order, sorted as the queue. Returns their number. */
static size_t sort_queue(struct admission_job *jobs, size_t n, size_t *order,
                         struct admission_amount *left)
{
    size_t n_queued = 0;
    for (size_t i = 0; i < n; i++) {
        jobs[i].start = false;
        jobs[i].behind = ADMISSION_NOBODY;
        jobs[i].place = 0;
        if (jobs[i].admitted)
            amount_take(left, &jobs[i].needs);
        else
            order[n_queued++] = i;
    }
    if (n_queued > 1)
        qsort_r(order, n_queued, sizeof *order, compare, jobs);
    return n_queued;
}

/* The entries order[k..n_queued) wait. */
static void set_places(struct admission_job *jobs, size_t n, const size_t *order, size_t k,
                       size_t n_queued, const struct admission_amount *left)
{
    for (size_t first = k; k < n_queued; k++) {
        struct admission_job *job = &jobs[order[k]];
        job->place = (uint32_t)(k - first + 1);
        job->behind = k == first ? main_holder(jobs, n, job, left) : order[k - 1];
    }
}

void admission_decide(const struct admission_amount *capacity, struct admission_job *jobs, size_t n,
                      size_t *order, struct admission_amount *out_free)
{
    struct admission_amount left = *capacity;
    size_t n_queued = sort_queue(jobs, n, order, &left), k = 0;
    for (; k < n_queued && admission_possible(&left, &jobs[order[k]].needs); k++) {
        jobs[order[k]].start = true;
        amount_take(&left, &jobs[order[k]].needs);
    }
    set_places(jobs, n, order, k, n_queued, &left);
    *out_free = left;
}

/* Move the entries that start to the front. Within both groups the order stays. */
static size_t starters_first(const struct admission_job *jobs, size_t *order, size_t n_queued)
{
    size_t n = 0;
    for (size_t k = 0; k < n_queued; k++) {
        size_t one = order[k];
        if (!jobs[one].start)
            continue;
        for (size_t i = k; i > n; i--)
            order[i] = order[i - 1];
        order[n++] = one;
    }
    return n;
}

void admission_allowed(const struct admission_amount *capacity, struct admission_job *jobs,
                       size_t n, size_t *order, struct admission_amount *out_free)
{
    struct admission_amount left = *capacity;
    size_t n_queued = sort_queue(jobs, n, order, &left);
    for (size_t k = 0; k < n_queued; k++) {
        struct admission_job *job = &jobs[order[k]];
        if (!job->allowed || !admission_possible(&left, &job->needs))
            continue;
        job->start = true;
        amount_take(&left, &job->needs);
    }
    set_places(jobs, n, order, starters_first(jobs, order, n_queued), n_queued, &left);
    *out_free = left;
}
