/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy `dorm` on random problems that are large enough for patterns (dorm_patterns.c) and for the
 * bound from whole containers (dorm_whole.c): about 50 jobs on about 120 nodes.
 *
 * Each instance is made from a division of the cluster, the example, so most jobs can be admitted.
 *
 * The environment variable TONY_ROUNDS=n tries n / 100 instances instead of 400; TONY_SEED=n sets
 * the seed of the first instance. A failed check prints the seed of its instance.
 */
#include "dorm_world.h"

#include <math.h>
#include <string.h>

enum { NODES = 130, JOBS = 56, DEMANDS = 12, FEW_STEPS = 400000 };

struct world {
    struct part_cluster c;
    struct part_amount nodes[NODES];
    struct part_job jobs[JOBS];
    struct part_place at[JOBS][NODES];
    uint32_t example[JOBS][NODES]; /* containers */
    uint32_t wanted[JOBS];         /* the sum of these */
    size_t n;
    struct part_options o;
};

/* The kinds of nodes and of containers. fine: amounts without a large common divisor, so that the
 * table of dorm_rooms.c must round them. */
static void make_cluster(struct world *w, struct part_amount *demands)
{
    struct part_amount kinds[4];
    bool fine = below(4) == 0, gpus = below(2);
    int64_t cores = 8 + below(24);
    w->c = (struct part_cluster){ gpus ? 3 : 2, types, NODES - below(20), w->nodes };
    for (uint32_t c = 0; c < ARRAY_LEN(kinds); c++) {
        kinds[c] = (struct part_amount){ { cores + below(8), 2 * cores + below(32) } };
        kinds[c].v[1] = fine ? kinds[c].v[1] * 1000 + below(1000) : kinds[c].v[1];
        kinds[c].v[2] = gpus ? 2 * below(3) : 0;
    }
    uint32_t n_kinds = 1 + below(ARRAY_LEN(kinds));
    for (uint32_t j = 0; j < w->c.n_nodes; j++)
        w->nodes[j] = kinds[below(n_kinds)];
    for (uint32_t v = 0; v < DEMANDS; v++) {
        demands[v] = (struct part_amount){ { 1 + below((uint32_t)cores / 2), 1 + below(24) } };
        demands[v].v[1] = fine ? demands[v].v[1] * 1000 + below(1000) : demands[v].v[1];
        demands[v].v[2] = kinds[0].v[2] > 0 ? below(3) / 2 : 0;
    }
}

/* Fill the nodes with containers of random jobs. */
static void make_example(struct world *w)
{
    memset(w->example, 0, sizeof(w->example));
    memset(w->wanted, 0, sizeof(w->wanted));
    for (uint32_t j = 0; j < w->c.n_nodes; j++) {
        struct part_amount free = w->nodes[j];
        for (uint32_t tries = 0; tries < 12; tries++) {
            size_t i = below((uint32_t)w->n);
            for (uint32_t n = 1 + below(4); n > 0 && fits(&free, &w->jobs[i].demand); n--) {
                take(&free, &w->jobs[i].demand, 1);
                w->example[i][j]++;
                w->wanted[i]++;
            }
        }
    }
}

/* Let job i run on the nodes of the example. changes: with fewer containers. */
static void start(struct world *w, size_t i, bool changes)
{
    struct part_job *job = &w->jobs[i];
    uint32_t drop = changes ? below(w->wanted[i] - job->min + 1) : 0;
    for (uint32_t j = 0; j < w->c.n_nodes; j++) {
        uint32_t gone = MIN(drop, w->example[i][j]);
        drop -= gone;
        if (w->example[i][j] > gone)
            w->at[i][job->n_at++] = (struct part_place){ j, w->example[i][j] - gone };
    }
    job->at = w->at[i];
    job->pinned = !changes && below(8) == 0;
    job->lost = !job->pinned && below(8) == 0;
}

/* tight: each job that the example contains has at least this part of it as its min, in percent. */
static void make(struct world *w, uint64_t number, uint32_t tight)
{
    struct part_amount demands[DEMANDS];
    begin_instance(number);
    make_cluster(w, demands);
    uint32_t n_demands = 2 + below(DEMANDS - 1), running = below(4), adjusted = 0;
    w->n = JOBS - below(16);
    for (size_t i = 0; i < w->n; i++)
        w->jobs[i] = (struct part_job){ .id = "x",
                                        .demand = demands[below(n_demands)],
                                        .weight = 1 + below(3),
                                        .remaining_s = INFINITY,
                                        .ends_in_s = INFINITY };
    make_example(w);
    for (size_t i = 0; i < w->n; i++) {
        if (tight > 0)
            w->jobs[i].min = 1 + w->wanted[i] * tight / 100;
        else
            w->jobs[i].min = 1 + below(MAX(w->wanted[i], 1u)); /* 1 if it is not in the example */
        w->jobs[i].max = MAX(w->wanted[i], w->jobs[i].min) + below(2) * below(40);
        if (w->wanted[i] == 0 || below(4) >= running)
            continue;
        bool changes = below(3) == 0;
        start(w, i, changes);
        adjusted += changes && !w->jobs[i].lost;
    }
    w->o = part_defaults;
    w->o.seed = number;
    if (below(4) > 0) {
        w->o.loss_max = 10;
        w->o.adjust_max = adjusted;
    }
}

