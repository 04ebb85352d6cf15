/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prices for the capacity of each class of nodes, and for the loss of fairness.
 *
 * Each job pays for the capacity of the classes that it uses, and for its part of the bound on the
 * loss. These prices replace the constraints (Lagrangian relaxation). Then each job can choose
 * alone: its best count, in its cheapest classes. The sum of these best values, plus the price of
 * all capacity and of the whole bound, is an upper bound: no feasible allocation has more
 * utilization, whatever the prices are. The prices change step by step so that this bound falls: a
 * price rises where the jobs want more than the capacity, else it falls. The limit on adjustments
 * remains a constraint: only the jobs that gain most change.
 *
 * The method is the volume algorithm (Barahona, Anbil 2000), a form of the subgradient method. Each
 * step starts from the best prices so far, and follows the mean of the free parts of all rounds, in
 * which later rounds count more. The mean of the choices of the jobs in the same rounds nearly
 * keeps all limits. It guides the search for a division (want, gain).
 *
 * With price[g][k] for the whole capacity of type k in the cluster, as it is seen in class g, and
 * mu for the loss:
 *
 *   cost[i][g]   one container of job i in class g: sum over k of price[g][k] * dn[i][k]
 *   value of n containers in the classes x[g], with n = sum of x[g]:
 *                u * n - mu * D * |n - ideal| - sum over g of cost[i][g] * x[g]
 *   best         n is at most the number of containers in classes with cost < u - mu * D above the
 *                ideal count, or with cost < u + mu * D below it, cheapest classes first
 *   freed        of a running job: sum over g and k of price[g][k] * freed[i][g][k] (dorm_reach.c)
 *   gain         best value + freed - value of the present containers
 *   bound        sum of the values (best + freed of the jobs that change, present of the others)
 *                + mu * loss_limit + sum over g and k of price[g][k] * (share[g][k] - lost[g][k])
 *   free[g][k]   share[g][k] - lost[g][k] + freed[i][g][k] of the jobs that change
 *                - the sum of x[i][g] * dn[i][k]; its mean: free'
 *   slack        loss_limit - sum of D * |n - ideal|; its mean: slack'
 *   step         price = best price - step * free'[g][k] / share[g][k], mu = best mu - step *
 *                slack', both at least 0, with step = delta * least bound / (sum of
 *                free'[g][k]^2 / share[g][k], plus slack'^2); delta falls when the bound stays
 *
 * Where a mean comes near 0, a step can be very long. No price rises above PRICE_MAX. The sum of
 * the bound has rounding errors, which are larger for larger prices. A limit of these errors
 * (rounding) is added to each bound, so that it is true.
 */
#include "partition/dorm.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/util.h"

enum {
    PATIENCE = 3,    /* rounds without gain before the steps become shorter */
    WASTE_EVERY = 5, /* rounds between two steps of the waste that counts (dorm_reach.c) */
};

static const double WASTE_STEP = 0.2;
/* The part of the last round in the means of the free parts, and in those of the choices. */
static const double FREE_PART = 0.3, CHOICE_PART = 0.05;
static const double SHORTER = 0.75; /* after rounds without gain */
static const double PRICE_MAX = 1e4;

struct dorm_bound_memory {
    double *cost; /* [class], of one job */
    /* [place in waste.order of the first job with a demand][class]: the classes by rising cost */
    uint32_t *cheap;
    uint32_t *x;                                     /* [job][class]: if the job changes */
    double *fixed, *free_value, *freed, *round_gain; /* of each job */
    double *by_gain;
    bool *changes;
    double *use;     /* [class][m]: the free parts of the classes */
    double *now;     /* [class][m]: the prices that are tried */
    double *by_type; /* [m][class]: the same */
    double summed;   /* the sum of the absolute values of all terms of the last bound */
    /* If the jobs that change are picked: of all others, which stay. */
    double *stays_use, stays_value, stays_loss; /* use: [class][m] */
    double *mean_use, mean_slack;
};

