/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal's framing and file. Written records are read back. A crash at any byte loses only the
 * torn last line. Damage before the end is an error with its line number. A failed write keeps the
 * valid part.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "storage/crc32c.h"
#include "storage/journal.h"

static char dir[64], path[96];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/tony-journal-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof path, "%s/journal", dir);
    log_setup(-1, LOG_ERROR, false);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return fs_remove_tree(AT_FDCWD, dir, NULL);
}

static void write_text(const char *p, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_not_equal(fd, -1);
    assert_int_equal(fs_write_all(fd, p, len), 0);
    close(fd);
}

static off_t file_size(void)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static const char *const payloads[] = {
    "{\"e\":\"SUBMITTED\",\"t\":0}",
    "{}",
    "{\"e\":\"X\",\"text\":\"with \\n and \\\",\\\"c\\\":\\\"00000000\\\" in it\"}",
    "{\"e\":\"ATTEMPT_ENDED\",\"slot\":3,\"code\":137}",
};

/* The text of n records, as the journal writes it. */
static void make_text(size_t n, struct buf *out)
{
    struct journal j;
    struct err e = { 0 };
    (void)unlink(path);
    assert_int_equal(journal_open(&j, path, &e), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(journal_add(&j, span_of(payloads[i % ARRAY_LEN(payloads)])), 0);
    assert_int_equal(journal_flush(&j, true, &e), 0);
    journal_close(&j);
    assert_int_equal(journal_read(path, out, &e), 0);
}

static void test_checksum(void **state)
{
    (void)state;
    char bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7);
    assert_int_equal(crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(crc32c_table("123456789", 9), 0xe3069283u);
    assert_int_equal(crc32c("", 0), 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(crc32c(bytes + i % 9, sizeof bytes - i),
                         crc32c_table(bytes + i % 9, sizeof bytes - i));
}

static void test_round_trip(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf text = { 0 };
    make_text(ARRAY_LEN(payloads), &text);
    struct journal_reader r;
    struct journal_record rec;
    journal_reader_text(&r, buf_span(&text));
    assert_int_equal(journal_reader_next(&r, &rec, NULL), 1);
    assert_int_equal(rec.kind, JOURNAL_HEADER);
    assert_true(
        span_starts(rec.json, "{\"n\":1,\"e\":\"journal\",\"format\":2,\"snapshot\":0,\"c\""));
    for (size_t i = 0; i < ARRAY_LEN(payloads); i++) {
        assert_int_equal(journal_reader_next(&r, &rec, NULL), 1);
        assert_int_equal(rec.kind, JOURNAL_EVENT);
        assert_int_equal(rec.n, i + 2);
        AUTO(buf_done) struct buf want = { 0 };
        size_t inner = strlen(payloads[i]) - 2;
        buf_addf(&want, "{\"n\":%zu%s%.*s,\"c\":\"", i + 2, inner ? "," : "", (int)inner,
                 payloads[i] + 1);
        assert_true(rec.json.len == want.len + 10);
        assert_memory_equal(rec.json.p, want.p, want.len);
    }
    assert_int_equal(journal_reader_next(&r, &rec, NULL), 0);
    assert_false(r.torn);
    assert_int_equal(r.next_n, ARRAY_LEN(payloads) + 2);
    assert_int_equal(r.end, text.len);
}

/* Cut at each byte: complete lines are read, the rest is removed, and the next record follows
 * them. */
static void test_torn_at_every_byte(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf whole = { 0 };
    make_text(4, &whole);
    for (size_t cut = 0; cut <= whole.len; cut++) {
        size_t valid = 0, lines = 0;
        for (size_t i = 0; i < cut; i++) {
            if (whole.p[i] == '\n') {
                valid = i + 1;
                lines++;
            }
        }
        write_text(whole.p, cut);
        struct journal j;
        struct err e = { 0 };
        assert_int_equal(journal_open(&j, path, &e), 0);
        assert_int_equal(j.size, valid);
        assert_int_equal(j.next_n, lines + 1);
        assert_int_equal(file_size(), valid);
        assert_int_equal(journal_add(&j, SPAN("{\"e\":\"AFTER\"}")), 0);
        assert_int_equal(journal_flush(&j, false, &e), 0);
        journal_close(&j);
        assert_int_equal(journal_open(&j, path, &e), 0);
        assert_int_equal(j.next_n, lines ? lines + 2 : 3); /* a new file begins with a header */
        journal_close(&j);
    }
}

static void test_zeros_at_the_end_are_torn(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf whole = { 0 };
    make_text(3, &whole);
    size_t valid = whole.len;
    for (int i = 0; i < 500; i++)
        buf_addc(&whole, '\0');
    write_text(whole.p, whole.len);
    struct journal j;
    struct err e = { 0 };
    assert_int_equal(journal_open(&j, path, &e), 0);
    assert_int_equal(j.next_n, 5);
    assert_int_equal(file_size(), valid);
    journal_close(&j);
}

/* Change each byte: a damaged last line is removed; damage before it is refused with the line's
 * number. */
static void test_damage_at_every_byte(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf whole = { 0 };
    make_text(3, &whole);
    size_t last = whole.len - 1;
    while (whole.p[last - 1] != '\n')
        last--;
    for (size_t at = 0; at < whole.len; at++) {
        char kept = whole.p[at];
        whole.p[at] = (char)(kept ^ 0x04);
        write_text(whole.p, whole.len);
        whole.p[at] = kept;
        struct journal j;
        struct err e = { 0 };
        int rc = journal_open(&j, path, &e);
        /* Without the newline between them, the last two lines are one damaged line. */
        if (at >= last - 1) {
            assert_int_equal(rc, 0);
            assert_int_equal(j.next_n, at == last - 1 ? 3 : 4);
            journal_close(&j);
        } else {
            assert_int_equal(rc, -EBADMSG);
            assert_non_null(strstr(e.msg, path));
            assert_int_equal(file_size(), whole.len); /* the file is unchanged */
        }
    }
}

static void test_gaps(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int keep[4]; /* numbers of the lines to keep, in a journal of four; 0 = none */
        int rc;
    } rows[] = {
        { "as it was", { 1, 2, 3, 4 }, 0 },
        { "first one missing", { 2, 3, 4, 0 }, -EBADMSG },
        { "one missing", { 1, 3, 4, 0 }, -EBADMSG },
        { "twice the same", { 1, 2, 2, 3 }, -EBADMSG },
        { "the last one missing", { 1, 2, 3, 0 }, 0 },
        { "a gap before the last", { 1, 2, 4, 0 }, -EBADMSG },
    };
    AUTO(buf_done) struct buf whole = { 0 };
    make_text(3, &whole);
    struct span lines[4], rest = buf_span(&whole);
    for (int i = 0; i < 4; i++)
        assert_true(span_split(&rest, '\n', &lines[i]));
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        AUTO(buf_done) struct buf text = { 0 };
        for (int i = 0; i < 4 && rows[r].keep[i] > 0; i++)
            buf_addf(&text, "%.*s\n", (int)lines[rows[r].keep[i] - 1].len,
                     lines[rows[r].keep[i] - 1].p);
        write_text(text.p, text.len);
        struct journal j;
        struct err e = { 0 };
        int rc = journal_open(&j, path, &e);
        if (rc != rows[r].rc)
            fail_msg("%s: %d (%s)", rows[r].name, rc, e.msg);
        if (rc == 0)
            journal_close(&j);
    }
}

