/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of a journal. The tests count the files and the bytes that are put. The next master finds
 * each record that was stored, wherever the last one died, or an error that says what is missing.
 * The files are in the memory of this test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/fs.h"
#include "copies_world.h"
#include "loop/loop.h"
#include "master/copies.h"
#include "storage/journal.h"
#include "torture.h"

/* ---- tests: the plan ---- */

/* n bursts of one byte: at most COPIES_TAILS files, and as many bytes as copies.h says. */
static void the_plan(void **state)
{
    (void)state;
    static const struct {
        unsigned n, most;
        double mean;
    } rows[] = { { 50, 3, 2.6 }, { 1500, 9, 7.5 }, { 26000, 17, 14.5 } };
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        unsigned ranks[COPIES_TAILS], sizes[COPIES_TAILS + 1], n_files = 0;
        uint64_t put_all = 0;
        unsigned *times = calloc(rows[r].n, sizeof *times), begin[COPIES_TAILS + 1], most = 0;
        copies_plan_begin(ranks);
        for (unsigned i = 0; i < rows[r].n; i++) {
            unsigned merged = copies_plan(ranks), size = 1, from = i;
            assert_true(merged <= n_files);
            for (unsigned k = 0; k < merged; k++) {
                size += sizes[--n_files];
                from = begin[n_files];
            }
            begin[n_files] = from;
            sizes[n_files++] = size;
            assert_true(n_files <= COPIES_TAILS);
            put_all += size;
            for (unsigned k = from; k <= i; k++)
                times[k]++;
        }
        for (unsigned i = 0; i < rows[r].n; i++)
            most = MAX(most, times[i]);
        free(times);
        if (most > rows[r].most || (double)put_all / rows[r].n > rows[r].mean)
            fail_msg("%u bursts: at most %u times, %.2f on average", rows[r].n, most,
                     (double)put_all / rows[r].n);
        print_message("# %u bursts: a byte is put %.2f times on average, %u times at most\n",
                      rows[r].n, (double)put_all / rows[r].n, most);
    }
}

/* ---- tests: putting ---- */

static struct sim *it;

static bool stored(void)
{
    return it->n_on_stored > 0 && copies_stored(it->c);
}

/* Bursts of 2 records: the files, the bytes, and the records that the next master finds. */
static void many_bursts(void **state)
{
    (void)state;
    enum { BURSTS = 1500 };
    it = sim_open(1);
    for (int i = 0; i < BURSTS; i++) {
        it->n_on_stored = 0;
        sim_add(it, 2);
        copies_hurry(it->c);
        assert_false(copies_stored(it->c));
        run_until(stored);
        assert_true(f.files.n <= 8);
    }
    double times = (double)f.bytes_put / (double)it->j.size;
    if (times > 8)
        fail_msg("each byte was put %.2f times", times);
    print_message(
        "%d bursts: %zu puts, %zu removals, at most %zu files, each byte put %.2f times\n", BURSTS,
        f.n_puts, f.n_removes, f.most_files, times);
    assert_int_equal(f.n_puts, BURSTS);
    assert_true(f.most_files <= 1 + COPIES_TAILS + 1);
    size_t n = it->events.len;
    sim_close(it);
    fetch(2);
    assert_int_equal(got.why.num, 0);
    it = sim_open(2);
    assert_int_equal(it->events.len, n);
    sim_close(it);
}

/* A segment is copied as a new set. The older set is removed only after the new set's base is
 * stored. */
static void a_new_segment(void **state)
{
    (void)state;
    it = sim_open(3);
    for (int i = 0; i < 4; i++) {
        sim_add(it, 3);
        run_ops(9);
    }
    assert_int_equal(f.files.n, 4);
    assert_non_null(find("/s/journal/0003-000000000001-000000000001-000000000004"));
    sim_segment(it);
    assert_true(copies_stored(it->c)); /* the older set has all events */
    f.hang = 1;
    run_ops(1);
    assert_int_equal(f.files.n, 4);
    f.hang = 0;
    loop_timer_set(f.timer, clock_mono_ms());
    run_ops(9);
    assert_int_equal(f.files.n, 1);
    assert_string_equal(f.files.v[0].path,
                        "/s/journal/0003-000000000014-000000000014-000000000016");
    sim_add(it, 1);
    run_ops(9);
    sim_close(it);
    fetch(4);
    assert_int_equal(got.why.num, 0);
    it = sim_open(4);
    assert_int_equal(it->events.len, 13);
    run_ops(99); /* the base of the new set is stored, then the old files are removed */
    assert_int_equal(f.files.n, 1);
    assert_string_equal(f.files.v[0].path,
                        "/s/journal/0004-000000000014-000000000014-000000000017");
    sim_close(it);
}

