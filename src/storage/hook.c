/* SPDX-License-Identifier: Apache-2.0 */
/* Leaves the request for a call at the end of a job. */
#include "storage/hook.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/json.h"
#include "codec/mbed.h"
#include "conf/conf.h"
#include "storage/secrets.h"

enum { SHA256_BYTES = 32, SIGNATURE_MAX = 7 + 2 * SHA256_BYTES + 1 };

static const char from_secret[] = "secret:";

/* Find the value of a secret. NULL = there is none. */
static const char *secret(const struct strv *all, const char *name)
{
    return name && *name ? strv_env_get(all, name) : NULL;
}

/* "sha256=" and the HMAC of the body, as many receivers of web hooks expect it. */
static int sign(const char *key, struct span body, char out[SIGNATURE_MAX])
{
    unsigned char mac[SHA256_BYTES];
    out[0] = '\0';
    if (!key)
        return 0;
    if (mbedtls_md_hmac(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), (const unsigned char *)key,
                        strlen(key), (const unsigned char *)body.p, body.len, mac) != 0)
        return -ENOMEM;
    char *at = stpcpy(out, "sha256=");
    for (size_t i = 0; i < sizeof mac; i++, at += 2)
        (void)snprintf(at, 3, "%02x", mac[i]);
    return 0;
}

/* The status document with a member `delivery` in front. */
static int make_body(struct span status, const char *delivery, struct buf *out)
{
    if (status.len < 2 || status.p[0] != '{')
        return -EINVAL;
    (void)buf_addf(out, "{\"delivery\":\"%s\",", delivery);
    return buf_add(out, status.p + 1, status.len - 1);
}

static int write_request(const char *dir, const struct hook_end *h, const char *target,
                         const char *key, struct err *e)
{
    char delivery[128], signature[SIGNATURE_MAX];
    AUTO(buf_done) struct buf body = { 0 };
    AUTO(free_p) char *body_path = fs_join(dir, "body");
    AUTO(free_p) char *request_path = fs_join(dir, "request");
    (void)snprintf(delivery, sizeof delivery, "%s.end", h->application_id);
    int rc = body_path && request_path ? make_body(h->status, delivery, &body) : -ENOMEM;
    if (rc == 0)
        rc = sign(key, buf_span(&body), signature);
    AUTO(json_freep)
    json_t *doc =
        rc < 0 ? NULL
               : json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:i}", "format", 1, "application_id",
                           h->application_id, "delivery", delivery, "target", target, "signature",
                           signature, "state", h->state, "exit_code", h->exit_code);
    AUTO(free_p) char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    if (rc < 0 || !text)
        return err_set(e, rc == -EINVAL ? EINVAL : ENOMEM, "cannot make the call: %m");
    rc = fs_write_atomic(AT_FDCWD, body_path, buf_span(&body), 0600, true, e);
    return rc < 0 ? rc : fs_write_atomic(AT_FDCWD, request_path, span_of(text), 0600, true, e);
}

static void sync_dir(const char *path)
{
    AUTO(close_p) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        (void)fsync(fd); /* if this fails, a power cut may lose the request */
}

/* Write the request under a temporary name, and rename it when it is complete. */
static int put(const char *parent, const struct hook_end *h, const char *target, const char *key,
               struct err *e)
{
    AUTO(free_p) char *dir = fs_join(parent, h->application_id);
    AUTO(free_p) char *half = str_printf("%s/.new-%s", parent, h->application_id);
    struct stat st;
    if (!dir || !half)
        return err_set(e, ENOMEM, "no memory to store the call at the end of the job");
    if (stat(dir, &st) == 0)
        return 1;
    int rc = fs_mkdirs(parent, 0700, e);
    if (rc == 0)
        rc = fs_remove_tree(AT_FDCWD, half, e); /* left by a master that was killed at this point */
    if (rc == 0)
        rc = fs_mkdirs(half, 0700, e);
    if (rc == 0)
        rc = write_request(half, h, target, key, e);
    if (rc == 0 && rename(half, dir) == -1)
        rc = err_set(e, errno, "cannot rename '%s' to '%s': %m", half, dir);
    if (rc == 0)
        sync_dir(parent);
    else
        (void)fs_remove_tree(AT_FDCWD, half, NULL);
    return rc;
}

int hook_leave(const char *parent, const struct hook_end *h, struct err *e)
{
    const char *target = h->spec->on_end;
    struct strv values = { 0 };
    /* "***" means that job.conf is masked already: a master has left the request before */
    if (!target || str_eq(target, "***"))
        return 1;
    int rc = secrets_add_to(h->secrets, &values);
    if (rc == 0 && str_starts(target, from_secret))
        target = secret(&values, target + sizeof from_secret - 1);
    const char *key = secret(&values, h->spec->on_end_secret);
    if (rc < 0 || !target || (h->spec->on_end_secret && !key))
        rc = err_set(e, EINVAL,
                     "cannot make the call of tony.application.on-end: a secret of the "
                     "job is missing");
    else
        rc = put(parent, h, target, key, e);
    for (size_t i = 0; i < values.n; i++)
        explicit_bzero(values.v[i], strlen(values.v[i]));
    strv_done(&values);
    return rc;
}
