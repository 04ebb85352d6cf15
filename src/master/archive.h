/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The archive of a job on a cluster: it stores the history in HDFS, and removes the staging
 * directory there.
 *
 *     <history dir>/<application id>/   job.conf, written at the start; journal, status.json,
 *                                       summary and metrics, written at the end
 *
 * In a history that other users share, its group may read the files, and only the owner of the job
 * may write them: clients take the result of the job from status.json. The values of secrets in
 * job.conf are masked.
 *
 * The directory and job.conf are made while the cluster starts the tasks. So the end of the job
 * waits only for a few small files, which are written in parallel. The archive does not retry an
 * operation within a phase: the HDFS client retries, and a deadline limits each phase.
 */
#ifndef TONY_MASTER_ARCHIVE_H
#define TONY_MASTER_ARCHIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/files.h"

struct err;
struct loop;

enum {
    ARCHIVE_MAX_MS = 10000,  /* default deadline of archive_end() */
    ARCHIVE_CLEAR_MS = 3000, /* deadline of archive_clear() */
};

struct archive_config { /* borrowed while the archive lives */
    struct loop *loop;
    const struct files_ops *files;
    void *fs;
    const char *history_dir, *staging_dir; /* NULL = none */
    const char *application_id, *job_dir;
    bool shared; /* the history is shared with other users */
    int64_t max_ms;
};

struct archive;
int archive_new(const struct archive_config *cfg, struct archive **out, struct err *e);
void archive_free(struct archive *a); /* done() is not called any more; NULL is fine */
/* Make the directory and write job.conf. If that fails, archive_end() tries it again. */
void archive_begin(struct archive *a);
/* Write the other files. status: the text of status.json, which is copied; empty = write none.
 * done: e->num 0 = the history is complete. */
void archive_end(struct archive *a, struct span status,
                 void (*done)(const struct err *e, void *arg), void *arg);
/* Remove the staging directory, if there is one, then call done (which may be NULL). It may be
 * called several times, also before archive_end(), which does not wait for it. */
void archive_clear(struct archive *a, void (*done)(const struct err *e, void *arg), void *arg);

#endif
