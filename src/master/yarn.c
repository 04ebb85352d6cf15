/*
 * tony-master --yarn: the master in its container on a YARN cluster (docs/decisions/0006-yarn.md).
 * What is missing there is said in one sentence on stderr, whose end becomes the application's
 * diagnostics; until all is there nothing is opened.
 */
#include "master/yarn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "hadoop/webhdfs.h"
#include "loop/loop.h"
#include "master/archive.h"
#include "scheduler/yarn/yarnfile.h"

static int open_hdfs(const struct master_home *h, struct loop *loop, struct webhdfs **out,
                     struct err *e)
{
    struct webhdfs_config cfg = {
        .namenodes = (const char *const *)h->yarn->namenodes.v,
        .n_namenodes = h->yarn->namenodes.n,
        .user = h->yarn->user,
    };
    return webhdfs_new(loop, &cfg, out, e);
}

static enum master_exit run(const struct master_home *h, struct err *e)
{
    struct webhdfs *hdfs = NULL;
    struct master *m = NULL;
    struct loop *loop = loop_new(e);
    enum master_exit code = MASTER_CRASHED;
    int rc = loop ? open_hdfs(h, loop, &hdfs, e) : -ENOMEM;
    const char *owned = getenv("TONY_OWNED");
    struct master_remote remote = {
        .key = &h->key,
        .container_id = h->container_id,
        .node = h->node,
        .log_url = h->log_url,
        .owned = str_eq(owned, "1"),
        .files = &archive_webhdfs,
        .fs = hdfs,
        .history_dir = h->yarn->history && *h->yarn->history ? h->yarn->history : NULL,
        .history_is_shared = h->history_is_shared,
        .staging_dir = h->yarn->staging && *h->yarn->staging ? h->yarn->staging : NULL,
    };
    struct master_config cfg = {
        .loop = loop,
        .paths = &h->paths,
        .application_id = h->application_id,
        .epoch = h->epoch,
        .remote = &remote,
    };
    if (rc == 0)
        rc = master_open(&cfg, &m, e);
    if (rc == 0) {
        rc = loop_run(loop);
        code = rc < 0 ? MASTER_CRASHED : master_exit_code(m);
        if (rc < 0)
            err_set(e, -rc, "the event loop failed: %m");
        else
            loop_flush(loop);
    }
    master_close(m);
    webhdfs_free(hdfs);
    loop_free(loop);
    return code;
}

int master_yarn_main(void)
{
    struct master_home h;
    struct err e = { 0 };
    enum master_exit code = MASTER_CRASHED;
    (void)unsetenv("TONY_HOME");    /* nothing of a user's home is ours here */
    for (int fd = 1; fd <= 2; fd++) /* of a job without roles the task writes to the same files */
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_APPEND);
    if (master_home_open(&h, &e) == 0)
        code = run(&h, &e);
    if (e.num)
        fprintf(stderr, "tony-master: %s%s%s\n", e.msg, *e.hint ? ": " : "", e.hint);
    master_home_done(&h);
    return (int)code;
}
