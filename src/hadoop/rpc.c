/* SPDX-License-Identifier: Apache-2.0 */
#include "hadoop/rpc.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/mbed.h"
#include "hadoop/rpc_int.h"
#include "hadoop/token.h"

enum {
    /* Call ids of frames that are no calls (RpcConstants.java; SASL's is in the protocol
     * definition).
     */
    ID_CONTEXT = -3,
    ID_PING = -4,
    ID_SASL = -33,
    /* RpcErrorCodeProto of RpcHeader.proto. From DETAIL_FATAL_FIRST on, the server closes the
     * connection. */
    DETAIL_NO_METHOD = 2,
    DETAIL_NO_PROTOCOL = 3,
    DETAIL_VERSION = 6,
    DETAIL_FATAL_FIRST = 10,
    DETAIL_UNAUTHORIZED = 15,
    OLD_REFUSAL_MAX = 64 << 10, /* bytes of a refusal in the format of older versions */
};

/* ---- building frames ---- */

static size_t varint_size(size_t v)
{
    size_t n = 1;
    while (v >>= 7)
        n++;
    return n;
}

static unsigned char *put_varint(unsigned char *p, size_t v)
{
    for (; v >= 0x80; v >>= 7)
        *p++ = (unsigned char)(v | 0x80);
    *p++ = (unsigned char)v;
    return p;
}

static unsigned char *put_message(unsigned char *p, const ProtobufCMessage *m, size_t size)
{
    p = put_varint(p, size);
    return p + protobuf_c_message_pack(m, p);
}

static void init_header(const struct rpc_conn *c, int32_t id, int32_t retry,
                        Hadoop__RpcRequestHeader *h)
{
    hadoop__rpc_request_header__init(h);
    h->has_kind = h->has_op = h->has_retry_count = true;
    h->kind = HADOOP__RPC_REQUEST_HEADER__KIND__PROTOCOL_BUFFER;
    h->op = HADOOP__RPC_REQUEST_HEADER__OP__FINAL_PACKET;
    h->call_id = id;
    h->retry_count = retry;
    if (id != ID_SASL) {
        h->client_id.data = (uint8_t *)c->client_id;
        h->client_id.len = RPC_CLIENT_ID;
    }
}

/* Append a frame: its length, the header, and up to two delimited parts (a message and packed
 * bytes). */
static int put_frame(struct buf *out, const Hadoop__RpcRequestHeader *h, const ProtobufCMessage *m,
                     const struct span *body)
{
    size_t h_size = protobuf_c_message_get_packed_size(&h->base);
    size_t m_size = m ? protobuf_c_message_get_packed_size(m) : 0;
    size_t n = varint_size(h_size) + h_size + (m ? varint_size(m_size) + m_size : 0);
    if (body && body->len > RPC_FRAME_MAX)
        return -EMSGSIZE;
    n += body ? varint_size(body->len) + body->len : 0;
    if (n > RPC_FRAME_MAX)
        return -EMSGSIZE;
    unsigned char *p = buf_reserve(out, 4 + n);
    if (!p)
        return -ENOMEM;
    *p++ = (unsigned char)(n >> 24);
    *p++ = (unsigned char)(n >> 16);
    *p++ = (unsigned char)(n >> 8);
    *p++ = (unsigned char)n;
    p = put_message(p, &h->base, h_size);
    if (m)
        p = put_message(p, m, m_size);
    if (body) {
        p = put_varint(p, body->len);
        if (body->len > 0)
            memcpy(p, body->p, body->len);
    }
    buf_commit(out, 4 + n);
    return 0;
}

/* ---- errors ---- */

static int fail_with(struct rpc_conn *c, enum rpc_fault kind, const struct err *why)
{
    if (!c->failed) {
        c->failed = true;
        c->error = (struct rpc_error){ .kind = kind, .err = *why };
    }
    return -c->error.err.num;
}

