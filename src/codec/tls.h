/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One TLS 1.2 session between two who share a key, without I/O: push ciphertext, take plaintext;
 * push plaintext, take ciphertext. Only ECDHE-PSK with ChaCha20-Poly1305 and X25519: forward
 * secret, authenticated both ways, no certificates, no renegotiation, no resumption.
 *
 *     while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0) {
 *         rc = tls_feed(t, bytes, (size_t)n, &plain, &e);    plain grows by what was decrypted
 *         send all of tls_out(t), also when rc < 0: it may hold the alert that tells the peer why
 *     }
 *
 * A client speaks first: send tls_out() after tls_client_new(). A session takes 36 KiB,
 * nearly all of it mbedTLS's two record buffers, and a little more during the handshake.
 * Randomness is getrandom(2). Nothing here is global; one session belongs to one thread.
 */
#ifndef TONY_CODEC_TLS_H
#define TONY_CODEC_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct err;
struct tls;

enum {
    TLS_KEY_MIN = 16,
    TLS_KEY_MAX = 32, /* what mbedTLS takes */
    TLS_IDENTITY_MAX = 128,
};

struct tls_key {
    unsigned char bytes[TLS_KEY_MAX];
    size_t len; /* 0 = no key */
};

/* The key of an identity (which is any text that a peer may send: not empty, shorter than
 * TLS_IDENTITY_MAX, without control characters). False: nobody of that name; the peer is told no
 * more than that. */
typedef bool tls_key_fn(const char *identity, struct tls_key *out, void *arg);

/* Both copy what they are given. NULL with e set: no memory, or a key or identity that cannot be.
 */
struct tls *tls_client_new(const char *identity, const struct tls_key *key, struct err *e);
struct tls *tls_server_new(tls_key_fn *key_of, void *arg, struct err *e);
void tls_free(struct tls *t);   /* wipes; NULL is fine */
void tls_freep(struct tls **t); /* for AUTO() */

/* All of the n bytes are taken; what they decrypt to is appended to plain. 0, or -errno with a
 * sentence after which the session is of no use:
 *   -EACCES    the keys differ, or the identity is not known
 *   -EPROTO    no TLS, or nothing both sides speak
 *   -EBADMSG   damaged or forged on the way
 *   -EMSGSIZE  plain is full
 *   -ENOMEM */
int tls_feed(struct tls *t, const void *p, size_t n, struct buf *plain, struct err *e);

/* Encrypt all of n bytes into tls_out(). -ENOTCONN before tls_ready(); -EPIPE after a failure or
 * tls_end(). */
int tls_write(struct tls *t, const void *p, size_t n, struct err *e);

/* Say goodbye in order, so that the peer can tell the end from a cut line. */
int tls_end(struct tls *t, struct err *e);

/* Ciphertext to be sent; buf_consume() what was sent, buf_done() when it is empty and idle. */
struct buf *tls_out(struct tls *t);

bool tls_ready(const struct tls *t); /* the handshake is over: both know the key */
bool tls_ended(const struct tls *t); /* the peer has said goodbye */
const char *
tls_identity(const struct tls *t); /* the client's, on both sides; "" before it is known */

#endif
