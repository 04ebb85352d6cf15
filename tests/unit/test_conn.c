/* SPDX-License-Identifier: Apache-2.0 */
/* Framed connections over unix sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/base.h"
#include "codec/frame.h"
#include "loop/loop.h"
#include "loop_deadline.h"
#include "proto/tony.pb-c.h"

struct place {
    char dir[64];
    char sock[96];
};

static int setup(void **state)
{
    static struct place p;
    (void)snprintf(p.dir, sizeof p.dir, "/tmp/tony-test-loop-XXXXXX");
    if (!mkdtemp(p.dir))
        return -1;
    (void)snprintf(p.sock, sizeof p.sock, "%s/s", p.dir);
    *state = &p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    return fs_remove_tree(AT_FDCWD, p->dir, NULL);
}

/* A server that returns each frame, and clients that count the answers. */
struct echo {
    struct loop *l;
    struct listener *s;
    const struct conn_ops *server; /* NULL = return each frame */
    struct conn *accepted[1200];
    unsigned n_accepted, n_server_frames, n_server_closed;
    unsigned n_open, n_frames, n_closed, want_closed, flushes;
    int close_num;
    size_t filler, got_bytes;
    struct loop_timer *timer;
    uint64_t n_steps; /* frames that each client sends */
};

static void server_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct echo *x = arg;
    x->n_server_frames++;
    assert_int_equal(f->body_case, TONY__FRAME__BODY_TASK_WORD);
    struct packed *p = packed_new(f);
    assert_non_null(p);
    assert_int_equal(conn_send_packed(c, p), 0);
    packed_unref(p);
}

static void server_closed(struct conn *c, const struct err *e, void *arg)
{
    struct echo *x = arg;
    (void)c;
    x->n_server_closed++;
    x->close_num = e->num;
    if (x->n_server_closed == x->want_closed)
        loop_stop(x->l);
}

static const struct conn_ops server_ops = { NULL, server_frame, server_closed };

static void server_accept(struct conn *c, void *arg)
{
    struct echo *x = arg;
    uid_t uid;
    pid_t pid;
    assert_int_equal(conn_peer(c, &uid, &pid), 0);
    assert_int_equal(uid, geteuid());
    assert_int_equal(pid, getpid());
    x->accepted[x->n_accepted++] = c;
    conn_set_arg(c, x->server ? x->server : &server_ops, x);
}

static void client_open(struct conn *c, void *arg)
{
    struct echo *x = arg;
    x->n_open++;
    for (uint64_t i = 1; i <= x->n_steps; i++)
        assert_int_equal(send_step(c, i, x->filler), 0);
}

static void client_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct echo *x = arg;
    x->n_frames++;
    x->got_bytes += strlen(f->task_word->checkpoint);
    /* Answers are in order, so this is the client's last one. */
    if (f->task_word->step == x->n_steps) {
        conn_close(c);
        conn_close(c); /* a second close has no effect */
        assert_int_equal(send_step(c, 1, 0), -EPIPE);
    }
}

static void client_closed(struct conn *c, const struct err *e, void *arg)
{
    (void)c;
    (void)e;
    ((struct echo *)arg)->n_closed++;
}

static const struct conn_ops client_ops = { client_open, client_frame, client_closed };

static void count_flush(void *arg)
{
    ((struct echo *)arg)->flushes++;
}

static void echo_open(struct echo *x, const struct place *p)
{
    struct err e = { 0 };
    x->l = new_loop();
    loop_on_flush(x->l, count_flush, x);
    assert_int_equal(listener_open_unix(x->l, p->sock, server_accept, x, &x->s, &e), 0);
}

