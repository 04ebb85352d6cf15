/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Do these containers fit on these nodes with a limited number of moves? A search through all ways
 * to place them, for a few jobs on a few nodes. Private to dorm_exact.c.
 */
#ifndef TONY_PARTITION_DORM_PACK_H
#define TONY_PARTITION_DORM_PACK_H

#include "partition/dorm.h"

enum {
    PACK_NODES_MAX = 32,
    PACK_JOBS_MAX = 32,
    PACK_MEMORY = 1 << 14, /* stored dead ends */
};

struct pack {
    struct dorm_work *work;
    uint64_t end; /* steps */
    /* there were too few steps: if pack_fits() returns false, the answer is unknown */
    bool cut;

    uint32_t m, n_nodes, n_jobs;
    int64_t free[PACK_NODES_MAX][PART_TYPES_MAX];
    /* First the running jobs, whose containers should stay on their nodes; then the new jobs. */
    const struct dorm_job *jobs[PACK_JOBS_MAX];
    uint32_t was[PACK_JOBS_MAX][PACK_NODES_MAX];
    uint32_t n[PACK_JOBS_MAX]; /* containers to place */
    uint32_t n_running;
    uint32_t big_first[PACK_JOBS_MAX]; /* the jobs by falling D */
    bool by_size;                      /* internal: place the jobs in the order of big_first */

    /* the containers of each job on each node, if pack_fits() returned true */
    uint32_t x[PACK_JOBS_MAX][PACK_NODES_MAX];
    uint64_t dead[PACK_MEMORY];
};

/*
 * detours: how many containers may be moved from one node to another, beyond those that must appear
 * or vanish because the number of containers changes. True: x is a way. `free` is unchanged
 * afterwards.
 */
bool pack_fits(struct pack *k, uint32_t detours);

#endif
