/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slot is a place in the job, such as worker:3: a role and an index. Its number is its id. An id
 * means the same place as long as the job lives: new slots get higher ids, and no slot is removed.
 * If a role shrinks, the slots that it loses become SLOT_ABSENT.
 *
 * slot_step() is the only function that changes a slot's state. The table slot_table says what
 * follows from each input in each state.
 */
#ifndef TONY_JOB_SLOT_H
#define TONY_JOB_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/reason.h"
#include "job/job.h"
#include "job/restart.h"

struct cause;
struct err;

/* The inputs of the state table. An input is what an event means for a slot; several events can
 * mean the same. A fenced event (job.h) never becomes an input. */
#define SLOT_INPUTS(X)                                                                             \
    X(IN_WANT, "want")         /* policy: request a container */                                   \
    X(IN_GRANT, "grant")       /* a container was allocated */                                     \
    X(IN_REFUSE, "refuse")     /* the scheduler will never allocate a container */                 \
    X(IN_REGISTER, "register") /* the executor registers and knows no current attempt */           \
    X(IN_READY, "ready")       /* the executor is ready for another attempt */                     \
    X(IN_START, "start")       /* policy: start an attempt */                                      \
    X(IN_RETURN, "return")     /* the executor has reconnected and knows the current attempt */    \
    X(IN_END, "end")           /* the attempt ended */                                             \
    X(IN_GONE, "gone")         /* the container ended, or is lost */                               \
    X(IN_STOP, "stop")         /* policy: stop the task; no attempt follows */                     \
    X(IN_SILENT, "silent")     /* the executor sent nothing for too long */                        \
    X(IN_OVERDUE, "overdue")   /* the container should have ended by now */                        \
    X(IN_ABANDON, "abandon")   /* do not wait for the end of the container any longer */           \
    X(IN_YIELD, "yield")       /* policy: its gang is incomplete and gives its containers back */  \
    X(IN_RETRY, "retry")       /* the attempt ended, and another follows in the same container */  \
    X(IN_LOST, "lost")         /* the container is gone, and the slot gets another one */          \
    X(IN_DROP, "drop")         /* the container must end, and the slot gets another one */         \
    X(IN_AGAIN, "again")       /* policy: the slot restarts together with others */                \
    X(IN_TAKE, "take")         /* the slot has received the container of a spare */                \
    X(IN_LEND, "lend")         /* the spare has given its container away */                        \
    X(IN_JOIN, "join")         /* policy: the job grows, and the slot now belongs to it */         \
    X(IN_LEAVE, "leave")       /* policy: the job shrinks, and the slot must leave it */           \
    X(IN_REISSUE, "reissue")   /* a new master: issue again the actions that are still wanted */

enum slot_input {
    IN_NONE = 0,
#define X(id, name) id,
    SLOT_INPUTS(X)
#undef X
        IN_COUNT,
};

enum slot_do {
    DO_NOTHING = 0,
    DO_ASK,
    DO_CANCEL,
    DO_LAUNCH,
    DO_START,
    DO_STOP_ATTEMPT,
    DO_FINISH_EXECUTOR,
    DO_STOP_CONTAINER,
    DO_RENEW,
    DO_COUNT,
};

struct slot_cell {
    enum slot_state to; /* SLOT_NONE: the input is refused */
    enum slot_do act;
};

extern const struct slot_cell slot_table[SLOT_STATE_COUNT][IN_COUNT];
const char *slot_input_name(enum slot_input in);
const char *slot_do_name(enum slot_do d);

/* The core's own sentences about an end that came without a detail. */
#define SLOT_NOTES(X)                                                                              \
    X(NOTE_REFUSED, "refused", "the scheduler refused it a container")                             \
    X(NOTE_UNKNOWN, "unknown", "the scheduler does not know its container any more")               \
    X(NOTE_SILENT, "silent", "no heartbeat")                                                       \
    X(NOTE_UNREGISTERED, "unregistered", "its executor did not register")                          \
    X(NOTE_BETWEEN, "between", "its executor ended between two attempts")                          \
    X(NOTE_PREEMPTING, "preempting", "the scheduler was about to take its container")              \
    X(NOTE_UNWATCHED, "unwatched", "nothing watches over its container any more")                  \
    X(NOTE_UNCONFIRMED, "unconfirmed", "the scheduler never confirmed the end of its container")   \
    X(NOTE_ROLE_STOPPED, "role_stopped", "the role was stopped by the end of another one")

enum slot_note {
    NOTE_NONE = 0,
#define X(id, name, text) id,
    SLOT_NOTES(X)
#undef X
        NOTE_COUNT,
};
/* The sentence; those of NOTE_SILENT and NOTE_UNREGISTERED name the job's limits. NULL: NOTE_NONE.
 */
const char *slot_note_text(const struct job *j, enum slot_note note);

/* The end of an attempt or a container, whatever event reported it. */
struct slot_end {
    enum end_reason reason;
    uint32_t rank; /* the rank, within the task, whose end ended the attempt */
    int exit_code, signal;
    int64_t at_us; /* job time of the end */
    /* Strings in the copy of the event; each may be NULL. A slot that keeps one takes it with
     * event_take(). */
    const char **detail, **tail, **cause_line;
    enum slot_note note; /* used if there is no detail */
    bool with_master;    /* a new master learns of this end before it has resynced */
    const char *cause;   /* the cause's name in the event, borrowed; NULL = the event has none */
};

