/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop of client, master and pool. A process has one loop and one thread. The loop uses
 * libuv; only src/loop includes libuv's headers.
 *
 * An object is freed by its `_free` or `_close` function. That function may be called at any time,
 * also inside a callback of the object; after it, no callback of the object comes any more. NULL is
 * accepted. Only loop_run() blocks. A deadline is an absolute time in ms of clock_mono_ms().
 */
#ifndef TONY_LOOP_LOOP_H
#define TONY_LOOP_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "codec/tls.h"

struct err;
struct loop;
struct loop_timer;
struct loop_signal;
struct loop_fd;
struct listener;
struct conn;
typedef struct Tony__Frame Tony__Frame;

struct loop *loop_new(struct err *e); /* NULL: e is set. Also ignores SIGPIPE. */
/* Close and free all objects. Waits until running loop_work() has finished; calls its done(). */
void loop_free(struct loop *l);
int loop_run(struct loop *l); /* returns after loop_stop(), or when no object can cause an event */
void loop_stop(struct loop *l);
/* Send the queued bytes of all connections now, as many as the kernel accepts without waiting. For
 * the last messages after loop_run(). */
void loop_flush(struct loop *l);
/* The same within fn of loop_on_flush(): does not call fn. */
void loop_send_queued(struct loop *l);
/* The loop calls fn each time after a batch of callbacks, before it waits for the next event. fn
 * may write the results of the whole batch at once. */
void loop_on_flush(struct loop *l, void (*fn)(void *arg), void *arg);

/* A timer that is not set. NULL = no memory. */
struct loop_timer *loop_timer_new(struct loop *l, void (*fn)(void *arg), void *arg);
/* Call fn once at the deadline. Replaces a deadline that was set before. */
void loop_timer_set(struct loop_timer *t, int64_t deadline_ms);
void loop_timer_stop(struct loop_timer *t);
void loop_timer_free(struct loop_timer *t);

struct loop_signal *loop_signal_new(struct loop *l, int signo, void (*fn)(int signo, void *arg),
                                    void *arg);
void loop_signal_free(struct loop_signal *s);

/* Call fn whenever a descriptor (a pidfd, a pipe) is readable. The caller keeps and closes it,
 * after loop_fd_free(). NULL also for a regular file, which can always be read. */
struct loop_fd *loop_fd_new(struct loop *l, int fd, void (*fn)(void *arg), void *arg);
/* Call fn when the descriptor is readable, or writable; neither: do not call it. */
void loop_fd_want(struct loop_fd *f, bool readable, bool writable);
void loop_fd_free(struct loop_fd *f);

/* Run fn(arg) on a thread of the thread pool, then done(arg, its result) on the loop thread. From
 * this call until done(), only fn may use what arg points to. 0 or -errno. */
int loop_work(struct loop *l, int (*fn)(void *arg), void (*done)(void *arg, int rc), void *arg);
/* The first loop_work() of this process starts one thread. By default it starts four. */
void loop_one_thread(struct loop *l);

/* ---- framed connections ---- */

/* A frame that is packed once and sent on many connections without copies. It never changes. */
struct packed;
/* The caller has one reference. NULL = no memory, or the frame is too large. */
struct packed *packed_new(const Tony__Frame *msg);
/* A part of a frame that is put together by hand. All parts of a frame, the length before it
 * included, must be sent on a connection one after the other. NULL = no memory. */
struct packed *packed_part(const void *bytes, size_t n);
size_t packed_len(const struct packed *p);
struct packed *packed_ref(struct packed *p);
void packed_unref(struct packed *p);

struct conn_ops {
    /* Outgoing connections only: the connection is established. May be NULL. */
    void (*on_open)(struct conn *c, void *arg);
    void (*on_frame)(struct conn *c, const Tony__Frame *f, void *arg); /* f: valid in this call */
    /* Called once, when the connection has ended or the peer has sent something else than a frame.
     * e says why. e->num 0: the peer has closed the connection in order. ESHUTDOWN: a TLS
     * connection has ended without the peer's closing message, so the peer has died and its kernel
     * has closed the socket.
     *
     * The loop frees the conn after this returns, unless the owner calls conn_close() in it. Not
     * called after conn_close(). */
    void (*on_close)(struct conn *c, const struct err *e, void *arg);
};

/* Connect to a unix socket. If no process listens, fails at once (-ECONNREFUSED, -ENOENT). */
int conn_dial_unix(struct loop *l, const char *path, const struct conn_ops *ops, void *arg,
                   struct conn **out, struct err *e);
/* Pack and queue a frame. 0, -ENOMEM, -EPIPE (the connection has ended) or -ENOBUFS (the queue
 * would exceed CONN_QUEUE_MAX). */
int conn_send(struct conn *c, const Tony__Frame *msg);
int conn_send_packed(struct conn *c, struct packed *p); /* the caller keeps its reference */
/* Queue a JSON document as an Answer, in several frames if it is long. Only the first frame must
 * fit under CONN_QUEUE_MAX. Errors as of conn_send(); the connection has ended then. */
int conn_send_answer(struct conn *c, struct span json);
void conn_close(struct conn *c);  /* closes at once and drops queued bytes; NULL is accepted */
void conn_finish(struct conn *c); /* sends the queued bytes, then closes; no more callbacks */
/* Replace ops and arg. If ops is NULL or has no on_frame, the conn is paused: the loop neither
 * reads from it nor reports its end until it gets other ops. */
