/* SPDX-License-Identifier: Apache-2.0 */
#include "partition/market.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "partition/drf.h"
#include "partition/part_int.h"

/* The price of a machine on which no other user bids: without a price, no best answer would
 * exist. */
static const double PRICE_MIN = 1e-12;
static const double MOVE_MIN =
    1e-12; /* times the largest budget: smaller changes of bids are ignored */
enum {
    ROUNDS_PURE = 20,   /* in these rounds users take their best bids, later a part of the way */
    ROUNDS_PATIENT = 25 /* rounds without progress after which the part becomes smaller */
};
static const double STEP_FIRST = 0.5, STEP_MIN = 1.0 / 512, STEP_FACTOR = 0.7;
static const double CELLS_MAX = 1.5e7; /* limit of bids computed, beyond MARKET_ROUNDS_MIN rounds */
/* An exchange of machines must raise the utility by more than this part: smaller gains come and go
 * while the bids settle. */
static const double EXCHANGE_MIN = 1e-8;
/* A bid that a user gives up ends below this part of its budget. */
static const double BID_MIN = 1e-13;
/* The same for bids that follow their gains: these only become smaller by a factor each round. */
static const double GAIN_BID_MIN = 1e-200;
/* A bid is a trace if it is below this part of the budget, and buys less than this part of the
 * machine. On a machine that nobody else wants, a tiny bid buys everything: it is no trace. */
static const double TRACE_MAX = 1e-9;
static const double TRACE_SHARE_MAX = 1e-6;
/* The bids are also an equilibrium if no user could gain more than this part of its utility. */
static const double RESIDUAL_MAX = 1e-12;
/* If the best answers do not settle: the power of the gain by which a bid is multiplied. */
static const double GAIN_POWER = 0.25;
enum { GAIN_ROUNDS = 100 /* between two looks whether the bids have settled */ };
static const double WORK_MAX = 1e9; /* limit of steps for one number of the result */

struct wish {
    double ratio; /* worth divided by price */
    size_t machine;
};

/* Scratch of one user's answer. All arrays have an entry for each machine. */
struct answer {
    const struct market *m;
    double *price; /* the others' bids and the reserve */
    double *bids;  /* the answer */
    double *trial;
    double *before; /* the reserve, and the bids of the users who have answered in this round */
    bool *chosen;   /* machines on which the user may bid */
    double step;    /* the part of the way from the old bids to the best ones that a user goes; 0:
                     * it only looks */
    size_t mover;   /* the user who may exchange machines in this round; SIZE_MAX: all may */
    double gain;    /* the largest part by which a user could raise its utility in this round */
    struct wish *wishes;
    size_t n_wishes;
};

static int by_ratio(const void *a, const void *b)
{
    const struct wish *x = a, *y = b;
    if (x->ratio != y->ratio)
        return x->ratio > y->ratio ? -1 : 1;
    return x->machine < y->machine ? -1 : 1;
}

/* List the machines of some worth to the user, by falling ratio of worth to price. */
static void sort_wishes(struct answer *a, const double *worth)
{
    a->n_wishes = 0;
    for (size_t j = 0; j < a->m->n_machines; j++)
        if (worth[j] > 0)
            a->wishes[a->n_wishes++] = (struct wish){ worth[j] / a->price[j], j };
    qsort(a->wishes, a->n_wishes, sizeof *a->wishes, by_ratio);
}

/* Compute the best bids on the chosen machines. With prices y of the others, the first k machines
 * by ratio get sqrt(w y) / S * (budget + Y) - y each, where S and Y are the sums of sqrt(w y) and y
 * over these k, and k is the largest number with which the last bid is not negative. Returns the
 * utility. */
