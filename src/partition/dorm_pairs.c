/* SPDX-License-Identifier: Apache-2.0 */
/*
 * If at most two running jobs may change and no other job can: the best pairs, and an upper bound.
 *
 * A bound with prices is not tight here: at one price for each container, nodes sell containers
 * that no job of the pair wants. But there are few pairs, so each has a bound of its own. Jobs a
 * and b change, all others stay:
 *
 *   room_j    the room on node j that is free if a and b hold nothing there
 *   most_a    the smaller one of a's max and the sum over j of the containers of a that fit into
 *             room_j; most_b in the same way
 *   by_count  the largest u_a * n_a + u_b * n_b with min_a <= n_a <= most_a, the same for b, and
 *             D_a * |n_a - ideal_a| + D_b * |n_b - ideal_b| <= the loss that the other jobs leave
 *   by_room   the sum over j of the largest u_a * x + u_b * y whose containers fit into room_j
 *
 * Neither of the last two can be exceeded, so the smaller one plus the utilization of the other
 * jobs is the bound of the pair. The largest bound of a pair holds for all divisions: if fewer than
 * two jobs change, n_a or n_b is what the job has now.
 *
 * by_count is cheap, and computed for all pairs; by_room for those where it is largest, until no
 * other pair can have a larger bound.
 */
#include "partition/dorm_pairs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

enum {
    CELLS_MAX = 1000000, /* counted jobs * nodes */
    JOBS_MAX = 400,      /* counted jobs */
    TOUCHED_MAX = 4096,  /* nodes of one pair */
    /* by_room is computed for at least LOOKED_AT pairs, those with the largest by_count, unless
     * this would take more than STEPS steps. */
    LOOKED_AT = 200,
    STEPS = 500000,
    STEPS_LIST = 300000, /* for 1,000 nodes: until then, by_count of all pairs uses most_a */
};

struct pairs {
    struct dorm_problem *p;
    uint32_t *job, n; /* the counted jobs; below, jobs are indexes of this list */
    uint32_t *fit;    /* [job][node]: containers that fit into the rest of the node */
    uint64_t *sum;    /* [job]: of fit */
    double use, loss; /* if all jobs stay */
    /* The nodes of the present pair, and their rooms. */
    uint32_t touched[TOUCHED_MAX], n_touched;
    int64_t *room;     /* [node][m] */
    uint32_t *touches; /* [node] */
    uint32_t turn;
};

static const struct dorm_job *job_of(const struct pairs *q, uint32_t a)
{
    return &q->p->jobs[q->job[a]];
}

bool dorm_pairs_possible(const struct dorm_problem *p)
{
    size_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->jobs[i].kind == DORM_LOOSE)
            return false;
        n += p->jobs[i].kind == DORM_COUNTED;
    }
    return p->adjust_bound > 0 && p->adjust_bound <= 2 && n >= 2 && n <= JOBS_MAX &&
           n * p->n_nodes <= CELLS_MAX;
}

static bool init(struct pairs *q, struct dorm_problem *p)
{
    uint32_t m = p->m;
    q->p = p;
    q->job = dorm_alloc(p, p->n, sizeof(*q->job));
    for (uint32_t i = 0; i < p->n && !p->failed; i++)
        if (p->jobs[i].kind == DORM_COUNTED)
            q->job[q->n++] = i;
    q->fit = dorm_alloc(p, (size_t)q->n * p->n_nodes, sizeof(*q->fit));
    q->sum = dorm_alloc(p, q->n, sizeof(*q->sum));
    q->room = dorm_alloc(p, (size_t)p->n_nodes * m, sizeof(*q->room));
    q->touches = dorm_alloc(p, p->n_nodes, sizeof(*q->touches));
    if (p->failed)
        return false;
    for (uint32_t i = 0; i < p->n; i++)
        q->use += p->jobs[i].u * p->jobs[i].now;
    q->loss = dorm_loss_now(p);
    for (uint32_t a = 0; a < q->n; a++)
        for (uint32_t j = 0; j < p->n_nodes; j++) {
            uint32_t *fit = &q->fit[(size_t)a * p->n_nodes + j];
            *fit = dorm_fit(p->waste.rest + (size_t)j * m, job_of(q, a)->d, m);
            q->sum[a] += *fit;
        }
    dorm_work(&p->work, (uint64_t)q->n * p->n_nodes / 2);
    return true;
}

