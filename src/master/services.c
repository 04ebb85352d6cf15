/*
 * The rendezvous server of the framework. It begins with the first task of a generation that is
 * started, and ends when one of the next is, or the job.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"
#include "rendezvous/service.h"
#include "runtime/runtime.h"

/* The tracked tasks in the order of their ranks, with the addresses that they have now. */
struct ranks {
    struct rt_role *roles;
    size_t n;
    const char **addresses; /* of all tasks, by slot; borrowed from the job */
    char *texts;            /* copies of them: views last till the next event only */
};

enum { ADDRESS_SIZE = 280 };

static void ranks_done(struct ranks *r)
{
    free(r->roles);
    free(r->addresses);
    free(r->texts);
}

static int ranks_open(const struct master *m, struct ranks *r)
{
    uint32_t n = job_n_tasks(m->job), at = 0;
    r->roles = master_roles(m, &r->n);
    r->addresses = calloc(n + 1, sizeof *r->addresses);
    r->texts = calloc(n + 1, ADDRESS_SIZE);
    if (!r->roles || !r->addresses || !r->texts)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        char *text = r->texts + (size_t)i * ADDRESS_SIZE;
        if (v.address)
            (void)str_copy(text, ADDRESS_SIZE, v.address);
        r->addresses[i] = text;
    }
    for (size_t i = 0; i < r->n; i++) {
        r->roles[i].addresses = r->addresses + at;
        at += r->roles[i].n;
    }
    return 0;
}

/* MPI_Abort: the rank does nothing more but wait for its end, which is to look as if it had exited
 * with that code. What follows for the job is what follows from any end of a task. */
static void on_abort(uint32_t rank, int exit_code, void *arg)
{
    struct master *m = arg;
    AUTO(ranks_done) struct ranks r = { 0 };
    struct rt_task t;
    log_event(LOG_WARN, "service.abort", f_int("rank", rank), f_int("code", exit_code));
    if (ranks_open(m, &r) < 0)
        return; /* it is heard of again, or stopped with the others */
    struct rt_walk w = { .roles = r.roles, .n = r.n };
    while (runtime_walk(&w, &t))
        if (rank >= t.rank && rank < t.rank + t.ranks) {
            uint32_t slot = t.index;
            for (uint32_t i = 0; i < t.role_index; i++)
                slot += r.roles[i].n;
            executor_exit_attempt(m, slot, rank - t.rank, exit_code & 0xff ? exit_code & 0xff : 1);
            return;
        }
}

struct rt_role *master_roles(const struct master *m, size_t *out_n)
{
    const struct job_spec *s = m->spec;
    struct rt_role *roles = calloc(s->n_roles + 1, sizeof *roles);
    for (size_t i = 0; roles && i < s->n_roles; i++)
        roles[i] = (struct rt_role){ .name = s->roles[i].name,
                                     .n = s->roles[i].instances,
                                     .kind = s->roles[i].kind,
                                     .ranks = s->roles[i].ranks };
    *out_n = s->n_roles;
    return roles;
}

static int start(struct master *m, const char *name, struct service_config *cfg, struct err *e)
{
    AUTO(ranks_done) struct ranks r = { 0 };
    struct rt_task t;
    AUTO(free_p) const char **hosts = calloc(cfg->n_ranks + 1, sizeof *hosts);
    AUTO(free_p) char *texts = calloc(cfg->n_ranks + 1, ADDRESS_SIZE);
    if (!hosts || !texts || ranks_open(m, &r) < 0)
        return err_set(e, ENOMEM, "no memory for a rendezvous server");
    struct rt_walk w = { .roles = r.roles, .n = r.n };
    while (runtime_walk(&w, &t))
        for (uint32_t i = t.rank; i < t.rank + t.ranks && i < cfg->n_ranks; i++) {
            char *text = texts + (size_t)i * ADDRESS_SIZE;
            hosts[i] = runtime_host(t.address, text, ADDRESS_SIZE) ? text : "";
        }
    cfg->hosts = hosts;
    return service_start(name, cfg, &m->service.s, e);
}

static bool wanted(const struct master *m, const struct runtime *rt, uint32_t *out_ranks)
{
    const struct job_spec *s = m->spec;
    if (!rt || !rt->service || s->single_node || s->horovod_driver || s->horovod_fast_fail)
        return false;
    size_t n;
    AUTO(free_p) struct rt_role *roles = master_roles(m, &n);
    if (!roles)
        return false; /* the task's environment says that there is none */
    *out_ranks = runtime_world_size(roles, n);
    return *out_ranks >= MAX(rt->service_from, 1u);
}

void service_ensure(struct master *m, uint32_t generation)
{
    if (m->service.generation == generation)
        return;
    services_close(m);
    m->service.generation = generation;
    const struct runtime *rt = runtime_find(m->spec->framework);
    struct service_config cfg = {
        .loop = m->loop,
        .host = m->remote ? m->host : "127.0.0.1",
        .application_id = m->application_id,
        .generation = generation,
        .on_abort = on_abort,
        .arg = m,
    };
    if (!wanted(m, rt, &cfg.n_ranks))
        return;
    struct err e = { 0 };
    if (start(m, rt->service, &cfg, &e) < 0) {
        log_err(LOG_ERROR, "service.failed", &e); /* a task that needs it says that it is missing */
        return;
    }
    (void)snprintf(m->service.address, sizeof m->service.address,
                   strchr(cfg.host, ':') ? "[%s]:%u" : "%s:%u", cfg.host,
                   service_port(m->service.s));
    log_event(LOG_INFO, "service.started", f_str("name", rt->service),
              f_str("address", m->service.address), f_int("generation", generation));
}

/* The gate before the ranks opens when the driver is ready, and its plan comes with that. But a new
 * master is asked to start again what its predecessor had decided, perhaps before the driver has
 * found it. */
bool service_awaits_plan(struct master *m, const struct job_action *a)
{
    if (!m->spec->horovod_driver || m->service.plan ||
        job_slot_role(m->job, a->slot)->kind != ROLE_TRACKED)
        return false;
    if (vec_push(&m->service.held, *a) < 0)
        master_exit_now(m, MASTER_CRASHED);
    return true;
}

void service_planned(struct master *m, uint32_t slot, const Tony__TaskWord *w)
{
    struct slot_view v;
    char host[ADDRESS_SIZE];
    job_slot(m->job, slot, &v);
    if (!m->spec->horovod_driver || !v.address || w->generation != v.generation ||
        w->generation < m->service.generation || !runtime_host(v.address, host, sizeof host))
        return;
    service_ensure(m, w->generation);
    free(m->service.plan);
    m->service.plan = str_dup(w->plan);
    if (!m->service.plan) {
        master_exit_now(m, MASTER_CRASHED);
        return;
    }
    (void)snprintf(m->service.address, sizeof m->service.address,
                   strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, w->plan_port);
    m->addresses_version++;
    log_event(LOG_INFO, "service.planned", f_str("address", m->service.address),
              f_int("generation", w->generation));
    for (size_t i = 0; i < m->service.held.n; i++) {
        const struct job_action a = m->service.held.v[i];
        job_slot(m->job, a.slot, &v);
        if (v.generation == a.generation && v.attempt == a.attempt && v.state == SLOT_RUNNING)
            executor_start(m, &a);
    }
    m->service.held.n = 0;
}

void services_close(struct master *m)
{
    service_stop(TAKE(m->service.s));
    free(TAKE(m->service.plan));
    vec_done(&m->service.held);
    m->service.address[0] = '\0';
}
