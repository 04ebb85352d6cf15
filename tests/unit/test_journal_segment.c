/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A journal that is replaced by a snapshot. Whichever call fails, and wherever the process dies:
 * the file holds either the old records or the new ones, and no others.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "journal_world.h"
#include "storage/journal.h"
#include "torture.h"

/* ---- tests: segments ---- */

static void test_a_segment_replaces_the_last(void **state)
{
    (void)state;
    struct journal j;
    struct err e = { 0 };
    fresh(&j);
    add(&j, "a", 1);
    flush(&j, true);
    add(&j, "a", 2); /* not written yet: it belongs to the old segment, and the snapshot has it */
    assert_int_equal(snapshot(&j, 2, &e), 0);
    expect("H4 S5 S6");
    add(&j, "a", 3);
    flush(&j, false);
    expect("H4 S5 S6 E7");
    assert_int_equal(j.first_n, 4);
    journal_close(&j);
    open_it(&j);
    assert_int_equal(j.next_n, 8);
    assert_int_equal(j.first_n, 4);
    add(&j, "a", 4);
    flush(&j, true);
    assert_int_equal(snapshot(&j, 1, &e), 0);
    expect("H9 S10");
    journal_close(&j);
    assert_int_equal(access(beside, F_OK), -1);
}

static void test_the_lock_stays_with_a_new_segment(void **state)
{
    (void)state;
    struct journal a, b;
    struct err e = { 0 };
    fresh(&a);
    add(&a, "a", 1);
    flush(&a, true);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(journal_open(&b, path, &e), -EBUSY);
        assert_int_equal(snapshot(&a, 1, &e), 0);
    }
    assert_int_equal(journal_open(&b, path, &e), -EBUSY);
    journal_close(&a);
    open_it(&b);
    journal_close(&b);
}

/* How often the next calls of flock() find that another process has just begun a new segment. */
static int n_replaced;

/* Replaces the function of the C library. */
int flock(int fd, int operation)
{
    if (n_replaced > 0) {
        n_replaced--;
        AUTO(close_p) int newer = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(newer >= 0);
        assert_int_equal(rename(beside, path), 0);
    }
    return (int)syscall(SYS_flock, fd, operation);
}

/* Another process replaces the file between its opening and its lock. The lock is then that of a
 * file without a name: records that are added to it would be lost. */
static void test_a_segment_begins_while_the_journal_is_opened(void **state)
{
    (void)state;
    struct journal j;
    struct err e = { 0 };
    fresh(&j);
    add(&j, "a", 1);
    flush(&j, true);
    journal_close(&j);
    n_replaced = 1;
    open_it(&j);
    assert_int_equal(n_replaced, 0);
    add(&j, "a", 2);
    flush(&j, true);
    expect("H1 E2"); /* the new file, which was empty, has the record */
    journal_close(&j);
    n_replaced = 100; /* the file is replaced each time: the journal is not opened */
    assert_int_equal(journal_open(&j, path, &e), -EBUSY);
    assert_non_null(strstr(e.msg, "keeps replacing"));
    n_replaced = 0;
}

static void test_invalid_payloads(void **state)
{
    (void)state;
    struct journal j;
    struct err e = { 0 };
    AUTO(buf_done) struct buf large = { 0 };
    fresh(&j);
    add(&j, "a", 1);
    flush(&j, true);
    struct span bad[] = { SPAN("{\"part\":0}"), SPAN("nonsense") };
    assert_int_equal(journal_begin_segment(&j, bad, 2, &e), -EINVAL);
    assert_int_equal(journal_begin_segment(&j, bad, 0, &e), -EINVAL);
    expect("H1 E2");
    assert_int_equal(access(beside, F_OK), -1);
    buf_adds(&large, "{\"x\":\"");
    while (large.len < JOURNAL_PAYLOAD_MAX - 2)
        buf_addc(&large, 'x');
    buf_adds(&large, "\"}");
    struct span two[] = { buf_span(&large), buf_span(&large) };
    assert_int_equal(journal_begin_segment(&j, two, 2, &e), 0);
    expect("H3 S4 S5");
    buf_clear(&large);
    buf_adds(&large, "{\"x\":\"");
    while (large.len < JOURNAL_PAYLOAD_MAX - 1)
        buf_addc(&large, 'x');
    buf_adds(&large, "\"}");
    two[1] = buf_span(&large);
    assert_int_equal(journal_begin_segment(&j, two, 2, &e), -EINVAL);
    expect("H3 S4 S5");
    journal_close(&j);
}

