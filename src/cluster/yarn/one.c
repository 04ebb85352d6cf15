/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single requests to a cluster, each of which waits for its result: reports, files, pages. Also a
 * pause.
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/yarn/yarn.h"
#include "hadoop/yarn.h"
#include "loop/http.h"
#include "loop/loop.h"
#include "storage/jobkey.h"

enum {
    KEY_FILE_MAX = 4096,
    PAGE_STALL_MS = 20000, /* the first page of a NodeManager takes 5 s */
    REDIRECTS_MAX = 3,     /* a NodeManager redirects to a log server, which may redirect again */
};

struct one { /* one request and its result */
    struct yarn *y;
    struct yarn_join join;
    struct buf *out;
    struct yarn_report *report;
};

/* ---- reports ---- */

void yarn_report_done(struct yarn_report *r)
{
    free(r->user);
    free(r->queue);
    free(r->name);
    free(r->host);
    free(r->url);
    free(r->diagnostics);
    free(r->type);
    *r = (struct yarn_report){ 0 };
}

static char *copy_text(const char *s)
{
    return str_dup(s && !str_eq(s, "N/A") ? s : "");
}

int yarn_report_copy(const Hadoop__ApplicationReport *from, struct yarn_report *out)
{
    struct yarn_app app = { 0 };
    char id[YARN_ID_TEXT_MAX];
    *out = (struct yarn_report){
        .state = from->yarn_application_state,
        .final = from->final_application_status,
        .user = copy_text(from->user),
        .queue = copy_text(from->queue),
        .name = copy_text(from->name),
        .host = copy_text(from->host),
        .url = copy_text(from->tracking_url),
        .diagnostics = copy_text(from->diagnostics),
        .type = copy_text(from->application_type),
        .rpc_port = from->rpc_port,
        .submitted_ms = from->has_submit_time ? from->submit_time : from->start_time,
        .started_ms = from->has_launch_time ? from->launch_time : 0,
        .finished_ms = from->finish_time,
    };
    if (yarn_app_get(from->application_id, &app))
        (void)str_copy(out->id, sizeof out->id, yarn_app_text(&app, id));
    struct yarn_attempt attempt;
    if (yarn_attempt_get(from->current_application_attempt_id, &attempt))
        out->attempt = attempt.attempt;
    const Hadoop__ApplicationResourceUsageReport *use = from->app_resource_usage;
    if (use) {
        out->used_memory_mib = yarn_resource_value(use->used_resources, "memory-mb");
        out->used_vcores = yarn_resource_value(use->used_resources, "vcores");
        out->containers = use->num_used_containers;
    }
    if (out->user && out->queue && out->name && out->host && out->url && out->diagnostics &&
        out->type)
        return 0;
    yarn_report_done(out);
    return -ENOMEM;
}

static void report_done(const Hadoop__GetApplicationReportResponse *r, const struct rpc_error *e,
                        void *arg)
{
    struct one *o = arg;
    struct err err = { 0 };
    if (e) {
        err = e->err;
        if (e->kind == RPC_FAULT_NOT_FOUND)
            err.num = ENOENT;
    } else if (!r->application_report || yarn_report_copy(r->application_report, o->report) < 0) {
        (void)err_set(&err, EPROTO,
                      "the ResourceManager's answer contains no report of the application");
    }
    yarn_join_end(&o->join, &err);
}

static bool app_message(const char *id, struct yarn_id_msg *m, Hadoop__ApplicationId **out,
                        struct err *e)
{
    struct yarn_app app;
    if (yarn_app_parse(span_of(id), &app, e) < 0)
        return false;
    *out = yarn_app_msg(m, &app);
    return true;
}