/* A new segment begins while the directory is listed, which the base of the older set has caused.
 * The older set stays, because the base of the new one is not stored yet. */
static void a_new_segment_during_a_listing(void **state)
{
    (void)state;
    const char *older = "/s/journal/0001-000000000001-000000000001-000000000004";
    it = sim_open(1);
    f.hang_at_list = true;
    sim_add(it, 3);
    run_ops(9);
    assert_int_equal(f.hang, 1);
    assert_non_null(find(older));
    sim_segment(it);
    f.fail_puts = UINT_MAX;
    f.hang = 0;
    loop_timer_set(f.timer, clock_mono_ms());
    run_ops(5);
    assert_int_equal(f.n_removes, 0);
    assert_non_null(find(older));
    f.fail_puts = 0;
    run_ops(99);
    assert_int_equal(f.files.n, 1);
    assert_null(find(older));
    sim_close(it);
}

/* Which records an older set has, while the newest file or set is not stored yet: a task may start
 * if the grant of its container is among them. */
static void the_last_record_that_is_stored(void **state)
{
    (void)state;
    it = sim_open(1);
    sim_add(it, 3);
    run_ops(9);
    assert_int_equal(copies_stored_n(it->c), UINT64_MAX);
    f.hang = 1;
    sim_add(it, 1);
    run_ops(1);
    assert_false(copies_stored(it->c));
    assert_int_equal(copies_stored_n(it->c), 4); /* the header, and three events */
    sim_segment(it);
    assert_false(copies_stored(it->c));
    assert_int_equal(copies_stored_n(it->c), 4);
    f.hang = 0;
    loop_timer_set(f.timer, clock_mono_ms());
    run_ops(9);
    assert_int_equal(copies_stored_n(it->c), UINT64_MAX);
    sim_close(it);
    fetch(2);
    assert_int_equal(got.why.num, 0);
    it = sim_open(2);
    uint64_t last_n = it->j.next_n - 1;
    assert_int_equal(copies_stored_n(it->c), UINT64_MAX);
    f.hang = 1;
    sim_add(it, 1);
    run_ops(1);
    assert_int_equal(copies_stored_n(it->c), last_n); /* this master has read them */
    f.hang = 0;
    loop_timer_set(f.timer, clock_mono_ms());
    run_ops(9);
    sim_close(it);
}

/* Masters die in the middle of operations, and segments change: there are never more than 8
 * files. */
static void at_most_eight_files(void **state)
{
    (void)state;
    f.seed = 7;
    for (uint32_t epoch = 1; epoch < 40; epoch++) {
        fetch(epoch);
        assert_int_equal(got.why.num, 0);
        it = sim_open(epoch);
        unsigned n = 20 + dice(30);
        for (unsigned i = 0; i < n; i++) {
            sim_add(it, 1);
            if (i % 17 == 16)
                sim_segment(it);
            run_ops(i + 1 < n ? 99 : dice(3));
        }
        sim_close(it);
    }
    print_message("# 39 masters: at most %zu files at once\n", f.most_files);
    assert_true(f.most_files <= 8);
}

/* If files cannot be removed, the master tries again, and goes on copying. */
static void removing_fails(void **state)
{
    (void)state;
    it = sim_open(1);
    f.fail_removes = 1;
    for (int i = 0; i < 12; i++) {
        it->n_on_stored = 0;
        sim_add(it, 1);
        run_until(stored);
    }
    run_ops(99);
    assert_true(f.files.n > 8);
    f.fail_removes = 0;
    sim_add(it, 1);
    run_ops(99);
    assert_true(f.files.n <= 1 + COPIES_TAILS);
    sim_close(it);
}

static bool has_begun_again(void)
{
    return f.n_begun == 2;
}

/* The operations that have begun complete, and those that follow. */
static void end_hang(void)
{
    f.hang = 0;
    it->n_on_stored = 0;
    loop_timer_set(f.timer, clock_mono_ms());
}