/* Each call fails with each error. The old segment stays in use, and a later attempt succeeds. */
static void test_any_call_fails(void **state)
{
    (void)state;
    static const int errors[] = { ENOSPC, EDQUOT, EIO, EROFS };
    static const enum journal_call calls[] = { JOURNAL_CALL_CREATE_NEW, JOURNAL_CALL_WRITE_NEW,
                                               JOURNAL_CALL_SYNC_NEW, JOURNAL_CALL_RENAME };
    for (size_t c = 0; c < ARRAY_LEN(calls); c++) {
        for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
            struct journal j;
            struct err e = { 0 };
            fresh(&j);
            j.probe = &probe;
            fault = (struct fault){ .call = calls[c], .number = 1, .rc = -errors[i] };
            add(&j, "a", 1);
            assert_int_equal(snapshot(&j, 20, &e), -errors[i]);
            assert_non_null(strstr(e.msg, "cannot begin a new segment"));
            assert_int_equal(fault.count, 1);
            assert_int_equal(access(beside, F_OK), -1);
            expect("H1 E2");
            add(&j, "a", 2);
            flush(&j, true);
            expect("H1 E2 E3");
            assert_int_equal(snapshot(&j, 1, &e), 0);
            expect("H4 S5");
            journal_close(&j);
        }
    }
}

/* In the place of the rename: the files have other names when journal_begin_segment() looks. */
static int move_first(void *arg, enum journal_call call)
{
    static char old[96], new[96];
    const bool *is_lost = arg;
    (void)snprintf(old, sizeof old, "%s/old", dir);
    (void)snprintf(new, sizeof new, "%s/new", dir);
    if (call == JOURNAL_CALL_RENAME && *is_lost)
        assert_int_equal(rename(path, old) | rename(beside, new), 0);
    else if (call == JOURNAL_CALL_RENAME)
        assert_int_equal(rename(beside, path), 0);
    return 0;
}

/* NFS: the server has renamed the file, its answer is lost, and the client's repetition fails. */
static void test_a_rename_fails_and_has_happened(void **state)
{
    (void)state;
    struct journal j;
    struct err e = { 0 };
    bool is_lost = false;
    struct journal_probe moves = { move_first, &is_lost };
    fresh(&j);
    add(&j, "a", 1);
    flush(&j, true);
    j.probe = &moves;
    if (snapshot(&j, 2, &e) != 0)
        fail_msg("%s", e.msg);
    j.probe = NULL;
    expect("H3 S4 S5");
    add(&j, "a", 2);
    flush(&j, true);
    expect("H3 S4 S5 E6");
    journal_close(&j);
}

/* The rename fails, and nobody can say which file has the name: the journal has failed for good,
 * and neither file gets another record. The next process continues the one that has the name. */
