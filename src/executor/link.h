/*
 * A framed connection over a unix socket, or over TCP with TLS (link_tls.c), for the keeper and the
 * executor, which have no event loop: never blocks, the owner polls.
 */
#ifndef TONY_EXECUTOR_LINK_H
#define TONY_EXECUTOR_LINK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "proto/tony.pb-c.h"

struct err;
struct sockaddr;
struct tls;

struct link {
    int fd; /* -1 = not connected */
    struct buf in, out;
    bool ended;      /* the peer closed: what is in `in` may still hold frames */
    bool connecting; /* TCP only: poll for POLLOUT, then link_connected() */
    struct tls *tls; /* owned; NULL on a unix socket. Plaintext waits in `out` for its handshake */
    struct err *why; /* with tls: where its sentences go; borrowed, may be NULL */
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

/* Over TCP, nothing is waited for: 0 means that it has begun. Takes tls, also on failure. The peer
 * is given up when it has not confirmed what was sent for LINK_SILENCE_MS. */
int link_dial_tls(struct link *l, const struct sockaddr *to, size_t to_len, struct tls *tls);
int link_connected(struct link *l); /* 0, -EINPROGRESS (not yet), or why it failed */
/* A connection that was accepted or made elsewhere; takes both. */
void link_of_tls(struct link *l, int fd, struct tls *tls);
/* Our own side, numeric, IPv6 in brackets, as it stands in "host:port". */
int link_host(const struct link *l, char *out, size_t size);
/* A last word to the peer that this is the end, so that it need not guess. */
void link_say_end(struct link *l);

enum { LINK_SILENCE_MS = 30000 };

/* Read what there is. 0, or -EPIPE when the peer is gone (frames read before may still be pulled);
 * with TLS also what tls_feed() says. */
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
/* Is there something that the kernel would not take? Then poll for POLLOUT. */
bool link_unsent_tls(const struct link *l);
static inline bool link_unsent(const struct link *l)
{
    return l->fd >= 0 && (l->tls ? link_unsent_tls(l) : l->out.len > 0);
}

/* Has the machine at the other end confirmed all that was sent? Over TCP only. */
bool link_confirmed(const struct link *l);

/* The parts of link_fill(), link_flush() and link_close() that know of TLS. */
int link_fill_tls(struct link *l);
int link_flush_tls(struct link *l);
void link_close_tls(struct link *l);

#endif
