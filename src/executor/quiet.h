/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heartbeats of executors whose task only runs.
 *
 * A heartbeat wakes the executor up, and it is one message for each task. With a thousand tasks this
 * was nearly all that a running job costs. So such an executor is quiet: it wakes up each
 * Welcome.quiet_ms to look after its task, and writes into its record how long it may stay silent.
 * The keeper reads the records of all its executors each heartbeat, and sends one Alive for all
 * whose time is not over. An executor that hangs does not write, so its heartbeats stop after that
 * time. If the keeper hangs, the master misses the heartbeats, and asks each executor to send its
 * own (OwnBeats).
 *
 * An executor is not quiet on a cluster, where its messages renew its lease; while it has to sample
 * the memory of its task; while it has the rendezvous server of the ranks; and while its attempt is
 * being stopped.
 */
#ifndef TONY_EXECUTOR_QUIET_H
#define TONY_EXECUTOR_QUIET_H

#include <stdbool.h>
#include <stdint.h>

struct executor;

bool quiet_now(const struct executor *x);
/* Stay silent until the next look at the task, if that is possible now. */
bool quiet_renew(struct executor *x, int64_t now_ms);
/* If the executor may not be quiet any more, it sends its heartbeats from now on. */
void quiet_check(struct executor *x, int64_t now_ms);

#endif
