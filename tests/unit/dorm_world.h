/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the policy `dorm`: jobs, decisions, and random instances that can be made
 * again from their number. */
#ifndef TONY_TEST_DORM_WORLD_H
#define TONY_TEST_DORM_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "partition/partition.h"

enum { TYPES = 3 };                             /* of resources, in most instances */
extern const char *const types[PART_TYPES_MAX]; /* their names, and those of five others */

/* Let the policy decide. The test fails if it returns an error. */
void decide(const struct part_cluster *c, const struct part_job *jobs, size_t n,
            const struct part_options *o, struct part_decision *d);
/* A job of weight 1 that does not run. */
struct part_job job(const char *id, int64_t cores, int64_t memory, uint32_t min, uint32_t max);
/* The same job with containers at these places. */
struct part_job running(struct part_job j, const struct part_place *at, uint32_t n_at);
/* The defaults, with these bounds on loss and adjusted jobs. */
struct part_options bounds(double loss, int64_t adjust);
/* Does the decision about job i say this? */
void expect(const struct part_decision *d, size_t i, enum part_verdict verdict, uint32_t n,
            enum part_because because);

/* Make the random numbers of an instance. A failed HOLDS() prints the instance's number. */
void begin_instance(uint64_t number);
uint64_t instance(void);
uint32_t below(uint32_t n); /* a random number from 0 to n - 1 */
#define HOLDS(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fail_msg("seed %llu: %s", (unsigned long long)instance(), #cond);                      \
    } while (0)

/* Does a container with demand d fit into the free amounts? */
bool fits(const struct part_amount *free, const struct part_amount *d);
/* Take n of these containers out of the free amounts. */
void take(struct part_amount *free, const struct part_amount *d, int64_t n);

/* The number in this environment variable; if it is not set, another one. */
uint64_t number_of(const char *name, uint64_t otherwise);

#endif
