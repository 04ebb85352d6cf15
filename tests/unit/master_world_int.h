/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of the master's world share.
 */
#ifndef TONY_TESTS_MASTER_WORLD_INT_H
#define TONY_TESTS_MASTER_WORLD_INT_H

#include "master_world.h"

struct err;
struct sched_ops;

enum { WORLD_AGAIN_MS = 2 }; /* pause between two attempts to connect to the master */

_Noreturn void world_die(const char *what, const struct err *e);
/* box: NULL = a client. */
int world_dial_master(struct world *w, const struct box *box, const struct conn_ops *ops, void *arg,
                      struct conn **out);

extern const struct conn_ops world_box_ops;
void world_box_open(struct conn *c, void *arg); /* the executor sends its hello; arg: the box */
void world_box_end(struct box *b, bool killed); /* its task has ended */

/* The executor connects to the master; arg: the box. */
void world_box_dial(void *arg);
/* The container has ended: the scheduler reports it to the master. */
void world_box_complete(struct box *b, int exit_code, enum end_reason reason);

/* implemented in master_world_sched.c */
extern struct sched_ops world_sched_ops;
void world_sched_init(struct world *w); /* w->loop exists */
void world_sched_done(struct world *w);
void world_pump_soon(struct world *w); /* report what is new, as soon as the loop runs */
/* Do what a keeper does when the job is over or its master is hopeless: end all containers. Counts
 * the tasks that still ran, in w->n_running_at_end. */
void world_end_leftovers(struct world *w);

/* implemented in master_world_lost.c */
/* The cluster gives up the node of w->lost_slot's container, and does not list the container to the
 * next master. The executor lives on, unless w->lost_is_dead. It knows only the address of the last
 * master, and listens for the next one. Its task runs until the executor is told to end it. */
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
