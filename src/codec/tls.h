/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One TLS 1.2 session between two peers that share a key. This code does no I/O: the caller passes
 * ciphertext in and takes plaintext out, and the reverse. Only ECDHE-PSK with ChaCha20-Poly1305 and
 * X25519 is used: forward secrecy, both sides authenticated, no certificates, no renegotiation, no
 * resumption.
 *
 *     while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0) {
 *         rc = tls_feed(t, bytes, (size_t)n, &plain, &e);    appends decrypted bytes to plain
 *         send all of tls_out(t), also when rc < 0: it may hold the alert that tells the peer why
 *     }
 *
 * A handshake costs each side about a millisecond of CPU time. So a server that anybody can reach
 * should serve peers first that have the key. With tls_hold() the session stops at the first
 * message of the client. tls_claim() then says whether this message proves that the client has the
 * key of its identity. The proof is a MAC of the identity and a number; it travels as TLS's server
 * name. An attacker may record a proof and send it again. So the caller remembers the numbers that
 * it has seen (tls_seen_add()). The caller may also serve clients without a proof, a limited number
 * of them. tls_continue() continues the handshake, on any thread.
 *
 * The client sends first: send tls_out() after tls_client_new(). A session takes 36 KiB, nearly all
 * of it for the two record buffers of mbedTLS, and a little more during the handshake. Random bytes
 * come from getrandom(2). There is no global state; one thread at a time uses a session.
 */
#ifndef TONY_CODEC_TLS_H
#define TONY_CODEC_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;
struct tls;

enum {
    TLS_KEY_MIN = 16,
    TLS_KEY_MAX = 32, /* the limit of mbedTLS */
    TLS_IDENTITY_MAX = 128,
};

struct tls_key {
    unsigned char bytes[TLS_KEY_MAX];
    size_t len; /* 0 = no key */
};

/* Find the key of an identity. The identity comes from the peer: a text that is not empty, shorter
 * than TLS_IDENTITY_MAX and without control characters. false: unknown identity; the peer learns no
 * more than that. */
typedef bool tls_key_fn(const char *identity, struct tls_key *out, void *arg);

/* Both copy their arguments. NULL with e set: no memory, or an invalid key or identity. */
struct tls *tls_client_new(const char *identity, const struct tls_key *key, struct err *e);
struct tls *tls_server_new(tls_key_fn *key_of, void *arg, struct err *e);
void tls_free(struct tls *t);   /* also wipes the key; NULL is fine */
void tls_freep(struct tls **t); /* for AUTO() */

/* For a server, before the first byte: stop after the peer's first message, see above. */
void tls_hold(struct tls *t);
bool tls_held(const struct tls *t); /* it has stopped there: call tls_continue() or tls_free() */
/* Did the peer's first message prove that it has the key of its identity? */
bool tls_claim(const struct tls *t, uint64_t *out_number);
/* Continue a held session. If the client has sent a proof, key_of has been called already: neither
 * this nor a later tls_feed() calls it again. Errors as of tls_feed(). */
int tls_continue(struct tls *t, struct err *e);

/* Numbers of proofs. A new one may replace an old one. */
enum { TLS_SEEN_MAX = 1024 };
struct tls_seen {
    uint64_t numbers[TLS_SEEN_MAX];
};
bool tls_seen_add(struct tls_seen *s, uint64_t number); /* false: it is in it already */

/* Process all n bytes; decrypted bytes are appended to plain. 0, or -errno with a sentence;
 * after an error the session cannot be used any more:
 *   -EACCES    the keys differ, or the identity is not known
 *   -EPROTO    the peer does not use TLS, or no common version or cipher
 *   -EBADMSG   damaged or forged on the way
 *   -EMSGSIZE  plain is full
 *   -ENOMEM */
int tls_feed(struct tls *t, const void *p, size_t n, struct buf *plain, struct err *e);

/* Encrypt all of n bytes into tls_out(). -ENOTCONN before tls_ready(); -EPIPE after a failure or
 * tls_end(). */
int tls_write(struct tls *t, const void *p, size_t n, struct err *e);

/* Tell the peer that the session ends here. Without this the connection counts as broken. */
int tls_end(struct tls *t, struct err *e);

/* Ciphertext to be sent; buf_consume() what was sent, buf_done() when it is empty and idle. */
struct buf *tls_out(struct tls *t);

bool tls_ready(const struct tls *t); /* the handshake is complete: both sides have the key */
bool tls_ended(const struct tls *t); /* the peer has closed the session */
const char *
tls_identity(const struct tls *t); /* the client's identity, on both sides; "" before it is known */

#endif