int yarn_report(struct yarn *y, const char *id, struct yarn_report *out, struct err *e)
{
    struct one o = { .y = y, .join = { .loop = y->loop, .n = 1 }, .report = out };
    struct yarn_id_msg m;
    Hadoop__GetApplicationReportRequest rq = HADOOP__GET_APPLICATION_REPORT_REQUEST__INIT;
    if (!app_message(id, &m, &rq.application_id, e))
        return -EINVAL;
    if (!yarn_get_application_report(y->rpc, &rq, yarn_deadline(y), report_done, &o))
        return err_set(e, ENOMEM, "cannot ask the ResourceManager: %m");
    yarn_join_wait(&o.join);
    if (!o.join.e.num)
        return 0;
    *e = o.join.e;
    if (e->num == ENOENT) {
        (void)err_set(e, ENOENT, "the cluster knows no application '%s'", id);
        err_hint(e, "tony list shows yours; the ResourceManager at %s forgets old ones",
                 rpc_client_address(y->rpc));
    }
    return -e->num;
}

/* ---- files and pages ---- */

static void read_done(const struct files_result *r, const struct err *e, void *arg)
{
    struct one *o = arg;
    struct err err = *e;
    if (r && buf_add(o->out, r->data.p, r->data.len) < 0)
        (void)err_set(&err, ENOMEM, "cannot keep what was read: %m");
    yarn_join_end(&o->join, &err);
}

int yarn_read(struct yarn *y, const char *path, size_t max, struct buf *out, struct err *e)
{
    struct one o = { .y = y, .join = { .loop = y->loop, .n = 1 }, .out = out };
    const struct webhdfs_get get = { .path = path, .max = max };
    int rc = webhdfs_get(y->fs, &get, read_done, &o, NULL, e);
    if (rc < 0)
        return rc;
    yarn_join_wait(&o.join);
    if (o.join.e.num && e)
        *e = o.join.e;
    return -o.join.e.num;
}

struct owner {
    struct yarn_join join;
    char *name;
};

static void on_owner(const struct files_result *r, const struct err *e, void *arg)
{
    struct owner *o = arg;
    struct err err = *e;
    if (r && !(o->name = str_dup(r->stats[0].owner ? r->stats[0].owner : "")))
        (void)err_set(&err, ENOMEM, "cannot keep what was read: %m");
    yarn_join_end(&o->join, &err);
}

int yarn_owner(struct yarn *y, const char *path, char **out, struct err *e)
{
    struct owner o = { .join = { .loop = y->loop, .n = 1 } };
    int rc = webhdfs_stat(y->fs, path, on_owner, &o, NULL, e);
    if (rc < 0)
        return rc;
    yarn_join_wait(&o.join);
    if (o.join.e.num && e)
        *e = o.join.e;
    *out = o.name;
    return -o.join.e.num;
}

static void changed(const struct files_result *r, const struct err *e, void *arg)
{
    struct one *o = arg;
    (void)r;
    yarn_join_end(&o->join, e);
}

/* Wait for an operation. rc: the result of the function that began it. */
static int await_change(struct one *o, int rc, struct err *e)
{
    if (rc < 0)
        return rc;
    yarn_join_wait(&o->join);
    if (o->join.e.num && e)
        *e = o->join.e;
    return -o->join.e.num;
}

int yarn_remove(struct yarn *y, const char *path, struct err *e)
{
    struct one o = { .y = y, .join = { .loop = y->loop, .n = 1 } };
    return await_change(&o, webhdfs_delete(y->fs, path, true, changed, &o, NULL, e), e);
}

int yarn_write(struct yarn *y, const char *path, struct span text, struct err *e)
{
    struct one o = { .y = y, .join = { .loop = y->loop, .n = 1 } };
    const struct webhdfs_put put = { .path = path, .mode = 0600, .data = text };
    return await_change(&o, webhdfs_put(y->fs, &put, changed, &o, NULL, e), e);
}

int yarn_rename(struct yarn *y, const char *from, const char *to, struct err *e)
{
    struct one o = { .y = y, .join = { .loop = y->loop, .n = 1 } };
    return await_change(&o, webhdfs_rename(y->fs, from, to, changed, &o, NULL, e), e);
}