int dorm_prices_init(struct dorm_problem *p, struct dorm_prices *prices)
{
    size_t n = p->n_all, G = p->n_classes;
    struct dorm_bound_memory *b = dorm_alloc(p, 1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    *prices = (struct dorm_prices){ .memory = b, .enough = -INFINITY };
    b->cost = dorm_alloc(p, G, sizeof(*b->cost));
    b->cheap = dorm_alloc(p, n * G, sizeof(*b->cheap));
    b->x = dorm_alloc(p, n * G, sizeof(*b->x));
    b->fixed = dorm_alloc(p, n, sizeof(*b->fixed));
    b->free_value = dorm_alloc(p, n, sizeof(*b->free_value));
    b->freed = dorm_alloc(p, n, sizeof(*b->freed));
    b->round_gain = dorm_alloc(p, n, sizeof(*b->round_gain));
    b->by_gain = dorm_alloc(p, n, sizeof(*b->by_gain));
    b->changes = dorm_alloc(p, n, sizeof(*b->changes));
    b->use = dorm_alloc(p, G * p->m, sizeof(*b->use));
    b->by_type = dorm_alloc(p, G * p->m, sizeof(*b->by_type));
    b->now = dorm_alloc(p, G * p->m, sizeof(*b->now));
    b->stays_use = dorm_alloc(p, G * p->m, sizeof(*b->stays_use));
    b->mean_use = dorm_alloc(p, G * p->m, sizeof(*b->mean_use));
    prices->node = dorm_alloc(p, G * p->m, sizeof(*prices->node));
    prices->least = dorm_alloc(p, G * p->m, sizeof(*prices->least));
    prices->want = dorm_alloc(p, n * G, sizeof(*prices->want));
    prices->freed = dorm_alloc(p, n, sizeof(*prices->freed));
    prices->gain = dorm_alloc(p, n, sizeof(*prices->gain));
    return p->failed ? -ENOMEM : 0;
}

/* Set cost for a container of this job, and cheap to the order of the classes by cost. The order of
 * the last round is nearly right, so the sort begins with it. */
static void price_demand(const struct dorm_problem *p, struct dorm_bound_memory *b,
                         const struct dorm_job *job, uint32_t *cheap)
{
    uint32_t G = p->n_classes;
    memset(b->cost, 0, sizeof(*b->cost) * G);
    for (uint32_t k = 0; k < p->m; k++)
        for (uint32_t g = 0; g < G && job->d[k] > 0; g++)
            b->cost[g] += b->by_type[k * G + g] * job->dn[k];
    for (uint32_t c = 1; c < G; c++) {
        uint32_t g = cheap[c], at = c;
        for (; at > 0 && b->cost[cheap[at - 1]] > b->cost[g]; at--)
            cheap[at] = cheap[at - 1];
        cheap[at] = g;
    }
}

static uint64_t sum_of(const uint32_t *v, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += v[i];
    return sum;
}

/* Choose the best count of a job and its classes. cheap: the classes by rising cost for it. Sets x;
 * returns the value of that choice. */
static double best_of_job(const struct dorm_problem *p, const struct dorm_prices *prices,
                          uint32_t i, const uint32_t *cheap, double mu)
{
    struct dorm_bound_memory *b = prices->memory;
    const struct dorm_job *job = &p->jobs[i];
    const uint32_t *fit = (prices->fit ? prices->fit : p->fit_class) + (size_t)i * p->n_classes;
    uint32_t *x = b->x + (size_t)i * p->n_classes;
    uint64_t above = 0, below = 0;
    for (uint32_t c = 0; c < p->n_classes && b->cost[cheap[c]] < job->u + mu * job->D; c++) {
        if (b->cost[cheap[c]] < job->u - mu * job->D)
            above += fit[cheap[c]];
        below += fit[cheap[c]];
    }
    uint64_t n = above > job->ideal ? above : MIN(below, (uint64_t)job->ideal);
    n = MIN(MAX(n, (uint64_t)job->lo), (uint64_t)job->hi);
    if (prices->fit)
        n = MIN(n, sum_of(fit, p->n_classes));
    double use = job->u * (double)n, value = use - dorm_loss_cost(job, (double)n, mu);
    memset(x, 0, sizeof(*x) * p->n_classes);
    for (uint32_t c = 0; c < p->n_classes && n > 0; c++) {
        uint32_t g = cheap[c];
        x[g] = (uint32_t)MIN(n, (uint64_t)fit[g]);
        value -= b->cost[g] * x[g];
        n -= x[g];
    }
    b->summed += 2 * use - value; /* the costs are use - loss - value */
    return value;
}

static double value_of_staying(const struct dorm_problem *p, struct dorm_bound_memory *b,
                               uint32_t i, double mu)
{
    const struct dorm_job *job = &p->jobs[i];
    const uint32_t *at = p->at_class + (size_t)i * p->n_classes;
    double use = job->u * job->now;
    double value = use - dorm_loss_cost(job, job->now, mu);
    for (uint32_t g = 0; g < p->n_classes; g++)
        value -= b->cost[g] * at[g];
    b->summed += 2 * use - value;
    return value;
}

/* The q-th largest of v[0..n), 1 <= q <= n; the order of v changes. */
double dorm_select_largest(double *v, size_t n, size_t q)
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

/* Which jobs change is known: the loose ones, and those that are picked. Sets changes, and, of the
 * jobs that stay, the sums and want. */
static void note_picked(const struct dorm_problem *p, const struct dorm_prices *prices)
{
    struct dorm_bound_memory *b = prices->memory;
    memset(b->stays_use, 0, sizeof(*b->stays_use) * p->n_classes * p->m);
    b->stays_value = b->stays_loss = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct dorm_job *job = &p->jobs[i];
        const uint32_t *at = p->at_class + (size_t)i * p->n_classes;
        b->changes[i] = job->kind == DORM_LOOSE || prices->picked[i];
        if (b->changes[i])
            continue;
        b->stays_value += job->u * job->now;
        b->stays_loss += dorm_loss_of(job, job->now);
        for (uint32_t g = 0; g < p->n_classes; g++) {
            prices->want[(size_t)i * p->n_classes + g] = at[g];
            for (uint32_t k = 0; k < p->m && at[g] > 0; k++)
                b->stays_use[g * p->m + k] += at[g] * job->dn[k];
        }
    }
}

