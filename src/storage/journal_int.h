/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the writer (journal.c, journal_segment.c) and the reader (journal_read.c)
 * share. */
#ifndef TONY_STORAGE_JOURNAL_INT_H
#define TONY_STORAGE_JOURNAL_INT_H

#include "storage/journal.h"

enum {
    TRAILER_LEN = 16,  /* ,"c":"1a2b3c4d"} */
    HEAD_MAX = 6 + 20, /* {"n":<64 bits>, */
    LINE_MAX_LEN = HEAD_MAX + 1 + JOURNAL_PAYLOAD_MAX + TRAILER_LEN,
};

/* Append the line of record n. -EINVAL: the payload is not a JSON object on one line, or it is too
 * long. */
int journal_add_line(struct buf *out, uint64_t n, struct span payload);
/* Append the line of record n, a header. n_snapshot: number of snapshot records that follow. */
int journal_add_header(struct buf *out, uint64_t n, size_t n_snapshot);

/* ---- journal.c ---- */
/* Run the test's probe ahead of a system call. 0: make the call; -1 with errno: skip the call and
 * treat it as failed. Without a probe: 0. */
int journal_probe_call(const struct journal *j, enum journal_call call);
int journal_sync_dir(struct journal *j);

#endif
