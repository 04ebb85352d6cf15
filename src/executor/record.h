/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a container as its executor knows it, in memory that it shares with the keeper. If the
 * executor is killed before it has reported the end to the master, the keeper reports it. After a
 * clean end the keeper does not have to search for orphans. */
#ifndef TONY_EXECUTOR_RECORD_H
#define TONY_EXECUTOR_RECORD_H

#include <stdint.h>

enum { RECORD_DETAIL_MAX = 200 };

struct exit_record {
    volatile uint8_t clean; /* set last: no process of the task is alive */
    volatile uint8_t ended; /* an attempt has ended, as the fields below say */
    uint8_t reason;         /* enum end_reason */
    int32_t exit_code, signal;
    int64_t at_us; /* monotonic */
    char detail[RECORD_DETAIL_MAX];
};

#endif
