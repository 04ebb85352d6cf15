/* SPDX-License-Identifier: Apache-2.0 */
/* The executor sends what its task writes: windows, lossy watches, places, attempts. The test is
 * the master at the other end of the connection, and writes the log files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "executor/executor_int.h"
#include "executor/log_watch.h"

enum { NUMBER = 7, SLOT = 3, PLENTY = 1 << 20 };

static struct {
    char dir[64];
    struct executor x;
    struct executor_config cfg;
    Tony__Welcome role;
    struct link master;
    /* of the pieces since the last clear_pieces() */
    struct buf out, err;
    unsigned n_pieces, n_ends;
    uint64_t left_bytes, left_lines;
    int64_t offset; /* of the last one */
    uint32_t attempt, rank, file;
    size_t longest;
} w;

static int setup(void **state)
{
    int ends[2];
    (void)state;
    memset(&w, 0, sizeof w);
    (void)snprintf(w.dir, sizeof w.dir, "/tmp/tony-watch-XXXXXX");
    if (!mkdtemp(w.dir) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends))
        return -1;
    tony__welcome__init(&w.role);
    w.role.log_dir = w.dir;
    w.role.role = (char *)(uintptr_t) "worker";
    w.role.ranks = 1;
    w.cfg = (struct executor_config){ .slot = SLOT, .keeper = getpid() };
    w.x.cfg = &w.cfg;
    w.x.role = &w.role;
    w.x.greeted = true;
    w.x.a.state = ATTEMPT_RUNNING;
    w.x.a.number = 1;
    w.x.link.fd = ends[0];
    w.master.fd = ends[1];
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    log_watches_clear(&w.x);
    vec_done(&w.x.watches.v);
    link_close(&w.x.link);
    link_close(&w.master);
    buf_done(&w.out);
    buf_done(&w.err);
    return fs_remove_tree(AT_FDCWD, w.dir, NULL);
}

/* ---- the task ---- */

static void write_log(uint32_t attempt, const char *name, const char *text, int flags)
{
    AUTO(free_p) char *dir = str_printf("%s/worker-0/%u", w.dir, attempt);
    AUTO(free_p) char *path = str_printf("%s/%s", dir, name);
    assert_int_equal(fs_mkdirs(dir, 0700, NULL), 0);
    AUTO(close_p) int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fs_write_all(fd, text, strlen(text)), 0);
}

static void put(const char *text)
{
    write_log(1, "stdout", text, O_APPEND);
}

/* ---- the master ---- */

static void clear_pieces(void)
{
    buf_clear(&w.out);
    buf_clear(&w.err);
    w.n_pieces = w.n_ends = 0;
    w.left_bytes = w.left_lines = 0;
    w.longest = 0;
}

static void take_piece(const Tony__LogPiece *p)
{
    struct buf *to = p->is_stderr ? &w.err : &w.out;
    assert_int_equal(p->number, NUMBER);
    assert_int_equal(p->slot, SLOT);
    w.attempt = p->attempt;
    if (p->end) {
        w.n_ends++;
        return;
    }
    assert_int_equal(buf_add(to, p->data.data, p->data.len), 0);
    w.n_pieces++;
    w.left_bytes += p->left_out_bytes;
    w.left_lines += p->left_out_lines;
    w.offset = p->offset;
    w.rank = p->rank;
    w.file = p->file;
    w.longest = MAX(w.longest, p->data.len);
}

static void receive(void)
{
    const Tony__Frame *f;
    struct err e = { 0 };
    assert_int_equal(link_fill(&w.master), 0);
    while (link_next(&w.master, &f, &e) == 1) {
        assert_int_equal(f->body_case, TONY__FRAME__BODY_LOG_PIECE);
        take_piece(f->log_piece);
    }
}

static Tony__TailLogs wish(bool lossy, uint64_t window)
{
    Tony__TailLogs a = TONY__TAIL_LOGS__INIT;
    a.number = NUMBER;
    a.want_stdout = a.want_stderr = true;
    a.lossy = lossy;
    a.interval_ms = 100;
    a.piece_max = 512;
    a.window = window;
    return a;
}

