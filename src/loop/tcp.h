/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host names, TCP streams and TCP listeners on the loop.
 *
 * The C library's resolver does not work in a static program, so it is not used here. Numeric
 * addresses and "localhost" need no look-up; c-ares looks up all other names in /etc/hosts and with
 * the name servers.
 *
 * A callback never comes before the call that causes it has returned, and none comes after the
 * object was closed. A deadline is an absolute time in ms of clock_mono_ms(); 0 = TCP_DIAL_MS from
 * now.
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
    TCP_QUEUE_MAX = 64 << 20, /* bytes of one stream that wait for the kernel; more: -ENOBUFS */
    TCP_HOST_MAX = 253,       /* bytes of a DNS name */
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

/* Split "host", "host:port" or "[v6]:port". dflt_port: the port if the text has none; 0 = the text
 * must have one. out_host has at least TCP_HOST_MAX + 1 bytes. */
int tcp_split(const char *text, uint16_t dflt_port, char *out_host, uint16_t *out_port,
              struct err *e);
/* Convert a numeric address or "localhost" (127.0.0.1). false: host is a name. */
bool tcp_numeric(const char *host, uint16_t port, struct tcp_address *out);
const char *tcp_text(const struct tcp_address *a, bool with_port, char *buf, size_t n);
socklen_t tcp_address_len(const struct tcp_address *a);

/* ---- ports ---- */

/* Open a listener on one of the ports of tony.port-range: call open_at() with each port from first
 * to last, until it does not return -EADDRINUSE. first 0: the key is not set, so open_at() gets
 * port 0, any free port. Returns what open_at() has returned last. */
int tcp_open_among(uint16_t first, uint16_t last,
                   int (*open_at)(void *arg, uint16_t port, struct err *e), void *arg,
                   struct err *e);

/* ---- names ---- */

struct tcp_resolve;
/* Look up a host. done() gets n >= 1 addresses, which are borrowed; or e->num != 0 (ENOENT: no such
 * name; ETIMEDOUT; EAGAIN: the name servers do not answer). *out is freed after done(). */
int tcp_resolve(struct loop *l, const char *host, uint16_t port, int64_t deadline_ms,
                void (*done)(const struct tcp_address *v, size_t n, const struct err *e, void *arg),
                void *arg, struct tcp_resolve **out, struct err *e);
void tcp_resolve_cancel(struct tcp_resolve *r); /* only before done(); NULL is accepted */

/* ---- streams ---- */

struct tcp;

struct tcp_ops {
    void (*on_open)(struct tcp *t, void *arg); /* outgoing connections only; may be NULL */
    void (*on_read)(struct tcp *t, const char *p, size_t n, void *arg);
    void (*on_drain)(struct tcp *t, void *arg); /* the kernel has all written bytes; may be NULL */
    /* The peer will send nothing more, but this side may still write. NULL: treat that as the end
     * of the stream, with on_close(). */
    void (*on_end)(struct tcp *t, void *arg);
    /* Called once, when the stream has ended. e->num 0: the peer has closed it in order. The loop
     * frees the stream after this returns. Not called after tcp_close(). */
    void (*on_close)(struct tcp *t, const struct err *e, void *arg);
};

/* Connect to a host: tries its addresses one after the other until one accepts. Sets TCP_NODELAY
 * and keepalive. Bytes that are written before on_open() are queued. A failure comes through
 * on_close(), with a sentence that names host and port: ECONNREFUSED, ETIMEDOUT, ENOENT (no such
 * name), ... */
int tcp_dial(struct loop *l, const char *host, uint16_t port, int64_t deadline_ms,
             const struct tcp_ops *ops, void *arg, struct tcp **out, struct err *e);
int tcp_write(struct tcp *t, const void *p, size_t n); /* copies; 0, -EPIPE, -ENOBUFS, -ENOMEM */
void tcp_end(struct tcp *t); /* sends the queued bytes, then shuts down the sending side */
void tcp_pause(struct tcp *t, bool pause); /* stops or continues reading */
void tcp_close(struct tcp *t); /* closes at once and drops queued bytes; NULL is accepted */
void tcp_set_arg(struct tcp *t, const struct tcp_ops *ops, void *arg);
size_t tcp_queued(const struct tcp *t);
int tcp_local(const struct tcp *t, struct tcp_address *out);

/* ---- listeners ---- */

/* Listen on a numeric address ("0.0.0.0", "127.0.0.1", "::"; NULL = all IPv4 addresses) and a port
 * (0 = any free port). on_accept gets a stream without ops, which the loop does not read. If
 * on_accept does not call tcp_set_arg(), the loop closes the stream. */
int listener_open_tcp(struct loop *l, const char *address, uint16_t port,
                      void (*on_accept)(struct tcp *t, void *arg), void *arg, struct listener **out,
                      struct err *e);
uint16_t listener_port(const struct listener *s); /* 0: not a TCP listener */
/* Of a TCP listener on a loopback address: close connections of other users (base/sockowner.h). */
void listener_own_peers(struct listener *s);

#endif
