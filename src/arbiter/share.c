/* SPDX-License-Identifier: Apache-2.0 */
#include "arbiter/share.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "partition/partition.h"

/* ---- needs ---- */

static uint64_t round_up(uint64_t mib, int64_t unit)
{
    return (mib + (uint64_t)unit - 1) / (uint64_t)unit * (uint64_t)unit;
}

int share_needs_of(const struct job_spec *s, uint64_t master_mib, int64_t unit_mib,
                   struct share_needs *out)
{
    struct job_spec rounded = *s; /* a copy of *s with roles of its own */
    struct job_elastic x;
    rounded.roles = calloc(s->n_roles + 1, sizeof *rounded.roles);
    if (!rounded.roles)
        return -ENOMEM;
    for (size_t i = 0; i < s->n_roles; i++) {
        rounded.roles[i] = s->roles[i];
        rounded.roles[i].memory_mib = round_up(s->roles[i].memory_mib, unit_mib);
    }
    bool is_elastic = job_spec_elastic(&rounded, &x);
    if (is_elastic)
        *out = (struct share_needs){ .n = x.role->instances,
                                     .min = x.min,
                                     .max = x.max,
                                     .each_mib = x.each_memory_mib,
                                     .each_gpus = x.each_gpus,
                                     .fixed_containers = x.fixed_containers,
                                     .fixed_mib = x.fixed_memory_mib,
                                     .fixed_gpus = x.fixed_gpus,
                                     .master_mib = round_up(master_mib, unit_mib),
                                     .weight = s->weight,
                                     .budget = s->budget };
    free(rounded.roles);
    return is_elastic;
}

bool share_lacks(const struct share_needs *s, uint32_t n, uint64_t used_mib)
{
    return used_mib < s->master_mib + s->fixed_mib + s->each_mib * n;
}

/* The numbers of a tag, in the order of the tag; the budget follows them. */
enum { N, MIN_N, MAX_N, EACH_MIB, EACH_GPUS, CONTAINERS, MIB, GPUS, MASTER_MIB, WEIGHT, N_FIELDS };
enum { MEMORY_MAX_MIB = 1 << 30 }; /* limit for one container, and for all fixed ones: 1 PiB */

static const struct {
    const char *what;
    int64_t min, max;
} fields[N_FIELDS] = {
    [N] = { "instances", 1, PART_CONTAINERS_MAX },
    [MIN_N] = { "min", 1, PART_CONTAINERS_MAX },
    [MAX_N] = { "max", 1, PART_CONTAINERS_MAX },
    [EACH_MIB] = { "memory", 1, MEMORY_MAX_MIB },
    [EACH_GPUS] = { "gpus", 0, PART_CONTAINERS_MAX },
    [CONTAINERS] = { "other containers", 0, PART_CONTAINERS_MAX },
    [MIB] = { "memory of others", 0, MEMORY_MAX_MIB },
    [GPUS] = { "gpus of others", 0, PART_CONTAINERS_MAX },
    [MASTER_MIB] = { "memory of the master", 1, MEMORY_MAX_MIB },
    [WEIGHT] = { "weight", 1, PART_WEIGHT_MAX },
};

bool share_needs_tag(const struct share_needs *s, char out[SHARE_TAG_MAX])
{
    int n = snprintf(out, SHARE_TAG_MAX,
                     SHARE_TAG "%" PRIu32 ":%" PRIu32 ":%" PRIu32 ":%" PRIu64 ":%" PRIu32
                               ":%" PRIu32 ":%" PRIu64 ":%" PRIu32 ":%" PRIu64 ":%" PRIu32 ":%g",
                     s->n, s->min, s->max, s->each_mib, s->each_gpus, s->fixed_containers,
                     s->fixed_mib, s->fixed_gpus, s->master_mib, s->weight, s->budget);
    return n > 0 && n < SHARE_TAG_MAX;
}

