/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the bytes of a server. The first byte selects the handshake. */
#include "base/base.h"
#include "hadoop/rpc.h"
#include "hadoop/token.h"
#include "proto/hadoop_yarn.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char id[] = "id", password[] = "pw", kind[] = "NMToken", service[] = "";
    const struct token token = { id, password, 2, 2, kind, service };
    bool with_token = size > 0 && (data[0] & 1);
    size_t piece = size > 0 && data[0] > 1 ? data[0] : 1;
    struct rpc_conn_config cfg = {
        .protocol = "p", .user = "u", .token = with_token ? &token : NULL, .cnonce = "c"
    };
    struct rpc_conn *c = rpc_conn_new(&cfg);
    struct rpc_request rq = { .method = "m", .id = 1, .body = SPAN("x") };
    if (!c)
        return 0;
    (void)rpc_conn_call(c, &rq); /* the result does not matter */
    for (size_t at = 1; at < size && !rpc_conn_error(c); at += piece) {
        struct rpc_reply r;
        (void)rpc_conn_feed(c, span_mem(data + at, MIN(piece, size - at)));
        while (rpc_conn_next(c, &r) == 1) {
            ProtobufCMessage *m =
                r.ok ? rpc_unpack(&hadoop__allocate_response__descriptor, r.body) : NULL;
            if (m)
                protobuf_c_message_free_unpacked(m, NULL);
        }
    }
    rpc_conn_eof(c, NULL);
    if (!rpc_conn_error(c))
        abort();
    rpc_conn_free(c);
    return 0;
}
