/* SPDX-License-Identifier: Apache-2.0 */
/* The policy `dorm`: each of its rules by hand, and random instances against all allocations there
 * are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "partition/drf.h"
#include "partition/partition.h"
#include "torture.h"

static const char *const types[] = { "cores", "memory", "gpus" };

static void decide(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                   const struct part_options *o, struct part_decision *d)
{
    struct err e = { 0 };
    int rc = part_decide(part_policy_find("dorm"), c, jobs, n, o, d, &e);
    if (rc != 0)
        fail_msg("%s", e.msg);
}

static struct part_job job(const char *id, int64_t cores, int64_t memory, uint32_t min,
                           uint32_t max)
{
    return (struct part_job){ .id = id,
                              .demand = { { cores, memory } },
                              .weight = 1,
                              .min = min,
                              .max = max,
                              .remaining_s = INFINITY,
                              .ends_in_s = INFINITY };
}

static struct part_job running(struct part_job j, const struct part_place *at, uint32_t n_at)
{
    j.at = at;
    j.n_at = n_at;
    return j;
}

/* ---- by hand: two nodes of 4 cores and 8 units of memory ---- */

static const struct part_amount two_nodes[] = { { { 4, 8 } }, { { 4, 8 } } };
static const struct part_cluster two = { 2, types, 2, two_nodes };
static const struct part_place four_each[] = { { 0, 4 }, { 1, 4 } };
static const struct part_place two_each[] = { { 0, 2 }, { 1, 2 } };
static const struct part_place on_first[] = { { 0, 4 } };

static struct part_options bounds(double loss, int64_t adjust)
{
    struct part_options o = part_defaults;
    o.loss_max = loss;
    o.adjust_max = adjust;
    return o;
}

static void expect(const struct part_decision *d, size_t i, enum part_verdict verdict, uint32_t n,
                   enum part_because because)
{
    assert_int_equal(d->jobs[i].verdict, verdict);
    assert_int_equal(d->jobs[i].n, n);
    assert_int_equal(d->jobs[i].because, because);
}

static void alone(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { job("a", 1, 1, 1, 20) };
    struct part_options o = bounds(1, 0);
    decide(&two, jobs, 1, &o, &d);
    expect(&d, 0, PART_STARTS, 8, PART_BECAUSE_ROOM);
    assert_float_equal(d.metrics.utilization, 1.5, 1e-9);
    assert_float_equal(d.metrics.upper_bound, 1.5, 1e-9);
    assert_true(d.metrics.proved);
    jobs[0].max = 3;
    decide(&two, jobs, 1, &o, &d);
    expect(&d, 0, PART_STARTS, 3, PART_BECAUSE_AT_MAX);
}

static void nothing(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    static const struct part_amount empty[] = { { { 0, 0 } } };
    const struct part_cluster none = { 2, types, 0, NULL }, zero = { 2, types, 1, empty };
    struct part_job jobs[] = { job("a", 1, 1, 1, 20) };
    decide(&two, NULL, 0, &part_defaults, &d);
    assert_float_equal(d.metrics.upper_bound, 0, 1e-9);
    decide(&none, jobs, 1, &part_defaults, &d);
    expect(&d, 0, PART_NEVER, 0, PART_BECAUSE_TOO_BIG);
    decide(&zero, jobs, 1, &part_defaults, &d);
    expect(&d, 0, PART_NEVER, 0, PART_BECAUSE_TOO_BIG);
}

static void bound_on_adjustments(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { running(job("a", 1, 1, 1, 20), four_each, 2), job("b", 1, 2, 2, 4) };
    struct part_options o = bounds(4, 0);
    decide(&two, jobs, 2, &o, &d);
    expect(&d, 0, PART_KEEPS, 8, PART_BECAUSE_ROOM);
    expect(&d, 1, PART_WAITS, 0, PART_BECAUSE_ADJUSTED);
    o.adjust_max = 1;
    decide(&two, jobs, 2, &o, &d);
    expect(&d, 0, PART_CHANGES, 4, PART_BECAUSE_USE);
    expect(&d, 1, PART_STARTS, 4, PART_BECAUSE_AT_MAX);
    assert_int_equal(d.metrics.adjusted, 1);
    assert_int_equal(d.metrics.adjust_bound, 1);
}

