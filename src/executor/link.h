/* SPDX-License-Identifier: Apache-2.0 */
/* A framed connection over a unix socket, or over TCP with TLS (link_tls.c). It never blocks.
 * Keeper and executor use it, because they have no event loop: the owner of a link polls its
 * descriptor. */
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
    bool ended;      /* the peer has closed the connection; `in` may still have frames */
    bool connecting; /* TCP only: poll for POLLOUT, then link_connected() */
    struct tls *tls; /* owned; NULL on a unix socket. Until the handshake is over, plaintext waits
                        in `out` */
    struct err *why; /* with tls: receives its errors; borrowed, may be NULL */
};

/* Connect. 0 or -errno; -ECONNREFUSED, -ENOENT: no process listens; -EAGAIN: its queue is full. */
int link_dial(struct link *l, const char *path);
/* Listen on a socket with mode 0600. If the file exists, it is replaced: the caller holds a lock
 * which shows that its owner is dead. Returns the descriptor or -errno. */
int link_listen(const char *path, struct err *e);
/* Listen on a socket that the parent of this process has made at `path` and listens on. Returns 0;
 * -EBADF: fd is no such socket. */
int link_inherit(int fd, const char *path);
/* Accept one connection of the same user or of root; connections of others are closed. 1 =
 * accepted, 0 = none waits. */
int link_accept(int listen_fd, struct link *out);

void link_close(struct link *l); /* drops unsent bytes; a second call has no effect */

/* Start to connect over TCP; 0 = the connection is being made. Takes tls, also on failure. If the
 * peer does not confirm sent bytes for LINK_SILENCE_MS, the connection breaks. */
int link_dial_tls(struct link *l, const struct sockaddr *to, size_t to_len, struct tls *tls);
int link_connected(struct link *l); /* 0, -EINPROGRESS (not yet), or why it failed */
/* Make a link of a connected socket. Takes fd and tls. */
void link_of_tls(struct link *l, int fd, struct tls *tls);
/* The numeric address of this side, IPv6 in brackets, as in "host:port". */
int link_host(const struct link *l, char *out, size_t size);
/* Tell the peer that the connection ends in order (TLS close_notify). */
void link_send_close_notify(struct link *l);

enum { LINK_SILENCE_MS = 30000 };

/* Read all available bytes. 0, or -EPIPE: the connection has ended (link_next() may still return
 * frames); with TLS also the errors of tls_feed(). */
int link_fill(struct link *l);
/* Get the next frame. 1: *out is valid until the next link_next() of any link; 0: none is complete;
 * -EPROTO: the bytes are no frame. */
int link_next(struct link *l, const Tony__Frame **out, struct err *e);

/* Pack and send a frame; bytes that the kernel does not accept are queued. 0, -EPIPE (the
 * connection has ended), -ENOBUFS (the peer does not read), -ENOMEM. */
int link_send(struct link *l, const Tony__Frame *msg);
/* Pack a frame. It is sent with the next one, or when the owner has polled for link_unsent(). */
int link_queue(struct link *l, const Tony__Frame *msg);
int link_flush(struct link *l);
/* Are bytes queued that the kernel did not accept? Then poll for POLLOUT. */
bool link_unsent_tls(const struct link *l);
static inline bool link_unsent(const struct link *l)
{
    return l->fd >= 0 && (l->tls ? link_unsent_tls(l) : l->out.len > 0);
}

/* TCP only: has the kernel of the other machine confirmed all sent bytes? */
bool link_confirmed(const struct link *l);

/* The TLS parts of link_fill(), link_flush() and link_close(). */
int link_fill_tls(struct link *l);
int link_flush_tls(struct link *l);
void link_close_tls(struct link *l);

#endif
