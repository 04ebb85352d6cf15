/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the place for the control groups of a user's jobs, and moves the pool there.
 *
 * With v2, groups with limits may only be made in a group that was given to this user, and that
 * itself has no processes. So the pool moves into a leaf, <place>/pool, and keepers make the groups
 * of their jobs beside it:
 *
 *   <place>/pool                          the pool, the keepers, masters and executors
 *   <place>/tony-<uid>/<job>/<container>  the processes of a task
 */
#ifndef TONY_CGROUP_PLACE_H
#define TONY_CGROUP_PLACE_H

#include <stdbool.h>

#include "cgroup/find.h"

struct err;

enum place_kind {
    PLACE_OFF = 1, /* switched off by TONY_CGROUPS=none */
    PLACE_NONE,    /* memory can only be sampled: `why`, and `remedy` says what changes that */
    PLACE_V1,      /* v1: this process may make groups in its own one, `dir` */
    PLACE_READY,   /* v2: groups can be made in `dir` now */
    /* v2: in `dir`, once this process (in a container: each process) has moved to a leaf */
    PLACE_MOVE,
    PLACE_SCOPE, /* v2: in a scope that systemd will make for this process */
};

struct place {
    enum place_kind kind;
    bool system;    /* PLACE_SCOPE: ask the manager of the system, not that of the user */
    bool container; /* this process is at the root of a cgroup namespace */
    char dir[CGROUP_PATH_MAX]; /* "" = none */
    char cpu[CGROUP_PATH_MAX]; /* PLACE_V1: this process's group of the controller cpu; "" = none */
    char controllers[256];     /* of dir */
    const char *why, *remedy;  /* static; NULL = nothing to say */
};

/* Find the place. Changes nothing. */
void place_survey(struct place *out);
/* Carry out PLACE_MOVE or PLACE_SCOPE: afterwards *p is PLACE_READY. After a failure this process
 * is where it was, or in a scope without leaves; e says what failed. Other kinds: no effect. */
int place_enter(struct place *p, struct err *e);

#endif
