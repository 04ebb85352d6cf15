/* SPDX-License-Identifier: Apache-2.0 */
/* The encrypted secrets of a job: only its own key opens them, and only undamaged. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "storage/jobkey.h"
#include "storage/sealed.h"
#include "torture.h"

#define APP "application_1700000000000_0007"

static const struct job_key key = { "0123456789abcdef0123456789abcde" };

static void seal(struct span text, struct buf *out)
{
    struct err e = { 0 };
    if (sealed_write(&key, APP, text, out, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(out->len, text.len + SEALED_EXTRA);
}

static void opened_with_its_key(void **state)
{
    (void)state;
    static char large[64 << 10];
    memset(large, 'x', sizeof large);
    const struct span texts[] = { { "", 0 }, { "A=hunter2\0", 10 }, { large, sizeof large } };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        AUTO(buf_done) struct buf one = { 0 }, two = { 0 }, back = { .max = sizeof large };
        struct err e = { 0 };
        seal(texts[i], &one);
        seal(texts[i], &two);
        assert_false(span_eq(buf_span(&one), buf_span(&two))); /* each has its own nonce */
        assert_false(span_has(buf_span(&one), "hunter2"));
        if (sealed_read(&key, APP, buf_span(&one), &back, &e) < 0)
            fail_msg("%s", e.msg);
        assert_true(span_eq(buf_span(&back), texts[i]));
    }
}

static void expect_refused(const struct job_key *k, const char *app, struct span text, int num)
{
    AUTO(buf_done) struct buf out = { .max = 64 };
    struct err e = { 0 };
    assert_int_equal(buf_adds(&out, "before"), 0);
    assert_int_equal(sealed_read(k, app, text, &out, &e), -num);
    assert_string_equal(buf_cstr(&out), "before");
    assert_non_null(strstr(e.msg, "secrets"));
}

static void refused_otherwise(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf text = { 0 }, large = { 0 };
    struct job_key other = key;
    other.bytes[31] ^= 1;
    seal(SPAN("A=hunter2"), &text);
    expect_refused(&other, APP, buf_span(&text), EBADMSG);
    expect_refused(&key, "application_1700000000000_0008", buf_span(&text), EBADMSG);
    for (size_t n = 0; n < text.len; n++)
        expect_refused(&key, APP, span_mem(text.p, n), EBADMSG);
    for (size_t i = 0; i < 8 * text.len; i++) {
        text.p[i / 8] = (char)(text.p[i / 8] ^ 1 << i % 8);
        expect_refused(&key, APP, buf_span(&text), EBADMSG);
        text.p[i / 8] = (char)(text.p[i / 8] ^ 1 << i % 8);
    }
    seal(SPAN("sixty and more characters, which is more than the buffer may hold"), &large);
    expect_refused(&key, APP, buf_span(&large), EMSGSIZE);
}

/* Later versions must be able to read this file. Its bytes were made with another implementation of
 * HKDF and AES-GCM. */
static void a_file_of_another_implementation_is_read(void **state)
{
    (void)state;
    static const unsigned char file[] = {
        0x54, 0x53, 0x45, 0x31, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09,
        0x0a, 0x0b, 0x37, 0x64, 0xf9, 0x1f, 0x9d, 0x93, 0x8b, 0x0b, 0xe3, 0x34, 0x18, 0x50,
        0xc7, 0x36, 0xe0, 0x9e, 0xc6, 0x24, 0x15, 0xc1, 0x83, 0xa7, 0x63, 0x5f, 0x2d, 0x10,
    };
    AUTO(buf_done) struct buf back = { 0 };
    struct err e = { 0 };
    if (sealed_read(&key, APP, span_mem(file, sizeof file), &back, &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(span_eq(buf_span(&back), span_mem("A=1\0B=two\0", 10)));
}

static int both_ways(void *ctx)
{
    struct buf text = { 0 }, back = { 0 };
    struct err e = { 0 };
    (void)ctx;
    int rc = sealed_write(&key, APP, SPAN("A=1"), &text, &e);
    if (rc == 0)
        rc = sealed_read(&key, APP, buf_span(&text), &back, &e);
    buf_done(&text);
    buf_done(&back);
    return rc;
}

static void without_memory(void **state)
{
    (void)state;
    assert_true(torture(both_ways, NULL) >= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opened_with_its_key),
        cmocka_unit_test(refused_otherwise),
        cmocka_unit_test(a_file_of_another_implementation_is_read),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests_name("sealed", tests, NULL, NULL);
}
