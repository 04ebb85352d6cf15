/*
 * Who may start: pure arithmetic over what the machine has, what is held, and the queue.
 *
 * Jobs are admitted whole and hold what they were given to their end. The queue is in order of
 * priority (higher first), then of arrival; a job that does not fit stops all behind it, so that a
 * large job is not starved by small ones. Memory and GPUs are never given twice.
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
    struct admission_amount needs;
    int priority;
    uint32_t number; /* of arrival */
    bool admitted;   /* it holds its needs already */
    /* out */
    bool start;     /* admit it now */
    size_t behind;  /* waiting: the job just before it in the queue, or, for the first, the job that
                       holds most of what it  lacks; ADMISSION_NOBODY when there is none (what it
                       needs is held outside the pool) */
    uint32_t place; /* waiting: 1 = the first in the queue */
};

#define ADMISSION_NOBODY SIZE_MAX

/* Fills the out members of jobs[0..n); order holds n entries of scratch. *out_free: what is left
 * when those who start have started. */
void admission_decide(const struct admission_amount *capacity, struct admission_job *jobs, size_t n,
                      size_t *order, struct admission_amount *out_free);

/* Could it run on an empty machine? */
bool admission_possible(const struct admission_amount *capacity,
                        const struct admission_amount *needs);

#endif
