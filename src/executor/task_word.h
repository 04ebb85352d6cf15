/*
 * What a task says on its socket: one JSON object a line (docs/task-socket.md).
 */
#ifndef TONY_EXECUTOR_TASK_WORD_H
#define TONY_EXECUTOR_TASK_WORD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

enum {
    TASK_LINE_MAX = 4096, /* a path, a few numbers, and metrics that nobody reads here */
    TASK_PATH_MAX = 1000, /* goes into the journal whole */
};

struct task_word {
    bool has_step, has_total, asks_stop, ready;
    uint64_t step, total;
    const char *checkpoint, *tensorboard; /* NULL = not said */
    uint32_t parts;                       /* of the checkpoint: 0 = not said */
    void *holder;                         /* of the texts */
};

/* One line without its end. -EINVAL with a sentence for whoever wrote it. Members that are not
 * known are passed over. task_word_done() after success. */
int task_word_parse(struct span line, struct task_word *out, struct err *e);
void task_word_done(struct task_word *w);

#endif
