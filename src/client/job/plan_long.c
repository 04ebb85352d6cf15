/* SPDX-License-Identifier: Apache-2.0 */
/* plan: variables that are too long for the environment, because the job has many tasks. */
#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/job/plan_long.h"
#include "conf/conf.h"

int plan_lengths(const struct job_spec *s, struct plan_lengths *out, struct err *e)
{
    const struct runtime *rt = runtime_find(s->framework);
    AUTO(free_p) struct rt_role *roles = job_spec_rt_roles(s, NULL);
    struct rt_job job;
    *out = (struct plan_lengths){ 0 };
    if (!roles)
        return err_set(e, ENOMEM, "cannot plan the job: %m");
    job_spec_rt_job(s, roles, s->n_roles, &job);
    return rt && s->n_roles ? runtime_lengths(rt, &job, out->v, &out->n, e) : 0;
}

bool plan_left_out(const struct plan_lengths *l, const char *variable)
{
    for (size_t i = 0; i < l->n; i++)
        if (str_eq(l->v[i].name, variable) && l->v[i].least > RT_VARIABLE_MAX)
            return true;
    return false;
}

json_t *plan_lengths_json(const struct plan_lengths *l)
{
    json_t *list = json_array();
    for (size_t i = 0; i < l->n; i++) {
        const struct rt_length *v = &l->v[i];
        if (v->most <= RT_VARIABLE_MAX)
            continue;
        (void)json_array_append_new(
            list, json_pack("{s:s, s:I, s:I, s:i, s:b, s:s}", "variable", v->name, "bytes_least",
                            (json_int_t)v->least, "bytes_most", (json_int_t)v->most, "limit",
                            RT_VARIABLE_MAX, "needed", v->needed, "left_out",
                            v->least > RT_VARIABLE_MAX ? "yes" : "maybe"));
    }
    return list;
}

/* Variables that the framework needs and that are certainly too long do not occur here: tony has
 * refused such a job before. */
void plan_lengths_print(const json_t *doc)
{
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(doc, "too_long"), i, v)
    {
        bool needed = json_is_true(json_object_get(v, "needed"));
        bool certain = str_eq(doc_str(v, "left_out"), "yes");
        (void)printf("\n%s %s: it has %lld to %lld bytes, depending on the addresses, and Linux "
                     "takes %lld.\n",
                     doc_str(v, "variable"),
                     certain  ? "is left out of the environment"
                     : needed ? "may be too long for the environment"
                              : "may be left out of the environment",
                     (long long)doc_int(v, "bytes_least", 0),
                     (long long)doc_int(v, "bytes_most", 0), (long long)doc_int(v, "limit", 0));
        (void)printf(needed ? "If it is, the job fails before any task starts: the framework "
                              "cannot do without it.\n"
                            : "The addresses of all tasks are in the file TONY_SPEC_FILE.\n");
    }
}
