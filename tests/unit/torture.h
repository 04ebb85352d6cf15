/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes allocations fail.
 *
 * Test programs are linked with --wrap for free, malloc, calloc, realloc, reallocarray, strdup,
 * strndup, asprintf and vasprintf (tests/unit/meson.build). So calls from tony's code, and from
 * libraries that are linked as archives, go through torture.c. Allocations inside a shared library
 * do not.
 *
 * torture(fn, ctx) calls fn again and again. In the 1st call the 1st allocation fails, in the 2nd
 * call the 2nd, and so on until fn makes fewer allocations. fn builds everything anew, frees
 * everything, and returns 0 or a negative errno. fn itself asserts what must hold after a failure.
 *
 * The harness asserts three things. A call with a failed allocation returns 0 (it could do without)
 * or -ENOMEM. A failing call frees what it allocated: as many blocks are allocated as before.
 * (Blocks that a shared library allocated and tony frees are not counted.) The call without a
 * failure returns 0.
 */
#ifndef TONY_TESTS_TORTURE_H
#define TONY_TESTS_TORTURE_H

#include <stdbool.h>

typedef int torture_fn(void *ctx);

/* Returns the number of allocations in the call without a failure. Otherwise it fails the running
 * cmocka test. */
unsigned torture(torture_fn *fn, void *ctx);

/* For use without torture(): the nth allocation from now fails (1 = the next), and all later ones
 * too if `onwards`; 0 = none. */
void torture_arm(unsigned nth, bool onwards);
/* The number of allocations since torture_arm(), and whether one was made to fail. */
unsigned torture_count(void);
bool torture_hit(void);

#endif
