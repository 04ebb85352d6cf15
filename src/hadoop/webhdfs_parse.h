/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the answers of WebHDFS, without I/O: JSON into values, errors into sentences.
 */
#ifndef TONY_HADOOP_WEBHDFS_PARSE_H
#define TONY_HADOOP_WEBHDFS_PARSE_H

#include <jansson.h>

#include "base/buf.h"
#include "base/vec.h"
#include "hadoop/webhdfs.h"

struct err;

enum webhdfs_class {
    WC_FINAL = 1, /* a retry does not help */
    WC_NEXT,      /* another NameNode may succeed */
    WC_SAFE_MODE,
};

/* Parse a response with a status other than 2xx and 307. Fills e; path and user are for the
 * sentence. */
enum webhdfs_class webhdfs_refusal(int status, struct span body, const char *path, const char *user,
                                   struct err *e);

struct webhdfs_stats {
    VEC(struct files_stat) v; /* strings are valid as long as `texts` */
    VEC(json_t *) texts;
};
void webhdfs_stats_done(struct webhdfs_stats *s);
/* Parse the answer to GETFILESTATUS, or a part from LISTSTATUS_BATCH (or LISTSTATUS). Appends to
 * *out. out_left: number of entries that are still missing. */
int webhdfs_read_stat(struct span body, struct webhdfs_stats *out, struct err *e);
int webhdfs_read_list(struct span body, struct webhdfs_stats *out, int64_t *out_left,
                      struct err *e);
int webhdfs_read_bool(struct span body, bool *out, struct err *e);
/* Parse {"Path": ...}. The caller frees *out. */
int webhdfs_read_path(struct span body, char **out, struct err *e);

#endif
