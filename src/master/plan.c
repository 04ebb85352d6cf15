/*
 * Horovod's debug mode: a driver of the user's has the rendezvous server, and its plan says which
 * task is which rank. Both belong to one generation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"
#include "runtime/runtime.h"

enum { HOST_SIZE = 280 };

void plan_forget(struct master *m)
{
    free(TAKE(m->plan.text));
    vec_done(&m->plan.held);
    m->plan.address[0] = '\0';
}

static void renew(struct master *m, uint32_t generation)
{
    if (m->plan.generation == generation)
        return;
    plan_forget(m);
    m->plan.generation = generation;
}

/* The gate before the ranks opens when the driver is ready, and its plan comes with that. But a new
 * master is asked to start again what its predecessor had decided, perhaps before the driver has
 * found it. */
bool plan_awaited(struct master *m, const struct job_action *a)
{
    if (!m->spec->horovod_driver)
        return false;
    renew(m, a->generation);
    if (m->plan.text || job_slot_role(m->job, a->slot)->kind != ROLE_TRACKED)
        return false;
    if (vec_push(&m->plan.held, *a) < 0)
        master_exit_now(m, MASTER_CRASHED);
    return true;
}

void plan_told(struct master *m, uint32_t slot, const Tony__TaskWord *w)
{
    struct slot_view v;
    char host[HOST_SIZE];
    job_slot(m->job, slot, &v);
    if (!m->spec->horovod_driver || !v.address || w->generation != v.generation ||
        w->generation < m->plan.generation || !runtime_host(v.address, host, sizeof host))
        return;
    renew(m, w->generation);
    free(m->plan.text);
    m->plan.text = str_dup(w->plan);
    if (!m->plan.text) {
        master_exit_now(m, MASTER_CRASHED);
        return;
    }
    (void)snprintf(m->plan.address, sizeof m->plan.address, strchr(host, ':') ? "[%s]:%u" : "%s:%u",
                   host, w->plan_port);
    m->addresses_version++;
    log_event(LOG_INFO, "driver.planned", f_str("address", m->plan.address),
              f_int("generation", w->generation));
    for (size_t i = 0; i < m->plan.held.n; i++) {
        const struct job_action a = m->plan.held.v[i];
        job_slot(m->job, a.slot, &v);
        if (v.generation == a.generation && v.attempt == a.attempt && v.state == SLOT_RUNNING)
            executor_start(m, &a);
    }
    m->plan.held.n = 0;
}
