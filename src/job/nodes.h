/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures on each node of the cluster. If a node has had node_max_failures failures within
 * node_window_ms, the job avoids it: for the same time it requests no new containers there. In the
 * pool, which is one machine, there are no nodes.
 */
#ifndef TONY_JOB_NODES_H
#define TONY_JOB_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

struct buf;
struct err;
struct job;

enum {
    NODES_MAX = 10000,      /* nodes of a job; failures on further nodes are not counted */
    NODES_OUT_PERCENT = 20, /* at most this part of the job's nodes is avoided at the same time */
};

/* A machine of the cluster on which the job has had a container. */
struct node {
    char *name;
    uint32_t n;       /* number of failures */
    int64_t *times;   /* times of the last node_max_failures failures, as a ring */
    int64_t until_ms; /* the node is avoided until this time; -1 = it is not avoided */
};

struct nodes {
    struct node *v;
    size_t n, cap;
    struct map by_name; /* name -> index in v plus 1, as a pointer */
    int64_t *times;     /* allocated by nodes_reserve() for the next new node */
    uint32_t n_out;     /* number of avoided nodes */
};

/* Make room for a node that an event names, so that nodes_enter() cannot fail. 0 or -ENOMEM. */
int nodes_reserve(struct job *j, const char *name);
/* The index of the node with this name; adds the node if it is new. Takes *name. -1: *name is NULL,
 * or there are NODES_MAX nodes already. */
int32_t nodes_enter(struct job *j, const char **name);
void nodes_failed(struct job *j, int32_t node); /* count a failure on the node; -1 = none */
bool nodes_is_avoided(const struct job *j, int32_t node); /* is the node avoided? */
int nodes_fired(struct job *j, struct err *e);            /* LIMIT_NODE */
int64_t nodes_due(const struct job *j); /* when the next node is allowed again; INT64_MAX = none */
void nodes_announce(struct job *j);     /* tell the scheduler again, after a new master started */
void nodes_done(struct job *j);

/* Append ,"nodes_left_out":[...]; nothing if no node is avoided. */
void nodes_left_out_json(const struct job *j, struct buf *out);
/* Append ,"bad_nodes":[...], the nodes with failures; nothing if there are none. */
void nodes_bad_json(const struct job *j, struct buf *out);

#endif