static double best_bids(const struct answer *a, const double *worth, double budget, double *bids)
{
    double roots = 0, prices = 0, utility = 0;
    size_t n = 0;
    for (size_t w = 0; w < a->n_wishes; w++) {
        size_t j = a->wishes[w].machine;
        if (!a->chosen[j])
            continue;
        double root = sqrt(worth[j] * a->price[j]);
        if (n > 0 && root / (roots + root) * (budget + prices + a->price[j]) - a->price[j] < 0)
            break;
        roots += root;
        prices += a->price[j];
        n = w + 1;
    }
    memset(bids, 0, a->m->n_machines * sizeof *bids);
    for (size_t w = 0; w < n; w++) {
        size_t j = a->wishes[w].machine;
        if (!a->chosen[j])
            continue;
        double root = sqrt(worth[j] * a->price[j]);
        bids[j] = MAX(0.0, root / roots * (budget + prices) - a->price[j]);
        utility += worth[j] * bids[j] / (bids[j] + a->price[j]);
    }
    return utility;
}

/* Replace one chosen machine by another one, with the largest gain. false: no swap has a gain. */
static bool swap_machines(struct answer *a, const double *worth, double budget, double *utility)
{
    double best = *utility * (1 + EXCHANGE_MIN);
    size_t best_out = SIZE_MAX, best_in = SIZE_MAX;
    for (size_t v = 0; v < a->n_wishes; v++) {
        size_t out = a->wishes[v].machine;
        if (!a->chosen[out])
            continue;
        for (size_t w = 0; w < a->n_wishes; w++) {
            size_t in = a->wishes[w].machine;
            if (a->chosen[in])
                continue;
            a->chosen[out] = false;
            a->chosen[in] = true;
            double u = best_bids(a, worth, budget, a->trial);
            a->chosen[out] = true;
            a->chosen[in] = false;
            if (u > best) {
                best = u;
                best_out = out;
                best_in = in;
            }
        }
    }
    if (best_out == SIZE_MAX)
        return false;
    a->chosen[best_out] = false;
    a->chosen[best_in] = true;
    *utility = best;
    return true;
}

/* Fill a->bids with the best answer of one user. parallel: the machines that it can use. old: its
 * present bids; the machines of these stay chosen as long as no exchange has a gain. Sets *moves if
 * the answer has other machines than the old bids. Returns the utility. */
static double find_answer(struct answer *a, size_t user, size_t parallel, const double *old,
                          bool *moves)
{
    enum { SWAPS_MAX = 1000 };
    const double *worth = &a->m->weights[user * a->m->n_machines], budget = a->m->budgets[user];
    size_t n = 0;
    *moves = false;
    sort_wishes(a, worth);
    for (size_t j = 0; j < a->m->n_machines; j++)
        n += a->chosen[j] = old[j] > 0;
    if (n > parallel) {
        *moves = true;
        memset(a->chosen, 0, a->m->n_machines * sizeof *a->chosen);
        n = 0;
    }
    for (size_t w = 0; w < a->n_wishes && n < parallel; w++) {
        n += !a->chosen[a->wishes[w].machine];
        a->chosen[a->wishes[w].machine] = true;
    }
    if (a->n_wishes > parallel && (a->mover == SIZE_MAX || a->mover == user)) {
        double utility = best_bids(a, worth, budget, a->trial);
        for (unsigned s = 0; s < SWAPS_MAX && swap_machines(a, worth, budget, &utility); s++)
            *moves = true;
    }
    return best_bids(a, worth, budget, a->bids);
}

/* ---- the quality of an equilibrium ---- */

static int falling(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x == y ? 0 : x > y ? -1 : 1;
}

/* The utility that user i would get from the shares of user h. scratch: an entry for each machine.
 */
static double utility_of(const struct market *m, const double *bids, const double *price, size_t i,
                         size_t h, double *scratch)
{
    double sum = 0;
    for (size_t j = 0; j < m->n_machines; j++) {
        double bid = bids[h * m->n_machines + j];
        scratch[j] = bid > 0 ? m->weights[i * m->n_machines + j] * bid / price[j] : 0;
    }
    size_t n = m->n_machines;
    if (m->parallel && m->parallel[i] < n) {
        qsort(scratch, n, sizeof *scratch, falling);
        n = m->parallel[i];
    }
    for (size_t j = 0; j < n; j++)
        sum += scratch[j];
    return sum;
}