static int fail(struct rpc_conn *c, enum rpc_fault kind, int num, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static int fail(struct rpc_conn *c, enum rpc_fault kind, int num, const char *fmt, ...)
{
    struct err e = { 0 };
    va_list ap;
    va_start(ap, fmt);
    (void)err_vset(&e, num, fmt, ap);
    va_end(ap);
    return fail_with(c, kind, &e);
}

static int no_memory(struct rpc_conn *c)
{
    return fail(c, RPC_FAULT_LOCAL, ENOMEM, "cannot send a request to the server: %m");
}

/* ---- sending ---- */

/* Send bytes of the inner stream. If the connection is protected, wrap them first. */
static int send_inner(struct rpc_conn *c, struct span s)
{
    if (!c->wrapping)
        return buf_add(&c->out, s.p, s.len) < 0 ? no_memory(c) : 0;
    size_t most = sasl_slice_max(c->sasl);
    while (s.len > 0) {
        struct span slice = span_mem(s.p, MIN(s.len, most));
        AUTO(buf_done) struct buf token = { 0 };
        struct err e = { 0 };
        if (sasl_wrap(c->sasl, slice, &token, &e) < 0)
            return fail_with(c, RPC_FAULT_LOCAL, &e);
        Hadoop__RpcRequestHeader h;
        Hadoop__RpcSasl m = HADOOP__RPC_SASL__INIT;
        init_header(c, ID_SASL, -1, &h);
        m.state = HADOOP__RPC_SASL__STATE__WRAP;
        m.has_token = true;
        m.token.data = (uint8_t *)token.p;
        m.token.len = token.len;
        if (put_frame(&c->out, &h, &m.base, NULL) < 0)
            return no_memory(c);
        s.p += slice.len;
        s.len -= slice.len;
    }
    return 0;
}

/* Send or queue the frame of the inner stream that is in c->frame. */
static int emit(struct rpc_conn *c)
{
    int rc = 0;
    if (c->state == RC_READY)
        rc = send_inner(c, buf_span(&c->frame));
    else if (buf_add(&c->waiting, c->frame.p, c->frame.len) < 0)
        rc = no_memory(c);
    if (c->frame.cap > 256 << 10)
        buf_done(&c->frame); /* after a large request, free the memory */
    else
        buf_clear(&c->frame);
    return rc;
}

static int put_context(struct rpc_conn *c, struct buf *out)
{
    Hadoop__RpcRequestHeader h;
    Hadoop__RpcConnectionContext m = HADOOP__RPC_CONNECTION_CONTEXT__INIT;
    Hadoop__RpcUser user = HADOOP__RPC_USER__INIT;
    init_header(c, ID_CONTEXT, -1, &h);
    /* With a token, the server takes the user from the token. */
    user.effective_user = c->has_token ? NULL : c->user;
    m.user = &user;
    m.protocol = c->protocol;
    return put_frame(out, &h, &m.base, NULL);
}

int rpc_conn_call(struct rpc_conn *c, const struct rpc_request *rq)
{
    if (c->failed)
        return -EPIPE;
    Hadoop__RpcRequestHeader h;
    Hadoop__RpcMethodHeader m = HADOOP__RPC_METHOD_HEADER__INIT;
    init_header(c, (int32_t)rq->id, (int32_t)rq->retry, &h);
    m.method = (char *)rq->method; /* protobuf-c does not change it */
    m.protocol = c->protocol;
    m.version = 1;
    int rc = put_frame(&c->frame, &h, &m.base, &rq->body);
    if (rc < 0) {
        buf_clear(&c->frame);
        return rc;
    }
    return emit(c) < 0 ? -EPIPE : 0;
}

int rpc_conn_ping(struct rpc_conn *c)
{
    if (c->failed)
        return -EPIPE;
    if (c->state != RC_READY)
        return 0;
    Hadoop__RpcRequestHeader h;
    init_header(c, ID_PING, -1, &h);
    if (put_frame(&c->frame, &h, NULL, NULL) < 0)
        return -ENOMEM;
    return emit(c) < 0 ? -EPIPE : 0;
}

static int send_sasl(struct rpc_conn *c, Hadoop__RpcSasl__State state, const struct buf *token,
                     Hadoop__RpcSaslAuth *auth)
{
    Hadoop__RpcRequestHeader h;
    Hadoop__RpcSasl m = HADOOP__RPC_SASL__INIT;
    init_header(c, ID_SASL, -1, &h);
    m.state = state;
    if (token) { /* the field must be present even if the token is empty */
        m.has_token = true;
        m.token.data = (uint8_t *)(token->p ? token->p : "");
        m.token.len = token->len;
    }
    if (auth) {
        m.n_auths = 1;
        m.auths = &auth;
    }
    return put_frame(&c->out, &h, &m.base, NULL) < 0 ? no_memory(c) : 0;
}

/* ---- creation ---- */

static char *base64_of(const char *p, size_t len)
{
    size_t room = (len + 2) / 3 * 4 + 1, n = 0;
    unsigned char *out = malloc(room);
    if (out && mbedtls_base64_encode(out, room, &n, (const unsigned char *)p, len) != 0) {
        free(out);
        return NULL;
    }
    return (char *)out;
}

static int start(struct rpc_conn *c)
{
    const char preamble[7] = { 'h', 'r', 'p', 'c', 9, 0, c->has_token ? (char)0xdf : 0 };
    if (buf_add(&c->out, preamble, sizeof preamble) < 0)
        return -ENOMEM;
    if (c->has_token) {
        c->state = RC_NEGOTIATING;
        return send_sasl(c, HADOOP__RPC_SASL__STATE__NEGOTIATE, NULL, NULL);
    }
    c->state = RC_READY;
    return put_context(c, &c->out);
}

struct rpc_conn *rpc_conn_new(const struct rpc_conn_config *cfg)
{
    struct rpc_conn *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    memcpy(c->client_id, cfg->client_id, sizeof c->client_id);
    c->in.max = (size_t)RPC_FRAME_MAX + (1 << 20);
    c->inner.max = c->in.max * 2; /* the rest of a frame, and one further packet */
    c->out.max = c->waiting.max = c->frame.max = c->in.max * 2;
    c->qops = cfg->qops;
    c->protocol = str_dup(cfg->protocol);
    bool good = c->protocol != NULL;
    if (cfg->user) {
        c->user = str_dup(cfg->user);
        good = good && c->user;
    }
    if (cfg->cnonce) {
        c->cnonce = str_dup(cfg->cnonce);
        good = good && c->cnonce;
    }
    if (cfg->token) {
        c->has_token = true;
        c->sasl_user = base64_of(cfg->token->identifier, cfg->token->identifier_len);
        c->sasl_password = base64_of(cfg->token->password, cfg->token->password_len);
        good = good && c->sasl_user && c->sasl_password;
    }
    if (good && start(c) == 0)
        return c;
    rpc_conn_free(c);
    return NULL;
}

void rpc_conn_free(struct rpc_conn *c)
{
    if (!c)
        return;
    free(c->protocol);
    free(c->user);
    free(c->cnonce);
    free(c->sasl_user);
    if (c->sasl_password)
        explicit_bzero(c->sasl_password, strlen(c->sasl_password));
    free(c->sasl_password);
    sasl_free(c->sasl);
    buf_done(&c->out);
    buf_done(&c->waiting);
    buf_done(&c->frame);
    buf_done(&c->in);
    buf_done(&c->inner);
    free(c->detail);
    free(c);
}

void rpc_conn_freep(struct rpc_conn **c)
{
    rpc_conn_free(*c);
    *c = NULL;
}

struct buf *rpc_conn_out(struct rpc_conn *c)
{
    return &c->out;
}

bool rpc_conn_ready(const struct rpc_conn *c)
{
    return c->state == RC_READY;
}

const char *rpc_conn_protection(const struct rpc_conn *c)
{
    if (!c->has_token)
        return "simple";
    return c->state == RC_READY ? sasl_qop_name(sasl_qop(c->sasl)) : "none yet";
}

const struct rpc_error *rpc_conn_error(const struct rpc_conn *c)
{
    return c->failed ? &c->error : NULL;
}

/* ---- the handshake ---- */

static int auth_failed(struct rpc_conn *c, int num, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int auth_failed(struct rpc_conn *c, int num, const char *fmt, ...)
{
    struct err e = { 0 };
    va_list ap;
    va_start(ap, fmt);
    (void)err_vset(&e, num, fmt, ap);
    va_end(ap);
    (void)err_wrap(&e, -num, "cannot authenticate");
    return fail_with(c, RPC_FAULT_AUTH, &e);
}

static int sasl_failed(struct rpc_conn *c, int rc, struct err *e)
{
    (void)err_wrap(e, rc, "cannot authenticate");
    return fail_with(c, rc == -ENOMEM ? RPC_FAULT_LOCAL : RPC_FAULT_AUTH, e);
}

static int no_token_offer(struct rpc_conn *c, const Hadoop__RpcSasl *m)
{
    AUTO(buf_done) struct buf list = { .max = 200 };
    for (size_t i = 0; i < m->n_auths; i++)
        (void)buf_addf(&list, "%s%s", i > 0 ? ", " : "", m->auths[i]->method);
    return auth_failed(c, EACCES, "the server does not accept tokens (it offers: %s)",
                       list.len > 0 ? list.p : "nothing");
}

/* The server offers its ways of authentication. Return the chosen one as received, except for its
 * challenge: the server compares all fields, including those that are not set. */
static int on_offer(struct rpc_conn *c, const Hadoop__RpcSasl *m)
{
    if (c->state != RC_NEGOTIATING || c->sasl)
        return auth_failed(c, EPROTO, "the server offered its mechanisms a second time");
    Hadoop__RpcSaslAuth *chosen = NULL;
    for (size_t i = 0; i < m->n_auths && !chosen; i++)
        if (strcmp(m->auths[i]->method, "TOKEN") == 0)
            chosen = m->auths[i];
    if (!chosen)
        return no_token_offer(c, m);
    struct sasl_config cfg = {
        .user = span_of(c->sasl_user),
        .password = span_of(c->sasl_password),
        .protocol = chosen->protocol,
        .server_id = chosen->server_id,
        .qops = c->qops,
        .cnonce = c->cnonce,
    };
    struct err e = { 0 };
    AUTO(buf_done) struct buf token = { 0 };
    int rc = sasl_new(chosen->mechanism, &cfg, &c->sasl, &e);
    if (rc == 0 && chosen->has_challenge)
        rc =
            sasl_step(c->sasl, span_mem(chosen->challenge.data, chosen->challenge.len), &token, &e);
    if (rc < 0)
        return sasl_failed(c, rc, &e);
    Hadoop__RpcSaslAuth echo = *chosen; /* shares all fields, and keeps unknown ones */
    echo.has_challenge = false;
    echo.challenge = (ProtobufCBinaryData){ 0 };
    return send_sasl(c, HADOOP__RPC_SASL__STATE__INITIATE, &token, &echo);
}

static int on_challenge(struct rpc_conn *c, const Hadoop__RpcSasl *m)
{
    if (!c->sasl)
        return auth_failed(c, EPROTO, "a challenge came before the server's offer");
    struct err e = { 0 };
    AUTO(buf_done) struct buf token = { 0 };
    int rc = sasl_step(c->sasl, span_mem(m->token.data, m->token.len), &token, &e);
    if (rc < 0)
        return sasl_failed(c, rc, &e);
    return send_sasl(c, HADOOP__RPC_SASL__STATE__RESPONSE, &token, NULL);
}

static int on_success(struct rpc_conn *c, const Hadoop__RpcSasl *m)
{
    if (!c->sasl)
        return no_token_offer(c, m);
    struct err e = { 0 };
    struct span token = m->has_token ? span_mem(m->token.data, m->token.len) : SPAN("");
    int rc = sasl_finish(c->sasl, token, &e);
    if (rc < 0)
        return sasl_failed(c, rc, &e);
    c->wrapping = sasl_qop(c->sasl) != SASL_AUTH;
    c->state = RC_READY;
    if (put_context(c, &c->frame) < 0)
        return no_memory(c);
    rc = emit(c);
    if (rc == 0)
        rc = send_inner(c, buf_span(&c->waiting));
    buf_done(&c->waiting);
    c->waiting.max = c->in.max * 2;
    return rc;
}

static int on_wrapped(struct rpc_conn *c, const Hadoop__RpcSasl *m)
{
    struct err e = { 0 };
    if (!c->wrapping)
        return fail(c, RPC_FAULT_PROTOCOL, EPROTO,
                    "the server protects a message that must be unprotected");
    int rc = sasl_unwrap(c->sasl, span_mem(m->token.data, m->token.len), &c->inner, &e);
    if (rc < 0)
        return fail_with(c, rc == -ENOMEM ? RPC_FAULT_LOCAL : RPC_FAULT_PROTOCOL, &e);
    return 0;
}

static int on_sasl(struct rpc_conn *c, struct span body)
{
    Hadoop__RpcSasl *m = (Hadoop__RpcSasl *)rpc_unpack(&hadoop__rpc_sasl__descriptor, body);
    if (!m)
        return fail(c, RPC_FAULT_PROTOCOL, EPROTO,
                    "a message of the server's handshake cannot be decoded");
    int rc;
    if (m->state == HADOOP__RPC_SASL__STATE__WRAP)
        rc = on_wrapped(c, m);
    else if (c->state == RC_READY)
        rc = fail(c, RPC_FAULT_PROTOCOL, EPROTO, "the server started the handshake a second time");
    else if (m->state == HADOOP__RPC_SASL__STATE__NEGOTIATE)
        rc = on_offer(c, m);
    else if (m->state == HADOOP__RPC_SASL__STATE__CHALLENGE)
        rc = on_challenge(c, m);
    else if (m->state == HADOOP__RPC_SASL__STATE__SUCCESS)
        rc = on_success(c, m);
    else
        rc = auth_failed(c, EPROTO, "the server sent the client's part of the handshake");
    hadoop__rpc_sasl__free_unpacked(m, NULL);
    return rc;
}

/* ---- received frames ---- */

static enum rpc_fault fault_of(const Hadoop__RpcResponseHeader *h, bool handshake)
{
    enum rpc_fault kind = rpc_fault_of_class(span_of(h->exception_class));
    int detail = h->has_error_detail ? h->error_detail : 0;
    if (kind != RPC_FAULT_APPLICATION)
        return kind;
    if (detail == DETAIL_UNAUTHORIZED)
        return RPC_FAULT_AUTH;
    if (detail >= DETAIL_FATAL_FIRST || detail == DETAIL_NO_METHOD ||
        detail == DETAIL_NO_PROTOCOL || detail == DETAIL_VERSION || handshake)
        return RPC_FAULT_PROTOCOL;
    return RPC_FAULT_APPLICATION;
}

static void fill_error(const Hadoop__RpcResponseHeader *h, bool handshake, struct rpc_error *out)
{
    struct span message = span_of(h->error_message), class_name = span_of(h->exception_class);
    struct span line = rpc_first_line(message, class_name);
    *out = (struct rpc_error){ .kind = fault_of(h, handshake) };
    (void)str_copy(out->class_name, sizeof out->class_name, class_name.p ? class_name.p : "");
    (void)snprintf(out->line, sizeof out->line, "%.*s", (int)MIN(line.len, (size_t)4096), line.p);
    if (message.p && line.len > 0)
        out->detail = span_trim(
            span_mem(line.p + line.len, (size_t)(message.p + message.len - line.p) - line.len));
    int num = out->kind == RPC_FAULT_AUTH        ? EACCES
              : out->kind == RPC_FAULT_PROTOCOL  ? EPROTO
              : out->kind == RPC_FAULT_NOT_FOUND ? ENOENT
                                                 : EREMOTEIO;
    (void)err_set(&out->err, num, "%s",
                  out->line[0]         ? out->line
                  : out->class_name[0] ? out->class_name
                                       : "the server gave no reason");
    if (out->kind == RPC_FAULT_AUTH && strstr(out->line, "SIMPLE authentication is not enabled"))
        (void)err_hint(&out->err, "this service does not accept a bare user name: it requires %s",
                       strstr(out->line, "KERBEROS") ? "Kerberos, which is not supported yet"
                                                     : "a token");
}

static int fatal(struct rpc_conn *c, const Hadoop__RpcResponseHeader *h)
{
    if (c->failed)
        return -c->error.err.num;
    fill_error(h, c->state != RC_READY, &c->error);
    c->failed = true;
    c->detail = span_dup(c->error.detail); /* h is freed after this */
    c->error.detail = c->detail ? span_of(c->detail) : SPAN("");
    return -c->error.err.num;
}

/* Take the next delimited part of *s. */
static bool take_part(struct span *s, struct span *out)
{
    uint64_t len = 0;
    for (unsigned shift = 0;; shift += 7) {
        if (s->len == 0 || shift > 28)
            return false;
        unsigned char byte = (unsigned char)*s->p++;
        s->len--;
        len |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            break;
    }
    if (len > s->len)
        return false;
    *out = span_mem(s->p, (size_t)len);
    s->p += len;
    s->len -= (size_t)len;
    return true;
}

static int bad_frame(struct rpc_conn *c)
{
    return fail(c, RPC_FAULT_PROTOCOL, EPROTO, "an answer of the server cannot be decoded");
}

static int on_header(struct rpc_conn *c, const Hadoop__RpcResponseHeader *h, struct span rest,
                     bool inner, struct rpc_reply *out)
{
    int32_t id = (int32_t)h->call_id; /* the field is sint32 in requests, but uint32 in answers */
    if (h->status == HADOOP__RPC_RESPONSE_HEADER__STATUS__SUCCESS) {
        struct span body;
        if (!take_part(&rest, &body) || rest.len > 0)
            return bad_frame(c);
        if (id == ID_SASL && c->has_token && !inner)
            return on_sasl(c, body);
        if (id < 0)
            return bad_frame(c);
        if (c->state != RC_READY || (c->wrapping && !inner))
            return fail(
                c, RPC_FAULT_PROTOCOL, EPROTO,
                "an answer of the server is not signed or encrypted as agreed in the handshake");
        out->id = (uint32_t)id;
        out->ok = true;
        out->body = body;
        return 1;
    }
    if (c->wrapping && !inner)
        return fail(
            c, RPC_FAULT_PROTOCOL, EPROTO,
            "an answer of the server is not signed or encrypted as agreed in the handshake");
    if (h->status != HADOOP__RPC_RESPONSE_HEADER__STATUS__ERROR || id < 0 || c->state != RC_READY)
        return fatal(c, h);
    out->id = (uint32_t)id;
    out->ok = false;
    out->body = (struct span){ 0 };
    fill_error(h, false, &out->error);
    /* out->error.detail must be valid until the next call of rpc_conn_next() */
    free(c->detail);
    c->detail = span_dup(out->error.detail);
    out->error.detail = c->detail ? span_of(c->detail) : SPAN("");
    return 1;
}

static int on_frame(struct rpc_conn *c, struct span frame, bool inner, struct rpc_reply *out)
{
    struct span head;
    if (!take_part(&frame, &head))
        return bad_frame(c);
    Hadoop__RpcResponseHeader *h =
        (Hadoop__RpcResponseHeader *)rpc_unpack(&hadoop__rpc_response_header__descriptor, head);
    if (!h)
        return bad_frame(c);
    int rc = on_header(c, h, frame, inner, out);
    hadoop__rpc_response_header__free_unpacked(h, NULL);
    return rc;
}

static uint32_t be32(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;
    return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

/* Servers of another RPC version refuse in their own format: eight bytes ff, then class name and
 * message, each with its length in front. */
static int old_refusal(struct rpc_conn *c, bool at_end)
{
    struct span s = buf_span(&c->in);
    struct span class_name = SPAN(""), message = SPAN("");
    bool whole = false;
    if (s.len >= 12 && be32(s.p + 8) <= s.len - 12) {
        class_name = span_mem(s.p + 12, be32(s.p + 8));
        s = span_mem(class_name.p + class_name.len, s.len - 12 - class_name.len);
        if (s.len >= 4 && be32(s.p) <= s.len - 4) {
            message = span_mem(s.p + 4, be32(s.p));
            whole = true;
        }
    }
    if (!whole && !at_end && c->in.len < OLD_REFUSAL_MAX)
        return 0;
    struct span line = rpc_first_line(message, class_name);
    return fail(c, RPC_FAULT_PROTOCOL, EPROTO,
                "the server does not speak version 9 of Hadoop RPC%s%.*s", line.len > 0 ? ": " : "",
                (int)MIN(line.len, (size_t)300), line.p);
}

#define OTHER_PORT "the site file names another port than that of Hadoop's RPC"

/* Get the length of the first frame. 1: *out is set; 0: the frame is incomplete; or negative. */
static int frame_size(struct rpc_conn *c, const struct buf *in, uint32_t max, uint32_t *out)
{
    if (in->len < 4)
        return 0;
    uint32_t n = be32(in->p);
    if (n == UINT32_MAX && !c->greeted)
        return old_refusal(c, false);
    if (memcmp(in->p, "HTTP", 4) == 0) {
        (void)fail(c, RPC_FAULT_PROTOCOL, EPROTO,
                   "the port belongs to a web server, not to Hadoop RPC");
        return err_hint(&c->error.err, OTHER_PORT);
    }
    if ((n == 0 || n > max) && !c->greeted) {
        (void)fail(c, RPC_FAULT_PROTOCOL, EPROTO,
                   "the server at this port does not speak Hadoop RPC");
        return err_hint(&c->error.err, OTHER_PORT);
    }
    if (n == 0 || n > max)
        return fail(c, RPC_FAULT_PROTOCOL, EPROTO,
                    "the server sent an answer of %u bytes; tony takes at most %u", n, max);
    if (in->len - 4 < n)
        return 0;
    *out = n;
    return 1;
}

int rpc_conn_feed(struct rpc_conn *c, struct span bytes)
{
    if (c->failed)
        return -c->error.err.num;
    if (buf_add(&c->in, bytes.p, bytes.len) < 0)
        return no_memory(c);
    return 0;
}

/* Handle one frame of `in`. 1 = *out is filled, 2 = continue with the next frame, 0 = more bytes
 * are needed. */
static int next_from(struct rpc_conn *c, struct buf *in, struct rpc_reply *out)
{
    uint32_t n = 0;
    bool inner = in == &c->inner;
    int rc = frame_size(c, in, c->state == RC_READY ? RPC_FRAME_MAX : RPC_HANDSHAKE_MAX, &n);
    if (rc <= 0)
        return rc;
    c->greeted = true;
    rc = on_frame(c, span_mem(in->p + 4, n), inner, out);
    if (rc == 1) { /* out may point into this frame */
        c->spent = in;
        c->spent_len = 4 + (size_t)n;
        return 1;
    }
    if (rc == 0) {
        buf_consume(in, 4 + (size_t)n);
        return 2;
    }
    return rc;
}

int rpc_conn_next(struct rpc_conn *c, struct rpc_reply *out)
{
    if (c->failed)
        return -c->error.err.num;
    if (c->spent) {
        buf_consume(c->spent, c->spent_len);
        c->spent = NULL;
    }
    for (;;) {
        int rc = c->wrapping ? next_from(c, &c->inner, out) : 0;
        if (rc == 0)
            rc = next_from(c, &c->in, out);
        if (rc != 2)
            return rc;
    }
}

void rpc_conn_eof(struct rpc_conn *c, const struct err *why)
{
    if (c->failed)
        return;
    if (!c->greeted && c->in.len >= 4 && be32(c->in.p) == UINT32_MAX) {
        (void)old_refusal(c, true);
        return;
    }
    if (why && why->num != 0)
        (void)fail_with(c, RPC_FAULT_BROKEN, why);
    else if (c->state != RC_READY)
        (void)fail(c, RPC_FAULT_BROKEN, ECONNRESET,
                   "the server closed the connection during the authentication");
    else
        (void)fail(c, RPC_FAULT_BROKEN, ECONNRESET, "the server closed the connection");
}

/* ---- messages ---- */

/* An unpacked message is larger than its bytes on the wire. The worst case is a list of empty
 * messages: 2 bytes become about 250. Real answers need far less than the budget. */
enum { BUDGET_FACTOR = 64, BUDGET_MORE = 64 << 10, BUDGET_MAX = 1 << 30 };

struct budget {
    size_t left;
};

static void *budget_alloc(void *arg, size_t n)
{
    struct budget *b = arg;
    if (n > b->left)
        return NULL;
    b->left -= n;
    return malloc(n);
}

static void budget_free(void *arg, void *p)
{
    (void)arg;
    free(p);
}

ProtobufCMessage *rpc_unpack(const ProtobufCMessageDescriptor *type, struct span text)
{
    struct budget budget = { MIN(text.len * BUDGET_FACTOR, (size_t)BUDGET_MAX) + BUDGET_MORE };
    ProtobufCAllocator allocator = { budget_alloc, budget_free, &budget };
    return protobuf_c_message_unpack(type, &allocator, text.len, (const uint8_t *)text.p);
}
