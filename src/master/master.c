/* SPDX-License-Identifier: Apache-2.0 */
#include "master/master.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/standby.h"
#include "base/str.h"
#include "base/title.h"
#include "base/util.h"
#include "master/master_int.h"
#include "master/yarn/yarn.h"
#include "storage/hook.h"
#include "storage/jobkey.h"
#include "storage/paths.h"

void master_exit_now(struct master *m, enum master_exit code)
{
    if (m->phase == MP_EXITING)
        return;
    m->phase = MP_EXITING;
    m->exit_code = code;
    loop_stop(m->loop);
}

enum master_exit master_exit_code(const struct master *m)
{
    return m->exit_code;
}

/* MASTER_HOPELESS: another master would fail with the same error. */
static enum master_exit exit_of_open(int rc)
{
    switch (-rc) {
    case EBADMSG:
    case EINVAL:
    case ENOENT:
    case ENOSPC:
    case EDQUOT:
    case EROFS:
    case EFBIG:
        return MASTER_HOPELESS;
    default:
        return MASTER_CRASHED;
    }
}

static int read_key(const struct paths *paths, const char *application_id, struct job_key *out,
                    struct err *e)
{
    AUTO(free_p) char *dir = paths_job(paths, application_id);
    return dir ? job_key_open(dir, out, e) : err_set(e, ENOMEM, "no memory to start the master");
}

/* The things that a master can open before its job comes. */
struct early {
    struct paths paths;
    struct loop *loop;
    int rc; /* of opening both */
};

static void open_early(struct early *x, struct err *e)
{
    x->rc = paths_open(&x->paths, e);
    if (x->rc == 0 && !(x->loop = loop_new(e)))
        x->rc = -e->num;
}

static void close_early(struct early *x)
{
    loop_free(x->loop);
    paths_done(&x->paths);
}

/* cluster: the nodes of the job share its directory. */
static enum master_exit run(struct early *x, const char *application_id, uint32_t epoch,
                            bool cluster, struct err *e)
{
    struct job_key key = { 0 };
    struct master_remote remote = { .key = &key, .shared_dirs = true };
    struct master *m = NULL;
    int rc = x->rc;
    if (rc == 0 && cluster)
        rc = read_key(&x->paths, application_id, &key, e);
    enum master_exit code = rc < 0 ? exit_of_open(rc) : MASTER_CRASHED;
    if (rc == 0) {
        struct master_config cfg = {
            .loop = x->loop,
            .paths = &x->paths,
            .application_id = application_id,
            .epoch = epoch,
            .remote = cluster ? &remote : NULL,
        };
        rc = master_open(&cfg, &m, e);
        code = rc < 0 ? exit_of_open(rc) : MASTER_CRASHED;
    }
    if (m) {
        rc = loop_run(x->loop);
        code = rc < 0 ? MASTER_CRASHED : master_exit_code(m);
        if (rc < 0)
            err_set(e, -rc, "the event loop failed: %m");
    }
    master_close(m);
    job_key_wipe(&key, sizeof key);
    return code;
}

static int usage(const char *why, const char *arg)
{
    fprintf(stderr,
            "tony-master: %s%s%s\n"
            "usage: tony-master [--epoch E] APPLICATION_ID [--cluster]\n"
            "                                                  (started by the job's keeper)\n"
            "       tony-master --yarn                         (started by a YARN NodeManager)\n",
            why, arg ? ": " : "", arg ? arg : "");
    return MASTER_MISUSE;
}

/* tony-master --standby APPLICATION_ID: the first master of the next job. Opens x and waits. */
static int standby(struct early *x, int *argc, char ***argv)
{
    struct err unused = { 0 };
    title_init(*argc, *argv);
    open_early(x, &unused);
    int n = standby_wait("tony-master", NULL, argv);
    if (n > 0)
        title_set_args(*argv);
    *argc = n;
    return n;
}

int master_main(int argc, char **argv)
{
    const char *id = NULL;
    int64_t epoch = 1, start_ms;
    bool cluster = false;
    uint32_t number;
    struct err e = { 0 };
    struct early x = { .loop = NULL };
    if (argc > 1 && str_eq(argv[1], "--standby") && standby(&x, &argc, &argv) <= 0) {
        close_early(&x);
        return MASTER_CRASHED; /* if it was needed, the keeper starts another one */
    }
    for (int i = 1; i < argc; i++) {
        if (str_eq(argv[i], "--version")) {
            puts("tony-master " TONY_VERSION);
            return 0;
        } else if (str_eq(argv[i], "--on-end") && i == 1) {
            return hook_main(argc, argv);
        } else if (str_eq(argv[i], "--yarn") && argc == 2) {
            return master_yarn_main();
        } else if (str_eq(argv[i], "--cluster")) {
            cluster = true;
        } else if (str_eq(argv[i], "--epoch")) {
            if (++i == argc || str_i64(span_of(argv[i]), 1, INT32_MAX, "epoch", &epoch, &e) < 0)
                return usage("--epoch needs a number of at least 1", argv[i]);
        } else if (argv[i][0] == '-' || id) {
            return usage("unknown argument", argv[i]);
        } else {
            id = argv[i];
        }
    }
    if (!id)
        return usage("missing argument APPLICATION_ID", NULL);
    if (app_id_parse(id, &start_ms, &number, &e) < 0)
        return usage(e.msg, NULL);

    if (!x.loop) { /* also if a standby could not open it */
        close_early(&x);
        open_early(&x, &e);
    }
    enum master_exit code = run(&x, id, (uint32_t)epoch, cluster, &e);
    close_early(&x);
    if (e.num)
        log_err(LOG_ERROR, "master.failed", &e);
    return (int)code;
}
