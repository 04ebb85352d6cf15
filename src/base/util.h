/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small helpers: release at the end of a scope, transfer of ownership, array length, containing
 * struct, minimum and maximum, sorting of numbers.
 */
#ifndef TONY_BASE_UTIL_H
#define TONY_BASE_UTIL_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Release a local variable at the end of its scope, as in AUTO(free_p) char *s = NULL. The compiler
 * then calls fn with the address of the variable. */
#define AUTO(fn) __attribute__((cleanup(fn)))

/* Transfer ownership: the value of the expression is the pointer, and the variable becomes NULL. */
#define TAKE(p)                                                                                    \
    ({                                                                                             \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member)                                                            \
    ({                                                                                             \
        const __typeof__(((type *)0)->member) *mptr_ = (ptr);                                      \
        (type *)((char *)(uintptr_t)mptr_ - offsetof(type, member));                               \
    })

/* MIN and MAX evaluate each argument once. __COUNTER__ makes the variables inside unique, so that
 * MIN(a, MIN(b, c)) works without -Wshadow warnings. */
#define UTIL_PASTE2(a, b) a##b
#define UTIL_PASTE(a, b) UTIL_PASTE2(a, b)
#define UTIL_PICK(a, op, b, x, y)                                                                  \
    ({                                                                                             \
        __typeof__(a) x = (a);                                                                     \
        __typeof__(b) y = (b);                                                                     \
        x op y ? x : y;                                                                            \
    })
#define UTIL_PICK_AS(a, op, b, n) UTIL_PICK(a, op, b, UTIL_PASTE(x_, n), UTIL_PASTE(y_, n))
#define MIN(a, b) UTIL_PICK_AS(a, <, b, __COUNTER__)
#define MAX(a, b) UTIL_PICK_AS(a, >, b, __COUNTER__)

/* Cleanup functions for AUTO(). */
void free_p(void *p);  /* p points to a pointer of any type: frees that pointer */
void close_p(int *fd); /* closes *fd if it is >= 0; leaves errno unchanged */

void sort_doubles(double *v, size_t n); /* ascending; no NaN */

#endif
