/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the policies share. Private to src/partition.
 *
 * decide.c      the table of policies; checks the inputs; computes the metrics; the sentences
 * place.c       memory of a decision, free amounts, first fit
 * drf.c         weighted dominant resource fairness: the ideal counts, and the policy `drf`
 * queue.c       the policies static, fifo and backfill
 * priority.c    the policies las and srtf
 * market.c      the fixed-budget market, and the policy `market`
 * dorm.c        the policy `dorm`: which jobs take part, and the fallbacks (dorm.h)
 * instance.c    JSON
 */
#ifndef TONY_PARTITION_PART_INT_H
#define TONY_PARTITION_PART_INT_H

#include "partition/partition.h"

typedef int part_decide_fn(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                           const struct part_options *o, struct part_decision *out);

part_decide_fn static_decide, fifo_decide, drf_decide, dorm_decide, market_decide, las_decide,
        srtf_decide;

/* Memory that lives until the next decision with *out, not zeroed; NULL: ENOMEM. */
void *part_alloc(struct part_decision *out, size_t size);

/* The containers that fit on a node with these free amounts; <= PART_CONTAINERS_MAX. */
uint32_t part_fit(const struct part_amount *free, const struct part_amount *demand,
                  uint32_t n_types);

/* sign = -1: n containers are taken from *free; sign = 1: they are given back. */
void part_take(struct part_amount *free, const struct part_amount *demand, uint32_t n_types,
               int64_t n, int sign);

/* What the nodes have left: their capacity less what the running jobs hold. From part_alloc(). */
struct part_amount *part_free_now(const struct part_cluster *c, const struct part_job *jobs,
                                  size_t n, struct part_decision *out);

/* The capacity of the whole cluster. */
void part_total(const struct part_cluster *c, struct part_amount *total);

/* The containers that a job has now. */
uint32_t part_count(const struct part_job *job);

/* Job i gets these places, which must be in the order of the nodes and live as long as the decision
 * (part_alloc(), or the job's own `at`). Sets n, at, n_at and, by comparison with what the job has,
 * verdict; the caller sets because and other. */
void part_give(struct part_decision *out, const struct part_job *jobs, size_t i,
               const struct part_place *at, uint32_t n_at);

#endif
