/*
 * The journal's framing: JSON lines with a number and a checksum.
 *
 *   {"n":12,<payload without its braces>,"c":"1a2b3c4d"}\n
 *
 * c is the CRC-32C of the bytes before ,"c". Numbers run from 1 without a gap. A torn or wrong last
 * line is cut off at open for writing (a crash in mid-write); a wrong line before the last is
 * damage and is refused with its line number.
 */
#ifndef TONY_STORAGE_JOURNAL_H
#define TONY_STORAGE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

struct journal {
    int fd;
    uint64_t next_n; /* of the next record */
    struct buf pending;
    int failed;   /* -errno of a failed write: nothing more is accepted until journal_retry() */
    bool torn;    /* what a failed write has left could not be cut */
    bool lost;    /* a failed sync: nobody knows what of it is on the disk */
    int64_t size; /* of the valid content; a failed write is cut back to it */
    int dir_fd;   /* open until the name of a new file has been made durable, else -1 */
    /* What it cost, logged at close as journal.closed. */
    uint64_t n_added, n_writes, n_syncs;
    int64_t add_us, write_us, sync_us;
};

/* Pull-parse: line by line over text. 1 = *out_payload is the JSON object of the record (with n and
 * c in it), 0 = end (or a torn end: *out_torn), -EBADMSG = damage. *pos starts at 0, *n at 1. */
int journal_next(struct span text, size_t *pos, uint64_t *n, struct span *out_payload,
                 bool *out_torn, struct err *e);

/* Open or create for appending; cuts a torn end. text: the valid content, for replay; may be NULL.
 */
int journal_open(struct journal *j, const char *path, struct buf *text, struct err *e);
int journal_add(struct journal *j, struct span payload); /* buffered; payload is {"e":...} */
int journal_flush(
    struct journal *j, bool sync,
    struct err *e); /* one write(), then fdatasync() if sync; a short write is cut back */
/* After a failed flush: accept again, and let the next flush write what has not been written yet.
 * -errno when that is of no use. */
int journal_retry(struct journal *j);
void journal_close(struct journal *j);

/* Read-only: whole text of a journal, whoever writes it. */
int journal_read(const char *path, struct buf *out, struct err *e);

#endif
