/* SPDX-License-Identifier: Apache-2.0 */
#include "partition/instance.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "codec/arena.h"
#include "codec/json.h"
#include "partition/market.h"
#include "partition/part_int.h"

enum {
    MARKET_CELLS_MAX = 1000000, /* users times machines: 8 MB for each array of numbers */
    INSTANCE_MEMORY_MAX = 1 << 30,
};

#define BUDGET_MIN 1e-9
#define BUDGET_MAX 1e15

struct instance {
    const char *what; /* names the text in errors */
    struct arena arena;
    struct part_cluster cluster;
    struct part_job *jobs;
    size_t n_jobs;
    struct part_options options;
};

static void instance_done(struct instance *in)
{
    arena_done(&in->arena);
}

static int no_memory(const struct instance *in, struct err *e)
{
    return err_set(e, ENOMEM, "%s: cannot read it: %m", in->what);
}

/* ---- single values; `where` is the path of the member ---- */

static int wrong(const struct instance *in, const char *where, const char *must, struct err *e)
{
    return err_set(e, EINVAL, "%s: %s: must be %s", in->what, where, must);
}

static int read_int(const struct instance *in, const json_t *v, const char *where, int64_t min,
                    int64_t max, int64_t *out, struct err *e)
{
    if (json_is_integer(v) && json_integer_value(v) >= min && json_integer_value(v) <= max) {
        *out = json_integer_value(v);
        return 0;
    }
    char must[80];
    snprintf(must, sizeof must, "an integer from %" PRId64 " to %" PRId64, min, max);
    return wrong(in, where, must, e);
}

static int read_real(const struct instance *in, const json_t *v, const char *where, double min,
                     double max, double *out, struct err *e)
{
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    if (x >= min && x <= max) {
        *out = x;
        return 0;
    }
    char must[80];
    if (isinf(max))
        snprintf(must, sizeof must, "a number of at least %g", min);
    else
        snprintf(must, sizeof must, "a number from %g to %g", min, max);
    return wrong(in, where, must, e);
}

/* Read a member of an object. If it is absent, *out stays unchanged; member_flag() sets it to
 * false. */
static int member_int(const struct instance *in, const json_t *obj, const char *path,
                      const char *key, int64_t min, int64_t max, int64_t *out, struct err *e)
{
    const json_t *v = json_object_get(obj, key);
    char where[96];
    snprintf(where, sizeof where, "%s%s%s", path, *path ? "." : "", key);
    return v ? read_int(in, v, where, min, max, out, e) : 0;
}

static int member_real(const struct instance *in, const json_t *obj, const char *path,
                       const char *key, double min, double max, double *out, struct err *e)
{
    const json_t *v = json_object_get(obj, key);
    char where[96];
    snprintf(where, sizeof where, "%s%s%s", path, *path ? "." : "", key);
    return v ? read_real(in, v, where, min, max, out, e) : 0;
}

static int member_flag(const struct instance *in, const json_t *obj, const char *path,
                       const char *key, bool *out, struct err *e)
{
    const json_t *v = json_object_get(obj, key);
    char where[96];
    snprintf(where, sizeof where, "%s.%s", path, key);
    if (v && !json_is_boolean(v))
        return wrong(in, where, "true or false", e);
    *out = json_is_true(v);
    return 0;
}

