/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks whether this cluster can ever run the job. It compares each container with the scheduler's
 * maximum allocation, and not with the present nodes, because nodes may be added. The check runs
 * before anything is sent. An error names the figures and the line of the job file. This file does
 * no I/O: ask.c requests the facts.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"

#define GPU_TYPE "yarn.io/gpu"

static void amounts_done(struct yarn_amount *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(v[i].name);
    free(v);
}

void yarn_facts_done(struct yarn_facts *f)
{
    amounts_done(f->max_types.v, f->max_types.n);
    for (size_t i = 0; i < f->nodes.n; i++) {
        amounts_done(f->nodes.v[i].types.v, f->nodes.v[i].types.n);
        strv_done(&f->nodes.v[i].labels);
    }
    vec_done(&f->nodes);
    strv_done(&f->types);
    strv_done(&f->labels);
    strv_done(&f->queue_labels);
    strv_done(&f->queues);
    *f = (struct yarn_facts){ 0 };
}

int64_t yarn_unit_mib(const struct yarn *y)
{
    const char *text = site_get(y->site, "yarn.scheduler.minimum-allocation-mb");
    int64_t unit = 1024; /* Hadoop's default */
    if (text)
        (void)str_i64(span_of(text), 1, INT32_MAX, "minimum", &unit, NULL);
    return unit;
}

uint64_t yarn_master_memory_mib(const struct job_spec *s)
{
    enum { BASE_MIB = 128, TASKS_PER_MIB = 8 };
    if (!str_eq(s->am.memory_origin, "default") || s->single_node)
        return s->am.memory_mib;
    return BASE_MIB + s->n_tasks / TASKS_PER_MIB;
}

/* ---- resource types and labels of a role ---- */

int yarn_role_types(const struct cluster_job *j, const char *role, uint32_t gpus, struct strv *out,
                    struct err *e)
{
    AUTO(free_p) char *key = str_printf("tony.%s.resource-types", role);
    const char *text = key ? conf_get(j->conf, key) : NULL;
    struct strv list = { 0 };
    int rc = key ? 0 : -ENOMEM;
    if (rc == 0 && gpus)
        rc = strv_pushf(out, GPU_TYPE "=%u", gpus);
    if (rc == 0 && text)
        rc = conf_list_parse(span_of(text), &list);
    for (size_t i = 0; rc == 0 && i < list.n; i++) {
        struct span value = span_of(list.v[i]), name;
        int64_t n = 0;
        (void)span_split(&value, '=', &name);
        name = span_trim(name);
        if (!name.len || !value.p ||
            str_i64(span_trim(value), 0, INT64_MAX, "amount", &n, NULL) < 0) {
            rc = err_set(e, EINVAL, "%s: '%s' needs NAME=NUMBER, not '%s'", job_origin(j, key), key,
                         list.v[i]);
            err_hint(e, "such as yarn.io/fpga=1");
        } else if (span_eqs(name, GPU_TYPE) || span_eqs(name, "memory-mb") ||
                   span_eqs(name, "vcores")) {
            rc = err_set(e, EINVAL, "%s: '%.*s' cannot be set here, because it has its own key",
                         job_origin(j, key), (int)name.len, name.p);
            err_hint(e, "set tony.%s.gpus, .memory or .vcores instead", role);
        } else if (n > 0) {
            rc = strv_pushf(out, "%.*s=%lld", (int)name.len, name.p, (long long)n);
        }
    }
    strv_done(&list);
    return rc == -ENOMEM ? err_set(e, ENOMEM, "cannot check the job: %m") : rc;
}

const char *yarn_role_label(const struct cluster_job *j, const char *role)
{
    AUTO(free_p) char *key = str_printf("tony.%s.node-label", role);
    const char *label = key ? conf_get(j->conf, key) : NULL;
    if (!label || !*label)
        label = conf_get(j->conf, "tony.application.node-label");
    return label && *label ? label : NULL;
}

/* The line or option that set the label of a role. */
static const char *label_origin(const struct cluster_job *j, const char *role)
{
    AUTO(free_p) char *key = str_printf("tony.%s.node-label", role);
    const char *label = key ? conf_get(j->conf, key) : NULL;
    return label && *label ? job_origin(j, key) : job_origin(j, "tony.application.node-label");
}

