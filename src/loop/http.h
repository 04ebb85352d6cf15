/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 on the loop: a client, and a small read-only server.
 *
 * The client keeps idle connections open, at most HTTP_PER_HOST to each host. Any number of
 * requests may run at once; those without a free connection wait. The client does not follow
 * redirects: the caller gets the response with its Location header. It has no proxies, cookies,
 * compression or https. A request fails if no byte was sent or received for stall_ms; its total
 * time is not limited.
 */
#ifndef TONY_LOOP_HTTP_H
#define TONY_LOOP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "loop/loop.h"

struct err;

/* ---- the client ---- */

struct http;
struct http_call;

enum {
    HTTP_STALL_MS = 60000,
    HTTP_PER_HOST = 8,           /* connections to one host and port; more requests wait */
    HTTP_IDLE_MS = 15000,        /* an idle connection is closed after this time */
    HTTP_HEADERS_MAX = 64 << 10, /* bytes */
    HTTP_URL_MAX = 16 << 10,
    HTTP_BODY_MAX = 16 << 20, /* default of body_max: bytes of a response body in memory */
};

struct http_response {
    int status;       /* 200 ... */
    struct span body; /* the part of the body in memory; borrowed */
    uint64_t n_body;  /* bytes of the whole body, including those given to on_body() */
    const struct http_headers *headers;
};
/* The value of the first header with this name (in any case). p is NULL if there is none. */
struct span http_header(const struct http_response *r, const char *name);

struct http_request {
    const char *method;         /* "GET", "PUT", ...; a static string */
    const char *url;            /* http://host[:port]/path?query, percent-encoded; copied */
    const char *const *headers; /* "Name: value", NULL-terminated; may be NULL; copied */
    /* The request body: from memory (borrowed until done()), or, with body_from_fd, body_n bytes of
     * body_fd from body_offset on. A thread reads these with pread(); the caller keeps body_fd open
     * until done(). */
    struct span body;
    bool body_from_fd;
    int body_fd;
    int64_t body_offset, body_n;
    /* Gets the response body if the status is 2xx. NULL: that body is kept in memory. The body of
     * any other status is always kept in memory, cut at 64 KiB. */
    void (*on_body)(struct http_call *c, const char *p, size_t n, void *arg);
    size_t body_max;  /* bytes of a 2xx body in memory: more is -EFBIG; 0 = HTTP_BODY_MAX */
    int64_t stall_ms; /* 0 = HTTP_STALL_MS */
    bool fresh;       /* use a new connection, and close it afterwards */
    /* May be NULL. n_sent: bytes of the request body that the kernel has accepted so far. */
    void (*on_sent)(struct http_call *c, uint64_t n_sent, void *arg);
    /* Called once. e->num 0: r is the response, of any status. Otherwise r is NULL, and the
     * sentence names host and port: -ECONNREFUSED, -ETIMEDOUT, -ECONNRESET (the server closed the
     * connection before its answer was complete), -EPROTO (the answer is not HTTP), -EFBIG, -ENOENT
     * (no such host), ...
     *
     * If the server has closed an idle connection that a request without a body then uses, the
     * client sends the request once more on a new connection. */
    void (*done)(struct http_call *c, const struct http_response *r, const struct err *e,
                 void *arg);
    void *arg;
};

struct http *http_new(struct loop *l, struct err *e);
/* Cancel all calls, without done(). NULL is accepted. Call it before loop_free(). */
void http_free(struct http *h);
/* Send a request. done() does not come before this returns. -EINVAL: not a valid URL;
 * -EPROTONOSUPPORT: https. */
int http_send(struct http *h, const struct http_request *q, struct http_call **out, struct err *e);
/* Cancel a call: done() will not come. NULL is accepted. Must not be called after done(). */
void http_cancel(struct http_call *c);

/* Append s percent-encoded; with keep_slash, '/' is not encoded. */
int http_encode(struct buf *b, struct span s, bool keep_slash);

/* ---- the server ---- */

struct http_server;
struct http_asker; /* a client of the server */

struct http_answer {
    int status;       /* 200, unless the page function changes it */
    const char *type; /* "text/html; charset=utf-8", unless changed; a static string */
    struct buf body;
    struct span accept; /* the header Accept of the request; len 0 = none. Not for changing. */
    struct http_asker *asker; /* for http_wait() */
};

/* Fill *a, the answer to a GET of `path`. query: the part of the URL behind '?', not decoded; "" if
 * there is none. Runs on the loop thread and must not block. -errno: the client gets status 500,
 * and the server logs the sentence. */
typedef int http_page_fn(const char *path, const char *query, struct http_answer *a, void *arg,
                         struct err *e);

/* A page function calls this and returns 0 if its answer is not ready yet. http_reply() answers
 * later. gone(arg): the client has closed the connection, HTTP_SERVER_WAIT_MS are over, or the
 * server closes; the result is then invalid. */
struct http_asker *http_wait(struct http_answer *a, void (*gone)(void *arg), void *arg);
/* status and type of the answer must be set; the caller keeps it. rc and e: as of a page function.
 */
void http_reply(struct http_asker *a, const struct http_answer *answer, int rc, struct err *e);

struct http_page {
    const char *path; /* an exact path; but "/x/" matches all paths that begin with it */
    http_page_fn *make;
};

enum {
    /* Connections. For one more, the server closes the oldest one that has not sent its request, or
     * has got its answer. If there is none, it closes the new one. */
    HTTP_SERVER_CONNS = 64,
    HTTP_SERVER_REQUEST_MAX = 16 << 10, /* bytes of a request */
    /* The client has this time to send the whole request, and again to read the answer. */
    HTTP_SERVER_WAIT_MS = 10000,
};

/* Serve pages (borrowed until http_server_close()) on a numeric address (NULL = all IPv4 addresses)
 * and a port (0 = any free port). Methods other than GET and HEAD get status 405, unknown paths
 * 404. A request with a body is refused. */
int http_server_open(struct loop *l, const char *address, uint16_t port,
                     const struct http_page *pages, size_t n_pages, void *arg,
                     struct http_server **out, struct err *e);
uint16_t http_server_port(const struct http_server *s);
void http_server_close(struct http_server *s); /* NULL is accepted */
/* Append s as HTML text: with '<', '&' and so on escaped. */
int http_add_html(struct buf *b, struct span s);

#endif
