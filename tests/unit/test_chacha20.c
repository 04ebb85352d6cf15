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
#include "codec/chacha20.h"
#include "codec/mbed.h"

/* Mbed TLS's own function, and ours. The linker gives the calls of the former to the latter. */
int __real_mbedtls_chacha20_update(mbedtls_chacha20_context *c, size_t n, const unsigned char *in,
                                   unsigned char *out);
int __wrap_mbedtls_chacha20_update(mbedtls_chacha20_context *c, size_t n, const unsigned char *in,
                                   unsigned char *out);

enum { TEXT_MAX = 5000, ROUNDS = 3000 };

static void fill(unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)rand();
}

static void begin(mbedtls_chacha20_context *c, uint32_t counter)
{
    unsigned char key[32], nonce[12];
    fill(key, sizeof key);
    fill(nonce, sizeof nonce);
    mbedtls_chacha20_init(c);
    assert_int_equal(mbedtls_chacha20_setkey(c, key), 0);
    assert_int_equal(mbedtls_chacha20_starts(c, nonce, counter), 0);
}

/* RFC 8439, appendix A.1: the blocks 0 and 1 of the key stream of a key and a nonce of zeros. */
static void test_known_answers(void **state)
{
    static const unsigned char blocks[2 * CHACHA20_BLOCK] = {
        0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90, 0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86, 0xbd,
        0x28, 0xbd, 0xd2, 0x19, 0xb8, 0xa0, 0x8d, 0xed, 0x1a, 0xa8, 0x36, 0xef, 0xcc, 0x8b, 0x77,
        0x0d, 0xc7, 0xda, 0x41, 0x59, 0x7c, 0x51, 0x57, 0x48, 0x8d, 0x77, 0x24, 0xe0, 0x3f, 0xb8,
        0xd8, 0x4a, 0x37, 0x6a, 0x43, 0xb8, 0xf4, 0x15, 0x18, 0xa1, 0x1c, 0xc3, 0x87, 0xb6, 0x69,
        0xb2, 0xee, 0x65, 0x86, 0x9f, 0x07, 0xe7, 0xbe, 0x55, 0x51, 0x38, 0x7a, 0x98, 0xba, 0x97,
        0x7c, 0x73, 0x2d, 0x08, 0x0d, 0xcb, 0x0f, 0x29, 0xa0, 0x48, 0xe3, 0x65, 0x69, 0x12, 0xc6,
        0x53, 0x3e, 0x32, 0xee, 0x7a, 0xed, 0x29, 0xb7, 0x21, 0x76, 0x9c, 0xe6, 0x4e, 0x43, 0xd5,
        0x71, 0x33, 0xb0, 0x74, 0xd8, 0x39, 0xd5, 0x31, 0xed, 0x1f, 0x28, 0x51, 0x0a, 0xfb, 0x45,
        0xac, 0xe1, 0x0a, 0x1f, 0x4b, 0x79, 0x4d, 0x6f,
    };
    (void)state;
    for (unsigned lanes = chacha20_lanes(); lanes >= CHACHA20_LANES_MIN; lanes /= 2) {
        uint32_t words[16] = { 0x61707865, 0x3320646e, 0x79622d32, 0x6b206574 };
        unsigned char zeros[CHACHA20_LANES_MAX * CHACHA20_BLOCK] = { 0 }, out[sizeof zeros];
        size_t n = (size_t)lanes * CHACHA20_BLOCK;
        assert_int_equal(chacha20_bulk(lanes, words, zeros, n, out), n);
        assert_memory_equal(out, blocks, sizeof blocks);
        assert_int_equal(words[12], lanes);
    }
}

/* Every implementation that this processor has does what Mbed TLS does, also when the counter
 * overflows, and in place. */
static void test_as_mbedtls(void **state)
{
    static unsigned char text[TEXT_MAX], want[TEXT_MAX], got[TEXT_MAX];
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++)
        for (unsigned lanes = chacha20_lanes(); lanes >= CHACHA20_LANES_MIN; lanes /= 2) {
            mbedtls_chacha20_context theirs, ours;
            size_t n = (size_t)rand() % TEXT_MAX, group = (size_t)lanes * CHACHA20_BLOCK;
            bool in_place = i % 2;
            begin(&theirs, i % 3 ? (uint32_t)rand() : UINT32_MAX - (uint32_t)rand() % 20);
            ours = theirs;
            fill(text, n);
            memset(got, 0x5a, sizeof got);
            if (in_place)
                memcpy(got, text, n);
            size_t done = chacha20_bulk(lanes, ours.state, in_place ? got : text, n, got);
            assert_int_equal(done, n - n % group);
            assert_int_equal(__real_mbedtls_chacha20_update(&theirs, done, text, want), 0);
            assert_memory_equal(got, want, done);
            assert_memory_equal(ours.state, theirs.state, sizeof ours.state);
            if (done < n) /* nothing is written behind the last group */
                assert_int_equal(got[done], in_place ? text[done] : 0x5a);
        }
}

/* A text in pieces of any length, at any address. */
static void test_pieces(void **state)
{
    static unsigned char text[TEXT_MAX], want[TEXT_MAX], got[TEXT_MAX];
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        mbedtls_chacha20_context theirs, ours;
        size_t n = (size_t)rand() % TEXT_MAX, at = 0;
        begin(&theirs, (uint32_t)rand());
        ours = theirs;
        fill(text, n);
        memset(got, 0x5a, sizeof got);
        while (at < n) {
            size_t piece = MIN(n - at, (size_t)rand() % (i % 2 ? TEXT_MAX : 200));
            assert_int_equal(mbedtls_chacha20_update(&ours, piece, text + at, got + at), 0);
            at += piece;
        }
        assert_int_equal(__real_mbedtls_chacha20_update(&theirs, n, text, want), 0);
        assert_memory_equal(got, want, n);
        assert_int_equal(ours.keystream_bytes_used, theirs.keystream_bytes_used);
        assert_memory_equal(ours.state, theirs.state, sizeof ours.state);
        assert_int_equal(mbedtls_chacha20_update(&ours, 0, NULL, NULL), 0);
    }
}

/* The library that links this code has also said so to the linker. */
static void test_is_linked(void **state)
{
    (void)state;
    assert_ptr_equal(mbedtls_chacha20_update, __wrap_mbedtls_chacha20_update);
    assert_ptr_not_equal(mbedtls_chacha20_update, __real_mbedtls_chacha20_update);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_as_mbedtls),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_is_linked),
    };
    srand(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
