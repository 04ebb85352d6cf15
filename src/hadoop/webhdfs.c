/* SPDX-License-Identifier: Apache-2.0 */
#include "hadoop/webhdfs.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "hadoop/webhdfs_int.h"
#include "loop/http.h"
#include "loop/loop.h"
#include "loop/tcp.h"

enum {
    PAUSE_FIRST_MS = 200, /* before all NameNodes are asked again; it doubles */
    PAUSE_MAX_MS = 5000,
    DATANODE_TRIES = 4, /* then the put or get fails */
    LIST_MAX = 1000000, /* entries of a directory */
    /* Shorter than for DataNodes: a NameNode only looks something up, so try another one soon. */
    NAMENODE_STALL_MS = 20000,
};

static void op_ask(struct webhdfs_op *op);
static void op_data(struct webhdfs_op *op);

/* ---- the end of an operation ---- */

static void op_unlink(struct webhdfs_op *op)
{
    struct webhdfs_op **at = &op->w->ops;
    while (*at && *at != op)
        at = &(*at)->next;
    if (*at)
        *at = op->next;
    if (op->running)
        op->w->n_running--;
}

void webhdfs_op_free(struct webhdfs_op *op)
{
    loop_timer_free(op->timer);
    webhdfs_stats_done(&op->stats);
    buf_done(&op->params);
    buf_done(&op->exclude);
    free(op->location);
    free(op->path);
    free(op->to);
    free(op);
}

/* Start waiting operations. The timer starts them, so that no callback comes from inside a call. */
static void start_waiting(struct webhdfs *w)
{
    for (struct webhdfs_op *op = w->ops; op && w->n_running < WEBHDFS_AT_ONCE; op = op->next) {
        if (op->running)
            continue;
        op->running = true;
        w->n_running++;
        op->deadline_ms = clock_mono_ms() + MAX(w->try_ms, (int64_t)0);
        op->safe_deadline_ms = clock_mono_ms() + w->safe_mode_ms;
        loop_timer_set(op->timer, clock_mono_ms());
    }
}

static void op_finish(struct webhdfs_op *op, struct files_result *r, const struct err *e)
{
    struct err none = { 0 };
    op_unlink(op);
    start_waiting(op->w);
    op->done(r, e ? e : &none, op->arg);
    webhdfs_op_free(op);
}

static void op_good(struct webhdfs_op *op)
{
    struct files_result r = { .stats = op->stats.v.v,
                              .n_stats = op->stats.v.n,
                              .n_bytes = op->n_bytes };
    op_finish(op, &r, NULL);
}

static void op_bad(struct webhdfs_op *op, const struct err *why)
{
    struct err e = *why;
    if (op->kind == OP_HOME)
        (void)err_wrap(&e, 0, "cannot %s of '%s' in HDFS", webhdfs_op_verb(op->kind), op->w->user);
    else
        (void)err_wrap(&e, 0, "cannot %s '%s' in HDFS", webhdfs_op_verb(op->kind), op->path);
    op_finish(op, NULL, &e);
}

void webhdfs_cancel(struct webhdfs_op *op)
{
    if (!op)
        return;
    http_cancel(op->call);
    op_unlink(op);
    start_waiting(op->w);
    webhdfs_op_free(op);
}

/* ---- retries ---- */

static void op_again_in(struct webhdfs_op *op, int64_t ms)
{
    loop_timer_set(op->timer, clock_mono_ms() + ms);
}

/* Try the next NameNode. After the last one, pause and start with the first one again, until the
 * deadline. */
static void op_next(struct webhdfs_op *op, const struct err *e)
{
    struct webhdfs *w = op->w;
    int64_t now = clock_mono_ms();
    w->current = (w->current + 1) % w->namenodes.n;
    if (++op->n_tried < w->namenodes.n) {
        op_again_in(op, 0);
        return;
    }
    if (now >= op->deadline_ms) {
        op_bad(op, e);
        return;
    }
    op->n_tried = 0;
    op->pause_ms = op->pause_ms ? MIN(op->pause_ms * 2, (int64_t)PAUSE_MAX_MS) : PAUSE_FIRST_MS;
    log_event(LOG_DEBUG, "webhdfs.again", f_str("path", op->path), f_str("why", e->msg),
              f_int("in_ms", op->pause_ms));
    op_again_in(op, MIN(op->pause_ms, MAX(op->deadline_ms - now, (int64_t)1)));
}

