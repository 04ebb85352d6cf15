/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/task_metrics.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/proctree.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "executor/engine.h"
#include "executor/executor_int.h"
#include "executor/gpu_watch.h"
#include "executor/quiet.h"
#include "metrics/metrics.h"
#include "storage/paths.h"

enum {
    FIRST_MS = 1000,      /* the first measurement of an attempt, if the interval is longer */
    SOON_FIRST_MS = 250,  /* measure at a heartbeat if it is due within this time */
    SOON_MS = 1000,       /* the same after the first measurement, at most half of the interval */
    GPU_FAILURES_MAX = 3, /* starts of tony-gpu in an attempt */
};

/* ---- the values ---- */

static void set_value(struct task_metric *v, double value)
{
    if (!isfinite(value) || (v->known && v->value == value))
        return;
    v->value = value;
    v->known = v->changed = true;
}

static int have_built_in(struct task_metrics *t)
{
    struct task_metric none = { 0 };
    while (t->n < METRIC_BUILT_IN_COUNT)
        if (vec_push(t, none) < 0)
            return -ENOMEM;
    return 0;
}

/* NULL = no memory. */
static struct task_metric *find_or_add(struct task_metrics *t, const char *name, bool own)
{
    for (size_t i = METRIC_BUILT_IN_COUNT; i < t->n; i++)
        if (str_eq(t->v[i].name, name))
            return &t->v[i];
    struct task_metric fresh = { .name = str_dup(name), .own = own };
    if (!fresh.name || have_built_in(t) < 0 || vec_push(t, fresh) < 0) {
        free(fresh.name);
        return NULL;
    }
    t->n_own += own;
    return &t->v[t->n - 1];
}

int task_metrics_say(struct executor *x, const void *metrics, struct err *e)
{
    struct task_metrics *t = &x->metrics;
    const char *name;
    json_t *value;
    int rc = 0;
    if (!attempt_alive(&x->a))
        return 0;
    json_object_foreach((json_t *)(uintptr_t)metrics, name, value)
    {
        size_t before = t->n_own;
        struct task_metric *v = NULL;
        for (size_t i = METRIC_BUILT_IN_COUNT; i < t->n && !v; i++)
            if (str_eq(t->v[i].name, name))
                v = &t->v[i];
        if (!v && before >= METRICS_OWN_MAX)
            rc = err_set(e, E2BIG, "a task may report %d different metrics: '%s' is one too many",
                         METRICS_OWN_MAX, name);
        else if (!v)
            v = find_or_add(t, name, true);
        if (v)
            set_value(v, json_number_value(value));
    }
    return rc;
}

/* ---- measuring ---- */

static const struct cgroup *group_of(const struct executor *x)
{
    return x->a.in_cgroup ? &x->cfg->cgroup : NULL;
}

static const struct usage_base *reaped_of(const struct executor *x)
{
    return x->cfg->in_crew ? &x->reaped : NULL;
}

void task_metrics_others(const struct executor *x, struct pids *out)
{
    if (x->metrics.gpu_pid)
        (void)vec_push(out, x->metrics.gpu_pid); /* without memory, it counts as part of the task */
    streams_list(x, out);
}

void task_metrics_leave_out(struct executor *x, const struct rusage *used)
{
    usage_leave_out(group_of(x), &x->metrics.base, used);
}

/* Would a measurement find nothing new? Only a control group shows that no process was started. */
static bool is_idle(struct executor *x)
{
    struct task_metrics *t = &x->metrics;
    const struct cgroup *g = group_of(x);
    bool same = g && usage_is_idle(&t->trace, x->a.pid, cgroup_watch_memory(g, &x->watch));
    return same && t->n_processes == 1;
}

