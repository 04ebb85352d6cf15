/* SPDX-License-Identifier: Apache-2.0 */
#include "hadoop/rc4.h"

static void swap(unsigned char *a, unsigned char *b)
{
    unsigned char t = *a;
    *a = *b;
    *b = t;
}

void rc4_setup(struct rc4 *r, const unsigned char *key, size_t n)
{
    r->i = r->j = 0;
    for (size_t i = 0; i < sizeof r->s; i++)
        r->s[i] = (unsigned char)i;
    for (size_t i = 0, j = 0; i < sizeof r->s; i++) {
        j = (j + r->s[i] + key[i % n]) % sizeof r->s;
        swap(&r->s[i], &r->s[j]);
    }
}

void rc4_crypt(struct rc4 *r, unsigned char *p, size_t n)
{
    for (size_t at = 0; at < n; at++) {
        r->i = (unsigned char)(r->i + 1);
        r->j = (unsigned char)(r->j + r->s[r->i]);
        swap(&r->s[r->i], &r->s[r->j]);
        p[at] ^= r->s[(unsigned char)(r->s[r->i] + r->s[r->j])];
    }
}
