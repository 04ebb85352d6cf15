/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job's key and the values derived from it. The expected values come from another
 * implementation of RFC 5869.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "storage/jobkey.h"
#include "torture.h"

static void counting(struct job_key *k)
{
    for (size_t i = 0; i < sizeof k->bytes; i++)
        k->bytes[i] = (unsigned char)i;
}

static void expect_hex(const struct tls_key *k, const char *hex)
{
    char text[JOB_KEY_HEX];
    assert_int_equal(k->len, JOB_KEY_BYTES);
    job_key_text(k, text);
    assert_int_equal(strlen(text), 65);
    assert_int_equal(text[64], '\n');
    assert_memory_equal(text, hex, 64);
}

static void derived(void **state)
{
    (void)state;
    struct job_key k;
    struct tls_key out;
    counting(&k);
    job_key_client(&k, &out);
    expect_hex(&out, "1f208e01711853a420749430200845560d1fc106432e37bdeae0b10a7804b633");
    job_key_container(&k, "container_e17_1410901177871_0001_01_000005", &out);
    expect_hex(&out, "97a5bbbc6f4efc673512c7b15800e6ff1c4bb5dbffd8299fc9024ec463f28cc2");
    char endless[300];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    job_key_container(&k, endless, &out);
    assert_int_equal(out.len, 0);
}

static void made_and_read(void **state)
{
    (void)state;
    struct job_key a, b, c;
    struct err e = { 0 };
    assert_int_equal(job_key_new(&a, &e), 0);
    assert_int_equal(job_key_new(&b, &e), 0);
    assert_memory_not_equal(a.bytes, b.bytes, sizeof a.bytes);
    assert_int_equal(job_key_read((struct span){ (char *)a.bytes, 32 }, &c, &e), 0);
    assert_memory_equal(a.bytes, c.bytes, sizeof a.bytes);
    assert_int_equal(job_key_read((struct span){ (char *)a.bytes, 31 }, &c, &e), -EINVAL);
    assert_string_equal(e.msg, "the job's key has 31 bytes, but must have 32");
    job_key_wipe(&a, sizeof a);
    assert_memory_not_equal(a.bytes, c.bytes, sizeof a.bytes);
}

static void text(void **state)
{
    (void)state;
    struct job_key k;
    struct tls_key a, b;
    struct err e = { 0 };
    char hex[JOB_KEY_HEX];
    counting(&k);
    job_key_client(&k, &a);
    job_key_text(&a, hex);
    assert_int_equal(job_key_parse(span_of(hex), &b, &e), 0);
    assert_int_equal(b.len, a.len);
    assert_memory_equal(a.bytes, b.bytes, a.len);
    assert_int_equal(job_key_parse((struct span){ hex, 64 }, &b, &e), 0);
    assert_int_equal(job_key_parse((struct span){ hex, 63 }, &b, &e), -EINVAL);
    assert_string_equal(e.msg, "the client's key must be 64 hex digits");
    hex[7] = 'g';
    assert_int_equal(job_key_parse(span_of(hex), &b, &e), -EINVAL);
    hex[7] = 'A'; /* tony uses lower case only */
    assert_int_equal(job_key_parse(span_of(hex), &b, &e), -EINVAL);
    assert_int_equal(job_key_parse(span_of(""), &b, &e), -EINVAL);
}

static void identities(void **state)
{
    (void)state;
    char id[TLS_IDENTITY_MAX];
    assert_true(job_key_identity("container_1_0001_01_000002", id));
    assert_string_equal(id, "executor container_1_0001_01_000002");
    assert_string_equal(job_key_container_of(id), "container_1_0001_01_000002");
    assert_null(job_key_container_of("client"));
    assert_null(job_key_container_of("executor"));
    assert_null(job_key_container_of("executor "));
    assert_null(job_key_container_of(""));
    char endless[TLS_IDENTITY_MAX];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_false(job_key_identity(endless, id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(derived),
        cmocka_unit_test(made_and_read),
        cmocka_unit_test(text),
        cmocka_unit_test(identities),
    };
    return cmocka_run_group_tests_name("jobkey", tests, NULL, NULL);
}
