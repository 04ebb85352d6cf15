/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job changes its number of tasks while it lives.
 *
 * A resize has a target: the new number of instances of each role. How the job reaches it depends
 * on the policy of the roles whose number changes (conf.h, resize_policy):
 *
 *   restart  The new slots get their containers and register, while the job continues with its old
 *            size. When all of them have registered, all tasks may save a checkpoint, then they
 *            are stopped, and the gang forms anew with the new size. If the job only shrinks, this
 *            happens at once.
 *   live     When all new slots have registered, they start. A superfluous slot saves a checkpoint
 *            and leaves. The other tasks continue, and get the new addresses (ACT_PEERS).
 *   never    The resize is refused.
 *
 * A job that has not started yet only requests another number of containers. The same holds for a
 * role whose stage has not come: its resize is done at once. If the scheduler refuses such a
 * container before a task of the role has begun, the role gets its old size back: resize_undo().
 * This also holds if another resize has begun before the refusal.
 *
 * No resize is charged to the budgets of restarts. If the new containers are not granted in time,
 * are refused, or end, the job keeps its size. It also keeps its size if a task of a role that
 * changes ends for good, or if such a role is stopped by the end of another one.
 *
 * A client (EV_RESIZE) or the scheduler (EV_SHRINK, EV_GROW) starts a resize. While a resize waits
 * for containers, a newer one replaces it. While the gang stops and forms anew, a newer one is
 * refused, except EV_SHRINK: the job keeps that demand, and shrinks when the gang has formed. If an
 * EV_GROW with a larger number comes before that, the kept demand gets this number. The scheduler
 * then wants back fewer containers, or none.
 *
 * The scheduler may demand that no work is lost (`saved` of both events). Then a gang that would
 * have to restart waits, in RESIZE_WAITING, until a checkpoint is whole that is newer than the
 * demand. If there is none within the time of the demand, the job keeps its size, and runs on.
 *
 * If the job shrinks, the tasks with the highest indices leave. The scheduler may name other slots,
 * because of their nodes. If the gang restarts anyway, these leave instead, and the slots that stay
 * take over their indices. Index 0 never changes: it may have the server of the ranks.
 *
 * If the scheduler demands fewer containers than the job may have at least, the job shrinks to that
 * least number. If it has that number already, the demand is refused.
 */
#ifndef TONY_JOB_RESIZE_H
#define TONY_JOB_RESIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "job/event.h"

struct buf;
struct job;
struct slot;
struct slot_end;

#define RESIZE_STATES(X)                                                                           \
    X(RESIZE_STEADY, "steady")   /* the job has the size that it should have */                    \
    X(RESIZE_WAITING, "waiting") /* it waits for new containers, and keeps its old size */         \
    X(RESIZE_FORMING, "forming") /* the gang stops, and forms anew with the new size */

enum resize_state {
    RESIZE_NONE = 0,
#define X(id, name) id,
    RESIZE_STATES(X)
#undef X
        RESIZE_STATE_COUNT,
};

#define RESIZE_OUTCOMES(X)                                                                         \
    X(RESIZED, "done")                                                                             \
    X(RESIZE_TIMED_OUT, "timed_out")                                                               \
    X(RESIZE_REFUSED, "refused")   /* the scheduler refused a container, or a new one ended */     \
    X(RESIZE_REPLACED, "replaced") /* a newer resize has replaced it */

enum resize_outcome {
    RESIZE_OPEN = 0,
#define X(id, name) id,
    RESIZE_OUTCOMES(X)
#undef X
        RESIZE_OUTCOME_COUNT,
};

const char *resize_outcome_name(enum resize_outcome o); /* NULL for RESIZE_OPEN */

/* A demand of the scheduler that came while the gang formed anew. */
struct kept_shrink {
    bool set;
    uint32_t n_containers;
    bool saved;
    int64_t due_ms; /* when the scheduler takes containers itself, or, if saved, when the demand
                     * ends; 0 = never */
    char *why;      /* may be NULL */
};

/* The last answer of job_bounds(), and what it was computed from. Computing it may take some
 * milliseconds, and the master asks after each event. */
struct bounds {
    uint32_t min, max;
    uint32_t for_job;   /* bits; 0 = not computed yet */
    uint32_t *for_role; /* by role: 2 * target, + 1 if the scheduler may resize the role */
};

struct resize {
    enum resize_state state;
    /* The next six have the number of instances of each role, also of roles that do not change. */
    uint32_t *target; /* the size that the job should have */
    uint32_t *from;   /* its size when this resize, or the last one, began */
    /* The size of each role before the first resize that the scheduler may still refuse. A role
     * that has not started gets it back if the scheduler refuses `from`, too. At most `from`. */
    uint32_t *fallback;
    uint32_t *to;         /* the target of the last resize that ended */
    uint32_t *asked;      /* the size that the event being checked asks for */
    uint32_t *room;       /* only of ask_for(): how far each role may grow, or shrink */
    uint32_t *by_restart; /* 1: a change of this role needs a new gang (RESIZE_RESTART) */
    int64_t asked_ms;     /* when the resize began */
    int64_t due_ms;       /* when the job stops waiting for containers; INT64_MAX = never */
    int64_t save_due_ms;  /* when the scheduler takes containers; 0 = it does not */
    /* The gang does not restart before a checkpoint is whole that is not this one. */
    bool saved;
    uint32_t saved_generation; /* 0 = there was none when the resize began */
    uint64_t saved_step;
    bool failed;          /* a joining slot has ended: detail names it */
    bool shape_requested; /* resize_slot_restarts() has requested ACT_SHAPE for this event */
    char *who, *why;      /* may be NULL */
    char *leave;          /* the list of EV_SHRINK; may be NULL */
    /* 0, or 1 + the number of containers that the scheduler demanded. If not 0, the job shrinks
     * only to a larger number, because its roles allow no fewer. */
    uint32_t below;
    struct bounds bounds;
    struct kept_shrink kept; /* set only in RESIZE_FORMING */
    /* For people: */
    uint32_t n;                  /* number of resizes with the outcome RESIZED */
    enum resize_outcome outcome; /* of the last resize that ended */
    int64_t ended_ms;
    char detail[160]; /* why that one was not done, or not as far as the scheduler demanded */
};

