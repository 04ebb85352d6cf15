/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints in the random world of job_sim.h: what the tasks save, and a second implementation
 * that computes which checkpoint is whole. After each event the test compares it with the job.
 *
 * The second implementation keeps each accepted report for ever, with no bound on steps. It knows
 * only the rules of docs/task-socket.md, "Which checkpoint is resumed", and shares no code with
 * src/job/checkpoint.c:
 *
 * - A report of an earlier attempt or generation is never accepted.
 * - A step becomes whole only if enough tasks have reported it in the present generation.
 * - A step that enough tasks have reported becomes whole, unless more than CHECKPOINT_STEPS steps
 *   wait.
 * - An attempt resumes from the newest whole step, from a path that a task saved for that step in
 *   that generation: its own path if it saved a part.
 */
#ifndef TONY_TESTS_JOB_SIM_SAVES_H
#define TONY_TESTS_JOB_SIM_SAVES_H

#include "base/base.h"

struct job_event;
struct sim;
struct executor;

enum { SAVES_SLOTS = 200 };

/* Which tasks save a checkpoint, and the number of parts that they report. */
enum saving {
    SAVING_PARTS,     /* all tasks save a part and report how many parts there are */
    SAVING_UNCOUNTED, /* all tasks save a part and report no number */
    SAVING_RANK0,     /* slot 0 saves everything */
    SAVING_WILD,      /* any task, any number of parts, also numbers that contradict each other */
    SAVING_COUNT
};

struct saved_report {
    uint32_t slot, generation, attempt, parts;
    uint64_t step;
    bool undone; /* the slot has restarted alone, and repeats the step */
    bool sidecar;
};

struct saves {
    enum saving saving;
    VEC(struct saved_report) reports;
    uint32_t timeline; /* the generation whose reports count */
    /* The newest whole step by the last answer of the job: */
    bool has; /* there is one */
    uint32_t generation;
    uint64_t step;
    /* By slot: */
    bool saver[SAVES_SLOTS];   /* its task has saved in this generation */
    bool awaited[SAVES_SLOTS]; /* its task has saved in an earlier generation, but not yet in this
                                  one */
    bool stayed[SAVES_SLOTS]; /* its task has saved before this generation began, and was still part
                                 of the job when it began */
    /* The state before the event: */
    uint32_t attempts[SAVES_SLOTS], generation_before;
    bool leaving[SAVES_SLOTS], member[SAVES_SLOTS];
    bool gave_up; /* in this generation, more than CHECKPOINT_STEPS steps waited */
};

extern unsigned sim_saves, sim_late_saves, sim_whole, sim_resumed; /* for the summary of a run */

void saves_done(struct saves *s);
/* The task of the executor saves a checkpoint, and the executor reports it. */
void saves_task_saves(struct sim *m, struct executor *x);
/* The task reports its progress, at or beyond the step from which it goes on. */
void saves_task_steps(struct sim *m, struct executor *x);
/* A report of an earlier attempt or generation arrives. The job must refuse it. */
void saves_late_report(struct sim *m);
/* Before each event, and after each one that the job has accepted. */
void saves_before(struct sim *m);
void saves_after(struct sim *m, const struct job_event *ev);
/* A crash has cut the journal: computes all of this again from the records that are left. */
void saves_rebuild(struct sim *m);

#endif