static void decide_on(const struct world *w, struct part_decision *d)
{
    decide(&w->c, w->jobs, w->n, &w->o, d);
}

/* The utilization and the dominant share of one container. */
static void shares(const struct world *w, const struct part_amount *demand, double *u, double *D)
{
    *u = *D = 0;
    for (uint32_t k = 0; k < TYPES; k++) {
        int64_t total = 0;
        for (uint32_t j = 0; j < w->c.n_nodes; j++)
            total += w->nodes[j].v[k];
        double share = total > 0 ? (double)demand->v[k] / (double)total : 0;
        *u += share;
        *D = fmax(*D, share);
    }
}

/* Sets *changes if the job gets other places than it has. Returns its containers. */
static uint32_t check_job(const struct part_job *job, const struct part_share *s,
                          struct part_amount *free, bool *changes)
{
    uint32_t n = 0;
    *changes = s->n_at != job->n_at;
    for (uint32_t a = 0; a < s->n_at; a++) {
        HOLDS(s->at[a].n > 0 && (a == 0 || s->at[a].node > s->at[a - 1].node));
        take(&free[s->at[a].node], &job->demand, s->at[a].n);
        n += s->at[a].n;
        *changes = *changes || s->at[a].node != job->at[a].node || s->at[a].n != job->at[a].n;
    }
    HOLDS(n == s->n);
    HOLDS(n == 0 ? job->n_at == 0 : n >= job->min && n <= job->max);
    HOLDS(!job->pinned || !*changes);
    return n;
}

static void check(const struct world *w, const struct part_decision *d)
{
    struct part_amount free[NODES];
    const struct part_metrics *m = &d->metrics;
    double util = 0, loss = 0, u, D;
    uint32_t adjusted = 0;
    bool changes;
    memcpy(free, w->nodes, sizeof(free));
    for (size_t i = 0; i < w->n; i++) {
        const struct part_job *job = &w->jobs[i];
        uint32_t n = check_job(job, &d->jobs[i], free, &changes);
        shares(w, &job->demand, &u, &D);
        util += u * n;
        loss += n > 0 ? D * fabs((double)n - d->jobs[i].ideal) : 0;
        adjusted += changes && job->n_at > 0 && !job->lost;
    }
    for (uint32_t j = 0; j < w->c.n_nodes; j++)
        for (uint32_t k = 0; k < TYPES; k++)
            HOLDS(free[j].v[k] >= 0);
    HOLDS(fabs(util - m->utilization) < 1e-9);
    HOLDS(loss <= m->loss_bound + 2e-9);
    HOLDS(adjusted == m->adjusted && adjusted <= m->adjust_bound);
    HOLDS(util <= m->upper_bound + 1e-9);
}

/* The bound of a search with few steps holds for the better division of a longer search, too, if
 * both admit the same jobs. So a bound is seen that is too low by less than the short search is
 * from the best. Returns whether they could be compared. */
static bool check_bound(struct world *w, const struct part_decision *d)
{
    AUTO(part_decision_done) struct part_decision few = { 0 };
    bool same = true;
    w->o.limit.steps = 1 + below(FEW_STEPS);
    decide_on(w, &few);
    w->o.limit.steps = 0;
    check(w, &few);
    for (size_t i = 0; i < w->n; i++)
        same = same && (few.jobs[i].n > 0) == (d->jobs[i].n > 0);
    HOLDS(!same || d->metrics.utilization <= few.metrics.upper_bound + 1e-9);
    return same;
}

/* Give the nodes other numbers. */
static void renumber(struct world *w, const struct world *from)
{
    uint32_t to[NODES]; /* the new number of each node */
    *w = *from;
    w->c.nodes = w->nodes;
    for (uint32_t j = 0; j < w->c.n_nodes; j++) {
        uint32_t other = below(j + 1);
        to[j] = to[other];
        to[other] = j;
    }
    for (uint32_t j = 0; j < w->c.n_nodes; j++)
        w->nodes[to[j]] = from->nodes[j];
    for (size_t i = 0; i < w->n; i++) {
        uint32_t on[NODES] = { 0 }, n_at = 0;
        for (uint32_t a = 0; a < from->jobs[i].n_at; a++)
            on[to[from->jobs[i].at[a].node]] = from->jobs[i].at[a].n;
        for (uint32_t j = 0; j < w->c.n_nodes; j++)
            if (on[j] > 0)
                w->at[i][n_at++] = (struct part_place){ j, on[j] };
        w->jobs[i].at = w->at[i];
    }
}

