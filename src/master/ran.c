/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the job has asked for, run and shipped, for the digest in its final status (storage/plan.h):
 * the containers that this master has requested, and those that an earlier master has left in the
 * journal; and the settings that the executors got.
 */
#include <stdlib.h>

#include "base/buf.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"
#include "storage/jobfile.h"
#include "storage/plan.h"
#include "storage/store.h"

void ran_asked(struct master *m, const struct sched_ask *a)
{
    if (a->slot < m->n_slots)
        m->asked[a->slot] = (struct asked){ a->memory_mib, a->vcores, a->gpus, true };
}

void ran_continue(struct master *m)
{
    for (uint32_t i = 0; i < job_n_slots(m->job); i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        if (!m->asked[i].done && (v.attempt > 0 || v.container)) {
            const struct sched_ask a = sched_ask_of(m, i);
            ran_asked(m, &a);
        }
    }
}

/* Add the containers of a role: those with equal requests are one line. */
static uint32_t add_asks(const struct master *m, struct plan *p, size_t role, const char *name,
                         uint32_t ranks)
{
    const struct asked *first = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < job_n_slots(m->job); i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        const struct asked *a = &m->asked[i];
        if (!a->done || v.role_index != role)
            continue;
        if (first && (a->memory_mib != first->memory_mib || a->vcores != first->vcores ||
                      a->gpus != first->gpus)) {
            plan_ask(p, name, 1, a->memory_mib, a->vcores, a->gpus, ranks);
            continue;
        }
        first = first ? first : a;
        n++;
    }
    if (first)
        plan_ask(p, name, n, first->memory_mib, first->vcores, first->gpus, ranks);
    return n;
}

void ran_members(const struct master *m, struct buf *out)
{
    AUTO(plan_done) struct plan p = { 0 };
    char ran[DIGEST_HEX];
    if (!m->file->plan[0] || !m->asked || job_state(m->job) <= JOB_STOPPING)
        return;
    for (size_t i = 0; i < m->n_welcomes; i++) {
        const char *name = m->spec->single_node ? "driver" : m->spec->roles[i].name;
        const struct role_spec *r = m->spec->single_node ? &m->spec->am : &m->spec->roles[i];
        if (add_asks(m, &p, i, name, r->ranks))
            welcome_plan(m, i, name, &p);
    }
    if (plan_digest(&p, ran) == 0)
        (void)buf_addf(out, ",\"plan\":{\"planned\":\"%s\",\"ran\":\"%s\"}", m->file->plan, ran);
}