static void op_refused(struct webhdfs_op *op, const struct http_response *r)
{
    struct err e = { 0 };
    switch (webhdfs_refusal(r->status, r->body, op->path, op->w->user, &e)) {
    case WC_NEXT:
        op_next(op, &e);
        return;
    case WC_SAFE_MODE:
        if (clock_mono_ms() < op->safe_deadline_ms) {
            op_again_in(op, 1000);
            return;
        }
        break;
    case WC_FINAL:
    default:
        break;
    }
    if (e.num == ENOENT && op->kind == OP_RENAME && op->repeated) {
        op_good(op); /* an earlier request whose answer was lost has renamed it */
        return;
    }
    if (e.num == EEXIST && op->kind == OP_RENAME)
        (void)err_set(&e, EEXIST, "'%s' exists already", op->to);
    op_bad(op, &e);
}

/* Ask the NameNode for another DataNode, and name those that have failed. */
static void data_failed(struct webhdfs_op *op, const struct err *e)
{
    if (++op->n_data_tries >= DATANODE_TRIES) {
        op_bad(op, e);
        return;
    }
    const char *at = op->location + strlen("http://");
    size_t n = strcspn(at, "/?");
    if (op->kind == OP_PUT)
        (void)buf_addf(&op->exclude, "%s%.*s", op->exclude.len > 0 ? "," : "", (int)n, at);
    op->step = STEP_NAMENODE;
    op->n_bytes = 0;
    op_again_in(op, PAUSE_FIRST_MS);
}

/* ---- answers ---- */

static int take_list(struct webhdfs_op *op, struct span body, bool *out_more, struct err *e)
{
    int64_t left = 0;
    int rc = webhdfs_read_list(body, &op->stats, &left, e);
    if (rc == 0 && op->stats.v.n > LIST_MAX)
        rc = err_set(e, EFBIG, "it has more than %d entries", LIST_MAX);
    *out_more = left > 0;
    return rc;
}

static void take_rename(struct webhdfs_op *op, struct span body)
{
    struct err e = { 0 };
    bool yes = true;
    /* The NameNode sends no body, because the request has options. A gateway that does not know
     * these options sends true or false. */
    if (body.len > 0 && webhdfs_read_bool(body, &yes, &e) < 0)
        op_bad(op, &e);
    else if (!yes && op->repeated)
        op_good(op);
    else if (!yes) {
        (void)err_set(&e, EEXIST, "'%s' exists already, or its directory is missing", op->to);
        op_bad(op, &e);
    } else {
        op_good(op);
    }
}

static void take_bool(struct webhdfs_op *op, struct span body)
{
    struct err e = { 0 };
    struct files_result r = { 0 };
    int rc = webhdfs_read_bool(body, &r.changed, &e);
    if (rc == 0 && op->kind == OP_MKDIRS && !r.changed) {
        (void)err_set(&e, EIO, "the NameNode answered 'false' without a reason");
        rc = err_hint(&e, "look at the owner and mode of the directory above it (hdfs dfs -ls -d), "
                          "and into the NameNode's log");
    }
    if (op->repeated)
        r.changed = true;
    if (rc < 0)
        op_bad(op, &e);
    else
        op_finish(op, &r, NULL);
}

static void take_home(struct webhdfs_op *op, struct span body)
{
    struct err e = { 0 };
    AUTO(free_p) char *path = NULL;
    if (webhdfs_read_path(body, &path, &e) < 0)
        op_bad(op, &e);
    else
        op_finish(op, &(struct files_result){ .text = path }, NULL);
}

static void data_done(struct webhdfs_op *op, const struct http_response *r)
{
    struct files_result result = { .data = r->body, .n_bytes = op->n_bytes };
    if (op->failed.num) {
        op_bad(op, &op->failed);
    } else if (op->kind == OP_GET) {
        result.n_bytes = r->n_body;
        op_finish(op, &result, NULL);
    } else {
        op->n_bytes = op->put.from_fd ? (uint64_t)op->put.n : op->put.data.len;
        op_good(op);
    }
}

