/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time. A deadline is an absolute time in milliseconds of the monotonic clock (CLOCK_MONOTONIC).
 * Wall-clock time is only for people and for names of files.
 */
#ifndef TONY_BASE_CLOCK_H
#define TONY_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t clock_mono_us(void);
int64_t clock_mono_ms(void);
int64_t clock_wall_ms(void); /* since 1970-01-01 UTC */
/* Write wall_ms as "2026-01-31T12:00:00.123Z" into buf (n bytes with the NUL). Returns buf. */
const char *clock_iso8601(int64_t wall_ms, char *buf, size_t n);

#endif
