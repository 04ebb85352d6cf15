/*
 * What the files about staging share.
 */
#ifndef TONY_CLIENT_YARN_STAGE_H
#define TONY_CLIENT_YARN_STAGE_H

#include "client/yarn.h"

#define YARN_SRC_LINK ".tony-src" /* what the executor copies src from */
#define YARN_HALF_PREFIX "_COPYING_."

/* ---- yarn_remote.c: what lies in the cluster's file system already ---- */

/* Resources with URLs, --hdfs_classpath, tony.application.hadoop.location. */
int yarn_remote_collect(struct yarn_staging *s, struct err *e);
/* Their sizes and times; a directory becomes its files. */
int yarn_remote_stat(struct yarn_staging *s, struct err *e);

#endif
