/* SPDX-License-Identifier: Apache-2.0 */
#include "hadoop_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/base.h"
#include "codec/mbed.h"
#include "proto/hadoop_rpc.pb-c.h"

/* ---- digests ---- */

static void md5(const void *p, size_t n, unsigned char out[16])
{
    assert_int_equal(mbedtls_md5(p, n, out), 0);
}

static void hex(const unsigned char *p, char out[33])
{
    for (int i = 0; i < 16; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", p[i]);
}

/* HMAC-MD5 of the sequence number and the message, computed as RFC 2104 defines it. */
static void hmac(const unsigned char key[16], uint32_t seq, const void *p, size_t n,
                 unsigned char out[16])
{
    unsigned char pad[64], inner[16],
        be[4] = { (unsigned char)(seq >> 24), (unsigned char)(seq >> 16), (unsigned char)(seq >> 8),
                  (unsigned char)seq };
    struct buf b = { .max = 512 << 20 };
    for (int i = 0; i < 64; i++)
        pad[i] = (unsigned char)((i < 16 ? key[i] : 0) ^ 0x36);
    (void)buf_add(&b, pad, 64);
    (void)buf_add(&b, be, 4);
    assert_int_equal(buf_add(&b, p, n), 0);
    md5(b.p, b.len, inner);
    buf_clear(&b);
    for (int i = 0; i < 64; i++)
        pad[i] = (unsigned char)((i < 16 ? key[i] : 0) ^ 0x5c);
    (void)buf_add(&b, pad, 64);
    assert_int_equal(buf_add(&b, inner, 16), 0);
    md5(b.p, b.len, out);
    buf_done(&b);
}

/* ---- frames ---- */

static void put_varint(struct buf *b, size_t v)
{
    for (; v >= 0x80; v >>= 7)
        (void)buf_addc(b, (char)(v | 0x80));
    (void)buf_addc(b, (char)v);
}

static void put_message(struct buf *b, const ProtobufCMessage *m)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    put_varint(b, n);
    unsigned char *p = buf_reserve(b, n + 1);
    assert_non_null(p);
    protobuf_c_message_pack(m, p);
    buf_commit(b, n);
}

static void put_u32(struct buf *b, uint32_t v)
{
    for (int s = 24; s >= 0; s -= 8)
        (void)buf_addc(b, (char)(v >> s));
}

static void put_frame(struct buf *out, const Hadoop__RpcResponseHeader *h, const struct span *body)
{
    struct buf b = { .max = 512 << 20 };
    put_message(&b, &h->base);
    if (body) {
        put_varint(&b, body->len);
        (void)buf_add(&b, body->p ? body->p : "", body->len);
    }
    put_u32(out, (uint32_t)b.len);
    assert_int_equal(buf_add(out, b.p, b.len), 0);
    buf_done(&b);
}

static void send_sasl(struct server *s, Hadoop__RpcSasl *m)
{
    Hadoop__RpcResponseHeader h = HADOOP__RPC_RESPONSE_HEADER__INIT;
    struct buf b = { .max = 512 << 20 };
    h.call_id = (uint32_t)-33;
    h.status = HADOOP__RPC_RESPONSE_HEADER__STATUS__SUCCESS;
    unsigned char *p = buf_reserve(&b, hadoop__rpc_sasl__get_packed_size(m) + 1);
    buf_commit(&b, hadoop__rpc_sasl__pack(m, p));
    struct span body = buf_span(&b);
    put_frame(&s->out, &h, &body);
    buf_done(&b);
}

/* Sends one response as one frame, whatever its size. */
static void send_frame(struct server *s, const Hadoop__RpcResponseHeader *h,
                       const struct span *body)
{
    if (!s->wrapping) {
        put_frame(&s->out, h, body);
        return;
    }
    struct buf b = { .max = 512 << 20 };
    unsigned char mac[16];
    put_frame(&b, h, body);
    hmac(s->mac_out, s->seq_out, b.p, b.len, mac);
    if (s->spoil_mac)
        mac[3] ^= 1;
    s->spoil_mac = false;
    (void)buf_add(&b, mac, 10);
    if (s->conf)
        rc4_crypt(&s->rc4_out, (unsigned char *)b.p, b.len);
    (void)buf_add(&b, "\0\1", 2);
    put_u32(&b, s->seq_out++);
    Hadoop__RpcSasl m = HADOOP__RPC_SASL__INIT;
    m.state = HADOOP__RPC_SASL__STATE__WRAP;
    m.has_token = true;
    m.token.data = (uint8_t *)b.p;
    m.token.len = b.len;
    send_sasl(s, &m);
    buf_done(&b);
}

