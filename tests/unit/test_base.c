/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, buffers, spans, vectors, maps, time, and the small things. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/title.h"
#include "torture.h"

static void test_err_set(void **state)
{
    (void)state;
    struct err e = { 0 };
    assert_int_equal(err_set(&e, ENOENT, "cannot open '%s': %m", "/x"), -ENOENT);
    assert_int_equal(e.num, ENOENT);
    assert_string_equal(e.msg, "cannot open '/x': No such file or directory");
    assert_int_equal(err_hint(&e, "look at %s", "y"), -ENOENT);
    assert_string_equal(e.hint, "look at y");
    assert_int_equal(err_wrap(&e, -ENOENT, "job file '%s'", "j"), -ENOENT);
    assert_string_equal(e.msg, "job file 'j': cannot open '/x': No such file or directory");
    assert_string_equal(e.hint, "look at y");
    err_set(&e, EINVAL, "other");
    assert_string_equal(e.hint, ""); /* a new message has no hint of the last one */
    err_clear(&e);
    assert_int_equal(e.num, 0);
    assert_string_equal(e.msg, "");
    assert_int_equal(err_set(&e, 0, "a bug"), -EIO);
}

static void test_err_without_object(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, EACCES, "x"), -EACCES);
    assert_int_equal(err_hint(NULL, "y"), -EACCES);
    assert_int_equal(err_wrap(NULL, -EBUSY, "z"), -EBUSY);
    err_clear(NULL);
}

static void test_err_texts(void **state)
{
    (void)state;
    struct err e = { 0 };
    /* An argument may be the old message itself. */
    err_set(&e, EIO, "inner");
    err_set(&e, EIO, "outer: %s", e.msg);
    assert_string_equal(e.msg, "outer: inner");
    /* Control characters neither break the line nor reach a terminal. */
    err_set(&e, EIO, "key 'a\nb\x1b[31m\x7f\xc2\x9b\xc2\xa0'");
    assert_string_equal(e.msg, "key 'a b?[31m???\xc2\xa0'");
    /* A long message has dots in place of its middle. It is not cut inside a character. */
    char longer[700];
    for (size_t i = 0; i + 2 < sizeof longer; i += 2)
        memcpy(longer + i, "\xc3\xbc", 3);
    for (unsigned shift = 0; shift < 4; shift++) {
        err_set(&e, EIO, "open '%s%s': %s%m", shift & 1 ? "x" : "", longer, shift & 2 ? "x" : "");
        size_t len = strlen(e.msg);
        assert_in_range(len, sizeof e.msg - 6, sizeof e.msg - 1);
        assert_true(str_starts(e.msg, "open '") && strstr(e.msg, "..."));
        assert_true(str_ends(e.msg, "Input/output error"));
        assert_true(span_utf8(span_of(e.msg), NULL));
        err_wrap(&e, -EIO, "context");
        assert_true(str_starts(e.msg, "context: open '"));
        assert_true(str_ends(e.msg, "Input/output error"));
        assert_true(strlen(e.msg) < sizeof e.msg);
        assert_true(span_utf8(span_of(e.msg), NULL));
    }
    err_clear(&e);
    assert_int_equal(err_wrap(&e, -ENOMEM, "reading"), -ENOMEM);
    assert_int_equal(e.num, ENOMEM);
    assert_string_equal(e.msg, "reading: Cannot allocate memory");
}

static void test_buf_limits(void **state)
{
    (void)state;
    struct buf b = { .max = 10 };
    assert_string_equal(buf_cstr(&b), "");
    assert_int_equal(buf_adds(&b, "12345"), 0);
    assert_int_equal(buf_addf(&b, "%d", 67890), 0);
    assert_string_equal(buf_cstr(&b), "1234567890");
    assert_int_equal(buf_addc(&b, 'x'), -EMSGSIZE);
    assert_true(b.failed);
    assert_string_equal(buf_cstr(&b), "1234567890");
    buf_consume(&b, 9);
    assert_string_equal(buf_cstr(&b), "0");
    assert_int_not_equal(buf_addc(&b, 'x'), 0); /* an error is permanent */
    buf_clear(&b);
    assert_int_equal(buf_addf(&b, "%s", "abcdefghij"), 0);
    assert_int_equal(buf_addf(&b, "%s", "k"), -EMSGSIZE);
    assert_string_equal(buf_cstr(&b), "abcdefghij");
    buf_clear(&b);
    assert_int_equal(buf_addf(&b, "%s", "abcdefghijk"), -EMSGSIZE);
    assert_int_equal(b.len, 0);
    assert_string_equal(buf_cstr(&b), "");
    buf_done(&b);
    assert_int_equal(b.max, 10);
    assert_int_equal(buf_add(&b, "x", SIZE_MAX), -EMSGSIZE);
    assert_int_equal(buf_add(&b, NULL, 0), -ENOMEM); /* the buffer failed before */
    buf_done(&b);
}

