/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local search. Each step, a shake, takes some containers away and places containers again, in a
 * random order and with random preferences. If the result is worse, the shake is undone with the
 * log of the state. The random numbers come from the seed alone. The probabilities and the other
 * numbers in this file were chosen by trials on bench/partition: with any other ones, the divisions
 * are as valid and the bounds as true.
 */
#include "partition/dorm.h"

#include <math.h>
#include <string.h>

#include "base/util.h"

enum {
    ROUNDS = 150,      /* of the search for prices (dorm_bound.c) */
    ROUNDS_MANY = 200, /* the same in a large problem with more than MANY_CLASSES classes */
    MANY_CLASSES = 8,
    ROUNDS_QUICK = 50, /* the same, if it begins with the prices of another prefix of the queue */
    /* with more nodes than this, a shake refills only the nodes that it emptied */
    LOCAL_FROM = 256,
    NODES_SHAKEN = 5,      /* most nodes that one shake empties */
    STEPS_REFILL = 3000,   /* steps that a new start may take to refill nodes, in a small problem */
    STEPS_REPAIR = 100000, /* steps to bring the loss of a first division under its bound */
    STEPS_REPAIR_QUICK = 50000, /* the same in a quick search */
    QUICK_WAYS = 3, /* sets of jobs that a quick search tries at most, if running jobs may change */
    STALE = 30,     /* shakes without gain before a new start */
};

static double uniform(struct dorm_search *s)
{
    return dorm_uniform(&s->seed);
}

static bool close_enough(const struct dorm_search *s, const struct dorm_score *score)
{
    double gap = dorm_is_small(s->p) ? DORM_UTIL_EPS : DORM_AT_BOUND * s->prices.upper;
    return !(score->bad > 0) && score->util >= s->prices.upper - gap;
}

static bool save_if_better(struct dorm_search *s)
{
    struct dorm_score now = dorm_score(&s->state);
    if (s->p->failed || (s->best.any && dorm_compare(&now, &s->best.score) <= 0))
        return false;
    dorm_plan_save(&s->best, &s->state);
    return true;
}

/* ---- which jobs may be adjusted */

/* Pick the adjust_bound jobs with the largest keys above `least`. False: they are the same as in
 * the last pick. */
static bool pick(struct dorm_search *s, double least)
{
    const struct dorm_problem *p = s->p;
    uint32_t n = 0;
    memcpy(s->was_picked, s->picked, sizeof(*s->picked) * p->n);
    memset(s->picked, 0, sizeof(*s->picked) * p->n);
    for (uint32_t i = 0; i < p->n_running; i++)
        if (p->jobs[i].kind == DORM_COUNTED && s->key[i] > least)
            s->order[n++] = i;
    dorm_sort(s, n);
    for (uint32_t c = 0; c < MIN(n, p->adjust_bound); c++)
        s->picked[s->order[c]] = true;
    return memcmp(s->was_picked, s->picked, sizeof(*s->picked) * p->n) != 0;
}

static void try_build(struct dorm_search *s)
{
    s->style = (struct dorm_style){ .home = true, .tight = true };
    dorm_build(s);
    if (!dorm_is_small(s->p) && dorm_score(&s->state).bad > 0)
        dorm_refill(s, s->quick ? STEPS_REPAIR_QUICK : STEPS_REPAIR);
    save_if_better(s);
}

/*
 * Try four sets of jobs: those that gain most by a change, then with those that are farthest from
 * their ideal count before them, more and more; in the end only the loose jobs. In a large problem,
 * where a division takes long to build, the first feasible one is enough.
 */
