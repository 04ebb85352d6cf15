/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stream/stream.h"

#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

enum {
    OPEN_MS = 30000,    /* for the master and the executor to open the stream */
    DIAL_TRIES = 20,    /* while a master is being replaced, none listens */
    DIAL_PAUSE_MS = 50, /* pause between two tries to connect */
    /* Right after the submission of a job its tasks are still starting. So ask the master again for
     * this time.
     */
    PATIENCE_MS = 10000,
    PATIENCE_PAUSE_MS = 100, /* pause between two requests */
};

struct stream {
    struct stream_job *job;
    struct conn *conn; /* NULL = ended */
    const struct stream_ops *ops;
    void *arg;
    char *task, *what;
    struct buf request; /* a frame */
    struct stream_reader reader;
    struct loop_timer *timer; /* first the time limit for opening, later a deferred end */
    bool opened, started;
    int64_t asked_ms; /* when the master was asked first */
    bool ask_later;   /* ask the master again, on a new connection, when the timer fires */
    bool *closed;     /* set by stream_close() while a callback runs */
    struct err why;
};

/* ---- the job ---- */

static int refuse_over(const struct stream_job *j, struct err *e)
{
    (void)err_set(e, ESTALE, "job '%s' is over", j->id);
    err_hint(e, "tony logs %s shows what its tasks wrote", j->id);
    return -EXIT_MISUSE;
}

/* Ask the cluster where the master is. */
static int find_master(struct stream_job *j, struct err *e)
{
    struct cluster_report now = { .id = "" };
    int rc = cluster_ops_of(j->cluster)->report(j->cluster, j->id, &now, e);
    if (rc < 0)
        return rc == -ENOENT ? refuse_over(j, e) : -EXIT_CLUSTER;
    cluster_report_done(&j->report);
    j->report = now;
    return now.phase == CLUSTER_OVER ? refuse_over(j, e) : 0;
}

int stream_job_open(struct client *c, const char *word, struct stream_job *out, struct err *e)
{
    *out = (struct stream_job){ .c = c, .loop = host_loop(&c->host, e) };
    if (!out->loop)
        return -EXIT_CLUSTER;
    int rc = client_find(c, word, &out->cluster, out->id, e);
    if (rc == 0)
        rc = find_master(out, e);
    if (rc < 0)
        stream_job_done(out);
    return rc;
}

int stream_job_of(struct client *c, struct cluster *k, const char *id, struct stream_job *out,
                  struct err *e)
{
    *out = (struct stream_job){ .c = c, .loop = host_loop(&c->host, e), .cluster = k };
    (void)str_copy(out->id, sizeof out->id, id);
    int rc = out->loop ? find_master(out, e) : -EXIT_CLUSTER;
    if (rc < 0)
        stream_job_done(out);
    return rc;
}

void stream_job_done(struct stream_job *j)
{
    cluster_report_done(&j->report);
    j->report = (struct cluster_report){ .id = "" };
}

/* ---- the end ---- */

/* Tell the owner. It may close the stream in on_end(). */
static void end(struct stream *s, const struct err *e)
{
    const struct stream_ops *ops = TAKE(s->ops);
    loop_timer_stop(s->timer);
    conn_close(TAKE(s->conn));
    if (ops)
        ops->on_end(s, e, s->arg);
}

static int ask_again(struct stream *s);

static void on_time(void *arg)
{
    struct stream *s = arg;
    struct err e = { 0 };
    if (s->ask_later && ask_again(s) == 0)
        return;
    if (s->why.num)
        e = s->why;
    else
        (void)err_set(&e, ETIMEDOUT, "task '%s' cannot be reached: no answer within %d s", s->task,
                      OPEN_MS / 1000);
    if (!e.hint[0])
        err_hint(&e, "tony tasks %s shows whether the task runs and its node answers", s->job->id);
    end(s, &e);
}

/* End the stream outside of the present call. */
static void end_soon(struct stream *s, const struct err *e)
{
    if (s->why.num)
        return;
    s->why = *e;
    if (s->conn)
        conn_pause(s->conn, true);
    loop_timer_set(s->timer, clock_mono_ms());
}

/* ---- bytes ---- */

static int on_reader(enum stream_type type, struct span payload, void *arg)
{
    struct stream *s = arg;
    if (s->why.num)
        return -ECANCELED;
    if (type == SF_FAILED)
        return stream_failed(payload, &s->why);
    if (type == SF_STARTED && !s->started) {
        s->started = true;
        loop_timer_stop(s->timer);
        s->ops->on_started(s, s->arg);
        return 0;
    }
    return s->started && s->ops ? s->ops->on_frame(type, payload, s->arg) : -EPROTO;
}

