/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "loop/http.h"
#include "loop/http_parse.h"
#include "loop/tcp.h"

enum { DEADLINE_MS = 60000 };

/* ---- the parser ---- */

struct answer {
    const char *text;
    int num; /* errno of a refusal; 0 = complete; ECONNRESET = only cut off */
    int status;
    const char *body;
    bool keep;
};

static const struct answer answers[] = {
    { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 0, 200, "hello", true },
    { "HTTP/1.1 200 OK\nContent-Length: 5\nConnection: close\n\nhello", 0, 200, "hello", false },
    { "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 0, 200, "", false },
    { "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", 0, 201, "",
      true },
    { "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3;x\r\nabc\r\n0A\r\n0123456789\r\n0\r\n"
      "X: y\r\n\r\n",
      0, 200, "abc0123456789", true },
    { "HTTP/1.1 200 OK\r\n\r\nto the end", 0, 200, "to the end", false },
    { "HTTP/1.1 204 No Content\r\n\r\n", 0, 204, "", true },
    { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", ECONNRESET, 0, NULL, false },
    { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", EPROTO, 0, NULL,
      false },
    { "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", EPROTO, 0, NULL, false },
    { "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello", EPROTO, 0, NULL, false },
    { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxx\r\n", EPROTO, 0, NULL, false },
    { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", EPROTO, 0, NULL, false },
    { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", EPROTO, 0,
      NULL, false },
    { "SSH-2.0-OpenSSH\r\n\r\n", EPROTO, 0, NULL, false },
    { "HTTP/1.1 2x0 OK\r\n\r\n", EPROTO, 0, NULL, false },
};

static void keep_body(const char *p, size_t n, void *arg)
{
    assert_int_equal(buf_add(arg, p, n), 0);
}

static void test_parse(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        const struct answer *a = &answers[i];
        for (size_t step = 1; step <= strlen(a->text); step++) {
            struct http_parse x = { .head.max = HTTP_HEADERS_MAX };
            struct err e = { 0 };
            AUTO(buf_done) struct buf body = { 0 };
            size_t n = strlen(a->text);
            ssize_t rc = 0;
            for (size_t at = 0; at < n && rc >= 0; at += step)
                rc = http_parse(&x, a->text + at, MIN(step, n - at), keep_body, &body, &e);
            if (rc >= 0)
                (void)http_parse_eof(&x, &e);
            if (e.num != a->num)
                fail_msg("answer %zu in steps of %zu: %d, %s", i, step, e.num, e.msg);
            if (a->num == 0) {
                assert_int_equal(x.status, a->status);
                assert_string_equal(buf_cstr(&body), a->body);
                assert_int_equal(x.keep, a->keep);
            }
            http_parse_done(&x);
        }
    }
}

/* ---- client and server on the loop ---- */

struct world {
    struct loop *l;
    struct http *h;
    struct http_server *s;
    struct listener *raw; /* a scripted server */
    struct tcp *raw_conn;
    const char *script;
    struct buf heard; /* what the client sent to it */
    size_t want;      /* it answers after this many bytes */
    unsigned n_conns;
    struct loop_timer *late;
    unsigned left;
    int status, num;
    struct buf body;
    char msg[480], location[200];
    struct http_asker *asker; /* waits for its answer */
    struct loop_timer *later;
    bool fails;
    unsigned n_gone;
};

static void give_up(void *arg)
{
    (void)arg;
    fail_msg("nothing happened for %d ms", DEADLINE_MS);
}

static int page(const char *path, const char *query, struct http_answer *a, void *arg,
                struct err *e)
{
    (void)arg;
    if (strcmp(query, "fail") == 0)
        return err_set(e, EIO, "no page today");
    a->type = "text/plain";
    return buf_addf(&a->body, "%s|%s|", path, query) < 0 ? -ENOMEM : 0;
}

static void asker_gone(void *arg)
{
    struct world *w = arg;
    w->asker = NULL;
    w->n_gone++;
    loop_stop(w->l);
}

static void answer_later(void *arg)
{
    struct world *w = arg;
    struct http_answer a = { .status = 200, .type = "text/plain" };
    struct err e = { 0 };
    int rc = w->fails ? err_set(&e, EIO, "no page today") : buf_adds(&a.body, "at last");
    http_reply(TAKE(w->asker), &a, rc, &e);
    buf_done(&a.body);
}

/* Answers in another turn of the loop, or, with "never", only waits. */
static int late_page(const char *path, const char *query, struct http_answer *a, void *arg,
                     struct err *e)
{
    struct world *w = arg;
    (void)path;
    (void)e;
    w->asker = http_wait(a, asker_gone, w);
    w->fails = strcmp(query, "fail") == 0;
    if (strcmp(query, "never") == 0)
        loop_stop(w->l);
    else
        loop_timer_set(w->later, clock_mono_ms() + 1);
    return 0;
}

static const struct http_page pages[] = { { "/", page },
                                          { "/below/", page },
                                          { "/later", late_page } };

static void raw_read(struct tcp *t, const char *p, size_t n, void *arg)
{
    struct world *w = arg;
    assert_int_equal(buf_add(&w->heard, p, n), 0);
    if (w->heard.len < w->want || !memmem(w->heard.p, w->heard.len, "\r\n\r\n", 4))
        return;
    if (w->script) {
        (void)tcp_write(t, w->script, strlen(w->script)); /* the other side may have closed */
        if (strstr(w->script, "close"))
            tcp_end(t);
        buf_clear(&w->heard);
    } else {
        tcp_close(t);
    }
}

static void raw_close(struct tcp *t, const struct err *e, void *arg)
{
    (void)t;
    (void)e;
    (void)arg;
}

static const struct tcp_ops raw_ops = { .on_read = raw_read, .on_close = raw_close };

static void raw_accept(struct tcp *t, void *arg)
{
    struct world *w = arg;
    w->n_conns++;
    w->raw_conn = t;
    tcp_set_arg(t, &raw_ops, w);
}

static void world_open(struct world *w)
{
    struct err e = { 0 };
    *w = (struct world){ .l = loop_new(&e) };
    w->late = loop_timer_new(w->l, give_up, NULL);
    w->later = loop_timer_new(w->l, answer_later, w);
    loop_timer_set(w->late, clock_mono_ms() + DEADLINE_MS);
    assert_non_null(w->h = http_new(w->l, &e));
    assert_int_equal(http_server_open(w->l, "127.0.0.1", 0, pages, ARRAY_LEN(pages), w, &w->s, &e),
                     0);
    assert_int_equal(listener_open_tcp(w->l, "127.0.0.1", 0, raw_accept, w, &w->raw, &e), 0);
}

static void world_close(struct world *w)
{
    http_free(w->h);
    http_server_close(w->s);
    loop_free(w->l);
    buf_done(&w->body);
    buf_done(&w->heard);
}

static void on_done(struct http_call *c, const struct http_response *r, const struct err *e,
                    void *arg)
{
    struct world *w = arg;
    (void)c;
    w->num = e->num;
    (void)str_copy(w->msg, sizeof w->msg, e->msg);
    buf_clear(&w->body);
    w->status = r ? r->status : 0;
    if (r) {
        struct span to = http_header(r, "location");
        assert_int_equal(buf_add(&w->body, r->body.p, r->body.len), 0);
        (void)snprintf(w->location, sizeof w->location, "%.*s", (int)to.len, to.p ? to.p : "");
    }
    if (--w->left == 0)
        loop_stop(w->l);
}

static void ask_with(struct world *w, uint16_t port, const char *path, struct http_request q)
{
    char url[200];
    struct err e = { 0 };
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u%s", port, path);
    q.url = url;
    q.method = q.method ? q.method : "GET";
    q.done = on_done;
    q.arg = w;
    w->left++;
    if (http_send(w->h, &q, NULL, &e) < 0)
        fail_msg("%s", e.msg);
}

static void ask(struct world *w, uint16_t port, const char *path, struct http_request q)
{
    ask_with(w, port, path, q);
    (void)loop_run(w->l);
}

static void test_server(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path, *body;
        int status;
    } rows[] = {
        { "GET", "/", "/||", 200 },
        { "GET", "", "/||", 200 },
        { "GET", "/?a=b", "/|a=b|", 200 },
        { "HEAD", "/", "", 200 },
        { "GET", "/below/x?y", "/below/x|y|", 200 },
        { "GET", "/nowhere", "Not Found\n", 404 },
        { "GET", "/?fail", "Internal Server Error\n", 500 },
        { "GET", "/later", "at last", 200 },
        { "HEAD", "/later", "", 200 },
        { "GET", "/later?fail", "Internal Server Error\n", 500 },
        { "POST", "/", "Method Not Allowed\n", 405 },
        { "DELETE", "/", "Method Not Allowed\n", 405 },
    };
    struct world w;
    log_setup(2, LOG_ERROR, false);
    world_open(&w);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ask(&w, http_server_port(w.s), rows[i].path,
            (struct http_request){ .method = rows[i].method });
        assert_string_equal(w.msg, "");
        assert_int_equal(w.status, rows[i].status);
        assert_string_equal(buf_cstr(&w.body), rows[i].body);
    }
    ask(&w, http_server_port(w.s), "/", (struct http_request){ .body = SPAN("x") });
    assert_int_equal(w.status, 400);
    for (int i = 0; i < 40; i++) /* more requests than connections are allowed: they wait in line */
        ask_with(&w, http_server_port(w.s), "/", (struct http_request){ 0 });
    (void)loop_run(w.l);
    assert_int_equal(w.status, 200);
    world_close(&w);
}

/* Clients that send only a part of a request keep nobody out. */
static void test_slow_clients(void **state)
{
    (void)state;
    struct world w;
    int held[2 * HTTP_SERVER_CONNS];
    world_open(&w);
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr = { htonl(INADDR_LOOPBACK) },
                              .sin_port = htons(http_server_port(w.s)) };
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < ARRAY_LEN(held); i++) {
            held[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            assert_int_equal(connect(held[i], (struct sockaddr *)&at, sizeof at), 0);
            assert_int_equal(send(held[i], "GET ", 4, MSG_NOSIGNAL), 4);
        }
        ask(&w, http_server_port(w.s), "/", (struct http_request){ 0 });
        assert_string_equal(w.msg, "");
        assert_int_equal(w.status, 200);
        for (size_t i = 0; i < ARRAY_LEN(held); i++)
            close(held[i]);
    }
    world_close(&w);
}

