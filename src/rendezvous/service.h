/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers by which the ranks of a job find each other. A framework names the server that it needs
 * (struct runtime, `server`). The executor of rank 0's task runs it (decision 0010), at the address
 * that this task has registered.
 *
 * A server lives for one generation of the gang. The next generation gets a new, empty server on
 * another port. The server listens only on the address that the tasks use. These protocols have no
 * authentication: every program that can reach the port can use the server. On one machine the
 * server asks the kernel who owns each connection, and closes those of other users before it reads
 * a byte (own_peers). On a cluster it knows that only of processes on its own node (own_here). So
 * each server limits connections, bytes and time, and no input may end the executor.
 *
 * Each server is one file and one row in services.c. Its protocol is separate from the network
 * code, so that tests and fuzzers need no sockets. The executor has no event loop: it polls one
 * descriptor, calls turn() when that is readable, and tick() about once a second.
 */
#ifndef TONY_RENDEZVOUS_SERVICE_H
#define TONY_RENDEZVOUS_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

struct service_config { /* strings are borrowed during open() */
    const char *host;   /* numeric address to listen on */
    uint16_t port;      /* 0 = any; the caller may hold it with SO_REUSEPORT */
    size_t max_bytes;   /* limit for all that clients store, and for all unread bytes */
    bool own_peers;     /* serve only processes of this user; host must be a loopback address */
    bool own_here;      /* of the processes on this machine serve only those of this user */
    /* A client was disconnected because of its fault; only the first few are reported. May be
     * NULL. */
    void (*on_refused)(const struct err *why, void *arg);
    /* A rank asks to end the job with this code. May be called several times. May be NULL. */
    void (*on_abort)(uint32_t rank, int exit_code, void *arg);
    void *arg;
};

struct service_job { /* the ranks of the job; borrowed during begin() */
    const char *application_id;
    uint32_t n_ranks;         /* ranks of all tracked tasks */
    const char *const *hosts; /* numeric, by rank; "" = unknown */
};

struct service; /* each server has its own struct, which begins with a struct service_head */

struct service_ops {
    const char *name;
    int (*open)(const struct service_config *cfg, struct service **out, struct err *e);
    int (*begin)(struct service *s, const struct service_job *job, struct err *e); /* may be NULL */
    int (*fd)(const struct service *s);
    uint16_t (*port)(const struct service *s);
    void (*turn)(struct service *s);
    void (*tick)(struct service *s, int64_t now_ms); /* may be NULL */
    void (*close)(struct service *s);
};

struct service_head {
    const struct service_ops *ops;
};

/* NULL = there is no server of this name. */
const struct service_ops *service_find(const char *name);
/* Start to listen. Connections wait in the kernel until service_begin(). */
int service_open(const char *name, const struct service_config *cfg, struct service **out,
                 struct err *e);
/* Call it once, before the first service_turn(). */
int service_begin(struct service *s, const struct service_job *job, struct err *e);
uint16_t service_port(const struct service *s);
int service_fd(const struct service *s); /* when it is readable, call service_turn() */
void service_turn(struct service *s);    /* handle all events without waiting */
/* Call it about once a second; now_ms is monotonic. It drops connections past their deadline. */
void service_tick(struct service *s, int64_t now_ms);
void service_close(struct service *s); /* closes all connections at once; NULL is fine */

#endif
