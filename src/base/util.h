/*
 * Small things used everywhere: scope-bound release, hand-over, array length, checked casts.
 */
#ifndef TONY_BASE_UTIL_H
#define TONY_BASE_UTIL_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* A local releases itself at the end of its scope: AUTO(free_p) char *s = ...; fn gets the address
 * of the variable. */
#define AUTO(fn) __attribute__((cleanup(fn)))

/* Give a pointer away: the variable becomes NULL, the expression is the old value. */
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

/* Each argument is evaluated once. The names inside are made unique, so that one may stand in the
 * other. */
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

/* cleanup functions for AUTO() */
void free_p(void *p);  /* p is a T**: frees *p */
void close_p(int *fd); /* closes *fd if >= 0, keeps errno */

#endif
