/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tony arbiter`: decides over the sizes of the jobs in one queue of YARN, and asks their masters
 * to follow.
 *
 * It keeps nothing. In each round it asks the ResourceManager for the nodes and the applications of
 * the queue, and each job's master for its state. So it may be killed and started again at any
 * time, and without it all jobs run on as they are. YARN stays the owner of every container.
 *
 *   Who    The jobs of the user who runs it: it must read a job's key to speak to its master, and
 *          the key file belongs to the job's user. All other applications are room that is taken.
 *   Order  A job that waits is never told to start; YARN starts it when there is room. While such a
 *          job is to start, the arbiter offers no other job more containers, since YARN would give
 *          the room to whoever asks first.
 *   Again  If a job refuses, or does not follow within tony.pool.policy.resize-limit, the arbiter
 *          does not ask it again for the same time.
 *   Turns  While a job that was asked still changes, nothing is decided.
 */
#ifndef TONY_CLIENT_ARBITER_H
#define TONY_CLIENT_ARBITER_H

#include <stdbool.h>
#include <stdint.h>

#include "arbiter/claims.h"
#include "arbiter/settings.h"
#include "base/base.h"
#include "client/yarn.h"
#include "conf/conf.h"

/* What is known of one application of the queue. */
struct arbiter_job {
    char id[APP_ID_MAX];
    bool present;          /* in the last answer of the ResourceManager */
    struct job_spec *spec; /* NULL = not readable: its containers count as taken */
    struct job_elastic elastic;
    bool is_elastic;
    int64_t leave_until_ms; /* it has refused, or was too slow */
    int64_t asked_ms;       /* when it was last asked; 0 = it has followed since */
    uint32_t asked;         /* for so many containers */

    bool said; /* a round has printed the next two */
    uint32_t said_n;
    enum part_verdict said_verdict;

    /* In this round: */
    int64_t submitted_ms;
    bool has_master, runs, changing;
    uint32_t n;       /* containers of the elastic role */
    VEC(uint32_t) at; /* the number of the node of each */
    int priority;
    double remaining_s; /* run time left; INFINITY = unknown */
    double resize_s;    /* what a resize costs it: measured, or else as the settings say */
};

struct arbiter {
    struct yarn *y;
    const char *queue;
    const struct part_policy *policy;
    struct policy_settings settings;
    int64_t unit_mib; /* YARN rounds the memory of a container up to a multiple of it */
    bool dry, json;

    VEC(struct arbiter_job) jobs; /* in the order in which they were submitted */
    VEC(struct claims_node) nodes;
    VEC(struct part_amount) used; /* by node: by all applications */
    struct part_amount limit;     /* of the queue; has_limit false: as much as the nodes have */
    bool has_limit;
    struct part_amount queue_used; /* by all applications of the queue */
};

/* arbiter_observe.c: what is there. 0 or -errno. */
int arbiter_observe(struct arbiter *a, struct err *e);
void arbiter_forget(struct arbiter *a); /* free all that it knows */

/* arbiter_app.c: the arbiter as an application of its own on YARN, one for each queue and user. It
 * is a tony job of one task that runs `tony-arbiter arbiter run`. Each prints its errors and
 * returns an exit code. */
struct client;
int arbiter_start(struct client *c, const char *queue);
int arbiter_stop(struct client *c, const char *queue);
int arbiter_status(struct client *c, const char *queue);

/* arbiter.c */
/* Set a->policy from a->settings; name replaces the policy there unless it is NULL. -EINVAL: the
 * arbiter cannot follow that policy. */
int arbiter_choose_policy(struct arbiter *a, const char *name, struct err *e);
int cmd_arbiter(struct client *c);

#endif
