/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prepares the working directory of the master's container. The files of the job were localized by
 * the NodeManager, or came as secrets in the token file. Everything else comes from the environment
 * that the NodeManager has set.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/hdts.h"
#include "hadoop/ids.h"
#include "master/yarn/yarn.h"
#include "scheduler/yarn/yarnfile.h"
#include "storage/jobkey.h"
#include "storage/paths.h"
#include "storage/resizekey.h"
#include "storage/sealed.h"
#include "storage/secrets.h"

enum { YARN_JSON_MAX = 32 << 20 };

static const char *const job_files[] = { "job.conf", "yarn.json" };

static int require_env(const char *name, const char **out, struct err *e)
{
    *out = getenv(name);
    if (*out && **out)
        return 0;
    err_set(e, EINVAL, "the environment variable %s is not set", name);
    return err_hint(e, "tony-master --yarn is started by YARN, not by hand");
}

static int read_ids(struct master_home *h, struct err *e)
{
    const char *text;
    struct yarn_container c;
    char id[YARN_ID_TEXT_MAX];
    int rc = require_env("CONTAINER_ID", &text, e);
    if (rc == 0)
        rc = yarn_container_parse(span_of(text), &c, e);
    if (rc < 0)
        return rc;
    h->epoch = (uint32_t)MAX(c.attempt.attempt, 1);
    h->application_id = str_dup(yarn_app_text(&c.attempt.app, id));
    h->container_id = str_dup(text);
    return h->application_id && h->container_id
               ? 0
               : err_set(e, ENOMEM, "no memory to prepare the directory of the job");
}

/* If the file came as a secret, write it to the working directory. If it was localized, it is there
 * already. */
static int write_carried_file(struct span tokens, const char *name, struct err *e)
{
    AUTO(free_p) char *alias = str_printf(YARN_CARRIED_PREFIX "%s", name);
    struct span text;
    if (!alias)
        return err_set(e, ENOMEM, "no memory to prepare the directory of the job");
    int rc = hdts_secret(tokens, alias, &text, e);
    if (rc == -ENOENT)
        return 0;
    return rc < 0 ? rc : fs_write_atomic(AT_FDCWD, name, text, 0600, false, e);
}

/* The key of an arbiter of another user, if the client has registered the job with one. */
static int read_resize_key(struct span tokens, struct tls_key *out, struct err *e)
{
    struct job_key k;
    struct span secret;
    struct err why = { 0 };
    int rc = hdts_secret(tokens, RESIZE_KEY_SECRET, &secret, &why);
    if (rc == -ENOENT)
        return 0;
    if (rc == 0)
        rc = job_key_read(secret, &k, &why);
    if (rc < 0) {
        *e = why;
        return rc;
    }
    out->len = sizeof k.bytes;
    memcpy(out->bytes, k.bytes, sizeof k.bytes);
    job_key_wipe(&k, sizeof k);
    return 0;
}

static int read_tokens(struct master_home *h, struct err *e)
{
    const char *path;
    AUTO(buf_done) struct buf text = { .max = HDTS_MAX };
    struct span secret = { 0 };
    int rc = require_env("HADOOP_TOKEN_FILE_LOCATION", &path, e);
    if (rc == 0)
        rc = fs_read(AT_FDCWD, path, &text, e);
    if (rc < 0)
        return rc;
    /* YARN's default executor makes the file readable to all who can enter the directory. */
    (void)chmod(path, 0600);
    rc = hdts_secret(buf_span(&text), JOB_KEY_SECRET, &secret, e);
    if (rc == 0)
        rc = job_key_read(secret, &h->key, e);
    if (rc == 0)
        rc = read_resize_key(buf_span(&text), &h->resize_key, e);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(job_files); i++)
        rc = write_carried_file(buf_span(&text), job_files[i], e);
    job_key_wipe(text.p, text.len);
    return rc < 0 ? err_wrap(e, rc, "token file '%s'", path) : 0;
}

/* The NodeManager has localized the file, if the job has secrets. */
static int read_secrets(struct master_home *h, struct err *e)
{
    AUTO(buf_done) struct buf sealed = { .max = SECRETS_TEXT_MAX + SEALED_EXTRA };
    struct err why = { 0 };
    int rc = fs_read(AT_FDCWD, SEALED_FILE, &sealed, &why);
    if (rc == -ENOENT)
        return 0;
    h->secrets.max = SECRETS_TEXT_MAX;
    if (rc == 0)
        rc = sealed_read(&h->key, h->application_id, buf_span(&sealed), &h->secrets, &why);
    if (rc < 0) {
        *e = why;
        return err_wrap(e, rc, "file '" SEALED_FILE "'");
    }
    return 0;
}

