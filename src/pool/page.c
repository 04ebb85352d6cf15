/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of the pool: an HTTP server on the loopback interface, if tony.pool.page-port is set.
 * /metrics is text for Prometheus, with bounded labels: samples of the pool, of each live job, and
 * of its tasks. The pool asks the masters for those of the tasks (scrape.c).
 */
#include <errno.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "loop/http.h"
#include "metrics/metrics.h"
#include "pool/pool_int.h"

static void add_family(struct buf *out, const char *name, const char *help)
{
    /* A gauge is written in the same way for Prometheus and for OpenMetrics. */
    (void)metrics_text_family(out, true, name, "gauge", help);
}

static void add_pool(struct buf *out, const char *name, const char *help, double value)
{
    add_family(out, name, help);
    (void)buf_addf(out, "%s %.15g\n", name, value);
}

struct held { /* by all admitted jobs */
    double memory, vcores, gpus;
};

static struct held sum_held(const struct pool *p)
{
    struct held h = { 0 };
    for (size_t i = 0; i < p->jobs.n; i++) {
        const struct pool_job *j = p->jobs.v[i];
        if (!pool_job_admitted(j))
            continue;
        h.memory += (double)j->needs.memory_mib * 1048576;
        h.vcores += j->vcores;
        h.gpus += j->needs.gpus;
    }
    return h;
}

static void add_states(const struct pool *p, struct buf *out)
{
    add_family(out, "tony_pool_jobs", "Live jobs by state.");
    /* Several phases have the same name: one phase for each name. */
    static const enum job_phase one_of_each_name[] = { PH_WAITING, PH_STARTING, PH_LIVE };
    for (size_t k = 0; k < ARRAY_LEN(one_of_each_name); k++) {
        const char *name = pool_phase_name(one_of_each_name[k]);
        unsigned n = 0;
        for (size_t i = 0; i < p->jobs.n; i++)
            n += str_eq(pool_phase_name(p->jobs.v[i]->phase), name);
        (void)buf_addf(out, "tony_pool_jobs{state=\"%s\"} %u\n", name, n);
    }
}

struct job_family {
    const char *name, *help;
    double (*value)(const struct pool_job *j);
};

static double memory_of(const struct pool_job *j)
{
    return (double)j->needs.memory_mib * 1048576;
}

static double vcores_of(const struct pool_job *j)
{
    return j->vcores;
}

static double gpus_of(const struct pool_job *j)
{
    return j->needs.gpus;
}

static double is_admitted(const struct pool_job *j)
{
    return pool_job_admitted(j);
}

static void add_jobs(const struct pool *p, struct buf *out)
{
    static const struct job_family families[] = {
        { "tony_job_admitted", "1: the job holds its memory and GPUs; 0: it waits.", is_admitted },
        { "tony_job_memory_limit_bytes", "Memory that the job holds or waits for.", memory_of },
        { "tony_job_vcores", "Cores that the job holds or waits for.", vcores_of },
        { "tony_job_gpus", "GPUs that the job holds or waits for.", gpus_of },
    };
    for (size_t f = 0; f < ARRAY_LEN(families); f++) {
        add_family(out, families[f].name, families[f].help);
        for (size_t i = 0; i < p->jobs.n && i < PAGE_JOBS_MAX; i++)
            (void)buf_addf(out, "%s{application_id=\"%s\"} %.15g\n", families[f].name,
                           p->jobs.v[i]->id, families[f].value(p->jobs.v[i]));
    }
}

/* open: in the format OpenMetrics, else in that of Prometheus. */
int page_text(const struct pool *p, const struct metrics_merge *tasks, bool open, struct buf *out)
{
    const struct machine *m = &p->machine;
    struct held h = sum_held(p);
    add_pool(out, "tony_pool_memory_capacity_bytes", "Memory that the pool gives to jobs.",
             (double)m->memory_mib * 1048576);
    add_pool(out, "tony_pool_memory_held_bytes", "Memory that admitted jobs hold.", h.memory);
    add_pool(out, "tony_pool_vcores_capacity", "Cores that the pool gives to jobs.", m->vcores);
    add_pool(out, "tony_pool_vcores_held", "Cores that admitted jobs hold.", h.vcores);
    add_pool(out, "tony_pool_gpus_capacity", "GPUs that the pool gives to jobs.", m->n_gpus);
    add_pool(out, "tony_pool_gpus_held", "GPUs that admitted jobs hold.", h.gpus);
    add_states(p, out);
    add_jobs(p, out);
    (void)metrics_merge_text(tasks, open, out);
    return metrics_text_end(out, open);
}

static int answer_metrics(const char *path, const char *query, struct http_answer *a, void *arg,
                          struct err *e)
{
    (void)path;
    (void)query;
    return scrape_answer(arg, a, e);
}

static const struct http_page pages[] = { { "/metrics", answer_metrics } };

void page_open(struct pool *p)
{
    int64_t port = conf_int(p->conf, "tony.pool.page-port");
    struct err e = { 0 };
    if (port == 0)
        return;
    if (http_server_open(p->loop, "127.0.0.1", (uint16_t)port, pages, ARRAY_LEN(pages), p, &p->page,
                         &e) < 0)
        log_err(LOG_ERROR, "pool.page", &e); /* the pool works without its page */
    else
        log_event(LOG_INFO, "pool.page", f_int("port", port));
}

void page_close(struct pool *p)
{
    http_server_close(TAKE(p->page));
    scrape_stop(p);
}
