/* SPDX-License-Identifier: Apache-2.0 */
/* Reading one secret from a token storage, in both of its versions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/util.h"
#include "codec/hdts.h"

/* An AMRMToken with empty alias and service, and the secret my.secret = 01 02 03. */
static const char sample[] =
    "HDTS\0\x01\0\x0e\x0a\x0a\x0a\x06\x08\x01\x10\x80\x89\x7a\x10\x01\x10\x07"
    "\x14\0\1\2\3\4\5\6\7\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13"
    "\x10YARN_AM_RM_TOKEN\0\x01\x09my.secret\x03\1\2\3";
/* The same in version 1; the secret is there twice. */
static const char proto[] =
    "HDTS\x01\x2a"
    "\x0a\x06\x0a\0\x12\x02\x0a\0"             /* a token */
    "\x12\x0e\x0a\x09my.secret\x1a\x01\x07"    /* the first entry with this name */
    "\x12\x10\x1a\x03\1\2\3\x0a\x09my.secret"; /* value before alias */

static void the_secret_is_found(void **state)
{
    (void)state;
    struct span out;
    struct err e = { 0 };
    assert_int_equal(hdts_secret(span_mem(sample, sizeof sample - 1), "my.secret", &out, &e), 0);
    assert_true(out.len == 3 && memcmp(out.p, "\1\2\3", 3) == 0);
    assert_int_equal(hdts_secret(span_mem(proto, sizeof proto - 1), "my.secret", &out, &e), 0);
    assert_true(out.len == 1 && out.p[0] == 7);
}

static void long_secret(void **state)
{
    (void)state;
    char text[400] = "HDTS\0\0\1\1k\x8f\xc8"; /* 200 bytes */
    memset(text + 11, 'x', 200);
    struct span out;
    struct err e = { 0 };
    assert_int_equal(hdts_secret(span_mem(text, 211), "k", &out, &e), 0);
    assert_int_equal(out.len, 200);
    assert_ptr_equal(out.p, text + 11);
    assert_int_equal(hdts_secret(span_mem(text, 210), "k", &out, &e), -EINVAL);
}

static void errors_of_a_token_storage(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        int rc;
        const char *says;
    } rows[] = {
        { "HDTS\0\0\0", 7, -ENOENT, "'my.secret'" },
        { "", 0, -EINVAL, "not a token storage" },
        { "HDTS", 4, -EINVAL, "not a token storage" },
        { "XDTS\0\0\0", 7, -EINVAL, "not a token storage" },
        { "HDTS\2\0\0", 7, -EINVAL, "version 2" },
        { "HDTS\0\0", 6, -EINVAL, "cut short" },
        { "HDTS\0\x87\x70", 7, -EINVAL, "cut short" }, /* -113 tokens */
        { "HDTS\0\xff", 6, -EINVAL, "cut short" },     /* -1 tokens */
        { "HDTS\0\x88\x7f\xff\xff\xff\xff\xff\xff\xff", 14, -EINVAL, "cut short" },
        { "HDTS\0\0\1\1k\x8c\x7f\xff\xff\xff", 14, -EINVAL, "cut short" },
        { "HDTS\1\x02\x0b\0", 8, -EINVAL, "cut short" }, /* a group */
        { "HDTS\1\x7f", 6, -EINVAL, "cut short" },
        { "HDTS\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 16, -EINVAL, "cut short" },
        { "HDTS\1\0", 6, -ENOENT, "'my.secret'" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct span out = { 0 };
        struct err e = { 0 };
        int rc = hdts_secret(span_mem(rows[i].text, rows[i].n), "my.secret", &out, &e);
        if (rc != rows[i].rc || !strstr(e.msg, rows[i].says) || out.p)
            fail_msg("row %zu: %d, %s", i, rc, e.msg);
    }
    for (size_t n = 0; n < sizeof sample - 1; n++) {
        struct span out;
        assert_true(hdts_secret(span_mem(sample, n), "my.secret", &out, NULL) < 0);
    }
    for (size_t n = 0; n < sizeof proto - 1; n++) {
        struct span out;
        assert_true(hdts_secret(span_mem(proto, n), "my.secret", &out, NULL) < 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_secret_is_found),
        cmocka_unit_test(long_secret),
        cmocka_unit_test(errors_of_a_token_storage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
