/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of the master's world share.
 */
#ifndef TONY_TESTS_MASTER_WORLD_INT_H
#define TONY_TESTS_MASTER_WORLD_INT_H

#include "master_world.h"

struct err;

enum { WORLD_AGAIN_MS = 2 }; /* pause between two attempts to connect to the master */

_Noreturn void world_die(const char *what, const struct err *e);
/* box: NULL = a client. */
int world_dial_master(struct world *w, const struct box *box, const struct conn_ops *ops, void *arg,
                      struct conn **out);

extern const struct conn_ops world_box_ops;
void world_box_open(struct conn *c, void *arg); /* the executor sends its hello; arg: the box */
void world_box_end(struct box *b, bool killed); /* its task has ended */

/* implemented in master_world_lost.c */
/* The cluster gives up the node of w->lost_slot's container, and does not list the container to the
 * next master. The executor lives on. It knows only the address of the last master, and listens for
 * the next one. Its task runs until the executor is told to end it. */
void world_lose(struct world *w);
/* The task in the lost container has ended: tasks that wait for that end now. */
void world_lost_ended(struct world *w);
bool world_wrote(const struct world *w, const char *event, const char *slot);

/* implemented in master_world_client.c */
void world_client_dial(void *arg);               /* arg: the world */
unsigned world_n_running(const struct world *w); /* running tasks */
void world_task_runs(struct world *w); /* a task has begun: do what the test wants at this point */
/* Send the resize request, if the test wants one, enough tasks run, and a journal copy waits if the
 * test holds copies back. */
void world_client_may_resize(struct world *w);

#endif
