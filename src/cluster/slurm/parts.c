/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses whether a job becomes one allocation or several components.
 *
 * All nodes of an allocation have the same share, and Slurm starts it as soon as its nodes are
 * free. The components of a heterogeneous job differ in shape and constraint. But Slurm starts such
 * a job only in a backfill cycle, and no node is in two components. So a job gets one allocation
 * unless that is impossible or a waste (tony.slurm.components: auto):
 *
 * - roles have different node labels,
 * - no kind of node can hold the tasks of all roles, or
 * - nodes would get GPUs although no task there uses one.
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/slurm/slurm_int.h"
#include "conf/conf.h"

void slurm_size_done(struct slurm_size *z)
{
    free(z->of_role);
    for (size_t i = 0; i < ARRAY_LEN(z->constraint); i++)
        free(z->constraint[i]);
    *z = (struct slurm_size){ 0 };
}

uint32_t slurm_size_nodes(const struct slurm_size *z)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < z->n; i++)
        n += z->v[i].nodes;
    return n;
}

/* ---- the components ---- */

/* The node label of a role; "" = it has none of its own. Borrowed. */
static const char *label_of(const struct conf *c, const struct role_spec *r)
{
    AUTO(free_p) char *key = str_printf("tony.%s.node-label", r->name);
    const char *v = key ? conf_get(c, key) : NULL;
    return v ? v : "";
}

/* The label that all roles have. */
static const char *common_label(const struct conf *c, const struct job_spec *s)
{
    for (size_t i = 0; i < s->n_roles; i++)
        if (s->roles[i].instances)
            return label_of(c, &s->roles[i]);
    return "";
}

static bool labels_differ(const struct conf *c, const struct job_spec *s)
{
    const char *first = NULL;
    for (size_t i = 0; i < s->n_roles; i++) {
        const char *label = label_of(c, &s->roles[i]);
        if (s->roles[i].instances == 0)
            continue;
        if (first && !str_eq(first, label))
            return true;
        first = label;
    }
    return false;
}

/* Which component gets the role? Roles with the same label that all use GPUs, or all use none,
 * share one. each: no two roles share one. */
static int group_roles(const struct conf *c, const struct job_spec *s, bool each,
                       struct slurm_size *out, struct err *e)
{
    size_t first[SLURM_PARTS_MAX];
    out->n = 0;
    out->of_role = calloc(s->n_roles + 1, sizeof *out->of_role);
    if (!out->of_role)
        return err_set(e, ENOMEM, "no memory to size the allocation");
    for (size_t i = 0; i < s->n_roles; i++) {
        const struct role_spec *r = &s->roles[i];
        uint32_t k = 0;
        if (r->instances == 0)
            continue;
        while (k < out->n && (each || !str_eq(label_of(c, r), label_of(c, &s->roles[first[k]])) ||
                              (r->gpus > 0) != (s->roles[first[k]].gpus > 0)))
            k++;
        if (k == SLURM_PARTS_MAX)
            return err_set(e, EINVAL, "the roles need more than %d components of a Slurm job",
                           SLURM_PARTS_MAX);
        out->of_role[i] = k;
        if (k < out->n)
            continue;
        first[out->n++] = i;
        const char *label = label_of(c, r);
        out->constraint[k] = *label ? str_dup(label) : NULL;
        if (*label && !out->constraint[k])
            return err_set(e, ENOMEM, "no memory to size the allocation");
    }
    return 0;
}

