/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows a job to its end, through restarts of the pool and the master.
 *
 * While the job waits, the client asks the pool. When the pool names the master's socket, the
 * client asks the master. If a connection breaks, it reconnects. If a job is in the history, its
 * directory has the verdict.
 */
#ifndef TONY_CLUSTER_FOLLOW_H
#define TONY_CLUSTER_FOLLOW_H

#include <jansson.h>
#include <stdbool.h>

struct client;
struct conn;
struct err;
struct render;

struct follow_options {
    /* The client owns the job: the job stops tony.client.away-limit after the client has
     * disconnected. */
    bool owns_job;
    bool signals;     /* INT, TERM and HUP ask the job to stop; a second one stops waiting */
    const char *stop; /* ask the job to stop at once, with this reason; NULL = do not */
    bool checkpoint;  /* with `stop`: let the tasks save a checkpoint first */
    bool return_when_stopping; /* with `stop`: return as soon as the stop was accepted */
    struct render *render;     /* may be NULL */
    /* INT, TERM and HUP make follow_job() return, and do not stop the job: out->detached. Cannot be
     * combined with `signals`. */
    bool detach_on_signal;
    /* Called with each update of the master; true = stop following. May be NULL. */
    bool (*on_update)(const char *state, const json_t *summary, void *arg);
    void *on_update_arg;
};

struct follow_result {
    json_t *summary; /* of the last update; may be NULL */
    int exit_code;   /* of the job */
    /* The job has ended. false: `return_when_stopping`, on_update() or the user ended the wait
     * before that. */
    bool finished;
    bool detached; /* a signal ended the wait */
};

/* pool: the connection on which the job was submitted; takes it; may be NULL. */
int follow_job(struct client *c, const char *application_id, struct conn *pool,
               const struct follow_options *o, struct follow_result *out, struct err *e);
void follow_result_done(struct follow_result *r);

/* Read the verdict of a job from its journal. -EBUSY: there is none yet; -ENOENT: no such job. */
int follow_history(struct client *c, const char *application_id, struct follow_result *out,
                   struct err *e);

#endif