/* After a failure the master waits for the pause, and then writes the same file again: HDFS may
 * have a part of it under that name. Newer records go into the next file. The caller of
 * copies_hurry() gives up after patience_ms: its callback runs once, and the pause does not become
 * shorter. */
static void a_failed_put_is_repeated_after_a_pause(void **state)
{
    (void)state;
    sim_times.retry_ms = 200;
    sim_times.patience_ms = 50;
    it = sim_open(1);
    f.fail_puts = 1;
    sim_add(it, 3);
    run_ops(1);
    int64_t first_ms = f.last_put_ms;
    AUTO(free_p) char *path = str_dup(f.last_put);
    assert_int_equal(f.n_begun, 1);
    sim_add(it, 2);
    copies_hurry(it->c);
    f.hang = 1;
    run_until(has_begun_again);
    assert_int_equal(it->n_on_stored, 1);
    assert_string_equal(f.last_put, path);
    assert_true(f.last_put_ms - first_ms >= sim_times.retry_ms);
    end_hang();
    run_until(stored);
    assert_int_equal(f.n_begun, 3);
    assert_string_equal(f.last_put, "/s/journal/0001-000000000001-000000000005-000000000006");
    size_t n = it->events.len;
    sim_close(it);
    fetch(2);
    assert_int_equal(got.why.num, 0);
    it = sim_open(2);
    assert_int_equal(it->events.len, n);
    sim_close(it);
}

/* If a put never ends, it blocks the job only for a time: the master reports that once. When the
 * put has ended nevertheless, the next action waits for its copy again. */
static void a_put_that_never_ends_does_not_block_the_job(void **state)
{
    (void)state;
    sim_times.patience_ms = 50;
    it = sim_open(1);
    int64_t begin_ms = clock_mono_ms();
    f.hang = 1;
    sim_add(it, 1);
    copies_hurry(it->c);
    assert_false(copies_stored(it->c));
    run_until(stored);
    assert_true(clock_mono_ms() - begin_ms >= sim_times.patience_ms);
    assert_int_equal(copies_stored_n(it->c), UINT64_MAX);
    run_ops(1); /* some turns of the loop in which nothing ends */
    assert_int_equal(it->n_on_stored, 1);

    end_hang();
    run_until(stored);
    assert_int_equal(it->n_on_stored, 1);
    f.hang = 1;
    sim_add(it, 1);
    copies_hurry(it->c);
    assert_false(copies_stored(it->c));
    run_until(stored); /* the patience is over again */
    assert_int_equal(it->n_on_stored, 2);
    copies_stop(it->c);
    assert_int_equal(it->n_on_stored, 3);
    sim_close(it);
}

/* ---- tests: collecting records ---- */

static bool has_put(void)
{
    return f.n_begun > 0;
}

static bool add_until_put(void)
{
    if (!has_put())
        sim_add(it, 1);
    return has_put();
}

/* The records of delay_ms go into one file. Records that keep coming do not postpone it. */
static void records_are_collected(void **state)
{
    (void)state;
    sim_times.delay_ms = 150;
    it = sim_open(1);
    int64_t begin_ms = clock_mono_ms();
    f.hang = 1;
    run_until(add_until_put);
    assert_true(f.last_put_ms - begin_ms >= sim_times.delay_ms);
    end_hang();
    run_until(stored);
    assert_true(f.n_begun <= 2);
    assert_true(it->events.len > 2);

    f.n_begun = 0;
    begin_ms = clock_mono_ms();
    sim_segment(it); /* records for its base are collected, too */
    run_until(has_put);
    assert_true(f.last_put_ms - begin_ms >= sim_times.delay_ms);
    sim_close(it);
}

/* If an action waits, nothing is collected, not even for the base of a new segment. */
static void an_action_that_waits_ends_the_collecting(void **state)
{
    (void)state;
    sim_times.delay_ms = sim_times.patience_ms = 3600 * 1000;
    it = sim_open(1);
    sim_add(it, 1);
    run_ops(1); /* nothing happens */
    assert_int_equal(f.n_begun, 0);
    copies_hurry(it->c);
    sim_segment(it);
    run_until(stored);
    assert_int_equal(f.n_begun, 1);
    run_ops(9);
    it->n_on_stored = 0;
    sim_add(it, 1);
    copies_hurry(it->c);
    run_until(stored);
    assert_int_equal(f.n_begun, 2);
    sim_close(it);
}

