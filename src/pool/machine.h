/*
 * What this machine has to give.
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
    const char *cgroup; /* "v2", "v1" or "none": where containers' memory can be limited */
};

/* Keys tony.pool.memory, memory-reserve, vcores, gpus of conf; what they leave open is looked up.
 * May take up to 6 s where there are GPUs. A machine that cannot be asked is taken as having none
 * of it, with a warning in the log. */
void machine_survey(const struct conf *conf, struct machine *out);

/* The parts that read text, for the tests. */
bool machine_meminfo(struct span text, uint64_t *out_mib); /* MemTotal of /proc/meminfo */
bool machine_own_group(struct span text, const char *controller,
                       struct buf *out); /* /proc/self/cgroup; "" = unified */
size_t machine_gpu_lines(struct span text, uint32_t out[MACHINE_GPUS_MAX]); /* of tony-gpu */

#endif
