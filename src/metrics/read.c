/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of a series. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "base/vec.h"
#include "metrics/metrics_int.h"

struct number { /* the last number of one task and one name in this block */
    uint32_t name;
    int e;
    int64_t m, d;
};

struct block_task {
    uint32_t task;
    VEC(struct number) numbers; /* by the number of the name in this block, ascending */
};

struct metrics_reader {
    struct metrics *known; /* gives labels and names the same numbers in all blocks */
    VEC(struct block_task) tasks;
    VEC(uint32_t) names;
    size_t n_numbers;
    int64_t t_ms;    /* of the last OP_TIME in this block; 0 = none */
    int64_t last_ms; /* of the last OP_TIME in any block */
    bool begun;      /* an OP_RESET has come */
};

struct metrics_reader *metrics_reader_new(void)
{
    struct metrics_reader *r = calloc(1, sizeof *r);
    if (r && !(r->known = metrics_new())) {
        free(r);
        return NULL;
    }
    return r;
}

static void forget_block(struct metrics_reader *r)
{
    for (size_t i = 0; i < r->tasks.n; i++)
        vec_done(&r->tasks.v[i].numbers);
    r->tasks.n = r->names.n = r->n_numbers = 0;
    r->t_ms = 0;
}

void metrics_reader_free(struct metrics_reader *r)
{
    if (!r)
        return;
    forget_block(r);
    vec_done(&r->tasks);
    vec_done(&r->names);
    metrics_free(r->known);
    free(r);
}

uint32_t metrics_reader_n_tasks(const struct metrics_reader *r)
{
    return metrics_n_tasks(r->known);
}

uint32_t metrics_reader_n_names(const struct metrics_reader *r)
{
    return metrics_n_names(r->known);
}

const char *metrics_reader_label(const struct metrics_reader *r, uint32_t task)
{
    return metrics_task_label(r->known, task);
}

const char *metrics_reader_name(const struct metrics_reader *r, uint32_t name)
{
    return metrics_name_text(r->known, name);
}

enum metric_kind metrics_reader_kind(const struct metrics_reader *r, uint32_t name)
{
    return metrics_name_kind(r->known, name);
}

int64_t metrics_reader_time(const struct metrics_reader *r)
{
    return r->last_ms;
}

/* ---- one record ---- */

struct reading {
    struct metrics_reader *r;
    struct span in;
    const struct metrics_sink *sink;
    uint64_t last_task;
};

static bool get_byte(struct span *in, unsigned *out)
{
    if (in->len == 0)
        return false;
    *out = (unsigned char)*in->p++;
    in->len--;
    return true;
}

static bool get_text(struct span *in, size_t max, struct span *out)
{
    unsigned n;
    if (!get_byte(in, &n) || n == 0 || n > max || n > in->len || memchr(in->p, '\0', n) ||
        !span_utf8(span_mem(in->p, n), NULL))
        return false;
    *out = span_mem(in->p, n);
    in->p += n;
    in->len -= n;
    return true;
}

static int read_name(struct reading *x)
{
    unsigned kind;
    uint32_t name;
    struct span text;
    if (!get_byte(&x->in, &kind) || !get_text(&x->in, METRIC_NAME_MAX, &text) ||
        !metric_name_ok(text) || kind != (unsigned)metric_kind_of(text) ||
        x->r->names.n >= METRICS_NAMES_MAX)
        return -EBADMSG;
    int rc = metrics_name(x->r->known, text, &name);
    return rc < 0 ? rc == -ENOSPC ? -EBADMSG : rc : vec_push(&x->r->names, name);
}

static int read_task(struct reading *x)
{
    struct block_task t = { 0 };
    struct span label;
    if (!get_text(&x->in, METRICS_LABEL_MAX, &label) || x->r->tasks.n >= METRICS_TASKS_MAX)
        return -EBADMSG;
    int rc = metrics_task(x->r->known, label, &t.task);
    return rc < 0 ? rc == -ENOSPC ? -EBADMSG : rc : vec_push(&x->r->tasks, t);
}

static int read_time(struct reading *x)
{
    uint64_t v;
    int64_t t;
    if (!get_varint(&x->in, &v) || __builtin_add_overflow(x->r->t_ms, unzigzag(v), &t) || t < 0 ||
        t > NUMBER_MAX)
        return -EBADMSG;
    x->r->t_ms = x->r->last_ms = t;
    return 0;
}

