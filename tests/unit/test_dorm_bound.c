/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upper bounds of the policy `dorm` on random instances that are so small that all divisions
 * can be tried: no bound may be below the best division. The parts of the search that are meant for
 * large problems (dorm_whole.c, dorm_patterns.c, dorm_pairs.c) are called directly, also with
 * prices that are far from good ones: their bounds must hold for any prices.
 *
 * The environment variable TONY_ROUNDS=n tries n / 20 instances instead of 2,000; TONY_SEED=n sets
 * the seed of the first instance. A failed check prints the seed of its instance.
 */
#include "dorm_world.h"

#include <math.h>
#include <string.h>

#include "partition/dorm_pairs.h"
#include "partition/dorm_partners.h"

enum {
    NODES = 3,
    JOBS = 4,
    MOST = 7,       /* containers of a job */
    VECTORS = 1024, /* sets of containers that fit on one node */
    COUNTS = 4096,  /* (MOST + 1) ^ JOBS */
    MASKS = 1 << JOBS,
    RANDOM_PRICES = 4,
};

struct world {
    struct part_cluster c;
    struct part_amount nodes[NODES];
    struct part_job jobs[JOBS];
    struct part_place at[JOBS][NODES];
    size_t n;
    struct part_options o;
};

/* Let job i run if at least its min fits. special: it may be pinned, or have lost containers. */
static void place(struct world *w, size_t i, struct part_amount *free, bool special)
{
    struct part_job *job = &w->jobs[i];
    uint32_t want = job->min + below(job->max - job->min + 1), n = 0, n_at = 0;
    struct part_amount left[NODES];
    memcpy(left, free, sizeof(left));
    for (uint32_t j = 0; j < w->c.n_nodes; j++) {
        uint32_t here = 0;
        while (n < want && fits(&left[j], &job->demand) && below(4) > 0) {
            take(&left[j], &job->demand, 1);
            here++;
            n++;
        }
        if (here > 0)
            w->at[i][n_at++] = (struct part_place){ j, here };
    }
    if (n < job->min)
        return;
    memcpy(free, left, sizeof(left));
    job->at = w->at[i];
    job->n_at = n_at;
    job->pinned = special && below(8) == 0;
    job->lost = special && !job->pinned && below(6) == 0;
}

/* Give one type of resource large amounts, which have no large common divisor. On half of the
 * nodes, containers of one job need all of it, if the running jobs leave so much. */
static void make_large(struct world *w)
{
    static const int64_t unit = INT64_C(1) << 36;
    uint32_t k = below(w->c.n_types);
    for (size_t i = 0; i < w->n; i++)
        w->jobs[i].demand.v[k] = w->jobs[i].demand.v[k] * unit - below(1u << 30);
    for (uint32_t j = 0; j < w->c.n_nodes; j++) {
        int64_t *cap = &w->nodes[j].v[k], used = 0;
        *cap *= unit;
        for (size_t i = 0; i < w->n; i++)
            for (uint32_t a = 0; a < w->jobs[i].n_at; a++)
                if (w->at[i][a].node == j)
                    used += w->jobs[i].demand.v[k] * w->at[i][a].n;
        int64_t rest = *cap % w->jobs[below((uint32_t)w->n)].demand.v[k];
        if (below(2) && *cap - rest >= used)
            *cap -= rest;
    }
}

/* Running jobs come first. In a third of the instances, all jobs run, and at most two may change.
 * An eighth has 4 to 8 types of resources, a quarter has large amounts.
 */