static void bound_on_loss(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { job("a", 1, 1, 1, 20), job("b", 1, 2, 1, 20) };
    struct part_options o = bounds(0, 0); /* exactly the ideal counts */
    decide(&two, jobs, 2, &o, &d);
    expect(&d, 0, PART_STARTS, 4, PART_BECAUSE_ROOM);
    expect(&d, 1, PART_STARTS, 4, PART_BECAUSE_ROOM);
    assert_float_equal(d.metrics.loss, 0, 1e-9);
    jobs[0] = job("a", 2, 1, 1, 20); /* all for b would use more */
    jobs[1] = job("b", 1, 2, 1, 20);
    decide(&two, jobs, 2, &o, &d);
    assert_true(d.metrics.loss < 1e-9);
    o.loss_max = 2;
    decide(&two, jobs, 2, &o, &d);
    assert_float_equal(d.metrics.utilization, 1.8125, 1e-9); /* 1 of a, 6 of b */
    expect(&d, 0, PART_STARTS, 1, PART_BECAUSE_ROOM);
}

static void pinned(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { running(job("a", 1, 1, 1, 8), two_each, 2),
                               running(job("b", 1, 1, 1, 4), two_each, 2), job("c", 1, 2, 2, 4) };
    struct part_options o = bounds(4, 2);
    jobs[0].pinned = true;
    decide(&two, jobs, 3, &o, &d);
    expect(&d, 0, PART_KEEPS, 4, PART_BECAUSE_PINNED);
    assert_int_equal(d.jobs[2].verdict, PART_STARTS);
    jobs[1].pinned = true;
    decide(&two, jobs, 3, &o, &d);
    expect(&d, 1, PART_KEEPS, 4, PART_BECAUSE_PINNED);
    expect(&d, 2, PART_WAITS, 0, PART_BECAUSE_FULL);
    assert_int_equal(d.metrics.adjusted, 0);
}

static void lost(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { running(job("a", 1, 1, 1, 4), two_each, 2),
                               running(job("b", 1, 2, 1, 4), two_each, 1) };
    struct part_options o = bounds(4, 0);
    jobs[1].lost = true;
    decide(&two, jobs, 2, &o, &d);
    expect(&d, 0, PART_KEEPS, 4, PART_BECAUSE_AT_MAX);
    expect(&d, 1, PART_CHANGES, 4, PART_BECAUSE_AT_MAX);
    assert_int_equal(d.metrics.adjusted, 0);
    assert_int_equal(d.metrics.changed, 2);
}

static void strict_queue(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { job("never", 5, 1, 1, 1), job("first", 1, 1, 6, 6),
                               job("second", 1, 1, 3, 3), job("third", 1, 1, 1, 1) };
    struct part_options o = bounds(4, 0);
    decide(&two, jobs, 4, &o, &d);
    expect(&d, 0, PART_NEVER, 0, PART_BECAUSE_TOO_BIG);
    expect(&d, 1, PART_STARTS, 6, PART_BECAUSE_AT_MAX);
    expect(&d, 2, PART_WAITS, 0, PART_BECAUSE_FULL);
    expect(&d, 3, PART_WAITS, 0, PART_BECAUSE_BEHIND);
    assert_int_equal(d.jobs[2].other, 1);
    assert_int_equal(d.jobs[3].other, 2);
    assert_int_equal(d.metrics.admitted, 1);
}

/* The second waits because the two together cannot be as fair as that. */
static void too_unfair_to_admit(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    static const struct part_amount one[] = { { { 8, 8 } } };
    const struct part_cluster c = { 2, types, 1, one };
    struct part_job jobs[] = { running(job("a", 1, 1, 4, 8), on_first, 1), job("b", 1, 1, 1, 2) };
    jobs[0].pinned = true;
    struct part_options o = bounds(0.1, 0);
    decide(&c, jobs, 2, &o, &d);
    assert_true(d.metrics.relaxed); /* pinned at 4 of the ideal 8 */
    assert_float_equal(d.metrics.loss_bound, 0.5, 1e-9);
    expect(&d, 1, PART_WAITS, 0, PART_BECAUSE_LOSS);
}

static void relaxed(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { running(job("a", 1, 1, 1, 6), two_each, 2),
                               running(job("b", 1, 2, 1, 2), two_each, 1) };
    struct part_options o = bounds(0, 0);
    decide(&two, jobs, 2, &o, &d);
    assert_true(d.metrics.relaxed);
    assert_float_equal(d.metrics.loss_bound, 0.25, 1e-9);
    assert_float_equal(d.metrics.loss, 0.25, 1e-9);
    expect(&d, 0, PART_KEEPS, 4, PART_BECAUSE_ADJUSTED);
    o.adjust_max = 1;
    decide(&two, jobs, 2, &o, &d);
    assert_false(d.metrics.relaxed);
    assert_float_equal(d.metrics.loss, 0, 1e-9);
}

