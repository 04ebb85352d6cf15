/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of the file of metrics. Wherever a master dies, the next one finds the file as it was at
 * the last complete copy, or later: it never finds a mixture of two files. The copies are in the
 * memory of this test (copies_world.h).
 */
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
#include "copies_world.h"
#include "master/copies.h"

#define DIR "/s/metrics"

/* A master with its file. */
static struct {
    char path[128];
    struct copies *c;
    struct buf text, older;      /* the file, and the file that it has replaced */
    uint64_t before;             /* bytes of the files that were replaced */
    size_t stored, older_stored; /* bytes of the two that certainly are in the copies */
} m;

static void on_stored(void *arg)
{
    (void)arg;
    m.stored = m.text.len;
}

static void write_file(void)
{
    assert_int_equal(fs_write_atomic(AT_FDCWD, m.path, buf_span(&m.text), 0600, false, NULL), 0);
}

static void begin(uint32_t epoch)
{
    (void)snprintf(m.path, sizeof m.path, "%s/m%u", dir, epoch);
    buf_clear(&m.text);
    buf_clear(&m.older);
    m.text.max = m.older.max = 1 << 20;
    if (access(m.path, F_OK) == 0)
        assert_int_equal(fs_read(AT_FDCWD, m.path, &m.text, NULL), 0);
    else
        write_file();
    m.before = m.stored = m.older_stored = 0;
    const struct copies_config cfg = { .kind = COPIES_METRICS,
                                       .loop = f.loop,
                                       .files = &files,
                                       .dir = DIR,
                                       .file = m.path,
                                       .epoch = epoch,
                                       .first_n = 1,
                                       .last_n = m.text.len,
                                       .size = m.text.len,
                                       .patience_ms = COPIES_PATIENCE_MS,
                                       .on_stored = on_stored };
    assert_int_equal(copies_new(&cfg, &m.c, NULL), 0);
}

static void append(unsigned n)
{
    while (n-- > 0)
        assert_int_equal(buf_addc(&m.text, (char)('a' + dice(26))), 0);
    write_file();
    copies_wrote(m.c, m.text.len, m.before + m.text.len);
}

/* A thinner file replaces this one. */
static void replace(void)
{
    m.before += m.text.len;
    m.older_stored = m.stored;
    m.stored = 0;
    struct buf swap = m.older;
    m.older = m.text;
    m.text = swap;
    buf_clear(&m.text);
    for (size_t i = 0; i <= m.older.len / 2; i++)
        assert_int_equal(buf_addc(&m.text, (char)('A' + dice(26))), 0);
    write_file();
    copies_segment(m.c, m.before + 1, m.text.len, m.before + m.text.len);
}

static void die(void)
{
    drop_ops_of(m.c);
    copies_free(TAKE(m.c));
}

/* The next master reads the copies. Returns how many bytes it found. */
static size_t find_file(uint32_t epoch, struct buf *out)
{
    AUTO(free_p) char *path = str_printf("%s/m%u", dir, epoch);
    out->max = 1 << 20;
    fetch_kind(COPIES_METRICS, DIR, path);
    if (got.why.num)
        fail_msg("%s", got.why.msg);
    if (got.found.size)
        assert_int_equal(fs_read(AT_FDCWD, path, out, NULL), 0);
    assert_int_equal(out->len, got.found.size);
    return out->len;
}

static int done(void **state)
{
    buf_done(&m.text);
    buf_done(&m.older);
    return teardown(state);
}

static bool begins_with(const struct buf *whole, const struct buf *part)
{
    return part->len <= whole->len && (part->len == 0 || memcmp(whole->p, part->p, part->len) == 0);
}

/* ---- tests ---- */

static void the_next_master_has_the_file(void **state)
{
    AUTO(buf_done) struct buf found = { 0 };
    (void)state;
    begin(1);
    for (int i = 0; i < 200; i++) {
        append(1 + dice(50));
        run_ops(9);
        assert_true(f.files.n <= 1 + COPIES_TAILS + 1);
        if (i % 60 == 59)
            replace();
    }
    assert_true(copies_stored(m.c));
    die();
    (void)find_file(2, &found);
    assert_int_equal(found.len, m.text.len);
    assert_memory_equal(found.p, m.text.p, found.len);
}

/* The master copies the file of the metrics only when it has a sample. */
static void an_empty_file_is_not_copied(void **state)
{
    AUTO(buf_done) struct buf found = { 0 };
    (void)state;
    begin(1);
    run_ops(5);
    assert_int_equal(f.n_puts, 0);
    die();
    assert_int_equal(find_file(2, &found), 0);
}

static void masters_die_anywhere(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 150; seed++) {
        f.seed = seed;
        while (f.files.n)
            file_remove(f.files.v[0].path);
        for (uint32_t epoch = 1; epoch <= 4; epoch++) {
            AUTO(buf_done) struct buf found = { 0 };
            AUTO(free_p) char *next = str_printf("%s/m%u", dir, epoch + 1);
            begin(epoch);
            (void)unlink(next);
            f.faults = dice(3) ? 0 : 3;
            for (unsigned k = dice(25); k > 0; k--) {
                if (dice(6) == 0 && m.stored > 0)
                    replace();
                else
                    append(1 + dice(30));
                run_ops(dice(4));
            }
            die();
            f.faults = 0;
            (void)find_file(epoch + 1, &found);
            bool is_this = begins_with(&m.text, &found), is_older = begins_with(&m.older, &found);
            if (!is_this && !is_older)
                fail_msg("seed %u, epoch %u: %zu bytes of no file", seed, epoch, found.len);
            if (found.len < m.stored || (!m.stored && found.len < m.older_stored && !is_this) ||
                (m.stored && !is_this))
                fail_msg("seed %u, epoch %u: %zu bytes instead of %zu or %zu", seed, epoch,
                         found.len, m.stored, m.older_stored);
        }
    }
}

static void a_damaged_set_is_an_error(void **state)
{
    (void)state;
    AUTO(free_p) char *path = str_printf("%s/m2", dir);
    file_put(DIR "/0001-000000000001-000000000001-000000000010", SPAN("0123456789"));
    file_put(DIR "/0001-000000000001-000000000013-000000000014", SPAN("ab"));
    fetch_kind(COPIES_METRICS, DIR, path);
    assert_int_equal(got.why.num, EBADMSG);
    assert_non_null(strstr(got.why.msg, "the metrics are not whole: bytes 11 to 12 are missing"));
    file_put(DIR "/0001-000000000001-000000000011-000000000012", SPAN("too long"));
    fetch_kind(COPIES_METRICS, DIR, path);
    assert_int_equal(got.why.num, EBADMSG);
    assert_non_null(strstr(got.why.msg, "its name says 2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_next_master_has_the_file, setup, done),
        cmocka_unit_test_setup_teardown(an_empty_file_is_not_copied, setup, done),
        cmocka_unit_test_setup_teardown(masters_die_anywhere, setup, done),
        cmocka_unit_test_setup_teardown(a_damaged_set_is_an_error, setup, done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
