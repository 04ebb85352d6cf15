/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for one parsed text, freed whole. Every block is zeroed and aligned for any type.
 */
#ifndef TONY_CODEC_ARENA_H
#define TONY_CODEC_ARENA_H

#include <stddef.h>

struct arena {
    struct arena_chunk *head;
    size_t total; /* bytes asked for so far */
    size_t max;   /* ceiling on total; 0 = none */
};

void *arena_alloc(struct arena *a, size_t size);             /* NULL = no memory, or past max */
char *arena_dup(struct arena *a, const void *p, size_t len); /* NUL-terminated copy */
void arena_done(struct arena *a);

#endif
