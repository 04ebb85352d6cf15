/* SPDX-License-Identifier: Apache-2.0 */
#include "client/show/lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "client/client_int.h"
#include "cluster/cluster.h"

enum {
    LINE_MAX_BYTES = 64 << 10, /* a longer line is written in parts */
    BAR_MS = 1000,             /* between two states of a progress bar */
    NAME_MAX_BYTES = 80,
};

struct log {
    char name[NAME_MAX_BYTES]; /* "worker:3", or "worker:3.1" for its rank 1 */
    bool is_stderr;
    uint32_t attempt;
    const char *color;
    struct buf part; /* the beginning of a line whose end has not arrived */
    int64_t bar_ms;  /* when a state of a progress bar was written last */
};

struct lines {
    struct lines_config cfg;
    VEC(struct log *) logs;
    size_t last; /* the index of the log whose text arrived last */
    size_t width;
    struct buf out;
    bool out_is_stderr;
};

/* ---- which log ---- */

/* The colour of a task. It depends only on the name of the task; tasks with consecutive indices
 * have different colours. */
static const char *color_of(const char *task)
{
    static const char *const colors[] = { "\033[36m", "\033[33m", "\033[32m",
                                          "\033[35m", "\033[34m", "\033[96m" };
    const char *colon = strrchr(task, ':');
    unsigned h = colon ? (unsigned)strtoul(colon + 1, NULL, 10) : 0;
    for (const char *p = task; *p && p != colon; p++)
        h = h * 31 + (unsigned char)*p;
    return colors[h % ARRAY_LEN(colors)];
}

static bool is_log(const struct log *x, const char *name, bool is_stderr)
{
    return x->is_stderr == is_stderr && str_eq(x->name, name);
}

static struct log *log_of(struct lines *l, const struct cluster_log_text *t)
{
    char name[NAME_MAX_BYTES];
    bool is_stderr = str_eq(t->stream, "stderr");
    (void)snprintf(name, sizeof name, t->rank ? "%.60s.%u" : "%.60s", t->task, t->rank);
    if (l->last < l->logs.n && is_log(l->logs.v[l->last], name, is_stderr))
        return l->logs.v[l->last];
    for (l->last = 0; l->last < l->logs.n; l->last++)
        if (is_log(l->logs.v[l->last], name, is_stderr))
            return l->logs.v[l->last];
    struct log *new = calloc(1, sizeof *new);
    if (!new || vec_push(&l->logs, new) < 0) {
        free(new);
        return NULL;
    }
    (void)str_copy(new->name, sizeof new->name, name);
    new->is_stderr = is_stderr;
    new->color = color_of(t->task);
    new->attempt = t->attempt;
    l->width = MAX(l->width, strlen(name));
    return new;
}

/* ---- putting out ---- */

static int flush(struct lines *l)
{
    int rc = l->out.failed ? -ENOMEM : 0;
    if (rc == 0 && l->out.len)
        rc = l->cfg.put(l->out.p, l->out.len, l->out_is_stderr, l->cfg.arg);
    buf_clear(&l->out);
    return rc;
}

static void add_prefix(struct lines *l, const struct log *x)
{
    if (l->cfg.prefix)
        (void)buf_addf(&l->out, "%s%-*s |%s ", l->cfg.color ? x->color : "", (int)l->width, x->name,
                       l->cfg.color ? "\033[0m" : "");
}

/* The part of a line that a terminal would show: a program that draws a progress bar writes over
 * its line with \r, so this is the text behind the last \r. */
static struct span visible(struct span line)
{
    while (line.len && line.p[line.len - 1] == '\r')
        line.len--;
    const char *back = line.len ? memrchr(line.p, '\r', line.len) : NULL;
    return back ? span_mem(back + 1, (size_t)(line.p + line.len - back - 1)) : line;
}

static bool matches(const struct lines *l, struct span line)
{
    regmatch_t m = { .rm_so = 0, .rm_eo = (regoff_t)line.len };
    return !l->cfg.grep || regexec(l->cfg.grep, line.p, 1, &m, REG_STARTEND) == 0;
}

static void add_line(struct lines *l, const struct log *x, struct span line)
{
    if (l->cfg.terminal)
        line = visible(line);
    if (!matches(l, span_mem(line.p ? line.p : "", line.len)))
        return;
    add_prefix(l, x);
    if (l->cfg.terminal)
        client_shown(&l->out, line, true);
    else
        (void)buf_add(&l->out, line.p, line.len);
    (void)buf_addc(&l->out, '\n');
}

static void add_part(struct lines *l, struct log *x)
{
    if (x->part.len)
        add_line(l, x, buf_span(&x->part));
    buf_clear(&x->part);
}

/* "1,204" */
static const char *grouped(uint64_t n, char out[32])
{
    char digits[24];
    size_t len = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)n), k = 0;
    for (size_t i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            out[k++] = ',';
        out[k++] = digits[i];
    }
    out[k] = 0;
    return out;
}

