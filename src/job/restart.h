/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restarts. When an attempt or a container ends, restart_rules.c decides whether tasks restart,
 * which ones, and when. restart.c moves their slots. Then mend.c brings these slots to their next
 * attempt: it requests containers, waits for the end of pauses, and starts the attempts.
 */
#ifndef TONY_JOB_RESTART_H
#define TONY_JOB_RESTART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/reason.h"
#include "base/vec.h"
#include "conf/conf.h"
#include "job/deadlines.h"

struct cause;
struct err;
struct job;
struct role;
struct slot;
struct slot_end;
enum slot_input;

enum {
    RESTART_DISK_MS = 5000,       /* pause before the first restart after a full disk */
    RESTART_BACKOFF_MS = 1000,    /* least pause before the second restart in a row */
    RESTART_PAUSE_MAX_MS = 60000, /* longest pause, unless the user's own delay is longer */
    RESTART_STEADY_MS = 600000,   /* a failure after a run of this length is the first in a row */
    RESTART_FORGIVE_MS = 3600000, /* a task that ran for this time gets its full budgets back */
    RESTART_NOTICE_MAX_MS = 3600000, /* a longer notice of preemption is shortened to this */
    /* If a task fails within RESTART_QUICK_MS on RESTART_QUICK_NODES nodes, the task is to blame
     * and not the nodes. */
    RESTART_QUICK_MS = 10000,
    RESTART_QUICK_NODES = 3,
};

/* Counts the restarts of a task, or, if more than the task restarts, of its role. */
struct tally {
    uint32_t n;   /* restarts that are charged to the user's limit */
    uint32_t row; /* restarts in a row, for any reason */
    /* With restart-window: the times of the last max_restarts restarts, as a ring. It grows with
     * n, since most tasks never restart. */
    int64_t *times;
    uint32_t n_times; /* elements of times */
};

/* Make room for the times of n restarts. 0 or -ENOMEM. */
int tally_reserve(struct tally *t, const struct role_spec *r, uint32_t n);

/* The part of the job that restarted: a task, a role, the gang or the whole job. */
#define RESTART_KINDS(X)                                                                           \
    X(RESTARTED_TASK, "task", "restarted")                                                         \
    X(RESTARTED_ROLE, "role", "its role restarted")                                                \
    X(RESTARTED_GANG, "gang", "gang formed anew")                                                  \
    X(RESTARTED_JOB, "job", "the whole job started again")

enum restart_kind {
    RESTARTED_NONE = 0,
#define X(id, name, text) id,
    RESTART_KINDS(X)
#undef X
        RESTARTED_COUNT,
};
const char *restart_text(enum restart_kind kind); /* NULL for RESTARTED_NONE */

/* The restart that follows the end of an attempt. */
struct restart_plan {
    enum restart_scope scope; /* which tasks restart; SCOPE_UNSET: none */
    bool elsewhere;           /* in another container */
    bool whole;               /* it counts as a retry of the job */
    int64_t due_ms;           /* not before this time; 0 = at once */
    enum end_reason charge; /* the budget that pays; END_EXITED: the user's limit; END_NONE: none */
    bool in_row;            /* the restart before it was not long ago */
    /* A container will be taken at this time: tasks may save checkpoints until then; 0 = none will.
     */
    int64_t taken_ms;
};

struct restarts {
    bool mending;     /* a slot must restart, and has not started its attempt yet */
    bool hopeless;    /* a restart of the whole job would fail again */
    uint32_t retries; /* restarts of the whole job */
    uint32_t n;       /* all restarts: one for each end that a restart followed */
    struct {          /* the last restart, for people */
        uint32_t slot, attempt;
        enum end_reason reason;
        int exit_code, signal;
        int64_t at_us;
        const struct cause *cause;
        enum restart_kind kind;
        uint64_t step;
    } last;
    int64_t due_ms;    /* the end of the next pause; INT64_MAX = none */
    int64_t paused_ms; /* LIMIT_RESTART has expired at this time: earlier pauses are over */
    /* State of mend.c. todo and pauses have room for all slots. */
    VEC(uint32_t) todo;      /* the slots that mend_run() must look at */
    struct deadlines pauses; /* the slots that restart alone when their pause is over */
    bool look_at_all;        /* mend_run() must look at all slots */
    bool had_old; /* at the last mend_run(), an attempt of an older generation was alive */
};

/* ---- restart_rules.c ---- */

/* Make room for what a restart of this slot will note. 0 or -ENOMEM. */
int restart_reserve(struct job *j, uint32_t slot);
void restart_done(struct job *j);

/* ---- restart.c ---- */

/* An attempt or a container has ended, or must end. final_input: IN_END, IN_GONE or IN_SILENT. If
 * no attempt follows, the slot gets this input. If one follows, it gets the input for a restart
 * instead (IN_RETRY, IN_LOST or IN_DROP), and the slots that restart with it get IN_AGAIN. */
int restart_ended(struct job *j, uint32_t slot, enum slot_input final_input,
                  const struct slot_end *end, struct err *e);
/* The scheduler will take the slot's container within_ms from now. The tasks that would restart
 * then restart now, so that they have time to save a checkpoint. */
int restart_preempting(struct job *j, uint32_t slot, int64_t within_ms, struct err *e);
/* Tell the slot's executor, if it can be reached, to end its command and to exit: its container was
 * given up, or the slot waits for its end. */
void restart_end_executor(struct job *j, uint32_t slot);
/* A new master found that the scheduler does not know the slot's container. In the pool, a restart
 * is charged if an attempt ran in it; on a cluster no restart is charged. If an attempt may still
 * run in it, the slot waits for the end of its lease (decision 0008). */
void restart_unseen(struct job *j, uint32_t slot, const struct slot_end *lost);
/* Restart a job that has failed as a whole, if tony.am.retry-count allows it. */
bool restart_whole(struct job *j);
/* Has an attempt been started in the slot's container, as far as this master knows? If an earlier
 * master died, the journal may have lost its last records. So a first attempt may have been started
 * although the journal does not have its start. Later attempts start only after their start is
 * stored (ACT_SYNC). */
bool restart_may_have_started(const struct job *j, const struct slot *s);
/* Must the slot's executor stay, because another attempt may follow in the same container? */
bool restart_wants_executor(const struct job *j, uint32_t slot);
/* Form the gang anew because of a resize; no restart is charged. save_until_ms: running tasks may
 * save a checkpoint and must end by then (slot_allow()). */
void restart_gang(struct job *j, int64_t save_until_ms);

/* ---- mend.c ---- */

/* Bring the restarting slots further: request containers, take those of spares, start attempts.
 * Called after each event while restarts.mending. */
void mend_run(struct job *j);
int mend_fired(struct job *j, struct err *e); /* LIMIT_RESTART */
/* May an attempt of an older generation be alive? */
bool mend_may_old_be_alive(const struct job *j);
/* Does a slot of the role need to register before it can start its next attempt? */
bool mend_has_unregistered(const struct role *r);
void mend_spares(struct job *j); /* request containers for spares, once all tasks have theirs */
/* The slot's state has changed: put it on the list of mend_run(), if mend_run() must look at it. */
void mend_look_at(struct job *j, uint32_t slot);
void mend_look_at_all(struct job *j);

#endif
