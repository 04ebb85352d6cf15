/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The failures of a job: which of them was the first (verdict.c), and the list of them for people
 * (failures.c).
 */
#ifndef TONY_JOB_FAILURES_H
#define TONY_JOB_FAILURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/reason.h"
#include "job/job.h"
#include "job/restart.h"
#include "job/slot.h"

struct buf;
struct cause;

enum {
    JOB_SAME_FAILURE_MS = 1000, /* failures within this time count as one */
    /* A task that lost a peer may end before the peer itself, which still writes its traceback. So
     * for this time after a lost connection, the failure of a peer may be the earlier cause. */
    JOB_VICTIM_MS = 10000,
    /* If the first failure is a lost peer, running tasks get this time to end by themselves before
     * they are stopped: one of them may be that peer. */
    JOB_SELF_END_MS = 1500,
    JOB_FAILURES_KEPT = 16,
    JOB_FAILURES_SHOWN = 16,
    JOB_NO_SLOT = -1,
    JOB_MESSAGE_MAX = 640, /* bytes of the sentence that says why a job ended */
};

struct failure {
    int64_t slot;  /* whose attempt failed; JOB_NO_SLOT = there is no failure */
    int64_t at_us; /* job time of the end itself, not of its report */
    const struct cause *cause;
};

/* A failed attempt, for people. */
struct past_failure {
    uint32_t slot, generation, attempt;
    enum end_reason reason;
    int exit_code, signal;
    int64_t at_us;
    uint64_t step;
    char *detail, *tail, *cause_line; /* may be NULL */
    int32_t node;                     /* as in struct slot */
    enum slot_note note;
    enum restart_kind done; /* the restart that followed; RESTARTED_NONE = none did */
    const struct cause *cause;
};

struct failures {
    struct failure first; /* the first failure, which probably caused the others */
    struct failure fatal; /* the failure that made the job fail, by the rules in policy.c */
    struct past_failure past[JOB_FAILURES_KEPT]; /* a ring of failures that a restart followed */
    uint32_t n_past; /* the number of failures that were ever added to the ring */
};

/* ---- verdict.c ---- */

enum slot_result verdict_result(const struct slot *s, const struct slot_end *end);
bool verdict_is_failure(enum slot_result r);
/* The slot has failed: make this the first failure, if it is more likely the cause than the failure
 * that is noted as the first one. */
void verdict_candidate(struct job *j, uint32_t slot, int64_t at_us);
/* A task that was being stopped has ended. It may be the first failure itself: its peers often
 * report the lost connection before it reports its own end. */
void verdict_stopped_ended(struct job *j, uint32_t slot, int64_t at_us);
/* Set the cause of the end of the slot's attempt, the line that shows it, and, if the cause shows
 * that the task ended by itself, the reason. */
void verdict_set_cause(const struct job *j, struct slot *s, const struct slot_end *end);
/* Write a sentence about the end of the slot's attempt: "task 'worker:1' failed with exit code 3".
 */
void verdict_sentence(const struct job *j, uint32_t slot, char *out, size_t size);
void verdict_compose(struct job *j); /* set j->message to a sentence about the first failure */
int verdict_exit_code(enum job_state s);

/* ---- failures.c ---- */

/* Move the failure of a slot's ended attempt to the ring, before the next attempt overwrites it. */
void failures_keep(struct job *j, uint32_t slot, enum restart_kind done);
void failures_done(struct job *j);
/* Note for people which part of the job (a task, a role, the gang) restarts now, and which slot's
 * end is the reason. */
void failures_note_restart(struct job *j, uint32_t slot, enum restart_kind done);
void failures_restart_json(const struct job *j, struct buf *out); /* ,"last_restart":{...} */
/* How much of the tasks' own output the list contains. */
enum failure_words {
    WORDS_NONE = 0,
    WORDS_LINE, /* the line that shows the cause */
    WORDS_TAIL, /* also the last lines of stderr */
};
/* Append ,"failures":[...], sorted by time; nothing if there was no failure. */
void failures_json(const struct job *j, enum failure_words words, struct buf *out);

/* ---- status.c ---- */

void status_text(struct buf *out, const char *key, const char *s); /* ,"key":"s", or null */
/* ,"key":v, or null if it is not known */
void status_number(struct buf *out, const char *key, int64_t v, bool known);
void status_task_name(const struct job *j, uint32_t slot, struct buf *out); /* {"task":"worker:3" */

#endif
