/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/chacha20.h"

#include <string.h>

#include "base/util.h"
#include "codec/mbed.h"

enum { COUNTER = 12, DOUBLE_ROUNDS = 10 };

#define ROTATE(x, n) ((x) << (n) | (x) >> (32 - (n)))
#define QUARTER_ROUND(a, b, c, d)                                                                  \
    do {                                                                                           \
        (a) += (b), (d) = ROTATE((d) ^ (a), 16);                                                   \
        (c) += (d), (b) = ROTATE((b) ^ (c), 12);                                                   \
        (a) += (b), (d) = ROTATE((d) ^ (a), 8);                                                    \
        (c) += (d), (b) = ROTATE((b) ^ (c), 7);                                                    \
    } while (0)

/*
 * A vector has the same word of `lanes` consecutive blocks. All operations are additions, rotations
 * and XOR: the time does not depend on the key or the text.
 */
#define DEFINE_BULK(name, lanes, target)                                                           \
    typedef uint32_t name##_vector __attribute__((vector_size(4 * (lanes))));                      \
    target static size_t name(uint32_t *state, const unsigned char *in, size_t n,                  \
                              unsigned char *out)                                                  \
    {                                                                                              \
        const size_t group = CHACHA20_BLOCK * (size_t)(lanes);                                     \
        name##_vector x[16], begin[16], number;                                                    \
        uint32_t key_stream[16][lanes];                                                            \
        size_t done = 0;                                                                           \
        for (uint32_t i = 0; i < (lanes); i++)                                                     \
            number[i] = i;                                                                         \
        for (; n - done >= group; done += group, state[COUNTER] += (lanes)) {                      \
            for (unsigned i = 0; i < 16; i++)                                                      \
                begin[i] = (name##_vector){ 0 } + state[i];                                        \
            begin[COUNTER] += number;                                                              \
            memcpy(x, begin, sizeof x);                                                            \
            for (unsigned i = 0; i < DOUBLE_ROUNDS; i++) {                                         \
                QUARTER_ROUND(x[0], x[4], x[8], x[12]);                                            \
                QUARTER_ROUND(x[1], x[5], x[9], x[13]);                                            \
                QUARTER_ROUND(x[2], x[6], x[10], x[14]);                                           \
                QUARTER_ROUND(x[3], x[7], x[11], x[15]);                                           \
                QUARTER_ROUND(x[0], x[5], x[10], x[15]);                                           \
                QUARTER_ROUND(x[1], x[6], x[11], x[12]);                                           \
                QUARTER_ROUND(x[2], x[7], x[8], x[13]);                                            \
                QUARTER_ROUND(x[3], x[4], x[9], x[14]);                                            \
            }                                                                                      \
            for (unsigned i = 0; i < 16; i++)                                                      \
                x[i] += begin[i];                                                                  \
            memcpy(key_stream, x, sizeof x);                                                       \
            for (size_t block = 0; block < (lanes); block++)                                       \
                for (size_t i = 0; i < 16; i++) {                                                  \
                    size_t at = done + block * CHACHA20_BLOCK + 4 * i;                             \
                    uint32_t word;                                                                 \
                    memcpy(&word, in + at, sizeof word);                                           \
                    word ^= key_stream[i][block];                                                  \
                    memcpy(out + at, &word, sizeof word);                                          \
                }                                                                                  \
        }                                                                                          \
        explicit_bzero(key_stream, sizeof key_stream);                                             \
        explicit_bzero(x, sizeof x);                                                               \
        explicit_bzero(begin, sizeof begin);                                                       \
        return done;                                                                               \
    }

DEFINE_BULK(bulk_4, 4, )
#if defined(__x86_64__)
DEFINE_BULK(bulk_8, 8, __attribute__((target("avx2"))))
DEFINE_BULK(bulk_16, 16, __attribute__((target("avx512f"))))
#endif

unsigned chacha20_lanes(void)
{
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    return 0;
#elif defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") ? 16 : __builtin_cpu_supports("avx2") ? 8 : 4;
#else
    return 4;
#endif
}

size_t chacha20_bulk(unsigned lanes, uint32_t state[static 16], const unsigned char *in, size_t n,
                     unsigned char *out)
{
#if defined(__x86_64__)
    if (lanes == 16)
        return bulk_16(state, in, n, out);
    if (lanes == 8)
        return bulk_8(state, in, n, out);
#endif
    return lanes == 4 ? bulk_4(state, in, n, out) : 0;
}

/* The linker gives the calls of mbedtls_chacha20_update() to the first of these functions. The name
 * of the second one is that of Mbed TLS's own function. */
int __wrap_mbedtls_chacha20_update(mbedtls_chacha20_context *c, size_t n, const unsigned char *in,
                                   unsigned char *out);
int __real_mbedtls_chacha20_update(mbedtls_chacha20_context *c, size_t n, const unsigned char *in,
                                   unsigned char *out);

int __wrap_mbedtls_chacha20_update(mbedtls_chacha20_context *c, size_t n, const unsigned char *in,
                                   unsigned char *out)
{
    /* The rest of the key stream of a block that an earlier call has begun is used up first. */
    size_t done = c->keystream_bytes_used < CHACHA20_BLOCK
                      ? MIN(n, CHACHA20_BLOCK - c->keystream_bytes_used)
                      : 0;
    int rc = done ? __real_mbedtls_chacha20_update(c, done, in, out) : 0;
    unsigned lanes = chacha20_lanes();
    for (; rc == 0 && done < n && lanes >= CHACHA20_LANES_MIN; lanes /= 2)
        done += chacha20_bulk(lanes, c->state, in + done, n - done, out + done);
    if (rc == 0 && done < n)
        rc = __real_mbedtls_chacha20_update(c, n - done, in + done, out + done);
    return rc;
}
