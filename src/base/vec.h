/*
 * Growing arrays. A vector is any struct { T *v; size_t n, cap; }; these macros work on it.
 * Elements are moved by realloc.
 *
 *     VEC(struct task) tasks = { 0 };
 *     if (vec_push(&tasks, task) < 0) ...           -ENOMEM, vector unchanged
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

int vec_grow(void **v, size_t *cap, size_t want, size_t elem); /* 0 or -ENOMEM */

#define vec_reserve(vec, want) vec_grow((void **)&(vec)->v, &(vec)->cap, (want), sizeof *(vec)->v)
#define vec_push(vec, x)                                                                           \
    (vec_reserve((vec), (vec)->n + 1) < 0 ? -12 /* -ENOMEM */ : ((vec)->v[(vec)->n++] = (x), 0))
#define vec_done(vec) (free((vec)->v), (vec)->v = NULL, (vec)->n = (vec)->cap = 0)
#define vec_remove_fast(vec, i) ((vec)->v[i] = (vec)->v[--(vec)->n]) /* order is not kept */

/* A list of owned strings, NULL-terminated so that it can be an argv or environ. */
struct strv {
    char **v; /* v[n] == NULL once anything was pushed */
    size_t n, cap;
};
int strv_push(struct strv *s, const char *str); /* copies */
int strv_take(struct strv *s, char *str);       /* takes str, also on failure; NULL str = -ENOMEM */
int strv_pushf(struct strv *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void strv_done(struct strv *s);
/* An environment is a strv of "K=V": set replaces, get borrows the value or returns NULL. */
int strv_env_set(struct strv *s, const char *key, const char *value);
const char *strv_env_get(const struct strv *s, const char *key);

#endif
