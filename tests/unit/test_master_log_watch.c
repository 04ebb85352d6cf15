/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The master passes on what tasks write: which tasks, in which pace, and with clients that do not
 * read. The test is the client and the executors at the other ends of the connections. Nothing of
 * the master but log_watch.c works here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "conf/conf.h"
#include "conf/load.h"
#include "job/job.h"
#include "loop/loop.h"
#include "loop/loop_int.h"
#include "loop_deadline.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"

enum { NUMBER = 5, SLOTS_MAX = 1024, SLOW_BYTES = 8 << 20 };

/* One connection: the peer of the master, and what the other end has received. */
struct end {
    struct peer peer;
    struct conn *other; /* NULL = it does not read: fd is its socket */
    int fd;
    /* TailLogs */
    unsigned n_tails, n_places;
    uint32_t id, interval_ms, piece_max;
    uint64_t window;
    bool lossy;
    int64_t place; /* offset of the last place */
    /* MoreLogs */
    unsigned n_more, n_ends;
    uint64_t more;
    /* LogPiece */
    unsigned n_pieces;
    uint32_t slot, attempt, number;
    int64_t offset;
    uint64_t left_bytes, left_lines, bytes;
    char task[64], text[64];
};

static struct {
    struct master m;
    struct conf *conf;
    struct end client, executors[SLOTS_MAX];
    struct loop_timer *timer;
    bool (*until)(void);
} w;

/* ---- the other ends ---- */

static void take_tail(struct end *x, const Tony__TailLogs *a)
{
    x->n_tails++;
    x->id = a->number;
    x->interval_ms = a->interval_ms;
    x->piece_max = a->piece_max;
    x->window = a->window;
    x->lossy = a->lossy;
    x->n_places = (unsigned)a->n_places;
    for (size_t i = 0; i < a->n_places; i++)
        x->place = a->places[i]->offset;
}

static void take_piece(struct end *x, const Tony__LogPiece *p)
{
    x->n_pieces++;
    x->number = p->number;
    x->slot = p->slot;
    x->attempt = p->attempt;
    x->offset = p->offset;
    x->bytes += p->data.len;
    x->left_bytes += p->left_out_bytes;
    x->left_lines += p->left_out_lines;
    (void)str_copy(x->task, sizeof x->task, p->task);
    (void)snprintf(x->text, sizeof x->text, "%.*s", (int)p->data.len, (const char *)p->data.data);
}

static void on_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct end *x = arg;
    (void)c;
    if (f->body_case == TONY__FRAME__BODY_TAIL_LOGS) {
        take_tail(x, f->tail_logs);
    } else if (f->body_case == TONY__FRAME__BODY_MORE_LOGS) {
        x->n_more += !f->more_logs->end;
        x->n_ends += f->more_logs->end ? 1 : 0;
        x->more += f->more_logs->bytes;
    } else if (f->body_case == TONY__FRAME__BODY_LOG_PIECE) {
        take_piece(x, f->log_piece);
    } else {
        fail_msg("message %d", (int)f->body_case);
    }
}

static void on_close(struct conn *c, const struct err *e, void *arg)
{
    (void)c;
    (void)arg;
    fail_msg("a connection ended: %s", e->msg);
}

static const struct conn_ops ops = { .on_frame = on_frame, .on_close = on_close };

static void read_other(struct end *x)
{
    x->other = conn_adopt(w.m.loop, x->fd, NULL);
    assert_non_null(x->other);
    conn_set_arg(x->other, &ops, x);
}

static void connect_end(struct end *x, bool reads)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    x->peer.m = &w.m;
    x->peer.conn = conn_adopt(w.m.loop, fds[0], NULL);
    assert_non_null(x->peer.conn);
    conn_set_arg(x->peer.conn, &ops, x);
    x->fd = fds[1];
    if (reads)
        read_other(x);
}

static void on_timer(void *arg)
{
    (void)arg;
    if (w.until())
        loop_stop(w.m.loop);
    else
        loop_timer_set(w.timer, clock_mono_ms() + 1);
}

static void run_until(bool (*until)(void))
{
    w.until = until;
    loop_timer_set(w.timer, clock_mono_ms());
    assert_int_equal(loop_run(w.m.loop), 0); /* new_loop() has set a deadline */
}

/* ---- the job ---- */

static void begin(const char *roles)
{
    struct err e = { 0 };
    AUTO(free_p) char *text = str_printf("command: 'true'\nroles: {%s}\n", roles);
    memset(&w, 0, sizeof w);
    w.m.loop = new_loop();
    w.timer = loop_timer_new(w.m.loop, on_timer, NULL);
    w.conf = conf_new();
    if (conf_load_text(w.conf, CL_JOB, "job.yaml", span_of(text), false, &e) < 0 ||
        job_spec_build(w.conf, &w.m.spec, &e) < 0 || !(w.m.job = job_new(w.m.spec, &e)))
        fail_msg("%s", e.msg);
    w.m.n_slots = job_n_slots(w.m.job);
    assert_true(w.m.n_slots <= SLOTS_MAX);
    w.m.executors = calloc(w.m.n_slots, sizeof *w.m.executors);
    assert_non_null(w.m.executors);
    connect_end(&w.client, true);
}

