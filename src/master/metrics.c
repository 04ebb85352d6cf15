/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics of the tasks (docs/metrics.md): the latest values, which the status document shows,
 * and the file `metrics` beside the journal.
 *
 * Beats bring values. FLUSH_MS after the first one, the changes are appended to the file, without a
 * sync. When the file is larger than metrics_file_limit(), a thread makes a thinner one. A new
 * master restores the latest values from the file. On a cluster, copies.h brings the file to a
 * master on another node: the values of the last COPY_INTERVALS measurements may be missing there.
 *
 * The job does not depend on any of this: if the file cannot be written, the values are lost, a
 * warning is logged, and the write is tried again later.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "master/copies.h"
#include "master/master_int.h"
#include "metrics/metrics.h"
#include "proto/tony.pb-c.h"
#include "storage/metrics_file.h"

enum {
    FLUSH_MS = 1000,          /* from the first change to the write of all changes */
    AFTER_FAILURE_MS = 30000, /* from a failed write to the next one */
    COPY_INTERVALS = 6,       /* intervals of the measurements between two copies of the file ... */
    COPY_MIN_MS = 1000,       /* ... but not more often than this */
    VALUES_MAX = 4096,        /* in one Beat */
};

/* What is known of a task besides the values in the table. */
struct task_state {
    uint32_t slot;
    uint32_t attempt; /* 0 = not known, after a restart of the master */
    bool live;
    struct metrics_summary summary;
    double cpu_ms;
    double cpu_percent; /* of one core, between the last two changes of cpu_ms; -1 = unknown */
    int64_t cpu_at_ms;  /* of the last change, monotonic; 0 = no measurement yet */
};

/* The work of the thread. The master may be closed before it ends. */
struct thin_job {
    struct master_metrics *owner; /* NULL = closed */
    struct metrics_thinning t;
    struct err e;
    char *path;
};

struct master_metrics {
    struct master *m;
    struct metrics *table;
    VEC(struct task_state) tasks; /* by the task's number in the table */
    uint32_t *of_slot;            /* 1 + the number of the task; 0 = it has no metrics */
    uint32_t n_slots;
    struct metrics_file file;
    struct buf records; /* to be written */
    struct loop_timer *timer;
    bool timer_is_set, write_failed;
    struct thin_job *thinning; /* NULL = none is under way */
    int level;
    int64_t thin_at;        /* bytes of the file at which it is thinned next; 0 = its limit */
    struct copies *copies;  /* NULL = the cluster starts no other master after this one */
    uint64_t copied_before; /* bytes of the files that this one has replaced */
};

/* ---- tasks ---- */

static int grow_slots(struct master_metrics *x, uint32_t n)
{
    if (n <= x->n_slots)
        return 0;
    uint32_t *more = realloc(x->of_slot, n * sizeof *more);
    if (!more)
        return -ENOMEM;
    memset(more + x->n_slots, 0, (n - x->n_slots) * sizeof *more);
    x->of_slot = more;
    x->n_slots = n;
    return 0;
}

/* The number of the slot's task; it gets one if it has none. */
static int task_of(struct master_metrics *x, uint32_t slot, uint32_t *out)
{
    struct slot_view v;
    char label[METRICS_LABEL_MAX + 1];
    if (grow_slots(x, MAX(job_n_slots(x->m->job), slot + 1)) < 0)
        return -ENOMEM;
    if (x->of_slot[slot]) {
        *out = x->of_slot[slot] - 1;
        return 0;
    }
    job_slot(x->m->job, slot, &v);
    (void)snprintf(label, sizeof label, "%s:%u", v.role, v.index);
    int rc = metrics_task(x->table, span_of(label), out);
    while (rc == 0 && x->tasks.n <= *out) {
        struct task_state fresh = { .slot = UINT32_MAX, .cpu_percent = -1 };
        rc = vec_push(&x->tasks, fresh);
    }
    if (rc < 0)
        return rc;
    x->tasks.v[*out].slot = slot;
    x->of_slot[slot] = *out + 1;
    return 0;
}