int yarn_tags(const struct cluster_job *j, struct strv *out, struct err *e)
{
    enum { TAGS_MAX = 10, TAG_MAX = 100 }; /* YARN's limits */
    const char *key = "tony.application.tags", *text = conf_get(j->conf, key);
    int rc = text ? conf_list_parse(span_of(text), out) : 0;
    if (rc < 0)
        return err_set(e, ENOMEM, "cannot check the job: %m");
    if (out->n > TAGS_MAX) {
        (void)err_set(e, EINVAL, "%s: '%s' has %zu tags; YARN allows at most %d",
                      job_origin(j, key), key, out->n, TAGS_MAX);
        return err_hint(e, "name at most %d tags", TAGS_MAX);
    }
    for (size_t i = 0; i < out->n; i++) {
        char *tag = out->v[i];
        bool fine = strlen(tag) <= TAG_MAX;
        for (char *p = tag; *p; p++) {
            fine = fine && *p >= 0x20 && *p < 0x7f;
            if (*p >= 'A' && *p <= 'Z')
                *p = (char)(*p - 'A' + 'a'); /* YARN searches for tags in lower case */
        }
        if (!fine) {
            (void)err_set(e, EINVAL, "%s: tag '%s' is not ASCII of at most %d characters",
                          job_origin(j, key), tag, TAG_MAX);
            return err_hint(e, "shorten the tag, or use only ASCII characters");
        }
    }
    return 0;
}

static int check_tags(const struct cluster_job *j, struct err *e)
{
    struct strv tags = { 0 };
    int rc = yarn_tags(j, &tags, e);
    strv_done(&tags);
    return rc;
}

/* ---- checks ---- */

struct check {
    const struct yarn_facts *f;
    const struct cluster_job *j;
    struct strv *notes;
    struct err *e;
};

static bool listed(const struct strv *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (str_eq(list->v[i], name))
            return true;
    return false;
}

static int64_t amount(const struct yarn_amount *v, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(v[i].name, name))
            return v[i].n;
    return -1;
}

/* Tell the user something that does not keep the job from being submitted: queues are made on
 * demand, placement rules choose others, and clusters grow. If the ResourceManager refuses the job,
 * its own sentence is the error. */
