/*
 * Put a checked job's content into the store and hand the job to the pool.
 */
#ifndef TONY_CLIENT_SUBMIT_H
#define TONY_CLIENT_SUBMIT_H

#include <stdbool.h>

#include "storage/paths.h"

struct buf;
struct client;
struct client_job;
struct conn;
struct err;

/* The text of job.conf. */
int submit_encode(struct client *c, struct client_job *j, struct buf *out, struct err *e);
/* INT, TERM and HUP wait until follow_job() or yarn_follow() lets them in. */
void submit_hold_signals(void);

/* owned: the caller will follow as the owner; INT, TERM and HUP are held back from the moment the
 * pool may have the job, so that none is lost before follow_job() lets them in. *out_pool: the
 * connection, the caller's. Returns 0 or, as a negative number, minus the exit code. */
int submit_job(struct client *c, struct client_job *j, bool owned, char out_id[APP_ID_MAX],
               struct conn **out_pool, struct err *e);

#endif
