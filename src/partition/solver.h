/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface to a solver of integer programs, for the policy `dorm`. The library has no solver:
 * the caller passes one in the options of a decision.
 *
 * An integer program: find x with lo <= x <= hi and row_lo <= A x <= row_hi that makes the sum of
 * cost * x as small as possible. Some of the x must be whole numbers. A is given by columns: the
 * entries of column c are row[start[c] .. start[c + 1]) and value[...].
 */
#ifndef TONY_PARTITION_SOLVER_H
#define TONY_PARTITION_SOLVER_H

#include <stdbool.h>

struct part_program {
    int n_cols, n_rows;
    const double *lo, *hi, *cost;  /* [n_cols] */
    const bool *whole;             /* [n_cols] */
    const double *row_lo, *row_hi; /* [n_rows]; -INFINITY and INFINITY: no limit */
    const int *start;              /* [n_cols + 1] */
    const int *row;
    const double *value;
    const double *guess; /* [n_cols]: an x that keeps all limits; NULL: none is known */
};

enum part_solved {
    PART_SOLVED_NOT,        /* no answer: the time or the memory was too short */
    PART_SOLVED_IMPOSSIBLE, /* proved: no x keeps all limits */
    PART_SOLVED_SOME,       /* x keeps all limits */
    PART_SOLVED_BEST,       /* proved: no x is better than this one */
};

struct part_solver {
    /* x: the answer, written with SOME and BEST. bound: no x has a smaller cost; -INFINITY: the
     * solver knows no bound. Not written with IMPOSSIBLE. */
    enum part_solved (*solve)(void *ctx, const struct part_program *program, double *x,
                              double *bound);
    void *ctx;
};

#endif