static void test_a_rename_with_unknown_result(void **state)
{
    static const char *const has_the_name[] = { "old", "new" };
    static const char *const found[] = { "H1 E2", "H3 S4" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(found); i++) {
        struct journal j;
        struct err e = { 0 };
        bool is_lost = true;
        struct journal_probe moves = { move_first, &is_lost };
        fresh(&j);
        add(&j, "a", 1);
        flush(&j, true);
        j.probe = &moves;
        assert_int_equal(snapshot(&j, 1, &e), -ENOENT);
        assert_non_null(strstr(e.msg, "cannot begin a new segment"));
        AUTO(free_p) char *named = str_printf("%s/%s", dir, has_the_name[i]);
        assert_int_equal(rename(named, path), 0); /* the file system answers again */
        assert_true(journal_add(&j, span_of("{\"e\":\"a\"}")) < 0);
        assert_int_equal(journal_flush(&j, true, &e), -ENOENT);
        assert_int_equal(journal_retry(&j), -ENOENT);
        assert_int_equal(journal_flush(&j, true, &e), -ENOENT);
        expect(found[i]);
        journal_close(&j);
        open_it(&j);
        add(&j, "a", 2);
        flush(&j, true);
        expect(i ? "H3 S4 E5" : "H1 E2 E3");
        journal_close(&j);
    }
}

/* The unfinished file cannot be removed: the next attempt or the next open removes it. */
static void test_the_unfinished_file_stays(void **state)
{
    (void)state;
    struct journal j;
    struct err e = { 0 };
    for (int again = 0; again < 2; again++) {
        fresh(&j);
        j.probe = &probe;
        fault = (struct fault){ .number = 3, .n = 3, .rc = -EIO }; /* the sync and the removal */
        add(&j, "a", 1);
        flush(&j, false);
        fault.count = 0;
        assert_int_equal(snapshot(&j, 1, &e), -EIO);
        assert_int_equal(access(beside, F_OK), 0);
        fault.number = 0;
        if (again)
            assert_int_equal(snapshot(&j, 1, &e), 0);
        journal_close(&j);
        open_it(&j);
        assert_int_equal(access(beside, F_OK), -1);
        expect(again ? "H3 S4" : "H1 E2");
        journal_close(&j);
    }
}

/* If the sync of the directory fails, the next sync of the journal repeats it, and fails with
 * it. */
static void test_a_failed_sync_of_the_directory_is_repeated(void **state)
{
    (void)state;
    struct journal j;
    struct err e = { 0 };
    fresh(&j);
    add(&j, "a", 1);
    flush(&j, true);
    j.probe = &probe;
    fault = (struct fault){ .call = JOURNAL_CALL_SYNC_DIR, .number = 1, .n = 2, .rc = -ENOSPC };
    assert_int_equal(snapshot(&j, 1, &e), 0);
    add(&j, "a", 2);
    flush(&j, false);
    assert_int_equal(journal_flush(&j, true, &e), -ENOSPC);
    assert_int_equal(journal_retry(&j), 0);
    flush(&j, true);
    assert_int_equal(fault.count, 3);
    expect("H3 S4 E5");
    journal_close(&j);
}

/* Without memory at any point: an error, or the new segment. The journal stays usable. */
static int short_of_memory(void *ctx)
{
    static const struct span payloads[] = { SPAN("{\"part\":0}"), SPAN("{\"part\":1}") };
    struct journal j;
    struct err e = { 0 };
    (void)ctx;
    (void)unlink(path);
    int rc = journal_open(&j, path, &e);
    if (rc < 0)
        return rc;
    rc = journal_add(&j, SPAN("{\"e\":\"a\"}"));
    if (rc == 0)
        rc = journal_flush(&j, true, &e);
    if (rc == 0)
        rc = journal_begin_segment(&j, payloads, 2, &e);
    assert_int_equal(j.first_n, rc == 0 ? 3 : 1);
    if (rc < 0 && j.failed == 0) /* the failure has happened: reading gets its memory */
        expect("H1 E2");
    assert_int_equal(access(beside, F_OK), -1);
    journal_close(&j);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    assert_true(torture(short_of_memory, NULL) > 5);
}

/* kill -9 before each call and after the last one: the next open finds the old or the new records,
 * and can append. */
