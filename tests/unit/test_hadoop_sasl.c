/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "base/base.h"
#include "hadoop/rc4.h"
#include "hadoop/sasl.h"
#include "torture.h"

#define USER "CgoKBggBEICJehABEAc="
#define PASSWORD "AAECAwQFBgcICQoLDA0ODxAREhM="
#define NONCE "GSZv72XtFx8vraH0a7lqtZz9boqwIjVwv41YybNQ"
#define RSPAUTH "rspauth=24e4e41641d134704196e523125dff66"

static struct sasl *make(unsigned qops)
{
    struct sasl_config cfg = { .user = span_of(USER),
                               .password = span_of(PASSWORD),
                               .server_id = "default",
                               .qops = qops,
                               .cnonce = "OA6MHXh6VqTrRk" };
    struct sasl *s = NULL;
    struct err e = { 0 };
    assert_int_equal(sasl_new("DIGEST-MD5", &cfg, &s, &e), 0);
    return s;
}

/* The first bytes of the streams of two keys, from RFC 6229. */
static void test_rc4(void **state)
{
    (void)state;
    static const struct {
        size_t key_len;
        unsigned char stream[16];
    } rows[] = {
        { 5,
          { 0xb2, 0x39, 0x63, 0x05, 0xf0, 0x3d, 0xc0, 0x27, 0xcc, 0xc3, 0x52, 0x4a, 0x0a, 0x11,
            0x18, 0xa8 } },
        { 16,
          { 0x9a, 0xc7, 0xcc, 0x9a, 0x60, 0x9d, 0x1e, 0xf7, 0xb2, 0x93, 0x28, 0x99, 0xcd, 0xe4,
            0x1b, 0x97 } },
    };
    static const unsigned char key[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct rc4 r;
        unsigned char got[16] = { 0 };
        rc4_setup(&r, key, rows[i].key_len);
        rc4_crypt(&r, got, 3);
        rc4_crypt(&r, got + 3, sizeof got - 3); /* the stream goes on */
        assert_memory_equal(got, rows[i].stream, sizeof got);
    }
}

/* Numbers recorded from a Java server. */
static void test_vector(void **state)
{
    (void)state;
    static const char *const challenges[] = {
        "realm=\"default\",nonce=\"" NONCE "\",qop=\"auth\",charset=utf-8,algorithm=md5-sess",
        "algorithm=md5-sess , nonce=\"" NONCE "\",,\r\n realm=default",
        "REALM=\"default\",Nonce=" NONCE
        ",qop=auth,realm=\"other\",algorithm=\"md5-sess\",x=\"a,\\\"b\"",
    };
    for (size_t i = 0; i < ARRAY_LEN(challenges); i++) {
        AUTO(sasl_freep) struct sasl *s = make(0);
        AUTO(buf_done) struct buf out = { 0 };
        struct err e = { 0 };
        assert_int_equal(sasl_step(s, span_of(challenges[i]), &out, &e), 0);
        assert_string_equal(out.p,
                            "charset=utf-8,username=\"" USER "\",realm=\"default\",nonce=\"" NONCE
                            "\",nc=00000001,cnonce=\"OA6MHXh6VqTrRk\",digest-uri=\"/default\","
                            "maxbuf=65536,response=e7c01cabd97065d0afc5586d7613b891,qop=auth");
        assert_int_equal(sasl_finish(s, span_of(RSPAUTH), &e), 0);
        assert_int_equal(sasl_qop(s), SASL_AUTH);
    }
}

static void test_server_must_prove_itself(void **state)
{
    (void)state;
    static const char *const finals[] = {
        "",    "rspauth=", "rspauth=24e4e41641d134704196e523125dff67", "rspauth=24e4",
        "x=1", "rspauth",
    };
    for (size_t i = 0; i < ARRAY_LEN(finals); i++) {
        AUTO(sasl_freep) struct sasl *s = make(0);
        AUTO(buf_done) struct buf out = { 0 };
        struct err e = { 0 };
        assert_int_equal(
            sasl_step(s, span_of("realm=\"default\",nonce=\"" NONCE "\",algorithm=md5-sess"), &out,
                      &e),
            0);
        assert_true(sasl_finish(s, span_of(finals[i]), &e) < 0);
        /* then nothing can be sent */
        AUTO(buf_done) struct buf b = { 0 };
        assert_true(sasl_wrap(s, SPAN("x"), &b, &e) < 0);
    }
    AUTO(sasl_freep) struct sasl *s = make(0);
    struct err e = { 0 };
    assert_int_equal(sasl_finish(s, span_of(RSPAUTH), &e), -EACCES);
}

