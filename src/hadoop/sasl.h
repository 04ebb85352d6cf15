/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SASL, the client's side, without I/O. One object does one handshake. If both sides have agreed on
 * protection, it also protects the bytes that follow.
 *
 * Each mechanism is a struct sasl_mech, found by its name. tony has DIGEST-MD5 (RFC 2831, in
 * Hadoop's variant), which Hadoop uses for tokens.
 *
 * Errors: -EACCES (the other side is not what it claims, or offers no protection that tony has),
 * -EPROTO (the data is no SASL), -ENOTSUP (unknown mechanism), -ENOMEM. No sentence contains a
 * secret.
 */
#ifndef TONY_HADOOP_SASL_H
#define TONY_HADOOP_SASL_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;
struct sasl;

enum sasl_qop {
    SASL_AUTH = 1 << 0,      /* authentication only */
    SASL_AUTH_INT = 1 << 1,  /* authentication and integrity */
    SASL_AUTH_CONF = 1 << 2, /* authentication, integrity and confidentiality */
    SASL_ANY = SASL_AUTH | SASL_AUTH_INT | SASL_AUTH_CONF,
};

enum {
    SASL_TOKEN_MAX = 64 << 10, /* bytes of a challenge or an answer; Hadoop's have about 200 */
    SASL_PACKET_MAX = 128 << 20,
};

struct sasl_config {
    struct span user, password;       /* as the mechanism uses them (Hadoop: base64); copied */
    const char *protocol, *server_id; /* NULL = ""; copied */
    unsigned qops;                    /* enum sasl_qop or-ed; 0 = SASL_ANY */
    const char *cnonce;               /* set by tests only; NULL = a random one */
};

int sasl_new(const char *mechanism, const struct sasl_config *cfg, struct sasl **out,
             struct err *e);
void sasl_free(struct sasl *s); /* overwrites the keys first; NULL is fine */
void sasl_freep(struct sasl **s);

/* Append the answer to a challenge to out. The first challenge may come with the server's offer. */
int sasl_step(struct sasl *s, struct span challenge, struct buf *out, struct err *e);
/* The server reports success. Check its token; p is NULL if it sent none. */
int sasl_finish(struct sasl *s, struct span token, struct err *e);

/* The agreed protection. Valid after sasl_finish(). */
enum sasl_qop sasl_qop(const struct sasl *s);
const char *sasl_qop_name(enum sasl_qop q);  /* "auth-int" */
size_t sasl_slice_max(const struct sasl *s); /* largest number of plain bytes for one sasl_wrap() */
/* Appends to out. */
int sasl_wrap(struct sasl *s, struct span plain, struct buf *out, struct err *e);
/* Appends to out. */
int sasl_unwrap(struct sasl *s, struct span packet, struct buf *out, struct err *e);

#endif
