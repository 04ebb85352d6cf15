/* SPDX-License-Identifier: Apache-2.0 */
#include "job/deadlines.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

/* Put the id at index `at` of the heap. */
static void heap_place(struct deadlines *d, uint32_t at, uint32_t id)
{
    d->heap[at] = id;
    d->pos[id] = at + 1;
}

/* Put the id at index `at` or above it, where its time belongs. */
static void heap_up(struct deadlines *d, uint32_t at, uint32_t id)
{
    while (at > 0 && d->due[d->heap[(at - 1) / 2]] > d->due[id]) {
        heap_place(d, at, d->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_place(d, at, id);
}

/* Put the id at index `at` or below it, where its time belongs. */
static void heap_down(struct deadlines *d, uint32_t at, uint32_t id)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= d->n)
            break;
        if (child + 1 < d->n && d->due[d->heap[child + 1]] < d->due[d->heap[child]])
            child++;
        if (d->due[d->heap[child]] >= d->due[id])
            break;
        heap_place(d, at, d->heap[child]);
        at = child;
    }
    heap_place(d, at, id);
}

void deadlines_set(struct deadlines *d, uint32_t id, int64_t due)
{
    uint32_t pos = d->pos[id];
    int64_t old = d->due[id];

    d->due[id] = due;
    if (due == INT64_MAX) {
        if (!pos)
            return;
        uint32_t last = d->heap[--d->n];
        d->pos[id] = 0;
        if (last != id) { /* fill the gap with the last entry, which may belong above or below it */
            heap_up(d, pos - 1, last);
            heap_down(d, d->pos[last] - 1, last);
        }
    } else if (!pos) {
        heap_up(d, d->n++, id);
    } else if (due < old) {
        heap_up(d, pos - 1, id);
    } else {
        heap_down(d, pos - 1, id);
    }
}

int64_t deadlines_next(const struct deadlines *d)
{
    return d->n ? d->due[d->heap[0]] : INT64_MAX;
}

int deadlines_reserve(struct deadlines *d, uint32_t n)
{
    if (n <= d->n_ids)
        return 0;
    void *heap = realloc(d->heap, n * sizeof *d->heap);
    d->heap = heap ? heap : d->heap;
    void *pos = realloc(d->pos, n * sizeof *d->pos);
    d->pos = pos ? pos : d->pos;
    void *due = realloc(d->due, n * sizeof *d->due);
    d->due = due ? due : d->due;
    if (!heap || !pos || !due)
        return -ENOMEM;
    for (; d->n_ids < n; d->n_ids++) {
        d->pos[d->n_ids] = 0;
        d->due[d->n_ids] = INT64_MAX;
    }
    return 0;
}

void deadlines_done(struct deadlines *d)
{
    free(d->heap);
    free(d->pos);
    free(d->due);
    *d = (struct deadlines){ 0 };
}
