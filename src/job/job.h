/*
 * The core: a job is a replayable state machine. It knows neither sockets nor files nor the clock;
 * it is given an event and the time, and returns the actions it wants done. All policy lives here.
 *
 * Slot:    a place in the job ("worker:3"), dense number from 0 in the order of roles and
 *          indices, with a container in it or still to get one.
 * Attempt: one run of the command in a slot, numbered from 1 over the life of the slot.
 * Fence:   (epoch, generation, attempt). The epoch counts masters; the generation counts
 *          formations of the gang (from 1). An event about an older generation or attempt is
 *          refused (logged by the shell), never applied.
 *
 * The shell's duty: for each event that came in, job_feed(); if that returned 0 and
 * job_is_durable(event), append what job_event_encode() gives to the journal (write() before any
 * action is carried out; fdatasync() where an action says sync); then carry out the actions, also
 * those that came with a refusal (an acknowledgement, the release of an unwanted container). When
 * job_deadline() has come: while (job_due(job, now, &ev)) feed ev like any other event. A new
 * master replays the journal with the same job_feed(), ignoring the actions, then feeds
 * EV_MASTER_STARTED, EV_CONTAINER_SEEN for each container the scheduler still knows (those that
 * completed: EV_COMPLETED), and EV_RESYNCED; the actions of those re-issue all that is still
 * wanted. The first start is the same with an empty journal: EV_SUBMITTED, EV_MASTER_STARTED,
 * EV_RESYNCED. Every action can be repeated without harm.
 *
 * Restarts (restart.c): what ended may begin again. Which end allows it is the role's policy for
 * what the task does itself, and a budget per reason for what is done to it; how many begin again
 * is the scope: the task alone, its role, or the gang, which is a new generation. A slot whose
 * executor lives goes RUNNING -> (HALTING ->) RENEWING -> REGISTERED and has its next attempt in
 * the same container; one whose container is gone, or has to go, gets another: (REPLACING ->) HELD
 * -> ASKED, or a spare's at once. No attempt of a new generation begins before all of the old one
 * are dead. All of it follows from the events, so that a replay finds it again; pauses end with an
 * EV_TIMER. A notice that a container will be taken begins the same before that happens, and gives
 * all who are halted for it time to save a checkpoint.
 *
 * Spares: slots behind those of all tasks (job_n_tasks() .. job_n_slots()), asked for when the
 * tasks run, registered, idle. One that takes a task's place gives its container to that slot,
 * once; ACT_TAKE says so. Events about the container may go on to name the spare's slot.
 *
 * Ending a job that has no master (history): EV_STOP of a job whose containers are all gone ends it
 * at once when followed by EV_MASTER_STARTED (epoch + 1) and EV_RESYNCED; EV_LAUNCH_FAILED_JOB ends
 * it at once by itself.
 *
 * Time is the job's own: milliseconds, starts at 0, never goes back (job_feed clips).
 */
#ifndef TONY_JOB_JOB_H
#define TONY_JOB_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/reason.h"
#include "base/vec.h"

struct err;
struct job;
struct job_spec;  /* conf/conf.h */
struct role_spec; /* conf/conf.h */

/* ---- events ---- */

