/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RC4, the cipher with which Hadoop's DIGEST-MD5 encrypts ("auth-conf"). It protects nothing
 * against an attacker of today; tony speaks it because the clusters ask for it. Mbed TLS 3 has it
 * no longer.
 */
#pragma once

#include <stddef.h>

struct rc4 {
    unsigned char s[256];
    unsigned char i, j;
};

/* Begin a stream with a key of 1 to 256 bytes. */
void rc4_setup(struct rc4 *r, const unsigned char *key, size_t n);

/* Encrypt or decrypt the next n bytes of the stream, in place. */
void rc4_crypt(struct rc4 *r, unsigned char *p, size_t n);
