/*
 * How a container ends, as its executor knows it, in memory shared with the keeper: what an
 * executor learned is not lost when it is killed before it could tell the master, and a clean end
 * needs no search for leftovers.
 */
#ifndef TONY_EXECUTOR_RECORD_H
#define TONY_EXECUTOR_RECORD_H

#include <stdint.h>

enum { RECORD_DETAIL_MAX = 200 };

struct exit_record {
    volatile uint8_t clean; /* set last: nothing of the task is alive */
    volatile uint8_t ended; /* an attempt ended and what follows is its end */
    uint8_t reason;         /* enum end_reason */
    int32_t exit_code, signal;
    int64_t at_us; /* monotonic */
    char detail[RECORD_DETAIL_MAX];
};

#endif