static void connect_executor(uint32_t slot)
{
    struct end *x = &w.executors[slot];
    connect_end(x, true);
    x->peer.slot = slot;
    w.m.executors[slot] = &x->peer;
}

static void connect_all(void)
{
    for (uint32_t i = 0; i < w.m.n_slots; i++)
        connect_executor(i);
}

static void close_end(struct end *x)
{
    conn_close(x->peer.conn);
    if (x->other)
        conn_close(x->other);
    else if (x->fd > 0)
        close(x->fd);
    memset(x, 0, sizeof *x);
}

static int finish(void **state)
{
    (void)state;
    log_watch_client_gone(&w.client.peer);
    close_end(&w.client);
    for (uint32_t i = 0; i < w.m.n_slots; i++)
        close_end(&w.executors[i]);
    vec_done(&w.m.log_watches);
    free(w.m.executors);
    job_free(w.m.job);
    job_spec_free(w.m.spec);
    conf_free(w.conf);
    loop_timer_free(w.timer);
    loop_free(w.m.loop);
    return 0;
}

static Tony__WatchLogs wish(int which)
{
    Tony__WatchLogs a = TONY__WATCH_LOGS__INIT;
    a.number = NUMBER;
    a.which = (Tony__WatchLogs__Which)which;
    a.want_stdout = true;
    return a;
}

static void watch(const Tony__WatchLogs *a)
{
    log_watch_begin(&w.client.peer, a);
}

/* The executor of a slot sends text. */
static void send_text(uint32_t slot, uint32_t attempt, int64_t offset, const char *text, size_t len)
{
    Tony__LogPiece p = TONY__LOG_PIECE__INIT;
    p.number = w.m.last_log_watch;
    p.slot = slot;
    p.attempt = attempt;
    p.offset = offset;
    p.data = (ProtobufCBinaryData){ .len = len, .data = (uint8_t *)(uintptr_t)text };
    log_watch_piece(&w.executors[slot].peer, &p);
}

/* ---- which tasks ---- */

static unsigned n_expected;

static unsigned count_tails(void)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < w.m.n_slots; i++)
        n += w.executors[i].n_tails;
    return n;
}

static bool all_are_asked(void)
{
    return count_tails() >= n_expected;
}

static void which_tasks_are_watched(void **state)
{
    static const struct {
        const char *roles;
        int which;
        const char *role; /* CHOSEN */
        int index;        /* -1 = all of the role */
        const char *want; /* "x" for each slot that is asked */
    } rows[] = {
        { "worker: {instances: 3}", TONY__WATCH_LOGS__WHICH__ALL, NULL, 0, "xxx" },
        { "worker: {instances: 4}", TONY__WATCH_LOGS__WHICH__AUTO, NULL, 0, "xxxx" },
        { "worker: {instances: 5}", TONY__WATCH_LOGS__WHICH__AUTO, NULL, 0, "x...." },
        { "ps: {instances: 3}, chief: {instances: 1}, worker: {instances: 2}",
          TONY__WATCH_LOGS__WHICH__AUTO, NULL, 0, "chief" },
        { "ps: {instances: 1}, chief: {instances: 1}", TONY__WATCH_LOGS__WHICH__CHIEF, NULL, 0,
          "chief" },
        { "ps: {instances: 2}, worker: {instances: 2}", TONY__WATCH_LOGS__WHICH__CHOSEN, "worker",
          -1, "worker" },
        { "worker: {instances: 3}", TONY__WATCH_LOGS__WHICH__CHOSEN, "worker", 1, ".x." },
        { "worker: {instances: 3}", TONY__WATCH_LOGS__WHICH__CHOSEN, "nobody", -1, "..." },
    };
    (void)state;
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        Tony__LogChoice choice = TONY__LOG_CHOICE__INIT, *list[] = { &choice };
        begin(rows[r].roles);
        connect_all();
        Tony__WatchLogs a = wish(rows[r].which);
        choice.role = (char *)(uintptr_t)rows[r].role;
        choice.one = rows[r].index >= 0;
        choice.index = rows[r].index > 0 ? (uint32_t)rows[r].index : 0;
        a.chosen = list;
        a.n_chosen = rows[r].role ? 1 : 0;
        n_expected = 0;
        bool by_role = rows[r].want[0] != 'x' && rows[r].want[0] != '.';
        for (uint32_t i = 0; i < w.m.n_slots; i++) {
            struct slot_view v;
            job_slot(w.m.job, i, &v);
            n_expected += by_role ? str_eq(v.role, rows[r].want) : rows[r].want[i] == 'x';
        }
        watch(&a);
        run_until(all_are_asked);
        for (uint32_t i = 0; i < w.m.n_slots; i++) {
            struct slot_view v;
            job_slot(w.m.job, i, &v);
            bool want = by_role ? str_eq(v.role, rows[r].want) : rows[r].want[i] == 'x';
            if (w.executors[i].n_tails != want)
                fail_msg("row %zu, slot %u: asked %u times", r, i, w.executors[i].n_tails);
        }
        (void)finish(NULL);
    }
    begin("worker: {instances: 1}"); /* for the teardown */
}

