/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a call of Hadoop RPC, and delivers its answer or its error to the caller. */
#include "hadoop/rpc_client_int.h"

#include <errno.h>
#include <stdlib.h>

#include "base/base.h"

/* The limit for the body of a request: the headers must fit into the same frame. */
enum { BODY_MAX = RPC_FRAME_MAX - (64 << 10) };

struct rpc_call *call_new(struct rpc_client *c, const struct rpc_method *m,
                          const ProtobufCMessage *request)
{
    size_t size = protobuf_c_message_get_packed_size(request);
    struct rpc_call *call = calloc(1, sizeof *call);
    if (!call)
        return NULL;
    call->client = c;
    call->m = m;
    call->too_large = size > BODY_MAX;
    if (call->too_large || size == 0)
        return call;
    call->body.max = BODY_MAX + 1;
    unsigned char *p = buf_reserve(&call->body, size);
    if (!p) {
        free(call);
        return NULL;
    }
    protobuf_c_message_pack(request, p);
    buf_commit(&call->body, size);
    return call;
}

void call_link(struct rpc_client *c, struct rpc_call *call)
{
    call->at = c->calls_end;
    *c->calls_end = call;
    c->calls_end = &call->next;
    c->n_calls++;
}

void call_unlink(struct rpc_call *call)
{
    struct rpc_client *c = call->client;
    *call->at = call->next;
    if (call->next)
        call->next->at = call->at;
    else
        c->calls_end = call->at;
    c->n_calls--;
}

void call_free(struct rpc_call *call)
{
    if (call->body.p)
        explicit_bzero(call->body.p, call->body.len); /* some requests contain tokens */
    buf_done(&call->body);
    free(call);
}

struct rpc_call *call_find(struct rpc_client *c, uint32_t id)
{
    for (struct rpc_call *call = c->calls; call; call = call->next)
        if (call->sent && call->id == id)
            return call;
    return NULL;
}

void client_wrap(struct rpc_client *c, struct rpc_error *e)
{
    if (e->kind == RPC_FAULT_UNREACHABLE) /* the sentence names the address already */
        (void)err_wrap(&e->err, -e->err.num, "%s", c->what);
    else
        (void)err_wrap(&e->err, -e->err.num, "%s (%s)", c->what, rpc_client_address(c));
}

static void deliver(struct rpc_call *call, const ProtobufCMessage *answer,
                    const struct rpc_error *e)
{
    call_unlink(call);
    call->m->deliver(call->done, answer, e, call->arg);
    call_free(call);
}

void call_end_answer(struct rpc_call *call, struct span body)
{
    ProtobufCMessage *m = rpc_unpack(call->m->answer, body);
    if (m) {
        deliver(call, m, NULL);
        protobuf_c_message_free_unpacked(m, NULL);
        return;
    }
    struct rpc_error e;
    (void)rpc_error_set(&e, RPC_FAULT_PROTOCOL, EPROTO, "the answer to %s cannot be read",
                        call->m->name);
    client_wrap(call->client, &e);
    e.maybe_done = true;
    deliver(call, NULL, &e);
}

void call_end_error(struct rpc_call *call, const struct rpc_error *e)
{
    struct rpc_error mine = *e;
    mine.maybe_done = mine.maybe_done || call->maybe_done;
    deliver(call, NULL, &mine);
}
