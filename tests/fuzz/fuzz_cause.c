/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the last lines of a program, and a message about its end. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cause/cause.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    enum end_reason reason;
    int exit_code, signal;
} ends[] = {
    { END_EXITED, 1, 0 },           { END_EXITED, 2, 0 },
    { END_EXITED, 127, 0 },         { END_EXITED, 139, 0 },
    { END_EXITED, 0, 6 },           { END_EXITED, 0, 7 },
    { END_UNKNOWN, 0, 0 },          { END_LAUNCH_FAILED, 126, 0 },
    { END_KILLED_BY_MASTER, 1, 0 }, { END_KILLED_BY_MASTER, 0, 15 },
};

static bool lies_within(struct span line, const char *text)
{
    return line.p >= text && line.p + line.len <= text + strlen(text);
}

static void check(const struct cause_end *end)
{
    struct span line;
    char kept[CAUSE_LINE_MAX + 1];
    const struct cause *cause = cause_find(end, &line);
    const char *name = cause_record(end, kept);

    if (!cause && end->reason != END_KILLED_BY_MASTER)
        abort(); /* each failure has a cause */
    if (cause_named(name) != cause || (!cause && !str_eq(name, CAUSE_NO_FAILURE)))
        abort();
    if (cause && cause->victim && end->alone)
        abort();
    if (line.len && (!lies_within(line, end->tail) || memchr(line.p, '\n', line.len)))
        abort();
    if (strlen(kept) > line.len || memcmp(kept, line.p, strlen(kept)) != 0)
        abort();
    if (strlen(kept) < MIN(line.len, (size_t)CAUSE_LINE_MAX - 3))
        abort(); /* only characters that do not fit are cut off */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(free_p) char *text = span_dup(span_mem(data, size)); /* the text ends at its first NUL */

    for (size_t i = 0; text && i < ARRAY_LEN(ends); i++)
        for (int alone = 0; alone < 2; alone++)
            check(&(struct cause_end){ .reason = ends[i].reason,
                                       .exit_code = ends[i].exit_code,
                                       .signal = ends[i].signal,
                                       .detail = text,
                                       .tail = text,
                                       .alone = alone != 0 });
    return 0;
}
