/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of restarts (restart.h): do tasks restart after the end of an attempt or a container,
 * which ones, and when? restart.c carries the decision out.
 */
#ifndef TONY_JOB_RESTART_RULES_H
#define TONY_JOB_RESTART_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "conf/conf.h"
#include "job/restart.h"

struct job;
struct slot_end;
enum slot_input;

/* The job time at which the pause before a restart ends; 0 = there is no pause. row: the number of
 * restarts in a row, this one included. The jitter depends on the slot and on the number of
 * restarts so far, so that the pauses of many tasks do not end at the same time. */
int64_t restart_pause_until(const struct job *j, uint32_t slot, uint64_t delay_ms, uint32_t row);
/* Have all tasks of the role ended, and do roles of a later stage depend on that? Such a role does
 * not restart with the gang. */
bool restart_is_stage_done(const struct job *j, uint32_t role);
/* Do the tasks of `role` restart if a task of failed_role restarts with this scope, which is
 * SCOPE_ROLE or SCOPE_JOB? */
bool restart_includes_role(const struct job *j, uint32_t role, uint32_t failed_role,
                           enum restart_scope scope);
/* Decide by the rules, and note the decision for the journal. A replay takes the recorded decision
 * instead. */
void restart_decide(struct job *j, uint32_t slot, enum slot_input final_input,
                    const struct slot_end *end, struct restart_plan *out);

#endif
