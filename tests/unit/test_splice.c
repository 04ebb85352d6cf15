/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that carry bytes, and a splice between two of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "loop/loop.h"
#include "loop/tcp.h"
#include "loop_deadline.h"
#include "proto/tony.pb-c.h"

static const struct tls_key key = { "0123456789abcdef0123456789abcdef", 32 };

enum { PIECE = 50000 };

/* Bytes of a transfer. The buffers of two TCP connections on the loopback interface can take 20
 * MiB. */
static size_t total = 8 << 20;

/* Two clients whose connections the server splices: `from` sends `total` bytes, `to` reads them. */
struct pair {
    struct loop *l;
    struct listener *s;
    struct conn *accepted[2];
    unsigned n_accepted;
    struct splice *splice;
    bool done;
    struct end {
        struct pair *p;
        struct conn *c;
        size_t sent, got;
        bool closed, right;
    } from, to;
    size_t most_queued; /* of the server's connections */
    bool looks;
    struct loop_timer *timer;
    bool stall; /* `to` does not read */
};

static unsigned char byte_at(size_t i)
{
    return (unsigned char)(i * 31 + (i >> 8));
}

static bool key_of(const char *identity, struct tls_key *out, void *arg)
{
    (void)identity;
    (void)arg;
    *out = key;
    return true;
}

static void on_done(struct splice *s, void *arg)
{
    struct pair *p = arg;
    uint64_t ab = 0, ba = 0;
    splice_count(s, &ab, &ba);
    assert_true(ab + ba >= p->to.got);
    p->done = true;
    p->splice = NULL;
    if (p->from.closed || p->to.closed)
        loop_stop(p->l);
}

/* The frame that a client sends first. What follows in the same read are bytes of the stream. */
static void on_server_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct pair *p = arg;
    static const struct conn_ops paused = { 0 };
    assert_int_equal(f->body_case, TONY__FRAME__BODY_OPEN_STREAM);
    p->accepted[p->n_accepted++] = c;
    conn_set_arg(c, &paused, NULL);
    if (p->n_accepted == 2)
        p->splice = splice_new(p->l, p->accepted[0], p->accepted[1], on_done, p);
}

static void on_server_close(struct conn *c, const struct err *e, void *arg)
{
    (void)c;
    (void)arg;
    fail_msg("%s", e->msg);
}

static const struct conn_ops server_ops = { .on_frame = on_server_frame,
                                            .on_close = on_server_close };

static void on_accept(struct conn *c, void *arg)
{
    conn_set_arg(c, &server_ops, arg);
}

static void send_more(struct end *x)
{
    char bytes[PIECE];
    while (x->sent < total && conn_queued(x->c) < SPLICE_QUEUE_MAX) {
        size_t n = MIN((size_t)PIECE, total - x->sent);
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)byte_at(x->sent + i);
        assert_int_equal(conn_write(x->c, bytes, n), 0);
        x->sent += n;
    }
}

static void on_bytes(struct conn *c, const char *b, size_t n, void *arg)
{
    struct end *x = arg;
    for (size_t i = 0; i < n; i++)
        x->right = x->right && (unsigned char)b[i] == byte_at(x->got + i);
    x->got += n;
    if (x->got == total) {
        conn_close(c);
        x->closed = true;
        x->c = NULL;
        if (x->p->done)
            loop_stop(x->p->l);
    }
}

static void on_drain(struct conn *c, void *arg)
{
    struct end *x = arg;
    (void)c;
    if (x == &x->p->from)
        send_more(x);
}

static void on_close(struct conn *c, const struct err *e, void *arg)
{
    struct end *x = arg;
    (void)c;
    (void)e;
    x->closed = true;
    x->c = NULL;
    if (x->p->done)
        loop_stop(x->p->l);
}

static const struct conn_raw_ops end_ops = { on_bytes, on_drain, on_close };

static void say_open(struct conn *c)
{
    Tony__OpenStream o = TONY__OPEN_STREAM__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_OPEN_STREAM;
    f.open_stream = &o;
    assert_int_equal(conn_send(c, &f), 0);
}

static void dial(struct pair *p, struct end *x, bool tls, const char *path)
{
    static const struct conn_ops none = { 0 };
    *x = (struct end){ .p = p, .right = true };
    if (tls) {
        const struct conn_target to = {
            .host = "127.0.0.1", .port = listener_port(p->s), .identity = "x", .key = &key
        };
        assert_int_equal(conn_dial_tls(p->l, &to, &none, NULL, &x->c, NULL), 0);
    } else {
        assert_int_equal(conn_dial_unix(p->l, path, &none, NULL, &x->c, NULL), 0);
    }
    say_open(x->c);
    conn_set_raw(x->c, &end_ops, x);
}