/* The largest sum of worths when each slot of a user gets at most one machine: the assignment
 * problem, by shortest augmenting paths (Kuhn, Munkres). Rows are machines; each column is a slot
 * of the user owner[column], and there are at least as many columns as rows. All arrays of the
 * columns have one entry more, at index 0. */
static double assign(const struct market *m, const size_t *owner, size_t n_columns,
                     double *potential, double *row_potential, double *least, size_t *row_at,
                     size_t *way, bool *used)
{
    double sum = 0;
    memset(potential, 0, (n_columns + 1) * sizeof *potential);
    memset(row_potential, 0, (m->n_machines + 1) * sizeof *row_potential);
    memset(row_at, 0, (n_columns + 1) * sizeof *row_at);
    for (size_t row = 1; row <= m->n_machines; row++) {
        size_t column = 0;
        row_at[0] = row;
        for (size_t k = 0; k <= n_columns; k++) {
            least[k] = INFINITY;
            used[k] = false;
        }
        do {
            size_t r = row_at[column], next = 0;
            double delta = INFINITY;
            used[column] = true;
            for (size_t k = 1; k <= n_columns; k++) {
                if (used[k])
                    continue;
                double worth =
                    owner[k] == SIZE_MAX ? 0 : m->weights[owner[k] * m->n_machines + r - 1];
                double cost = -worth - row_potential[r] - potential[k];
                if (cost < least[k]) {
                    least[k] = cost;
                    way[k] = column;
                }
                if (least[k] < delta) {
                    delta = least[k];
                    next = k;
                }
            }
            for (size_t k = 0; k <= n_columns; k++) {
                if (used[k]) {
                    row_potential[row_at[k]] += delta;
                    potential[k] -= delta;
                } else {
                    least[k] -= delta;
                }
            }
            column = next;
        } while (row_at[column] != 0);
        for (; column != 0; column = way[column])
            row_at[column] = row_at[way[column]];
    }
    for (size_t k = 1; k <= n_columns; k++)
        if (row_at[k] != 0 && owner[k] != SIZE_MAX)
            sum += m->weights[owner[k] * m->n_machines + row_at[k] - 1];
    return sum;
}

/* The largest possible sum of utilities; NAN: it would take too long. 0 or -ENOMEM. */
static int find_optimum(const struct market *m, double *out)
{
    bool finite = false;
    size_t slots = 0, n = m->n_machines;
    *out = 0;
    for (size_t i = 0; i < m->n_users; i++) {
        size_t k = m->parallel ? MIN((size_t)m->parallel[i], n) : n;
        finite |= k < n;
        slots += k;
    }
    for (size_t j = 0; j < n && !finite; j++) {
        double best = 0;
        for (size_t i = 0; i < m->n_users; i++)
            best = MAX(best, m->weights[i * n + j]);
        *out += best;
    }
    if (!finite)
        return 0;
    /* Machines that no user can use are assigned to columns without an owner. */
    size_t columns = slots + n;
    if ((double)n * (double)n * (double)columns > WORK_MAX) {
        *out = NAN;
        return 0;
    }
    AUTO(free_p) double *numbers = malloc((2 * (columns + 1) + n + 1) * sizeof *numbers);
    AUTO(free_p) size_t *sizes = malloc(3 * (columns + 1) * sizeof *sizes);
    AUTO(free_p) bool *used = malloc((columns + 1) * sizeof *used);
    if (!numbers || !sizes || !used)
        return -ENOMEM;
    size_t *owner = sizes, column = 1;
    for (size_t i = 0; i < m->n_users; i++)
        for (size_t k = 0; k < MIN((size_t)m->parallel[i], n); k++)
            owner[column++] = i;
    while (column <= columns)
        owner[column++] = SIZE_MAX;
    *out = assign(m, owner, columns, numbers, numbers + 2 * (columns + 1), numbers + columns + 1,
                  sizes + columns + 1, sizes + 2 * (columns + 1), used);
    return 0;
}

