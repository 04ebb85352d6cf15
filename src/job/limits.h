/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines: of the job, of its groups of roles, and of each slot.
 *
 * The beat clock measures the silence of executors. It is the job's time without the times in which
 * the master itself did not run (EV_STALLED): in these the master could not receive heartbeats.
 */
#ifndef TONY_JOB_LIMITS_H
#define TONY_JOB_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "job/deadlines.h"
#include "job/event.h"

struct err;
struct job;
struct slot;

enum {
    JOB_SUSPECT_BEATS = 3,  /* missed heartbeats after which an executor is suspect */
    JOB_MIN_DEAD_BEATS = 3, /* TonY: max(3, tony.task.max-missed-heartbeats) */
    /* After the start of a new master, executors get this time to find it. Only then their silence
     * counts. */
    JOB_RECONNECT_MS = 3000,
    JOB_STOP_MARGIN_MS = 3000, /* after the grace period: time to kill, reap and report */
    /* An executor that has closed its connection and does not reconnect within this time is dead: a
     * living one reconnects within 2 s. */
    JOB_LEFT_MS = 5000,
    /* After this many expired LIMIT_STOP, the job no longer waits for the scheduler to confirm the
     * end of the container. */
    JOB_STOP_TRIES = 5,
};

struct limits {
    struct deadlines deadlines; /* ids: the limits of the job, then the groups, then the slots */
    char silent_text[64], unregistered_text[96]; /* texts of NOTE_SILENT and NOTE_UNREGISTERED */
};

int limits_init(struct job *j);                      /* -ENOMEM */
int limits_reserve(struct job *j, uint32_t n_slots); /* room for this many slots; -ENOMEM */
void limits_done(struct job *j);
const char *limit_text(int64_t ms, char *buf, size_t size); /* "25 s", "1500 ms"; returns buf */
int64_t beat_clock(const struct job *j);                    /* the time now on the beat clock */

/* These functions compute deadlines anew. Call each of them after a change of what its comment
 * names: */
void limits_slot(struct job *j, uint32_t slot); /* of the slot's state or times */
void limits_asked_slots(struct job *j);         /* of the number of slots that are SLOT_ASKED */
void limits_gang(struct job *j); /* of the number of containers that the gang has, or waits for */
void limits_job(struct job *j);  /* of anything else on which a limit of the job depends */

/* When the slot's next limit expires. The slot's entry among the deadlines is never later. */
int64_t limits_slot_due(const struct job *j, uint32_t slot);
/* The job is over, but an attempt may still run in the slot's container. When is that attempt dead
 * for certain? -1: none can run there. A replay gets the same time. */
int64_t limits_orphan_end(const struct job *j, const struct slot *s);
int64_t gang_pause_ms(const struct job *j); /* the pause before the gang requests again */
/* A number from 0 to max that depends on the application id, `which` and `number`. A replay gets
 * the same number, and other jobs get other numbers. */
int64_t jitter_ms(const struct job *j, char which, uint32_t number, uint32_t max);
int limits_fired(struct job *j, const struct ev_timer *ev, struct err *e); /* EV_TIMER */
int limits_suspect(struct job *j, uint32_t slot, struct err *e);           /* EV_SUSPECT */

#endif
