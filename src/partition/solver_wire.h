/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An integer program (solver.h) as bytes, and its answer: for a solver in another process on this
 * machine. Numbers are those of the machine; there is no version, since both ends are of one build.
 */
#ifndef TONY_PARTITION_SOLVER_WIRE_H
#define TONY_PARTITION_SOLVER_WIRE_H

#include "base/buf.h"
#include "partition/solver.h"

/* Append the program. 0 or -ENOMEM. */
int program_encode(const struct part_program *p, struct buf *out);
/* The arrays of *out point into `bytes`, which must be aligned to 8 and live as long. -EINVAL: the
 * bytes are not a program. */
int program_decode(struct span bytes, struct part_program *out);

/* Append the answer: x has n_cols numbers with SOME and BEST, else none. 0 or -ENOMEM. */
int solution_encode(enum part_solved solved, double bound, const double *x, int n_cols,
                    struct buf *out);
/* Writes x (n_cols numbers) and *bound as part_solver.solve() does. -EINVAL: not an answer to a
 * program with n_cols columns. */
int solution_decode(struct span bytes, int n_cols, enum part_solved *solved, double *bound,
                    double *x);

#endif
