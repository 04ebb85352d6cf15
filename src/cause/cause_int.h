/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of this directory share:
 *
 *   cause.c    finds the cause from the reason, the exit code, the signal, and the result of read.c
 *   read.c     searches the last lines of a program for the line that shows the cause
 *   rules.c    the rules: a text in a line, and the cause that it shows
 *   table.c    the causes: name, sentence, remedy
 */
#ifndef TONY_CAUSE_INT_H
#define TONY_CAUSE_INT_H

#include <stddef.h>

#include "cause/cause.h"

enum cause_id {
    CAUSE_NONE = 0,
    CAUSE_OUT_OF_MEMORY,
    CAUSE_GPU_MEMORY,
    CAUSE_SHARED_MEMORY,
    CAUSE_DISK_FULL,
    CAUSE_IO_ERROR,
    CAUSE_MISSING_MODULE,
    CAUSE_MISSING_LIBRARY,
    CAUSE_VERSION,
    CAUSE_PORT_IN_USE,
    CAUSE_ADDRESS,
    CAUSE_NAN,
    CAUSE_WRONG_PATH,
    CAUSE_EXISTS,
    CAUSE_PERMISSION,
    CAUSE_CREDENTIALS,
    CAUSE_COMMAND_NOT_FOUND,
    CAUSE_NOT_EXECUTABLE,
    CAUSE_MISSING_INTERPRETER,
    CAUSE_OPEN_FILES,
    CAUSE_THREADS,
    CAUSE_ARGUMENTS,
    CAUSE_TOO_LONG,
    CAUSE_SYNTAX,
    CAUSE_NO_GPU,
    CAUSE_GPU_FAULT,
    CAUSE_GPU_TYPE,
    CAUSE_HOST_NAME,
    CAUSE_NETWORK,
    CAUSE_DAMAGED_FILE,
    CAUSE_MODEL_MISMATCH,
    CAUSE_CPU_TYPE,
    CAUSE_LOST_PEER,
    CAUSE_COLLECTIVE,
    CAUSE_EXCEPTION,
    CAUSE_SEGFAULT,
    CAUSE_BUS_ERROR,
    CAUSE_BROKEN_HEAP,
    CAUSE_ABORTED,
    CAUSE_ARITHMETIC,
    CAUSE_KILLED,
    CAUSE_TERMINATED,
    CAUSE_INTERRUPTED,
    CAUSE_RESOURCE_LIMIT,
    CAUSE_SIGNAL,
    CAUSE_TIMED_OUT,
    CAUSE_PREEMPTED,
    CAUSE_NODE_LOST,
    CAUSE_EXECUTOR_LOST,
    CAUSE_KEEPER_LOST,
    CAUSE_DISK_FAILED,
    CAUSE_LAUNCH_FAILED,
    CAUSE_EXIT_CODE,
    CAUSE_UNKNOWN,
    CAUSE_COUNT,
};

/* ---- table.c ---- */

extern const struct cause cause_table[CAUSE_COUNT]; /* by enum cause_id; CAUSE_NONE has no name */

/* ---- rules.c ---- */

/*
 * A line that contains `text`, and also `and_text` unless that is NULL, shows cause `id`. If
 * several rules fit a line, the first in the table counts. A rule for CAUSE_NONE says that the line
 * shows no cause.
 *
 * doubtful a program does not always end because of such a line: it may catch the error and
 * continue, or print the line while it already ends for another reason
 */
struct rule {
    enum cause_id id;
    bool doubtful;
    const char *text, *and_text;
};

extern const struct rule cause_rules[];
extern const size_t cause_n_rules;

/* ---- read.c ---- */

struct found {
    enum cause_id id; /* CAUSE_NONE: the text shows no cause */
    bool sure;        /* by a rule that is not doubtful */
    struct span line; /* the line that shows it, trimmed; may be empty */
};

/* Find the cause that the last lines of a program show. text may be NULL. exit_code: with 2 or 64,
 * a usage message is taken for wrong arguments; 0 if there is none. */
struct found read_last_lines(const char *text, int exit_code);
/* Does the line begin as an exception of Python or of another language does? */
bool line_is_exception(struct span line);

#endif
