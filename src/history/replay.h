/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a journal: restores the state of the job, and the job's own time.
 *
 * The job's time is in milliseconds and starts at 0. While a master runs, it advances with the
 * master's monotonic clock. A new master continues it from the last record, plus the time that has
 * passed since:
 *
 *   - on the same machine, the difference of the monotonic clock. The record master_started has its
 *     value.
 *   - on another machine, or after a reboot, the difference of the wall clock.
 *
 * Both differences are limited to 0 .. CLOCK_GAP_MAX_MS (one hour). So a clock that was set,
 * or that is wrong on another node, changes the job's time by at most one hour.
 *
 * Only the first record of a master's life (submitted, master_started) has a wall time. The wall
 * time of any other record is that one plus the difference in the job's time. If a running master
 * has written no record for CLOCK_MARK_MS, it writes a mark (`stalled` with 0 ms). So the gap after
 * the last record stays below the limit unless no master ran.
 */
#ifndef TONY_HISTORY_REPLAY_H
#define TONY_HISTORY_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct err;
struct job;
struct job_event;
struct journal;
struct journal_reader;

enum {
    CLOCK_GAP_MAX_MS = 3600 * 1000, /* the job's time advances by at most this between masters */
    CLOCK_MARK_MS = 30 * 60 * 1000, /* the longest pause between two records of a running master */
};

struct replay {
    uint64_t n_records;
    int64_t last_t_ms;      /* job time of the last record; 0 = there is none */
    int64_t anchor_t_ms;    /* job time of the last record with a wall time */
    int64_t anchor_wall_ms; /* wall time of that record; 0 = no such record */
    int64_t mono_t_ms;      /* job time of the last record with a monotonic clock */
    int64_t mono_ms;        /* monotonic clock of that record; 0 = no such record */
    int64_t submitted_wall_ms;
    int64_t started_wall_ms; /* when the first master started; 0 = none has */
    bool torn;               /* the last line of the journal is incomplete */
    bool owned;              /* a client owned the job at the end */
};

/* Feed every record of a journal to job, which must be new. -EBADMSG: the journal is damaged, and
 * the error names the record; -EINVAL: its format is newer than JOURNAL_FORMAT; -ENOMEM. */
int replay_file(struct job *job, const char *path, struct replay *out, struct err *e);
/* Replay the next record of a reader: 1, with *out the record; 0: there is no other one; or -errno.
 * Call job_replaying(job, false) at the end. scratch: the actions of that record. */
struct job_actions;
struct journal_record;
int replay_next(struct job *job, struct journal_reader *from, struct job_actions *scratch,
                struct replay *r, struct journal_record *out, struct err *e);
int replay_journal(struct job *job, struct span text, struct replay *out, struct err *e);

/* Add one record to the journal, and note it in *clocks. scratch is emptied first. -errno. */
int replay_add_record(struct journal *to, const struct job_event *ev, int64_t t_ms,
                      struct replay *clocks, struct buf *scratch);
/* job_feed(job, ev) has just returned 0: add the decisions that it led to, and the event if it is
 * durable or has led to a decision. -errno. */
int replay_add_event(struct journal *to, const struct job *job, const struct job_event *ev,
                     struct replay *clocks, struct buf *scratch);
/* Note the times in the record of an event, for a reader that feeds no job. */
void replay_note(struct replay *r, const struct job_event *ev, int64_t t_ms);
/* Append a line for a snapshot, {"e":"snapshot.clocks",...}, from which a replay restores *r. */
int replay_snapshot(const struct replay *r, struct buf *line);

/* The wall time (ms since 1970) at job time t_ms, estimated from the last record that has one;
 * 0 = unknown. */
int64_t replay_wall(const struct replay *r, int64_t t_ms);

/* The job time with which a new master starts, from the clocks that it reads now. mono_now_ms: 0 =
 * the new master may run on another machine, so the wall clock decides. */
int64_t replay_resume(const struct replay *r, int64_t wall_now_ms, int64_t mono_now_ms);

#endif
