/*
 * Who misses the pool starts it: jobs that nobody looks after.
 *
 * A job is looked after by its keeper, and by the pool where it has none. When both were killed,
 * nothing of the job goes on until somebody starts the next pool; so each command that comes across
 * such a job does.
 */
#ifndef TONY_CLIENT_MIND_H
#define TONY_CLIENT_MIND_H

#include <stdbool.h>

struct client;

/* A job in jobs/: start the pool if neither it nor a keeper of the job is there. What fails is left
 * to the next command: this one was only asked to look. False: its keeper is there. */
bool mind_job(struct client *c, const char *id);
/* The job has its verdict: wait until its directory is where we said, in history/, but not for
 * long. If its keeper dies over it, see above. */
void mind_settle(struct client *c, const char *id);

#endif
