/* SPDX-License-Identifier: Apache-2.0 */
/* Framed connections with TLS over TCP. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "loop/loop.h"
#include "loop/loop_int.h" /* handshake_ms, name_servers */
#include "loop/tcp.h"
#include "loop_deadline.h"
#include "proto/tony.pb-c.h"

static const struct tls_key right = { "0123456789abcdef0123456789abcdef", 32 };
static const struct tls_key wrong = { "0123456789abcdef0123456789abcdeX", 32 };

static bool key_of(const char *identity, struct tls_key *out, void *arg)
{
    (void)arg;
    if (!str_starts(identity, "worker:"))
        return false;
    *out = right;
    return true;
}

struct echo {
    struct loop *l;
    struct listener *s;
    struct conn *accepted[400];
    unsigned n_accepted, n_server_frames, n_server_closed, n_open, n_frames, n_closed;
    unsigned want_closed; /* number of closed connections at the server */
    uint64_t n_steps;
    size_t filler, got_bytes;
    int close_num, server_close_num;
    char close_msg[480];
    bool finish; /* the client finishes instead of closing */
};

static void echo_server_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct echo *x = arg;
    x->n_server_frames++;
    assert_int_equal(conn_send(c, f), 0);
}

static void echo_server_close(struct conn *c, const struct err *e, void *arg)
{
    struct echo *x = arg;
    (void)c;
    x->server_close_num = e->num;
    if (++x->n_server_closed == x->want_closed)
        loop_stop(x->l);
}

static const struct conn_ops echo_server_ops = { NULL, echo_server_frame, echo_server_close };

static void echo_accept(struct conn *c, void *arg)
{
    struct echo *x = arg;
    char host[46];
    assert_true(str_starts(conn_identity(c), "worker:"));
    assert_int_equal(conn_peer_host(c, host, sizeof host), 0);
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(conn_local_host(c, host, sizeof host), 0);
    assert_string_equal(host, "127.0.0.1");
    uid_t uid;
    pid_t pid;
    assert_int_equal(conn_peer(c, &uid, &pid), -EOPNOTSUPP);
    x->accepted[x->n_accepted++] = c;
    conn_set_arg(c, &echo_server_ops, x);
}

static void echo_open_client(struct conn *c, void *arg)
{
    struct echo *x = arg;
    (void)c;
    x->n_open++;
}

static void echo_client_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct echo *x = arg;
    x->n_frames++;
    x->got_bytes += strlen(f->task_word->checkpoint);
    if (f->task_word->step != x->n_steps)
        return;
    if (x->finish)
        conn_finish(c);
    else
        conn_close(c);
}

static void echo_client_close(struct conn *c, const struct err *e, void *arg)
{
    struct echo *x = arg;
    (void)c;
    x->n_closed++;
    x->close_num = e->num;
    (void)str_copy(x->close_msg, sizeof x->close_msg, e->msg);
    loop_stop(x->l);
}

static const struct conn_ops echo_client_ops = { echo_open_client, echo_client_frame,
                                                 echo_client_close };

static void echo_listen(struct echo *x)
{
    struct err e = { 0 };
    x->l = new_loop();
    if (listener_open_tls(x->l, "127.0.0.1", 0, key_of, echo_accept, x, &x->s, &e) < 0)
        fail_msg("%s", e.msg);
}

static struct conn *echo_dial(struct echo *x, const char *identity, const struct tls_key *key,
                              uint16_t port, int64_t deadline_ms)
{
    struct err e = { 0 };
    struct conn *c;
    const struct conn_target to = { "localhost", port, identity, key, deadline_ms };
    if (conn_dial_tls(x->l, &to, &echo_client_ops, x, &c, &e) < 0)
        fail_msg("%s", e.msg);
    return c;
}

