/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/tls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/mbed.h"

enum { RECORD_MAX = 16384 }; /* bytes of plaintext in one record */

/* How far a session has come. */
enum step {
    SHAKING, /* the handshake is under way */
    HELD,    /* tls_hold(): it stopped after the peer's first message; tls_continue() goes on */
    READY,   /* data can be sent and received */
    ENDED,   /* the peer sends nothing more; this side may still send */
};

struct tls {
    mbedtls_ssl_context ssl;
    mbedtls_ssl_config conf;
    tls_key_fn *key_of; /* set only for a server */
    void *key_arg;
    const unsigned char *in; /* input of tls_feed() that is not processed yet */
    size_t n_in;
    struct buf out;
    char identity[TLS_IDENTITY_MAX];
    bool unknown_identity; /* the server does not know the identity */
    bool server;
    bool hold; /* stop after the first message of the peer: the next step is HELD */
    enum step step;
    bool closing; /* tls_end(): this side sends nothing more */
    bool failed;  /* an error was reported; the session can only be freed */
    /* The claim that the client's first message has proved: the client has the key of its identity.
     * number 0 = nothing is proved. */
    struct {
        uint64_t number;
        struct tls_key key;
        char identity[TLS_IDENTITY_MAX];
    } claim;
};

static const int suites[] = { MBEDTLS_TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256, 0 };

/* ---- callbacks for mbedTLS ---- */

static int random_bytes(void *arg, unsigned char *out, size_t n)
{
    (void)arg;
    while (n > 0) {
        ssize_t got = getrandom(out, n, 0);
        if (got == -1 && errno == EINTR)
            continue;
        if (got == -1)
            /* Cannot happen: getrandom() does not fail on the kernels that tony supports. */
            return MBEDTLS_ERR_SSL_INTERNAL_ERROR;
        out += got;
        n -= (size_t)got;
    }
    return 0;
}

static int take_in(void *arg, unsigned char *p, size_t n)
{
    struct tls *t = arg;
    size_t take = MIN(n, t->n_in);
    if (take == 0)
        return MBEDTLS_ERR_SSL_WANT_READ;
    memcpy(p, t->in, take);
    t->in += take;
    t->n_in -= take;
    return (int)take;
}

static int put_out(void *arg, const unsigned char *p, size_t n)
{
    struct tls *t = arg;
    return buf_add(&t->out, p, n) < 0 ? MBEDTLS_ERR_SSL_ALLOC_FAILED : (int)n;
}

static bool identity_valid(struct span id)
{
    for (size_t i = 0; i < id.len; i++)
        if ((unsigned char)id.p[i] < 0x20 || id.p[i] == 0x7f)
            return false;
    return id.len > 0 && id.len < TLS_IDENTITY_MAX;
}

/* ---- the claim: the client's first message proves its identity ---- */

/* "tony.<number>.<MAC>.<identity>", both in hex. */
#define CLAIM_FORM "tony.%016llx.%s.%s"
enum {
    MAC_BYTES = 16,
    NUMBER_AT = 5,
    MAC_AT = NUMBER_AT + 16 + 1,
    IDENTITY_AT = MAC_AT + 2 * MAC_BYTES + 1,
    CLAIM_MAX = IDENTITY_AT + TLS_IDENTITY_MAX,
};

static int claim_mac(const struct tls_key *key, uint64_t number, const char *identity,
                     char out[2 * MAC_BYTES + 1])
{
    char text[TLS_IDENTITY_MAX + 64];
    unsigned char mac[32];
    int n =
        snprintf(text, sizeof text, "tony claim %016llx %s", (unsigned long long)number, identity);
    int rc = mbedtls_md_hmac(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), key->bytes, key->len,
                             (const unsigned char *)text, (size_t)n, mac);
    for (size_t i = 0; i < MAC_BYTES; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", mac[i]);
    return rc;
}

static int make_claim(struct tls *t, const struct tls_key *key)
{
    char mac[2 * MAC_BYTES + 1], text[CLAIM_MAX];
    uint64_t number = 0;
    int rc = random_bytes(NULL, (unsigned char *)&number, sizeof number);
    number |= number == 0; /* 0 means: no claim */
    if (rc == 0)
        rc = claim_mac(key, number, t->identity, mac);
    if (rc != 0)
        return rc;
    (void)snprintf(text, sizeof text, CLAIM_FORM, (unsigned long long)number, mac, t->identity);
    return mbedtls_ssl_set_hostname(&t->ssl, text);
}

