/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/http.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "loop/http_parse.h"
#include "loop/tcp.h"

enum { SLICE = 256 << 10, ERROR_BODY_MAX = 64 << 10 };

struct http_headers {
    struct span head;
};

/* A connection to a server. It carries a call, or is idle. */
struct hconn {
    struct http *h;
    struct tcp *tcp;
    char *host;
    uint16_t port;
    struct http_call *call;
    struct http_parse parse;
    struct loop_timer *idle;
    bool used;             /* it has carried a call before the current one */
    bool has_answer_bytes; /* a byte of the current answer has arrived */
    bool busy;    /* a callback of the caller runs: the connection must not be freed in it */
    bool dropped; /* the caller has dropped it in a callback: free it after the callback */
    struct hconn *next;
};

struct http {
    struct loop *loop;
    struct hconn *conns;
    struct http_call *calls; /* in the order of http_send() */
};

/* A piece of a file that a thread reads. If the call is cancelled, the piece lives on until the
 * thread has finished. */
struct piece {
    struct http_call *call; /* NULL: the call was cancelled */
    int fd;
    int64_t offset;
    size_t n;
    char bytes[];
};

struct http_call {
    struct http *h;
    struct http_call *next;
    struct http_request q;
    char *host;
    uint16_t port;
    struct buf head;
    int body_fd; /* a duplicate that the call owns */
    struct hconn *conn;
    struct loop_timer *timer; /* fires after stall_ms without progress; or see fail_soon() */
    struct err failed;
    struct buf body;
    uint64_t n_body, n_sent, n_total;
    struct piece *piece;
    bool again;
};

static void start_waiting(struct http *h);

/* ---- the end ---- */

static void conn_free(struct hconn *k)
{
    http_parse_done(&k->parse);
    free(k->host);
    free(k);
}

static void conn_drop(struct hconn *k)
{
    struct hconn **at = &k->h->conns;
    while (*at && *at != k)
        at = &(*at)->next;
    if (*at)
        *at = k->next;
    tcp_close(k->tcp);
    loop_timer_free(k->idle);
    k->call = NULL;
    k->dropped = true;
    if (!k->busy)
        conn_free(k);
}

static void call_unlink(struct http_call *c)
{
    struct http_call **at = &c->h->calls;
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
}

static void call_free(struct http_call *c)
{
    if (c->piece)
        c->piece->call = NULL;
    loop_timer_free(c->timer);
    close_p(&c->body_fd);
    buf_done(&c->head);
    buf_done(&c->body);
    free(c->host);
    free(c);
}

static void call_fail(struct http_call *c, const struct err *why)
{
    struct err e = *why;
    void (*done)(struct http_call *, const struct http_response *, const struct err *, void *) =
        c->q.done;
    void *arg = c->q.arg;
    struct http *h = c->h;
    if (!strstr(e.msg, c->host))
        (void)err_wrap(&e, 0, "no answer from '%s:%u'", c->host, c->port);
    if (c->conn)
        conn_drop(TAKE(c->conn));
    call_unlink(c);
    start_waiting(h); /* before done(), which may free h */
    done(c, NULL, &e, arg);
    call_free(c);
}

static void call_done(struct http_call *c)
{
    struct hconn *k = TAKE(c->conn);
    struct http *h = c->h;
    struct http_headers headers = { buf_span(&k->parse.head) };
    struct buf head = k->parse.head; /* keep it until done() has returned: headers point into it */
    struct http_response r = { .status = k->parse.status,
                               .body = buf_span(&c->body),
                               .n_body = c->n_body,
                               .headers = &headers };
    struct err none = { 0 };
    k->parse.head = (struct buf){ 0 };
    k->call = NULL;
    if (k->parse.keep && !c->q.fresh && c->n_sent == c->n_total && !c->piece) {
        k->used = true;
        loop_timer_set(k->idle, clock_mono_ms() + HTTP_IDLE_MS);
    } else {
        conn_drop(k);
    }
    call_unlink(c);
    start_waiting(h);
    c->q.done(c, &r, &none, c->q.arg);
    buf_done(&head);
    call_free(c);
}

void http_cancel(struct http_call *c)
{
    if (!c)
        return;
    struct http *h = c->h;
    if (c->conn) {
        c->conn->call = NULL;
        conn_drop(TAKE(c->conn));
    }
    call_unlink(c);
    call_free(c);
    start_waiting(h);
}

/* ---- progress ---- */

static void note_progress(struct http_call *c)
{
    loop_timer_set(c->timer, clock_mono_ms() + (c->q.stall_ms ? c->q.stall_ms : HTTP_STALL_MS));
}

