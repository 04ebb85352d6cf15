/* SPDX-License-Identifier: Apache-2.0 */
/* Explains from the status document (docs/json.md) why a job ended, or what it waits for. */
#ifndef TONY_CLIENT_SHOW_WHY_H
#define TONY_CLIENT_SHOW_WHY_H

#include <jansson.h>

#include "base/buf.h"

/* Append which task failed first, what that means, what the user can do, and which tasks failed
 * later. Nothing, if no task is the cause. log: the path of the task's stderr; may be NULL. used:
 * rows of the terminal that other output needs, so that all of it is visible at once. */
void why_failed(const json_t *doc, const char *log, size_t used, struct buf *out);
/* Append the tasks of a job that is over that may still run, and for how long; nothing if there are
 * none. */
void why_orphans(const json_t *doc, struct buf *out);
/* Append a line about containers that podman or docker has not removed, if there are any. */
void why_left(const json_t *doc, struct buf *out);
/* The path <dir>/logs/worker-1/<attempt>/stderr of the task that is the cause; NULL = there is
 * none. The caller frees it. */
char *why_log(const char *dir, const json_t *doc);

#endif
