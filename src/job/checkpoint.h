/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkpoints that the tasks have saved, and from which one their next attempts resume.
 *
 * The rules, with examples, are in docs/task-socket.md, "Which checkpoint is resumed". In short:
 *
 * Timeline: when the first task of a generation starts, the generation resumes from the newest
 *   whole checkpoint (checkpoint_begin()). From then on only reports of this generation count.
 *   Reports of older generations about newer steps are dropped, also if they arrive later. If a
 *   task restarts alone in its generation, its own reports about newer steps are dropped.
 * Whole: a report may say how many tasks save a part of its step ("parts"). The step is whole once
 *   that many tasks have reported it in this generation. If the reports do not say it, the step is
 *   whole once all savers have reported it. Savers are the tasks that have reported any checkpoint
 *   in this generation, and those that did so in the last generation. If CHECKPOINT_STEPS steps are
 *   not whole yet and another one is reported, the savers of the last generation do not count any
 *   longer.
 *
 * Cost: a report costs the same in a job of any size. The first start of a generation visits all
 * slots once.
 */
#ifndef TONY_JOB_CHECKPOINT_H
#define TONY_JOB_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct ev_checkpoint;
struct job;
struct slot;

enum {
    CHECKPOINT_STEPS = 5, /* steps that are counted at the same time; none of them is whole yet */
    /* Reports that a slot keeps: one for each of these steps, and one for the whole checkpoint. */
    CHECKPOINT_KEPT = CHECKPOINT_STEPS + 1,
};

/* A step of the present generation that is newer than the newest whole one. */
struct checkpoint_step {
    uint64_t step;
    uint32_t id;    /* no other step ever gets the same id; 0 = this element is free */
    uint32_t parts; /* number of tasks that must report it; 0 = all savers must */
    uint32_t n;     /* number of tasks that have reported it */
    uint32_t first; /* the lowest slot that has reported it */
};

/* The state for the whole job. */
struct job_checkpoints {
    /* The newest whole checkpoint. */
    bool has;            /* there is one */
    uint32_t generation; /* in which it was saved */
    uint64_t step;
    uint32_t
        first; /* the lowest slot that saved a part; slots that saved none resume from its path */

    uint64_t furthest; /* the highest step that was ever whole */
    int64_t ms;        /* job time at which that step became whole */

    uint32_t timeline;  /* the generation whose reports count; 0 = no task has started yet */
    uint32_t n_savers;  /* savers: tasks that have reported in the timeline, and awaited ones */
    uint32_t n_awaited; /* savers of the last generation that have not reported in the timeline */
    uint32_t last_id;   /* the highest id in `steps` so far */
    struct checkpoint_step steps[CHECKPOINT_STEPS];
};

/* A report of one task. */
struct checkpoint_report {
    uint64_t step;
    uint32_t generation; /* in which it was saved; for a sidecar, the timeline at that time */
    uint32_t attempt;
    uint32_t counted; /* id of the checkpoint_step that counts it; else a stale id or 0 */
    char *path;       /* NULL = this element is free */
};

/* The state for a slot that has ever reported a checkpoint. */
struct slot_checkpoints {
    uint32_t reported; /* the last generation in which it reported; 0 = none that counts */
    bool awaited;      /* it was a saver of the last generation; valid while n_awaited > 0 */
    struct checkpoint_report reports[CHECKPOINT_KEPT];
};

/* EV_CHECKPOINT. 0, -ENOMEM, or 1: refused, since it is late, known, or contradicts another. */
int checkpoint_saved(struct job *j, struct ev_checkpoint *ev, struct err *e);
/* An attempt of the slot begins, and resumes from the newest whole checkpoint. The caller has set
 * the slot's generation and attempt. */
void checkpoint_begin(struct job *j, struct slot *s);
/* The slot has left the job, so no step waits for its report any longer. While the generation
 * changes, this does nothing: a part that the slot saved in the old generation is still needed. */
void checkpoint_leave(struct job *j, struct slot *s);
/* The path of the slot's newest checkpoint, whole or not; NULL = it has none. */
const char *checkpoint_newest(const struct slot *s, uint64_t *out_step);
void checkpoint_done(struct slot *s);

/* ---- for snapshots ---- */

/*
 * To write a snapshot, store the members has, generation, step, first, furthest, ms and timeline of
 * struct job_checkpoints, the result of checkpoint_saver() for each slot, and each report that
 * checkpoint_walk() finds. The other members follow from these. To read it, set those members in a
 * new job whose slots have their roles, then call checkpoint_put_saver() and checkpoint_put(), in
 * any order.
 */
struct checkpoint_record {
    uint32_t generation, attempt, parts;
    uint64_t step;
    const char *path; /* borrowed */
    bool counts;      /* it counts for a step that is not whole yet */
};
/* The slot's next report; start with *at = 0. false: there are no more. */
bool checkpoint_walk(const struct job *j, uint32_t slot, uint32_t *at,
                     struct checkpoint_record *out);
int checkpoint_put(struct job *j, uint32_t slot, const struct checkpoint_record *r); /* -ENOMEM */
/* false: the slot never reported a checkpoint, and needs no record. */
bool checkpoint_saver(const struct job *j, uint32_t slot, uint32_t *out_reported,
                      bool *out_awaited);
int checkpoint_put_saver(struct job *j, uint32_t slot, uint32_t reported, bool awaited);

#endif