static void first_builds(struct dorm_search *s)
{
    /* How much the distance from the ideal count weighs beside the gain, in units of mu + 0.1 (mu
     * can be 0). */
    static const double far_counts[] = { 0, 0.5, 4, 0 };
    const struct dorm_problem *p = s->p;
    dorm_state_keep(&s->state);
    save_if_better(s);
    memset(s->picked, 0, sizeof(*s->picked) * p->n);
    for (unsigned way = 0; way < 4 && !close_enough(s, &s->best.score) && !p->work.over; way++) {
        double far = far_counts[way] * (s->prices.loss + 0.1);
        for (uint32_t i = 0; i < p->n; i++)
            s->key[i] = s->prices.gain[i] + dorm_loss_cost(&p->jobs[i], p->jobs[i].now, far);
        if (!pick(s, way == 0 ? 1e-9 : way == 3 ? INFINITY : -INFINITY) && way > 0)
            continue;
        uint32_t adjusted = s->best.score.adjusted;
        try_build(s);
        if (s->quick && !dorm_is_small(p) &&
            (s->best.score.bad > DORM_LACKS_MUCH || !(s->best.score.bad > 0) ||
             way == QUICK_WAYS - 1))
            break;
        if (!dorm_is_small(p) && !(s->best.score.bad > 0) &&
            (s->best.score.adjusted > adjusted || p->adjust_bound == 0))
            break;
    }
}

/* ---- one shake */

/* Take all or some of the containers that may change from a node. */
static void empty_node(struct dorm_search *s, uint32_t node)
{
    struct dorm_state *state = &s->state;
    for (uint32_t e = state->node_head[node], next; e != DORM_END; e = next) {
        const struct dorm_entry *entry = &state->entries[e];
        next = entry->of_node;
        if (entry->n == 0 || !dorm_may_change(s, entry->job))
            continue;
        uint32_t n = uniform(s) < 0.6 ? entry->n : dorm_below(&s->seed, entry->n + 1);
        if (n > 0)
            dorm_put(state, entry->job, node, -(int32_t)n);
    }
    dorm_work(&s->p->work, 8);
}

/* A random node on which a job that may change has containers; if there is none, any node. */
static uint32_t random_node(struct dorm_search *s)
{
    const struct dorm_state *state = &s->state;
    uint32_t i = dorm_below(&s->seed, s->p->n), seen = 0, node = DORM_END;
    if (uniform(s) < 0.5 && (state->moved[i] > 0 || s->p->jobs[i].kind == DORM_LOOSE))
        for (uint32_t e = state->job_head[i]; e != DORM_END; e = state->entries[e].of_job)
            if (state->entries[e].n > 0 && dorm_below(&s->seed, ++seen) == 0)
                node = state->entries[e].node;
    return node == DORM_END ? dorm_below(&s->seed, s->p->n_nodes) : node;
}

/* Make room on a node for n containers of job i: take away containers of jobs that may change. */
static bool evict(struct dorm_search *s, uint32_t i, uint32_t node, uint32_t n)
{
    struct dorm_state *state = &s->state;
    const struct dorm_job *job = &s->p->jobs[i];
    uint32_t e = state->node_head[node];
    while (dorm_fit(dorm_free(state, node), job->d, s->p->m) < n) {
        for (; e != DORM_END; e = state->entries[e].of_node) {
            const struct dorm_entry *entry = &state->entries[e];
            if (entry->n > entry->was && entry->job != i && dorm_may_change(s, entry->job))
                break;
        }
        if (e == DORM_END)
            return false;
        uint32_t next = state->entries[e].of_node, last = state->entries[e].n - 1;
        bool gone = last == 0 && state->entries[e].was == 0;
        dorm_put(state, state->entries[e].job, node, -1);
        dorm_work(&s->p->work, 8);
        if (gone)
            e = next;
    }
    return true;
}

/* Give the job exactly its present places in the cluster. */
static bool send_home(struct dorm_search *s, uint32_t i)
{
    const struct dorm_job *job = &s->p->jobs[i];
    dorm_take_all(&s->state, i);
    for (uint32_t a = 0; a < job->n_at; a++) {
        if (!evict(s, i, job->at[a].node, job->at[a].n))
            return false;
        dorm_put(&s->state, i, job->at[a].node, (int32_t)job->at[a].n);
    }
    dorm_work(&s->p->work, 8 * job->n_at);
    return true;
}

/* A random counted job. changed: it must be adjusted (true) or not adjusted (false). DORM_END: none
 * was found. */