static void test_killed_at_every_call(void **state)
{
    (void)state;
    static const char old[] = "H1 E2 E3", new[] = "H4 S5 S6 S7", more[] = "H4 S5 S6 S7 E8";
    bool over = false, seen_old = false, seen_new = false;
    for (int number = 1; !over; number++) {
        assert_true(number < 50);
        struct journal j;
        (void)unlink(path);
        pid_t pid = fork();
        assert_int_not_equal(pid, -1);
        if (pid == 0) {
            struct err e = { 0 };
            open_it(&j);
            add(&j, "a", 1);
            add(&j, "a", 2);
            flush(&j, true);
            j.probe = &probe;
            fault = (struct fault){ .number = number, .rc = 1 };
            if (snapshot(&j, 3, &e) == 0) {
                add(&j, "a", 3);
                flush(&j, true);
                _exit(0);
            }
            _exit(1);
        }
        int how = 0;
        assert_int_equal(waitpid(pid, &how, 0), pid);
        over = WIFEXITED(how);
        assert_true(over ? WEXITSTATUS(how) == 0 : WTERMSIG(how) == SIGKILL);
        open_it(&j);
        assert_int_equal(access(beside, F_OK), -1);
        struct err e = { 0 };
        const char *got = content(&e);
        assert_non_null(got);
        assert_true(str_eq(got, old) || str_eq(got, new) || str_eq(got, more));
        seen_old |= str_eq(got, old);
        seen_new |= str_eq(got, new);
        uint64_t next = j.next_n;
        add(&j, "b", 1);
        flush(&j, true);
        assert_int_equal(j.next_n, next + 1);
        journal_close(&j);
    }
    assert_true(seen_old && seen_new);
}

/* ---- tests: formats, and missing parts ---- */

static void test_format_1_is_continued(void **state)
{
    (void)state;
    struct journal j = { .fd = -1, .dir_fd = -1, .next_n = 1 };
    struct err e = { 0 };
    add(&j, "old", 1); /* without header_due, as version 0.1.0 wrote it */
    add(&j, "old", 2);
    (void)unlink(path);
    write_text(j.pending.p, j.pending.len);
    journal_close(&j);
    expect("E1 E2");
    open_it(&j);
    assert_int_equal(j.next_n, 3);
    /* The old part has no decisions, so it should be replaced soon. */
    assert_true(journal_wants_segment(&j));
    add(&j, "a", 1);
    flush(&j, true);
    expect("E1 E2 H3 E4");
    journal_close(&j);
    open_it(&j); /* no second header is written */
    assert_true(journal_wants_segment(&j));
    add(&j, "a", 2);
    flush(&j, true);
    expect("E1 E2 H3 E4 E5");
    assert_int_equal(snapshot(&j, 1, &e), 0);
    assert_false(journal_wants_segment(&j));
    expect("H6 S7");
    journal_close(&j);
    open_it(&j);
    assert_false(journal_wants_segment(&j));
    journal_close(&j);
}

/* A file's content, and the error for it. */
static void refused(struct span text, int rc, const char *words)
{
    struct journal j;
    struct err e = { 0 };
    struct stat st;
    write_text(text.p, text.len);
    assert_int_equal(journal_open(&j, path, &e), rc);
    if (!strstr(e.msg, words) || !strstr(e.msg, path))
        fail_msg("expected '%s': %s", words, e.msg);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, text.len); /* the file is unchanged */
}

static void put_line(struct buf *out, uint64_t n, const char *payload)
{
    struct journal j = { .fd = -1, .dir_fd = -1, .next_n = n };
    assert_int_equal(journal_add(&j, span_of(payload)), 0);
    assert_int_equal(buf_add(out, j.pending.p, j.pending.len), 0);
    journal_close(&j);
}

