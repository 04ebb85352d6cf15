/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/sealed.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/util.h"
#include "codec/mbed.h"
#include "storage/jobkey.h"

#define MAGIC "TSE1"

enum { MAGIC_BYTES = 4, NONCE_BYTES = 12, TAG_BYTES = 16 };
_Static_assert((int)MAGIC_BYTES + (int)NONCE_BYTES + (int)TAG_BYTES == (int)SEALED_EXTRA,
               "the length of what stands before the text");

/* Set up the cipher with the job's key for secrets. 0 or an error of mbedTLS. */
static int begin(mbedtls_gcm_context *g, const struct job_key *k)
{
    struct tls_key key;
    mbedtls_gcm_init(g);
    job_key_secrets(k, &key);
    int rc = key.len
                 ? mbedtls_gcm_setkey(g, MBEDTLS_CIPHER_ID_AES, key.bytes, 8 * (unsigned)key.len)
                 : -1; /* no memory */
    job_key_wipe(&key, sizeof key);
    return rc;
}

static int fill_random(unsigned char *out, size_t n, struct err *e)
{
    ssize_t got = getrandom(out, n, 0); /* up to 256 bytes come at once */
    return got == (ssize_t)n ? 0
                             : err_set(e, got < 0 ? errno : EIO, "cannot get random numbers: %m");
}

int sealed_write(const struct job_key *k, const char *application_id, struct span text,
                 struct buf *out, struct err *e)
{
    unsigned char *at = buf_reserve(out, SEALED_EXTRA + text.len);
    if (!at)
        return err_set(e, ENOMEM, "no memory to encrypt the secrets");
    unsigned char *nonce = at + MAGIC_BYTES, *tag = nonce + NONCE_BYTES;
    memcpy(at, MAGIC, MAGIC_BYTES);
    int rc = fill_random(nonce, NONCE_BYTES, e);
    if (rc < 0)
        return rc;
    mbedtls_gcm_context g;
    rc = begin(&g, k);
    if (rc == 0)
        rc = mbedtls_gcm_crypt_and_tag(&g, MBEDTLS_GCM_ENCRYPT, text.len, nonce, NONCE_BYTES,
                                       (const unsigned char *)application_id,
                                       strlen(application_id), (const unsigned char *)text.p,
                                       at + SEALED_EXTRA, TAG_BYTES, tag);
    mbedtls_gcm_free(&g);
    if (rc != 0)
        return err_set(e, ENOMEM, "cannot encrypt the secrets: error %d of mbedTLS", rc);
    buf_commit(out, SEALED_EXTRA + text.len);
    return 0;
}

int sealed_read(const struct job_key *k, const char *application_id, struct span sealed,
                struct buf *out, struct err *e)
{
    const unsigned char *at = (const unsigned char *)sealed.p;
    if (sealed.len < SEALED_EXTRA || memcmp(at, MAGIC, MAGIC_BYTES) != 0)
        return err_set(e, EBADMSG, "the encrypted secrets are damaged");
    const unsigned char *nonce = at + MAGIC_BYTES, *tag = nonce + NONCE_BYTES;
    size_t n = sealed.len - SEALED_EXTRA;
    if (out->max && n > out->max - out->len)
        return err_set(e, EMSGSIZE, "the encrypted secrets have %zu bytes, the limit is %zu", n,
                       out->max - out->len);
    unsigned char *text = buf_reserve(out, n);
    if (!text)
        return err_set(e, ENOMEM, "no memory to decrypt the secrets");
    mbedtls_gcm_context g;
    int rc = begin(&g, k);
    if (rc == 0)
        rc = mbedtls_gcm_auth_decrypt(&g, n, nonce, NONCE_BYTES,
                                      (const unsigned char *)application_id, strlen(application_id),
                                      tag, TAG_BYTES, at + SEALED_EXTRA, text);
    mbedtls_gcm_free(&g);
    if (rc == MBEDTLS_ERR_GCM_AUTH_FAILED)
        return err_set(e, EBADMSG,
                       "the encrypted secrets are damaged, or were made for another job");
    if (rc != 0)
        return err_set(e, ENOMEM, "cannot decrypt the secrets: error %d of mbedTLS", rc);
    buf_commit(out, n);
    return 0;
}
