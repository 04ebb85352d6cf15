/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of a growing log see by a mark whether the file was truncated, as copytruncate of
 * logrotate does. The length alone does not tell: the new text may already be longer than what was
 * read of the old one. So a mark has the last bytes before the reader's position.
 */
#ifndef TONY_STORAGE_LOG_MARK_H
#define TONY_STORAGE_LOG_MARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOG_MARK_MAX = 64 };

struct log_mark {
    uint8_t n; /* 0 = nothing is known: only the length tells */
    char text[LOG_MARK_MAX];
};

/* This text was read, and the position is behind it. */
void log_mark_add(struct log_mark *m, const char *text, size_t len);
/* Was the file truncated since `at` bytes of it were read? If so, forget the mark. size: the file's
 * length now. Reads the file only if it has grown. */
bool log_was_truncated(struct log_mark *m, int fd, int64_t at, int64_t size);
/* path_fd: the file that has the log's path now. Did it replace the open file fd, as logrotate does
 * by a rename? true only if it has text: until then the program still writes to the open file. */
bool log_was_replaced(int fd, int path_fd);

#endif
