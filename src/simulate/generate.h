/* SPDX-License-Identifier: Apache-2.0 */
/* Traces made from a seed. */
#ifndef TONY_SIMULATE_GENERATE_H
#define TONY_SIMULATE_GENERATE_H

#include <stddef.h>
#include <stdint.h>

#include "simulate/trace.h"

struct err;

/*
 * Make a trace. The same kind, seed and number give the same trace, with the same C library.
 *
 *   small   50 jobs on 20 nodes: long runs that can grow to the whole cluster, a mean of 20 min
 *           between two arrivals
 *   heavy   2,000 jobs on 200 nodes: run times and GPU counts with the long tails of published
 *           traces of GPU clusters, a mean of 21.6 s between two arrivals
 *
 * n_jobs: 0 for the number above. The caller zeroes *out and ends it with trace_done(). -EINVAL:
 * there is no such kind; -ENOMEM.
 */
int trace_generate(const char *kind, uint64_t seed, size_t n_jobs, struct trace *out,
                   struct err *e);

#endif
