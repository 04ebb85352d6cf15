/* SPDX-License-Identifier: Apache-2.0 */
/* JSON: the strict reader, and the escaping of written text. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "codec/json.h"
#include "torture.h"

static void test_escape(void **state)
{
    (void)state;
    static const struct {
        struct span in;
        const char *out;
    } cases[] = {
        { { "", 0 }, "\"\"" },
        { { NULL, 0 }, "\"\"" },
        { { "abc", 3 }, "\"abc\"" },
        { { "a\"b\\c", 5 }, "\"a\\\"b\\\\c\"" },
        { { "\b\f\n\r\t", 5 }, "\"\\b\\f\\n\\r\\t\"" },
        { { "\x01\x1f\x7f", 3 }, "\"\\u0001\\u001f\\u007f\"" },
        { { "a\0b", 3 }, "\"a\\u0000b\"" },
        { { "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9 },
          "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"" },
        { { "a\xff"
            "b",
            3 },
          "\"a\xef\xbf\xbd"
          "b\"" },
        { { "\xc3", 1 }, "\"\xef\xbf\xbd\"" },
        { { "\xc3(", 2 }, "\"\xef\xbf\xbd(\"" },
        { { "\xed\xa0\x80", 3 }, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
        { { "\"\xff\"", 3 }, "\"\\\"\xef\xbf\xbd\\\"\"" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b = { 0 };
        assert_int_equal(0, json_add_str(&b, cases[i].in));
        assert_string_equal(buf_cstr(&b), cases[i].out);
        /* and a strict reader accepts it */
        json_t *j = json_loadb(b.p, b.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(j);
        json_decref(j);
        buf_done(&b);
    }
    struct buf small = { .max = 4 };
    assert_int_equal(-EMSGSIZE, json_add_str(&small, SPAN("abcdef")));
    buf_done(&small);
}

static void test_leave_out(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out; /* NULL: -EINVAL */
    } cases[] = {
        { "{}", "{}" },
        { "{\"tasks\":[]}", "{}" },
        { "{\"a\":1,\"tasks\":[{\"tasks\":\"]}\\\"\"}],\"b\":\"tasks\"}",
          "{\"a\":1,\"b\":\"tasks\"}" },
        { " { \"tasks\" : [1, 2] , \"b\": {\"tasks\": 1} } \n", "{ \"b\": {\"tasks\": 1}}" },
        { "{\"task\":1,\"tasks2\":2}", "{\"task\":1,\"tasks2\":2}" },
        { "{\"a\":1", NULL },
        { "[1]", NULL },
        { "", NULL },
        { "{\"a\":[1}", NULL },
        { "{\"a\":[1]2}", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b = { 0 };
        assert_int_equal(json_leave_out(span_of(cases[i].in), "tasks", &b),
                         cases[i].out ? 0 : -EINVAL);
        if (cases[i].out)
            assert_string_equal(buf_cstr(&b), cases[i].out);
        buf_done(&b);
    }
    struct buf small = { .max = 4 };
    assert_int_equal(json_leave_out(SPAN("{\"a\":1}"), "tasks", &small), -EMSGSIZE);
    buf_done(&small);
}

static void test_parse(void **state)
{
    (void)state;
    static const struct {
        struct span in;
        int rc;
        const char *sentence;
    } cases[] = {
        { { "{\"a\":[1,2,{\"b\":null}]}", 22 }, 0, "" },
        { { " \"x\" ", 5 }, 0, "" },
        { { "", 0 }, -EINVAL, "t:1: cannot be read as JSON: " },
        { { "{}x", 3 }, -EINVAL, "t:1: cannot be read as JSON: " },
        { { "{\"a\":1,\n\"a\":2}", 14 }, -EINVAL, "t:2: cannot be read as JSON: " },
        { { "{\"a\":\n\n01}", 10 }, -EINVAL, "t:3: cannot be read as JSON: " },
        { { "[\"a\\u0000\"]", 11 }, -EINVAL, "t:1: cannot be read as JSON: " },
        { { "[\"\xff\"]", 5 }, -EINVAL, "t:1: cannot be read as JSON: " },
        { { "[1,]", 4 }, -EINVAL, "t:1: cannot be read as JSON: " },
        { { "[\"]\\\"[[[\"", 9 }, -EINVAL, "t:1: cannot be read as JSON: " },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = { 0 };
        json_t *j = NULL;
        int rc = json_parse("t", cases[i].in, &j, &e);
        if (rc != cases[i].rc || !str_starts(e.msg, cases[i].sentence))
            fail_msg("'%s' gives %d, %s", cases[i].in.p, rc, e.msg);
        json_decref(j);
    }
}

