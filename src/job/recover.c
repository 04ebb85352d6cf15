/*
 * A new master: which containers are still there, and what is wanted again. The first start of a
 * job is the same with nothing in it.
 */
#include <errno.h>

#include "job/job_int.h"

int recover_master_started(struct job *j, const struct job_event *ev, struct err *e)
{
    if (ev->epoch <= j->epoch)
        return err_set(e, ESTALE, "master %u is not newer than master %u", ev->epoch, j->epoch), 1;
    bool again = j->epoch > 0;
    j->epoch = ev->epoch;
    j->gives_back = ev->running;
    j->generation = MAX(j->generation, 1u);
    j->resyncing = true;
    j->master_ms = j->now_ms;
    j->stalled_ms = 0;
    j->beats_from = j->now_ms + (again ? JOB_RECONNECT_MS : 0);
    for (uint32_t i = 0; i < j->n_slots && again; i++) {
        j->slots[i].seen = j->slots[i].connected = j->slots[i].suspect = false;
        j->slots[i].beat_ms = 0;
    }
    /* Its connection is gone with the old master: it has as long to come back as if it had left
     * now. */
    if (again && j->owned && j->spec->client_away_ms >= 0)
        j->client_due_ms = j->now_ms + j->spec->client_away_ms;
    limits_job(j);
    j->changed = true;
    return 0;
}

int recover_seen(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    struct slot *s = &j->slots[ev->slot];

    if (!j->resyncing)
        return err_set(e, EPROTO, "container '%s' was seen outside of a resync", ev->container), 1;
    /* granted, but the old master did not live to write it down; perhaps not even that it asked */
    bool unwritten = s->state == SLOT_ASKED || (s->state == SLOT_HELD && ev->launched);
    if (unwritten && !str_eq(s->container, ev->container)) {
        job_place(j, s, ev, kept);
        return slot_step(j, ev->slot, IN_GRANT, NULL, e);
    }
    if (slot_has_container(s->state) && str_eq(s->container, ev->container)) {
        s->seen = true;
        return 0;
    }
    job_discard(j, ev->slot, ev->launched, kept);
    return err_set(e, ESTALE, "container '%s' of slot '" SLOT_NAME "' is not wanted any more",
                   ev->container, SLOT_ARGS(j, ev->slot)),
           1;
}

int recover_resynced(struct job *j, struct err *e)
{
    if (!j->resyncing)
        return err_set(e, EPROTO, "a resync that nobody began"), 1;
    j->resyncing = false;
    if (job_over(j)) {
        policy_announce(j);
        return 0;
    }
    for (uint32_t i = 0; i < j->n_slots; i++) {
        struct slot *s = &j->slots[i];
        struct slot_end lost = { .reason = END_NODE_LOST,
                                 .at_us = j->now_ms * 1000,
                                 .note = "the scheduler does not know its container any more" };
        if (slot_has_container(s->state) && !s->seen)
            restart_unseen(j, i, &lost);
        else
            (void)slot_step(j, i, IN_REISSUE, NULL, NULL); /* every state takes it */
    }
    nodes_announce(j);
    return 0;
}
