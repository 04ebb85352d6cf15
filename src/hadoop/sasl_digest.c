/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DIGEST-MD5 (RFC 2831), the client's side, with both security layers: integrity, and
 * confidentiality by RC4. Hadoop differs from the RFC: user and password are the base64 of the
 * token's parts, digest-uri is "<protocol>/<server id>" ("/default"), and packets have no length in
 * front.
 */
#include "hadoop/sasl_int.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/mbed.h"
#include "hadoop/rc4.h"

enum {
    HASH = 16,
    HEX = 32,
    MAC = 10,    /* bytes of the HMAC that are sent, of 16 */
    TRAILER = 6, /* a 16-bit 1 and the 32-bit sequence number */
    CNONCE = 24, /* random bytes */
    MAXBUF = 65536,
    SLICE_INT = MAXBUF - MAC - TRAILER,
    /* Room for the padding of a block cipher, which Java reserves for RC4, too. */
    SLICE_CONF = SLICE_INT - 10,
    VALUE_MAX = 4096, /* of one value of a challenge */
};

struct digest {
    struct sasl sasl; /* must be the first member */
    char *user, *password, *uri, *realm, *nonce, *cnonce;
    size_t user_len, password_len;
    unsigned qops;
    bool answered;
    char rspauth[HEX + 1];
    unsigned char key_out[HASH], key_in[HASH]; /* keys of the HMACs */
    struct rc4 rc4_out, rc4_in;
    uint32_t seq_out, seq_in;
};

static struct digest *digest_of(struct sasl *s)
{
    return CONTAINER_OF(s, struct digest, sasl);
}

static void wipe_free(char *p, size_t n)
{
    if (p)
        explicit_bzero(p, n);
    free(p);
}

static void digest_free(struct sasl *s)
{
    struct digest *d = digest_of(s);
    wipe_free(d->user, d->user_len);
    wipe_free(d->password, d->password_len);
    free(d->uri);
    free(d->realm);
    free(d->nonce);
    free(d->cnonce);
    explicit_bzero(d, sizeof *d);
    free(d);
}

static char *new_cnonce(void)
{
    unsigned char raw[CNONCE];
    unsigned char text[CNONCE * 4 / 3 + 4];
    size_t n = 0;
    if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw)
        return NULL;
    if (mbedtls_base64_encode(text, sizeof text, &n, raw, sizeof raw) != 0)
        return NULL;
    return str_dup((const char *)text);
}

static struct sasl *digest_make(const struct sasl_config *cfg)
{
    struct digest *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->user = span_dup(cfg->user);
    d->user_len = cfg->user.len;
    d->password = span_dup(cfg->password);
    d->password_len = cfg->password.len;
    d->uri = str_printf("%s/%s", cfg->protocol ? cfg->protocol : "",
                        cfg->server_id ? cfg->server_id : "");
    d->cnonce = cfg->cnonce ? str_dup(cfg->cnonce) : new_cnonce();
    d->qops = cfg->qops ? cfg->qops : SASL_ANY;
    if (d->user && d->password && d->uri && d->cnonce)
        return &d->sasl;
    digest_free(&d->sasl);
    return NULL;
}

/* ---- what the server sends: key=value pairs, values quoted or not ---- */

struct challenge {
    struct buf realm, nonce, qop, algorithm, cipher, maxbuf, rspauth;
    bool has_nonce, has_qop, has_realm, has_rspauth;
};

static void challenge_done(struct challenge *c)
{
    buf_done(&c->realm);
    buf_done(&c->nonce);
    buf_done(&c->qop);
    buf_done(&c->algorithm);
    buf_done(&c->cipher);
    buf_done(&c->maxbuf);
    buf_done(&c->rspauth);
}

static int no_memory(struct err *e)
{
    return err_set(e, ENOMEM, "cannot authenticate: %m");
}

static int bad_challenge(struct err *e, const char *why)
{
    return err_set(e, EPROTO, "cannot read the server's challenge: %s", why);
}

