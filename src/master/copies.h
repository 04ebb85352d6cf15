/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of a file of this master for the next master, which may run on another node: of the
 * journal, and of the metrics (COPIES_METRICS, below). They are files in the staging directory of
 * the job in HDFS. Each file is written once and holds whole records, as they are in the journal:
 *
 *     <dir>/<epoch>-<segment>-<first>-<last>      at least 4, then 12, 12 and 12 decimal digits
 *
 *     epoch          of the master that wrote the file
 *     segment        number of the first record of the journal's segment
 *     first, last    numbers of the records in the file
 *
 * Each master writes a set of files. The first file of the set, the base, holds the whole segment
 * as it is at that time, including the records that the master has read from earlier copies. The
 * further files, the tails, hold the records that follow. When the journal begins a new segment,
 * the master begins a new set.
 *
 * When a base is written, the master removes its older set and the sets of earlier masters. So a
 * reader needs only one set. A master that was taken for dead and still writes can damage only its
 * own set.
 *
 * A set has at most COPIES_TAILS tails. If the set is full, the master writes the newest records
 * together with those of the last tails as one file, and then removes these tails. copies_plan()
 * says how many tails it replaces. During a change of sets, at most 8 files exist, unless removing
 * fails.
 *
 * Cost: if a segment is written in n bursts, each byte is written at most R + 1 times. R is the
 * largest number for which C(R + 5, 5) <= n. That is 3 times for 50 bursts, 9 for 1,500, 17 for
 * 26,000.
 *
 * The copies are a moment behind the journal: docs/decisions/0007-a-second-master.md says why that
 * is enough.
 *
 * Of the file of metrics (storage/metrics_file.h), each byte counts as a record: first and last are
 * the numbers of bytes, from 1. When a thinner file replaces the file, a new segment begins, whose
 * first byte has the number after the last one of the old file. No action waits for these copies.
 */
#ifndef TONY_MASTER_COPIES_H
#define TONY_MASTER_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/vec.h"
#include "master/archive.h"

struct loop;

enum {
    COPIES_DELAY_MS = 100, /* records are collected for this time, if no action waits for them */
    COPIES_PATIENCE_MS = 5000, /* an action waits at most this time for the copy */
    COPIES_RETRY_MS = 1000,    /* pause after a failure */
    COPIES_TAILS = 5,          /* files of a set besides its base */
    COPIES_PIECE_MAX =
        1 << 30,            /* bytes of one file; a segment is far smaller (storage/journal.h) */
    COPIES_FETCH_TRIES = 5, /* listings of the directory, if a listed file is missing afterwards */
};

enum copies_kind { COPIES_JOURNAL = 0, COPIES_METRICS };

struct copies_config { /* borrowed until copies_free(), except for the strings */
    enum copies_kind kind;
    struct loop *loop;
    const struct files_ops *files;
    void *fs;
    const char *dir, *file; /* the directory in HDFS; the path of the file here */
    uint32_t epoch;
    uint64_t first_n, last_n, size;          /* of the file's segment now; last_n 0 = it is empty */
    int64_t delay_ms, retry_ms, patience_ms; /* COPIES_DELAY_MS, ...; other times in tests */
    void (*on_stored)(void *arg); /* copies_stored() has become true; NULL = no caller waits */
    void *arg;
};

struct copies;
int copies_new(const struct copies_config *cfg, struct copies **out, struct err *e);
void copies_free(struct copies *c); /* NULL is fine */
/* The file was written: it has `size` bytes now, up to record last_n. */
void copies_wrote(struct copies *c, uint64_t size, uint64_t last_n);
/* The file was replaced by a new segment: records first_n to last_n, `size` bytes. */
void copies_segment(struct copies *c, uint64_t first_n, uint64_t size, uint64_t last_n);
void copies_hurry(struct copies *c); /* an action waits: copy now, do not collect more records */
/* Do the copies hold all records of the file? Also true if the caller should stop waiting for
 * them: after COPIES_PATIENCE_MS, and after copies_stop(). */
bool copies_stored(const struct copies *c);
/* The number of the last record that the copies have. UINT64_MAX if copies_stored(). */
uint64_t copies_stored_n(const struct copies *c);
void copies_stop(struct copies *c); /* copy nothing more; calls on_stored() */

/* How many of the last tails should the next file replace? 0 = none: it becomes a tail of its own.
 * ranks: COPIES_TAILS numbers, the state of this function, set by copies_plan_begin(). Source: the
 * combinatorial number system; tail i, counted from the newest, holds C(ranks[i - 1], i) bursts. */
void copies_plan_begin(unsigned *ranks);
unsigned copies_plan(unsigned *ranks);

/* ---- reading the copies ---- */

struct copies_piece {
    uint32_t epoch;
    uint64_t segment, first, last;
    char *name;
    struct buf text;
    /* Set by copies_assemble(): */
    enum copies_kind kind;
    uint64_t has_last; /* the last record in the text; first - 1 = the text has none */
    struct err damage; /* num 0 = none; an end in the middle of a record is no damage */
};

/* Parse the name of a copy into *out, except out->name. -EINVAL: it is no name of a copy. */
int copies_parse_name(const char *name, struct copies_piece *out);

/* Put the file together from the copies of one master.
 *
 * 1         *out has the file
 * 0         no base was ever written completely, so that master relied on none of its files
 * -EBADMSG  a file or a record is missing or damaged; the error names it
 * -ENOMEM
 */
int copies_assemble(enum copies_kind kind, struct copies_piece *v, size_t n, struct buf *out,
                    struct err *e);

struct copies_found {
    uint64_t size; /* bytes of the file that was written; 0 = there are no copies */
    unsigned n_files;
};
typedef void copies_done_fn(const struct copies_found *f, const struct err *e, void *arg);
/* Read the copies in dir, put the file together and write it to `path`, which must not exist.
 * done() is called once, after this function has returned; e->num 0 = success. */
int copies_fetch(enum copies_kind kind, const struct files_ops *files, void *fs, const char *dir,
                 const char *path, copies_done_fn *done, void *arg, struct err *e);

#endif