static void test_script(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    uint16_t port = listener_port(w.raw);
    w.script = "HTTP/1.1 307 There\r\nLocation: http://dn:1/x?y=%20\r\nContent-Length: 0\r\n\r\n";
    ask(&w, port, "/a", (struct http_request){ .method = "PUT" });
    assert_int_equal(w.status, 307);
    assert_string_equal(w.location, "http://dn:1/x?y=%20");
    ask(&w, port, "/a", (struct http_request){ 0 });
    assert_int_equal(w.n_conns, 1); /* the connection is kept */
    tcp_close(w.raw_conn); /* the server closes the connection: the next request opens a new one */
    ask(&w, port, "/a", (struct http_request){ 0 });
    assert_int_equal(w.status, 307);
    assert_int_equal(w.n_conns, 2);
    ask(&w, port, "/a", (struct http_request){ .fresh = true });
    assert_int_equal(w.n_conns, 3);
    w.script = NULL; /* the server closes the connection */
    ask(&w, port, "/a", (struct http_request){ .fresh = true });
    assert_int_equal(w.num, ECONNRESET);
    assert_non_null(strstr(w.msg, "127.0.0.1"));
    w.script = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nclose";
    ask(&w, port, "/a", (struct http_request){ .fresh = true });
    assert_int_equal(w.num, ECONNRESET);
    w.script = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
    ask(&w, port, "/a", (struct http_request){ .fresh = true, .stall_ms = 30 });
    assert_int_equal(w.num, ETIMEDOUT);
    w.script = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789";
    ask(&w, port, "/a", (struct http_request){ .fresh = true, .body_max = 5 });
    assert_int_equal(w.num, EFBIG);
    w.script = "what is this?\r\n\r\n";
    ask(&w, port, "/a", (struct http_request){ .fresh = true });
    assert_int_equal(w.num, EPROTO);
    listener_close(w.raw);
    ask(&w, port, "/a", (struct http_request){ .fresh = true });
    assert_int_equal(w.num, ECONNREFUSED);
    struct err e = { 0 };
    const struct http_request https = { .method = "GET", .url = "https://x/", .done = on_done };
    assert_int_equal(http_send(w.h, &https, NULL, &e), -EPROTONOSUPPORT);
    const struct http_request odd = { .method = "GET", .url = "http://x/a b", .done = on_done };
    assert_int_equal(http_send(w.h, &odd, NULL, &e), -EINVAL);
    world_close(&w);
}