/* Running jobs come first whatever their place in the list; the answer is in the order of the list.
 */
static void any_order(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[] = { job("new", 1, 2, 1, 2),
                               running(job("old", 1, 1, 6, 8), four_each, 2) };
    struct part_options o = bounds(4, 1);
    decide(&two, jobs, 2, &o, &d);
    expect(&d, 0, PART_STARTS, 2, PART_BECAUSE_AT_MAX);
    expect(&d, 1, PART_CHANGES, 6, PART_BECAUSE_USE);
}

/* ---- random instances ---- */

enum { RANDOM_JOBS = 40, RANDOM_NODES = 40 };

struct world {
    struct part_cluster c;
    struct part_amount nodes[RANDOM_NODES];
    struct part_job jobs[RANDOM_JOBS];
    struct part_place at[RANDOM_JOBS][RANDOM_NODES];
    size_t n;
    struct part_options o;
};

static uint64_t seed;

static uint32_t below(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % n);
}

static uint32_t most(const struct part_amount *free, const struct part_amount *d, uint32_t m)
{
    int64_t n = INT32_MAX;
    for (uint32_t k = 0; k < m; k++)
        if (d->v[k] > 0 && free->v[k] / d->v[k] < n)
            n = free->v[k] / d->v[k];
    return (uint32_t)n;
}

static void take(struct part_amount *free, const struct part_amount *d, uint32_t m, int64_t n)
{
    for (uint32_t k = 0; k < m; k++)
        free->v[k] -= d->v[k] * n;
}

/* Let the job run, if its min fits. */
static void start(struct world *w, struct part_amount *free, size_t i)
{
    struct part_job *j = &w->jobs[i];
    uint32_t want = j->min + below(j->max - j->min + 1), got = 0, n_at = 0;
    for (uint32_t v = 0; v < w->c.n_nodes && got < want; v++) {
        uint32_t fit = most(&free[v], &j->demand, w->c.n_types);
        uint32_t n = below(MIN(fit, want - got) + 1);
        if (n == 0)
            continue;
        w->at[i][n_at++] = (struct part_place){ v, n };
        got += n;
    }
    if (got < j->min)
        return;
    for (uint32_t a = 0; a < n_at; a++)
        take(&free[w->at[i][a].node], &j->demand, w->c.n_types, w->at[i][a].n);
    j->at = w->at[i];
    j->n_at = n_at;
    j->pinned = below(8) == 0;
    j->lost = below(8) == 0;
}

static void make(struct world *w, uint32_t n_nodes, uint32_t n_jobs, uint32_t size)
{
    struct part_amount free[RANDOM_NODES];
    memset(w, 0, sizeof(*w));
    w->c = (struct part_cluster){ 2 + below(2), types, 1 + below(n_nodes), w->nodes };
    for (uint32_t v = 0; v < w->c.n_nodes; v++) {
        uint32_t kind = below(2);
        w->nodes[v] = (struct part_amount){ { size + kind, 2 * size } };
        w->nodes[v].v[2] = w->c.n_types > 2 && kind ? 2 : 0;
        free[v] = w->nodes[v];
    }
    w->n = 1 + below(n_jobs);
    for (size_t i = 0; i < w->n; i++) {
        uint32_t min = 1 + below(2);
        w->jobs[i] = job("x", 1 + below(size / 2), below(size), min, min + below(2 * size));
        w->jobs[i].demand.v[2] = w->c.n_types > 2 ? below(4) / 3 : 0;
        w->jobs[i].weight = 1 + below(3);
        if (below(3) > 0)
            start(w, free, i);
    }
    w->o = part_defaults;
    w->o.theta2 = 0.1 * (1 + below(6));
    if (below(2))
        w->o.loss_max = 0.1 * below(8);
}