/* over: no process of the task is alive. */
static void measure(struct executor *x, bool over)
{
    struct task_metrics *t = &x->metrics;
    struct usage u;
    if (have_built_in(t) < 0)
        return; /* the next measurement tries it again */
    if (x->task.step)
        set_value(&t->v[METRIC_STEP], (double)x->task.step);
    if (!over && is_idle(x))
        return;
    if (x->engine_apart) {
        engine_usage(x, over, &u);
    } else if (over) {
        usage_at_end(group_of(x), &t->base, reaped_of(x), &u);
    } else {
        struct pids others = { 0 };
        task_metrics_others(x, &others);
        usage_now(group_of(x), &t->base, reaped_of(x), &others, &u);
        vec_done(&others);
    }
    t->n_processes = u.processes;
    t->max_bytes = MAX(t->max_bytes, u.memory_bytes);
    x->a.max_rss = MAX(x->a.max_rss, u.memory_bytes);
    /* A process that ends between two reads is missing in both for a moment. */
    t->cpu_ms = MAX(t->cpu_ms, u.cpu_ms);
    if (x->engine_apart)
        x->a.cpu_ms = t->cpu_ms;
    t->read_bytes = MAX(t->read_bytes, u.read_bytes);
    t->written_bytes = MAX(t->written_bytes, u.written_bytes);
    if (u.threads) { /* 0: all processes have ended, so what is measured now says nothing */
        set_value(&t->v[METRIC_MEMORY], (double)u.memory_bytes);
        set_value(&t->v[METRIC_THREADS], u.threads);
    }
    set_value(&t->v[METRIC_MEMORY_PEAK], (double)t->max_bytes);
    set_value(&t->v[METRIC_CPU], (double)t->cpu_ms);
    set_value(&t->v[METRIC_READ], (double)t->read_bytes);
    set_value(&t->v[METRIC_WRITTEN], (double)t->written_bytes);
}

/* ---- GPUs ---- */

/* The path of tony-gpu; the caller frees it. A NodeManager links it into the directory of the
 * container; on other clusters it is beside this program. NULL: it is not there. */
static char *gpu_program(const struct executor *x)
{
    char *linked = executor_has_keeper(x) ? NULL : fs_join(x->cfg->remote->workdir, "tony-gpu");
    if (linked && access(linked, X_OK) == 0)
        return linked;
    free(linked);
    return paths_program("tony-gpu");
}

static void start_gpus(struct executor *x)
{
    struct task_metrics *t = &x->metrics;
    struct err e = { 0 };
    const char *gpus = executor_has_keeper(x) && x->cfg->gpus ? x->cfg->gpus : "";
    if (!x->role->gpu_metrics || t->gpu_pid || t->gpu_failures >= GPU_FAILURES_MAX)
        return;
    AUTO(free_p) char *program = gpu_program(x);
    if (program)
        t->gpus = gpu_watch_new(program, gpus, x->role->metrics_ms, &e);
    else
        (void)err_set(&e, ENOENT, "cannot find the program 'tony-gpu', so GPUs are not measured");
    if (t->gpus) {
        t->gpu_pid = gpu_watch_pid(t->gpus);
        return;
    }
    t->gpu_failures = GPU_FAILURES_MAX;
    executor_warn(x, "task.no_gpu_metrics", &e);
}

static void stop_gpus(struct task_metrics *t)
{
    gpu_watch_free(t->gpus); /* children_reap() reaps it */
    t->gpus = NULL;
}

static void on_figure(void *arg, unsigned gpu, enum metric_gpu which, double value)
{
    struct executor *x = arg;
    char name[METRIC_NAME_MAX + 1];
    metric_gpu_name(gpu, which, name);
    struct task_metric *v = find_or_add(&x->metrics, name, false);
    if (v)
        set_value(v, value);
}

int task_metrics_fd(const struct executor *x)
{
    return x->metrics.gpus ? gpu_watch_fd(x->metrics.gpus) : -1;
}

void task_metrics_ready(struct executor *x)
{
    if (gpu_watch_read(x->metrics.gpus, on_figure, x))
        return;
    stop_gpus(&x->metrics);
    x->metrics.gpu_failures++; /* the next measurement starts it again */
}

bool task_metrics_reaped(struct executor *x, pid_t pid, const struct rusage *used)
{
    struct task_metrics *t = &x->metrics;
    if (pid != t->gpu_pid) {
        if (!x->engine_apart) /* else it is the client of the engine */
            t->max_bytes = MAX(t->max_bytes, (uint64_t)used->ru_maxrss * 1024);
        return false;
    }
    t->gpu_pid = 0;
    task_metrics_leave_out(x, used);
    if (t->gpus) {
        gpu_watch_note_end(t->gpus);
        (void)gpu_watch_read(t->gpus, on_figure, x);
        stop_gpus(t);
        t->gpu_failures++;
    }
    return true;
}

bool task_metrics_others_left(const struct executor *x)
{
    struct pids list = { 0 };
    if (!x->metrics.gpu_pid)
        return true;
    proctree_children(getpid(), &list);
    bool others = list.n == 0; /* the list cannot be read */
    for (size_t i = 0; i < list.n; i++)
        others |= list.v[i] != x->metrics.gpu_pid;
    vec_done(&list);
    return others;
}

/* ---- sending ---- */

