/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pool/forecast.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/pool/ask.h"
#include "client/pool/forecast_int.h"
#include "client/pool/pool_policy.h"
#include "conf/conf.h"
#include "proto/tony.pb-c.h"

enum {
    HISTORY_MAX = 300, /* finished jobs that are read */
    RUNS_MAX = 20,     /* earlier runs of one job that are used */
    /* Decisions of the policy that an estimate computes at most. A policy that resizes needs longer
     * for each, and its search ends after STEPS_RESIZING steps. */
    DECISIONS = 4000,
    DECISIONS_RESIZING = 60,
    STEPS_RESIZING = 20000,
};

enum { TYPE_MEMORY, TYPE_GPUS, TYPES };

static const char *const type_names[TYPES] = { "memory_mib", "gpus" };

/* ---- the run time of a job ---- */

/* Estimate the whole run time of a job from earlier jobs of its name, as forecast.h says. false:
 * there is no such job. */
static bool history_range(const struct history_rows *rows, const char *name, struct part_range *out)
{
    double s[RUNS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < rows->n && n < RUNS_MAX; i++) {
        const struct history_row *r = &rows->v[i];
        if (r->ran_ms >= 0 && str_eq(r->state, "SUCCEEDED") && str_eq(r->name, name))
            s[n++] = (double)r->ran_ms / 1000;
    }
    if (n == 0)
        return false;
    sort_doubles(s, n);
    *out =
        (struct part_range){ s[0] * (n > 1 ? 0.75 : 0.5), s[n / 2], s[n - 1] * (n > 1 ? 1.25 : 2) };
    return true;
}

static bool runs(const json_t *job)
{
    return json_is_true(json_object_get(job, "runs"));
}

/* Seconds for which the job has run; 0 = it waits. */
static double ran_s(const struct forecast *f, const json_t *job)
{
    if (!runs(job))
        return 0;
    return (double)MAX(history_ran_ms(f->paths, doc_str(job, "application_id")), (int64_t)0) / 1000;
}

static const struct part_range unknown = { 0, INFINITY, INFINITY };

/* How long a job will still run, if its whole run takes `whole` and it has run for `ran` seconds.
 * Unknown, if `ran` is longer than the longest time of `whole`. */
static struct part_range rest_of(struct part_range whole, double ran)
{
    if (ran > whole.high)
        return unknown;
    return (struct part_range){ MAX(whole.low - ran, 0.0), MAX(whole.likely - ran, 0.0),
                                whole.high - ran };
}

/* Estimate how long the job will still run (if it waits: after its start). Returns the source. */
static enum forecast_basis time_left(const struct forecast *f, const json_t *job,
                                     struct part_range *out)
{
    const json_t *told = json_object_get(job, "left_ms");
    double limit_s = (double)doc_int(job, "timeout_ms", 0) / 1000;
    enum forecast_basis basis = BASIS_UNKNOWN;
    struct part_range whole;
    *out = unknown;
    if (json_is_object(told)) {
        double min = (double)doc_int(told, "min", 0), max = (double)doc_int(told, "max", 0);
        *out = (struct part_range){ min / 1000, (min + max) / 2000, max / 1000 };
        basis = BASIS_PROGRESS;
    } else if (history_range(&f->rows, doc_str(job, "name"), &whole)) {
        *out = rest_of(whole, ran_s(f, job));
        basis = isinf(out->high) ? BASIS_UNKNOWN : BASIS_HISTORY;
    }
    if (limit_s <= 0)
        return basis;
    double left = MAX(limit_s - ran_s(f, job), 0.0);
    if (left < out->low)
        basis = BASIS_LIMIT; /* the job is stopped before it can be done */
    out->high = MIN(out->high, left);
    out->low = MIN(out->low, left);
    out->likely = isinf(out->likely) ? out->likely : MIN(out->likely, left);
    return basis == BASIS_UNKNOWN ? BASIS_LIMIT : basis;
}

/* ---- from the pool's answer to the input of part_estimate() ---- */

