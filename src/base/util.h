/*
 * Small things used everywhere: scope-bound release, hand-over, array length, checked casts.
 */
#ifndef TONY_BASE_UTIL_H
#define TONY_BASE_UTIL_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* A local releases itself at the end of its scope: AUTO(free_p) char *s = ...; fn gets the address of the variable. */
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
#define MIN(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) a_ = (a);                                                                    \
        __typeof__(b) b_ = (b);                                                                    \
        a_ < b_ ? a_ : b_;                                                                         \
    })
#define MAX(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) a_ = (a);                                                                    \
        __typeof__(b) b_ = (b);                                                                    \
        a_ > b_ ? a_ : b_;                                                                         \
    })

/* cleanup functions for AUTO() */
void free_p(void *p);  /* p is a T**: frees *p */
void close_p(int *fd); /* closes *fd if >= 0, keeps errno */

#endif
