/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the number of tasks of each role and of the job, at the submission and at each resize.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/spec_int.h"
#include "runtime/runtime.h"

static const char *const policies[] = { "restart", "live", "never" };

static const struct {
    const char *key, *unit;
} totals[TOTAL_COUNT] = {
#define X(id, key, unit) [id] = { "tony.task.max-total-" key, unit },
    TOTALS(X)
#undef X
};

const char *resize_policy_name(enum resize_policy policy)
{
    return policy == RESIZE_UNSET ? "unset" : policies[policy - RESIZE_RESTART];
}

/* ---- a role ---- */

int build_resize(struct build *b, struct role_spec *r)
{
    char key[ROLE_KEY_MAX];
    r->resize = (enum resize_policy)build_choice(b, role_key(key, r->name, "resize"), policies,
                                                 ARRAY_LEN(policies));
    role_key(key, r->name, "min-instances");
    r->min_instances = (uint32_t)conf_int(b->c, key);
    r->says_bounds = r->max_instances >= 0 && conf_find(b->c, key) != NULL;
    const char *resume = conf_get(b->c, role_key(key, r->name, "resume-command"));
    struct span text = span_trim(span_of(resume ? resume : ""));
    if (text.len && !(r->resume_command = span_dup(text)))
        return build_no_memory(b);
    return 0;
}

int build_fixed_size(struct build *b, struct role_spec *r, const char *why)
{
    char key[ROLE_KEY_MAX];
    if (r->resize == RESIZE_RESTART || r->resize == RESIZE_LIVE) {
        (void)build_fail(b, role_key(key, r->name, "resize"), EINVAL,
                         "role '%s' cannot be resized: %s", r->name, why);
        return err_hint(b->e, "remove the line, or write 'never'");
    }
    if (r->min_instances > 1)
        return build_fail(b, role_key(key, r->name, "min-instances"), EINVAL,
                          "role '%s' cannot have %u tasks: %s", r->name, r->min_instances, why);
    r->resize = RESIZE_NEVER;
    return 0;
}

static bool takes_more(const struct job_spec *s, const struct role_spec *r)
{
    return runtime_takes_more(s->framework, r->name, str_eq(r->name, "chief"), s->gang,
                              job_spec_role(s, "ps") != NULL);
}

enum resize_policy role_spec_resize(const struct job_spec *s, const struct role_spec *r)
{
    if (s->single_node)
        return RESIZE_NEVER;
    if (r->resize != RESIZE_UNSET)
        return r->resize;
    return takes_more(s, r) ? RESIZE_LIVE : RESIZE_RESTART;
}

static int check_role(struct build *b, const struct role_spec *r)
{
    char key[ROLE_KEY_MAX];
    if (r->max_instances >= 0 && r->instances > r->max_instances) {
        role_key(key, r->name, "max-instances");
        (void)build_fail(b, key, EINVAL, "role '%s' has %u instances, which exceeds the %lld of %s",
                         r->name, r->instances, (long long)r->max_instances, key);
        return err_hint(b->e, "ask for fewer, or raise %s", key);
    }
    if (r->min_instances > r->instances) {
        role_key(key, r->name, "min-instances");
        (void)build_fail(b, key, EINVAL, "role '%s' has %u instances, fewer than the %u of %s",
                         r->name, r->instances, r->min_instances, key);
        return err_hint(b->e, "lower %s, or set more instances", key);
    }
    role_key(key, r->name, "resize");
    if (r->resize == RESIZE_LIVE && !takes_more(b->s, r) &&
        strv_pushf(
            &b->s->warnings,
            "%s: role '%s' is resized live, but programs of framework '%s' do not notice new "
            "peers while they run; unless yours does, write 'restart'",
            conf_origin(b->c, key), r->name, b->s->framework) < 0)
        return build_no_memory(b);
    return 0;
}

/* ---- all roles together ---- */

static uint64_t one_task(const struct role_spec *r, enum total what)
{
    switch (what) {
    case TOTAL_MEMORY:
        return r->memory_mib;
    case TOTAL_VCORES:
        return r->vcores;
    case TOTAL_GPUS:
        return r->gpus;
    case TOTAL_INSTANCES:
    case TOTAL_COUNT:
        break;
    }
    return 1;
}

/* The total over all roles. sizes: instances by role; NULL = those of the job file. The preprocess
 * task does not count. */
static uint64_t total_of(const struct job_spec *s, enum total what, const uint32_t *sizes)
{
    uint64_t sum = 0;
    /* No overflow: both factors are far below 2^32. */
    for (size_t i = 0; i < s->n_roles - s->preprocess; i++)
        sum += one_task(&s->roles[i], what) * (sizes ? sizes[i] : s->roles[i].instances);
    return sum;
}

