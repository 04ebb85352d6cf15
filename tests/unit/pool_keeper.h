/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of the pool: a keeper that only looks like one, and the jobs that it keeps.
 */
#ifndef TONY_TESTS_UNIT_POOL_KEEPER_H
#define TONY_TESTS_UNIT_POOL_KEEPER_H

#include <stdbool.h>

struct buf;

/* As the program tony-executor; an exit code. */
int fake_keeper_main(int argc, char **argv);

struct want {
    const char *memory, *instances, *priority, *away, *allocation, *gpus, *max_instances;
    bool owned;
};

/* job.conf of a job that sleeps; fails the test if it cannot be made. */
void encode_job(const struct want *j, struct buf *out);

#endif
