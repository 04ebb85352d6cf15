/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many containers a finished job held over its time, and how often it was resized, as its
 * journal says.
 *
 * A container is held from the record `allocated` to `completed`. If a new master does not find it
 * again (`container_seen`), the container is no longer held once that master has `resynced`.
 */
#ifndef TONY_HISTORY_HELD_H
#define TONY_HISTORY_HELD_H

#include <stdint.h>

#include "base/buf.h"

struct err;

struct held_step {
    int64_t wall_ms; /* from this time on ... */
    uint32_t n;      /* ... so many containers of all roles, spares included */
};

struct held {
    struct held_step *v; /* by time; the last one is the end of the journal, with n = 0 */
    size_t n, cap;
    uint32_t resizes; /* that were done */
};

/* Read the text of a journal. The caller zeroes *out, and ends it with history_held_done(), after a
 * failure too. -ENODATA: the journal does not have the beginning of the job any more
 * (docs/journal.md, "Segments"); -EBADMSG: it is damaged; -ENOMEM. */
int history_held(struct span journal, struct held *out, struct err *e);
void history_held_done(struct held *h);

#endif
