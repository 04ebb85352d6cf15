/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TONY_MASTER_COMPACT_H
#define TONY_MASTER_COMPACT_H

struct err;
struct job;
struct journal;
struct replay;

/* Replaces the journal by a snapshot of the job's state, now. An error means that the old segment
 * is still in use (storage/journal.h). */
int compact_journal(struct journal *j, const struct job *job, const struct replay *replay,
                    struct err *e);

#endif
