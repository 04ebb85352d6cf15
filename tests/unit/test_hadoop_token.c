/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/base.h"
#include "hadoop/ids.h"
#include "hadoop/token.h"
#include "torture.h"

static void test_vlong(void **state)
{
    (void)state;
    static const struct {
        int64_t v;
        struct span bytes;
    } rows[] = {
        { 0, SPAN("\0") },
        { 127, SPAN("\x7f") },
        { 128, SPAN("\x8f\x80") },
        { 255, SPAN("\x8f\xff") },
        { 256, SPAN("\x8e\x01\x00") },
        { 65536, SPAN("\x8d\x01\x00\x00") },
        { -1, SPAN("\xff") },
        { -112, SPAN("\x90") },
        { -113, SPAN("\x87\x70") },
        { -256, SPAN("\x87\xff") },
        { -257, SPAN("\x86\x01\x00") },
        { INT64_MAX, SPAN("\x88\x7f\xff\xff\xff\xff\xff\xff\xff") },
        { INT64_MIN, SPAN("\x80\x7f\xff\xff\xff\xff\xff\xff\xff") },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(buf_done) struct buf out = { 0 };
        assert_int_equal(writable_put_vlong(&out, rows[i].v), 0);
        assert_true(span_eq(buf_span(&out), rows[i].bytes));
        const unsigned char *p = (const unsigned char *)rows[i].bytes.p;
        struct writable r = { p, p + rows[i].bytes.len, false };
        assert_int_equal(writable_vlong(&r), rows[i].v);
        assert_false(r.bad);
        assert_ptr_equal(r.p, r.end);
        for (size_t cut = 0; cut < rows[i].bytes.len; cut++) {
            struct writable w = { p, p + cut, false };
            (void)writable_vlong(&w);
            assert_true(w.bad);
        }
    }
}

/* A master's token without alias and service, and one secret. */
static const char sample[] =
    "HDTS\0\x01\0\x0e\x0a\x0a\x0a\x06\x08\x01\x10\x80\x89\x7a\x10\x01\x10\x07\x14\0\x01\x02\x03\x04"
    "\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x10YARN_AM_RM_TOKEN\0\x01\x09my."
    "secret\x03\x01\x02\x03";

static struct span sample_span(void)
{
    return span_mem(sample, sizeof sample - 1);
}

static void check_sample(const struct credentials *c)
{
    assert_int_equal(c->tokens.n, 1);
    assert_int_equal(c->secrets.n, 1);
    const struct token *t = credentials_find(c, TOKEN_KIND_AM_RM);
    assert_non_null(t);
    assert_string_equal(c->tokens.v[0].alias, "");
    assert_string_equal(t->service, "");
    assert_int_equal(t->identifier_len, 14);
    assert_memory_equal(t->identifier, "\x0a\x0a\x0a\x06\x08\x01\x10\x80\x89\x7a\x10\x01\x10\x07",
                        14);
    assert_int_equal(t->password_len, 20);
    assert_memory_equal(t->password, "\0\x01\x02\x03", 4);
    assert_true(span_eq(credentials_secret(c, "my.secret"), SPAN("\x01\x02\x03")));
    assert_null(credentials_secret(c, "other").p);
    assert_null(credentials_find(c, TOKEN_KIND_NM));
}

static void test_storage(void **state)
{
    (void)state;
    AUTO(credentials_done) struct credentials c = { 0 };
    struct err e = { 0 };
    assert_int_equal(sample_span().len, 76);
    assert_int_equal(credentials_read(sample_span(), &c, &e), 0);
    check_sample(&c);
    AUTO(buf_done) struct buf out = { 0 };
    assert_int_equal(credentials_write(&c, &out), 0);
    assert_true(span_eq(buf_span(&out), sample_span()));

    AUTO(credentials_done) struct credentials none = { 0 };
    buf_clear(&out);
    assert_int_equal(credentials_write(&none, &out), 0);
    assert_true(span_eq(buf_span(&out), SPAN("HDTS\0\0\0")));
    assert_int_equal(credentials_read(buf_span(&out), &none, &e), 0);
    assert_int_equal(none.tokens.n + none.secrets.n, 0);
}

