/* Copies of a journal: how files make one again, and when who waits for them goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/fs.h"
#include "loop/loop.h"
#include "master/copies.h"
#include "storage/journal.h"
#include "torture.h"

/* ---- joining ---- */

static char dir[64];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/tony-copies-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return fs_remove_tree(AT_FDCWD, dir, NULL);
}

/* A journal of the records 1..n that say `who`; borrowed from the caller's buffer. */
static struct span journal_of(struct buf *out, const char *who, int n)
{
    AUTO(free_p) char *path = str_printf("%s/%s-%d", dir, who, n);
    struct journal j;
    assert_int_equal(journal_open(&j, path, NULL, NULL), 0);
    for (int i = 1; i <= n; i++) {
        AUTO(free_p) char *text = str_printf("{\"e\":\"%s%d\"}", who, i);
        assert_int_equal(journal_add(&j, span_of(text)), 0);
    }
    assert_int_equal(journal_flush(&j, false, NULL), 0);
    journal_close(&j);
    buf_clear(out);
    assert_int_equal(journal_read(path, out, NULL), 0);
    return buf_span(out);
}

/* Its records from..to only. */
static struct span part(struct span text, int from, int to)
{
    size_t pos = 0, begin = 0;
    uint64_t n = 1;
    struct span record;
    bool torn;
    while ((int)n <= to) {
        if ((int)n == from)
            begin = pos;
        assert_int_equal(journal_next(text, &pos, &n, &record, &torn, NULL), 1);
    }
    return span_mem(text.p + begin, pos - begin);
}

static void expect(struct copies_text *t, const char *who)
{
    char said[400] = "";
    size_t pos = 0;
    uint64_t n = 1;
    struct span record;
    bool torn = false;
    struct err e = { 0 };
    int rc;
    while ((rc = journal_next(buf_span(&t->text), &pos, &n, &record, &torn, &e)) == 1) {
        const char *at = memmem(record.p, record.len, "\"e\":\"", 5);
        size_t len = strlen(said);
        assert_non_null(at);
        (void)snprintf(said + len, sizeof said - len, "%.2s ", at + 5);
    }
    assert_int_equal(rc, 0);
    assert_false(torn);
    assert_int_equal(t->at.n, n - 1);
    assert_string_equal(said, who);
}

static void joining(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf ba = { 0 }, bb = { 0 };
    struct span a = journal_of(&ba, "a", 6), b = journal_of(&bb, "b", 6);
    struct copies_text t = { 0 };
    log_setup(open("/dev/null", O_WRONLY), LOG_ERROR, false);

    assert_int_equal(copies_join(&t, part(a, 1, 2)), 0);
    assert_int_equal(copies_join(&t, part(a, 3, 3)), 0);
    expect(&t, "a1 a2 a3 ");
    /* what the next master has not seen of the last does not count, however late it came */
    assert_int_equal(copies_join(&t, part(a, 4, 6)), 0);
    assert_int_equal(copies_join(&t, part(b, 4, 5)), 0);
    expect(&t, "a1 a2 a3 b4 b5 ");
    /* all of it in one file */
    assert_int_equal(copies_join(&t, part(a, 1, 6)), 0);
    expect(&t, "a1 a2 a3 a4 a5 a6 ");
    copies_text_done(&t);
}

static void joining_what_is_damaged(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf ba = { 0 }, bb = { 0 };
    struct span a = journal_of(&ba, "a", 6), b = journal_of(&bb, "b", 6);
    struct copies_text t = { 0 };
    log_setup(open("/dev/null", O_WRONLY), LOG_ERROR, false);

    struct span torn = part(a, 1, 3);
    torn.len -= 7;
    assert_int_equal(copies_join(&t, torn), 0);
    expect(&t, "a1 a2 ");
    assert_int_equal(copies_join(&t, part(a, 4, 6)), 0); /* 3 is missing */
    expect(&t, "a1 a2 ");
    assert_int_equal(copies_join(&t, part(b, 3, 4)), 0);
    expect(&t, "a1 a2 b3 b4 ");
    assert_int_equal(copies_join(&t, SPAN("")), 0);
    assert_int_equal(copies_join(&t, SPAN("{\"n\":5")), 0);
    assert_int_equal(copies_join(&t, SPAN("nonsense\n")), 0);
    expect(&t, "a1 a2 b3 b4 ");
    copies_text_done(&t);
}

/* ---- copying, into files of this test ---- */