static void test_buf_grows(void **state)
{
    (void)state;
    struct buf b = { 0 };
    for (unsigned i = 0; i < 10000; i++) {
        assert_int_equal(buf_addf(&b, "%04u", i), 0);
        assert_int_equal(b.p[b.len], '\0');
    }
    assert_int_equal(b.len, 40000);
    assert_memory_equal(b.p + 4 * 1234, "1234", 4);
    char *room = buf_reserve(&b, 100000);
    assert_non_null(room);
    memset(room, 'z', 100000);
    buf_commit(&b, 100000);
    assert_int_equal(b.len, 140000);
    assert_int_equal(b.p[b.len], '\0');
    buf_consume(&b, b.len);
    assert_string_equal(buf_cstr(&b), "");
    buf_adds(&b, "left");
    char *s = buf_steal(&b);
    assert_string_equal(s, "left");
    assert_null(b.p);
    free(s);
    assert_non_null(buf_reserve(&b, 10));
    assert_string_equal(buf_cstr(&b), ""); /* bytes were reserved and none was written */
    s = buf_steal(&b);
    assert_string_equal(s, "");
    free(s);
}

static void test_buf_no_memory(void **state)
{
    (void)state;
    struct buf b = { 0 };
    buf_adds(&b, "kept");
    torture_arm(1, false);
    assert_int_equal(buf_addf(&b, "%0200d", 1), -ENOMEM);
    torture_arm(0, false);
    assert_true(b.failed);
    assert_string_equal(buf_cstr(&b), "kept");
    assert_int_not_equal(buf_addc(&b, 'x'), 0);
    assert_null(buf_steal(&b));
    assert_null(b.p);
}

static void test_buf_fill_fd(void **state)
{
    (void)state;
    static const struct {
        size_t size, max;
        int rc;
    } cases[] = {
        { 0, 0, 0 },           { 1, 1, 0 },
        { 4096, 4096, 0 },     { 4097, 4096, -EFBIG },
        { 200000, 200000, 0 }, { 200000, 199999, -EFBIG },
        { 70000, 1 << 20, 0 },
    };
    char path[] = "/tmp/tony-test-XXXXXX";
    AUTO(close_p) int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(ftruncate(fd, (off_t)cases[i].size), 0);
        lseek(fd, 0, SEEK_SET);
        struct buf b = { .max = cases[i].max };
        struct err e = { 0 };
        assert_int_equal(buf_fill_fd(&b, fd, &e), cases[i].rc);
        assert_int_equal(-e.num, cases[i].rc);
        if (cases[i].rc == 0)
            assert_int_equal(b.len, cases[i].size);
        buf_done(&b);
    }
    /* A pipe reports no size, and its data may come in parts. */
    int p[2];
    assert_int_equal(pipe(p), 0);
    assert_int_equal(write(p[1], "0123456789", 10), 10);
    close(p[1]);
    struct buf b = { .max = 9 };
    assert_int_equal(buf_fill_fd(&b, p[0], NULL), -EFBIG);
    close(p[0]);
    assert_int_equal(buf_fill_fd(&b, -1, NULL), -EBADF);
    buf_done(&b);
}

static void test_span(void **state)
{
    (void)state;
    assert_true(span_eqs(span_trim(SPAN(" \t a b\r\n")), "a b"));
    assert_int_equal(span_trim(SPAN("  ")).len, 0);
    assert_true(span_eq(span_mem(NULL, 0), SPAN("")));
    assert_false(span_eq(SPAN("a"), SPAN("b")));
    assert_false(span_eqs(SPAN("ab"), "a"));
    assert_true(span_has(SPAN("abc"), "bc") && span_has(SPAN("abc"), "abc"));
    assert_false(span_has(SPAN("abc"), "abcd") || span_has((struct span){ 0 }, "a"));
    assert_true(span_starts(SPAN("tony.x"), "tony."));
    assert_false(span_starts(SPAN("to"), "tony."));
    AUTO(free_p) char *copy = span_dup(span_mem("abc", 2));
    assert_string_equal(copy, "ab");
    AUTO(free_p) char *none = span_dup((struct span){ 0 });
    assert_string_equal(none, "");
    assert_null(span_dup(span_mem("", SIZE_MAX)));
}

