/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes small random instances and checks the decision of each policy: the properties that every
 * decision must have, whatever the policy. TONY_ROUNDS=n tries n instances instead of 20,000;
 * TONY_SEED=n sets the seed of the first instance. A failed check prints the seed of its instance.
 * tests/soak/test_partition.py tries 1,000,000.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "partition/drf.h"
#include "partition/partition.h"

enum { NODES = 5, JOBS = 8, TYPES = 3, ROUNDS = 20000 };

static const char *const types[] = { "cores", "memory", "gpus" };
static const char *const ids[] = { "a", "b", "c", "d", "e", "f", "g", "h" };

struct world {
    struct part_amount nodes[NODES];
    struct part_cluster c;
    struct part_job jobs[JOBS];
    struct part_place places[JOBS][NODES];
    size_t n;
    uint64_t seed;
    double levels[2];
    struct part_options o;
};

static uint64_t current_seed;

static uint32_t below(struct world *w, uint32_t n)
{
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((w->seed >> 33) % n);
}

static double maybe_time(struct world *w, bool known)
{
    return known ? (double)(1 + below(w, 100)) : (double)INFINITY;
}

/* Let job i run if its least number of containers fits into `free`. Subtracts them from `free`. */
static void place(struct world *w, size_t i, struct part_amount *free)
{
    struct part_job *job = &w->jobs[i];
    uint32_t want = job->min + below(w, job->max - job->min + 1), n = 0;
    for (uint32_t j = 0; j < w->c.n_nodes && n < want; j++) {
        uint32_t here = 0;
        for (bool fits = true; n < want; here++, n++) {
            for (uint32_t k = 0; k < w->c.n_types; k++)
                fits &= free[j].v[k] >= job->demand.v[k];
            if (!fits)
                break;
            for (uint32_t k = 0; k < w->c.n_types; k++)
                free[j].v[k] -= job->demand.v[k];
        }
        if (here > 0)
            w->places[i][job->n_at++] = (struct part_place){ j, here };
    }
    job->at = w->places[i];
    if (n >= job->min) {
        job->pinned = below(w, 5) == 0;
        job->lost = !job->pinned && below(w, 5) == 0;
        return;
    }
    for (uint32_t p = 0; p < job->n_at; p++)
        for (uint32_t k = 0; k < w->c.n_types; k++)
            free[job->at[p].node].v[k] += job->demand.v[k] * (int64_t)job->at[p].n;
    job->at = NULL;
    job->n_at = 0;
}

static void make(struct world *w, uint64_t seed)
{
    struct part_amount free[NODES];
    *w = (struct world){ .seed = seed * 2654435761u + 1, .levels = { 1, 3 } };
    current_seed = seed;
    w->c = (struct part_cluster){ 1 + below(w, TYPES), types, 1 + below(w, NODES), w->nodes };
    for (uint32_t j = 0; j < w->c.n_nodes; j++)
        for (uint32_t k = 0; k < w->c.n_types; k++)
            w->nodes[j].v[k] = below(w, 3) ? below(w, 9) : 8;
    memcpy(free, w->nodes, sizeof free);
    w->n = below(w, JOBS + 1);
    bool known = below(w, 3) > 0;
    for (size_t i = 0; i < w->n; i++) {
        struct part_job *job = &w->jobs[i];
        *job = (struct part_job){ .id = ids[i], .weight = 1 + below(w, 3), .min = 1 + below(w, 3) };
        job->max = job->min + below(w, 6);
        if (below(w, 2))
            job->fixed = job->min + below(w, job->max - job->min + 1);
        for (uint32_t k = 0; k < w->c.n_types; k++)
            job->demand.v[k] = below(w, 4);
        job->demand.v[below(w, w->c.n_types)] += 1;
        job->priority = (int)below(w, 8) / 6;
        job->remaining_s = maybe_time(w, known || below(w, 2));
        job->ends_in_s = maybe_time(w, known || below(w, 2));
        job->attained_s = below(w, 5);
        if (below(w, 2))
            place(w, i, free);
    }
    w->o = part_defaults;
    w->o.levels = w->levels;
    w->o.n_levels = 2;
    w->o.theta1 = below(w, 5) / 4.0;
    w->o.theta2 = below(w, 5) / 4.0;
    w->o.limit.steps = 20000;
}

