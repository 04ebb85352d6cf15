/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the containers of a job on a cluster are: node and log URL. Only people need them, the core
 * does not. The scheduler reports them with each container, and again to a new master.
 *
 * Also the status document, to which this file adds the locations.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/json.h"
#include "history/history.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"

struct location {
    char *container, *node, *log_url; /* NULL = not known */
    uint64_t granted_n; /* the journal record that tells of the grant; 0 = a copy has it */
};

static void location_done(struct location *p)
{
    free(p->container);
    free(p->node);
    free(p->log_url);
    *p = (struct location){ 0 };
}

int locations_open(struct master *m, struct err *e)
{
    uint32_t n = job_n_slots(m->job);
    m->locations = calloc(n ? n : 1, sizeof *m->locations);
    return m->locations ? 0 : err_set(e, ENOMEM, "no memory to start the master");
}

int locations_grow(struct master *m, uint32_t n, uint32_t to)
{
    if (!m->locations) /* on one machine, or locations_open() will follow */
        return 0;
    struct location *more = realloc(m->locations, ((size_t)to + 1) * sizeof *more);
    if (!more)
        return -ENOMEM;
    memset(more + n, 0, ((size_t)to + 1 - n) * sizeof *more);
    m->locations = more;
    return 0;
}

void locations_close(struct master *m)
{
    for (uint32_t i = 0; m->locations && i < m->n_slots; i++)
        location_done(&m->locations[i]);
    free(m->locations);
    m->locations = NULL;
}

void locations_set(struct master *m, const struct sched_container *c)
{
    uint32_t slot = job_slot_now(m->job, c->slot);
    if (!m->locations || slot >= job_n_slots(m->job))
        return;
    struct location *p = &m->locations[slot];
    if (p->container && str_eq(p->container, c->id))
        return;
    location_done(p);
    *p = (struct location){
        .container = str_dup(c->id), /* NULL if there is no memory: then it is not shown */
        .node = str_dup(c->node),
        .log_url = str_dup(c->log_url),
    };
}

void locations_granted(struct master *m, uint32_t slot, uint64_t record_n)
{
    if (m->locations)
        m->locations[slot].granted_n = record_n;
}

uint64_t locations_granted_n(const struct master *m, uint32_t slot)
{
    return m->locations ? m->locations[slot].granted_n : 0;
}

void locations_move(struct master *m, uint32_t slot, uint32_t from)
{
    if (!m->locations)
        return;
    location_done(&m->locations[slot]);
    m->locations[slot] = m->locations[from];
    m->locations[from] = (struct location){ 0 };
}

const char *locations_log_url(const struct master *m, uint32_t slot)
{
    return m->locations ? m->locations[slot].log_url : NULL;
}

const char *locations_node(const struct master *m, uint32_t slot)
{
    return m->locations ? m->locations[slot].node : NULL;
}

void locations_log_suffix(const struct master *m, uint32_t slot, char *out, size_t n)
{
    struct slot_view v;
    job_slot(m->job, slot, &v);
    out[0] = '\0';
    if (m->locations && v.attempt > v.elsewhere + 1)
        (void)snprintf(out, n, ".%u", v.attempt - v.elsewhere);
}

/* The caller frees it; NULL = no page. */
static char *master_tracking_url(const struct master *m)
{
    return m->host && m->page_port ? str_printf("http://%s:%u/", m->host, m->page_port) : NULL;
}

/* ---- the status document ---- */

static void add_str(struct buf *out, const char *key, const char *s)
{
    if (!s)
        return;
    (void)buf_addf(out, ",\"%s\":", key); /* a failure sets out->failed */
    (void)json_add_str(out, span_of(s));
}

static void add_job_members(struct buf *out, void *arg)
{
    const struct master *m = arg;
    add_str(out, "trouble", m->blocked_why);
    if (m->sched_ops && m->sched && m->sched_ops->awaits)
        add_str(out, "awaits", m->sched_ops->awaits(m->sched));
    metrics_job_members(m, out);
    ran_members(m, out);
    if (!m->remote)
        return;
    AUTO(free_p) char *url = master_tracking_url(m);
    add_str(out, "tracking_url", url);
    add_str(out, "container", m->remote->container_id);
    add_str(out, "node", m->remote->node);
    add_str(out, "log_url", m->remote->log_url);
}

static void add_task_members(uint32_t slot, struct buf *out, void *arg)
{
    const struct master *m = arg;
    char suffix[16];
    metrics_task_members(m, slot, out);
    if (!m->locations || !m->locations[slot].container)
        return;
    add_str(out, "node", locations_node(m, slot));
    add_str(out, "log_url", locations_log_url(m, slot));
    locations_log_suffix(m, slot, suffix, sizeof suffix);
    (void)buf_addf(out, ",\"logs\":[\"stdout%s\",\"stderr%s\"]", suffix, suffix);
}

int master_status_json(const struct master *m, bool full, bool for_all, struct buf *out)
{
    const struct job *job = m->job_on_disk ? m->job_on_disk->job : m->job;
    struct job_status_more more = { .no_tail = for_all,
                                    .now_ms = m->job_on_disk ? 0 : master_now(m) };
    more.of_job = add_job_members;
    more.of_task = add_task_members;
    more.arg = (void *)(uintptr_t)m;
    return job_status_json_more(job, full, &more, out);
}
