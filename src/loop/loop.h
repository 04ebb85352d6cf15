/*
 * The event loop of client, master and pool: one loop and one thread a process, over libuv (whose
 * only users are here).
 *
 * Objects are freed by their `_free`/`_close`, which may be called at any time, inside their own
 * callbacks too; no callback of an object comes after it. Nothing here blocks except loop_run().
 * Deadlines are absolute clock_mono_ms() milliseconds.
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

struct loop *loop_new(struct err *e); /* NULL with e set; also ignores SIGPIPE */
void loop_free(struct loop *l); /* closes what is still open; waits for work under way, whose done()
                                   is still called */
int loop_run(struct loop *l);   /* until loop_stop() or nothing is left to wait for */
void loop_stop(struct loop *l);
/* Write out now what connections have queued, as far as the kernel takes it: for the last words
 * after loop_run(). */
void loop_flush(struct loop *l);
/* Called each time before the loop would block, after a batch of callbacks: the place to write a
 * batch out. */
void loop_on_flush(struct loop *l, void (*fn)(void *arg), void *arg);

struct loop_timer *loop_timer_new(struct loop *l, void (*fn)(void *arg),
                                  void *arg);                   /* NULL = no memory */
void loop_timer_set(struct loop_timer *t, int64_t deadline_ms); /* replaces; fires once */
void loop_timer_stop(struct loop_timer *t);
void loop_timer_free(struct loop_timer *t); /* NULL is fine */

struct loop_signal *loop_signal_new(struct loop *l, int signo, void (*fn)(int signo, void *arg),
                                    void *arg);
void loop_signal_free(struct loop_signal *s);

/* Watch a descriptor that stays the caller's (a pidfd, a pipe) for reading. */
struct loop_fd *loop_fd_new(struct loop *l, int fd, void (*fn)(void *arg), void *arg);
void loop_fd_free(struct loop_fd *f);

/* Run fn(arg) on the thread pool, then done(arg, rc) on the loop. The work owns what arg points to
 * until done. */
int loop_work(struct loop *l, int (*fn)(void *arg), void (*done)(void *arg, int rc), void *arg);

/* ---- framed connections ---- */

/* Immutable packed frames, shared by many sends without copies. */
struct packed;
struct packed *
packed_new(const Tony__Frame *msg); /* one reference; NULL = no memory or too large */
struct packed *packed_ref(struct packed *p);
void packed_unref(struct packed *p);

struct conn_ops {
    void (*on_open)(struct conn *c, void *arg); /* dialled connections only; may be NULL */
    void (*on_frame)(struct conn *c, const Tony__Frame *f,
                     void *arg); /* f is valid during the call */
    /* Once, when the peer is gone or sent what is no frame; e tells why (num 0: it closed in
     * order; ESHUTDOWN: its kernel did, without a word of its own, so that it has died). The conn
     * is freed by the loop after this returns unless the owner called conn_close() already. Not
     * called after conn_close(). */
    void (*on_close)(struct conn *c, const struct err *e, void *arg);
};

/* Dial a unix socket. Fails at once when nobody listens (-ECONNREFUSED, -ENOENT). */
int conn_dial_unix(struct loop *l, const char *path, const struct conn_ops *ops, void *arg,
                   struct conn **out, struct err *e);
int conn_send(struct conn *c,
              const Tony__Frame *msg); /* packs and queues; 0, -ENOMEM, -EPIPE, -ENOBUFS */
int conn_send_packed(struct conn *c, struct packed *p); /* takes no reference of the caller's */
void conn_close(struct conn *c);  /* at once; queued bytes are lost; NULL is fine */
void conn_finish(struct conn *c); /* sends what is queued, then closes; no more callbacks */
/* A conn whose ops are NULL or have no on_frame is paused: nothing is read and nothing reported
 * until it gets others. */
void conn_set_arg(struct conn *c, const struct conn_ops *ops, void *arg);
int conn_peer(const struct conn *c, uid_t *out_uid,
              pid_t *out_pid);            /* SO_PEERCRED of a unix connection */
size_t conn_queued(const struct conn *c); /* bytes not yet given to the kernel */
enum { CONN_QUEUE_MAX = 64 << 20 };       /* a peer that does not read is closed with -ENOBUFS */

/* Listen on a unix socket, mode 0600, replacing a dead one's file (the caller holds the lock that
 * says it is dead). on_accept gets a conn without ops: call conn_set_arg() in it or conn_close().
 * Peers of another uid (but root) are dropped before. */
int listener_open_unix(struct loop *l, const char *path,
                       void (*on_accept)(struct conn *c, void *arg), void *arg,
                       struct listener **out, struct err *e);
void listener_close(struct listener *s); /* unlinks the path; NULL is fine */

/* ---- the same over TCP, with TLS by a shared key ---- */

enum {
    CONN_HANDSHAKE_MS = 10000,  /* who has not shown that it knows a key by then is dropped */
    CONN_HANDSHAKES_MAX = 1024, /* of one listener at once; then the oldest is dropped */
};

struct conn_target {  /* all is copied */
    const char *host; /* a name or a numeric address */
    uint16_t port;
    const char *identity;
    const struct tls_key *key;
    int64_t deadline_ms; /* for name, connection and handshake together; 0 = 20 s from now */
};

/* Returns at once; on_open comes after the handshake, and what was sent before it waits till then.
 * Failures come through on_close: -ECONNREFUSED, -ETIMEDOUT, -ENOENT (no such host), -EACCES (the
 * keys differ), ... in a sentence that names host and port. */
int conn_dial_tls(struct loop *l, const struct conn_target *to, const struct conn_ops *ops,
                  void *arg, struct conn **out, struct err *e);

/* Listen on a numeric address (NULL = all of IPv4) and port (0 = any: listener_port() of
 * loop/tcp.h). on_accept gets only those that have shown in time that they know the key of their
 * identity; the others cost little, and are logged at most once a second, with a count. */
int listener_open_tls(struct loop *l, const char *address, uint16_t port, tls_key_fn *key_of,
                      void (*on_accept)(struct conn *c, void *arg), void *arg,
                      struct listener **out, struct err *e);

/* Who the other side of an accepted TLS connection showed to be; "" on a unix socket. */
const char *conn_identity(const struct conn *c);
/* Numeric "127.0.0.1" or "::1" of an open TCP connection's own or other side (46 bytes are enough).
 * 0, or -errno. */
int conn_local_host(const struct conn *c, char *out, size_t n);
int conn_peer_host(const struct conn *c, char *out, size_t n);

#endif
