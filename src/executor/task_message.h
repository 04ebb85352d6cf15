/* SPDX-License-Identifier: Apache-2.0 */
/* Parses what a task sends on its socket: one JSON object on each line (docs/task-socket.md). */
#ifndef TONY_EXECUTOR_TASK_MESSAGE_H
#define TONY_EXECUTOR_TASK_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

enum {
    TASK_LINE_MAX = 4096, /* bytes: a path, a few numbers, and other members, which are ignored */
    TASK_PATH_MAX = 1000, /* bytes; the master writes the whole path to the journal */
};

struct task_message {
    bool has_step, has_total, asks_stop, ready;
    uint64_t step, total;
    const char *checkpoint, *tensorboard; /* NULL = not in the line */
    uint32_t parts;                       /* of the checkpoint; 0 = not in the line */
    /* A json_t: an object of numbers, with names that metric_name_check() accepts; NULL = not in
     * the line. */
    const void *metrics;
    void *holder; /* owns the strings */
};

/* Parse one line without its newline. -EINVAL: e has a sentence for the author of the program.
 * Unknown members are ignored. After success call task_message_done(). */
int task_message_parse(struct span line, struct task_message *out, struct err *e);
void task_message_done(struct task_message *w);

#endif
