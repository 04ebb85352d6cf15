/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the source files of the loop share.
 *
 *   loop.c         the loop, timers, signals, descriptors, work on other threads
 *   conn.c         connections that carry frames, and those over unix sockets
 *   conn_tls.c     connections over TCP with TLS
 *   conn_raw.c     connections that carry bytes after their first frames
 *   packed.c       frames that are packed once and sent on many connections
 *   splice.c       copies bytes between two connections
 *   listener.c     listening sockets: unix, TCP, and TCP with TLS
 *   strangers.c    limits the handshakes of peers that have not proved an identity
 *   tcp.c          TCP connections without frames (tcp.h)
 *   address.c      host, port and numeric address as text
 *   resolve.c      looks up the addresses of a host name
 *   dial.c         connects to a host by name
 *   http.c         the HTTP client (http.h)
 *   http_parse.c   the parser of HTTP responses (http_parse.h)
 *   http_server.c  the HTTP server (http.h)
 *
 * Every libuv handle is a member of one of our objects, and its `data` points to that object. Only
 * the handle's close callback frees the object.
 */
#ifndef TONY_LOOP_LOOP_INT_H
#define TONY_LOOP_LOOP_INT_H

#include "loop/loop.h"

#include <uv.h>
#undef MIN /* <uv.h> includes <sys/param.h>, which defines it; base/util.h has its own */
#undef MAX

#include "base/vec.h"

enum {
    READ_SIZE = 64 << 10, /* bytes of a loop's read buffer, which all its connections share */
    /* Bytes of a loop's buffer for decrypted data. READ_SIZE bytes, together with a partial TLS
     * record from before, decrypt to less. */
    PLAIN_MAX = 4 * READ_SIZE,
    BACKLOG = 4096,          /* listen(): a thousand executors may connect at the same moment */
    WRITE_CHUNKS = 64,       /* frames in one writev() */
    FINISH_LIMIT_MS = 10000, /* conn_finish() closes after this time at the latest */
    ACCEPT_PAUSE_MS = 100,   /* if no descriptor is free, accept() is tried again after this time */
};

/* The first member of every object that has a libuv handle. */
struct object {
    struct loop *loop;
    void (*destroy)(struct object *o); /* frees the object; called when the handle is closed */
};

/* A member of every object that may have something to write or to report before the loop blocks.
 * The loop calls flush() for those that are in its list `dirty`. */
struct dirty {
    struct dirty *next, *prev;
    void (*flush)(struct dirty *d);
    bool queued; /* it is in the list */
};

struct loop {
    uv_loop_t uv;
    uv_prepare_t prepare;
    struct object prepare_object;
    void (*on_flush)(void *arg);
    void *flush_arg;
    struct dirty *dirty, *dirty_last; /* a list, in the order in which objects became dirty */
    struct loop_timer *timer;         /* the timer whose callback is running */
    bool stopped, one_thread;
    bool ending; /* loop_free() runs: only callbacks of loop_work() are still called */
    char *read_buf;
    struct buf plain; /* the decrypted bytes of one read */
    struct dial *dials;
    struct tcp_resolve *resolves;
    unsigned n_shaking;     /* connections with an unfinished handshake */
    unsigned n_shake_works; /* parts of handshakes that other threads have done */
    /* Set by tests only: */
    const char *name_servers; /* "host:port,..."; NULL = those of the system */
    int64_t handshake_ms;     /* 0 = CONN_HANDSHAKE_MS */
};

void object_init(struct object *o, struct loop *l, uv_handle_t *h,
                 void (*destroy)(struct object *o));
void object_close(uv_handle_t *h); /* a second call has no effect */
void dirty_add(struct loop *l, struct dirty *d);
void dirty_remove(struct loop *l, struct dirty *d);

/* dial.c: look up the host and connect to one of its addresses. done() gets a connected descriptor,
 * or -1 and the error. done() is called neither before dial_start() returns nor after
 * dial_cancel(). */
struct dial;
int dial_start(struct loop *l, const char *host, uint16_t port, int64_t deadline_ms,
               void (*done)(void *arg, int fd, const struct err *e), void *arg, struct dial **out,
               struct err *e);
void dial_cancel(struct dial *d); /* NULL is accepted */
void socket_tune(int fd);         /* sets TCP_NODELAY and keepalive */
void dials_end(struct loop *l);
void resolves_end(struct loop *l);

/* conn.c */
struct conn *conn_adopt(struct loop *l, int fd, struct err *e); /* takes fd; NULL: e is set */
bool conn_has_owner(const struct conn *c); /* does it have ops, or is it closed? */

/* strangers.c */
struct bucket {
    uint64_t from; /* the address, as of address_hash() */
    double level;
    int64_t at_ms; /* the time at which `level` was computed */
    bool used;
};
struct strangers {
    struct bucket by_address[128], all;
};
/* May a peer without a proof of its identity continue its handshake now? */
bool strangers_admit(struct strangers *s, uint64_t from, int64_t now_ms);

/* What a listener remembers of its peers' first messages. */
struct guard {
    struct strangers strangers;
    struct tls_seen seen; /* the numbers of the proofs */
};

/* conn_tls.c: unfinished handshakes of one listener, the youngest first */
struct shakes {
    struct conn *first, *last;
    unsigned n;
    struct shakes
        *proved; /* the list for peers that have proved their identity; NULL: this is it */
    struct guard *guard;
    tls_key_fn *key_of;
    void (*on_ready)(struct conn *c, void *arg); /* the handshake has succeeded */
    /* The handshake has failed. The conn is freed after this returns. */
    void (*on_stranger)(struct conn *c, const struct err *e, void *arg);
    void *arg;
};
/* Start a handshake on an accepted socket. Takes fd. 0, or -errno with e set. */
int shake_begin(struct loop *l, struct shakes *s, int fd, struct err *e);
/* Close the oldest handshake of the address that has most. */
void shakes_make_room(struct shakes *s);
void shakes_end(struct shakes *s); /* closes all, without on_stranger() */

/* tcp.c */
struct tcp;
struct tcp *tcp_adopt(struct loop *l, int fd, struct err *e); /* takes fd; NULL: e is set */
bool tcp_has_owner(const struct tcp *t);

/* loop.c: a write that the kernel could not take at once. It owns its bytes. */
struct late_write {
    uv_write_t uv;
    struct buf bytes;
    void *owner;
};
/* Let libuv write all of *out, which is empty afterwards. When it is done it calls done(), which
 * begins with late_write_end(). 0, or -errno: then the bytes are lost, and *write is unchanged. */
int late_write_begin(uv_stream_t *to, struct buf *out, uv_write_cb done, void *owner,
                     struct late_write **write);
void *late_write_end(uv_write_t *uv); /* frees the write; returns its owner */

/* packed.c */
struct packed {
    unsigned refs;
    size_t len;
    char bytes[];
};

#endif