static void make(struct world *w, uint64_t number)
{
    struct part_amount free[NODES];
    begin_instance(number);
    *w = (struct world){ .n = 1 + below(JOBS) };
    uint32_t n_types = number % 8 == 7 ? 4 + below(5) : 1 + below(TYPES);
    w->c = (struct part_cluster){ n_types, types, 1 + below(NODES), w->nodes };
    for (uint32_t j = 0; j < w->c.n_nodes; j++)
        for (uint32_t k = 0; k < w->c.n_types; k++)
            w->nodes[j].v[k] = 2 + below(6);
    memcpy(free, w->nodes, sizeof(free));
    bool pairs = below(3) == 0, running = pairs || below(4) > 0, queue = !pairs && below(3) > 0;
    for (size_t i = 0; i < w->n; i++) {
        struct part_job *job = &w->jobs[i];
        *job = (struct part_job){ .id = "x", .weight = 1 + below(3), .min = 1 + below(2) };
        job->max = MIN(job->min + below(6), (uint32_t)MOST);
        for (uint32_t k = 0; k < w->c.n_types; k++)
            job->demand.v[k] = 1 + below(3);
        job->demand.v[below(w->c.n_types)] += below(3);
        job->remaining_s = job->ends_in_s = INFINITY;
        if (running)
            place(w, i, free, !pairs);
        running = running && job->n_at > 0 && (below(3) > 0 || !queue);
    }
    w->o = part_defaults;
    w->o.seed = number;
    w->o.theta1 = below(5) / 4.0;
    w->o.theta2 = below(5) / 4.0;
    if (below(2))
        w->o.loss_max = below(8) * 0.1;
    if (below(2))
        w->o.adjust_max = below(3);
    if (pairs) {
        while (w->n > 0 && w->jobs[w->n - 1].n_at == 0)
            w->n--;
        w->o.adjust_max = 2;
        w->o.loss_max = below(10) * 0.1;
    }
    if (number % 4 == 3 && w->n > 0)
        make_large(w);
}

/* ---- the best division, by trying all */

/* The division of a node: containers of each job. */
struct vector {
    uint8_t n[JOBS];
};

static uint32_t list_vectors(const struct dorm_problem *p, uint32_t node, struct vector *out)
{
    struct vector v = { 0 };
    uint32_t n = 0;
    for (bool more = true; more;) {
        bool ok = true;
        for (uint32_t k = 0; k < p->m; k++) {
            int64_t used = 0;
            for (uint32_t i = 0; i < p->n; i++)
                used += p->jobs[i].d[k] * v.n[i];
            ok &= used <= p->cap[(size_t)node * p->m + k];
        }
        if (ok) {
            HOLDS(n < VECTORS);
            out[n++] = v;
        }
        uint32_t i =
            0; /* the next vector: where one job has too many, the next job gets one more */
        if (!ok)
            while (i < p->n && v.n[i] == 0)
                i++;
        for (bool carry = !ok; i < p->n; i++, carry = false) {
            if (!carry && v.n[i] < MOST) {
                v.n[i]++;
                break;
            }
            v.n[i] = 0;
        }
        more = i < p->n;
    }
    return n;
}

static uint32_t now_on(const struct dorm_job *job, uint32_t node)
{
    for (uint32_t a = 0; a < job->n_at; a++)
        if (job->at[a].node == node)
            return job->at[a].n;
    return 0;
}

/* Is this an allowed division? counts: of the jobs, as digits. mask: the jobs whose places changed.
 */
static bool allowed(const struct dorm_problem *p, uint32_t counts, uint32_t mask, double *util)
{
    double loss = 0;
    uint32_t adjusted = 0;
    *util = 0;
    for (uint32_t i = 0; i < p->n; i++, counts /= MOST + 1) {
        const struct dorm_job *job = &p->jobs[i];
        uint32_t n = counts % (MOST + 1);
        bool changes = mask >> i & 1;
        if (n < job->lo || n > job->hi || (changes && job->kind == DORM_PINNED))
            return false;
        adjusted += changes && job->kind == DORM_COUNTED;
        loss += dorm_loss_of(job, n);
        *util += job->u * n;
    }
    return loss <= dorm_loss_limit(p) && adjusted <= p->adjust_bound;
}

/* Can a node get vector v if the nodes before it have these counts? No job gets more than MOST. */
static bool can_add(const struct dorm_problem *p, uint32_t counts, const struct vector *v)
{
    for (uint32_t i = 0; i < p->n; i++, counts /= MOST + 1)
        if (counts % (MOST + 1) + v->n[i] > MOST)
            return false;
    return true;
}