/* Do two texts of n bytes agree? The time that this takes does not tell where they differ. */
static bool same_bytes(const char *a, const char *b, size_t n)
{
    unsigned char differ = 0;
    for (size_t i = 0; i < n; i++)
        differ |= (unsigned char)(a[i] ^ b[i]);
    return differ == 0;
}

/* Check the server name that the peer has sent. Anything but a valid claim is ignored. */
static int read_claim(void *arg, mbedtls_ssl_context *ssl, const unsigned char *p, size_t n)
{
    struct tls *t = arg;
    char text[CLAIM_MAX], mac[2 * MAC_BYTES + 1], *end = NULL;
    struct tls_key key = { .len = 0 };
    (void)ssl;
    if (n <= IDENTITY_AT || n >= sizeof text || memcmp(p, "tony.", NUMBER_AT) != 0)
        return 0;
    memcpy(text, p, n);
    text[n] = '\0';
    const char *identity = text + IDENTITY_AT;
    unsigned long long number = strtoull(text + NUMBER_AT, &end, 16);
    if (end != text + MAC_AT - 1 || number == 0 ||
        !identity_valid(span_mem(identity, n - IDENTITY_AT)))
        return 0;
    if (t->key_of(identity, &key, t->key_arg) && key.len >= TLS_KEY_MIN &&
        claim_mac(&key, number, identity, mac) == 0 &&
        same_bytes(mac, text + MAC_AT, 2 * MAC_BYTES)) {
        t->claim.number = number;
        t->claim.key = key;
        (void)str_copy(t->claim.identity, sizeof t->claim.identity, identity);
    }
    explicit_bzero(&key, sizeof key);
    return 0;
}

/* Find the key of t->identity. If the peer has proved a claim, take the key from the claim:
 * tls_continue() may run on another thread, on which key_of() must not be called. */
static bool key_for(struct tls *t, struct tls_key *out)
{
    if (!t->claim.number)
        return t->key_of(t->identity, out, t->key_arg);
    *out = t->claim.key;
    return str_eq(t->identity, t->claim.identity);
}

static int find_key(void *arg, mbedtls_ssl_context *ssl, const unsigned char *id, size_t len)
{
    struct tls *t = arg;
    struct tls_key key = { .len = 0 };
    struct span name = span_mem(id, len);
    t->unknown_identity = true;
    if (!identity_valid(name))
        return -1;
    memcpy(t->identity, name.p, name.len);
    t->identity[name.len] = '\0';
    if (!key_for(t, &key))
        return -1;
    t->unknown_identity = false;
    int rc = key.len < TLS_KEY_MIN ? -1 : mbedtls_ssl_set_hs_psk(ssl, key.bytes, key.len);
    explicit_bzero(&key, sizeof key);
    return rc;
}

/* ---- errors ---- */

static int alert_failed(const struct tls *t, struct err *e)
{
    unsigned alert = t->ssl.in_msg[1];
    switch (alert) {
    case MBEDTLS_SSL_ALERT_MSG_UNKNOWN_PSK_IDENTITY:
        return err_set(e, EACCES, "the peer does not know the identity '%s'", t->identity);
    case MBEDTLS_SSL_ALERT_MSG_BAD_RECORD_MAC:
    case MBEDTLS_SSL_ALERT_MSG_DECRYPT_ERROR:
        if (t->step < READY)
            return err_set(e, EACCES, "the peer has a different key for '%s'", t->identity);
        return err_set(e, EBADMSG, "the sent data was damaged or forged on the way");
    case MBEDTLS_SSL_ALERT_MSG_HANDSHAKE_FAILURE:
    case MBEDTLS_SSL_ALERT_MSG_PROTOCOL_VERSION:
    case MBEDTLS_SSL_ALERT_MSG_INSUFFICIENT_SECURITY:
        return err_set(e, EPROTO, "the peer does not support TLS 1.2 with pre-shared keys");
    default:
        return err_set(e, EPROTO, "the peer ended the session with TLS alert %u", alert);
    }
}

static int fail(struct tls *t, int rc, struct err *e)
{
    t->failed = true;
    if (t->unknown_identity)
        return err_set(e, EACCES, "unknown identity '%s'", t->identity);
    /* Each module of mbedTLS has its own code for a lack of memory, and some of them report another
     * one. So check errno, too. */
    if (errno == ENOMEM || rc == MBEDTLS_ERR_SSL_ALLOC_FAILED)
        return err_set(e, ENOMEM, "cannot continue the TLS session: %m");
    if (rc == MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE)
        return alert_failed(t, e);
    if (rc == MBEDTLS_ERR_SSL_INVALID_MAC && t->step >= READY)
        return err_set(e, EBADMSG, "the received data was damaged or forged on the way");
    if (rc == MBEDTLS_ERR_SSL_INVALID_MAC)
        return err_set(e, EACCES, "the peer has a different key for '%s'", t->identity);
    if (rc == MBEDTLS_ERR_SSL_UNKNOWN_IDENTITY)
        return err_set(e, EACCES, "the key for '%s' cannot be used", t->identity);
    return err_set(e, EPROTO, "the peer violates the TLS protocol (error -0x%04x)", (unsigned)-rc);
}

