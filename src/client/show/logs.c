/* SPDX-License-Identifier: Apache-2.0 */
/*
 * logs: prints what tasks wrote. Several logs that are read to their ends come one after the other,
 * each with a heading. If their lines come mixed, with --follow or --grep, each line begins with
 * the name of its task.
 */
#include <errno.h>
#include <regex.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/job/output.h"
#include "client/show/lines.h"

enum { TASKS_MAX = 1000, GREP_ERROR_MAX = 120 };

struct printing {
    struct client *c;
    bool mixed; /* lines of several logs may come mixed */
    regex_t grep;
    bool has_grep;
    bool terminal;       /* it gets no escape sequences that do more than colour */
    struct lines *lines; /* NULL = text is printed as it comes */
    char last[200];      /* heading of the text that was printed last; "" = none */
    struct cluster_log_choice tasks[TASKS_MAX];
};

static int put(const char *p, size_t n, bool is_stderr, void *arg)
{
    (void)is_stderr;
    (void)arg;
    return fs_write_all(STDOUT_FILENO, p, n);
}

static int add_lines(struct printing *p, const struct cluster_log_text *t)
{
    const struct lines_config cfg = { .prefix = t->several && (p->has_grep || p->mixed),
                                      .color = p->c->out_color,
                                      .terminal = p->terminal,
                                      .grep = p->has_grep ? &p->grep : NULL,
                                      .put = put };
    if (!p->lines && !(p->lines = lines_new(&cfg)))
        return -ENOMEM;
    return lines_add(p->lines, t, clock_mono_ms());
}

static int print_text(const struct cluster_log_text *t, void *arg)
{
    struct printing *p = arg;
    char head[sizeof p->last];
    if (p->has_grep || (p->mixed && t->several))
        return add_lines(p, t);
    (void)snprintf(head, sizeof head, t->rank ? "%s %s.%u" : "%s %s", t->task, t->stream, t->rank);
    if (t->several && !str_eq(p->last, head)) {
        AUTO(buf_done) struct buf line = { 0 };
        if (p->lines)
            (void)lines_end(p->lines); /* if this fails, the next write fails, too */
        (void)buf_addf(&line, "%s==> %s <==\n", p->last[0] ? "\n" : "", head);
        /* If this fails, writing the text fails too, and is reported. */
        (void)fs_write_all(STDOUT_FILENO, line.p, line.len);
    }
    (void)str_copy(p->last, sizeof p->last, head);
    return p->terminal ? add_lines(p, t) : fs_write_all(STDOUT_FILENO, t->text.p, t->text.len);
}

static int read_grep(const struct options *o, struct printing *p, struct err *e)
{
    const char *pattern = options_get(o, OPT_GREP);
    char why[GREP_ERROR_MAX];
    if (!pattern)
        return 0;
    int rc = regcomp(&p->grep, pattern, REG_EXTENDED);
    p->has_grep = rc == 0;
    if (rc == 0)
        return 0;
    (void)regerror(rc, &p->grep, why, sizeof why);
    (void)err_set(e, EINVAL, "'%s' is not a regular expression: %s", pattern, why);
    return -EXIT_MISUSE;
}

static int read_since(const struct options *o, struct cluster_log_wish *w, struct err *e)
{
    const char *since = options_get(o, OPT_SINCE);
    int64_t ago;
    if (!since)
        return 0;
    if (str_ms(span_of(since), 1, INT64_C(315360000000), "--since", &ago, e) < 0)
        return -EXIT_MISUSE;
    w->since_ms = clock_wall_ms() - ago;
    return 0;
}

static int read_wish(const struct options *o, struct printing *p, struct cluster_log_wish *w,
                     struct err *e)
{
    w->want_stdout = options_has(o, OPT_STDOUT) || !options_has(o, OPT_STDERR);
    w->want_stderr = options_has(o, OPT_STDERR) || !options_has(o, OPT_STDOUT);
    w->follow = options_has(o, OPT_FOLLOW);
    if (options_int(o, OPT_N, 0, INT32_MAX, -1, &w->lines, e) < 0 ||
        options_int(o, OPT_ATTEMPT, 1, UINT32_MAX, 0, &w->attempt, e) < 0 ||
        options_int(o, OPT_RANK, 0, UINT16_MAX, -1, &w->rank, e) < 0)
        return -EXIT_MISUSE;
    w->tasks = p->tasks;
    for (size_t i = 1; i < o->n_args; i++)
        if (log_choice_parse(o->args[i], strlen(o->args[i]), &p->tasks[w->n_tasks++], e) < 0)
            return -EXIT_MISUSE;
    int rc = read_grep(o, p, e);
    return rc < 0 ? rc : read_since(o, w, e);
}

int cmd_logs(struct client *c)
{
    struct err e = { 0 };
    struct cluster_log_wish w = { 0 };
    struct printing *p = calloc(1, sizeof *p);
    char id[APP_ID_MAX];
    struct cluster *k = NULL;
    if (!p) {
        (void)err_set(&e, ENOMEM, "cannot read the logs: %m");
        return client_fail(EXIT_CLUSTER, &e);
    }
    p->c = c;
    p->mixed = options_has(&c->o, OPT_FOLLOW);
    p->terminal = isatty(STDOUT_FILENO);
    int rc = read_wish(&c->o, p, &w, &e);
    if (rc == 0)
        rc = client_find(c, c->o.args[0], &k, id, &e);
    if (rc == 0)
        rc = cluster_ops_of(k)->logs(k, id, &w, print_text, p, &e);
    if (p->lines && lines_end(p->lines) < 0 && rc == 0)
        rc = -EXIT_CLUSTER;
    /* EPIPE: the reader has closed the pipe, as `head` does. */
    int code = rc < 0 && e.num != EPIPE ? client_fail(-rc, &e) : EXIT_DONE;
    lines_free(p->lines);
    if (p->has_grep)
        regfree(&p->grep);
    free(p);
    return code;
}