/* The most utilization of an allowed division; -1: there is none. */
static double best_use(const struct dorm_problem *p)
{
    /* By counts: bit m is set if the nodes so far can have these, and the jobs of m have changed.
     */
    static uint32_t reached[2][COUNTS];
    static struct vector vectors[VECTORS];
    uint32_t turn = 0;
    double best = -1, util;
    memset(reached, 0, sizeof(reached));
    reached[0][0] = 1;
    for (uint32_t j = 0; j < p->n_nodes; j++, turn = !turn) {
        uint32_t n = list_vectors(p, j, vectors);
        memset(reached[!turn], 0, sizeof(reached[0]));
        for (uint32_t c = 0; c < n; c++) {
            uint32_t mask = 0, add = 0;
            for (uint32_t i = 0, digit = 1; i < p->n; i++, digit *= MOST + 1) {
                mask |= (uint32_t)(vectors[c].n[i] != now_on(&p->jobs[i], j)) << i;
                add += digit * vectors[c].n[i];
            }
            for (uint32_t from = 0; from + add < COUNTS; from++) {
                uint32_t set = reached[turn][from];
                if (set == 0 || !can_add(p, from, &vectors[c]))
                    continue;
                for (uint32_t m = 0; m < MASKS; m++)
                    reached[!turn][from + add] |= (set >> m & 1) << (m | mask);
            }
        }
    }
    for (uint32_t counts = 0; counts < COUNTS; counts++)
        for (uint32_t m = 0; m < MASKS; m++)
            if (reached[turn][counts] >> m & 1 && allowed(p, counts, m, &util))
                best = MAX(best, util);
    return best;
}

/* ---- the bounds */

static uint32_t tried[6]; /* how often each kind of bound was checked */

/* The bound of dorm_whole.c, for prices of all kinds. */
static void check_whole(struct dorm_search *s, double best)
{
    struct dorm_problem *p = s->p;
    struct dorm_prices *prices = &s->prices;
    double pi[JOBS];
    dorm_whole_prices(p, prices, 100000);
    if (!prices->pi)
        return;
    for (uint32_t c = 0; c <= RANDOM_PRICES; c++) {
        double mu = c == 0 ? prices->pi_loss : below(3) * 0.4 * prices->pi_loss + below(3) * 0.1;
        for (uint32_t v = 0; v < p->n; v++)
            pi[v] = prices->pi[v] * (c == 0 ? 1 : below(5) * 0.5);
        prices->upper = INFINITY;
        dorm_whole_bound(p, prices, pi, mu, below(3) == 0 ? INFINITY : 0, below(2) * 100000);
        HOLDS(best <= prices->upper + 1e-9);
        tried[1]++;
    }
}

/* V(S) of dorm_whole.c for the counted jobs of the set (bit i: job i) at the prices of the rooms.
 */
static double value_of_set(const struct dorm_rooms *r, double mu, uint32_t set)
{
    const struct dorm_problem *p = r->p;
    double value = mu * dorm_loss_limit(p), n;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct dorm_job *job = &p->jobs[i];
        bool changes = job->kind == DORM_LOOSE || (job->kind == DORM_COUNTED && set >> i & 1);
        value += changes ? dorm_rooms_buy(job, r->pi[r->demand_of[i]], mu, &n)
                         : job->u * job->now - dorm_loss_cost(job, job->now, mu);
    }
    for (uint32_t j = 0; j < p->n_nodes; j++) {
        int64_t room[PART_TYPES_MAX];
        uint32_t here = 0;
        for (uint32_t h = r->first[j]; h < r->first[j + 1]; h++)
            here |= (set >> r->held[h].job & 1) << (h - r->first[j]);
        dorm_rooms_room(r, j, here, room);
        value += dorm_rooms_worth(r, room);
    }
    return value;
}

/* The bound of dorm_partners.c is not below V(S) of any set S. pi: of each demand, in u. */
static void check_partners(struct dorm_problem *p, const double *pi, double mu)
{
    struct dorm_rooms rooms;
    struct dorm_partners c;
    size_t cell[NODES << JOBS];
    uint32_t first_set[NODES + 1] = { 0 };
    if (!dorm_rooms_init(&rooms, p, 1))
        return;
    for (uint32_t v = 0; v < rooms.n_demands; v++)
        rooms.pi[v] = p->jobs[rooms.example[v]].u * pi[v];
    dorm_rooms_fill(&rooms);
    for (uint32_t j = 0; j < p->n_nodes; j++) {
        first_set[j + 1] = first_set[j] + (1u << dorm_shared(&rooms, j));
        for (uint32_t set = 0; set < first_set[j + 1] - first_set[j]; set++) {
            int64_t room[PART_TYPES_MAX];
            dorm_rooms_room(&rooms, j, set, room);
            cell[first_set[j] + set] = dorm_rooms_cell(&rooms, room);
        }
    }
    HOLDS(dorm_partners_init(&c, &rooms));
    c.mu = mu;
    c.cell = cell;
    c.first_set = first_set;
    double bound = dorm_partners_bound(&c, 0, INFINITY, below(2) ? UINT64_MAX : 0);
    for (uint32_t set = 0; set < 1u << p->n; set++)
        if ((uint32_t)__builtin_popcount(set) <= p->adjust_bound)
            HOLDS(value_of_set(&rooms, mu, set) <= bound + 1e-9);
    tried[5]++;
}