#define HOLDS(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fail_msg("seed %llu: %s", (unsigned long long)current_seed, #cond);                    \
    } while (0)

/* ---- any policy ---- */

static void check_job(const struct world *w, const struct part_policy *p,
                      const struct part_decision *d, size_t i, struct part_amount *free)
{
    const struct part_job *job = &w->jobs[i];
    const struct part_share *s = &d->jobs[i];
    uint32_t n = 0, last = 0;
    bool same = s->n_at == job->n_at;
    char why[PART_WHY_MAX];
    for (uint32_t a = 0; a < s->n_at; a++) {
        HOLDS(s->at[a].n > 0 && s->at[a].node < w->c.n_nodes);
        HOLDS(a == 0 || s->at[a].node > last);
        last = s->at[a].node;
        n += s->at[a].n;
        same = same && s->at[a].node == job->at[a].node && s->at[a].n == job->at[a].n;
        for (uint32_t k = 0; k < w->c.n_types; k++)
            free[last].v[k] -= job->demand.v[k] * (int64_t)s->at[a].n;
    }
    HOLDS(n == s->n);
    HOLDS(n == 0 || (n >= job->min && n <= job->max));
    HOLDS(!job->pinned || same);
    HOLDS((s->verdict == PART_KEEPS) == (same && n > 0));
    HOLDS((s->verdict == PART_CHANGES) == (job->n_at > 0 && n > 0 && !same));
    HOLDS((s->verdict == PART_STARTS) == (job->n_at == 0 && n > 0));
    HOLDS((s->verdict == PART_STOPS) == (job->n_at > 0 && n == 0));
    HOLDS(p->resizes || p->preempts || job->n_at == 0 || same);
    HOLDS(p->resizes || n == 0 || same || n == (job->fixed ? job->fixed : job->min));
    HOLDS(s->other == PART_NOBODY || s->other < w->n);
    part_why(d, &w->c, w->jobs, i, why);
    HOLDS(why[0] && why[strlen(why) - 1] != ' ');
}

/* What only some policies promise: no job is stopped; the bounds on adjusted jobs and on the loss.
 */
static void check_bounds(const struct world *w, const struct part_policy *p,
                         const struct part_decision *d)
{
    const struct part_metrics *m = &d->metrics;
    bool is_dorm = str_eq(p->name, "dorm"), is_market = str_eq(p->name, "market");
    size_t counted = 0;
    for (size_t i = 0; i < w->n; i++) {
        counted += w->jobs[i].n_at > 0 && !w->jobs[i].lost;
        HOLDS(p->preempts || str_eq(p->name, "drf") || d->jobs[i].verdict != PART_STOPS);
    }
    if (is_dorm || is_market)
        HOLDS((double)m->adjusted <= ceil(w->o.theta2 * (double)counted - 1e-9));
    if (is_dorm) {
        HOLDS(w->o.payback_s > 0 || m->loss <= m->loss_bound + 2e-9);
        HOLDS(!(m->utilization > m->upper_bound + 1e-9));
    }
}

static void check_all(const struct world *w, const struct part_policy *p,
                      const struct part_decision *d)
{
    struct part_amount free[NODES];
    double use = 0;
    memcpy(free, w->nodes, sizeof free);
    for (size_t i = 0; i < w->n; i++)
        check_job(w, p, d, i, free);
    for (uint32_t k = 0; k < w->c.n_types; k++) {
        int64_t total = 0, left = 0;
        for (uint32_t j = 0; j < w->c.n_nodes; j++) {
            HOLDS(free[j].v[k] >= 0);
            total += w->nodes[j].v[k];
            left += free[j].v[k];
        }
        if (total > 0)
            use += (double)(total - left) / (double)total;
    }
    HOLDS(fabs(use - d->metrics.utilization) < 1e-9);
    check_bounds(w, p, d);
}

/* ---- queues ---- */

