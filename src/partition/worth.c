/* SPDX-License-Identifier: Apache-2.0 */
#include "partition/worth.h"

#include <errno.h>
#include <math.h>

/* A job whose places the decision changes. */
struct member {
    uint32_t job;
    uint32_t parent; /* a member of the same group; the root of a group is its own parent */
    uint32_t next;   /* the next member of the group, in the order of the jobs; NONE: the last */
    double u;        /* share of one container */
    bool gives;      /* it gives containers back on some node */
};

enum { NONE = UINT32_MAX };

struct worth {
    const struct part_cluster *c;
    const struct part_job *jobs;
    const struct part_options *o;
    struct part_decision *out;
    struct member *members;
    uint32_t n;
    struct part_amount *free; /* of each node, after the present decision */
    uint32_t *held_back;      /* scratch: members of a group that gain */
    uint32_t first_held;      /* the first new job that must wait; NONE */
    bool any_held;            /* the rule has changed the decision */
    bool any_starts;          /* by the decision of the policy, a new job starts */
};

/* ---- one job ---- */

/* Walks the nodes on which the job's containers change. */
struct diff {
    const struct part_place *was, *is;
    uint32_t n_was, n_is;
    uint32_t node;
    int64_t more; /* containers; < 0: fewer */
};

static struct diff diff_of(const struct part_job *job, const struct part_share *share)
{
    struct diff d = { .was = job->at, .n_was = job->n_at };
    d.is = share->at;
    d.n_is = share->n_at;
    return d;
}

static bool diff_next(struct diff *d)
{
    do {
        if (!d->n_was && !d->n_is)
            return false;
        bool was = d->n_was && (!d->n_is || d->was->node <= d->is->node);
        bool is = d->n_is && (!d->n_was || d->is->node <= d->was->node);
        d->node = was ? d->was->node : d->is->node;
        d->more = (is ? (int64_t)d->is->n : 0) - (was ? (int64_t)d->was->n : 0);
        d->was += was;
        d->n_was -= was;
        d->is += is;
        d->n_is -= is;
    } while (d->more == 0);
    return true;
}

static bool is_changed(const struct part_share *s)
{
    return s->verdict == PART_STARTS || s->verdict == PART_CHANGES;
}

static bool is_new(const struct part_job *job)
{
    return job->n_at == 0;
}

/* c_i for one resize. */
static double resize_s(const struct part_job *job)
{
    return is_new(job) || job->lost ? 0 : job->resize_s;
}

/* Do containers of the job leave a node and come back on another one? */
static bool is_moved(const struct part_job *job, const struct part_share *s)
{
    struct diff d = diff_of(job, s);
    uint32_t was = part_count(job);
    int64_t kept = was;

    while (diff_next(&d))
        kept += MIN(d.more, (int64_t)0);
    return kept < (int64_t)MIN(was, s->n);
}

/* c_i: the time for which the job does nothing because of the decision. */
static double stall_s(const struct worth *w, const struct member *m)
{
    const struct part_job *job = &w->jobs[m->job];
    bool twice = w->o->move_in_two && w->any_starts && is_moved(job, &w->out->jobs[m->job]);

    return resize_s(job) * (twice ? 2 : 1);
}

static double cost_of(const struct worth *w, const struct member *m)
{
    const struct part_share *s = &w->out->jobs[m->job];
    uint32_t was = part_count(&w->jobs[m->job]);

    return is_changed(s) ? m->u * MIN(was, s->n) * stall_s(w, m) : 0;
}

static double gain_of(const struct worth *w, const struct member *m, double until_s)
{
    const struct part_job *job = &w->jobs[m->job];
    const struct part_share *s = &w->out->jobs[m->job];
    uint32_t was = part_count(job);
    double horizon = MIN(w->o->payback_s, until_s);

    horizon = MIN(horizon, is_new(job) ? job->remaining_s : job->ends_in_s);
    if (is_new(job))
        horizon += job->waited_s;
    if (!is_changed(s) || s->n <= was || horizon <= stall_s(w, m))
        return 0;
    return m->u * (s->n - was) * (horizon - stall_s(w, m));
}

/* Let the job keep its containers. cost and gain are those of the whole change that is
 * cancelled. */