static void test_depth(void **state)
{
    (void)state;
    struct buf b = { 0 };
    struct err e = { 0 };
    json_t *j = NULL;
    for (int i = 0; i < JSON_DEPTH_MAX; i++)
        assert_int_equal(0, buf_adds(&b, "["));
    for (int i = 0; i < JSON_DEPTH_MAX; i++)
        assert_int_equal(0, buf_adds(&b, "]"));
    assert_int_equal(0, json_parse("t", buf_span(&b), &j, &e));
    json_decref(j);
    buf_clear(&b);
    for (int i = 0; i <= JSON_DEPTH_MAX; i++) /* one level more */
        assert_int_equal(0, buf_adds(&b, "["));
    for (int i = 0; i <= JSON_DEPTH_MAX; i++)
        assert_int_equal(0, buf_adds(&b, "]"));
    assert_int_equal(-EINVAL, json_parse("t", buf_span(&b), &j, &e));
    assert_string_equal(e.msg, "t:1: nested more than 64 levels deep");
    buf_clear(&b);
    assert_int_equal(0, buf_adds(&b, "[\"[[[[[[\\\"[[\",\n"));
    for (int i = 0; i < 100000; i++)
        assert_int_equal(0, buf_adds(&b, "{\"a\":"));
    assert_int_equal(-EINVAL, json_parse("t", buf_span(&b), &j, &e));
    assert_string_equal(e.msg, "t:2: nested more than 64 levels deep");
    buf_done(&b);
}

static void test_members(void **state)
{
    (void)state;
    json_t *j = NULL;
    assert_int_equal(
        0, json_parse("t", SPAN("{\"s\":\"x\",\"i\":-5,\"b\":true,\"f\":1.5}"), &j, NULL));
    assert_string_equal(json_str(j, "s", "d"), "x");
    assert_string_equal(json_str(j, "i", "d"), "d");
    assert_string_equal(json_str(j, "none", "d"), "d");
    assert_null(json_str(j, "none", NULL));
    assert_int_equal(json_int(j, "i", 7), -5);
    assert_int_equal(json_int(j, "s", 7), 7);
    assert_int_equal(json_int(j, "f", 7), 7);
    assert_true(json_flag(j, "b", false));
    assert_false(json_flag(j, "s", false));
    assert_true(json_flag(j, "none", true));
    json_decref(j);
}

static int escape_once(void *ctx)
{
    struct buf b = { 0 };
    int rc = json_add_str(&b, span_of(ctx));
    buf_done(&b);
    return rc;
}

static void test_torture(void **state)
{
    (void)state;
    /* jansson reports a lack of memory as other errors in some places: here the test only looks for
     * leaks */
    struct err e = { 0 };
    for (unsigned n = 1;; n++) {
        json_t *j = NULL;
        torture_arm(n, false);
        int rc = json_parse("t", SPAN("{\"a\":[1,\"two\",{\"b\":null}]}"), &j, &e);
        bool hit = torture_hit();
        torture_arm(0, false);
        json_decref(j);
        if (!hit) {
            assert_int_equal(0, rc);
            break;
        }
    }
    assert_true(torture(escape_once, (void *)"a\"b\n\xff") >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escape),  cmocka_unit_test(test_leave_out),
        cmocka_unit_test(test_parse),   cmocka_unit_test(test_depth),
        cmocka_unit_test(test_members), cmocka_unit_test(test_torture),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
