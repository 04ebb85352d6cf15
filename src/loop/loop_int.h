/*
 * What the files of the loop share. Every libuv handle sits in one of our objects and points back
 * to it by `data`; the object is freed in the handle's close callback and nowhere else.
 */
#ifndef TONY_LOOP_LOOP_INT_H
#define TONY_LOOP_LOOP_INT_H

#include "loop/loop.h"

#include <uv.h>
#undef MIN /* of <sys/param.h>: base/util.h has its own */
#undef MAX

#include "base/vec.h"

enum {
    READ_SIZE = 64 << 10,      /* one buffer of a loop, for all connections */
    PLAIN_MAX = 4 * READ_SIZE, /* what so much decrypts to, with what was kept and room to spare */
    BACKLOG = 4096,            /* a thousand executors dial in one burst */
    WRITE_CHUNKS = 64,         /* frames given to one writev() */
    FINISH_LIMIT_MS = 10000,   /* conn_finish(): a peer that does not read is left after so long */
    ACCEPT_PAUSE_MS = 100,     /* out of descriptors: look again after so long */
};

/* The start of every object that has a handle. */
struct object {
    struct loop *loop;
    void (*destroy)(struct object *o); /* frees; called when the handle is closed */
};

/* What has something to report or to write before the loop blocks. */
struct dirty {
    struct dirty *next, *prev;
    void (*flush)(struct dirty *d);
    bool is;
};

struct loop {
    uv_loop_t uv;
    uv_prepare_t prepare;
    struct object prepare_object;
    void (*on_flush)(void *arg);
    void *flush_arg;
    struct dirty *dirty, *dirty_last; /* in the order it came */
    struct loop_timer *timer;         /* whose function runs */
    bool stopped;
    bool ending; /* loop_free(): no callbacks but those of loop_work */
    char *read_buf;
    struct buf plain; /* what one read decrypts to */
    struct dial *dials;
    struct tcp_resolve *resolves;
    /* for tests */
    const char *name_servers; /* "host:port,..."; NULL = the system's */
    int64_t handshake_ms;     /* 0 = CONN_HANDSHAKE_MS */
};

void object_init(struct object *o, struct loop *l, uv_handle_t *h,
                 void (*destroy)(struct object *o));
void object_close(uv_handle_t *h); /* twice is harmless */
void dirty_add(struct loop *l, struct dirty *d);
void dirty_remove(struct loop *l, struct dirty *d);

/* dial.c: a connected descriptor, or -1 and why; done() is not called before this returns, nor
 * after dial_cancel() */
struct dial;
int dial_start(struct loop *l, const char *host, uint16_t port, int64_t deadline_ms,
               void (*done)(void *arg, int fd, const struct err *e), void *arg, struct dial **out,
               struct err *e);
void dial_cancel(struct dial *d); /* NULL is fine */
void socket_tune(int fd);         /* no delay, keepalive */
void dials_end(struct loop *l);
void resolves_end(struct loop *l);

/* conn.c */
struct conn *conn_adopt(struct loop *l, int fd, struct err *e); /* takes fd; NULL with e set */
bool conn_has_owner(const struct conn *c); /* it has ops, or is closed already */

/* conn_tls.c: the server's side of a handshake */
struct shakes { /* of one listener, the youngest first */
    struct conn *first, *last;
    unsigned n;
    tls_key_fn *key_of;
    void (*on_ready)(struct conn *c, void *arg);
    /* Once for each that does not come to be; it is freed after. */
    void (*on_stranger)(struct conn *c, const struct err *e, void *arg);
    void *arg;
};
/* Takes fd. 0, or -errno with e set. */
int shake_begin(struct loop *l, struct shakes *s, int fd, struct err *e);
void shakes_drop_oldest(struct shakes *s);
void shakes_end(struct shakes *s); /* drops all, without a word */

/* tcp.c */
struct tcp;
struct tcp *tcp_adopt(struct loop *l, int fd, struct err *e); /* takes fd; NULL with e set */
bool tcp_has_owner(const struct tcp *t);

/* packed.c */
struct packed {
    unsigned refs;
    size_t len;
    char bytes[];
};

#endif