static void hold_back(struct worth *w, const struct member *m, double cost, double gain)
{
    const struct part_job *job = &w->jobs[m->job];
    struct part_share *s = &w->out->jobs[m->job];
    double one_second = m->u * (is_new(job) ? s->n : part_count(job));
    struct diff d = diff_of(job, s);

    while (diff_next(&d))
        part_take(&w->free[d.node], &job->demand, w->c->n_types, d.more, 1);
    if (is_new(job))
        w->first_held = MIN(w->first_held, m->job);
    s->gives = s->n < part_count(job);
    part_keep(w->out, w->jobs, m->job, PART_BECAUSE_COST);
    w->any_held = true;
    s->cost_s = one_second > 0 ? cost / one_second : 0;
    s->gain_s = one_second > 0 ? gain / one_second : 0;
}

/* Do the job's present containers still fit beside the present decision? */
static bool can_keep(const struct worth *w, const struct member *m)
{
    const struct part_job *job = &w->jobs[m->job];
    struct diff d = diff_of(job, &w->out->jobs[m->job]);

    while (diff_next(&d))
        for (uint32_t k = 0; k < w->c->n_types; k++)
            if (w->free[d.node].v[k] + job->demand.v[k] * d.more < 0)
                return false;
    return true;
}

/* ---- groups ---- */

static uint32_t root_of(const struct worth *w, uint32_t i)
{
    struct member *m = w->members;

    while (m[i].parent != i)
        i = m[i].parent = m[m[i].parent].parent;
    return i;
}

/* The root of a group is its first member. */
static void join(struct worth *w, uint32_t a, uint32_t b)
{
    uint32_t x = root_of(w, a), y = root_of(w, b);

    w->members[MAX(x, y)].parent = MIN(x, y);
}

/* Put all members that change on a node into one group if they add more than is free there now. 0
 * or -ENOMEM. */
static int find_groups(struct worth *w)
{
    struct part_amount *left = part_free_now(w->c, w->jobs, w->out->n, w->out);
    uint32_t *last = part_alloc(w->out, w->c->n_nodes * sizeof *last + 1);
    bool *crowded = part_alloc(w->out, w->c->n_nodes * sizeof *crowded + 1);
    if (!left || !last || !crowded)
        return -ENOMEM;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct part_job *job = &w->jobs[w->members[i].job];
        struct diff d = diff_of(job, &w->out->jobs[w->members[i].job]);
        while (diff_next(&d))
            if (d.more > 0)
                part_take(&left[d.node], &job->demand, w->c->n_types, d.more, -1);
    }
    for (uint32_t node = 0; node < w->c->n_nodes; node++) {
        last[node] = NONE;
        crowded[node] = false;
        for (uint32_t k = 0; k < w->c->n_types; k++)
            crowded[node] |= left[node].v[k] < 0;
    }
    for (uint32_t i = 0; i < w->n; i++) {
        struct diff d = diff_of(&w->jobs[w->members[i].job], &w->out->jobs[w->members[i].job]);
        while (diff_next(&d)) {
            if (!crowded[d.node])
                continue;
            if (last[d.node] != NONE)
                join(w, i, last[d.node]);
            last[d.node] = i;
        }
    }
    for (uint32_t i = w->n; i-- > 0;) { /* chain the members of each group behind its root */
        uint32_t root = root_of(w, i);
        if (root == i)
            continue;
        w->members[i].next = w->members[root].next;
        w->members[root].next = i;
    }
    return 0;
}

/* The time until the last member that gives containers back ends; INFINITY: no member does. */
static double givers_end_s(const struct worth *w, uint32_t root)
{
    double end_s = -1;

    for (uint32_t i = root; i != NONE; i = w->members[i].next) {
        const struct member *m = &w->members[i];
        if (m->gives && is_changed(&w->out->jobs[m->job]))
            end_s = MAX(end_s, w->jobs[m->job].ends_in_s);
    }
    return end_s < 0 ? INFINITY : end_s;
}

static void weigh(const struct worth *w, uint32_t root, double *cost, double *gain)
{
    double until_s = givers_end_s(w, root);

    *cost = *gain = 0;
    for (uint32_t i = root; i != NONE; i = w->members[i].next) {
        *cost += cost_of(w, &w->members[i]);
        *gain += gain_of(w, &w->members[i], until_s);
    }
}

/* Let running jobs that shrink or move for others keep their containers if no other job needs
 * these. If jobs that gain have left the group, this also holds for changes without a cost. */