static void test_invalid_segments_are_refused(void **state)
{
    (void)state;
    static const struct {
        int rc;
        const char *words;
        struct {
            uint64_t n;
            const char *payload;
        } lines[5];
    } rows[] = {
        { -EINVAL,
          "has format 3; this tony reads formats 1 to 2",
          { { 1, "{\"e\":\"journal\",\"format\":3,\"other\":[]}" }, { 2, "{\"e\":\"x\"}" } } },
        { -EBADMSG,
          "begins with record 7 and without a snapshot: records 1 to 6 are missing",
          { { 7, "{\"e\":\"journal\",\"format\":2,\"snapshot\":0}" }, { 8, "{\"e\":\"x\"}" } } },
        { -EBADMSG,
          "begins with record 3: records 1 to 2 are missing",
          { { 3, "{\"e\":\"x\"}" } } },
        { -EBADMSG,
          "only 1 of 2 records are there; record 9 is missing",
          { { 7, "{\"e\":\"journal\",\"format\":2,\"snapshot\":2}" }, { 8, "{\"part\":0}" } } },
        { -EBADMSG,
          "records 9 to 11 are missing",
          { { 7, "{\"e\":\"journal\",\"format\":2,\"snapshot\":1}" },
            { 8, "{\"part\":0}" },
            { 12, "{\"e\":\"x\"}" } } },
        { -EBADMSG,
          "record 8 stands where record 9 was expected",
          { { 7, "{\"e\":\"journal\",\"format\":2,\"snapshot\":1}" },
            { 8, "{\"part\":0}" },
            { 8, "{\"e\":\"x\"}" } } },
        { -EBADMSG,
          "record 2 begins a snapshot",
          { { 1, "{\"e\":\"x\"}" }, { 2, "{\"e\":\"journal\",\"format\":2,\"snapshot\":1}" } } },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(buf_done) struct buf text = { 0 };
        for (int k = 0; rows[i].lines[k].n; k++)
            put_line(&text, rows[i].lines[k].n, rows[i].lines[k].payload);
        refused(buf_span(&text), rows[i].rc, rows[i].words);
    }
}

/* A snapshot is complete before its segment is used. So a cut inside it is damage, not a crash. */
static void test_a_snapshot_cut_at_every_byte(void **state)
{
    (void)state;
    struct journal j;
    struct err e = { 0 };
    AUTO(buf_done) struct buf whole = { 0 };
    fresh(&j);
    add(&j, "a", 1);
    assert_int_equal(snapshot(&j, 3, &e), 0);
    int64_t head = j.head_end;
    add(&j, "a", 2);
    flush(&j, true);
    journal_close(&j);
    assert_int_equal(journal_read(path, &whole, &e), 0);
    size_t first = (size_t)((char *)memchr(whole.p, '\n', whole.len) - whole.p) + 1;
    for (size_t cut = first; cut < (size_t)head; cut++)
        refused(span_mem(whole.p, cut), -EBADMSG, "its snapshot is not whole");
    write_text(whole.p, whole.len - 3);
    expect("H3 S4 S5 S6 torn");
}

/* A line of 3 MiB cannot be a record: at the end of the file it is torn, elsewhere it is damage. */
static void test_overlong_lines(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf text = { 0 };
    put_line(&text, 1, "{\"e\":\"x\"}");
    for (int i = 0; i < 3 << 20; i++)
        buf_addc(&text, 'x');
    write_text(text.p, text.len);
    expect("E1 torn");
    buf_addc(&text, '\n');
    write_text(text.p, text.len);
    expect("E1 torn");
    put_line(&text, 3, "{\"e\":\"x\"}");
    refused(buf_span(&text), -EBADMSG, "record 2 (at byte ");
}

