/* SPDX-License-Identifier: Apache-2.0 */
/* A heap of times, the earliest first. Each id has at most one entry, whose time can be changed. */
#ifndef TONY_JOB_DEADLINES_H
#define TONY_JOB_DEADLINES_H

#include <stdint.h>

struct deadlines {
    uint32_t *heap; /* ids; heap[0] has the earliest time */
    uint32_t *pos;  /* by id: index in heap plus 1; 0 = the id has no entry */
    int64_t *due;   /* by id: its time; INT64_MAX = the id has no entry */
    uint32_t n;     /* entries in heap */
    uint32_t n_ids; /* ids 0 to n_ids - 1 are allowed */
};

/* Allow the ids 0 to n - 1. Existing entries stay. 0 or -ENOMEM. */
int deadlines_reserve(struct deadlines *d, uint32_t n);
void deadlines_done(struct deadlines *d);
/* Add, change or remove (due is INT64_MAX) the entry of an id. */
void deadlines_set(struct deadlines *d, uint32_t id, int64_t due);
int64_t deadlines_next(const struct deadlines *d); /* the earliest time; INT64_MAX = no entry */

#endif