/* ---- the pace ---- */

static void many_tasks_send_less_often(void **state)
{
    static const struct {
        unsigned n;
        bool lossy;
        uint32_t interval_ms, piece_max;
        uint64_t window;
    } rows[] = {
        { 2, false, 100, 64 << 10, 256 << 10 },
        { 2, true, 100, 16 << 10, 256 << 10 },
        { 100, true, 200, 4 << 10, 83886 },
        { 1000, false, 2000, 64 << 10, 16 << 10 },
    };
    (void)state;
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        AUTO(free_p) char *roles = str_printf("worker: {instances: %u}", rows[r].n);
        begin(roles);
        connect_executor(1);
        Tony__WatchLogs a = wish(TONY__WATCH_LOGS__WHICH__ALL);
        a.lossy = rows[r].lossy;
        watch(&a);
        n_expected = 1;
        run_until(all_are_asked);
        const struct end *x = &w.executors[1];
        assert_int_equal(x->interval_ms, rows[r].interval_ms);
        assert_int_equal(x->piece_max, rows[r].piece_max);
        assert_int_equal(x->window, rows[r].window);
        assert_int_equal(x->lossy, rows[r].lossy);
        (void)finish(NULL);
    }
    begin("worker: {instances: 1}");
}

/* ---- text ---- */

static bool piece_came(void)
{
    return w.client.n_pieces > 0;
}

static void text_is_passed_on(void **state)
{
    (void)state;
    begin("ps: {instances: 1}, worker: {instances: 2}");
    connect_all();
    Tony__WatchLogs a = wish(TONY__WATCH_LOGS__WHICH__ALL);
    watch(&a);
    uint32_t slot = job_task(w.m.job, 1, 1);
    send_text(slot, 2, 40, "hello\n", 6);
    run_until(piece_came);
    assert_int_equal(w.client.number, NUMBER);
    assert_int_equal(w.client.slot, slot);
    assert_string_equal(w.client.task, "worker:1");
    assert_string_equal(w.client.text, "hello\n");
    assert_int_equal(w.client.offset, 40);
    assert_int_equal(w.client.attempt, 2);
}

static bool more_came(void)
{
    return w.executors[0].n_more > 0;
}

static void a_window_is_given_back_when_half_is_used(void **state)
{
    static char text[64 << 10];
    (void)state;
    begin("worker: {instances: 2}");
    connect_all();
    Tony__WatchLogs a = wish(TONY__WATCH_LOGS__WHICH__ALL);
    watch(&a); /* 256 KiB for each of two tasks */
    send_text(0, 1, 0, text, sizeof text);
    send_text(1, 1, 0, text, 10);
    run_until(piece_came);
    assert_int_equal(w.executors[0].n_more, 0);
    send_text(0, 1, sizeof text, text, sizeof text);
    run_until(more_came);
    assert_int_equal(w.executors[0].more, 2 * sizeof text);
    assert_int_equal(w.executors[1].n_more, 0);
}

/* ---- connections that end ---- */

static bool asked_again(void)
{
    return w.executors[0].n_tails >= n_expected;
}

static void another_executor_continues_behind_the_text(void **state)
{
    (void)state;
    begin("worker: {instances: 1}");
    connect_all();
    Tony__WatchLogs a = wish(TONY__WATCH_LOGS__WHICH__ALL);
    watch(&a);
    n_expected = 1;
    run_until(asked_again);
    assert_int_equal(w.executors[0].n_places, 0);
    send_text(0, 1, 0, "first attempt\n", 14);
    send_text(0, 2, 0, "second\n", 7);
    log_watch_executor(&w.m, 0); /* it has connected again */
    n_expected = 2;
    run_until(asked_again);
    assert_int_equal(w.executors[0].n_places, 1); /* that of the first attempt is not needed */
    assert_int_equal(w.executors[0].place, 7);
}

