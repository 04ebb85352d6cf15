/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hadoop's tokens and the streams they travel in: the Writable primitives, the token storage
 * ("HDTS": the file that HADOOP_TOKEN_FILE_LOCATION names, and field `tokens` of a launch context),
 * and the form a token has in a URL.
 *
 * Identifier and password are opaque bytes and go out as they came in. Memory that held a password
 * or a secret is overwritten before it is freed. Nothing here logs.
 */
#ifndef TONY_HADOOP_TOKEN_H
#define TONY_HADOOP_TOKEN_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/vec.h"

struct err;
typedef struct Hadoop__Token Hadoop__Token; /* generated from proto/hadoop_yarn.proto */

#define TOKEN_KIND_AM_RM                                                                           \
    "YARN_AM_RM_TOKEN" /* picked by kind: its alias and service mean nothing                       \
                        */
#define TOKEN_KIND_NM "NMToken"
#define TOKEN_KIND_CONTAINER "ContainerToken"

enum {
    TOKEN_BYTES_MAX = 1 << 20,        /* identifier or password; real ones have some 100 bytes */
    CREDENTIALS_MAX = 16 << 20,       /* a whole storage */
    CREDENTIALS_ENTRIES_MAX = 100000, /* of each sort */
};

struct token {
    char *identifier, *password; /* NUL behind the last byte, which may be any */
    size_t identifier_len, password_len;
    char *kind, *service; /* never NULL in a token that was read */
};

int token_copy(const struct token *from, struct token *out); /* 0 or -ENOMEM */
void token_done(struct token *t);                            /* zeroes it */

/* From and to messages. The message built borrows all from t; init and fill one on the stack. */
int token_from_msg(const Hadoop__Token *m, struct token *out); /* 0 or -ENOMEM */
void token_to_msg(const struct token *t, Hadoop__Token *out);

/* The text of WebHDFS's `delegation=` and of the REST interface: URL-safe base64 without padding
 * (accepted with it). */
int token_from_url(struct span text, struct token *out, struct err *e);
int token_to_url(const struct token *t, struct buf *out);

struct credentials {
    VEC(struct credentials_token {
        char *alias;
        struct token token;
    })
    tokens;
    VEC(struct credentials_secret {
        char *alias;
        char *p;
        size_t len;
    })
    secrets;
};

/* Version 0 (Writable) and 1 (protobuf) are read, 0 is written. -EINVAL with what is wrong and
 * where; out is written only on success. In a launch context no credentials must be an absent
 * field: an empty byte string kills the container. */
int credentials_read(struct span text, struct credentials *out, struct err *e);
int credentials_read_file(const char *path, struct credentials *out, struct err *e);
int credentials_write(const struct credentials *c, struct buf *out); /* 0, -ENOMEM, -EMSGSIZE */
void credentials_done(struct credentials *c);

int credentials_add_token(struct credentials *c, const char *alias,
                          const struct token *t); /* copies; 0, -ENOMEM */
int credentials_add_secret(struct credentials *c, const char *alias,
                           struct span secret); /* copies; 0, -ENOMEM */
const struct token *credentials_find(const struct credentials *c,
                                     const char *kind); /* the first of that kind, or NULL */
struct span credentials_secret(const struct credentials *c,
                               const char *alias); /* p is NULL when there is none; borrowed */

/* Writable primitives, for tests and for whoever needs more of them. A reader that failed stays
 * failed. */
struct writable {
    const unsigned char *p, *end;
    bool bad;
};
int64_t writable_vlong(struct writable *r);
struct span writable_bytes(struct writable *r, size_t max); /* vint length, then so many bytes */
int writable_put_vlong(struct buf *out, int64_t v);
int writable_put_bytes(struct buf *out, struct span s);

#endif
