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

/* master_world_client.c */
void world_client_dial(void *arg);     /* arg: the world */
void world_task_runs(struct world *w); /* what the test wanted to be done then */

#endif
