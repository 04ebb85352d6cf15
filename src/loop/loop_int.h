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
    READ_SIZE = 64 << 10,    /* one buffer of a loop, for all connections */
    BACKLOG = 4096,          /* a thousand executors dial in one burst */
    WRITE_CHUNKS = 64,       /* frames given to one writev() */
    FINISH_LIMIT_MS = 10000, /* conn_finish(): a peer that does not read is left after so long */
    ACCEPT_PAUSE_MS = 100,   /* out of descriptors: look again after so long */
};

/* The start of every object that has a handle. */
struct object {
    struct loop *loop;
    void (*destroy)(struct object *o); /* frees; called when the handle is closed */
};

struct loop {
    uv_loop_t uv;
    uv_prepare_t prepare;
    struct object prepare_object;
    void (*on_flush)(void *arg);
    void *flush_arg;
    struct conn *dirty,
        *dirty_last; /* connections with something to report or to write, in the order it came */
    bool stopped;
    bool ending; /* loop_free(): no callbacks but those of loop_work */
    char *read_buf;
};

void object_init(struct object *o, struct loop *l, uv_handle_t *h,
                 void (*destroy)(struct object *o));
void object_close(uv_handle_t *h); /* twice is harmless */

/* conn.c */
void conns_flush(struct loop *l); /* carry out what the dirty ones want, until none is left */
struct conn *conn_adopt(struct loop *l, int fd, struct err *e); /* takes fd; NULL with e set */
bool conn_has_owner(const struct conn *c); /* it has ops, or is closed already */

/* packed.c */
struct packed {
    unsigned refs;
    size_t len;
    char bytes[];
};

#endif
