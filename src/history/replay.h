/*
 * A journal back into a job, and the job's own time back from it.
 *
 * The job's time is milliseconds from 0. It runs with the monotonic clock of the master; over a
 * change of masters on one machine it goes on with that clock, which master_started shows. Where
 * that is another machine's, or began anew with the machine, it goes on from the last journalled
 * time plus the difference of the wall clock. Either is clipped to 0 .. one hour, so that neither a
 * clock that was set nor another node's clock does much harm. No record needs a wall time of its
 * own for that: those that open a master's life (submitted, master_started) have one, and the time
 * between two records is the job's. A running master writes a timer record at least every
 * CLOCK_MARK_MS, so the clipping never costs a job more than it must.
 */
#ifndef TONY_HISTORY_REPLAY_H
#define TONY_HISTORY_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct err;
struct job;

enum {
    CLOCK_GAP_MAX_MS = 3600 * 1000,
    CLOCK_MARK_MS = 30 * 60 * 1000,
};

struct replay {
    uint64_t n_records;
    int64_t last_t_ms;      /* of the last record; 0 = none */
    int64_t anchor_t_ms;    /* of the last record that carried a wall time */
    int64_t anchor_wall_ms; /* that wall time; 0 = none yet */
    int64_t mono_t_ms;      /* of the last record that carried the monotonic clock */
    int64_t mono_ms;        /* that clock; 0 = none yet */
    int64_t submitted_wall_ms;
    int64_t started_wall_ms; /* the first master's; 0 = none yet */
    bool torn;               /* the last line was not whole */
    bool owned;              /* a client owned the job at the end */
};

/* Feed every record of text to job, which is new. -EBADMSG: damaged, the line is named; -ENOMEM. */
int replay_journal(struct job *job, struct span text, struct replay *out, struct err *e);

/* What the wall clock showed at job time t, as far as we can tell; 0 = unknown. */
int64_t replay_wall(const struct replay *r, int64_t t_ms);

/* The job time at which a new master begins, by the clocks it sees; mono_now_ms 0 = on another
 * machine, perhaps. */
int64_t replay_resume(const struct replay *r, int64_t wall_now_ms, int64_t mono_now_ms);

#endif