int share_needs_read(const char *tag, struct share_needs *out, struct err *e)
{
    enum { BUDGET_MAX = 1000000000 };
    struct span text = span_of(tag), field;
    int64_t v[N_FIELDS];
    double budget = 0;
    if (!str_starts(tag, SHARE_TAG) || strlen(tag) >= SHARE_TAG_MAX)
        return err_set(e, EINVAL,
                       "a tag with the needs of a job must begin with " SHARE_TAG
                       " and have at most %d bytes",
                       SHARE_TAG_MAX - 1);
    text.p += strlen(SHARE_TAG);
    text.len -= strlen(SHARE_TAG);
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (!span_split(&text, ':', &field))
            return err_set(e, EINVAL, "the tag '%.100s' is too short", tag);
        int rc = str_i64(field, fields[i].min, fields[i].max, fields[i].what, &v[i], e);
        if (rc < 0)
            return err_wrap(e, rc, "tag '%.100s'", tag);
    }
    int rc = str_real(text, 0, BUDGET_MAX, "budget", &budget, e);
    if (rc < 0)
        return err_wrap(e, rc, "tag '%.100s'", tag);
    if (v[MIN_N] >= v[MAX_N])
        return err_set(e, EINVAL, "tag '%.100s': min must be less than max", tag);
    *out = (struct share_needs){ .n = (uint32_t)v[N],
                                 .min = (uint32_t)v[MIN_N],
                                 .max = (uint32_t)v[MAX_N],
                                 .each_mib = (uint64_t)v[EACH_MIB],
                                 .each_gpus = (uint32_t)v[EACH_GPUS],
                                 .fixed_containers = (uint32_t)v[CONTAINERS],
                                 .fixed_mib = (uint64_t)v[MIB],
                                 .fixed_gpus = (uint32_t)v[GPUS],
                                 .master_mib = (uint64_t)v[MASTER_MIB],
                                 .weight = (uint32_t)v[WEIGHT],
                                 .budget = budget };
    return 0;
}

/* ---- state ---- */

/* most: the number of instances of the role, so also the most containers that the nodes may have.
 */
static int read_nodes(const json_t *nodes, uint32_t most,
                      int (*node)(const char *name, uint32_t n, void *arg), void *arg,
                      struct err *e)
{
    const char *name;
    const json_t *count;
    uint32_t left = most;
    json_object_foreach((json_t *)(uintptr_t)nodes, name, count)
    {
        json_int_t n = json_integer_value(count);
        if (n < 1 || n > PART_CONTAINERS_MAX)
            return err_set(e, EINVAL, "the share of the job: node '%.80s' has no valid number",
                           name);
        if (n > left)
            return err_set(e, EINVAL, "the share of the job: more than %u containers", most);
        left -= (uint32_t)n;
        if (node(name, (uint32_t)n, arg) < 0)
            return err_set(e, ENOMEM, "cannot keep the nodes of a job: %m");
    }
    return 0;
}

int share_state_read(struct span json, struct share_state *out,
                     int (*node)(const char *name, uint32_t n, void *arg), void *arg, struct err *e)
{
    AUTO(json_freep) json_t *doc = NULL;
    int rc = json_parse("the share of the job", json, &doc, e);
    if (rc < 0)
        return rc;
    const json_t *nodes = json_object_get(doc, "nodes");
    int64_t n = json_int(doc, "instances", -1);
    int64_t target = MAX(json_int(doc, "target", 0), n); /* an earlier tony does not name it */
    if (n < 0 || target > PART_CONTAINERS_MAX || !json_is_object(nodes))
        return err_set(e, EINVAL, "the share of the job: 'instances' or 'nodes' is missing");
    *out = (struct share_state){ .runs = json_flag(doc, "runs", false),
                                 .changing = json_flag(doc, "changing", true),
                                 .n = (uint32_t)n,
                                 .target = (uint32_t)target,
                                 .left_ms = MAX(json_int(doc, "left_ms", -1), INT64_C(-1)),
                                 .cost_ms = MAX(json_int(doc, "cost_ms", -1), INT64_C(-1)) };
    if (out->runs && n == 0)
        return err_set(e, EINVAL, "the share of the job: it runs without containers");
    return read_nodes(nodes, out->n, node, arg, e);
}