static void on_call_timer(void *arg)
{
    struct http_call *c = arg;
    struct err e = c->failed;
    if (!e.num)
        (void)err_set(&e, ETIMEDOUT, "no byte was sent or received for %lld s",
                      (long long)((c->q.stall_ms ? c->q.stall_ms : HTTP_STALL_MS) / 1000));
    call_fail(c, &e);
}

/* Report a failure from the timer, since done() must not come inside http_send() or
 * start_waiting(). */
static void fail_soon(struct http_call *c, const struct err *e)
{
    c->failed = *e;
    loop_timer_set(c->timer, clock_mono_ms());
}

static void on_body(const char *p, size_t n, void *arg)
{
    struct hconn *k = arg;
    struct http_call *c = k->call;
    if (k->dropped) /* an earlier on_body() has cancelled the call */
        return;
    bool good = k->parse.status / 100 == 2;
    c->n_body += n;
    if (c->failed.num)
        return;
    if (good && c->q.on_body) {
        c->q.on_body(c, p, n, c->q.arg);
        return;
    }
    if (!good)
        c->body.max = ERROR_BODY_MAX; /* keep the text of an error even if body_max is smaller */
    if (!good)
        n = MIN(n, ERROR_BODY_MAX - MIN(c->body.len, (size_t)ERROR_BODY_MAX));
    int rc = n > 0 ? buf_add(&c->body, p, n) : 0;
    if (rc < 0)
        (void)err_set(&c->failed, rc == -EMSGSIZE ? EFBIG : ENOMEM,
                      "no room for the answer of '%s:%u': %m", c->host, c->port);
}

static void on_read(struct tcp *t, const char *p, size_t n, void *arg)
{
    struct hconn *k = arg;
    struct http_call *c = k->call;
    struct err e = { 0 };
    (void)t;
    if (!c) { /* the server sends bytes on an idle connection */
        conn_drop(k);
        return;
    }
    k->has_answer_bytes = true;
    k->busy = true;
    ssize_t rc = http_parse(&k->parse, p, n, on_body, k, &e);
    if (k->dropped) { /* on_body() has cancelled the call */
        conn_free(k);
        return;
    }
    k->busy = false;
    if (rc < 0 || c->failed.num) {
        if (c->failed.num)
            e = c->failed;
        call_fail(c, &e);
        return;
    }
    note_progress(c);
    if (k->parse.state != HP_DONE)
        return;
    if ((size_t)rc < n)
        k->parse.keep = false; /* the bytes behind the response belong to no request */
    call_done(c);
}

static int call_start(struct http_call *c);

static void on_close(struct tcp *t, const struct err *why, void *arg)
{
    struct hconn *k = arg;
    struct http_call *c = k->call;
    struct err e = *why;
    (void)t;
    if (!c) {
        conn_drop(k);
        return;
    }
    if (!e.num && http_parse_eof(&k->parse, &e) == 0) {
        k->parse.keep = false;
        call_done(c);
        return;
    }
    if (k->used && !k->has_answer_bytes && c->n_total == 0 && !c->again) {
        /* The server has closed an idle connection before it saw this request: send it again. */
        c->again = true;
        c->conn = NULL;
        conn_drop(k);
        if (call_start(c) < 0)
            fail_soon(c, &e);
        return;
    }
    call_fail(c, &e);
}

/* ---- sending ---- */

static int read_piece(void *arg)
{
    struct piece *x = arg;
    ssize_t n;
    do
        n = pread(x->fd, x->bytes, x->n, x->offset);
    while (n == -1 && errno == EINTR);
    return n == -1 ? -errno : (int)n;
}

static void piece_read(void *arg, int rc)
{
    struct piece *x = arg;
    struct http_call *c = x->call;
    close_p(&x->fd);
    if (c) {
        struct err e = { 0 };
        c->piece = NULL;
        if (rc > 0 && c->conn)
            rc = tcp_write(c->conn->tcp, x->bytes, (size_t)rc) < 0 ? 0 : rc;
        else if (rc == 0)
            rc = -ESTALE;
        if (rc > 0) {
            c->n_sent += (uint64_t)rc;
        } else if (rc < 0) {
            (void)err_set(&e, -rc, "cannot read the content to send to '%s:%u': %s", c->host,
                          c->port, rc == -ESTALE ? "the file became shorter" : strerror(-rc));
            call_fail(c, &e);
        }
    }
    free(x);
}