static void keep_unclaimed(struct worth *w, uint32_t root, bool has_lost, double cost, double gain)
{
    for (uint32_t i = root; i != NONE; i = w->members[i].next) {
        const struct member *m = &w->members[i];
        double own_cost = cost_of(w, m), own_gain = gain_of(w, m, INFINITY);
        bool pays = own_cost < own_gain || (own_cost <= own_gain && !has_lost);
        if (is_changed(&w->out->jobs[m->job]) && !is_new(&w->jobs[m->job]) && !pays &&
            can_keep(w, m))
            hold_back(w, m, MAX(cost, own_cost), gain);
    }
}

/* The members that gain: new jobs first, each kind in the order of the jobs. */
static uint32_t list_gainers(struct worth *w, uint32_t root)
{
    uint32_t n = 0;

    for (int new = 1; new >= 0; new --)
        for (uint32_t i = root; i != NONE; i = w->members[i].next) {
            const struct part_job *job = &w->jobs[w->members[i].job];
            const struct part_share *s = &w->out->jobs[w->members[i].job];
            if (is_changed(s) && is_new(job) == (new != 0) && s->n > part_count(job))
                w->held_back[n++] = i;
        }
    return n;
}

/* Note the time after which the new jobs of the group have waited long enough to start. */
static void note_again(struct worth *w, uint32_t root, double missing)
{
    double rate = 0;

    for (uint32_t i = root; i != NONE; i = w->members[i].next) {
        const struct member *m = &w->members[i];
        const struct part_share *s = &w->out->jobs[m->job];
        if (is_changed(s) && is_new(&w->jobs[m->job]))
            rate += m->u * s->n;
    }
    if (rate > 0)
        w->out->metrics.again_s = MIN(w->out->metrics.again_s, missing / rate);
}

/* Cancel changes of the group until its gains cover its costs. */
static void judge(struct worth *w, uint32_t root)
{
    double cost, gain, least_cost, least_gain;

    weigh(w, root, &cost, &gain);
    if (cost <= gain)
        return;
    note_again(w, root, cost - gain);
    uint32_t n = list_gainers(w, root);
    for (uint32_t step = 1; n > 0; step *= 2) {
        for (uint32_t k = 0; k < step && n > 0; k++) {
            const struct member *m = &w->members[w->held_back[--n]];
            if (can_keep(w, m))
                hold_back(w, m, cost, gain);
        }
        keep_unclaimed(w, root, true, cost, gain);
        weigh(w, root, &least_cost, &least_gain);
        if (least_cost <= least_gain)
            return;
    }
    for (uint32_t i = root; i != NONE; i = w->members[i].next)
        if (is_changed(&w->out->jobs[w->members[i].job]))
            hold_back(w, &w->members[i], cost, gain);
}

static void judge_all(struct worth *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->members[i].parent == i)
            judge(w, i);
}

/* Let new jobs behind a job that must wait wait, too. true: at least one of them would have
 * started. */
static bool hold_back_behind(struct worth *w)
{
    uint32_t first = w->first_held;
    bool any = false;

    for (uint32_t i = 0; i < w->n && first != NONE; i++) {
        const struct member *m = &w->members[i];
        if (m->job <= first || w->out->jobs[m->job].verdict != PART_STARTS)
            continue;
        hold_back(w, m, 0, 0);
        part_say(w->out, m->job, PART_BECAUSE_BEHIND, first);
        any = true;
    }
    for (uint32_t i = 0; i < w->n && any; i++)
        if (w->members[i].parent == i)
            keep_unclaimed(w, i, true, 0, 0);
    return any;
}

/* ---- containers that no job takes ---- */

/* Compute the places of a job that gives containers back, if it keeps those that no other job
 * takes, at most `most` of them. Returns the number of kept containers. */
static uint32_t keep_leftovers(struct worth *w, const struct part_job *job,
                               const struct part_share *s, uint32_t most, struct part_place *out,
                               uint32_t *n_out)
{
    uint32_t was = 0, is = 0, n = 0, kept = 0;

    while (was < job->n_at || is < s->n_at) {
        bool has = is < s->n_at && (was == job->n_at || s->at[is].node <= job->at[was].node);
        bool had = was < job->n_at && (is == s->n_at || job->at[was].node <= s->at[is].node);
        struct part_place p = has ? s->at[is++] : (struct part_place){ .node = job->at[was].node };
        uint32_t before = had ? job->at[was++].n : 0;
        if (before > p.n) {
            uint32_t more =
                MIN(before - p.n, part_fit(&w->free[p.node], &job->demand, w->c->n_types));
            more = MIN(more, most - kept);
            part_take(&w->free[p.node], &job->demand, w->c->n_types, more, -1);
            p.n += more;
            kept += more;
        }
        if (p.n > 0)
            out[n++] = p;
    }
    *n_out = n;
    return kept;
}