static struct part_amount amount(const json_t *job, const char *key)
{
    const json_t *a = json_object_get(job, key);
    return (struct part_amount){ { doc_int(a, "memory_mib", 0), doc_int(a, "gpus", 0) } };
}

/* qsort(): running jobs first, then by priority, then by the number of the job. */
static int compare_in_queue_order(const void *a, const void *b)
{
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    int64_t px = doc_int(x, "priority", 0), py = doc_int(y, "priority", 0);
    int64_t nx = doc_int(x, "number", 0), ny = doc_int(y, "number", 0);
    if (runs(x) != runs(y))
        return runs(x) ? -1 : 1;
    if (px != py)
        return px > py ? -1 : 1;
    return nx < ny ? -1 : nx > ny;
}

/* Seconds after which the job has certainly ended. INFINITY: unknown, because earlier jobs of the
 * same name prove nothing. */
static double limit_or_infinity(const struct part_range *left, enum forecast_basis basis)
{
    return basis == BASIS_PROGRESS || basis == BASIS_LIMIT ? left->high : INFINITY;
}

/* Without a policy no job is resized. So each counts as one container with all its memory and
 * GPUs. */
static void fill_whole(const json_t *doc, struct part_job *job)
{
    job->demand = amount(doc, "needs");
    job->min = job->max = 1;
}

/* A policy knows only jobs of equal containers, but a job may need more than those: a fixed part,
 * such as the tasks of other roles. As in part_divide(), subtract the fixed part of a running job
 * from the machine, and spread that of a waiting job over its containers. */
static void fill_equal_containers(const json_t *doc, struct part_job *job, struct part_amount *node)
{
    struct part_amount fixed = amount(doc, "fixed");
    job->demand = amount(doc, "each");
    job->min = (uint32_t)MAX(doc_int(doc, "min", 1), (int64_t)1);
    job->max = (uint32_t)MAX(doc_int(doc, "max", 1), (int64_t)job->min);
    job->pinned = runs(doc) && json_is_true(json_object_get(doc, "pinned"));
    for (size_t k = 0; k < TYPES; k++) {
        if (runs(doc))
            node->v[k] = MAX(node->v[k] - fixed.v[k], (int64_t)0);
        else
            job->demand.v[k] += (fixed.v[k] + job->min - 1) / job->min;
    }
}

static void fill_one(struct forecast *f, size_t i, bool whole)
{
    const json_t *doc = f->docs[i];
    struct part_job *job = &f->jobs[i];
    f->basis[i] = time_left(f, doc, &f->left[i]);
    *job = (struct part_job){ .id = doc_str(doc, "application_id"),
                              .weight = (uint32_t)MAX(doc_int(doc, "weight", 1), (int64_t)1),
                              .priority = (int)doc_int(doc, "priority", 0),
                              .budget = json_number_value(json_object_get(doc, "budget")) };
    job->resize_s = json_number_value(json_object_get(doc, "resize_s"));
    job->attained_s = json_number_value(json_object_get(doc, "attained_s"));
    job->waited_s = json_number_value(json_object_get(doc, "waited_s"));
    job->ends_in_s = job->remaining_s = limit_or_infinity(&f->left[i], f->basis[i]);
    uint32_t n = whole ? 1 : (uint32_t)MAX(doc_int(doc, "containers", 1), (int64_t)1);
    if (whole)
        fill_whole(doc, job);
    else
        fill_equal_containers(doc, job, &f->node);
    job->fixed = n >= job->min && n <= job->max ? n : 0;
    if (!runs(doc))
        return;
    f->places[i] = (struct part_place){ 0, n };
    job->at = &f->places[i];
    job->n_at = 1;
}

static void fill_levels(struct forecast *f, const json_t *levels)
{
    f->options.n_levels = (uint32_t)MIN(json_array_size(levels), ARRAY_LEN(f->levels));
    for (uint32_t v = 0; v < f->options.n_levels; v++)
        f->levels[v] = json_number_value(json_array_get(levels, v));
    f->options.levels = f->levels;
}

