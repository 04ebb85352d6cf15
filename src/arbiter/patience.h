/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long an arbiter lets one job hold up the others. No I/O, no clock.
 *
 * Some answers of a job make all others wait: it changes its size, or it still needs containers. A
 * master of another user may repeat such an answer for ever. So the arbiter waits for a limited
 * time. Then it leaves the job alone: it divides the queue as if the job kept what it has. The
 * pauses double with each further failure, up to PATIENCE_MOST times the limit, so a job that never
 * does what it says takes a small part of the time only.
 */
#ifndef TONY_ARBITER_PATIENCE_H
#define TONY_ARBITER_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

enum { PATIENCE_MOST = 8 };

/* Zeroed = no other job has waited for it. Times are of the monotonic clock, in ms. */
struct patience {
    int64_t since_ms;  /* the others have waited for the job since then; 0 = they do not wait */
    int64_t until_ms;  /* the job is left alone until this time */
    uint32_t failures; /* since the last patience_succeed() */
};

/* The others wait for the job now. false: they have waited for longer than limit_ms, and the job is
 * left alone from now on. */
bool patience_wait(struct patience *p, int64_t now_ms, int64_t limit_ms);
/* The others do not wait for the job now. Its failures still count. */
void patience_pause(struct patience *p);
/* Leave the job alone: for limit_ms after its first failure, then for twice as long each time. */
void patience_fail(struct patience *p, int64_t now_ms, int64_t limit_ms);
/* The job has followed a request in time: forget its failures. */
void patience_succeed(struct patience *p);
bool patience_is_over(const struct patience *p, int64_t now_ms); /* is the job left alone now? */

#endif