static void ask(const Tony__TailLogs *a)
{
    log_watches_ask(&w.x, a);
    receive();
}

static void more(uint64_t bytes, bool end)
{
    Tony__MoreLogs m = TONY__MORE_LOGS__INIT;
    m.number = NUMBER;
    m.bytes = bytes;
    m.end = end;
    log_watches_more(&w.x, &m);
}

/* The executor looks as often as it wants to, until nothing is due before the next interval. */
static void look(void)
{
    int64_t now = log_watches_deadline(&w.x);
    assert_true(now != INT64_MAX);
    for (int i = 0; i < 1000 && log_watches_deadline(&w.x) <= now + 5; i++) {
        log_watches_tick(&w.x, MAX(now, log_watches_deadline(&w.x)));
        receive();
    }
}

static void assert_out(const char *text)
{
    assert_string_equal(buf_cstr(&w.out), text);
}

/* ---- all text ---- */

static void text_comes_once_and_in_order(void **state)
{
    (void)state;
    put("one\ntwo\n");
    Tony__TailLogs a = wish(false, PLENTY);
    ask(&a);
    assert_out("one\ntwo\n");
    look();
    assert_int_equal(w.n_pieces, 1); /* nothing new, no message */
    put("thr");
    write_log(1, "stderr", "bad\n", O_APPEND); /* the file did not exist before */
    look();
    assert_out("one\ntwo\nthr");
    assert_string_equal(buf_cstr(&w.err), "bad\n");
    put("ee\n");
    look();
    assert_out("one\ntwo\nthree\n");
    assert_int_equal(w.offset, 11);
}

static void a_window_is_kept(void **state)
{
    (void)state;
    put("0123456789abcdef");
    Tony__TailLogs a = wish(false, 10);
    ask(&a);
    assert_out("0123456789");
    look();
    assert_out("0123456789");
    more(4, false);
    look();
    assert_out("0123456789abcd");
    more(PLENTY, false);
    look();
    assert_out("0123456789abcdef");
    more(0, true);
    assert_int_equal(log_watches_deadline(&w.x), INT64_MAX);
    assert_int_equal(w.x.watches.v.n, 0);
}

static void pieces_have_a_limit(void **state)
{
    char text[2001];
    (void)state;
    memset(text, 'x', sizeof text);
    text[2000] = '\0';
    put(text);
    Tony__TailLogs a = wish(false, PLENTY);
    ask(&a);
    look();
    assert_int_equal(w.longest, 512);
    assert_int_equal(w.n_pieces, 4);
    assert_out(text);
}

static void only_what_is_wanted(void **state)
{
    (void)state;
    put("out\n");
    write_log(1, "stderr", "err\n", O_APPEND);
    write_log(1, "stdout.1", "out of rank 1\n", O_APPEND);
    Tony__TailLogs a = wish(false, PLENTY);
    a.want_stderr = false;
    w.role.ranks = 2;
    a.one_rank = true;
    a.rank = 1;
    ask(&a);
    assert_out("out of rank 1\n");
    assert_int_equal(w.rank, 1);
    assert_string_equal(buf_cstr(&w.err), "");
}

/* ---- where it begins ---- */