static void test_refused_payloads(void **state)
{
    (void)state;
    static const char *const bad[] = { "", "{", "x", "[1]", "{\"a\":\n1}", "{\"a\":1} " };
    struct journal j;
    struct err e = { 0 };
    (void)unlink(path);
    assert_int_equal(journal_open(&j, path, &e), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(journal_add(&j, span_of(bad[i])), -EINVAL);
    assert_int_equal(j.next_n, 1);
    assert_int_equal(j.pending.len, 0);
    journal_close(&j);
}

static void test_second_writer(void **state)
{
    (void)state;
    struct journal a, b;
    struct err e = { 0 };
    (void)unlink(path);
    assert_int_equal(journal_open(&a, path, &e), 0);
    assert_int_equal(journal_open(&b, path, &e), -EBUSY);
    journal_close(&a);
    assert_int_equal(journal_open(&b, path, &e), 0);
    journal_close(&b);
}

/* The file system refuses the write at each size. Flushed records stay valid, and further records
 * are refused until a retry succeeds. */
static void test_write_fails_at_every_byte(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf whole = { 0 };
    make_text(3, &whole);
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (size_t room = 0; room < whole.len; room++) {
        struct journal j;
        struct err e = { 0 };
        (void)unlink(path);
        assert_int_equal(journal_open(&j, path, &e), 0);
        low = (struct rlimit){ room, old.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        int rc = 0;
        for (size_t i = 0; rc == 0 && i < 3; i++) {
            assert_int_equal(journal_add(&j, span_of(payloads[i])), 0);
            rc = journal_flush(&j, i == 1, &e);
        }
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_true(rc < 0);
        assert_non_null(strstr(e.msg, "cannot write the journal"));
        assert_int_equal(journal_add(&j, SPAN("{}")), rc);
        assert_int_equal(journal_flush(&j, true, &e), rc);
        AUTO(buf_done) struct buf text = { 0 };
        assert_int_equal(journal_read(path, &text, &e), 0);
        assert_memory_equal(text.p ? text.p : "", whole.p, text.len);
        assert_true(text.len == 0 || text.p[text.len - 1] == '\n'); /* cut after a whole line */
        assert_int_equal(journal_retry(&j), 0);
        while (j.next_n <= 4)
            assert_int_equal(journal_add(&j, span_of(payloads[j.next_n - 2])), 0);
        assert_int_equal(journal_flush(&j, true, &e), 0);
        journal_close(&j);
        buf_clear(&text);
        assert_int_equal(journal_read(path, &text, &e), 0);
        assert_int_equal(text.len, whole.len);
        assert_memory_equal(text.p, whole.p, whole.len);
    }
    signal(SIGXFSZ, SIG_DFL);
}

static void test_errors(void **state)
{
    (void)state;
    struct journal j;
    struct err e = { 0 };
    AUTO(buf_done) struct buf text = { 0 };
    (void)unlink(path);
    assert_int_equal(journal_read(path, &text, &e), -ENOENT);
    assert_non_null(strstr(e.msg, path));
    assert_int_equal(journal_open(&j, "/nowhere/at/all/journal", &e), -ENOENT);
    assert_int_equal(symlink("elsewhere", path), 0);
    assert_int_equal(journal_open(&j, path, &e), -ELOOP);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checksum),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_torn_at_every_byte),
        cmocka_unit_test(test_zeros_at_the_end_are_torn),
        cmocka_unit_test(test_damage_at_every_byte),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_refused_payloads),
        cmocka_unit_test(test_second_writer),
        cmocka_unit_test(test_write_fails_at_every_byte),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests_name("journal", tests, setup, teardown);
}