static void test_bad_challenges(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        const char *says;
    } rows[] = {
        { "", -EPROTO, "no nonce" },
        { "nonce=\"\",algorithm=md5-sess", -EPROTO, "no nonce" },
        { "nonce=\"abc,algorithm=md5-sess", -EPROTO, "quote" },
        { "nonce", -EPROTO, "no value" },
        { "nonce=a,nonce=b,algorithm=md5-sess", -EPROTO, "twice" },
        { "nonce=\"a\"b,algorithm=md5-sess", -EPROTO, "comma" },
        { "nonce=a,algorithm=sha-256", -EACCES, "sha-256" },
        { "nonce=a", -EACCES, "algorithm" },
        { "nonce=a,algorithm=md5-sess,qop=\"auth-conf\"", -EACCES, "auth-conf" },
        { "nonce=a,algorithm=md5-sess,qop=\"auth-conf\",cipher=\"3des,des\"", -EACCES, "3des" },
        { "nonce=a,algorithm=md5-sess,maxbuf=x", -EPROTO, "maxbuf" },
        { "nonce=a,algorithm=md5-sess,maxbuf=16", -EPROTO, "maxbuf" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(sasl_freep) struct sasl *s = make(0);
        AUTO(buf_done) struct buf out = { 0 };
        struct err e = { 0 };
        int rc = sasl_step(s, span_of(rows[i].text), &out, &e);
        if (rc != rows[i].rc || !strstr(e.msg, rows[i].says))
            fail_msg("%s: %d %s", rows[i].text, rc, e.msg);
    }
    AUTO(sasl_freep) struct sasl *s = make(0);
    AUTO(buf_done) struct buf out = { 0 };
    struct err e = { 0 };
    assert_int_equal(sasl_step(s, SPAN("nonce=a\0,algorithm=md5-sess"), &out, &e), -EPROTO);
    AUTO(buf_done) struct buf big = { 0 };
    while (big.len <= SASL_TOKEN_MAX)
        (void)buf_adds(&big, "x=1,");
    assert_int_equal(sasl_step(s, buf_span(&big), &out, &e), -EPROTO);
    assert_int_equal(sasl_step(s, SPAN("nonce=a,algorithm=md5-sess"), &out, &e), 0);
    /* A second time. */
    assert_int_equal(sasl_step(s, SPAN("nonce=a,algorithm=md5-sess"), &out, &e), -EPROTO);
}

static void test_strongest_protection(void **state)
{
    (void)state;
    static const struct {
        const char *qop;
        unsigned ours;
        enum sasl_qop chosen;
        size_t slice;
    } rows[] = {
        { "qop=\"auth,auth-int,auth-conf\",cipher=\"3des,rc4,des\"", 0, SASL_AUTH_CONF, 65510 },
        { "qop=\"auth-conf, auth-int ,auth\",cipher=\"rc4\"", SASL_AUTH | SASL_AUTH_INT,
          SASL_AUTH_INT, 65520 },
        { "qop=\"auth-int,auth-conf\",cipher=\"3des\"", 0, SASL_AUTH_INT, 65520 },
        { "qop=\"auth-int\",maxbuf=1000", 0, SASL_AUTH_INT, 984 },
        { "qop=\"auth\"", 0, SASL_AUTH, 65520 },
        { "qop=auth,stale=true", 0, SASL_AUTH, 65520 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(sasl_freep) struct sasl *s = make(rows[i].ours);
        AUTO(buf_done) struct buf out = { 0 }, text = { 0 };
        struct err e = { 0 };
        (void)buf_addf(&text, "realm=\"default\",nonce=\"n\",algorithm=md5-sess,%s", rows[i].qop);
        assert_int_equal(sasl_step(s, buf_span(&text), &out, &e), 0);
        assert_int_equal(sasl_qop(s), rows[i].chosen);
        assert_int_equal(sasl_slice_max(s), rows[i].slice);
        AUTO(buf_done) struct buf want = { 0 };
        (void)buf_addf(&want, ",qop=%s%s", sasl_qop_name(rows[i].chosen),
                       rows[i].chosen == SASL_AUTH_CONF ? ",cipher=rc4" : "");
        assert_true(str_ends(out.p, want.p));
    }
}

static void test_unknown_mechanism(void **state)
{
    (void)state;
    struct sasl_config cfg = { .user = span_of("a"), .password = span_of("b") };
    struct sasl *s = NULL;
    struct err e = { 0 };
    assert_int_equal(sasl_new("SCRAM-SHA-256", &cfg, &s, &e), -ENOTSUP);
    assert_non_null(strstr(e.msg, "SCRAM-SHA-256"));
    assert_null(s);
}

/* Two handshakes never use the same client nonce. */
static void test_cnonce_is_random(void **state)
{
    (void)state;
    char seen[2][64] = { "", "" };
    for (int i = 0; i < 2; i++) {
        struct sasl_config cfg = { .user = span_of("a"), .password = span_of("b") };
        AUTO(sasl_freep) struct sasl *s = NULL;
        AUTO(buf_done) struct buf out = { 0 };
        struct err e = { 0 };
        assert_int_equal(sasl_new("DIGEST-MD5", &cfg, &s, &e), 0);
        assert_int_equal(sasl_step(s, SPAN("nonce=a,algorithm=md5-sess"), &out, &e), 0);
        const char *p = strstr(out.p, "cnonce=\"");
        assert_non_null(p);
        (void)snprintf(seen[i], sizeof seen[i], "%.32s", p + 8);
        assert_int_equal(strcspn(seen[i], "\""), 32);
    }
    assert_string_not_equal(seen[0], seen[1]);
}

static int handshake(void *ctx)
{
    (void)ctx;
    struct sasl_config cfg = { .user = span_of(USER),
                               .password = span_of(PASSWORD),
                               .server_id = "default" };
    AUTO(sasl_freep) struct sasl *s = NULL;
    AUTO(buf_done) struct buf out = { 0 };
    int rc = sasl_new("DIGEST-MD5", &cfg, &s, NULL);
    if (rc == 0)
        rc = sasl_step(s, SPAN("realm=\"default\",nonce=\"a\",qop=\"auth-int\",algorithm=md5-sess"),
                       &out, NULL);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    assert_true(torture(handshake, NULL) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rc4),
        cmocka_unit_test(test_vector),
        cmocka_unit_test(test_server_must_prove_itself),
        cmocka_unit_test(test_bad_challenges),
        cmocka_unit_test(test_strongest_protection),
        cmocka_unit_test(test_unknown_mechanism),
        cmocka_unit_test(test_cnonce_is_random),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
