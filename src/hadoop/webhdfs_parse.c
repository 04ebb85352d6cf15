/* SPDX-License-Identifier: Apache-2.0 */
#include "hadoop/webhdfs_parse.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/json.h"

static const char *const what = "the NameNode's answer";

/* ---- errors ---- */

static const struct {
    const char *exception;
    int num;
    const char *sentence; /* %s stands for the path */
} refusals[] = {
    { "FileNotFoundException", ENOENT, "there is no '%s' in HDFS" },
    { "FileAlreadyExistsException", EEXIST, "'%s' exists already" },
    { "PathIsNotEmptyDirectoryException", ENOTEMPTY, "directory '%s' is not empty" },
    { "ParentNotDirectoryException", ENOTDIR, "a part of '%s' is not a directory" },
    { "PathIsNotDirectoryException", ENOTDIR, "a part of '%s' is not a directory" },
    { "InvalidPathException", EINVAL, "'%s' is not a valid path in HDFS" },
    { "QuotaExceededException", EDQUOT, "'%s' is over a quota" },
    { "NSQuotaExceededException", EDQUOT, "'%s' is over the quota for the number of files" },
    { "DSQuotaExceededException", EDQUOT, "'%s' is over the quota of space" },
    { "QuotaByStorageTypeExceededException", EDQUOT, "'%s' is over the quota of space" },
};

/* The first line of Java's message, without the stack trace. */
static void first_line(const char *message, char *out, size_t n)
{
    size_t len = MIN(strcspn(message, "\r\n"), n - 1);
    memcpy(out, message, len);
    out[len] = '\0';
}

static enum webhdfs_class remote_exception(const char *name, const char *message, const char *path,
                                           const char *user, struct err *e)
{
    char line[300];
    first_line(message, line, sizeof line);
    if (strstr(message, "in safe mode") || str_eq(name, "SafeModeException")) {
        (void)err_set(e, EAGAIN, "the NameNode is in safe mode: '%s' cannot be changed", path);
        (void)err_hint(e, "it leaves it by itself when its DataNodes are back; see 'hdfs dfsadmin "
                          "-safemode get'");
        return WC_SAFE_MODE;
    }
    if (str_eq(name, "StandbyException") || strstr(message, "StandbyException")) {
        (void)err_set(e, EAGAIN, "the NameNode is a standby: another NameNode is active");
        return WC_NEXT;
    }
    if (str_eq(name, "RetriableException") || str_eq(name, "ServerTooBusyException")) {
        (void)err_set(e, EAGAIN, "the NameNode is busy, and asks to retry later: %s", line);
        return WC_NEXT;
    }
    if (str_eq(name, "AccessControlException")) {
        (void)err_set(e, EACCES, "user '%s' has no permission for '%s' in HDFS: %s", user, path,
                      line);
        return WC_FINAL;
    }
    if (str_eq(name, "SecurityException") || str_eq(name, "AuthorizationException")) {
        (void)err_set(e, EPERM, "the NameNode refuses user '%s': %s", user, line);
        return WC_FINAL;
    }
    if (strstr(message, "Path is not a file")) {
        (void)err_set(e, EISDIR, "'%s' is a directory", path);
        return WC_FINAL;
    }
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
        if (!str_eq(name, refusals[i].exception))
            continue;
        char text[400];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        (void)snprintf(text, sizeof text, refusals[i].sentence, path);
#pragma GCC diagnostic pop
        (void)err_set(e, refusals[i].num, "%s", text);
        return WC_FINAL;
    }
    if (strstr(message, "could only be written to") || strstr(message, "Failed to find datanode")) {
        (void)err_set(e, ENOSPC, "no DataNode can store '%s': %s", path, line);
        return WC_FINAL;
    }
    (void)err_set(e, EIO, "HDFS refuses '%s': %s: %s", path, name, line);
    return WC_FINAL;
}

enum webhdfs_class webhdfs_refusal(int status, struct span body, const char *path, const char *user,
                                   struct err *e)
{
    AUTO(json_freep) json_t *j = NULL;
    if (body.len > 0 && json_parse(what, body, &j, NULL) == 0) {
        const json_t *x = json_object_get(j, "RemoteException");
        const char *name = json_str(x, "exception", NULL);
        if (name)
            return remote_exception(name, json_str(x, "message", ""), path, user, e);
    }
    if (status == 401) {
        (void)err_set(e, EPERM, "the NameNode requires Kerberos, which tony does not support yet");
        return WC_FINAL;
    }
    if (status == 403 || status == 404) {
        (void)err_set(e, EOPNOTSUPP, "the NameNode does not serve WebHDFS (status %d)", status);
        (void)err_hint(e, "set dfs.webhdfs.enabled to true in hdfs-site.xml, and look whether "
                          "dfs.namenode.http-address is the NameNode's");
        return WC_FINAL;
    }
    (void)err_set(e, EIO, "HDFS answers with status %d for '%s'", status, path);
    return status >= 500 ? WC_NEXT : WC_FINAL;
}