static void echo_run(struct place *p, unsigned clients, uint64_t steps, size_t filler)
{
    struct echo x = { .want_closed = clients, .n_steps = steps, .filler = filler };
    struct err e = { 0 };
    echo_open(&x, p);
    struct stat st;
    assert_int_equal(stat(p->sock, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    for (unsigned i = 0; i < clients; i++) {
        struct conn *c;
        int rc = conn_dial_unix(x.l, p->sock, &client_ops, &x, &c, &e);
        if (rc < 0)
            fail_msg("client %u: %s", i, e.msg);
    }
    assert_int_equal(x.n_open, 0); /* callbacks never run inside the call */
    (void)loop_run(x.l);
    assert_int_equal(x.n_open, clients);
    assert_int_equal(x.n_accepted, clients);
    assert_int_equal(x.n_server_frames, clients * steps);
    assert_int_equal(x.n_frames, clients * steps);
    assert_true(x.got_bytes == clients * steps * filler);
    assert_int_equal(x.n_closed, 0); /* the clients closed their connections themselves */
    assert_true(x.flushes > 0);
    listener_close(x.s);
    assert_int_equal(stat(p->sock, &st), -1);
    loop_free(x.l);
}

static void test_echo(void **state)
{
    echo_run(*state, 1, 3, 10);
}

static void test_many_small_frames(void **state)
{
    echo_run(*state, 2, 20000, 5);
}

static void test_large_frames(void **state)
{
    echo_run(*state, 2, 3, 5 << 20);
}

static void test_burst_of_1000(void **state)
{
    struct rlimit lim;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
    if (lim.rlim_cur < 2200 && lim.rlim_max >= 2200) {
        lim.rlim_cur = 2200;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
    }
    if (lim.rlim_cur < 2200)
        skip();
    echo_run(*state, 1000, 2, 100);
}

static void test_dial_without_a_listener(void **state)
{
    struct place *p = *state;
    struct loop *l = new_loop();
    struct conn *c = NULL;
    struct err e = { 0 };
    assert_int_equal(conn_dial_unix(l, p->sock, &client_ops, NULL, &c, &e), -ENOENT);
    assert_non_null(strstr(e.msg, p->sock));
    /* a socket file without a listener */
    struct listener *s;
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    assert_true(str_copy(sa.sun_path, sizeof sa.sun_path, p->sock));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    (void)close(fd);
    assert_int_equal(conn_dial_unix(l, p->sock, &client_ops, NULL, &c, &e), -ECONNREFUSED);
    /* a new listener replaces that file */
    assert_int_equal(listener_open_unix(l, p->sock, server_accept, NULL, &s, &e), 0);
    char path[300];
    memset(path, 'a', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = 0;
    assert_int_equal(conn_dial_unix(l, path, &client_ops, NULL, &c, &e), -ENAMETOOLONG);
    assert_int_equal(listener_open_unix(l, path, server_accept, NULL, &s, &e), -ENAMETOOLONG);
    assert_null(c);
    loop_free(l);
}

static int dial_raw(const char *path)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    assert_true(str_copy(sa.sun_path, sizeof sa.sun_path, path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    return fd;
}

/* Bad bytes from a stranger end that connection with a reason, and affect nothing else. */
static void test_invalid_frames(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        int want;
    } rows[] = {
        { "", 0, 0 },
        { "\0\0\0", 3, EPIPE },
        { "\0\0\0\x10xx", 6, EPIPE },
        { "\0\0\0\0", 4, EPROTO },
        { "\x7f\0\0\0", 4, EPROTO },
        { "\0\0\0\1\xff", 5, EPROTO },
        { "GET / HTTP/1.1\r\n\r\n", 18, EPROTO },
    };
    struct place *p = *state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct echo x = { .want_closed = 1, .close_num = -1 };
        echo_open(&x, p);
        int fd = dial_raw(p->sock);
        assert_int_equal(write(fd, rows[i].bytes, rows[i].n), rows[i].n);
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        (void)loop_run(x.l);
        assert_int_equal(x.close_num, rows[i].want);
        assert_int_equal(x.n_server_frames, 0);
        (void)close(fd);
        loop_free(x.l); /* loop_free() also closes the listener */
    }
}

/* A peer sends a frame and closes before the answer. The frame is delivered although the answer
 * cannot be written. */
static void answer_then_count(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct echo *x = arg;
    x->n_server_frames++;
    for (int i = 0; i < 3; i++)
        (void)send_step(c, f->task_word->step, 1000); /* -EPIPE once the close is known */
}

static void test_frames_sent_before_a_close_arrive(void **state)
{
    static const struct conn_ops ops = { NULL, answer_then_count, server_closed };
    struct place *p = *state;
    struct echo x = { .want_closed = 1, .server = &ops };
    echo_open(&x, p);
    AUTO(buf_done) struct buf b = { 0 };
    Tony__TaskWord w = TONY__TASK_WORD__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_TASK_WORD;
    f.task_word = &w;
    for (w.step = 1; w.step <= 30000; w.step++) /* more frames than one read of the loop takes */
        assert_int_equal(frame_pack(&f, &b), 0);
    size_t sent = 0;
    int fd = dial_raw(p->sock);
    (void)fd_nonblock(fd, true);
    ssize_t n;
    while (sent < b.len && (n = write(fd, b.p + sent, b.len - sent)) > 0)
        sent += (size_t)n;
    assert_true(sent > 100000); /* bytes that fit into the socket's buffer */
    (void)close(fd);
    unsigned whole = 0;
    struct span payload;
    struct buf view = { .p = b.p, .len = sent };
    while (frame_peek(&view, &payload, NULL) == 1) {
        view.p += payload.len + FRAME_HEADER;
        view.len -= payload.len + FRAME_HEADER;
        whole++;
    }
    (void)loop_run(x.l);
    assert_int_equal(x.n_server_frames, whole);
    loop_free(x.l);
}

/* A peer that does not read. Once 64 MiB wait for it, its connection is closed, but never inside
 * conn_send(). */
static void never_called(struct conn *c, const Tony__Frame *f, void *arg)
{
    (void)c;
    (void)f;
    (void)arg;
    fail();
}

static void flood(void *arg)
{
    struct echo *x = arg;
    int rc = 0;
    if (!x->accepted[0]) { /* not accepted yet */
        loop_timer_set(x->timer, clock_mono_ms() + 1);
        return;
    }
    for (int i = 0; i < 70 && rc == 0; i++)
        rc = send_step(x->accepted[0], 1, 1 << 20);
    assert_int_equal(rc, -ENOBUFS);
    assert_int_equal(x->n_server_closed, 0);
    assert_true(conn_queued(x->accepted[0]) > CONN_QUEUE_MAX - (2 << 20));
    assert_int_equal(send_step(x->accepted[0], 1, 0), -EPIPE);
}

static void test_slow_reader(void **state)
{
    static const struct conn_ops ops = { NULL, never_called, server_closed };
    struct place *p = *state;
    struct echo x = { .want_closed = 1, .server = &ops };
    echo_open(&x, p);
    int fd = dial_raw(p->sock);
    x.timer = loop_timer_new(x.l, flood, &x);
    loop_timer_set(x.timer, clock_mono_ms());
    (void)loop_run(x.l);
    assert_int_equal(x.close_num, ENOBUFS);
    (void)close(fd);
    loop_free(x.l);
}

/* conn_finish(): all queued frames arrive, also if they exceed the socket's buffer, and then the
 * end. */
static void finish_at_once(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct echo *x = arg;
    (void)f;
    x->n_server_frames++;
    for (uint64_t i = 1; i <= 8; i++)
        assert_int_equal(send_step(c, i, x->filler ? x->filler : 1 << 20), 0);
    conn_finish(c);
    conn_finish(c);
    assert_int_equal(send_step(c, 9, 0), -EPIPE);
}

static void count_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct echo *x = arg;
    (void)c;
    assert_int_equal(f->task_word->step, ++x->n_frames);
}

static void client_closed_stop(struct conn *c, const struct err *e, void *arg)
{
    struct echo *x = arg;
    (void)c;
    x->close_num = e->num;
    x->n_closed++;
    loop_stop(x->l);
}

static void test_finish(void **state)
{
    static const struct conn_ops server = { NULL, finish_at_once, server_closed };
    static const struct conn_ops client = { client_open, count_frame, client_closed_stop };
    struct place *p = *state;
    struct echo x = { .want_closed = 1, .n_steps = 1, .server = &server };
    struct err e = { 0 };
    struct conn *c;
    echo_open(&x, p);
    assert_int_equal(conn_dial_unix(x.l, p->sock, &client, &x, &c, &e), 0);
    (void)loop_run(x.l);
    assert_int_equal(x.n_frames, 8);
    assert_int_equal(x.n_closed, 1);
    assert_int_equal(x.close_num, 0);
    assert_int_equal(x.n_server_closed, 0); /* no callback after conn_finish() */
    loop_free(x.l);
}

/* A callback closes its own connection, the other one, and the listener. */
static void close_all(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct echo *x = arg;
    (void)c;
    (void)f;
    x->n_server_frames++;
    for (unsigned i = 0; i < x->n_accepted; i++)
        conn_close(x->accepted[i]);
    listener_close(x->s);
    listener_close(x->s);
}

static void client_gone(struct conn *c, const struct err *e, void *arg)
{
    struct echo *x = arg;
    (void)e;
    conn_close(c); /* the loop closes it anyway after this */
    if (++x->n_closed == 3)
        loop_stop(x->l);
}

static void test_close_in_callbacks(void **state)
{
    static const struct conn_ops server = { NULL, close_all, server_closed };
    static const struct conn_ops client = { client_open, client_frame, client_gone };
    struct place *p = *state;
    struct echo x = { .want_closed = 99, .n_steps = 1, .server = &server };
    struct err e = { 0 };
    struct conn *c;
    echo_open(&x, p);
    for (int i = 0; i < 3; i++)
        assert_int_equal(conn_dial_unix(x.l, p->sock, &client, &x, &c, &e), 0);
    (void)loop_run(x.l);
    /* The first connection closed the others before they were read. */
    assert_int_equal(x.n_server_frames, 1);
    assert_int_equal(x.n_closed, 3);
    assert_int_equal(x.n_server_closed, 0);
    loop_free(x.l);
}

static void close_in_open(struct conn *c, void *arg)
{
    struct echo *x = arg;
    x->n_open++;
    conn_close(c);
}

static void test_close_before_and_in_open(void **state)
{
    static const struct conn_ops client = { close_in_open, client_frame, client_closed };
    struct place *p = *state;
    struct echo x = { .want_closed = 2 };
    struct err e = { 0 };
    struct conn *c;
    echo_open(&x, p);
    assert_int_equal(conn_dial_unix(x.l, p->sock, &client, &x, &c, &e), 0);
    assert_int_equal(conn_dial_unix(x.l, p->sock, &client, &x, &c, &e), 0);
    conn_close(c);
    (void)loop_run(x.l);
    assert_int_equal(x.n_open, 1);
    assert_int_equal(x.n_closed, 0);
    loop_free(x.l);
}

/* Ops without on_frame pause a connection. Frames that arrived meanwhile, and the end, are kept for
 * the next owner. */
static const struct conn_ops no_ops;
static const struct conn_ops rest_ops = { NULL, count_frame, client_closed_stop };

static void go_on(void *arg)
{
    struct echo *x = arg;
    assert_int_equal(x->n_frames, 2);
    conn_set_arg(x->accepted[0], &rest_ops, x);
}

static void pause_after_two(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct echo *x = arg;
    count_frame(c, f, arg);
    if (x->n_frames < 2)
        return;
    conn_set_arg(c, &no_ops, x);
    struct loop_timer *t = loop_timer_new(x->l, go_on, x);
    loop_timer_set(t, clock_mono_ms() + 20);
}

static void pause_run(struct place *p, size_t filler)
{
    static const struct conn_ops server = { NULL, finish_at_once, server_closed };
    static const struct conn_ops client = { client_open, pause_after_two, NULL };
    struct echo x = { .want_closed = 1, .n_steps = 1, .filler = filler, .server = &server };
    struct err e = { 0 };
    struct conn *c;
    echo_open(&x, p);
    assert_int_equal(conn_dial_unix(x.l, p->sock, &client, &x, &c, &e), 0);
    x.accepted[0] = c;
    x.n_accepted = 1;
    (void)loop_run(x.l);
    assert_int_equal(x.n_frames, 8);
    assert_int_equal(x.n_closed, 1);
    loop_free(x.l);
}

static void test_pause(void **state)
{
    pause_run(*state, 10); /* all frames in one read */
    pause_run(*state, 0);  /* each frame in many reads */
}

/* An accepted connection that its owner does not take is closed. */
static void accept_nothing(struct conn *c, void *arg)
{
    (void)c;
    ((struct echo *)arg)->n_accepted++;
}

static void test_a_connection_that_is_not_accepted(void **state)
{
    static const struct conn_ops client = { NULL, client_frame, client_closed_stop };
    struct place *p = *state;
    struct echo x = { 0 };
    struct err e = { 0 };
    struct conn *c;
    x.l = new_loop();
    assert_int_equal(listener_open_unix(x.l, p->sock, accept_nothing, &x, &x.s, &e), 0);
    assert_int_equal(conn_dial_unix(x.l, p->sock, &client, &x, &c, &e), 0);
    (void)loop_run(x.l);
    assert_int_equal(x.n_accepted, 1);
    assert_int_equal(x.n_closed, 1);
    loop_free(x.l);
}

/* loop_free() while connections are active: no callback runs, and nothing leaks (the address
 * sanitizer and valgrind check that). */
static void stop_now(void *arg)
{
    loop_stop(((struct echo *)arg)->l);
}

static void test_free_with_all_open(void **state)
{
    struct place *p = *state;
    struct echo x = { .want_closed = 99, .n_steps = 50, .filler = 100000 };
    struct err e = { 0 };
    struct conn *c;
    echo_open(&x, p);
    for (int i = 0; i < 10; i++)
        assert_int_equal(conn_dial_unix(x.l, p->sock, &client_ops, &x, &c, &e), 0);
    struct loop_timer *t = loop_timer_new(x.l, stop_now, &x);
    loop_timer_set(t, clock_mono_ms() + 1);
    (void)loop_run(x.l);
    assert_int_equal(conn_dial_unix(x.l, p->sock, &client_ops, &x, &c, &e), 0);
    assert_int_equal(send_step(c, 1, 10), 0);
    unsigned frames = x.n_frames;
    loop_free(x.l);
    assert_int_equal(x.n_frames, frames);
    assert_int_equal(x.n_closed, 0);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_echo),
        T(test_many_small_frames),
        T(test_large_frames),
        T(test_burst_of_1000),
        T(test_dial_without_a_listener),
        T(test_invalid_frames),
        T(test_frames_sent_before_a_close_arrive),
        T(test_slow_reader),
        T(test_finish),
        T(test_close_in_callbacks),
        T(test_close_before_and_in_open),
        T(test_pause),
        T(test_a_connection_that_is_not_accepted),
        T(test_free_with_all_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
