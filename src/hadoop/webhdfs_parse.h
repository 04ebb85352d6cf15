/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What WebHDFS answers, without I/O: JSON to values, and refusals to sentences.
 */
#ifndef TONY_HADOOP_WEBHDFS_PARSE_H
#define TONY_HADOOP_WEBHDFS_PARSE_H

#include <jansson.h>

#include "base/buf.h"
#include "base/vec.h"
#include "hadoop/webhdfs.h"

struct err;

enum webhdfs_class {
    WC_FINAL = 1, /* asking again is of no use */
    WC_NEXT,      /* this NameNode cannot, another may */
    WC_SAFE_MODE,
};

/* A status other than 2xx and 307. Fills e; path and user are for the sentence. */
enum webhdfs_class webhdfs_refusal(int status, struct span body, const char *path, const char *user,
                                   struct err *e);

struct webhdfs_stats {
    VEC(struct webhdfs_stat) v; /* strings are the JSON's */
    VEC(json_t *) texts;
};
void webhdfs_stats_done(struct webhdfs_stats *s);
/* GETFILESTATUS, or a batch of LISTSTATUS_BATCH (also plain LISTSTATUS): appends. out_left: how
 * many entries are still to be had. */
int webhdfs_read_stat(struct span body, struct webhdfs_stats *out, struct err *e);
int webhdfs_read_list(struct span body, struct webhdfs_stats *out, int64_t *out_left,
                      struct err *e);
int webhdfs_read_bool(struct span body, bool *out, struct err *e);
/* {"Path": ...}; the caller's. */
int webhdfs_read_path(struct span body, char **out, struct err *e);

#endif