#define JOB_EVENTS(X)                                                                              \
    X(EV_SUBMITTED,                                                                                \
      "submitted") /* text: application id; who: user; wall_ms; running: an owner will come */     \
    X(EV_MASTER_STARTED,                                                                           \
      "master_started") /* epoch; wall_ms; value_ms: the monotonic clock of this machine, 0 = it   \
                           may be another next time; running: the scheduler grants gangs in        \
                           parts, so that an incomplete one gives back (gives_back) */             \
    X(EV_RESYNCED, "resynced") /* all EV_CONTAINER_SEEN are in: whatever was not seen is lost */   \
    X(EV_CONTAINER_SEEN,                                                                           \
      "container_seen") /* slot, container, launched, text: gpus, node; if it lives */             \
    X(EV_ALLOCATED,                                                                                \
      "allocated") /* slot, container, text: gpus "0,1", node: NULL = this machine */              \
    X(EV_ALLOCATION_REFUSED, "allocation_refused") /* slot, text: why */                           \
    X(EV_COMPLETED,                                                                                \
      "completed") /* slot, container, exit_code, reason, age_us, text: the container ended */     \
    X(EV_PREEMPTING,                                                                               \
      "preempting") /* slot, container, value_ms: the scheduler takes it when so long is over */   \
    X(EV_REGISTERED, "registered") /* slot, container, text: host:port of rank 0, tb_port, pid;    \
                                      generation: of the ACT_RENEW that it answers, else 0 */      \
    X(EV_EXECUTOR_GONE,                                                                            \
      "executor_gone") /* slot, container: its connection ended; running: it broke, else the       \
                          executor or its kernel has closed it; not durable */                     \
    X(EV_EXECUTOR_BACK, "executor_back")     /* slot, container, generation, attempt, running:     \
                                                re-connected; not durable */                       \
    X(EV_ATTEMPT_STARTED, "attempt_started") /* slot, generation, attempt, pid */                  \
    X(EV_ATTEMPT_ENDED, "attempt_ended") /* slot, generation, attempt, rank, exit_code, signal,    \
                                            reason, age_us, text: detail, tail */                  \
    X(EV_BEAT, "beat")                   /* slot; not durable */                                   \
    X(EV_PROGRESS, "progress")           /* slot, step, total; not durable */                      \
    X(EV_CHECKPOINT,                                                                               \
      "checkpoint") /* slot, generation, attempt, step, text: path of one that is complete;        \
                       group: how many tasks must tell of it, 0 = all that ever do */              \
    X(EV_TENSORBOARD, "tensorboard") /* slot, text: url */                                         \
    X(EV_TASK_READY, "task_ready")   /* slot, generation, attempt: others need not wait for it */  \
    X(EV_CLIENT_OWNS, "client_owns") /* an owner is attached */                                    \
    X(EV_CLIENT_AWAY, "client_away") /* the last owner is gone */                                  \
    X(EV_STOP,                                                                                     \
      "stop") /* client asked; who, text: reason; value_ms: first, to save a checkpoint */         \
    X(EV_STALLED,                                                                                  \
      "stalled")         /* value_ms: the master itself did nothing for so long; not durable */    \
    X(EV_TIMER, "timer") /* made by job_due(): limit, slot or group */                             \
    X(EV_SUSPECT, "suspect") /* made by job_due(): slot was silent for 3 beats; not durable */     \
    X(EV_SHRINK, "shrink") /* scheduler: down to n containers in value_ms; refused, not durable */ \
    X(EV_LAUNCH_FAILED_JOB,                                                                        \
      "launch_failed_job") /* the master could not be started or run: text why; ends the job */

enum job_event_type {
    EV_NONE = 0,
#define X(id, name) id,
    JOB_EVENTS(X)
#undef X
        EV_COUNT,
};

/* What can run out. */
#define JOB_LIMITS(X)                                                                              \
    X(LIMIT_APPLICATION, "application") /* tony.application.timeout: the job is killed */          \
    X(LIMIT_ALLOCATION,                                                                            \
      "allocation")         /* tony.container.allocation.timeout: the gang is not granted */       \
    X(LIMIT_GANG, "gang")   /* nothing more was granted to an incomplete gang: it gives back */    \
    X(LIMIT_PAUSE, "pause") /* a gang that gave back asks again */                                 \
    X(LIMIT_REGISTRATION, "registration") /* slot: tony.container.registration.timeout */          \
    X(LIMIT_SILENCE, "silence") /* slot: max(3, tony.task.max-missed-heartbeats) beats */          \
    X(LIMIT_STOP,                                                                                  \
      "stop") /* slot: told to stop, or its task has ended, and its container is still there */    \
    X(LIMIT_LEASE, "lease") /* slot: its node was given up, and what may live there is over now */ \
    X(LIMIT_RESTART, "restart") /* what is to begin again has paused long enough */                \
    X(LIMIT_NODE, "node")       /* a node that was left out may be used again */                   \
    X(LIMIT_CLIENT, "client")   /* tony.client.away-limit: the job is killed */                    \
    X(LIMIT_GROUP, "group") /* group: tony.application.dependency.<role>.timeout.after.<group> */
enum job_limit {
    LIMIT_NONE = 0,
#define X(id, name) id,
    JOB_LIMITS(X)
#undef X
        LIMIT_COUNT,
};

struct job_event {
    enum job_event_type type;
    enum job_limit limit;
    uint32_t group; /* index in spec->group_timeouts */
    uint32_t slot, epoch, generation, attempt, rank;
    const char *container; /* strings are borrowed for the call */
    int exit_code, signal;
    enum end_reason reason;
    uint64_t age_us; /* how long before now it happened */
    int64_t wall_ms; /* for people only */
    int64_t value_ms;
    uint64_t step, total;
    uint32_t pid, tb_port;
    bool running, launched;
    const char *who, *text, *tail, *node;
};