static void tls_echo(unsigned clients, uint64_t steps, size_t filler, bool finish)
{
    struct echo x = {
        .want_closed = clients, .n_steps = steps, .filler = filler, .finish = finish
    };
    echo_listen(&x);
    for (unsigned i = 0; i < clients; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "worker:%u", i);
        struct conn *c = echo_dial(&x, name, &right, listener_port(x.s), 0);
        /* Sent at once: these frames wait for the handshake. */
        for (uint64_t k = 1; k <= steps; k++)
            assert_int_equal(send_step(c, k, filler), 0);
        assert_true(conn_queued(c) > steps * filler);
    }
    (void)loop_run(x.l);
    assert_int_equal(x.n_open, clients);
    assert_int_equal(x.n_accepted, clients);
    assert_int_equal(x.n_server_frames, clients * steps);
    assert_int_equal(x.n_frames, clients * steps);
    assert_true(x.got_bytes == clients * steps * filler);
    assert_int_equal(x.n_closed, 0);
    assert_int_equal(x.server_close_num, 0); /* no error: the client closed in order */
    loop_free(x.l);
}

static void test_tls_echo(void **state)
{
    (void)state;
    tls_echo(1, 3, 10, false);
    tls_echo(1, 3, 10, true);
    tls_echo(3, 5000, 5, true);
    tls_echo(2, 3, 5 << 20, true);
}

static void test_tls_many(void **state)
{
    (void)state;
    tls_echo(60, 2, 100, true); /* each handshake takes 50 ms under valgrind */
}

static void test_tls_keys_differ(void **state)
{
    (void)state;
    static const struct {
        const char *identity;
        const struct tls_key *key;
        const char *why;
    } rows[] = {
        { "worker:1", &wrong, "the peer has a different key for 'worker:1'" },
        { "stranger", &right, "the peer does not know the identity 'stranger'" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct echo x = { 0 };
        char want[200];
        echo_listen(&x);
        struct conn *c = echo_dial(&x, rows[i].identity, rows[i].key, listener_port(x.s), 0);
        assert_int_equal(send_step(c, 1, 1), 0);
        (void)loop_run(x.l);
        (void)snprintf(want, sizeof want, "cannot connect to 'localhost:%u': %s",
                       listener_port(x.s), rows[i].why);
        assert_string_equal(x.close_msg, want);
        assert_int_equal(x.close_num, EACCES);
        assert_int_equal(x.n_open + x.n_accepted, 0);
        loop_free(x.l);
    }
}

static const struct conn_ops no_ops = { 0 };

static void test_tls_dial_without_a_listener(void **state)
{
    (void)state;
    struct echo x = { 0 };
    struct err e = { 0 };
    echo_listen(&x);
    uint16_t port = listener_port(x.s);
    listener_close(x.s);
    (void)echo_dial(&x, "worker:1", &right, port, 0);
    (void)loop_run(x.l);
    assert_int_equal(x.close_num, ECONNREFUSED);
    /* an owner that takes the connection later gets the same error */
    struct conn *c;
    const struct conn_target to = { "127.0.0.1", port, "worker:1", &right, 0 };
    assert_int_equal(conn_dial_tls(x.l, &to, &no_ops, NULL, &c, &e), 0);
    struct echo y = { .l = x.l };
    (void)echo_dial(&y, "worker:1", &right, port, 0);
    (void)loop_run(x.l);
    x.close_msg[0] = '\0';
    conn_set_arg(c, &echo_client_ops, &x);
    (void)loop_run(x.l);
    assert_non_null(strstr(x.close_msg, "Connection refused"));
    const struct tls_key none = { .len = 0 };
    const struct conn_target bad = { "127.0.0.1", port, "worker:1", &none, 0 };
    assert_int_equal(conn_dial_tls(x.l, &bad, &no_ops, NULL, &c, &e), -EINVAL);
    /* one is left to loop_free(), one is closed before anything happened */
    (void)echo_dial(&x, "worker:1", &right, port, 0);
    conn_close(echo_dial(&x, "worker:1", &right, port, 0));
    conn_finish(echo_dial(&x, "worker:1", &right, port, 0));
    loop_free(x.l);
}

static void never_accept(struct tcp *t, void *arg)
{
    static const struct tcp_ops deaf = { .on_read = NULL };
    (void)arg;
    tcp_set_arg(t, &deaf, NULL);
    tcp_pause(t, true);
}

static void test_tls_no_answer(void **state)
{
    (void)state;
    struct echo x = { .l = new_loop() };
    struct listener *s;
    assert_int_equal(listener_open_tcp(x.l, "127.0.0.1", 0, never_accept, NULL, &s, NULL), 0);
    (void)echo_dial(&x, "worker:1", &right, listener_port(s), clock_mono_ms() + 50);
    (void)loop_run(x.l);
    assert_int_equal(x.close_num, ETIMEDOUT);
    assert_non_null(strstr(x.close_msg, "does not answer in time"));
    loop_free(x.l);
}

/* Strangers: one sends nothing, one sends bytes that are no TLS, one sends the start of a
 * handshake. */
struct stranger {
    struct loop *l;
    struct tcp *t;
    bool closed;
};

static void stranger_closed(struct tcp *t, const struct err *e, void *arg)
{
    struct stranger *y = arg;
    (void)t;
    (void)e;
    y->closed = true;
    loop_stop(y->l);
}

static void test_tls_strangers(void **state)
{
    static const struct tcp_ops stranger_ops = { .on_close = stranger_closed };
    (void)state;
    struct echo x = { 0 };
    echo_listen(&x);
    x.l->handshake_ms = 50;
    const char *said[] = { NULL, "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x01" };
    struct stranger y[ARRAY_LEN(said)] = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(said); i++) {
        struct err e = { 0 };
        y[i].l = x.l;
        assert_int_equal(
            tcp_dial(x.l, "127.0.0.1", listener_port(x.s), 0, &stranger_ops, &y[i], &y[i].t, &e),
            0);
        if (said[i])
            assert_int_equal(tcp_write(y[i].t, said[i], strlen(said[i])), 0);
    }
    while (!y[0].closed || !y[1].closed || !y[2].closed)
        (void)loop_run(x.l); /* the loop stops after each; give_up() is the deadline */
    assert_int_equal(x.n_accepted, 0);
    /* the server still works */
    x.l->handshake_ms = 0;
    x.n_steps = x.want_closed = 1;
    struct conn *c = echo_dial(&x, "worker:1", &right, listener_port(x.s), 0);
    assert_int_equal(send_step(c, 1, 1), 0);
    (void)loop_run(x.l);
    assert_int_equal(x.n_frames, 1);
    loop_free(x.l);
}

