/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a resize has cost jobs, by the names of the jobs: the pool expects the same of a new job
 * with the same name. The table is in the file pool/costs, so later pools know it as well. It is
 * only an expectation: if the file is damaged, the pool begins with an empty table.
 */
#ifndef TONY_POOL_COSTS_H
#define TONY_POOL_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct err;

enum {
    COSTS_NAMES_MAX = 256, /* the name that was not told for the longest time is forgotten first */
    COSTS_NAME_MAX = 128,  /* bytes of a name with its NUL; longer names are not kept */
};

struct cost_of_name {
    char name[COSTS_NAME_MAX];
    uint64_t ms;
};

struct costs_table {
    char *path;                 /* of the file */
    VEC(struct cost_of_name) v; /* the last one was told last */
};

/* Read the table from a file in this directory. 0 or -ENOMEM. */
int costs_load(struct costs_table *t, const char *dir, struct err *e);
/* A job of this name has told its cost. Writes the file if that is new. 0 or -errno: it could not
 * be written; the table has the cost all the same. */
int costs_learn(struct costs_table *t, const char *name, uint64_t ms, struct err *e);
/* false: no job of this name was resized. */
bool costs_find(const struct costs_table *t, const char *name, uint64_t *out_ms);
void costs_done(struct costs_table *t);

#endif
