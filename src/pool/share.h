/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Translates between the pool and the policies of src/partition: it turns the jobs of the pool into
 * the input of one decision, and the decision into a number of containers for each job. No I/O, no
 * clock.
 *
 * The pool is one node. Its types of resource are the two that admission checks: memory and GPUs.
 *
 * A job consists of a fixed part and of n containers that are all alike (partition/claim.h). Only n
 * is decided.
 *
 * A job that cannot be resized counts as one container with all needs of the job. An extension for
 * which such a job waits (extend.c) counts as a waiting job of its own.
 */
#ifndef TONY_POOL_SHARE_H
#define TONY_POOL_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/claim.h"
#include "partition/partition.h"
#include "pool/admission.h"

struct err;

enum share_kind {
    SHARE_NONE = 0,
    SHARE_RUNS,    /* the job holds fixed + n * each, or its start is decided */
    SHARE_WAITS,   /* the job waits in the queue */
    SHARE_EXTENDS, /* a running job waits for `each` more, n = 1 */
};

/* Why the policy must not resize a job (SHARE_RUNS), or not in each direction. */
enum share_pin {
    SHARE_FREE = 0,    /* it may */
    SHARE_NO_LARGER,   /* it may, but for now the master accepts no more than share_job.max */
    SHARE_PIN_FIXED,   /* the job file allows no other size */
    SHARE_PIN_STARTS,  /* the job waits, but its start is decided */
    SHARE_PIN_CHANGES, /* the job has not finished the resize of an earlier decision */
    SHARE_PIN_PHASE,   /* the job starts or ends, or its keeper is not connected */
    SHARE_PIN_EXTENDS, /* the job waits for containers that the policy did not offer */
    SHARE_PIN_LATE,    /* the job did not take the size of an earlier decision in time */
    SHARE_PIN_UNHEARD, /* the master has not reported its bounds yet */
    SHARE_PIN_BOUNDS,  /* the master accepts no other size now */
    SHARE_PINS
};

struct share_job {
    const char *id; /* borrowed */
    enum share_kind kind;
    struct admission_amount fixed, each;
    uint32_t min, max; /* 1 <= min <= max */
    uint32_t n;        /* SHARE_RUNS: containers now; else: the number that the job file asks for */
    enum share_pin pin; /* SHARE_RUNS: must it keep n containers, and why? share_is_pinned() */
    int priority;
    uint32_t number; /* of arrival, as in struct admission_job */
    uint32_t weight;
    double budget; /* 0 = the weight */
    double remaining_s, ends_in_s, attained_s;
    double resize_s, waited_s; /* as in struct part_job */
};

/* Must a job with this pin keep its containers? */
static inline bool share_is_pinned(enum share_pin pin)
{
    return pin != SHARE_FREE && pin != SHARE_NO_LARGER;
}

/*
 * Decide. The jobs may be in any order: running jobs come first, then both groups are sorted by
 * priority and arrival. If running jobs hold more than the capacity, nothing is free.
 *
 * 0, -EINVAL (an amount is out of the range of partition.h) or -ENOMEM. On success the caller ends
 * *out with part_division_done().
 */
int share_decide(const struct part_policy *policy, const struct part_options *o,
                 const struct admission_amount *capacity, const struct share_job *jobs, size_t n,
                 struct part_division *out, struct err *e);

/* A hint what would change the decision about a job, without a full stop; "" = no hint. */
const char *share_hint(enum part_verdict verdict, enum part_because because, enum share_pin pin);

/* fixed + n * each. A sum that does not fit becomes the largest number. */
struct admission_amount share_sum(const struct admission_amount *fixed,
                                  const struct admission_amount *each, uint32_t n);

/*
 * How many containers, beside the fixed part, make up `held`? false: no whole number of them, or
 * `held` is less than the fixed part.
 */
bool share_count(const struct admission_amount *fixed, const struct admission_amount *each,
                 const struct admission_amount *held, uint32_t *out);

#endif