/* The sum of the values of the jobs that stay, if those that change are picked. */
static double value_of_rest(const struct dorm_problem *p, struct dorm_bound_memory *b,
                            const double *now, double mu)
{
    double value = b->stays_value - mu * b->stays_loss;
    for (uint32_t c = 0; c < p->n_classes * p->m; c++)
        value -= now[c] * b->stays_use[c];
    b->summed += 2 * b->stays_value - value;
    return value;
}

/* Choose the adjust_bound jobs that gain most: they may change. */
static void choose(const struct dorm_problem *p, const struct dorm_prices *prices)
{
    struct dorm_bound_memory *b = prices->memory;
    size_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        b->changes[i] = p->jobs[i].kind == DORM_LOOSE;
        if (p->jobs[i].kind == DORM_COUNTED && b->round_gain[i] > 0)
            b->by_gain[n++] = b->round_gain[i];
    }
    size_t q = MIN((size_t)p->adjust_bound, n);
    if (q == 0)
        return;
    double least = dorm_select_largest(b->by_gain, n, q);
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

/* The value of the room that the nodes of job i can use better if it changes. */
static double value_of_freed(const struct dorm_problem *p, const double *now, uint32_t i)
{
    uint32_t row = p->n_classes * p->m;
    const double *freed = p->waste.freed + (size_t)i * row;
    double value = 0;
    for (uint32_t c = 0; c < row; c++)
        value += now[c] * freed[c];
    return value;
}

/* The room of class g of type k, as a part of the cluster, that the jobs pay for. */
static double room_of(const struct dorm_problem *p, const struct dorm_prices *prices, uint32_t g,
                      uint32_t k)
{
    double lost = prices->waste && p->waste.any ? p->waste.lost[g * p->m + k] : 0;
    return p->classes[g].share[k] - lost;
}

static bool frees(const struct dorm_problem *p, const struct dorm_prices *prices, uint32_t i)
{
    return prices->waste && p->waste.any && p->jobs[i].kind == DORM_COUNTED;
}