const char *job_event_name(enum job_event_type t);
bool job_is_durable(enum job_event_type t);

/* One journal payload: {"e":"registered","t":<job ms>,"slot":3,...}; the framing (number, checksum)
 * is storage's. */
int job_event_encode(const struct job_event *ev, int64_t t_ms, struct buf *out);
/* Strings of *out point into *out_holder (a json_t), released by job_event_release(). */
int job_event_decode(struct span json, struct job_event *out, int64_t *out_t_ms, void **out_holder,
                     struct err *e);
void job_event_release(void *holder);

/* ---- actions ---- */

enum job_action_type {
    ACT_NONE = 0,
    ACT_ASK,             /* slot: one container of its role's size, request id = slot */
    ACT_CANCEL,          /* slot: its ask is taken back */
    ACT_RELEASE,         /* slot, container: granted but not wanted */
    ACT_LAUNCH,          /* slot, container */
    ACT_START,           /* slot, generation, attempt: send START with the addresses of all slots */
    ACT_STOP_ATTEMPT,    /* slot, generation, attempt, grace_ms, reason */
    ACT_ACK,             /* slot, generation, attempt; finish: there will be no other */
    ACT_FINISH_EXECUTOR, /* slot, container, grace_ms: end, with whatever runs in it */
    ACT_STOP_CONTAINER,  /* slot, container, grace_ms: by the scheduler; the executor cannot be
                            reached or does not obey */
    ACT_RENEW,  /* slot, generation: another attempt will follow here, in this generation. The
                   executor forgets the last, reserves other ports if `fresh`, and
                   registers again (EV_REGISTERED with the generation) */
    ACT_TAKE,   /* slot: has the container that was given to the slot `from`, a spare's */
    ACT_AVOID,  /* container: name of a node; on: leave it out of new requests, or do not */
    ACT_PEERS,  /* addresses have changed: tell all tasks that run */
    ACT_NOTIFY, /* something that followers see has changed (coalesced) */
    ACT_SYNC,   /* fdatasync the journal before any later action */
    ACT_FINISH, /* the verdict stands (job_verdict) and nothing of ours is alive: tell the scheduler
                   and end */
    ACT_COUNT,
};

struct job_action {
    enum job_action_type type;
    uint32_t slot, generation, attempt;
    uint32_t grace_ms, from;
    uint32_t wait_ms; /* ACT_STOP_ATTEMPT: to end by itself before all that; 0 = none */
    uint32_t save_ms; /* ACT_STOP_ATTEMPT: to save a checkpoint before all that; 0 = none */
    enum end_reason reason;
    bool finish, fresh, on;
    const char *container; /* valid until the next job_feed */
};

struct job_actions {
    struct job_action *v;
    size_t n, cap;
};

/* ---- the machine ---- */

/* spec is borrowed for the job's life and must not change. NULL with e set: no memory. */
struct job *job_new(const struct job_spec *spec, struct err *e);
void job_free(struct job *j);

/* 0 = applied; 1 = refused (stale or impossible now; e says why, for the log), nothing changed;
 * -ENOMEM = nothing changed, may be fed again. out is appended to, also by a refusal; keep it over
 * calls (it is reserved for the largest answer, about 4 actions a slot). */
int job_feed(struct job *j, const struct job_event *ev, int64_t now_ms, struct job_actions *out,
             struct err *e);
/* Job time at which to call job_due(); INT64_MAX = none. May be early (a beat does not move it),
 * never late. */
int64_t job_deadline(const struct job *j);
/* The next event that time itself brings, to be fed by the caller; false = nothing is due at
 * now_ms. Call until false. */
bool job_due(struct job *j, int64_t now_ms, struct job_event *out);
int64_t job_now(const struct job *j); /* the last time fed */
/* From the first start of a task to now_ms, or to the verdict; 0 before. */
int64_t job_ran_ms(const struct job *j, int64_t now_ms);

/* ---- what others may look at ---- */

#define JOB_STATES(X)                                                                              \
    X(JOB_NEW, "NEW")                                                                              \
    X(JOB_WAITING, "WAITING")                                                                      \
    X(JOB_RUNNING, "RUNNING")                                                                      \
    X(JOB_STOPPING, "STOPPING")                                                                    \
    X(JOB_SUCCEEDED, "SUCCEEDED") X(JOB_FAILED, "FAILED") X(JOB_KILLED, "KILLED")
