/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Do the addresses of a gang fit into the environment of its tasks? That is known only when all
 * tasks have registered. If a variable that the framework needs is too long, the job fails before
 * a task of the gang starts. Otherwise each task would fail on its own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"
#include "codec/json.h"
#include "job/job_int.h"
#include "runtime/runtime.h"

/* With fewer bytes of addresses no variable is too long: a variable has each address once, with a
 * few characters beside it. So small jobs skip the check. */
enum { SURELY_SHORT = RT_VARIABLE_MAX / 4 };

/* The number of tasks of a role: its members, or as many as a resize will leave it with. */
static uint32_t n_tasks_of(const struct job *j, uint32_t role, const uint32_t *sizes)
{
    return sizes ? sizes[role] : j->roles[role].n;
}

static const char *address_of(const struct job *j, uint32_t role, uint32_t index)
{
    const char *address = j->slots[j->roles[role].slots[index]].address;
    return address ? address : "";
}

static size_t bytes_of_addresses(const struct job *j, const uint32_t *sizes)
{
    size_t sum = 0;
    for (uint32_t r = 0; r < j->n_roles; r++)
        for (uint32_t k = 0; k < n_tasks_of(j, r, sizes); k++)
            sum += strlen(address_of(j, r, k));
    return sum;
}

struct lists {
    struct rt_role *roles;
    struct buf *texts; /* one for each role: its addresses as a JSON list without brackets */
    size_t n;
};

static void lists_done(struct lists *l)
{
    for (size_t i = 0; l->texts && i < l->n; i++)
        buf_done(&l->texts[i]);
    free(l->texts);
    free(l->roles);
}

static int add_role(const struct job *j, uint32_t role, uint32_t n, struct lists *l)
{
    const struct role_spec *spec = job_role_spec(j, role);
    struct buf *text = &l->texts[role];
    for (uint32_t k = 0; k < n; k++) {
        if (k)
            (void)buf_addc(text, ',');
        (void)json_add_str(text, span_of(address_of(j, role, k))); /* sets text->failed */
    }
    l->roles[role] = (struct rt_role){ .name = spec->name,
                                       .n = n,
                                       .kind = (uint32_t)spec->kind,
                                       .ranks = spec->ranks,
                                       .list = span_mem(buf_cstr(text), text->len) };
    return text->failed ? -ENOMEM : 0;
}

/* Without the preprocess task, which is the last role: it ends before the others start. */
static int lists_build(const struct job *j, const uint32_t *sizes, struct lists *l)
{
    l->n = j->n_roles - j->spec->preprocess;
    l->roles = calloc(l->n + 1, sizeof *l->roles);
    l->texts = calloc(l->n + 1, sizeof *l->texts);
    int rc = l->roles && l->texts ? 0 : -ENOMEM;
    for (uint32_t r = 0; rc == 0 && r < l->n; r++)
        rc = add_role(j, r, n_tasks_of(j, r, sizes), l);
    return rc;
}

bool addresses_fit(const struct job *j, const uint32_t *sizes, struct err *e)
{
    const struct runtime *rt = runtime_find(j->spec->framework);
    if (!rt || !runtime_needs_growing(rt) || !j->spec->gang || j->spec->addresses_in_file_only ||
        bytes_of_addresses(j, sizes) < SURELY_SHORT)
        return true;
    AUTO(lists_done) struct lists l = { 0 };
    int rc = lists_build(j, sizes, &l);
    if (rc == 0)
        rc = runtime_check_addresses(rt, l.roles, l.n, e);
    return rc != -E2BIG; /* without memory for the check, each executor still checks its own task */
}

bool addresses_allow_start(struct job *j)
{
    struct err e = { 0 };
    /* In a replay the recorded decision counts: the gang has started unless the job got its verdict
     * here. */
    if (j->decisions.replaying && !j->decisions.has_verdict)
        return true;
    if (addresses_fit(j, NULL, &e))
        return true;
    j->restarts.hopeless = true; /* the addresses of the next gang would be as long */
    policy_decide(j, JOB_FAILED, "%s. To run it: %s", e.msg, e.hint);
    return false;
}