/* At least the rounding error of the bound that evaluate() has just computed, and of sums of parts
 * of it. Each addition and each factor of a term has a relative error of at most DBL_EPSILON. */
static double rounding(const struct dorm_problem *p, const struct dorm_prices *prices)
{
    double operations = (double)p->n + p->n_nodes + 4.0 * p->n_classes * p->m + 16;
    return operations * DBL_EPSILON * prices->memory->summed;
}

/* The bound for the prices `now` and mu, with the limit of its rounding error. Sets x, round_gain,
 * changes, summed. */
static double evaluate(const struct dorm_problem *p, const struct dorm_prices *prices,
                       const double *now, double mu)
{
    struct dorm_bound_memory *b = prices->memory;
    for (uint32_t c = 0; c < p->n_classes * p->m; c++)
        b->by_type[c % p->m * p->n_classes + c / p->m] = now[c];
    const struct dorm_job *last = NULL;
    uint32_t *cheap = b->cheap;
    b->summed = fabs(mu * dorm_loss_limit(p));
    for (uint32_t c = 0; c < p->n_all; c++) { /* jobs with equal demands are neighbours here */
        uint32_t i = p->waste.order[c];
        const struct dorm_job *job = &p->jobs[i];
        if (i >= p->n || (prices->picked && !b->changes[i]))
            continue;
        if (!last || memcmp(last->d, job->d, sizeof(*job->d) * p->m) != 0) {
            cheap = b->cheap + (size_t)c * p->n_classes;
            price_demand(p, b, job, cheap);
            last = job;
        }
        b->free_value[i] = job->kind == DORM_PINNED ? 0 : best_of_job(p, prices, i, cheap, mu);
        b->fixed[i] = job->kind == DORM_LOOSE ? 0 : value_of_staying(p, b, i, mu);
        b->freed[i] = frees(p, prices, i) ? value_of_freed(p, now, i) : 0;
        b->free_value[i] += b->freed[i];
        b->summed += b->freed[i];
        b->round_gain[i] = b->free_value[i] - b->fixed[i];
    }
    double value = mu * dorm_loss_limit(p);
    if (prices->picked)
        value += value_of_rest(p, b, now, mu);
    else
        choose(p, prices);
    for (uint32_t i = 0; i < p->n; i++)
        value += b->changes[i] ? b->free_value[i] : prices->picked ? 0 : b->fixed[i];
    for (uint32_t g = 0; g < p->n_classes; g++)
        for (uint32_t k = 0; k < p->m; k++) {
            value += now[g * p->m + k] * room_of(p, prices, g, k);
            b->summed += now[g * p->m + k] * p->classes[g].share[k];
        }
    return value + rounding(p, prices);
}

/* Set b->use to the free capacity of each class, and *slack to the free part of the bound on the
 * loss. */
static void measure(const struct dorm_problem *p, const struct dorm_prices *prices, double *slack)
{
    struct dorm_bound_memory *b = prices->memory;
    uint32_t row = p->n_classes * p->m;
    *slack = dorm_loss_limit(p);
    for (uint32_t g = 0; g < p->n_classes; g++)
        for (uint32_t k = 0; k < p->m; k++)
            b->use[g * p->m + k] =
                room_of(p, prices, g, k) - (prices->picked ? b->stays_use[g * p->m + k] : 0);
    *slack -= prices->picked ? b->stays_loss : 0;
    for (uint32_t i = 0; i < p->n; i++) {
        if (prices->picked && !b->changes[i])
            continue;
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
        *slack -= dorm_loss_of(job, n);
        for (uint32_t c = 0; c < row && b->changes[i] && frees(p, prices, i); c++)
            b->use[c] += p->waste.freed[(size_t)i * row + c];
    }
}

/* The unit of a free part: the capacity of its class. Without it, the prices of small classes would
 * change only slowly. */
static double weight_of(const struct dorm_problem *p, uint32_t cell)
{
    return MAX(p->classes[cell / p->m].share[cell % p->m], 1e-6);
}

