/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/http.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "loop/http_parse.h"
#include "loop/tcp.h"

/* A client connection. It carries one request only, which is enough: the clients are the
 * ResourceManager's proxy and sometimes a person. */
struct http_asker {
    struct http_server *s;
    struct http_asker *next;
    struct tcp *tcp;
    struct loop_timer *timer;
    struct buf in;
    bool answered; /* or the page function answers later */
    bool with_body;
    void (*gone)(void *arg); /* NULL = no answer is outstanding */
    void *gone_arg;
};

struct http_server {
    struct loop *loop;
    struct listener *listener;
    const struct http_page *pages;
    size_t n_pages;
    void *arg;
    struct http_asker *askers;
    unsigned n;
};

static void asker_close(struct http_asker *a)
{
    struct http_asker **at = &a->s->askers;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    a->s->n--;
    tcp_close(a->tcp);
    loop_timer_free(a->timer);
    if (a->gone)
        a->gone(a->gone_arg);
    buf_done(&a->in);
    free(a);
}

static void on_asker_late(void *arg)
{
    asker_close(arg);
}

static const char *reason(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 431:
        return "Request Header Fields Too Large";
    case 500:
        return "Internal Server Error";
    default:
        return "Answer";
    }
}

static void reply(struct http_asker *a, const struct http_answer *answer)
{
    AUTO(buf_done) struct buf head = { 0 };
    a->answered = true;
    (void)buf_addf(&head,
                   "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                   "Connection: close\r\nCache-Control: no-store\r\n"
                   "X-Content-Type-Options: nosniff\r\nX-Frame-Options: SAMEORIGIN\r\n%s"
                   "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n\r\n",
                   answer->status, reason(answer->status), answer->type, answer->body.len,
                   answer->status == 405 ? "Allow: GET, HEAD\r\n" : "");
    bool sent = !head.failed && tcp_write(a->tcp, head.p, head.len) == 0 &&
                (!a->with_body || tcp_write(a->tcp, answer->body.p, answer->body.len) == 0);
    if (!sent) {
        asker_close(a);
        return;
    }
    tcp_end(a->tcp); /* then wait until the client closes, at most HTTP_SERVER_WAIT_MS */
    loop_timer_set(a->timer, clock_mono_ms() + HTTP_SERVER_WAIT_MS);
}

static void refuse(struct http_asker *a, int status)
{
    struct http_answer answer = { .status = status, .type = "text/plain; charset=utf-8" };
    (void)buf_addf(&answer.body, "%s\n", reason(status));
    a->with_body = true;
    reply(a, &answer);
    buf_done(&answer.body);
}

static const struct http_page *page_for(const struct http_server *s, const char *path)
{
    for (size_t i = 0; i < s->n_pages; i++) {
        const char *own = s->pages[i].path;
        size_t len = strlen(own);
        if (str_eq(own, path) || (len > 1 && own[len - 1] == '/' && str_starts(path, own)))
            return &s->pages[i];
    }
    return NULL;
}

/* Send the answer. rc < 0: the page function has failed, so send status 500 and log e. */
static void reply_or_fail(struct http_asker *a, const struct http_answer *answer, int rc,
                          struct err *e)
{
    if (rc == 0 && answer->body.failed)
        rc = err_set(e, ENOMEM, "no memory for a page");
    if (rc < 0) {
        log_err(LOG_WARN, "http.page", e);
        refuse(a, 500);
    } else {
        reply(a, answer);
    }
}

struct http_asker *http_wait(struct http_answer *answer, void (*gone)(void *arg), void *arg)
{
    struct http_asker *a = answer->asker;
    a->gone = gone;
    a->gone_arg = arg;
    a->answered = true;
    return a;
}

void http_reply(struct http_asker *a, const struct http_answer *answer, int rc, struct err *e)
{
    a->gone = NULL;
    reply_or_fail(a, answer, rc, e);
}

static void serve(struct http_asker *a, char *target, bool with_body)
{
    char *query = strchr(target, '?');
    if (query)
        *query++ = '\0';
    const struct http_page *page = page_for(a->s, target);
    if (!page) {
        refuse(a, 404);
        return;
    }
    struct http_answer answer = { .status = 200,
                                  .type = "text/html; charset=utf-8",
                                  .accept = http_find(buf_span(&a->in), "Accept"),
                                  .asker = a };
    struct err e = { 0 };
    a->with_body = with_body;
    int rc = page->make(target, query ? query : "", &answer, a->s->arg, &e);
    if (!a->gone || rc < 0) {
        a->gone = NULL;
        reply_or_fail(a, &answer, rc, &e);
    }
    buf_done(&answer.body);
}