static void skip_blank(struct span *s, bool commas)
{
    while (s->len > 0 && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r' || *s->p == '\n' ||
                          (commas && *s->p == ','))) {
        s->p++;
        s->len--;
    }
}

static int take_value(struct span *s, struct buf *out, struct err *e)
{
    out->max = VALUE_MAX;
    bool quoted = s->len > 0 && *s->p == '"';
    size_t i = quoted ? 1 : 0;
    for (; i < s->len; i++) {
        char c = s->p[i];
        if (quoted && c == '"')
            break;
        if (!quoted && c == ',')
            break;
        if (quoted && c == '\\' && ++i < s->len)
            c = s->p[i];
        int rc = buf_addc(out, c);
        if (rc < 0)
            return rc == -ENOMEM ? no_memory(e) : bad_challenge(e, "a value is too long");
    }
    if (quoted && (i >= s->len || s->p[i] != '"'))
        return bad_challenge(e, "a quote is not closed");
    i += quoted ? 1 : 0;
    s->p += i;
    s->len -= i;
    if (!quoted) {
        struct span t = span_trim(buf_span(out));
        /* Blanks can only be at the end: those at the start were skipped. */
        while (out->len > t.len)
            out->p[--out->len] = '\0';
    }
    skip_blank(s, false);
    if (s->len > 0 && *s->p != ',')
        return bad_challenge(e, "a comma is missing");
    return 0;
}

static struct buf *value_of(struct challenge *c, struct span key, bool **out_seen)
{
    struct {
        const char *key;
        struct buf *value;
        bool *seen;
    } const known[] = {
        { "realm", &c->realm, &c->has_realm },
        { "nonce", &c->nonce, &c->has_nonce },
        { "qop", &c->qop, &c->has_qop },
        { "algorithm", &c->algorithm, NULL },
        { "cipher", &c->cipher, NULL },
        { "maxbuf", &c->maxbuf, NULL },
        { "rspauth", &c->rspauth, &c->has_rspauth },
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (key.len != strlen(known[i].key) || strncasecmp(key.p, known[i].key, key.len) != 0)
            continue;
        *out_seen = known[i].seen;
        return known[i].value;
    }
    return NULL;
}

static int challenge_parse(struct span s, struct challenge *c, struct err *e)
{
    for (;;) {
        skip_blank(&s, true);
        if (s.len == 0)
            return 0;
        const char *eq = memchr(s.p, '=', s.len);
        if (!eq)
            return bad_challenge(e, "a key has no value");
        struct span key = span_trim(span_mem(s.p, (size_t)(eq - s.p)));
        s.len -= (size_t)(eq + 1 - s.p);
        s.p = eq + 1;
        skip_blank(&s, false);
        AUTO(buf_done) struct buf ignored = { 0 };
        bool *seen = NULL;
        struct buf *value = value_of(c, key, &seen);
        if (!value)
            value = &ignored;
        else if (value == &c->realm && c->has_realm)
            value = &ignored; /* the server may offer several realms: use the first */
        else if (value->len > 0)
            return bad_challenge(e, "a key comes twice");
        int rc = take_value(&s, value, e);
        if (rc < 0)
            return rc;
        if (seen)
            *seen = true;
    }
}

static bool list_has(const struct buf *list, const char *word)
{
    struct span rest = buf_span(list), field;
    if (!rest.p)
        return false;
    while (span_split(&rest, ',', &field))
        if (span_eqs(span_trim(field), word))
            return true;
    return false;
}

/* Choose the strongest protection that both sides support. Some servers misbehave with a weaker
 * one. */