/* Branch and bound, which begins with the present containers and not with a good division, and may
 * be stopped early. */
static void check_exact(struct dorm_search *s, double best)
{
    s->prices.upper = INFINITY;
    dorm_state_keep(&s->state);
    s->best.any = false;
    dorm_plan_save(&s->best, &s->state);
    enum dorm_proof proof = dorm_exact(s, below(4) * below(4000));
    HOLDS(best <= s->prices.upper + 1e-9);
    HOLDS(proof != DORM_IMPOSSIBLE || best < 0);
    HOLDS((proof != DORM_BEST && proof != DORM_BEST_USE) || s->best.score.util >= best - 1e-9);
    tried[4] += proof != DORM_UNKNOWN || isfinite(s->prices.upper);
}

static void check_bounds(struct dorm_search *s)
{
    double pi[JOBS];
    struct dorm_problem *p = s->p;
    double best = best_use(p);
    bool found = dorm_search_start(s);
    HOLDS(!found || s->best.score.util <= best + 1e-9);
    HOLDS(best < 0 || !s->prices.impossible);
    HOLDS(s->prices.impossible || best <= s->prices.upper + 1e-9);
    tried[0] += !s->prices.impossible;
    if (best < 0 || s->prices.impossible)
        return;
    if (dorm_counted_may_change(p)) {
        check_whole(s, best);
        for (uint32_t v = 0; v < p->n; v++)
            pi[v] = below(9) * 0.25;
        check_partners(p, pi, below(3) * 0.2);
    }
    s->prices.upper = INFINITY;
    dorm_from_patterns(s, 200000, 200000);
    HOLDS(s->best.score.bad > 0 || s->best.score.util <= best + 1e-9);
    HOLDS(best <= s->prices.upper + 1e-9);
    tried[2] += isfinite(s->prices.upper);
    check_exact(s, best);
}

/* The bound of the whole search, which ends after a random number of steps in half of the cases. */
static void check_decision(struct world *w, struct dorm_problem *p, struct part_decision *d)
{
    struct err e = { 0 };
    uint32_t queued = 0;
    w->o.limit.steps = below(2) * (1 + below(3) * below(10000)); /* 0: no limit */
    HOLDS(part_decide(part_policy_find("dorm"), &w->c, w->jobs, w->n, &w->o, d, &e) == 0);
    for (uint32_t i = p->n_running; i < p->n_all; i++)
        queued += d->jobs[p->jobs[i].index].n > 0;
    HOLDS(dorm_problem_admit(p, queued) == 0);
    p->loss_bound = d->metrics.loss_bound; /* larger, if it had to be relaxed */
    double best = best_use(p);
    HOLDS(d->metrics.utilization <= best + 1e-9);
    HOLDS(best <= d->metrics.upper_bound + 1e-9);
    HOLDS(!d->metrics.proved || d->metrics.utilization >= best - 1e-9);
    tried[3]++;
}

static void no_bound_is_below_the_best_division(void **state)
{
    (void)state;
    static struct world w;
    AUTO(part_decision_done) struct part_decision out = { 0 };
    AUTO(part_decision_done) struct part_decision d = { 0 };
    uint64_t rounds = MAX(number_of("TONY_ROUNDS", 40000) / 20, (uint64_t)1),
             first = number_of("TONY_SEED", 0);
    memset(tried, 0, sizeof(tried));
    for (uint64_t round = first; round < first + rounds; round++) {
        struct dorm_problem p;
        struct dorm_search s;
        make(&w, round);
        HOLDS(part_begin(&out, w.n) == 0);
        HOLDS(dorm_problem_init(&p, &w.c, w.jobs, w.n, &w.o, &out) == 0);
        HOLDS(dorm_search_init(&p, &s) == 0);
        HOLDS(dorm_problem_admit(&p, below(p.n_all - p.n_running + 1)) == 0);
        if (p.n > 0)
            check_bounds(&s);
        check_decision(&w, &p, &d);
    }
    for (size_t c = 0; c < ARRAY_LEN(tried); c++) /* each kind of bound was looked at */
        assert_true(rounds < 1000 || tried[c] > rounds / 4);
}

