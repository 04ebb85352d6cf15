/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parser of HTTP/1.1 responses, without I/O. tony has its own because a client needs only a small
 * part of HTTP, and because the well-known parser in C, http-parser, is no longer maintained.
 */
#ifndef TONY_LOOP_HTTP_PARSE_H
#define TONY_LOOP_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

enum http_parse_state {
    HP_HEAD,
    HP_LENGTH,
    HP_TO_END,
    HP_CHUNK,
    HP_DATA,
    HP_DATA_END,
    HP_TRAILER,
    HP_DONE
};

/* To start, set all to zero except head.max. */
struct http_parse {
    enum http_parse_state state;
    bool no_body;    /* the response to a HEAD has no body */
    struct buf head; /* status line and headers as received; those of 1xx responses are dropped */
    struct buf line; /* the line with a chunk's size, or a trailer */
    int status;
    int64_t left; /* bytes that are missing of the body or of the chunk */
    bool keep;    /* the connection may be used for another request */
    size_t n_trailers;
};

/* Parse n received bytes; body() gets the bytes of the body. Returns how many of the n bytes belong
 * to the response: all of them, unless the state is HP_DONE. Or -EPROTO, -EMSGSIZE (the headers are
 * too large) or -ENOMEM, with e set. */
ssize_t http_parse(struct http_parse *x, const char *p, size_t n,
                   void (*body)(const char *p, size_t n, void *arg), void *arg, struct err *e);
/* The stream has ended. 0: the response is complete; -ECONNRESET: it is cut. */
int http_parse_eof(struct http_parse *x, struct err *e);
void http_parse_done(struct http_parse *x);

/* The trimmed value of the first header with this name in a head; p is NULL if there is none. */
struct span http_find(struct span head, const char *name);

#endif
