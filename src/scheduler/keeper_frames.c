/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/keeper_frames.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"
#include "loop/loop.h"

int keeper_send_register(struct conn *c, uint32_t epoch)
{
    Tony__RegisterMaster m = TONY__REGISTER_MASTER__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    m.version = TONY__VERSION__PROTOCOL_VERSION;
    m.epoch = epoch;
    m.pid = getpid();
    f.body_case = TONY__FRAME__BODY_REGISTER_MASTER;
    f.register_master = &m;
    return conn_send(c, &f);
}

int keeper_container_read(const Tony__Container *from, struct sched_container *to,
                          struct strv *texts)
{
    const char *gpus = "";
    if (from->n_gpus > 0) {
        struct buf b = { 0 };
        for (size_t i = 0; i < from->n_gpus; i++)
            (void)buf_addf(&b, i ? ",%u" : "%u", from->gpus[i]); /* b.failed is checked below */
        char *text = b.failed ? NULL : buf_steal(&b);
        buf_done(&b);
        if (strv_take(texts, text) < 0)
            return -ENOMEM;
        gpus = texts->v[texts->n - 1];
    }
    unsigned reason = (unsigned)from->reason;
    *to = (struct sched_container){
        .id = from->id,
        .slot = from->slot,
        .gpus = gpus,
        .launched = from->launched,
        .completed = from->completed,
        .exit_code = from->exit_status,
        .reason = reason < END_COUNT ? (enum end_reason)reason : END_UNKNOWN,
        .age_us = from->age_us,
        .ended_mono_us = from->ended_mono_us,
        .detail = from->detail && *from->detail ? from->detail : NULL,
    };
    return 0;
}

int keeper_container_copy_texts(struct sched_container *c, struct strv *texts)
{
    const char **own[] = { &c->id, &c->gpus, &c->detail };
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        if (!*own[i] || !**own[i])
            continue;
        if (strv_push(texts, *own[i]) < 0)
            return -ENOMEM;
        *own[i] = texts->v[texts->n - 1];
    }
    return 0;
}

void asks_message_done(struct asks_message *w)
{
    free(w->v);
    free(w->list);
}

int asks_message_fill(struct asks_message *w, const struct sched_ask *asks, size_t n, struct err *e)
{
    w->v = calloc(n ? n : 1, sizeof *w->v);
    w->list = calloc(n ? n : 1, sizeof *w->list);
    if (!w->v || !w->list)
        return err_set(e, ENOMEM, "no memory to ask for %zu containers", n);
    for (size_t i = 0; i < n; i++) {
        tony__ask__init(&w->v[i]);
        w->v[i].slot = asks[i].slot;
        w->v[i].memory_mib = asks[i].memory_mib;
        w->v[i].vcores = asks[i].vcores;
        w->v[i].gpus = asks[i].gpus;
        w->list[i] = &w->v[i];
    }
    return 0;
}
