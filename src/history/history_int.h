/* What the files of history/ share. */
#ifndef TONY_HISTORY_HISTORY_INT_H
#define TONY_HISTORY_HISTORY_INT_H

#include <stdbool.h>
#include <string.h>

#include "history/history.h"
#include "history/replay.h"
#include "job/job.h"

/* Does dir lie in history/ (where nothing is written any more)? */
bool history_dir_is_final(const char *dir);
/* As history_load, with where the journal's time stands. out_replay may be NULL. */
int history_load_replay(const char *dir, struct history_job **out, struct replay *out_replay,
                        struct err *e);

#endif
