/* SPDX-License-Identifier: Apache-2.0 */
/* The latest values, and the writer of a series. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/util.h"
#include "base/vec.h"
#include "metrics/metrics_int.h"

enum { RECORD_SOFT = 64 << 10 }; /* a record ends with the task that makes it larger than this */

struct task {
    char *label;
    VEC(struct metrics_cell) cells; /* by ascending name */
    bool listed;                    /* the label of the task is in the current block */
    bool dirty;                     /* a cell of the task is dirty, or gone_due is set */
    bool gone_due;                  /* the end of the task is not written yet */
    uint32_t number;                /* of the task in the current block */
};

struct name {
    char *text;
    enum metric_kind kind;
    bool listed;
    uint32_t number;
};

struct metrics {
    struct map task_numbers, name_numbers; /* the values are 1 + the index */
    VEC(struct task) tasks;
    VEC(struct name) names;
    size_t n_cells;
    bool dirty, reset_due, gap_due;
    uint32_t n_listed_tasks, n_listed_names;
    int64_t t_ms;       /* of the last OP_TIME in this block */
    struct buf record;  /* the record that is being made */
    uint32_t last_task; /* the task of the last sample in `record` */
};

struct metrics *metrics_new(void)
{
    struct metrics *m = calloc(1, sizeof *m);
    if (m)
        m->reset_due = true;
    return m;
}

void metrics_free(struct metrics *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->tasks.n; i++) {
        free(m->tasks.v[i].label);
        vec_done(&m->tasks.v[i].cells);
    }
    for (size_t i = 0; i < m->names.n; i++)
        free(m->names.v[i].text);
    vec_done(&m->tasks);
    vec_done(&m->names);
    map_done(&m->task_numbers, NULL);
    map_done(&m->name_numbers, NULL);
    buf_done(&m->record);
    free(m);
}

/* ---- tasks and names ---- */

static void *as_value(size_t index)
{
    return (void *)(uintptr_t)(index + 1);
}

/* Look for a text in the map. 1: *out is its value. 0: it is missing, and *out_copy is a copy of it
 * for a new entry. -ENOMEM. */
static int look_up(const struct map *map, struct span text, uint32_t *out, char **out_copy)
{
    AUTO(free_p) char *copy = span_dup(text);
    if (!copy)
        return -ENOMEM;
    uintptr_t known = (uintptr_t)map_get(map, copy);
    if (known) {
        *out = (uint32_t)(known - 1);
        return 1;
    }
    *out_copy = TAKE(copy);
    return 0;
}

int metrics_task(struct metrics *m, struct span label, uint32_t *out)
{
    char *copy = NULL;
    int rc = look_up(&m->task_numbers, label, out, &copy);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    struct task t = { .label = copy };
    if (m->tasks.n >= METRICS_TASKS_MAX || label.len == 0 || label.len > METRICS_LABEL_MAX)
        rc = -ENOSPC;
    else if (map_set(&m->task_numbers, copy, as_value(m->tasks.n), NULL) < 0)
        rc = -ENOMEM;
    else if (vec_push(&m->tasks, t) < 0) {
        (void)map_remove(&m->task_numbers, copy);
        rc = -ENOMEM;
    }
    if (rc < 0) {
        free(copy);
        return rc;
    }
    *out = (uint32_t)m->tasks.n - 1;
    return 0;
}

int metrics_name(struct metrics *m, struct span name, uint32_t *out)
{
    char *copy = NULL;
    int rc = look_up(&m->name_numbers, name, out, &copy);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    struct name n = { .text = copy, .kind = metric_kind_of(name) };
    if (m->names.n >= METRICS_NAMES_MAX || !metric_name_ok(name))
        rc = -ENOSPC;
    else if (map_set(&m->name_numbers, copy, as_value(m->names.n), NULL) < 0)
        rc = -ENOMEM;
    else if (vec_push(&m->names, n) < 0) {
        (void)map_remove(&m->name_numbers, copy);
        rc = -ENOMEM;
    }
    if (rc < 0) {
        free(copy);
        return rc;
    }
    *out = (uint32_t)m->names.n - 1;
    return 0;
}

uint32_t metrics_n_tasks(const struct metrics *m)
{
    return (uint32_t)m->tasks.n;
}

uint32_t metrics_n_names(const struct metrics *m)
{
    return (uint32_t)m->names.n;
}

