/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core: a job as a state machine that can be replayed. It uses no sockets, no files and no
 * clock. Its caller, the shell (src/master), feeds it one event and the time, and gets back the
 * actions to carry out. All policy is here.
 *
 * Slot:    a place in the job, such as "worker:3". Slots have numbers from 0, first in the order of
 *          roles and indices. A slot has a container, or still needs one.
 * Attempt: one run of the command in a slot. Attempts are numbered from 1 in each slot.
 * Fence:   (epoch, generation, attempt). The epoch counts masters. The generation counts how often
 *          the gang was formed, from 1. The core refuses an event about an older generation or
 *          attempt, and the shell logs it.
 *
 * The shell does this for each event:
 *   1. Call job_feed().
 *   2. If that returned 0: append job_event_encode() of each job_decision(), and of the event if it
 *      led to a decision or job_must_record() says so, to the journal. It must be written before
 *      any action is carried out. An action ACT_SYNC demands fdatasync(), too.
 *   3. Carry out the actions, also if the event was refused: a refusal may acknowledge the event or
 *      release an unwanted container.
 * At the time of job_deadline(), the shell feeds the events that job_due() returns.
 *
 * A new master replays the journal with the same job_feed() and ignores the actions. Then it feeds
 * EV_MASTER_STARTED, EV_CONTAINER_SEEN for each container that the scheduler still knows
 * (EV_COMPLETED for those that have ended), and EV_RESYNCED. The actions of these events issue
 * again everything that is still wanted. The first master does the same with an empty journal:
 * EV_SUBMITTED, EV_MASTER_STARTED, EV_RESYNCED. Every action can be repeated without harm.
 *
 * Restarts (restart_rules.c). If an attempt or a container ends, tasks may restart. For an end that
 * the task causes itself, the role's policy decides; for any other end, a budget for each reason.
 * The scope says how much restarts: the task alone, its role, or the gang. If the gang restarts, a
 * new generation begins, and no attempt of it starts before all attempts of the old one are dead.
 *   - A slot whose executor lives has its next attempt in the same container: RUNNING ->
 *     (HALTING ->) RENEWING -> REGISTERED.
 *   - A slot whose container is gone or must go gets another one: (REPLACING ->) HELD -> ASKED, or
 *     at once that of a spare.
 *   - If the scheduler announces that it will take a container, the same restart begins before it
 *     does, and the halted tasks get time to save a checkpoint.
 * All of this follows from the events and the recorded decisions, so a replay has the same result.
 * A pause ends with an EV_TIMER.
 *
 * Spares. Some slots are no tasks but spares of a role. They ask for containers once the tasks run,
 * and their executors register and stay idle. If a task needs a container, a spare may give it its
 * own, once (ACT_TAKE). Later events about that container may name the slot of the spare.
 *
 * Ending a job without a master (src/history). EV_LAUNCH_FAILED_JOB ends the job at once. EV_STOP
 * followed by EV_MASTER_STARTED (epoch + 1) and EV_RESYNCED ends a job whose containers are all
 * gone.
 *
 * Time is the job's own: in milliseconds, from 0. It never goes back: job_feed() takes the latest
 * time for an earlier one.
 */
#ifndef TONY_JOB_JOB_H
#define TONY_JOB_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/reason.h"
#include "base/vec.h"
#include "job/event.h"

struct err;
struct job;
struct job_spec;  /* conf/conf.h */
struct role_spec; /* conf/conf.h */

/* ---- the machine ---- */

/* spec is borrowed until job_free() and must not change. NULL with e set: no memory. */
struct job *job_new(const struct job_spec *spec, struct err *e);
void job_free(struct job *j);

/*
 * Feed one event.
 *
 * Returns 0        the event was applied
 *         1        it was refused, being stale or impossible now; e says why, for the log. The
 *                  state is unchanged
 *         -ENOMEM  the state is unchanged, and the event may be fed again
 *
 * out gets the actions appended, also after a refusal. Reuse it in the next call: it has room for
 * the largest answer, about 4 actions for each slot.
 */
int job_feed(struct job *j, const struct job_event *ev, int64_t now_ms, struct job_actions *out,
             struct err *e);
/* The decisions of the last job_feed(), if it returned 0: *out is the i-th one, from 0; false:
 * there is no such one. Each is an event EV_DECIDED_*. The shell writes it to the journal with the
 * same time as the event that was fed, and before that event. Texts are valid until the next
 * job_feed(). */
bool job_decision(const struct job *j, size_t i, struct job_event *out);
/* Must the event, for which the last job_feed() returned 0, be in the journal? It must if it is
 * durable, or if it has ended a measurement of costs (costs.h). */
bool job_must_record(const struct job *j, const struct job_event *ev);
/* The events that are fed from now on come from a journal. decisions_are_recorded: the journal has
 * their decisions, which count in place of the rules (decisions.h). Call it with false when the
 * replay is over. */
