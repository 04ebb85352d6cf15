/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/jobkey.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/mbed.h"

_Static_assert((int)JOB_KEY_BYTES <= (int)TLS_KEY_MAX, "a derived key must fit into a TLS key");

int job_key_new(struct job_key *out, struct err *e)
{
    size_t have = 0;
    while (have < sizeof out->bytes) {
        ssize_t n = getrandom(out->bytes + have, sizeof out->bytes - have, 0);
        if (n == -1 && errno != EINTR)
            return err_set(e, errno, "cannot make the job's key: %m");
        have += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int job_key_read(struct span secret, struct job_key *out, struct err *e)
{
    if (secret.len != sizeof out->bytes)
        return err_set(e, EINVAL, "the job's key has %zu bytes, but must have %d", secret.len,
                       JOB_KEY_BYTES);
    memcpy(out->bytes, secret.p, sizeof out->bytes);
    return 0;
}

/* The arguments are within the bounds of HKDF, and mbedtls always has SHA-256. So the only possible
 * failure is missing memory; *out is a key of length 0 then. */
static void derive(const struct job_key *k, const char *info, struct tls_key *out)
{
    out->len = JOB_KEY_BYTES;
    int rc = mbedtls_hkdf(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), NULL, 0, k->bytes,
                          sizeof k->bytes, (const unsigned char *)info, strlen(info), out->bytes,
                          out->len);
    if (rc != 0) { /* no TLS session accepts a key of length 0 */
        explicit_bzero(out->bytes, sizeof out->bytes);
        out->len = 0;
    }
}

void job_key_client(const struct job_key *k, struct tls_key *out)
{
    derive(k, "tony client", out);
}

void job_key_container(const struct job_key *k, const char *container_id, struct tls_key *out)
{
    char info[256];
    int n = snprintf(info, sizeof info, "tony container %s", container_id);
    if (n < 0 || (size_t)n >= sizeof info)
        *out = (struct tls_key){ .len = 0 }; /* no container has an id of this length */
    else
        derive(k, info, out);
}

void job_key_keeper(const struct job_key *k, uint32_t node, struct tls_key *out)
{
    char info[32];
    (void)snprintf(info, sizeof info, "tony keeper %u", node);
    derive(k, info, out);
}

void job_key_secrets(const struct job_key *k, struct tls_key *out)
{
    derive(k, "tony secrets", out);
}

void job_key_ports(const struct tls_key *container, struct job_ports among,
                   uint16_t out[JOB_KEY_PORTS])
{
    if (!among.first)
        among = (struct job_ports){ JOB_KEY_PORT_FIRST, JOB_KEY_PORT_LAST };
    unsigned n = (unsigned)among.last - among.first + 1;
    unsigned char bytes[2 * JOB_KEY_PORTS];
    if (mbedtls_hkdf(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), NULL, 0, container->bytes,
                     container->len, (const unsigned char *)"tony ports", 10, bytes,
                     sizeof bytes) != 0)
        explicit_bzero(bytes, sizeof bytes); /* no memory: these ports do not match the peer's */
    for (size_t i = 0; i < JOB_KEY_PORTS; i++)
        out[i] = (uint16_t)(among.first + (unsigned)(bytes[2 * i] << 8 | bytes[2 * i + 1]) % n);
}

void job_key_text(const struct tls_key *k, char out[JOB_KEY_HEX])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < JOB_KEY_BYTES; i++) {
        out[2 * i] = digits[k->bytes[i] >> 4];
        out[2 * i + 1] = digits[k->bytes[i] & 15];
    }
    out[2 * JOB_KEY_BYTES] = '\n';
    out[2 * JOB_KEY_BYTES + 1] = '\0';
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int job_key_parse(struct span text, struct tls_key *out, struct err *e)
{
    struct tls_key k = { .len = JOB_KEY_BYTES };
    bool ok = text.len == 2 * JOB_KEY_BYTES ||
              (text.len == 2 * JOB_KEY_BYTES + 1 && text.p[text.len - 1] == '\n');
    for (size_t i = 0; ok && i < JOB_KEY_BYTES; i++) {
        int high = hex(text.p[2 * i]), low = hex(text.p[2 * i + 1]);
        ok = high >= 0 && low >= 0;
        k.bytes[i] = (unsigned char)(((unsigned)high << 4 | (unsigned)low) & 255);
    }
    if (ok)
        *out = k;
    job_key_wipe(&k, sizeof k);
    return ok ? 0 : err_set(e, EINVAL, "the client's key must be %d hex digits", 2 * JOB_KEY_BYTES);
}

bool job_key_identity(const char *container_id, char out[TLS_IDENTITY_MAX])
{
    int n = snprintf(out, TLS_IDENTITY_MAX, "%s%s", JOB_KEY_EXECUTOR, container_id);
    return n > 0 && n < TLS_IDENTITY_MAX;
}

const char *job_key_container_of(const char *identity)
{
    size_t n = strlen(JOB_KEY_EXECUTOR);
    return str_starts(identity, JOB_KEY_EXECUTOR) && identity[n] ? identity + n : NULL;
}

void job_key_keeper_identity(uint32_t node, char out[TLS_IDENTITY_MAX])
{
    (void)snprintf(out, TLS_IDENTITY_MAX, JOB_KEY_KEEPER "%u", node);
}

bool job_key_keeper_of(const char *identity, uint32_t *out_node)
{
    int64_t node;
    size_t n = strlen(JOB_KEY_KEEPER);
    if (!str_starts(identity, JOB_KEY_KEEPER) ||
        str_i64(span_of(identity + n), 0, UINT32_MAX - 1, "node", &node, NULL) < 0)
        return false;
    *out_node = (uint32_t)node;
    return true;
}

int job_key_open(const char *job_dir, struct job_key *out, struct err *e)
{
    AUTO(free_p) char *path = fs_join(job_dir, "key");
    AUTO(buf_done) struct buf text = { .max = 2 * JOB_KEY_BYTES };
    int rc = path ? fs_read(AT_FDCWD, path, &text, e) : err_set(e, ENOMEM, "no memory");
    if (rc == 0)
        rc = job_key_read(buf_span(&text), out, e);
    if (text.p)
        job_key_wipe(text.p, text.cap);
    return rc < 0 ? err_wrap(e, rc, "cannot read the job's key") : 0;
}

void job_key_wipe(void *p, size_t n)
{
    explicit_bzero(p, n);
}
