/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prices for the capacity of each class of nodes, and for the loss of fairness.
 *
 * Each job pays for the capacity of the classes that it uses, and for its part of the bound on the
 * loss. These prices replace the constraints (Lagrangian relaxation). Then each job can choose
 * alone: its best count, in its cheapest classes. The sum of these best values, plus the price of
 * all capacity and of the whole bound, is an upper bound: no feasible allocation has more
 * utilization, whatever the prices are. The prices change step by step so that this bound falls: a
 * price rises where the jobs want more than the capacity, else it falls (subgradient method). The
 * limit on adjustments remains a constraint: only the jobs that gain most change.
 *
 * With price[g][k] for the whole capacity of type k in the cluster, as it is seen in class g, and
 * mu for the loss:
 *
 *   cost[i][g]   one container of job i in class g: sum over k of price[g][k] * dn[i][k]
 *   value of n containers in the classes x[g], with n = sum of x[g]:
 *                u * n - mu * D * |n - ideal| - sum over g of cost[i][g] * x[g]
 *   best         n is at most the number of containers in classes with cost < u - mu * D above the
 *                ideal count, or with cost < u + mu * D below it, cheapest classes first
 *   gain         best value - value of the present containers
 *   bound        sum of the values (best of the jobs that change, present of the others)
 *                + mu * loss_bound + sum over g and k of price[g][k] * share[g][k]
 *   step         price -= step * (free part of the class), mu -= step * (free part of the bound on
 *                the loss), both at least 0, with
 *                step = (bound - least bound so far + delta * least bound) / (sum of the squares of
 *                all these free parts)
 */
#include "partition/dorm.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/util.h"

enum {
    PATIENCE = 6, /* rounds without gain before the steps become half as long */
};

struct dorm_bound_memory {
    double *cost;    /* [class], of one job */
    uint32_t *cheap; /* the classes by rising cost */
    uint32_t *x;     /* [job][class]: if the job changes */
    double *fixed, *free_value, *round_gain;
    double *by_gain;
    bool *changes;
    double *use; /* [class][m] */
};

