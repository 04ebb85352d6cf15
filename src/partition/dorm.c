/* SPDX-License-Identifier: Apache-2.0 */
#include "partition/dorm.h"
#include "partition/dorm_pairs.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/util.h"

/* Limits in steps for the parts of a search (struct dorm_work). */
enum {
    STEPS_ALL = 2000000,
    /* all parts, for few jobs on few nodes, where the result should be proved */
    STEPS_TINY = 2500000,
    STEPS_TINY_EXACT = 1800000,
    TINY = 48, /* jobs * nodes */
    /* all parts, for 1,000 nodes; for more nodes, up to ten times as many */
    STEPS_LARGE = 1400000,
    STEPS_LARGE_FAR = 1600000, /* the same while the division is far from the bound */
    STEPS_FAR_LEAST = 100000,  /* for local search then, even if the others have used all steps */
    STEPS_WHOLE = 300000,      /* for the upper bound */
    STEPS_FIRST = 100000,      /* before the proof */
    STEPS_EXACT = 600000,
    STEPS_IMPROVE = 1000000, /* at least, after the queue is admitted */
    STEPS_POLISH = 100000,
    STEPS_POLISH_LARGE = 30000,
};

/* Run the parts of the search while steps are left for them. */
static void search_more(struct dorm_search *s, uint64_t steps, bool until_feasible)
{
    uint64_t before = s->p->work.steps;
    dorm_search_more(s, MIN(steps, s->steps_left), until_feasible);
    s->steps_left -= MIN(s->p->work.steps - before, s->steps_left);
}

static enum dorm_proof prove(struct dorm_search *s, uint64_t steps)
{
    uint64_t before = s->p->work.steps;
    enum dorm_proof proof = dorm_exact(s, MIN(steps, s->steps_left));
    s->steps_left -= MIN(s->p->work.steps - before, s->steps_left);
    return proof;
}

/* Write the places of the jobs in the state to the answer. */
static void give_places(struct dorm_search *s, const struct part_job *jobs)
{
    struct dorm_problem *p = s->p;
    const struct dorm_state *state = &s->state;
    for (uint32_t i = 0; i < p->n && !p->failed; i++) {
        const struct dorm_job *job = &p->jobs[i];
        uint32_t n = 0;
        for (uint32_t e = state->job_head[i]; e != DORM_END; e = state->entries[e].of_job)
            n += state->entries[e].n > 0;
        struct part_place *at = dorm_alloc(p, n, sizeof(*at));
        n = 0;
        for (uint32_t e = state->job_head[i]; at && e != DORM_END; e = state->entries[e].of_job)
            if (state->entries[e].n > 0)
                at[n++] =
                    (struct part_place){ p->node_of[state->entries[e].node], state->entries[e].n };
        if (!at)
            return;
        qsort(at, n, sizeof(*at), part_by_node);
        part_give(p->out, jobs, job->index, at, n);
        p->out->jobs[job->index].ideal = job->ideal;
    }
}

/* Write an answer without containers for all jobs. Later calls replace it for the jobs that take
 * part. */
static void give_nothing(const struct dorm_problem *p, const struct part_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        part_give(p->out, jobs, i, NULL, 0);
        p->out->jobs[i].verdict = PART_NEVER;
        p->out->jobs[i].because = PART_BECAUSE_TOO_BIG;
        p->out->jobs[i].other = PART_NOBODY;
        p->out->jobs[i].ideal = 0;
    }
    for (uint32_t i = p->n_running; i < p->n_all; i++)
        p->out->jobs[p->jobs[i].index].verdict = PART_WAITS;
}

/* In a large problem: build divisions from patterns, and lower the bound by whole containers. */
static void build_from_patterns(struct dorm_search *s)
{
    struct dorm_problem *p = s->p;
    uint64_t before = p->work.steps;
    if (dorm_counted_may_change(p) && !dorm_pairs_possible(p)) {
        uint64_t most = STEPS_WHOLE * dorm_times_of(p);
        dorm_whole_prices(p, &s->prices, MIN(most, dorm_steps_until(p, STEPS_LARGE) / 3));
        if (s->prices.pi)
            dorm_whole_bound(p, &s->prices, s->prices.pi, s->prices.pi_loss, 0,
                             MIN(most, dorm_steps_until(p, STEPS_LARGE) / 3));
    }
    dorm_from_patterns(s, dorm_steps_until(p, STEPS_LARGE), dorm_steps_until(p, STEPS_LARGE_FAR));
    s->steps_left -= MIN(p->work.steps - before, s->steps_left);
}