static int choose_qop(struct digest *d, const struct challenge *c, struct err *e)
{
    bool has_rc4 = list_has(&c->cipher, "rc4");
    if ((d->qops & SASL_AUTH_CONF) && has_rc4 && list_has(&c->qop, "auth-conf"))
        d->sasl.qop = SASL_AUTH_CONF;
    else if ((d->qops & SASL_AUTH_INT) && list_has(&c->qop, "auth-int"))
        d->sasl.qop = SASL_AUTH_INT;
    else if ((d->qops & SASL_AUTH) && (!c->has_qop || list_has(&c->qop, "auth")))
        d->sasl.qop = SASL_AUTH;
    else
        return err_set(
            e, EACCES,
            "the server offers no protection that tony supports: qop '%.40s', cipher '%.80s'",
            buf_cstr(&c->qop), buf_cstr(&c->cipher));
    int64_t most = MAXBUF;
    if (c->maxbuf.len > 0 &&
        str_i64(buf_span(&c->maxbuf), 256, (1 << 24) - 1, "maxbuf", &most, e) < 0)
        return bad_challenge(e, "its maxbuf is not a number");
    most = MIN(most, (int64_t)MAXBUF);
    d->sasl.slice_max = (size_t)most - (size_t)(d->sasl.qop == SASL_AUTH_CONF ? MAXBUF - SLICE_CONF
                                                                              : MAXBUF - SLICE_INT);
    return 0;
}

/* ---- digests ---- */

static void md5(struct span a, unsigned char out[HASH])
{
    /* Cannot fail in the portable implementation. */
    (void)mbedtls_md5((const unsigned char *)a.p, a.len, out);
}

static void to_hex(const unsigned char *p, char out[HEX + 1])
{
    for (size_t i = 0; i < HASH; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", p[i]);
}

/* Compute H(A1), from which all other values are derived. */
static int session_key(const struct digest *d, unsigned char out[HASH])
{
    AUTO(buf_done) struct buf b = { 0 };
    unsigned char x[HASH];
    (void)buf_add(&b, d->user, d->user_len);
    (void)buf_addf(&b, ":%s:", d->realm);
    (void)buf_add(&b, d->password, d->password_len);
    if (!b.failed)
        md5(buf_span(&b), x);
    bool failed = b.failed;
    if (b.p)
        explicit_bzero(b.p, b.len);
    buf_clear(&b);
    (void)buf_add(&b, x, sizeof x);
    (void)buf_addf(&b, ":%s:%s", d->nonce, d->cnonce);
    failed = failed || b.failed;
    if (!failed)
        md5(buf_span(&b), out);
    if (b.p)
        explicit_bzero(b.p, b.len);
    explicit_bzero(x, sizeof x);
    return failed ? -ENOMEM : 0;
}

/* Compute the answer to the challenge (verb "AUTHENTICATE"), or the answer that the server must
 * give (verb ""). */
static int response(const struct digest *d, const unsigned char key[HASH], const char *verb,
                    char out[HEX + 1])
{
    static const char zeros[] = ":00000000000000000000000000000000";
    AUTO(buf_done) struct buf b = { 0 };
    unsigned char hash[HASH];
    char key_hex[HEX + 1], a2_hex[HEX + 1];
    (void)buf_addf(&b, "%s:%s%s", verb, d->uri, d->sasl.qop == SASL_AUTH ? "" : zeros);
    if (b.failed)
        return -ENOMEM;
    md5(buf_span(&b), hash);
    to_hex(hash, a2_hex);
    to_hex(key, key_hex);
    buf_clear(&b);
    (void)buf_addf(&b, "%s:%s:00000001:%s:%s:%s", key_hex, d->nonce, d->cnonce,
                   sasl_qop_name(d->sasl.qop), a2_hex);
    explicit_bzero(key_hex, sizeof key_hex);
    if (b.failed)
        return -ENOMEM;
    md5(buf_span(&b), hash);
    if (b.p)
        explicit_bzero(b.p, b.len);
    to_hex(hash, out);
    return 0;
}

static void derive(const unsigned char *key, size_t n, const char *magic, unsigned char out[HASH])
{
    mbedtls_md5_context c;
    mbedtls_md5_init(&c);
    (void)mbedtls_md5_starts(&c);
    (void)mbedtls_md5_update(&c, key, n);
    (void)mbedtls_md5_update(&c, (const unsigned char *)magic, strlen(magic));
    (void)mbedtls_md5_finish(&c, out);
    mbedtls_md5_free(&c);
}

static void layer_keys(struct digest *d, const unsigned char key[HASH])
{
    unsigned char k[HASH];
    derive(key, HASH, "Digest session key to client-to-server signing key magic constant",
           d->key_out);
    derive(key, HASH, "Digest session key to server-to-client signing key magic constant",
           d->key_in);
    derive(key, HASH, "Digest H(A1) to client-to-server sealing key magic constant", k);
    rc4_setup(&d->rc4_out, k, sizeof k);
    derive(key, HASH, "Digest H(A1) to server-to-client sealing key magic constant", k);
    rc4_setup(&d->rc4_in, k, sizeof k);
    explicit_bzero(k, sizeof k);
}

/* ---- the handshake ---- */

static void put_quoted(struct buf *out, const char *key, const char *value)
{
    (void)buf_addf(out, "%s=\"", key);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            (void)buf_addc(out, '\\');
        (void)buf_addc(out, *value);
    }
    (void)buf_adds(out, "\",");
}

