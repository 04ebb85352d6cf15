/* SPDX-License-Identifier: Apache-2.0 */
/* Strings, and numbers in users' text with the messages that refuse them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"

static void test_i64(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t min, max;
        int rc;
        int64_t value;
        const char *sentence;
    } cases[] = {
        { "0", 0, 10, 0, 0, "" },
        { "-7", -10, 10, 0, -7, "" },
        { " 42\n", 0, 100, 0, 42, "" },
        { "0010", 0, 100, 0, 10, "" },
        { "9223372036854775807", INT64_MIN, INT64_MAX, 0, INT64_MAX, "" },
        { "-9223372036854775808", INT64_MIN, INT64_MAX, 0, INT64_MIN, "" },
        { "9223372036854775808", INT64_MIN, INT64_MAX, -ERANGE, 0,
          "x must be between -9223372036854775808 and 9223372036854775807, not "
          "'9223372036854775808'" },
        { "-9223372036854775809", 0, 5, -ERANGE, 0,
          "x must be between 0 and 5, not '-9223372036854775809'" },
        { "", 0, 1, -EINVAL, 0, "x must be a whole number, but it is empty" },
        { "-", 0, 1, -EINVAL, 0, "x must be a whole number, not '-'" },
        { "+1", 0, 1, -EINVAL, 0, "x must be a whole number, not '+1'" },
        { "1 2", 0, 20, -EINVAL, 0, "x must be a whole number, not '1 2'" },
        { "1.5", 0, 20, -EINVAL, 0, "x must be a whole number, not '1.5'" },
        { "0x10", 0, 20, -EINVAL, 0, "x must be a whole number, not '0x10'" },
        { "12abc", 0, 20, -EINVAL, 0, "x must be a whole number, not '12abc'" },
        { "99999999999999999999x", 0, 20, -EINVAL, 0,
          "x must be a whole number, not '99999999999999999999x'" },
        { "11", 0, 10, -ERANGE, 0, "x must be at most 10, not 11" },
        { "-1", 0, 10, -ERANGE, 0, "x must be at least 0, not -1" },
        { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 0, 10, -EINVAL,
          0,
          "x must be a whole number, not "
          "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...'" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = { 0 };
        int64_t v = 12345;
        int rc = str_i64(span_of(cases[i].text), cases[i].min, cases[i].max, "x", &v, &e);
        if (rc != cases[i].rc)
            fail_msg("'%s' gives %d", cases[i].text, rc);
        assert_true(v == (rc == 0 ? cases[i].value : 12345)); /* written only on success */
        assert_string_equal(e.msg, cases[i].sentence);
    }
    int64_t v = 0;
    /* The number ends with the span. */
    assert_int_equal(str_i64(span_mem("123", 2), 0, 99, "x", &v, NULL), 0);
    assert_int_equal(v, 12);
    assert_int_equal(str_i64((struct span){ 0 }, 0, 99, "x", &v, NULL), -EINVAL);
}

static void test_mib(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        int64_t value;
    } cases[] = {
        { "2g", 0, 2048 },
        { "2G", 0, 2048 },
        { "2048m", 0, 2048 },
        { "3", 0, 3 },
        { "1024k", 0, 1 },
        { "2048KB", 0, 2 },
        { "1 GiB", 0, 1024 },
        { "5MiB", 0, 5 },
        { "1t", 0, 1048576 },
        { "1tb", 0, 1048576 },
        { " 7mb ", 0, 7 },
        { "0", -ERANGE, 0 },
        { "1000k", -EINVAL, 0 },
        { "1.5g", -EINVAL, 0 },
        { "g", -EINVAL, 0 },
        { "", -EINVAL, 0 },
        { "2x", -EINVAL, 0 },
        { "2gg", -EINVAL, 0 },
        { "-1g", -ERANGE, 0 },
        { "3t", -ERANGE, 0 },
        { "9007199254740993g", -ERANGE, 0 },
        { "99999999999999999999", -ERANGE, 0 },
        { "99999999999999999999q", -EINVAL, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = { 0 };
        int64_t v = -5;
        int rc = str_mib(span_of(cases[i].text), 1, 2 << 20, "memory", &v, &e);
        if (rc != cases[i].rc || v != (rc == 0 ? cases[i].value : -5))
            fail_msg("'%s' gives %d, %lld: %s", cases[i].text, rc, (long long)v, e.msg);
    }
    struct err e = { 0 };
    int64_t v;
    str_mib(SPAN("2x"), 1, 10, "tony.worker.memory", &v, &e);
    assert_string_equal(
        e.msg, "tony.worker.memory must be a size in whole MiB such as 2g, 512m or 2048, not '2x'");
    str_mib(SPAN("1g"), 1, 10, "tony.worker.memory", &v, &e);
    assert_string_equal(e.msg, "tony.worker.memory must be at most 10 MiB, not 1024 MiB");
}

