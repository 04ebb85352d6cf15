/* SPDX-License-Identifier: Apache-2.0 */
/* The struct files_ops of HDFS, over WebHDFS. */
#include "hadoop/webhdfs.h"
#include "master/copies.h"
#include "master/yarn/yarn.h"

static int hdfs_mkdirs(void *fs, const char *path, mode_t mode, files_done_fn *done, void *arg,
                       struct err *e)
{
    return webhdfs_mkdirs(fs, path, mode, done, arg, NULL, e);
}

/* Nobody reads an unfinished file: the history is read after the end of the application, and the
 * reader of copies checks each one. */
static int hdfs_put(void *fs, const char *path, mode_t mode, struct span text, files_done_fn *done,
                    void *arg, struct err *e)
{
    struct webhdfs_put put = { .path = path, .mode = mode, .overwrite = true, .data = text };
    return webhdfs_put(fs, &put, done, arg, NULL, e);
}

static int hdfs_remove(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e)
{
    return webhdfs_delete(fs, path, true, done, arg, NULL, e);
}

static int hdfs_rmdir(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e)
{
    return webhdfs_delete(fs, path, false, done, arg, NULL, e);
}

static int hdfs_rename(void *fs, const char *from, const char *to, files_done_fn *done, void *arg,
                       struct err *e)
{
    return webhdfs_rename(fs, from, to, done, arg, NULL, e);
}

static int hdfs_list(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e)
{
    return webhdfs_list(fs, path, done, arg, NULL, e);
}

static int hdfs_get(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e)
{
    const struct webhdfs_get get = { .path = path, .max = COPIES_PIECE_MAX };
    return webhdfs_get(fs, &get, done, arg, NULL, e);
}

const struct files_ops hdfs_files = {
    .mkdirs = hdfs_mkdirs,
    .put = hdfs_put,
    .remove = hdfs_remove,
    .rmdir = hdfs_rmdir,
    .rename = hdfs_rename,
    .list = hdfs_list,
    .get = hdfs_get,
};
