/* SPDX-License-Identifier: Apache-2.0 */
/* A container that the cluster has given up while its executor lives on. */
#include "master_world_int.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "loop/loop.h"

bool world_wrote(const struct world *w, const char *event, const char *slot)
{
    AUTO(free_p) char *path = fs_join(w->job_dir, "journal");
    AUTO(buf_done) struct buf text = { 0 };
    struct err e = { 0 };
    char name[80], number[40];
    struct span rest, line;
    if (fs_read(AT_FDCWD, path, &text, &e) < 0)
        world_die("journal", &e);
    (void)snprintf(name, sizeof name, "\"e\":\"%s\"", event);
    (void)snprintf(number, sizeof number, "\"slot\":%s,", slot ? slot : "");
    rest = buf_span(&text);
    while (span_split(&rest, '\n', &line))
        if (memmem(line.p, line.len, name, strlen(name)) &&
            (!slot || memmem(line.p, line.len, number, strlen(number))))
            return true;
    return false;
}

static bool key_of(const char *identity, struct tls_key *out, void *arg)
{
    const struct box *b = arg;
    char own[TLS_IDENTITY_MAX];
    if (!job_key_identity(b->id, own) || !str_eq(identity, own))
        return false;
    job_key_container(&b->w->key, b->id, out);
    return true;
}

static void on_call(struct conn *c, void *arg)
{
    struct box *b = arg;
    b->w->n_calls++;
    conn_close(b->conn); /* the connection from a newer master replaces this one */
    b->conn = c;
    conn_set_arg(c, &world_box_ops, b);
    world_box_open(c, b);
}

/* Another process listens at a port of the dead executor. */
static bool deny(const char *identity, struct tls_key *out, void *arg)
{
    struct box *b = arg;
    (void)identity;
    (void)out;
    b->w->n_calls++;
    return false;
}

static void listen_for_call(struct box *b, tls_key_fn *who)
{
    struct tls_key key;
    uint16_t ports[JOB_KEY_PORTS];
    struct err e = { 0 };
    job_key_container(&b->w->key, b->id, &key);
    job_key_ports(&key, (struct job_ports){ 0 }, ports);
    for (size_t i = 0; i < JOB_KEY_PORTS && !b->listener; i++)
        (void)listener_open_tls(b->w->loop, "127.0.0.1", ports[i], who, on_call, b, &b->listener,
                                &e);
    if (!b->listener)
        world_die("the executor cannot listen", &e);
}

void world_lose(struct world *w)
{
    for (unsigned i = 0; i < w->n_boxes; i++) {
        struct box *b = &w->boxes[i];
        if (b->slot + 1 != w->lost_slot || b->completed)
            continue;
        b->lost = true;
        if (w->lost_is_dead && b->timer)
            loop_timer_stop(b->timer);
        if (w->lost_is_dead && !w->lost_port_used)
            continue;
        assert(b->running || w->lost_is_dead);
        listen_for_call(b, w->lost_is_dead ? deny : key_of);
    }
}

void world_lost_ended(struct world *w)
{
    w->lost_ended = true;
    for (unsigned i = 0; i < w->n_boxes; i++)
        if (!w->boxes[i].lost)
            world_box_end(&w->boxes[i], false);
}