/* price: the prices of all machines; scratch: an entry for each machine. */
static int judge(const struct market *m, const double *bids, const double *price, double *scratch,
                 struct market_result *result)
{
    double sum = 0, least = INFINITY, most = 0, optimum;
    AUTO(free_p) double *own = malloc((m->n_users + 1) * sizeof *own);
    if (!own)
        return -ENOMEM;
    for (size_t i = 0; i < m->n_users; i++) {
        own[i] = utility_of(m, bids, price, i, i, scratch);
        sum += own[i];
        least = MIN(least, own[i]);
        most = MAX(most, own[i]);
    }
    result->uniformity = least / most;
    result->envy = NAN;
    if ((double)m->n_users * (double)m->n_users * (double)m->n_machines <= WORK_MAX) {
        result->envy = 1;
        for (size_t i = 0; i < m->n_users; i++)
            for (size_t h = 0; h < m->n_users; h++) {
                double others = utility_of(m, bids, price, i, h, scratch);
                if (others > 0)
                    result->envy = MIN(result->envy, own[i] / others);
            }
    }
    int rc = find_optimum(m, &optimum);
    result->efficiency = sum / optimum;
    return rc;
}

/* ---- the equilibrium ---- */

static void bid_in_proportion(const struct market *m, double *bids)
{
    for (size_t i = 0; i < m->n_users; i++) {
        const double *worth = &m->weights[i * m->n_machines];
        double sum = 0;
        for (size_t j = 0; j < m->n_machines; j++)
            sum += worth[j];
        for (size_t j = 0; j < m->n_machines; j++)
            bids[i * m->n_machines + j] = sum > 0 ? m->budgets[i] * worth[j] / sum : 0;
    }
}

static void sum_prices(const struct market *m, const double *bids, double *price)
{
    for (size_t j = 0; j < m->n_machines; j++) {
        price[j] = m->reserve;
        for (size_t i = 0; i < m->n_users; i++)
            price[j] += bids[i * m->n_machines + j];
    }
}

/* The bids of users before i are in a->before, those of users after i in after. Add these bids
 * instead of subtracting from the total: if only user i bids on a machine, the bids of the others
 * must be exactly 0. Returns the largest change of a bid of user i. */
static double take_turn(struct answer *a, size_t i, double *bids, const double *after)
{
    const struct market *m = a->m;
    size_t n = m->n_machines, parallel = m->parallel ? MIN((size_t)m->parallel[i], n) : n;
    const double *worth = &m->weights[i * n];
    double *own_bids = &bids[i * n], moved = 0, now = 0;
    bool moves;
    for (size_t j = 0; j < n; j++) {
        a->price[j] = MAX(a->before[j] + after[j], m->reserve > 0 ? m->reserve : PRICE_MIN);
        now += worth[j] * own_bids[j] / (own_bids[j] + a->price[j]);
    }
    double best = find_answer(a, i, parallel, own_bids, &moves);
    a->gain = MAX(a->gain, best > 0 ? (best - now) / best : 0);
    /* Part of the way to other machines, a user would bid on too many of them. */
    double step = moves && a->step > 0 ? 1 : a->step;
    for (size_t j = 0; j < n; j++) {
        moved = MAX(moved, fabs(a->bids[j] - own_bids[j]));
        own_bids[j] += step * (a->bids[j] - own_bids[j]);
        if (step > 0 && a->bids[j] == 0 && own_bids[j] < m->budgets[i] * BID_MIN)
            own_bids[j] = 0;
        a->before[j] += own_bids[j];
    }
    return moved;
}

/* All users answer once. after: [users][machines], scratch. */
static double take_turns(struct answer *a, double *bids, double *after)
{
    const struct market *m = a->m;
    size_t n = m->n_machines;
    double moved = 0;
    for (size_t i = m->n_users; i-- > 0;)
        for (size_t j = 0; j < n; j++)
            after[i * n + j] =
                i + 1 < m->n_users ? after[(i + 1) * n + j] + bids[(i + 1) * n + j] : 0;
    for (size_t j = 0; j < n; j++)
        a->before[j] = m->reserve;
    a->gain = 0;
    for (size_t i = 0; i < m->n_users; i++)
        moved = MAX(moved, take_turn(a, i, bids, &after[i * n]));
    return moved;
}