void job_replaying(struct job *j, bool decisions_are_recorded);
/* Append the whole state as journal payloads, one on each line. A new master reads them instead of
 * all events until now. 0 or -ENOMEM. */
int job_snapshot(const struct job *j, struct buf *lines);
/* Restore that state: pass each line in order to a new job of the same spec, then call
 * job_restored(), then feed the events behind the snapshot. -EBADMSG: the line is damaged or of a
 * newer version. After an error (also -ENOMEM) the job can only be freed. */
int job_restore(struct job *j, struct span json, struct err *e);
int job_restored(struct job *j, struct err *e); /* -EBADMSG: a part is missing */
/* The job time at which the caller must call job_due(); INT64_MAX = never. It may be too early,
 * since a heartbeat does not move it, but never too late. */
int64_t job_deadline(const struct job *j);
/* An event that the passing of time causes, for the caller to feed. false: nothing is due at
 * now_ms. Call it until it returns false. */
bool job_due(struct job *j, int64_t now_ms, struct job_event *out);
int64_t job_now(const struct job *j); /* the latest time that was fed */
/* The time from the first start of a task to now_ms, or to the end of the job; 0 before it. */
int64_t job_ran_ms(const struct job *j, int64_t now_ms);
/* How long the job would do no new work because of its next resize, from what it has measured so
 * far (costs.h). false: it has measured nothing. */
bool job_resize_cost(const struct job *j, int64_t *out_ms);

/* ---- reading the state ---- */

#define JOB_STATES(X)                                                                              \
    X(JOB_NEW, "NEW")                                                                              \
    X(JOB_WAITING, "WAITING")                                                                      \
    X(JOB_RUNNING, "RUNNING")                                                                      \
    X(JOB_STOPPING, "STOPPING")                                                                    \
    X(JOB_SUCCEEDED, "SUCCEEDED") X(JOB_FAILED, "FAILED") X(JOB_KILLED, "KILLED")
#define SLOT_STATES(X)                                                                             \
    X(SLOT_ABSENT, "absent")         /* the job has fewer instances of its role now */             \
    X(SLOT_HELD, "held")             /* has no container and does not ask for one: its stage has   \
                                        not come, or its gang pauses */                            \
    X(SLOT_ASKED, "waiting")         /* has asked for a container */                               \
    X(SLOT_PLACED, "placed")         /* has a container, in which the executor starts */           \
    X(SLOT_REGISTERED, "registered") /* the executor has registered; no attempt runs */            \
    X(SLOT_RUNNING, "running")       /* an attempt was started */                                  \
    X(SLOT_HALTING, "halting")       /* the attempt was told to stop; another one will follow */   \
    X(SLOT_RENEWING, "renewing")     /* between two attempts: the executor prepares the next */    \
    X(SLOT_REPLACING, "replacing")   /* the container was told to end; another will follow */      \
    X(SLOT_LEAVING, "leaving")       /* told to stop, because the job shrinks */                   \
    X(SLOT_STOPPING, "stopping")     /* told to stop; no attempt follows */                        \
    X(SLOT_DRAINING, "draining")     /* the attempt has ended, its container has not */            \
    X(SLOT_ENDED, "ended")           /* over: it has no container (any more) */

enum job_state {
    JOB_NONE = 0,
#define X(id, name) id,
    JOB_STATES(X)
#undef X
        JOB_STATE_COUNT,
};
enum slot_state {
    SLOT_NONE = 0,
#define X(id, name) id,
    SLOT_STATES(X)
#undef X
        SLOT_STATE_COUNT,
};
const char *job_state_name(enum job_state s);
const char *slot_state_name(enum slot_state s);

/* The result of a slot's last attempt, in TonY's words. */
enum slot_result {
    RES_NONE = 0,
    RES_SUCCEEDED,
    RES_FAILED,
    RES_FINISHED, /* tony stopped it: this is no failure */
    RES_LOST,
};

struct slot_view {
    const char *role;
    uint32_t role_index; /* in spec->roles; 0 in single-node mode, which has no roles */
    uint32_t index;
    enum slot_state state;
    enum slot_result result;
    const char *container, *gpus;
    const char *address; /* host:port; NULL until the executor has registered */
    const char *node;    /* NULL = this machine, or unknown */
    bool spare;          /* a spare of its role; its index is above those of the role's tasks */
    bool moved;          /* it has the container of a spare: the executor knows another index */
    uint32_t generation, attempt, restart_count, tb_port, pid;
    uint32_t elsewhere; /* the number of its attempts that ran in earlier containers */
    bool connected, chief;
    bool suspect; /* its executor was silent for JOB_SUSPECT_BEATS heartbeats */
    bool ready;   /* its attempt has reported that it is ready */
    int exit_code, signal;
    enum end_reason reason;
    const char *detail, *tail;
    int64_t started_ms, ended_ms; /* job time; -1 = not yet */
    uint64_t step, total;
    const char *tensorboard;
};
uint32_t job_n_slots(const struct job *j); /* all that were ever made, spares included */
uint32_t job_n_tasks(const struct job *j); /* those of the job now, spares not included */
/* The tasks of the job now, in the order of roles and indices: job_task(j, r, i) is the slot of
 * index i < job_role_tasks(j, r) of role r < job_n_roles(j). In single-node mode there is one role
 * with one task. */