/* ---- a listener under attack ---- */

/* A plain connection from an address of loopback. */
static int connect_from(const char *address, uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in from = { .sin_family = AF_INET }, to = { .sin_family = AF_INET };
    assert_int_equal(inet_pton(AF_INET, address, &from.sin_addr), 1);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(port);
    assert_int_equal(bind(fd, (const struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void stop_loop(void *arg)
{
    loop_stop(arg);
}

static void pass(struct loop *l, int ms)
{
    struct loop_timer *t = loop_timer_new(l, stop_loop, l);
    loop_timer_set(t, clock_mono_ms() + ms);
    (void)loop_run(l);
    loop_timer_free(t);
}

/* Does the peer at fd get a handshake? Returns 1: it got bytes of one; 0: the connection was
 * closed, perhaps with an alert; -1: neither yet. */
static int answer_at(int fd)
{
    char p[8];
    ssize_t n = recv(fd, p, sizeof p, MSG_DONTWAIT);
    return n > 0 ? p[0] == 0x16 : n == 0 || errno != EAGAIN ? 0 : -1;
}

/* One address holds all places with connections that send nothing. Peers of another address get in,
 * those with a proof and those without. */
static void test_tls_full(void **state)
{
    (void)state;
    struct echo x = { .n_steps = 1, .want_closed = 1 };
    int fd[CONN_HANDSHAKES_MAX];
    echo_listen(&x);
    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        fd[i] = connect_from("127.0.0.2", listener_port(x.s));
        if (i % 64 == 0)
            pass(x.l, 1);
    }
    int stranger = connect_from("127.0.0.3", listener_port(x.s));
    pass(x.l, 20);
    struct conn *c = echo_dial(&x, "worker:1", &right, listener_port(x.s), 0);
    assert_int_equal(send_step(c, 1, 1), 0);
    (void)loop_run(x.l);
    assert_int_equal(x.n_frames, 1);
    assert_int_equal(answer_at(stranger), -1); /* it still has its place */
    unsigned n_closed = 0;
    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        n_closed += answer_at(fd[i]) == 0;
        close_p(&fd[i]);
    }
    assert_in_range(n_closed, 1, 3);
    close_p(&stranger);
    loop_free(x.l);
}

/* Strangers who begin handshakes: an address gets some and then one in a second. A peer with a
 * proof always gets one, also from that address. */
static void test_tls_begun(void **state)
{
    (void)state;
    struct echo x = { .n_steps = 1, .want_closed = 1 };
    struct err e = { 0 };
    int fd[40];
    unsigned n_answered = 0;
    echo_listen(&x);
    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        AUTO(tls_freep) struct tls *t = tls_client_new("worker:1", &wrong, &e);
        fd[i] = connect_from("127.0.0.1", listener_port(x.s));
        assert_int_equal(fs_write_all(fd[i], tls_out(t)->p, tls_out(t)->len), 0);
    }
    pass(x.l, 100);
    for (size_t i = 0; i < ARRAY_LEN(fd); i++)
        n_answered += answer_at(fd[i]) == 1;
    assert_in_range(n_answered, 10, 20); /* more on a machine that was stopped for seconds */
    struct conn *c = echo_dial(&x, "worker:1", &right, listener_port(x.s), 0);
    assert_int_equal(send_step(c, 1, 1), 0);
    (void)loop_run(x.l);
    assert_int_equal(x.n_frames, 1);
    for (size_t i = 0; i < ARRAY_LEN(fd); i++)
        close_p(&fd[i]);
    loop_free(x.l);
}

/* A recorded first message of an honest peer is no proof the second time. */
static void test_tls_recorded(void **state)
{
    (void)state;
    struct echo x = { 0 };
    struct err e = { 0 };
    int fd[40];
    unsigned n_answered = 0;
    AUTO(tls_freep) struct tls *t = tls_client_new("worker:1", &right, &e);
    echo_listen(&x);
    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        fd[i] = connect_from("127.0.0.1", listener_port(x.s));
        assert_int_equal(fs_write_all(fd[i], tls_out(t)->p, tls_out(t)->len), 0);
    }
    pass(x.l, 100);
    for (size_t i = 0; i < ARRAY_LEN(fd); i++)
        n_answered += answer_at(fd[i]) == 1;
    assert_in_range(n_answered, 11, 21);
    for (size_t i = 0; i < ARRAY_LEN(fd); i++)
        close_p(&fd[i]);
    loop_free(x.l);
}

