/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `tony arbiter` needs of Slurm: struct queue_ops of cluster/queue.h
 * (docs/decisions/0036-an-arbiter-on-slurm.md).
 *
 * The arbiter sends three requests to slurmctld in each round: sinfo tells the nodes of the
 * partition, and what all jobs of all users have taken there; squeue tells the own jobs and their
 * nodes, and once more the jobs of all users that wait. The jobs of tony are in jobs/ of TONY_HOME.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/queue.h"
#include "cluster/slurm/slurm_int.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "storage/jobfile.h"

enum {
    ASK_MS = 20000,
    PAUSE_MS = 2000, /* the shortest pause between two looks */
    MASTER_MS = 5000,
};

/* ---- the questions ---- */

static struct part_amount amount_of(const struct slurm_amounts *x)
{
    struct part_amount p = { { 0 } };
    p.v[CLAIM_MEMORY_MIB] = (int64_t)MIN(x->memory_mib, (uint64_t)PART_AMOUNT_MAX);
    p.v[CLAIM_GPUS] = x->gpus;
    p.v[CLAIM_VCORES] = x->vcores;
    return p;
}

static int run(const char *const *argv, struct slurm_answer *out, struct err *e)
{
    int rc = slurm_run(argv, NULL, ASK_MS, out, e);
    return rc == 0 && out->status != 0 ? slurm_failed(out, argv[0], e) : rc;
}

static int add_nodes(struct queue *q, slurm_uses *uses)
{
    for (size_t i = 0; i < uses->n; i++) {
        struct slurm_use *u = &uses->v[i];
        struct queue_node n = { .name = u->name,
                                .capacity = amount_of(&u->capacity),
                                .used = amount_of(&u->used) };
        if (!u->usable)
            continue;
        if (vec_push(&q->nodes, n) < 0)
            return -ENOMEM;
        u->name = NULL;
    }
    return 0;
}

static int ask_nodes(const char *partition, struct queue *q, struct err *e)
{
    const char *const argv[] = {
        "sinfo", "-h", "-N", "-p", partition, "-O", SLURM_USE_FIELDS, NULL
    };
    struct slurm_answer a;
    slurm_uses uses = { 0 };
    int rc = run(argv, &a, e);
    if (rc == 0 && (slurm_parse_uses(buf_span(&a.out), &uses) < 0 || add_nodes(q, &uses) < 0))
        rc = err_set(e, ENOMEM, "cannot keep the list of nodes: %m");
    if (rc == 0 && uses.n == 0)
        rc = err_set(e, EINVAL, "Slurm has no partition '%s', or it has no nodes", partition);
    if (rc == 0 && q->nodes.n == 0)
        rc = err_set(e, EAGAIN, "no node of partition '%s' runs jobs now", partition);
    slurm_uses_done(&uses);
    slurm_answer_done(&a);
    return rc;
}

static int ask_jobs(const char *partition, slurm_helds *out, struct err *e)
{
    const char *const argv[] = { "squeue",          "-h", "--me", "-p", partition, "-o",
                                 SLURM_HELD_FIELDS, NULL };
    struct slurm_answer a;
    int rc = run(argv, &a, e);
    if (rc == 0 && slurm_parse_helds(buf_span(&a.out), out) < 0)
        rc = err_set(e, ENOMEM, "cannot keep the list of jobs: %m");
    slurm_answer_done(&a);
    return rc;
}

static int ask_wanteds(const char *partition, slurm_wanteds *out, struct err *e)
{
    const char *const argv[] = { "squeue", "-h",      "-t", "PENDING",
                                 "-p",     partition, "-O", SLURM_WANTED_FIELDS,
                                 NULL };
    struct slurm_answer a;
    int rc = run(argv, &a, e);
    if (rc == 0 && slurm_parse_wanteds(buf_span(&a.out), out) < 0)
        rc = err_set(e, ENOMEM, "cannot keep the list of jobs that wait: %m");
    slurm_answer_done(&a);
    return rc;
}

/* ---- the jobs ---- */

struct looking {
    struct cluster_host *h;
    struct queue *q;
    slurm_helds helds; /* the oldest first */
    slurm_wanteds wanteds;
};

static int by_number(const void *a, const void *b)
{
    const char *x = ((const struct slurm_held *)a)->number;
    const char *y = ((const struct slurm_held *)b)->number;
    size_t nx = strlen(x), ny = strlen(y);
    return nx != ny ? (nx < ny ? -1 : 1) : strcmp(x, y);
}

static uint32_t find_node(const struct queue *q, const char *name)
{
    uint32_t i = 0;
    while (i < q->nodes.n && !str_eq(q->nodes.v[i].name, name))
        i++;
    return i;
}