/* Move the means a part of the way to the values of this round. */
static void average(const struct dorm_problem *p, struct dorm_prices *prices, double least_part,
                    double slack)
{
    struct dorm_bound_memory *b = prices->memory;
    double part = MAX(CHOICE_PART, least_part), free_part = MAX(FREE_PART, least_part);
    for (uint32_t i = 0; i < p->n; i++) {
        if (prices->picked && !b->changes[i])
            continue;
        const uint32_t *x = (b->changes[i] ? b->x : p->at_class) + (size_t)i * p->n_classes;
        double *want = prices->want + (size_t)i * p->n_classes;
        for (uint32_t g = 0; g < p->n_classes; g++)
            want[g] += part * (x[g] - want[g]);
        prices->gain[i] += part * (b->round_gain[i] - prices->gain[i]);
        prices->freed[i] += part * (b->freed[i] - prices->freed[i]);
    }
    for (uint32_t c = 0; c < p->n_classes * p->m; c++)
        b->mean_use[c] += free_part * (b->use[c] - b->mean_use[c]);
    b->mean_slack += free_part * (slack - b->mean_slack);
}

/* A lower bound: every feasible allocation has at least this utilization. */
static double least_use(const struct dorm_problem *p)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->n; i++)
        sum += p->jobs[i].u * (p->jobs[i].kind == DORM_PINNED ? p->jobs[i].now : p->jobs[i].lo);
    return sum;
}

static void reset(const struct dorm_problem *p, struct dorm_prices *prices)
{
    size_t cells = (size_t)p->n_classes * p->m;
    const struct dorm_prices *from = prices->from;
    for (size_t c = 0; c < cells && !from; c++)
        prices->node[c] = p->classes[c / p->m].share[c % p->m] > 0 ? 0.5 : 0;
    if (from && from != prices)
        memcpy(prices->node, from->node, sizeof(*prices->node) * cells);
    prices->loss = from ? from->loss : 0.1;
    prices->impossible = false;
    memset(prices->want, 0, sizeof(*prices->want) * p->n * p->n_classes);
    memset(prices->gain, 0, sizeof(*prices->gain) * p->n);
    memset(prices->freed, 0, sizeof(*prices->freed) * p->n);
    for (size_t c = 0; c < (size_t)p->n_all * p->n_classes; c++)
        prices->memory->cheap[c] = (uint32_t)(c % p->n_classes);
}

/* Set `now` and mu to the best prices, moved by the mean free parts: a class with free room gets
 * cheaper. `fall` is the part of the bound by which it should fall. False: all means are 0. */
static bool step(const struct dorm_problem *p, const struct dorm_prices *prices, double fall,
                 double *now, double *mu)
{
    const struct dorm_bound_memory *b = prices->memory;
    double norm = 0;
    for (uint32_t c = 0; c < p->n_classes * p->m; c++)
        if (b->mean_use[c] < 0 || prices->node[c] > 0)
            norm += b->mean_use[c] * b->mean_use[c] / weight_of(p, c);
    if (b->mean_slack < 0 || prices->loss > 0)
        norm += b->mean_slack * b->mean_slack;
    if (norm < 1e-16)
        return false;
    double size = fall / norm;
    for (uint32_t c = 0; c < p->n_classes * p->m; c++)
        now[c] =
            MIN(MAX(0.0, prices->node[c] - size * b->mean_use[c] / weight_of(p, c)), PRICE_MAX);
    *mu = MIN(MAX(0.0, prices->loss - size * b->mean_slack), PRICE_MAX);
    return true;
}

/* The volume algorithm sometimes stops too early. Lower the bound by plain subgradient steps, which
 * start from the standard prices and follow only the last round. The prices and means stay, except
 * `least`. */
