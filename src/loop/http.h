/*
 * HTTP/1.1 on the loop: a client, and a small read-only server.
 *
 * The client keeps idle connections, a bounded number per host, and runs any number of requests at
 * once: those above the bound wait in line. It follows no redirects (the Location is given), knows
 * no proxies, no cookies and no compression, and refuses https with a sentence. Limits are on
 * standstill, not on the total: a request fails when not a byte moved for its stall_ms.
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
    HTTP_PER_HOST = 8,    /* connections to one host and port; further requests wait */
    HTTP_IDLE_MS = 15000, /* an unused connection is closed after so long */
    HTTP_HEADERS_MAX = 64 << 10,
    HTTP_URL_MAX = 16 << 10,
    HTTP_BODY_MAX = 16 << 20, /* of a response held in memory, unless the request says otherwise */
};

struct http_response {
    int status;       /* 200 ... */
    struct span body; /* what was kept in memory; borrowed */
    uint64_t n_body;  /* bytes of the body, wherever they went */
    const struct http_headers *headers;
};
/* The first header of that name (any case), or a span with p NULL. */
struct span http_header(const struct http_response *r, const char *name);

struct http_request {
    const char *method;         /* "GET", "PUT", ... */
    const char *url;            /* http://host[:port]/path?query, percent-encoded; copied */
    const char *const *headers; /* "Name: value", NULL-terminated; may be NULL; copied */
    /* The body: from memory (borrowed until done), or body_n bytes of body_fd from body_offset on
     * (by pread() on the thread pool; stays the caller's, and open until done). */
    struct span body;
    bool body_from_fd;
    int body_fd;
    int64_t body_offset, body_n;
    /* Where the body of a 2xx goes: to on_body if there is one, else to memory. Other bodies go to
     * memory, cut at 64 KiB. */
    void (*on_body)(struct http_call *c, const char *p, size_t n, void *arg);
    size_t body_max;  /* of a 2xx in memory: more is -EFBIG; 0 = HTTP_BODY_MAX */
    int64_t stall_ms; /* 0 = HTTP_STALL_MS */
    bool fresh;       /* on a connection of its own, closed after it */
    /* May be NULL: how many bytes of the body were given to the kernel so far. */
    void (*on_sent)(struct http_call *c, uint64_t n_sent, void *arg);
    /* Once. e->num 0: r is the response, of whatever status. Else r is NULL and the sentence names
     * host and port: -ECONNREFUSED, -ETIMEDOUT, -ECONNRESET (it went away before it had answered),
     * -EPROTO (what it said is no HTTP), -EFBIG, -ENOENT (no such host), ... A request without a
     * body to send that finds its kept connection closed is sent once more by itself. */
    void (*done)(struct http_call *c, const struct http_response *r, const struct err *e,
                 void *arg);
    void *arg;
};

struct http *http_new(struct loop *l, struct err *e);
/* All calls are dropped without a done(); NULL is fine. Before loop_free(). */
void http_free(struct http *h);
/* done() never before this returns. -EINVAL: the URL cannot be; -EPROTONOSUPPORT: https. */
int http_send(struct http *h, const struct http_request *q, struct http_call **out, struct err *e);
void http_cancel(struct http_call *c); /* no done(); NULL is fine. Not after done() */

/* Append s percent-encoded; '/' stays when keep_slash. */
int http_encode(struct buf *b, struct span s, bool keep_slash);

/* ---- the server ---- */

struct http_server;

struct http_answer {
    int status;       /* 200 at first */
    const char *type; /* "text/html; charset=utf-8" at first; static */
    struct buf body;
};

/* Fill *a for a GET of `path`; query is "" or what stood behind the '?', undecoded. Called on the
 * loop and must not wait. -errno: the asker gets 500 and the sentence goes to the log. */
typedef int http_page_fn(const char *path, const char *query, struct http_answer *a, void *arg,
                         struct err *e);

struct http_page {
    const char *path; /* exact; one that ends in "/" and is longer than that stands for all below */
    http_page_fn *make;
};

enum {
    HTTP_SERVER_CONNS = 64, /* more are closed at once */
    HTTP_SERVER_REQUEST_MAX = 16 << 10,
    HTTP_SERVER_WAIT_MS = 10000, /* for a whole request, and for its answer to be read */
};

/* Serve pages (borrowed while open) on a numeric address (NULL = all of IPv4) and port (0 = any).
 * GET and HEAD only; others 405; bodies are refused; unknown paths 404. */
int http_server_open(struct loop *l, const char *address, uint16_t port,
                     const struct http_page *pages, size_t n_pages, void *arg,
                     struct http_server **out, struct err *e);
uint16_t http_server_port(const struct http_server *s);
void http_server_close(struct http_server *s); /* NULL is fine */
/* Append s as HTML text. */
int http_add_html(struct buf *b, struct span s);

#endif
