/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the scheduler about the job: its containers, its bounds, and its expected end. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "base/vec.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"

struct sched_ask sched_ask_of(const struct master *m, uint32_t slot)
{
    struct slot_view v;
    job_slot(m->job, slot, &v);
    const struct role_spec *r = job_slot_role(m->job, slot);
    return (struct sched_ask){
        .slot = slot,
        .memory_mib = r->memory_mib,
        .vcores = r->vcores,
        .gpus = r->gpus,
        .role = v.role,
    };
}

/* Does the slot need a container, now or later? An ended slot does not: its stage is over. */
static bool is_in_shape(const struct master *m, uint32_t slot, const struct slot_view *v)
{
    return job_wants(m->job, slot) && v->state != SLOT_ENDED;
}

/* For each role: do its containers count at the job's peak? Roles of different stages never run at
 * the same time. The caller frees the array; NULL = no memory. */
static bool *peak_roles(const struct master *m)
{
    AUTO(free_p) uint32_t *instances = calloc(m->spec->n_roles + 1, sizeof *instances);
    bool *counts = calloc(m->spec->n_roles + 1, sizeof *counts);
    if (!instances || !counts) {
        free(counts);
        return NULL;
    }
    for (uint32_t i = 0; i < job_n_slots(m->job); i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        instances[v.role_index] += !v.spare && is_in_shape(m, i, &v);
    }
    job_spec_peak_roles(m->spec, instances, counts);
    return counts;
}

int sched_tell_shape(struct master *m, struct err *e)
{
    VEC(struct sched_ask) whole = { 0 };
    int rc = 0;
    if (!m->sched_ops->resize) /* the back-end need not know the number of containers */
        return 0;
    AUTO(free_p) bool *counts = peak_roles(m);
    if (!counts)
        return err_set(e, ENOMEM, "no memory to speak to the scheduler");
    for (uint32_t i = 0; rc == 0 && i < job_n_slots(m->job); i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        if (is_in_shape(m, i, &v) && counts[v.role_index])
            rc = vec_push(&whole, sched_ask_of(m, i));
    }
    rc = rc < 0 ? err_set(e, ENOMEM, "no memory to speak to the scheduler")
                : m->sched_ops->resize(m->sched, whole.v, whole.n, e);
    vec_done(&whole);
    return rc;
}

int sched_tell_bounds(struct master *m, struct err *e)
{
    uint32_t min = 0, max = 0;
    int64_t cost_ms = -1;
    if (!m->sched_ops->bounds || job_state(m->job) > JOB_STOPPING)
        return 0;
    job_bounds(m->job, &min, &max);
    (void)job_resize_cost(m->job, &cost_ms);
    if (min == m->sent_bounds_min && max == m->sent_bounds_max && cost_ms == m->sent_cost_ms)
        return 0;
    m->sent_bounds_min = min;
    m->sent_bounds_max = max;
    m->sent_cost_ms = cost_ms;
    return m->sched_ops->bounds(m->sched, min, max, cost_ms, e);
}

/* Has the expected end moved by more than 1 s, and by more than 1/20 of the time that is left?
 */
static bool end_moved(int64_t sent, int64_t now_told, int64_t left_ms)
{
    return llabs(now_told - sent) > MAX((int64_t)1000, left_ms / 20);
}

/* Must the scheduler be told this expected end? Yes if end_moved() since the last one that was
 * sent, or if only one of the two is known. */
static bool is_news(const struct master *m, bool known, int64_t early, int64_t late,
                    int64_t left_ms)
{
    if (!known || m->sent_ends_late <= 0)
        return known || m->sent_ends_late > 0;
    return end_moved(m->sent_ends_early, early, left_ms) ||
           end_moved(m->sent_ends_late, late, left_ms);
}

/* job_outlook() reads every task. A job with many tasks has many events, so it is called at most
 * once in PAUSE_MS, not after each event. */
int sched_tell_outlook(struct master *m, struct err *e)
{
    enum { PAUSE_MS = 1000 };
    int64_t min_ms = 0, max_ms = 0, now = clock_mono_ms();
    if (!m->sched_ops->outlook || job_state(m->job) > JOB_STOPPING)
        return 0;
    if (now < m->outlook_due_ms) {
        loop_timer_set(m->outlook_timer, m->outlook_due_ms);
        return 0;
    }
    m->outlook_due_ms = now + PAUSE_MS;
    bool known = job_outlook(m->job, &min_ms, &max_ms);
    if (!is_news(m, known, now + min_ms, now + max_ms, max_ms))
        return 0;
    m->sent_ends_early = now + min_ms;
    m->sent_ends_late = known ? now + max_ms : -1;
    return m->sched_ops->outlook(m->sched, min_ms, known ? max_ms : -1, e);
}

void sched_tell_outlook_later(void *arg)
{
    struct master *m = arg;
    struct err e = { 0 };
    if (m->phase != MP_RUNNING || sched_tell_outlook(m, &e) == 0)
        return;
    log_err(LOG_ERROR, "sched.failed", &e);
    master_exit_now(m, MASTER_CRASHED);
}
