/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of finished jobs in a directory that users share (tony.history.location), on Slurm.
 *
 * The directory of a job there has the content of history/<application id>, without secrets. Its
 * files have mode 0640, and its directories 0750. Each user may write to the shared directory, so a
 * reader believes a copy only if a single user owns all of it, and nobody else can write to it.
 */
#ifndef TONY_STORAGE_PUBLISH_H
#define TONY_STORAGE_PUBLISH_H

#include <sys/types.h>

struct err;

/* The file in the directory of a job that names the shared directory. */
#define PUBLISH_FILE "publish"

/* The path in a value of tony.history.location: "/path" or "file:///path". NULL: another value,
 * such as a directory in HDFS. */
const char *publish_place(const char *value);
/* Copy the directory of a finished job, if its PUBLISH_FILE names a shared directory. 0, also if it
 * does not, or -errno; -EEXIST: there is a copy with this id. */
int publish_job(const char *dir, const char *id, struct err *e);
/* May a reader believe the copy of this job? 0, and its owner; -ENOENT: there is none; -EPERM. */
int publish_check(const char *place, const char *id, uid_t *out_owner, struct err *e);

#endif