static void test_storage_cut(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < sample_span().len; cut++) {
        struct credentials c = { 0 };
        struct err e = { 0 };
        assert_int_equal(credentials_read(span_mem(sample, cut), &c, &e), -EINVAL);
        assert_non_null(strstr(e.msg, "token storage"));
        assert_int_equal(c.tokens.n, 0);
    }
    static const struct span bad[] = {
        SPAN("HDTX\0\0\0"),
        SPAN("HDTS\2\0\0"),
        SPAN("HDTS\0\x88\x7f\xff\xff\xff\xff\xff\xff\xff"), /* number of entries too large */
        SPAN("HDTS\0\xff\0"),                               /* -1 entries */
        SPAN("HDTS\0\1\0\x8c\x7f\xff\xff\xff"),             /* length too large */
        SPAN("HDTS\0\0\1\3a\0b\0"),                         /* NUL in an alias */
        SPAN("HDTS\1\5"),
        SPAN("HDTS\1\x80\x80\x80\x80\x80\x80"),
        SPAN("HDTS\1\2\x0a\0"), /* an entry without its alias */
        SPAN("HDTS\1\0x"),      /* more bytes after the end */
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct credentials c = { 0 };
        struct err e = { 0 };
        if (credentials_read(bad[i], &c, &e) != -EINVAL)
            fail_msg("row %zu was taken", i);
    }
}

static void test_storage_v1(void **state)
{
    (void)state;
    Hadoop__Credentials m = HADOOP__CREDENTIALS__INIT;
    Hadoop__CredentialsEntry token = HADOOP__CREDENTIALS_ENTRY__INIT;
    Hadoop__CredentialsEntry secret = HADOOP__CREDENTIALS_ENTRY__INIT;
    Hadoop__CredentialsEntry *tokens[] = { &token }, *secrets[] = { &secret };
    AUTO(credentials_done) struct credentials c = { 0 }, back = { 0 };
    struct err e = { 0 };
    Hadoop__Token t;
    assert_int_equal(credentials_read(sample_span(), &c, &e), 0);
    token_to_msg(&c.tokens.v[0].token, &t);
    char empty[] = "", name[] = "my.secret";
    token.alias = empty;
    token.token = &t;
    secret.alias = name;
    secret.has_secret = true;
    secret.secret.data = (uint8_t *)"\1\2\3";
    secret.secret.len = 3;
    m.n_tokens = m.n_secrets = 1;
    m.tokens = tokens;
    m.secrets = secrets;
    uint8_t packed[256];
    size_t n = hadoop__credentials__pack(&m, packed);
    AUTO(buf_done) struct buf b = { 0 };
    (void)buf_add(&b, "HDTS\1", 5);
    (void)buf_addc(&b, (char)n);
    (void)buf_add(&b, packed, n);
    assert_true(n < 128);
    assert_int_equal(credentials_read(buf_span(&b), &back, &e), 0);
    check_sample(&back);
}

static void test_storage_file(void **state)
{
    (void)state;
    char path[] = "/tmp/tony-token-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(fs_write_all(fd, sample, sizeof sample - 1), 0);
    (void)close(fd);
    AUTO(credentials_done) struct credentials c = { 0 };
    struct err e = { 0 };
    int rc = credentials_read_file(path, &c, &e);
    assert_int_equal(truncate(path, 20), 0);
    AUTO(credentials_done) struct credentials cut = { 0 };
    int rc_cut = credentials_read_file(path, &cut, &e);
    (void)unlink(path);
    assert_int_equal(rc, 0);
    check_sample(&c);
    assert_int_equal(rc_cut, -EINVAL);
    assert_non_null(strstr(e.msg, path));
    assert_int_equal(credentials_read_file(path, &cut, &e), -ENOENT);
}