const char *metrics_task_label(const struct metrics *m, uint32_t task)
{
    return m->tasks.v[task].label;
}

const char *metrics_name_text(const struct metrics *m, uint32_t name)
{
    return m->names.v[name].text;
}

enum metric_kind metrics_name_kind(const struct metrics *m, uint32_t name)
{
    return m->names.v[name].kind;
}

/* ---- values ---- */

static size_t cell_at(const struct task *t, uint32_t name)
{
    return name_at(t->cells.v, t->cells.n, sizeof *t->cells.v, name);
}

int metrics_set(struct metrics *m, uint32_t task, uint32_t name, double value)
{
    struct task *t = &m->tasks.v[task];
    size_t at = cell_at(t, name);
    if (!isfinite(value))
        return -EINVAL;
    if (at == t->cells.n || t->cells.v[at].name != name) {
        if (m->n_cells >= METRICS_CELLS_MAX)
            return -ENOSPC;
        if (vec_reserve(&t->cells, t->cells.n + 1) < 0)
            return -ENOMEM;
        struct metrics_cell *v = t->cells.v;
        memmove(v + at + 1, v + at, (t->cells.n - at) * sizeof *v);
        v[at] = (struct metrics_cell){ .name = name };
        t->cells.n++;
        m->n_cells++;
    }
    struct metrics_cell *c = &t->cells.v[at];
    if (c->live && c->value == value)
        return 0;
    c->value = value;
    c->live = c->dirty = t->dirty = m->dirty = true;
    c->past = false;
    return 0;
}

void metrics_gone(struct metrics *m, uint32_t task)
{
    struct task *t = &m->tasks.v[task];
    bool any = false;
    for (size_t i = 0; i < t->cells.n; i++) {
        any |= t->cells.v[i].live;
        t->cells.v[i].live = false;
    }
    if (any)
        t->gone_due = t->dirty = m->dirty = true;
}

void metrics_forget(struct metrics *m, uint32_t task)
{
    struct task *t = &m->tasks.v[task];
    for (size_t i = 0; i < t->cells.n; i++)
        t->cells.v[i].past = !t->cells.v[i].live;
}

const struct metrics_cell *metrics_cells(const struct metrics *m, uint32_t task, size_t *out_n)
{
    *out_n = m->tasks.v[task].cells.n;
    return m->tasks.v[task].cells.v;
}

const struct metrics_cell *metrics_find(const struct metrics *m, uint32_t task, const char *name)
{
    uintptr_t known = (uintptr_t)map_get(&m->name_numbers, name);
    const struct task *t = &m->tasks.v[task];
    size_t at = known ? cell_at(t, (uint32_t)(known - 1)) : 0;
    return known && at < t->cells.n && t->cells.v[at].name == known - 1 ? &t->cells.v[at] : NULL;
}

/* ---- writing ---- */

bool metrics_is_dirty(const struct metrics *m)
{
    return m->dirty;
}

static void forget_changes(struct metrics *m)
{
    for (size_t i = 0; i < m->tasks.n; i++) {
        struct task *t = &m->tasks.v[i];
        t->dirty = t->gone_due = false;
        for (size_t k = 0; k < t->cells.n; k++)
            t->cells.v[k].live = t->cells.v[k].dirty = false;
    }
}

void metrics_begin_block(struct metrics *m, bool gap)
{
    if (gap)
        forget_changes(m);
    m->reset_due = m->dirty = true;
    m->gap_due |= gap;
}

/* Begin a block: forget what the last one contains, and mark all live values as not written. */
static void reset(struct metrics *m)
{
    (void)buf_addc(&m->record, OP_RESET);
    if (m->gap_due)
        (void)buf_addc(&m->record, OP_GAP);
    m->n_listed_tasks = m->n_listed_names = 0;
    m->t_ms = 0;
    for (size_t i = 0; i < m->names.n; i++)
        m->names.v[i].listed = false;
    for (size_t i = 0; i < m->tasks.n; i++) {
        struct task *t = &m->tasks.v[i];
        t->listed = false;
        for (size_t k = 0; k < t->cells.n; k++) {
            struct metrics_cell *c = &t->cells.v[k];
            c->dirty |= c->live;
            t->dirty |= c->live;
            c->m = c->d = c->e = 0;
        }
    }
}

