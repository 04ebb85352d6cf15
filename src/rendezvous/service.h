/*
 * Servers by which the ranks of a job find each other. A framework names the one it needs (struct
 * runtime, service); the master runs it on its loop and tells its address to the tasks, whose
 * environment is built with it (struct rt_input, service).
 *
 * One server lives for one generation of the gang: the next one gets a fresh one, with nothing of
 * the old in it and on another port. It listens on the one address by which the tasks reach the
 * master, and nowhere else. None of these protocols knows who is asking, so that whoever can reach
 * the port can speak: each server bounds its connections, its bytes and its time by constants of
 * its own, and nothing that comes in may end the master.
 *
 * A server is one file, which keeps its protocol apart from the loop (bytes in, bytes out) so that
 * it is tested and fuzzed without sockets, and one row in services.c.
 */
#ifndef TONY_RENDEZVOUS_SERVICE_H
#define TONY_RENDEZVOUS_SERVICE_H

#include <stdint.h>

struct err;
struct loop;

struct service_config { /* borrowed for the call of start() */
    struct loop *loop;
    const char *host; /* numeric: listen here, on any port */
    const char *application_id;
    uint32_t generation, n_ranks; /* ranks of all tracked tasks */
    const char *const *hosts;     /* numeric, by rank; "" = not known */
    /* A rank asks that the job ends with this code. May be called more than once; not after stop().
     */
    void (*on_abort)(uint32_t rank, int exit_code, void *arg);
    void *arg;
};

struct service; /* each server's own, which begins with a struct service_head */

struct service_ops {
    const char *name;
    int (*start)(const struct service_config *cfg, struct service **out, struct err *e);
    uint16_t (*port)(const struct service *s);
    /* At once, with all its connections. May be called from within on_abort(). */
    void (*stop)(struct service *s);
};

struct service_head {
    const struct service_ops *ops;
};

const struct service_ops *service_find(const char *name); /* NULL = there is none of that name */
int service_start(const char *name, const struct service_config *cfg, struct service **out,
                  struct err *e);
uint16_t service_port(const struct service *s);
void service_stop(struct service *s); /* NULL is fine */

#endif