static void fill_options(struct forecast *f, const json_t *options)
{
    f->options = part_defaults;
    f->options.theta1 = json_number_value(json_object_get(options, "theta1"));
    f->options.theta2 = json_number_value(json_object_get(options, "theta2"));
    f->options.loss_max = json_number_value(json_object_get(options, "loss_max"));
    f->options.adjust_max = doc_int(options, "adjust_max", -1);
    f->options.reserve = json_number_value(json_object_get(options, "reserve"));
    f->options.repack = true; /* as policy_settings_read() */
    f->options.payback_s = json_number_value(json_object_get(options, "payback_s"));
    fill_levels(f, json_object_get(options, "levels"));
    f->options.limit.steps = STEPS_RESIZING;
    f->interval_s = (double)doc_int(options, "interval_ms", 0) / 1000;
}

static void drop_jobs(struct forecast *f)
{
    free(f->docs);
    free(f->jobs);
    free(f->places);
    free(f->left);
    free(f->basis);
    free(f->starts);
    free(f->holders);
}

/* The job with this id, and its place in the arrays. (An extension has the id of its job; it is not
 * meant.) NULL: there is none. */
static const json_t *find(const struct forecast *f, const char *id, size_t *out)
{
    for (size_t i = 0; i < f->n; i++) {
        if (!str_eq(f->jobs[i].id, id) || json_is_true(json_object_get(f->docs[i], "extension")))
            continue;
        *out = i;
        return f->docs[i];
    }
    return NULL;
}

/* Find the running job for which each waiting job waits. "behind" names either that job, which
 * holds most of the missing resources, or the waiting job before it in the queue. In the second
 * case both wait for the same running job. (A job in the queue whose start is decided counts as
 * running, but holds nothing yet.) */
static void find_holders(struct forecast *f)
{
    for (size_t i = 0; i < f->n; i++) {
        size_t k = f->n;
        const json_t *job = find(f, doc_str(f->docs[i], "behind"), &k);
        if (job)
            f->holders[i] = runs(job) && doc_int(job, "place", 0) == 0 ? job
                            : k < i                                    ? f->holders[k]
                                                                       : NULL;
    }
}

/* Fill in everything from f->doc and f->rows, and estimate. */
static int build(struct forecast *f)
{
    json_t *jobs = json_object_get(f->doc, "jobs"), *job;
    bool whole = str_eq(doc_str(f->doc, "policy"), "fifo");
    size_t n = json_array_size(jobs), i;
    f->policy = part_policy_find(whole ? "static" : doc_str(f->doc, "policy"));
    f->n = n;
    f->docs = calloc(n + 1, sizeof *f->docs);
    f->jobs = calloc(n + 1, sizeof *f->jobs);
    f->places = calloc(n + 1, sizeof *f->places);
    f->left = calloc(n + 1, sizeof *f->left);
    f->basis = calloc(n + 1, sizeof *f->basis);
    f->starts = calloc(n + 1, sizeof *f->starts);
    f->holders = calloc(n + 1, sizeof *f->holders);
    if (!f->policy || !f->docs || !f->jobs || !f->places || !f->left || !f->basis || !f->starts ||
        !f->holders)
        return -ENOMEM;
    json_array_foreach(jobs, i, job) f->docs[i] = job;
    qsort(f->docs, n, sizeof(json_t *), compare_in_queue_order);
    f->node = amount(f->doc, "capacity");
    for (i = 0; i < n; i++)
        fill_one(f, i, whole);
    find_holders(f);
    fill_options(f, json_object_get(f->doc, "options"));
    f->cluster = (struct part_cluster){
        .n_types = TYPES, .types = type_names, .n_nodes = 1, .nodes = &f->node
    };
    struct part_horizon until = { f->policy->resizes ? DECISIONS_RESIZING : DECISIONS, PART_NOBODY,
                                  whole ? 0 : f->interval_s };
    return part_estimate(f->policy, &f->cluster, f->jobs, f->left, n, &f->options, &until,
                         f->starts, NULL);
}

static json_t *ask_queue(struct client *c)
{
    const struct cluster_question q = { .what = TONY__CLIENT_ASK__WHAT__QUEUE,
                                        .wait_ms = POOL_POLICY_MS };
    json_t *doc = NULL;
    return pool_ask(c, &q, &doc, NULL, NULL) == 1 ? doc : NULL;
}