static void test_span_split(void **state)
{
    (void)state;
    static const struct {
        const char *text, *fields;
    } cases[] = { { "a,b,c", "a|b|c|" }, { "a,,b,", "a||b||" }, { "", "|" },
                  { ",", "||" },         { "one", "one|" },     { NULL, "" } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct span rest = span_of(cases[i].text), field;
        struct buf b = { 0 };
        while (span_split(&rest, ',', &field)) {
            buf_add(&b, field.p, field.len);
            buf_addc(&b, '|');
        }
        assert_string_equal(buf_cstr(&b), cases[i].fields);
        buf_done(&b);
    }
}

static void test_span_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        int bad_at; /* -1: valid */
    } cases[] = {
        { "plain", 5, -1 },
        { "", 0, -1 },
        { "a\0b", 3, 1 },
        { "\x80", 1, 0 },
        { "a\xc3", 2, 1 },
        { "\xc3\xbc", 2, -1 },
        { "\xc0\x80", 2, 0 },          /* overlong NUL */
        { "\xc1\xbf", 2, 0 },          /* overlong */
        { "\xe0\x9f\xbf", 3, 0 },      /* overlong */
        { "\xe0\xa0\x80", 3, -1 },     /* U+0800 */
        { "\xed\x9f\xbf", 3, -1 },     /* U+D7FF */
        { "\xed\xa0\x80", 3, 0 },      /* first surrogate */
        { "\xed\xbf\xbf", 3, 0 },      /* last surrogate */
        { "\xee\x80\x80", 3, -1 },     /* U+E000 */
        { "\xef\xbf\xbf", 3, -1 },     /* U+FFFF: a non-character, but well-formed */
        { "\xf0\x8f\xbf\xbf", 4, 0 },  /* overlong */
        { "\xf0\x90\x80\x80", 4, -1 }, /* U+10000 */
        { "\xf4\x8f\xbf\xbf", 4, -1 }, /* U+10FFFF */
        { "\xf4\x90\x80\x80", 4, 0 },  /* beyond U+10FFFF */
        { "\xf5\x80\x80\x80", 4, 0 },
        { "ok\xf0\x90\x80", 5, 2 },
        { "\xe2\x82\x41", 3, 0 },
        { "x\xff", 2, 1 },
        { "\xf0\x90\x41\x80", 4, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t bad = 99;
        bool good = span_utf8(span_mem(cases[i].text, cases[i].len), &bad);
        if (good != (cases[i].bad_at < 0) || (!good && bad != (size_t)cases[i].bad_at))
            fail_msg("case %zu: good %d, bad at %zu", i, good, bad);
    }
}

