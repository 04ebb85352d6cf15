/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "codec/chachapoly.h"

enum { TEXT_MAX = 20000, AAD_MAX = 100, ROUNDS = 3000 };

static void fill(unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)rand();
}

/* RFC 8439, section 2.8.2 */
static void test_known_answer(void **state)
{
    static const char text[] =
        "Ladies and Gentlemen of the class of '99: If I could offer you only one "
        "tip for the future, sunscreen would be it.";
    static const unsigned char aad[] = { 0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1,
                                         0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7 },
                               nonce[] = { 0x07, 0x00, 0x00, 0x00, 0x40, 0x41,
                                           0x42, 0x43, 0x44, 0x45, 0x46, 0x47 },
                               begins[] = { 0xd3, 0x1a, 0x8d, 0x34, 0x64, 0x8e, 0x60, 0xdb,
                                            0x7b, 0x86, 0xaf, 0xbc, 0x53, 0xef, 0x7e, 0xc2 },
                               mac[] = { 0x1a, 0xe1, 0x0b, 0x59, 0x4f, 0x09, 0xe2, 0x6a,
                                         0x7e, 0x90, 0x2e, 0xcb, 0xd0, 0x60, 0x06, 0x91 };
    mbedtls_chachapoly_context c;
    unsigned char key[32], out[sizeof text], tag[16];
    (void)state;
    for (unsigned i = 0; i < sizeof key; i++)
        key[i] = (unsigned char)(0x80 + i);
    mbedtls_chachapoly_init(&c);
    assert_int_equal(mbedtls_chachapoly_setkey(&c, key), 0);
    assert_int_equal(
        __wrap_mbedtls_chachapoly_encrypt_and_tag(&c, sizeof text - 1, nonce, aad, sizeof aad,
                                                  (const unsigned char *)text, out, tag),
        0);
    assert_memory_equal(out, begins, sizeof begins);
    assert_memory_equal(tag, mac, sizeof mac);
    mbedtls_chachapoly_free(&c);
}

/* For random texts, also in place: our encryption gives the same bytes as Mbed TLS's own one, and
 * our decryption gives the text again. It refuses a message with any one changed bit. */
static void test_as_mbed_tls(void **state)
{
    static unsigned char text[TEXT_MAX], theirs[TEXT_MAX], ours[TEXT_MAX];
    (void)state;
    srand(4711);
    for (int round = 0; round < ROUNDS; round++) {
        mbedtls_chachapoly_context c;
        unsigned char key[32], nonce[12], aad[AAD_MAX], tag[16], tag_ours[16];
        size_t n = (size_t)rand() % (round % 8 ? 300 : TEXT_MAX), n_aad = (size_t)rand() % AAD_MAX;
        fill(key, sizeof key);
        fill(nonce, sizeof nonce);
        fill(aad, sizeof aad);
        fill(text, n);
        mbedtls_chachapoly_init(&c);
        assert_int_equal(mbedtls_chachapoly_setkey(&c, key), 0);
        assert_int_equal(
            __real_mbedtls_chachapoly_encrypt_and_tag(&c, n, nonce, aad, n_aad, text, theirs, tag),
            0);
        bool in_place = round % 2;
        memcpy(ours, text, n);
        assert_int_equal(__wrap_mbedtls_chachapoly_encrypt_and_tag(
                             &c, n, nonce, aad, n_aad, in_place ? ours : text, ours, tag_ours),
                         0);
        assert_memory_equal(ours, theirs, n);
        assert_memory_equal(tag_ours, tag, sizeof tag);
        assert_int_equal(__wrap_mbedtls_chachapoly_auth_decrypt(&c, n, nonce, aad, n_aad, tag,
                                                                in_place ? ours : theirs, ours),
                         0);
        assert_memory_equal(ours, text, n);
        unsigned char *changed[] = { theirs, aad, tag, nonce };
        size_t sizes[] = { n, n_aad, sizeof tag, sizeof nonce }, which = (size_t)round % 4;
        if (sizes[which]) {
            changed[which][(size_t)rand() % sizes[which]] ^= (unsigned char)(1 << rand() % 8);
            assert_int_equal(
                __wrap_mbedtls_chachapoly_auth_decrypt(&c, n, nonce, aad, n_aad, tag, theirs, ours),
                MBEDTLS_ERR_CHACHAPOLY_AUTH_FAILED);
        }
        mbedtls_chachapoly_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answer),
        cmocka_unit_test(test_as_mbed_tls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