/* ---- tests: random deaths ---- */

/* Facts about the masters so far: the events of each, and how many were reported as stored. */
static struct {
    struct buf events;
    size_t n_begun, n_stored;
    bool any_stored;
} past[EPOCHS_MAX];

static void note(struct sim *s)
{
    sim_look(s);
    buf_clear(&past[s->epoch].events);
    assert_int_equal(buf_add(&past[s->epoch].events, s->events.p, s->events.len), 0);
    past[s->epoch].n_stored = s->n_stored;
    past[s->epoch].any_stored = s->n_stored > 0;
}

/* Are these the first events of a master that no later master has replaced? */
static bool is_right(const struct buf *events, uint32_t epoch)
{
    for (uint32_t i = epoch - 1; i > 0; i--) {
        if (events->len <= past[i].events.len && events->len >= past[i].n_stored &&
            events->len >= past[i].n_begun &&
            memcmp(buf_cstr(events), buf_cstr(&past[i].events), events->len) == 0)
            return true;
        if (past[i].any_stored)
            return false;
    }
    return events->len == 0;
}

static void random_ends(void **state)
{
    (void)state;
    const char *rounds = getenv("TONY_TEST_ROUNDS");
    for (unsigned seed = 1; seed <= (rounds ? (unsigned)strtoul(rounds, NULL, 10) : 6); seed++) {
        struct sim *live = NULL, *zombie = NULL;
        uint32_t epoch = 0;
        f.seed = seed;
        memset(past, 0, sizeof past);
        while (f.files.n)
            file_remove(f.files.v[0].path);
        for (int step = 0; step < 400 && epoch + 1 < EPOCHS_MAX; step++) {
            /* Its base is not stored yet: the master often dies at this moment. */
            bool fragile = !live;
            if (!live) {
                epoch++;
                f.faults = 0;
                fetch(epoch);
                if (got.why.num)
                    fail_msg("seed %u, step %d, epoch %u: %s", seed, step, epoch, got.why.msg);
                live = sim_open(epoch);
                if (!is_right(&live->events, epoch))
                    fail_msg("seed %u, step %d: epoch %u found %zu events: %s", seed, step, epoch,
                             live->events.len, buf_cstr(&live->events));
                past[epoch].n_begun = live->events.len;
                f.faults = dice(2) ? 4 : 0;
            }
            unsigned what = dice(12);
            if (what < 6)
                sim_add(live, 1 + dice(4));
            else if (what == 6)
                sim_segment(live);
            else if (what == 7 && zombie)
                sim_add(zombie, 1 + dice(4));
            else if (what == 8 && zombie && dice(3) == 0)
                sim_segment(zombie);
            fragile |= what == 6;
            run_ops(dice(fragile ? 2 : 5));
            note(live);
            if (zombie)
                note(zombie);
            if (what == 9 && zombie)
                sim_close(TAKE(zombie));
            if (what == 10 || (fragile && dice(3) == 0))
                sim_close(TAKE(live));
            else if (what == 11 && !zombie)
                zombie = TAKE(live);
        }
        f.faults = 0;
        if (live)
            sim_close(live);
        if (zombie)
            sim_close(zombie);
        for (uint32_t i = 0; i < EPOCHS_MAX; i++)
            buf_done(&past[i].events);
        (void)fs_remove_tree(AT_FDCWD, dir, NULL);
        assert_int_equal(mkdir(dir, 0700), 0);
    }
}

/* ---- tests: missing files ---- */

/* Files that a master of epoch 2 left: a base with events 1..4, and further files. */
static void make_set(void)
{
    it = sim_open(2);
    sim_add(it, 3);
    run_ops(9);
    for (int i = 0; i < 4; i++) {
        sim_add(it, 2);
        run_ops(9);
    }
    sim_close(it);
    assert_int_equal(f.files.n, 5);
}

static void expect_error(const char *words)
{
    static uint32_t epoch = 100;
    fetch(++epoch);
    assert_int_equal(got.why.num, EBADMSG);
    assert_int_equal(got.found.size, 0);
    if (!strstr(got.why.msg, words))
        fail_msg("expected '%s': %s", words, got.why.msg);
}

static void expect_events(size_t n)
{
    static uint32_t epoch = 200;
    fetch(++epoch);
    if (got.why.num)
        fail_msg("%s", got.why.msg);
    it = sim_open(epoch);
    assert_int_equal(it->events.len, n);
    sim_close(it);
}

