/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills the processes of a job whose keeper has died. They have the job's id in their environment.
 */
#ifndef TONY_POOL_LEFTOVERS_H
#define TONY_POOL_LEFTOVERS_H

/*
 * Send SIGKILL to every process of this user with TONY_APPLICATION_ID=<id> in its environment.
 * Repeat that until none is found or limit_ms has passed. Executors are spared for the first
 * second, in which they kill their tasks themselves. It blocks, so call it on a thread of the
 * loop's thread pool.
 *
 * Returns the number of processes that are left, or -errno.
 */
int leftovers_kill(const char *application_id, int limit_ms);

#endif
