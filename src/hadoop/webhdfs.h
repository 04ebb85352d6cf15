/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of HDFS through WebHDFS (or an HttpFS gateway), over the loop's HTTP client.
 *
 * Any number of operations may run at once; each ends in one call of its done(), never before the
 * function that started it has returned. The NameNodes are tried in order, beginning with the one
 * that answered last: one that refuses, is in standby or does not answer passes the turn on, and
 * when all have, it goes round again with a growing pause until try_ms is over. Operations that can
 * be repeated are repeated when a connection breaks under them; so can all be here, but for rename
 * and delete, whose second try takes "gone already" for done.
 *
 * Paths are absolute, unencoded. Errors name the path and, where it matters, the user:
 *   -EACCES     no permission          -ENOENT    no such file or directory
 *   -EEXIST     there already          -ENOTDIR, -EISDIR, -ENOTEMPTY
 *   -EDQUOT     over a quota           -ENOSPC    no DataNode takes the file
 *   -EAGAIN     the NameNode is in safe mode, or all are in standby
 *   -EOPNOTSUPP WebHDFS is switched off (dfs.webhdfs.enabled)
 *   -EPERM      the cluster wants Kerberos, or does not take the user's name
 *   -ECONNREFUSED, -ETIMEDOUT, -EPROTO, -EIO (with the server's own sentence)
 */
#ifndef TONY_HADOOP_WEBHDFS_H
#define TONY_HADOOP_WEBHDFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

struct err;
struct loop;
struct webhdfs;
struct webhdfs_op;

enum {
    WEBHDFS_STALL_MS = 60000,
    WEBHDFS_TRY_MS = 30000,
    WEBHDFS_AT_ONCE = 16, /* operations under way; further ones wait in line */
};

struct webhdfs_config {           /* all is copied */
    const char *const *namenodes; /* "host:port" of their HTTP addresses, or of the gateway */
    size_t n_namenodes;
    const char *user; /* sent as user.name */
    int64_t stall_ms; /* 0 = WEBHDFS_STALL_MS: no byte moved for so long */
    int64_t try_ms;   /* 0 = WEBHDFS_TRY_MS: how long all NameNodes may refuse; < 0: one round */
    int64_t safe_mode_ms; /* 0: safe mode is an error at once; else wait so long for its end */
};

struct webhdfs_stat { /* strings are borrowed during done() */
    const char *name; /* the last component in a list; "" of the path itself */
    bool is_dir, is_symlink;
    mode_t mode; /* permission bits */
    int64_t length;
    int64_t mtime_ms, atime_ms; /* exactly what a LocalResource wants */
    const char *owner, *group;
    int64_t replication, block_size;
};

struct webhdfs_result {               /* borrowed during done() */
    const char *text;                 /* home: the path */
    const struct webhdfs_stat *stats; /* stat: one; list: all */
    size_t n_stats;
    struct span data; /* get: the bytes, when not sent to a descriptor */
    uint64_t n_bytes; /* get, put */
    bool changed;     /* delete: there was something */
};

/* e->num != 0: it failed, and r is NULL. */
typedef void webhdfs_done_fn(const struct webhdfs_result *r, const struct err *e, void *arg);

int webhdfs_new(struct loop *l, const struct webhdfs_config *cfg, struct webhdfs **out,
                struct err *e);
void webhdfs_free(struct webhdfs *w); /* drops all operations without done(); NULL is fine */
/* No done(). A put leaves at most a file "<path>._COPYING_". Not after done(); NULL is fine. */
void webhdfs_cancel(struct webhdfs_op *op);

/* Each returns 0 and the operation, or -errno with e set (no memory, a path that cannot be); out
 * may be NULL. */
int webhdfs_home(struct webhdfs *w, webhdfs_done_fn *done, void *arg, struct webhdfs_op **out,
                 struct err *e);
int webhdfs_stat(struct webhdfs *w, const char *path, webhdfs_done_fn *done, void *arg,
                 struct webhdfs_op **out, struct err *e);
/* In the order of names; in batches from the NameNode, all at once to done(). */
int webhdfs_list(struct webhdfs *w, const char *path, webhdfs_done_fn *done, void *arg,
                 struct webhdfs_op **out, struct err *e);
/* Like mkdir -p. A NameNode gives parents that it makes the same permission: make those that should
 * be open first. An existing directory keeps its own. */
int webhdfs_mkdirs(struct webhdfs *w, const char *path, mode_t mode, webhdfs_done_fn *done,
                   void *arg, struct webhdfs_op **out, struct err *e);
/* -EEXIST when `to` is there, -ENOENT when `from` is not. */
int webhdfs_rename(struct webhdfs *w, const char *from, const char *to, webhdfs_done_fn *done,
                   void *arg, struct webhdfs_op **out, struct err *e);
/* What is not there is no error: see changed. */
int webhdfs_delete(struct webhdfs *w, const char *path, bool recursive, webhdfs_done_fn *done,
                   void *arg, struct webhdfs_op **out, struct err *e);
int webhdfs_settimes(struct webhdfs *w, const char *path, int64_t mtime_ms, int64_t atime_ms,
                     webhdfs_done_fn *done, void *arg, struct webhdfs_op **out, struct err *e);
int webhdfs_setpermission(struct webhdfs *w, const char *path, mode_t mode, webhdfs_done_fn *done,
                          void *arg, struct webhdfs_op **out, struct err *e);

struct webhdfs_put {
    const char *path;
    mode_t mode; /* 0 = 0644 */
    bool overwrite;
    /* Write under the name itself, not under "<path>._COPYING_" and a rename: one round trip less,
     * for where nobody looks before it is whole, such as names that are made only once. */
    bool direct;
    unsigned replication; /* 0 = the cluster's */
    struct span data;     /* borrowed until done; or: */
    bool from_fd;
    int fd; /* n bytes from the start; stays the caller's, open until done */
    int64_t n;
    void (*progress)(uint64_t sent, uint64_t total,
                     void *arg); /* may be NULL; goes back on a retry */
};
int webhdfs_put(struct webhdfs *w, const struct webhdfs_put *put, webhdfs_done_fn *done, void *arg,
                struct webhdfs_op **out, struct err *e);

struct webhdfs_get {
    const char *path;
    int64_t offset;
    int64_t length; /* 0 = to the end */
    size_t max;     /* into memory: more is -EFBIG; 0 = 16 MiB */
    bool to_fd;
    int fd; /* written from its present offset on; stays the caller's */
};
int webhdfs_get(struct webhdfs *w, const struct webhdfs_get *get, webhdfs_done_fn *done, void *arg,
                struct webhdfs_op **out, struct err *e);

#endif
