/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The secret of a job and its arbiter. The expected values come from another implementation of
 * X25519 and HKDF.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "storage/resizekey.h"

#define APP "application_1700000000000_0001"
#define ARBITER "8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285f"
#define PAIR "7d9c24316539825c1896e57f28197746793ce60cbee3ad47da9d07b85fa55e2a"
#define MARK "8f40c5adb68f2562"

/* The private key 00 01 02 ... 1f; ARBITER is its public key. */
static struct arbiter_key counting(void)
{
    struct arbiter_key k;
    for (size_t i = 0; i < sizeof k.bytes; i++)
        k.bytes[i] = (unsigned char)i;
    return k;
}

static struct arbiter_key key_of(const char *hex)
{
    struct arbiter_key k;
    assert_int_equal(arbiter_key_parse(span_of(hex), &k, NULL), 0);
    return k;
}

static void expect_key(const struct tls_key *k, const char *hex)
{
    struct arbiter_key expected = key_of(hex);
    assert_int_equal(k->len, sizeof expected.bytes);
    assert_memory_equal(k->bytes, expected.bytes, k->len);
}

static void known_values(void **state)
{
    struct arbiter_key secret = counting(), public;
    struct tls_key k;
    struct err e = { 0 };
    char text[ARBITER_KEY_HEX];
    (void)state;
    assert_int_equal(arbiter_key_public(&secret, &public, &e), 0);
    arbiter_key_text(&public, text);
    assert_string_equal(text, ARBITER);
    assert_int_equal(resize_key_accept(&secret, RESIZE_KEY_TAG MARK PAIR, APP, &k, &e), 0);
    expect_key(&k, "d9c4522f430a190e6e302b2ab1db297ba84d5c97bc9d064ddaecb56bd3453b3c");
}

static void both_sides_have_the_same_key(void **state)
{
    struct arbiter_key secret = counting(), public = key_of(ARBITER), other = counting();
    struct tls_key offered, again, accepted;
    char tag[RESIZE_TAG_MAX], tag_again[RESIZE_TAG_MAX];
    struct err e = { 0 };
    (void)state;
    assert_int_equal(resize_key_offer(&public, APP, &offered, tag, &e), 0);
    assert_int_equal(resize_key_accept(&secret, tag, APP, &accepted, &e), 0);
    assert_int_equal(offered.len, accepted.len);
    assert_memory_equal(offered.bytes, accepted.bytes, offered.len);
    assert_true(strlen(tag) <= 100); /* YARN's limit */
    assert_true(resize_key_is_for(tag, &public));
    /* Each job has a pair of its own. */
    assert_int_equal(resize_key_offer(&public, APP, &again, tag_again, &e), 0);
    assert_memory_not_equal(offered.bytes, again.bytes, offered.len);
    assert_string_not_equal(tag, tag_again);
    /* The tag of one job is of no use for another one, or for another arbiter. */
    assert_int_equal(
        resize_key_accept(&secret, tag, "application_1700000000000_0002", &accepted, &e), 0);
    assert_memory_not_equal(offered.bytes, accepted.bytes, offered.len);
    other.bytes[3] ^= 1;
    assert_int_equal(resize_key_accept(&other, tag, APP, &accepted, &e), -EINVAL);
}

static void bad_keys_and_tags(void **state)
{
    static const char *const bad_tags[] = {
        "",
        RESIZE_KEY_TAG,
        RESIZE_KEY_TAG MARK,
        RESIZE_KEY_TAG MARK PAIR "0",
        "tony_arbiter:" MARK PAIR,
        RESIZE_KEY_TAG "0000000000000000" PAIR,
        /* the point 0, which has no secret */
        RESIZE_KEY_TAG MARK "0000000000000000000000000000000000000000000000000000000000000000",
        /* 1, another one of low order */
        RESIZE_KEY_TAG MARK "0100000000000000000000000000000000000000000000000000000000000000",
        /* no hex digits */
        RESIZE_KEY_TAG MARK "7D9C24316539825c1896e57f28197746793ce60cbee3ad47da9d07b85fa55e2a",
    };
    struct arbiter_key secret = counting(), k, zero = { { 0 } };
    struct tls_key out;
    char tag[RESIZE_TAG_MAX];
    struct err e = { 0 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad_tags); i++)
        if (resize_key_accept(&secret, bad_tags[i], APP, &out, &e) != -EINVAL)
            fail_msg("accepted: %s", bad_tags[i]);
    assert_int_equal(resize_key_offer(&zero, APP, &out, tag, &e), -EINVAL);
    assert_int_equal(arbiter_key_parse(span_of(ARBITER "0"), &k, &e), -EINVAL);
    assert_int_equal(arbiter_key_parse(span_of(""), &k, &e), -EINVAL);
    assert_string_equal(e.msg, "an arbiter's key must be 64 hex digits in lower case");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(both_sides_have_the_same_key),
        cmocka_unit_test(bad_keys_and_tags),
    };
    return cmocka_run_group_tests_name("resizekey", tests, NULL, NULL);
}