static int answer(struct digest *d, struct buf *out, struct err *e)
{
    unsigned char key[HASH];
    char resp[HEX + 1];
    if (session_key(d, key) < 0)
        return no_memory(e);
    int rc = response(d, key, "AUTHENTICATE", resp);
    if (rc == 0)
        rc = response(d, key, "", d->rspauth);
    if (d->sasl.qop != SASL_AUTH)
        layer_keys(d, key);
    explicit_bzero(key, sizeof key);
    if (rc < 0)
        return no_memory(e);
    (void)buf_adds(out, "charset=utf-8,");
    put_quoted(out, "username", d->user);
    put_quoted(out, "realm", d->realm);
    put_quoted(out, "nonce", d->nonce);
    (void)buf_adds(out, "nc=00000001,");
    put_quoted(out, "cnonce", d->cnonce);
    put_quoted(out, "digest-uri", d->uri);
    (void)buf_addf(out, "maxbuf=%d,response=%s,qop=%s", MAXBUF, resp, sasl_qop_name(d->sasl.qop));
    if (d->sasl.qop == SASL_AUTH_CONF)
        (void)buf_adds(out, ",cipher=rc4");
    return out->failed ? no_memory(e) : 0;
}

static int digest_step(struct sasl *s, struct span text, struct buf *out, struct err *e)
{
    struct digest *d = digest_of(s);
    if (d->answered)
        return err_set(e, EPROTO, "the server sent a second challenge");
    AUTO(challenge_done) struct challenge c = { 0 };
    if (memchr(text.p ? text.p : "", '\0', text.len))
        return bad_challenge(e, "it has a NUL byte in it");
    int rc = challenge_parse(text, &c, e);
    if (rc < 0)
        return rc;
    if (!c.has_nonce || c.nonce.len == 0)
        return bad_challenge(e, "it has no nonce");
    if (!span_eqs(buf_span(&c.algorithm), "md5-sess"))
        return err_set(e, EACCES,
                       "the server offers the algorithm '%.40s'; tony supports only md5-sess",
                       buf_cstr(&c.algorithm));
    rc = choose_qop(d, &c, e);
    if (rc < 0)
        return rc;
    d->nonce = span_dup(buf_span(&c.nonce));
    d->realm = str_dup(buf_cstr(&c.realm));
    if (!d->nonce || !d->realm)
        return no_memory(e);
    d->answered = true;
    return answer(d, out, e);
}

static int digest_finish(struct sasl *s, struct span token, struct err *e)
{
    struct digest *d = digest_of(s);
    AUTO(challenge_done) struct challenge c = { 0 };
    if (!d->answered)
        return err_set(e, EACCES,
                       "the server reported success before the authentication was complete");
    int rc = challenge_parse(token, &c, e);
    if (rc < 0)
        return rc;
    if (c.rspauth.len != HEX || !sasl_same(c.rspauth.p, d->rspauth, HEX))
        return err_set(e, EACCES, "the server did not prove that it knows the token's password");
    return 0;
}