/* Is job a before job b in the queue of waiting jobs? */
static bool before(const struct world *w, size_t a, size_t b)
{
    if (w->jobs[a].priority != w->jobs[b].priority)
        return w->jobs[a].priority > w->jobs[b].priority;
    return a < b;
}

static void check_static(const struct world *w, const struct part_decision *d)
{
    for (size_t a = 0; a < w->n; a++)
        for (size_t b = 0; b < w->n; b++)
            HOLDS(!(d->jobs[a].verdict == PART_WAITS && d->jobs[b].verdict == PART_STARTS &&
                    before(w, a, b)));
}

/* When the first waiting job, the head of the queue, could start if each job ended at its known
 * time. Only numbers of containers count here, not their places. backfilled: the jobs that started
 * although they were behind it in the queue hold their containers until then. */
static double head_fits_at(const struct world *w, const struct part_decision *d, size_t head,
                           bool backfilled)
{
    double best = INFINITY;
    uint32_t fixed = w->jobs[head].fixed ? w->jobs[head].fixed : w->jobs[head].min;
    for (size_t e = 0; e <= w->n; e++) {
        double t = e == w->n             ? 0
                   : w->jobs[e].n_at > 0 ? w->jobs[e].ends_in_s
                   : d->jobs[e].n_at > 0 ? w->jobs[e].remaining_s
                                         : INFINITY;
        struct part_amount free[NODES];
        uint32_t fits = 0;
        if (t >= best)
            continue;
        memcpy(free, w->nodes, sizeof free);
        for (size_t i = 0; i < w->n; i++) {
            const struct part_share *s = &d->jobs[i];
            bool started = w->jobs[i].n_at == 0;
            if (started && !before(w, i, head) && !backfilled)
                continue;
            if ((started ? w->jobs[i].remaining_s : w->jobs[i].ends_in_s) <= t)
                continue;
            for (uint32_t a = 0; a < s->n_at; a++)
                for (uint32_t k = 0; k < w->c.n_types; k++)
                    free[s->at[a].node].v[k] -= w->jobs[i].demand.v[k] * (int64_t)s->at[a].n;
        }
        for (uint32_t j = 0; j < w->c.n_nodes; j++)
            for (bool room = true; room;) {
                for (uint32_t k = 0; k < w->c.n_types; k++)
                    room &= free[j].v[k] >= w->jobs[head].demand.v[k];
                for (uint32_t k = 0; k < w->c.n_types && room; k++)
                    free[j].v[k] -= w->jobs[head].demand.v[k];
                fits += room;
            }
        if (fits >= fixed)
            best = t;
    }
    return best;
}

/* If the end of a running job is unknown, the queue decides as `static` does. Otherwise jobs may
 * overtake the head of the queue, but it starts no later than without them. */
static void check_fifo(struct world *w, struct part_decision *d, struct part_decision *other)
{
    size_t head = SIZE_MAX;
    for (size_t i = 0; i < w->n; i++)
        if (d->jobs[i].verdict == PART_WAITS && (head == SIZE_MAX || before(w, i, head)))
            head = i;
    if (head != SIZE_MAX) {
        double alone = head_fits_at(w, d, head, false), now = head_fits_at(w, d, head, true);
        HOLDS(now <= alone);
    }
    HOLDS(part_decide(part_policy_find("static"), &w->c, w->jobs, w->n, &w->o, other, NULL) == 0);
    bool unknown = false;
    for (size_t i = 0; i < w->n; i++) {
        unknown |= w->jobs[i].n_at > 0 && isinf(w->jobs[i].ends_in_s);
        HOLDS(other->jobs[i].verdict != PART_STARTS || d->jobs[i].verdict == PART_STARTS);
    }
    for (size_t i = 0; i < w->n && unknown; i++)
        HOLDS(d->jobs[i].n == other->jobs[i].n);
}

/* ---- fair shares ---- */

/* The part of all that there is of type k that one container of job i takes. */
static double part_of(const struct world *w, size_t i, uint32_t k)
{
    int64_t total = 0;
    for (uint32_t j = 0; j < w->c.n_nodes; j++)
        total += w->nodes[j].v[k];
    return total > 0 ? (double)w->jobs[i].demand.v[k] / (double)total : 0;
}

