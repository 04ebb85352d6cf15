/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key-value store of Horovod's gloo ranks, without sockets: bytes of one connection in, the
 * answer out. Each request comes on a connection of its own: METHOD /scope/key HTTP/1.1, with PUT,
 * GET (404 while there is no such key: the asker comes again) and DELETE. Bodies are binary.
 */
#ifndef TONY_RENDEZVOUS_KV_H
#define TONY_RENDEZVOUS_KV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/map.h"

enum {
    KV_HEAD_MAX = 4096, /* a request line and two headers; names of process sets are long */
    KV_KEY_MAX = 1024,
    KV_BODY_MAX = 4 << 20, /* an address of each peer: 136 bytes a rank */
    KV_KEY_COST = 128,     /* of the books about one key */
};

struct kv {
    struct map map;
    size_t bytes, bytes_max; /* of all keys and values */
};

struct kv_request {
    struct buf in;
    size_t head_len, body_len; /* head_len 0: the head is not there whole */
};

void kv_init(struct kv *kv, size_t bytes_max);
void kv_done(struct kv *kv);

void kv_request_done(struct kv_request *r);
/* 0 = there has to come more; 1 = the answer is in out, and the connection is to be closed after
 * it. -ENOMEM. */
int kv_feed(struct kv *kv, struct kv_request *r, struct span bytes, struct buf *out);

#endif