static uint32_t random_counted(struct dorm_search *s, bool changed)
{
    uint32_t found = DORM_END, seen = 0;
    for (uint32_t i = 0; i < s->p->n_running; i++)
        if (s->p->jobs[i].kind == DORM_COUNTED && (s->state.moved[i] > 0) == changed &&
            dorm_below(&s->seed, ++seen) == 0)
            found = i;
    dorm_work(&s->p->work, s->p->n_running / 2 + 1);
    return found;
}

/* The same, but in a large problem, where few exchanges are tried: of 1 to 4 random jobs the one
 * that gains least by a change (changed), or most. */
static uint32_t draw_counted(struct dorm_search *s, bool changed)
{
    uint32_t best = random_counted(s, changed);
    uint32_t draws = dorm_is_small(s->p) ? 0 : dorm_below(&s->seed, 4);
    while (draws-- > 0 && best != DORM_END) {
        uint32_t other = random_counted(s, changed);
        if (changed == (s->prices.gain[other] < s->prices.gain[best]))
            best = other;
    }
    return best;
}

/* Give one adjusted job its present places, and let another job change in its place. */
static bool exchange(struct dorm_search *s)
{
    uint32_t back = draw_counted(s, true), go = draw_counted(s, false);
    if (back != DORM_END && !send_home(s, back))
        return false;
    if (go == DORM_END || s->state.adjusted >= s->p->adjust_bound)
        return back != DORM_END;
    if (uniform(s) < 0.4) {
        dorm_take_all(&s->state, go);
        return true;
    }
    const struct dorm_job *job = &s->p->jobs[go];
    for (uint32_t a = 0; a < job->n_at; a++) {
        uint32_t n = dorm_below(&s->seed, job->at[a].n + 1);
        if (n > 0)
            dorm_put(&s->state, go, job->at[a].node, -(int32_t)n);
    }
    return true;
}

static void random_style(struct dorm_search *s)
{
    s->style = (struct dorm_style){
        .home = uniform(s) < 0.5,
        .tight = uniform(s) < 0.7,
        .worst = uniform(s) < 0.3,
        .anywhere = uniform(s) < 0.5,
        .jitter = uniform(s) < 0.7 ? 0.7 : 0,
        .salt = dorm_random(&s->seed),
    };
}

/* The order in which jobs grow. */
enum growth { BY_USE, BY_NOISY_USE, BY_USE_FOR_LOSS, BY_CHANCE };

static double growth_key(struct dorm_search *s, const struct dorm_job *job, enum growth by)
{
    switch (by) {
    case BY_NOISY_USE:
        return job->u * (0.5 + uniform(s));
    case BY_USE_FOR_LOSS:
        return job->u / job->D * (0.7 + 0.6 * uniform(s));
    case BY_CHANCE:
        return uniform(s);
    case BY_USE:
    default:
        return job->u;
    }
}

/* List the jobs that may change and grow, in the order `by`. nodes: if not NULL, only jobs of which
 * a container fits on one of these nodes. */
static uint32_t list_growing(struct dorm_search *s, enum growth by, const uint32_t *nodes,
                             uint32_t n_nodes)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->p->n; i++) {
        const struct dorm_job *job = &s->p->jobs[i];
        if (s->state.n[i] >= job->hi || !dorm_may_change(s, i))
            continue;
        bool fits = n_nodes == 0;
        for (uint32_t c = 0; c < n_nodes && !fits; c++)
            fits = dorm_fits(dorm_free(&s->state, nodes[c]), job->d, s->p->m);
        if (!fits)
            continue;
        s->order[n++] = i;
        s->key[i] = growth_key(s, job, by);
    }
    dorm_work(&s->p->work, s->p->n / 2 + n);
    dorm_sort(s, n);
    return n;
}