static void the_last_lines(void **state)
{
    static const struct {
        const char *text;
        uint64_t lines;
        const char *want;
    } rows[] = {
        { "a\nb\nc\n", 2, "b\nc\n" }, { "a\nb\nc", 2, "b\nc" }, { "a\nb\n", 5, "a\nb\n" },
        { "a\nb\n", 0, "" },          { "\n\n\n", 2, "\n\n" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        clear_pieces();
        write_log(1, "stdout", rows[i].text, O_TRUNC);
        Tony__TailLogs a = wish(false, PLENTY);
        a.has_lines = true;
        a.lines = rows[i].lines;
        ask(&a);
        assert_out(rows[i].want);
    }
}

/* A client, or a master, that has seen a part of the text goes on behind it. */
static void a_place_is_continued(void **state)
{
    (void)state;
    put("seen\nnew\n");
    Tony__LogPlace place = TONY__LOG_PLACE__INIT, *list[] = { &place };
    place.slot = SLOT;
    place.attempt = 1;
    place.offset = 5;
    Tony__TailLogs a = wish(false, PLENTY);
    a.has_lines = true; /* a place counts more */
    a.lines = 0;
    a.places = list;
    a.n_places = 1;
    ask(&a);
    assert_out("new\n");
    assert_int_equal(w.offset, 5);
}

static void a_truncated_log_begins_again(void **state)
{
    (void)state;
    put("before\n");
    Tony__TailLogs a = wish(false, PLENTY);
    ask(&a);
    clear_pieces();
    write_log(1, "stdout", "now\n", O_TRUNC);
    look();
    assert_out("now\n");
    assert_int_equal(w.offset, 0);
}

/* The new text is longer than the old one: only the text tells. */
static void a_truncated_log_that_has_grown_again(void **state)
{
    (void)state;
    put("before\n");
    Tony__TailLogs a = wish(false, PLENTY);
    ask(&a);
    clear_pieces();
    write_log(1, "stdout", "after the truncation\n", O_TRUNC);
    look();
    assert_out("after the truncation\n");
    assert_int_equal(w.file, 1);
    put("and more\n");
    look();
    assert_out("after the truncation\nand more\n");
}

static void rename_log(const char *to)
{
    AUTO(free_p) char *from = str_printf("%s/worker-0/1/stdout", w.dir);
    AUTO(free_p) char *path = str_printf("%s/worker-0/1/%s", w.dir, to);
    assert_int_equal(rename(from, path), 0);
}

/* As look(), a second later. */
static void look_later(void)
{
    for (size_t i = 0; i < w.x.watches.v.v[0].logs.n; i++)
        w.x.watches.v.v[0].logs.v[i].looked_ms = INT64_MIN / 2;
    look();
}

static void a_renamed_log_is_read_on(void **state)
{
    (void)state;
    put("one\n");
    Tony__TailLogs a = wish(false, PLENTY);
    ask(&a);
    rename_log("stdout.1");
    look_later();
    write_log(1, "stdout", "", O_APPEND); /* made by logrotate; the program does not use it yet */
    write_log(1, "stdout.1", "two\n", O_APPEND);
    look_later();
    write_log(1, "stdout.1", "three\n", O_APPEND);
    put("four\n"); /* it has opened its log again */
    look_later();
    look();
    assert_out("one\ntwo\nthree\nfour\n");
    assert_int_equal(w.offset, 0);
    assert_int_equal(w.file, 1);
    rename_log("stdout.2");
    put("five\n");
    w.x.a.state = ATTEMPT_NONE;
    log_watches_end(&w.x);
    receive();
    assert_out("one\ntwo\nthree\nfour\nfive\n");
    assert_int_equal(w.n_ends, 1);
}

static void a_lossy_watch_of_a_renamed_log(void **state)
{
    (void)state;
    put("one\n");
    Tony__TailLogs a = wish(true, PLENTY);
    ask(&a);
    put("two without an end");
    look();
    rename_log("stdout.1");
    put("three\n");
    look_later();
    assert_out("one\ntwo without an endthree\n");
}

/* ---- attempts ---- */

static void the_next_attempt_is_sent_whole(void **state)
{
    (void)state;
    put("old\n");
    Tony__TailLogs a = wish(false, PLENTY);
    a.has_lines = true;
    a.lines = 0;
    ask(&a);
    assert_out("");
    put("rest of the first\n");
    w.x.a.number = 2;
    write_log(2, "stdout", "second\n", O_APPEND);
    log_watches_begin(&w.x);
    look();
    look();
    assert_out("rest of the first\nsecond\n");
    assert_int_equal(w.attempt, 2);
}

static void the_end_is_sent_after_the_text(void **state)
{
    (void)state;
    for (int lossy = 0; lossy < 2; lossy++) {
        clear_pieces();
        write_log(1, "stdout", "line\nno end", O_TRUNC);
        Tony__TailLogs a = wish(lossy, PLENTY);
        w.x.a.state = ATTEMPT_RUNNING;
        ask(&a);
        assert_out(lossy ? "line\n" : "line\nno end"); /* a lossy watch gets whole lines */
        assert_int_equal(w.n_ends, 0);
        w.x.a.state = ATTEMPT_ENDED;
        log_watches_end(&w.x);
        receive();
        assert_out("line\nno end");
        assert_int_equal(w.n_ends, 1);
    }
}

/* ---- a lossy watch ---- */

static unsigned count_lines(const struct buf *b)
{
    unsigned n = 0;
    for (size_t i = 0; i < b->len; i++)
        n += b->p[i] == '\n';
    return n;
}

static void too_much_text_is_left_out_and_counted(void **state)
{
    AUTO(buf_done) struct buf text = { .max = 1 << 20 };
    (void)state;
    Tony__TailLogs a = wish(true, PLENTY);
    ask(&a);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(buf_addf(&text, "line %u of the task\n", i), 0);
    put(buf_cstr(&text));
    look();
    assert_int_equal(w.n_pieces, 1);
    assert_true(w.out.len <= 512 && w.out.len > 400);
    assert_true(str_ends(buf_cstr(&w.out), "\nline 999 of the task\n"));
    assert_int_equal(strncmp(buf_cstr(&w.out), "line ", 5), 0); /* it begins with a whole line */
    assert_int_equal(w.left_bytes + w.out.len, text.len);
    assert_int_equal(w.left_lines + count_lines(&w.out), 1000);
    clear_pieces();
    put("half");
    look();
    assert_int_equal(w.n_pieces, 0);
    put(" a line\r"); /* a progress bar */
    look();
    assert_out("half a line\r");
}

/* The client does not read: the window is used up, and the newest text comes when it reads again.
 */
static void a_slow_reader_gets_the_newest_text(void **state)
{
    (void)state;
    put("first\n");
    Tony__TailLogs a = wish(true, 6);
    ask(&a);
    assert_out("first\n");
    for (unsigned i = 0; i < 100; i++)
        put("in between\n");
    look();
    assert_out("first\n");
    put("newest\n");
    more(PLENTY, false);
    look();
    assert_true(str_ends(buf_cstr(&w.out), "\nnewest\n"));
    assert_int_equal(w.left_bytes + w.out.len, 6 + 100 * 11 + 7);
    assert_int_equal(w.left_lines + count_lines(&w.out), 102);
}

/* ---- the connection ---- */

static void nothing_is_sent_without_a_master(void **state)
{
    (void)state;
    Tony__TailLogs a = wish(false, PLENTY);
    ask(&a);
    put("text\n");
    w.x.greeted = false;
    assert_int_equal(log_watches_deadline(&w.x), INT64_MAX);
    log_watches_tick(&w.x, INT64_MAX - 1000);
    log_watches_end(&w.x);
    receive();
    assert_int_equal(w.n_pieces, 0);
    log_watches_clear(&w.x); /* the next master asks again */
    w.x.greeted = true;
    ask(&a);
    assert_out("text\n");
}

static void an_ask_replaces_the_one_before(void **state)
{
    (void)state;
    put("text\n");
    Tony__TailLogs a = wish(false, 2);
    ask(&a);
    assert_out("te");
    a.window = PLENTY;
    ask(&a);
    assert_out("tetext\n");
    assert_int_equal(w.x.watches.v.n, 1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(text_comes_once_and_in_order),
        TEST(a_window_is_kept),
        TEST(pieces_have_a_limit),
        TEST(only_what_is_wanted),
        TEST(the_last_lines),
        TEST(a_place_is_continued),
        TEST(a_truncated_log_begins_again),
        TEST(a_truncated_log_that_has_grown_again),
        TEST(a_renamed_log_is_read_on),
        TEST(a_lossy_watch_of_a_renamed_log),
        TEST(the_next_attempt_is_sent_whole),
        TEST(the_end_is_sent_after_the_text),
        TEST(too_much_text_is_left_out_and_counted),
        TEST(a_slow_reader_gets_the_newest_text),
        TEST(nothing_is_sent_without_a_master),
        TEST(an_ask_replaces_the_one_before),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