#define NAME(first, last) "/s/journal/0002-000000000001-0000000000" first "-0000000000" last

static void what_is_missing(void **state)
{
    (void)state;
    make_set();
    file_remove(NAME("07", "08"));
    expect_error("records 7 to 8 are missing before '0002-000000000001-000000000009-000000000010'");
    file_remove(NAME("09", "10"));
    expect_error("records 7 to 10 are missing");
    file_remove(NAME("01", "04"));
    expect_error("records 1 to 4 are missing before");
}

static void damaged_copies_are_named(void **state)
{
    (void)state;
    make_set();
    struct buf *mid = &find(NAME("07", "08"))->text, *last = &find(NAME("11", "12"))->text;
    mid->p[20] ^= 4;
    expect_error("copy '0002-000000000001-000000000007-000000000008'");
    mid->p[20] ^= 4;
    mid->p[mid->len - 20] ^= 4; /* in its last record */
    expect_error("'0002-000000000001-000000000007-000000000008' is cut short");
    mid->p[mid->len - 20] ^= 4;
    expect_events(11);
    last->len -= 5; /* the file that was being put */
    expect_events(10);
    last->len = 0;
    expect_events(9);
}

static int short_of_memory(void *ctx)
{
    struct copies_piece v[8];
    struct buf text = { .max = SIZE_MAX / 4 };
    struct err e = { 0 };
    int rc = 0;
    (void)ctx;
    for (size_t i = 0; i < f.files.n; i++) {
        assert_int_equal(copies_parse_name(strrchr(f.files.v[i].path, '/') + 1, &v[i]), 0);
        v[i].name = f.files.v[i].path;
        v[i].text = f.files.v[i].text;
    }
    rc = copies_assemble(COPIES_JOURNAL, v, f.files.n, &text, &e);
    assert_true(rc == 1 || rc == -ENOMEM);
    buf_done(&text);
    return rc == 1 ? 0 : rc;
}

static void no_memory(void **state)
{
    (void)state;
    make_set();
    assert_true(torture(short_of_memory, NULL) > 0);
}

/* The last two tails are merged into one file. */
static void merge_tails(void)
{
    struct file *a = &f.files.v[f.files.n - 2], *b = a + 1;
    struct copies_piece x, y;
    char path[128];
    assert_int_equal(copies_parse_name(strrchr(a->path, '/') + 1, &x), 0);
    assert_int_equal(copies_parse_name(strrchr(b->path, '/') + 1, &y), 0);
    assert_int_equal(x.last + 1, y.first);
    (void)snprintf(path, sizeof path, "/s/journal/%04u-%012u-%012u-%012u", x.epoch,
                   (unsigned)x.segment, (unsigned)x.first, (unsigned)y.last);
    AUTO(buf_done) struct buf text = { .max = SIZE_MAX / 4 };
    assert_int_equal(buf_add(&text, a->text.p, a->text.len), 0);
    assert_int_equal(buf_add(&text, b->text.p, b->text.len), 0);
    file_remove(b->path);
    file_remove(f.files.v[f.files.n - 1].path);
    file_put(path, buf_span(&text));
}

/* The master before is still alive: between the listing and the reading it merges files. */
static void files_are_merged_while_they_are_read(void **state)
{
    (void)state;
    make_set();
    f.after_list = merge_tails;
    expect_events(11);
    assert_null(f.after_list);
    assert_int_equal(f.files.n, 4);
}

/* The directory also has files that no master wrote. They are neither read nor removed. */
static void other_files(void **state)
{
    (void)state;
    make_set();
    file_put("/s/journal/0001-00000000", SPAN("of an older tony"));
    file_put("/s/journal/README", SPAN("of somebody"));
    expect_events(11);
    it = sim_open(3);
    sim_add(it, 1);
    run_ops(99);
    assert_non_null(find("/s/journal/README"));
    assert_non_null(find("/s/journal/0001-00000000"));
    assert_int_equal(f.files.n, 3);
    sim_close(it);
}

