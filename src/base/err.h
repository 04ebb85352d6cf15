/*
 * One error object for people, one return convention for programs.
 *
 * A function that can fail returns 0 (or a count) on success and -errno on failure, and fills a
 * caller-owned `struct err` whose sentence a person can act on. Filling it allocates nothing. A
 * NULL `struct err *` is accepted everywhere.
 *
 * The sentence says what could not be done, the kind and name of the thing in quotes, then why; it
 * has no capital, no full stop and no newline: "task 'worker:3': cannot open log file '/x/stdout':
 * No space left on device".
 */
#ifndef TONY_BASE_ERR_H
#define TONY_BASE_ERR_H

#include <stdarg.h>

struct err {
    int num;        /* positive errno; 0 = nothing went wrong */
    char msg[480];  /* the sentence (paths are long; a longer text is cut with "...") */
    char hint[240]; /* what to try next; may be empty */
};

/* Each sets e (if not NULL) and returns -num, so that `return err_set(e, EINVAL, ...)` is the usual
 * form.
 * `%m` in fmt is strerror(num). num == 0 is a bug and becomes EIO. */
int err_set(struct err *e, int num, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int err_vset(struct err *e, int num, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

/* Put a context in front ("<context>: <old sentence>") and return rc. */
int err_wrap(struct err *e, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Set the hint; returns -e->num so that it can end a return expression as well. */
int err_hint(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* What follows "%m" where a process could not be started: EAGAIN has a meaning of its own there. */
const char *err_fork(int num);

/* Forget what went wrong. */
void err_clear(struct err *e);

#endif
