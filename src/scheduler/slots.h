/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of slots, for back-ends: arrays of entries, sorted by slot. The first member of an entry
 * is its slot (uint32_t). A lookup takes O(log n). A slot may be any number; new slots have higher
 * numbers than old ones, so that a new entry usually goes to the end of the array.
 */
#ifndef TONY_SCHEDULER_SLOTS_H
#define TONY_SCHEDULER_SLOTS_H

#include <stddef.h>
#include <stdint.h>

/* The index of the first entry whose slot is at least `slot`; n if there is none. entries has n
 * entries of `size` bytes. */
static inline size_t slots_place(const void *entries, size_t n, size_t size, uint32_t slot)
{
    size_t from = 0, to = n;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        const uint32_t *at =
            (const uint32_t *)(const void *)((const char *)entries + middle * size);
        if (*at < slot)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

#endif