static void on_bytes(struct conn *conn, const char *p, size_t n, void *arg)
{
    struct stream *s = arg;
    struct err e = { 0 };
    bool closed = false;
    (void)conn;
    s->closed = &closed;
    int rc = stream_feed(&s->reader, p, n, &e);
    if (closed) {
        stream_reader_done(&s->reader);
        free(s);
        return;
    }
    s->closed = NULL;
    if (rc < 0) {
        if (s->why.num)
            e = s->why;
        end(s, &e);
    }
}

static void on_drain(struct conn *conn, void *arg)
{
    struct stream *s = arg;
    (void)conn;
    if (s->started && s->ops && s->ops->on_drain)
        s->ops->on_drain(s, s->arg);
}

static void on_raw_close(struct conn *conn, const struct err *e, void *arg)
{
    struct stream *s = arg;
    struct err why = { 0 };
    (void)conn;
    s->conn = NULL;
    (void)err_set(&why, ECONNRESET, "the connection to the task was lost%s%s",
                  e->num && e->num != ESHUTDOWN ? ": " : "",
                  e->num && e->num != ESHUTDOWN ? e->msg : "");
    err_hint(&why, "the task, its executor or the job's master has ended");
    end(s, &why);
}

static const struct conn_raw_ops raw_ops = { .on_bytes = on_bytes,
                                             .on_drain = on_drain,
                                             .on_close = on_raw_close };

/* ---- opening ---- */

static void on_opened(struct stream *s)
{
    s->opened = true;
    conn_set_raw(s->conn, &raw_ops, s);
    if (conn_write(s->conn, s->request.p, s->request.len) < 0) {
        struct err e = { 0 };
        (void)err_set(&e, ECONNRESET,
                      "cannot send the request to the task: the connection was lost");
        end_soon(s, &e);
    }
    buf_done(&s->request);
}

static void on_frame(struct conn *conn, const Tony__Frame *f, void *arg)
{
    struct stream *s = arg;
    struct err e = { 0 };
    (void)conn;
    if (f->body_case == TONY__FRAME__BODY_STREAM_OPENED) {
        on_opened(s);
    } else if (f->body_case == TONY__FRAME__BODY_REFUSED) {
        const Tony__Refused *r = f->refused;
        (void)err_set(&e, r->num > 0 && r->num < 4096 ? (int)r->num : EIO, "%s", r->message);
        if (r->hint[0])
            err_hint(&e, "%s", r->hint);
        int64_t now = clock_mono_ms();
        s->ask_later = e.num == EAGAIN && now - s->asked_ms < PATIENCE_MS;
        if (s->ask_later)
            loop_timer_set(s->timer, now + PATIENCE_PAUSE_MS);
        else
            end_soon(s, &e);
    }
}

static int ask(struct stream *s)
{
    char who[LINK_CLIENT_MAX];
    link_describe_client(who);
    Tony__OpenStream o = TONY__OPEN_STREAM__INIT;
    o.application_id = s->job->id;
    o.task = s->task;
    o.what = s->what;
    o.who = who;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_OPEN_STREAM;
    f.open_stream = &o;
    return conn_send(s->conn, &f);
}

static void on_open(struct conn *conn, void *arg)
{
    (void)conn;
    (void)arg; /* the hello and OpenStream are queued already */
}

static void on_close(struct conn *conn, const struct err *e, void *arg)
{
    struct stream *s = arg;
    struct err why = s->why.num ? s->why : *e;
    (void)conn;
    s->conn = NULL;
    if (s->ask_later)
        return;
    if (!why.num) {
        (void)err_set(&why, ECONNRESET, "the job's master has closed the connection");
        err_hint(&why, "a master that died is restarted: try again; tony status %s shows more",
                 s->job->id);
    }
    end(s, &why);
}

static const struct conn_ops opening_ops = { .on_open = on_open,
                                             .on_frame = on_frame,
                                             .on_close = on_close };

/* The task is still starting: ask the master again. */
static int ask_again(struct stream *s)
{
    struct stream_job *j = s->job;
    struct err ignored = { 0 }; /* no master listens: try once more */
    int64_t now = clock_mono_ms();
    conn_close(TAKE(s->conn));
    int rc = cluster_dial(j->cluster, &j->report, &opening_ops, s, &s->conn, &ignored);
    s->ask_later = rc < 0 && now - s->asked_ms < PATIENCE_MS;
    if (rc == 0)
        rc = ask(s);
    if (rc < 0 && !s->ask_later)
        return rc;
    loop_timer_set(s->timer, now + (s->ask_later ? PATIENCE_PAUSE_MS : OPEN_MS));
    return 0;
}

