/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls to a Hadoop service: one object per protocol, credential and list of addresses, on the
 * loop.
 *
 * It connects when there is something to call, keeps the connection for further calls (any number
 * at once; answers come in any order), closes it when idle, and says "ping" on a silent one. The
 * addresses are tried in order, beginning with the one that answered last, and again after a
 * failure with growing, jittered pauses, until the call's deadline:
 *   - nothing was sent yet, or the method is idempotent: the call is sent again, here or to the
 * next address;
 *   - it may have been carried out and is not idempotent: it ends with RPC_FAULT_BROKEN or _TIMEOUT
 * and maybe_done;
 *   - RPC_FAULT_STANDBY goes to the next address, _RETRIABLE to the same one after a pause;
 *   - RPC_FAULT_AUTH ends every call that waits, at once; later calls connect anew. Of several
 * errors before a deadline, an authentication error is the one reported.
 *
 * A new credential is a new object: calls under way may end on the old one (rpc_client_retire()).
 * One thread, the loop's. Callbacks never come before the function that caused them has returned.
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
    RPC_ANSWER_MS =
        60000, /* a call without a deadline of its own ends after so long, all tries together */
    RPC_CONNECT_MS = 10000, /* one address that does not answer at all; names included */
    RPC_IDLE_MS = 10000,    /* Hadoop's own figure */
    RPC_PING_MS = 60000,    /* idem */
    RPC_RETRY_MIN_MS = 100, /* first pause after all addresses failed; doubles */
    RPC_RETRY_MAX_MS = 2000,
};

struct rpc_client_options {
    struct loop *loop;
    const char *what;     /* for sentences: "the resource manager", "node manager" */
    const char *protocol; /* YARN_CLIENT_PROTOCOL and so on: yarn.h */
    const struct site_addresses *addresses; /* at least one; copied */
    const char *user;                       /* without a token: the user to name (SIMPLE); copied */
    const struct token *token;              /* SASL with it; copied; NULL = SIMPLE */
    uint32_t idle_ms;                       /* 0 = RPC_IDLE_MS; UINT32_MAX = never */
    uint32_t retry_max_ms;                  /* 0 = RPC_RETRY_MAX_MS */
    /* A call ends, before its deadline, when it could not be sent to anybody for so long; 0 = there
     * is only the deadline. A server that is there may take longer for its answer. */
    uint32_t reach_ms;
    /* A try has failed and another follows in next_ms (may be NULL). For "waiting for the resource
     * manager ..." lines; the event is also logged. */
    void (*on_retry)(const struct rpc_error *why, uint32_t next_ms, void *arg);
    void *arg;
};

int rpc_client_new(const struct rpc_client_options *o, struct rpc_client **out, struct err *e);
/* Ends all calls without their callbacks; may be called inside one. NULL is fine. */
void rpc_client_free(struct rpc_client *c);
/* No more calls from us: frees itself when those under way have ended. */
void rpc_client_retire(struct rpc_client *c);
size_t rpc_client_pending(const struct rpc_client *c);
/* Our side's numeric address of the present or last connection, such as "10.0.0.7", or NULL before
 * the first. Borrowed. */
const char *rpc_client_local(const struct rpc_client *c);
/* "host:port" of the address in use or next to be tried. Borrowed. */
const char *rpc_client_address(const struct rpc_client *c);

/* One method; yarn.h has the table of those we use and typed functions for each. */
struct rpc_method {
    const char *name;
    const ProtobufCMessageDescriptor *answer;
    bool idempotent;
    void (*deliver)(void (*done)(void), const ProtobufCMessage *answer, const struct rpc_error *e,
                    void *arg);
};

/*
 * deadline_ms: absolute; 0 = RPC_ANSWER_MS from now. It spans all tries.
 * done: called once, through m->deliver, with the answer or the error, both valid during the call
 * only; not called after rpc_call_cancel() or rpc_client_free().
 * Returns a handle that is valid until done is called or it is cancelled; NULL = no memory (done is
 * not called).
 */
struct rpc_call *rpc_client_call(struct rpc_client *c, const struct rpc_method *m,
                                 const ProtobufCMessage *request, int64_t deadline_ms,
                                 void (*done)(void), void *arg);
void rpc_call_cancel(struct rpc_call *call); /* the server may carry it out all the same */

#endif
