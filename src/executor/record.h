/* SPDX-License-Identifier: Apache-2.0 */
/* What an executor tells its keeper, in memory that both share: the end of the container, and how
 * long the keeper may send its heartbeats. If the executor is killed before it has reported the end
 * to the master, the keeper reports it. After a clean end the keeper does not have to search for
 * orphans. To an executor of a crew (crew.h) the keeper says here that it should stop. */
#ifndef TONY_EXECUTOR_RECORD_H
#define TONY_EXECUTOR_RECORD_H

#include <stdint.h>

enum { RECORD_DETAIL_MAX = 200 };

struct exit_record {
    volatile uint8_t clean; /* set last: no process of the task is alive */
    volatile uint8_t ended; /* an attempt has ended, or none will run: the fields below */
    uint8_t reason;         /* enum end_reason */
    int32_t exit_code, signal;
    int64_t at_us; /* monotonic */
    char detail[RECORD_DETAIL_MAX];
    /* quiet.h: until this time (monotonic) the keeper sends the heartbeats of the executor; 0 = the
     * executor sends them itself. */
    volatile int64_t quiet_until_ms;
    volatile uint32_t beat_ms; /* their interval */
    /* Only in a crew. The keeper sets stop_asked last, and then sends SIGTERM. */
    volatile uint32_t stop_grace_ms;
    volatile uint8_t stop_asked;
    volatile uint8_t stop_seen; /* set by the executor: it stops */
};

#endif
