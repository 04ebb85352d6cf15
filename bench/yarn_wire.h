/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of Hadoop's protocols that the floor of bench/yarn needs, without src/: protobuf by
 * hand, RPC version 9 with SIMPLE and token authentication (qop auth), WebHDFS over blocking
 * sockets. Each error ends the program with a message on stderr.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    uint8_t *p;
    size_t n, cap;
};

struct span {
    const uint8_t *p;
    size_t n;
};

/* A token of Hadoop, as in TokenProto. */
struct token {
    struct span id, password;
};

struct rpc {
    int fd, next_call;
    const char *protocol;
    uint8_t client_id[16];
    struct buf in; /* the last answer; spans point into it until the next call */
};

_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
double now_ms(void); /* CLOCK_REALTIME: compared with other processes of this machine */

void buf_put(struct buf *b, const void *data, size_t n);
void pb_int(struct buf *b, unsigned field, int64_t value);
void pb_put(struct buf *b, unsigned field, const void *data, size_t n);
void pb_str(struct buf *b, unsigned field, const char *text);
/* m becomes a field of b, and is freed. */
void pb_msg(struct buf *b, unsigned field, struct buf *m);

/* Reads one field after the other; false at the end. Exactly one of value and bytes is set, by its
 * wire type; fields of a fixed size are skipped. */
bool pb_next(struct span *in, unsigned *field, uint64_t *value, struct span *bytes);
/* The last field of that number; 0 or empty if there is none. */
uint64_t pb_get_int(struct span in, unsigned field);
struct span pb_get(struct span in, unsigned field);

/* token NULL: SIMPLE as user. The protocol's name is org.apache.hadoop.yarn.api.<protocol>PB. */
void rpc_open(struct rpc *r, const char *address, const char *protocol, const char *user,
              const struct token *token);
/* request is freed. */
struct span rpc_call(struct rpc *r, const char *method, struct buf *request);

/* The first token of that kind in a token storage file of version 0; false if there is none. */
bool token_from_file(const char *path, const char *kind, struct token *out);

/*
 * One HTTP request; the answer's status, its body, and the Location header (location[0] is 0 if
 * there is none). With Connection: close.
 */
int http(const char *method, const char *url, struct span body, struct buf *out, char *location,
         size_t location_size);