static void add_left_out(struct lines *l, const struct log *x, const struct cluster_log_text *t)
{
    char size[32], n[32];
    (void)str_size(t->left_bytes, size, sizeof size);
    add_prefix(l, x);
    if (!t->left_lines && !t->more_lines) /* the omitted bytes are a part of one long line */
        (void)buf_addf(&l->out, "[%s left out]\n", size);
    else
        (void)buf_addf(&l->out, "[%s%s line%s (%s) left out]\n", t->more_lines ? "more than " : "",
                       grouped(t->left_lines, n), t->left_lines == 1 ? "" : "s", size);
}

/* ---- taking text ---- */

/* A progress bar writes \r instead of \n: keep only its newest state, and what follows it. */
static void keep_newest_state(struct log *x)
{
    const char *p = x->part.p, *last = x->part.len ? memrchr(p, '\r', x->part.len) : NULL;
    const char *before = last && last > p ? memrchr(p, '\r', (size_t)(last - p)) : NULL;
    if (before)
        buf_consume(&x->part, (size_t)(before + 1 - p));
}

static int add_rest(struct lines *l, struct log *x, struct span rest)
{
    if (rest.len && buf_add(&x->part, rest.p, rest.len) < 0)
        return -ENOMEM;
    if (l->cfg.terminal)
        keep_newest_state(x);
    if (x->part.len > LINE_MAX_BYTES)
        add_part(l, x);
    return 0;
}

static void show_bar(struct lines *l, struct log *x, int64_t now_ms)
{
    const char *end = x->part.len ? memrchr(x->part.p, '\r', x->part.len) : NULL;
    if (!end || now_ms - x->bar_ms < BAR_MS)
        return;
    x->bar_ms = now_ms;
    size_t n = (size_t)(end - x->part.p);
    if (n)
        add_line(l, x, span_mem(x->part.p, n));
    buf_consume(&x->part, n + 1);
}

/* The task has ended: its lines without an end are complete. */
static void end_lines(struct lines *l, const struct cluster_log_text *t)
{
    size_t n = strlen(t->task);
    for (size_t i = 0; i < l->logs.n; i++)
        if (strncmp(l->logs.v[i]->name, t->task, n) == 0 &&
            (!l->logs.v[i]->name[n] || l->logs.v[i]->name[n] == '.'))
            add_part(l, l->logs.v[i]);
}

int lines_add(struct lines *l, const struct cluster_log_text *t, int64_t now_ms)
{
    struct log *x = log_of(l, t);
    struct span rest = t->text;
    int rc = 0;
    if (!x)
        return -ENOMEM;
    l->out_is_stderr = x->is_stderr;
    if (t->left_bytes || (t->attempt && x->attempt != t->attempt))
        add_part(l, x); /* the task writes nothing more, so this is the whole line */
    if (t->end)
        end_lines(l, t);
    x->attempt = t->attempt;
    if (t->left_bytes)
        add_left_out(l, x, t);
    for (const char *nl; rest.len && (nl = memchr(rest.p, '\n', rest.len));) {
        size_t n = (size_t)(nl - rest.p);
        if (x->part.len) {
            rc = buf_add(&x->part, rest.p, n) < 0 ? -ENOMEM : rc;
            add_part(l, x);
        } else {
            add_line(l, x, span_mem(rest.p, n));
        }
        rest = span_mem(nl + 1, rest.len - n - 1);
    }
    if (rc == 0)
        rc = add_rest(l, x, rest);
    if (l->cfg.terminal)
        show_bar(l, x, now_ms);
    int put = flush(l);
    return rc < 0 ? rc : put;
}

int lines_tick(struct lines *l, int64_t now_ms)
{
    int rc = 0;
    for (size_t i = 0; i < l->logs.n && l->cfg.terminal && rc == 0; i++) {
        l->out_is_stderr = l->logs.v[i]->is_stderr;
        show_bar(l, l->logs.v[i], now_ms);
        rc = flush(l);
    }
    return rc;
}

int lines_end(struct lines *l)
{
    int rc = 0;
    for (size_t i = 0; i < l->logs.n && rc == 0; i++) {
        l->out_is_stderr = l->logs.v[i]->is_stderr;
        add_part(l, l->logs.v[i]);
        rc = flush(l);
    }
    return rc;
}

struct lines *lines_new(const struct lines_config *cfg)
{
    struct lines *l = calloc(1, sizeof *l);
    if (l)
        l->cfg = *cfg;
    return l;
}

void lines_free(struct lines *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->logs.n; i++) {
        buf_done(&l->logs.v[i]->part);
        free(l->logs.v[i]);
    }
    vec_done(&l->logs);
    buf_done(&l->out);
    free(l);
}
