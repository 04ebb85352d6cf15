/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the role of a job that a policy may resize, and the needs of the job at each size. */
#include "base/util.h"
#include "conf/spec_int.h"

/* The only role with both bounds. NULL: there is none, or there are several. */
static const struct role_spec *find_role(const struct job_spec *s)
{
    const struct role_spec *found = NULL;
    for (size_t i = 0; !s->single_node && i < s->n_roles; i++) {
        const struct role_spec *r = &s->roles[i];
        if (!r->says_bounds || (int64_t)r->min_instances >= r->max_instances ||
            r->max_instances > SPEC_TASKS_MAX || role_spec_resize(s, r) == RESIZE_NEVER)
            continue;
        if (found)
            return NULL;
        found = r;
    }
    return found;
}

/* The needs of the job if the role has n instances. */
static struct job_demand demand_with(const struct job_spec *s, const struct role_spec *role,
                                     uint32_t n)
{
    struct job_demand d;
    struct role_spec *r = (struct role_spec *)(uintptr_t)role; /* restored below */
    uint32_t was = r->instances;
    r->instances = n;
    job_spec_demand(s, &d);
    r->instances = was;
    return d;
}

/* From the demand with min instances, compute the fixed part. false: the instances alone need
 * more. */
static bool split(const struct job_demand *d, struct job_elastic *x)
{
    uint64_t memory = x->each_memory_mib * x->min, gpus = (uint64_t)x->each_gpus * x->min;
    uint64_t vcores = (uint64_t)x->each_vcores * x->min;
    if (memory > d->memory_mib || gpus > d->gpus || vcores > d->vcores || x->min > d->n_containers)
        return false;
    x->fixed_memory_mib = d->memory_mib - memory;
    x->fixed_gpus = d->gpus - (uint32_t)gpus;
    x->fixed_vcores = d->vcores - (uint32_t)vcores;
    x->fixed_containers = d->n_containers - x->min;
    return true;
}

bool job_spec_elastic(const struct job_spec *s, struct job_elastic *out)
{
    const struct role_spec *r = find_role(s);
    *out = (struct job_elastic){ .role = r };
    if (!r)
        return false;
    out->min = MAX(r->min_instances, 1u);
    out->max = (uint32_t)r->max_instances;
    out->each_memory_mib = r->memory_mib;
    out->each_gpus = r->gpus;
    out->each_vcores = r->vcores;
    struct job_demand least = demand_with(s, r, out->min), most = demand_with(s, r, out->max);
    return split(&least, out) &&
           out->fixed_memory_mib + out->each_memory_mib * out->max == most.memory_mib &&
           out->fixed_gpus + (uint64_t)out->each_gpus * out->max == most.gpus &&
           out->fixed_containers + (uint64_t)out->max == most.n_containers;
}