/* The number of rounds. Fewer than about CELLS_MAX bids are computed in them. */
static unsigned limit_rounds(const struct market *m)
{
    double cells = 1, n = (double)m->n_machines;
    for (size_t i = 0; i < m->n_users; i++) {
        double used = m->parallel ? MIN((double)m->parallel[i], n) : n;
        cells += n * (1 + used * (n - used)); /* each exchange of two machines is tried */
    }
    double most = m->parallel ? MARKET_ROUNDS_FINITE : MARKET_ROUNDS_MAX;
    return (unsigned)MAX((double)MARKET_ROUNDS_MIN, MIN(most, CELLS_MAX / cells));
}

/* Compute what each user could still gain, without a change of the bids. */
static double residual(struct answer *a, double *bids, double *after)
{
    a->step = 0;
    a->mover = SIZE_MAX;
    (void)take_turns(a, bids, after);
    return a->gain;
}

/* How much a little more money of a user would gain on machine j. own: all bids of the user. The
 * difference of price and bid may be inexact. */
static double gain_of_more(const struct market *m, const double *worth, const double *own,
                           const double *price, size_t j)
{
    double others = MAX(price[j] - own[j], m->reserve > 0 ? m->reserve : PRICE_MIN);
    double all = others + own[j];
    return worth[j] * others / (all * all);
}

/* All users multiply each of their bids by a power of the gain by a little more money there, and
 * then all by the same factor so that they spend their budgets. */
static void follow_gains(const struct market *m, double *bids, double *price)
{
    size_t n = m->n_machines;
    sum_prices(m, bids, price);
    for (size_t i = 0; i < m->n_users; i++) {
        double *own = &bids[i * n], sum = 0;
        for (size_t j = 0; j < n; j++) {
            own[j] *= pow(gain_of_more(m, &m->weights[i * n], own, price, j), GAIN_POWER);
            sum += own[j];
        }
        for (size_t j = 0; j < n && sum > 0; j++) {
            own[j] *= m->budgets[i] / sum;
            if (own[j] < m->budgets[i] * GAIN_BID_MIN)
                own[j] = 0;
        }
    }
}

/* If a user could still gain, the best answers did not settle: look for an equilibrium in another
 * way, from the start, in at most rounds_max rounds. If that fails, the bids stay as they were. 0
 * or -ENOMEM. */
static int settle(struct answer *a, double *bids, double *after, unsigned rounds_max,
                  struct market_result *r)
{
    const struct market *m = a->m;
    size_t bytes = m->n_users * m->n_machines * sizeof *bids;
    double last = residual(a, bids, after);
    if (last <= RESIDUAL_MAX)
        return 0;
    AUTO(free_p) double *before = malloc(bytes + 1);
    if (!before)
        return -ENOMEM;
    memcpy(before, bids, bytes);
    bid_in_proportion(m, bids);
    double now = INFINITY;
    for (unsigned round = 1; round <= rounds_max && now > RESIDUAL_MAX; round++) {
        r->rounds++;
        follow_gains(m, bids, a->trial);
        if (round % GAIN_ROUNDS == 0 || round == rounds_max)
            now = residual(a, bids, after);
    }
    if (now > last)
        memcpy(bids, before, bytes);
    for (size_t c = 0; c < m->n_users * m->n_machines; c++)
        if (bids[c] < m->budgets[c / m->n_machines] * BID_MIN)
            bids[c] = 0;
    return 0;
}

/* A bid that a user gives up becomes smaller in each round, so a trace of it may be left. In an
 * equilibrium each bid gains equally much. So drop traces that gain less, and add them to the
 * largest bid of the user. price: scratch, an entry for each machine. */
