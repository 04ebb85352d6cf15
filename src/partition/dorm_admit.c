/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the longest prefix of the queue that can be admitted: there is an allowed division among
 * the running jobs and these. A job more changes the ideal counts of all others. So a prefix may be
 * possible even if a shorter one is not.
 *
 * In a large problem there is time for few tries. They are quick: prices in fewer rounds, one or
 * two divisions. After a possible prefix is found, a bisection looks for a longer one.
 *
 * In other problems, quick tries look for a possible prefix, too. Then each longer prefix that is
 * not proved to be impossible gets the same part of the steps that are left.
 */
#include <stdlib.h>

#include "base/util.h"
#include "partition/dorm.h"

/* Limits in steps (struct dorm_work). */
enum {
    STEPS_QUICK = 30000,   /* for the first try of a prefix */
    STEPS_ADMIT = 1500000, /* for all tries */
    STEPS_LEAST = 60000,   /* with less, a second try of a prefix finds nothing new */
    /* the same in a large problem, for 1,000 nodes */
    STEPS_QUICK_LARGE = 100000,
    STEPS_THOROUGH_LARGE = 300000, /* if all quick tries have failed */
    STEPS_FIRST_LARGE = 900000,    /* up to there, a possible prefix is looked for */
    STEPS_LONGER_LARGE = 1300000,  /* up to there, longer ones */
};

enum tried {
    TRIED_FOUND,      /* s->best is an allowed division */
    TRIED_NOTHING,    /* none was found */
    TRIED_IMPOSSIBLE, /* there is none */
};

struct admission {
    struct dorm_search *s;
    bool large;
    uint32_t longest;      /* no longer prefix is possible */
    bool found;            /* a prefix is known to be possible: */
    uint32_t n;            /* the longest of them */
    struct dorm_plan plan; /* a division for it, unless s->best has it */
    bool *excluded;        /* [longest + 1]: proved that this prefix is impossible */
    uint32_t tries;
    /* in a large problem: */
    uint32_t shortest_failed; /* of the prefixes that are longer than n */
    uint32_t guess;           /* a prefix that may be possible, from the last failed try */
    uint64_t last_steps;      /* of the last try */
};

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

static bool is_over(const struct dorm_search *s)
{
    return s->p->work.over || s->p->failed;
}

/* The first `queued` jobs of the queue take part from now on. False: out of memory. */
static bool set_queued(struct dorm_search *s, uint32_t queued)
{
    if (!s->p->failed && dorm_problem_admit(s->p, queued) < 0)
        s->p->failed = true;
    return !s->p->failed;
}

/* Look for an allowed division among the jobs that take part. */
static enum tried find_division(struct dorm_search *s, uint64_t steps)
{
    uint64_t end = s->p->work.steps + steps;
    if (dorm_search_start(s))
        return TRIED_FOUND;
    if (s->prices.impossible)
        return TRIED_IMPOSSIBLE;
    dorm_search_more(s, steps / 3, true);
    if (!dorm_has_division(s) && dorm_exact(s, steps / 3) == DORM_IMPOSSIBLE)
        return TRIED_IMPOSSIBLE;
    if (!dorm_has_division(s) && s->p->work.steps < end)
        dorm_search_more(s, end - s->p->work.steps, true);
    return dorm_has_division(s) ? TRIED_FOUND : TRIED_NOTHING;
}

