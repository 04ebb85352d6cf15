/* SPDX-License-Identifier: Apache-2.0 */
/* What `tony init` knows of the job that it writes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/vec.h"

struct init_plan {
    const char *framework; /* borrowed */
    const char *why;       /* the reason for the choice of the framework; borrowed */
    char *script;          /* NULL = none was found */
    char *venv;            /* NULL = none */
    bool requirements;
    bool from_line; /* the plan was translated from a line of another launcher */
    int64_t instances;
    int64_t min_instances, max_instances;  /* 0 = the size does not change */
    int64_t ranks, gpus, vcores, restarts; /* 0 = the line says nothing */
    const char *ranks_of; /* torchrun's word "gpu", "cpu" or "auto" in place of ranks; borrowed */
    char *name;           /* of the job; NULL = that of the directory */
    char *memory;         /* NULL = the line says nothing */
    /* `memory` is that of a node, since the line does not say how many tasks share it */
    bool memory_of_node;
    struct buf command;
    struct strv env;  /* NAME=VALUE */
    struct strv left; /* options of the line that job files do not have */
};

const char *init_python(const struct init_plan *p); /* the interpreter of the tasks */
/* Translate a line of torchrun, mpiexec, srun or another launcher. */
int init_translate(struct init_plan *p, const char *line, struct err *e);
