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
    STEPS_DESCENT = 900000,    /* up to there, a possible prefix of the queue is looked for */
    STEPS_CLIMB = 1300000,     /* up to there, longer ones */
    STEPS_WHOLE = 300000,      /* for the upper bound */
    LARGE = 5000,              /* jobs * nodes */
    STEPS_FEASIBLE = 300000,   /* to find out whether one more job of the queue can be admitted */
    STEPS_ROUGH = 100000,      /* the same in a large problem, if little is lacking */
    STEPS_FIRST = 100000,      /* before the proof */
    STEPS_EXACT = 600000,
    STEPS_POLISH = 100000,
    STEPS_POLISH_LARGE = 30000,
};

/* A division this far below the bound (relative distance) is far from it. */
#define FAR 0.015

/* A division that lacks less than this (dorm_score()) may become possible by a short search. */
#define ALMOST 0.003
/* The same for a longer search. */
#define NEARLY 0.02

/* A utilization this near to its bound has reached it. */
#define BOUND_EPS 1e-9

static int falling(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

/* The longest prefix of the queue whose minima could fit if the adjust_bound jobs that can give
 * back most of a type gave it back. */
static uint32_t longest_prefix(struct dorm_problem *p)
{
    int64_t *give = dorm_alloc(p, p->n_running, sizeof(*give));
    uint32_t best = p->n_all - p->n_running;
    for (uint32_t k = 0; give && k < p->m; k++) {
        int64_t left = 0;
        uint32_t n = 0;
        for (uint32_t j = 0; j < p->n_nodes; j++)
            left += p->cap[(size_t)j * p->m + k];
        for (uint32_t i = 0; i < p->n_running; i++) {
            const struct dorm_job *job = &p->jobs[i];
            int64_t more = ((int64_t)job->now - job->lo) * job->d[k];
            left -= job->now * job->d[k];
            if (job->kind == DORM_LOOSE)
                left += more;
            else if (job->kind == DORM_COUNTED)
                give[n++] = more;
        }
        qsort(give, n, sizeof(*give), falling);
        for (uint32_t c = 0; c < MIN(n, p->adjust_bound); c++)
            left += give[c];
        for (uint32_t q = 0; q < best; q++) {
            const struct dorm_job *job = &p->jobs[p->n_running + q];
            left -= job->lo * job->d[k];
            if (left < 0)
                best = q;
        }
    }
    return best;
}

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

static bool is_large(const struct dorm_problem *p)
{
    return (size_t)p->n_all * p->n_nodes >= LARGE;
}

/* So many times the steps of 1,000 nodes. */
static uint64_t times_of(const struct dorm_problem *p)
{
    return MIN(MAX(p->n_nodes / 1000, 1u), 10u);
}

/* In a large problem: the steps up to this number of them in all, less those that are used. */
static uint64_t steps_until(const struct dorm_problem *p, uint64_t end)
{
    return end * times_of(p) - MIN(end * times_of(p), p->work.steps);
}

/* Can the first `queued` jobs of the queue be admitted? If so, s->best is an allocation for
 * them. */
static bool admit(struct dorm_search *s, uint32_t queued)
{
    if (s->p->failed || dorm_problem_admit(s->p, queued) < 0) {
        s->p->failed = true;
        return false;
    }
    if (dorm_search_start(s))
        return true;
    if (s->prices.impossible)
        return false;
    if (is_large(s->p)) {
        if (s->best.score.bad < (s->rough ? ALMOST : NEARLY))
            search_more(s, s->rough ? STEPS_ROUGH : STEPS_FEASIBLE, true);
        return !(s->best.score.bad > 0);
    }
    search_more(s, STEPS_FEASIBLE, true);
    if (s->best.score.bad > 0 && prove(s, STEPS_FEASIBLE) == DORM_UNKNOWN)
        search_more(s, STEPS_FEASIBLE, true);
    return !(s->best.score.bad > 0);
}

/* Continue with this allocation for the first `queued` jobs of the queue. It was found before, so
 * only the prices have to be found again. */
static bool admit_again(struct dorm_search *s, uint32_t queued, const struct dorm_plan *found)
{
    if (s->p->failed || dorm_problem_admit(s->p, queued) < 0) {
        s->p->failed = true;
        return false;
    }
    dorm_search_prices(s);
    s->best = *found;
    return true;
}

/* After a failed try with the first `queued` jobs of the queue: a guess which prefix is possible.
 * The minima of the jobs that it leaves out are as large as what was lacking. */
static uint32_t guess(const struct dorm_search *s, uint32_t queued)
{
    double lack = s->prices.impossible ? 0 : s->best.score.bad;
    uint32_t n = queued;
    while (n > 0 && lack > 0) {
        const struct dorm_job *job = &s->p->jobs[s->p->n_running + --n];
        lack -= job->D * job->lo;
    }
    return n;
}

/* The prefixes that were tried. */
struct climb {
    uint32_t n;          /* the longest that is possible */
    uint32_t impossible; /* the shortest that could not be admitted, longer than n */
    uint32_t guess;      /* a prefix that may be possible, from the last failed try */
    uint32_t tries;
    bool unproved; /* a try failed without a proof */
    uint64_t last; /* steps of the last try */
};

static bool try_prefix(struct dorm_search *s, struct climb *c, uint32_t n)
{
    s->prices.from = s->rough && c->tries++ > 0 ? &s->prices : NULL;
    uint64_t before = s->p->work.steps;
    bool done = admit(s, n);
    c->last = s->p->work.steps - before;
    s->prices.from = NULL;
    if (done) {
        c->n = n;
        return true;
    }
    c->impossible = n;
    c->guess = guess(s, n);
    c->unproved |= !s->prices.impossible;
    return false;
}

/* In a large problem: would another try, as long as the last one, end after so many steps? */
static bool is_late(const struct dorm_search *s, const struct climb *c, uint64_t steps)
{
    return is_large(s->p) && steps_until(s->p, steps) <= c->last;
}

/* Try the longest prefix, then shorter ones with growing steps until one is possible. */
static bool descend(struct dorm_search *s, struct climb *c)
{
    uint32_t n = longest_prefix(s->p), step = 1;
    *c = (struct climb){ .impossible = n + 1 };
    while (!try_prefix(s, c, n)) {
        if (n == 0 || s->p->failed)
            return false;
        uint32_t less = s->rough ? MAX(step, n - c->guess) : step;
        n -= s->p->work.over || is_late(s, c, STEPS_DESCENT) ? n : MIN(n, less);
        step += c->impossible - n > 4 ? step : (n + 16) / 16 - 1;
    }
    return true;
}

/* Find the longest prefix of the queue that can be admitted; s->best is an allocation for it.
 * False: not even the empty prefix is possible. The function first looks for a possible prefix.
 * Then it searches between that one and the shortest impossible one, by bisection. In a large
 * problem, the tries are rough, and every other try takes the guess that the last failed one gave.
 * If all rough tries fail, the empty prefix is tried thoroughly, and then longer ones. */
static bool climb(struct dorm_search *s, uint32_t *admitted)
{
    struct climb c;
    struct dorm_plan best = { 0 }; /* for c.n jobs of the queue, if the last try failed */
    s->rough = is_large(s->p);
    bool loaded = descend(s, &c), rough = s->rough;
    if (!loaded && rough && c.unproved && !s->p->work.over && !s->p->failed) {
        s->rough = rough = false;
        loaded = try_prefix(s, &c, 0);
        c.impossible = longest_prefix(s->p) + 1;
    }
    for (bool by_guess = rough; loaded || best.any; by_guess = rough && !by_guess) {
        if (c.impossible - c.n <= 1 || is_late(s, &c, STEPS_CLIMB) || s->p->work.over ||
            s->p->failed)
            break;
        bool guessed = by_guess && c.guess > c.n && c.guess < c.impossible;
        if (loaded) {
            best = s->best;
            s->best = (struct dorm_plan){ 0 };
        }
        loaded = try_prefix(s, &c, guessed ? c.guess : c.n + (c.impossible - c.n) / 2);
    }
    s->rough = false;
    *admitted = c.n;
    if (loaded && rough && c.tries == 1)
        dorm_search_bound(s);
    if (loaded && (!rough || c.tries == 1))
        return true;
    if (loaded) {
        best = s->best;
        s->best = (struct dorm_plan){ 0 };
    }
    return best.any && admit_again(s, c.n, &best);
}

/* Let the solver try the prefixes that the search could not admit, the longest first. found: the
 * search has admitted *admitted of the queue; else it has not even admitted an empty prefix. */
static bool climb_on(struct dorm_search *s, bool found, uint32_t *admitted,
                     const struct part_solver *solver)
{
    uint32_t known = found ? *admitted + 1 : 0; /* prefixes shorter than this are possible */
    if (longest_prefix(s->p) < known)
        return true;
    struct dorm_plan best = s->best;
    s->best = (struct dorm_plan){ 0 };
    for (uint32_t n = longest_prefix(s->p) + 1; n-- > known && !s->p->failed;) {
        if (dorm_problem_admit(s->p, n) < 0)
            s->p->failed = true;
        else if (!dorm_search_start(s) && !s->prices.impossible)
            (void)dorm_solve(s, solver); /* the result is in s->best */
        if (s->p->failed || !s->best.any || s->best.score.bad > 0)
            continue;
        *admitted = n;
        return true;
    }
    if (!found || dorm_problem_admit(s->p, *admitted) < 0)
        return false;
    (void)dorm_search_start(s); /* for the prices of this prefix */
    s->best = best;
    return true;
}

static int by_node(const void *a, const void *b)
{
    const struct part_place *x = a, *y = b;
    return x->node < y->node ? -1 : x->node > y->node;
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
        qsort(at, n, sizeof(*at), by_node);
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
static void build_mix(struct dorm_search *s)
{
    struct dorm_problem *p = s->p;
    uint64_t before = p->work.steps;
    if (dorm_counted_may_change(p) && !dorm_pairs_possible(p)) {
        uint64_t most = STEPS_WHOLE * times_of(p);
        dorm_whole_prices(p, &s->prices, MIN(most, steps_until(p, STEPS_LARGE) / 3));
        if (s->prices.pi)
            dorm_whole_bound(p, &s->prices, s->prices.pi, s->prices.pi_loss, 0,
                             MIN(most, steps_until(p, STEPS_LARGE) / 3));
    }
    dorm_mix(s, steps_until(p, STEPS_LARGE), steps_until(p, STEPS_LARGE_FAR));
    s->steps_left -= MIN(p->work.steps - before, s->steps_left);
}

/* The steps for local search in a large problem: what is left of all, and more if the division is
 * far from the bound. */
static uint64_t steps_after(const struct dorm_search *s)
{
    bool far = s->best.score.bad > 0 || s->best.score.util < (1 - FAR) * s->prices.upper;
    return steps_until(s->p, far ? STEPS_LARGE_FAR : STEPS_LARGE);
}

/* Make s->best as good as the steps and the solver allow. True: no allocation is better. */
static bool improve(struct dorm_search *s, const struct part_solver *solver)
{
    if (s->p->n == 0)
        return true;
    if (!dorm_is_small(s->p))
        build_mix(s);
    if (is_large(s->p))
        s->steps_left = steps_after(s);
    search_more(s, STEPS_FIRST, false);
    bool tiny = (size_t)s->p->n * s->p->n_nodes <= TINY;
    enum dorm_proof proof = prove(s, tiny ? STEPS_TINY_EXACT : STEPS_EXACT);
    if (proof == DORM_BEST)
        return true;
    if (proof != DORM_BEST_USE)
        search_more(s, s->steps_left - MIN(s->steps_left, (uint64_t)STEPS_POLISH), false);
    if (solver) {
        enum dorm_proof solved = dorm_solve(s, solver);
        proof = MAX(proof, solved);
    }
    if (proof == DORM_BEST)
        return true;
    dorm_polish(s, (size_t)s->p->n * s->p->n_nodes >= LARGE ? STEPS_POLISH_LARGE : STEPS_POLISH);
    return proof == DORM_BEST_USE;
}

int dorm_decide(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                const struct part_options *o, struct part_decision *out)
{
    struct dorm_problem p;
    struct dorm_search s;
    uint32_t admitted = 0;
    bool relaxed = false;
    if (dorm_problem_init(&p, c, jobs, n, o, out) < 0 || dorm_search_init(&p, &s) < 0)
        return -ENOMEM;
    size_t cells = (size_t)p.n_all * p.n_nodes;
    s.steps_left = cells >= LARGE  ? STEPS_LARGE * times_of(&p)
                   : cells <= TINY ? STEPS_TINY
                                   : STEPS_ALL;
    bool possible = climb(&s, &admitted);
    if (o->solver && p.n_all > 0)
        possible = climb_on(&s, possible, &admitted, o->solver);
    if (!possible && !p.failed) {
        relaxed = true;
        p.loss_bound = MAX(p.loss_bound, dorm_loss_now(&p));
        dorm_search_start(&s);
    }
    bool proved = improve(&s, o->solver);
    dorm_plan_load(&s.best, &s.state);
    give_nothing(&p, jobs, n);
    give_places(&s, jobs);
    double util = s.best.score.util, upper = s.prices.upper;
    /* The solver's programs and the exact search compare with tolerances. A bound that is lower
     * than a known division by more than these is wrong, and is left visible. */
    bool bound_holds = p.failed || s.best.score.bad > 0 || upper > util - BOUND_EPS;
#ifdef __SANITIZE_ADDRESS__
    assert(bound_holds);
#endif
    if (bound_holds)
        upper = proved ? util : MAX(util, upper);
    out->metrics.relaxed = relaxed;
    out->metrics.loss_bound = p.loss_bound;
    out->metrics.adjust_bound = p.adjust_bound;
    out->metrics.upper_bound = upper;
    out->metrics.proved = bound_holds && util >= upper - BOUND_EPS;
    dorm_why(&s, admitted, longest_prefix(&p), jobs, out);
    return p.failed ? -ENOMEM : 0;
}