static void random_divisions(void **state)
{
    (void)state;
    static struct world w, other;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    AUTO(part_decision_done) struct part_decision again = { 0 };
    uint64_t rounds = number_of("TONY_ROUNDS", 40000) / 100, first = number_of("TONY_SEED", 0);
    uint64_t compared = 0;
    for (uint64_t round = first; round < first + MAX(rounds, (uint64_t)1); round++) {
        make(&w, round, 0);
        decide_on(&w, &d);
        check(&w, &d);
        compared += check_bound(&w, &d);
        if (round % 4 != 0)
            continue;
        renumber(&other, &w);
        decide_on(&other, &again);
        check(&other, &again);
        HOLDS(fabs(d.metrics.upper_bound - again.metrics.upper_bound) < 1e-9);
        for (size_t i = 0; i < w.n; i++)
            HOLDS(d.jobs[i].n == again.jobs[i].n);
    }
    assert_true(rounds < 100 || compared > rounds / 4);
}

/* The most utilization that jobs a and b can have on a node with this room, by trying all counts.
 */
static double most_on(const struct world *w, size_t a, size_t b, struct part_amount room)
{
    double u_a, u_b, D, most = 0;
    shares(w, &w->jobs[a].demand, &u_a, &D);
    shares(w, &w->jobs[b].demand, &u_b, &D);
    for (uint32_t n_a = 0;; n_a++) {
        struct part_amount rest = room;
        uint32_t n_b = 0;
        for (; fits(&rest, &w->jobs[b].demand); n_b++)
            take(&rest, &w->jobs[b].demand, 1);
        most = fmax(most, u_a * n_a + u_b * n_b);
        if (!fits(&room, &w->jobs[a].demand))
            return most;
        take(&room, &w->jobs[a].demand, 1);
    }
}

/* The most utilization if jobs a and b change, which have no limits, and the others stay. */
static double most_of_pair(const struct world *w, size_t a, size_t b)
{
    double sum = 0, u, D;
    struct part_amount free[NODES];
    memcpy(free, w->nodes, sizeof(free));
    for (size_t i = 0; i < w->n; i++) {
        shares(w, &w->jobs[i].demand, &u, &D);
        for (uint32_t c = 0; c < w->jobs[i].n_at && i != a && i != b; c++) {
            take(&free[w->at[i][c].node], &w->jobs[i].demand, w->at[i][c].n);
            sum += u * w->at[i][c].n;
        }
    }
    for (uint32_t j = 0; j < w->c.n_nodes; j++)
        sum += most_on(w, a, b, free[j]);
    return sum;
}

/* If only two running jobs may change, all pairs can be tried here, too. */
static void two_may_change(void **state)
{
    (void)state;
    static struct world w;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    uint32_t tried = 0;
    for (uint64_t number = 0; tried < 20; number++) {
        make(&w, number, 0);
        size_t n = 0;
        for (size_t i = 0; i < w.n; i++)
            if (w.jobs[i].n_at > 0 && !w.jobs[i].lost) {
                memmove(w.at[n], w.at[i], sizeof(w.at[i]));
                w.jobs[n] = w.jobs[i];
                w.jobs[n].at = w.at[n];
                w.jobs[n].pinned = false;
                w.jobs[n].min = 1;
                w.jobs[n++].max = PART_CONTAINERS_MAX;
            }
        w.n = n;
        if (w.n * w.c.n_nodes < 5000)
            continue;
        w.o.loss_max = 1000;
        w.o.adjust_max = 2;
        double most = 0;
        for (size_t a = 0; a < w.n; a++)
            for (size_t b = 0; b < a; b++)
                most = fmax(most, most_of_pair(&w, a, b));
        decide_on(&w, &d);
        check(&w, &d);
        HOLDS(most <= d.metrics.upper_bound + 1e-9);
        HOLDS(d.metrics.utilization > 0.995 * most && d.metrics.upper_bound < 1.005 * most + 1e-9);
        tried++;
    }
}

/* Minima that leave little room: when the numbers of nodes with each pattern are rounded, single
 * containers of a min are missing. They get a place, so the division is not lost. */
static void tight_minima(void **state)
{
    (void)state;
    static const struct {
        uint64_t number;
        uint32_t tight;
    } tries[] = { { 123, 80 }, { 223, 90 } };
    static struct world w;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    for (size_t c = 0; c < ARRAY_LEN(tries); c++) {
        make(&w, tries[c].number, tries[c].tight);
        decide_on(&w, &d);
        check(&w, &d);
        HOLDS(d.metrics.utilization > 0.99 * d.metrics.upper_bound);
    }
}

/* The best set of jobs can be far below the bound for all sets. It was given up once, and the
 * divisions were 10 to 15 % below the bound. */
static void far_below_the_bound(void **state)
{
    (void)state;
    static const struct {
        uint64_t number;
        uint32_t tight;
    } tries[] = { { 7, 0 }, { 34, 60 }, { 130, 85 } };
    static struct world w;
    AUTO(part_decision_done) struct part_decision d = { 0 };
    for (size_t c = 0; c < ARRAY_LEN(tries); c++) {
        make(&w, tries[c].number, tries[c].tight);
        decide_on(&w, &d);
        check(&w, &d);
        HOLDS(d.metrics.utilization > 0.99 * d.metrics.upper_bound);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_divisions),
                                        cmocka_unit_test(tight_minima),
                                        cmocka_unit_test(far_below_the_bound),
                                        cmocka_unit_test(two_may_change) };
    return cmocka_run_group_tests_name("dorm_large", tests, NULL, NULL);
}
