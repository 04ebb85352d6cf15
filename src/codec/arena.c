/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 8192, ALIGN = alignof(max_align_t) };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, cap;
    alignas(max_align_t) char data[];
};

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > SIZE_MAX / 4 || (a->max && size > a->max - a->total))
        return NULL;
    size_t want = (size + ALIGN - 1) / ALIGN * ALIGN;
    struct arena_chunk *c = a->head;
    if (!c || c->cap - c->used < want) {
        size_t cap = want > CHUNK ? want : CHUNK;
        c = calloc(1, sizeof *c + cap);
        if (!c)
            return NULL;
        c->cap = cap;
        c->next = a->head;
        a->head = c;
    }
    void *p = c->data + c->used;
    c->used += want;
    a->total += size;
    return p;
}

char *arena_dup(struct arena *a, const void *p, size_t len)
{
    char *s = arena_alloc(a, len + 1);
    if (s && len > 0)
        memcpy(s, p, len);
    return s;
}

void arena_done(struct arena *a)
{
    for (struct arena_chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    a->head = NULL;
    a->total = 0;
}
