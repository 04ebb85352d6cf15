/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors: a return value for the program and a sentence for people.
 *
 * A function that can fail returns 0 (or a count) on success and -errno on failure. On failure it
 * also fills the caller's `struct err` with a sentence that a person can act on. Filling it
 * allocates no memory. Every function accepts NULL as `struct err *`.
 *
 * The sentence says what could not be done, then the kind and the name of the thing in quotes, then
 * why. It starts without a capital and has no full stop and no newline: "task 'worker:3': cannot
 * open log file '/x/stdout': No space left on device".
 */
#ifndef TONY_BASE_ERR_H
#define TONY_BASE_ERR_H

#include <stdarg.h>

struct err {
    int num;        /* positive errno; 0 = nothing went wrong */
    char msg[480];  /* the sentence; a longer one loses its middle, which becomes "..." */
    char hint[240]; /* what the user may try next; may be empty */
};

/* Both fill e (if it is not NULL), empty its hint and return -num. The usual form is
 * `return err_set(e, EINVAL, ...)`. `%m` in fmt stands for strerror(num). num <= 0 is a bug of the
 * caller; it is replaced by EIO. errno is num afterwards. */
int err_set(struct err *e, int num, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int err_vset(struct err *e, int num, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

/* Put a context in front of the sentence ("<context>: <old sentence>"). Returns rc. */
int err_wrap(struct err *e, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Set the hint. Returns -e->num, so that `return err_hint(e, ...)` works like err_set(). */
int err_hint(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Text to put after "%m" if fork() failed with errno num: for EAGAIN it names `ulimit -u`, which is
 * the usual cause and which strerror() does not mention. Otherwise "". */
const char *err_fork_cause(int num);

/* Reset e to "no error". */
void err_clear(struct err *e);

#endif
