/* SPDX-License-Identifier: Apache-2.0 */
/* Parses what a task sends on its socket: one JSON object on each line (docs/task-socket.md). */
#ifndef TONY_EXECUTOR_TASK_WORD_H
#define TONY_EXECUTOR_TASK_WORD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

enum {
    TASK_LINE_MAX = 4096, /* bytes: a path, a few numbers, and other members, which are ignored */
    TASK_PATH_MAX = 1000, /* bytes; the master writes the whole path to the journal */
};

struct task_word {
    bool has_step, has_total, asks_stop, ready;
    uint64_t step, total;
    const char *checkpoint, *tensorboard; /* NULL = not in the line */
    uint32_t parts;                       /* of the checkpoint; 0 = not in the line */
    void *holder;                         /* owns the strings */
};

/* Parse one line without its newline. -EINVAL: e has a sentence for the author of the program.
 * Unknown members are ignored. After success call task_word_done(). */
int task_word_parse(struct span line, struct task_word *out, struct err *e);
void task_word_done(struct task_word *w);

#endif
