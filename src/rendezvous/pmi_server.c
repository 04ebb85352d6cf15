/* SPDX-License-Identifier: Apache-2.0 */
/* The PMI server (variable PMI_PORT) to which MPICH's processes connect. Without tony, mpiexec
 * would run it. */
#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/util.h"
#include "rendezvous/pmi.h"
#include "rendezvous/rendezvous_int.h"
#include "rendezvous/server.h"

enum {
    HELLO_MS = 10000, /* time in which a peer must say its rank */
    PEERS_MAX = 65536,
};

struct pmi_server {
    struct server_service base;
    struct pmi pmi;
    void (*on_abort)(uint32_t rank, int exit_code, void *arg);
    void *arg;
};

struct speaker {
    struct server_peer peer;
    struct pmi_rank rank; /* rank.in.max 0: no bytes were received yet */
};

static struct pmi_server *server_of(const struct server_peer *p)
{
    return CONTAINER_OF(p->server, struct pmi_server, base.server);
}

/* Send the end of the barrier to all ranks. An error is ignored: if a rank has died, tony learns of
 * that from its task. */
static void barrier_out(struct pmi_server *s)
{
    struct server_peer *next;
    for (struct server_peer *p = s->base.server.peers; p; p = next) {
        next = p->next;
        if (CONTAINER_OF(p, struct speaker, peer)->rank.ready)
            (void)server_send(p, PMI_BARRIER_OUT, sizeof PMI_BARRIER_OUT - 1);
    }
}

static void refuse(struct speaker *x)
{
    struct err e = { 0 };
    if (x->rank.rank >= 0)
        (void)err_set(&e, EPROTO, "rank %d does not speak PMI-1 as MPICH does", (int)x->rank.rank);
    else
        (void)err_set(&e, EPROTO, "a peer of the PMI server is not a rank of the job");
    server_refuse(&x->peer, &e);
}

static void on_bytes(struct server_peer *p, const char *bytes, size_t n)
{
    struct speaker *x = CONTAINER_OF(p, struct speaker, peer);
    struct pmi_server *s = server_of(p);
    AUTO(buf_done) struct buf out = { 0 };
    int code = 0;
    if (!x->rank.in.max)
        pmi_rank_init(&x->rank);
    s->pmi.bytes_max = server_room(p->server);
    enum pmi_what what = pmi_feed(&s->pmi, &x->rank, span_mem(bytes, n), &out, &code);
    p->server->stored = s->pmi.bytes;
    if (x->rank.rank >= 0)
        p->deadline_ms = INT64_MAX;
    if (out.len && !server_send(p, out.p, out.len))
        return;
    switch (what) {
    case PMI_MORE:
        break;
    case PMI_BARRIER:
        barrier_out(s); /* ranks in a barrier send nothing, so no input is left */
        break;
    case PMI_ABORT: /* the rank waits until the executor kills it */
        if (s->on_abort)
            s->on_abort((uint32_t)x->rank.rank, code, s->arg);
        break;
    case PMI_BAD:
        refuse(x);
        break;
    }
}

static void on_gone(struct server_peer *p)
{
    struct speaker *x = CONTAINER_OF(p, struct speaker, peer);
    if (x->rank.in.max)
        pmi_rank_done(&server_of(p)->pmi, &x->rank);
}

static size_t held(const struct server_peer *p)
{
    return CONTAINER_OF(p, struct speaker, peer)->rank.in.cap;
}

static const struct server_ops ops = { .what = "MPI's ranks",
                                       .peer_size = sizeof(struct speaker),
                                       .first_ms = HELLO_MS,
                                       .peers_max = PEERS_MAX,
                                       .on_bytes = on_bytes,
                                       .on_gone = on_gone,
                                       .held = held };

static struct pmi_server *of(struct service *s)
{
    return (struct pmi_server *)(void *)s;
}

static int pmi_open(const struct service_config *cfg, struct service **out, struct err *e)
{
    struct pmi_server *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ENOMEM, "cannot serve MPI's ranks: %m");
    s->base.head.ops = &service_pmi;
    s->on_abort = cfg->on_abort;
    s->arg = cfg->arg;
    int rc = server_open(&s->base.server, cfg, &ops, e);
    if (rc < 0) {
        free(s);
        return rc;
    }
    *out = (struct service *)(void *)s;
    return 0;
}

static int begin(struct service *s, const struct service_job *job, struct err *e)
{
    int rc = pmi_init(&of(s)->pmi, job->application_id, job->n_ranks, job->hosts);
    return rc < 0 ? err_set(e, -rc, "cannot serve MPI's ranks: %m") : 0;
}

static void pmi_close(struct service *s)
{
    server_close(&of(s)->base.server);
    pmi_done(&of(s)->pmi);
    free(s);
}

const struct service_ops service_pmi = { .name = "pmi",
                                         .open = pmi_open,
                                         .begin = begin,
                                         .fd = server_service_fd,
                                         .port = server_service_port,
                                         .turn = server_service_turn,
                                         .tick = server_service_tick,
                                         .close = pmi_close };
