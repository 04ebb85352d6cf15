/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the master's world share.
 */
#ifndef TONY_TESTS_MASTER_WORLD_INT_H
#define TONY_TESTS_MASTER_WORLD_INT_H

#include "master_world.h"

struct err;

enum { WORLD_AGAIN_MS = 2 }; /* between two attempts to dial a master that is not there */

_Noreturn void world_die(const char *what, const struct err *e);
/* box: NULL = a client. */
int world_dial_master(struct world *w, const struct box *box, const struct conn_ops *ops, void *arg,
                      struct conn **out);

extern const struct conn_ops world_box_ops;
void world_box_open(struct conn *c, void *arg); /* the executor says hello; arg: the box */
void world_box_end(struct box *b, bool killed); /* its task has ended */

/* master_world_lost.c */
/* The cluster gives up the node of w->lost_slot's container, and does not list the container to
 * the next master. Its executor lives on, knows only where the last master was, and listens for the
 * next one. Its task runs until the executor is told to end it. */
void world_lose(struct world *w);
void world_lost_ended(struct world *w); /* that task has ended: other tasks end now */
bool world_wrote(const struct world *w, const char *event, const char *slot);

/* master_world_client.c */
void world_client_dial(void *arg);               /* arg: the world */
unsigned world_n_running(const struct world *w); /* tasks */
void world_task_runs(struct world *w);           /* what the test wanted to be done then */
/* If the test wants a resize, so many tasks run, and a copy is held back if one is to be. */
void world_client_may_resize(struct world *w);

#endif