/* The dominant share of one container. */
static double unit(const struct world *w, size_t i)
{
    double share = 0;
    for (uint32_t k = 0; k < w->c.n_types; k++)
        share = MAX(share, part_of(w, i, k));
    return share;
}

/* If one job asks for more containers, all other jobs still get their min. Another order of the
 * nodes gives the same result. */
static void check_counts(struct world *w)
{
    uint32_t counts[JOBS], more[JOBS], turned[JOBS];
    struct part_amount back[NODES];
    struct part_cluster c = w->c;
    if (w->n == 0)
        return;
    HOLDS(part_drf(&w->c, w->jobs, w->n, NULL, counts) == 0);
    size_t greedy = below(w, (uint32_t)w->n);
    uint32_t max = w->jobs[greedy].max;
    w->jobs[greedy].max += 10;
    HOLDS(part_drf(&w->c, w->jobs, w->n, NULL, more) == 0);
    w->jobs[greedy].max = max;
    for (uint32_t j = 0; j < c.n_nodes; j++)
        back[j] = w->nodes[c.n_nodes - 1 - j];
    c.nodes = back;
    HOLDS(part_drf(&c, w->jobs, w->n, NULL, turned) == 0);
    for (size_t i = 0; i < w->n; i++) {
        HOLDS(counts[i] == turned[i]);
        HOLDS(i == greedy || (counts[i] == 0) == (more[i] == 0));
        HOLDS(counts[i] == 0 || counts[i] >= w->jobs[i].min);
    }
    HOLDS(more[greedy] >= counts[greedy]);
}

/*
 * One pool without limits. Up to whole containers, each job gets at least its part of the cluster
 * (sharing incentive), and no job could do more with the containers of another (no envy).
 *
 * When job i is refused, no job j is above its level by more than one container of j. So with all
 * shares s and units u: w_i * (1 - u_i - sum u) <= s_i * sum w. Later j can only get what was too
 * little for a container of i.
 */
static void check_incentives(struct world *w)
{
    uint32_t n[JOBS];
    double units = 0, weights = 0;
    w->c.n_nodes = 1;
    for (uint32_t k = 0; k < w->c.n_types; k++)
        w->nodes[0].v[k] = 20 + below(w, 100);
    for (size_t i = 0; i < w->n; i++) {
        w->jobs[i].min = 1;
        w->jobs[i].max = 1000;
        w->jobs[i].n_at = 0;
        units += unit(w, i);
        weights += w->jobs[i].weight;
    }
    HOLDS(part_drf(&w->c, w->jobs, w->n, NULL, n) == 0);
    for (size_t i = 0; i < w->n; i++) {
        const struct part_job *a = &w->jobs[i];
        double u = unit(w, i), s = u * n[i];
        bool capped = true; /* it has the whole pool */
        for (uint32_t k = 0; k < w->c.n_types; k++)
            capped &= a->demand.v[k] * ((int64_t)n[i] + 1) <= w->nodes[0].v[k];
        HOLDS(s * weights >= a->weight * (1 - u - units) - 1e-9);
        for (size_t h = 0; h < w->n; h++) {
            const struct part_job *b = &w->jobs[h];
            double worth = INFINITY, ratio = 0;
            for (uint32_t k = 0; k < w->c.n_types; k++)
                if (a->demand.v[k] > 0) {
                    worth = MIN(worth, floor((double)(b->demand.v[k] * (int64_t)n[h]) /
                                             (double)a->demand.v[k]));
                    ratio = MAX(ratio, (double)a->demand.v[k] / (double)b->demand.v[k]);
                }
            if (worth < 1 || b->weight > a->weight || capped)
                continue;
            HOLDS(worth * u <= s + unit(w, h) * (1 + ratio) + 1e-9);
        }
    }
}

/* ---- rounds ---- */

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    int64_t v;
    return text && str_i64(span_of(text), 0, INT64_MAX, name, &v, NULL) == 0 ? (uint64_t)v
                                                                             : otherwise;
}

