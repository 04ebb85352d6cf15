/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a message on the socket of a task. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"
#include "executor/task_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct task_message w;
    struct err e = { 0 };
    int rc = task_message_parse(span_mem(data, size), &w, &e);
    if (rc < 0) {
        if (!e.msg[0])
            abort(); /* an error message for the sender is missing */
        return 0;
    }
    if ((w.checkpoint && strlen(w.checkpoint) > TASK_PATH_MAX) || w.step > INT64_MAX)
        abort();
    task_message_done(&w);
    return 0;
}
