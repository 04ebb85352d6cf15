/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file `metrics` in the directory of a job: a series of metrics (metrics/metrics.h) in records.
 * docs/metrics.md describes the format.
 *
 *   tony-metrics 1\n
 *   length (4 bytes), CRC-32C of the body (4 bytes), body        both numbers little-endian;
 * repeated
 *
 * The master appends without sync. After a crash the last record may be incomplete or damaged:
 * readers ignore it and all that follows it, and metrics_file_open() cuts it off.
 *
 * When the file has become too large, metrics_file_thin() writes a smaller series to "<name>.new"
 * on a thread, and metrics_file_replace() renames it over the file.
 */
#ifndef TONY_STORAGE_METRICS_FILE_H
#define TONY_STORAGE_METRICS_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

enum {
    METRICS_FILE_FORMAT = 1,
    /* A file is thinned when it is larger than this for n tasks: 1 MiB + 16 KiB * n, at most
     * METRICS_FILE_MAX. */
    METRICS_FILE_MAX = 16 << 20,
    METRICS_FILE_MIN = 1 << 20,
    METRICS_FILE_A_TASK = 16 << 10,
};
int64_t metrics_file_limit(uint32_t n_tasks);

/* ---- reading ---- */

struct metrics_records {
    struct span rest; /* borrowed */
    int64_t end;      /* bytes up to the end of the last valid record */
    bool torn;        /* valid at the end: more bytes follow */
};
/* text: the content of a metrics file; an empty one has no records. -EINVAL: a newer version of
 * tony wrote the file; -EBADMSG: it is not a metrics file. */
int metrics_records_begin(struct metrics_records *r, struct span text, struct err *e);
bool metrics_records_next(struct metrics_records *r, struct span *out); /* false: the end */
/* Append the whole file to out. -ENOENT: there is none. */
int metrics_file_read(const char *path, struct buf *out, struct err *e);

/* ---- writing ---- */

struct metrics_file {
    int fd;
    char *path;
    int64_t size;
};
#define METRICS_FILE_INIT                                                                          \
    {                                                                                              \
        .fd = -1                                                                                   \
    }
/* Open or create a file, and cut off what a crash has left. *out_text (may be NULL) gets the valid
 * part. */
int metrics_file_open(struct metrics_file *f, const char *path, struct buf *out_text,
                      struct err *e);
/* Append a record to the buffer: a metrics_put_fn. buf: a struct buf. */
int metrics_file_put(void *buf, struct span record);
/* Append the records of the buffer. After an error the file is as before. */
int metrics_file_write(struct metrics_file *f, struct span records, struct err *e);
void metrics_file_close(struct metrics_file *f);

/* The input and the result of metrics_file_thin(), which a thread runs. The bytes up to `size` must
 * not change meanwhile. */
struct metrics_thinning {
    const char *path; /* borrowed */
    int64_t size;     /* the first bytes of the file; a new block begins behind them */
    int64_t goal;     /* bytes that the result should have at most */
    int64_t now_ms;
    int level;        /* begin with this one; the result: the level that was used */
    int64_t new_size; /* result */
    struct err *e;
};
int metrics_file_thin(struct metrics_thinning *t); /* blocks; makes "<path>.new" */
/* Copy the records behind t->size to the new file, and use that one. After an error the old file is
 * in use. */
int metrics_file_replace(struct metrics_file *f, const struct metrics_thinning *t, struct err *e);

#endif
