/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files about staging share. */
#ifndef TONY_CLUSTER_YARN_STAGE_H
#define TONY_CLUSTER_YARN_STAGE_H

#include "cluster/yarn/yarn.h"

#define YARN_SRC_LINK ".tony-src" /* the executor copies src from the directory with this name */
/* A file of the cache gets its name when it is complete. Until then its name begins with this. */
#define YARN_HALF_PREFIX "_COPYING_."
/* In the staging directory of a job: the digests of the cache that it uses, one in a line. */
#define YARN_USES_FILE "uses"

/* ---- stage.c, for stage_send.c ---- */

struct yarn_step { /* one operation on one file: number i of s->v */
    struct yarn_staging *s;
    size_t i;
};
struct yarn_step *yarn_step_new(struct yarn_staging *s, size_t i); /* NULL = no memory */
void yarn_stage_no_memory(struct yarn_staging *s); /* the staging fails, if it has not already */

/* ---- remote.c: files that are in the file system of the cluster already ---- */

/* Add resources with URLs, --hdfs_classpath and tony.application.hadoop.location. */
int yarn_remote_collect(struct yarn_staging *s, struct err *e);
/* Find their sizes and times. A directory is replaced by its files. */
int yarn_remote_stat(struct yarn_staging *s, struct err *e);

/* ---- sweep.c ---- */

int yarn_uses_add(struct buf *out, const char *digest); /* a line of YARN_USES_FILE */

#endif