void server_answer(struct server *s, int32_t id, struct span body)
{
    Hadoop__RpcResponseHeader h = HADOOP__RPC_RESPONSE_HEADER__INIT;
    h.call_id = (uint32_t)id;
    h.status = HADOOP__RPC_RESPONSE_HEADER__STATUS__SUCCESS;
    h.has_server_version = true;
    h.server_version = 9;
    send_frame(s, &h, &body);
}

void server_refuse(struct server *s, int32_t id, int status, int detail, const char *class_name,
                   const char *message)
{
    Hadoop__RpcResponseHeader h = HADOOP__RPC_RESPONSE_HEADER__INIT;
    h.call_id = (uint32_t)id;
    h.status = (Hadoop__RpcResponseHeader__Status)status;
    h.exception_class = (char *)class_name;
    h.error_message = (char *)message;
    h.has_error_detail = true;
    h.error_detail = detail;
    send_frame(s, &h, NULL);
    s->refused = s->refused || status == 2;
}

/* ---- the handshake ---- */

static void offer(struct server *s)
{
    char challenge[512];
    Hadoop__RpcSasl m = HADOOP__RPC_SASL__INIT;
    Hadoop__RpcSaslAuth token = HADOOP__RPC_SASL_AUTH__INIT, simple = HADOOP__RPC_SASL_AUTH__INIT;
    Hadoop__RpcSaslAuth *auths[] = { &simple, &token };
    (void)snprintf(
        challenge, sizeof challenge,
        "realm=\"default\",nonce=\"%s\",qop=\"%s\",charset=utf-8,%s%s%salgorithm=md5-sess",
        s->nonce, s->qop, s->cipher ? "cipher=\"" : "", s->cipher ? s->cipher : "",
        s->cipher ? "\"," : "");
    simple.method = (char *)"SIMPLE";
    simple.mechanism = (char *)"";
    token.method = (char *)"TOKEN";
    token.mechanism = (char *)s->mechanism;
    token.protocol = (char *)"";
    token.server_id = (char *)"default";
    token.has_challenge = true;
    token.challenge.data = (uint8_t *)challenge;
    token.challenge.len = strlen(challenge);
    m.state = HADOOP__RPC_SASL__STATE__NEGOTIATE;
    m.auths = auths;
    m.n_auths = 2;
    if (s->simple)
        m = (Hadoop__RpcSasl)HADOOP__RPC_SASL__INIT; /* its state is SUCCESS */
    send_sasl(s, &m);
}

/* Copies the value of a key in the client's answer, without the quotes. */
static void field(const char *text, const char *key, char *out, size_t size)
{
    char start[40];
    (void)snprintf(start, sizeof start, "%s=", key);
    const char *p = text;
    while ((p = strstr(p, start)) != NULL && p != text && p[-1] != ',')
        p++;
    assert_non_null(p);
    p += strlen(start);
    size_t n = *p == '"' ? strcspn(p + 1, "\"") : strcspn(p, ",");
    p += *p == '"';
    assert_true(n < size);
    memcpy(out, p, n);
    out[n] = '\0';
}

/* The value `response` of DIGEST-MD5 (RFC 2831, 2.1.2.1). The server's proof has an empty verb. */
static void digest_response(struct server *s, const char *qop, const char *verb, char out[33])
{
    unsigned char h[16];
    char a1[33], a2[33], text[600];
    hex(s->ha1, a1);
    (void)snprintf(text, sizeof text, "%s:/default%s", verb,
                   strcmp(qop, "auth") == 0 ? "" : ":00000000000000000000000000000000");
    md5(text, strlen(text), h);
    hex(h, a2);
    (void)snprintf(text, sizeof text, "%s:%s:00000001:%s:%s:%s", a1, s->nonce, s->cnonce, qop, a2);
    md5(text, strlen(text), h);
    hex(h, out);
}

/* Derive the keys of the protected connection (RFC 2831, 2.3 and 2.4). */
static void derive_keys(struct server *s)
{
    static const char *const magic[] = {
        "Digest session key to client-to-server signing key magic constant",
        "Digest session key to server-to-client signing key magic constant",
        "Digest H(A1) to client-to-server sealing key magic constant",
        "Digest H(A1) to server-to-client sealing key magic constant",
    };
    unsigned char k[4][16], text[100];
    for (int i = 0; i < 4; i++) {
        memcpy(text, s->ha1, 16);
        memcpy(text + 16, magic[i], strlen(magic[i]));
        md5(text, 16 + strlen(magic[i]), k[i]);
    }
    memcpy(s->mac_in, k[0], 16);
    memcpy(s->mac_out, k[1], 16);
    rc4_setup(&s->rc4_in, k[2], sizeof k[2]);
    rc4_setup(&s->rc4_out, k[3], sizeof k[3]);
}