void conn_set_arg(struct conn *c, const struct conn_ops *ops, void *arg);
/* The user and the process at the other end of a unix connection (SO_PEERCRED). 0 or -errno. */
int conn_peer(const struct conn *c, uid_t *out_uid, pid_t *out_pid);
size_t conn_queued(const struct conn *c); /* bytes that the kernel has not accepted yet */
/* Queued bytes of one connection. If a peer reads too slowly, its connection ends with -ENOBUFS. */
enum { CONN_QUEUE_MAX = 64 << 20 };

/* ---- streams of bytes on such a connection ---- */

struct conn_raw_ops {
    void (*on_bytes)(struct conn *c, const char *p, size_t n, void *arg);
    /* The kernel has accepted all bytes that conn_write() has queued. May be NULL. */
    void (*on_drain)(struct conn *c, void *arg);
    void (*on_close)(struct conn *c, const struct err *e, void *arg); /* as in conn_ops */
};

/* From now on the connection carries bytes and no frames. Bytes that have arrived after the last
 * frame are reported first. Call it instead of conn_set_arg(); frames that were sent before go out
 * before the bytes. */
void conn_set_raw(struct conn *c, const struct conn_raw_ops *ops, void *arg);
/* Send n bytes. What the kernel does not accept at once is copied and queued; the caller stops when
 * conn_queued() is large, and continues in on_drain(). Errors as of conn_send(). */
int conn_write(struct conn *c, const void *p, size_t n);
/* Stop or continue reading. The kernel then makes the peer wait. */
void conn_pause(struct conn *c, bool pause);
/* Has the peer disconnected? Also true if it has sent bytes before that are not read yet. */
bool conn_peer_gone(const struct conn *c);

struct splice;
/* Copy the bytes of each of two connections to the other, until one of them ends. One side is read
 * only while the other side accepts the bytes: the queue of a side has at most SPLICE_QUEUE_MAX and
 * one read. Takes a and b, also on failure. When both are closed, the splice calls done() and frees
 * itself. NULL = no memory. */
struct splice *splice_new(struct loop *l, struct conn *a, struct conn *b,
                          void (*done)(struct splice *s, void *arg), void *arg);
void splice_close(struct splice *s); /* closes both at once, without done(); NULL is accepted */
/* Bytes that went from a to b, and from b to a. */
void splice_count(const struct splice *s, uint64_t *out_ab, uint64_t *out_ba);
enum { SPLICE_QUEUE_MAX = 256 << 10 };

/* Listen on a unix socket with mode 0600. If the file exists, it is replaced: the caller must hold
 * a lock that shows that its owner is dead.
 *
 * on_accept gets a conn without ops and calls conn_set_arg(); otherwise the loop closes the conn.
 * Connections of other users, except root, are closed before. */
int listener_open_unix(struct loop *l, const char *path,
                       void (*on_accept)(struct conn *c, void *arg), void *arg,
                       struct listener **out, struct err *e);
void listener_close(struct listener *s); /* also unlinks a unix socket; NULL is accepted */

/* ---- the same over TCP, with TLS by a shared key ---- */

enum {
    CONN_HANDSHAKE_MS = 10000, /* a peer that has not proved its key by then is disconnected */
    /* The same for a peer that has proved its identity: with a thousand peers at once, the
     * handshakes themselves may take that long on a busy machine. */
    CONN_PROVED_MS = 60000,
    /* Connections to one listener whose peers have not proved an identity yet. If there are more,
     * the oldest one of the address that has most is disconnected. */
    CONN_HANDSHAKES_MAX = 1024,
};

struct conn_target {  /* conn_dial_tls() copies everything */
    const char *host; /* a name or a numeric address */
    uint16_t port;
    const char *identity;
    const struct tls_key *key;
    int64_t deadline_ms; /* for name lookup, connection and handshake in all; 0 = 20 s from now */
};

/* Connect by TLS. Returns at once; on_open() comes after the handshake. Frames that are sent before
 * are queued until then. A failure comes through on_close(), with a sentence that names host and
 * port: -ECONNREFUSED, -ETIMEDOUT, -ENOENT (no such host), -EACCES (the keys differ), ... */
int conn_dial_tls(struct loop *l, const struct conn_target *to, const struct conn_ops *ops,
                  void *arg, struct conn **out, struct err *e);

/* Listen on a numeric address (NULL = all IPv4 addresses) and a port (0 = any free port, which
 * listener_port() of loop/tcp.h returns).
 *
 * A peer whose first message proves that it has the key of its identity (codec/tls.h) always gets a
 * handshake. The others are limited by their address and in all (strangers.c). key_of is called on
 * the loop's thread only. With many handshakes at once, other threads compute them.
 *
 * on_accept gets only peers that have proved in time that they know the key of their identity. The
 * loop closes the other connections. It logs one of these per second at most, with the number of
 * those that it has not logged. */
int listener_open_tls(struct loop *l, const char *address, uint16_t port, tls_key_fn *key_of,
                      void (*on_accept)(struct conn *c, void *arg), void *arg,
                      struct listener **out, struct err *e);

/* The identity that the peer of an accepted TLS connection has proved; "" on a unix socket. */
const char *conn_identity(const struct conn *c);
/* The numeric address ("127.0.0.1", "::1") of this or the other side of an open TCP connection. An
 * array of 46 bytes is always large enough. 0 or -errno. */
int conn_local_host(const struct conn *c, char *out, size_t n);
int conn_peer_host(const struct conn *c, char *out, size_t n);

#endif