/* A client whose connection broke asks again, with the places that it has reached. */
static void a_client_continues(void **state)
{
    Tony__LogPlace place = TONY__LOG_PLACE__INIT, *list[] = { &place };
    (void)state;
    begin("worker: {instances: 1}");
    connect_all();
    Tony__WatchLogs a = wish(TONY__WATCH_LOGS__WHICH__ALL);
    place.attempt = 3;
    place.offset = 99;
    a.places = list;
    a.n_places = 1;
    watch(&a);
    n_expected = 1;
    run_until(asked_again);
    assert_int_equal(w.executors[0].n_places, 1);
    assert_int_equal(w.executors[0].place, 99);
}

static bool end_came(void)
{
    return w.executors[0].n_ends == 1 && w.executors[1].n_ends == 1;
}

static void executors_are_told_that_the_client_has_gone(void **state)
{
    (void)state;
    begin("worker: {instances: 2}");
    connect_all();
    Tony__WatchLogs a = wish(TONY__WATCH_LOGS__WHICH__ALL);
    watch(&a);
    log_watch_client_gone(&w.client.peer);
    run_until(end_came);
    assert_int_equal(w.m.log_watches.n, 0);
    send_text(0, 1, 0, "late\n", 5); /* was under way */
    assert_int_equal(conn_queued(w.client.peer.conn), 0);
}

static void too_many_watches_are_refused(void **state)
{
    (void)state;
    begin("worker: {instances: 1}");
    connect_all();
    Tony__WatchLogs a = wish(TONY__WATCH_LOGS__WHICH__ALL);
    for (int i = 0; i < 70; i++)
        watch(&a);
    assert_int_equal(w.m.log_watches.n, 64);
}

/* ---- a client that does not read ---- */

static char much[64 << 10];

/* Replace the client by one that does not read, and fill its queue. Returns the bytes that the
 * master has passed on or left out. */
static uint64_t fill_slow_client(bool lossy)
{
    close_end(&w.client);
    connect_end(&w.client, false);
    Tony__WatchLogs a = wish(TONY__WATCH_LOGS__WHICH__ALL);
    a.lossy = lossy;
    watch(&a);
    memset(much, 'x', sizeof much);
    much[sizeof much - 1] = '\n';
    uint64_t sent = 0;
    for (; sent < SLOW_BYTES; sent += sizeof much)
        send_text(0, 1, (int64_t)sent, much, sizeof much);
    return sent;
}

static uint64_t n_sent;

static bool all_is_read(void)
{
    return conn_queued(w.client.peer.conn) == 0 && w.client.n_pieces > 0 &&
           w.client.bytes + w.client.left_bytes >= n_sent;
}

static bool queue_is_empty(void)
{
    return conn_queued(w.client.peer.conn) == 0;
}

static void text_for_a_slow_reader_is_left_out_and_counted(void **state)
{
    (void)state;
    begin("worker: {instances: 1}");
    connect_all();
    n_sent = fill_slow_client(true);
    assert_true(conn_queued(w.client.peer.conn) < (2 << 20)); /* of 8 MiB */
    read_other(&w.client);
    run_until(queue_is_empty);
    send_text(0, 1, (int64_t)n_sent, "end\n", 4);
    n_sent += 4;
    run_until(all_is_read);
    assert_string_equal(w.client.text, "end\n");
    assert_int_equal(w.client.bytes + w.client.left_bytes, n_sent);
    assert_true(w.client.left_lines > 0);
    assert_int_equal(w.client.left_lines * sizeof much, w.client.left_bytes);
}

static bool window_came(void)
{
    return w.executors[0].more >= n_sent;
}

static void a_slow_reader_of_all_text_stops_the_executor(void **state)
{
    (void)state;
    begin("worker: {instances: 1}");
    connect_all();
    n_sent = fill_slow_client(false);
    n_expected = 1;
    run_until(asked_again);
    uint64_t given = w.executors[0].more;
    assert_true(given < n_sent); /* the window is not given back before the client reads */
    read_other(&w.client);
    run_until(all_is_read);
    assert_int_equal(w.client.left_bytes, 0);
    run_until(window_came);
    assert_int_equal(w.executors[0].more, n_sent);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, finish)
    const struct CMUnitTest tests[] = {
        TEST(which_tasks_are_watched),
        TEST(many_tasks_send_less_often),
        TEST(text_is_passed_on),
        TEST(a_window_is_given_back_when_half_is_used),
        TEST(another_executor_continues_behind_the_text),
        TEST(a_client_continues),
        TEST(executors_are_told_that_the_client_has_gone),
        TEST(too_many_watches_are_refused),
        TEST(text_for_a_slow_reader_is_left_out_and_counted),
        TEST(a_slow_reader_of_all_text_stops_the_executor),
    };
#undef TEST
    log_setup(STDERR_FILENO, LOG_ERROR, false); /* a refused watch is a warning */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