static void drop_traces(const struct market *m, double *bids, double *price)
{
    size_t n = m->n_machines;
    sum_prices(m, bids, price);
    for (size_t i = 0; i < m->n_users; i++) {
        const double *worth = &m->weights[i * n];
        double *own = &bids[i * n], most = 0;
        size_t largest = 0;
        for (size_t j = 0; j < n; j++) {
            if (own[j] > 0)
                most = MAX(most, gain_of_more(m, worth, own, price, j));
            if (own[j] > own[largest])
                largest = j;
        }
        for (size_t j = 0; j < n; j++) {
            bool trace = own[j] > 0 && own[j] < TRACE_MAX * m->budgets[i] &&
                         own[j] < TRACE_SHARE_MAX * price[j];
            if (!trace || gain_of_more(m, worth, own, price, j) > most * (1 - 1e-7))
                continue;
            own[largest] += own[j];
            own[j] = 0;
        }
    }
}

/* The user who may take new machines in this round; SIZE_MAX: all may. If several users did so in
 * the same round, they might choose the same machines again and again. So after the first rounds it
 * is one user a round, until no bid moves (settled). */
static size_t next_mover(const struct market *m, unsigned round, bool settled)
{
    return round > ROUNDS_PURE && !settled ? round % m->n_users : SIZE_MAX;
}

/* From the round ROUNDS_PURE on: make the part of the way that the users go shorter if the bids do
 * not come nearer to an equilibrium. moved: the largest change of a bid in this round. *mark: the
 * same when the part was looked at last. */
static void shorten_step(struct answer *a, unsigned round, double moved, double *mark)
{
    if (round == ROUNDS_PURE)
        a->step = STEP_FIRST;
    if (round < ROUNDS_PURE || round % ROUNDS_PATIENT != 0)
        return;
    /* Bids that go straight to an equilibrium have (1 - step) of the way left each round. */
    if (moved > *mark * exp(-0.25 * a->step * ROUNDS_PATIENT))
        a->step = MAX(STEP_MIN, a->step * STEP_FACTOR);
    *mark = moved;
}

int market_equilibrium(const struct market *m, double *bids, struct market_result *result)
{
    size_t n = m->n_machines;
    AUTO(free_p) double *numbers = malloc((4 * n + 1) * sizeof *numbers);
    AUTO(free_p) double *after = malloc(m->n_users * n * sizeof *after + 1);
    AUTO(free_p) bool *chosen = malloc(n * sizeof *chosen + 1);
    AUTO(free_p) struct wish *wishes = malloc(n * sizeof *wishes + 1);
    if (!numbers || !after || !chosen || !wishes)
        return -ENOMEM;
    struct answer a = { .m = m,
                        .price = numbers,
                        .bids = numbers + n,
                        .trial = numbers + 2 * n,
                        .before = numbers + 3 * n,
                        .chosen = chosen,
                        .wishes = wishes };
    double largest = 0;
    for (size_t i = 0; i < m->n_users; i++)
        largest = MAX(largest, m->budgets[i]);
    bid_in_proportion(m, bids);
    struct market_result r = { 0 };
    double mark = INFINITY;
    int rc = 0;
    unsigned rounds_max = limit_rounds(m), by_gains = 0;
    bool settled = !m->parallel;
    if (!m->parallel && rounds_max == MARKET_ROUNDS_MAX)
        by_gains = rounds_max / 2;
    a.step = 1;
    while (!r.converged && r.rounds < rounds_max - by_gains) {
        r.rounds++;
        a.mover = next_mover(m, r.rounds, settled);
        double moved = take_turns(&a, bids, after);
        r.converged = a.mover == SIZE_MAX && moved <= MOVE_MIN * largest;
        settled = !m->parallel || moved <= MOVE_MIN * largest;
        shorten_step(&a, r.rounds, moved, &mark);
    }
    if (!r.converged && by_gains > 0)
        rc = settle(&a, bids, after, by_gains, &r);
    drop_traces(m, bids, a.price);
    if (!result || rc < 0)
        return rc;
    r.residual = residual(&a, bids, after);
    r.converged |= r.residual <= RESIDUAL_MAX;
    sum_prices(m, bids, a.price);
    rc = judge(m, bids, a.price, a.trial, &r);
    if (rc == 0)
        *result = r;
    return rc;
}

