/* SPDX-License-Identifier: Apache-2.0 */
#include "dorm_world.h"

#include <math.h>
#include <stdlib.h>

const char *const types[PART_TYPES_MAX] = { "cores", "memory",   "gpus",  "disks",
                                            "links", "licenses", "fpgas", "buffers" };

static uint64_t state, current;

void decide(const struct part_cluster *c, const struct part_job *jobs, size_t n,
            const struct part_options *o, struct part_decision *d)
{
    struct err e = { 0 };
    if (part_decide(part_policy_find("dorm"), c, jobs, n, o, d, &e) != 0)
        fail_msg("seed %llu: %s", (unsigned long long)current, e.msg);
}

struct part_job job(const char *id, int64_t cores, int64_t memory, uint32_t min, uint32_t max)
{
    return (struct part_job){ .id = id,
                              .demand = { { cores, memory } },
                              .weight = 1,
                              .min = min,
                              .max = max,
                              .remaining_s = INFINITY,
                              .ends_in_s = INFINITY };
}

struct part_job running(struct part_job j, const struct part_place *at, uint32_t n_at)
{
    j.at = at;
    j.n_at = n_at;
    return j;
}

struct part_options bounds(double loss, int64_t adjust)
{
    struct part_options o = part_defaults;
    o.loss_max = loss;
    o.adjust_max = adjust;
    return o;
}

void expect(const struct part_decision *d, size_t i, enum part_verdict verdict, uint32_t n,
            enum part_because because)
{
    assert_int_equal(d->jobs[i].verdict, verdict);
    assert_int_equal(d->jobs[i].n, n);
    assert_int_equal(d->jobs[i].because, because);
}

void begin_instance(uint64_t number)
{
    current = number;
    state = number * 2654435761u + 1;
}

uint64_t instance(void)
{
    return current;
}

uint32_t below(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % n);
}

bool fits(const struct part_amount *free, const struct part_amount *d)
{
    for (uint32_t k = 0; k < PART_TYPES_MAX; k++)
        if (d->v[k] > free->v[k])
            return false;
    return true;
}

void take(struct part_amount *free, const struct part_amount *d, int64_t n)
{
    for (uint32_t k = 0; k < PART_TYPES_MAX; k++)
        free->v[k] -= d->v[k] * n;
}

uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    int64_t v;
    bool is_set = text && str_i64(span_of(text), 0, INT64_MAX, name, &v, NULL) == 0;
    return is_set ? (uint64_t)v : otherwise;
}
