/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of WebHDFS: an operation. webhdfs.c runs operations; webhdfs_op.c defines
 * them and builds their requests.
 */
#ifndef TONY_HADOOP_WEBHDFS_INT_H
#define TONY_HADOOP_WEBHDFS_INT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/vec.h"
#include "hadoop/webhdfs.h"
#include "hadoop/webhdfs_parse.h"

struct http;
struct http_call;
struct loop;
struct loop_timer;

enum op_kind {
    OP_HOME = 1,
    OP_STAT,
    OP_LIST,
    OP_MKDIRS,
    OP_RENAME,
    OP_DELETE,
    OP_SETTIMES,
    OP_PUT,
    OP_GET,
};

enum op_step {
    STEP_NAMENODE = 1, /* the only step of most operations; for put and get: ask for a DataNode */
    STEP_DATA,         /* transfer the data */
};

struct webhdfs_op {
    struct webhdfs *w;
    struct webhdfs_op *next;
    enum op_kind kind;
    enum op_step step;
    char *path, *to;   /* to: the target of a rename */
    struct buf params; /* parameters of the request, such as "&permission=700" */
    struct webhdfs_put put;
    struct webhdfs_get get;
    struct http_call *call;
    struct loop_timer *timer;
    int64_t deadline_ms, safe_deadline_ms;
    unsigned n_tried, n_data_tries; /* n_tried: NameNodes in this round; n_data_tries: DataNodes */
    int64_t pause_ms;
    bool running, repeated /* repeated: an earlier request may have been carried out */, created;
    struct buf exclude; /* DataNodes that have failed */
    char *location;
    struct webhdfs_stats stats;
    struct err failed; /* on_body() could not write the data */
    uint64_t n_bytes;
    webhdfs_done_fn *done;
    void *arg;
};

struct webhdfs {
    struct loop *loop;
    struct http *http;
    struct strv namenodes;
    size_t current; /* index of the NameNode that answered last */
    char *user;
    int64_t stall_ms, try_ms, safe_mode_ms;
    struct webhdfs_op *ops;
    unsigned n_running;
};

/* ---- webhdfs_op.c ---- */
const char *webhdfs_op_verb(enum op_kind kind); /* "look at" and so on, for sentences */
/* Build the request to a NameNode for the current step. -ENOMEM. */
int webhdfs_op_url(const struct webhdfs_op *op, struct buf *url, const char **out_method);

/* ---- webhdfs.c ---- */
void webhdfs_op_free(struct webhdfs_op *op);
/* Begin an operation, or let it wait until other operations have ended. Takes op, whose members and
 * timer (with webhdfs_op_due() as function) are set. */
void webhdfs_op_begin(struct webhdfs_op *op);
void webhdfs_op_due(void *op);

#endif
