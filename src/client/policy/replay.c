/* SPDX-License-Identifier: Apache-2.0 */
#include "client/policy/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/show/machine.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "history/container_counts.h"
#include "history/history.h"
#include "storage/jobfile.h"
#include "storage/paths.h"

enum { MEMORY_MAX = 1 << 30, FILE_MAX = 256 << 20 };

/* An assumption: n containers do n^EXPONENT times the work of one. A history does not show this
 * number. */
static const double EXPONENT = 0.9;

struct past {
    struct trace_job job;
    double start_s, end_s; /* since 1970, as is job.arrival_s */
    size_t first_bar, n_bars;
    uint32_t others; /* containers that are not of the elastic role */
    bool elastic;
};

struct pasts {
    struct past *v;
    size_t n, cap;
    VEC(struct real_bar) bars; /* their times are since 1970; their jobs are set later */
};

static uint64_t part_of(uint64_t all, uint32_t parts)
{
    return parts ? (all + parts - 1) / parts : all;
}

static void set_size(const struct job_spec *spec, struct past *past)
{
    struct trace_job *job = &past->job;
    struct job_elastic el;
    struct job_demand all;
    job->weight = spec->weight;
    job->exponent = EXPONENT;
    if (job_spec_elastic(spec, &el)) {
        uint32_t n = el.role->instances;
        past->elastic = true;
        past->others = el.fixed_containers;
        job->min = el.min;
        job->max = el.max;
        job->fixed = MIN(MAX(n, el.min), el.max);
        job->demand.v[0] = (int64_t)(el.each_memory_mib + part_of(el.fixed_memory_mib, n));
        job->demand.v[1] = (int64_t)(el.each_gpus + part_of(el.fixed_gpus, n));
        return;
    }
    job_spec_demand(spec, &all);
    job->min = job->max = job->fixed = 1;
    job->demand.v[0] = (int64_t)all.memory_mib;
    job->demand.v[1] = all.gpus;
}

/* Read job.conf of the job. */
static int load_spec(const struct replay_source *from, const char *id, struct job_spec **out,
                     struct err *e)
{
    AUTO(buf_done) struct buf text = { .max = FILE_MAX };
    struct job_file *file = NULL;
    int rc = from->read(from->ctx, id, "job.conf", &text, e);
    if (rc == 0)
        rc = job_file_decode(buf_span(&text), &file, e);
    if (rc == 0)
        rc = job_spec_build(file->conf, out, e);
    job_file_free(file);
    return rc;
}

static int add_bar(struct pasts *pasts, struct past *past, double from_s, double to_s, uint32_t n)
{
    struct real_bar bar = { .from_s = from_s, .to_s = to_s, .n = n };
    if (n == 0 || !(to_s > from_s))
        return 0;
    past->n_bars++;
    return vec_push(&pasts->bars, bar);
}

/* Store how many containers an elastic job held, and the run time that its work would have taken
 * at its fixed size. */
static int add_counts(struct pasts *pasts, struct past *past, const struct container_counts *counts)
{
    double work = 0;
    int rc = 0;
    for (size_t i = 0; i + 1 < counts->n && rc == 0; i++) {
        double from_s = (double)counts->v[i].wall_ms / 1000,
               to_s = (double)counts->v[i + 1].wall_ms / 1000;
        uint32_t all = counts->v[i].n, n = all > past->others ? all - past->others : 0;
        double ran_s = MIN(to_s, past->end_s) - MAX(from_s, past->start_s);
        work += n > 0 ? pow(n, EXPONENT) * MAX(ran_s, 0.0) : 0;
        rc = add_bar(pasts, past, from_s, to_s, n);
    }
    if (work > 0)
        past->job.duration_s = work / pow(past->job.fixed, EXPONENT);
    return rc;
}

