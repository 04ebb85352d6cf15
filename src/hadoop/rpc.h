/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of Hadoop RPC version 9, without I/O. The owner of the socket passes received
 * bytes in, sends the bytes of rpc_conn_out(), and takes answers out.
 *
 * The connection authenticates with a token (SASL), or only names its user (SIMPLE). It protects
 * the later frames as the server demands. Calls may be made at once; until the handshake is
 * complete they are queued, and rpc_conn_ready() is false. Answers come in any order and carry the
 * id of their call. The caller ignores ids that it does not wait for.
 *
 * After a failure (rpc_conn_error() is not NULL) the connection cannot be used any more. This code
 * reads no clock.
 */
#ifndef TONY_HADOOP_RPC_H
#define TONY_HADOOP_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "hadoop/rpc_error.h"

struct token;
struct rpc_conn;

enum {
    RPC_CLIENT_ID = 16,
    RPC_FRAME_MAX = 128 << 20,     /* ipc.maximum.data.length: servers have the same limit */
    RPC_HANDSHAKE_MAX = 256 << 10, /* limit for a frame until the server is authenticated */
    RPC_ID_MAX = INT32_MAX,
};

struct rpc_conn_config {
    const char *protocol;      /* sent in the context and with each call; copied */
    const char *user;          /* user name for SIMPLE; copied */
    const struct token *token; /* authenticate with this token by SASL; copied; NULL = SIMPLE */
    uint8_t client_id[RPC_CLIENT_ID];
    unsigned qops;      /* enum sasl_qop or-ed, 0 = any */
    const char *cnonce; /* set by tests only */
};

struct rpc_conn *rpc_conn_new(const struct rpc_conn_config *cfg); /* NULL = no memory */
void rpc_conn_free(struct rpc_conn *c);
void rpc_conn_freep(struct rpc_conn **c);

/* The bytes to send: take them from the front with buf_consume(). */
struct buf *rpc_conn_out(struct rpc_conn *c);

struct rpc_request {
    const char *method;
    uint32_t id;      /* 0 to RPC_ID_MAX, unused on this connection */
    uint32_t retry;   /* how often this call was sent before */
    struct span body; /* the packed request message */
};

/* 0; -EMSGSIZE, -ENOMEM (the connection stays usable); -EPIPE: the connection has failed. */
int rpc_conn_call(struct rpc_conn *c, const struct rpc_request *rq);
int rpc_conn_ping(struct rpc_conn *c); /* does nothing until the handshake is complete */
/* Is the handshake complete, so that calls are sent at once? With SIMPLE always true. */
bool rpc_conn_ready(const struct rpc_conn *c);
const char *rpc_conn_protection(const struct rpc_conn *c); /* "simple", "auth", "auth-int", ... */

struct rpc_reply {
    uint32_t id;
    bool ok;
    struct span body;       /* if ok: the packed answer; valid until the next rpc_conn_feed() or
                               rpc_conn_next() */
    struct rpc_error error; /* if not ok; the connection stays usable after it */
};

int rpc_conn_feed(struct rpc_conn *c, struct span bytes); /* 0, or negative: rpc_conn_error() */
/* 1: *out is filled; 0: more bytes are needed; negative: rpc_conn_error(). */
int rpc_conn_next(struct rpc_conn *c, struct rpc_reply *out);
/* The peer has closed the connection, in order (why NULL) or not. Sets rpc_conn_error() if it is
 * not set yet. */
void rpc_conn_eof(struct rpc_conn *c, const struct err *why);
const struct rpc_error *rpc_conn_error(const struct rpc_conn *c); /* NULL = no failure; borrowed */

/* Unpack a message with a budget for memory, because lengths from the wire may be hostile. Free it
 * with protobuf_c_message_free_unpacked(m, NULL). NULL = not such a message, or no memory. */
typedef struct ProtobufCMessage ProtobufCMessage;
typedef struct ProtobufCMessageDescriptor ProtobufCMessageDescriptor;
ProtobufCMessage *rpc_unpack(const ProtobufCMessageDescriptor *type, struct span text);

#endif
