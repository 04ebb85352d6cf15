/* SPDX-License-Identifier: Apache-2.0 */
#include "hadoop/sasl_int.h"

#include <errno.h>

#include "base/err.h"
#include "base/util.h"

static const struct sasl_mech *const mechs[] = { &sasl_digest_md5 };

int sasl_new(const char *mechanism, const struct sasl_config *cfg, struct sasl **out, struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(mechs); i++) {
        if (strcmp(mechs[i]->name, mechanism) != 0)
            continue;
        struct sasl *s = mechs[i]->make(cfg);
        if (!s)
            return err_set(e, ENOMEM, "cannot authenticate: %m");
        s->mech = mechs[i];
        *out = s;
        return 0;
    }
    int rc = err_set(e, ENOTSUP,
                     "the server requires the SASL mechanism '%.60s', which tony does not support",
                     mechanism);
    (void)err_hint(e, "Hadoop's default is DIGEST-MD5: see hadoop.security.sasl.mechanism and "
                      "HADOOP_SASL_MECHANISM on the cluster");
    return rc;
}

void sasl_free(struct sasl *s)
{
    if (s)
        s->mech->free(s);
}

void sasl_freep(struct sasl **s)
{
    sasl_free(*s);
    *s = NULL;
}

int sasl_step(struct sasl *s, struct span challenge, struct buf *out, struct err *e)
{
    if (challenge.len > SASL_TOKEN_MAX)
        return err_set(e, EPROTO, "invalid challenge of %zu bytes", challenge.len);
    return s->mech->step(s, challenge, out, e);
}

int sasl_finish(struct sasl *s, struct span token, struct err *e)
{
    if (token.len > SASL_TOKEN_MAX)
        return err_set(e, EPROTO, "invalid final answer of %zu bytes", token.len);
    int rc = s->mech->finish(s, token, e);
    s->done = rc == 0;
    return rc;
}

enum sasl_qop sasl_qop(const struct sasl *s)
{
    return s->qop;
}

const char *sasl_qop_name(enum sasl_qop q)
{
    switch (q) {
    case SASL_AUTH:
        return "auth";
    case SASL_AUTH_INT:
        return "auth-int";
    case SASL_AUTH_CONF:
        return "auth-conf";
    case SASL_ANY:
        break;
    }
    return "none";
}

size_t sasl_slice_max(const struct sasl *s)
{
    return s->slice_max;
}

int sasl_wrap(struct sasl *s, struct span plain, struct buf *out, struct err *e)
{
    if (!s->done)
        return err_set(e, EINVAL, "cannot protect data: the authentication is not complete");
    if (plain.len > s->slice_max)
        return err_set(e, EINVAL, "cannot protect %zu bytes at once: the agreed limit is %zu",
                       plain.len, s->slice_max);
    return s->mech->wrap(s, plain, out, e);
}

int sasl_unwrap(struct sasl *s, struct span packet, struct buf *out, struct err *e)
{
    if (!s->done)
        return err_set(e, EPROTO,
                       "the server sent a protected packet before the authentication was complete");
    if (packet.len > SASL_PACKET_MAX)
        return err_set(e, EPROTO,
                       "the server sent a protected packet of %zu bytes; the limit is %d",
                       packet.len, SASL_PACKET_MAX);
    return s->mech->unwrap(s, packet, out, e);
}

int sasl_same(const void *a, const void *b, size_t n)
{
    const unsigned char *x = a, *y = b;
    unsigned char diff = 0;
    for (size_t i = 0; i < n; i++)
        diff |= (unsigned char)(x[i] ^ y[i]);
    return diff == 0;
}