/* Send the next slice of the body, once the kernel has accepted the last one. */
static void pump(struct http_call *c)
{
    if (c->n_sent == c->n_total || c->piece)
        return;
    size_t n = (size_t)MIN(c->n_total - c->n_sent, (uint64_t)SLICE);
    if (!c->q.body_from_fd) {
        /* If this fails, on_close() follows. */
        if (tcp_write(c->conn->tcp, c->q.body.p + c->n_sent, n) == 0)
            c->n_sent += n;
        return;
    }
    struct piece *x = malloc(sizeof *x + n);
    int rc = x ? 0 : -ENOMEM;
    if (x) {
        *x = (struct piece){ .call = c, .offset = c->q.body_offset + (int64_t)c->n_sent, .n = n };
        x->fd = fcntl(c->body_fd, F_DUPFD_CLOEXEC, 3);
        rc = x->fd == -1 ? -errno : loop_work(c->h->loop, read_piece, piece_read, x);
        if (rc < 0) {
            close_p(&x->fd);
            free(x);
        } else {
            c->piece = x;
        }
    }
    if (rc < 0) {
        struct err e = { 0 };
        (void)err_set(&e, -rc, "cannot read the content to send to '%s:%u': %m", c->host, c->port);
        fail_soon(c, &e);
    }
}

static void on_drain(struct tcp *t, void *arg)
{
    struct hconn *k = arg;
    struct http_call *c = k->call;
    (void)t;
    if (!c)
        return;
    note_progress(c);
    k->busy = true;
    if (c->q.on_sent && c->n_sent > 0)
        c->q.on_sent(c, c->n_sent, c->q.arg);
    k->busy = false;
    if (k->dropped) /* on_sent() has cancelled the call */
        conn_free(k);
    else
        pump(c);
}

static const struct tcp_ops tcp_ops = { .on_read = on_read,
                                        .on_drain = on_drain,
                                        .on_close = on_close };

static void on_idle(void *arg)
{
    struct hconn *k = arg;
    if (!k->call)
        conn_drop(k);
}

static struct hconn *conn_for(struct http_call *c, size_t *out_n)
{
    size_t n = 0;
    struct hconn *idle = NULL;
    for (struct hconn *k = c->h->conns; k; k = k->next) {
        if (k->port != c->port || !str_eq(k->host, c->host))
            continue;
        n++;
        if (!k->call)
            idle = k;
    }
    *out_n = n;
    return idle;
}

static struct hconn *conn_open(struct http_call *c, struct err *e)
{
    struct hconn *k = calloc(1, sizeof *k);
    if (!k || !(k->host = str_dup(c->host)) ||
        !(k->idle = loop_timer_new(c->h->loop, on_idle, k))) {
        (void)err_set(e, ENOMEM, "cannot connect to '%s:%u': %m", c->host, c->port);
    } else if (tcp_dial(c->h->loop, c->host, c->port, 0, &tcp_ops, k, &k->tcp, e) == 0) {
        k->h = c->h;
        k->port = c->port;
        k->next = c->h->conns;
        c->h->conns = k;
        return k;
    }
    if (k) {
        loop_timer_free(k->idle);
        free(k->host);
        free(k);
    }
    return NULL;
}

/* Start a call on an idle or a new connection. 1: no connection is free, so the call waits. */
static int call_start(struct http_call *c)
{
    size_t n;
    struct hconn *k = conn_for(c, &n);
    struct err e = { 0 };
    if (k && (c->q.fresh || c->again || c->n_total > 0)) {
        /* The server may just have closed the idle connection. A request with a body cannot be sent
         * twice, so it gets a new connection. */
        conn_drop(k);
        k = NULL;
        n--;
    }
    if (!k && n >= HTTP_PER_HOST)
        return 1;
    if (!k && !(k = conn_open(c, &e))) {
        fail_soon(c, &e);
        return 0;
    }
    loop_timer_stop(k->idle);
    http_parse_done(&k->parse);
    k->parse =
        (struct http_parse){ .head.max = HTTP_HEADERS_MAX, .no_body = str_eq(c->q.method, "HEAD") };
    k->has_answer_bytes = false;
    k->call = c;
    c->conn = k;
    note_progress(c);
    (void)tcp_write(k->tcp, c->head.p, c->head.len); /* if this fails, on_close() follows */
    return 0;
}

static void start_waiting(struct http *h)
{
    for (struct http_call *c = h->calls; c; c = c->next)
        if (!c->conn && !c->failed.num)
            (void)call_start(c); /* 1: this call still has to wait */
}

/* ---- a request ---- */

static int parse_url(const char *url, struct http_call *c, const char **out_path, struct err *e)
{
    char host[TCP_HOST_MAX + 1];
    if (str_starts(url, "https://"))
        return err_set(e, EPROTONOSUPPORT, "cannot fetch '%.200s': https is not supported yet",
                       url);
    if (!str_starts(url, "http://") || strlen(url) > HTTP_URL_MAX)
        return err_set(e, EINVAL, "'%.200s' is not a valid http:// URL", url);
    for (const char *p = url; *p; p++)
        if ((unsigned char)*p <= 0x20 || *p == 0x7f)
            return err_set(e, EINVAL, "'%.200s' is not a valid http:// URL", url);
    const char *at = url + strlen("http://");
    size_t len = strcspn(at, "/?#");
    AUTO(free_p) char *authority = span_dup(span_mem(at, len));
    if (!authority)
        return err_set(e, ENOMEM, "cannot fetch a page: %m");
    int rc = tcp_split(authority, 80, host, &c->port, e);
    if (rc < 0)
        return rc;
    c->host = str_dup(host);
    if (!c->host)
        return err_set(e, ENOMEM, "cannot fetch a page: %m");
    *out_path = at + len;
    return 0;
}