static void test_span_has_control(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool has;
    } cases[] = {
        { "", false },         { "plain ~", false },      { "a\nb", true },
        { "\x1b[31m", true },  { "\x7f", true },          { "\xc2\x80", true },
        { "x\xc2\x9b", true }, { "\xc2\xa0", false },     { "\xc3\x9b", false },
        { "\xc2", false },     { "\xe2\x82\x9b", false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (span_has_control(span_of(cases[i].text)) != cases[i].has)
            fail_msg("case %zu", i);
}

static void test_vec(void **state)
{
    (void)state;
    VEC(uint64_t) v = { 0 };
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(vec_push(&v, i * i), 0);
    assert_int_equal(v.n, 1000);
    assert_int_equal(v.v[31], 961);
    vec_remove_fast(&v, 0);
    assert_int_equal(v.v[0], 999 * 999);
    assert_int_equal(v.n, 999);
    assert_int_equal(vec_reserve(&v, SIZE_MAX / 4), -ENOMEM); /* the product overflows */
    assert_int_equal(v.v[31], 961);
    torture_arm(1, false);
    size_t before = v.cap;
    assert_int_equal(vec_reserve(&v, before + 1), -ENOMEM);
    torture_arm(0, false);
    assert_int_equal(v.cap, before);
    vec_done(&v);
    assert_null(v.v);
}

static void test_strv(void **state)
{
    (void)state;
    struct strv s = { 0 };
    assert_int_equal(strv_push(&s, "PATH=/bin"), 0);
    assert_int_equal(strv_pushf(&s, "%s=%d", "N", 1), 0);
    assert_null(s.v[2]);
    assert_int_equal(strv_take(&s, NULL), -ENOMEM);
    assert_int_equal(s.n, 2);
    assert_int_equal(strv_env_set(&s, "N", "2"), 0);
    assert_int_equal(strv_env_set(&s, "NN", ""), 0);
    assert_int_equal(s.n, 3);
    assert_string_equal(strv_env_get(&s, "N"), "2");
    assert_string_equal(strv_env_get(&s, "NN"), "");
    assert_null(strv_env_get(&s, "PAT"));
    assert_null(s.v[3]);
    strv_done(&s);
    assert_null(s.v);
}

static void test_map(void **state)
{
    (void)state;
    struct map m = { 0 };
    static int values[3000];
    char key[32];
    assert_null(map_get(&m, "x"));
    assert_null(map_remove(&m, "x"));
    for (int i = 0; i < 3000; i++) {
        void *old = &m;
        (void)snprintf(key, sizeof key, "tony.key-%d.long-enough", i);
        assert_int_equal(map_set(&m, key, &values[i], &old), 0);
        assert_null(old);
    }
    assert_int_equal(m.n, 3000);
    for (int i = 0; i < 3000; i += 3) {
        (void)snprintf(key, sizeof key, "tony.key-%d.long-enough", i);
        assert_ptr_equal(map_remove(&m, key), &values[i]);
        assert_false(map_has(&m, key));
    }
    assert_int_equal(m.n, 2000);
    int at = 0;
    for (struct map_entry *x = map_next(&m, NULL); x; x = map_next(&m, x)) {
        at += at % 3 == 0;
        assert_ptr_equal(x->value, &values[at]); /* in insertion order */
        at++;
    }
    assert_int_equal(at, 3000);
    void *old = NULL;
    assert_int_equal(map_set(&m, "tony.key-1.long-enough", &values[7], &old), 0);
    assert_ptr_equal(old, &values[1]);
    assert_ptr_equal(map_get(&m, "tony.key-1.long-enough"), &values[7]);
    assert_int_equal(map_set(&m, "", &values[0], NULL), 0);
    assert_ptr_equal(map_get(&m, ""), &values[0]);
    map_done(&m, NULL);
    assert_null(map_next(&m, NULL));
}

/* Insert and remove many keys: the tables neither grow nor fill with removed keys. */
static void test_map_churn(void **state)
{
    (void)state;
    struct map m = { 0 };
    char key[32];
    for (int i = 0; i < 20000; i++) {
        (void)snprintf(key, sizeof key, "%d", i);
        assert_int_equal(map_set(&m, key, strdup(key), NULL), 0);
        if (i >= 10) {
            (void)snprintf(key, sizeof key, "%d", i - 10);
            AUTO(free_p) char *value = map_remove(&m, key);
            assert_string_equal(value, key);
        }
    }
    assert_int_equal(m.n, 10);
    assert_in_range(m.cap_entries, 10, 64);
    for (struct map_entry *x = map_next(&m, NULL); x; x = map_next(&m, x)) {
        if (x->key[4] == '5') {
            void *value = map_remove(&m, x->key); /* remove the current key inside the loop */
            free(value);
        }
    }
    assert_int_equal(m.n, 9);
    map_done(&m, free);
}

static void test_clock(void **state)
{
    (void)state;
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {
        { 0, "1970-01-01T00:00:00.000Z" },
        { -1, "1969-12-31T23:59:59.999Z" },
        { 951782400123, "2000-02-29T00:00:00.123Z" },
        { 1709164800000, "2024-02-29T00:00:00.000Z" },
        { 1798761599999, "2026-12-31T23:59:59.999Z" },
        { 4107542400000, "2100-03-01T00:00:00.000Z" },
        { -62135596800000, "0001-01-01T00:00:00.000Z" },
    };
    char text[32];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(clock_iso8601(cases[i].ms, text, sizeof text), cases[i].text);
    assert_string_equal(clock_iso8601(0, text, 5), "1970");
    (void)clock_iso8601(INT64_MAX, text, sizeof text);
    (void)clock_iso8601(INT64_MIN, text, sizeof text);
    int64_t us = clock_mono_us(), ms = clock_mono_ms();
    assert_in_range(ms - us / 1000, 0, 10000);
    assert_true(clock_wall_ms() > 1700000000000);
}

static void test_take_and_cleanup_helpers(void **state)
{
    (void)state;
    char *p = strdup("x"), *q = TAKE(p);
    assert_null(p);
    free_p(&q);
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), same = fd;
    errno = 7;
    close_p(&fd);
    assert_int_equal(errno, 7);
    assert_int_equal(fd, -1);
    assert_int_equal(fcntl(same, F_GETFD), -1);
    close_p(&fd);
    struct pair {
        int a, b;
    } x = { 1, 2 };
    assert_ptr_equal(CONTAINER_OF(&x.b, struct pair, b), &x);
    assert_int_equal(MIN(3, 2) + MAX(3, 2), 5);
}

