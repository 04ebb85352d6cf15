/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's half of Hadoop RPC, for tests: bytes in, bytes out, calls as a list. Written on its
 * own sums (only the hash functions are shared with what it tests).
 */
#ifndef TONY_TESTS_HADOOP_SERVER_H
#define TONY_TESTS_HADOOP_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/vec.h"

struct server_call {
    int32_t id, retry;
    char *method, *protocol;
    struct buf body;
};

struct server {
    /* what it wants; set before the first byte */
    bool simple;                                  /* no SASL is offered: a SASL client is told so */
    const char *id, *password;                    /* base64, as they go into the digest */
    const char *nonce, *qop, *cipher, *mechanism; /* defaults: some, "auth", none, DIGEST-MD5 */
    bool bad_rspauth;                             /* prove nothing */
    bool spoil_mac;                               /* of the next protected packet */

    /* what it has heard */
    bool refused; /* it said FATAL */
    bool ready;
    char auth_byte;
    char *user, *protocol; /* of the context */
    bool has_user;
    unsigned pings;
    VEC(struct server_call) calls;

    /* inside */
    struct buf in, inner, out;
    bool preamble, initiated, wrapping, conf;
    unsigned char ha1[16], mac_in[16], mac_out[16];
    struct rc4 {
        unsigned char s[256], i, j;
    } rc4_in, rc4_out;
    uint32_t seq_in, seq_out;
    char cnonce[80];
};

void server_init(struct server *s);
void server_done(struct server *s);
void server_feed(struct server *s, const void *p, size_t len); /* asserts what must be so */
void server_answer(struct server *s, int32_t id, struct span body);
void server_refuse(struct server *s, int32_t id, int status, int detail, const char *class_name,
                   const char *message);
const struct server_call *server_find(const struct server *s, const char *method); /* or NULL */

#endif