/* The conditions that each decision must meet. */
static void check(const struct world *w, const struct part_decision *d)
{
    struct part_amount free[RANDOM_NODES];
    const struct part_metrics *m = &d->metrics;
    memcpy(free, w->nodes, sizeof(free));
    bool blocked = false;
    for (size_t i = 0; i < w->n; i++) {
        const struct part_job *j = &w->jobs[i];
        const struct part_share *s = &d->jobs[i];
        char why[PART_WHY_MAX];
        part_why(d, &w->c, w->jobs, i, why);
        assert_true(strlen(why) > 10);
        if (s->n == 0) {
            assert_int_equal(j->n_at, 0);
            blocked |= s->verdict == PART_WAITS;
            continue;
        }
        assert_true(s->n >= j->min && s->n <= j->max);
        assert_true(j->n_at > 0 || !blocked);
        if (j->pinned)
            assert_int_equal(s->verdict, PART_KEEPS);
        for (uint32_t a = 0; a < s->n_at; a++)
            take(&free[s->at[a].node], &j->demand, w->c.n_types, s->at[a].n);
    }
    for (uint32_t v = 0; v < w->c.n_nodes; v++)
        for (uint32_t k = 0; k < w->c.n_types; k++)
            assert_true(free[v].v[k] >= 0);
    assert_true(m->loss <= m->loss_bound + 2e-9);
    assert_true(m->adjusted <= m->adjust_bound);
    assert_true(m->utilization <= m->upper_bound + 1e-9);
    if (m->proved)
        assert_float_equal(m->utilization, m->upper_bound, 2e-9);
}

/* ---- all allocations ---- */

struct brute {
    const struct world *w;
    struct part_amount free[RANDOM_NODES];
    size_t jobs[RANDOM_JOBS], n; /* those that take part */
    uint32_t ideal[RANDOM_JOBS];
    double u[RANDOM_JOBS], D[RANDOM_JOBS];
    double loss_bound;
    uint32_t adjust_bound;

    bool any;
    double util;
    uint32_t adjusted;
    uint64_t changed;
};

struct sums {
    double util, loss;
    uint32_t adjusted;
    uint64_t changed;
};

static uint32_t place_of(const struct part_job *j, uint32_t node)
{
    for (uint32_t a = 0; a < j->n_at; a++)
        if (j->at[a].node == node)
            return j->at[a].n;
    return 0;
}

static void try_all(struct brute *b, size_t t, uint32_t node, uint32_t n, uint32_t moved,
                    struct sums s)
{
    if (t == b->n) {
        bool better = !b->any || s.util > b->util + 1e-9;
        if (!better && s.util > b->util - 1e-9)
            better =
                s.adjusted < b->adjusted || (s.adjusted == b->adjusted && s.changed < b->changed);
        if (better) {
            b->any = true;
            b->util = s.util;
            b->adjusted = s.adjusted;
            b->changed = s.changed;
        }
        return;
    }
    const struct part_job *j = &b->w->jobs[b->jobs[t]];
    uint32_t m = b->w->c.n_types;
    if (node == b->w->c.n_nodes) {
        if (n < j->min)
            return;
        s.util += b->u[t] * n;
        s.loss += b->D[t] * fabs((double)n - b->ideal[t]);
        s.adjusted += moved > 0 && !j->lost;
        s.changed += moved;
        if (s.loss <= b->loss_bound + 1e-9 && s.adjusted <= b->adjust_bound)
            try_all(b, t + 1, 0, 0, 0, s);
        return;
    }
    uint32_t was = place_of(j, node), fit = most(&b->free[node], &j->demand, m);
    fit = MIN(fit, j->max - n);
    for (uint32_t x = 0; x <= fit; x++) {
        if (j->pinned && x != was)
            continue;
        take(&b->free[node], &j->demand, m, x);
        uint32_t more = j->n_at == 0 ? 0 : x > was ? x - was : was - x;
        try_all(b, t, node + 1, n + x, moved + more, s);
        take(&b->free[node], &j->demand, m, -(int64_t)x);
    }
}

