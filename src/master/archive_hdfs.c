/* The files of archive.h in HDFS. */
#include "master/archive.h"

enum { GET_MAX = 512 << 20 };

static int hdfs_mkdirs(void *fs, const char *path, mode_t mode, webhdfs_done_fn *done, void *arg,
                       struct err *e)
{
    return webhdfs_mkdirs(fs, path, mode, done, arg, NULL, e);
}

/* Under its own name at once: nobody looks there before the application has ended. */
static int hdfs_put(void *fs, const char *path, mode_t mode, struct span text,
                    webhdfs_done_fn *done, void *arg, struct err *e)
{
    struct webhdfs_put put = {
        .path = path, .mode = mode, .overwrite = true, .direct = true, .data = text
    };
    return webhdfs_put(fs, &put, done, arg, NULL, e);
}

static int hdfs_remove(void *fs, const char *path, webhdfs_done_fn *done, void *arg, struct err *e)
{
    return webhdfs_delete(fs, path, true, done, arg, NULL, e);
}

static int hdfs_list(void *fs, const char *path, webhdfs_done_fn *done, void *arg, struct err *e)
{
    return webhdfs_list(fs, path, done, arg, NULL, e);
}

static int hdfs_get(void *fs, const char *path, webhdfs_done_fn *done, void *arg, struct err *e)
{
    const struct webhdfs_get get = { .path = path, .max = GET_MAX };
    return webhdfs_get(fs, &get, done, arg, NULL, e);
}

const struct archive_files archive_webhdfs = {
    .mkdirs = hdfs_mkdirs,
    .put = hdfs_put,
    .remove = hdfs_remove,
    .list = hdfs_list,
    .get = hdfs_get,
};