/* A job that was just submitted, or whose master has died, has no master for a moment. */
static int dial(struct stream *s, struct err *e)
{
    struct stream_job *j = s->job;
    int rc = cluster_dial(j->cluster, &j->report, &opening_ops, s, &s->conn, e);
    for (int i = 1; rc < 0 && rc != -ENOKEY && i < DIAL_TRIES; i++) {
        host_pause(&j->c->host, DIAL_PAUSE_MS);
        rc = find_master(j, e);
        if (rc < 0)
            return rc;
        rc = cluster_dial(j->cluster, &j->report, &opening_ops, s, &s->conn, e);
    }
    if (rc == -ENOKEY || rc == 0)
        return rc < 0 ? -EXIT_CLUSTER : 0;
    (void)err_wrap(e, -ENOENT, "cannot reach the master of job '%s'", j->id);
    err_hint(e, "the job waits, or its master is being restarted: tony status %s shows which",
             j->id);
    return -EXIT_CLUSTER;
}

static int pack_request(const Tony__StreamRequest *r, struct buf *out, struct err *e)
{
    size_t n = tony__stream_request__get_packed_size(r);
    AUTO(free_p) unsigned char *bytes = malloc(n ? n : 1);
    if (!bytes)
        return err_set(e, ENOMEM, "cannot open a stream: %m");
    if (n > STREAM_CONTROL_MAX)
        return err_set(e, E2BIG, "the command line is longer than %d bytes", STREAM_CONTROL_MAX);
    (void)tony__stream_request__pack(r, bytes);
    int rc = stream_add(out, SF_REQUEST, bytes, n);
    return rc < 0 ? err_set(e, -rc, "cannot open a stream: %m") : 0;
}

int stream_open(struct stream_job *j, const char *task, const char *what,
                const Tony__StreamRequest *request, const struct stream_ops *ops, void *arg,
                struct stream **out, struct err *e)
{
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ENOMEM, "cannot open a stream: %m"), -EXIT_CLUSTER;
    *s = (struct stream){
        .job = j, .ops = ops, .arg = arg, .task = str_dup(task), .what = str_dup(what)
    };
    s->reader = (struct stream_reader){ .on_frame = on_reader, .arg = s };
    s->timer = loop_timer_new(j->loop, on_time, s);
    int rc = -EXIT_CLUSTER;
    if (!s->timer || !s->task || !s->what)
        (void)err_set(e, ENOMEM, "cannot open a stream: %m");
    else if (pack_request(request, &s->request, e) < 0)
        rc = e->num == E2BIG ? -EXIT_MISUSE : -EXIT_CLUSTER;
    else
        rc = dial(s, e);
    if (rc == 0 && ask(s) < 0)
        rc = (err_set(e, ECONNRESET, "cannot send the request to the master of job '%s'", j->id),
              -EXIT_CLUSTER);
    if (rc < 0) {
        stream_close(s);
        return rc;
    }
    s->asked_ms = clock_mono_ms();
    loop_timer_set(s->timer, s->asked_ms + OPEN_MS);
    *out = s;
    return 0;
}

/* ---- the open stream ---- */

int stream_send_bytes(struct stream *s, const void *p, size_t n)
{
    return s->conn ? conn_write(s->conn, p, n) : -EPIPE;
}

int stream_send(struct stream *s, enum stream_type type, const void *p, size_t n)
{
    unsigned char header[STREAM_HEADER];
    const char *at = p;
    do { /* data may be longer than a frame */
        size_t part = MIN(n, (size_t)STREAM_DATA_MAX);
        stream_header(type, part, header);
        int rc = stream_send_bytes(s, header, sizeof header);
        if (rc == 0 && part)
            rc = stream_send_bytes(s, at, part);
        if (rc < 0)
            return rc;
        at += part;
        n -= part;
    } while (n > 0);
    return 0;
}

size_t stream_unsent(const struct stream *s)
{
    return s->conn ? conn_queued(s->conn) : 0;
}

void stream_pause(struct stream *s, bool pause)
{
    if (s->conn)
        conn_pause(s->conn, pause);
}

void stream_close(struct stream *s)
{
    if (!s)
        return;
    s->ops = NULL;
    conn_close(TAKE(s->conn));
    loop_timer_free(TAKE(s->timer));
    free(s->task);
    free(s->what);
    buf_done(&s->request);
    if (s->closed) { /* on_bytes() frees it */
        *s->closed = true;
        return;
    }
    stream_reader_done(&s->reader);
    free(s);
}