int dorm_prices_init(struct dorm_problem *p, struct dorm_prices *prices)
{
    size_t n = p->n_all, G = p->n_classes;
    struct dorm_bound_memory *b = dorm_alloc(p, 1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    *prices = (struct dorm_prices){ .memory = b, .enough = -INFINITY };
    b->cost = dorm_alloc(p, G, sizeof(*b->cost));
    b->cheap = dorm_alloc(p, G, sizeof(*b->cheap));
    b->x = dorm_alloc(p, n * G, sizeof(*b->x));
    b->fixed = dorm_alloc(p, n, sizeof(*b->fixed));
    b->free_value = dorm_alloc(p, n, sizeof(*b->free_value));
    b->round_gain = dorm_alloc(p, n, sizeof(*b->round_gain));
    b->by_gain = dorm_alloc(p, n, sizeof(*b->by_gain));
    b->changes = dorm_alloc(p, n, sizeof(*b->changes));
    b->use = dorm_alloc(p, 2 * G * p->m, sizeof(*b->use));
    prices->node = dorm_alloc(p, G * p->m, sizeof(*prices->node));
    prices->want = dorm_alloc(p, n * G, sizeof(*prices->want));
    prices->gain = dorm_alloc(p, n, sizeof(*prices->gain));
    return p->failed ? -ENOMEM : 0;
}

/* Set cost, and cheap to the order of the classes by cost. */
static void price_job(const struct dorm_problem *p, struct dorm_bound_memory *b,
                      const double *prices, uint32_t i)
{
    const struct dorm_job *job = &p->jobs[i];
    for (uint32_t g = 0; g < p->n_classes; g++) {
        double cost = 0;
        for (uint32_t k = 0; k < p->m; k++)
            cost += prices[g * p->m + k] * job->dn[k];
        b->cost[g] = cost;
        uint32_t at = g;
        for (; at > 0 && b->cost[b->cheap[at - 1]] > cost; at--)
            b->cheap[at] = b->cheap[at - 1];
        b->cheap[at] = g;
    }
}

static uint64_t sum_of(const uint32_t *v, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += v[i];
    return sum;
}

/* Choose the best count of a job and its classes. Sets x; returns the value of that choice. */
static double best_of_job(const struct dorm_problem *p, const struct dorm_prices *prices,
                          uint32_t i, double mu)
{
    struct dorm_bound_memory *b = prices->memory;
    const struct dorm_job *job = &p->jobs[i];
    const uint32_t *fit = (prices->fit ? prices->fit : p->fit_class) + (size_t)i * p->n_classes;
    uint32_t *x = b->x + (size_t)i * p->n_classes;
    uint64_t above = 0, below = 0;
    for (uint32_t g = 0; g < p->n_classes; g++) {
        if (b->cost[g] < job->u - mu * job->D)
            above += fit[g];
        if (b->cost[g] < job->u + mu * job->D)
            below += fit[g];
    }
    uint64_t n = above > job->ideal ? above : MIN(below, (uint64_t)job->ideal);
    n = MIN(MAX(n, (uint64_t)job->lo), (uint64_t)job->hi);
    if (prices->fit)
        n = MIN(n, sum_of(fit, p->n_classes));
    double value = job->u * (double)n - mu * job->D * fabs((double)n - job->ideal);
    for (uint32_t c = 0; c < p->n_classes; c++) {
        uint32_t g = b->cheap[c];
        x[g] = (uint32_t)MIN(n, (uint64_t)fit[g]);
        value -= b->cost[g] * x[g];
        n -= x[g];
    }
    return value;
}

static double value_of_staying(const struct dorm_problem *p, const struct dorm_bound_memory *b,
                               uint32_t i, double mu)
{
    const struct dorm_job *job = &p->jobs[i];
    const uint32_t *at = p->at_class + (size_t)i * p->n_classes;
    double value = job->u * job->now - mu * job->D * fabs((double)job->now - job->ideal);
    for (uint32_t g = 0; g < p->n_classes; g++)
        value -= b->cost[g] * at[g];
    return value;
}

/* The q-th largest of v[0..n), 1 <= q <= n; the order of v changes. */
static double select_largest(double *v, size_t n, size_t q)
{
    size_t from = 0, to = n - 1, want = q - 1;
    while (from < to) {
        double pivot = v[from + (to - from) / 2];
        size_t i = from, j = to;
        while (i <= j) {
            while (v[i] > pivot)
                i++;
            while (v[j] < pivot)
                j--;
            if (i > j)
                break;
            double t = v[i];
            v[i] = v[j];
            v[j] = t;
            i++;
            if (j == 0)
                break;
            j--;
        }
        if (want <= j)
            to = j;
        else if (want >= i)
            from = i;
        else
            break;
    }
    return v[want];
}

/* Choose the adjust_bound jobs that gain most: they may change. If the jobs are picked already,
 * these change. */
static void choose(const struct dorm_problem *p, const struct dorm_prices *prices)
{
    struct dorm_bound_memory *b = prices->memory;
    size_t n = 0;
    if (prices->picked) {
        for (uint32_t i = 0; i < p->n; i++)
            b->changes[i] = p->jobs[i].kind == DORM_LOOSE || prices->picked[i];
        return;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        b->changes[i] = p->jobs[i].kind == DORM_LOOSE;
        if (p->jobs[i].kind == DORM_COUNTED && b->round_gain[i] > 0)
            b->by_gain[n++] = b->round_gain[i];
    }
    size_t q = MIN((size_t)p->adjust_bound, n);
    if (q == 0)
        return;
    double least = select_largest(b->by_gain, n, q);
    for (uint32_t i = 0; i < p->n; i++)
        if (p->jobs[i].kind == DORM_COUNTED && b->round_gain[i] > least) {
            b->changes[i] = true;
            q--;
        }
    for (uint32_t i = 0; i < p->n && q > 0; i++)
        if (p->jobs[i].kind == DORM_COUNTED && b->round_gain[i] == least) {
            b->changes[i] = true;
            q--;
        }
}

/* The bound for the prices `now` and mu. Sets x, round_gain, changes. */
static double evaluate(const struct dorm_problem *p, const struct dorm_prices *prices,
                       const double *now, double mu)
{
    struct dorm_bound_memory *b = prices->memory;
    for (uint32_t i = 0; i < p->n; i++) {
        price_job(p, b, now, i);
        b->free_value[i] = p->jobs[i].kind == DORM_FIXED ? 0 : best_of_job(p, prices, i, mu);
        b->fixed[i] = p->jobs[i].kind == DORM_LOOSE ? 0 : value_of_staying(p, b, i, mu);
        b->round_gain[i] = b->free_value[i] - b->fixed[i];
    }
    choose(p, prices);
    double value = mu * p->loss_bound;
    for (uint32_t i = 0; i < p->n; i++)
        value += b->changes[i] ? b->free_value[i] : b->fixed[i];
    for (uint32_t g = 0; g < p->n_classes; g++)
        for (uint32_t k = 0; k < p->m; k++)
            value += now[g * p->m + k] * p->classes[g].share[k];
    return value;
}

/* Set b->use to the free capacity of each class, and *slack to the free part of the bound on the
 * loss. Returns the square of their norm. */
static double measure(const struct dorm_problem *p, struct dorm_bound_memory *b, double *slack)
{
    *slack = p->loss_bound;
    for (uint32_t g = 0; g < p->n_classes; g++)
        for (uint32_t k = 0; k < p->m; k++)
            b->use[g * p->m + k] = p->classes[g].share[k];
    for (uint32_t i = 0; i < p->n; i++) {
        const struct dorm_job *job = &p->jobs[i];
        const uint32_t *x = (b->changes[i] ? b->x : p->at_class) + (size_t)i * p->n_classes;
        double n = 0;
        for (uint32_t g = 0; g < p->n_classes; g++) {
            if (x[g] == 0)
                continue;
            n += x[g];
            for (uint32_t k = 0; k < p->m; k++)
                b->use[g * p->m + k] -= x[g] * job->dn[k];
        }
        *slack -= job->D * fabs(n - job->ideal);
    }
    double norm = *slack * *slack;
    for (uint32_t c = 0; c < p->n_classes * p->m; c++)
        norm += b->use[c] * b->use[c];
    return norm;
}

/* Update the mean counts and gains. Later rounds count more: the prices of early rounds are far
 * off. */
static void average(const struct dorm_problem *p, struct dorm_prices *prices, bool early)
{
    const struct dorm_bound_memory *b = prices->memory;
    double weight = early ? 1 : 0.04;
    for (uint32_t i = 0; i < p->n; i++) {
        const uint32_t *x = (b->changes[i] ? b->x : p->at_class) + (size_t)i * p->n_classes;
        double *want = prices->want + (size_t)i * p->n_classes;
        for (uint32_t g = 0; g < p->n_classes; g++)
            want[g] += weight * (x[g] - want[g]);
        prices->gain[i] += weight * (b->round_gain[i] - prices->gain[i]);
    }
}

/* A lower bound: every feasible allocation has at least this utilization. */
static double least_use(const struct dorm_problem *p)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->n; i++)
        sum += p->jobs[i].u * (p->jobs[i].kind == DORM_FIXED ? p->jobs[i].now : p->jobs[i].lo);
    return sum;
}