/* Find out how many containers the job held. */
static int look_back(const struct replay_source *from, const char *id, struct pasts *pasts,
                     struct past *past, struct replayed *r)
{
    AUTO(buf_done) struct buf journal = { .max = FILE_MAX };
    struct container_counts counts = { 0 };
    int rc = 0;
    past->first_bar = pasts->bars.n;
    if (past->elastic && from->read(from->ctx, id, "journal", &journal, NULL) == 0 &&
        history_container_counts(buf_span(&journal), &counts, NULL) == 0) {
        r->real.adjustments += counts.resizes;
        rc = add_counts(pasts, past, &counts);
    }
    if (rc == 0 && past->n_bars == 0)
        rc = add_bar(pasts, past, past->start_s, past->end_s, past->job.fixed);
    container_counts_done(&counts);
    return rc;
}

static int add_job(const struct replay_source *from, const struct history_row *row, struct trace *t,
                   struct pasts *pasts, struct replayed *r, struct err *e)
{
    AUTO(job_spec_freep) struct job_spec *spec = NULL;
    struct past past = { 0 };
    double ran_s = row->ran_ms >= 0 ? (double)row->ran_ms / 1000 : 0;
    past.job.arrival_s = (double)row->submitted_wall_ms / 1000;
    past.end_s = (double)row->ended_wall_ms / 1000;
    past.start_s = past.end_s - ran_s;
    if (row->live)
        return 0;
    if (ran_s <= 0 || past.start_s < past.job.arrival_s || row->submitted_wall_ms <= 0 ||
        load_spec(from, row->application_id, &spec, NULL) < 0) {
        r->left_out++;
        return 0;
    }
    set_size(spec, &past);
    past.job.duration_s = ran_s;
    past.job.id = arena_dup(&t->arena, row->application_id, strlen(row->application_id));
    if (past.job.demand.v[0] == 0 && past.job.demand.v[1] == 0)
        past.job.demand.v[0] = 1;
    if (!past.job.id || look_back(from, row->application_id, pasts, &past, r) < 0 ||
        vec_push(pasts, past) < 0)
        return err_set(e, ENOMEM, "cannot read the history: %m");
    return 0;
}

static int by_arrival(const void *a, const void *b)
{
    const struct past *x = a, *y = b;
    if (x->job.arrival_s != y->job.arrival_s)
        return x->job.arrival_s < y->job.arrival_s ? -1 : 1;
    return strcmp(x->job.id, y->job.id);
}

static int settle(struct pasts *pasts, struct trace *t, struct replayed *r, struct err *e)
{
    size_t n = pasts->n;
    struct real *real = &r->real;
    t->jobs = arena_alloc(&t->arena, n * sizeof *t->jobs);
    real->completion_s = arena_alloc(&t->arena, n * sizeof *real->completion_s);
    real->bars = arena_alloc(&t->arena, pasts->bars.n * sizeof *real->bars);
    if (!t->jobs || !real->completion_s || !real->bars)
        return err_set(e, ENOMEM, "cannot read the history: %m");
    qsort(pasts->v, n, sizeof *pasts->v, by_arrival);
    double first = pasts->v[0].job.arrival_s, end = 1;
    for (size_t i = 0; i < n; i++) {
        const struct past *past = &pasts->v[i];
        t->jobs[i] = past->job;
        t->jobs[i].arrival_s -= first;
        real->completion_s[i] = past->end_s - past->job.arrival_s;
        end = MAX(end, past->end_s - first);
        for (size_t k = 0; k < past->n_bars; k++) {
            const struct real_bar *bar = &pasts->bars.v[past->first_bar + k];
            real->bars[real->n_bars++] =
                (struct real_bar){ i, bar->from_s - first, bar->to_s - first, bar->n };
        }
    }
    t->n_jobs = n;
    t->horizon_s = end;
    return 0;
}

