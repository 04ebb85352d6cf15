/*
 * The rendezvous server of the framework. It begins with the first task of a generation that is
 * started, and ends when one of the next is, or the job.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "master/master_int.h"
#include "rendezvous/service.h"
#include "runtime/runtime.h"

/* Rank -> the task that has it. Ranks go by role, the chief's first, as in src/runtime. */
static void on_abort(uint32_t rank, int exit_code, void *arg)
{
    struct master *m = arg;
    log_event(LOG_WARN, "service.abort", f_int("rank", rank), f_int("code", exit_code));
    (void)m;
}

struct rt_role *master_roles(const struct master *m, size_t *out_n)
{
    const struct job_spec *s = m->spec;
    struct rt_role *roles = calloc(s->n_roles + 1, sizeof *roles);
    for (size_t i = 0; roles && i < s->n_roles; i++)
        roles[i] = (struct rt_role){ .name = s->roles[i].name,
                                     .n = s->roles[i].instances,
                                     .kind = s->roles[i].kind };
    *out_n = s->n_roles;
    return roles;
}

static bool wanted(const struct master *m, const struct runtime *rt, uint32_t *out_ranks)
{
    if (!rt || !rt->service || m->spec->single_node)
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
    if (service_start(rt->service, &cfg, &m->service.s, &e) < 0) {
        log_err(LOG_ERROR, "service.failed", &e); /* a task that needs it says that it is missing */
        return;
    }
    (void)snprintf(m->service.address, sizeof m->service.address,
                   strchr(cfg.host, ':') ? "[%s]:%u" : "%s:%u", cfg.host,
                   service_port(m->service.s));
    log_event(LOG_INFO, "service.started", f_str("name", rt->service),
              f_str("address", m->service.address), f_int("generation", generation));
}

void services_close(struct master *m)
{
    service_stop(TAKE(m->service.s));
    m->service.address[0] = '\0';
}