/* A list of amounts, one for each type. */
static int read_amount(const struct instance *in, const json_t *list, const char *path,
                       const char *key, struct part_amount *out, struct err *e)
{
    char where[96];
    snprintf(where, sizeof where, "%s.%s", path, key);
    if (!json_is_array(list) || json_array_size(list) != in->cluster.n_types) {
        char must[80];
        snprintf(must, sizeof must, "a list of %" PRIu32 " integers, as many as resources",
                 in->cluster.n_types);
        return wrong(in, where, must, e);
    }
    for (uint32_t k = 0; k < in->cluster.n_types; k++) {
        snprintf(where, sizeof where, "%s.%s[%" PRIu32 "]", path, key, k);
        int rc = read_int(in, json_array_get(list, k), where, 0, PART_AMOUNT_MAX, &out->v[k], e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- cluster and jobs ---- */

static int read_types(struct instance *in, const json_t *root, struct err *e)
{
    const json_t *list = json_object_get(root, "resources");
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0 || n > PART_TYPES_MAX)
        return wrong(in, "resources", "a list of 1 to 8 names", e);
    const char **types = arena_alloc(&in->arena, n * sizeof *types);
    if (!types)
        return no_memory(in, e);
    for (size_t k = 0; k < n; k++) {
        types[k] = json_string_value(json_array_get(list, k));
        if (!types[k] || !types[k][0] || strlen(types[k]) > 40 ||
            span_has_control(span_of(types[k])))
            return wrong(in, "resources", "a list of names of 1 to 40 bytes", e);
    }
    in->cluster.types = types;
    in->cluster.n_types = (uint32_t)n;
    return 0;
}

static int read_nodes(struct instance *in, const json_t *root, struct err *e)
{
    const json_t *list = json_object_get(root, "nodes");
    size_t total = 0, n = json_array_size(list);
    char path[32];
    if (!json_is_array(list))
        return wrong(in, "nodes", "a list of objects", e);
    for (size_t g = 0; g < n; g++) {
        int64_t count = 1;
        snprintf(path, sizeof path, "nodes[%zu]", g);
        const json_t *row = json_array_get(list, g);
        if (!json_is_object(row))
            return wrong(in, path, "an object", e);
        int rc = member_int(in, row, path, "count", 1, PART_NODES_MAX, &count, e);
        if (rc < 0)
            return rc;
        total += (size_t)count;
        if (total > PART_NODES_MAX)
            return err_set(e, EINVAL, "%s: %s: there are more than %d nodes", in->what, path,
                           PART_NODES_MAX);
    }
    struct part_amount *nodes = arena_alloc(&in->arena, (total + 1) * sizeof *nodes);
    if (!nodes)
        return no_memory(in, e);
    in->cluster.nodes = nodes;
    for (size_t g = 0; g < n; g++) {
        const json_t *row = json_array_get(list, g);
        struct part_amount capacity = { 0 };
        snprintf(path, sizeof path, "nodes[%zu]", g);
        int rc = read_amount(in, json_object_get(row, "capacity"), path, "capacity", &capacity, e);
        if (rc < 0)
            return rc;
        for (int64_t c = json_int(row, "count", 1); c > 0; c--)
            nodes[in->cluster.n_nodes++] = capacity;
    }
    return 0;
}

static int read_places(struct instance *in, const json_t *list, const char *path,
                       struct part_job *job, struct err *e)
{
    size_t n = json_array_size(list);
    char where[64];
    snprintf(where, sizeof where, "%s.at", path);
    if (!json_is_array(list) || n == 0 || n > PART_NODES_MAX)
        return wrong(in, where, "a list of at least one [node, containers]", e);
    struct part_place *at = arena_alloc(&in->arena, n * sizeof *at);
    if (!at)
        return no_memory(in, e);
    for (size_t p = 0; p < n; p++) {
        const json_t *pair = json_array_get(list, p);
        int64_t node = 0, count = 0;
        snprintf(where, sizeof where, "%s.at[%zu]", path, p);
        if (!json_is_array(pair) || json_array_size(pair) != 2)
            return wrong(in, where, "a list of two integers: node and containers", e);
        int rc = read_int(in, json_array_get(pair, 0), where, 0, (int64_t)in->cluster.n_nodes - 1,
                          &node, e);
        if (rc == 0)
            rc = read_int(in, json_array_get(pair, 1), where, 1, PART_CONTAINERS_MAX, &count, e);
        if (rc < 0)
            return rc;
        at[p] = (struct part_place){ (uint32_t)node, (uint32_t)count };
    }
    qsort(at, n, sizeof *at, part_by_node);
    job->at = at;
    job->n_at = (uint32_t)n;
    return 0;
}

/* Read the members that only some policies use. */
static int read_extras(struct instance *in, const json_t *row, const char *path,
                       struct part_job *job, struct err *e)
{
    int64_t fixed = 0, priority = 0;
    job->remaining_s = job->ends_in_s = INFINITY;
    int rc = member_int(in, row, path, "fixed", 1, PART_CONTAINERS_MAX, &fixed, e);
    if (rc == 0)
        rc = member_int(in, row, path, "priority", INT32_MIN, INT32_MAX, &priority, e);
    if (rc == 0)
        rc = member_real(in, row, path, "remaining_s", 0, INFINITY, &job->remaining_s, e);
    if (rc == 0)
        rc = member_real(in, row, path, "ends_in_s", 0, INFINITY, &job->ends_in_s, e);
    if (rc == 0)
        rc = member_real(in, row, path, "attained_s", 0, INFINITY, &job->attained_s, e);
    if (rc == 0)
        rc = member_real(in, row, path, "budget", BUDGET_MIN, BUDGET_MAX, &job->budget, e);
    if (rc == 0)
        rc = member_real(in, row, path, "resize_s", 0, 1e9, &job->resize_s, e);
    if (rc == 0)
        rc = member_real(in, row, path, "waited_s", 0, 1e9, &job->waited_s, e);
    job->fixed = (uint32_t)fixed;
    job->priority = (int)priority;
    return rc;
}

static int read_job(struct instance *in, const json_t *row, const char *path, struct part_job *job,
                    struct err *e)
{
    int64_t weight = 1, min = 0, max = 0;
    char where[64];
    if (!json_is_object(row))
        return wrong(in, path, "an object", e);
    job->id = json_string_value(json_object_get(row, "id"));
    snprintf(where, sizeof where, "%s.id", path);
    if (!job->id || !job->id[0] || span_has_control(span_of(job->id)))
        return wrong(in, where, "a name", e);
    int rc = read_amount(in, json_object_get(row, "demand"), path, "demand", &job->demand, e);
    if (rc == 0)
        rc = member_int(in, row, path, "weight", 1, PART_WEIGHT_MAX, &weight, e);
    if (rc == 0) {
        snprintf(where, sizeof where, "%s.min", path);
        rc = read_int(in, json_object_get(row, "min"), where, 1, PART_CONTAINERS_MAX, &min, e);
    }
    if (rc == 0) {
        snprintf(where, sizeof where, "%s.max", path);
        rc = read_int(in, json_object_get(row, "max"), where, min, PART_CONTAINERS_MAX, &max, e);
    }
    if (rc == 0)
        rc = member_flag(in, row, path, "pinned", &job->pinned, e);
    if (rc == 0)
        rc = member_flag(in, row, path, "lost", &job->lost, e);
    if (rc == 0)
        rc = read_extras(in, row, path, job, e);
    if (rc == 0 && json_object_get(row, "at"))
        rc = read_places(in, json_object_get(row, "at"), path, job, e);
    job->weight = (uint32_t)weight;
    job->min = (uint32_t)min;
    job->max = (uint32_t)max;
    return rc;
}

static int read_jobs(struct instance *in, const json_t *root, struct err *e)
{
    const json_t *list = json_object_get(root, "apps");
    size_t n = json_array_size(list);
    struct map ids = { 0 };
    int rc = 0;
    if (!json_is_array(list) || n > PART_JOBS_MAX)
        return wrong(in, "apps", "a list of at most 200000 objects", e);
    in->jobs = arena_alloc(&in->arena, (n + 1) * sizeof *in->jobs);
    if (!in->jobs)
        return no_memory(in, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        char path[32];
        snprintf(path, sizeof path, "apps[%zu]", i);
        rc = read_job(in, json_array_get(list, i), path, &in->jobs[i], e);
        if (rc == 0 && map_has(&ids, in->jobs[i].id))
            rc = err_set(e, EINVAL, "%s: %s.id: '%s' is the id of an earlier one", in->what, path,
                         in->jobs[i].id);
        if (rc == 0 && map_set(&ids, in->jobs[i].id, in, NULL) < 0)
            rc = no_memory(in, e);
    }
    in->n_jobs = n;
    map_done(&ids, NULL);
    return rc;
}

static int read_levels(struct instance *in, const json_t *root, struct err *e)
{
    const json_t *list = json_object_get(root, "levels");
    size_t n = json_array_size(list);
    if (!list)
        return 0;
    if (!json_is_array(list) || n > 100)
        return wrong(in, "levels", "a list of at most 100 numbers", e);
    double *levels = arena_alloc(&in->arena, (n + 1) * sizeof *levels);
    if (!levels)
        return no_memory(in, e);
    for (size_t v = 0; v < n; v++) {
        int rc = read_real(in, json_array_get(list, v), "levels", 0, INFINITY, &levels[v], e);
        if (rc < 0)
            return rc;
    }
    in->options.levels = levels;
    in->options.n_levels = (uint32_t)n;
    return 0;
}

static int read_options(struct instance *in, const json_t *root, struct err *e)
{
    struct part_options *o = &in->options;
    int64_t seed = 0;
    int rc = member_real(in, root, "", "theta1", 0, 1, &o->theta1, e);
    if (rc == 0)
        rc = member_real(in, root, "", "theta2", 0, 1, &o->theta2, e);
    if (rc == 0)
        rc = member_real(in, root, "", "loss_max", 0, INFINITY, &o->loss_max, e);
    if (rc == 0)
        rc = member_int(in, root, "", "adjust_max", 0, INT64_MAX, &o->adjust_max, e);
    if (rc == 0)
        rc = member_int(in, root, "", "seed", 0, INT64_MAX, &seed, e);
    if (rc == 0)
        rc = member_real(in, root, "", "reserve", 0, 1e15, &o->reserve, e);
    if (rc == 0)
        rc = member_real(in, root, "", "payback_s", 0, 1e9, &o->payback_s, e);
    if (rc == 0)
        rc = read_levels(in, root, e);
    o->seed = (uint64_t)seed;
    return rc;
}

/* ---- answers ---- */

static void add_key(struct buf *b, const char *key)
{
    (void)json_add_str(b, span_of(key));
    (void)buf_adds(b, ": ");
}

/* Add a comma before each entry but the first. A failed append is reported at the end. */
static void add_comma(struct buf *b, bool *first)
{
    if (!*first)
        (void)buf_adds(b, ",");
    (void)buf_adds(b, "\n  ");
    *first = false;
}

static void add_real(struct buf *b, const char *key, double v)
{
    if (isfinite(v))
        (void)buf_addf(b, ",\n \"%s\": %.17g", key, v == 0 ? 0.0 : v); /* -0 is written as 0 */
    else
        (void)buf_addf(b, ",\n \"%s\": null", key);
}

static void add_counts(const struct instance *in, const struct part_decision *d, struct buf *b)
{
    bool first = true;
    (void)buf_adds(b, "{\"counts\": {");
    for (size_t i = 0; i < d->n; i++) {
        add_comma(b, &first);
        add_key(b, in->jobs[i].id);
        (void)buf_addf(b, "%" PRIu32, d->jobs[i].ideal);
    }
    (void)buf_adds(b, "}}\n");
}

static void add_places(const struct part_share *s, struct buf *b)
{
    (void)buf_adds(b, "[");
    for (uint32_t p = 0; p < s->n_at; p++)
        (void)buf_addf(b, "%s[%" PRIu32 ", %" PRIu32 "]", p ? ", " : "", s->at[p].node, s->at[p].n);
    (void)buf_adds(b, "]");
}

static void add_decision(const struct instance *in, const struct part_policy *policy,
                         const struct part_decision *d, struct buf *b)
{
    const struct part_metrics *m = &d->metrics;
    bool first = true;
    (void)buf_addf(b, "{\"policy\": \"%s\",\n \"allocation\": {", policy->name);
    for (size_t i = 0; i < d->n; i++) {
        if (d->jobs[i].n == 0)
            continue;
        add_comma(b, &first);
        add_key(b, in->jobs[i].id);
        add_places(&d->jobs[i], b);
    }
    (void)buf_adds(b, "},\n \"why\": {");
    first = true;
    for (size_t i = 0; i < d->n; i++) {
        char why[PART_WHY_MAX];
        part_why(d, &in->cluster, in->jobs, i, why);
        add_comma(b, &first);
        add_key(b, in->jobs[i].id);
        (void)json_add_str(b, span_of(why));
    }
    (void)buf_adds(b, "}");
    add_real(b, "utilization", m->utilization);
    add_real(b, "loss", m->loss);
    (void)buf_addf(b, ",\n \"admitted\": %" PRIu32 ",\n \"adjusted\": %" PRIu32, m->admitted,
                   m->adjusted);
    (void)buf_addf(b, ",\n \"changed\": %" PRIu64, m->changed);
    if (!isnan(m->upper_bound)) {
        add_real(b, "upper_bound", m->upper_bound);
        add_real(b, "gap", part_gap(m));
    }
    if (isfinite(m->loss_bound))
        add_real(b, "loss_bound", m->loss_bound);
    if (m->adjust_bound >= 0)
        (void)buf_addf(b, ",\n \"adjust_bound\": %" PRId64, m->adjust_bound);
    if (str_eq(policy->name, "dorm"))
        (void)buf_addf(b, ",\n \"relaxed\": %s,\n \"proved\": %s", m->relaxed ? "true" : "false",
                       m->proved ? "true" : "false");
    (void)buf_adds(b, "}\n");
}

static int answer_jobs(struct instance *in, const json_t *root, const struct part_policy *policy,
                       bool counts, struct buf *answer, struct err *e)
{
    AUTO(part_decision_done) struct part_decision d = { 0 };
    int rc = read_types(in, root, e);
    if (rc == 0)
        rc = read_nodes(in, root, e);
    if (rc == 0)
        rc = read_jobs(in, root, e);
    if (rc == 0)
        rc = read_options(in, root, e);
    if (rc < 0)
        return rc;
    rc = part_decide(policy, &in->cluster, in->jobs, in->n_jobs, &in->options, &d, e);
    if (rc < 0)
        return err_wrap(e, rc, "%s", in->what);
    if (counts)
        add_counts(in, &d, answer);
    else
        add_decision(in, policy, &d, answer);
    return 0;
}

/* ---- the market ---- */

static int read_market(struct instance *in, const json_t *root, struct market *m, struct err *e)
{
    const json_t *rows = json_object_get(root, "weights");
    const json_t *budgets = json_object_get(root, "budgets");
    const json_t *parallel = json_object_get(root, "parallel");
    size_t users = json_array_size(rows), machines = json_array_size(json_array_get(rows, 0));
    if (!json_is_array(rows) || users == 0 || machines == 0 || users > MARKET_CELLS_MAX ||
        machines > MARKET_CELLS_MAX / users)
        return wrong(in, "weights", "a list of lists of numbers, at most 1000000 together", e);
    if (!json_is_array(budgets) || json_array_size(budgets) != users)
        return wrong(in, "budgets", "a list of as many numbers as there are users", e);
    if (parallel && (!json_is_array(parallel) || json_array_size(parallel) != users))
        return wrong(in, "parallel", "a list of as many integers as there are users", e);
    double *weights = arena_alloc(&in->arena, users * machines * sizeof *weights);
    double *money = arena_alloc(&in->arena, users * sizeof *money);
    uint32_t *limits = arena_alloc(&in->arena, users * sizeof *limits);
    if (!weights || !money || !limits)
        return no_memory(in, e);
    int rc = member_real(in, root, "", "reserve", 0, 1e15, &m->reserve, e);
    for (size_t i = 0; i < users && rc == 0; i++) {
        const json_t *row = json_array_get(rows, i);
        char path[64];
        bool any = false;
        int64_t limit = 1;
        snprintf(path, sizeof path, "weights[%zu]", i);
        if (!json_is_array(row) || json_array_size(row) != machines)
            return wrong(in, path, "a list as long as the first", e);
        for (size_t j = 0; j < machines && rc == 0; j++) {
            double *w = &weights[i * machines + j];
            rc = read_real(in, json_array_get(row, j), path, 0, 1e15, w, e);
            any |= *w > 0;
        }
        if (rc == 0 && !any)
            return wrong(in, path, "above 0 for at least one machine", e);
        snprintf(path, sizeof path, "budgets[%zu]", i);
        if (rc == 0)
            rc = read_real(in, json_array_get(budgets, i), path, BUDGET_MIN, BUDGET_MAX, &money[i],
                           e);
        snprintf(path, sizeof path, "parallel[%zu]", i);
        if (rc == 0 && parallel)
            rc = read_int(in, json_array_get(parallel, i), path, 1, INT32_MAX, &limit, e);
        limits[i] = (uint32_t)limit;
    }
    m->n_users = users;
    m->n_machines = machines;
    m->weights = weights;
    m->budgets = money;
    m->parallel = parallel ? limits : NULL;
    return rc;
}

static int answer_market(struct instance *in, const json_t *root, struct buf *answer, struct err *e)
{
    struct market m = { 0 };
    struct market_result r;
    int rc = read_market(in, root, &m, e);
    if (rc < 0)
        return rc;
    double *bids = arena_alloc(&in->arena, m.n_users * m.n_machines * sizeof *bids);
    if (!bids || market_equilibrium(&m, bids, &r) < 0)
        return no_memory(in, e);
    (void)buf_adds(answer, "{\"bids\": [");
    for (size_t i = 0; i < m.n_users; i++) {
        (void)buf_adds(answer, i ? ",\n  [" : "\n  [");
        for (size_t j = 0; j < m.n_machines; j++)
            (void)buf_addf(answer, "%s%.17g", j ? ", " : "", bids[i * m.n_machines + j]);
        (void)buf_adds(answer, "]");
    }
    (void)buf_adds(answer, "]");
    add_real(answer, "efficiency", r.efficiency);
    add_real(answer, "uniformity", r.uniformity);
    add_real(answer, "envy", r.envy);
    add_real(answer, "residual", r.residual);
    (void)buf_addf(answer, ",\n \"rounds\": %u,\n \"converged\": %s}\n", r.rounds,
                   r.converged ? "true" : "false");
    return 0;
}

/* ---- an instance ---- */

int instance_answer(const char *what, struct span text, const struct part_policy *policy,
                    const struct part_limit *limit, const struct part_solver *solver,
                    struct buf *answer, struct err *e)
{
    AUTO(instance_done) struct instance in = { .what = what, .options = part_defaults };
    AUTO(json_freep) json_t *root = NULL;
    int rc = json_parse(what, text, &root, e);
    if (rc < 0)
        return rc;
    in.arena.max = INSTANCE_MEMORY_MAX;
    if (limit)
        in.options.limit = *limit;
    in.options.solver = solver;
    if (!json_is_object(root))
        return wrong(&in, "the document", "an object", e);
    const char *kind = json_str(root, "kind", "");
    if (str_eq(kind, "market") && !policy) {
        rc = answer_market(&in, root, answer, e);
    } else if (str_eq(kind, "allocate") || str_eq(kind, "drf")) {
        bool counts = str_eq(kind, "drf") && !policy;
        if (!policy)
            policy = part_policy_find(counts ? "drf" : "dorm");
        if (!policy)
            return err_set(e, EINVAL, "%s: kind: there is no policy for '%s'", what, kind);
        rc = answer_jobs(&in, root, policy, counts, answer, e);
    } else if (str_eq(kind, "market")) {
        return err_set(e, EINVAL, "%s: kind: 'market' has no jobs for policy '%s'", what,
                       policy->name);
    } else {
        return wrong(&in, "kind", "'allocate', 'drf' or 'market'", e);
    }
    if (rc == 0 && answer->failed)
        return no_memory(&in, e);
    return rc;
}
