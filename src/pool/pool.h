/*
 * The embedded scheduler of one machine and one $TONY_HOME: admits whole jobs, accounts memory and
 * GPUs, and starts a keeper for each.
 *
 *   tony-pool [--foreground] [--ready-fd N] [--conf KEY=VALUE]...
 *
 * It is the parent of nothing that must survive: a job's processes belong to its keeper, the job's
 * directory is the truth, and a new pool adopts what it finds. It ends by itself after
 * tony.pool.idle-timeout without a job and without a client.
 */
#ifndef TONY_POOL_POOL_H
#define TONY_POOL_POOL_H

/*
 * The whole program. Goes to the background unless --foreground; a byte is written to --ready-fd
 * when it listens, or when another pool of this home already does. Exit code 0; 1 it could not
 * start (one sentence on stderr); 2 misuse.
 */
int pool_main(int argc, char **argv);

#endif