void dorm_prices_lower(struct dorm_problem *p, struct dorm_prices *prices, unsigned rounds)
{
    if (!prices->waste || prices->impossible || dorm_is_small(p))
        return;
    struct dorm_bound_memory *b = prices->memory;
    size_t cells = (size_t)p->n_classes * p->m;
    double best = INFINITY, delta = 0.1, mu = 0.1, slack;
    unsigned stale = 0;
    for (size_t c = 0; c < cells; c++)
        b->now[c] = p->classes[c / p->m].share[c % p->m] > 0 ? 0.5 : 0;
    for (unsigned round = 0; round < rounds; round++) {
        double value = evaluate(p, prices, b->now, mu);
        measure(p, prices, &slack);
        stale = value < best - 1e-4 * fabs(best) ? 0 : stale + 1;
        if (value < best) {
            best = value;
            if (best < prices->upper) {
                memcpy(prices->least, b->now, sizeof(*b->now) * cells);
                prices->least_loss = mu;
            }
        }
        if (stale > 2 * PATIENCE) {
            delta /= 2;
            stale = 0;
        }
        double norm = slack * slack;
        for (size_t c = 0; c < cells; c++)
            norm += b->use[c] * b->use[c];
        if (norm < 1e-16 || delta < 1e-4 ||
            !dorm_work(&p->work, (uint64_t)p->n * (p->n_classes + 1) / 4))
            break;
        double size = MAX(value - best + delta * fabs(best), 0.0) / norm;
        for (size_t c = 0; c < cells; c++)
            b->now[c] = MIN(MAX(0.0, b->now[c] - size * b->use[c]), PRICE_MAX);
        mu = MIN(MAX(0.0, mu - size * slack), PRICE_MAX);
    }
    prices->upper = MIN(prices->upper, best);
}

void dorm_prices_find(struct dorm_problem *p, struct dorm_prices *prices, unsigned rounds)
{
    struct dorm_bound_memory *b = prices->memory;
    size_t cells = (size_t)p->n_classes * p->m;
    double best = INFINITY, delta = prices->from ? 0.02 : 0.1, least = least_use(p), mu, slack;
    unsigned stale = 0;
    reset(p, prices);
    if (prices->picked)
        note_picked(p, prices);
    memcpy(b->now, prices->node, sizeof(*b->now) * cells);
    mu = prices->loss;
    if (prices->waste)
        dorm_waste_sum(p);
    for (unsigned round = 0; round < rounds; round++) {
        double value = evaluate(p, prices, b->now, mu);
        measure(p, prices, &slack);
        stale = round == 0 || value < best - 1e-4 * fabs(best) ? 0 : stale + 1;
        if (value < best) {
            best = value;
            memcpy(prices->node, b->now, sizeof(*b->now) * cells);
            prices->loss = mu;
            prices->rounding = rounding(p, prices);
        }
        if (stale > PATIENCE) {
            delta *= SHORTER;
            stale = 0;
        }
        average(p, prices, 1.0 / (round + 1), slack);
        prices->impossible = best < least - 1e-6;
        if (prices->impossible || best < prices->enough || delta < 1e-5 ||
            !step(p, prices, delta * fabs(best), b->now, &mu) ||
            !dorm_work(&p->work, (uint64_t)p->n * (p->n_classes + 1) / 4))
            break;
        if (prices->waste && round % WASTE_EVERY == WASTE_EVERY - 1)
            dorm_waste_step(p, b->changes, WASTE_STEP);
    }
    prices->upper = MIN(best, (double)p->m);
    memcpy(prices->least, prices->node, sizeof(*prices->node) * cells);
    prices->least_loss = prices->loss;
    if (!prices->quick)
        dorm_prices_lower(p, prices, rounds);
}

double dorm_prices_values(struct dorm_problem *p, struct dorm_prices *prices, double *gain)
{
    struct dorm_bound_memory *b = prices->memory;
    evaluate(p, prices, prices->node, prices->loss);
    double value = prices->loss * dorm_loss_limit(p);
    for (uint32_t i = 0; i < p->n; i++) {
        gain[i] = MAX(b->round_gain[i], 0.0);
        value += p->jobs[i].kind == DORM_LOOSE ? b->free_value[i] : b->fixed[i];
    }
    for (uint32_t g = 0; g < p->n_classes; g++)
        for (uint32_t k = 0; k < p->m; k++)
            value += prices->node[g * p->m + k] * room_of(p, prices, g, k);
    return value + 2 * rounding(p, prices); /* of this sum, and of the gains that are added to it */
}
