/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a program ended, in words for people: found from its exit code, its signal, the reason that
 * the scheduler or the executor gave, and the last lines of its stderr. Each cause has a sentence
 * about what happened and a remedy.
 *
 * Everything here is a function of its arguments: no I/O, no clock, no memory that outlives a call.
 * The same end always has the same cause.
 */
#ifndef TONY_CAUSE_CAUSE_H
#define TONY_CAUSE_CAUSE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/reason.h"

/* If a program wrote nothing to stderr, the executor sends the end of its stdout instead, and puts
 * this line in front of it. */
#define CAUSE_STDOUT_MARK "(nothing on stderr; the end of stdout:)\n"

/* Recorded in place of a cause's name: the end was examined, and it is no failure. */
#define CAUSE_NO_FAILURE "none"

/* The detail of the end of a task on the pool of this machine whose keeper has ended. */
#define CAUSE_KEEPER_ENDED "the keeper of the job (tony-keeper) has ended"

enum { CAUSE_LINE_MAX = 400 }; /* bytes of a line that is kept: fills five rows of a terminal */

struct cause {
    /* A single word, such as "missing_module". Journals and scripts use it, so it must not
     * change. */
    const char *name;
    const char *what;   /* a part of a sentence that calls the task "it": "its node is gone" */
    const char *remedy; /* what to try; may contain "<role>": see cause_remedy() */
    bool victim;        /* the task failed because another task did: look for that one */
    bool vague;         /* nothing is known except that it failed */
    bool general;       /* fits many ends: an earlier failure that left no message may explain it */
};

/* How one attempt or one container ended. The texts are borrowed and may be NULL. */
struct cause_end {
    enum end_reason reason;
    int exit_code, signal;
    const char *detail; /* a sentence of the scheduler or the executor about this end */
    const char *tail;   /* the last lines of the program's stderr */
    bool alone;         /* the job has one task, so this task cannot have lost a peer */
};

/*
 * The cause of an end.
 *
 * out_line  may be NULL. Receives the line of `tail` or `detail` that shows the cause, without
 *           white space around it; empty if no line does. It points into the text of `end`.
 * Returns   NULL if the end is no failure: exit code 0, or tony stopped the program and its last
 *           lines do not say that it was failing already. For all other ends, never NULL.
 */
const struct cause *cause_find(const struct cause_end *end, struct span *out_line);

/* The cause with this name; NULL if there is none, or if name is NULL. */
const struct cause *cause_named(const char *name);

/*
 * cause_find() for a record: returns the cause's name, or CAUSE_NO_FAILURE. The text is static.
 *
 * line  receives a copy of the line that shows the cause, cut to CAUSE_LINE_MAX bytes between two
 *       characters; "" if no line does.
 */
const char *cause_record(const struct cause_end *end, char line[CAUSE_LINE_MAX + 1]);

/* Appends the remedy to out, with `role` in place of "<role>". 0 or -ENOMEM. */
int cause_remedy(const struct cause *cause, const char *role, struct buf *out);

#endif