/* Add what job a holds to the rooms of its nodes. False: too many nodes. */
static bool touch(struct pairs *q, uint32_t a)
{
    const struct dorm_job *job = job_of(q, a);
    uint32_t m = q->p->m;
    for (uint32_t c = 0; c < job->n_at; c++) {
        uint32_t j = job->at[c].node;
        int64_t *room = q->room + (size_t)j * m;
        if (q->touches[j] != q->turn) {
            if (q->n_touched == TOUCHED_MAX)
                return false;
            q->touches[j] = q->turn;
            q->touched[q->n_touched++] = j;
            memcpy(room, q->p->waste.rest + (size_t)j * m, sizeof(*room) * m);
        }
        for (uint32_t k = 0; k < m; k++)
            room[k] += job->d[k] * job->at[c].n;
    }
    return true;
}

static bool touch_both(struct pairs *q, uint32_t a, uint32_t b)
{
    q->turn++;
    q->n_touched = 0;
    dorm_work(&q->p->work, (job_of(q, a)->n_at + job_of(q, b)->n_at) / 2);
    return touch(q, a) && touch(q, b);
}

/* most_a for the pair whose rooms are set. */
static double most_of(const struct pairs *q, uint32_t a)
{
    const struct dorm_job *job = job_of(q, a);
    uint64_t sum = q->sum[a];
    for (uint32_t c = 0; c < q->n_touched; c++) {
        uint32_t j = q->touched[c];
        sum += dorm_fit(q->room + (size_t)j * q->p->m, job->d, q->p->m) -
               (uint64_t)q->fit[(size_t)a * q->p->n_nodes + j];
    }
    return MIN((double)job->hi, (double)sum);
}

/* The largest u_a * n_a + u_b * n_b if n_a is given. */
static double best_beside(const struct dorm_job *a, double n_a, const struct dorm_job *b,
                          double most_b, double loss)
{
    double left = loss - dorm_loss_of(a, n_a), n_b = MIN(most_b, b->ideal + left / b->D);
    bool possible = left >= 0 && n_b >= b->lo && dorm_loss_of(b, n_b) <= left + DORM_LOSS_EPS;
    return possible ? a->u * n_a + b->u * n_b : -INFINITY;
}

/* A linear program with two variables has its optimum in a corner. There, n_a or n_b is at one of
 * its limits or ideal. */
static double by_count(const struct pairs *q, uint32_t first, uint32_t second, double most_a,
                       double most_b)
{
    const struct dorm_job *a = job_of(q, first), *b = job_of(q, second);
    double loss =
        dorm_loss_limit(q->p) - q->loss + dorm_loss_of(a, a->now) + dorm_loss_of(b, b->now);
    double best = -INFINITY;
    if (most_a < a->lo || most_b < b->lo)
        return best;
    loss += DORM_LOSS_EPS; /* more than the rounding errors of these sums */
    double of_a[] = { a->lo, MIN(MAX(a->ideal, a->lo), most_a), most_a };
    double of_b[] = { b->lo, MIN(MAX(b->ideal, b->lo), most_b), most_b };
    for (unsigned c = 0; c < 3; c++) {
        best = MAX(best, best_beside(a, of_a[c], b, most_b, loss));
        best = MAX(best, best_beside(b, of_b[c], a, most_a, loss));
    }
    return best;
}

/* The best value of the two jobs in this room. */
static double best_in(struct pairs *q, const struct dorm_job *a, const struct dorm_job *b,
                      const int64_t *room)
{
    uint32_t m = q->p->m, x = 0;
    int64_t rest[PART_TYPES_MAX];
    double best = 0;
    memcpy(rest, room, sizeof(*rest) * m);
    for (; dorm_fits(rest, b->d, m) || dorm_fits(rest, a->d, m); x++) {
        best = MAX(best, a->u * x + b->u * dorm_fit(rest, b->d, m));
        if (!dorm_fits(rest, a->d, m))
            break;
        for (uint32_t k = 0; k < m; k++)
            rest[k] -= a->d[k];
        best = MAX(best, a->u * (x + 1));
    }
    dorm_work(&q->p->work, x / 2);
    return best;
}

