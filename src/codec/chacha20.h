/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ChaCha20 (RFC 8439) with the vector instructions of the processor. Mbed TLS computes one block of
 * 64 bytes at a time, without vector instructions: this takes most of the time of a stream over TLS
 * (docs/decisions/0034-a-faster-chacha20.md).
 *
 * Nobody calls this code directly. The linker gives the calls of mbedtls_chacha20_update() to
 * chacha20.c (--wrap, src/codec/meson.build). It processes long texts and passes the rest on to
 * Mbed TLS. The functions below are for chacha20.c itself and its test.
 */
#ifndef TONY_CODEC_CHACHA20_H
#define TONY_CODEC_CHACHA20_H

#include <stddef.h>
#include <stdint.h>

enum {
    CHACHA20_BLOCK = 64,
    CHACHA20_LANES_MIN = 4,
    CHACHA20_LANES_MAX = 16,
};

/* How many blocks does this processor compute at once: 16 (AVX-512), 8 (AVX2), 4 (any other one)?
 * 0: a big-endian machine, for which this code does nothing. */
unsigned chacha20_lanes(void);

/* Encrypt or decrypt the groups of `lanes` blocks that n bytes contain. lanes: 4, 8 or 16, at most
 * chacha20_lanes(). state: of RFC 8439, section 2.3, as numbers; its counter (word 12) increases.
 * in and out may be equal; else they do not overlap. Returns the number of processed bytes. */
size_t chacha20_bulk(unsigned lanes, uint32_t state[static 16], const unsigned char *in, size_t n,
                     unsigned char *out);

#endif