/* The best with so many of the queue. relaxed: see part_metrics. */
static void brute(struct brute *b, const struct world *w, uint32_t queued, bool relaxed)
{
    struct part_job order[RANDOM_JOBS];
    uint32_t counted = 0, caps[RANDOM_JOBS];
    struct part_amount total = { 0 };
    double types_there = 0;
    *b = (struct brute){ .w = w };
    part_caps(&w->c, w->jobs, w->n, caps);
    for (int runs = 1; runs >= 0; runs--)
        for (size_t i = 0; i < w->n; i++) {
            const struct part_job *j = &w->jobs[i];
            if ((j->n_at > 0) != (runs == 1) || (!runs && (caps[i] < j->min || queued == 0)))
                continue;
            queued -= !runs;
            counted += runs && !j->lost;
            order[b->n] = *j;
            b->jobs[b->n++] = i;
        }
    assert_int_equal(part_drf(&w->c, order, b->n, NULL, b->ideal), 0);
    memcpy(b->free, w->nodes, sizeof(b->free));
    for (uint32_t v = 0; v < w->c.n_nodes; v++)
        take(&total, &w->nodes[v], w->c.n_types, -1);
    double now = 0;
    for (uint32_t k = 0; k < w->c.n_types; k++)
        types_there += total.v[k] > 0;
    for (size_t t = 0; t < b->n; t++) {
        for (uint32_t k = 0; k < w->c.n_types; k++)
            if (total.v[k] > 0) {
                double share = (double)order[t].demand.v[k] / (double)total.v[k];
                b->u[t] += share;
                b->D[t] = fmax(b->D[t], share);
            }
        double n = 0;
        for (uint32_t a = 0; a < order[t].n_at; a++)
            n += order[t].at[a].n;
        now += b->D[t] * fabs(n - b->ideal[t]);
    }
    b->loss_bound = w->o.loss_max >= 0 ? w->o.loss_max : ceil(w->o.theta1 * 2 * types_there - 1e-9);
    b->adjust_bound = (uint32_t)ceil(w->o.theta2 * counted - 1e-9);
    if (relaxed)
        b->loss_bound = fmax(b->loss_bound, now);
    try_all(b, 0, 0, 0, 0, (struct sums){ 0 });
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    int64_t v;
    bool is_set = text && str_i64(span_of(text), 0, INT64_MAX, name, &v, NULL) == 0;
    return is_set ? (uint64_t)v : otherwise;
}

/* TONY_DORM_ROUNDS=n tries n instances. */
static void as_good_as_all(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    static struct world w;
    uint64_t rounds = number_of("TONY_DORM_ROUNDS", 300);
    for (uint64_t round = 0; round < rounds; round++) {
        seed = round;
        make(&w, 3, 4, 4);
        decide(&w.c, w.jobs, w.n, &w.o, &d);
        check(&w, &d);
        struct brute b;
        uint32_t queued = 0, caps[RANDOM_JOBS];
        part_caps(&w.c, w.jobs, w.n, caps);
        for (size_t i = 0; i < w.n; i++)
            queued += w.jobs[i].n_at == 0 && caps[i] >= w.jobs[i].min;
        while (brute(&b, &w, queued, false), !b.any && queued > 0)
            queued--;
        bool relax = !b.any;
        if (relax)
            brute(&b, &w, 0, true);
        const struct part_metrics *m = &d.metrics;
        bool same = m->relaxed == relax && m->admitted == queued &&
                    fabs(m->utilization - b.util) < 1e-9 && m->adjusted == b.adjusted &&
                    m->changed == b.changed && m->upper_bound > b.util - 1e-9;
        if (!same)
            fail_msg(
                "seed %d: %u admitted, %.9f, %u adjusted, %u changed; the best is %u, %.9f, %u, %u",
                (int)round, m->admitted, m->utilization, m->adjusted, (unsigned)m->changed, queued,
                b.util, b.adjusted, (unsigned)b.changed);
        /* With too few steps for a proof, the bound comes from the prices alone. */
        w.o.limit.steps = 2000;
        decide(&w.c, w.jobs, w.n, &w.o, &d);
        if (m->admitted == queued && m->relaxed == relax && !(m->upper_bound > b.util - 1e-9))
            fail_msg("seed %d: the bound is %.9f, the best %.9f", (int)round, m->upper_bound,
                     b.util);
    }
}

static void always_valid(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 }, again = { 0 };
    static struct world w;
    for (uint64_t round = 0; round < 60; round++) {
        seed = round;
        make(&w, RANDOM_NODES, RANDOM_JOBS, 4 + below(12));
        w.o.seed = round;
        w.o.limit.steps = 1 + (round % 4 ? 20000 * (round % 4) : 0);
        decide(&w.c, w.jobs, w.n, &w.o, &d);
        check(&w, &d);
        decide(&w.c, w.jobs, w.n, &w.o, &again);
        for (size_t i = 0; i < w.n; i++) {
            assert_int_equal(d.jobs[i].n_at, again.jobs[i].n_at);
            if (d.jobs[i].n_at > 0)
                assert_memory_equal(d.jobs[i].at, again.jobs[i].at,
                                    d.jobs[i].n_at * sizeof(*d.jobs[i].at));
        }
    }
    part_decision_done(&again);
}

