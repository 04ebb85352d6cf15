/* The server that MPICH's processes dial (PMI_PORT), which mpiexec would be otherwise. */
#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "rendezvous/pmi.h"
#include "rendezvous/rendezvous_int.h"
#include "rendezvous/server.h"

enum {
    HELLO_MS = 10000, /* to say which rank it is */
    PEERS_MAX = 65536,
};

struct pmi_server {
    struct service_head head;
    struct server server;
    struct pmi pmi;
    void (*on_abort)(uint32_t rank, int exit_code, void *arg);
    void *arg;
};

struct speaker {
    struct server_peer peer;
    struct pmi_rank rank; /* rank.in.max 0: it has not said anything */
};

static struct pmi_server *server_of(const struct server_peer *p)
{
    return CONTAINER_OF(p->server, struct pmi_server, server);
}

/* A peer that is gone meanwhile is missed by the tasks' own ends. */
static void barrier_out(struct pmi_server *s)
{
    struct server_peer *next;
    for (struct server_peer *p = s->server.peers; p; p = next) {
        next = p->next;
        if (CONTAINER_OF(p, struct speaker, peer)->rank.ready)
            (void)server_send(p, PMI_BARRIER_OUT, sizeof PMI_BARRIER_OUT - 1);
    }
}

static void on_bytes(struct server_peer *p, const char *bytes, size_t n)
{
    struct speaker *x = CONTAINER_OF(p, struct speaker, peer);
    struct pmi_server *s = server_of(p);
    AUTO(buf_done) struct buf out = { 0 };
    int code = 0;
    if (!x->rank.in.max)
        pmi_rank_init(&x->rank);
    enum pmi_what what = pmi_feed(&s->pmi, &x->rank, span_mem(bytes, n), &out, &code);
    if (x->rank.rank >= 0)
        p->deadline_ms = INT64_MAX;
    if (out.len && !server_send(p, out.p, out.len))
        return;
    switch (what) {
    case PMI_MORE:
        break;
    case PMI_BARRIER:
        barrier_out(s); /* p may be gone after it; whoever waits for the barrier says no more */
        break;
    case PMI_ABORT: /* it waits to be killed */
        s->on_abort((uint32_t)x->rank.rank, code, s->arg);
        break;
    case PMI_BAD:
        log_event(LOG_WARN, "pmi.refused", f_int("rank", x->rank.rank));
        server_drop(p);
        break;
    }
}

static void on_gone(struct server_peer *p)
{
    struct speaker *x = CONTAINER_OF(p, struct speaker, peer);
    if (x->rank.in.max)
        pmi_rank_done(&server_of(p)->pmi, &x->rank);
}

static const struct server_ops ops = { .peer_size = sizeof(struct speaker),
                                       .first_ms = HELLO_MS,
                                       .peers_max = PEERS_MAX,
                                       .on_bytes = on_bytes,
                                       .on_gone = on_gone };

static int start(const struct service_config *cfg, struct service **out, struct err *e)
{
    struct pmi_server *s = calloc(1, sizeof *s);
    if (!s || pmi_init(&s->pmi, cfg->application_id, cfg->n_ranks, cfg->hosts) < 0) {
        free(s);
        return err_set(e, ENOMEM, "no memory for a PMI server");
    }
    s->head.ops = &service_pmi;
    s->on_abort = cfg->on_abort;
    s->arg = cfg->arg;
    int rc = server_open(&s->server, cfg->loop, cfg->host, &ops, e);
    if (rc < 0) {
        pmi_done(&s->pmi);
        free(s);
        return rc;
    }
    *out = (struct service *)(void *)s;
    return 0;
}

static uint16_t port(const struct service *s)
{
    return server_port(&((const struct pmi_server *)(const void *)s)->server);
}

static void stop(struct service *s)
{
    struct pmi_server *x = (struct pmi_server *)(void *)s;
    server_close(&x->server);
    pmi_done(&x->pmi);
    free(x);
}

const struct service_ops service_pmi = {
    .name = "pmi", .start = start, .port = port, .stop = stop
};
