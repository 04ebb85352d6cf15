/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the files of an RPC connection.
 */
#ifndef TONY_HADOOP_RPC_INT_H
#define TONY_HADOOP_RPC_INT_H

#include "hadoop/rpc.h"
#include "hadoop/sasl.h"
#include "proto/hadoop_rpc.pb-c.h"

enum rpc_conn_state {
    RC_INVALID = 0,
    RC_NEGOTIATING, /* the handshake is running; calls are queued */
    RC_READY,
};

struct rpc_conn {
    enum rpc_conn_state state;
    bool failed, has_token;
    bool wrapping; /* the handshake has agreed on protection: all frames go through SASL */
    bool greeted;  /* a complete frame has come, so the server uses this RPC version */
    uint8_t client_id[RPC_CLIENT_ID];
    unsigned qops;
    char *protocol, *user, *cnonce, *sasl_user, *sasl_password;
    struct sasl *sasl;
    struct buf out;     /* bytes to send */
    struct buf waiting; /* frames that wait for the end of the handshake */
    struct buf frame;   /* the frame that is being built */
    struct buf in;      /* bytes from the socket */
    struct buf inner;   /* unwrapped bytes */
    struct buf *spent;  /* the last reply points into the first spent_len bytes of this buffer */
    size_t spent_len;
    struct rpc_error error;
    char *detail; /* memory for the detail of the last error */
};

#endif