/* Three jobs must leave a node before a container of the fourth job fits there. */
static void three_must_leave(void **state)
{
    (void)state;
    static const double pi[] = { 1, 0 }; /* of the container that needs the whole node */
    struct world w = { .n = JOBS, .o = part_defaults };
    AUTO(part_decision_done) struct part_decision out = { 0 };
    struct dorm_problem p;
    struct dorm_search s;
    begin_instance(0);
    w.c = (struct part_cluster){ 1, types, 1, w.nodes };
    w.nodes[0].v[0] = 6;
    for (size_t i = 0; i < JOBS; i++) {
        bool large = i == JOBS - 1;
        w.jobs[i] = (struct part_job){
            .id = "x", .weight = 1, .min = 1, .max = 3, .demand = { { large ? 6 : 2 } }
        };
        w.at[i][0] = (struct part_place){ 0, 1 };
        w.jobs[i].at = large ? NULL : w.at[i];
        w.jobs[i].n_at = !large;
    }
    w.o.adjust_max = 3;
    HOLDS(part_begin(&out, w.n) == 0);
    HOLDS(dorm_problem_init(&p, &w.c, w.jobs, w.n, &w.o, &out) == 0);
    HOLDS(dorm_search_init(&p, &s) == 0);
    HOLDS(dorm_problem_admit(&p, 1) == 0);
    dorm_waste_find(&p);
    check_partners(&p, pi, 0);
}

/* 100,000 prices are added as floats, and the sum is too low by a part of 1.4e-4. The worth of the
 * room must not be. */
static void many_containers_on_a_node(void **state)
{
    enum { N = 100000 };
    (void)state;
    static const double price = 0.1;
    static const int64_t room[] = { N };
    struct world w = { .n = 1, .o = part_defaults };
    AUTO(part_decision_done) struct part_decision out = { 0 };
    struct dorm_problem p;
    struct dorm_search s;
    struct dorm_rooms rooms;
    begin_instance(0);
    w.c = (struct part_cluster){ 1, types, 1, w.nodes };
    w.nodes[0].v[0] = N;
    w.jobs[0] =
        (struct part_job){ .id = "x", .weight = 1, .min = 1, .max = N, .demand = { { 1 } } };
    HOLDS(part_begin(&out, w.n) == 0);
    HOLDS(dorm_problem_init(&p, &w.c, w.jobs, w.n, &w.o, &out) == 0);
    HOLDS(dorm_search_init(&p, &s) == 0);
    HOLDS(dorm_problem_admit(&p, 1) == 0);
    dorm_waste_find(&p);
    HOLDS(dorm_rooms_init(&rooms, &p, 1));
    HOLDS(rooms.n_demands == 1);
    rooms.pi[0] = price;
    dorm_rooms_fill(&rooms);
    HOLDS(dorm_rooms_worth(&rooms, room) >= N * price);
}

/* 10^5 containers fit on each of ten nodes. They are not placed one after the other. */
static void small_containers_are_placed_at_once(void **state)
{
    (void)state;
    enum { N = 10, EACH = 100000 };
    static struct part_amount nodes[N];
    struct part_cluster c = { 1, types, N, nodes };
    struct part_job one = {
        .id = "x", .weight = 1, .min = 1, .max = N * EACH, .demand = { { 1 } }
    };
    struct part_options o = part_defaults;
    AUTO(part_decision_done) struct part_decision out = { 0 };
    struct dorm_problem p;
    struct dorm_search s;
    begin_instance(0);
    for (uint32_t j = 0; j < N; j++)
        nodes[j].v[0] = EACH;
    HOLDS(part_begin(&out, 1) == 0);
    HOLDS(dorm_problem_init(&p, &c, &one, 1, &o, &out) == 0);
    HOLDS(dorm_search_init(&p, &s) == 0);
    HOLDS(dorm_problem_admit(&p, 1) == 0);
    dorm_search_prices(&s);
    uint64_t before = p.work.steps;
    HOLDS(dorm_place(&s, 0, N * EACH) == N * EACH);
    HOLDS(p.work.steps - before < 10000);
}