/* Give the nodes other numbers. to[v]: the new number of node v. */
static void renumber(struct world *w, const struct world *from, uint32_t *to)
{
    *w = *from;
    w->c.nodes = w->nodes;
    for (uint32_t v = 0; v < w->c.n_nodes; v++)
        to[v] = v;
    for (uint32_t v = w->c.n_nodes; v > 1; v--) {
        uint32_t other = below(v), kept = to[other];
        to[other] = to[v - 1];
        to[v - 1] = kept;
    }
    for (uint32_t v = 0; v < w->c.n_nodes; v++)
        w->nodes[to[v]] = from->nodes[v];
    for (size_t i = 0; i < w->n; i++) {
        uint32_t n_at = 0, on[RANDOM_NODES] = { 0 };
        for (uint32_t a = 0; a < from->jobs[i].n_at; a++)
            on[to[from->jobs[i].at[a].node]] = from->jobs[i].at[a].n;
        for (uint32_t v = 0; v < w->c.n_nodes; v++)
            if (on[v] > 0)
                w->at[i][n_at++] = (struct part_place){ v, on[v] };
        w->jobs[i].at = w->at[i];
    }
}

/* The numbers of the nodes say nothing: with others, each job gets as many containers. */
static void nodes_in_any_order(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 }, again = { 0 };
    static struct world w, other;
    uint32_t to[RANDOM_NODES];
    for (uint64_t round = 0; round < 60; round++) {
        seed = round;
        make(&w, RANDOM_NODES, RANDOM_JOBS, 4 + below(12));
        w.o.limit.steps = 1 + 40000 * (round % 4);
        renumber(&other, &w, to);
        decide(&w.c, w.jobs, w.n, &w.o, &d);
        decide(&other.c, other.jobs, other.n, &w.o, &again);
        check(&other, &again);
        assert_int_equal(d.metrics.adjusted, again.metrics.adjusted);
        assert_int_equal(d.metrics.changed, again.metrics.changed);
        assert_float_equal(d.metrics.upper_bound, again.metrics.upper_bound, 1e-9);
        for (size_t i = 0; i < w.n; i++) {
            assert_int_equal(d.jobs[i].n, again.jobs[i].n);
            assert_int_equal(d.jobs[i].because, again.jobs[i].because);
        }
    }
    part_decision_done(&again);
}

static bool stop_soon(void *ctx)
{
    return ++*(unsigned *)ctx > 3;
}

static void asked_to_stop(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    static struct world w;
    unsigned asked = 0;
    seed = 7;
    make(&w, RANDOM_NODES, RANDOM_JOBS, 12);
    w.o.limit.stop = stop_soon;
    w.o.limit.ctx = &asked;
    decide(&w.c, w.jobs, w.n, &w.o, &d);
    check(&w, &d);
    assert_true(asked <= 4);
}

/* More than 128 nodes, and more capacities than classes. */
static void many_kinds_of_nodes(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    enum { NODES = 200, JOBS = 30 };
    static struct part_amount nodes[NODES];
    static struct part_job jobs[JOBS];
    const struct part_cluster c = { 3, types, NODES, nodes };
    seed = 1;
    for (size_t v = 0; v < NODES; v++)
        nodes[v] = (struct part_amount){ { 4 + below(60), 16 + below(240), below(3) * 4 } };
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = job("x", 1 + below(8), 1 + below(32), 1 + below(3), 100);
        jobs[i].demand.v[2] = below(2);
    }
    decide(&c, jobs, JOBS, &part_defaults, &d);
    assert_int_equal(d.metrics.admitted, JOBS);
    assert_true(d.metrics.utilization > 0.8 * d.metrics.upper_bound);
    assert_true(d.metrics.loss <= d.metrics.loss_bound + 2e-9);
}

/* Many jobs could get containers on each node: more than the search looks at. No node is given more
 * than it has. */
static void many_jobs_for_each_node(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    enum { NODES = 60, JOBS = 400 };
    static struct part_amount nodes[NODES];
    static struct part_job jobs[JOBS];
    const struct part_cluster c = { 3, types, NODES, nodes };
    struct part_options o = part_defaults;
    seed = 1;
    o.loss_max = 2;
    for (size_t v = 0; v < NODES; v++)
        nodes[v] = (struct part_amount){ { 500, 2000, v % 2 * 100 } };
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = job("x", 1 + below(40), 1 + below(160), 1, 1 + below(30));
        jobs[i].demand.v[2] = below(3) / 2 * (1 + below(4));
    }
    decide(&c, jobs, JOBS, &o, &d);
    assert_true(d.metrics.utilization > 0.9 * d.metrics.upper_bound);
    for (size_t i = 0; i < JOBS; i++)
        for (uint32_t a = 0; a < d.jobs[i].n_at; a++)
            take(&nodes[d.jobs[i].at[a].node], &jobs[i].demand, 3, d.jobs[i].at[a].n);
    for (size_t v = 0; v < NODES; v++)
        for (uint32_t k = 0; k < 3; k++)
            assert_true(nodes[v].v[k] >= 0);
}

