/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of WebHDFS: their functions, and the requests to a NameNode.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/base.h"
#include "hadoop/webhdfs_int.h"
#include "loop/http.h"
#include "loop/loop.h"

/* ---- requests ---- */

const char *webhdfs_op_verb(enum op_kind kind)
{
    static const char *const verbs[] = {
        [OP_HOME] = "find the home directory", [OP_STAT] = "look at",  [OP_LIST] = "list",
        [OP_MKDIRS] = "make directory",        [OP_RENAME] = "rename", [OP_DELETE] = "remove",
        [OP_SETTIMES] = "set the times of",    [OP_PUT] = "write",     [OP_GET] = "read",
    };
    return verbs[kind];
}

static int add_param(struct buf *b, const char *name, const char *value)
{
    (void)buf_addf(b, "&%s=", name);
    return http_encode(b, span_of(value), false);
}

static const struct {
    const char *method, *op;
} questions[] = {
    [OP_HOME] = { "GET", "GETHOMEDIRECTORY" },
    [OP_STAT] = { "GET", "GETFILESTATUS" },
    [OP_LIST] = { "GET", "LISTSTATUS_BATCH" },
    [OP_MKDIRS] = { "PUT", "MKDIRS" },
    [OP_RENAME] = { "PUT", "RENAME" },
    [OP_DELETE] = { "DELETE", "DELETE" },
    [OP_SETTIMES] = { "PUT", "SETTIMES" },
    [OP_PUT] = { "PUT", "CREATE" },
    [OP_GET] = { "GET", "OPEN" },
};

static void add_put_params(const struct webhdfs_op *op, struct buf *url)
{
    const struct webhdfs_put *put = &op->put;
    bool overwrite = put->overwrite || op->created; /* created: by an earlier request of this put */
    (void)buf_addf(url, "&overwrite=%s&permission=%o", overwrite ? "true" : "false",
                   put->mode ? put->mode : 0644u);
    if (put->replication)
        (void)buf_addf(url, "&replication=%u", put->replication);
    if (op->exclude.len > 0)
        (void)add_param(url, "excludedatanodes", buf_cstr(&op->exclude));
}

int webhdfs_op_url(const struct webhdfs_op *op, struct buf *url, const char **out_method)
{
    const struct webhdfs *w = op->w;
    *out_method = questions[op->kind].method;
    (void)buf_addf(url, "http://%s/webhdfs/v1", w->namenodes.v[w->current]);
    (void)http_encode(url, span_of(op->path), true);
    (void)buf_addf(url, "?op=%s", questions[op->kind].op);
    (void)add_param(url, "user.name", w->user);
    (void)buf_add(url, op->params.p, op->params.len);
    if (op->kind == OP_PUT)
        add_put_params(op, url);
    if (op->kind == OP_LIST && op->stats.v.n > 0)
        (void)add_param(url, "startAfter", op->stats.v.v[op->stats.v.n - 1].name);
    return url->failed ? -ENOMEM : 0;
}

/* ---- the operations ---- */

static bool path_valid(const char *path)
{
    return path && *path == '/' && strlen(path) < 4096 && !strchr(path, '\n') &&
           span_utf8(span_of(path), NULL);
}

static int op_new(struct webhdfs *w, enum op_kind kind, const char *path, webhdfs_done_fn *done,
                  void *arg, struct webhdfs_op **out, struct err *e)
{
    if (!path_valid(path))
        return err_set(e, EINVAL, "'%s' is not a valid path in HDFS", path ? path : "");
    struct webhdfs_op *op = calloc(1, sizeof *op);
    if (!op || !(op->path = str_dup(path)) ||
        !(op->timer = loop_timer_new(w->loop, webhdfs_op_due, op))) {
        if (op)
            webhdfs_op_free(op);
        return err_set(e, ENOMEM, "cannot %s '%s' in HDFS: %m", webhdfs_op_verb(kind), path);
    }
    op->w = w;
    op->kind = kind;
    op->step = STEP_NAMENODE;
    op->done = done;
    op->arg = arg;
    *out = op;
    return 0;
}

/* Start an operation. Takes op. */
static int op_start(struct webhdfs_op *op, struct webhdfs_op **out, struct err *e)
{
    if (op->params.failed) {
        int rc =
            err_set(e, ENOMEM, "cannot %s '%s' in HDFS: %m", webhdfs_op_verb(op->kind), op->path);
        webhdfs_op_free(op);
        return rc;
    }
    webhdfs_op_begin(op);
    if (out)
        *out = op;
    return 0;
}

