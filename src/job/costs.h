/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of forming the gang anew, after a resize or because tasks restart together.
 *
 * The core measures each time with the job's own clock:
 *
 *   the tasks are asked to stop
 *     save    until the checkpoint is whole that they save for it; 0 if they save none
 *     stop    until no attempt of the old generation runs
 *     start   until all tasks of the new generation have been told to start
 *     warm    until a task reports progress beyond the step from which the generation resumed
 *   redone  the work since the last whole checkpoint, which is done again; 0 if they saved one
 *
 * If a resize first waits for the next checkpoint, the tasks train meanwhile: that time is no cost.
 *
 * Some parts may be unknown:
 *   - warm   If a newer checkpoint is whole before any progress is reported, warm is unknown.
 *   - start  If a slot waited for a container or for the end of a pause, start is unknown.
 *   - If another restart, a new master or the end of the job comes in between, nothing is kept.
 *
 * The estimate for the next resize is the sum of these parts. Each is the median of those known in
 * the last COSTS_KEPT measurements. save, stop and redone of a restart that was no resize do not
 * count: tasks that are stopped for a failure get no time to save. If the roles that may be resized
 * all have `resize: live`, the estimate is 0, since tasks that stay are not stopped.
 *
 * A replay has the same result. Progress is not in the journal, except a report that ends a
 * measurement: job_must_record().
 */
#ifndef TONY_JOB_COSTS_H
#define TONY_JOB_COSTS_H

#include <stdbool.h>
#include <stdint.h>

struct buf;
struct job;
struct slot;

#define COST_PARTS(X)                                                                              \
    X(COST_SAVE, "save_ms")                                                                        \
    X(COST_STOP, "stop_ms")                                                                        \
    X(COST_START, "start_ms")                                                                      \
    X(COST_WARM, "warm_ms")                                                                        \
    X(COST_REDONE, "redone_ms")

enum cost_part {
#define X(id, name) id,
    COST_PARTS(X)
#undef X
        COST_PART_COUNT,
};

enum {
    COSTS_KEPT = 5,
    COST_UNKNOWN = -1,
};

enum cost_phase {
    COST_IDLE = 0, /* nothing is being measured */
    COST_STOPPING,
    COST_STARTING,
    COST_WARMING,
    COST_PHASE_COUNT,
};

/* One measurement. */
struct cost_sample {
    bool by_resize;
    int64_t ms[COST_PART_COUNT]; /* COST_UNKNOWN: not known */
};

struct costs {
    enum cost_phase phase;
    struct cost_sample now; /* being measured; parts of later phases are COST_UNKNOWN */
    int64_t since_ms;       /* when this phase began; in COST_STOPPING: when `save` ended */
    bool delayed;           /* a slot waited for a container or for the end of a pause */
    bool resumed;           /* the generation resumes from `step` */
    uint64_t step;
    int64_t kept_ms; /* work before this time is in a checkpoint; 0 = since the start of the job */
    uint32_t n; /* measurements that were ever kept; the last is recent[(n - 1) % COSTS_KEPT] */
    struct cost_sample recent[COSTS_KEPT];
    bool must_record; /* the event that was fed last has ended a measurement */
};

/* Called when the gang stops to form anew, and the new generation begins. */
void costs_gang_stops(struct job *j, bool by_resize);
/* A checkpoint has become whole. */
void costs_checkpoint_whole(struct job *j);
/* The slot has reported this step. */
void costs_progress(struct job *j, const struct slot *s, uint64_t step);
/* A new master begins: forget what is being measured. */
void costs_disturbed(struct job *j);
/* After each event that was applied. */
void costs_run(struct job *j);
/* Append ,"resize_cost":{...} if the cost of a resize is known. */
void costs_json(const struct job *j, struct buf *out);

#endif