static void decide(const struct part_policy *p, const struct world *w, struct part_decision *out)
{
    struct err e = { 0 };
    if (part_decide(p, &w->c, w->jobs, w->n, &w->o, out, &e) < 0)
        fail_msg("seed %llu: %s: %s", (unsigned long long)current_seed, p->name, e.msg);
}

/* ---- costs of resizes (payback_s) ---- */

static bool is_same(const struct part_share *a, const struct part_share *b)
{
    bool same = a->verdict == b->verdict && a->n_at == b->n_at;
    for (uint32_t i = 0; same && i < a->n_at; i++)
        same = a->at[i].node == b->at[i].node && a->at[i].n == b->at[i].n;
    return same;
}

/* The utilization of one container. */
static double use_of_one(const struct world *w, size_t i)
{
    double use = 0;
    for (uint32_t k = 0; k < w->c.n_types; k++)
        use += part_of(w, i, k);
    return use;
}

/* Does it keep each container that it has? */
static bool only_grows(const struct part_job *job, const struct part_share *s)
{
    uint32_t k = 0;
    for (uint32_t a = 0; a < job->n_at; a++) {
        while (k < s->n_at && s->at[k].node < job->at[a].node)
            k++;
        if (k == s->n_at || s->at[k].node != job->at[a].node || s->at[k].n < job->at[a].n)
            return false;
    }
    return true;
}

/* Compute what the change of job i costs, and the most that it can gain. Containers that a job
 * keeps although the policy wanted them back cost nothing. */
static void weigh(const struct world *w, const struct part_decision *base,
                  const struct part_decision *d, size_t i, double *cost, double *gain)
{
    const struct part_job *job = &w->jobs[i];
    uint32_t was = 0, is = d->jobs[i].n;
    for (uint32_t a = 0; a < job->n_at; a++)
        was += job->at[a].n;
    double u = use_of_one(w, i), left_s = job->n_at ? job->ends_in_s : job->remaining_s;
    double resize_s = job->n_at && !job->lost ? job->resize_s : 0;
    double horizon = MIN(w->o.payback_s, left_s) + (job->n_at ? 0 : job->waited_s) - resize_s;
    *cost = d->jobs[i].verdict == PART_CHANGES ? u * MIN(was, base->jobs[i].n) * resize_s : 0;
    *gain = is > was && horizon > 0 ? u * (is - was) * horizon : 0;
}

/* All changes together gain at least what they cost. If the policy wants no container back, each
 * job that grows does so for itself, and then that holds for each of them. */
static void check_worth(const struct world *w, const struct part_decision *base,
                        const struct part_decision *d)
{
    double costs = 0, gains = 0, cost, gain;
    bool all_grow = true;
    for (size_t i = 0; i < w->n; i++) {
        weigh(w, base, d, i, &cost, &gain);
        costs += cost;
        gains += gain;
        all_grow &= w->jobs[i].n_at == 0 || only_grows(&w->jobs[i], &base->jobs[i]);
    }
    HOLDS(costs <= gains + 1e-9);
    for (size_t i = 0; i < w->n && all_grow; i++) {
        weigh(w, base, d, i, &cost, &gain);
        HOLDS(cost <= gain + 1e-9);
    }
}

