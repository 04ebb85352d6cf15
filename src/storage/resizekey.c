/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/resizekey.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/str.h"
#include "codec/mbed.h"

enum { MARK_BYTES = 8 }; /* of the arbiter's public key, in a tag */

_Static_assert((int)ARBITER_KEY_BYTES <= (int)TLS_KEY_MAX, "a resize key must fit into a TLS key");
_Static_assert(RESIZE_TAG_MAX == sizeof RESIZE_KEY_TAG + 2 * (MARK_BYTES + ARBITER_KEY_BYTES),
               "the length of a tag");

/* ---- text ---- */

static void put_hex(const unsigned char *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(const char *text, unsigned char *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int high = hex(text[2 * i]), low = high < 0 ? -1 : hex(text[2 * i + 1]);
        if (low < 0)
            return false;
        out[i] = (unsigned char)(((unsigned)high << 4 | (unsigned)low) & 255);
    }
    return true;
}

void arbiter_key_text(const struct arbiter_key *k, char out[ARBITER_KEY_HEX])
{
    put_hex(k->bytes, sizeof k->bytes, out);
}

int arbiter_key_parse(struct span text, struct arbiter_key *out, struct err *e)
{
    struct arbiter_key k;
    if (text.len != 2 * sizeof k.bytes || !read_hex(text.p, k.bytes, sizeof k.bytes))
        return err_set(e, EINVAL, "an arbiter's key must be %d hex digits in lower case",
                       2 * ARBITER_KEY_BYTES);
    *out = k;
    explicit_bzero(&k, sizeof k);
    return 0;
}

/* ---- X25519 ---- */

