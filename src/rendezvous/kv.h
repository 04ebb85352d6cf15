/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key-value store for Horovod's gloo ranks, without sockets: it takes the bytes of a connection
 * and gives the answer. Each connection carries one request "METHOD /scope/key HTTP/1.1". The
 * methods are PUT, GET and DELETE. If a key does not exist, GET is answered with 404, and the
 * client asks again. Bodies are binary.
 */
#ifndef TONY_RENDEZVOUS_KV_H
#define TONY_RENDEZVOUS_KV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/map.h"

enum {
    KV_HEAD_MAX = 4096, /* a request line and two headers; names of process sets may be long */
    KV_KEY_MAX = 1024,
    KV_BODY_MAX = 4 << 20, /* a body has the addresses of all peers: 136 bytes for each rank */
    KV_KEY_COST = 128,     /* bytes that are counted for each key besides its name and value */
};

struct kv {
    struct map map;
    size_t bytes, bytes_max; /* the sum over all keys and values, and its limit */
};

struct kv_request {
    struct buf in;
    size_t head_len, body_len; /* head_len 0: the headers are not complete yet */
};

void kv_init(struct kv *kv, size_t bytes_max);
void kv_done(struct kv *kv);

void kv_request_done(struct kv_request *r);
/* 0 = more bytes are needed; 1 = out has the answer: close the connection after sending it.
 * -ENOMEM. */
int kv_feed(struct kv *kv, struct kv_request *r, struct span bytes, struct buf *out);

#endif
