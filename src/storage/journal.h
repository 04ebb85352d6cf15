/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal's file and the format of its lines. Each line is one record: a JSON object with a
 * number and a checksum.
 *
 *   {"n":12,<payload without its braces>,"c":"1a2b3c4d"}\n
 *
 * c is the CRC-32C of the bytes before ,"c". Record numbers have no gap.
 *
 * The file holds one segment:
 *
 *   header     {"n":N,"e":"journal","format":2,"snapshot":K,"c":...}
 *   snapshot   K records: the state after record N - 1. The first segment has no snapshot: there
 *              N = 1 and K = 0.
 *   events     all further records
 *
 * journal_begin_segment() replaces the segment by a new one: it writes header and snapshot to
 * "<name>.new", makes that file durable, and renames it over the journal. Record numbers continue.
 *
 * tony 0.1.0 wrote format 1: no header, no snapshot, numbers from 1. This tony reads such a file.
 * Before it appends to one, it adds a header with K = 0: the records behind it have format 2.
 *
 * A crash during a write leaves an incomplete ("torn") last line. Readers ignore it, journal_open()
 * cuts it off. If any other record is damaged or missing, the error names the file and the record.
 */
#ifndef TONY_STORAGE_JOURNAL_H
#define TONY_STORAGE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

enum {
    JOURNAL_FORMAT_DECISIONS = 2,   /* from this format on, decisions are recorded, too */
    JOURNAL_FORMAT = 2,             /* the format that is written; formats 1 and 2 are read */
    JOURNAL_PAYLOAD_MAX = 1 << 20,  /* bytes of one record's payload; typical are 150 */
    JOURNAL_UNSYNCED_MAX = 2 << 20, /* unsynced bytes after which a flush also syncs */
    JOURNAL_SEGMENT_MIN = 4 << 20,  /* bytes of events before a new segment is worth its cost */
};

/* ---- reading ---- */

enum journal_kind { JOURNAL_NONE = 0, JOURNAL_HEADER, JOURNAL_SNAPSHOT, JOURNAL_EVENT };

struct journal_record {
    uint64_t n;
    enum journal_kind kind;
    struct span json; /* the line without its newline; valid until the next call */
};

/* Reads a journal record by record. Memory: one window of at most 2 MiB, however long the file. */
struct journal_reader {
    const char *path;       /* borrowed, for errors; NULL = a text in memory */
    int fd;                 /* -1: a text in memory */
    struct buf window;      /* the part of the file that is in memory */
    struct span rest;       /* the bytes of the window (or of the text) that are not parsed yet */
    bool eof;               /* nothing follows behind rest */
    bool part;              /* journal_reader_part() opened this reader */
    uint64_t next_n;        /* the expected record number; 0 = take it from the first record */
    uint64_t n_read;        /* records read */
    uint64_t snapshot_n;    /* records of the snapshot, as the header says */
    uint64_t snapshot_left; /* records of the snapshot that have not been read yet */
    uint32_t format;        /* of the last records; 0 = none were read */
    uint64_t first_n;       /* number of the segment's first record */
    int64_t end;            /* bytes up to the end of the last valid record */
    int64_t head_end;       /* bytes of the header and the snapshot */
    bool torn;              /* valid at the end: an incomplete line follows the last record */
};

int journal_reader_open(struct journal_reader *r, const char *path, struct err *e);
void journal_reader_text(struct journal_reader *r, struct span text); /* borrowed */
/* Read text, a part of a segment that begins with record first_n. The part may lack the header and
 * the snapshot; the reader returns each of its records as JOURNAL_EVENT. */
void journal_reader_part(struct journal_reader *r, struct span text, uint64_t first_n);
/* 1: *out is the next record; 0: the end. Errors: -EBADMSG records are damaged or missing; -EINVAL
 * the format is newer than JOURNAL_FORMAT; -ENOMEM, and those of read(). */
int journal_reader_next(struct journal_reader *r, struct journal_record *out, struct err *e);
/* For messages: "record 5 is" or "records 5 to 9 are". Returns out. */
enum { JOURNAL_RANGE_MAX = 64 };
const char *journal_range(uint64_t first, uint64_t last, char *out, size_t size);
void journal_reader_close(struct journal_reader *r);

/* Read the whole file into memory, without a check of its records. */
int journal_read(const char *path, struct buf *out, struct err *e);

/* ---- writing ---- */

