/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ChaCha20-Poly1305 (RFC 8439) of libsodium for the TLS of Mbed TLS. That of Mbed TLS is three
 * times slower, which is most of the time of a stream over TLS
 * (docs/decisions/0034-libsodium-encrypts.md).
 *
 * No code of tony calls these functions. The linker gives them the calls of
 * mbedtls_chachapoly_encrypt_and_tag() and mbedtls_chachapoly_auth_decrypt() (--wrap,
 * src/codec/meson.build). They have the parameters and the results of those. __real_X() is Mbed
 * TLS's own X(). A program that is linked without --wrap uses Mbed TLS's own.
 */
#ifndef TONY_CODEC_CHACHAPOLY_H
#define TONY_CODEC_CHACHAPOLY_H

#include <stddef.h>

#include "codec/mbed.h"

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker makes these names */
typedef int chachapoly_encrypt(mbedtls_chachapoly_context *c, size_t n,
                               const unsigned char nonce[12], const unsigned char *aad,
                               size_t n_aad, const unsigned char *in, unsigned char *out,
                               unsigned char tag[16]);
typedef int chachapoly_decrypt(mbedtls_chachapoly_context *c, size_t n,
                               const unsigned char nonce[12], const unsigned char *aad,
                               size_t n_aad, const unsigned char tag[16], const unsigned char *in,
                               unsigned char *out);
chachapoly_encrypt __wrap_mbedtls_chachapoly_encrypt_and_tag;
chachapoly_encrypt __real_mbedtls_chachapoly_encrypt_and_tag;
chachapoly_decrypt __wrap_mbedtls_chachapoly_auth_decrypt;
chachapoly_decrypt __real_mbedtls_chachapoly_auth_decrypt;
/* NOLINTEND(bugprone-reserved-identifier) */

#endif