/* ---- creation ---- */

static struct tls *tls_new(bool server, struct err *e)
{
    struct tls *t = calloc(1, sizeof *t);
    if (!t) {
        (void)err_set(e, ENOMEM, "cannot begin a TLS session: %m");
        return NULL;
    }
    t->server = server;
    errno = 0;
    mbedtls_ssl_init(&t->ssl);
    mbedtls_ssl_config_init(&t->conf);
    int rc = mbedtls_ssl_config_defaults(&t->conf,
                                         server ? MBEDTLS_SSL_IS_SERVER : MBEDTLS_SSL_IS_CLIENT,
                                         MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT);
    if (rc != 0) {
        (void)fail(t, rc, e);
        tls_free(t);
        return NULL;
    }
    mbedtls_ssl_conf_rng(&t->conf, random_bytes, NULL);
    mbedtls_ssl_conf_ciphersuites(&t->conf, suites);
    mbed_conf_tls12_x25519(&t->conf);
    mbedtls_ssl_conf_renegotiation(&t->conf, MBEDTLS_SSL_RENEGOTIATION_DISABLED);
    if (!server)
        mbedtls_ssl_conf_session_tickets(&t->conf, MBEDTLS_SSL_SESSION_TICKETS_DISABLED);
    return t;
}

/* Takes t. key: the key of the client; a server passes NULL. */
static struct tls *tls_setup(struct tls *t, const struct tls_key *key, struct err *e)
{
    int rc = mbedtls_ssl_setup(&t->ssl, &t->conf);
    if (rc == 0) {
        mbedtls_ssl_set_bio(&t->ssl, t, put_out, take_in, NULL);
        if (t->server)
            return t;
        rc = make_claim(t, key);
    }
    if (rc == 0) {
        rc = mbedtls_ssl_handshake(&t->ssl); /* the client sends the first message */
        if (rc == MBEDTLS_ERR_SSL_WANT_READ)
            return t;
    }
    (void)fail(t, rc, e);
    tls_free(t);
    return NULL;
}

struct tls *tls_client_new(const char *identity, const struct tls_key *key, struct err *e)
{
    if (!identity_valid(span_of(identity))) {
        (void)err_set(e, EINVAL, "'%s' is not a valid identity", identity);
        return NULL;
    }
    if (key->len < TLS_KEY_MIN || key->len > TLS_KEY_MAX) {
        (void)err_set(e, EINVAL, "the key for '%s' must have between %d and %d bytes", identity,
                      TLS_KEY_MIN, TLS_KEY_MAX);
        return NULL;
    }
    struct tls *t = tls_new(false, e);
    if (!t)
        return NULL;
    /* Cannot be cut: identity_valid() has checked the length. */
    (void)str_copy(t->identity, sizeof t->identity, identity);
    int rc = mbedtls_ssl_conf_psk(&t->conf, key->bytes, key->len, (const unsigned char *)identity,
                                  strlen(identity));
    if (rc != 0) {
        (void)fail(t, rc, e);
        tls_free(t);
        return NULL;
    }
    return tls_setup(t, key, e);
}

struct tls *tls_server_new(tls_key_fn *key_of, void *arg, struct err *e)
{
    struct tls *t = tls_new(true, e);
    if (!t)
        return NULL;
    t->key_of = key_of;
    t->key_arg = arg;
    mbedtls_ssl_conf_psk_cb(&t->conf, find_key, t);
    mbedtls_ssl_conf_sni(&t->conf, read_claim, t);
    return tls_setup(t, NULL, e);
}

void tls_free(struct tls *t)
{
    if (!t)
        return;
    mbedtls_ssl_free(&t->ssl);
    mbedtls_ssl_config_free(&t->conf);
    explicit_bzero(&t->claim, sizeof t->claim);
    buf_done(&t->out);
    free(t);
}

void tls_freep(struct tls **t)
{
    tls_free(*t);
    *t = NULL;
}

/* ---- a held session ---- */

void tls_hold(struct tls *t)
{
    t->hold = true;
}

bool tls_held(const struct tls *t)
{
    return t->step == HELD;
}

