/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start of a master: which containers of the job still exist, and which actions to issue again.
 * For the first master of a job there are no containers and no actions.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/str.h"

#include "job/job_int.h"

int recover_master_started(struct job *j, const struct ev_master_started *ev, struct err *e)
{
    if (ev->epoch <= j->epoch)
        return job_refuse(e, ESTALE, "master %u is not newer than master %u", ev->epoch, j->epoch);
    bool had_master = j->epoch > 0;
    j->epoch = ev->epoch;
    j->gang.gives_back = ev->gives_back;
    j->generation = MAX(j->generation, 1u);
    j->resyncing = true;
    costs_disturbed(j);
    j->master_ms = j->now_ms;
    j->stalled_ms = 0;
    j->beats_from = j->now_ms + (had_master ? JOB_RECONNECT_MS : 0);
    for (uint32_t i = 0; i < j->n_slots && had_master; i++) {
        j->slots[i].seen = j->slots[i].connected = j->slots[i].suspect = false;
        j->slots[i].beat_ms = j->slots[i].left_ms = 0;
    }
    /* The client's connection ended with the old master. It gets as much time to reconnect as if it
     * had gone away now. */
    if (had_master && j->owned && j->spec->client_away_ms >= 0)
        j->client_due_ms = j->now_ms + j->spec->client_away_ms;
    limits_job(j);
    j->changed = true;
    return 0;
}

int recover_seen(struct job *j, struct ev_container_seen *ev, struct err *e)
{
    struct slot *s = &j->slots[ev->slot];

    if (!j->resyncing)
        return job_refuse(e, EPROTO, "container '%s' was seen outside of a resync", ev->container);
    /* The old master died before it wrote the grant to the journal (SLOT_ASKED), or even before it
     * wrote the request (SLOT_HELD). */
    bool grant_unwritten = s->state == SLOT_ASKED || (s->state == SLOT_HELD && ev->launched);
    if (grant_unwritten && !str_eq(s->container, ev->container)) {
        job_place(j, s, &ev->container, &ev->gpus, &ev->node);
        return slot_step(j, ev->slot, IN_GRANT, NULL, e);
    }
    if (slot_has_container(s->state) && str_eq(s->container, ev->container)) {
        s->seen = true;
        return 0;
    }
    (void)err_set(e, ESTALE, "container '%s' of slot '" SLOT_NAME "' is not wanted any more",
                  ev->container, SLOT_ARGS(j, ev->slot));
    job_discard(j, ev->slot, ev->launched, &ev->container);
    return 1;
}

/* The container of the slot is lost. why (NULL = unknown) becomes the detail of the attempt. */
static void lose(struct job *j, uint32_t slot, const char *why)
{
    const char *detail = why ? str_dup(why) : NULL; /* no memory: without a detail */
    struct slot_end lost = { .reason = END_NODE_LOST,
                             .at_us = j->now_ms * 1000,
                             .detail = &detail,
                             .note = NOTE_UNKNOWN,
                             .with_master = true };
    restart_unseen(j, slot, &lost);
    free((char *)(uintptr_t)detail); /* NULL if the slot has taken it */
}

int recover_resynced(struct job *j, const struct ev_resynced *ev, struct err *e)
{
    if (!j->resyncing)
        return job_refuse(e, EPROTO, "resynced without a master_started before it");
    j->resyncing = false;
    if (job_over(j)) {
        policy_announce(j);
        return 0;
    }
    for (uint32_t i = 0; i < j->n_slots; i++) {
        struct slot *s = &j->slots[i];
        if (slot_has_container(s->state) && !s->seen)
            lose(j, i, ev->why);
        else
            (void)slot_step(j, i, IN_REISSUE, NULL, NULL); /* every state accepts it */
    }
    nodes_announce(j);
    return 0;
}