static void test_times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        int64_t value;
    } cases[] = {
        { "1ms", 0, 1 },
        { "90s", 0, 90000 },
        { " 10 M ", 0, 600000 },
        { "2h", 0, 7200000 },
        { "1d", 0, 86400000 },
        { "10", -EINVAL, 0 }, /* no unit */
        { "", -EINVAL, 0 },
        { "m", -EINVAL, 0 },
        { "1.5h", -EINVAL, 0 },
        { "1h30m", -EINVAL, 0 },
        { "0s", -ERANGE, 0 },
        { "-1s", -ERANGE, 0 },
        { "12d", -ERANGE, 0 },
        { "9223372036854775807d", -ERANGE, 0 },
        { "99999999999999999999s", -ERANGE, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = { 0 };
        int64_t v = -5;
        int rc = str_ms(span_of(cases[i].text), 1, 1000000000, "--timeout", &v, &e);
        if (rc != cases[i].rc || v != (rc == 0 ? cases[i].value : -5) ||
            (rc && !str_starts(e.msg, "--timeout")))
            fail_msg("'%s' gives %d, %lld: %s", cases[i].text, rc, (long long)v, e.msg);
    }
    static const struct {
        int64_t min, max;
        const char *range;
    } ranges[] = {
        { 1, 950400000, "1 ms and 11 days" },      { 0, 1000000000, "0 ms and 1000000 seconds" },
        { 1000, 7200000, "1 second and 2 hours" }, { 60000, 90000, "1 minute and 90 seconds" },
        { 3600000, 86400000, "1 hour and 1 day" }, { 1500, 300000, "1500 ms and 5 minutes" },
    };
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++) {
        struct err e = { 0 };
        int64_t v;
        AUTO(free_p) char *all = str_printf("--t must be between %s, not '20d'", ranges[i].range);
        assert_int_equal(str_ms(SPAN("20d"), ranges[i].min, ranges[i].max, "--t", &v, &e), -ERANGE);
        assert_string_equal(e.msg, all);
    }
    static const int64_t written[] = { 0, 1, 500, 1500, 90000, 600000, 7200000, 86400000 };
    static const char *const texts[] = {
        "0ms", "1ms", "500ms", "1500ms", "90s", "10m", "2h", "1d"
    };
    for (size_t i = 0; i < ARRAY_LEN(written); i++) {
        char text[32];
        int64_t v;
        assert_string_equal(str_ms_text(written[i], text, sizeof text), texts[i]);
        assert_int_equal(str_ms(span_of(text), 0, INT64_MAX, "t", &v, NULL), 0);
        assert_int_equal(v, written[i]);
    }
}

static void test_bool(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        bool value;
    } cases[] = { { "true", 0, true },     { "FALSE", 0, false },
                  { "Yes", 0, true },      { "no", 0, false },
                  { "on", 0, true },       { "off", 0, false },
                  { "1", 0, true },        { " 0 ", 0, false },
                  { "", -EINVAL, false },  { "tru", -EINVAL, false },
                  { "2", -EINVAL, false }, { "truefalse", -EINVAL, false } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool v = !cases[i].value;
        assert_int_equal(str_bool(span_of(cases[i].text), "x", &v, NULL), cases[i].rc);
        assert_int_equal(v, cases[i].rc == 0 ? cases[i].value : !cases[i].value);
    }
    struct err e = { 0 };
    bool v;
    str_bool(SPAN("maybe"), "tony.x", &v, &e);
    assert_string_equal(e.msg, "tony.x must be true or false, not 'maybe'");
}