static void check_echo(const struct server *s, const Hadoop__RpcSasl *m)
{
    assert_true(m->has_token);
    assert_int_equal(m->n_auths, 1);
    assert_string_equal(m->auths[0]->method, "TOKEN");
    assert_string_equal(m->auths[0]->mechanism, s->mechanism);
    assert_non_null(m->auths[0]->protocol); /* present, and empty */
    assert_string_equal(m->auths[0]->protocol, "");
    assert_string_equal(m->auths[0]->server_id, "default");
    assert_false(m->auths[0]->has_challenge);
}

static void verify(struct server *s, const Hadoop__RpcSasl *m)
{
    char text[2048], qop[20], user[300], x[800], got[40], want[33], uri[40];
    unsigned char h[16];
    assert_true(m->token.len < sizeof text);
    memcpy(text, m->token.data, m->token.len);
    text[m->token.len] = '\0';
    field(text, "qop", qop, sizeof qop);
    field(text, "cnonce", s->cnonce, sizeof s->cnonce);
    field(text, "username", user, sizeof user);
    field(text, "response", got, sizeof got);
    field(text, "digest-uri", uri, sizeof uri);
    assert_string_equal(uri, "/default");
    (void)snprintf(x, sizeof x, "%s:default:%s", user, s->password);
    md5(x, strlen(x), h);
    (void)snprintf(x + 16, sizeof x - 16, ":%s:%s", s->nonce, s->cnonce);
    memcpy(x, h, 16);
    md5(x, 16 + strlen(x + 16), s->ha1);
    digest_response(s, qop, "AUTHENTICATE", want);
    if (strcmp(user, s->id) != 0 || strcmp(got, want) != 0) {
        server_refuse(s, -33, 2, 15, "org.apache.hadoop.security.token.SecretManager$InvalidToken",
                      "org.apache.hadoop.security.token.SecretManager$InvalidToken: token is gone\n"
                      "\tat x.y.Z(Z.java:1)");
        return;
    }
    char rspauth[64];
    digest_response(s, qop, "", want);
    if (s->bad_rspauth)
        want[5] ^= 1;
    (void)snprintf(rspauth, sizeof rspauth, "rspauth=%s", want);
    Hadoop__RpcSasl done = HADOOP__RPC_SASL__INIT;
    done.state = HADOOP__RPC_SASL__STATE__SUCCESS;
    done.has_token = true;
    done.token.data = (uint8_t *)rspauth;
    done.token.len = strlen(rspauth);
    send_sasl(s, &done);
    derive_keys(s);
    s->wrapping = strcmp(qop, "auth") != 0;
    s->conf = strcmp(qop, "auth-conf") == 0;
    if (s->conf) {
        field(text, "cipher", got, sizeof got);
        assert_string_equal(got, "rc4");
    }
    s->ready = true;
}

static void unwrap(struct server *s, const Hadoop__RpcSasl *m)
{
    assert_true(s->wrapping);
    assert_true(m->token.len >= 16 && m->token.len <= 65536);
    size_t n = m->token.len - 16;
    unsigned char mac[16], *p = m->token.data;
    unsigned char tail[6] = { 0,
                              1,
                              (unsigned char)(s->seq_in >> 24),
                              (unsigned char)(s->seq_in >> 16),
                              (unsigned char)(s->seq_in >> 8),
                              (unsigned char)s->seq_in };
    assert_memory_equal(p + n + 10, tail, 6);
    if (s->conf)
        rc4_crypt(&s->rc4_in, p, n + 10);
    hmac(s->mac_in, s->seq_in++, p, n, mac);
    assert_memory_equal(p + n, mac, 10);
    assert_int_equal(buf_add(&s->inner, p, n), 0);
}

static void on_sasl(struct server *s, struct span body)
{
    Hadoop__RpcSasl *m = hadoop__rpc_sasl__unpack(NULL, body.len, (const uint8_t *)body.p);
    assert_non_null(m);
    if (m->state == HADOOP__RPC_SASL__STATE__NEGOTIATE) {
        assert_int_equal(m->n_auths, 0);
        offer(s);
    } else if (m->state == HADOOP__RPC_SASL__STATE__INITIATE) {
        assert_false(s->initiated);
        s->initiated = true;
        check_echo(s, m);
        verify(s, m);
    } else {
        assert_int_equal(m->state, HADOOP__RPC_SASL__STATE__WRAP);
        unwrap(s, m);
    }
    hadoop__rpc_sasl__free_unpacked(m, NULL);
}

/* ---- what arrives ---- */

static struct span part(struct span *s)
{
    size_t n = 0;
    for (unsigned shift = 0;; shift += 7) {
        assert_true(s->len > 0);
        unsigned char c = (unsigned char)*s->p++;
        s->len--;
        n |= (size_t)(c & 0x7f) << shift;
        if (c < 0x80)
            break;
    }
    assert_true(n <= s->len);
    struct span out = span_mem(s->p, n);
    s->p += n;
    s->len -= n;
    return out;
}

