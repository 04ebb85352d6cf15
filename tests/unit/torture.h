/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation failure on purpose.
 *
 * Test programs are linked with --wrap for free, malloc, calloc, realloc, reallocarray, strdup,
 * strndup, asprintf and vasprintf (tests/unit/meson.build), so that calls from our code, and from
 * libraries that are linked as archives, pass through torture.c. Memory that a shared library
 * allocates inside itself does not.
 *
 * torture(fn, ctx) calls fn again and again: in the 1st call the 1st allocation fails, in the 2nd
 * the 2nd, and so on until a call passes in which none had to fail. fn builds everything afresh,
 * frees everything, and returns 0 or a negative errno; what must hold after a failure it asserts
 * itself. The harness asserts that a call in which an allocation failed returns either 0 (the
 * failure was absorbed) or -ENOMEM, that a failing call frees what it allocated (as many blocks
 * live as before; what a shared library allocated and we free is not counted), and that the
 * untouched call returns 0.
 */
#ifndef TONY_TESTS_TORTURE_H
#define TONY_TESTS_TORTURE_H

#include <stdbool.h>

typedef int torture_fn(void *ctx);

/* Returns the number of allocations that the untouched call made. Fails the running cmocka test
 * otherwise. */
unsigned torture(torture_fn *fn, void *ctx);

/* By hand: fail the nth allocation from now (1 = the next), and all later ones too if `onwards`; 0
 * = none. */
void torture_arm(unsigned nth, bool onwards);
/* How many allocations there were since torture_arm(), and whether one was made to fail. */
unsigned torture_count(void);
bool torture_hit(void);

#endif