static void test_real(void **state)
{
    static const struct {
        const char *text;
        int rc;
        double v;
    } cases[] = {
        { "0.25", 0, 0.25 },   { " 1 ", 0, 1 },         { "1e-3", 0, 0.001 },
        { "-0.5", 0, -0.5 },   { "nan", -EINVAL, 0 },   { "inf", -EINVAL, 0 },
        { "0x1", -EINVAL, 0 }, { "", -EINVAL, 0 },      { "1,5", -EINVAL, 0 },
        { "1 2", -EINVAL, 0 }, { "1e999", -ERANGE, 0 }, { "1.1", -ERANGE, 0 },
        { "--1", -EINVAL, 0 }, { "-1.01", -ERANGE, 0 }, { "e", -EINVAL, 0 },
        { ".", -EINVAL, 0 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = { 0 };
        double v = 0;
        int rc = str_real(span_of(cases[i].text), -1, 1, "x", &v, &e);
        if (rc != cases[i].rc || v != cases[i].v || (rc < 0) != (e.msg[0] != 0))
            fail_msg("'%s': %d, %g, %s", cases[i].text, rc, v, e.msg);
    }
    char longer[200];
    memset(longer, '1', sizeof longer);
    double v = 0;
    assert_int_equal(str_real(span_mem(longer, sizeof longer), -1, 1, "x", &v, NULL), -EINVAL);
    assert_int_equal(str_real(span_mem("1\0002", 3), -1, 9, "x", &v, NULL), -EINVAL);
}

static void test_compare(void **state)
{
    (void)state;
    assert_true(str_eq(NULL, NULL));
    assert_false(str_eq("a", NULL));
    assert_false(str_eq(NULL, "a"));
    assert_true(str_eq("a", "a"));
    assert_true(str_starts("tony.x", "tony."));
    assert_false(str_starts("ton", "tony."));
    assert_true(str_ends("a.xml", ".xml"));
    assert_false(str_ends("xml", ".xml"));
    assert_null(str_dup(NULL));
    AUTO(free_p) char *s = str_printf("%s-%d", "a", 1);
    assert_string_equal(s, "a-1");
    char small[4];
    assert_true(str_copy(small, sizeof small, "abc"));
    assert_false(str_copy(small, sizeof small, "abcd"));
    assert_string_equal(small, "abc");
    assert_false(str_copy(small, sizeof small, "ab\xc3\xbc")); /* a character is not cut */
    assert_string_equal(small, "ab");
    assert_false(str_copy(small, 0, "x"));
}

static void test_edit_distance(void **state)
{
    (void)state;
    assert_int_equal(str_distance("", ""), 0);
    assert_int_equal(str_distance("", "abc"), 3);
    assert_int_equal(str_distance("abc", ""), 3);
    assert_int_equal(str_distance("kitten", "sitting"), 3);
    assert_int_equal(str_distance("sitting", "kitten"), 3);
    assert_int_equal(str_distance("flaw", "lawn"), 2);
    assert_int_equal(str_distance("same", "same"), 0);
    char huge[400];
    memset(huge, 'a', sizeof huge - 1);
    huge[sizeof huge - 1] = '\0';
    assert_int_equal(str_distance(huge, "a"), 255);
    huge[255] = '\0';
    assert_int_equal(str_distance(huge, ""), 255);
    assert_int_equal(str_distance(huge, huge), 0);
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const keys[] = { "instances",
                                        "memory",
                                        "vcores",
                                        "gpus",
                                        "command",
                                        "env",
                                        "tony.task.heartbeat-interval-ms",
                                        "Run",
                                        "run" };
    static const struct {
        const char *text, *nearest;
    } cases[] = {
        { "instnaces", "instances" },
        { "instance", "instances" },
        { "memroy", "memory" },
        { "Memory", "memory" },
        { "gpu", "gpus" },
        { "en", "env" },
        { "x", NULL },
        { "", NULL },
        { "something-else", NULL },
        { "tony.task.hartbeat-intervall-ms", "tony.task.heartbeat-interval-ms" },
        { "rn", "Run" }, /* both are as near: the first one wins */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *got = str_nearest(cases[i].text, keys, ARRAY_LEN(keys));
        if (!str_eq(got, cases[i].nearest))
            fail_msg("'%s' gives '%s'", cases[i].text, got ? got : "nothing");
    }
    assert_null(str_nearest("a", NULL, 0));
}

static void test_human(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {
        { 0, "0 B" },
        { 1023, "1023 B" },
        { 1024, "1 KB" },
        { 1536, "1.5 KB" },
        { 2047, "1.9 KB" },
        { 1ull << 30, "1 GB" },
        { 3ull << 29, "1.5 GB" },
        { (200ull << 30) + (1ull << 29), "200 GB" },
        { UINT64_MAX, "15.9 EB" },
    };
    static const struct {
        int64_t ms;
        const char *text;
    } times[] = {
        { 0, "0 ms" },
        { 999, "999 ms" },
        { 1250, "1.2 s" },
        { 59999, "59.9 s" },
        { 60000, "1 m 00 s" },
        { 123000, "2 m 03 s" },
        { 3600000, "1 h 00 m" },
        { 7380000, "2 h 03 m" },
        { 86400000, "1 d 00 h" },
        { 187200000, "2 d 04 h" },
        { -1500, "-1.5 s" },
    };
    char text[40];
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        assert_string_equal(str_size(sizes[i].bytes, text, sizeof text), sizes[i].text);
    for (size_t i = 0; i < ARRAY_LEN(times); i++)
        assert_string_equal(str_duration(times[i].ms, text, sizeof text), times[i].text);
    (void)str_duration(INT64_MIN, text, sizeof text);
    assert_string_equal(str_size(1536, text, 4), "1.5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_i64),           cmocka_unit_test(test_mib),
        cmocka_unit_test(test_times),         cmocka_unit_test(test_bool),
        cmocka_unit_test(test_real),          cmocka_unit_test(test_compare),
        cmocka_unit_test(test_edit_distance), cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_human),
    };
    return cmocka_run_group_tests_name("base_str", tests, NULL, NULL);
}