static int make_credentials(void *ctx)
{
    (void)ctx;
    AUTO(credentials_done) struct credentials c = { 0 }, more = { 0 };
    AUTO(buf_done) struct buf out = { 0 };
    int rc = credentials_read(sample_span(), &c, NULL);
    if (rc == 0)
        rc = credentials_add_token(&more, "alias", &c.tokens.v[0].token);
    if (rc == 0)
        rc = credentials_add_secret(&more, "s", SPAN("abc"));
    if (rc == 0)
        rc = credentials_write(&more, &out);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    assert_true(torture(make_credentials, NULL) > 0);
}

/* ---- ids ---- */

static void test_ids(void **state)
{
    (void)state;
    char text[YARN_ID_TEXT_MAX];
    struct err e = { 0 };
    struct yarn_container c;
    assert_int_equal(
        yarn_container_parse(SPAN("container_e01_1700000000000_0007_01_000002"), &c, &e), 0);
    assert_int_equal(c.id, (INT64_C(1) << 40) + 2);
    assert_int_equal(c.attempt.attempt, 1);
    assert_int_equal(c.attempt.app.id, 7);
    assert_int_equal(c.attempt.app.cluster, 1700000000000);
    assert_string_equal(yarn_container_text(&c, text),
                        "container_e01_1700000000000_0007_01_000002");

    struct yarn_id_msg m;
    uint8_t packed[64];
    static const char want[] =
        "\x12\x0d\x0a\x09\x08\x07\x10\x80\xd0\x95\xff\xbc\x31\x10\x01\x18\x82"
        "\x80\x80\x80\x80\x20";
    size_t n = hadoop__container_id__pack(yarn_container_msg(&m, &c), packed);
    assert_int_equal(n, sizeof want - 1);
    assert_memory_equal(packed, want, n);
    struct yarn_container back;
    assert_true(yarn_container_get(&m.container, &back));
    assert_true(yarn_container_eq(&c, &back));

    static const char *const good[] = {
        "container_1700000000000_0007_01_000002",
        "container_e17_1700000000000_12345_123_1234567",
        "container_e100_1_0001_01_000001",
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(yarn_container_parse(span_of(good[i]), &c, &e), 0);
        assert_string_equal(yarn_container_text(&c, text), good[i]);
    }
    struct yarn_app a;
    assert_int_equal(yarn_app_parse(SPAN("application_1700000000000_0042"), &a, &e), 0);
    assert_string_equal(yarn_app_text(&a, text), "application_1700000000000_0042");
}

static void test_bad_ids(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "container_",
        "container_1_2_3",
        "container_1_2_3_4_5",
        "container_e_1_2_3_4",
        "container_e1",
        "container_1_2_3_-4",
        "container_1_2_3_ 4",
        "container_1_2_3_4 ",
        "container_1_2_3_1099511627776",
        "container_1_2_3_",
        "container_1_4294967296_3_4",
        "container_99999999999999999999_1_1_1",
        "appattempt_1_2_3",
        "CONTAINER_1_2_3_4",
    };
    struct yarn_container c;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err e = { 0 };
        if (yarn_container_parse(span_of(bad[i]), &c, &e) != -EINVAL || !e.msg[0])
            fail_msg("'%s' was taken", bad[i]);
    }
    struct yarn_app a;
    assert_int_equal(yarn_app_parse(SPAN("application_1"), &a, NULL), -EINVAL);
    assert_int_equal(yarn_app_parse(SPAN("application_1_2_3"), &a, NULL), -EINVAL);
    Hadoop__ContainerId m = HADOOP__CONTAINER_ID__INIT;
    assert_false(yarn_container_get(&m, &c));
    assert_false(yarn_container_get(NULL, &c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vlong),        cmocka_unit_test(test_storage),
        cmocka_unit_test(test_storage_cut),  cmocka_unit_test(test_storage_v1),
        cmocka_unit_test(test_storage_file), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_ids),          cmocka_unit_test(test_bad_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