struct slot {
    uint32_t role, index;
    enum slot_state state;
    enum slot_result result; /* RES_NONE until settled */
    enum end_reason reason;
    bool connected; /* its executor has a connection to this master */
    bool suspect;   /* its executor was silent for JOB_SUSPECT_BEATS beats */
    bool seen;      /* the scheduler knew its container when this master resynced */
    bool ready;     /* its attempt has reported that it is ready; stays set until a restart */
    /* How often LIMIT_STOP expired since it entered its state. In a slot that was abandoned because
     * its end was not confirmed: JOB_STOP_TRIES. */
    uint32_t stop_tries;
    uint32_t generation, attempt; /* of the current or last attempt; 0 = there was none */
    uint32_t tb_port, pid;
    uint32_t rank; /* as in struct slot_end */
    int exit_code, signal;
    int64_t since_ms; /* when it entered its state */
    int64_t beat_ms;  /* last heartbeat or message of its executor (beat_clock(), limits.h) */
    int64_t stop_us;  /* when it was told to stop; -1 = it was not */
    int64_t started_ms, ended_ms;
    int64_t ended_us;                 /* once settled: the exact time for ended_ms */
    const struct cause *cause;        /* once settled: why it ended; NULL = no failure */
    uint64_t step, total, first_step; /* of this attempt; first_step: the first one reported */
    int64_t first_ms, step_ms;        /* when first_step and step were reported; 0 = never */
    struct slot_checkpoints *saved;   /* of all its attempts; NULL = it never saved a checkpoint */
    char *container, *address, *gpus, *tensorboard, *detail, *tail;
    char *cause_line; /* the line of its output that shows the cause; NULL = none does */
    enum slot_note note;

    struct tally tally;
    uint32_t spent[END_COUNT];          /* restarts charged to each budget, by reason */
    int64_t due_ms;                     /* the next attempt must not start before this time */
    int32_t node;                       /* index of its container's node; -1 = this machine */
    int32_t quick[RESTART_QUICK_NODES]; /* nodes on which it failed at once; -1 = none */
    uint32_t lent_to;                   /* of a spare: the slot that has its container */
    bool moved;      /* its executor was told another index, or has the container of a spare */
    bool renumbered; /* a resize has changed its index */
    /* The next attempt of the slot gets a larger number than this: see renumber() in resize.c. */
    uint32_t attempts_before;
    uint32_t elsewhere; /* number of its attempts that ran in other containers */
    /* The scheduler reports nothing more about the container, but an attempt may still run in it:
     * its node was lost (END_NODE_LOST), or its end was never confirmed (decision 0008). */
    bool given_up;
    int64_t left_ms; /* when its executor closed the connection (beat_clock()); 0 = it has not */
    /* The slot halts because the scheduler will take a container at this time; 0 = it does not. If
     * `leaves` is set, that is the slot's own container; else that of another slot. */
    int64_t taken_ms;
    bool leaves;
    bool queued; /* it is in the list restarts.todo */
};

#define SLOT_NAME "%s:%u" /* with SLOT_ARGS(j, slot) */
#define SLOT_ARGS(j, i) job_role_name((j), (j)->slots[i].role), (j)->slots[i].index

/* Feed one input to a slot: look up the cell of the table, change the state and the counters, and
 * add the action. 0; or 1: the table refuses the input in this state, and e says so.
 *
 * end: how an attempt or container ended, or NULL. If the slot is SLOT_DRAINING or SLOT_ENDED after
 * the step (with IN_SILENT: in any state), and has no result yet, it gets its result from `end`. */
int slot_step(struct job *j, uint32_t slot, enum slot_input in, const struct slot_end *end,
              struct err *e);
/* Initialize a new slot: SLOT_ABSENT. */
void slot_init(struct slot *s, uint32_t role, uint32_t index);
void slot_done(struct slot *s);
/* slot_uncount() removes a slot from the counters of its role and its job, slot_count() adds it
 * again. Call them before and after a change of its state, result, attempt or readiness;
 * slot_step() does so itself. */
void slot_uncount(struct job *j, const struct slot *s);
void slot_count(struct job *j, const struct slot *s);
/* Store how the slot's attempt ended; kept until the next attempt starts. */
void slot_keep_end(struct job *j, struct slot *s, const struct slot_end *end);
/* Set the times of a stop so that the attempt ends before taken_ms: half of the time until then to
 * save a checkpoint, a quarter to end, and a quarter as a margin. */
void slot_allow(const struct job *j, int64_t taken_ms, struct act_stop_attempt *a);
bool slot_settled(const struct slot *s);    /* does the slot have its result? */
bool slot_has_container(enum slot_state s); /* granted, and not known to have ended */
/* Is the slot on the way to its next attempt? It waits for a container, for its executor, or for
 * the end of the last attempt. */
bool slot_awaits_attempt(enum slot_state s);
/* Does the slot start its next attempt alone, while others of its generation run? If not, it starts
 * together with its gang. Without a gang, it starts once nothing of an older generation is alive.
 */
bool slot_restarts_alone(const struct job *j, const struct slot *s);

#endif
