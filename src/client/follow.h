/*
 * Follow a job to its end, through restarts of pool and master.
 *
 * The pool is asked while the job waits; once the pool says where, its master. Whatever breaks is
 * dialled again; the job's directory is the last word, since a finished job lies in the history.
 */
#ifndef TONY_CLIENT_FOLLOW_H
#define TONY_CLIENT_FOLLOW_H

#include <jansson.h>
#include <stdbool.h>

struct client;
struct conn;
struct err;
struct render;

struct follow_options {
    bool own;              /* the job stops tony.client.away-limit after we are gone */
    bool signals;          /* INT, TERM and HUP ask the job to stop; a second one stops waiting */
    const char *stop;      /* ask the job to stop at once, with this reason; NULL = do not */
    bool checkpoint;       /* the tasks are to save one first */
    bool told;             /* return as soon as the stop was accepted */
    struct render *render; /* may be NULL */
};

struct follow_result {
    json_t *summary; /* of the last update; may be NULL */
    int exit_code;   /* of the job */
    bool finished;   /* else: told, or the user stopped waiting */
};

/* pool: takes a connection that the job was submitted on; may be NULL. */
int follow_job(struct client *c, const char *application_id, struct conn *pool,
               const struct follow_options *o, struct follow_result *out, struct err *e);
void follow_result_done(struct follow_result *r);

/* The verdict of a job from its journal. -EBUSY when it has none yet, -ENOENT: no such job. */
int follow_history(struct client *c, const char *application_id, struct follow_result *out,
                   struct err *e);

#endif
