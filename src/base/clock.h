/*
 * Time. Deadlines are absolute monotonic milliseconds; wall time is only for people and for names.
 */
#ifndef TONY_BASE_CLOCK_H
#define TONY_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t clock_mono_us(void);
int64_t clock_mono_ms(void);
int64_t clock_wall_ms(void); /* since 1970 */
const char *clock_iso8601(int64_t wall_ms, char *buf,
                          size_t n); /* "2026-01-31T12:00:00.123Z"; returns buf */

#endif