bool yarn_exists(struct yarn *y, const char *path)
{
    struct one o = { .y = y, .join = { .loop = y->loop, .n = 1 } };
    return await_change(&o, webhdfs_stat(y->fs, path, changed, &o, NULL, NULL), NULL) == 0;
}

/* ---- pages ---- */

struct page {
    struct yarn_join join;
    int (*fn)(const char *p, size_t n, void *arg);
    void *arg;
    int status;
    char *location; /* the target of a redirect */
};

static void on_page_body(struct http_call *c, const char *p, size_t n, void *arg)
{
    struct page *g = arg;
    struct err e = { 0 };
    int rc = g->fn(p, n, g->arg);
    if (rc == 0)
        return;
    (void)err_set(&e, -rc, "%m");
    http_cancel(c);
    yarn_join_end(&g->join, &e);
}

static void on_page_done(struct http_call *c, const struct http_response *r, const struct err *e,
                         void *arg)
{
    struct page *g = arg;
    struct err err = *e;
    (void)c;
    if (r) {
        struct span to = r->status / 100 == 3 ? http_header(r, "Location") : (struct span){ 0 };
        g->status = r->status;
        g->location = to.p ? span_dup(to) : NULL;
        if (to.p && !g->location)
            (void)err_set(&err, ENOMEM, "cannot keep what was read: %m");
    }
    yarn_join_end(&g->join, &err);
}

/* *out_location: the URL of a redirect, or NULL. */
static int get_once(struct yarn *y, const char *url, struct page *g, char **out_location,
                    struct err *e)
{
    const char *const headers[] = { "Accept: application/json, text/plain, */*", NULL };
    const struct http_request q = { .method = "GET",
                                    .url = url,
                                    .headers = headers,
                                    .stall_ms = PAGE_STALL_MS,
                                    .on_body = on_page_body,
                                    .done = on_page_done,
                                    .arg = g };
    g->join = (struct yarn_join){ .loop = y->loop, .n = 1 };
    int rc = http_send(y->http, &q, NULL, e);
    if (rc < 0)
        return rc;
    yarn_join_wait(&g->join);
    if (g->join.e.num)
        *e = g->join.e;
    *out_location = TAKE(g->location);
    return -g->join.e.num;
}

int yarn_get(struct yarn *y, const char *url, int (*fn)(const char *p, size_t n, void *arg),
             void *arg, int *out_status, struct err *e)
{
    AUTO(free_p) char *at = str_dup(url);
    struct page g = { .fn = fn, .arg = arg };
    int rc = at && yarn_http(y, e) ? 0 : err_set(e, ENOMEM, "cannot read '%s': %m", url);
    for (int hops = 0; rc == 0 && at && hops <= REDIRECTS_MAX; hops++) {
        AUTO(free_p) char *from = TAKE(at);
        rc = get_once(y, from, &g, &at, e);
    }
    *out_status = g.status;
    return rc;
}

int yarn_client_key(struct yarn *y, const char *id, struct tls_key *out, struct err *e)
{
    if (y->key.len && str_eq(y->key_id, id)) {
        *out = y->key;
        return 0;
    }
    if (y->watching)
        return err_set(e, ENOENT, "this client has no key for the master of job '%s'", id);
    if (yarn_home(y, e) < 0)
        return -e->num;
    AUTO(free_p) char *path = str_printf("%s/%s/" JOB_KEY_CLIENT_FILE, y->dir, id);
    AUTO(buf_done) struct buf text = { .max = KEY_FILE_MAX };
    if (!path)
        return err_set(e, ENOMEM, "cannot read the key of job '%s': %m", id);
    int rc = yarn_read(y, path, KEY_FILE_MAX, &text, e);
    if (rc == 0)
        rc = job_key_parse(span_trim(buf_span(&text)), out, e);
    if (text.p)
        job_key_wipe(text.p, text.len);
    if (rc == 0 && str_copy(y->key_id, sizeof y->key_id, id))
        y->key = *out;
    return rc < 0 ? err_wrap(e, rc, "cannot read the key for the master of job '%s'", id) : 0;
}