/* NULL = the slot has no metrics. */
static struct task_state *find_task(const struct master_metrics *x, uint32_t slot, uint32_t *out)
{
    if (!x || slot >= x->n_slots || !x->of_slot[slot])
        return NULL;
    *out = x->of_slot[slot] - 1;
    return &x->tasks.v[*out];
}

static void end_task(struct master_metrics *x, uint32_t task, int64_t t_ms)
{
    struct task_state *s = &x->tasks.v[task];
    double v[METRICS_SUMMARY_COUNT];
    uint32_t name;
    if (!s->live)
        return;
    s->live = false;
    s->cpu_percent = -1;
    s->cpu_at_ms = 0;
    metrics_summary_pause(&s->summary, t_ms);
    metrics_summary_get(&s->summary, t_ms, v);
    for (int i = 0; i < METRICS_SUMMARY_COUNT; i++)
        if (metrics_name(x->table, span_of(metrics_summary_names[i]), &name) == 0)
            (void)metrics_set(x->table, task, name, v[i]); /* without memory, it is not known */
    metrics_gone(x->table, task);
}

/* ---- values ---- */

static void note_cpu(struct task_state *s, double cpu_ms, int64_t now_ms)
{
    if (s->cpu_at_ms && now_ms > s->cpu_at_ms && cpu_ms >= s->cpu_ms)
        s->cpu_percent = 100 * (cpu_ms - s->cpu_ms) / (double)(now_ms - s->cpu_at_ms);
    s->cpu_ms = cpu_ms;
    s->cpu_at_ms = now_ms;
}

/* The number of the name that an id in a Beat stands for. -EPROTO: it stands for none. */
static int name_of(struct peer *p, uint32_t id, uint32_t *out)
{
    struct metrics *table = p->m->metrics->table;
    if (id < METRIC_BUILT_IN_COUNT)
        return metrics_name(table, span_of(metric_built_in[id].name), out);
    id -= METRIC_BUILT_IN_COUNT;
    if (id >= p->metric_names.n)
        return -EPROTO;
    *out = p->metric_names.v[id];
    return *out == UINT32_MAX ? -EPROTO : 0;
}