/* base: what the policy decides if costs do not count. */
static void check_costs(struct world *w, const struct part_policy *p,
                        const struct part_decision *base, struct part_decision *out)
{
    uint32_t first_held = PART_NOBODY;
    w->o.payback_s = 1 + below(w, 200);
    decide(p, w, out); /* resizes cost nothing: nothing changes */
    for (size_t i = 0; i < w->n; i++)
        HOLDS(is_same(&base->jobs[i], &out->jobs[i]));

    for (size_t i = 0; i < w->n; i++) {
        w->jobs[i].resize_s = below(w, 3) ? below(w, 100) : 0;
        w->jobs[i].waited_s = below(w, 100);
    }
    decide(p, w, out);
    check_all(w, p, out);
    HOLDS(out->metrics.adjusted <= base->metrics.adjusted);
    check_worth(w, base, out);
    for (size_t i = 0; i < w->n; i++) {
        const struct part_share *s = &out->jobs[i];
        bool as_before = s->verdict == (w->jobs[i].n_at ? PART_KEEPS : PART_WAITS);
        bool shrinks_less = s->verdict == PART_CHANGES && s->n > base->jobs[i].n;
        HOLDS(is_same(&base->jobs[i], s) || as_before || shrinks_less);
        if (s->because == PART_BECAUSE_COST && s->verdict == PART_WAITS)
            first_held = MIN(first_held, (uint32_t)i);
        HOLDS(s->verdict != PART_STARTS || i < first_held);
        HOLDS(s->because != PART_BECAUSE_COST || as_before);
    }
    HOLDS(first_held == PART_NOBODY || isfinite(out->metrics.again_s));

    /* A job that has waited long enough starts. */
    for (size_t i = 0; i < w->n; i++)
        w->jobs[i].waited_s = 1e7;
    decide(p, w, out);
    for (size_t i = 0; i < w->n; i++)
        HOLDS(base->jobs[i].verdict != PART_STARTS || is_same(&base->jobs[i], &out->jobs[i]));
    for (size_t i = 0; i < w->n; i++)
        w->jobs[i].resize_s = w->jobs[i].waited_s = 0;
    w->o.payback_s = 0;
}

/* ---- other places (repack) ---- */

static size_t count_running(const struct part_decision *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++)
        n += d->jobs[i].n > 0;
    return n;
}

/* base: the decision without repack. Moving containers lets more jobs run, or as many. */
static void check_repack(struct world *w, const struct part_policy *p,
                         const struct part_decision *base, struct part_decision *out)
{
    w->o.repack = true;
    decide(p, w, out);
    check_all(w, p, out);
    HOLDS(count_running(out) >= count_running(base));
    for (size_t i = 0; i < w->n; i++)
        HOLDS(!w->jobs[i].pinned || out->jobs[i].verdict == PART_KEEPS);
    w->o.repack = false;
}

/* ---- a job that asks for more ---- */

/* If one job may have more containers, it takes them from no minimum: each job that runs still has
 * at least its min, and no running job is stopped. check_all() looks at both. */
static void check_greedy(struct world *w, const struct part_policy *p, struct part_decision *out)
{
    struct part_job *greedy = &w->jobs[current_seed % w->n];
    greedy->max += 10;
    decide(p, w, out);
    check_all(w, p, out);
    greedy->max -= 10;
}

static struct world world;

static void check_seed(uint64_t seed, struct part_decision *d, struct part_decision *other)
{
    struct world *w = &world;
    make(w, seed);
    for (const struct part_policy *p = part_policies; p->name; p++) {
        decide(p, w, d);
        check_all(w, p, d);
        if (p->resizes)
            check_costs(w, p, d, other);
        if (p->resizes)
            check_repack(w, p, d, other);
        if (w->n > 0 && (str_eq(p->name, "dorm") || str_eq(p->name, "market")))
            check_greedy(w, p, other);
        if (str_eq(p->name, "static"))
            check_static(w, d);
        if (str_eq(p->name, "fifo"))
            check_fifo(w, d, other);
    }
    check_counts(w);
    if (w->n > 0)
        check_incentives(w);
}

/* TONY_ROUNDS instances, the first one with the seed TONY_SEED. */
static void all_policies(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    AUTO(part_decision_done) struct part_decision other = { 0 };
    uint64_t rounds = number("TONY_ROUNDS", ROUNDS), first = number("TONY_SEED", 0);
    for (uint64_t seed = first; seed < first + rounds; seed++)
        check_seed(seed, &d, &other);
}

/* Random instances that have once shown a fault. */
static void earlier_faults(void **state)
{
    (void)state;
    static const uint64_t seeds[] = {
        264000, /* dorm: a job with more containers than its maximum kept one of those it gave back
                 */
    };
    AUTO(part_decision_done) struct part_decision d = { 0 };
    AUTO(part_decision_done) struct part_decision other = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(seeds); i++)
        check_seed(seeds[i], &d, &other);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(earlier_faults),
                                        cmocka_unit_test(all_policies) };
    return cmocka_run_group_tests_name("partition_random", tests, NULL, NULL);
}