static void test_upload(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    struct world w;
    world_open(&w);
    char path[] = "/tmp/tony-test-http-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(unlink(path), 0);
    AUTO(free_p) char *bytes = malloc(N);
    memset(bytes, 'b', N);
    assert_int_equal(fs_write_all(fd, bytes, N), 0);
    w.script = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n"
               "Connection: close\r\n\r\n";
    w.want = N + 10;
    ask(&w, listener_port(w.raw), "/a",
        (struct http_request){ .method = "PUT", .body_from_fd = true, .body_fd = fd, .body_n = N });
    assert_string_equal(w.msg, "");
    assert_int_equal(w.status, 201);
    ask(&w, listener_port(w.raw), "/a",
        (struct http_request){ .method = "PUT", .body = span_mem(bytes, N) });
    assert_int_equal(w.status, 201);
    /* a file that has become shorter gives an error */
    assert_int_equal(ftruncate(fd, 1000), 0);
    ask(&w, listener_port(w.raw), "/a",
        (struct http_request){ .method = "PUT", .body_from_fd = true, .body_fd = fd, .body_n = N });
    assert_int_equal(w.num, ESTALE);
    assert_int_equal(close(fd), 0);
    world_close(&w);
}

static void test_cancel(void **state)
{
    (void)state;
    struct world w;
    struct err e = { 0 };
    world_open(&w);
    char url[80];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/", http_server_port(w.s));
    const struct http_request q = { .method = "GET", .url = url, .done = on_done, .arg = &w };
    struct http_call *c;
    assert_int_equal(http_send(w.h, &q, &c, &e), 0);
    http_cancel(c);
    http_cancel(NULL);
    ask(&w, http_server_port(w.s), "/", (struct http_request){ 0 });
    assert_int_equal(w.status, 200);
    assert_int_equal(http_send(w.h, &q, &c, &e), 0); /* left to http_free() */
    world_close(&w);
}

/* A client that closes its connection before the answer, and a server that closes before it. */
static void test_gone(void **state)
{
    (void)state;
    struct world w;
    struct err e = { 0 };
    char url[80];
    struct http_call *c;
    world_open(&w);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/later?never", http_server_port(w.s));
    const struct http_request q = { .method = "GET", .url = url, .done = on_done, .arg = &w };
    assert_int_equal(http_send(w.h, &q, &c, &e), 0);
    (void)loop_run(w.l);
    assert_non_null(w.asker);
    http_cancel(c);
    (void)loop_run(w.l);
    assert_int_equal(w.n_gone, 1);
    assert_int_equal(http_send(w.h, &q, &c, &e), 0);
    (void)loop_run(w.l);
    assert_non_null(w.asker);
    http_server_close(TAKE(w.s));
    assert_int_equal(w.n_gone, 2);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),        cmocka_unit_test(test_server),
        cmocka_unit_test(test_script),       cmocka_unit_test(test_upload),
        cmocka_unit_test(test_cancel),       cmocka_unit_test(test_gone),
        cmocka_unit_test(test_slow_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