static int read_gone(struct reading *x)
{
    uint64_t task;
    if (!get_varint(&x->in, &task) || task >= x->r->tasks.n)
        return -EBADMSG;
    return x->sink->gone ? x->sink->gone(x->sink->arg, x->r->tasks.v[task].task, x->r->t_ms) : 0;
}

/* Get the number of this name. If it is missing, add it with the value 0. NULL = no memory, or too
 * many names. */
static struct number *number_at(struct metrics_reader *r, struct block_task *t, uint32_t name)
{
    size_t low = name_at(t->numbers.v, t->numbers.n, sizeof *t->numbers.v, name);
    if (low < t->numbers.n && t->numbers.v[low].name == name)
        return &t->numbers.v[low];
    if (r->n_numbers >= METRICS_CELLS_MAX || vec_reserve(&t->numbers, t->numbers.n + 1) < 0)
        return NULL;
    struct number *v = t->numbers.v;
    memmove(v + low + 1, v + low, (t->numbers.n - low) * sizeof *v);
    v[low] = (struct number){ .name = name };
    t->numbers.n++;
    r->n_numbers++;
    return &v[low];
}

static int read_value(struct reading *x, struct block_task *t)
{
    struct metrics_reader *r = x->r;
    uint64_t name, head, whole;
    if (!get_varint(&x->in, &name) || name >= r->names.n || !get_varint(&x->in, &head))
        return -EBADMSG;
    enum metric_kind kind = metrics_name_kind(r->known, r->names.v[name]);
    struct number *n = number_at(r, t, (uint32_t)name);
    int64_t m;
    if (!n)
        return -ENOMEM;
    if (head & 1) {
        int64_t e = unzigzag(head >> 1);
        if (e < -EXPONENT_MAX || e > EXPONENT_MAX || !get_varint(&x->in, &whole))
            return -EBADMSG;
        m = unzigzag(whole);
        n->e = (int)e;
        n->d = 0;
    } else {
        if (__builtin_add_overflow(predict(kind, n->m, n->d), unzigzag(head >> 1), &m))
            return -EBADMSG;
        n->d = m >= -NUMBER_MAX && m <= NUMBER_MAX ? m - n->m : 0;
    }
    if (m < -NUMBER_MAX || m > NUMBER_MAX)
        return -EBADMSG;
    n->m = m;
    return x->sink->value ? x->sink->value(x->sink->arg, t->task, r->names.v[name], r->t_ms,
                                           number_value(m, n->e, kind))
                          : 0;
}

static int read_sample(struct reading *x, unsigned n)
{
    uint64_t v;
    int64_t task;
    if (!get_varint(&x->in, &v) ||
        __builtin_add_overflow((int64_t)x->last_task, unzigzag(v), &task) || task < 0 ||
        (uint64_t)task >= x->r->tasks.n)
        return -EBADMSG;
    x->last_task = (uint64_t)task;
    int rc = 0;
    for (; n > 0 && rc >= 0; n--)
        rc = read_value(x, &x->r->tasks.v[task]);
    return rc;
}

static int read_op(struct reading *x, unsigned op)
{
    if (!x->r->begun && op != OP_RESET)
        return -EBADMSG;
    if (op >= OP_SAMPLE)
        return read_sample(x, op - OP_SAMPLE + 1);
    switch (op) {
    case OP_RESET:
        x->r->begun = true;
        forget_block(x->r);
        return 0;
    case OP_NAME:
        return read_name(x);
    case OP_TASK:
        return read_task(x);
    case OP_TIME:
        return read_time(x);
    case OP_GONE:
        return read_gone(x);
    case OP_GAP:
        return x->sink->gap ? x->sink->gap(x->sink->arg, x->r->last_ms) : 0;
    default:
        return -EBADMSG;
    }
}

int metrics_read(struct metrics_reader *r, struct span record, const struct metrics_sink *sink,
                 struct err *e)
{
    struct reading x = { .r = r, .in = record, .sink = sink };
    unsigned op;
    int rc = 0;
    while (rc >= 0 && get_byte(&x.in, &op))
        rc = read_op(&x, op);
    if (rc == -EBADMSG)
        return err_set(e, EBADMSG, "a record of metrics is damaged");
    if (rc == -ENOMEM)
        return err_set(e, ENOMEM, "no memory to read metrics");
    return rc < 0 ? rc : 0;
}