static void answered(struct webhdfs_op *op, const struct http_response *r)
{
    struct err e = { 0 };
    bool more = false;
    if (op->step == STEP_DATA) {
        data_done(op, r);
        return;
    }
    switch (op->kind) {
    case OP_HOME:
        take_home(op, r->body);
        return;
    case OP_MKDIRS:
    case OP_DELETE:
        take_bool(op, r->body);
        return;
    case OP_RENAME:
        take_rename(op, r->body);
        return;
    case OP_STAT:
        if (webhdfs_read_stat(r->body, &op->stats, &e) < 0)
            op_bad(op, &e);
        else
            op_good(op);
        return;
    case OP_LIST:
        if (take_list(op, r->body, &more, &e) < 0)
            op_bad(op, &e);
        else if (more)
            op_ask(op);
        else
            op_good(op);
        return;
    case OP_GET: /* a gateway sends the data itself */
        data_done(op, r);
        return;
    case OP_PUT:
        (void)err_set(&e, EPROTO,
                      "the NameNode's answer does not say which DataNode to use (no redirect)");
        op_bad(op, &e);
        return;
    case OP_SETTIMES:
    default:
        op_good(op);
    }
}

/* ---- the end of a request ---- */

/* No request of this operation can succeed: the answer is too long, there is no memory, or the URL
 * has a scheme that tony does not have. */
static bool is_hopeless(int num)
{
    return num == EFBIG || num == ENOMEM || num == EPROTONOSUPPORT;
}

/* The connection to a NameNode failed, or broke before its answer. */
static void namenode_lost(struct webhdfs_op *op, const struct err *e)
{
    op->repeated = op->repeated || e->num != ECONNREFUSED;
    if (is_hopeless(e->num))
        op_bad(op, e);
    else
        op_next(op, e);
}

/* The connection to a DataNode failed or broke, or on_got() could not write the data. */
static void datanode_lost(struct webhdfs_op *op, const struct err *e)
{
    /* the part was given to the caller already */
    bool has_part = op->kind == OP_GET && op->n_bytes > 0;
    if (op->failed.num)
        op_bad(op, &op->failed);
    else if (is_hopeless(e->num) || e->num == ESTALE || has_part)
        op_bad(op, e);
    else
        data_failed(op, e);
}

static bool is_redirect(const struct webhdfs_op *op, const struct http_response *r)
{
    return r->status == 307 && op->step == STEP_NAMENODE &&
           (op->kind == OP_PUT || op->kind == OP_GET);
}

/* The NameNode sends a put or a get on to a DataNode. */
static void follow_redirect(struct webhdfs_op *op, const struct http_response *r)
{
    struct span to = http_header(r, "Location");
    struct err e = { 0 };
    free(op->location);
    op->location = to.p ? span_dup(to) : NULL;
    if (op->location && str_starts(op->location, "http://")) {
        op_data(op);
        return;
    }
    if (op->location)
        (void)err_set(&e, EPROTONOSUPPORT,
                      "the DataNode is at '%.200s', and https is not supported yet", op->location);
    else if (to.p)
        (void)err_set(&e, ENOMEM, "%m");
    else
        (void)err_set(&e, EPROTO,
                      "the NameNode's answer does not say which DataNode to use (no redirect)");
    op_bad(op, &e);
}

/* The DataNode has failed, or the request is wrong. */
static void datanode_refused(struct webhdfs_op *op, const struct http_response *r)
{
    struct err e = { 0 };
    (void)webhdfs_refusal(r->status, r->body, op->path, op->w->user, &e);
    if (e.num == EIO || e.num == EOPNOTSUPP || e.num == EAGAIN)
        data_failed(op, &e);
    else
        op_bad(op, &e);
}

/* How a request ended that was sent in this step. */
static const struct {
    void (*lost)(struct webhdfs_op *op, const struct err *e);
    void (*refused)(struct webhdfs_op *op, const struct http_response *r);
} ends[] = {
    [STEP_NAMENODE] = { namenode_lost, op_refused },
    [STEP_DATA] = { datanode_lost, datanode_refused },
};

static void on_done(struct http_call *c, const struct http_response *r, const struct err *e,
                    void *arg)
{
    struct webhdfs_op *op = arg;
    (void)c;
    op->call = NULL;
    if (e->num)
        ends[op->step].lost(op, e);
    else if (is_redirect(op, r))
        follow_redirect(op, r);
    else if (r->status / 100 == 2)
        answered(op, r);
    else
        ends[op->step].refused(op, r);
}

static void send_failed(struct webhdfs_op *op, int rc, const struct err *e)
{
    struct err why = *e;
    if (!why.num)
        (void)err_set(&why, -rc, "%m");
    op_bad(op, &why);
}

static void on_got(struct http_call *c, const char *p, size_t n, void *arg)
{
    struct webhdfs_op *op = arg;
    (void)c;
    if (op->failed.num)
        return;
    int rc = fs_write_all(op->get.fd, p, n);
    op->n_bytes += n;
    if (rc < 0)
        (void)err_set(&op->failed, -rc, "cannot write it to the file: %m");
}

