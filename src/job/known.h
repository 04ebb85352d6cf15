/*
 * Known ways to fail: what an exit code, a signal, a class of reason and the last lines of stderr
 * mean to a person, and what to do about it. A pure table: the same end is always found the same.
 */
#ifndef TONY_JOB_KNOWN_H
#define TONY_JOB_KNOWN_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/reason.h"

/* Before the end of stdout that stands for a stderr without a word. */
#define KNOWN_STDOUT_MARK "(nothing on stderr; the end of stdout:)\n"

struct known {
    const char *name;   /* one word, stable: "missing_module" */
    const char *what;   /* a clause about the task: "a Python module that it needs is missing" */
    const char *remedy; /* what to try; "<role>" stands for the role's name */
    bool victim;        /* it failed because something else did: another task, most likely */
    bool vague;         /* nothing is known but that it failed */
    bool general;       /* may well have come of a failure that said nothing */
};

struct known_end {
    enum end_reason reason;
    int exit_code, signal;
    const char *detail, *tail; /* may be NULL */
    bool alone;                /* the job has no other task: it cannot have lost a peer */
};

/*
 * Never NULL but for an end that is no failure (exit code 0, or stopped by us without a word on
 * why). out_line: the line of tail or detail that gave it away, without white space around it; may
 * be empty; borrowed from end; out_line itself may be NULL.
 */
const struct known *known_find(const struct known_end *end, struct span *out_line);
/* remedy with the role's name in it. */
int known_remedy(const struct known *k, const char *role, struct buf *out);

#endif