/* The steps for local search in a large problem: what is left of all, and more if the division is
 * far from the bound. */
static uint64_t steps_after(const struct dorm_search *s)
{
    bool far = s->best.score.bad > 0 || s->best.score.util < (1 - DORM_FAR) * s->prices.upper;
    uint64_t steps = dorm_steps_until(s->p, far ? STEPS_LARGE_FAR : STEPS_LARGE);
    return far ? MAX(steps, STEPS_FAR_LEAST * dorm_times_of(s->p)) : steps;
}

/* Make s->best as good as the steps and the solver allow. */
static enum dorm_proof improve(struct dorm_search *s, const struct part_solver *solver)
{
    bool tiny = (size_t)s->p->n * s->p->n_nodes <= TINY;
    uint64_t all = tiny ? STEPS_TINY : STEPS_ALL;
    if (s->p->n == 0)
        return DORM_BEST;
    s->steps_left = dorm_is_large(s->p)
                        ? dorm_steps_until(s->p, STEPS_LARGE)
                        : MAX(all - MIN(all, s->p->work.steps), (uint64_t)STEPS_IMPROVE);
    if (!dorm_is_small(s->p))
        build_from_patterns(s);
    if (dorm_is_large(s->p))
        s->steps_left = steps_after(s);
    search_more(s, STEPS_FIRST, false);
    enum dorm_proof proof = prove(s, tiny ? STEPS_TINY_EXACT : STEPS_EXACT);
    if (proof == DORM_BEST)
        return proof;
    if (proof != DORM_BEST_USE)
        search_more(s, s->steps_left - MIN(s->steps_left, (uint64_t)STEPS_POLISH), false);
    if (solver) {
        enum dorm_proof solved = dorm_solve(s, solver);
        proof = MAX(proof, solved);
    }
    if (proof == DORM_BEST)
        return proof;
    dorm_polish(s, dorm_is_large(s->p) ? STEPS_POLISH_LARGE
                                       : MAX(s->steps_left, (uint64_t)STEPS_POLISH));
    return proof;
}

int dorm_decide(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                const struct part_options *o, struct part_decision *out)
{
    struct dorm_problem p;
    struct dorm_search s;
    if (dorm_problem_init(&p, c, jobs, n, o, out) < 0 || dorm_search_init(&p, &s) < 0)
        return -ENOMEM;
    struct dorm_admitted admitted = dorm_admit(&s, o->solver);
    bool relaxed = !admitted.possible && !p.failed;
    if (relaxed) {
        if (dorm_problem_admit(&p, 0) < 0)
            p.failed = true;
        p.loss_bound = MAX(p.loss_bound, dorm_loss_now(&p));
        dorm_search_start(&s);
    }
    enum dorm_proof proof = improve(&s, o->solver);
    dorm_plan_load(&s.best, &s.state);
    give_nothing(&p, jobs, n);
    give_places(&s, jobs);
    /* summed up anew: the score has the rounding errors of many small changes */
    double util = s.state.util, upper = s.prices.upper;
    bool most_use = proof == DORM_BEST || proof == DORM_BEST_USE || upper <= util + DORM_BOUND_EPS;
    bool fewest = proof == DORM_BEST || s.best.score.changed == 0;
    /* The solver's programs and the exact search compare with tolerances. A bound that is lower
     * than a known division by more than these is wrong, and is left visible. */
    bool bound_holds = p.failed || s.best.score.bad > 0 || upper > util - DORM_BOUND_EPS;
#ifdef __SANITIZE_ADDRESS__ /* with GCC; the tests look at each bound in every build */
    assert(bound_holds);
#endif
    if (bound_holds)
        upper = most_use ? util : MAX(util, upper);
    out->metrics.relaxed = relaxed;
    out->metrics.loss_bound = p.loss_bound;
    out->metrics.adjust_bound = p.adjust_bound;
    out->metrics.upper_bound = upper;
    out->metrics.proved = bound_holds && most_use && fewest && admitted.proved;
    dorm_why(&s, admitted.n, admitted.longest, jobs, out);
    return p.failed ? -ENOMEM : 0;
}
