/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a connection of Hadoop RPC.
 */
#ifndef TONY_HADOOP_RPC_INT_H
#define TONY_HADOOP_RPC_INT_H

#include "hadoop/rpc.h"
#include "hadoop/sasl.h"
#include "proto/hadoop_rpc.pb-c.h"

enum rpc_conn_state {
    RC_INVALID = 0,
    RC_NEGOTIATING, /* the handshake runs; calls are held */
    RC_READY,
};

struct rpc_conn {
    enum rpc_conn_state state;
    bool failed, has_token;
    bool wrapping; /* every byte goes through sasl, both ways */
    bool greeted;  /* a whole frame has come: this is a server of our age */
    uint8_t client_id[RPC_CLIENT_ID];
    unsigned qops;
    char *protocol, *user, *cnonce, *sasl_user, *sasl_password;
    struct sasl *sasl;
    struct buf out;    /* to be sent */
    struct buf held;   /* frames that wait for the end of the handshake */
    struct buf frame;  /* the one being made */
    struct buf in;     /* from the socket */
    struct buf inner;  /* what was protected in it */
    struct buf *spent; /* the reply given out borrows from its first spent_len bytes */
    size_t spent_len;
    struct rpc_error error;
    char *detail; /* what a given out error's detail borrows from */
};

#endif