static void no_copies(void **state)
{
    (void)state;
    fetch(2);
    assert_int_equal(got.why.num, 0);
    assert_int_equal(got.found.size, 0);
    file_put("/s/journal/0001-000000000001-000000000001-000000000004", SPAN("{\"n\":"));
    fetch(2); /* the first put of the first master */
    assert_int_equal(got.why.num, 0);
    assert_int_equal(got.found.size, 0);
    file_put("/s/journal/0001-000000000009-000000000009-000000000014", SPAN("{\"n\":"));
    file_remove("/s/journal/0001-000000000001-000000000001-000000000004");
    expect_error("'0001-000000000009-000000000009-000000000014' is cut short");
}

/* The first master died while it put its base: the records in it are used, and the log names the
 * file. */
static void an_incomplete_base_is_used(void **state)
{
    char log[256];
    (void)state;
    make_set();
    for (int i = 0; i < 4; i++)
        file_remove(f.files.v[1].path);
    assert_non_null(find(NAME("01", "04")));
    find(NAME("01", "04"))->text.len -= 5;
    (void)snprintf(log, sizeof log, "%s/log", dir);
    int fd = open(log, O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600);
    log_setup(fd, LOG_WARN, false);
    fetch(3);
    log_setup(-1, LOG_ERROR, false);
    close(fd);
    AUTO(buf_done) struct buf text = { .max = SIZE_MAX / 4 };
    assert_int_equal(fs_read(AT_FDCWD, log, &text, NULL), 0);
    assert_int_equal(got.why.num, 0);
    assert_true(got.found.size > 0);
    if (!strstr(buf_cstr(&text), "journal.copy_unfinished") ||
        !strstr(buf_cstr(&text), "0002-000000000001-000000000001-000000000004") ||
        !strstr(buf_cstr(&text), "last=3"))
        fail_msg("%s", buf_cstr(&text));
}

static void names(void **state)
{
#define REST "-000000000001-000000000001-000000000004"
    static const struct {
        const char *name;
        int rc;
        uint32_t epoch;
    } rows[] = {
        { "0001" REST, 0, 1 },
        { "9999" REST, 0, 9999 },
        { "10000" REST, 0, 10000 },
        { "4294967295" REST, 0, UINT32_MAX },
        { "4294967296" REST, -EINVAL, 0 },
        { "99999999999999999999" REST, -EINVAL, 0 },
        { "00010" REST, -EINVAL, 0 },
        { "001" REST, -EINVAL, 0 },
        { REST, -EINVAL, 0 },
        { "1000x" REST, -EINVAL, 0 },
        { "10000", -EINVAL, 0 },
    };
#undef REST
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct copies_piece p = { 0 };
        int rc = copies_parse_name(rows[i].name, &p);
        if (rc != rows[i].rc || p.epoch != rows[i].epoch)
            fail_msg("%s: %d, epoch %u", rows[i].name, rc, p.epoch);
    }
}

/* The set of epoch 10000 counts, and that of epoch 9999 is removed, although its file names sort
 * after those of the newer set. */
static void more_than_9999_masters(void **state)
{
    (void)state;
    for (uint32_t epoch = 9999; epoch <= 10001; epoch++) {
        fetch(epoch);
        assert_int_equal(got.why.num, 0);
        it = sim_open(epoch);
        assert_int_equal(it->events.len, 2 * (epoch - 9999));
        sim_add(it, 2);
        run_ops(epoch == 10000 ? 1 : 99); /* this master dies before it removes the older set */
        sim_close(it);
    }
    assert_int_equal(f.files.n, 1);
    assert_non_null(strstr(f.files.v[0].path, "/10001-"));
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(the_plan),
        CASE(many_bursts),
        CASE(a_new_segment),
        CASE(a_new_segment_during_a_listing),
        CASE(the_last_record_that_is_stored),
        CASE(at_most_eight_files),
        CASE(removing_fails),
        CASE(a_failed_put_is_repeated_after_a_pause),
        CASE(a_put_that_never_ends_does_not_block_the_job),
        CASE(records_are_collected),
        CASE(an_action_that_waits_ends_the_collecting),
        CASE(random_ends),
        CASE(what_is_missing),
        CASE(damaged_copies_are_named),
        CASE(files_are_merged_while_they_are_read),
        CASE(other_files),
        CASE(no_copies),
        CASE(no_memory),
        CASE(an_incomplete_base_is_used),
        CASE(names),
        CASE(more_than_9999_masters),
    };
    return cmocka_run_group_tests_name("master_copies", tests, NULL, NULL);
}
