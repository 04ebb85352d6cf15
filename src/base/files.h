/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file system that is reached over a network, as a table of functions: what a master needs to
 * keep its history and copies of its journal somewhere else. hadoop/webhdfs.h uses the same types.
 */
#ifndef TONY_BASE_FILES_H
#define TONY_BASE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

struct err;

struct files_stat {   /* strings are valid during done() */
    const char *name; /* the last component in a list; "" for the path itself */
    bool is_dir, is_symlink;
    mode_t mode; /* permission bits */
    int64_t length;
    int64_t mtime_ms, atime_ms; /* as a LocalResource needs it */
    const char *owner, *group;
    int64_t replication, block_size;
};

struct files_result {               /* valid during done() */
    const char *text;               /* home: the path */
    const struct files_stat *stats; /* stat: one; list: all */
    size_t n_stats;
    struct span data; /* get: the data, unless it was written to a descriptor */
    uint64_t n_bytes; /* get, put: number of bytes */
    bool changed;     /* delete: there was something to delete */
};

/* e->num != 0: the operation has failed, and r is NULL. */
typedef void files_done_fn(const struct files_result *r, const struct err *e, void *arg);

/* A file system. Each function returns 0 or -errno, and calls done() once, after it has returned.
 * fs: its own state. */
struct files_ops {
    int (*mkdirs)(void *fs, const char *path, mode_t mode, files_done_fn *done, void *arg,
                  struct err *e);
    int (*put)(void *fs, const char *path, mode_t mode, struct span text, files_done_fn *done,
               void *arg, struct err *e); /* text is borrowed until done */
    int (*remove)(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e);
    /* Only an empty directory; else done() gets ENOTEMPTY. */
    int (*rmdir)(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e);
    int (*rename)(void *fs, const char *from, const char *to, files_done_fn *done, void *arg,
                  struct err *e);
    /* The result of done(): for list the names in the directory, for get the bytes of the file. */
    int (*list)(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e);
    int (*get)(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e);
};

#endif
