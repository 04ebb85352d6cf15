/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.conf: a job as the client submitted it. It has three parts: the final configuration, the list
 * of shipped files, and the user, host and time of the submission.
 *
 *   {"format":1,"conf":[...conf_encode...],
 *   "ship":[{"kind":"src","name":"","role":"","digest":"..","path":"..","source":"..",
 *            "bytes":1,"files":1}...],
 *   "submit":{"user":"..","host":"..","cwd":"..","wall_ms":1,"pid":1,"version":"..",
 *   "plan":"<digest>"}}
 */
#ifndef TONY_STORAGE_JOBFILE_H
#define TONY_STORAGE_JOBFILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct conf;
struct err;
struct ship_item;

enum {
    /* Bytes of job.conf. The user's job file may have 4 MiB, and JSON escapes can make the text
     * several times as long. */
    JOB_FILE_MAX = 32 << 20,
    /* Shipped items. A job that needs more files can ship a directory that contains them. */
    JOB_FILE_SHIP_MAX = 10000,
};

struct job_file {
    struct conf *conf;
    struct ship_item *ship;
    size_t n_ship;
    char *user, *host, *cwd, *version; /* of the client that submitted the job */
    int64_t wall_ms;                   /* time of the submission, since 1970 */
    /* The client's pid; 0 = unknown. Host, pid and wall_ms tell two submissions apart, also after a
     * resize has changed the rest. */
    int pid;
    char plan[65]; /* the digest of the plan (storage/plan.h); "" = of an earlier version */
};

/* Append the text of job.conf to out. -EILSEQ: a path or name is not UTF-8. */
int job_file_encode(const struct job_file *f, struct buf *out, struct err *e);
/* The same, with the secrets masked as by conf_encode_masked(). */
int job_file_encode_masked(const struct job_file *f, struct buf *out, struct err *e);
/* Mask the secrets in job.conf of a job that is over and goes to the history: replace the file,
 * unless there is nothing to mask. f: the content of the file; NULL = read it. */
int job_file_mask(const char *job_dir, const struct job_file *f, struct err *e);
/* Read job.conf; the caller frees *out with job_file_free(). -EBADMSG: damaged; -EFBIG: too large
 */
int job_file_decode(struct span text, struct job_file **out, struct err *e);
/* Call fn with the text of the file jobs_dir/<id>/<name> of each job; jobs without this file are
 * left out. fn returns 0, or -errno to end. Returns 0 or -errno. */
int job_files_each(const char *jobs_dir, const char *name, int (*fn)(struct span text, void *arg),
                   void *arg, struct err *e);
void job_file_free(struct job_file *f);
void job_file_freep(struct job_file **f);

#endif
