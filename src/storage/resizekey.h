/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resize key: a secret of one job and the arbiter of its queue, which belong to different users
 * (docs/decisions/0018-jobs-of-other-users.md).
 *
 *   The arbiter has a private key, 32 bytes. The site's file names its public key (X25519).
 *   The client  makes a key pair for each job: resize_key_offer() returns the resize key, for the
 *               master, and a tag, which the client adds to the application. The tag is no secret.
 *   The arbiter derives the same key from the tag: resize_key_accept().
 *
 * The resize key is HKDF-SHA256 (no salt) of the shared secret of X25519, with the info
 * "tony arbiter <public key of the arbiter> <public key of the pair> <application id>" (both keys
 * in hex). So the tag is of no use for another application.
 *
 * In the token storage of the master's container the key has the name RESIZE_KEY_SECRET. On a
 * connection to the master its TLS identity is RESIZE_KEY_ARBITER.
 */
#ifndef TONY_STORAGE_RESIZEKEY_H
#define TONY_STORAGE_RESIZEKEY_H

#include <stdbool.h>

#include "base/buf.h"
#include "codec/tls.h"

struct err;

#define RESIZE_KEY_SECRET "tony.resize.key"
#define RESIZE_KEY_ARBITER "arbiter"
#define RESIZE_KEY_TAG "tony-arbiter:"

enum {
    ARBITER_KEY_BYTES = 32,
    ARBITER_KEY_HEX = 2 * ARBITER_KEY_BYTES + 1, /* hex digits, NUL */
    /* The prefix, 8 bytes of the arbiter's public key and 32 of the pair's, in hex, and a NUL. YARN
     * allows 100 characters. */
    RESIZE_TAG_MAX = 13 + 16 + 64 + 1,
};

struct arbiter_key { /* private or public */
    unsigned char bytes[ARBITER_KEY_BYTES];
};

/* Write a key as hex digits, and read such a text. -EINVAL: not 64 hex digits. */
void arbiter_key_text(const struct arbiter_key *k, char out[ARBITER_KEY_HEX]);
int arbiter_key_parse(struct span text, struct arbiter_key *out, struct err *e);

/* Compute the public key of a private one. -EIO: mbedTLS has failed, for example because of missing
 * memory. */
int arbiter_key_public(const struct arbiter_key *secret, struct arbiter_key *out, struct err *e);

/* For the client. The caller overwrites *out_key after use. -EINVAL: the public key is a point of
 * low order, which has no secret. */
int resize_key_offer(const struct arbiter_key *arbiter, const char *application_id,
                     struct tls_key *out_key, char out_tag[RESIZE_TAG_MAX], struct err *e);

/* Is this tag meant for the arbiter with this public key? */
bool resize_key_is_for(const char *tag, const struct arbiter_key *arbiter_public);

/* For the arbiter. -EINVAL: it is no such tag, or it has a point of low order. */
int resize_key_accept(const struct arbiter_key *secret, const char *tag, const char *application_id,
                      struct tls_key *out, struct err *e);

#endif
