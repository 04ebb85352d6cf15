/* SPDX-License-Identifier: Apache-2.0 */
#include "partition/dorm.h"

#include <math.h>
#include <string.h>

#include "base/util.h"

enum { STEPS_WHY = 50000 /* to find out whether the bound on the loss keeps a job out */ };

static bool fits_somewhere(const struct dorm_state *state, const struct dorm_job *job)
{
    for (uint32_t g = 0; g < state->p->n_classes; g++) {
        const uint32_t *list = state->listed + state->listed_at[g];
        for (uint32_t l = 0; l < state->n_listed[g]; l++)
            if (dorm_fits(state->groups[list[l]].free, job->d, state->p->m))
                return true;
    }
    return false;
}

/* The reason for the number of containers of this job, which has at least one. */
static enum part_because why_this_many(const struct dorm_search *s, uint32_t i,
                                       const struct part_job *from)
{
    const struct dorm_state *state = &s->state;
    const struct dorm_job *job = &s->p->jobs[i];
    bool kept = job->runs && state->moved[i] == 0;
    if (job->kind == DORM_PINNED)
        return PART_BECAUSE_PINNED;
    if (state->n[i] == from->max)
        return PART_BECAUSE_AT_MAX;
    bool fits = fits_somewhere(state, job);
    double gain = s->prices.gain[i] - s->prices.freed[i];
    /* The gain is a mean over prices that were tried, so a small one means nothing. */
    if (!dorm_may_change(s, i) && (fits || gain > 0.25 * job->u))
        return PART_BECAUSE_ADJUSTED;
    bool unfair = dorm_can_grow(s, i) == 0 && state->n[i] < job->hi;
    if (unfair && (fits || state->n[i] < job->now))
        return PART_BECAUSE_LOSS;
    if (fits || (job->runs && !kept) || state->adjusted > 0)
        return PART_BECAUSE_USE;
    return PART_BECAUSE_ROOM;
}

/* Would the minima of all jobs that take part fit if all jobs except pinned ones could change? */
static bool minima_fit(struct dorm_search *s)
{
    const struct dorm_problem *p = s->p;
    dorm_state_keep(&s->state);
    s->style = (struct dorm_style){ .home = true, .tight = true, .anywhere = true };
    for (uint32_t i = 0; i < p->n; i++)
        if (p->jobs[i].kind != DORM_PINNED)
            dorm_take_all(&s->state, i);
    for (uint32_t c = 0; c < p->n; c++) {
        uint32_t i = p->big_first[c];
        if (p->jobs[i].kind != DORM_PINNED && dorm_place(s, i, p->jobs[i].lo) < p->jobs[i].lo)
            return false;
    }
    return true;
}

/* The reason why the first job of the queue waits. Changes s->state, and the set of jobs that take
 * part.
 */
static enum part_because why_not(struct dorm_search *s, uint32_t queued, uint32_t longest)
{
    struct dorm_problem *p = s->p;
    if (p->work.over)
        return PART_BECAUSE_FULL;
    if (dorm_problem_admit(p, queued) < 0) {
        p->failed = true;
        return PART_BECAUSE_FULL;
    }
    if (!minima_fit(s))
        return PART_BECAUSE_FULL;
    uint32_t counted = 0;
    for (uint32_t i = 0; i < p->n_running; i++)
        counted += p->jobs[i].kind == DORM_COUNTED;
    if (p->adjust_bound >= counted)
        return PART_BECAUSE_LOSS;
    if (queued > longest)
        return PART_BECAUSE_ADJUSTED;
    double loss_bound = p->loss_bound;
    p->loss_bound = (double)p->m * PART_JOBS_MAX; /* more than any loss */
    s->quick = !dorm_is_small(p);
    s->prices.from = s->quick ? &s->prices : NULL;
    bool possible = dorm_search_start(s);
    if (!possible && !s->prices.impossible) {
        dorm_search_more(s, STEPS_WHY, true);
        possible = !(s->best.score.bad > 0);
    }
    p->loss_bound = loss_bound;
    return possible ? PART_BECAUSE_LOSS : PART_BECAUSE_ADJUSTED;
}

void dorm_why(struct dorm_search *s, uint32_t admitted, uint32_t longest,
              const struct part_job *jobs, struct part_decision *out)
{
    struct dorm_problem *p = s->p;
    uint32_t first = p->n_running + admitted;
    for (uint32_t i = 0; i < first; i++) {
        uint32_t index = p->jobs[i].index;
        out->jobs[index].because = why_this_many(s, i, &jobs[index]);
    }
    if (first == p->n_all)
        return;
    uint32_t head = p->jobs[first].index;
    out->jobs[head].because = why_not(s, admitted + 1, longest);
    for (uint32_t i = first + 1; i < p->n_all; i++) {
        out->jobs[p->jobs[i].index].because = PART_BECAUSE_BEHIND;
        out->jobs[p->jobs[i].index].other = head;
    }
}
