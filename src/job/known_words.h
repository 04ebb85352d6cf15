/*
 * What programs write when they die: the texts that known.c looks for, as the programs write them.
 */
#ifndef TONY_JOB_KNOWN_WORDS_H
#define TONY_JOB_KNOWN_WORDS_H

#include <stdbool.h>
#include <stddef.h>

enum known_id {
    K_NONE = 0,
    K_OUT_OF_MEMORY,
    K_GPU_MEMORY,
    K_SHARED_MEMORY,
    K_DISK_FULL,
    K_IO_ERROR,
    K_MISSING_MODULE,
    K_MISSING_LIBRARY,
    K_VERSION,
    K_PORT_IN_USE,
    K_ADDRESS,
    K_NAN,
    K_WRONG_PATH,
    K_EXISTS,
    K_PERMISSION,
    K_CREDENTIALS,
    K_COMMAND_NOT_FOUND,
    K_NOT_EXECUTABLE,
    K_OPEN_FILES,
    K_THREADS,
    K_ARGUMENTS,
    K_SYNTAX,
    K_NO_GPU,
    K_GPU_FAULT,
    K_GPU_TYPE,
    K_HOST_NAME,
    K_NETWORK,
    K_DAMAGED_FILE,
    K_MODEL_MISMATCH,
    K_CPU_TYPE,
    K_LOST_PEER,
    K_COLLECTIVE,
    K_EXCEPTION,
    K_SEGFAULT,
    K_BUS_ERROR,
    K_BROKEN_HEAP,
    K_ABORTED,
    K_ARITHMETIC,
    K_KILLED,
    K_TERMINATED,
    K_INTERRUPTED,
    K_RESOURCE_LIMIT,
    K_SIGNAL,
    K_TIMED_OUT,
    K_PREEMPTED,
    K_NODE_LOST,
    K_EXECUTOR_LOST,
    K_DISK_FAILED,
    K_LAUNCH_FAILED,
    K_EXIT_CODE,
    K_UNKNOWN,
};

/* A line that holds `text`, and `also` where one is given. doubtful: it is also printed by what is
 * torn down, or is tried again. The first that fits a line counts for it. */
struct known_rule {
    enum known_id id;
    bool doubtful;
    const char *text, *also;
};

extern const struct known_rule known_rules[];
extern const size_t known_n_rules;

#endif
