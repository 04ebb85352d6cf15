/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of HDFS through WebHDFS (or an HttpFS gateway), with the loop's HTTP client.
 *
 * Any number of operations may run at once. Each ends with one call of its done(), which never
 * comes before the function that started it has returned.
 *
 * The NameNodes are tried in order, beginning with the one that answered last. If one refuses, is
 * in standby or does not answer, the next one is tried. After all of them there is a pause, which
 * grows, until try_ms is over. If a connection breaks, the operation is repeated. All operations
 * can be repeated safely; if a repeated rename or delete finds the file gone, it counts as done.
 *
 * Paths are absolute and not encoded. Errors name the path and, where it matters, the user:
 *   -EACCES     no permission          -ENOENT    no such file or directory
 *   -EEXIST     exists already         -ENOTDIR, -EISDIR, -ENOTEMPTY
 *   -EDQUOT     over a quota           -ENOSPC    no DataNode takes the file
 *   -EAGAIN     the NameNode is in safe mode, or all NameNodes are in standby
 *   -EOPNOTSUPP WebHDFS is switched off (dfs.webhdfs.enabled)
 *   -EPERM      the cluster demands Kerberos, or refuses the user's name
 *   -ECONNREFUSED, -ETIMEDOUT, -EPROTO, -EIO (with the server's own sentence)
 */
#ifndef TONY_HADOOP_WEBHDFS_H
#define TONY_HADOOP_WEBHDFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/files.h"

struct err;
struct loop;
struct webhdfs;
struct webhdfs_op;

enum {
    WEBHDFS_STALL_MS = 60000, /* defaults of struct webhdfs_config */
    WEBHDFS_TRY_MS = 30000,
    WEBHDFS_AT_ONCE = 16, /* operations that run at the same time; further ones wait */
};

struct webhdfs_config {           /* all members are copied */
    const char *const *namenodes; /* "host:port" of their HTTP addresses, or of the gateway */
    size_t n_namenodes;
    const char *user; /* sent as user.name */
    int64_t stall_ms; /* time without any byte before an operation fails; 0 = WEBHDFS_STALL_MS */
    /* how long to retry if all NameNodes refuse; 0 = WEBHDFS_TRY_MS; below 0: try each NameNode
     * once */
    int64_t try_ms;
    int64_t safe_mode_ms; /* how long to wait for the end of safe mode; 0: safe mode is an error at
                             once */
};

typedef files_done_fn webhdfs_done_fn; /* base/files.h */

int webhdfs_new(struct loop *l, const struct webhdfs_config *cfg, struct webhdfs **out,
                struct err *e);
void webhdfs_free(struct webhdfs *w); /* drops all operations without done(); NULL is fine */
/* Cancel without done(). A cancelled put may leave an unfinished file. Not after done(); NULL is
 * fine. */
void webhdfs_cancel(struct webhdfs_op *op);

/* Each of these returns 0 and the operation, or -errno with e set (no memory, invalid path). out
 * may be NULL. */
int webhdfs_home(struct webhdfs *w, webhdfs_done_fn *done, void *arg, struct webhdfs_op **out,
                 struct err *e);
int webhdfs_stat(struct webhdfs *w, const char *path, webhdfs_done_fn *done, void *arg,
                 struct webhdfs_op **out, struct err *e);
/* Lists in the order of names. It reads parts from the NameNode; done() gets all entries at
 * once. */
int webhdfs_list(struct webhdfs *w, const char *path, webhdfs_done_fn *done, void *arg,
                 struct webhdfs_op **out, struct err *e);
/* Like mkdir -p. A NameNode creates missing parents with the same mode: to give them another one,
 * create them first. The mode of an existing directory is not changed. */
int webhdfs_mkdirs(struct webhdfs *w, const char *path, mode_t mode, webhdfs_done_fn *done,
                   void *arg, struct webhdfs_op **out, struct err *e);
/* -EEXIST: `to` exists; -ENOENT: `from` does not exist. */
int webhdfs_rename(struct webhdfs *w, const char *from, const char *to, webhdfs_done_fn *done,
                   void *arg, struct webhdfs_op **out, struct err *e);
/* A missing path is no error: see `changed`. */
int webhdfs_delete(struct webhdfs *w, const char *path, bool recursive, webhdfs_done_fn *done,
                   void *arg, struct webhdfs_op **out, struct err *e);
int webhdfs_settimes(struct webhdfs *w, const char *path, int64_t mtime_ms, int64_t atime_ms,
                     webhdfs_done_fn *done, void *arg, struct webhdfs_op **out, struct err *e);

/* A put writes under the final name at once. If other programs may read the file before the put is
 * complete, write it under another name and rename it. */
struct webhdfs_put {
    const char *path;
    mode_t mode; /* 0 means 0644 */
    bool overwrite;
    unsigned replication; /* 0 = the cluster's default */
    struct span data;     /* the content, borrowed until done(); or: */
    bool from_fd;
    int fd; /* n bytes from the start of this file; the caller keeps it open until done() */
    int64_t n;
    /* Called as bytes are sent; may be NULL. After a failure, `sent` starts again from 0. */
    void (*progress)(uint64_t sent, uint64_t total, void *arg);
};
int webhdfs_put(struct webhdfs *w, const struct webhdfs_put *put, webhdfs_done_fn *done, void *arg,
                struct webhdfs_op **out, struct err *e);

struct webhdfs_get {
    const char *path;
    int64_t offset;
    int64_t length; /* 0 = up to the end */
    size_t max;     /* limit in memory: a larger file is -EFBIG; 0 = 16 MiB */
    bool to_fd;
    int fd; /* write to this file at its present offset; the caller keeps it */
};
int webhdfs_get(struct webhdfs *w, const struct webhdfs_get *get, webhdfs_done_fn *done, void *arg,
                struct webhdfs_op **out, struct err *e);

#endif