/* ---- the policy ---- */

/*
 * Each job is a user, and each class of equal nodes is one machine, worth as many containers as fit
 * there. The containers that the bids buy are rounded down to whole numbers; the rest of the
 * cluster goes to the jobs with the largest fractions. Only as many running jobs change as the
 * bound on adjustments allows: those whose share is farthest from their present number. (How the
 * paper's shares become containers is our own choice.)
 */
struct trade {
    const struct part_cluster *c;
    const struct part_job *jobs;
    size_t n;
    const struct part_options *o;
    const uint32_t *caps;
    uint32_t *want;
    double *bought; /* containers, with fractions */
};

struct order {
    double key; /* larger first */
    size_t job;
};

static int by_key(const void *a, const void *b)
{
    const struct order *x = a, *y = b;
    if (x->key != y->key)
        return x->key > y->key ? -1 : 1;
    return x->job < y->job ? -1 : 1;
}

/* Containers on an empty node, with fractions. */
static double fit_exactly(const struct part_amount *capacity, const struct part_amount *demand,
                          uint32_t n_types)
{
    double fit = PART_CONTAINERS_MAX;
    for (uint32_t k = 0; k < n_types; k++)
        if (demand->v[k] > 0)
            fit = MIN(fit, (double)capacity->v[k] / (double)demand->v[k]);
    return fit < 1 ? 0 : fit;
}

static int buy(struct trade *t, double reserve)
{
    struct part_classes cl;
    part_classes(t->c, &cl);
    size_t machines = cl.n + (cl.rest < t->c->n_nodes ? 1u : 0u), cells = t->n * machines;
    AUTO(free_p) double *worth = calloc(cells + 1, sizeof *worth);
    AUTO(free_p) double *bids = calloc(cells + 1, sizeof *bids);
    AUTO(free_p) double *budgets = calloc(t->n + 1, sizeof *budgets);
    AUTO(free_p) double *price = calloc(machines + 1, sizeof *price);
    if (!worth || !bids || !budgets || !price)
        return -ENOMEM;
    for (size_t i = 0; i < t->n; i++) {
        const struct part_job *job = &t->jobs[i];
        budgets[i] = job->budget > 0 ? job->budget : job->weight;
        if (t->caps[i] < job->min)
            continue;
        for (uint32_t g = 0; g < cl.n; g++)
            worth[i * machines + g] =
                cl.count[g] * fit_exactly(cl.capacity[g], &job->demand, t->c->n_types);
        for (uint32_t j = cl.rest; j < t->c->n_nodes; j++)
            worth[i * machines + cl.n] += fit_exactly(&t->c->nodes[j], &job->demand, t->c->n_types);
    }
    struct market m = { .n_users = t->n,
                        .n_machines = machines,
                        .weights = worth,
                        .budgets = budgets,
                        .reserve = reserve };
    int rc = market_equilibrium(&m, bids, NULL);
    if (rc < 0)
        return rc;
    sum_prices(&m, bids, price);
    for (size_t i = 0; i < t->n; i++) {
        t->bought[i] = 0;
        for (size_t g = 0; g < machines; g++)
            if (bids[i * machines + g] > 0)
                t->bought[i] += worth[i * machines + g] * bids[i * machines + g] / price[g];
    }
    return 0;
}

/* Round down to whole containers; then give one more to the jobs with the largest fractions
 * while the pool has room. */
