/* SPDX-License-Identifier: Apache-2.0 */
#include "base/reason.h"

#include <stddef.h>

#include "base/str.h"

static const char *const names[END_COUNT] = {
    [END_NONE] = "none",
    [END_EXITED] = "exited",
    [END_KILLED_BY_MASTER] = "killed_by_master",
    [END_PREEMPTED] = "preempted",
    [END_NODE_LOST] = "node_lost",
    [END_OUT_OF_MEMORY] = "out_of_memory",
    [END_LAUNCH_FAILED] = "launch_failed",
    [END_DISK_FAILED] = "disk_failed",
    [END_UNKNOWN] = "unknown",
    [END_TIMED_OUT] = "timed_out",
};

const char *end_reason_name(enum end_reason r)
{
    return (unsigned)r < END_COUNT ? names[r] : names[END_UNKNOWN];
}

enum end_reason end_reason_parse(const char *name)
{
    for (int r = END_NONE + 1; r < END_COUNT; r++) {
        if (str_eq(names[r], name))
            return (enum end_reason)r;
    }
    return END_NONE;
}

void end_container_code(enum end_reason r, int *exit_code, int *signal)
{
    enum { OFFSET = 128, SIGNALS = 64 };

    if (r != END_EXITED || *signal || *exit_code <= OFFSET || *exit_code > OFFSET + SIGNALS)
        return;
    *signal = *exit_code - OFFSET;
    *exit_code = 0;
}
