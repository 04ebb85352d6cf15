/* SPDX-License-Identifier: Apache-2.0 */
/*
 * logs: prints what tasks wrote, with a heading for each log if there are several.
 */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"

struct printing {
    char last[200]; /* heading of the text that was printed last; "" = none */
};

static int print_text(const struct cluster_log_text *t, void *arg)
{
    struct printing *p = arg;
    char head[sizeof p->last];
    (void)snprintf(head, sizeof head, t->rank ? "%s %s.%u" : "%s %s", t->task, t->stream, t->rank);
    if (t->several && !str_eq(p->last, head)) {
        AUTO(buf_done) struct buf line = { 0 };
        (void)buf_addf(&line, "%s==> %s <==\n", p->last[0] ? "\n" : "", head);
        /* If this fails, writing the text fails too, and is reported. */
        (void)fs_write_all(STDOUT_FILENO, line.p, line.len);
    }
    (void)str_copy(p->last, sizeof p->last, head);
    return fs_write_all(STDOUT_FILENO, t->text.p, t->text.len);
}

static int read_wish(const struct options *o, struct cluster_log_wish *w, struct err *e)
{
    w->want_stdout = options_has(o, OPT_STDOUT) || !options_has(o, OPT_STDERR);
    w->want_stderr = options_has(o, OPT_STDERR) || !options_has(o, OPT_STDOUT);
    w->follow = options_has(o, OPT_FOLLOW);
    w->index = -1;
    if (options_int(o, OPT_N, 0, INT32_MAX, -1, &w->lines, e) < 0 ||
        options_int(o, OPT_ATTEMPT, 1, UINT32_MAX, 0, &w->attempt, e) < 0 ||
        options_int(o, OPT_RANK, 0, UINT16_MAX, -1, &w->rank, e) < 0)
        return -EXIT_MISUSE;
    if (o->n_args < 2)
        return 0;
    const char *colon = strrchr(o->args[1], ':');
    w->role = o->args[1];
    w->role_len = colon ? (size_t)(colon - w->role) : strlen(w->role);
    return colon && str_i64(span_of(colon + 1), 0, UINT32_MAX, "task index", &w->index, e) < 0
               ? -EXIT_MISUSE
               : 0;
}

int cmd_logs(struct client *c)
{
    struct err e = { 0 };
    struct cluster_log_wish w = { 0 };
    struct printing p = { "" };
    char id[APP_ID_MAX];
    struct cluster *k = NULL;
    int rc = read_wish(&c->o, &w, &e);
    if (rc == 0)
        rc = client_find(c, c->o.args[0], &k, id, &e);
    if (rc == 0)
        rc = cluster_ops_of(k)->logs(k, id, &w, print_text, &p, &e);
    return rc < 0 ? client_fail(-rc, &e) : EXIT_DONE;
}