static void test_names_of_end_reasons(void **state)
{
    (void)state;
    for (int r = END_NONE + 1; r < END_COUNT; r++)
        assert_int_equal(end_reason_parse(end_reason_name((enum end_reason)r)), r);
    assert_int_equal(end_reason_parse("none"), END_NONE);
    assert_int_equal(end_reason_parse("nonsense"), END_NONE);
    assert_int_equal(end_reason_parse(NULL), END_NONE);
}

/* For a container that a signal killed, a scheduler reports 128 plus the signal. */
static void test_container_codes(void **state)
{
    static const struct {
        enum end_reason reason;
        int code, signal, out_code, out_signal;
    } rows[] = {
        { END_EXITED, 137, 0, 0, 9 },      { END_EXITED, 192, 0, 0, 64 },
        { END_EXITED, 128, 0, 128, 0 },    { END_EXITED, 193, 0, 193, 0 },
        { END_EXITED, 137, 15, 137, 15 },  { END_EXITED, -1, 0, -1, 0 },
        { END_NODE_LOST, 137, 0, 137, 0 }, { END_EXITED, 0, 0, 0, 0 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int code = rows[i].code, signal = rows[i].signal;
        end_container_code(rows[i].reason, &code, &signal);
        assert_int_equal(code, rows[i].out_code);
        assert_int_equal(signal, rows[i].out_signal);
    }
    assert_string_equal(end_reason_name((enum end_reason)99), "unknown");
    assert_string_equal(end_reason_name(END_OUT_OF_MEMORY), "out_of_memory");
}

/* The strings of argv lie one after the other, as execve() puts them. */
static void test_title(void **state)
{
    (void)state;
    char bytes[] = "tony-executor\0--keeper\0x\0HOME=/";
    char *argv[] = { bytes, bytes + 14, bytes + 23, NULL };
    title_set("nothing is known yet");
    assert_string_equal(bytes, "tony-executor");

    title_init(3, argv);
    char *copies[] = { argv[0], argv[1], argv[2] };
    title_set("%s:%u", "worker", 3);
    assert_memory_equal(bytes, "worker:3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0HOME=/", sizeof bytes);
    title_set("%s", "a title that is longer than the old command line");
    assert_memory_equal(bytes, "a title that is longer t\0HOME=/", sizeof bytes);
    assert_string_equal(copies[0], "tony-executor");
    assert_string_equal(copies[1], "--keeper");
    assert_string_equal(copies[2], "x");
    for (size_t i = 0; i < ARRAY_LEN(copies); i++)
        free(copies[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_err_set),
        cmocka_unit_test(test_err_without_object),
        cmocka_unit_test(test_err_texts),
        cmocka_unit_test(test_buf_limits),
        cmocka_unit_test(test_buf_grows),
        cmocka_unit_test(test_buf_no_memory),
        cmocka_unit_test(test_buf_fill_fd),
        cmocka_unit_test(test_span),
        cmocka_unit_test(test_span_split),
        cmocka_unit_test(test_span_utf8),
        cmocka_unit_test(test_span_has_control),
        cmocka_unit_test(test_vec),
        cmocka_unit_test(test_strv),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_map_churn),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_take_and_cleanup_helpers),
        cmocka_unit_test(test_names_of_end_reasons),
        cmocka_unit_test(test_container_codes),
        cmocka_unit_test(test_title),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