static bool has_header(const struct http_request *q, const char *name)
{
    for (size_t i = 0; q->headers && q->headers[i]; i++)
        if (str_starts(q->headers[i], name))
            return true;
    return false;
}

static int build_head(struct http_call *c, const struct http_request *q, const char *path,
                      struct err *e)
{
    struct buf *b = &c->head;
    bool v6 = strchr(c->host, ':') != NULL;
    size_t n = strcspn(path, "#");
    (void)buf_addf(b, "%s %s%.*s HTTP/1.1\r\nHost: %s%s%s:%u\r\n", q->method,
                   *path == '/' ? "" : "/", (int)n, path, v6 ? "[" : "", c->host, v6 ? "]" : "",
                   c->port);
    (void)buf_adds(b, "User-Agent: tony\r\n");
    if (!has_header(q, "Accept:"))
        (void)buf_adds(b, "Accept: */*\r\n");
    if (c->n_total > 0 || (!str_eq(q->method, "GET") && !str_eq(q->method, "HEAD")))
        (void)buf_addf(b, "Content-Length: %llu\r\n", (unsigned long long)c->n_total);
    if (q->fresh)
        (void)buf_adds(b, "Connection: close\r\n");
    for (size_t i = 0; q->headers && q->headers[i]; i++) {
        if (strpbrk(q->headers[i], "\r\n"))
            return err_set(e, EINVAL, "a header has more than one line");
        (void)buf_addf(b, "%s\r\n", q->headers[i]);
    }
    if (buf_adds(b, "\r\n") < 0)
        return err_set(e, ENOMEM, "cannot fetch a page: %m");
    return 0;
}

int http_send(struct http *h, const struct http_request *q, struct http_call **out, struct err *e)
{
    const char *path = NULL;
    struct http_call *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ENOMEM, "cannot fetch a page: %m");
    c->h = h;
    c->q = *q;
    c->body_fd = -1;
    c->body.max = q->body_max ? q->body_max : HTTP_BODY_MAX;
    c->n_total = q->body_from_fd ? (uint64_t)q->body_n : q->body.len;
    int rc = parse_url(q->url, c, &path, e);
    if (rc == 0)
        rc = build_head(c, q, path, e);
    if (rc == 0 && !(c->timer = loop_timer_new(h->loop, on_call_timer, c)))
        rc = err_set(e, ENOMEM, "cannot fetch a page: %m");
    if (rc == 0 && q->body_from_fd && (c->body_fd = fcntl(q->body_fd, F_DUPFD_CLOEXEC, 3)) == -1)
        rc = err_set(e, errno, "cannot read the content to send: %m");
    if (rc < 0) {
        call_free(c);
        return rc;
    }
    struct http_call **at = &h->calls;
    while (*at)
        at = &(*at)->next;
    *at = c;
    c->q.url = NULL; /* http_send() borrows it only until it returns */
    c->q.headers = NULL;
    (void)call_start(c); /* 1: the call waits for a connection */
    if (out)
        *out = c;
    return 0;
}

struct span http_header(const struct http_response *r, const char *name)
{
    return http_find(r->headers->head, name);
}

struct http *http_new(struct loop *l, struct err *e)
{
    struct http *h = calloc(1, sizeof *h);
    if (h)
        h->loop = l;
    else
        (void)err_set(e, ENOMEM, "cannot make an HTTP client: %m");
    return h;
}

void http_free(struct http *h)
{
    if (!h)
        return;
    while (h->calls) {
        struct http_call *c = h->calls;
        if (c->conn)
            c->conn->call = NULL;
        call_unlink(c);
        call_free(c);
    }
    while (h->conns)
        conn_drop(h->conns);
    free(h);
}

int http_encode(struct buf *b, struct span s, bool keep_slash)
{
    int rc = 0;
    for (size_t i = 0; i < s.len && rc == 0; i++) {
        unsigned char ch = (unsigned char)s.p[i];
        bool plain = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
                     (ch >= '0' && ch <= '9') || (ch && strchr("-._~", ch)) ||
                     (ch == '/' && keep_slash);
        rc = plain ? buf_addc(b, (char)ch) : buf_addf(b, "%%%02X", ch);
    }
    return rc;
}