struct forecast *forecast_load(struct client *c)
{
    struct forecast *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->paths = &c->host.paths;
    f->doc = ask_queue(c);
    if (f->doc) /* if this fails, the estimate does not use the history */
        (void)history_list_finished(f->paths, HISTORY_MAX, &f->rows, NULL);
    if (f->doc && build(f) == 0)
        return f;
    forecast_free(f);
    return NULL;
}

void forecast_free(struct forecast *f)
{
    if (!f)
        return;
    drop_jobs(f);
    history_rows_done(&f->rows);
    json_decref(f->doc);
    free(f);
}

/* ---- what is expected of a job ---- */

json_t *forecast_seconds(double s)
{
    return isfinite(s) ? json_integer((json_int_t)(s * 1000)) : json_null();
}

/* On what the estimate for job i rests: count the jobs that run, or wait before it, by the source
 * of their run times. Name the first of them whose run time is unknown. */
static json_t *rests_on(const struct forecast *f, size_t i)
{
    int n[BASIS_COUNT] = { 0 };
    const char *id = "", *name = "";
    for (size_t k = 0; k < i; k++) {
        n[f->basis[k]]++;
        if (f->basis[k] == BASIS_UNKNOWN && !id[0]) {
            id = f->jobs[k].id;
            name = doc_str(f->docs[k], "name");
        }
    }
    json_t *doc = json_pack("{s:i, s:i, s:i, s:i}", "progress", n[BASIS_PROGRESS], "history",
                            n[BASIS_HISTORY], "limit", n[BASIS_LIMIT], "unknown", n[BASIS_UNKNOWN]);
    if (id[0]) {
        (void)json_object_set_new(doc, "unknown_id", json_string(id));
        (void)json_object_set_new(doc, "unknown_name", json_string(name));
    }
    return doc;
}

static int64_t lacks(const struct forecast *f, const json_t *job, const char *type)
{
    const json_t *least = json_object_get(job, "least");
    int64_t needs = doc_int(least ? least : json_object_get(job, "needs"), type, 0);
    return MAX(needs - doc_int(json_object_get(f->doc, "free"), type, 0), (int64_t)0);
}

/* The part of the free memory or GPUs that decisions have promised to job k: to a job in the queue
 * all that it starts with, to a running one that grows what it does not have yet. */
static int64_t promised(const struct forecast *f, size_t k, size_t type)
{
    const json_t *job = f->docs[k];
    int64_t n = f->places[k].n;
    int64_t has = doc_int(job, "place", 0) > 0 ? 0 : amount(job, "needs").v[type];
    if (!runs(job))
        return 0;
    return MAX(amount(job, "fixed").v[type] + n * amount(job, "each").v[type] - has, (int64_t)0);
}

/* Does the waiting job fit now, beside what is promised? */
static bool fits(const struct forecast *f, size_t i)
{
    const struct part_job *j = &f->jobs[i];
    struct part_amount left = amount(f->doc, "free");
    for (size_t k = 0; k < f->n; k++)
        for (size_t t = 0; t < TYPES; t++)
            left.v[t] -= promised(f, k, t);
    for (size_t t = 0; t < TYPES; t++)
        if (j->min * j->demand.v[t] > MAX(left.v[t], (int64_t)0))
            return false;
    return true;
}

/* The longest time until other jobs have become smaller for job i, if the next decision lets it
 * start in this way. -1: it does not. */
static int64_t shrinks_within_ms(const struct forecast *f, size_t i)
{
    const json_t *options = json_object_get(f->doc, "options");
    bool soon = f->starts[i].in_s.high < 0.001;
    if (!soon || !f->policy->resizes || runs(f->docs[i]) || !f->jobs[i].id[0] || fits(f, i))
        return -1;
    return doc_int(options, "interval_ms", 0) + doc_int(options, "resize_limit_ms", 0);
}