/* ---- security layers ---- */

static void put_be32(unsigned char *p, uint32_t v)
{
    p[0] = (unsigned char)(v >> 24);
    p[1] = (unsigned char)(v >> 16);
    p[2] = (unsigned char)(v >> 8);
    p[3] = (unsigned char)v;
}

static int mac_of(const unsigned char key[HASH], uint32_t seq, const void *msg, size_t len,
                  unsigned char out[HASH])
{
    unsigned char number[4];
    put_be32(number, seq);
    mbedtls_md_context_t m;
    mbedtls_md_init(&m);
    int rc = mbedtls_md_setup(&m, mbedtls_md_info_from_type(MBEDTLS_MD_MD5), 1);
    if (rc == 0) {
        (void)mbedtls_md_hmac_starts(&m, key, HASH);
        (void)mbedtls_md_hmac_update(&m, number, sizeof number);
        (void)mbedtls_md_hmac_update(&m, msg, len);
        (void)mbedtls_md_hmac_finish(&m, out);
    }
    mbedtls_md_free(&m);
    return rc == 0 ? 0 : -ENOMEM;
}

static int digest_wrap(struct sasl *s, struct span plain, struct buf *out, struct err *e)
{
    struct digest *d = digest_of(s);
    unsigned char mac[HASH];
    if (mac_of(d->key_out, d->seq_out, plain.p, plain.len, mac) < 0)
        return no_memory(e);
    unsigned char *p = buf_reserve(out, plain.len + MAC + TRAILER);
    if (!p)
        return no_memory(e);
    if (plain.len > 0)
        memcpy(p, plain.p, plain.len);
    memcpy(p + plain.len, mac, MAC);
    if (s->qop == SASL_AUTH_CONF)
        rc4_crypt(&d->rc4_out, p, plain.len + MAC);
    unsigned char *t = p + plain.len + MAC;
    t[0] = 0;
    t[1] = 1;
    put_be32(t + 2, d->seq_out++);
    buf_commit(out, plain.len + MAC + TRAILER);
    return 0;
}

static int digest_unwrap(struct sasl *s, struct span packet, struct buf *out, struct err *e)
{
    struct digest *d = digest_of(s);
    if (packet.len < MAC + TRAILER)
        return err_set(e, EPROTO,
                       "the server sent a protected packet of %zu bytes; the smallest one has %d",
                       packet.len, MAC + TRAILER);
    size_t len = packet.len - MAC - TRAILER;
    unsigned char want[TRAILER] = { 0, 1 };
    put_be32(want + 2, d->seq_in);
    if (memcmp(packet.p + len + MAC, want, TRAILER) != 0)
        return err_set(e, EPROTO, "the server sent a protected packet out of order");
    unsigned char *p = buf_reserve(out, len + MAC); /* buf_commit() keeps only len bytes */
    if (!p)
        return no_memory(e);
    memcpy(p, packet.p, len + MAC);
    if (s->qop == SASL_AUTH_CONF)
        rc4_crypt(&d->rc4_in, p, len + MAC);
    unsigned char mac[HASH];
    if (mac_of(d->key_in, d->seq_in, p, len, mac) < 0)
        return no_memory(e);
    if (!sasl_same(mac, p + len, MAC))
        return err_set(e, EPROTO, "a protected packet of the server was changed on its way");
    d->seq_in++;
    buf_commit(out, len);
    return 0;
}

const struct sasl_mech sasl_digest_md5 = {
    .name = "DIGEST-MD5",
    .make = digest_make,
    .free = digest_free,
    .step = digest_step,
    .finish = digest_finish,
    .wrap = digest_wrap,
    .unwrap = digest_unwrap,
};