/* The system calls by which the journal changes files. ..._NEW: of the file "<name>.new". */
enum journal_call {
    JOURNAL_CALL_NONE = 0,
    JOURNAL_CALL_WRITE,
    JOURNAL_CALL_SYNC,
    JOURNAL_CALL_CUT, /* ftruncate() */
    JOURNAL_CALL_CREATE_NEW,
    JOURNAL_CALL_WRITE_NEW,
    JOURNAL_CALL_SYNC_NEW,
    JOURNAL_CALL_RENAME,
    JOURNAL_CALL_SYNC_DIR,
    JOURNAL_CALL_REMOVE_NEW,
    JOURNAL_CALL_COUNT,
};

/* For tests: the journal calls before() ahead of each of these system calls. If before() returns a
 * negative errno, the journal skips the system call and treats it as failed with that errno.
 * before() may also end the process, as a crash would. */
struct journal_probe {
    int (*before)(void *arg, enum journal_call call);
    void *arg;
};

struct journal {
    int fd, dir_fd;
    char *name;       /* of the file in its directory */
    bool dir_dirty;   /* the file's name is not durable yet: sync the directory, too */
    bool header_due;  /* a header must be written before the next record */
    bool old_format;  /* the file has records of an older format */
    uint64_t next_n;  /* number of the next record */
    uint64_t first_n; /* number of the segment's first record */
    /* All records since the last sync. The first n_written bytes have been written to the file.
     * They stay here as well: a failed sync may drop them from the page cache. */
    struct buf pending;
    size_t n_written;
    int64_t size;        /* bytes of the file that are valid */
    int64_t head_end;    /* bytes of the header and the snapshot */
    int64_t put_off_at;  /* size at the last journal_put_off_segment() of this segment; 0 = none */
    int64_t segment_min; /* JOURNAL_SEGMENT_MIN; smaller in tests */
    int failed; /* -errno of a failed flush: the journal accepts no record until journal_retry() */
    bool torn;  /* a part of a failed write is in the file behind `size`: cutting it off failed */
    bool rewrite; /* the first n_written bytes of pending may be lost: write them again */
    bool lost;    /* a sync failed in a way that another write cannot repair */
    const struct journal_probe *probe; /* set only by tests */
    /* Counters and times, logged as journal.closed. */
    uint64_t n_added, n_writes, n_syncs, n_segments;
    int64_t add_us, write_us, sync_us, segment_us;
};

/* Open a journal for appending, or create it. Checks every record, cuts off a torn last line, and
 * removes the unfinished file of a new segment. -EBUSY: another process writes the journal. */
int journal_open(struct journal *j, const char *path, struct err *e);
/* Add a record to the buffer; journal_flush() writes it. payload: a JSON object on one line, such
 * as {"e":...}. -EINVAL: it is not, or it is too long. */
int journal_add(struct journal *j, struct span payload);
/* Write the buffered records with one write(). Then call fdatasync() if sync is true, or if
 * JOURNAL_UNSYNCED_MAX bytes are unsynced. After a failed write, the part that was written is cut
 * off again. */
int journal_flush(struct journal *j, bool sync, struct err *e);
/* Accept records again after a failed flush. The next flush writes the unwritten records, and also
 * the written ones that may not be durable. -errno: another flush cannot repair the journal. */
int journal_retry(struct journal *j);
size_t journal_unwritten(const struct journal *j); /* bytes that the next flush writes */
void journal_close(struct journal *j);

/* Is it time for a new segment? True if the events of this segment (or those since the last
 * journal_put_off_segment()) are larger than JOURNAL_SEGMENT_MIN and larger than the last snapshot.
 * So the file stays below two snapshots and 4 MiB, and each byte of an event costs at most one byte
 * of a snapshot. */
bool journal_wants_segment(const struct journal *j);
/* Let journal_wants_segment() be false until as many bytes of events again have been written. */
void journal_put_off_segment(struct journal *j);

/*
 * Replace the segment by a new one that begins with a snapshot. Later records go to the new one.
 *
 * payloads  the records of the snapshot, n >= 1, each as for journal_add(). They describe the state
 *           after all records that were added so far.
 *
 * Records that are not written yet are first written to the old segment. If this fails, the journal
 * has failed as after journal_flush().
 *
 * After any error the old segment is unchanged and in use, the unfinished file is removed, and the
 * next attempt is put off as by journal_put_off_segment(). The call blocks for one write and one
 * fdatasync() of the snapshot and for one fsync() of the directory.
 *
 * One error is worse: the rename failed, and the file system does not say which file has the name
 * now. Then the journal has failed for good. The next process opens the file that has the name.
 */
int journal_begin_segment(struct journal *j, const struct span *payloads, size_t n, struct err *e);

#endif