static void open_pair(struct pair *p, bool tls)
{
    char path[64];
    struct err e = { 0 };
    (void)snprintf(path, sizeof path, "/tmp/tony-test-splice-%d", (int)getpid());
    p->l = new_loop();
    int rc = tls ? listener_open_tls(p->l, "127.0.0.1", 0, key_of, on_accept, p, &p->s, &e)
                 : listener_open_unix(p->l, path, on_accept, p, &p->s, &e);
    if (rc < 0)
        fail_msg("%s", e.msg);
    dial(p, &p->from, tls, path);
    dial(p, &p->to, tls, path);
}

static void close_pair(struct pair *p)
{
    splice_close(p->splice);
    conn_close(p->from.c);
    conn_close(p->to.c);
    loop_timer_free(p->timer);
    listener_close(p->s);
    loop_free(p->l);
}

static void pass(bool tls)
{
    struct pair p = { 0 };
    open_pair(&p, tls);
    send_more(&p.from);
    (void)loop_run(p.l);
    assert_int_equal(p.to.got, total);
    assert_true(p.to.right);
    assert_true(p.done); /* the end of one side has ended the other */
    close_pair(&p);
}

static void bytes_pass_a_splice(void **state)
{
    (void)state;
    pass(false);
}

static void bytes_pass_a_splice_with_tls(void **state)
{
    (void)state;
    pass(true);
}

/* ---- a side that does not read ---- */

static void on_look(void *arg)
{
    struct pair *p = arg;
    size_t queued = 0;
    /* looks: both connections live; a splice frees one whose peer has died */
    for (unsigned i = 0; i < p->n_accepted && p->looks; i++)
        queued += conn_queued(p->accepted[i]);
    p->most_queued = MAX(p->most_queued, queued);
    loop_stop(p->l);
}

static void run_for(struct pair *p, int ms)
{
    if (!p->timer)
        p->timer = loop_timer_new(p->l, on_look, p);
    loop_timer_set(p->timer, clock_mono_ms() + ms);
    (void)loop_run(p->l);
}

static void stall(bool tls)
{
    struct pair p = { .looks = true };
    total = tls ? 48 << 20 : 8 << 20;
    open_pair(&p, tls);
    conn_pause(p.to.c, true);
    while (p.n_accepted < 2)
        run_for(&p, 10);
    send_more(&p.from);
    for (size_t before = SIZE_MAX; before != p.from.sent;) { /* until nothing moves any more */
        before = p.from.sent;
        run_for(&p, 300);
    }
    assert_true(p.from.sent < total);
    assert_true(p.most_queued > SPLICE_QUEUE_MAX / 2);
    assert_true(p.most_queued < SPLICE_QUEUE_MAX + (512 << 10));
    /* it continues where it was */
    p.looks = false;
    conn_pause(p.to.c, false);
    (void)loop_run(p.l);
    assert_int_equal(p.to.got, total);
    assert_true(p.to.right);
    close_pair(&p);
    total = 8 << 20;
}

static void a_side_that_does_not_read_stops_the_other(void **state)
{
    (void)state;
    stall(false);
}

static void a_side_that_does_not_read_stops_the_other_with_tls(void **state)
{
    (void)state;
    stall(true);
}

/* The sender waits for a stalled reader, so its end cannot be read. It is noticed nevertheless. */
static void a_sender_that_dies_while_it_waits_is_noticed(void **state)
{
    struct pair p = { 0 };
    (void)state;
    open_pair(&p, false);
    conn_pause(p.to.c, true);
    while (p.n_accepted < 2)
        run_for(&p, 10);
    send_more(&p.from);
    run_for(&p, 300);
    conn_close(TAKE(p.from.c));
    p.from.closed = true;
    run_for(&p, 1500);
    conn_pause(p.to.c, false);
    while (!p.to.closed)
        run_for(&p, 50);
    assert_true(p.to.got > 0 && p.to.got < total);
    assert_true(p.to.right);
    assert_true(p.done);
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_pass_a_splice),
        cmocka_unit_test(bytes_pass_a_splice_with_tls),
        cmocka_unit_test(a_side_that_does_not_read_stops_the_other),
        cmocka_unit_test(a_side_that_does_not_read_stops_the_other_with_tls),
        cmocka_unit_test(a_sender_that_dies_while_it_waits_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