static int learn_names(struct peer *p, const Tony__Beat *b)
{
    if (b->forget_names)
        p->metric_names.n = 0;
    for (size_t i = 0; i < b->n_new_names; i++) {
        uint32_t name = UINT32_MAX; /* a name that is refused keeps its place */
        int rc = metrics_name(p->m->metrics->table, span_of(b->new_names[i]), &name);
        if (rc == -ENOMEM)
            return rc;
        if (p->metric_names.n >= VALUES_MAX || vec_push(&p->metric_names, name) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int take_value(struct peer *p, uint32_t task, uint32_t id, double value, int64_t wall_ms)
{
    struct master_metrics *x = p->m->metrics;
    struct task_state *s = &x->tasks.v[task];
    uint32_t name;
    int rc = name_of(p, id, &name);
    if (rc == 0)
        rc = metrics_set(x->table, task, name, value);
    if (rc == 0)
        rc = metrics_summary_add(&s->summary, span_of(metrics_name_text(x->table, name)), wall_ms,
                                 value);
    if (rc == 0 && id == METRIC_CPU)
        note_cpu(s, value, clock_mono_ms());
    return rc;
}

static void arm(struct master_metrics *x, int64_t in_ms)
{
    if (x->timer_is_set)
        return;
    x->timer_is_set = true;
    loop_timer_set(x->timer, clock_mono_ms() + in_ms);
}

void metrics_on_beat(struct peer *p, const Tony__Beat *b)
{
    struct master *m = p->m;
    struct master_metrics *x = m->metrics;
    struct slot_view v;
    uint32_t task;
    int64_t now = clock_wall_ms();
    if (!x || b->attempt == 0 || b->n_metric_ids != b->n_metric_values ||
        b->n_metric_ids > VALUES_MAX || learn_names(p, b) < 0)
        return;
    job_slot(m->job, p->slot, &v);
    if (v.attempt != b->attempt || v.generation != b->generation || task_of(x, p->slot, &task) < 0)
        return;
    struct task_state *s = &x->tasks.v[task];
    if (s->attempt && s->attempt != b->attempt) {
        end_task(x, task, now);
        metrics_summary_done(&s->summary);
        metrics_forget(x->table, task);
    }
    s->attempt = b->attempt;
    s->live = true;
    for (size_t i = 0; i < b->n_metric_ids; i++) /* a value that cannot be kept is left out */
        (void)take_value(p, task, b->metric_ids[i], b->metric_values[i], now);
    arm(x, MIN((int64_t)FLUSH_MS, (int64_t)m->spec->metrics_ms));
}

void metrics_on_end(struct master *m, uint32_t slot)
{
    uint32_t task;
    if (!find_task(m->metrics, slot, &task))
        return;
    end_task(m->metrics, task, clock_wall_ms());
    arm(m->metrics, FLUSH_MS);
}

/* End the series of tasks whose executor is lost: no executor reports their end. */
static void end_lost(struct master_metrics *x)
{
    for (size_t i = 0; i < x->tasks.n; i++) {
        struct slot_view v;
        if (!x->tasks.v[i].live)
            continue;
        job_slot(x->m->job, x->tasks.v[i].slot, &v);
        if (v.attempt != x->tasks.v[i].attempt || v.state < SLOT_RUNNING || v.state == SLOT_ENDED)
            end_task(x, (uint32_t)i, clock_wall_ms());
    }
}

/* ---- the file ---- */

static void begin_thinning(struct master_metrics *x);

/* Tell the copies that records were appended. */
static void copy_records(const struct master_metrics *x)
{
    if (x->copies)
        copies_wrote(x->copies, (uint64_t)x->file.size, x->copied_before + (uint64_t)x->file.size);
}

/* Tell the copies that a file of old_size bytes was replaced. */
static void copy_replaced(struct master_metrics *x, int64_t old_size)
{
    if (!x->copies)
        return;
    x->copied_before += (uint64_t)old_size;
    copies_segment(x->copies, x->copied_before + 1, (uint64_t)x->file.size,
                   x->copied_before + (uint64_t)x->file.size);
}

static void note_failure(struct master_metrics *x, const struct err *e)
{
    if (!x->write_failed)
        log_err(LOG_WARN, "metrics.not_written", e);
    x->write_failed = true;
}

/* Append all changes to the file. */
static int write_changes(struct master_metrics *x)
{
    struct err e = { 0 };
    int64_t limit = metrics_file_limit(job_n_slots(x->m->job));
    buf_clear(&x->records);
    if (x->file.fd < 0 || !metrics_is_dirty(x->table))
        return 0;
    int rc = 0;
    if (x->file.size > 2 * limit) /* thinning it fails: the file must not grow without bound */
        rc = err_set(&e, EFBIG, "the file is too large");
    if (rc == 0)
        rc = metrics_encode(x->table, clock_wall_ms(), metrics_file_put, &x->records);
    if (rc == 0 && (rc = metrics_file_write(&x->file, buf_span(&x->records), &e)) < 0)
        metrics_begin_block(x->table, false); /* the next write repeats all values */
    if (rc < 0) {
        if (!e.num)
            (void)err_set(&e, -rc, "cannot write metrics: %m");
        note_failure(x, &e);
        return rc;
    }
    x->write_failed = false;
    copy_records(x);
    if (x->file.size > MAX(limit - limit / 16, x->thin_at)) /* it still grows meanwhile */
        begin_thinning(x);
    return 0;
}

static void on_timer(void *arg)
{
    struct master_metrics *x = arg;
    x->timer_is_set = false;
    end_lost(x);
    if (write_changes(x) < 0)
        arm(x, AFTER_FAILURE_MS);
}

static int thin_work(void *arg)
{
    struct thin_job *j = arg;
    return metrics_file_thin(&j->t);
}

static void thin_done(void *arg, int rc)
{
    struct thin_job *j = arg;
    struct master_metrics *x = j->owner;
    if (x) {
        int64_t old_size = x->file.size;
        x->thinning = NULL;
        if (rc == 0)
            rc = metrics_file_replace(&x->file, &j->t, &j->e);
        if (rc == 0) {
            x->level = j->t.level;
            copy_replaced(x, old_size);
        } else {
            log_err(LOG_WARN, "metrics.not_thinned", &j->e);
        }
        x->thin_at = rc == 0 ? 0 : x->file.size + x->file.size / 4;
        log_event(LOG_DEBUG, "metrics.thinned", f_int("from", j->t.size),
                  f_int("to", j->t.new_size), f_int("level", j->t.level));
    }
    free(j->path);
    free(j);
}

static void begin_thinning(struct master_metrics *x)
{
    if (x->thinning)
        return;
    struct thin_job *j = calloc(1, sizeof *j);
    char *path = str_dup(x->file.path);
    if (!j || !path) {
        free(j);
        free(path);
        return; /* the next write tries it again */
    }
    *j = (struct thin_job){ .owner = x, .path = path };
    j->t = (struct metrics_thinning){ .path = path,
                                      .size = x->file.size,
                                      .goal = metrics_file_limit(job_n_slots(x->m->job)) * 6 / 10,
                                      .now_ms = clock_wall_ms(),
                                      .level = x->level,
                                      .e = &j->e };
    metrics_begin_block(x->table, false); /* the records behind `size` do not need those before */
    if (loop_work(x->m->loop, thin_work, thin_done, j) < 0) {
        free(path);
        free(j);
        return;
    }
    x->thinning = j;
}

/* ---- a new master ---- */

struct restoring {
    struct master_metrics *x;
    struct metrics_reader *r;
};

static int restore_value(void *arg, uint32_t task, uint32_t name, int64_t t_ms, double value)
{
    struct restoring *s = arg;
    struct metrics *table = s->x->table;
    struct span text = span_of(metrics_reader_name(s->r, name));
    uint32_t to, as;
    int rc = metrics_task(table, span_of(metrics_reader_label(s->r, task)), &to);
    if (rc == 0)
        rc = metrics_name(table, text, &as);
    while (rc == 0 && s->x->tasks.n <= to) {
        struct task_state fresh = { .slot = UINT32_MAX, .cpu_percent = -1 };
        rc = vec_push(&s->x->tasks, fresh);
    }
    if (rc == 0)
        rc = metrics_set(table, to, as, value);
    return rc < 0 ? rc : metrics_summary_add(&s->x->tasks.v[to].summary, text, t_ms, value);
}

static int restore_gone(void *arg, uint32_t task, int64_t t_ms)
{
    struct restoring *s = arg;
    uint32_t to;
    int rc = metrics_task(s->x->table, span_of(metrics_reader_label(s->r, task)), &to);
    if (rc == 0 && to < s->x->tasks.n)
        metrics_summary_pause(&s->x->tasks.v[to].summary, t_ms);
    return rc;
}

static int restore_gap(void *arg, int64_t t_ms)
{
    struct restoring *s = arg;
    for (size_t i = 0; i < s->x->tasks.n; i++)
        metrics_summary_pause(&s->x->tasks.v[i].summary, t_ms);
    return 0;
}

/* Restore the latest values from the file of an earlier master. */
static int restore(struct master_metrics *x, struct span text, struct err *e)
{
    struct restoring s = { .x = x, .r = metrics_reader_new() };
    const struct metrics_sink sink = {
        .value = restore_value, .gone = restore_gone, .gap = restore_gap, .arg = &s
    };
    struct metrics_records records;
    struct span record;
    int rc = s.r ? metrics_records_begin(&records, text, e) : -ENOMEM;
    while (rc == 0 && metrics_records_next(&records, &record))
        rc = metrics_read(s.r, record, &sink, e);
    if (rc == 0)
        rc = restore_gap(&s, metrics_reader_time(s.r));
    metrics_reader_free(s.r);
    metrics_begin_block(x->table, true);
    for (uint32_t i = 0, task; rc == 0 && x->tasks.n > 0 && i < job_n_slots(x->m->job); i++)
        rc = task_of(x, i, &task); /* so that the status has the values of tasks that have ended */
    return rc;
}

/* Set aside a file that is damaged, or of a newer version. */
static void set_aside(const char *path, const struct err *why)
{
    AUTO(free_p) char *to = str_printf("%s.damaged", path);
    log_err(LOG_WARN, "metrics.set_aside", why);
    if (to && rename(path, to) == -1)
        (void)remove(path);
}

static void open_file(struct master_metrics *x)
{
    AUTO(free_p) char *path = fs_join(x->m->job_dir, "metrics");
    AUTO(buf_done) struct buf text = { 0 };
    struct err e = { 0 };
    int rc = path ? metrics_file_open(&x->file, path, &text, &e) : -ENOMEM;
    if (rc == 0)
        rc = restore(x, buf_span(&text), &e);
    if (rc == -EBADMSG || rc == -EINVAL) {
        metrics_file_close(&x->file);
        set_aside(path, &e);
        err_clear(&e);
        rc = metrics_file_open(&x->file, path, NULL, &e);
    }
    if (rc < 0) /* the latest values are known all the same */
        log_err(LOG_WARN, "metrics.no_file", &e);
}

static int open_metrics_copies(struct master_metrics *x, struct err *e)
{
    const struct master_remote *r = x->m->remote;
    if (!r || !r->metrics_dir || !r->files || x->file.fd < 0)
        return 0;
    int64_t delay_ms = MAX(COPY_INTERVALS * (int64_t)x->m->spec->metrics_ms, (int64_t)COPY_MIN_MS);
    /* A file without values need not be copied. */
    uint64_t size = metrics_n_tasks(x->table) ? (uint64_t)x->file.size : 0;
    const struct copies_config cc = {
        .kind = COPIES_METRICS,
        .loop = x->m->loop,
        .files = r->files,
        .fs = r->fs,
        .dir = r->metrics_dir,
        .file = x->file.path,
        .epoch = x->m->epoch,
        .first_n = 1,
        .last_n = size,
        .size = size,
        .delay_ms = delay_ms,
        .retry_ms = delay_ms,
        .patience_ms = delay_ms,
    };
    return copies_new(&cc, &x->copies, e);
}

void metrics_stop_copies(struct master *m)
{
    if (m->metrics && m->metrics->copies)
        copies_stop(m->metrics->copies);
}

int metrics_open(struct master *m, struct err *e)
{
    struct master_metrics *x = calloc(1, sizeof *x);
    if (!x)
        return err_set(e, ENOMEM, "no memory to start the master");
    x->m = m;
    x->file = (struct metrics_file)METRICS_FILE_INIT;
    x->table = metrics_new();
    x->timer = loop_timer_new(m->loop, on_timer, x);
    m->metrics = x;
    if (!x->table || !x->timer)
        return err_set(e, ENOMEM, "no memory to start the master");
    open_file(x);
    return open_metrics_copies(x, e);
}

void metrics_close(struct master *m)
{
    struct master_metrics *x = m->metrics;
    if (!x)
        return;
    if (x->table && x->file.fd >= 0)
        (void)write_changes(x);
    if (x->thinning)
        x->thinning->owner = NULL;
    for (size_t i = 0; i < x->tasks.n; i++)
        metrics_summary_done(&x->tasks.v[i].summary);
    vec_done(&x->tasks);
    loop_timer_free(x->timer);
    copies_free(x->copies);
    metrics_file_close(&x->file);
    metrics_free(x->table);
    buf_done(&x->records);
    free(x->of_slot);
    free(x);
    m->metrics = NULL;
}

void metrics_finish(struct master *m)
{
    struct master_metrics *x = m->metrics;
    if (!x)
        return;
    metrics_stop_copies(m); /* the history gets the file itself */
    for (size_t i = 0; i < x->tasks.n; i++)
        end_task(x, (uint32_t)i, clock_wall_ms());
    (void)write_changes(x);
    if (x->thinning)
        x->thinning->owner = NULL; /* the history gets the file as it is */
    x->thinning = NULL;
}

int metrics_file_text(struct master *m, struct buf *out, struct err *e)
{
    struct master_metrics *x = m->metrics;
    if (!x || x->file.fd < 0)
        return err_set(e, ENOENT, "the master has no file of metrics");
    (void)write_changes(x);
    return metrics_file_read(x->file.path, out, e);
}

/* ---- the status document ---- */

/* -1 = not known. Executors send only changes: a task whose CPU time does not change uses none. */
static double cpu_percent(const struct master *m, const struct task_state *s)
{
    int64_t interval = m->spec->metrics_ms;
    if (!s->live || !s->cpu_at_ms)
        return -1;
    return clock_mono_ms() - s->cpu_at_ms > 2 * interval ? 0 : s->cpu_percent;
}

/* What the job file allows the task; 0 = not limited. */
static uint64_t memory_limit(const struct master *m, uint32_t slot)
{
    const struct role_spec *role = job_slot_role(m->job, slot);
    return role ? role->memory_mib << 20 : 0;
}

void metrics_task_members(const struct master *m, uint32_t slot, struct buf *out)
{
    uint32_t task;
    const struct task_state *s = find_task(m->metrics, slot, &task);
    size_t n;
    if (!s)
        return;
    const struct metrics_cell *v = metrics_cells(m->metrics->table, task, &n);
    if (n == 0)
        return;
    (void)buf_adds(out, ",\"metrics\":{");
    for (size_t i = 0, shown = 0; i < n; i++)
        if (!v[i].past)
            (void)buf_addf(out, "%s\"%s\":%.15g", shown++ ? "," : "",
                           metrics_name_text(m->metrics->table, v[i].name), v[i].value);
    (void)buf_addc(out, '}');
    double cpu = cpu_percent(m, s);
    if (cpu >= 0)
        (void)buf_addf(out, ",\"cpu_percent\":%.1f", cpu);
    uint64_t limit = memory_limit(m, slot);
    if (limit)
        (void)buf_addf(out, ",\"memory_limit_bytes\":%llu", (unsigned long long)limit);
}

/* ---- OpenMetrics ---- */

/* A family of samples: one for each task, or one for each GPU of each task. */
struct family {
    const char *name, *type, *help;
    const char *metric; /* of the table, without "gpu<N>_" */
    double unit;        /* the value is multiplied with this */
    bool of_gpu;
};

static const struct family families[] = {
    { "tony_task_memory_bytes", "gauge", "Resident memory of all processes of the task.",
      "memory_bytes", 1, false },
    { "tony_task_memory_peak_bytes", "gauge", "Largest resident memory so far.",
      "memory_peak_bytes", 1, false },
    { "tony_task_cpu_seconds", "counter", "CPU time of all processes of the attempt.", "cpu_ms",
      0.001, false },
    { "tony_task_read_bytes", "counter", "Bytes read from disks.", "read_bytes", 1, false },
    { "tony_task_written_bytes", "counter", "Bytes written to disks.", "written_bytes", 1, false },
    { "tony_task_threads", "gauge", "Threads of all processes.", "threads", 1, false },
    { "tony_task_step", "gauge", "Last step that the task has reported.", "step", 1, false },
    { "tony_task_gpu_utilization_ratio", "gauge", "Share of the time in which a kernel ran.",
      "percent", 0.01, true },
    { "tony_task_gpu_memory_bytes", "gauge", "Memory of the GPU in use.", "memory_bytes", 1, true },
    { "tony_task_gpu_power_watts", "gauge", "Power of the GPU.", "power_watts", 1, true },
    { "tony_task_gpu_temperature_celsius", "gauge", "Temperature of the GPU.",
      "temperature_celsius", 1, true },
};

static void add_family(const struct master *m, const struct family *f, bool open, struct buf *out)
{
    const struct master_metrics *x = m->metrics;
    bool counter = str_eq(f->type, "counter");
    (void)metrics_text_family(out, open, f->name, f->type, f->help);
    for (size_t i = 0; i < x->tasks.n; i++) {
        size_t n;
        const struct metrics_cell *v = metrics_cells(x->table, (uint32_t)i, &n);
        for (size_t k = 0; x->tasks.v[i].live && k < n; k++) {
            struct span name = span_of(metrics_name_text(x->table, v[k].name));
            unsigned gpu;
            enum metric_gpu which;
            bool of_gpu = metric_is_gpu(name, &gpu, &which);
            if (!v[k].live || of_gpu != f->of_gpu ||
                !(of_gpu ? str_eq(metric_of_gpu[which].name, f->metric)
                         : span_eqs(name, f->metric)))
                continue;
            (void)buf_addf(out, "%s%s{application_id=\"%s\",task=\"%s\"", f->name,
                           counter ? "_total" : "", m->application_id,
                           metrics_task_label(x->table, (uint32_t)i));
            if (of_gpu)
                (void)buf_addf(out, ",gpu=\"%u\"", gpu);
            (void)buf_addf(out, "} %.15g\n", v[k].value * f->unit);
        }
    }
}

static bool is_own(struct span name)
{
    return metric_name_check(name, NULL) == 0;
}

static void add_own(const struct master *m, bool open, struct buf *out)
{
    const struct master_metrics *x = m->metrics;
    unsigned n_shown = 0;
    (void)metrics_text_family(out, open, METRICS_TEXT_VALUE, "gauge",
                              "A number that the program of the task reports.");
    for (uint32_t name = 0; name < metrics_n_names(x->table) && n_shown < METRICS_TEXT_NAMES_MAX;
         name++) {
        const char *text = metrics_name_text(x->table, name);
        if (!is_own(span_of(text)))
            continue;
        n_shown++;
        for (size_t i = 0; i < x->tasks.n; i++) {
            const struct metrics_cell *c = metrics_find(x->table, (uint32_t)i, text);
            if (c && c->live)
                (void)buf_addf(out,
                               METRICS_TEXT_VALUE "{application_id=\"%s\",task=\"%s\",name=\"%s\"} "
                                                  "%.15g\n",
                               m->application_id, metrics_task_label(x->table, (uint32_t)i), text,
                               c->value);
        }
    }
}

int metrics_text(const struct master *m, bool open, struct buf *out)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < job_n_slots(m->job); i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        running += v.state == SLOT_RUNNING && !v.spare;
    }
    (void)metrics_text_family(out, open, "tony_job_tasks", "gauge", "Tasks of the job now.");
    (void)buf_addf(out, "tony_job_tasks{application_id=\"%s\"} %u\n", m->application_id,
                   job_n_tasks(m->job));
    (void)metrics_text_family(out, open, "tony_job_tasks_running", "gauge", "Tasks that run.");
    (void)buf_addf(out, "tony_job_tasks_running{application_id=\"%s\"} %u\n", m->application_id,
                   running);
    for (size_t i = 0; m->metrics && i < ARRAY_LEN(families); i++)
        add_family(m, &families[i], open, out);
    if (m->metrics)
        add_own(m, open, out);
    return metrics_text_end(out, open);
}

/* The sums over the running tasks. */
void metrics_job_members(const struct master *m, struct buf *out)
{
    const struct master_metrics *x = m->metrics;
    double memory = 0, limit = 0, cpu = 0, gpu = 0;
    unsigned n = 0, n_gpus = 0;
    for (size_t i = 0; x && i < x->tasks.n; i++) {
        size_t n_cells;
        const struct metrics_cell *v = metrics_cells(x->table, (uint32_t)i, &n_cells);
        if (!x->tasks.v[i].live)
            continue;
        n++;
        cpu += MAX(cpu_percent(m, &x->tasks.v[i]), 0.0);
        limit += (double)memory_limit(m, x->tasks.v[i].slot);
        for (size_t k = 0; k < n_cells; k++) {
            struct span name = span_of(metrics_name_text(x->table, v[k].name));
            unsigned device;
            enum metric_gpu which;
            if (span_eqs(name, metric_built_in[METRIC_MEMORY].name)) {
                memory += v[k].value;
            } else if (metric_is_gpu(name, &device, &which) && which == METRIC_GPU_PERCENT) {
                gpu += v[k].value;
                n_gpus++;
            }
        }
    }
    if (n)
        (void)buf_addf(out,
                       ",\"usage\":{\"tasks\":%u,\"memory_bytes\":%.0f,"
                       "\"memory_limit_bytes\":%.0f,\"cpu_percent\":%.1f",
                       n, memory, limit, cpu);
    if (n && n_gpus)
        (void)buf_addf(out, ",\"gpus\":%u,\"gpu_percent\":%.1f", n_gpus, gpu / n_gpus);
    if (n)
        (void)buf_addc(out, '}');
}
