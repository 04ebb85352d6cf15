/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measured costs of resizes, by the names of the jobs. The pool expects the same cost for a new
 * job of that name. The table is stored in the file pool/costs for later pools. If that file is
 * damaged, the pool begins with an empty table, because the costs are only expectations.
 */
#ifndef TONY_POOL_COSTS_H
#define TONY_POOL_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct err;

enum {
    COSTS_NAMES_MAX = 256, /* the name whose cost was reported least recently is forgotten first */
    COSTS_NAME_MAX = 128,  /* bytes of a name with its NUL; longer names are not stored */
};

struct cost_of_name {
    char name[COSTS_NAME_MAX];
    uint64_t ms;
};

struct costs_table {
    char *path;                 /* of the file */
    VEC(struct cost_of_name) v; /* in the order of the last reports */
};

/* Read the table from a file in this directory. 0 or -ENOMEM. */
int costs_load(struct costs_table *t, const char *dir, struct err *e);
/* A job of this name has reported its cost. Writes the file if the cost is new. 0 or -errno: the
 * file could not be written, but the table has the cost. */
int costs_learn(struct costs_table *t, const char *name, uint64_t ms, struct err *e);
/* false: no job of this name was resized. */
bool costs_find(const struct costs_table *t, const char *name, uint64_t *out_ms);
void costs_done(struct costs_table *t);

#endif
