/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous server for Horovod's ranks. Each generation of the gang gets a new, empty store in
 * the memory of the executor: entries of an earlier generation would name peers that have ended.
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
};

struct horovod {
    struct server_service base;
    struct kv kv;
};

struct asker {
    struct server_peer peer;
    struct kv_request request;
};

static void on_bytes(struct server_peer *p, const char *bytes, size_t n)
{
    struct asker *a = CONTAINER_OF(p, struct asker, peer);
    struct horovod *h = CONTAINER_OF(p->server, struct horovod, base.server);
    AUTO(buf_done) struct buf out = { 0 };
    h->kv.bytes_max = server_room(p->server);
    int rc = kv_feed(&h->kv, &a->request, span_mem(bytes, n), &out);
    p->server->stored = h->kv.bytes;
    if (rc < 0)
        server_drop(p);
    else if (rc == 1 && server_send(p, out.p, out.len))
        server_end(p);
}

static void on_gone(struct server_peer *p)
{
    kv_request_done(&CONTAINER_OF(p, struct asker, peer)->request);
}

static size_t held(const struct server_peer *p)
{
    return CONTAINER_OF(p, struct asker, peer)->request.in.cap;
}

static const struct server_ops ops = { .what = "Horovod's ranks",
                                       .peer_size = sizeof(struct asker),
                                       .first_ms = REQUEST_MS,
                                       .peers_max = PEERS_MAX,
                                       .on_bytes = on_bytes,
                                       .on_gone = on_gone,
                                       .held = held };

static struct horovod *of(struct service *s)
{
    return (struct horovod *)(void *)s;
}

static int horovod_open(const struct service_config *cfg, struct service **out, struct err *e)
{
    struct horovod *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(e, ENOMEM, "cannot serve Horovod's ranks: %m");
    h->base.head.ops = &service_horovod;
    kv_init(&h->kv, cfg->max_bytes);
    int rc = server_open(&h->base.server, cfg, &ops, e);
    if (rc < 0) {
        free(h);
        return rc;
    }
    *out = (struct service *)(void *)h;
    return 0;
}

static void horovod_close(struct service *s)
{
    struct horovod *h = of(s);
    server_close(&h->base.server);
    kv_done(&h->kv);
    free(h);
}

const struct service_ops service_horovod = { .name = "horovod",
                                             .open = horovod_open,
                                             .fd = server_service_fd,
                                             .port = server_service_port,
                                             .turn = server_service_turn,
                                             .tick = server_service_tick,
                                             .close = horovod_close };
