/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, names and streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "loop/loop.h"
#include "loop/loop_int.h" /* handshake_ms, name_servers */
#include "loop/tcp.h"
#include "loop_deadline.h"

/* ---- addresses ---- */

static void test_split(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint16_t dflt;
        const char *host; /* NULL = refused */
        uint16_t port;
    } rows[] = {
        { "nn1:9870", 0, "nn1", 9870 },
        { "nn1", 9870, "nn1", 9870 },
        { "nn1", 0, NULL, 0 },
        { "[::1]:80", 0, "::1", 80 },
        { "[::1]", 8, "::1", 8 },
        { "::1", 8, "::1", 8 },
        { "[::1", 8, NULL, 0 },
        { "[::1]x", 8, NULL, 0 },
        { "a.b-c_d:1", 0, "a.b-c_d", 1 },
        { "a:0", 0, NULL, 0 },
        { "a:65536", 0, NULL, 0 },
        { "a:65535", 0, "a", 65535 },
        { "a:", 5, NULL, 0 },
        { ":5", 5, NULL, 0 },
        { "", 5, NULL, 0 },
        { "a b:5", 5, NULL, 0 },
        { "a/b", 5, NULL, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char host[TCP_HOST_MAX + 1] = "";
        uint16_t port = 0;
        struct err e = { 0 };
        int rc = tcp_split(rows[i].text, rows[i].dflt, host, &port, &e);
        if (!rows[i].host) {
            if (rc != -EINVAL)
                fail_msg("'%s' is taken", rows[i].text);
            continue;
        }
        if (rc != 0)
            fail_msg("%s", e.msg);
        assert_string_equal(host, rows[i].host);
        assert_int_equal(port, rows[i].port);
    }
}

static void test_numeric(void **state)
{
    (void)state;
    struct tcp_address a;
    char text[TCP_ADDRESS_TEXT];
    assert_true(tcp_numeric("127.0.0.1", 80, &a));
    assert_string_equal(tcp_text(&a, true, text, sizeof text), "127.0.0.1:80");
    assert_true(tcp_numeric("localhost", 80, &a));
    assert_string_equal(tcp_text(&a, false, text, sizeof text), "127.0.0.1");
    assert_true(tcp_numeric("::1", 80, &a));
    assert_string_equal(tcp_text(&a, true, text, sizeof text), "[::1]:80");
    assert_false(tcp_numeric("127.0.0", 80, &a));
    assert_false(tcp_numeric("node1", 80, &a));
}

/* ---- names ---- */

/* A name server: "here" is 127.0.0.2, a query for "silent" gets no answer, all other names do not
 * exist. */
struct names {
    struct loop *l;
    int fd;
    char at[32];
    struct loop_fd *watch;
    unsigned n_asked, n_done;
    int num;
    char text[TCP_ADDRESS_TEXT], msg[480];
};

static void on_question(void *arg)
{
    struct names *x = arg;
    unsigned char q[600];
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    ssize_t n = recvfrom(x->fd, q, 512, 0, (struct sockaddr *)&from, &len);
    assert_true(n > 12);
    x->n_asked++;
    if (memcmp(q + 12, "\6silent", 7) == 0)
        return;
    bool here = memcmp(q + 12, "\4here", 5) == 0;
    size_t end = 12; /* of the question */
    while (q[end] != 0)
        end += q[end] + 1u;
    bool v4 = q[end + 2] == 1;
    end += 5;
    q[2] = 0x81;
    q[3] = here ? 0x80 : 0x83;
    memset(q + 6, 0, 6);
    if (here && v4) {
        static const unsigned char answer[] = {
            0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 127, 0, 0, 2
        };
        q[7] = 1;
        memcpy(q + end, answer, sizeof answer);
        end += sizeof answer;
    }
    assert_int_equal(sendto(x->fd, q, end, 0, (struct sockaddr *)&from, len), end);
}

static void names_open(struct names *x)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof a;
    x->l = new_loop();
    x->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(x->fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(x->fd, (struct sockaddr *)&a, &len), 0);
    (void)snprintf(x->at, sizeof x->at, "127.0.0.1:%u", ntohs(a.sin_port));
    x->l->name_servers = x->at;
    x->watch = loop_fd_new(x->l, x->fd, on_question, x);
}

static void names_close(struct names *x)
{
    loop_free(x->l);
    assert_int_equal(close(x->fd), 0);
}

static void on_found(const struct tcp_address *v, size_t n, const struct err *e, void *arg)
{
    struct names *x = arg;
    x->n_done++;
    x->num = e->num;
    (void)str_copy(x->msg, sizeof x->msg, e->msg);
    assert_int_equal(n > 0, e->num == 0);
    if (n > 0)
        (void)tcp_text(&v[0], true, x->text, sizeof x->text);
    loop_stop(x->l);
}