static void place_on(struct dorm_search *s, uint32_t i, uint32_t n, const uint32_t *nodes,
                     uint32_t n_nodes)
{
    for (uint32_t c = 0; c < n_nodes && n > 0; c++) {
        uint32_t fit = dorm_fit(dorm_free(&s->state, nodes[c]), s->p->jobs[i].d, s->p->m);
        fit = MIN(fit, n);
        if (fit > 0)
            dorm_put(&s->state, i, nodes[c], (int32_t)fit);
        n -= fit;
        dorm_work(&s->p->work, 2);
    }
}

static void place_minima(struct dorm_search *s)
{
    uint32_t n = list_growing(s, BY_NOISY_USE, NULL, 0);
    for (uint32_t c = 0; c < n && s->state.lacking > 0; c++) {
        uint32_t i = s->order[c], lo = s->p->jobs[i].lo;
        if (s->state.n[i] < lo)
            dorm_place(s, i, lo - s->state.n[i]);
    }
}

/* Place up to n containers of the job. nodes: if not NULL, only on these nodes. */
static void grow(struct dorm_search *s, uint32_t i, uint32_t n, const uint32_t *nodes,
                 uint32_t n_nodes)
{
    if (n_nodes > 0)
        place_on(s, i, n, nodes, n_nodes);
    else
        dorm_place(s, i, n);
}

static void refill(struct dorm_search *s, const uint32_t *nodes, uint32_t n_nodes)
{
    struct dorm_problem *p = s->p;
    if (p->n_nodes <= LOCAL_FROM)
        n_nodes = 0;
    if (s->state.lacking > 0)
        place_minima(s);
    dorm_repair(s);
    if (s->state.lacking > 0)
        return; /* the free resources are needed for the minima */
    static const enum growth ways[] = { BY_NOISY_USE, BY_NOISY_USE, BY_USE_FOR_LOSS, BY_CHANCE };
    uint32_t n = list_growing(s, ways[dorm_below(&s->seed, ARRAY_LEN(ways))], nodes, n_nodes);
    if (uniform(s) < 0.5) /* below the ideal count, more containers mean less loss */
        for (uint32_t c = 0; c < n; c++) {
            uint32_t i = s->order[c], goal = MIN(p->jobs[i].ideal, p->jobs[i].hi);
            if (s->state.n[i] < goal && dorm_may_change(s, i))
                grow(s, i, goal - s->state.n[i], nodes, n_nodes);
        }
    for (uint32_t c = 0; c < n && !p->failed; c++) {
        uint32_t i = s->order[c], more = dorm_may_change(s, i) ? dorm_can_grow(s, i) : 0;
        if (more > 0 && uniform(s) < 0.3)
            more = 1 + dorm_below(&s->seed, more);
        if (more > 0)
            grow(s, i, more, nodes, n_nodes);
    }
    if (n_nodes == 0) {
        n = list_growing(s, BY_USE, NULL, 0);
        dorm_fill(s, s->order, n);
    }
}

/* Make a random change, and undo it if the result is worse. */
static void shake(struct dorm_search *s, bool all_members)
{
    struct dorm_score before = dorm_score(&s->state);
    uint32_t nodes[NODES_SHAKEN], n = 0;
    bool done = true;
    random_style(s);
    bool exchanges = s->p->adjust_bound > 0 && uniform(s) < 0.25;
    if (exchanges)
        done = exchange(s);
    if (done) {
        static const uint32_t sizes[] = { 1, 2, 3, 5 };
        for (uint32_t want = sizes[dorm_below(&s->seed, 4)]; n < want;) {
            nodes[n] = random_node(s);
            empty_node(s, nodes[n++]);
        }
        refill(s, nodes, exchanges ? 0 : n); /* an exchange frees room on many nodes */
    }
    struct dorm_score after = dorm_score(&s->state);
    if (!all_members) {
        before.adjusted = after.adjusted;
        before.changed = after.changed;
    }
    if (!done || dorm_compare(&after, &before) < 0)
        dorm_undo(&s->state, 0);
    dorm_forget(&s->state);
}

/* ---- the search */

