/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the RPC client: a list of calls, at most one connection, and one timer for everything
 * that is due. A callback may free the client: check `dead` after each callback.
 */
#ifndef TONY_HADOOP_RPC_CLIENT_INT_H
#define TONY_HADOOP_RPC_CLIENT_INT_H

#include "hadoop/rpc.h"
#include "hadoop/rpc_client.h"
#include "hadoop/site.h"
#include "hadoop/token.h"
#include "loop/tcp.h"

struct rpc_call {
    struct rpc_client *client;
    struct rpc_call *next, **at; /* in client->calls, oldest first */
    const struct rpc_method *m;
    struct buf body;
    int64_t deadline_ms, sent_ms;
    int64_t reach_by_ms;   /* deadline while the call is not sent */
    int64_t not_before_ms; /* the server has asked to retry at this time; 0 = now */
    uint32_t id, retry;
    bool sent;       /* on the current connection */
    bool maybe_done; /* sent on a connection that is lost: it may have been carried out */
    bool doomed;     /* end_doomed() will end it with client->doom */
    bool too_large;
    void (*done)(void);
    void *arg;
};

struct rpc_client {
    struct loop *loop;
    struct loop_timer *timer;
    char *what, *protocol, *user;
    struct token token;
    bool has_token;
    struct site_addresses addresses;
    size_t address; /* index of the address in use, or of the next one to try */
    uint8_t id[RPC_CLIENT_ID];
    uint32_t next_call, idle_ms, retry_max_ms, reach_ms;
    void (*on_retry)(const struct rpc_error *why, uint32_t next_ms, void *arg);
    void *arg;

    struct rpc_call *calls, **calls_end;
    size_t n_calls;

    struct tcp *tcp;          /* connecting or connected */
    struct rpc_conn *conn;    /* NULL until connected */
    bool answered;            /* an answer has come on this connection */
    struct rpc_error *broken; /* an error found while sending; the timer handles it */
    int64_t read_ms, ping_ms, used_ms;
    uint32_t tries;        /* number of addresses that have failed since the last answer */
    uint32_t pause_ms;     /* the next pause */
    int64_t retry_ms;      /* when to connect again; 0 = not waiting */
    struct rpc_error last; /* why the last attempt failed; kind RPC_FAULT_NONE = it did not fail */
    struct rpc_error doom;
    char address_text[TCP_HOST_MAX + 16], local[TCP_ADDRESS_TEXT];
    unsigned depth; /* nesting depth of callbacks that are running */
    bool dead, retiring;
};

/* rpc_call.c */
struct rpc_call *call_new(struct rpc_client *c, const struct rpc_method *m,
                          const ProtobufCMessage *request);
void call_link(struct rpc_client *c, struct rpc_call *call);
void call_unlink(struct rpc_call *call);
void call_free(struct rpc_call *call);
struct rpc_call *call_find(struct rpc_client *c, uint32_t id);
/* Unlink the call, call done(), and free the call. Afterwards the client may be dead. */
void call_end_answer(struct rpc_call *call, struct span body);
void call_end_error(struct rpc_call *call, const struct rpc_error *e);
/* Put "<what> (<address>)" in front of the sentence. */
void client_wrap(struct rpc_client *c, struct rpc_error *e);

#endif