/* Put the changed values into the Beat. The arrays belong to the caller. false: there are none, or
 * there is no memory. */
static bool fill(struct task_metrics *t, Tony__Beat *beat)
{
    uint32_t *ids = calloc(t->n, sizeof *ids);
    double *values = calloc(t->n, sizeof *values);
    char **names = calloc(t->n, sizeof *names);
    size_t n = 0, n_names = 0;
    size_t named = MAX(t->n_named, (size_t)METRIC_BUILT_IN_COUNT);
    for (size_t i = 0; ids && values && names && i < t->n; i++) {
        if (i >= named)
            names[n_names++] = t->v[i].name;
        if (!t->v[i].changed)
            continue;
        ids[n] = (uint32_t)i;
        values[n++] = t->v[i].value;
    }
    beat->metric_ids = ids;
    beat->n_metric_ids = beat->n_metric_values = n;
    beat->metric_values = values;
    beat->new_names = names;
    beat->n_new_names = n_names;
    beat->forget_names = t->forget_names;
    return n > 0;
}

/* send: executor_send() or executor_queue(). */
static bool send_changes(struct executor *x, int (*send)(struct executor *x, Tony__Frame *f))
{
    struct task_metrics *t = &x->metrics;
    Tony__Beat beat = TONY__BEAT__INIT;
    bool sent = false;
    if (!x->greeted || t->n == 0)
        return false;
    beat.generation = x->a.generation;
    beat.attempt = x->a.number;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_BEAT;
    f.beat = &beat;
    if (fill(t, &beat) && send(x, &f) == 0) { /* else: again after the next Welcome */
        sent = true;
        t->n_named = t->n;
        t->forget_names = false;
        for (size_t i = 0; i < t->n; i++)
            t->v[i].changed = false;
    }
    free(beat.metric_ids);
    free(beat.metric_values);
    free(beat.new_names);
    return sent;
}

void task_metrics_again(struct executor *x)
{
    struct task_metrics *t = &x->metrics;
    t->n_named = 0;
    for (size_t i = 0; i < t->n; i++)
        t->v[i].changed = t->v[i].known;
    if (attempt_alive(&x->a))
        (void)send_changes(x, executor_send);
}

/* ---- the life of an attempt ---- */

void task_metrics_begin(struct executor *x)
{
    struct task_metrics *t = &x->metrics;
    for (size_t i = 0; i < t->n; i++)
        free(t->v[i].name);
    t->n = t->n_own = t->n_named = 0;
    t->forget_names = true;
    t->max_bytes = t->cpu_ms = t->read_bytes = t->written_bytes = 0;
    t->gpu_failures = 0;
    t->measured = false;
    t->n_processes = 0;
    usage_trace_done(&t->trace);
    t->due_ms = INT64_MAX;
    if (!x->role->metrics_ms)
        return;
    usage_base(group_of(x), reaped_of(x), &t->base);
    engine_usage_begin(x);
    t->due_ms = clock_mono_ms() + MIN((int64_t)x->role->metrics_ms, (int64_t)FIRST_MS);
    start_gpus(x);
}

void task_metrics_end(struct executor *x)
{
    struct task_metrics *t = &x->metrics;
    if (t->due_ms == INT64_MAX)
        return;
    if (t->gpus)
        (void)gpu_watch_read(t->gpus, on_figure, x);
    stop_gpus(t);
    t->due_ms = INT64_MAX;
    usage_trace_done(&t->trace);
    measure(x, true);
    (void)send_changes(x, executor_queue); /* the end of the attempt follows */
}

int64_t task_metrics_due(const struct executor *x)
{
    return attempt_alive(&x->a) ? x->metrics.due_ms : INT64_MAX;
}

bool task_metrics_due_soon(const struct executor *x, int64_t now_ms)
{
    int64_t half = (int64_t)x->role->metrics_ms / 2;
    int64_t soon = !x->metrics.measured ? SOON_FIRST_MS
                   : quiet_now(x)       ? half
                                        : MIN((int64_t)SOON_MS, half);
    return task_metrics_due(x) != INT64_MAX && now_ms + soon >= x->metrics.due_ms;
}

bool task_metrics_tick(struct executor *x, int64_t now_ms)
{
    struct task_metrics *t = &x->metrics;
    int64_t every = x->role->metrics_ms;
    start_gpus(x);
    measure(x, false);
    t->measured = true;
    t->due_ms = MAX(t->due_ms + every, now_ms + every / 2);
    return send_changes(x, executor_send);
}