/* mbedTLS blinds its computations with random numbers. */
static int random_bytes(void *arg, unsigned char *out, size_t n)
{
    (void)arg;
    while (n > 0) {
        ssize_t got = getrandom(out, n, 0);
        if (got == -1 && errno != EINTR)
            return MBEDTLS_ERR_ECP_RANDOM_FAILED;
        out += got > 0 ? (size_t)got : 0;
        n -= got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* Multiply a point by a private key. point NULL: the base point, so the result is the public key.
 * 0 or an error of mbedTLS. */
static int multiply(const struct arbiter_key *secret, const struct arbiter_key *point,
                    struct arbiter_key *out)
{
    mbedtls_ecp_keypair pair;
    mbedtls_ecp_point result;
    size_t len = 0;
    mbedtls_ecp_keypair_init(&pair);
    mbedtls_ecp_point_init(&result);
    int rc =
        mbedtls_ecp_read_key(MBEDTLS_ECP_DP_CURVE25519, &pair, secret->bytes, sizeof secret->bytes);
    if (rc == 0)
        rc = point ? mbedtls_ecp_point_read_binary(&pair.grp, &pair.Q, point->bytes,
                                                   sizeof point->bytes)
                   : mbedtls_ecp_copy(&pair.Q, &pair.grp.G);
    if (rc == 0)
        rc = mbedtls_ecp_mul(&pair.grp, &result, &pair.d, &pair.Q, random_bytes, NULL);
    if (rc == 0)
        rc = mbedtls_ecp_point_write_binary(&pair.grp, &result, MBEDTLS_ECP_PF_COMPRESSED, &len,
                                            out->bytes, sizeof out->bytes);
    mbedtls_ecp_point_free(&result);
    mbedtls_ecp_keypair_free(&pair);
    return rc;
}

int arbiter_key_public(const struct arbiter_key *secret, struct arbiter_key *out, struct err *e)
{
    int rc = multiply(secret, NULL, out);
    return rc == 0 ? 0 : err_set(e, EIO, "cannot compute a public key: mbedTLS error %d", -rc);
}

/* The product with a point of low order is zero. */
static bool is_zero(const struct arbiter_key *k)
{
    unsigned char any = 0;
    for (size_t i = 0; i < sizeof k->bytes; i++)
        any |= k->bytes[i];
    return any == 0;
}

/* Compute the shared secret of a private key and the public key of the other side. */
static int share(const struct arbiter_key *secret, const struct arbiter_key *point,
                 struct arbiter_key *out, struct err *e)
{
    int rc = multiply(secret, point, out);
    if (rc != 0 && rc != MBEDTLS_ERR_ECP_INVALID_KEY && rc != MBEDTLS_ERR_ECP_BAD_INPUT_DATA)
        return err_set(e, EIO, "cannot compute a resize key: mbedTLS error %d", -rc);
    if (rc != 0 || is_zero(out))
        return err_set(e, EINVAL, "a public key is not valid");
    return 0;
}

/* ---- the resize key ---- */

static int derive(const struct arbiter_key *shared, const struct arbiter_key *arbiter,
                  const struct arbiter_key *pair, const char *application_id, struct tls_key *out,
                  struct err *e)
{
    char a[ARBITER_KEY_HEX], p[ARBITER_KEY_HEX], info[256];
    arbiter_key_text(arbiter, a);
    arbiter_key_text(pair, p);
    int n = snprintf(info, sizeof info, "tony arbiter %s %s %s", a, p, application_id);
    if (n < 0 || (size_t)n >= sizeof info)
        return err_set(e, EINVAL, "the application id '%.40s...' is too long", application_id);
    struct tls_key k = { .len = ARBITER_KEY_BYTES };
    int rc =
        mbedtls_hkdf(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), NULL, 0, shared->bytes,
                     sizeof shared->bytes, (const unsigned char *)info, (size_t)n, k.bytes, k.len);
    if (rc == 0)
        *out = k;
    explicit_bzero(&k, sizeof k);
    return rc == 0 ? 0 : err_set(e, EIO, "cannot compute a resize key: mbedTLS error %d", -rc);
}

int resize_key_offer(const struct arbiter_key *arbiter, const char *application_id,
                     struct tls_key *out_key, char out_tag[RESIZE_TAG_MAX], struct err *e)
{
    struct arbiter_key own_secret, pair, shared; /* pair: the public key of own_secret */
    if (random_bytes(NULL, own_secret.bytes, sizeof own_secret.bytes) != 0)
        return err_set(e, EIO, "cannot make a resize key: %m");
    int rc = arbiter_key_public(&own_secret, &pair, e);
    if (rc == 0)
        rc = share(&own_secret, arbiter, &shared, e);
    explicit_bzero(&own_secret, sizeof own_secret);
    if (rc == 0)
        rc = derive(&shared, arbiter, &pair, application_id, out_key, e);
    explicit_bzero(&shared, sizeof shared);
    if (rc < 0)
        return rc;
    size_t at = strlen(RESIZE_KEY_TAG);
    memcpy(out_tag, RESIZE_KEY_TAG, at);
    put_hex(arbiter->bytes, MARK_BYTES, out_tag + at);
    put_hex(pair.bytes, sizeof pair.bytes, out_tag + at + 2 * MARK_BYTES);
    return 0;
}

bool resize_key_is_for(const char *tag, const struct arbiter_key *arbiter_public)
{
    char mark[2 * MARK_BYTES + 1];
    put_hex(arbiter_public->bytes, MARK_BYTES, mark);
    return str_starts(tag, RESIZE_KEY_TAG) && str_starts(tag + strlen(RESIZE_KEY_TAG), mark);
}

int resize_key_accept(const struct arbiter_key *secret, const char *tag, const char *application_id,
                      struct tls_key *out, struct err *e)
{
    struct arbiter_key arbiter, pair, shared;
    size_t at = strlen(RESIZE_KEY_TAG) + 2 * MARK_BYTES;
    int rc = arbiter_key_public(secret, &arbiter, e);
    if (rc < 0)
        return rc;
    if (strlen(tag) != RESIZE_TAG_MAX - 1 || !resize_key_is_for(tag, &arbiter) ||
        !read_hex(tag + at, pair.bytes, sizeof pair.bytes))
        return err_set(e, EINVAL, "'%.100s' is not a tag for this arbiter", tag);
    rc = share(secret, &pair, &shared, e);
    if (rc == 0)
        rc = derive(&shared, &arbiter, &pair, application_id, out, e);
    explicit_bzero(&shared, sizeof shared);
    return rc;
}
