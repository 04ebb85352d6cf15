/* SPDX-License-Identifier: Apache-2.0 */
/* The heartbeats of quiet executors (quiet.h): one message for all. */
#include "base/clock.h"
#include "base/util.h"
#include "base/vec.h"
#include "executor/keeper_int.h"

enum { FIRST_MS = 1000 /* to the first look after a launch */ };

static void send_alive(struct keeper *k, uint32_t *slots, size_t n)
{
    struct peer *p = keeper_peer(k, PEER_MASTER);
    Tony__Alive m = TONY__ALIVE__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    m.slots = slots;
    m.n_slots = n;
    f.body_case = TONY__FRAME__BODY_ALIVE;
    f.alive = &m;
    if (p && !link_unsent(&p->link)) /* a master that does not read gets no more of them */
        keeper_send(k, p, &f);
}

void beats_begin(struct keeper *k)
{
    if (k->kind == KEEPER_OF_POOL && k->beats.at_ms == INT64_MAX)
        k->beats.at_ms = clock_mono_ms() + FIRST_MS;
}

void beats_tick(struct keeper *k, int64_t now_ms)
{
    int64_t pause = INT64_MAX;
    if (now_ms < k->beats.at_ms)
        return;
    k->beats.n = 0;
    for (const struct container *c = k->live.first; c; c = c->after) {
        const struct exit_record *r = c->state == CONTAINER_RUNNING ? c->record : NULL;
        if (!r || r->quiet_until_ms < now_ms)
            continue;
        if (vec_push(&k->beats, c->slot) < 0)
            break; /* no memory: the master asks the others to send their own */
        pause = MIN(pause, (int64_t)r->beat_ms);
    }
    if (k->beats.n)
        send_alive(k, k->beats.v, k->beats.n);
    if (pause == INT64_MAX)
        pause = FIRST_MS;
    k->beats.at_ms = k->n_alive ? now_ms + MAX(pause, (int64_t)1) : INT64_MAX;
}
