/*
 * A framed connection over a unix socket, for the keeper and the executor, which have no event
 * loop: never blocks, the owner polls.
 */
#ifndef TONY_EXECUTOR_LINK_H
#define TONY_EXECUTOR_LINK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "proto/tony.pb-c.h"

struct err;

struct link {
    int fd; /* -1 = not connected */
    struct buf in, out;
    bool ended; /* the peer closed: what is in `in` may still hold frames */
};

/* Dial; 0 or -errno (-ECONNREFUSED and -ENOENT: nobody listens; -EAGAIN: its queue is full). */
int link_dial(struct link *l, const char *path);
/* Listen, mode 0600, replacing a dead one's file (the caller holds the lock that says it is dead).
 * The descriptor, or -errno. */
int link_listen(const char *path, struct err *e);
/* One waiting connection of our own user or root. 1 = accepted, 0 = none (strangers are dropped on
 * the way). */
int link_accept(int listen_fd, struct link *out);

void link_close(struct link *l); /* what is unsent is lost; closing twice is harmless */

/* Read what there is. 0, or -EPIPE when the peer is gone (frames read before may still be pulled).
 */
int link_fill(struct link *l);
/*
 * Pull one frame. 1: *out is valid until the next link_next() of any link (its memory belongs to
 * this module); 0: none yet; -EPROTO: what came is no frame.
 */
int link_next(struct link *l, const Tony__Frame **out, struct err *e);

/* Pack and send, or keep what the kernel does not take now. 0, -EPIPE (gone), -ENOBUFS (a peer that
 * does not read), -ENOMEM. */
int link_send(struct link *l, const Tony__Frame *msg);
int link_flush(struct link *l);
static inline bool link_unsent(const struct link *l)
{
    return l->fd >= 0 && l->out.len > 0;
}

#endif
