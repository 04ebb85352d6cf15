/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers by which the ranks of a job find each other. A framework names the one it needs (struct
 * runtime, server); the executor of rank 0's task has it (decision 0010), at the address that this
 * task has told anyway.
 *
 * One server lives for one generation of the gang: the next one gets a fresh one, with nothing of
 * the old in it and on another port. It listens on the one address by which the tasks reach each
 * other, and nowhere else. None of these protocols knows who is asking, so that whoever can reach
 * the port can speak: each server bounds its connections, its bytes and its time by constants of
 * its own, and nothing that comes in may end the executor.
 *
 * A server is one file, which keeps its protocol apart from the network (bytes in, bytes out) so
 * that it is tested and fuzzed without sockets, and one row in services.c. There is no event loop
 * where it runs: one descriptor to poll, one call when it is ready, one now and then.
 */
#ifndef TONY_RENDEZVOUS_SERVICE_H
#define TONY_RENDEZVOUS_SERVICE_H

#include <stddef.h>
#include <stdint.h>

struct err;

struct service_config { /* strings are borrowed for the call of open() */
    const char *host;   /* numeric: listen here */
    uint16_t port;      /* 0 = any; the caller may hold it with SO_REUSEPORT */
    size_t max_bytes;   /* what all that it is told may take */
    /* What was wrong with a client that had to go; of many only the first ones. May be NULL. */
    void (*on_refused)(const struct err *why, void *arg);
    /* A rank asks that the job ends with this code. May be called more than once. May be NULL. */
    void (*on_abort)(uint32_t rank, int exit_code, void *arg);
    void *arg;
};

struct service_job { /* who will come; borrowed for the call of begin() */
    const char *application_id;
    uint32_t n_ranks;         /* of all tracked tasks */
    const char *const *hosts; /* numeric, by rank; "" = not known */
};

struct service; /* each server's own, which begins with a struct service_head */

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

const struct service_ops *service_find(const char *name); /* NULL = there is none of that name */
/* It listens from now on; who connects waits in the kernel until it has begun. */
int service_open(const char *name, const struct service_config *cfg, struct service **out,
                 struct err *e);
/* Once, before any turn. */
int service_begin(struct service *s, const struct service_job *job, struct err *e);
uint16_t service_port(const struct service *s);
int service_fd(const struct service *s); /* readable: call turn() */
void service_turn(struct service *s);    /* do what can be done at once */
/* About once a second: monotonic ms. What has been silent for too long goes. */
void service_tick(struct service *s, int64_t now_ms);
void service_close(struct service *s); /* at once, with all connections; NULL is fine */

#endif
