/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of WebHDFS share: an operation under way. webhdfs.c carries operations out,
 * webhdfs_op.c knows which there are and how each is asked for.
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
    OP_SETPERMISSION,
    OP_PUT,
    OP_GET,
};

enum op_step {
    STEP_NAMENODE = 1, /* all there is to it; for put and get: which DataNode? */
    STEP_DATA,         /* the bytes */
    STEP_RENAME,       /* a put's temporary name to its own */
    STEP_CLEAR,        /* a put failed: its temporary file goes */
};

struct webhdfs_op {
    struct webhdfs *w;
    struct webhdfs_op *next;
    enum op_kind kind;
    enum op_step step;
    char *path, *to;   /* to: a rename's; a put's temporary name */
    struct buf params; /* "&permission=700" */
    struct webhdfs_put put;
    struct webhdfs_get get;
    struct http_call *call;
    struct loop_timer *timer;
    int64_t deadline_ms, safe_deadline_ms;
    unsigned n_tried, n_data_tries; /* NameNodes in this round; DataNodes */
    int64_t pause_ms;
    bool running, repeated /* a try before this one may have done it */, created;
    struct buf exclude; /* DataNodes that failed */
    char *location;
    struct webhdfs_stats stats;
    struct err failed; /* before STEP_CLEAR; or in on_body */
    uint64_t n_bytes;
    webhdfs_done_fn *done;
    void *arg;
};

struct webhdfs {
    struct loop *loop;
    struct http *http;
    struct strv namenodes;
    size_t at; /* the NameNode that answered last */
    char *user;
    int64_t stall_ms, try_ms, safe_mode_ms;
    struct webhdfs_op *ops;
    unsigned n_running;
};

/* ---- webhdfs_op.c ---- */
const char *webhdfs_op_verb(enum op_kind kind); /* "look at", for sentences */
/* The question that its step has to ask of a NameNode. -ENOMEM. */
int webhdfs_op_url(const struct webhdfs_op *op, struct buf *url, const char **out_method);

/* ---- webhdfs.c ---- */
void webhdfs_op_free(struct webhdfs_op *op);
/* Takes one that is filled in, with a timer on webhdfs_op_due(): it begins, or waits in line. */
void webhdfs_op_begin(struct webhdfs_op *op);
void webhdfs_op_due(void *op);

#endif
