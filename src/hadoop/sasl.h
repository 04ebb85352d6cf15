/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SASL, the client's side, sans-I/O: one object a handshake and, when the two sides agreed on more
 * than authentication, for what protects the bytes after it.
 *
 * A mechanism is a struct sasl_mech behind this; they are found by name, and an unknown one is
 * refused by name. There is DIGEST-MD5 (RFC 2831, as Hadoop speaks it) for tokens.
 *
 * Errors are -EACCES (the other side is not who it claims, or offers nothing that we can do),
 * -EPROTO (what came is no SASL), -ENOTSUP (an unknown mechanism), -ENOMEM. Secrets are never in a
 * sentence.
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
    SASL_AUTH_INT = 1 << 1,  /* and integrity */
    SASL_AUTH_CONF = 1 << 2, /* and confidentiality */
    SASL_ANY = SASL_AUTH | SASL_AUTH_INT | SASL_AUTH_CONF,
};

enum {
    SASL_TOKEN_MAX = 64 << 10, /* of a challenge or an answer; theirs have some 200 bytes */
    SASL_PACKET_MAX = 128 << 20,
};

struct sasl_config {
    struct span user, password;       /* as they go into the mechanism (Hadoop: base64); copied */
    const char *protocol, *server_id; /* NULL = ""; copied */
    unsigned qops;                    /* enum sasl_qop or-ed; 0 = SASL_ANY */
    const char *cnonce;               /* tests only: instead of a random one */
};

int sasl_new(const char *mechanism, const struct sasl_config *cfg, struct sasl **out,
             struct err *e);
void sasl_free(struct sasl *s); /* overwrites its keys first; NULL is fine */
void sasl_freep(struct sasl **s);

/* A challenge (the first may come with the server's offer) -> our answer, appended to out. */
int sasl_step(struct sasl *s, struct span challenge, struct buf *out, struct err *e);
/* The server has said success, with this token (p NULL when it sent none): is it the right one? */
int sasl_finish(struct sasl *s, struct span token, struct err *e);

/* After sasl_finish(). */
enum sasl_qop sasl_qop(const struct sasl *s);
const char *sasl_qop_name(enum sasl_qop q);  /* "auth-int" */
size_t sasl_slice_max(const struct sasl *s); /* most plain bytes for one sasl_wrap() */
int sasl_wrap(struct sasl *s, struct span plain, struct buf *out, struct err *e);    /* appends */
int sasl_unwrap(struct sasl *s, struct span packet, struct buf *out, struct err *e); /* appends */

#endif