/* Many capacities: half of the nodes have little memory for each core, the others have much. No
 * class may hold both kinds: the bound would be as if the cores of the former could be used with
 * the memory of the latter. */
static void classes_of_equal_proportions(void **state)
{
    (void)state;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    enum { NODES = 200, JOBS = 40 };
    static struct part_amount nodes[NODES];
    static struct part_job jobs[JOBS];
    const struct part_cluster c = { 2, types, NODES, nodes };
    struct part_options o = part_defaults;
    seed = 1;
    o.loss_max = 2;
    for (size_t v = 0; v < NODES; v++) {
        int64_t cores = 8 + below(120);
        nodes[v] = (struct part_amount){ { cores, v % 2 ? cores : 16 * cores } };
    }
    for (size_t i = 0; i < JOBS; i++) {
        int64_t cores = 1 + below(2);
        jobs[i] = job("x", cores, 4 * cores, 1, 1000);
    }
    decide(&c, jobs, JOBS, &o, &d);
    assert_true(d.metrics.utilization > 0.99 * d.metrics.upper_bound);
}

/* Each of 1,500 nodes of 10 cores has room for one container only, of 7 or of 6 cores. So no
 * division uses more than 7 of 10 cores, although the cores of all nodes together would suffice for
 * more containers. running: a job that may change has containers on 300 nodes. */
static void check_whole_containers(bool with_running)
{
    enum { N = 1500, RUNNING = 300 };
    static struct part_amount nodes[N];
    static struct part_place at[RUNNING];
    struct part_cluster c = { 1, types, N, nodes };
    struct part_options o = bounds(2, 1);
    AUTO(part_decision_done) struct part_decision d = { 0 };
    for (uint32_t j = 0; j < N; j++)
        nodes[j].v[0] = 10;
    for (uint32_t j = 0; j < RUNNING; j++)
        at[j] = (struct part_place){ 4 * j, 1 };
    struct part_job jobs[] = { job("a", 6, 0, 1, N), job("b", 7, 0, 1, N), job("c", 6, 0, 1, N) };
    if (with_running)
        jobs[0] = running(jobs[0], at, RUNNING);
    decide(&c, jobs, 3, &o, &d);
    assert_true(d.metrics.utilization > 0.699);
    assert_true(d.metrics.upper_bound >= d.metrics.utilization);
    assert_true(d.metrics.upper_bound < 0.702);
}

static void whole_containers(void **state)
{
    (void)state;
    check_whole_containers(false);
    check_whole_containers(true);
}

/* On each of 1,000 nodes of 12 cores, job 0 has one container of 5 cores, and one of ten other
 * jobs, too. A container of 11 cores uses more, but both must make way for it, and only one job may
 * change. So nearly all nodes keep 2 unused cores. */
static void two_must_make_way(void **state)
{
    enum { N = 1000, OTHERS = 10 };
    static struct part_amount nodes[N + 1];
    static struct part_place all[N], at[OTHERS][N / OTHERS];
    struct part_cluster c = { 1, types, N + 1, nodes };
    struct part_options o = bounds(2, 1);
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct part_job jobs[OTHERS + 2] = { running(job("a", 5, 0, 1, N), all, N) };
    (void)state;
    for (uint32_t j = 0; j <= N; j++)
        nodes[j].v[0] = 12;
    for (uint32_t j = 0; j < N; j++) {
        all[j] = (struct part_place){ j, 1 };
        at[j % OTHERS][j / OTHERS] = (struct part_place){ j, 1 };
    }
    for (uint32_t i = 0; i < OTHERS; i++)
        jobs[1 + i] = running(job("b", 5, 0, 1, N / OTHERS), at[i], N / OTHERS);
    jobs[OTHERS + 1] = job("c", 11, 0, 1, N);
    decide(&c, jobs, OTHERS + 2, &o, &d);
    assert_true(d.metrics.utilization > 0.833);
    assert_true(d.metrics.upper_bound >= d.metrics.utilization);
    assert_true(d.metrics.upper_bound < 0.85);
}

/* Nodes of 20 cores, and jobs with containers of 9 and 11 cores, whose max are such that all nodes
 * are full only if each holds one of both. Jobs that are served one after the other would put two
 * of 9 cores on a node. */
