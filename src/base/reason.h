/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a container or an attempt ended, in the classes that the retry policy distinguishes. Each
 * scheduler back-end maps its own codes to these. The task itself causes only `exited`,
 * `out_of_memory` and `timed_out`; the cluster or tony causes the others. The numbers equal those
 * of `Reason` in proto/tony.proto.
 */
#ifndef TONY_BASE_REASON_H
#define TONY_BASE_REASON_H

enum end_reason {
    END_NONE = 0,
    END_EXITED,           /* the process exited or a signal killed it */
    END_KILLED_BY_MASTER, /* the master stopped it */
    END_PREEMPTED,        /* the scheduler took the container for another job */
    END_NODE_LOST,
    END_OUT_OF_MEMORY,
    END_LAUNCH_FAILED, /* the process never ran */
    END_DISK_FAILED,
    END_UNKNOWN,
    END_TIMED_OUT,
    END_COUNT,
};

const char *end_reason_name(enum end_reason r);     /* "out_of_memory" */
enum end_reason end_reason_parse(const char *name); /* END_NONE: name is unknown */
/*
 * A scheduler reports a container that a signal killed as one that exited with 128 + the signal.
 * Such an end is replaced by exit code 0 and that signal; all other ends stay as they are. (An
 * executor reports both separately: a task may choose such an exit code.)
 */
void end_container_code(enum end_reason r, int *exit_code, int *signal);

#endif