static struct {
    struct loop *loop;
    struct loop_timer *timer, *end;
    struct strv names;
    struct buf all; /* what was put, one after the other */
    webhdfs_done_fn *done;
    void *arg;
    int fail; /* so many puts */
    bool hang;
    unsigned n_stored;
    struct copies *c;
    bool (*until)(void);
} f;

static int put(void *fs, const char *path, mode_t mode, struct span text, webhdfs_done_fn *done,
               void *arg, struct err *e)
{
    (void)fs;
    (void)e;
    assert_int_equal(mode, 0600);
    assert_null(f.done); /* one at a time */
    assert_int_equal(strv_push(&f.names, path), 0);
    if (!f.fail)
        assert_int_equal(buf_add(&f.all, text.p, text.len), 0);
    f.done = done;
    f.arg = arg;
    if (!f.hang)
        loop_timer_set(f.timer, clock_mono_ms());
    return 0;
}

static void on_timer(void *arg)
{
    const struct webhdfs_result r = { 0 };
    struct err e = { 0 };
    (void)arg;
    webhdfs_done_fn *done = TAKE(f.done);
    if (f.fail && f.fail-- && err_set(&e, EIO, "scripted"))
        done(NULL, &e, f.arg);
    else
        done(&r, &e, f.arg);
}

static void on_stored(void *arg)
{
    (void)arg;
    f.n_stored++;
}

static void on_end(void *arg)
{
    int64_t *by = arg;
    if (f.until())
        loop_stop(f.loop);
    else if (clock_mono_ms() > *by)
        fail_msg("it does not come: %zu files, stored %u times", f.names.n, f.n_stored);
    else
        loop_timer_set(f.end, clock_mono_ms() + 1);
}

static void wait_for(bool (*until)(void))
{
    static int64_t by;
    by = clock_mono_ms() + 20000;
    f.until = until;
    loop_timer_free(f.end);
    f.end = loop_timer_new(f.loop, on_end, &by);
    loop_timer_set(f.end, clock_mono_ms());
    assert_int_equal(loop_run(f.loop), 0);
}

static bool stored(void)
{
    return f.n_stored > 0 && copies_stored(f.c);
}

static bool stored_twice(void)
{
    return f.n_stored > 1 && copies_stored(f.c);
}

static void copying(void **state)
{
    (void)state;
    static const struct archive_files files = { .put = put };
    AUTO(buf_done) struct buf text = { 0 };
    (void)journal_of(&text, "j", 9);
    AUTO(free_p) char *path = str_printf("%s/j-9", dir);
    size_t three = part(buf_span(&text), 1, 3).len, six = part(buf_span(&text), 1, 6).len;
    f.loop = loop_new(NULL);
    f.timer = loop_timer_new(f.loop, on_timer, NULL);
    const struct copies_config cfg = { .loop = f.loop,
                                       .files = &files,
                                       .dir = "/s/journal",
                                       .journal = path,
                                       .epoch = 2,
                                       .on_stored = on_stored };
    assert_int_equal(copies_new(&cfg, &f.c, NULL), 0);
    assert_true(copies_stored(f.c));
    log_setup(open("/dev/null", O_WRONLY), LOG_ERROR, false);

    f.fail = 1; /* the first try: the same name again */
    copies_wrote(f.c, three);
    assert_false(copies_stored(f.c));
    copies_hurry(f.c);
    wait_for(stored);
    copies_wrote(f.c, three); /* nothing new */
    assert_true(copies_stored(f.c));
    copies_wrote(f.c, six - 1);
    copies_wrote(f.c, six);
    wait_for(stored_twice); /* also without hurry */
    assert_int_equal(f.names.n, 3);
    assert_string_equal(f.names.v[0], "/s/journal/0002-00000000");
    assert_string_equal(f.names.v[1], "/s/journal/0002-00000000");
    assert_string_equal(f.names.v[2], "/s/journal/0002-00000001");
    assert_int_equal(f.all.len, six);
    assert_memory_equal(f.all.p, text.p, six);

    f.n_stored = 0; /* a put that never ends holds up nobody for ever */
    f.hang = true;
    copies_wrote(f.c, text.len);
    copies_hurry(f.c);
    assert_false(copies_stored(f.c));
    wait_for(stored);
    copies_stop(f.c);
    assert_int_equal(f.n_stored, 2);
    copies_free(f.c);
    loop_timer_free(f.timer);
    loop_timer_free(f.end);
    loop_free(f.loop);
    strv_done(&f.names);
    buf_done(&f.all);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(joining),
        CASE(joining_what_is_damaged),
        CASE(copying),
    };
    return cmocka_run_group_tests_name("master_copies", tests, NULL, NULL);
}
