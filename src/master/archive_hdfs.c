/* SPDX-License-Identifier: Apache-2.0 */
/* The struct archive_files of HDFS, over WebHDFS. */
#include "master/archive.h"
#include "master/copies.h"

static int hdfs_mkdirs(void *fs, const char *path, mode_t mode, webhdfs_done_fn *done, void *arg,
                       struct err *e)
{
    return webhdfs_mkdirs(fs, path, mode, done, arg, NULL, e);
}

/* Nobody reads an unfinished file: the history is read after the end of the application, and the
 * reader of copies checks each one. */
static int hdfs_put(void *fs, const char *path, mode_t mode, struct span text,
                    webhdfs_done_fn *done, void *arg, struct err *e)
{
    struct webhdfs_put put = { .path = path, .mode = mode, .overwrite = true, .data = text };
    return webhdfs_put(fs, &put, done, arg, NULL, e);
}

static int hdfs_remove(void *fs, const char *path, webhdfs_done_fn *done, void *arg, struct err *e)
{
    return webhdfs_delete(fs, path, true, done, arg, NULL, e);
}

static int hdfs_rmdir(void *fs, const char *path, webhdfs_done_fn *done, void *arg, struct err *e)
{
    return webhdfs_delete(fs, path, false, done, arg, NULL, e);
}

static int hdfs_rename(void *fs, const char *from, const char *to, webhdfs_done_fn *done, void *arg,
                       struct err *e)
{
    return webhdfs_rename(fs, from, to, done, arg, NULL, e);
}

static int hdfs_list(void *fs, const char *path, webhdfs_done_fn *done, void *arg, struct err *e)
{
    return webhdfs_list(fs, path, done, arg, NULL, e);
}

static int hdfs_get(void *fs, const char *path, webhdfs_done_fn *done, void *arg, struct err *e)
{
    const struct webhdfs_get get = { .path = path, .max = COPIES_PIECE_MAX };
    return webhdfs_get(fs, &get, done, arg, NULL, e);
}

const struct archive_files archive_webhdfs = {
    .mkdirs = hdfs_mkdirs,
    .put = hdfs_put,
    .remove = hdfs_remove,
    .rmdir = hdfs_rmdir,
    .rename = hdfs_rename,
    .list = hdfs_list,
    .get = hdfs_get,
};