json_t *forecast_at(const struct forecast *f, size_t i)
{
    const json_t *job = f->docs[i], *by = f->holders[i];
    int64_t within_ms = doc_int(job, "starts_within_ms", shrinks_within_ms(f, i));
    bool decided = within_ms >= 0; /* so it does not wait for the end of other jobs */
    struct part_start decided_start = { .in_s = { 0, within_ms ? INFINITY : 0,
                                                  (double)within_ms / 1000 } };
    const struct part_start *s = decided ? &decided_start : &f->starts[i];
    json_t *doc =
        json_pack("{s:s, s:I, s:b, s:o, s:o, s:o, s:{s:I, s:I}, s:o}", "policy",
                  doc_str(f->doc, "policy"), "place", (json_int_t)doc_int(job, "place", 0), "never",
                  s->never, "early_ms", forecast_seconds(s->in_s.low), "likely_ms",
                  forecast_seconds(s->in_s.likely), "late_ms", forecast_seconds(s->in_s.high),
                  "missing", "memory_mib", (json_int_t)lacks(f, job, "memory_mib"), "gpus",
                  (json_int_t)lacks(f, job, "gpus"), "rests_on", rests_on(f, decided ? 0 : i));
    if (within_ms > 0)
        (void)json_object_set_new(doc, "if_shrunk", json_true());
    if (by) {
        (void)json_object_set_new(doc, "holder", json_string(doc_str(by, "application_id")));
        (void)json_object_set_new(doc, "holder_name", json_string(doc_str(by, "name")));
    }
    return doc;
}

json_t *forecast_json(const struct forecast *f, const char *id)
{
    size_t i;
    const json_t *job = find(f, id, &i);
    return job && (!runs(job) || doc_int(job, "place", 0) > 0) ? forecast_at(f, i) : NULL;
}

json_t *forecast_queue(const struct forecast *f)
{
    json_t *list = json_array();
    for (size_t i = 0; i < f->n; i++) {
        if (runs(f->docs[i]) || json_is_true(json_object_get(f->docs[i], "extension")))
            continue;
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:o}", "application_id", f->jobs[i].id, "name",
                            doc_str(f->docs[i], "name"), "expected", forecast_at(f, i)));
    }
    return list;
}

void forecast_add(struct client *c, json_t *doc)
{
    json_t *waiting = json_object_get(doc, "waiting");
    if (!json_is_object(waiting))
        return;
    struct forecast *f = forecast_load(c);
    json_t *expected = f ? forecast_json(f, doc_str(doc, "application_id")) : NULL;
    if (expected)
        (void)json_object_set_new(waiting, "expected",
                                  expected); /* on failure, the member is missing */
    forecast_free(f);
}

/* ---- a job that is not submitted ---- */

/* The job as the pool would describe it, if it waited behind the job behind_id. */
static json_t *entry_of(const struct job_spec *spec, const char *behind_id)
{
    struct job_demand d;
    struct job_elastic x;
    job_spec_demand(spec, &d);
    bool elastic = job_spec_elastic(spec, &x);
    json_int_t memory = (json_int_t)d.memory_mib, gpus = d.gpus;
    return json_pack(
        "{s:s, s:s, s:{s:I, s:I}, s:{s:I, s:I}, s:{s:I, s:I}, s:i, s:i, s:i, s:i, s:I, s:i, s:f, "
        "s:I, s:s}",
        "application_id", "", "name", spec->name, "needs", "memory_mib", memory, "gpus", gpus,
        "fixed", "memory_mib", elastic ? (json_int_t)x.fixed_memory_mib : 0, "gpus",
        elastic ? (json_int_t)x.fixed_gpus : 0, "each", "memory_mib",
        elastic ? (json_int_t)x.each_memory_mib : memory, "gpus",
        elastic ? (json_int_t)x.each_gpus : gpus, "containers",
        elastic ? (int)x.role->instances : 1, "min", elastic ? (int)x.min : 1, "max",
        elastic ? (int)x.max : 1, "priority", spec->priority, "number", (json_int_t)UINT32_MAX,
        "weight", (int)spec->weight, "budget", spec->budget, "timeout_ms",
        (json_int_t)spec->app_timeout_ms, "behind", behind_id);
}

