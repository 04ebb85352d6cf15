/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the program tony-exact, which divides a cluster with an exact solver. */
#ifndef TONY_CLIENT_POLICY_EXACT_H
#define TONY_CLIENT_POLICY_EXACT_H

#include <stdint.h>

#include "base/buf.h"
#include "partition/solver.h"

struct err;

enum { EXACT_MEMORY_MIB = 4096 }; /* limit for the address space of tony-exact */

/*
 * Append the answer to an instance (partition/instance.h). After limit_ms tony-exact is killed.
 *
 * 0; -ETIMEDOUT: there is no answer, because the time was over, the memory did not suffice, or the
 * solver crashed (`e` says which); -ENOENT: the program or the solver's library is missing; another
 * -errno: a system call failed.
 */
int exact_ask(struct span instance, int64_t limit_ms, struct buf *answer, struct err *e);

/* A solver for decisions in this process. It starts the process tony-exact for each integer program
 * that it has to solve. */
struct exact_solver {
    struct part_solver solver;
    int64_t limit_ms;       /* for each integer program */
    uint64_t asked, silent; /* integer programs so far, and those that got no answer in time */
};

/* s must not move while it is used. -ENOENT: the program or the solver's library is missing. */
int exact_solver_init(struct exact_solver *s, int64_t limit_ms, struct err *e);

#endif
