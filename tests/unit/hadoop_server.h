/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's half of Hadoop RPC, for tests: it takes bytes, returns bytes, and lists the calls.
 * It computes its own checksums, and shares only the hash functions with the code under test.
 */
#ifndef TONY_TESTS_HADOOP_SERVER_H
#define TONY_TESTS_HADOOP_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/vec.h"
#include "hadoop/rc4.h"

struct server_call {
    int32_t id, retry;
    char *method, *protocol;
    struct buf body;
};

struct server {
    /* how the server behaves; set before the first byte */
    bool simple;               /* the server offers no SASL, and tells a SASL client so */
    const char *id, *password; /* base64, as they go into the digest */
    const char *nonce, *qop, *cipher,
        *mechanism;   /* defaults: any nonce, "auth", no cipher, DIGEST-MD5 */
    bool bad_rspauth; /* the server sends a wrong proof */
    bool spoil_mac;   /* corrupts the MAC of the next protected packet */

    /* what the client sent */
    bool refused; /* the server has answered FATAL */
    bool ready;
    char auth_byte;
    char *user, *protocol; /* from the connection context */
    bool has_user;
    unsigned pings;
    VEC(struct server_call) calls;

    /* private */
    struct buf in, inner, out;
    bool preamble, initiated, wrapping, conf;
    unsigned char ha1[16], mac_in[16], mac_out[16];
    struct rc4 rc4_in, rc4_out;
    uint32_t seq_in, seq_out;
    char cnonce[80];
};

void server_init(struct server *s);
void server_done(struct server *s);
/* Fails the test if the client breaks the protocol. */
void server_feed(struct server *s, const void *p, size_t len);
void server_answer(struct server *s, int32_t id, struct span body);
void server_refuse(struct server *s, int32_t id, int status, int detail, const char *class_name,
                   const char *message);
/* NULL: no such call. */
const struct server_call *server_find(const struct server *s, const char *method);

#endif