bool tls_claim(const struct tls *t, uint64_t *out_number)
{
    *out_number = t->claim.number;
    return t->claim.number != 0;
}

bool tls_seen_add(struct tls_seen *s, uint64_t number)
{
    uint64_t *at = &s->numbers[number % TLS_SEEN_MAX];
    if (*at == number)
        return false;
    *at = number;
    return true;
}

/* ---- data ---- */

/* Read the peer's first message, and stop there. */
static int hear_first(struct tls *t)
{
    int rc = 0;
    while (rc == 0 && t->ssl.state < MBEDTLS_SSL_SERVER_HELLO)
        rc = mbedtls_ssl_handshake_step(&t->ssl);
    if (rc == 0)
        t->step = HELD;
    return rc;
}

/* 1: continue; 0: more input is needed, or the session is held; -errno. */
static int handshake_some(struct tls *t, struct err *e)
{
    int rc = t->hold ? hear_first(t) : mbedtls_ssl_handshake(&t->ssl);
    if (t->step == HELD && t->n_in > 0) /* an honest peer waits for the answer */
        rc = MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE;
    else if (t->step == HELD)
        return 0;
    if (rc == MBEDTLS_ERR_SSL_WANT_READ)
        return 0;
    if (rc != 0)
        return fail(t, rc, e);
    t->step = READY;
    return 1;
}

static int read_some(struct tls *t, struct buf *plain, struct err *e)
{
    size_t room = RECORD_MAX;
    /* Do not reserve room if there is no input. */
    if (t->n_in == 0 && !mbedtls_ssl_check_pending(&t->ssl))
        return 0;
    void *p = buf_reserve(plain, room);
    if (!p) {
        t->failed = true;
        int num =
            plain->len + room > (plain->max ? plain->max : BUF_MAX_DEFAULT) ? EMSGSIZE : ENOMEM;
        return err_set(e, num, "no room for the decrypted data: %m");
    }
    int rc = mbedtls_ssl_read(&t->ssl, p, room);
    if (rc > 0) {
        buf_commit(plain, (size_t)rc);
        return 1;
    }
    if (rc == MBEDTLS_ERR_SSL_WANT_READ)
        return 0;
    if (rc == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY || rc == 0) {
        t->step = ENDED;
        return 0;
    }
    return fail(t, rc, e);
}

int tls_feed(struct tls *t, const void *p, size_t n, struct buf *plain, struct err *e)
{
    if (t->failed)
        return err_set(e, EPIPE, "this TLS session has failed already");
    if (t->step == ENDED) /* ignore what the peer sends after it has closed the session */
        return 0;
    if (t->step == HELD)
        return fail(t, MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE, e);
    t->in = p;
    t->n_in = n;
    errno = 0; /* fail() looks at it */
    int rc;
    do
        rc = t->step == READY ? read_some(t, plain, e) : handshake_some(t, e);
    while (rc > 0);
    t->in = NULL; /* the input belongs to the caller again */
    t->n_in = 0;
    return rc;
}

int tls_continue(struct tls *t, struct err *e)
{
    if (t->failed)
        return err_set(e, EPIPE, "this TLS session has failed already");
    t->hold = false;
    if (t->step == HELD)
        t->step = SHAKING;
    errno = 0;
    int rc = handshake_some(t, e);
    return MIN(rc, 0);
}

int tls_write(struct tls *t, const void *p, size_t n, struct err *e)
{
    const unsigned char *at = p;
    if (t->failed || t->closing)
        return err_set(e, EPIPE, "this TLS session is over");
    if (t->step < READY)
        return err_set(e, ENOTCONN, "this TLS session has not begun");
    errno = 0;
    while (n > 0) {
        int rc = mbedtls_ssl_write(&t->ssl, at, MIN(n, (size_t)RECORD_MAX));
        if (rc <= 0)
            return fail(t, rc, e);
        at += rc;
        n -= (size_t)rc;
    }
    return 0;
}

int tls_end(struct tls *t, struct err *e)
{
    if (t->failed || t->closing)
        return 0;
    t->closing = true;
    errno = 0;
    int rc = mbedtls_ssl_close_notify(&t->ssl);
    return rc == 0 ? 0 : fail(t, rc, e);
}

struct buf *tls_out(struct tls *t)
{
    return &t->out;
}

bool tls_ready(const struct tls *t)
{
    return t->step >= READY;
}

bool tls_ended(const struct tls *t)
{
    return t->step == ENDED;
}

const char *tls_identity(const struct tls *t)
{
    return t->unknown_identity ? "" : t->identity;
}
