/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait for several jobs: until all are over, or the first one.
 *
 * tony asks the cluster of each job for a report about it. The jobs may be on different clusters.
 */
#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/job/jobconf.h"

enum {
    LOOK_MIN_MS = 50,   /* pause between two reports; it doubles while no job ends */
    LOOK_MAX_MS = 1000, /* the longest pause */
};

struct waited {
    struct cluster *k; /* owned by the first job of its cluster */
    bool owns, over;
    bool silent; /* its cluster does not answer, and the user was told */
    char id[APP_ID_MAX];
};

struct waiting {
    struct waited *v;
    size_t n, n_over;
};

static void waiting_done(struct waiting *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->v[i].owns)
            cluster_ops_close(w->v[i].k);
    free(w->v);
    *w = (struct waiting){ 0 };
}

/* Find a job. Jobs of one cluster share the connection to it. */
static int add_job(struct client *c, const char *word, struct waiting *w, struct err *e)
{
    struct waited *x = &w->v[w->n];
    int rc = client_find(c, word, &x->k, x->id, e);
    c->cluster = NULL; /* x has it now */
    if (rc < 0) {
        cluster_ops_close(TAKE(x->k));
        return rc;
    }
    x->owns = true;
    for (size_t i = 0; x->owns && i < w->n; i++) {
        if (cluster_ops_of(w->v[i].k) != cluster_ops_of(x->k))
            continue;
        cluster_ops_close(x->k);
        x->k = w->v[i].k;
        x->owns = false;
    }
    w->n++;
    return 0;
}

/* Get the reports of all jobs once. Returns the number of jobs that are over, or minus the exit
 * code. *out_first: the first job that has ended since the last call. */
static int look(struct waiting *w, struct waited **out_first, struct err *e)
{
    int n = 0;
    *out_first = NULL;
    for (size_t i = 0; i < w->n; i++) {
        struct waited *x = &w->v[i];
        struct cluster_report r = { 0 };
        struct err why = { 0 };
        int rc = x->over ? 0 : cluster_ops_of(x->k)->report(x->k, x->id, &r, &why);
        bool ended = rc == 0 && !x->over && r.phase == CLUSTER_OVER;
        cluster_report_done(&r);
        if (rc == -ENOENT || rc == -EINVAL) {
            *e = why;
            return -EXIT_MISUSE;
        }
        if (rc < 0 && !x->silent)
            client_note("job %s: %s; tony goes on asking", x->id, why.msg);
        x->silent = rc < 0;
        if (ended && !*out_first)
            *out_first = x;
        x->over = x->over || ended;
        n += x->over;
    }
    return n;
}

static int await(struct client *c, struct waiting *w, bool any, struct waited **out_first,
                 struct err *e)
{
    int64_t pause_ms = LOOK_MIN_MS;
    for (int before = 0;;) {
        int n = look(w, out_first, e);
        if (n < 0 || (any && n > 0) || n == (int)w->n)
            return n < 0 ? n : 0;
        pause_ms = n > before ? LOOK_MIN_MS : MIN(2 * pause_ms, (int64_t)LOOK_MAX_MS);
        before = n;
        host_pause(&c->host, pause_ms);
    }
}

/* Print all jobs, in the order of the command line. The exit code is the first one that is not 0.
 */
static int print_all(struct client *c, struct waiting *w, struct err *e)
{
    json_t *jobs = json_array();
    int code = EXIT_DONE;
    for (size_t i = 0; i < w->n; i++) {
        struct waited *x = &w->v[i];
        json_t *doc = NULL;
        if (cluster_ops_of(x->k)->status(x->k, x->id, &doc, e) < 0) {
            json_decref(jobs);
            return client_fail(EXIT_CLUSTER, e);
        }
        int its = (int)doc_int(doc, "exit_code", EXIT_CLUSTER);
        code = code ? code : its;
        if (!options_has(&c->o, OPT_JSON)) {
            json_t *shown = doc_shown(doc, false);
            (void)printf("%s %s%s%s\n", x->id, doc_str(shown, "state"),
                         *doc_str(shown, "message") ? ": " : "", doc_str(shown, "message"));
            json_decref(shown);
        }
        (void)json_array_append_new(jobs, doc);
    }
    int printed = EXIT_DONE;
    if (options_has(&c->o, OPT_JSON))
        printed = client_print_json(json_pack("{s:O}", "jobs", jobs));
    else
        printed = client_flush_stdout();
    json_decref(jobs);
    return printed ? printed : code;
}

int client_wait_several(struct client *c)
{
    struct err e = { 0 };
    struct waited *first = NULL;
    bool any = options_has(&c->o, OPT_ANY);
    if (any && options_has(&c->o, OPT_ALL)) {
        (void)err_set(&e, EINVAL, "only one of --any and --all can be given");
        return client_fail(EXIT_MISUSE, &e);
    }
    struct waiting w = { .v = calloc(c->o.n_args, sizeof *w.v) };
    int rc = w.v ? 0 : -EXIT_CLUSTER;
    if (rc < 0)
        (void)err_set(&e, ENOMEM, "no memory to wait for the jobs");
    for (size_t i = 0; rc == 0 && i < c->o.n_args; i++)
        rc = add_job(c, c->o.args[i], &w, &e);
    if (rc == 0)
        rc = await(c, &w, any, &first, &e);
    int code = rc < 0 ? client_fail(-rc, &e)
               : any  ? client_wait_one(c, first->k, first->id)
                      : print_all(c, &w, &e);
    waiting_done(&w);
    return code;
}
