/*
 * The rendezvous server of Horovod's ranks. What one generation has left there would send the next
 * to peers that are gone, so each has its own store, which lies in the memory of the master.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/util.h"
#include "rendezvous/kv.h"
#include "rendezvous/rendezvous_int.h"
#include "rendezvous/server.h"

enum {
    REQUEST_MS = 10000,
    PEERS_MAX = 4096,
    /* Each rank puts an address for every other one, in three scopes and again for process sets. */
    RANK_BYTES = 256,
    SCOPES = 8,
    BYTES_MIN = 4 << 20,
};
static const size_t BYTES_MAX = (size_t)1 << 30;

struct horovod {
    struct service_head head;
    struct server server;
    struct kv kv;
};

struct asker {
    struct server_peer peer;
    struct kv_request request;
};

static void on_bytes(struct server_peer *p, const char *bytes, size_t n)
{
    struct asker *a = CONTAINER_OF(p, struct asker, peer);
    struct horovod *h = CONTAINER_OF(p->server, struct horovod, server);
    AUTO(buf_done) struct buf out = { 0 };
    int rc = kv_feed(&h->kv, &a->request, span_mem(bytes, n), &out);
    if (rc < 0)
        server_drop(p);
    else if (rc == 1 && server_send(p, out.p, out.len))
        server_end(p);
}

static void on_gone(struct server_peer *p)
{
    kv_request_done(&CONTAINER_OF(p, struct asker, peer)->request);
}

static const struct server_ops ops = { .peer_size = sizeof(struct asker),
                                       .first_ms = REQUEST_MS,
                                       .peers_max = PEERS_MAX,
                                       .on_bytes = on_bytes,
                                       .on_gone = on_gone };

static int start(const struct service_config *cfg, struct service **out, struct err *e)
{
    struct horovod *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(e, ENOMEM, "no memory for a rendezvous server");
    size_t n = cfg->n_ranks;
    h->head.ops = &service_horovod;
    kv_init(&h->kv, MIN(BYTES_MIN + n * (n + 16) * RANK_BYTES * SCOPES, BYTES_MAX));
    int rc = server_open(&h->server, cfg->loop, cfg->host, &ops, e);
    if (rc < 0) {
        free(h);
        return rc;
    }
    *out = (struct service *)(void *)h;
    return 0;
}

static uint16_t port(const struct service *s)
{
    return server_port(&((const struct horovod *)(const void *)s)->server);
}

static void stop(struct service *s)
{
    struct horovod *h = (struct horovod *)(void *)s;
    server_close(&h->server);
    kv_done(&h->kv);
    free(h);
}

const struct service_ops service_horovod = {
    .name = "horovod", .start = start, .port = port, .stop = stop
};