/* 200 jobs have a container on each of 1,000 nodes: the list of all pairs has a limit of steps. */
static void pairs_on_many_nodes(void **state)
{
    (void)state;
    enum { N = 1000, RUNNING = 200 };
    static struct part_amount nodes[N];
    static struct part_place all[N];
    static struct part_job jobs[RUNNING];
    struct part_cluster c = { 1, types, N, nodes };
    struct part_options o = bounds(10, 2);
    AUTO(part_decision_done) struct part_decision out = { 0 };
    struct dorm_problem p;
    uint32_t n;
    begin_instance(0);
    for (uint32_t j = 0; j < N; j++) {
        nodes[j].v[0] = 2 * RUNNING;
        all[j] = (struct part_place){ j, 1 };
    }
    for (uint32_t i = 0; i < RUNNING; i++)
        jobs[i] = running(job("x", 1 + i % 2, 0, 1, 4 * N), all, N);
    HOLDS(part_begin(&out, RUNNING) == 0);
    HOLDS(dorm_problem_init(&p, &c, jobs, RUNNING, &o, &out) == 0);
    HOLDS(dorm_problem_admit(&p, 0) == 0);
    uint64_t before = p.work.steps;
    HOLDS(dorm_pairs(&p, 0, &n) != NULL);
    HOLDS(n == RUNNING * (RUNNING - 1) / 2);
    HOLDS(p.work.steps - before < 1500000);
}

/* A division may have a loss that is larger than the bound by DORM_LOSS_EPS. So the upper bound of
 * the utilization must not be below such a division, also with the prices that give the least
 * bound. */
static void loss_just_above_the_bound(void **state)
{
    (void)state;
    struct part_amount node = { { 10, 10, 10 } };
    struct part_cluster c = { TYPES, types, 1, &node };
    struct part_job jobs[] = { job("a", 1, 1, 1, 10), job("b", 1, 0, 1, 10) };
    /* The ideal counts are 5 and 5. 8 and 2 have the loss 0.6 and the utilization 2.6. */
    struct part_options o = bounds(0.6 - 0.9 * DORM_LOSS_EPS, 0);
    AUTO(part_decision_done) struct part_decision out = { 0 };
    struct dorm_problem p;
    struct dorm_search s;
    double gain[2];
    jobs[0].demand.v[2] = 1;
    begin_instance(0);
    HOLDS(part_begin(&out, 2) == 0);
    HOLDS(dorm_problem_init(&p, &c, jobs, 2, &o, &out) == 0);
    HOLDS(dorm_search_init(&p, &s) == 0);
    HOLDS(dorm_problem_admit(&p, 2) == 0);
    dorm_search_prices(&s);
    for (uint32_t k = 0; k < p.m; k++)
        s.prices.node[k] = p.type[k] == 0 ? 2 : 0;
    s.prices.loss = 1;
    HOLDS(dorm_prices_values(&p, &s.prices, gain) >= 2.6);
}

/* Whether the waste of the nodes is searched for depends on nodes * demands * types. */
static void waste_of_many_types(void **state)
{
    (void)state;
    enum { N = 10000, MANY = 400 };
    static const char *const names[PART_TYPES_MAX] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    static struct part_amount nodes[N];
    static struct part_job jobs[MANY];
    struct part_cluster c = { PART_TYPES_MAX, names, N, nodes };
    AUTO(part_decision_done) struct part_decision out = { 0 };
    struct part_options o = part_defaults;
    struct dorm_problem p;
    begin_instance(0);
    for (uint32_t j = 0; j < N; j++)
        for (uint32_t k = 0; k < PART_TYPES_MAX; k++)
            nodes[j].v[k] = 1000 + j;
    for (uint32_t i = 0; i < MANY; i++) {
        jobs[i] = job("x", 1 + i, 1, 1, 1);
        for (uint32_t k = 2; k < PART_TYPES_MAX; k++)
            jobs[i].demand.v[k] = 1;
    }
    HOLDS(part_begin(&out, MANY) == 0);
    HOLDS(dorm_problem_init(&p, &c, jobs, MANY, &o, &out) == 0);
    HOLDS(dorm_problem_admit(&p, MANY) == 0);
    uint64_t before = p.work.steps;
    dorm_waste_find(&p);
    HOLDS(p.work.steps == before);
    HOLDS(dorm_problem_admit(&p, MANY / 2) == 0);
    dorm_waste_find(&p);
    HOLDS(p.work.steps > before);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(three_must_leave),
                                        cmocka_unit_test(many_containers_on_a_node),
                                        cmocka_unit_test(small_containers_are_placed_at_once),
                                        cmocka_unit_test(pairs_on_many_nodes),
                                        cmocka_unit_test(loss_just_above_the_bound),
                                        cmocka_unit_test(waste_of_many_types),
                                        cmocka_unit_test(no_bound_is_below_the_best_division) };
    return cmocka_run_group_tests_name("dorm_bound", tests, NULL, NULL);
}