/* Build a new allocation that adjusts other jobs than the best one. */
static void build_another(struct dorm_search *s)
{
    double top = 1e-9;
    for (uint32_t i = 0; i < s->p->n_running; i++)
        top = MAX(top, fabs(s->prices.gain[i]));
    for (uint32_t i = 0; i < s->p->n; i++)
        s->key[i] = s->prices.gain[i] + top * uniform(s);
    pick(s, -INFINITY);
    if (s->n_sets > 0 && uniform(s) < 0.7) {
        uint32_t set = s->sets[dorm_below(&s->seed, 1 + dorm_below(&s->seed, s->n_sets))];
        for (uint32_t i = 0; i < s->p->n; i++)
            s->picked[i] = set >> i & 1;
    }
    random_style(s);
    dorm_build(s);
}

void dorm_search_more(struct dorm_search *s, uint64_t steps, bool until_feasible)
{
    struct dorm_problem *p = s->p;
    unsigned stale = 0;
    dorm_plan_load(&s->best, &s->state);
    uint64_t end = p->work.steps + steps;
    if (!dorm_is_small(p))
        dorm_refill(s, steps - steps / 4);
    struct dorm_score now = dorm_score(&s->state);
    while (p->work.steps < end && !p->work.over && !p->failed && !close_enough(s, &now) &&
           !(until_feasible && !(now.bad > 0))) {
        double before = now.util;
        shake(s, false);
        now = dorm_score(&s->state);
        /* Copying a large allocation is expensive. The search never continues from a worse one. */
        bool better = dorm_is_small(s->p) && save_if_better(s);
        stale = better || now.util > before + DORM_UTIL_EPS ? 0 : stale + 1;
        if (stale < STALE)
            continue;
        stale = 0;
        save_if_better(s);
        if (uniform(s) < 0.5)
            dorm_plan_load(&s->best, &s->state);
        else
            build_another(s);
        if (dorm_is_small(p))
            dorm_refill(s, STEPS_REFILL);
        now = dorm_score(&s->state);
    }
    save_if_better(s);
}

void dorm_polish(struct dorm_search *s, uint64_t steps)
{
    struct dorm_problem *p = s->p;
    uint64_t end = p->work.steps + steps;
    if (!s->best.any)
        return;
    dorm_plan_load(&s->best, &s->state);
    for (uint32_t i = 0; i < p->n_running && !p->work.over && !p->failed; i++) {
        if (!dorm_is_small(p) && p->work.steps >= end)
            break;
        if (p->jobs[i].kind != DORM_COUNTED || s->state.moved[i] == 0)
            continue;
        struct dorm_score before = dorm_score(&s->state);
        s->style = (struct dorm_style){ .home = true, .tight = true };
        bool home = send_home(s, i);
        if (home)
            refill(s, NULL, 0);
        struct dorm_score after = dorm_score(&s->state);
        if (!home || dorm_compare(&after, &before) <= 0)
            dorm_undo(&s->state, 0);
        dorm_forget(&s->state);
    }
    save_if_better(s);
    while (p->work.steps < end && !p->work.over && !p->failed && s->best.score.changed > 0) {
        shake(s, true);
        save_if_better(s);
    }
}

static unsigned rounds_of(const struct dorm_search *s)
{
    return s->p->n_classes > MANY_CLASSES && !dorm_is_small(s->p) ? ROUNDS_MANY : ROUNDS;
}

void dorm_search_prices(struct dorm_search *s)
{
    s->seed = s->p->seed;
    s->n_sets = 0;
    dorm_waste_find(s->p);
    s->prices.waste = true;
    s->prices.quick = s->quick || dorm_counted_may_change(s->p);
    dorm_prices_find(s->p, &s->prices, s->prices.from ? ROUNDS_QUICK : rounds_of(s));
    dorm_price_places(s, &s->prices);
}

void dorm_search_bound(struct dorm_search *s)
{
    if (!dorm_counted_may_change(s->p))
        dorm_prices_lower(s->p, &s->prices, rounds_of(s));
}

bool dorm_search_start(struct dorm_search *s)
{
    s->best.any = false;
    dorm_search_prices(s);
    if (s->prices.impossible)
        return false;
    first_builds(s);
    return !(s->best.score.bad > 0);
}