uint32_t job_n_roles(const struct job *j);
uint32_t job_role_tasks(const struct job *j, uint32_t role);
/* The instances that the role will have if a resize under way succeeds. */
uint32_t job_role_target(const struct job *j, uint32_t role);
uint32_t job_task(const struct job *j, uint32_t role, uint32_t index);
/* The slot that now has the container that was granted for `slot`. It is another one if `slot` is a
 * spare that has given its container to a task. */
uint32_t job_slot_now(const struct job *j, uint32_t slot);
void job_slot(const struct job *j, uint32_t slot, struct slot_view *out);
/* The role whose resources a slot's container needs. For driver:0 of single-node mode it is
 * spec->am, whose name is not "driver". */
const struct role_spec *job_slot_role(const struct job *j, uint32_t slot);
/* Does the job want a container for this slot? It does for a task of its present size, for a task
 * of the size to which it is changing, and for a spare. */
bool job_wants(const struct job *j, uint32_t slot);
/*
 * Between which numbers of containers may the scheduler resize the job? EV_SHRINK makes the job
 * shrink to at least *out_min containers, EV_GROW makes it grow to at most *out_max. If the two are
 * equal, the scheduler cannot resize the job now.
 *
 * The numbers count as n_containers of these events does: all tasks of all roles, also tasks that
 * have ended or whose stage has not come, and all spares. A job that is being resized counts with
 * the size to which it changes.
 *
 * The core may still refuse a size between the two that the framework does not allow.
 */
void job_bounds(struct job *j, uint32_t *out_min, uint32_t *out_max);
/*
 * How long will the job still run if it keeps its size? false: that is unknown. No task has
 * reported two steps and their total number, or a role for which the job waits has not started.
 *
 * A task needs (time per step so far) * (steps left). The role needs at least as long as its
 * fastest task that reports, and at most as long as its slowest; the job needs as long as its
 * slowest role. The margin at both ends is a tenth; after fewer than 100 steps it is a quarter, and
 * after fewer than 10 steps a half.
 */
bool job_outlook(const struct job *j, int64_t *out_min_ms, int64_t *out_max_ms);
bool job_was_resized(const struct job *j);   /* also true while it is being resized */
bool job_changes_size(const struct job *j);  /* it is being resized, or tasks leave */
uint32_t job_n_tracked(const struct job *j); /* tasks of tracked roles: TASK_NUM */
uint32_t job_epoch(const struct job *j);
uint32_t job_generation(const struct job *j);
/* The number of restarts of tasks, roles and the gang. */
uint32_t job_restarts(const struct job *j);
uint32_t job_retries(const struct job *j); /* the number of restarts of the whole job */
enum job_state job_state(const struct job *j);
const char *job_application_id(const struct job *j);

/* The checkpoint from which the slot's next attempt resumes: the path of the newest whole one
 * (checkpoint.h); NULL = there is none. Borrowed from the job until the next job_feed(). */
const char *job_checkpoint(const struct job *j, uint32_t slot, uint64_t *out_step);

/* The end of the job. Strings are borrowed from the job. */
struct job_verdict {
    enum job_state state; /* SUCCEEDED, FAILED or KILLED; any other: not decided yet */
    int exit_code;        /* of `tony run`: 0, 1 or 3 */
    const char *message;  /* one sentence: "task 'worker:1' failed with exit code 3" */
    uint32_t cause_slot;  /* the task that is the cause; UINT32_MAX = none is */
};
void job_verdict(const struct job *j, struct job_verdict *out);

/* The longest status document, in bytes. A task takes about 500, on a cluster about 700, and there
 * are at most 100,000 tasks. */
enum { JOB_STATUS_MAX = 192 << 20 };
/* Append the status document of `tony status --json` (docs/json.md), of a live or a replayed job.
 * full: with every task. */
int job_status_json(const struct job *j, bool full, struct buf *out);

/* Append the answer to a resize (docs/json.md "resize"): the members of the status document that
 * are about resizes. -ENOMEM. */
int job_resize_json(const struct job *j, struct buf *out);

/* job_status_json() with members that the core cannot know. of_job and of_task append each member
 * as `,"name":value`. */
struct job_status_more {
    void (*of_job)(struct buf *out, void *arg);                 /* may be NULL */
    void (*of_task)(uint32_t slot, struct buf *out, void *arg); /* may be NULL */
    void *arg;
    bool no_tail;   /* leave out all output of tasks: the reader may not see their logs */
    int64_t now_ms; /* the job's time now; 0 = the time of the last event */
};
int job_status_json_more(const struct job *j, bool full, const struct job_status_more *more,
                         struct buf *out);

#endif