static int check_total(struct build *b, enum total what)
{
    const char *key = totals[what].key;
    int64_t cap = conf_find(b->c, key) ? conf_int(b->c, key) : -1;
    uint64_t sum = total_of(b->s, what, NULL);
    /* A job that passes a cap of 0 uses none of it at any size: no check at a resize. */
    b->s->max_total[what] = cap > 0 ? (uint64_t)cap : 0;
    if (cap < 0 || sum <= (uint64_t)cap)
        return 0;
    (void)build_fail(b, key, EINVAL,
                     "the job asks for %llu %s in all, which exceeds the %lld of %s",
                     (unsigned long long)sum, totals[what].unit, (long long)cap, key);
    return err_hint(b->e, "ask for less, or raise %s", key);
}

int build_caps(struct build *b)
{
    int rc = 0;
    for (size_t i = 0; i < b->s->n_roles && rc == 0; i++)
        rc = check_role(b, &b->s->roles[i]);
    for (int what = 0; what < TOTAL_COUNT && rc == 0; what++)
        rc = check_total(b, (enum total)what);
    return rc;
}

/* ---- a resize ---- */

static int check_new_size(const struct job_spec *s, const struct role_spec *r, uint32_t n,
                          struct err *e)
{
    if (role_spec_resize(s, r) == RESIZE_NEVER)
        return err_set(e, EINVAL, "role '%s' cannot be resized: tony.%s.resize is 'never'", r->name,
                       r->name);
    if (n < MAX(r->min_instances, 1u)) {
        (void)err_set(e, EINVAL, "role '%s' cannot have %u instances: tony.%s.min-instances is %u",
                      r->name, n, r->name, MAX(r->min_instances, 1u));
        return err_hint(e, "ask for at least %u", MAX(r->min_instances, 1u));
    }
    if (r->max_instances >= 0 && n > r->max_instances) {
        (void)err_set(e, EINVAL,
                      "role '%s' cannot have %u instances: tony.%s.max-instances is %lld", r->name,
                      n, r->name, (long long)r->max_instances);
        return err_hint(e, "ask for at most %lld", (long long)r->max_instances);
    }
    return 0;
}

/* Does the framework accept these numbers of tasks? Ray needs one head, for example. And do the
 * addresses of all tasks fit into the environment variables that it needs? */
static int check_framework(const struct job_spec *s, const uint32_t *target, struct err *e)
{
    const struct runtime *rt = runtime_find(s->framework);
    size_t n = s->n_roles - s->preprocess;
    AUTO(free_p) struct rt_role *roles = job_spec_rt_roles(s, target);
    struct rt_job job;
    if (!roles)
        return err_set(e, ENOMEM, "cannot check the new size: %m");
    int rc = rt ? runtime_check(rt, roles, n, s->gang, e) : 0;
    job_spec_rt_job(s, roles, n, &job);
    if (rc == 0 && rt && runtime_check_lengths(rt, &job, e) < 0)
        rc = e ? -(e->num = EINVAL) : -EINVAL;
    return rc;
}

int job_spec_check_size(const struct job_spec *s, const uint32_t *now, const uint32_t *target,
                        struct err *e)
{
    int rc = 0;
    if (s->single_node)
        return err_set(e, EINVAL, "a job without roles has one task and cannot be resized");
    for (size_t i = 0; i < s->n_roles && rc == 0; i++)
        rc = target[i] == now[i] ? 0 : check_new_size(s, &s->roles[i], target[i], e);
    for (int what = 0; what < TOTAL_COUNT && rc == 0; what++) {
        uint64_t sum = total_of(s, (enum total)what, target);
        if (s->max_total[what] && sum > s->max_total[what])
            rc = err_set(e, EINVAL, "the job would have %llu %s in all: %s is %llu",
                         (unsigned long long)sum, totals[what].unit, totals[what].key,
                         (unsigned long long)s->max_total[what]);
    }
    if (rc == 0 && total_of(s, TOTAL_INSTANCES, target) > SPEC_TASKS_MAX)
        rc = err_set(e, EINVAL, "the job would have more than %d tasks in all", SPEC_TASKS_MAX);
    return rc == 0 ? check_framework(s, target, e) : rc;
}

bool job_spec_in_caps(const struct job_spec *s, const uint32_t *sizes)
{
    for (int what = 0; what < TOTAL_COUNT; what++)
        if (s->max_total[what] && total_of(s, (enum total)what, sizes) > s->max_total[what])
            return false;
    return total_of(s, TOTAL_INSTANCES, sizes) <= SPEC_TASKS_MAX;
}
