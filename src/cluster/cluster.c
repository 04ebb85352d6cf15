/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the table of a cluster, and frees what the tables return.
 */
#include "cluster/cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

#include "base/base.h"
#include "cluster/local/local.h"
#include "cluster/slurm/slurm.h"
#include "cluster/yarn/table.h"
#include "conf/conf.h"

/* The first one is the default. */
static const struct cluster_ops *const table[] = { &cluster_local, &cluster_yarn, &cluster_slurm };

const struct cluster_ops *cluster_at(size_t i)
{
    if (i < ARRAY_LEN(table))
        return table[i];
    i -= ARRAY_LEN(table);
    for (size_t k = 0; clusters_more && clusters_more[k]; k++)
        if (k == i)
            return clusters_more[k];
    return NULL;
}

const struct cluster_ops *cluster_named(const char *name)
{
    const struct cluster_ops *ops;
    for (size_t i = 0; (ops = cluster_at(i)); i++)
        if (strcasecmp(ops->name, name) == 0)
            return ops;
    return NULL;
}

const struct cluster_ops *cluster_wanted(const char *option, const struct conf *site)
{
    if (option)
        return cluster_named(option);
    bool chosen = site && !str_eq(conf_origin(site, "tony.cluster"), "default");
    const struct cluster_ops *ops = chosen ? cluster_named(conf_get(site, "tony.cluster")) : NULL;
    for (size_t i = 0; !ops && cluster_at(i); i++)
        if (cluster_at(i)->is_here && cluster_at(i)->is_here())
            ops = cluster_at(i);
    return ops ? ops : table[0];
}

const struct cluster_ops *cluster_of(struct cluster_host *h, const char *option,
                                     const struct conf *site, const char *word)
{
    const struct cluster_ops *ops;
    h->history_location = site ? conf_get(site, "tony.history.location") : NULL;
    for (size_t i = 0; !option && (ops = cluster_at(i)); i++)
        if (ops->knows && ops->knows(h, word))
            return ops;
    return cluster_wanted(option, site);
}

void cluster_report_done(struct cluster_report *r)
{
    free(r->at.host);
    free(r->user);
    free(r->queue);
    free(r->name);
    free(r->why);
    free(r->message);
    free(r->url);
    free(r->master_stderr);
    json_decref(r->summary);
    *r = (struct cluster_report){ 0 };
}

static char *copy_text(const char *s, bool *failed)
{
    char *copy = s ? str_dup(s) : NULL;
    *failed = *failed || (s && !copy);
    return copy;
}

int cluster_report_copy(const struct cluster_report *from, struct cluster_report *out)
{
    bool failed = false;
    *out = *from;
    out->at.host = copy_text(from->at.host, &failed);
    out->user = copy_text(from->user, &failed);
    out->queue = copy_text(from->queue, &failed);
    out->name = copy_text(from->name, &failed);
    out->why = copy_text(from->why, &failed);
    out->message = copy_text(from->message, &failed);
    out->url = copy_text(from->url, &failed);
    out->master_stderr = copy_text(from->master_stderr, &failed);
    out->summary = json_incref(from->summary);
    if (!failed)
        return 0;
    cluster_report_done(out);
    return -ENOMEM;
}

void cluster_submitted_done(struct cluster_submitted *s)
{
    json_decref(s->staging);
    strv_done(&s->said);
    *s = (struct cluster_submitted){ 0 };
}

void cluster_plan_done(struct cluster_plan *p)
{
    json_decref(p->capacity);
    json_decref(p->more);
    strv_done(&p->shown);
    *p = (struct cluster_plan){ 0 };
}
