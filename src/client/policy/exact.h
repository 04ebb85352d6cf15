/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the program tony-exact, which divides a cluster with an exact solver. */
#ifndef TONY_CLIENT_POLICY_EXACT_H
#define TONY_CLIENT_POLICY_EXACT_H

#include <stdint.h>

#include "base/buf.h"
#include "partition/solver.h"

struct err;

enum { EXACT_MEMORY_MIB = 4096 }; /* address space of tony-exact */

/*
 * Append the answer to an instance (partition/instance.h). After limit_ms tony-exact is killed.
 *
 * 0; -ETIMEDOUT: there is no answer, because the time or the memory was too short, or the solver
 * crashed (`e` says which); -ENOENT: the program or the solver's library is missing; another
 * -errno: the machine failed.
 */
int exact_ask(struct span instance, int64_t limit_ms, struct buf *answer, struct err *e);

/* A solver for decisions in this process. It starts tony-exact for each program. */
struct exact_solver {
    struct part_solver solver;
    int64_t limit_ms;       /* for each program */
    uint64_t asked, silent; /* programs, and those without an answer in time */
};

/* s must not move while it is used. -ENOENT: the program or the solver's library is missing. */
int exact_solver_init(struct exact_solver *s, int64_t limit_ms, struct err *e);

#endif
