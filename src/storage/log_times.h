/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file `times` beside the logs of an attempt tells how long the logs were at what time, for
 * `tony logs --since`. An executor appends a line each LOG_TIMES_MS if a log has grown:
 *
 *     <wall clock in ms> <bytes of stdout> <bytes of stderr> [the same of rank 1, ...]
 *
 * An attempt that runs for a shorter time has no such file. When the file has LOG_TIMES_LINES
 * lines, the executor removes every second line and doubles the interval.
 */
#ifndef TONY_STORAGE_LOG_TIMES_H
#define TONY_STORAGE_LOG_TIMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

#define LOG_TIMES_NAME "times"
enum { LOG_TIMES_MS = 10000, LOG_TIMES_LINES = 1024, LOG_TIMES_TEXT_MAX = 4 << 20 };

/* The length of a log at this time, as the text of the file says; 0 = all lines are about later
 * times. Damaged lines are skipped. */
int64_t log_times_length(struct span text, int64_t at_ms, uint32_t rank, bool is_stderr);
/* The offset of the first line that was written after since_ms. times_fd: -1 = there is no such
 * file; then the time of the last write decides. It reads both files by pread(). */
int64_t log_times_since(int times_fd, int log_fd, int64_t since_ms, uint32_t rank, bool is_stderr);

#endif