static void reset(const struct dorm_problem *p, struct dorm_prices *prices, double *now)
{
    for (uint32_t g = 0; g < p->n_classes; g++)
        for (uint32_t k = 0; k < p->m; k++)
            now[g * p->m + k] = p->classes[g].share[k] > 0 ? 0.5 : 0;
    memcpy(prices->node, now, sizeof(*now) * p->n_classes * p->m);
    memset(prices->want, 0, sizeof(*prices->want) * p->n * p->n_classes);
    memset(prices->gain, 0, sizeof(*prices->gain) * p->n);
    prices->loss = 0.1;
    prices->upper = p->m;
    prices->impossible = false;
}

void dorm_prices_find(struct dorm_problem *p, struct dorm_prices *prices, unsigned rounds)
{
    struct dorm_bound_memory *b = prices->memory;
    size_t cells = (size_t)p->n_classes * p->m;
    double *now = b->use + cells, mu = 0.1, best = INFINITY, delta = 0.1;
    double least = least_use(p);
    unsigned stale = 0;
    reset(p, prices, now);
    for (unsigned round = 0; round < rounds; round++) {
        double value = evaluate(p, prices, now, mu), slack;
        stale = round == 0 || value < best - 1e-4 * fabs(best) ? 0 : stale + 1;
        if (value < best) {
            best = value;
            memcpy(prices->node, now, sizeof(*now) * cells);
            prices->loss = mu;
        }
        if (stale > PATIENCE) {
            delta /= 2;
            stale = 0;
        }
        average(p, prices, round < rounds / 3);
        double norm = measure(p, b, &slack);
        prices->impossible = best < least - 1e-6;
        if (prices->impossible || best < prices->enough)
            break;
        if (norm < 1e-16 || delta < 1e-4 ||
            !dorm_work(&p->work, (uint64_t)p->n * (p->n_classes + 1)))
            break;
        double step = MAX(value - best + delta * fabs(best), 0.0) / norm;
        for (size_t c = 0; c < cells; c++)
            now[c] = MAX(0.0, now[c] - step * b->use[c]);
        mu = MAX(0.0, mu - step * slack);
    }
    prices->upper = MIN(best, (double)p->m);
}

double dorm_prices_values(struct dorm_problem *p, struct dorm_prices *prices, double *gain)
{
    struct dorm_bound_memory *b = prices->memory;
    evaluate(p, prices, prices->node, prices->loss);
    double value = prices->loss * p->loss_bound;
    for (uint32_t i = 0; i < p->n; i++) {
        gain[i] = MAX(b->round_gain[i], 0.0);
        value += p->jobs[i].kind == DORM_LOOSE ? b->free_value[i] : b->fixed[i];
    }
    for (uint32_t g = 0; g < p->n_classes; g++)
        for (uint32_t k = 0; k < p->m; k++)
            value += prices->node[g * p->m + k] * p->classes[g].share[k];
    return value;
}
