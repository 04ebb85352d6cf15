/*
 * Where the containers of a job on a cluster are: not the core's business, but what people want to
 * know first. It comes from the scheduler with each container, again when a new master is told of
 * them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/json.h"
#include "history/history.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"

struct place {
    char *container, *node, *log_url; /* NULL = not known */
};

static void place_done(struct place *p)
{
    free(p->container);
    free(p->node);
    free(p->log_url);
    *p = (struct place){ 0 };
}

int places_open(struct master *m, struct err *e)
{
    uint32_t n = job_n_slots(m->job);
    m->places = calloc(n ? n : 1, sizeof *m->places);
    return m->places ? 0 : err_set(e, ENOMEM, "no memory to start the master");
}

void places_close(struct master *m)
{
    for (uint32_t i = 0; m->places && i < job_n_slots(m->job); i++)
        place_done(&m->places[i]);
    free(m->places);
    m->places = NULL;
}

void places_seen(struct master *m, const struct sched_container *c)
{
    uint32_t slot = job_slot_now(m->job, c->slot);
    if (!m->places || slot >= job_n_slots(m->job))
        return;
    struct place *p = &m->places[slot];
    if (p->container && str_eq(p->container, c->id))
        return;
    place_done(p);
    *p = (struct place){
        .container = str_dup(c->id), /* no memory: it is shown without */
        .node = str_dup(c->node),
        .log_url = str_dup(c->log_url),
    };
}

void places_move(struct master *m, uint32_t slot, uint32_t from)
{
    if (!m->places)
        return;
    place_done(&m->places[slot]);
    m->places[slot] = m->places[from];
    m->places[from] = (struct place){ 0 };
}

const char *places_log_url(const struct master *m, uint32_t slot)
{
    return m->places ? m->places[slot].log_url : NULL;
}

const char *places_node(const struct master *m, uint32_t slot)
{
    return m->places ? m->places[slot].node : NULL;
}

void places_log_suffix(const struct master *m, uint32_t slot, char *out, size_t n)
{
    struct slot_view v;
    job_slot(m->job, slot, &v);
    out[0] = '\0';
    if (m->places && v.attempt > v.elsewhere + 1)
        (void)snprintf(out, n, ".%u", v.attempt - v.elsewhere);
}

char *places_tracking_url(const struct master *m)
{
    return m->host && m->page_port ? str_printf("http://%s:%u/", m->host, m->page_port) : NULL;
}

/* ---- the status document ---- */

static void add_str(struct buf *out, const char *key, const char *s)
{
    if (!s)
        return;
    (void)buf_addf(out, ",\"%s\":", key); /* a failed append shows in out->failed */
    (void)json_add_str(out, span_of(s));
}

static void of_job(struct buf *out, void *arg)
{
    const struct master *m = arg;
    add_str(out, "trouble", m->blocked_why);
    if (!m->remote)
        return;
    AUTO(free_p) char *url = places_tracking_url(m);
    add_str(out, "tracking_url", url);
    add_str(out, "container", m->remote->container_id);
    add_str(out, "node", m->remote->node);
    add_str(out, "log_url", m->remote->log_url);
}

static void of_task(uint32_t slot, struct buf *out, void *arg)
{
    const struct master *m = arg;
    char suffix[16];
    if (!m->places[slot].container)
        return;
    add_str(out, "node", places_node(m, slot));
    add_str(out, "log_url", places_log_url(m, slot));
    places_log_suffix(m, slot, suffix, sizeof suffix);
    (void)buf_addf(out, ",\"logs\":[\"stdout%s\",\"stderr%s\"]", suffix, suffix);
}

int master_status_json(const struct master *m, bool full, bool for_all, struct buf *out)
{
    const struct job *job = m->stands ? m->stands->job : m->job;
    struct job_status_more more = { .no_tail = for_all, .now_ms = m->stands ? 0 : master_now(m) };
    more.of_job = of_job;
    more.of_task = m->remote ? of_task : NULL;
    more.arg = (void *)(uintptr_t)m;
    return job_status_json_more(job, full, &more, out);
}