int webhdfs_home(struct webhdfs *w, webhdfs_done_fn *done, void *arg, struct webhdfs_op **out,
                 struct err *e)
{
    struct webhdfs_op *op = NULL;
    int rc = op_new(w, OP_HOME, "/", done, arg, &op, e);
    return rc < 0 ? rc : op_start(op, out, e);
}

int webhdfs_stat(struct webhdfs *w, const char *path, webhdfs_done_fn *done, void *arg,
                 struct webhdfs_op **out, struct err *e)
{
    struct webhdfs_op *op = NULL;
    int rc = op_new(w, OP_STAT, path, done, arg, &op, e);
    return rc < 0 ? rc : op_start(op, out, e);
}

int webhdfs_list(struct webhdfs *w, const char *path, webhdfs_done_fn *done, void *arg,
                 struct webhdfs_op **out, struct err *e)
{
    struct webhdfs_op *op = NULL;
    int rc = op_new(w, OP_LIST, path, done, arg, &op, e);
    return rc < 0 ? rc : op_start(op, out, e);
}

int webhdfs_mkdirs(struct webhdfs *w, const char *path, mode_t mode, webhdfs_done_fn *done,
                   void *arg, struct webhdfs_op **out, struct err *e)
{
    struct webhdfs_op *op = NULL;
    int rc = op_new(w, OP_MKDIRS, path, done, arg, &op, e);
    if (rc < 0)
        return rc;
    (void)buf_addf(&op->params, "&permission=%o", mode & 07777);
    return op_start(op, out, e);
}

int webhdfs_rename(struct webhdfs *w, const char *from, const char *to, webhdfs_done_fn *done,
                   void *arg, struct webhdfs_op **out, struct err *e)
{
    struct webhdfs_op *op = NULL;
    if (!path_valid(to))
        return err_set(e, EINVAL, "'%s' is not a valid path in HDFS", to ? to : "");
    int rc = op_new(w, OP_RENAME, from, done, arg, &op, e);
    if (rc < 0)
        return rc;
    op->to = str_dup(to);
    (void)add_param(&op->params, "destination", to);
    /* With this option, the NameNode says why it refuses. */
    (void)buf_adds(&op->params, "&renameoptions=NONE");
    op->params.failed |= !op->to;
    return op_start(op, out, e);
}

int webhdfs_delete(struct webhdfs *w, const char *path, bool recursive, webhdfs_done_fn *done,
                   void *arg, struct webhdfs_op **out, struct err *e)
{
    struct webhdfs_op *op = NULL;
    int rc = op_new(w, OP_DELETE, path, done, arg, &op, e);
    if (rc < 0)
        return rc;
    (void)buf_addf(&op->params, "&recursive=%s", recursive ? "true" : "false");
    return op_start(op, out, e);
}

int webhdfs_settimes(struct webhdfs *w, const char *path, int64_t mtime_ms, int64_t atime_ms,
                     webhdfs_done_fn *done, void *arg, struct webhdfs_op **out, struct err *e)
{
    struct webhdfs_op *op = NULL;
    int rc = op_new(w, OP_SETTIMES, path, done, arg, &op, e);
    if (rc < 0)
        return rc;
    (void)buf_addf(&op->params, "&modificationtime=%lld&accesstime=%lld", (long long)mtime_ms,
                   (long long)atime_ms);
    return op_start(op, out, e);
}

int webhdfs_put(struct webhdfs *w, const struct webhdfs_put *put, webhdfs_done_fn *done, void *arg,
                struct webhdfs_op **out, struct err *e)
{
    struct webhdfs_op *op = NULL;
    int rc = op_new(w, OP_PUT, put->path, done, arg, &op, e);
    if (rc < 0)
        return rc;
    op->put = *put;
    op->put.path = NULL; /* the string is borrowed only during this call */
    return op_start(op, out, e);
}

int webhdfs_get(struct webhdfs *w, const struct webhdfs_get *get, webhdfs_done_fn *done, void *arg,
                struct webhdfs_op **out, struct err *e)
{
    struct webhdfs_op *op = NULL;
    int rc = op_new(w, OP_GET, get->path, done, arg, &op, e);
    if (rc < 0)
        return rc;
    op->get = *get;
    op->get.path = NULL;
    if (get->offset > 0)
        (void)buf_addf(&op->params, "&offset=%lld", (long long)get->offset);
    if (get->length > 0)
        (void)buf_addf(&op->params, "&length=%lld", (long long)get->length);
    return op_start(op, out, e);
}