static double by_room(struct pairs *q, uint32_t a, uint32_t b)
{
    const struct dorm_problem *p = q->p;
    const uint32_t *fit_a = q->fit + (size_t)a * p->n_nodes;
    const uint32_t *fit_b = q->fit + (size_t)b * p->n_nodes;
    const struct dorm_job *of_a = job_of(q, a), *of_b = job_of(q, b);
    double sum = 0;
    for (uint32_t j = 0; j < p->n_nodes; j++) {
        if (q->touches[j] == q->turn)
            sum += best_in(q, of_a, of_b, q->room + (size_t)j * p->m);
        else if (fit_a[j] > 0 && fit_b[j] > 0)
            sum += best_in(q, of_a, of_b, p->waste.rest + (size_t)j * p->m);
        else
            sum += of_a->u * fit_a[j] + of_b->u * fit_b[j];
    }
    dorm_work(&q->p->work, p->n_nodes / 2);
    return sum;
}

static int by_bound(const void *x, const void *y)
{
    const struct dorm_pair *a = x, *b = y;
    if (a->bound != b->bound)
        return a->bound > b->bound ? -1 : 1;
    if (a->a != b->a)
        return a->a < b->a ? -1 : 1;
    return a->b < b->b ? -1 : a->b > b->b;
}

/* List the pairs whose by_count is above `least`, with it as their bound. NULL: out of memory or
 * time. */
static struct dorm_pair *list_pairs(struct pairs *q, double least, uint32_t *n)
{
    struct dorm_pair *pairs =
        dorm_alloc(q->p, (size_t)q->n * (q->n - 1) / 2 + 1, sizeof(struct dorm_pair));
    uint64_t end = q->p->work.steps + STEPS_LIST * dorm_times_of(q->p);
    for (uint32_t a = 0; a < q->n && pairs; a++) {
        if (!dorm_work(&q->p->work, q->n * 2))
            return NULL;
        for (uint32_t b = a + 1; b < q->n; b++) {
            const struct dorm_job *of_a = job_of(q, a), *of_b = job_of(q, b);
            double others = q->use - of_a->u * of_a->now - of_b->u * of_b->now;
            double bound = others + by_count(q, a, b, of_a->hi, of_b->hi);
            if (bound > least && q->p->work.steps < end && touch_both(q, a, b))
                bound = others + by_count(q, a, b, most_of(q, a), most_of(q, b));
            if (bound > least)
                pairs[(*n)++] = (struct dorm_pair){ a, b, bound };
        }
    }
    return pairs;
}

struct dorm_pair *dorm_pairs(struct dorm_problem *p, double least, uint32_t *n)
{
    struct pairs q = { 0 };
    *n = 0;
    struct dorm_pair *pairs = init(&q, p) ? list_pairs(&q, least, n) : NULL;
    if (!pairs)
        return NULL;
    qsort(pairs, *n, sizeof(*pairs), by_bound);
    uint64_t end = p->work.steps + STEPS;
    double top = 0; /* the largest bound so far; those behind are smaller if by_count is */
    for (uint32_t c = 0; c < *n && !p->work.over && p->work.steps < end; c++) {
        struct dorm_pair *pair = &pairs[c];
        if (c >= LOOKED_AT && pair->bound <= top)
            break;
        const struct dorm_job *a = job_of(&q, pair->a), *b = job_of(&q, pair->b);
        double others = q.use - a->u * a->now - b->u * b->now;
        if (touch_both(&q, pair->a, pair->b))
            pair->bound = MIN(pair->bound, others + by_room(&q, pair->a, pair->b));
        top = MAX(top, pair->bound);
    }
    qsort(pairs, *n, sizeof(*pairs), by_bound);
    for (uint32_t c = 0; c < *n; c++) {
        pairs[c].a = q.job[pairs[c].a];
        pairs[c].b = q.job[pairs[c].b];
    }
    return pairs;
}
