/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a client of Hadoop RPC: calls in a list, one connection at most, one timer for all
 * that is due. What a callback of the owner's may do, freeing the client included, is survived by
 * looking at `dead` after each.
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
    int64_t reach_by_ms;   /* while it is not sent */
    int64_t not_before_ms; /* the server asked to come again then; 0 = now */
    uint32_t id, retry;
    bool sent;       /* on the present connection */
    bool maybe_done; /* it was sent on one that is gone */
    bool doomed;     /* ends with client->doom in this round */
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
    size_t address; /* in use, or to be tried next */
    uint8_t id[RPC_CLIENT_ID];
    uint32_t next_call, idle_ms, retry_max_ms, reach_ms;
    void (*on_retry)(const struct rpc_error *why, uint32_t next_ms, void *arg);
    void *arg;

    struct rpc_call *calls, **calls_end;
    size_t n_calls;

    struct tcp *tcp;          /* dialling or open */
    struct rpc_conn *conn;    /* open */
    bool answered;            /* something came on this connection */
    struct rpc_error *broken; /* found while calling: dealt with on the timer */
    int64_t read_ms, ping_ms, used_ms;
    uint32_t tries;        /* addresses that failed since one answered */
    uint32_t pause_ms;     /* the next one */
    int64_t retry_ms;      /* when to dial; 0 = no pause now */
    struct rpc_error last; /* why the last try failed; kind NONE = it did not */
    struct rpc_error doom;
    char address_text[TCP_HOST_MAX + 16], local[TCP_ADDRESS_TEXT];
    unsigned depth; /* callbacks of ours under way */
    bool dead, retiring;
};

/* rpc_call.c */
struct rpc_call *call_new(struct rpc_client *c, const struct rpc_method *m,
                          const ProtobufCMessage *request);
void call_link(struct rpc_client *c, struct rpc_call *call);
void call_unlink(struct rpc_call *call);
void call_free(struct rpc_call *call);
struct rpc_call *call_find(struct rpc_client *c, uint32_t id);
/* Unlinks, calls done, frees. The client may be dead afterwards. */
void call_end_answer(struct rpc_call *call, struct span body);
void call_end_error(struct rpc_call *call, const struct rpc_error *e);
/* "<what> (<address>)" in front of the sentence. */
void client_wrap(struct rpc_client *c, struct rpc_error *e);

#endif
