/*
 * Why a job ended, or what it waits for, for people; from its status document (docs/json.md).
 */
#ifndef TONY_CLIENT_WHY_H
#define TONY_CLIENT_WHY_H

#include <jansson.h>

#include "base/buf.h"

/* What failed first, what that means, what to do, and what else failed; nothing when no task is the
 * cause. log: where that task's stderr is; may be NULL. used: rows of a terminal that are taken by
 * what stands around it: all of it is to be seen at once. */
void why_failed(const json_t *doc, const char *log, size_t used, struct buf *out);
/* <dir>/logs/worker-1/<attempt>/stderr of the cause; NULL: there is none. The caller's. */
char *why_log(const char *dir, const json_t *doc);
/* What a job that is not over waits for, and what has failed so far. */
void why_not_over(const json_t *doc, struct buf *out);

#endif
