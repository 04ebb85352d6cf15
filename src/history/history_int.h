/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the source files of src/history share. */
#ifndef TONY_HISTORY_HISTORY_INT_H
#define TONY_HISTORY_HISTORY_INT_H

#include <stdbool.h>
#include <string.h>

#include "history/history.h"
#include "history/replay.h"
#include "job/job.h"

/* Is dir a directory in history/? No process writes to the journal of such a job. */
bool history_dir_is_final(const char *dir);
/* Like history_load(); it also returns the times found in the journal. out_replay may be NULL. */
int history_load_replay(const char *dir, struct history_job **out, struct replay *out_replay,
                        struct err *e);

#endif
