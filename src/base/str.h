/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings, and parsers of numbers in text from outside. A parser accepts a number only if it is the
 * whole text and lies in a given range. `what` is the name of the field in error messages.
 */
#ifndef TONY_BASE_STR_H
#define TONY_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

/* Format into a new string, which the caller frees. NULL = no memory. */
char *str_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
char *str_dup(const char *s); /* like strdup(), but accepts NULL and returns NULL then */

bool str_eq(const char *a, const char *b); /* NULL equals only NULL */
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);

/* Parse a decimal integer. -EINVAL: not a whole number; -ERANGE: outside [min, max]. */
int str_i64(struct span s, int64_t min, int64_t max, const char *what, int64_t *out, struct err *e);

/* Parse a range of whole numbers, "FIRST-LAST", both in [min, max]. -EINVAL: no range, or FIRST is
 * more than LAST; -ERANGE. */
int str_range(struct span s, int64_t min, int64_t max, const char *what, int64_t *out_first,
              int64_t *out_last, struct err *e);

/* Parse a decimal number such as 0.25 or 1e-3. -EINVAL: not a decimal number ("nan" and "inf" are
 * none); -ERANGE: outside [min, max]. */
int str_real(struct span s, double min, double max, const char *what, double *out, struct err *e);

/* Parse a size into MiB, in the notation of TonY's memory settings. "2g" is 2048, "2048m" is 2048,
 * "3" is 3. Units: k, m, g, t, each also with "b" or "ib" behind it, in any case; no unit means
 * MiB. A size that is not a whole number of MiB: -EINVAL. Outside [min, max]: -ERANGE. */
int str_mib(struct span s, int64_t min, int64_t max, const char *what, int64_t *out, struct err *e);

/* Parse a time in milliseconds: "500ms", "90s", "10m", "2h", "1d", in any case. The unit is
 * required. -EINVAL not a time, -ERANGE out of [min, max]. */
int str_ms(struct span s, int64_t min, int64_t max, const char *what, int64_t *out, struct err *e);
/* The forms that str_ms() reads, for hints and help. */
#define STR_MS_FORMS "500ms, 90s, 10m, 2h, 1d"
/* Write a time in a form that str_ms() reads, in the largest unit without a fraction: 90000 is
 * "90s". Returns buf, which has n bytes. */
const char *str_ms_text(int64_t ms, char *buf, size_t n);

/* Parse true, false, yes, no, on, off, 1 or 0 in any case. Anything else: -EINVAL. */
int str_bool(struct span s, const char *what, bool *out, struct err *e);

/* Levenshtein distance. If a or b is longer than 255 bytes, the result is 255. */
unsigned str_distance(const char *a, const char *b);
/* The entry of list that s is probably a misspelling of, for "did you mean"; case is ignored.
 * Borrowed from list. NULL: no entry is near. */
const char *str_nearest(const char *s, const char *const *list, size_t n);

/* Copy src into an array of `size` bytes, always NUL-terminated. Returns false if src was cut; the
 * cut lies between UTF-8 characters. */
bool str_copy(char *dst, size_t size, const char *src);

/* Replace newline, carriage return and tab by a blank, and every other control character by '?', so
 * that s is one line and cannot send commands to a terminal. */
void str_mask_controls(char *s);

/* Write a size ("1.5 GB", 1 KB = 1024 B) or a duration ("2 m 03 s") for people into buf, which has
 * n bytes. Returns buf. */
const char *str_size(uint64_t bytes, char *buf, size_t n);
const char *str_duration(int64_t ms, char *buf, size_t n);

#endif
