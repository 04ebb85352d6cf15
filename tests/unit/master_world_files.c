/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a remote world: a stand-in for HDFS. */
#include "master_world_int.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "loop/loop.h"
#include "master/archive.h"

enum { SLOW_MS = 50 };

/* An operation on the request for a resize that a client has left. */
static void queued_over(struct world *w, const struct world_op *op)
{
    bool there = w->files.request.len > 0;
    struct files_stat stats[] = { { .name = "1", .length = (int64_t)w->files.request.len } };
    struct files_result r = { .stats = stats, .n_stats = 1, .data = buf_span(&w->files.request) };
    struct err e = { 0 };
    if (op->kind == WORLD_RMDIR && there && !w->files.taken)
        err_set(&e, ENOTEMPTY, "it is not empty");
    else if (op->kind == WORLD_RENAME && there && !w->files.taken)
        w->files.taken = true;
    else if (op->kind != WORLD_RMDIR && !w->files.taken)
        err_set(&e, ENOENT, "it is not there");
    op->done(e.num ? NULL : &r, &e, op->arg);
}

static void files_over(void *arg, int rc)
{
    struct world *w = arg;
    struct world_op ops[ARRAY_LEN(w->files.waiting)];
    unsigned n = w->files.n_waiting;
    struct err e = { 0 };
    (void)rc;
    if (w->files.slow)
        w->files.n_running_then = world_n_running(w);
    w->files.slow = false;
    if (w->files.fail)
        err_set(&e, w->files.fail, "cannot do that: %m");
    memcpy(ops, w->files.waiting, sizeof ops);
    w->files.n_waiting = 0;
    for (unsigned i = 0; i < n && w->master; i++)
        if (e.num || !ops[i].kind)
            ops[i].done(NULL, &e, ops[i].arg);
        else
            queued_over(w, &ops[i]);
}

static int files_nothing(void *arg)
{
    const struct world *w = arg;
    if (w->files.slow)
        (void)poll(NULL, 0, SLOW_MS);
    return 0;
}

static int files_do_kind(struct world *w, enum world_op_kind kind, files_done_fn *done, void *arg)
{
    if (w->files.hang)
        return 0;
    assert(w->files.n_waiting < ARRAY_LEN(w->files.waiting));
    w->files.waiting[w->files.n_waiting++] = (struct world_op){ done, arg, kind };
    return w->files.n_waiting > 1 ? 0 : loop_work(w->loop, files_nothing, files_over, w);
}

static int files_do(struct world *w, files_done_fn *done, void *arg)
{
    return files_do_kind(w, WORLD_PLAIN, done, arg);
}

static int files_mkdirs(void *fs, const char *path, mode_t mode, files_done_fn *done, void *arg,
                        struct err *e)
{
    struct world *w = fs;
    (void)e;
    (void)strv_pushf(&w->files.log, "mkdirs %s %o", path, (unsigned)mode);
    return files_do(w, done, arg);
}

static int files_put(void *fs, const char *path, mode_t mode, struct span text, files_done_fn *done,
                     void *arg, struct err *e)
{
    struct world *w = fs;
    (void)e;
    (void)strv_pushf(&w->files.log, "put %s %o", path, (unsigned)mode);
    if (str_ends(path, "/job.conf")) {
        buf_clear(&w->files.conf);
        (void)buf_add(&w->files.conf, text.p, text.len);
    }
    w->files.slow |= w->files.slow_event && strstr(path, "/journal/") &&
                     memmem(text.p, text.len, w->files.slow_event, strlen(w->files.slow_event));
    if (str_ends(path, "/status.json")) {
        buf_clear(&w->client_json);
        (void)buf_add(&w->client_json, text.p, text.len);
    }
    if (w->files.holds && strstr(path, "/journal/")) {
        w->files.held = (struct world_op){ done, arg, WORLD_PLAIN }; /* at most one put waits */
        world_client_may_resize(w);
        return 0;
    }
    return files_do(w, done, arg);
}

void world_files_release(struct world *w)
{
    struct world_op op = w->files.held;
    struct err e = { 0 };
    w->files.holds = false;
    w->files.held = (struct world_op){ 0 };
    if (op.done)
        op.done(NULL, &e, op.arg);
}

static int files_remove(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e)
{
    struct world *w = fs;
    (void)e;
    (void)strv_pushf(&w->files.log, "remove %s", path);
    return files_do(w, done, arg);
}

static int files_rmdir(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e)
{
    struct world *w = fs;
    (void)e;
    (void)strv_pushf(&w->files.log, "rmdir %s", path);
    if (w->files.holds_request) {
        w->files.held = (struct world_op){ done, arg, WORLD_RMDIR };
        return 0;
    }
    return files_do_kind(w, WORLD_RMDIR, done, arg);
}

void world_files_release_request(struct world *w)
{
    struct world_op op = w->files.held;
    w->files.holds_request = false;
    w->files.held = (struct world_op){ 0 };
    if (op.done)
        queued_over(w, &op);
}

static int files_rename(void *fs, const char *from, const char *to, files_done_fn *done, void *arg,
                        struct err *e)
{
    struct world *w = fs;
    (void)e;
    (void)strv_pushf(&w->files.log, "rename %s %s", from, to);
    return files_do_kind(w, WORLD_RENAME, done, arg);
}

/* Copies of the journal: an empty directory. */
static int files_list(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e)
{
    struct world *w = fs;
    (void)e;
    (void)strv_pushf(&w->files.log, "list %s", path);
    return files_do_kind(w, str_ends(path, "/taken") ? WORLD_LIST : WORLD_PLAIN, done, arg);
}

static int files_get(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e)
{
    struct world *w = fs;
    (void)e;
    (void)strv_pushf(&w->files.log, "get %s", path);
    return files_do_kind(w, WORLD_GET, done, arg);
}

static const struct files_ops files = {
    .mkdirs = files_mkdirs,
    .put = files_put,
    .remove = files_remove,
    .rmdir = files_rmdir,
    .rename = files_rename,
    .list = files_list,
    .get = files_get,
};

void world_go_remote(struct world *w)
{
    struct err e = { 0 };
    if (job_key_new(&w->key, &e) < 0)
        world_die("key", &e);
    w->remote = (struct master_remote){
        .key = &w->key,
        .address = "127.0.0.1",
        .container_id = "container_1_0001_01_000001",
        .node = "n0:45454",
        .log_url = "http://n0:8042/logs/master",
        .files = &files,
        .fs = w,
        .history_dir = "/h",
        .staging_dir = "/s",
    };
}
