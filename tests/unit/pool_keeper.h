/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of the pool: a stand-in for the keeper, and the jobs that it runs.
 */
#ifndef TONY_TESTS_UNIT_POOL_KEEPER_H
#define TONY_TESTS_UNIT_POOL_KEEPER_H

#include <stdbool.h>

struct buf;

/* Acts as the program tony-executor; returns an exit code. */
int fake_keeper_main(int argc, char **argv);

struct want {
    const char *memory, *instances, *priority, *away, *allocation, *gpus, *max_instances;
    bool owned;
};

/* Encodes job.conf of a job that sleeps; fails the test on an error. */
void encode_job(const struct want *j, struct buf *out);

#endif
