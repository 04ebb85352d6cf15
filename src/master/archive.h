/*
 * What of a job is to outlive the node its master runs on: its history, put into files elsewhere
 * (HDFS); and what was staged there for it, which is removed.
 *
 *     <history dir>/<application id>/   job.conf, put at the start; journal, status.json and
 *                                       summary, put at the end
 *
 * The directory and job.conf come early, while the cluster starts the tasks, so that the end costs
 * one round of small writes side by side. Nothing here is repeated by us: the files' own way of
 * reaching their servers does that, and a deadline bounds it.
 */
#ifndef TONY_MASTER_ARCHIVE_H
#define TONY_MASTER_ARCHIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "hadoop/webhdfs.h"

struct err;
struct loop;

enum {
    ARCHIVE_MAX_MS = 10000, /* a slow HDFS may hold up the end of the application for so long */
    ARCHIVE_CLEAR_MS = 3000,
};

/* The files: each ends in one done(), never before it has returned.
 * Function by function what webhdfs.h has. */
struct archive_files {
    int (*mkdirs)(void *fs, const char *path, mode_t mode, webhdfs_done_fn *done, void *arg,
                  struct err *e);
    int (*put)(void *fs, const char *path, mode_t mode, struct span text, webhdfs_done_fn *done,
               void *arg, struct err *e); /* text is borrowed until done */
    int (*remove)(void *fs, const char *path, webhdfs_done_fn *done, void *arg, struct err *e);
    /* These two have results: the names in a directory, in their order, and a file's bytes. */
    int (*list)(void *fs, const char *path, webhdfs_done_fn *done, void *arg, struct err *e);
    int (*get)(void *fs, const char *path, webhdfs_done_fn *done, void *arg, struct err *e);
};
extern const struct archive_files archive_webhdfs; /* fs: a struct webhdfs */

struct archive_config { /* borrowed while the archive lives */
    struct loop *loop;
    const struct archive_files *files;
    void *fs;
    const char *history_dir, *staging_dir; /* NULL = none */
    const char *application_id, *job_dir;
    bool shared;
    int64_t max_ms;
};

struct archive;
int archive_new(const struct archive_config *cfg, struct archive **out, struct err *e);
void archive_free(struct archive *a); /* no more callbacks; NULL is fine */
/* Make the directory and put job.conf. A failure is told at the end. */
void archive_begin(struct archive *a);
/* Put the rest; status is copied. done: e->num 0 = all of it is there. */
void archive_end(struct archive *a, struct span status,
                 void (*done)(const struct err *e, void *arg), void *arg);
/* Remove what was staged; done, which may be NULL, comes at once when there is nothing. May be
 * called again, and before archive_end(), which does not wait for it. */
void archive_clear(struct archive *a, void (*done)(const struct err *e, void *arg), void *arg);

#endif