/* More than one buffer may hold: 80 MiB, read through a window of 2 MiB. */
static void test_a_long_journal_is_read(void **state)
{
    (void)state;
    struct journal j;
    struct err e = { 0 };
    AUTO(buf_done) struct buf text = { 0 };
    buf_adds(&text, "{\"x\":\"");
    for (int i = 0; i < 1000000; i++)
        buf_addc(&text, 'x');
    buf_adds(&text, "\"}");
    fresh(&j);
    for (int i = 0; i < 80; i++) {
        assert_int_equal(journal_add(&j, buf_span(&text)), 0);
        flush(&j, false);
        assert_true(j.pending.cap <= 2 * JOURNAL_UNSYNCED_MAX + (2 << 20));
    }
    assert_true(j.n_syncs >= 25);
    journal_close(&j);
    struct journal_reader r;
    struct journal_record rec;
    assert_int_equal(journal_reader_open(&r, path, &e), 0);
    while (journal_reader_next(&r, &rec, &e) == 1)
        assert_true(r.window.cap <= 2 << 20);
    assert_int_equal(r.n_read, 81);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(r.end, st.st_size);
    assert_true(st.st_size > 80 * 1000000);
    journal_reader_close(&r);
    (void)unlink(path);
}

/* ---- tests: when a segment is written ---- */

static void test_when(void **state)
{
    (void)state;
    const int64_t mib = 1 << 20;
    struct journal j = { .segment_min = JOURNAL_SEGMENT_MIN, .size = 4 * mib, .head_end = 60 };
    assert_false(journal_wants_segment(&j));
    j.size += 61;
    assert_true(journal_wants_segment(&j));
    journal_put_off_segment(&j); /* after as many bytes again */
    assert_false(journal_wants_segment(&j));
    j.size += 4 * mib + 1;
    assert_true(journal_wants_segment(&j));
    j = (struct journal){ .segment_min = JOURNAL_SEGMENT_MIN,
                          .size = 12 * mib,
                          .head_end = 6 * mib };
    assert_false(journal_wants_segment(&j));
    j.size++;
    assert_true(journal_wants_segment(&j));
}

/* 10,000 tasks report a checkpoint each 5 minutes for 60 days: 150 bytes a record, 500 bytes a task
 * in the snapshot. The file, the unfinished file and the copies in HDFS stay below 64 MiB. The
 * copies (copies.h) are at most the segment, its events once more while files are merged, and the
 * next snapshot. */
static void test_sixty_days(void **state)
{
    (void)state;
    const int64_t snapshot_size = 10000 * 500, burst = 10000 * 150;
    struct journal j = { .segment_min = JOURNAL_SEGMENT_MIN, .head_end = 60, .size = 60 };
    int64_t largest = 0, copies = 0, events = 0, snapshots = 0;
    for (int i = 0; i < 60 * 24 * 12; i++) {
        j.size += burst;
        events += burst;
        largest = MAX(largest, j.size + snapshot_size);
        copies = MAX(copies, j.size + (j.size - j.head_end) + snapshot_size);
        if (!journal_wants_segment(&j))
            continue;
        j.size = j.head_end = snapshot_size;
        snapshots += snapshot_size;
    }
    assert_true(largest + copies < 64 << 20);
    assert_true(snapshots <= events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_segment_replaces_the_last),
        cmocka_unit_test(test_the_lock_stays_with_a_new_segment),
        cmocka_unit_test(test_a_segment_begins_while_the_journal_is_opened),
        cmocka_unit_test(test_invalid_payloads),
        cmocka_unit_test(test_any_call_fails),
        cmocka_unit_test(test_a_rename_fails_and_has_happened),
        cmocka_unit_test(test_a_rename_with_unknown_result),
        cmocka_unit_test(test_the_unfinished_file_stays),
        cmocka_unit_test(test_a_failed_sync_of_the_directory_is_repeated),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_killed_at_every_call),
        cmocka_unit_test(test_format_1_is_continued),
        cmocka_unit_test(test_invalid_segments_are_refused),
        cmocka_unit_test(test_a_snapshot_cut_at_every_byte),
        cmocka_unit_test(test_overlong_lines),
        cmocka_unit_test(test_a_long_journal_is_read),
        cmocka_unit_test(test_when),
        cmocka_unit_test(test_sixty_days),
    };
    return cmocka_run_group_tests_name("journal_segment", tests, setup, teardown);
}