static bool target_valid(struct span t)
{
    for (size_t i = 0; i < t.len; i++)
        if ((unsigned char)t.p[i] <= 0x20 || (unsigned char)t.p[i] >= 0x7f)
            return false;
    return t.len > 0 && t.p[0] == '/';
}

static void on_request(struct http_asker *a)
{
    struct span rest = buf_span(&a->in), line, method, target;
    (void)span_split(&rest, '\n', &line);
    line = span_trim(line);
    if (!span_split(&line, ' ', &method) || !span_split(&line, ' ', &target) ||
        !target_valid(target) || !line.p || !span_starts(line, "HTTP/1.")) {
        refuse(a, 400);
        return;
    }
    bool get = span_eqs(method, "GET"), head = span_eqs(method, "HEAD");
    struct span length = http_find(buf_span(&a->in), "Content-Length");
    if (!get && !head) {
        refuse(a, 405);
    } else if ((length.p && !span_eqs(length, "0")) ||
               http_find(buf_span(&a->in), "Transfer-Encoding").p) {
        refuse(a, 400);
    } else {
        AUTO(free_p) char *t = span_dup(target);
        if (t)
            serve(a, t, get);
        else
            refuse(a, 500);
    }
}

static void on_read(struct tcp *t, const char *p, size_t n, void *arg)
{
    struct http_asker *a = arg;
    (void)t;
    if (a->answered)
        return;
    size_t from = a->in.len > 3 ? a->in.len - 3 : 0;
    if (buf_add(&a->in, p, n) < 0) {
        refuse(a, 431);
        return;
    }
    if (memmem(a->in.p + from, a->in.len - from, "\r\n\r\n", 4) ||
        memmem(a->in.p + from, a->in.len - from, "\n\n", 2))
        on_request(a);
}

static void on_close(struct tcp *t, const struct err *e, void *arg)
{
    (void)t;
    (void)e; /* a client that closes its connection is not worth a log line */
    asker_close(arg);
}

static const struct tcp_ops asker_ops = { .on_read = on_read, .on_close = on_close };

/* Close the oldest connection that has not sent its request. If there is none, close the oldest one
 * whose answer was sent. So clients that do not send, or do not close, keep nobody else out. */
static void make_room(struct http_server *s)
{
    struct http_asker *silent = NULL, *served = NULL; /* the list begins with the youngest */
    for (struct http_asker *a = s->askers; a; a = a->next) {
        if (!a->answered && !a->gone)
            silent = a;
        else if (a->answered && !a->gone && tcp_queued(a->tcp) == 0)
            served = a;
    }
    if (silent || served)
        asker_close(silent ? silent : served);
}

static void on_accept(struct tcp *t, void *arg)
{
    struct http_server *s = arg;
    if (s->n >= HTTP_SERVER_CONNS)
        make_room(s);
    struct http_asker *a = s->n < HTTP_SERVER_CONNS ? calloc(1, sizeof *a) : NULL;
    if (!a || !(a->timer = loop_timer_new(s->loop, on_asker_late, a))) {
        free(a);
        return; /* the loop closes a stream without ops */
    }
    a->s = s;
    a->tcp = t;
    a->in.max = HTTP_SERVER_REQUEST_MAX;
    a->next = s->askers;
    s->askers = a;
    s->n++;
    loop_timer_set(a->timer, clock_mono_ms() + HTTP_SERVER_WAIT_MS);
    tcp_set_arg(t, &asker_ops, a);
}

int http_server_open(struct loop *l, const char *address, uint16_t port,
                     const struct http_page *pages, size_t n_pages, void *arg,
                     struct http_server **out, struct err *e)
{
    struct http_server *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ENOMEM, "cannot serve pages: %m");
    *s = (struct http_server){ .loop = l, .pages = pages, .n_pages = n_pages, .arg = arg };
    int rc = listener_open_tcp(l, address, port, on_accept, s, &s->listener, e);
    if (rc < 0) {
        free(s);
        return rc;
    }
    *out = s;
    return 0;
}

uint16_t http_server_port(const struct http_server *s)
{
    return listener_port(s->listener);
}

void http_server_close(struct http_server *s)
{
    if (!s)
        return;
    while (s->askers)
        asker_close(s->askers);
    listener_close(s->listener);
    free(s);
}

int http_add_html(struct buf *b, struct span s)
{
    int rc = 0;
    for (size_t i = 0; i < s.len && rc == 0; i++) {
        switch (s.p[i]) {
        case '&':
            rc = buf_adds(b, "&amp;");
            break;
        case '<':
            rc = buf_adds(b, "&lt;");
            break;
        case '>':
            rc = buf_adds(b, "&gt;");
            break;
        case '"':
            rc = buf_adds(b, "&quot;");
            break;
        case '\'':
            rc = buf_adds(b, "&#39;");
            break;
        default:
            rc = buf_addc(b, s.p[i]);
        }
    }
    return rc;
}