/* ---- values ---- */

void webhdfs_stats_done(struct webhdfs_stats *s)
{
    for (size_t i = 0; i < s->texts.n; i++)
        json_decref(s->texts.v[i]);
    vec_done(&s->texts);
    vec_done(&s->v);
}

static int read_one(const json_t *j, struct webhdfs_stats *out, struct err *e)
{
    const char *type = json_str(j, "type", NULL), *octal = json_str(j, "permission", "0");
    char *end;
    unsigned long mode = strtoul(octal, &end, 8);
    if (!type || *end || mode > 07777)
        return err_set(e, EPROTO, "%s does not describe a file (type and permission)", what);
    struct files_stat s = {
        .name = json_str(j, "pathSuffix", ""),
        .is_dir = str_eq(type, "DIRECTORY"),
        .is_symlink = str_eq(type, "SYMLINK"),
        .mode = (mode_t)mode,
        .length = json_int(j, "length", 0),
        .mtime_ms = json_int(j, "modificationTime", 0),
        .atime_ms = json_int(j, "accessTime", 0),
        .owner = json_str(j, "owner", ""),
        .group = json_str(j, "group", ""),
        .replication = json_int(j, "replication", 0),
        .block_size = json_int(j, "blockSize", 0),
    };
    if (vec_push(&out->v, s) < 0)
        return err_set(e, ENOMEM, "cannot keep %s: %m", what);
    return 0;
}

/* Parse a JSON text and keep it in out, because the strings of the results point into it. */
static int keep_text(struct span body, struct webhdfs_stats *out, json_t **j, struct err *e)
{
    AUTO(json_freep) json_t *text = NULL;
    struct err why = { 0 };
    int rc = json_parse(what, body, &text, &why);
    if (rc < 0) {
        (void)err_set(e, rc == -ENOMEM ? ENOMEM : EPROTO, "%s", why.msg);
        return rc == -ENOMEM ? rc : -EPROTO;
    }
    if (vec_push(&out->texts, text) < 0)
        return err_set(e, ENOMEM, "cannot keep %s: %m", what);
    *j = TAKE(text);
    return 0;
}

int webhdfs_read_stat(struct span body, struct webhdfs_stats *out, struct err *e)
{
    json_t *j;
    int rc = keep_text(body, out, &j, e);
    return rc < 0 ? rc : read_one(json_object_get(j, "FileStatus"), out, e);
}

int webhdfs_read_list(struct span body, struct webhdfs_stats *out, int64_t *out_left, struct err *e)
{
    json_t *j;
    int rc = keep_text(body, out, &j, e);
    if (rc < 0)
        return rc;
    const json_t *batch = json_object_get(j, "DirectoryListing"), *list;
    int64_t left = json_int(batch, "remainingEntries", 0);
    list = batch ? json_object_get(batch, "partialListing") : j;
    list = json_object_get(json_object_get(list, "FileStatuses"), "FileStatus");
    if (!json_is_array(list))
        return err_set(e, EPROTO, "%s has no list of files", what);
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
        rc = read_one(json_array_get(list, i), out, e);
    if (rc == 0)
        *out_left = json_array_size(list) > 0 ? left : 0;
    return rc;
}

static int read_member(struct span body, const char *key, json_t **out_text, const json_t **out,
                       struct err *e)
{
    struct err why = { 0 };
    int rc = json_parse(what, body, out_text, &why);
    if (rc < 0)
        return err_set(e, rc == -ENOMEM ? ENOMEM : EPROTO, "%s", why.msg);
    *out = json_object_get(*out_text, key);
    return 0;
}

int webhdfs_read_bool(struct span body, bool *out, struct err *e)
{
    AUTO(json_freep) json_t *text = NULL;
    const json_t *v;
    int rc = read_member(body, "boolean", &text, &v, e);
    if (rc == 0 && !json_is_boolean(v))
        rc = err_set(e, EPROTO, "%s has no value true or false", what);
    if (rc == 0)
        *out = json_is_true(v);
    return rc;
}

int webhdfs_read_path(struct span body, char **out, struct err *e)
{
    AUTO(json_freep) json_t *text = NULL;
    const json_t *v;
    int rc = read_member(body, "Path", &text, &v, e);
    if (rc < 0)
        return rc;
    const char *path = json_string_value(v);
    if (!path || *path != '/')
        return err_set(e, EPROTO, "%s has no absolute path", what);
    *out = str_dup(path);
    return *out ? 0 : err_set(e, ENOMEM, "cannot keep %s: %m", what);
}