static int round_down(struct trade *t)
{
    AUTO(free_p) struct order *fractions = malloc(t->n * sizeof *fractions + 1);
    struct part_amount left;
    size_t m = 0;
    if (!fractions)
        return -ENOMEM;
    part_total(t->c, &left);
    for (size_t i = 0; i < t->n; i++) {
        double whole = floor(t->bought[i] + 1e-9);
        double least = t->jobs[i].min, most = t->caps[i];
        t->want[i] = most < least ? 0 : (uint32_t)MAX(least, MIN(whole, most));
        if (t->jobs[i].pinned)
            t->want[i] = part_count(&t->jobs[i]);
        part_take(&left, &t->jobs[i].demand, t->c->n_types, t->want[i], -1);
        if (whole >= least && whole < most && !t->jobs[i].pinned)
            fractions[m++] = (struct order){ t->bought[i] - whole, i };
    }
    qsort(fractions, m, sizeof *fractions, by_key);
    for (size_t f = 0; f < m; f++) {
        size_t i = fractions[f].job;
        bool fits = true;
        for (uint32_t k = 0; k < t->c->n_types && fits; k++)
            fits = t->jobs[i].demand.v[k] <= left.v[k];
        if (!fits)
            continue;
        part_take(&left, &t->jobs[i].demand, t->c->n_types, 1, -1);
        t->want[i]++;
    }
    return 0;
}

/* The number of running jobs that may be adjusted. */
static double bound_on_adjusted(const struct part_job *jobs, size_t n, const struct part_options *o)
{
    size_t running = 0;
    for (size_t i = 0; i < n; i++)
        running += jobs[i].n_at > 0 && !jobs[i].lost;
    return o->adjust_max >= 0 ? (double)o->adjust_max : ceil(o->theta2 * (double)running - 1e-9);
}

/* Let running jobs beyond the bound on adjustments keep their containers. */
static int keep_others(struct trade *t, const struct part_options *o)
{
    AUTO(free_p) struct order *moves = malloc(t->n * sizeof *moves + 1);
    double bound = bound_on_adjusted(t->jobs, t->n, o);
    struct part_amount total;
    size_t m = 0;
    if (!moves)
        return -ENOMEM;
    part_total(t->c, &total);
    for (size_t i = 0; i < t->n; i++) {
        const struct part_job *job = &t->jobs[i];
        if (job->n_at == 0 || job->lost)
            continue;
        double far = fabs((double)t->want[i] - (double)part_count(job));
        if (far > 0)
            moves[m++] =
                (struct order){ far * part_share_of_one(&job->demand, &total, t->c->n_types), i };
    }
    qsort(moves, m, sizeof *moves, by_key);
    for (size_t v = 0; v < m; v++)
        if ((double)v >= bound)
            t->want[moves[v].job] = part_count(&t->jobs[moves[v].job]);
    return 0;
}

static int count_bought(void *ctx, const uint32_t *caps, uint32_t *want)
{
    struct trade *t = ctx;
    t->caps = caps;
    t->want = want;
    int rc = buy(t, t->o->reserve);
    if (rc == 0)
        rc = round_down(t);
    return rc == 0 ? keep_others(t, t->o) : rc;
}

int market_decide(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                  const struct part_options *o, struct part_decision *out)
{
    struct trade t = { .c = c, .jobs = jobs, .n = n, .o = o };
    uint32_t *caps = part_alloc(out, n * sizeof *caps + 1);
    t.bought = part_alloc(out, n * sizeof *t.bought + 1);
    if (!caps || !t.bought)
        return -ENOMEM;
    part_caps(c, jobs, n, caps);
    int rc = part_give_counts(c, jobs, n, caps, count_bought, &t, PART_BECAUSE_BID, o->repack, true,
                              out);
    if (rc < 0 || !o->repack)
        return rc;
    /* To move containers for a job that waits may adjust too many jobs. */
    size_t adjusted = 0;
    for (size_t i = 0; i < n; i++)
        adjusted += jobs[i].n_at > 0 && !jobs[i].lost && out->jobs[i].verdict != PART_KEEPS;
    if ((double)adjusted <= bound_on_adjusted(jobs, n, o))
        return 0;
    return part_give_counts(c, jobs, n, caps, count_bought, &t, PART_BECAUSE_BID, false, true, out);
}
