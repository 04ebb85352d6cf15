/* SPDX-License-Identifier: Apache-2.0 */
#include "torture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);

void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
int __wrap_vasprintf(char **out, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
int __wrap_asprintf(char **out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The names of vasprintf and asprintf under _FORTIFY_SOURCE. */
int __wrap___vasprintf_chk(char **out, int flag, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));
int __wrap___asprintf_chk(char **out, int flag, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void __wrap_free(void *p);

static struct {
    _Atomic unsigned count; /* atomic: worker threads of the loop allocate, too */
    unsigned nth;
    bool onwards;
    _Atomic bool hit;
    _Atomic long live; /* blocks that were allocated and not freed through the wrappers */
} state;

void torture_arm(unsigned nth, bool onwards)
{
    state.count = 0;
    state.nth = nth;
    state.onwards = onwards;
    state.hit = false;
}

unsigned torture_count(void)
{
    return state.count;
}

bool torture_hit(void)
{
    return state.hit;
}

static bool refused(void)
{
    state.count++;
    if (state.nth == 0 || state.count < state.nth || (state.count > state.nth && !state.onwards))
        return false;
    state.hit = true;
    errno = ENOMEM;
    return true;
}

static void *counted(void *p)
{
    state.live += p != NULL;
    return p;
}

void *__wrap_malloc(size_t n)
{
    return refused() ? NULL : counted(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refused() ? NULL : counted(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
    if (refused())
        return NULL;
    void *q = __real_realloc(p, n);
    state.live += (p == NULL && q) ? 1 : 0;
    state.live -= (p && n == 0 && !q) ? 1 : 0;
    return q;
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return __wrap_realloc(p, bytes);
}

char *__wrap_strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *p = __wrap_malloc(len + 1);
    if (p) {
        memcpy(p, s, len);
        p[len] = '\0';
    }
    return p;
}

char *__wrap_strdup(const char *s)
{
    return __wrap_strndup(s, SIZE_MAX - 1);
}

/* Allocates with the wrapped malloc, so that the block is counted. */
int __wrap_vasprintf(char **out, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int len = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (len < 0)
        return -1;
    char *p = __wrap_malloc((size_t)len + 1);
    if (!p)
        return -1;
    *out = p;
    return vsnprintf(p, (size_t)len + 1, fmt, ap);
}

int __wrap_asprintf(char **out, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int len = __wrap_vasprintf(out, fmt, ap);
    va_end(ap);
    return len;
}

int __wrap___vasprintf_chk(char **out, int flag, const char *fmt, va_list ap)
{
    (void)flag;
    return __wrap_vasprintf(out, fmt, ap);
}

int __wrap___asprintf_chk(char **out, int flag, const char *fmt, ...)
{
    (void)flag;
    va_list ap;
    va_start(ap, fmt);
    int len = __wrap_vasprintf(out, fmt, ap);
    va_end(ap);
    return len;
}

void __wrap_free(void *p)
{
    state.live -= p != NULL;
    __real_free(p);
}

unsigned torture(torture_fn *fn, void *ctx)
{
    /* A first run allocates what is made once and kept. */
    torture_arm(0, false);
    int first = fn(ctx);
    if (first != 0)
        fail_msg("the run before any failure returned %d", first);
    for (unsigned nth = 1;; nth++) {
        long live = state.live;
        torture_arm(nth, false);
        int rc = fn(ctx);
        bool hit = state.hit;
        unsigned count = state.count;
        torture_arm(0, false);
        if (state.live > live)
            fail_msg("failing allocation %u leaves %ld blocks behind", nth, state.live - live);
        if (!hit) {
            if (rc != 0)
                fail_msg("the untouched run returned %d", rc);
            return count;
        }
        if (rc != 0 && rc != -ENOMEM)
            fail_msg("failing allocation %u returned %d, neither 0 nor -ENOMEM", nth, rc);
    }
}
