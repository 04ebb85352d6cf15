/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/log_times.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

enum { LINE_SEARCH_MAX = 64 << 10 };

/* The field of a line; -1 = it has no such field, or it is no number. */
static int64_t field(struct span line, size_t n)
{
    struct span one = { NULL, 0 };
    int64_t value = -1;
    for (size_t i = 0; i <= n; i++)
        if (!span_split(&line, ' ', &one))
            return -1;
    return str_i64(one, 0, INT64_MAX, "field", &value, NULL) < 0 ? -1 : value;
}

int64_t log_times_length(struct span text, int64_t at_ms, uint32_t rank, bool is_stderr)
{
    int64_t length = 0;
    struct span line;
    while (text.len && span_split(&text, '\n', &line)) {
        int64_t ms = field(line, 0), n = field(line, 1 + 2 * (size_t)rank + is_stderr);
        if (ms < 0 || n < 0)
            continue;
        if (ms > at_ms)
            break;
        length = n;
    }
    return length;
}

/* The start of the first line at or behind this offset. */
static int64_t line_start(int fd, int64_t at)
{
    AUTO(free_p) char *text = at > 0 ? malloc(LINE_SEARCH_MAX) : NULL;
    ssize_t n = text ? pread(fd, text, LINE_SEARCH_MAX, at - 1) : 0;
    const char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
    return end ? at + (end - text) : at;
}

int64_t log_times_since(int times_fd, int log_fd, int64_t since_ms, uint32_t rank, bool is_stderr)
{
    struct stat st, times;
    if (fstat(log_fd, &st) == -1)
        return 0;
    if (times_fd < 0 || fstat(times_fd, &times) == -1)
        return (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000 < since_ms
                   ? st.st_size
                   : 0;
    size_t len = (size_t)MIN((int64_t)times.st_size, (int64_t)LOG_TIMES_TEXT_MAX);
    AUTO(free_p) char *text = malloc(len + 1);
    ssize_t n = text ? pread(times_fd, text, len, 0) : -1;
    if (n < 0)
        return 0;
    int64_t at = log_times_length(span_mem(text, (size_t)n), since_ms, rank, is_stderr);
    return at > st.st_size ? 0 : line_start(log_fd, at); /* longer: the log was truncated since */
}
