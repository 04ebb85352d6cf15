/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls to a Hadoop service, on the loop. There is one client object for each combination of
 * protocol, credential and list of addresses.
 *
 * The client connects when there is a call, and uses the connection for any number of calls at
 * once; answers come in any order. It closes an idle connection, and sends a ping on a silent one.
 * It tries the addresses in order, beginning with the one that answered last. After a failure it
 * retries with growing, random pauses, until the deadline of the call:
 * - If the call was not sent yet, or its method is idempotent, it is sent again, to the same or the
 *   next address.
 * - If the call may have been carried out and is not idempotent, it ends with RPC_FAULT_BROKEN or
 *   RPC_FAULT_TIMEOUT, and maybe_done is set.
 * - RPC_FAULT_STANDBY: the call is sent to the next address. RPC_FAULT_RETRIABLE: it is sent to the
 *   same address after a pause.
 * - RPC_FAULT_AUTH ends all waiting calls at once. Later calls connect again.
 *
 * For a new credential, make a new object; calls under way may end on the old one, see
 * rpc_client_retire(). All functions belong to the thread of the loop. No callback comes before the
 * function that causes it has returned.
 */
#ifndef TONY_HADOOP_RPC_CLIENT_H
#define TONY_HADOOP_RPC_CLIENT_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hadoop/rpc_error.h"

struct loop;
struct token;
struct site_addresses;
struct rpc_client;
struct rpc_call;

enum {
    RPC_ANSWER_MS = 60000,  /* default deadline of a call, all retries together */
    RPC_CONNECT_MS = 10000, /* for one address that does not answer, name lookup included */
    RPC_IDLE_MS = 10000,    /* the same as Hadoop's */
    RPC_PING_MS = 60000,    /* the same as Hadoop's */
    RPC_RETRY_MIN_MS = 100, /* first pause after all addresses have failed; it doubles */
    RPC_RETRY_MAX_MS = 2000,
};

struct rpc_client_options {
    struct loop *loop;
    const char *what;     /* for sentences: "the resource manager", "node manager" */
    const char *protocol; /* YARN_CLIENT_PROTOCOL and so on: yarn.h */
    const struct site_addresses *addresses; /* at least one; copied */
    const char *user;          /* user name for SIMPLE, used if there is no token; copied */
    const struct token *token; /* authenticate with this token by SASL; copied; NULL = SIMPLE */
    uint32_t idle_ms;          /* 0 = RPC_IDLE_MS; UINT32_MAX = never */
    uint32_t retry_max_ms;     /* 0 = RPC_RETRY_MAX_MS */
    /* If a call cannot be sent to any server for this time, it ends before its deadline; 0 = only
     * the deadline counts. Once it was sent, only its deadline counts. */
    uint32_t reach_ms;
    /* An attempt has failed, and the next one follows in next_ms; may be NULL. It serves to print
     * lines such as "waiting for the resource manager ...". The client also logs the event. */
    void (*on_retry)(const struct rpc_error *why, uint32_t next_ms, void *arg);
    void *arg;
};

int rpc_client_new(const struct rpc_client_options *o, struct rpc_client **out, struct err *e);
/* Ends all calls without their callbacks; may be called inside one. NULL is fine. */
void rpc_client_free(struct rpc_client *c);
/* The caller will make no more calls. The client frees itself when the calls under way have
 * ended. */
void rpc_client_retire(struct rpc_client *c);
size_t rpc_client_pending(const struct rpc_client *c);
/* This side's numeric address on the current or last connection, such as "10.0.0.7". NULL before
 * the first connection. Borrowed. */
const char *rpc_client_local(const struct rpc_client *c);
/* "host:port" of the address that is in use, or that is tried next. Borrowed. */
const char *rpc_client_address(const struct rpc_client *c);

/* One method; yarn.h has a table of those that tony uses, with typed functions. */
struct rpc_method {
    const char *name;
    const ProtobufCMessageDescriptor *answer;
    bool idempotent;
    void (*deliver)(void (*done)(void), const ProtobufCMessage *answer, const struct rpc_error *e,
                    void *arg);
};

/*
 * Call a method.
 *
 * deadline_ms  absolute; 0 = RPC_ANSWER_MS from now. It covers all retries.
 * done         called once, through m->deliver, with the answer or the error; both are valid only
 *              during that call. Not called after rpc_call_cancel() or rpc_client_free().
 * returns      a handle, valid until done() is called or the call is cancelled. NULL = no memory;
 *              done() is not called then.
 */
struct rpc_call *rpc_client_call(struct rpc_client *c, const struct rpc_method *m,
                                 const ProtobufCMessage *request, int64_t deadline_ms,
                                 void (*done)(void), void *arg);
void rpc_call_cancel(struct rpc_call *call); /* the server may carry out the call nevertheless */

#endif