static void ask(struct names *x, const char *host, int64_t within_ms)
{
    struct tcp_resolve *r;
    struct err e = { 0 };
    unsigned before = x->n_done;
    x->text[0] = '\0';
    if (tcp_resolve(x->l, host, 80, clock_mono_ms() + within_ms, on_found, x, &r, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(x->n_done, before); /* callbacks never run inside the call */
    (void)loop_run(x->l);
    assert_int_equal(x->n_done, before + 1);
}

/* Finds a name in /etc/hosts that the resolver has no short cut for; false = there is none. */
static bool hosts_name(char out[128])
{
    AUTO(buf_done) struct buf text = { 0 };
    if (fs_read(AT_FDCWD, "/etc/hosts", &text, NULL) < 0)
        return false;
    struct span rest = buf_span(&text), line;
    while (span_split(&rest, '\n', &line)) {
        char address[64], name[128];
        AUTO(free_p) char *s = span_dup(line);
        if (s && s[0] != '#' && sscanf(s, "%63s %127s", address, name) == 2 &&
            strcmp(name, "localhost") != 0 && strchr(address, '.')) {
            memcpy(out, name, sizeof name);
            return true;
        }
    }
    return false;
}

static void test_names(void **state)
{
    (void)state;
    struct names x = { 0 };
    char name[128];
    names_open(&x);
    ask(&x, "10.1.2.3", DEADLINE_MS);
    assert_string_equal(x.text, "10.1.2.3:80");
    ask(&x, "localhost", DEADLINE_MS);
    assert_string_equal(x.text, "127.0.0.1:80");
    if (hosts_name(name)) {
        ask(&x, name, DEADLINE_MS);
        assert_int_equal(x.num, 0);
    }
    assert_int_equal(x.n_asked, 0); /* so far the name server got no query */
    ask(&x, "here.example.", DEADLINE_MS);
    assert_string_equal(x.text, "127.0.0.2:80");
    ask(&x, "gone.example.", DEADLINE_MS);
    assert_int_equal(x.num, ENOENT);
    assert_string_equal(x.msg, "cannot find host 'gone.example.': there is no such name");
    int64_t from = clock_mono_ms();
    x.n_asked = 0;
    ask(&x, "silent.example.", 100);
    assert_int_equal(x.num, ETIMEDOUT);
    assert_true(clock_mono_ms() - from >= 99);
    /* One query for each family; the second caller made no new ones. */
    assert_in_range(x.n_asked, 0, 2);
    struct tcp_resolve *r;
    struct err e = { 0 };
    assert_int_equal(tcp_resolve(x.l, "", 80, 0, on_found, &x, &r, &e), -EINVAL);
    /* one request is cancelled, one is left to loop_free() */
    assert_int_equal(tcp_resolve(x.l, "silent.example.", 80, 0, on_found, &x, &r, &e), 0);
    assert_int_equal(tcp_resolve(x.l, "silent.example.", 80, 0, on_found, &x, &r, &e), 0);
    tcp_resolve_cancel(r);
    tcp_resolve_cancel(NULL);
    ask(&x, "here.example.", DEADLINE_MS);
    names_close(&x);
}

/* ---- streams ---- */

struct stream {
    struct loop *l;
    struct listener *s;
    struct tcp *client, *server;
    struct buf at_client, at_server;
    unsigned n_open, n_drain, n_client_closed, n_server_ended, n_client_ended;
    size_t want; /* the server stops the loop after this many bytes */
    int close_num;
    char close_msg[480];
};

static void server_read(struct tcp *t, const char *p, size_t n, void *arg)
{
    struct stream *x = arg;
    (void)t;
    assert_int_equal(buf_add(&x->at_server, p, n), 0);
    if (x->want > 0 && x->at_server.len >= x->want)
        loop_stop(x->l);
}

/* At the client's end of file: returns all bytes, then closes. */
static void server_end(struct tcp *t, void *arg)
{
    struct stream *x = arg;
    x->n_server_ended++;
    assert_int_equal(tcp_write(t, x->at_server.p, x->at_server.len), 0);
    tcp_end(t);
    assert_int_equal(tcp_write(t, "x", 1), -EPIPE);
}

static const struct tcp_ops server_ops = { .on_read = server_read, .on_end = server_end };

static void stream_accept(struct tcp *t, void *arg)
{
    struct stream *x = arg;
    if (x->server)
        return; /* the connection is not accepted, so it is closed */
    x->server = t;
    tcp_set_arg(t, &server_ops, x);
}

static void client_open(struct tcp *t, void *arg)
{
    struct stream *x = arg;
    (void)t;
    x->n_open++;
}

static void client_read(struct tcp *t, const char *p, size_t n, void *arg)
{
    struct stream *x = arg;
    (void)t;
    assert_int_equal(x->n_open, 1);
    assert_int_equal(buf_add(&x->at_client, p, n), 0);
}

static void client_drain(struct tcp *t, void *arg)
{
    struct stream *x = arg;
    assert_int_equal(tcp_queued(t), 0);
    x->n_drain++;
}

static void client_close(struct tcp *t, const struct err *e, void *arg)
{
    struct stream *x = arg;
    (void)t;
    x->n_client_closed++;
    x->close_num = e->num;
    (void)str_copy(x->close_msg, sizeof x->close_msg, e->msg);
    loop_stop(x->l);
}

static const struct tcp_ops client_ops = { .on_open = client_open,
                                           .on_read = client_read,
                                           .on_drain = client_drain,
                                           .on_close = client_close };

static void stream_open(struct stream *x)
{
    struct err e = { 0 };
    x->l = new_loop();
    if (listener_open_tcp(x->l, "127.0.0.1", 0, stream_accept, x, &x->s, &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(listener_port(x->s) > 0);
    assert_int_equal(
        tcp_dial(x->l, "localhost", listener_port(x->s), 0, &client_ops, x, &x->client, &e), 0);
}

static void stream_done(struct stream *x)
{
    loop_free(x->l);
    buf_done(&x->at_client);
    buf_done(&x->at_server);
}

static void test_echo_until_end(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 1000, 3 << 20 };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct stream x = { 0 };
        AUTO(free_p) char *bytes = malloc(sizes[i] + 1);
        assert_non_null(bytes);
        memset(bytes, 'a', sizes[i] + 1);
        stream_open(&x);
        /* before the connection is open, and in two pieces */
        assert_int_equal(tcp_write(x.client, bytes, sizes[i] / 2), 0);
        assert_int_equal(tcp_write(x.client, bytes, sizes[i] - sizes[i] / 2), 0);
        assert_int_equal(tcp_queued(x.client), sizes[i]);
        tcp_end(x.client);
        (void)loop_run(x.l);
        assert_int_equal(x.n_open, 1);
        assert_int_equal(x.n_drain, sizes[i] > 0);
        assert_int_equal(x.n_server_ended, 1);
        assert_int_equal(x.at_client.len, sizes[i]);
        assert_int_equal(x.n_client_closed, 1);
        assert_int_equal(x.close_num, 0);
        stream_done(&x);
    }
}

static void test_pause_and_bound(void **state)
{
    (void)state;
    struct stream x = { .want = 1, .at_server.max = 2 * TCP_QUEUE_MAX };
    stream_open(&x);
    assert_int_equal(tcp_write(x.client, "x", 1), 0);
    (void)loop_run(x.l);
    tcp_pause(x.server, true);
    enum { PIECE = 8 << 20 };
    AUTO(free_p) char *bytes = calloc(1, PIECE);
    int rc = 0;
    size_t sent = 1;
    for (int i = 0; i < 9 && rc == 0; i++)
        if ((rc = tcp_write(x.client, bytes, PIECE)) == 0)
            sent += PIECE;
    assert_int_equal(rc, -ENOBUFS); /* the peer does not read: the queue has a limit */
    loop_flush(x.l);
    tcp_pause(x.server, false);
    x.want = sent;
    (void)loop_run(x.l);
    assert_int_equal(x.at_server.len, sent);
    struct tcp_address a;
    assert_int_equal(tcp_local(x.client, &a), 0);
    assert_true(a.in.sin_port != 0);
    tcp_close(x.client);
    tcp_close(x.client);
    assert_int_equal(tcp_write(x.client, "x", 1), -EPIPE);
    stream_done(&x);
}

static void test_a_connection_that_is_refused(void **state)
{
    (void)state;
    struct stream x = { 0 };
    struct err e = { 0 };
    stream_open(&x);
    uint16_t port = listener_port(x.s);
    tcp_close(x.client); /* closed while it connects */
    listener_close(x.s);
    assert_int_equal(tcp_dial(x.l, "127.0.0.1", port, 0, &client_ops, &x, &x.client, &e), 0);
    (void)loop_run(x.l);
    assert_int_equal(x.close_num, ECONNREFUSED);
    char want[100];
    (void)snprintf(want, sizeof want, "cannot connect to '127.0.0.1:%u': Connection refused", port);
    assert_string_equal(x.close_msg, want);
    assert_int_equal(x.n_open, 0);
    assert_int_equal(listener_open_tcp(x.l, "nowhere", 0, stream_accept, &x, &x.s, &e), -EINVAL);
    /* connections that no test waits for */
    assert_int_equal(tcp_dial(x.l, "127.0.0.1", port, 0, &client_ops, &x, &x.client, &e), 0);
    stream_done(&x);
}

static void test_reset(void **state)
{
    (void)state;
    struct stream x = { .want = 1 };
    stream_open(&x);
    assert_int_equal(tcp_write(x.client, "x", 1), 0);
    (void)loop_run(x.l);
    tcp_pause(x.server, true);
    assert_int_equal(tcp_write(x.client, "unread", 6), 0);
    loop_flush(x.l);
    tcp_close(x.server); /* closed with unread bytes: a reset */
    (void)loop_run(x.l);
    assert_int_equal(x.n_client_closed, 1);
    assert_int_equal(x.close_num, ECONNRESET);
    stream_done(&x);
}

int main(void)
{
    log_setup(2, LOG_ERROR, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),           cmocka_unit_test(test_numeric),
        cmocka_unit_test(test_names),           cmocka_unit_test(test_echo_until_end),
        cmocka_unit_test(test_pause_and_bound), cmocka_unit_test(test_a_connection_that_is_refused),
        cmocka_unit_test(test_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
