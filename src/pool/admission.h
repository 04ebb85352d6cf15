/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which waiting jobs may start. It computes this from three inputs without any I/O: the
 * capacity of the machine, the needs of the running jobs, and the queue.
 *
 * A job is admitted as a whole, and keeps its memory and GPUs until its end. The queue is sorted by
 * priority (higher first), then by arrival. If a job does not fit, all jobs behind it wait as well,
 * so that small jobs do not starve a large one. Memory and GPUs are never given twice.
 *
 * If a running job wants more, it has an extension in the same queue. The extension has the
 * priority of the job, and is behind all jobs that arrived before the job asked for it. It is
 * granted as a whole. While it waits, the job keeps its memory and GPUs.
 */
#ifndef TONY_POOL_ADMISSION_H
#define TONY_POOL_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct admission_amount {
    uint64_t memory_mib;
    uint32_t gpus;
};

struct admission_job {
    struct admission_amount needs; /* of an extension: beyond what the job has */
    int priority;
    uint32_t number; /* of arrival; of an extension: of the last job before it in the queue */
    bool extension;
    size_t of;     /* of an extension: the index of its job in the list */
    bool admitted; /* the job runs and holds its needs */
    bool allowed;  /* for admission_allowed(): a decision of a policy lets this entry start */
    /* out */
    bool start; /* admit it now */
    /* Of a waiting entry: the one just before it in the queue. Of the first one: the running job
     * that holds most of the memory or GPUs that are missing. ADMISSION_NOBODY: no job holds them,
     * but other programs. */
    size_t behind;
    uint32_t place; /* of a waiting entry: 1 = the first in the queue */
};

#define ADMISSION_NOBODY SIZE_MAX

/* Set `start`, `behind` and `place` of jobs[0..n). order: an array of n elements for internal use;
 * afterwards it begins with the indexes of the queue in its order. *out_free: the capacity that is
 * left once the jobs with `start` have started. */
void admission_decide(const struct admission_amount *capacity, struct admission_job *jobs, size_t n,
                      size_t *order, struct admission_amount *out_free);

/* The same under a policy (sharing.h): start those entries that are allowed and fit. The policy
 * allows only entries that fit together, so none of them has to wait for another one. */
void admission_allowed(const struct admission_amount *capacity, struct admission_job *jobs,
                       size_t n, size_t *order, struct admission_amount *out_free);

/* Do the needs fit into the machine if no other job runs? */
bool admission_possible(const struct admission_amount *capacity,
                        const struct admission_amount *needs);

#endif
