/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decisions: what the rules of this version decided about an event.
 *
 * A replay could apply the rules to the events again. But a later version may have other rules, and
 * they must not change the verdict of an old job. So the master also writes the decisions to the
 * journal, in records that come before the record of the event:
 *
 *   decided_restart   An attempt has failed, or its task restarts: which tasks get another attempt,
 *                     and when.
 *   decided_resize    A resize has begun, with which numbers of instances; or how it has ended.
 *   decided_verdict   The verdict, its sentence, and the first failure. The record is written again
 *                     when one of them changes. For example, while the job stops, a task may report
 *                     a failure that happened before the recorded first failure.
 *
 * Each record names the event to which it belongs. A crash may keep that event out of the journal.
 * Then another event follows the decisions, and they do not count.
 *
 * A replay reads these records before it feeds the event. Wherever the rules would decide, the core
 * takes the recorded decision instead. If the rules reach a verdict and the journal has none, the
 * job gets no verdict: the version that wrote the journal did not reach one.
 *
 * Journals of format 1 (version 0.1.0) have no decisions: a replay applies the rules.
 *
 * If there is no memory to note a decision, the journal lacks it. In a replay the rules then decide
 * about a resize; a missing decision about a restart means that nothing restarts. A missing
 * decision about a demand that the job has kept (resize.h) means that the job does not shrink.
 */
#ifndef TONY_JOB_DECISIONS_H
#define TONY_JOB_DECISIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"
#include "job/event.h"
#include "job/failures.h"
#include "job/job.h"
#include "job/resize.h"
#include "job/restart.h"

/* The restart that follows the end of a slot's attempt. */
struct restart_decision {
    uint32_t slot, attempt;   /* with plan.whole, attempt is 0: the whole failed job restarts */
    struct restart_plan plan; /* without taken_ms */
};

struct resize_decision {
    enum resize_outcome outcome; /* RESIZE_OPEN: it began */
    char *targets,
        *by_restart; /* if it began: worker=8,ps=2; names of the roles that need a new gang */
    char *detail;    /* if it ended; may be NULL */
};

struct verdict_decision {
    enum job_state state; /* JOB_NONE: none */
    bool over;            /* every task has ended: nothing changes the verdict any more */
    bool by_task;         /* the failure `first` is the reason */
    bool own_words; /* the message is complete: do not replace it by the sentence about `first` */
    struct failure first;
    char message[JOB_MESSAGE_MAX];
};

/* In a running job: the decisions of the last job_feed(). In a replay: the recorded decisions about
 * the next event. */
struct decisions {
    bool replaying;         /* the recorded decisions count, not the rules */
    enum job_event_type by; /* the event that all of them belong to */
    VEC(struct restart_decision) restarts;
    VEC(struct resize_decision) resizes;
    size_t n_outcomes_used; /* replay: this event has used the first n of `resizes` already */
    bool has_verdict;
    struct verdict_decision verdict; /* decided by this event; valid if has_verdict */
    struct verdict_decision noted;   /* the last verdict that was written to the journal */
    bool was_decided;                /* the job had a verdict before this event */
};

void decisions_done(struct job *j);

/* ---- job.c: around each event ---- */

/* Room for the decisions of an event, so that none is lost: 0 or -ENOMEM. */
int decisions_reserve(struct job *j, enum job_event_type type);
void decisions_begin_event(struct job *j, enum job_event_type type);
void decisions_end_event(struct job *j);
/* The job was restored from a snapshot: the journal already has its verdict. */
void decisions_restored(struct job *j);
/* EV_DECIDED_*: keep the decision for the next event. 0; -ENOMEM; -EBADMSG: the record is damaged,
 * or of a newer version; 1: refused, since the job is not in a replay. */
int decisions_read(struct job *j, const struct job_event *ev, struct err *e);

/* ---- where the rules decide ---- */

/* Note the decision of the rules about the end of the slot's attempt: *plan. If no task restarts,
 * it is noted only if worth_noting, which says that the attempt has failed. In a replay, set *plan
 * to the recorded decision. */
void decisions_restart(struct job *j, uint32_t slot, bool worth_noting, struct restart_plan *plan);
/* Does the job, which has failed, restart as a whole? `allowed` and *due_ms are the answer of the
 * rules. In a replay, set *due_ms to the recorded decision, and return it. */
bool decisions_whole_restart(struct job *j, bool allowed, int64_t *due_ms);
/* In a replay: the recorded decision that this event begins a resize; NULL = there is none. In a
 * running job: NULL. */
const struct resize_decision *decisions_resize(const struct job *j);
/* In a replay: this event only ended the resize that waited. */
bool decisions_resize_only_ends(const struct job *j);
void decisions_resize_begun(struct job *j); /* note that a resize has begun */
/* Note how a resize has ended. In a replay, set *outcome and detail to the recorded decision. */
void decisions_resize_ended(struct job *j, enum resize_outcome *outcome, char *detail, size_t size);
/* Called before the job acts on a verdict. In a replay, replace the verdict of the rules by the
 * recorded one; if none is recorded, remove it. */
void decisions_verdict(struct job *j);

#endif
