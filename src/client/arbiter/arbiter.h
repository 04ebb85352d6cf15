/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tony arbiter`: decides the sizes of the jobs in one queue of a cluster, and asks their masters
 * to resize them.
 *
 * The arbiter stores no state. In each round it asks the cluster for the nodes and the applications
 * of the queue (cluster/queue.h), and each job's master for the state of the job. So it may be
 * killed and restarted at any time, and jobs run without it. The cluster remains the owner of every
 * container.
 *
 * Jobs      The arbiter resizes jobs of all users that were registered for its key at their
 *           submission (storage/resizekey.h); it speaks to their masters with the resize key. It
 *           also resizes jobs of its own user that are registered for no arbiter, with the client's
 *           key. The resources of all other applications count as taken.
 * Starts    The arbiter does not start waiting jobs: the cluster does that when resources are free.
 *           While such a job should start, the arbiter lets no other job grow, because the cluster
 *           would give the free resources to the first job that asks.
 * Retries   If a job refuses, or does not follow within tony.pool.policy.resize-limit, the arbiter
 *           does not ask it again during another resize-limit. After each further failure the
 *           arbiter waits twice as long (arbiter/patience.h).
 * Others    An application that the arbiter cannot resize may wait for room. No job grows into the
 *           room that is free for it, and no job shrinks for it.
 * Patience  A job of another user may claim for ever that it needs containers. The arbiter keeps
 *           room free for a job for at most resize-limit. Then it treats the job as one that keeps
 *           what it has.
 * Rounds    While a job that was asked is still changing, the arbiter decides nothing.
 */
#ifndef TONY_CLIENT_ARBITER_ARBITER_H
#define TONY_CLIENT_ARBITER_ARBITER_H

#include <stdbool.h>
#include <stdint.h>

#include "arbiter/claims.h"
#include "arbiter/patience.h"
#include "arbiter/settings.h"
#include "arbiter/share.h"
#include "base/base.h"
#include "client/client_int.h"
#include "cluster/cluster.h"
#include "cluster/queue.h"
#include "codec/tls.h"
#include "storage/resizekey.h"

/* The arbiter's knowledge about one application of the queue. */
struct arbiter_job {
    char id[APP_ID_MAX];
    bool present;       /* in the last look at the queue */
    bool registered;    /* for this arbiter; false: a job of the arbiter's own user */
    struct tls_key key; /* len 0 = not known yet */
    bool is_known;      /* job.conf or the tag was read. If not, its containers count as taken */
    bool is_elastic;    /* it has needs */
    struct share_needs needs; /* of nodes, if the cluster gives those (steps.c) */
    struct queue_step step;
    int64_t silent_until_ms; /* its master did not answer: ask it again only after this time */
    /* Fails if the job refuses a request, or does not follow it in time. While it is over, the
     * arbiter asks the job for nothing. */
    struct patience follows;
    /* Fails if the job has not taken the room that was kept free for it. While it is over, the
     * arbiter keeps no room free for the job. */
    struct patience starts;
    int64_t asked_ms; /* time of the last request to the master; 0 = the job has followed it */
    uint32_t asked_n; /* the value of n in that request */

    bool was_printed; /* the next two are valid: an earlier round has printed them */
    uint32_t printed_n;
    enum part_verdict printed_verdict;

    /* In this round: */
    int64_t submitted_ms;
    bool has_master, runs, changing;
    bool lacks;      /* it changes, and the cluster has not given it all its containers yet */
    bool is_passed;  /* it waits, but no room is kept for it now: see `starts` */
    bool had_master; /* the cluster starts another master; the containers of the job still run */
    char host[256];  /* of the master */
    uint16_t port;
    struct part_amount used;   /* what the application uses, as the cluster says */
    uint32_t n;                /* instances of the elastic role; or nodes of the job (steps.c) */
    VEC(struct part_place) at; /* the nodes of its containers, in the order of the nodes */
    uint32_t n_containers;     /* the number of these containers */
    uint32_t instances;        /* of the elastic role */
    /* If the cluster gives nodes: all nodes of the job, and the containers on each. Then `at` has
     * one "container" for each node that the job uses. */
    VEC(struct queue_share) shares;
    VEC(struct part_place) placed;
    bool has_lost; /* it has nodes that are not in the list of nodes */
    int priority;
    double remaining_s; /* run time left; INFINITY = unknown */
    double resize_s;    /* cost of a resize: measured, else from the settings */
};

struct arbiter {
    struct cluster *k;
    struct cluster_host *host;
    const struct conf *conf;
    const struct queue_ops *ops;
    const char *queue;
    const struct part_policy *policy;
    struct policy_settings settings;
    bool dry, json;
    struct queue_keys keys;

    VEC(struct arbiter_job) jobs; /* in the order in which they were submitted */
    VEC(struct claims_node) nodes;
    /* For each node: what all applications use there, and what is kept free (arbiter_keep_room()).
     */
    VEC(struct part_amount) used;
    /* Resources for which other applications wait. The arbiter gives no job the free part of them.
     */
    VEC(struct queue_wanted) wanted;
    struct part_amount kept;        /* what is kept free for them, on all nodes together */
    struct part_amount kept_before; /* the value of `kept` that was printed last */
    struct part_amount limit; /* of the queue; if has_limit is false, all that the nodes have */
    bool has_limit;
    struct part_amount queue_used; /* by all applications of the queue */
    int64_t master_ms;             /* how long to try to reach a master of the own user */
    bool acted;                    /* in this round a job was asked, or one changes or waits */
};

/* observe.c: reads the state of nodes, queue and jobs. 0 or -errno. */
int arbiter_observe(struct arbiter *a, struct err *e);
/* Keep the room free for which other applications wait. After arbiter_observe(). 0 or -ENOMEM. */
int arbiter_keep_room(struct arbiter *a);
void arbiter_forget(struct arbiter *a); /* free all that arbiter_observe() has stored */

/* masters.c: the two requests to a master. 0 or -errno. */
/* Ask for the state of the job, as JSON for share_state_read(). The caller ends *out. */
int arbiter_ask_share(struct arbiter *a, struct arbiter_job *j, struct buf *out, struct err *e);
struct wish {
    bool grow;
    uint32_t instances; /* of the elastic role */
    /* Where the instances should be, if the cluster lets a job choose. n_at may be 0. */
    const struct part_place *at;
    uint32_t n_at;
    const char *why;
};
/* Ask the job for another size. On failure e says why the job does not follow. */
int arbiter_ask_wish(struct arbiter *a, struct arbiter_job *j, const struct wish *w, struct err *e);

/* What a command needs of the cluster; end with arbiter_close(). */
struct arbiter_at {
    const struct cluster_ops *cluster;
    const struct queue_ops *ops; /* of this cluster */
    struct cluster *k;           /* after arbiter_open() */
    const struct conf *conf;     /* of the site; after arbiter_open() */
    const char *queue;
};

/* steps.c: a cluster that gives nodes */
/* A master has answered where the containers of its job are. Convert j->at and j->n_containers from
 * containers to nodes. *out_lost is set if a container is on a node of which the job has no share.
 * 0 or -ENOMEM. */
int steps_take(struct arbiter_job *j, bool *out_lost);
/* Does the job use the node? Those of the first allocation always count as used. */
bool steps_uses(const struct arbiter_job *j, const struct queue_share *s);
/* How many instances does the job have on this number of nodes? Where the cluster gives containers
 * instead of nodes: `nodes` instances. */
uint32_t steps_instances(const struct arbiter_job *j, uint32_t nodes);
struct steps_plan {
    uint32_t nodes, instances;
    VEC(struct part_place) at; /* a shrink: the containers that stay, by node; else empty */
};
/* How near can the job get to this number of nodes now? What a growth takes counts as used in
 * a->used from now on. 0 or -ENOMEM. The caller ends *p, also after an error. */
int steps_fit(struct arbiter *a, const struct arbiter_job *j, uint32_t nodes, struct steps_plan *p);
void steps_plan_done(struct steps_plan *p);

/* key.c */
/* `tony arbiter key`: make the key if there is none, and print the public half. An exit code. */
int arbiter_key_print(struct client *c, struct arbiter_at *at);

/* app.c: the arbiter as an application of its own, one for each queue and user. It is a tony job of
 * one task that runs `tony arbiter run`. Each prints its errors and returns an exit code.
 */
int arbiter_start(struct client *c, struct arbiter_at *at);
int arbiter_stop(struct client *c, struct arbiter_at *at);
int arbiter_status(struct client *c, struct arbiter_at *at);

/* arbiter.c */
/* Set a->policy from a->settings; name replaces the policy there unless it is NULL. -EINVAL: the
 * arbiter cannot follow that policy. */
int arbiter_choose_policy(struct arbiter *a, const char *name, struct err *e);
int cmd_arbiter(struct client *c);

/* Open the cluster of this command. 0, or minus the exit code. */
int arbiter_open(struct client *c, struct arbiter_at *at, struct err *e);
void arbiter_close(struct arbiter_at *at);

#endif