static void put_text(struct buf *b, const char *text)
{
    size_t n = strlen(text);
    (void)buf_addc(b, (char)n); /* METRICS_LABEL_MAX and METRIC_NAME_MAX fit into one byte */
    (void)buf_add(b, text, n);
}

static void list_task(struct metrics *m, struct task *t)
{
    if (t->listed)
        return;
    t->listed = true;
    t->number = m->n_listed_tasks++;
    (void)buf_addc(&m->record, OP_TASK);
    put_text(&m->record, t->label);
}

static void list_names(struct metrics *m, const struct task *t)
{
    for (size_t i = 0; i < t->cells.n; i++) {
        struct name *n = &m->names.v[t->cells.v[i].name];
        if (!t->cells.v[i].dirty || n->listed)
            continue;
        n->listed = true;
        n->number = m->n_listed_names++;
        (void)buf_addc(&m->record, OP_NAME);
        (void)buf_addc(&m->record, (char)n->kind);
        put_text(&m->record, n->text);
    }
}

static void put_value(struct metrics *m, struct metrics_cell *c)
{
    const struct name *n = &m->names.v[c->name];
    int64_t number;
    int e;
    number_of(c->value, n->kind, &number, &e);
    (void)put_varint(&m->record, n->number);
    if (e == c->e) {
        int64_t delta = number - predict(n->kind, c->m, c->d);
        (void)put_varint(&m->record, zigzag(delta) << 1);
        c->d = number - c->m;
    } else {
        (void)put_varint(&m->record, zigzag(e) << 1 | 1);
        (void)put_varint(&m->record, zigzag(number));
        c->d = 0;
    }
    c->m = number;
    c->e = e;
    c->dirty = false;
}

/* Write the changed values of a task. live: those of series that continue; otherwise those of
 * series that have ended since the last record.
 */
static void put_sample(struct metrics *m, struct task *t, bool live)
{
    size_t n_dirty = 0;
    for (size_t i = 0; i < t->cells.n; i++)
        n_dirty += t->cells.v[i].dirty && t->cells.v[i].live == live;
    for (size_t i = 0; n_dirty > 0;) {
        size_t n = MIN(n_dirty, (size_t)SAMPLE_VALUES_MAX);
        (void)buf_addc(&m->record, (char)(OP_SAMPLE + n - 1));
        (void)put_varint(&m->record, zigzag((int64_t)t->number - (int64_t)m->last_task));
        m->last_task = t->number;
        n_dirty -= n;
        for (; n > 0; i++) {
            if (!t->cells.v[i].dirty || t->cells.v[i].live != live)
                continue;
            put_value(m, &t->cells.v[i]);
            n--;
        }
    }
}

static void put_task(struct metrics *m, struct task *t)
{
    list_task(m, t);
    list_names(m, t);
    put_sample(m, t, false);
    if (t->gone_due) {
        (void)buf_addc(&m->record, OP_GONE);
        (void)put_varint(&m->record, t->number);
    }
    put_sample(m, t, true);
    t->dirty = t->gone_due = false;
}

static int end_record(struct metrics *m, metrics_put_fn *put, void *arg)
{
    int rc = m->record.failed ? -ENOMEM : 0;
    if (rc == 0 && m->record.len > 0)
        rc = put(arg, buf_span(&m->record));
    buf_clear(&m->record);
    m->last_task = 0;
    return rc;
}

static void put_time(struct metrics *m, int64_t t_ms)
{
    (void)buf_addc(&m->record, OP_TIME);
    (void)put_varint(&m->record, zigzag(t_ms - m->t_ms));
    m->t_ms = t_ms;
}

int metrics_encode(struct metrics *m, int64_t t_ms, metrics_put_fn *put, void *arg)
{
    int rc = 0;
    if (!m->dirty)
        return 0;
    m->record.max = METRICS_RECORD_MAX;
    buf_clear(&m->record);
    m->last_task = 0;
    if (m->reset_due)
        reset(m);
    put_time(m, t_ms);
    for (size_t i = 0; i < m->tasks.n && rc == 0; i++) {
        struct task *t = &m->tasks.v[i];
        if (t->dirty)
            put_task(m, t);
        if (m->record.len > RECORD_SOFT)
            rc = end_record(m, put, arg);
    }
    if (rc == 0)
        rc = end_record(m, put, arg);
    if (rc < 0) {
        metrics_begin_block(m, false);
        return rc;
    }
    m->dirty = m->reset_due = m->gap_due = false;
    return 0;
}