int replay_load(const struct replay_source *from, struct trace *out, struct replayed *r,
                struct err *e)
{
    static const char *const types[] = { "memory_mib", "gpus" };
    struct history_rows rows = { 0 };
    struct pasts pasts = { 0 };
    *r = (struct replayed){ 0 };
    *out = (struct trace){ .theta1 = part_defaults.theta1,
                           .theta2 = part_defaults.theta2,
                           .cluster = { .n_types = 2, .types = types },
                           .arena = { .max = MEMORY_MAX } };
    int rc = from->list(from->ctx, &rows, e);
    for (size_t i = 0; i < rows.n && rc >= 0; i++)
        rc = add_job(from, &rows.v[i], out, &pasts, r, e);
    if (rc >= 0 && pasts.n == 0)
        rc = err_set(e, ENOENT, "the history has no finished job that ran");
    if (rc >= 0)
        rc = from->nodes(from->ctx, out, e);
    if (rc >= 0)
        rc = settle(&pasts, out, r, e);
    history_rows_done(&rows);
    vec_done(&pasts.bars);
    vec_done(&pasts);
    return MIN(rc, 0);
}

/* ---- the jobs of a cluster ---- */

static int list_jobs(void *ctx, struct history_rows *out, struct err *e)
{
    struct cluster *k = ctx;
    return cluster_ops_of(k)->history_list(k, out, e);
}

static int read_file(void *ctx, const char *id, const char *name, struct buf *out, struct err *e)
{
    struct cluster *k = ctx;
    return cluster_ops_of(k)->history_file(k, id, name, out, e);
}

/* The memory and GPUs that the pool gives to jobs: by the site's settings, or of the machine
 * where the site has none. */
static int find_capacity(struct part_amount *out, struct err *e)
{
    AUTO(conf_freep) struct conf *site = conf_new();
    AUTO(json_freep) json_t *gpus = json_array();
    uint64_t total = 0, available;
    if (!site || !gpus)
        return err_set(e, ENOMEM, "cannot read the history: %m");
    int rc = conf_load_site(site, e);
    if (rc < 0)
        return rc;
    bool memory_set = conf_get(site, "tony.pool.memory"),
         gpus_set = conf_get(site, "tony.pool.gpus");
    if (!memory_set && (rc = machine_memory(&total, &available)) < 0)
        return err_set(e, -rc, "cannot find out how much memory this machine has: %m");
    if (!gpus_set)
        (void)machine_gpus(gpus, NULL); /* without tony-gpu there are none */
    int64_t rest = (int64_t)(total >> 20) - conf_int(site, "tony.pool.memory-reserve");
    out->v[0] = memory_set ? conf_int(site, "tony.pool.memory") : MAX(rest, (int64_t)0);
    out->v[1] = gpus_set ? conf_int(site, "tony.pool.gpus") : (int64_t)json_array_size(gpus);
    return 0;
}

/* The nodes of the cluster. Without them, the machine of the pool is the only one. */
static int find_nodes(void *ctx, struct trace *t, struct err *e)
{
    struct cluster *k = ctx;
    struct cluster_nodes nodes = { 0 };
    int rc = cluster_ops_of(k)->nodes ? cluster_ops_of(k)->nodes(k, &nodes, e) : 0;
    size_t n = cluster_ops_of(k)->nodes ? nodes.n : 1;
    struct part_amount *v = rc == 0 ? arena_alloc(&t->arena, (n + 1) * sizeof *v) : NULL;
    if (rc == 0 && !v)
        rc = err_set(e, ENOMEM, "cannot read the history: %m");
    for (size_t i = 0; rc == 0 && i < n; i++)
        v[i] = nodes.n ? (struct part_amount){ { nodes.v[i].memory_mib, nodes.v[i].gpus } }
                       : (struct part_amount){ 0 };
    if (rc == 0 && !nodes.n)
        rc = find_capacity(v, e);
    t->cluster.nodes = v;
    t->cluster.n_nodes = (uint32_t)n;
    vec_done(&nodes);
    return rc;
}

int replay_cluster(struct client *c, struct trace *out, struct replayed *r, struct err *e)
{
    struct cluster *k = NULL;
    if (client_open_wanted(c, &k, e) < 0)
        return -EIO;
    const struct replay_source from = { list_jobs, read_file, find_nodes, k };
    return replay_load(&from, out, r, e);
}
