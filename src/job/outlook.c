/* SPDX-License-Identifier: Apache-2.0 */
/* How long the job will still run, by the progress of its tasks: job_outlook() of job.h. */
#include "job/job.h"
#include "job/job_int.h"

struct range {
    double min_ms, max_ms;
    bool known;
};

/* By which part may the estimate be wrong? The speed of a few steps tells little. */
static double margin(uint64_t steps_done)
{
    return steps_done < 10 ? 0.5 : steps_done < 100 ? 0.25 : 0.1;
}

/* How long the task still runs, by the speed of its steps so far. false: it has not reported its
 * progress twice, or has not said how many steps there are. */
static bool task_left(const struct job *j, const struct slot *s, struct range *out)
{
    int64_t took_ms = s->step_ms - s->first_ms;
    if (s->step <= s->first_step || s->total < s->step || took_ms <= 0)
        return false;
    uint64_t done = s->step - s->first_step;
    double per_step_ms = (double)took_ms / (double)done;
    double since_ms = (double)MAX(j->now_ms - s->step_ms, (int64_t)0);
    double whole_ms = per_step_ms * (double)(s->total - s->step);
    double left_ms = MAX(whole_ms - since_ms, 0.0), spread = margin(done);
    *out = (struct range){ left_ms * (1 - spread), left_ms * (1 + spread), true };
    return true;
}

static struct range role_left(const struct job *j, uint32_t role)
{
    struct range all = { .known = false }, one;
    FOR_MEMBERS(j, role, i)
    {
        if (!task_left(j, &j->slots[i], &one))
            continue;
        all.min_ms = all.known ? MIN(all.min_ms, one.min_ms) : one.min_ms;
        all.max_ms = MAX(all.max_ms, one.max_ms);
        all.known = true;
    }
    return all;
}

bool job_outlook(const struct job *j, int64_t *out_min_ms, int64_t *out_max_ms)
{
    struct range all = { .known = false };
    for (uint32_t r = 0; r < j->n_roles; r++) {
        const struct role *role = &j->roles[r];
        if (!role->awaited || role->n_settled >= role->n)
            continue;
        if (role->n_started == 0)
            return false;
        struct range one = role_left(j, r);
        all.known |= one.known;
        all.min_ms = MAX(all.min_ms, one.min_ms);
        all.max_ms = MAX(all.max_ms, one.max_ms);
    }
    if (!all.known || all.max_ms > (double)INT32_MAX * 1000)
        return false;
    *out_min_ms = (int64_t)all.min_ms;
    *out_max_ms = (int64_t)all.max_ms;
    return true;
}
