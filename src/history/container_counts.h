/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number of containers that a finished job held over its time, and the number of its resizes,
 * read from its journal.
 *
 * A container is held from the record `allocated` to `completed`. If a new master does not find it
 * again (`container_seen`), the container is no longer held once that master has `resynced`.
 */
#ifndef TONY_HISTORY_CONTAINER_COUNTS_H
#define TONY_HISTORY_CONTAINER_COUNTS_H

#include <stdint.h>

#include "base/buf.h"

struct err;

struct container_count {
    int64_t wall_ms; /* from this time on ... */
    uint32_t n;      /* ... this many containers of all roles, spares included */
};

struct container_counts {
    struct container_count *v; /* by time; the last one is the end of the journal, with n = 0 */
    size_t n, cap;
    uint32_t resizes; /* completed resizes */
};

/* Read the text of a journal. The caller zeroes *out, and ends it with container_counts_done(),
 * after a failure too. -ENODATA: the journal does not have the beginning of the job any more
 * (docs/journal.md, "Segments"); -EBADMSG: it is damaged; -ENOMEM. */
int history_container_counts(struct span journal, struct container_counts *out, struct err *e);
void container_counts_done(struct container_counts *h);

#endif