#define SLOT_STATES(X)                                                                             \
    X(SLOT_HELD, "held")             /* its role's turn has not come (stages), or its gang has     \
                                        given back and pauses */                                   \
    X(SLOT_ASKED, "waiting")         /* a container was asked for */                               \
    X(SLOT_PLACED, "placed")         /* container granted, executor being started */               \
    X(SLOT_REGISTERED, "registered") /* executor is there, attempt not begun */                    \
    X(SLOT_RUNNING, "running")       /* an attempt was started */                                  \
    X(SLOT_HALTING, "halting")       /* its attempt was told to stop; another will follow it */    \
    X(SLOT_RENEWING, "renewing")     /* between two attempts: its executor makes ready */          \
    X(SLOT_REPLACING, "replacing")   /* its container was told to end; it will get another */      \
    X(SLOT_STOPPING, "stopping")     /* told to stop */                                            \
    X(SLOT_DRAINING, "draining")     /* attempt ended; container not yet */                        \
    X(SLOT_ENDED, "ended")           /* nothing of it is alive */

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

/* How a slot's work went, for people; TonY's words. */
enum slot_result {
    RES_NONE = 0,
    RES_SUCCEEDED,
    RES_FAILED,
    RES_FINISHED /* stopped by us, not its fault */,
    RES_LOST
};

struct slot_view {
    const char *role;
    uint32_t role_index /* in spec->roles; 0 in single-node mode, which has none */, index;
    enum slot_state state;
    enum slot_result result;
    const char *container, *address /* host:port, NULL until registered */, *gpus;
    const char *node; /* NULL = this machine, or not known */
    bool spare;       /* of its role; index then goes on after its tasks */
    bool moved;       /* its container was asked for as a spare: the executor knows another index */
    uint32_t generation, attempt, restart_count, tb_port, pid;
    uint32_t elsewhere; /* how many of its attempts were in other containers, before this one */
    bool connected, chief;
    bool suspect; /* silent for 3 beats */
    bool ready;   /* its attempt has become so */
    int exit_code, signal;
    enum end_reason reason;
    const char *detail, *tail;
    int64_t started_ms, ended_ms; /* job time; -1 = not yet */
    uint64_t step, total;
    const char *tensorboard;
};
uint32_t job_n_slots(const struct job *j); /* with spares */
uint32_t job_n_tasks(const struct job *j); /* without: these come first */
/* The slot that has the container asked for as `slot`: another one when a spare was used. */
uint32_t job_slot_now(const struct job *j, uint32_t slot);
void job_slot(const struct job *j, uint32_t slot, struct slot_view *out);
/* What a slot's container is asked for with; of single-node mode's driver:0 it is spec->am (whose
 * name is not the slot's role). */
const struct role_spec *job_slot_role(const struct job *j, uint32_t slot);
uint32_t job_n_tracked(const struct job *j); /* tasks that the job waits for: TASK_NUM */
uint32_t job_epoch(const struct job *j);
uint32_t job_generation(const struct job *j);
uint32_t job_restarts(const struct job *j); /* how often something began again */
uint32_t job_retries(const struct job *j);  /* how often the whole job began again */
enum job_state job_state(const struct job *j);
const char *job_application_id(const struct job *j);

/* Where the slot's next attempt goes on: the newest checkpoint that all tasks share; NULL = there
 * is none. The job's, valid until the next feed. */
const char *job_checkpoint(const struct job *j, uint32_t slot, uint64_t *out_step);

/* The end. cause_slot = UINT32_MAX when no task is the cause. exit_code: of `tony run` (0, 1, 3).
 * Strings are the job's. */
struct job_verdict {
    enum job_state state; /* SUCCEEDED, FAILED, KILLED; else not decided yet */
    int exit_code;
    const char *message; /* one sentence: "task 'worker:1' failed with exit code 3" */
    uint32_t cause_slot;
};
void job_verdict(const struct job *j, struct job_verdict *out);

/* The status document of `tony status --json` (docs/json.md), of a live or a replayed job. full:
 * with every task. Appends JSON. */
int job_status_json(const struct job *j, bool full, struct buf *out);

/* The same with what the core does not know: further members, each written as `,"name":value`. */
struct job_status_more {
    void (*of_job)(struct buf *out, void *arg);                 /* may be NULL */
    void (*of_task)(uint32_t slot, struct buf *out, void *arg); /* may be NULL */
    void *arg;
    bool no_tail; /* nothing that tasks have written: for readers who may not see their logs */
    int64_t
        now_ms; /* the job's time now, which is later than that of the last event; 0 = it is not */
};
int job_status_json_more(const struct job *j, bool full, const struct job_status_more *more,
                         struct buf *out);

#endif