/* Many handshakes at once are computed by other threads, those of one connection are not. */
static void test_tls_threads(void **state)
{
    (void)state;
    struct echo x = { .n_steps = 1, .want_closed = 1 };
    echo_listen(&x);
    struct conn *c = echo_dial(&x, "worker:1", &right, listener_port(x.s), 0);
    assert_int_equal(send_step(c, 1, 1), 0);
    (void)loop_run(x.l);
    assert_int_equal(x.n_frames, 1);
    assert_int_equal(x.l->n_shake_works, 0);
    assert_int_equal(x.l->n_shaking, 0);
    x.want_closed = 41;
    for (unsigned i = 0; i < 40; i++) {
        c = echo_dial(&x, "worker:2", &right, listener_port(x.s), 0);
        assert_int_equal(send_step(c, 1, 1), 0);
    }
    (void)loop_run(x.l);
    assert_int_equal(x.n_frames, 41);
    assert_true(x.l->n_shake_works > 60); /* of about 80 of the clients and 80 of the server */
    assert_int_equal(x.l->n_shaking, 0);
    /* connections that end while another thread has their session */
    for (unsigned i = 0; i < 20; i++)
        (void)echo_dial(&x, "worker:3", &right, listener_port(x.s), 0);
    for (int i = 0; i < 1000 && !x.l->n_shake_works; i++)
        pass(x.l, 1);
    listener_close(x.s);
    loop_free(x.l);
}

