/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of Hadoop RPC version 9, sans-I/O: the owner of the socket feeds what arrives,
 * sends what rpc_conn_out() holds, and pulls answers.
 *
 * It authenticates by a token (SASL) or only names its user (SIMPLE), and protects what follows as
 * the server wants it. Calls may be made at once; before the handshake is over they wait here, and
 * rpc_conn_ready() says that none of them has left yet. Answers come in any order, by the id of the
 * call; an id that nobody waits for is the caller's to ignore.
 *
 * After a failure (rpc_conn_error() is not NULL) the connection is of no more use. Nothing here
 * reads a clock.
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
    RPC_FRAME_MAX = 128 << 20,     /* ipc.maximum.data.length: servers accept no more either */
    RPC_HANDSHAKE_MAX = 256 << 10, /* of a frame before we know who the server is */
    RPC_ID_MAX = INT32_MAX,
};

struct rpc_conn_config {
    const char *protocol;      /* for the context and each call; copied */
    const char *user;          /* SIMPLE; copied */
    const struct token *token; /* SASL with it; copied; NULL = SIMPLE */
    uint8_t client_id[RPC_CLIENT_ID];
    unsigned qops;      /* enum sasl_qop or-ed, 0 = any */
    const char *cnonce; /* tests only */
};

struct rpc_conn *rpc_conn_new(const struct rpc_conn_config *cfg); /* NULL = no memory */
void rpc_conn_free(struct rpc_conn *c);
void rpc_conn_freep(struct rpc_conn **c);

/* What to send: take from the front and buf_consume(). */
struct buf *rpc_conn_out(struct rpc_conn *c);

struct rpc_request {
    const char *method;
    uint32_t id;      /* 0 to RPC_ID_MAX, unused on this connection */
    uint32_t retry;   /* how often it was sent before */
    struct span body; /* the packed request message */
};

/* 0; -EMSGSIZE, -ENOMEM (the connection goes on); -EPIPE when it has failed. */
int rpc_conn_call(struct rpc_conn *c, const struct rpc_request *rq);
int rpc_conn_ping(struct rpc_conn *c); /* does nothing before it is ready */
/* The handshake is over; calls made now leave at once. SIMPLE is ready from the start. */
bool rpc_conn_ready(const struct rpc_conn *c);
const char *rpc_conn_protection(const struct rpc_conn *c); /* "simple", "auth", "auth-int", ... */

struct rpc_reply {
    uint32_t id;
    bool ok;
    struct span body; /* ok: the packed answer message; borrowed until the next feed or next */
    struct rpc_error error; /* not ok; kind is never one that kills the connection */
};

int rpc_conn_feed(struct rpc_conn *c, struct span bytes); /* 0, or negative: rpc_conn_error() */
/* 1: *out is filled; 0: more bytes are needed; negative: rpc_conn_error(). */
int rpc_conn_next(struct rpc_conn *c, struct rpc_reply *out);
/* The peer has closed, in order (why NULL) or not: makes the error, if there is none yet. */
void rpc_conn_eof(struct rpc_conn *c, const struct err *why);
const struct rpc_error *rpc_conn_error(const struct rpc_conn *c); /* NULL = all is well; borrowed */

/* Unpack a message with a budget for what hostile lengths may allocate; free with
 * protobuf_c_message_free_unpacked(m, NULL). NULL = not such a message, or no memory. */
typedef struct ProtobufCMessage ProtobufCMessage;
typedef struct ProtobufCMessageDescriptor ProtobufCMessageDescriptor;
ProtobufCMessage *rpc_unpack(const ProtobufCMessageDescriptor *type, struct span text);

#endif