static int choose_components(const struct conf *c, const struct job_spec *s,
                             const slurm_nodes *nodes, bool each, struct slurm_size *out,
                             struct err *e)
{
    AUTO(free_p) bool *only = calloc(s->n_roles + 1, sizeof *only);
    uint32_t spare = (uint32_t)conf_int(c, "tony.slurm.spare-nodes"), idle_gpus;
    const char *list = conf_get(c, "tony.slurm.nodelist");
    slurm_nodes left = { 0 };
    int rc = only ? group_roles(c, s, each, out, e)
                  : err_set(e, ENOMEM, "no memory to size the allocation");
    if (rc < 0)
        return rc;
    if (out->n > 1 && (conf_int(c, "tony.slurm.nodes") || (list && *list))) {
        const char *key = list && *list ? "tony.slurm.nodelist" : "tony.slurm.nodes";
        (void)err_set(e, EINVAL,
                      "the roles need %u components of a Slurm job, and %s can only be used with "
                      "one component",
                      out->n, key);
        return err_hint(e, "remove %s, or set tony.slurm.components to 'one'", key);
    }
    for (size_t i = 0; i < nodes->n && rc == 0; i++)
        rc = vec_push(&left, nodes->v[i]);
    /* No node is in two components. The roles with GPUs choose first. */
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t k = 0; k < out->n && rc == 0; k++) {
            bool gpus = false;
            for (size_t i = 0; i < s->n_roles; i++) {
                only[i] = out->of_role[i] == k;
                gpus = gpus || (only[i] && s->roles[i].instances && s->roles[i].gpus);
            }
            if (gpus != (pass == 0))
                continue;
            rc = slurm_choose_shape_of(s, only, &left, 0, spare, &out->v[k], &idle_gpus, e);
            if (rc == 0)
                slurm_take_nodes(&left, &out->v[k]);
        }
    vec_done(&left);
    if (rc == -ERANGE)
        rc = err_set(
            e, ERANGE,
            "the partition does not have enough nodes for the %u components of the job: each "
            "component needs nodes of its own",
            out->n);
    return rc;
}

/* ---- the choice ---- */

/* The number of nodes in a list such as "n[1-3],n7". 0: there is none, or only sbatch can read it.
 */
static uint32_t count_names(const char *list)
{
    struct strv names = { 0 };
    uint32_t n = 0;
    if (list && *list && slurm_expand_nodes(span_of(list), &names) == 0)
        n = (uint32_t)names.n;
    strv_done(&names);
    return n;
}

/* The allocation contains all nodes of tony.slurm.nodelist: it may need more nodes than the tasks.
 */
static int choose_one(const struct conf *c, const struct job_spec *s, const slurm_nodes *nodes,
                      struct slurm_shape *out, uint32_t *out_idle_gpus, struct err *e)
{
    uint32_t wanted = (uint32_t)conf_int(c, "tony.slurm.nodes");
    uint32_t spare = (uint32_t)conf_int(c, "tony.slurm.spare-nodes");
    uint32_t named = count_names(conf_get(c, "tony.slurm.nodelist"));
    if (wanted && named > wanted + spare) {
        (void)err_set(e, EINVAL,
                      "tony.slurm.nodelist has %u nodes, but tony.slurm.nodes and "
                      "tony.slurm.spare-nodes ask only for %u",
                      named, wanted + spare);
        return err_hint(e, "remove tony.slurm.nodes, or nodes from the list");
    }
    int rc = slurm_choose_shape_of(s, NULL, nodes, wanted, spare, out, out_idle_gpus, e);
    if (rc == 0 && out->nodes < named)
        rc = slurm_choose_shape_of(s, NULL, nodes, named > spare ? named - spare : 1, spare, out,
                                   out_idle_gpus, e);
    return rc;
}

int slurm_choose_size(const struct conf *c, const struct job_spec *s, const slurm_nodes *nodes,
                      struct slurm_size *out, struct err *e)
{
    const char *how = conf_get(c, "tony.slurm.components"),
               *list = conf_get(c, "tony.slurm.nodelist");
    uint32_t idle_gpus = 0;
    bool labels = labels_differ(c, s);
    bool fixed = conf_int(c, "tony.slurm.nodes") || (list && *list) || str_eq(how, "one");
    *out = (struct slurm_size){ .n = 1 };
    if (labels && str_eq(how, "one"))
        return err_set(e, EINVAL,
                       "roles with different node labels need one component each, and "
                       "tony.slurm.components is 'one'");
    if (s->n_roles == 0 || (!labels && !str_eq(how, "roles"))) {
        const char *label = common_label(c, s);
        int rc = choose_one(c, s, nodes, &out->v[0], &idle_gpus, e);
        out->constraint[0] = *label ? str_dup(label) : NULL;
        if (fixed || s->n_roles == 0 || (rc < 0 && rc != -ERANGE) || (rc == 0 && idle_gpus == 0))
            return rc;
        struct slurm_size parts = { 0 };
        struct err why = { 0 };
        int parts_rc = choose_components(c, s, nodes, false, &parts, &why);
        if (parts_rc == 0 && parts.n > 1) {
            err_clear(e);
            slurm_size_done(out);
            *out = parts;
            return 0;
        }
        slurm_size_done(&parts);
        return rc;
    }
    int rc = choose_components(c, s, nodes, str_eq(how, "roles"), out, e);
    if (rc < 0)
        slurm_size_done(out);
    return rc;
}
