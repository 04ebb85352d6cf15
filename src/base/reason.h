/*
 * How a container or an attempt came to its end, in the classes that policy is about. Every
 * back-end maps its codes to these; only `exited`, `out_of_memory` and `timed_out` are the user's
 * own. Numbers equal `Reason` in proto/tony.proto.
 */
#ifndef TONY_BASE_REASON_H
#define TONY_BASE_REASON_H

enum end_reason {
    END_NONE = 0,
    END_EXITED,           /* by itself, with an exit code or by a signal */
    END_KILLED_BY_MASTER, /* we stopped it */
    END_PREEMPTED,
    END_NODE_LOST,
    END_OUT_OF_MEMORY,
    END_LAUNCH_FAILED, /* never ran */
    END_DISK_FAILED,
    END_UNKNOWN,
    END_TIMED_OUT,
    END_COUNT,
};

const char *end_reason_name(enum end_reason r);     /* "out_of_memory" */
enum end_reason end_reason_parse(const char *name); /* END_NONE when unknown */

#endif