static int note(struct check *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int note(struct check *k, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return strv_push(k->notes, text) < 0 ? err_set(k->e, ENOMEM, "cannot check the job: %m") : 0;
}

static int note_unknown_queue(struct check *k, const char *origin, const char *queue)
{
    const struct yarn_facts *f = k->f;
    const char *near = str_nearest(queue, (const char *const *)f->queues.v, f->queues.n);
    AUTO(buf_done) struct buf names = { 0 };
    for (size_t i = 0; i < f->queues.n && names.len < 160; i++)
        (void)buf_addf(&names, "%s%s", i ? ", " : "", f->queues.v[i]);
    if (near)
        return note(k, "%s: the cluster has no queue '%s' now; did you mean '%s'?", origin, queue,
                    near);
    return note(k, "%s: the cluster has no queue '%s' now%s%s", origin, queue,
                names.len ? "; it has: " : "", buf_cstr(&names));
}

static int check_queue(struct check *k)
{
    const struct yarn_facts *f = k->f;
    const char *queue = k->j->spec->queue;
    const char *origin = job_origin(k->j, "tony.yarn.queue");
    if (!f->queue_there)
        return note_unknown_queue(k, origin, queue);
    if (f->queue_is_parent)
        return note(k, "%s: queue '%s' holds other queues; a job usually has to name one of these",
                    origin, queue);
    if (!f->queue_runs)
        return note(k, "%s: queue '%s' is stopped, and usually takes no jobs", origin, queue);
    return 0;
}

static bool has_label(const struct yarn_node *n, const char *label)
{
    return label ? listed(&n->labels, label) : n->labels.n == 0 || listed(&n->labels, "");
}

static int check_label(struct check *k, const char *role, const char *label)
{
    if (!label || listed(&k->f->labels, label))
        return 0;
    (void)err_set(k->e, EINVAL, "%s: the cluster has no node label '%s'", label_origin(k->j, role),
                  label);
    const char *near = str_nearest(label, (const char *const *)k->f->labels.v, k->f->labels.n);
    if (near)
        return err_hint(k->e, "did you mean '%s'?", near);
    return err_hint(k->e, k->f->labels.n ? "yarn cluster --list-node-labels shows them"
                                         : "it has none, or node labels are switched off "
                                           "(yarn.node-labels.enabled)");
}

static const char *key_of(char *out, size_t n, const char *role, const char *what)
{
    (void)snprintf(out, n, "tony.%s.%s", role, what);
    return out;
}

static int check_memory(struct check *k, const char *role, uint64_t mib, const char *label)
{
    const struct yarn_facts *f = k->f;
    char key[160], want[32], have[32];
    const char *origin = job_origin(k->j, key_of(key, sizeof key, role, "memory"));
    (void)str_size(mib << 20, want, sizeof want);
    if (f->max_memory_mib && mib > (uint64_t)f->max_memory_mib) {
        (void)err_set(k->e, ERANGE,
                      "%s: a '%s' asks for %s of memory, and a container of this cluster has %s at "
                      "most",
                      origin, role, want,
                      str_size((uint64_t)f->max_memory_mib << 20, have, sizeof have));
        return err_hint(k->e, "lower %s, or have yarn.scheduler.maximum-allocation-mb raised", key);
    }
    int64_t largest = -1;
    for (size_t i = 0; i < f->nodes.n; i++)
        if (has_label(&f->nodes.v[i], label))
            largest = MAX(largest, f->nodes.v[i].memory_mib);
    if (largest < 0 || mib <= (uint64_t)largest)
        return 0;
    return note(k,
                "%s: a '%s' asks for %s of memory, and the largest node of this cluster has %s now",
                origin, role, want, str_size((uint64_t)largest << 20, have, sizeof have));
}

static int check_cores(struct check *k, const char *role, uint32_t vcores)
{
    char key[160];
    if (!k->f->max_vcores || vcores <= k->f->max_vcores)
        return 0;
    (void)err_set(k->e, ERANGE,
                  "%s: a '%s' asks for %u cores, and a container of this cluster has %lld at most",
                  job_origin(k->j, key_of(key, sizeof key, role, "vcores")), role, vcores,
                  (long long)k->f->max_vcores);
    return err_hint(k->e, "lower %s, or have yarn.scheduler.maximum-allocation-vcores raised", key);
}

static const char *type_origin(struct check *k, const char *role, const char *type, char *key,
                               size_t n)
{
    return job_origin(k->j,
                      key_of(key, n, role, str_eq(type, GPU_TYPE) ? "gpus" : "resource-types"));
}

/* Check one further resource type of a role: the cluster knows it, and it is within the maximum.
 * Note if no node has as much now, or all nodes together less than all instances need. */
static int check_type(struct check *k, const char *role, uint32_t instances, const char *type,
                      int64_t n)
{
    const struct yarn_facts *f = k->f;
    char key[160];
    const char *origin = type_origin(k, role, type, key, sizeof key);
    if (!listed(&f->types, type)) {
        (void)err_set(k->e, EINVAL,
                      "%s: a '%s' asks for %s, and the cluster knows no such resource", origin,
                      role, str_eq(type, GPU_TYPE) ? "GPUs (yarn.io/gpu)" : type);
        const char *near = str_nearest(type, (const char *const *)f->types.v, f->types.n);
        if (near && !str_eq(type, GPU_TYPE))
            return err_hint(k->e, "did you mean '%s'?", near);
        return err_hint(k->e, "yarn.resource-types of the ResourceManager lists what it counts "
                              "beside memory and cores");
    }
    int64_t most = amount(f->max_types.v, f->max_types.n, type), largest = 0, all = 0;
    for (size_t i = 0; i < f->nodes.n; i++) {
        int64_t here = amount(f->nodes.v[i].types.v, f->nodes.v[i].types.n, type);
        largest = MAX(largest, here);
        all += MAX(here, (int64_t)0);
    }
    if (most >= 0 && n > most) {
        (void)err_set(k->e, ERANGE,
                      "%s: a '%s' asks for %lld of %s, and a container of this cluster has %lld at "
                      "most",
                      origin, role, (long long)n, type, (long long)most);
        return err_hint(k->e, "lower %s", key);
    }
    if (f->nodes.n && n > largest)
        return note(k,
                    "%s: a '%s' asks for %lld of %s, and no node of this cluster has more than "
                    "%lld now",
                    origin, role, (long long)n, type, (long long)largest);
    if (f->nodes.n && k->j->spec->gang && n > 0 && instances > all / n)
        return note(k,
                    "%s: role '%s' asks for %lld of %s at once, and the whole cluster has %lld now",
                    origin, role, (long long)(n * instances), type, (long long)all);
    return 0;
}

static int check_role(struct check *k, const struct role_spec *r, const char *role,
                      uint32_t instances, uint64_t memory_mib)
{
    const char *label = yarn_role_label(k->j, role);
    struct strv types = { 0 };
    int rc = check_label(k, role, label);
    if (rc == 0)
        rc = check_memory(k, role, memory_mib, label);
    if (rc == 0)
        rc = check_cores(k, role, r->vcores);
    if (rc == 0)
        rc = yarn_role_types(k->j, role, r->gpus, &types, k->e);
    for (size_t i = 0; rc == 0 && i < types.n; i++) {
        char *equals = strrchr(types.v[i], '=');
        int64_t n = 0;
        *equals = 0;
        /* Cannot fail: yarn_role_types() has checked it. */
        (void)str_i64(span_of(equals + 1), 0, INT64_MAX, "amount", &n, NULL);
        rc = check_type(k, role, instances, types.v[i], n);
    }
    strv_done(&types);
    return rc;
}

/* The line of the role that requests the largest part of the memory. */
static const char *blame(struct check *k)
{
    const struct job_spec *s = k->j->spec;
    uint64_t most = 0;
    const char *origin = "job";
    for (size_t i = 0; i < s->n_roles; i++) {
        uint64_t asks = s->roles[i].memory_mib * s->roles[i].instances;
        char key[160];
        if (asks > most) {
            most = asks;
            origin = job_origin(k->j, key_of(key, sizeof key, s->roles[i].name, "instances"));
        }
    }
    return origin;
}

/* Note if a gang needs more than all nodes have now, even if they are empty. */
static int check_all(struct check *k)
{
    const struct job_spec *s = k->j->spec;
    struct job_demand d;
    job_spec_demand(s, &d);
    uint64_t have = 0;
    int64_t cores = 0;
    for (size_t i = 0; i < k->f->nodes.n; i++) {
        have += (uint64_t)k->f->nodes.v[i].memory_mib;
        cores += k->f->nodes.v[i].vcores;
    }
    if (!k->f->nodes.n || s->single_node)
        return 0;
    uint64_t want = d.memory_mib + yarn_master_memory_mib(k->j->spec);
    char wants[32], has[32];
    if (s->gang && want > have)
        return note(k,
                    "%s: the job asks for %s of memory at once (its master included), and all %zu "
                    "nodes of the cluster together have %s now",
                    blame(k), str_size(want << 20, wants, sizeof wants), k->f->nodes.n,
                    str_size(have << 20, has, sizeof has));
    if (d.vcores > cores)
        return note(k, "the job asks for %u cores at once, and the cluster has %lld", d.vcores,
                    (long long)cores);
    return 0;
}

int yarn_check(const struct yarn_facts *f, const struct cluster_job *j, struct strv *notes,
               struct err *e)
{
    struct check k = { .f = f, .j = j, .notes = notes, .e = e };
    const struct job_spec *s = j->spec;
    int rc = check_queue(&k);
    if (rc == 0)
        rc = check_tags(j, e);
    for (size_t i = 0; rc == 0 && i < s->n_roles; i++)
        if (s->roles[i].instances)
            rc = check_role(&k, &s->roles[i], s->roles[i].name, s->roles[i].instances,
                            s->roles[i].memory_mib);
    if (rc == 0)
        rc = check_role(&k, &s->am, "am", 1, yarn_master_memory_mib(j->spec));
    if (rc == 0)
        rc = check_all(&k);
    if (rc == 0 && f->nodes.n == 0 &&
        strv_push(notes, "the cluster has no running node now; the job waits for one") < 0)
        return err_set(e, ENOMEM, "cannot check the job: %m");
    return rc;
}
