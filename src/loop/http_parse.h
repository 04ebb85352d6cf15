/*
 * One HTTP/1.1 response out of bytes, without I/O. Our own: what a client needs of HTTP is small,
 * and the known parser in C is no longer looked after.
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

struct http_parse { /* zero, but for head.max, to begin with */
    enum http_parse_state state;
    bool no_body;    /* the answer to a HEAD */
    struct buf head; /* status line and headers as they came; 1xx ones are thrown away */
    struct buf line; /* of a chunk's size, or a trailer */
    int status;
    int64_t left; /* of the body, or of the chunk */
    bool keep;    /* the connection may be used again */
    size_t n_trailers;
};

/* Body bytes go to body(). Returns how many of the n bytes were the response's (all, unless it is
 * HP_DONE), or -EPROTO, -EMSGSIZE (headers too large), -ENOMEM with e set. */
ssize_t http_parse(struct http_parse *x, const char *p, size_t n,
                   void (*body)(const char *p, size_t n, void *arg), void *arg, struct err *e);
/* The stream has ended: 0 when that ends the response, else -ECONNRESET. */
int http_parse_eof(struct http_parse *x, struct err *e);
void http_parse_done(struct http_parse *x);

/* The first header of that name in a head, trimmed; p NULL if there is none. */
struct span http_find(struct span head, const char *name);

#endif
