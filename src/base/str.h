/*
 * Strings and numbers of text from outside: parsed whole, with a range, in error messages by the
 * name of their field.
 */
#ifndef TONY_BASE_STR_H
#define TONY_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

/* Allocated printf; NULL = no memory. */
char *str_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
char *str_dup(const char *s); /* NULL in, NULL out */

bool str_eq(const char *a, const char *b); /* NULL equals only NULL */
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);

/* Parse a whole decimal integer, `what` names the field in the error. -EINVAL not a number, -ERANGE
 * out of [min, max]. */
int str_i64(struct span s, int64_t min, int64_t max, const char *what, int64_t *out, struct err *e);

/* Size in MiB, TonY's memory strings ("2g", "2048m", "3" = MiB; also k, t, kb, mb, gb, gib, mib;
 * any case). Fractions are refused. */
int str_mib(struct span s, int64_t min, int64_t max, const char *what, int64_t *out, struct err *e);

/* true/false/yes/no/on/off/1/0 in any case. */
int str_bool(struct span s, const char *what, bool *out, struct err *e);

/* Levenshtein distance, capped at 255; for "did you mean". */
unsigned str_distance(const char *a, const char *b);
/* The candidate nearest to s, or NULL when none is near enough to be a slip of the pen. Borrowed
 * from list. */
const char *str_nearest(const char *s, const char *const *list, size_t n);

/* Copy into a fixed array, always terminated; returns false when it was cut. */
bool str_copy(char *dst, size_t size, const char *src);

/* Nothing in s breaks the line or steers a terminal afterwards: white space becomes blanks, other
 * control characters '?'. */
void str_mask_controls(char *s);

/* Human forms into buf: "1.5 GB", "2 m 03 s" (n bytes at most; returns buf). */
const char *str_size(uint64_t bytes, char *buf, size_t n);
const char *str_duration(int64_t ms, char *buf, size_t n);

#endif
