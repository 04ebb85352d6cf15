/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool: the scheduler for one machine and one $TONY_HOME. It admits jobs as a whole, accounts
 * for memory and GPUs, and starts a keeper for each admitted job.
 *
 *   tony-pool [--foreground] [--ready-fd N] [--conf KEY=VALUE]...
 *   tony-pool --tidy
 *
 * The pool may be killed at any time. The processes of a job belong to its keeper, the job's state
 * is in its directory, and a new pool takes over the jobs that it finds there. The pool exits after
 * tony.pool.idle-timeout without a job and without a client.
 */
#ifndef TONY_POOL_POOL_H
#define TONY_POOL_POOL_H

/*
 * The whole program. Without --foreground it goes to the background. It writes one byte to the
 * descriptor of --ready-fd as soon as it listens, or if another pool of this home listens already.
 *
 * --tidy: only remove what is old in TONY_HOME, as a pool does each hour. It needs no pool: a
 * client of a cluster that has none starts it.
 *
 * Returns the exit code: 0 success; 1 it could not start or tidy, with one sentence on stderr; 2
 * misuse.
 */
int pool_main(int argc, char **argv);

#endif