/* A connection that is cut without a TLS goodbye ends with an error. */
struct relay {
    struct echo *x;
    struct tcp *in, *out;
    bool cut;
    unsigned n;
};

static void relay_in(struct tcp *t, const char *p, size_t n, void *arg)
{
    struct relay *r = arg;
    assert_int_equal(tcp_write(t == r->in ? r->out : r->in, p, n), 0);
    if (t == r->out && ++r->n == 3) { /* the server's hello, its finished message, and an answer */
        tcp_end(r->in);
        r->cut = true;
    }
}

static void relay_close(struct tcp *t, const struct err *e, void *arg)
{
    (void)t;
    (void)e;
    (void)arg;
}

static const struct tcp_ops relay_ops = { .on_read = relay_in, .on_close = relay_close };

static void relay_accept(struct tcp *t, void *arg)
{
    struct relay *r = arg;
    r->in = t;
    assert_int_equal(
        tcp_dial(r->x->l, "127.0.0.1", listener_port(r->x->s), 0, &relay_ops, r, &r->out, NULL), 0);
    tcp_set_arg(t, &relay_ops, r);
}

static void test_tls_cut(void **state)
{
    (void)state;
    struct echo x = { .n_steps = 2 };
    struct relay r = { .x = &x };
    struct listener *s;
    echo_listen(&x);
    assert_int_equal(listener_open_tcp(x.l, "127.0.0.1", 0, relay_accept, &r, &s, NULL), 0);
    struct conn *c = echo_dial(&x, "worker:1", &right, listener_port(s), 0);
    assert_int_equal(send_step(c, 1, 1), 0);
    (void)loop_run(x.l);
    assert_true(r.cut);
    assert_int_equal(x.close_num, ESHUTDOWN);
    assert_string_equal(x.close_msg, "the connection ended without a closing message of the peer");
    loop_free(x.l);
}

/* An owner that takes the connection late still gets the frames that have arrived. */
static void late_accept(struct conn *c, void *arg)
{
    struct echo *x = arg;
    x->accepted[x->n_accepted++] = c;
    conn_set_arg(c, &no_ops, x);
    loop_stop(x->l);
}

static void test_tls_paused(void **state)
{
    (void)state;
    struct echo x = { .want_closed = 1, .n_steps = 3 };
    struct err e = { 0 };
    x.l = new_loop();
    assert_int_equal(listener_open_tls(x.l, NULL, 0, key_of, late_accept, &x, &x.s, &e), 0);
    struct conn *c = echo_dial(&x, "worker:1", &right, listener_port(x.s), 0);
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(send_step(c, i, 1), 0);
    (void)loop_run(x.l);
    assert_int_equal(x.n_accepted, 1);
    conn_set_arg(x.accepted[0], &echo_server_ops, &x);
    (void)loop_run(x.l);
    assert_int_equal(x.n_server_frames, 3);
    assert_int_equal(x.n_frames, 3);
    assert_int_equal(x.server_close_num, 0);
    loop_free(x.l);
}

int main(void)
{
    log_setup(2, LOG_ERROR, false);
    /* test_tls_full needs two for each connection; a shell usually allows 1024. */
    const rlim_t descriptors = 2 * CONN_HANDSHAKES_MAX + 100;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < descriptors) {
        files.rlim_cur = files.rlim_max < descriptors ? files.rlim_max : descriptors;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tls_echo),        cmocka_unit_test(test_tls_many),
        cmocka_unit_test(test_tls_keys_differ), cmocka_unit_test(test_tls_dial_without_a_listener),
        cmocka_unit_test(test_tls_no_answer),   cmocka_unit_test(test_tls_strangers),
        cmocka_unit_test(test_tls_full),        cmocka_unit_test(test_tls_begun),
        cmocka_unit_test(test_tls_recorded),    cmocka_unit_test(test_tls_threads),
        cmocka_unit_test(test_tls_cut),         cmocka_unit_test(test_tls_paused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
