/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resources of this machine: memory, cores and GPUs.
 */
#ifndef TONY_POOL_MACHINE_H
#define TONY_POOL_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct conf;
struct err;

enum { MACHINE_GPUS_MAX = 64 };

struct machine {
    uint64_t memory_mib;
    uint32_t vcores;
    uint32_t n_gpus;
    uint32_t gpus[MACHINE_GPUS_MAX]; /* device indices, ascending */
    /* The version of control groups with which the memory of containers can be limited: "v2", "v1",
     * or "none". */
    const char *cgroup;
};

/* Find out the resources. Each of the keys tony.pool.memory, tony.pool.vcores and tony.pool.gpus
 * sets one; if it is not set, the machine is asked, and tony.pool.memory-reserve is subtracted from
 * its memory. A resource that cannot be found out counts as 0, with a warning in the log. On a
 * machine with GPUs this may block for up to 6 s. */
void machine_survey(const struct conf *conf, struct machine *out);

/* Look again at memory and cores. GPUs are found only by machine_survey(), because asking the
 * driver may block. true: *m has changed. What cannot be read now stays as it was. */
bool machine_look_again(const struct conf *conf, struct machine *m);

/* The parts that read text, for the tests. */
/* MemTotal of the text of /proc/meminfo, in MiB. */
bool machine_meminfo(struct span text, uint64_t *out_mib);
/* The device indices in the output of tony-gpu, ascending. Returns their number. */
size_t machine_gpu_lines(struct span text, uint32_t out[MACHINE_GPUS_MAX]);

#endif