/* Called only from a timer or an answer, so an error may be reported at once. */
static void op_ask(struct webhdfs_op *op)
{
    AUTO(buf_done) struct buf url = { .max = HTTP_URL_MAX };
    struct err e = { 0 };
    const char *method;
    int rc = webhdfs_op_url(op, &url, &method);
    if (rc == 0) {
        struct http_request q = { .method = method,
                                  .url = buf_cstr(&url),
                                  .body_max =
                                      64 << 20, /* a part of a listing; or a file from a gateway */
                                  .stall_ms = MIN(op->w->stall_ms, (int64_t)NAMENODE_STALL_MS),
                                  .done = on_done,
                                  .arg = op };
        if (op->kind == OP_GET && op->get.to_fd)
            q.on_body = on_got;
        rc = http_send(op->w->http, &q, &op->call, &e);
    }
    if (rc < 0)
        send_failed(op, rc, &e);
}

static void on_sent(struct http_call *c, uint64_t n, void *arg)
{
    struct webhdfs_op *op = arg;
    (void)c;
    if (op->put.progress)
        op->put.progress(n, op->put.from_fd ? (uint64_t)op->put.n : op->put.data.len, op->arg);
}

static void op_data(struct webhdfs_op *op)
{
    static const char *const headers[] = { "Content-Type: application/octet-stream", NULL };
    bool put = op->kind == OP_PUT;
    struct err e = { 0 };
    op->step = STEP_DATA;
    op->created = put;
    struct http_request q = { .method = put ? "PUT" : "GET",
                              .url = op->location,
                              .stall_ms = op->w->stall_ms,
                              .fresh = true, /* DataNodes close the connection after each file */
                              .body_max = op->get.max,
                              .done = on_done,
                              .arg = op };
    if (put) {
        q.headers = headers;
        q.body = op->put.data;
        q.body_from_fd = op->put.from_fd;
        q.body_fd = op->put.fd;
        q.body_n = op->put.n;
        q.on_sent = on_sent;
    } else if (op->get.to_fd) {
        q.on_body = on_got;
    }
    int rc = http_send(op->w->http, &q, &op->call, &e);
    if (rc < 0)
        send_failed(op, rc, &e);
}

void webhdfs_op_due(void *arg)
{
    op_ask(arg);
}

void webhdfs_op_begin(struct webhdfs_op *op)
{
    struct webhdfs_op **at = &op->w->ops;
    while (*at)
        at = &(*at)->next;
    *at = op;
    start_waiting(op->w);
}

/* ---- the file system ---- */

void webhdfs_free(struct webhdfs *w)
{
    if (!w)
        return;
    http_free(w->http); /* cancels all requests without callbacks */
    while (w->ops) {
        struct webhdfs_op *op = w->ops;
        op_unlink(op);
        webhdfs_op_free(op);
    }
    strv_done(&w->namenodes);
    free(w->user);
    free(w);
}

int webhdfs_new(struct loop *l, const struct webhdfs_config *cfg, struct webhdfs **out,
                struct err *e)
{
    if (cfg->n_namenodes == 0 || !cfg->user || !*cfg->user)
        return err_set(e, EINVAL, "cannot use HDFS: no NameNode or no user name is given");
    struct webhdfs *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, ENOMEM, "cannot use HDFS: %m");
    w->loop = l;
    w->stall_ms = cfg->stall_ms ? cfg->stall_ms : WEBHDFS_STALL_MS;
    w->try_ms = cfg->try_ms ? cfg->try_ms : WEBHDFS_TRY_MS;
    w->safe_mode_ms = cfg->safe_mode_ms;
    w->user = str_dup(cfg->user);
    w->http = http_new(l, e);
    int rc = w->user && w->http ? 0 : err_set(e, ENOMEM, "cannot use HDFS: %m");
    for (size_t i = 0; i < cfg->n_namenodes && rc == 0; i++) {
        char host[TCP_HOST_MAX + 1];
        uint16_t port;
        rc = tcp_split(cfg->namenodes[i], 0, host, &port, e);
        if (rc < 0)
            (void)err_wrap(e, rc, "NameNode's HTTP address");
        else if (strv_push(&w->namenodes, cfg->namenodes[i]) < 0)
            rc = err_set(e, ENOMEM, "cannot use HDFS: %m");
    }
    if (rc < 0) {
        webhdfs_free(w);
        return rc;
    }
    *out = w;
    return 0;
}