static int read_yarn_file(struct master_home *h, struct err *e)
{
    AUTO(buf_done) struct buf text = { .max = YARN_JSON_MAX };
    int rc = fs_read(AT_FDCWD, "yarn.json", &text, e);
    return rc < 0 ? rc : yarn_file_decode(buf_span(&text), &h->yarn, e);
}

/* Link <dir>/<name> to the file in the working directory, which is two levels above dir. */
static int link_job_file(const char *dir, const char *name, struct err *e)
{
    AUTO(free_p) char *at = fs_join(dir, name);
    AUTO(free_p) char *to = str_printf("../../%s", name);
    if (!at || !to)
        return err_set(e, ENOMEM, "no memory to prepare the directory of the job");
    if (access(name, R_OK) == -1)
        return err_set(e, errno, "cannot read '%s' in the container's directory: %m", name);
    if (symlink(to, at) == -1 && errno != EEXIST)
        return err_set(e, errno, "cannot link '%s': %m", at);
    return 0;
}

/* Make the same tree as in $TONY_HOME on one machine, in the working directory. */
static int make_dirs(struct master_home *h, struct err *e)
{
    char *cwd = getcwd(NULL, 0);
    if (!cwd)
        return err_set(e, errno, "cannot find the container's directory: %m");
    h->paths = (struct paths){
        .home = cwd,
        .pool = fs_join(cwd, "pool"),
        .jobs = fs_join(cwd, "jobs"),
        .store = fs_join(cwd, "store"),
        .history = fs_join(cwd, "history"),
        .runtime = str_dup(cwd),
    };
    if (!h->paths.pool || !h->paths.jobs || !h->paths.store || !h->paths.history ||
        !h->paths.runtime)
        return err_set(e, ENOMEM, "no memory to prepare the directory of the job");
    AUTO(free_p) char *dir = paths_job(&h->paths, h->application_id);
    int rc = dir ? fs_mkdirs(dir, 0700, e)
                 : err_set(e, ENOMEM, "no memory to prepare the directory of the job");
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(job_files); i++)
        rc = link_job_file(dir, job_files[i], e);
    return rc;
}

/* The node and the log URL of this container, as people see them. */
static int find_node(struct master_home *h, struct err *e)
{
    const char *host = getenv("NM_HOST"), *port = getenv("NM_PORT"), *http = getenv("NM_HTTP_PORT");
    if (host && port && !(h->node = str_printf("%s:%s", host, port)))
        return err_set(e, ENOMEM, "no memory to prepare the directory of the job");
    if (host && http &&
        !(h->log_url =
              str_printf("%s://%s:%s/node/containerlogs/%s/%s", h->yarn->https ? "https" : "http",
                         host, http, h->container_id, h->yarn->user)))
        return err_set(e, ENOMEM, "no memory to prepare the directory of the job");
    return 0;
}

/* Is the history shared with other users? Not if it is beside the staging directories, which is the
 * default and private. Otherwise the site has set its directory. */
static bool is_shared(const struct yarn_file *y)
{
    const char *slash = y->staging ? strrchr(y->staging, '/') : NULL;
    return y->history &&
           !(slash && strncmp(y->history, y->staging, (size_t)(slash - y->staging) + 1) == 0);
}

int master_home_open(struct master_home *h, struct err *e)
{
    *h = (struct master_home){ 0 };
    int rc = read_ids(h, e);
    if (rc == 0)
        rc = read_tokens(h, e);
    if (rc == 0)
        rc = read_secrets(h, e);
    if (rc == 0)
        rc = read_yarn_file(h, e);
    if (rc == 0)
        rc = make_dirs(h, e);
    if (rc == 0)
        h->history_is_shared = is_shared(h->yarn);
    return rc == 0 ? find_node(h, e) : rc;
}

void master_home_done(struct master_home *h)
{
    job_key_wipe(&h->key, sizeof h->key);
    job_key_wipe(&h->resize_key, sizeof h->resize_key);
    secrets_wipe(&h->secrets);
    yarn_file_free(h->yarn);
    paths_done(&h->paths);
    free(h->application_id);
    free(h->container_id);
    free(h->node);
    free(h->log_url);
    *h = (struct master_home){ 0 };
}