int resize_init(struct job *j); /* -ENOMEM */
void resize_done(struct job *j);
/* Take the next steps of the resize that are possible now. Called after each event. */
void resize_run(struct job *j);
/* An ended slot restarts. A resize may have told the scheduler that the job does not want the
 * container of that slot. So tell it the whole demand again, before the slot requests one. */
void resize_slot_restarts(struct job *j);
/* End the resize if the gang has formed with its new size. Called after mend_run(). */
void resize_formed(struct job *j);
/* The job ends, and with it a resize that is not done. */
void resize_job_ends(struct job *j);
/* Will a slot that joins start only when the gang has formed anew? */
bool resize_starts_in_new_gang(const struct job *j, const struct slot *s);
/* Does the resize wait only for a newer checkpoint? */
bool resize_awaits_checkpoint(const struct job *j);
/* LIMIT_RESIZE. */
int resize_fired(struct job *j, struct err *e);
/*
 * EV_ALLOCATION_REFUSED. If resizes have added tasks to a role that has not started, and the
 * refusal concerns them, take the newest change back:
 *
 *   the last resize added them    the role gets `from` back
 *   an earlier one added them     the role gets `fallback` back. If another resize waits for
 *                                 containers, and the refusal is about the demand as a whole, that
 *                                 resize ends instead. The scheduler refuses the rest again if it
 *                                 is still too large.
 *
 * The last resize becomes RESIZE_REFUSED; if it has changed other roles, it stays RESIZED, with a
 * detail. false: the refusal is about other tasks.
 */
bool resize_undo(struct job *j, uint32_t slot, const char *why);
/* A slot that was to join has ended, or will never have a container: the job keeps its size. */
void resize_joiner_ended(struct job *j, uint32_t slot);

/* ---- resize_demand.c: the demands of the scheduler; also job_bounds() of job.h ---- */

/* EV_SHRINK and EV_GROW; their fields are alike. d->within_ms: the time until the scheduler takes
 * containers itself (shrink), or until the demand ends (grow, or saved). 0; 1: refused, with a
 * sentence for people; -ENOMEM. */
int resize_by_scheduler(struct job *j, const struct ev_shrink *d, bool grow, struct err *e);
/* Begin to shrink as the scheduler has demanded while the gang formed anew, if it has formed.
 * Called after resize_formed(). true: a resize has begun, so the caller calls resize_run(). */
bool resize_begin_kept(struct job *j);
/* Forget the demand that is kept while the gang forms, if there is one. */
void resize_forget_kept(struct job *j);

/* ---- resize.c, for the other files of resizes ---- */

/* The resize ends with this outcome. detail: why, for people; may be NULL. */
void resize_end(struct job *j, enum resize_outcome outcome, const char *detail);
/* Has none of the role's tasks begun an attempt? */
bool resize_role_is_unstarted(const struct job *j, uint32_t role);
/* The number of containers that the job has if each role has n[role] instances. Spares count. */
uint32_t resize_count_containers(const struct job *j, const uint32_t *n);

/* ---- resize_request.c ---- */

/* EV_RESIZE. 0; 1: refused, with a sentence for people; -ENOMEM. */
int resize_asked(struct job *j, struct ev_resize *ev, struct err *e);
/* Read targets such as worker=8,ps=2 (may be NULL) into z->asked. Roles that are not named keep
 * their target. In a replay, use the targets of the recorded decision instead. 0; 1: they name no
 * role, or no number: e, which may be NULL, says so. */
int resize_parse_targets(struct job *j, const char *targets, struct err *e);
/* May the job get the size z->asked now? 0; 1: no, and e says why. */
int resize_check_asked(const struct job *j, struct err *e);
/* Make the slots that z->asked needs, and begin the resize. within_ms: how long the job waits for
 * containers; 0: tony.resize.timeout. 0 or -ENOMEM. */
int resize_begin(struct job *j, int64_t within_ms, struct err *e);
/* Begin the resize to z->asked. The caller has checked that size, and all its slots exist. */
void resize_start(struct job *j, int64_t within_ms);
int resize_refuse_ending(struct err *e); /* always 1: the job is ending */
/* Always -EBADMSG: e says why a recorded resize cannot be followed. */
int resize_decision_damaged(struct err *e);

/* ---- resize_view.c; also job_was_resized() and job_wants() of job.h ---- */

/* Append ,"resizes":n if any was done, and ,"leaving":n if tasks are leaving. Then append
 * ,"resize":{...} if a resize is under way, with a demand that is kept, or else
 * ,"last_resize":{...} if one has ended. */
void resize_json(const struct job *j, struct buf *out);

#endif