static int add_shares(struct looking *l, struct queue_job *j, const struct slurm_held *h,
                      uint32_t group)
{
    for (size_t i = 0; i < h->nodes.n; i++) {
        struct queue_share s = { .node = find_node(l->q, h->nodes.v[i]), .group = group };
        if (s.node == l->q->nodes.n)
            j->has_lost = true; /* a node that runs no jobs any more */
        else if (vec_push(&j->shares, s) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Slurm will have ended the allocation soon, so what it has counts as free. */
static void free_shares(struct looking *l, const struct slurm_held *h,
                        const struct part_amount *has)
{
    for (size_t i = 0; i < h->nodes.n; i++) {
        uint32_t n = find_node(l->q, h->nodes.v[i]);
        for (int t = 0; t < CLAIM_TYPES && n < l->q->nodes.n; t++)
            l->q->nodes.v[n].used.v[t] = MAX(l->q->nodes.v[n].used.v[t] - has->v[t], INT64_C(0));
    }
}

static int add_further(struct looking *l, struct queue_job *j)
{
    AUTO(free_p) char *name = str_printf("tony-further-%s", j->id);
    uint32_t group = 0;
    int rc = name ? 0 : -ENOMEM;
    for (size_t i = 0; i < l->helds.n && rc == 0; i++) {
        const struct slurm_held *h = &l->helds.v[i];
        if (!str_eq(h->name, name))
            continue;
        if (str_eq(h->state, "COMPLETING"))
            free_shares(l, h, &j->share);
        else
            rc = add_shares(l, j, h, ++group);
    }
    return rc;
}

static const struct slurm_held *find_held(const struct looking *l, const char *number)
{
    for (size_t i = 0; i < l->helds.n; i++)
        if (number[0] && str_eq(l->helds.v[i].number, number))
            return &l->helds.v[i];
    return NULL;
}

/* The share of a node, as the client has written it at the submission. false: it is a job of an
 * earlier tony, or one with components. */
static bool read_shape(const char *dir, uint32_t *out_nodes, struct part_amount *out)
{
    json_t *doc = slurm_read_json(dir, "slurm.json"), *shape = json_object_get(doc, "shape");
    *out_nodes = (uint32_t)MIN(json_int(shape, "nodes", 0), (int64_t)1 << 20);
    *out = (struct part_amount){ { 0 } };
    out->v[CLAIM_MEMORY_MIB] = json_int(shape, "memory_mib", 0);
    out->v[CLAIM_GPUS] = json_int(shape, "gpus", 0);
    out->v[CLAIM_VCORES] = json_int(shape, "vcores", 0);
    bool is_sound = *out_nodes > 0 && out->v[CLAIM_MEMORY_MIB] > 0;
    for (int t = 0; t < CLAIM_TYPES; t++)
        is_sound = is_sound && out->v[t] >= 0 && out->v[t] <= PART_AMOUNT_MAX;
    json_decref(doc);
    return is_sound;
}

/* The job of this arbiter that waits, or of which a further allocation waits. NULL: none. */
static const struct queue_job *find_waiting(const struct looking *l, const struct slurm_wanted *w,
                                            const char *of_job)
{
    for (size_t i = 0; i < l->q->jobs.n; i++) {
        const struct queue_job *j = &l->q->jobs.v[i];
        if (of_job ? str_eq(j->id, of_job) : str_eq(j->number, w->number))
            return j;
    }
    return NULL;
}

/* Jobs that wait for nodes. */
static int add_wanteds(struct looking *l)
{
    static const char further[] = "tony-further-";
    int rc = 0;
    for (size_t i = 0; i < l->wanteds.n && rc == 0; i++) {
        const struct slurm_wanted *w = &l->wanteds.v[i];
        struct queue_wanted out = { .apart = true, .n = w->nodes, .each = amount_of(&w->each) };
        bool is_further = str_starts(w->name, further) && find_held(l, w->number);
        const struct queue_job *j =
            find_waiting(l, w, is_further ? w->name + strlen(further) : NULL);
        if (j)
            (void)str_copy(out.id, sizeof out.id, j->id); /* both have the same size */
        out.further = j && is_further;
        rc = vec_push(&l->q->wanted, out);
    }
    return rc;
}

static int add_job(struct looking *l, const char *id, int64_t submitted_ms)
{
    AUTO(free_p) char *dir = paths_job(&l->h->paths, id);
    struct queue_job j = { .submitted_ms = submitted_ms };
    struct cluster_master at = { 0 };
    char number[32];
    uint32_t nodes;
    if (!dir)
        return -ENOMEM;
    slurm_number(dir, number);
    (void)str_copy(j.number, sizeof j.number, number); /* both have the same size */
    const struct slurm_held *h = find_held(l, number);
    if (!h || !str_copy(j.id, sizeof j.id, id) || !read_shape(dir, &nodes, &j.share))
        return 0;
    bool runs = str_eq(h->state, "RUNNING");
    j.has_master = runs && slurm_master(dir, &at) && str_copy(j.host, sizeof j.host, at.host);
    j.had_master = !j.has_master && !str_eq(h->state, "PENDING");
    j.port = j.has_master ? at.port : 0;
    free(at.host);
    int rc = runs ? add_shares(l, &j, h, 0) : 0;
    if (rc == 0)
        rc = add_further(l, &j);
    if (rc == 0)
        rc = vec_push(&l->q->jobs, j);
    if (rc < 0)
        vec_done(&j.shares);
    return rc;
}

static int for_each_job(struct cluster_host *h, int (*fn)(const char *id, int64_t ms, void *arg),
                        void *arg)
{
    DIR *d = opendir(h->paths.jobs);
    int rc = d || errno == ENOENT ? 0 : -errno;
    for (struct dirent *x; rc == 0 && d && (x = readdir(d));) {
        int64_t ms;
        uint32_t number;
        if (app_id_parse(x->d_name, &ms, &number, NULL) == 0)
            rc = fn(x->d_name, ms, arg);
    }
    if (d)
        (void)closedir(d);
    return rc;
}

static int on_job(const char *id, int64_t ms, void *arg)
{
    return add_job(arg, id, ms);
}

static int look(struct cluster *k, const char *queue, const struct queue_keys *keys,
                struct queue *out, struct err *e)
{
    struct looking l = { .h = slurm_host(k), .q = out };
    (void)keys;
    *out = (struct queue){ .master_ms = MASTER_MS };
    int rc = host_look_paths(l.h, e);
    if (rc == 0)
        rc = ask_nodes(queue, out, e);
    if (rc == 0)
        rc = ask_jobs(queue, &l.helds, e);
    if (rc == 0)
        rc = ask_wanteds(queue, &l.wanteds, e);
    if (l.helds.n > 1)
        qsort(l.helds.v, l.helds.n, sizeof *l.helds.v, by_number);
    if (rc == 0) {
        rc = for_each_job(l.h, on_job, &l);
        if (rc < 0)
            rc = err_set(e, -rc, "cannot read the jobs in '%s': %m", l.h->paths.jobs);
    }
    if (rc == 0 && add_wanteds(&l) < 0)
        rc = err_set(e, ENOMEM, "cannot keep the list of jobs that wait: %m");
    slurm_helds_done(&l.helds);
    vec_done(&l.wanteds);
    if (rc < 0)
        queue_done(out);
    return rc;
}

/* ---- the needs of a job ---- */

static int read_spec(const char *dir, struct job_spec **out, struct err *e)
{
    AUTO(job_file_freep) struct job_file *file = NULL;
    AUTO(free_p) char *path = fs_join(dir, "job.conf");
    AUTO(buf_done) struct buf text = { .max = JOB_FILE_MAX };
    if (!path)
        return err_set(e, ENOMEM, "cannot read the job: %m");
    int rc = fs_read(AT_FDCWD, path, &text, e);
    if (rc == 0)
        rc = job_file_decode(buf_span(&text), &file, e);
    return rc == 0 ? job_spec_build(file->conf, out, e) : rc;
}

/* How many instances of the elastic role does a node of a further allocation hold? */
static uint32_t count_in_share(const struct part_amount *share, const struct job_elastic *x)
{
    const int64_t has[] = { share->v[CLAIM_MEMORY_MIB] - SLURM_OVERHEAD_MIB, share->v[CLAIM_VCORES],
                            share->v[CLAIM_GPUS] };
    const int64_t each[] = { (int64_t)x->each_memory_mib + SLURM_OVERHEAD_TASK_MIB, x->each_vcores,
                             x->each_gpus };
    int64_t n = INT32_MAX;
    for (size_t i = 0; i < ARRAY_LEN(has); i++)
        n = each[i] > 0 ? MIN(n, has[i] / each[i]) : n;
    return (uint32_t)MAX(n, INT64_C(0));
}

/* The job in nodes instead of containers: the first allocation stays as it is, and each further
 * node holds step_n instances. 0: it cannot grow by a node. */
static int in_nodes(const struct share_needs *own, const struct job_elastic *x, uint32_t nodes,
                    const struct part_amount *share, struct queue_needs *out)
{
    uint32_t step = count_in_share(share, x);
    uint32_t further = step && own->max > own->n ? (own->max - own->n + step - 1) / step : 0;
    if (further == 0)
        return 0;
    out->step =
        (struct queue_step){ .base_nodes = nodes, .base_n = own->n, .n = step, .max_n = own->max };
    out->share = *own;
    out->share.n = out->share.min = nodes;
    out->share.max = nodes + further;
    out->share.each_mib = (uint64_t)share->v[CLAIM_MEMORY_MIB];
    out->share.each_gpus = (uint32_t)share->v[CLAIM_GPUS];
    out->share.each_vcores = (uint32_t)share->v[CLAIM_VCORES];
    out->share.fixed_mib = out->share.master_mib = 0;
    out->share.fixed_gpus = 0;
    return 1;
}

static int needs(struct cluster *k, const struct queue_job *j, const struct queue_keys *keys,
                 struct queue_needs *out, struct tls_key *out_key, struct err *e)
{
    AUTO(free_p) char *dir = paths_job(&slurm_host(k)->paths, j->id);
    AUTO(free_p) char *further = dir ? fs_join(dir, "script.further") : NULL;
    struct job_spec *spec = NULL;
    struct share_needs own;
    struct job_elastic x;
    struct part_amount share;
    uint32_t nodes;
    (void)keys;
    (void)out_key;
    if (!dir || !further)
        return err_set(e, ENOMEM, "cannot read the needs of job '%s': %m", j->id);
    int rc = read_spec(dir, &spec, e);
    if (rc < 0)
        return rc;
    rc = share_needs_of(spec, 0, 1, &own);
    if (rc < 0)
        (void)err_set(e, -rc, "cannot read the needs of job '%s': %m", j->id);
    if (rc == 1)
        rc = job_spec_elastic(spec, &x) && read_shape(dir, &nodes, &share) &&
             access(further, R_OK) == 0 && in_nodes(&own, &x, nodes, &share, out);
    job_spec_free(spec);
    return rc;
}

/* ---- the arbiter's own job ---- */

struct finding {
    struct cluster_host *h;
    const char *name, *not_id;
    char id[APP_ID_MAX];
    int64_t ms;
};

/* Of several, keep the one that was submitted first. */
static int consider(const char *id, int64_t ms, void *arg)
{
    struct finding *f = arg;
    struct job_spec *spec = NULL;
    struct err unread = { 0 };
    AUTO(free_p) char *dir = paths_job(&f->h->paths, id);
    AUTO(free_p) char *mark = dir ? fs_join(dir, "slurm.json") : NULL;
    if (!dir || !mark)
        return -ENOMEM;
    bool is_older = !f->id[0] || ms < f->ms || (ms == f->ms && strcmp(id, f->id) < 0);
    if (!is_older || (f->not_id && str_eq(id, f->not_id)) || access(mark, F_OK) == -1 ||
        read_spec(dir, &spec, &unread) < 0)
        return 0;
    if (str_eq(spec->name, f->name)) {
        (void)str_copy(f->id, sizeof f->id, id);
        f->ms = ms;
    }
    job_spec_free(spec);
    return 0;
}

static int find_app(struct cluster *k, const char *queue, const char *not_id,
                    struct cluster_report *out, struct err *e)
{
    AUTO(free_p) char *name = str_printf(QUEUE_APP_PREFIX "%s", queue);
    struct finding f = { .h = slurm_host(k), .name = name, .not_id = not_id };
    *out = (struct cluster_report){ .id = "" };
    if (!name)
        return err_set(e, ENOMEM, "cannot look for the arbiter: %m");
    int rc = host_look_paths(f.h, e);
    if (rc == 0 && (rc = for_each_job(f.h, consider, &f)) < 0)
        rc = err_set(e, -rc, "cannot read the jobs in '%s': %m", f.h->paths.jobs);
    if (rc < 0 || !f.id[0])
        return rc;
    rc = slurm_report(k, f.id, out, e);
    if (rc == 0 &&
        out->phase == CLUSTER_OVER) /* Slurm has ended it, and it is in the history now */
        cluster_report_done(out);
    return rc;
}

/* The task runs in the home of its user, where the jobs are, and finds the same Slurm. */
static int prepare_app(struct cluster *k, struct queue_app *a, struct err *e)
{
    struct cluster_host *h = slurm_host(k);
    const char *conf = getenv("SLURM_CONF");
    int rc = host_open_paths(h, e);
    if (rc < 0)
        return rc;
    rc = json_object_set_new(a->conf, "tony.slurm.partition", json_string(a->queue));
    if (rc == 0)
        rc = json_object_set_new(a->env, "TONY_HOME", json_string(h->paths.home));
    if (rc == 0 && conf)
        rc = json_object_set_new(a->env, "SLURM_CONF", json_string(conf));
    return rc < 0 ? err_set(e, ENOMEM, "cannot start the arbiter: %m") : 0;
}

const struct queue_ops queue_slurm = {
    .what = "partition",
    .gives_nodes = true,
    .pause_ms = PAUSE_MS,
    .no_keys = "it resizes only jobs of its own user",
    .look = look,
    .needs = needs,
    .find_app = find_app,
    .prepare_app = prepare_app,
};
