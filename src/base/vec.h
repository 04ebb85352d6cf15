/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing arrays. A vector is any struct { T *v; size_t n, cap; }; the macros work on all of them.
 * Growing moves the elements (realloc), so pointers to elements become invalid.
 *
 *     VEC(struct task) tasks = { 0 };
 *     if (vec_push(&tasks, task) < 0) ...            -ENOMEM: the vector is unchanged
 *     for (size_t i = 0; i < tasks.n; i++) use(&tasks.v[i]);
 *     vec_done(&tasks);                              frees the array, not what its elements own
 */
#ifndef TONY_BASE_VEC_H
#define TONY_BASE_VEC_H

#include <stddef.h>

#define VEC(T)                                                                                     \
    struct {                                                                                       \
        T *v;                                                                                      \
        size_t n, cap;                                                                             \
    }

/* Make room for `want` elements of `elem` bytes each. 0 or -ENOMEM. Use vec_reserve(). */
int vec_grow(void **v, size_t *cap, size_t want, size_t elem);

#define vec_reserve(vec, want) vec_grow((void **)&(vec)->v, &(vec)->cap, (want), sizeof *(vec)->v)
#define vec_push(vec, x)                                                                           \
    (vec_reserve((vec), (vec)->n + 1) < 0 ? -12 /* -ENOMEM */ : ((vec)->v[(vec)->n++] = (x), 0))
#define vec_done(vec) (free((vec)->v), (vec)->v = NULL, (vec)->n = (vec)->cap = 0)
#define vec_remove_fast(vec, i) ((vec)->v[i] = (vec)->v[--(vec)->n]) /* the last one moves to i */

/* A list of strings that it owns. It is NULL-terminated, so that it can be an argv or environ. */
struct strv {
    char **v; /* v[n] == NULL; v itself is NULL until the first string is pushed */
    size_t n, cap;
};
int strv_push(struct strv *s, const char *str); /* copies str; 0 or -ENOMEM */
/* Append str itself. The list owns it from now on; on failure it is freed. If str is NULL: -ENOMEM,
 * so that the result of strdup() may be passed without a check. */
int strv_take(struct strv *s, char *str);
int strv_pushf(struct strv *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void strv_done(struct strv *s);
/* A strv of "KEY=VALUE" is an environment. set adds or replaces a variable; 0 or -ENOMEM. get
 * borrows its value; NULL = not set. */
int strv_env_set(struct strv *s, const char *key, const char *value);
const char *strv_env_get(const struct strv *s, const char *key);

#endif