static void pairs(void **state)
{
    enum { N = 1500 };
    static struct part_amount nodes[N];
    struct part_cluster c = { 1, types, N, nodes };
    struct part_options o = bounds(2, 0);
    AUTO(part_decision_done) struct part_decision d = { 0 };
    (void)state;
    for (uint32_t j = 0; j < N; j++)
        nodes[j].v[0] = 20;
    const struct part_job jobs[] = { job("a", 9, 0, 1, N / 2), job("b", 11, 0, 1, N),
                                     job("c", 9, 0, 1, N / 2) };
    decide(&c, jobs, 3, &o, &d);
    assert_true(d.metrics.utilization > 0.999);
}

/* Two kinds of nodes, and nearly as many different demands as jobs, so that a good division needs
 * many patterns. least: the min of each job; if it is large, some jobs must buy their containers at
 * a price above their value. gap: the part of the bound that may be missing. */
static void check_many_demands(uint32_t least, double gap)
{
    enum { NODES = 1000, JOBS = 100 };
    static struct part_amount nodes[NODES];
    static struct part_job jobs[JOBS];
    const struct part_cluster c = { 3, types, NODES, nodes };
    struct part_options o = bounds(2, 0);
    AUTO(part_decision_done) struct part_decision d = { 0 };
    seed = 1;
    for (size_t v = 0; v < NODES; v++)
        nodes[v] = below(2) ? (struct part_amount){ { 48, 256, 0 } }
                            : (struct part_amount){ { 64, 512, 8 } };
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = job("x", 1 + below(8), 4 + 4 * below(8), least, least + 40 + below(200));
        jobs[i].demand.v[2] = below(3) == 0 ? 1 + below(4) : 0;
    }
    decide(&c, jobs, JOBS, &o, &d);
    assert_int_equal(d.metrics.admitted, JOBS);
    assert_true(d.metrics.utilization > (1 - gap) * d.metrics.upper_bound);
}

static void many_demands(void **state)
{
    (void)state;
    check_many_demands(1, 0.005);
    check_many_demands(20, 0.0055);
    check_many_demands(40, 0.001);
}

/* Each node has another capacity: more groups of nodes than the patterns of dorm_mix.c. */
static void all_nodes_differ(void **state)
{
    enum { N = 20500 };
    static struct part_amount nodes[N];
    struct part_cluster c = { 1, types, N, nodes };
    struct part_options o = bounds(2, 0);
    AUTO(part_decision_done) struct part_decision d = { 0 };
    (void)state;
    for (uint32_t j = 0; j < N; j++)
        nodes[j].v[0] = 100 + j;
    const struct part_job jobs[] = { job("a", 7, 0, 1, N), job("b", 9, 0, 1, N) };
    decide(&c, jobs, 2, &o, &d);
    expect(&d, 0, PART_STARTS, N, PART_BECAUSE_AT_MAX);
    expect(&d, 1, PART_STARTS, N, PART_BECAUSE_AT_MAX);
}

static int without_memory(void *ctx)
{
    (void)ctx;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    struct err e = { 0 };
    struct part_job jobs[] = { running(job("a", 1, 1, 1, 8), two_each, 2),
                               running(job("b", 1, 1, 1, 4), two_each, 2), job("c", 1, 2, 2, 4),
                               job("d", 1, 1, 8, 8) };
    struct part_options o = bounds(1, 1);
    return part_decide(part_policy_find("dorm"), &two, jobs, 4, &o, &d, &e);
}

static void memory_runs_out(void **state)
{
    (void)state;
    assert_true(torture(without_memory, NULL) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),
        cmocka_unit_test(nothing),
        cmocka_unit_test(bound_on_adjustments),
        cmocka_unit_test(bound_on_loss),
        cmocka_unit_test(pinned),
        cmocka_unit_test(lost),
        cmocka_unit_test(strict_queue),
        cmocka_unit_test(too_unfair_to_admit),
        cmocka_unit_test(relaxed),
        cmocka_unit_test(any_order),
        cmocka_unit_test(as_good_as_all),
        cmocka_unit_test(always_valid),
        cmocka_unit_test(nodes_in_any_order),
        cmocka_unit_test(asked_to_stop),
        cmocka_unit_test(many_kinds_of_nodes),
        cmocka_unit_test(whole_containers),
        cmocka_unit_test(two_must_make_way),
        cmocka_unit_test(pairs),
        cmocka_unit_test(many_demands),
        cmocka_unit_test(all_nodes_differ),
        cmocka_unit_test(many_jobs_for_each_node),
        cmocka_unit_test(classes_of_equal_proportions),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