/* Jobs that shrink keep the containers that no other job takes any more, because these jobs are
 * adjusted anyway. If a job also moves to other nodes, or has more than its maximum, it keeps them
 * only up to its present number of containers and within its bounds. */
static int share_leftovers(struct worth *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const struct member *m = &w->members[i];
        const struct part_job *job = &w->jobs[m->job];
        struct part_share *s = &w->out->jobs[m->job];
        uint32_t n, most = MIN(part_count(job), job->max);
        if (!m->gives || !is_changed(s) || s->n >= most)
            continue;
        struct part_place *at = part_alloc(w->out, ((size_t)job->n_at + s->n_at) * sizeof *at);
        if (!at)
            return -ENOMEM;
        if (keep_leftovers(w, job, s, most - s->n, at, &n) > 0)
            part_give(w->out, w->jobs, m->job, at, n);
    }
    return 0;
}

/* ---- the decision ---- */

/* Does any change of the decision have a cost? */
static bool any_costs(const struct part_job *jobs, const struct part_decision *d)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->jobs[i].verdict == PART_CHANGES && resize_s(&jobs[i]) > 0)
            return true;
    return false;
}

static int begin(struct worth *w)
{
    struct part_amount total;
    size_t n = w->out->n;

    w->members = part_alloc(w->out, n * sizeof *w->members + 1);
    w->held_back = part_alloc(w->out, n * sizeof *w->held_back + 1);
    w->free = part_free_now(w->c, w->jobs, n, w->out);
    if (!w->members || !w->held_back || !w->free)
        return -ENOMEM;
    part_total(w->c, &total);
    for (uint32_t i = 0; i < n; i++) {
        const struct part_job *job = &w->jobs[i];
        if (!is_changed(&w->out->jobs[i]))
            continue;
        w->any_starts |= is_new(job);
        struct member m = { .job = i, .parent = w->n, .next = NONE };
        for (uint32_t k = 0; k < w->c->n_types; k++)
            if (total.v[k] > 0)
                m.u += (double)job->demand.v[k] / (double)total.v[k];
        struct diff d = diff_of(job, &w->out->jobs[i]);
        while (diff_next(&d)) {
            m.gives |= d.more < 0;
            part_take(&w->free[d.node], &job->demand, w->c->n_types, d.more, -1);
        }
        w->members[w->n++] = m;
    }
    return 0;
}

/* Rule 1: running jobs that only gain containers, and gain too little, keep their containers.
 * They are no longer members. */
static void judge_alone(struct worth *w)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < w->n; i++) {
        struct member m = w->members[i];
        double cost = cost_of(w, &m), gain = gain_of(w, &m, INFINITY);
        if (!m.gives && cost > gain) {
            hold_back(w, &m, cost, gain);
            continue;
        }
        m.parent = kept;
        w->members[kept++] = m;
    }
    w->n = kept;
}

int part_worth(const struct part_cluster *c, const struct part_job *jobs,
               const struct part_options *o, struct part_decision *out)
{
    struct worth w = { .c = c, .jobs = jobs, .o = o, .out = out, .first_held = NONE };

    if (!any_costs(jobs, out))
        return 0;
    if (begin(&w) < 0)
        return -ENOMEM;
    judge_alone(&w);
    if (find_groups(&w) < 0)
        return -ENOMEM;
    /* A running job that would give containers back keeps them if no other job needs them. */
    for (uint32_t i = 0; i < w.n; i++)
        if (w.members[i].parent == i)
            keep_unclaimed(&w, i, false, 0, 0);
    do {
        judge_all(&w);
    } while (hold_back_behind(&w));
    if (!w.any_held)
        return 0;
    /* The proof and the bound were about the decision of the policy: a division that admits fewer
     * jobs may use more of the cluster. */
    out->metrics.proved = false;
    if (w.first_held != NONE)
        out->metrics.upper_bound = NAN;
    return share_leftovers(&w);
}
