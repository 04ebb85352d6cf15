/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/scheduler.h"

#include "base/str.h"
#include "base/util.h"
#include "scheduler/local/local.h"
#include "scheduler/slurm/slurm.h"
#include "scheduler/yarn/yarn.h"

/* One line for each back-end. docs/add-a-backend.md lists the other steps of adding one. */
static const struct sched_ops *const backends[] = {
    &sched_local,
    &sched_yarn,
    &sched_slurm,
};

const struct sched_ops *sched_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(backends); i++)
        if (str_eq(backends[i]->name, name))
            return backends[i];
    return NULL;
}
