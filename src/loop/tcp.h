/*
 * Names, TCP streams and TCP listeners on the loop.
 *
 * Nothing here uses the C library's resolver, which a static program does not have: numeric
 * addresses and "localhost" are taken as they are, all else is asked of /etc/hosts and the name
 * servers by c-ares. Callbacks never come before the call that starts them has returned, and none
 * comes after the object's close. Deadlines are absolute clock_mono_ms() milliseconds; 0 = a
 * default of TCP_DIAL_MS from now.
 */
#ifndef TONY_LOOP_TCP_H
#define TONY_LOOP_TCP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop/loop.h"

enum {
    TCP_DIAL_MS = 20000,
    TCP_QUEUE_MAX = 64 << 20, /* bytes of one stream that wait for the kernel; then -ENOBUFS */
    TCP_HOST_MAX = 253,       /* a DNS name */
    TCP_ADDRESS_TEXT = INET6_ADDRSTRLEN + 9, /* "[addr]:65535" */
};

/* ---- addresses ---- */

struct tcp_address {
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    };
};

/* "host", "host:port", "[v6]:port"; dflt_port 0 = a port must be there. out_host has at least
 * TCP_HOST_MAX + 1 bytes. */
int tcp_split(const char *text, uint16_t dflt_port, char *out_host, uint16_t *out_port,
              struct err *e);
/* A numeric address or "localhost" (127.0.0.1), without asking anybody. */
bool tcp_numeric(const char *host, uint16_t port, struct tcp_address *out);
const char *tcp_text(const struct tcp_address *a, bool with_port, char *buf, size_t n);
socklen_t tcp_address_len(const struct tcp_address *a);

/* ---- names ---- */

struct tcp_resolve;
/* done() gets n >= 1 addresses, or e->num != 0 (-ENOENT: no such name; -ETIMEDOUT; -EAGAIN: the
 * name servers do not answer); v is borrowed. The object is gone after it. */
int tcp_resolve(struct loop *l, const char *host, uint16_t port, int64_t deadline_ms,
                void (*done)(const struct tcp_address *v, size_t n, const struct err *e, void *arg),
                void *arg, struct tcp_resolve **out, struct err *e);
void tcp_resolve_cancel(struct tcp_resolve *r); /* before done() only; NULL is fine */

/* ---- streams ---- */

struct tcp;

struct tcp_ops {
    void (*on_open)(struct tcp *t, void *arg); /* dialled ones; may be NULL */
    void (*on_read)(struct tcp *t, const char *p, size_t n, void *arg);
    void (*on_drain)(struct tcp *t,
                     void *arg); /* all written was given to the kernel; may be NULL */
    /* The peer sends no more; we still may. NULL: that is the end of the stream. */
    void (*on_end)(struct tcp *t, void *arg);
    /* Once, when the stream is over; e->num 0: the peer closed in order. It is freed by the loop
     * after this returns. Not called after tcp_close(). */
    void (*on_close)(struct tcp *t, const struct err *e, void *arg);
};

/* Dial a host's addresses in turn until one answers. TCP_NODELAY and keepalive are on. What is
 * written before on_open waits. Failures come through on_close: -ECONNREFUSED, -ETIMEDOUT, -ENOENT
 * (no such name), ..., in a sentence that names host and port. */
int tcp_dial(struct loop *l, const char *host, uint16_t port, int64_t deadline_ms,
             const struct tcp_ops *ops, void *arg, struct tcp **out, struct err *e);
int tcp_write(struct tcp *t, const void *p, size_t n); /* copies; 0, -EPIPE, -ENOBUFS, -ENOMEM */
void tcp_end(struct tcp *t);                           /* after what is queued: we send no more */
void tcp_pause(struct tcp *t, bool pause);             /* stop reading, or go on */
void tcp_close(struct tcp *t); /* at once; queued bytes are lost; NULL is fine */
void tcp_set_arg(struct tcp *t, const struct tcp_ops *ops, void *arg);
size_t tcp_queued(const struct tcp *t);
int tcp_local(const struct tcp *t, struct tcp_address *out);
int tcp_peer(const struct tcp *t, struct tcp_address *out);

/* ---- listeners ---- */

/* Listen on a numeric address ("0.0.0.0", "127.0.0.1", "::"; NULL = all of IPv4) and a port (0 =
 * any). on_accept gets a stream that nobody reads until it gets ops: tcp_set_arg() in it, or it is
 * closed. */
int listener_open_tcp(struct loop *l, const char *address, uint16_t port,
                      void (*on_accept)(struct tcp *t, void *arg), void *arg, struct listener **out,
                      struct err *e);
uint16_t listener_port(const struct listener *s); /* 0: not a TCP listener */

#endif
