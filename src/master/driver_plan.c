/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Horovod's debug mode: a program of the user's, the driver, has the rendezvous server. It writes a
 * plan, which says which task is which rank. The driver's executor sends the plan to the master,
 * and the master sends it to the tasks with Start. Each generation has a plan of its own.
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

void driver_plan_clear(struct master *m)
{
    free(TAKE(m->driver_plan.text));
    vec_done(&m->driver_plan.waiting_starts);
    m->driver_plan.address[0] = '\0';
}

static void begin_generation(struct master *m, uint32_t generation)
{
    if (m->driver_plan.generation == generation)
        return;
    driver_plan_clear(m);
    m->driver_plan.generation = generation;
}

/* The core starts the ranks when the driver is ready, and the plan comes with that message. But the
 * core of a new master repeats starts that an earlier master had decided. The driver's executor may
 * not have reconnected by then. */
bool driver_plan_delays_start(struct master *m, const struct act_start *a)
{
    if (!m->spec->horovod_driver)
        return false;
    begin_generation(m, a->generation);
    if (m->driver_plan.text || job_slot_role(m->job, a->slot)->kind != ROLE_TRACKED)
        return false;
    if (vec_push(&m->driver_plan.waiting_starts, *a) < 0)
        master_exit_now(m, MASTER_CRASHED);
    return true;
}

void driver_plan_received(struct master *m, uint32_t slot, const Tony__TaskWord *w)
{
    struct slot_view v;
    char host[HOST_SIZE];
    job_slot(m->job, slot, &v);
    if (!m->spec->horovod_driver || !v.address || w->generation != v.generation ||
        w->generation < m->driver_plan.generation || !runtime_host(v.address, host, sizeof host))
        return;
    begin_generation(m, w->generation);
    free(m->driver_plan.text);
    m->driver_plan.text = str_dup(w->plan);
    if (!m->driver_plan.text) {
        master_exit_now(m, MASTER_CRASHED);
        return;
    }
    (void)snprintf(m->driver_plan.address, sizeof m->driver_plan.address,
                   strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, w->plan_port);
    m->addresses_version++;
    log_event(LOG_INFO, "driver.planned", f_str("address", m->driver_plan.address),
              f_int("generation", w->generation));
    for (size_t i = 0; i < m->driver_plan.waiting_starts.n; i++) {
        const struct act_start a = m->driver_plan.waiting_starts.v[i];
        job_slot(m->job, a.slot, &v);
        if (v.generation == a.generation && v.attempt == a.attempt && v.state == SLOT_RUNNING)
            executor_start(m, &a);
    }
    m->driver_plan.waiting_starts.n = 0;
}
