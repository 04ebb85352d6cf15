/* SPDX-License-Identifier: Apache-2.0 */
#include "base/vec.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int vec_grow(void **v, size_t *cap, size_t want, size_t elem)
{
    if (want <= *cap)
        return 0;
    size_t next = *cap < 8 ? 8 : *cap + *cap / 2, bytes;
    if (next < want)
        next = want;
    if (__builtin_mul_overflow(next, elem, &bytes))
        return -ENOMEM;
    /* v is a T **. To read it as a void ** would break the aliasing rules. */
    void *old;
    memcpy(&old, v, sizeof old);
    void *p = realloc(old, bytes);
    if (!p)
        return -ENOMEM;
    memcpy(v, &p, sizeof p);
    *cap = next;
    return 0;
}

int strv_take(struct strv *s, char *str)
{
    if (!str)
        return -ENOMEM;
    if (vec_reserve(s, s->n + 2) < 0) {
        free(str);
        return -ENOMEM;
    }
    s->v[s->n++] = str;
    s->v[s->n] = NULL;
    return 0;
}

int strv_push(struct strv *s, const char *str)
{
    return strv_take(s, strdup(str));
}

int strv_pushf(struct strv *s, const char *fmt, ...)
{
    va_list ap;
    char *str;
    va_start(ap, fmt);
    int len = vasprintf(&str, fmt, ap);
    va_end(ap);
    return strv_take(s, len < 0 ? NULL : str);
}

void strv_done(struct strv *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->v[i]);
    vec_done(s);
}

static char **env_find(const struct strv *s, const char *key)
{
    size_t len = strlen(key);
    for (size_t i = 0; i < s->n; i++) {
        if (strncmp(s->v[i], key, len) == 0 && s->v[i][len] == '=')
            return &s->v[i];
    }
    return NULL;
}

int strv_env_set(struct strv *s, const char *key, const char *value)
{
    char *str;
    if (asprintf(&str, "%s=%s", key, value) < 0)
        return -ENOMEM;
    char **slot = env_find(s, key);
    if (!slot)
        return strv_take(s, str);
    free(*slot);
    *slot = str;
    return 0;
}

const char *strv_env_get(const struct strv *s, const char *key)
{
    char **slot = env_find(s, key);
    return slot ? *slot + strlen(key) + 1 : NULL;
}