/* The same in a large problem. */
static enum tried find_division_large(struct dorm_search *s)
{
    if (dorm_search_start(s))
        return TRIED_FOUND;
    if (s->prices.impossible)
        return TRIED_IMPOSSIBLE;
    if (s->best.score.bad < (s->quick ? DORM_LACKS_LITTLE : DORM_LACKS_SOME))
        dorm_search_more(s, s->quick ? STEPS_QUICK_LARGE : STEPS_THOROUGH_LARGE, true);
    return dorm_has_division(s) ? TRIED_FOUND : TRIED_NOTHING;
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

/* Try the first n jobs of the queue. If they can be admitted, n becomes the known prefix. Otherwise
 * its division is in a->plan. steps: in a problem that is not large. */
static bool try_prefix(struct admission *a, uint32_t n, uint64_t steps)
{
    struct dorm_search *s = a->s;
    uint64_t before = s->p->work.steps;
    if (a->found && dorm_has_division(s)) {
        a->plan = s->best;
        s->best = (struct dorm_plan){ 0 };
    }
    if (!set_queued(s, n))
        return false;
    s->prices.from = s->quick && a->tries > 0 ? &s->prices : NULL;
    enum tried tried = a->large ? find_division_large(s) : find_division(s, steps);
    s->prices.from = NULL;
    a->last_steps = s->p->work.steps - before;
    a->tries++;
    if (tried == TRIED_FOUND) {
        a->found = true;
        a->n = n;
        return true;
    }
    s->best.any = false;
    a->excluded[n] |= tried == TRIED_IMPOSSIBLE;
    a->shortest_failed = n;
    a->guess = guess(s, n);
    return false;
}

/* ---- large problems */

/* Would another try, as long as the last one, end after so many steps? */
static bool is_late(const struct admission *a, uint64_t steps)
{
    return a->large && dorm_steps_until(a->s->p, steps) <= a->last_steps;
}

/* Try the longest prefix, then shorter ones with growing distances until one is possible. */
static void find_possible(struct admission *a)
{
    uint32_t n = a->longest, step = 1;
    a->shortest_failed = n + 1;
    while (!try_prefix(a, n, STEPS_QUICK) && n > 0 && !a->s->p->failed) {
        uint32_t less = a->s->quick ? MAX(step, n - a->guess) : step;
        n -= is_over(a->s) || is_late(a, STEPS_FIRST_LARGE) ? n : MIN(n, less);
        step += a->shortest_failed - n > 4 ? step : (n + 16) / 16 - 1;
    }
}

static void admit_large(struct admission *a)
{
    struct dorm_search *s = a->s;
    bool quick = s->quick = true;
    find_possible(a);
    if (!a->found && !a->excluded[0] && !is_over(s)) {
        quick = s->quick = false;
        (void)try_prefix(a, 0, 0);
        a->shortest_failed = a->longest + 1;
    }
    for (bool by_guess = quick; a->found && a->shortest_failed - a->n > 1;
         by_guess = quick && !by_guess) {
        if (is_late(a, STEPS_LONGER_LARGE) || is_over(s))
            break;
        bool guessed = by_guess && a->guess > a->n && a->guess < a->shortest_failed;
        (void)try_prefix(a, guessed ? a->guess : a->n + (a->shortest_failed - a->n) / 2, 0);
    }
    s->quick = false;
    if (quick && a->tries == 1 && dorm_has_division(s)) {
        dorm_search_bound(s);
    } else if (quick && a->found &&
               dorm_has_division(s)) { /* the prices are those of a quick try */
        a->plan = s->best;
        s->best = (struct dorm_plan){ 0 };
    }
}

/* ---- other problems */

/* How many prefixes longer than the known one may be possible, and the n-th of them from below. */
static uint32_t count_open(const struct admission *a, uint32_t nth, uint32_t *which)
{
    uint32_t n = 0;
    for (uint32_t q = a->found ? a->n + 1 : 0; q <= a->longest; q++)
        if (!a->excluded[q] && n++ == nth && which)
            *which = q;
    return n;
}

static void admit_small(struct admission *a)
{
    const struct dorm_problem *p = a->s->p;
    uint64_t end = p->work.steps + STEPS_ADMIT;
    find_possible(a);
    for (bool longer = true; longer && a->n < a->longest;) {
        uint32_t open = count_open(a, 0, NULL), q = 0;
        open = MIN(open, (uint32_t)((end - MIN(end, p->work.steps)) / STEPS_LEAST));
        longer = false;
        for (; open > 0 && !longer && p->work.steps < end && !is_over(a->s); open--) {
            (void)count_open(a, open - 1, &q);
            longer = try_prefix(a, q, (end - p->work.steps) / open);
        }
    }
}

/* ---- all */

/* Let the solver try the prefixes that the search could not admit, the longest first. */
static void ask_solver(struct admission *a, const struct part_solver *solver)
{
    struct dorm_search *s = a->s;
    if (dorm_has_division(s))
        a->plan = s->best;
    s->best = (struct dorm_plan){ 0 };
    for (uint32_t n = a->longest + 1; n-- > (a->found ? a->n + 1 : 0);) {
        if (a->excluded[n])
            continue;
        if (!set_queued(s, n))
            return;
        if (!dorm_search_start(s) && !s->prices.impossible)
            a->excluded[n] =
                dorm_solve(s, solver) == DORM_IMPOSSIBLE; /* the result is in s->best */
        a->excluded[n] |= s->prices.impossible;
        if (!dorm_has_division(s))
            continue;
        a->found = true;
        a->n = n;
        return;
    }
    s->best.any = false;
}

struct dorm_admitted dorm_admit(struct dorm_search *s, const struct part_solver *solver)
{
    struct dorm_problem *p = s->p;
    struct admission a = { .s = s, .large = dorm_is_large(p), .longest = longest_prefix(p) };
    a.excluded = dorm_alloc(p, (size_t)a.longest + 1, sizeof(*a.excluded));
    if (!a.excluded)
        return (struct dorm_admitted){ 0 };
    if (a.large)
        admit_large(&a);
    else
        admit_small(&a);
    if (solver && p->n_all > 0)
        ask_solver(&a, solver);
    /* Without a->plan, s->best has the division, and s->prices the prices for these jobs. */
    if (a.found && !dorm_has_division(s) && set_queued(s, a.n)) {
        dorm_search_prices(s);
        s->best = a.plan;
    }
    return (struct dorm_admitted){
        .n = a.n,
        .longest = a.longest,
        .possible = a.found && !p->failed,
        .proved = count_open(&a, 0, NULL) == 0,
    };
}
