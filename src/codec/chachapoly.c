/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/chachapoly.h"

#include <endian.h>
#include <pthread.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* the key is in words 4 to 11 of the state of ChaCha20: RFC 8439, section 2.3 */
enum { KEY_WORD = 4, KEY_WORDS = 8 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool ready;

static void begin(void)
{
    ready = sodium_init() >= 0; /* chooses the instructions that the processor has */
}

static bool is_ready(void)
{
    (void)pthread_once(&once, begin);
    return ready;
}

/* Read the key from the state of ChaCha20: Mbed TLS has no function that returns it. */
static void key_of(const mbedtls_chachapoly_context *c, uint32_t key[KEY_WORDS])
{
    for (unsigned i = 0; i < KEY_WORDS; i++)
        key[i] = htole32(c->chacha20_ctx.state[KEY_WORD + i]);
}

int __wrap_mbedtls_chachapoly_encrypt_and_tag(mbedtls_chachapoly_context *c, size_t n,
                                              const unsigned char nonce[12],
                                              const unsigned char *aad, size_t n_aad,
                                              const unsigned char *in, unsigned char *out,
                                              unsigned char tag[16])
{
    uint32_t key[KEY_WORDS];
    if (!is_ready())
        return __real_mbedtls_chachapoly_encrypt_and_tag(c, n, nonce, aad, n_aad, in, out, tag);
    key_of(c, key);
    (void)crypto_aead_chacha20poly1305_ietf_encrypt_detached(
        out, tag, NULL, in, n, aad, n_aad, NULL, nonce, (const unsigned char *)key);
    sodium_memzero(key, sizeof key);
    return 0;
}

int __wrap_mbedtls_chachapoly_auth_decrypt(mbedtls_chachapoly_context *c, size_t n,
                                           const unsigned char nonce[12], const unsigned char *aad,
                                           size_t n_aad, const unsigned char tag[16],
                                           const unsigned char *in, unsigned char *out)
{
    uint32_t key[KEY_WORDS];
    if (!is_ready())
        return __real_mbedtls_chachapoly_auth_decrypt(c, n, nonce, aad, n_aad, tag, in, out);
    key_of(c, key);
    int rc = crypto_aead_chacha20poly1305_ietf_decrypt_detached(out, NULL, in, n, tag, aad, n_aad,
                                                                nonce, (const unsigned char *)key);
    sodium_memzero(key, sizeof key);
    return rc == 0 ? 0 : MBEDTLS_ERR_CHACHAPOLY_AUTH_FAILED;
}