static void on_context(struct server *s, struct span body)
{
    Hadoop__RpcConnectionContext *m =
        hadoop__rpc_connection_context__unpack(NULL, body.len, (const uint8_t *)body.p);
    assert_non_null(m);
    assert_non_null(m->user);
    assert_null(s->protocol); /* a connection has only one context */
    s->has_user = m->user->effective_user != NULL;
    s->user = str_dup(m->user->effective_user);
    s->protocol = str_dup(m->protocol);
    hadoop__rpc_connection_context__free_unpacked(m, NULL);
}

static void on_call(struct server *s, const Hadoop__RpcRequestHeader *h, struct span *frame)
{
    assert_true(h->call_id >= 0);
    assert_non_null(s->protocol); /* the context arrived before the first call */
    struct span mh = part(frame), body = part(frame);
    Hadoop__RpcMethodHeader *m =
        hadoop__rpc_method_header__unpack(NULL, mh.len, (const uint8_t *)mh.p);
    assert_non_null(m);
    struct server_call c = { .id = h->call_id,
                             .retry = h->retry_count,
                             .method = str_dup(m->method),
                             .protocol = str_dup(m->protocol),
                             .body = { .max = 512 << 20 } };
    assert_int_equal(buf_add(&c.body, body.p, body.len), 0);
    assert_int_equal(vec_push(&s->calls, c), 0);
    hadoop__rpc_method_header__free_unpacked(m, NULL);
}

/* The negative call ids of Hadoop's RpcConstants */
enum { CALL_CONTEXT = -3, CALL_PING = -4, CALL_SASL = -33 };

/* inner: the frame was inside a protected one. */
static void on_frame(struct server *s, struct span frame, bool inner)
{
    struct span head = part(&frame);
    Hadoop__RpcRequestHeader *h =
        hadoop__rpc_request_header__unpack(NULL, head.len, (const uint8_t *)head.p);
    assert_non_null(h);
    assert_int_equal(h->kind, HADOOP__RPC_REQUEST_HEADER__KIND__PROTOCOL_BUFFER);
    assert_true(h->has_op && h->has_kind);
    if (h->call_id == CALL_SASL) {
        assert_false(inner);
        on_sasl(s, part(&frame));
    } else {
        assert_int_equal(h->client_id.len, 16);
        assert_int_equal(inner, s->wrapping);
        assert_true(s->ready);
        if (h->call_id == CALL_CONTEXT)
            on_context(s, part(&frame));
        else if (h->call_id == CALL_PING)
            s->pings++;
        else
            on_call(s, h, &frame);
    }
    assert_int_equal(frame.len, 0);
    hadoop__rpc_request_header__free_unpacked(h, NULL);
}

static bool one_frame(struct server *s, struct buf *in, bool inner)
{
    if (in->len < 4)
        return false;
    const unsigned char *u = (const unsigned char *)in->p;
    size_t n = (size_t)u[0] << 24 | (size_t)u[1] << 16 | (size_t)u[2] << 8 | u[3];
    if (in->len - 4 < n)
        return false;
    on_frame(s, span_mem(in->p + 4, n), inner);
    buf_consume(in, 4 + n);
    return true;
}

void server_feed(struct server *s, const void *p, size_t len)
{
    assert_int_equal(buf_add(&s->in, p, len), 0);
    if (!s->preamble) {
        if (s->in.len < 7)
            return;
        assert_memory_equal(s->in.p, "hrpc\x09\0", 6);
        s->auth_byte = s->in.p[6];
        s->preamble = true;
        s->ready = s->auth_byte == 0;
        buf_consume(&s->in, 7);
    }
    while (!s->refused && (one_frame(s, &s->in, false) || one_frame(s, &s->inner, true)))
        ;
}

void server_init(struct server *s)
{
    *s = (struct server){ .id = "CgoKBggBEICJehABEAc=",
                          .password = "AAECAwQFBgcICQoLDA0ODxAREhM=",
                          .nonce = "GSZv72XtFx8vraH0a7lqtZz9boqwIjVwv41YybNQ",
                          .qop = "auth",
                          .mechanism = "DIGEST-MD5" };
    s->in.max = s->inner.max = s->out.max = 512 << 20;
}

void server_done(struct server *s)
{
    for (size_t i = 0; i < s->calls.n; i++) {
        free(s->calls.v[i].method);
        free(s->calls.v[i].protocol);
        buf_done(&s->calls.v[i].body);
    }
    vec_done(&s->calls);
    free(s->user);
    free(s->protocol);
    buf_done(&s->in);
    buf_done(&s->inner);
    buf_done(&s->out);
}

const struct server_call *server_find(const struct server *s, const char *method)
{
    for (size_t i = s->calls.n; i > 0; i--)
        if (str_eq(s->calls.v[i - 1].method, method))
            return &s->calls.v[i - 1];
    return NULL;
}
