/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hadoop's tokens, and the formats that contain them: Writable primitives, the token storage
 * ("HDTS": the file that HADOOP_TOKEN_FILE_LOCATION names, and the field `tokens` of a launch
 * context), and the form of a token in a URL.
 *
 * Identifier and password are opaque bytes, which are passed on unchanged. Memory that held a
 * password or a secret is overwritten before it is freed. This code logs nothing.
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
    "YARN_AM_RM_TOKEN" /* tokens are found by their kind; alias and service have no meaning */
#define TOKEN_KIND_NM "NMToken"
#define TOKEN_KIND_CONTAINER "ContainerToken"

enum {
    TOKEN_BYTES_MAX = 1 << 20,  /* of an identifier or a password; real ones have about 100 bytes */
    CREDENTIALS_MAX = 16 << 20, /* of a whole storage */
    CREDENTIALS_ENTRIES_MAX = 100000, /* of each kind */
};

struct token {
    char *identifier, *password; /* with a NUL after the last byte; the bytes may have any value */
    size_t identifier_len, password_len;
    char *kind, *service; /* never NULL in a token that was read */
};

int token_copy(const struct token *from, struct token *out); /* 0 or -ENOMEM */
void token_done(struct token *t);                            /* overwrites it with zeros */

/* Convert from and to messages. token_to_msg() lets *out point into t. */
int token_from_msg(const Hadoop__Token *m, struct token *out); /* 0 or -ENOMEM */
void token_to_msg(const struct token *t, Hadoop__Token *out);

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

/* Read a token storage of version 0 (Writable) or 1 (protobuf); credentials_write() writes version
 * 0. -EINVAL: the sentence says what is wrong and where; *out is set only on success. If a launch
 * context has no credentials, leave the field out: an empty byte string kills the container. */
int credentials_read(struct span text, struct credentials *out, struct err *e);
int credentials_read_file(const char *path, struct credentials *out, struct err *e);
int credentials_write(const struct credentials *c, struct buf *out); /* 0, -ENOMEM, -EMSGSIZE */
void credentials_done(struct credentials *c);

int credentials_add_token(struct credentials *c, const char *alias,
                          const struct token *t); /* copies; 0, -ENOMEM */
int credentials_add_secret(struct credentials *c, const char *alias,
                           struct span secret); /* copies; 0, -ENOMEM */
/* The first token of that kind; NULL = none. */
const struct token *credentials_find(const struct credentials *c, const char *kind);
/* P is NULL if there is none; borrowed. */
struct span credentials_secret(const struct credentials *c, const char *alias);

/* Writable primitives. After the first failure, all reads of a reader fail. */
struct writable {
    const unsigned char *p, *end;
    bool bad;
};
int64_t writable_vlong(struct writable *r);
int writable_put_vlong(struct buf *out, int64_t v);

#endif