/* The jobs that the policy would shrink right after the submission of the planned job. */
static json_t *shrinks(const struct forecast *f)
{
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_options o = f->options;
    json_t *list = json_array();
    o.quick = true;
    if (part_decide(f->policy, &f->cluster, f->jobs, f->n, &o, &d, NULL) < 0)
        return list;
    for (size_t i = 0; i < f->n; i++) {
        if (f->jobs[i].n_at == 0 || d.jobs[i].n >= f->places[i].n)
            continue;
        (void)json_array_append_new(list,
                                    json_pack("{s:s, s:s, s:i, s:i}", "application_id",
                                              f->jobs[i].id, "name", doc_str(f->docs[i], "name"),
                                              "from", (int)f->places[i].n, "to", (int)d.jobs[i].n));
    }
    return list;
}

/* The jobs that would start later if the planned job were submitted. */
static json_t *delays(const struct forecast *before, const struct forecast *after)
{
    json_t *list = json_array();
    for (size_t i = 0; i < before->n; i++) {
        size_t k;
        if (runs(before->docs[i]) || !find(after, before->jobs[i].id, &k))
            continue;
        const struct part_range *x = &before->starts[i].in_s, *y = &after->starts[k].in_s;
        bool later = y->low > x->low + 1 || (isfinite(x->likely) && y->likely > x->likely + 1) ||
                     (isfinite(x->high) && y->high > x->high + 1);
        if (later)
            (void)json_array_append_new(
                list, json_pack("{s:s, s:s, s:o, s:o}", "application_id", before->jobs[i].id,
                                "name", doc_str(before->docs[i], "name"), "likely_ms",
                                forecast_seconds(x->likely), "then_likely_ms",
                                forecast_seconds(y->likely)));
    }
    return list;
}

/* The job behind which the planned job would wait: the last one in the queue. If none waits: the
 * running job that needs most memory. */
static const char *behind(const struct forecast *f)
{
    const char *id = "";
    int64_t most = -1;
    if (f->n > 0 && !runs(f->docs[f->n - 1]))
        return f->jobs[f->n - 1].id;
    for (size_t i = 0; i < f->n; i++) {
        int64_t memory = amount(f->docs[i], "needs").v[TYPE_MEMORY];
        if (memory > most)
            id = f->jobs[i].id;
        most = MAX(most, memory);
    }
    return id;
}

/* The containers of the elastic role with which job i would start; 0: unknown. Without a policy, a
 * job starts with the number in its job file. */
static uint32_t start_size(const struct forecast *f, size_t i, const struct job_elastic *x)
{
    return str_eq(doc_str(f->doc, "policy"), "fifo") ? x->role->instances : f->starts[i].n;
}

/* Add "containers": the size at the start of the planned job, with the sizes that it may have. */
static void add_size(json_t *when, const struct forecast *f, size_t i, const struct job_spec *spec)
{
    struct job_elastic x;
    uint32_t n = job_spec_elastic(spec, &x) ? start_size(f, i, &x) : 0;
    if (n > 0) /* on failure, the member is missing */
        (void)json_object_set_new(when, "containers",
                                  json_pack("{s:I, s:I, s:I}", "start", (json_int_t)n, "min",
                                            (json_int_t)x.min, "max", (json_int_t)x.max));
}

json_t *forecast_plan(struct forecast *f, const struct job_spec *spec)
{
    struct forecast with = { .paths = f->paths, .doc = json_deep_copy(f->doc), .rows = f->rows };
    json_t *when = NULL;
    size_t i;
    if (json_array_append_new(json_object_get(with.doc, "jobs"), entry_of(spec, behind(f))) == 0 &&
        build(&with) == 0 && find(&with, "", &i)) {
        when = forecast_at(&with, i);
        add_size(when, &with, i, spec);
        (void)json_object_set_new(when, "shrinks", shrinks(&with));
        (void)json_object_set_new(when, "delays", delays(f, &with));
    }
    drop_jobs(&with);
    json_decref(with.doc);
    return when;
}
