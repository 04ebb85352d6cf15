/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One division of the cluster, which the search changes container by container: struct dorm_state
 * in dorm.h. Each change keeps the sums up to date and is written to a log, so that any number of
 * changes can be undone. With x_ij containers of job i on node j, and p_ij before the decision:
 *
 *   n_i     = sum over j of x_ij
 *   util    = U = sum over i of u_i * n_i
 *   loss    = F = sum over i of D_i * |n_i - ideal_i|
 *   moved_i = sum over j of |x_ij - p_ij|, of a running job
 *   adjusted = R = counted jobs with moved_i > 0;  changed = M = sum over i of moved_i
 *   lacking = sum over i of max(0, min_i - n_i)
 *
 * dorm_compare() is the order of docs/partition.md: U, then R, then M, among allocations that keep
 * all bounds. `bad` says by how much one is beyond them.
 *
 * With many nodes, nodes of a class with equal free amounts form a group. The search looks at
 * groups instead of nodes.
 */
#include "partition/dorm.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/util.h"

enum {
    GROUPED_FROM = 128, /* with fewer nodes, each is a group of its own */
    ROOM_FIRST = 256,   /* of an array that grows: elements at first */
};

/* A copy of an array with n elements that has room for twice as many. Sets *room. NULL: out of
 * memory. */
static void *grow_array(struct dorm_problem *p, const void *array, uint32_t n, uint32_t *room,
                        size_t element)
{
    uint32_t more = *room ? 2 * *room : ROOM_FIRST;
    void *grown = dorm_alloc(p, more, element);
    if (!grown)
        return NULL;
    if (n)
        memcpy(grown, array, element * n);
    *room = more;
    return grown;
}

/* ---- groups */

static uint32_t hash_free(const struct dorm_state *s, uint32_t class, const int64_t *free)
{
    uint64_t h = class + 1;
    for (uint32_t k = 0; k < s->p->m; k++) {
        h = (h ^ (uint64_t)free[k]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return (uint32_t)(h >> 11) & s->hash_mask;
}

static uint32_t group_new(struct dorm_state *s, uint32_t class, const int64_t *free, uint32_t slot)
{
    uint32_t at = s->unused_group;
    struct dorm_group *g = &s->groups[at];
    s->unused_group = g->chain;
    *g = (struct dorm_group){ .class = class, .head = DORM_END, .chain = s->hash[slot] };
    memcpy(g->free, free, sizeof(*free) * s->p->m);
    s->hash[slot] = at;
    g->pos = s->n_listed[class];
    s->listed[s->listed_at[class] + s->n_listed[class]++] = at;
    return at;
}

static void group_end(struct dorm_state *s, uint32_t at)
{
    struct dorm_group *g = &s->groups[at];
    uint32_t *link = &s->hash[hash_free(s, g->class, g->free)];
    while (*link != at)
        link = &s->groups[*link].chain;
    *link = g->chain;
    uint32_t *list = s->listed + s->listed_at[g->class];
    uint32_t last = list[--s->n_listed[g->class]];
    list[g->pos] = last;
    s->groups[last].pos = g->pos;
    g->chain = s->unused_group;
    s->unused_group = at;
}

static void node_leave(struct dorm_state *s, uint32_t node)
{
    struct dorm_group *g = &s->groups[s->group_of[node]];
    uint32_t next = s->next_node[node], prev = s->prev_node[node];
    if (prev == DORM_END)
        g->head = next;
    else
        s->next_node[prev] = next;
    if (next != DORM_END)
        s->prev_node[next] = prev;
    if (--g->size == 0)
        group_end(s, s->group_of[node]);
}

static void node_join(struct dorm_state *s, uint32_t node, const int64_t *free)
{
    uint32_t class = s->p->class_of[node], slot = hash_free(s, class, free), at = s->hash[slot];
    while (at != DORM_END && (s->groups[at].class != class ||
                              memcmp(s->groups[at].free, free, sizeof(*free) * s->p->m) != 0))
        at = s->groups[at].chain;
    if (at == DORM_END)
        at = group_new(s, class, free, slot);
    struct dorm_group *g = &s->groups[at];
    s->group_of[node] = at;
    s->prev_node[node] = DORM_END;
    s->next_node[node] = g->head;
    if (g->head != DORM_END)
        s->prev_node[g->head] = node;
    g->head = node;
    g->size++;
}

static void take(struct dorm_state *s, uint32_t node, const int64_t *d, int64_t n)
{
    uint32_t m = s->p->m;
    struct dorm_group *g = &s->groups[s->group_of[node]];
    if (!s->grouped) {
        for (uint32_t k = 0; k < m; k++)
            g->free[k] -= d[k] * n;
        return;
    }
    int64_t free[PART_TYPES_MAX];
    for (uint32_t k = 0; k < m; k++)
        free[k] = g->free[k] - d[k] * n;
    node_leave(s, node);
    node_join(s, node, free);
}

static void init_groups(struct dorm_state *s)
{
    struct dorm_problem *p = s->p;
    uint32_t at = 0;
    for (uint32_t g = 0; g < p->n_classes; g++) {
        s->listed_at[g] = at;
        at += p->classes[g].size;
    }
    for (uint32_t h = 0; h <= s->hash_mask; h++)
        s->hash[h] = DORM_END;
    for (uint32_t j = 0; j < p->n_nodes; j++)
        s->groups[j].chain = j + 1 < p->n_nodes ? j + 1 : DORM_END;
    s->unused_group = 0;
    for (uint32_t j = p->n_nodes; j-- > 0;) {
        const int64_t *cap = p->cap + (size_t)j * p->m;
        if (s->grouped) {
            node_join(s, j, cap);
            continue;
        }
        struct dorm_group *g = &s->groups[j];
        *g = (struct dorm_group){ .class = p->class_of[j], .head = j, .size = 1 };
        memcpy(g->free, cap, sizeof(*cap) * p->m);
        s->group_of[j] = j;
        s->next_node[j] = DORM_END;
        s->listed[s->listed_at[g->class] + s->n_listed[g->class]++] = j;
    }
}

/* ---- entries */

static uint32_t *pair_slot(const struct dorm_state *s, uint32_t job, uint32_t node)
{
    uint64_t h = ((uint64_t)job << 32 | node) * 0x9e3779b97f4a7c15u;
    return &s->pair_head[(uint32_t)(h >> 32) & s->pair_mask];
}

static uint32_t entry_find(const struct dorm_state *s, uint32_t job, uint32_t node)
{
    uint32_t e = *pair_slot(s, job, node);
    while (e != DORM_END && (s->entries[e].job != job || s->entries[e].node != node))
        e = s->entries[e].of_pair;
    return e;
}

static bool entry_grow(struct dorm_state *s)
{
    struct dorm_entry *more =
        grow_array(s->p, s->entries, s->n_entries, &s->room_entries, sizeof(*more));
    if (more)
        s->entries = more;
    return more;
}

static uint32_t entry_add(struct dorm_state *s, uint32_t job, uint32_t node)
{
    uint32_t e = s->unused;
    if (e != DORM_END)
        s->unused = s->entries[e].of_job;
    else if (s->n_entries == s->room_entries && !entry_grow(s))
        return DORM_END;
    else
        e = s->n_entries++;
    uint32_t *slot = pair_slot(s, job, node);
    s->entries[e] = (struct dorm_entry){ .job = job,
                                         .node = node,
                                         .of_node = s->node_head[node],
                                         .back_node = DORM_END,
                                         .of_pair = *slot,
                                         .of_job = s->job_head[job],
                                         .back_job = DORM_END };
    *slot = e;
    if (s->node_head[node] != DORM_END)
        s->entries[s->node_head[node]].back_node = e;
    if (s->job_head[job] != DORM_END)
        s->entries[s->job_head[job]].back_job = e;
    s->node_head[node] = s->job_head[job] = e;
    return e;
}

static void entry_remove(struct dorm_state *s, uint32_t e)
{
    struct dorm_entry *entry = &s->entries[e];
    uint32_t *link = pair_slot(s, entry->job, entry->node);
    while (*link != e)
        link = &s->entries[*link].of_pair;
    *link = entry->of_pair;
    if (entry->back_node == DORM_END)
        s->node_head[entry->node] = entry->of_node;
    else
        s->entries[entry->back_node].of_node = entry->of_node;
    if (entry->of_node != DORM_END)
        s->entries[entry->of_node].back_node = entry->back_node;
    if (entry->back_job == DORM_END)
        s->job_head[entry->job] = entry->of_job;
    else
        s->entries[entry->back_job].of_job = entry->of_job;
    if (entry->of_job != DORM_END)
        s->entries[entry->of_job].back_job = entry->back_job;
    entry->of_job = s->unused;
    s->unused = e;
}

uint32_t dorm_on(const struct dorm_state *s, uint32_t job, uint32_t node)
{
    uint32_t e = entry_find(s, job, node);
    return e == DORM_END ? 0 : s->entries[e].n;
}

/* ---- the state */

static void write_log(struct dorm_state *s, uint32_t job, uint32_t node, int32_t n)
{
    if (s->n_log == s->room_log) {
        struct dorm_change *more = grow_array(s->p, s->log, s->n_log, &s->room_log, sizeof(*more));
        if (!more)
            return;
        s->log = more;
    }
    s->log[s->n_log++] = (struct dorm_change){ job, node, n };
}

/* Add n containers of job i on this node to the sums; n < 0 subtracts -n. */
static void add_to_sums(struct dorm_state *s, uint32_t i, uint32_t node, int32_t n)
{
    const struct dorm_job *job = &s->p->jobs[i];
    int64_t was = s->n[i], is = was + n;
    int64_t lacked = MAX(job->lo - was, (int64_t)0), lacks = MAX(job->lo - is, (int64_t)0);
    s->lacking += (uint64_t)(lacks - lacked);
    s->lack = s->lacking ? s->lack + job->D * (double)(lacks - lacked) : 0;
    s->loss += job->D * (fabs((double)(is - job->ideal)) - fabs((double)(was - job->ideal)));
    s->util += job->u * n;
    s->n[i] = (uint32_t)is;
    s->in_class[(size_t)i * s->p->n_classes + s->p->class_of[node]] += (uint32_t)n;
}

static void put(struct dorm_state *s, uint32_t i, uint32_t node, int32_t n)
{
    const struct dorm_job *job = &s->p->jobs[i];
    uint32_t e = entry_find(s, i, node);
    s->version++;
    if (e == DORM_END)
        e = entry_add(s, i, node);
    if (e == DORM_END)
        return;
    struct dorm_entry *entry = &s->entries[e];
    int64_t was = entry->was, before = llabs(entry->n - was),
            after = llabs(entry->n + (int64_t)n - was);
    entry->n += (uint32_t)n;
    if (job->runs) {
        bool counted = job->kind == DORM_COUNTED, moved = s->moved[i] > 0;
        s->moved[i] += (uint32_t)(after - before);
        s->changed += (uint64_t)(after - before);
        s->adjusted += (uint32_t)(counted * ((s->moved[i] > 0) - moved));
    }
    if (entry->n == 0 && entry->was == 0)
        entry_remove(s, e);
    take(s, node, job->d, n);
    add_to_sums(s, i, node, n);
}

void dorm_put(struct dorm_state *s, uint32_t job, uint32_t node, int32_t n)
{
    write_log(s, job, node, n);
    if (!s->p->failed)
        put(s, job, node, n);
}

void dorm_undo(struct dorm_state *s, uint32_t n_log)
{
    while (s->n_log > n_log && !s->p->failed) {
        const struct dorm_change *c = &s->log[--s->n_log];
        put(s, c->job, c->node, -c->n);
    }
}

void dorm_take_all(struct dorm_state *s, uint32_t job)
{
    for (uint32_t e = s->job_head[job], next; e != DORM_END; e = next) {
        next = s->entries[e].of_job;
        if (s->entries[e].n > 0)
            dorm_put(s, job, s->entries[e].node, -(int32_t)s->entries[e].n);
    }
}

int dorm_state_init(struct dorm_problem *p, struct dorm_state *s)
{
    size_t n = p->n_all, J = p->n_nodes, places = 0;
    for (uint32_t i = 0; i < p->n_running; i++)
        places += p->jobs[i].n_at;
    *s = (struct dorm_state){ .p = p, .unused = DORM_END, .grouped = J >= GROUPED_FROM };
    s->hash_mask = 15;
    while (s->hash_mask < J)
        s->hash_mask = 2 * s->hash_mask + 1;
    s->room_entries = (uint32_t)(places + places / 4 + 256);
    s->entries = dorm_alloc(p, s->room_entries, sizeof(*s->entries));
    s->pair_mask = 255;
    while (s->pair_mask < places + 4 * J)
        s->pair_mask = 2 * s->pair_mask + 1;
    s->pair_head = dorm_alloc(p, (size_t)s->pair_mask + 1, sizeof(*s->pair_head));
    s->node_head = dorm_alloc(p, J, sizeof(*s->node_head));
    s->job_head = dorm_alloc(p, n, sizeof(*s->job_head));
    s->groups = dorm_alloc(p, J + 1, sizeof(*s->groups));
    s->group_of = dorm_alloc(p, J, sizeof(*s->group_of));
    s->next_node = dorm_alloc(p, J, sizeof(*s->next_node));
    s->prev_node = dorm_alloc(p, J, sizeof(*s->prev_node));
    s->hash = dorm_alloc(p, (size_t)s->hash_mask + 1, sizeof(*s->hash));
    s->listed = dorm_alloc(p, J + 1, sizeof(*s->listed));
    s->listed_at = dorm_alloc(p, p->n_classes, sizeof(*s->listed_at));
    s->n_listed = dorm_alloc(p, p->n_classes, sizeof(*s->n_listed));
    s->n = dorm_alloc(p, n, sizeof(*s->n));
    s->moved = dorm_alloc(p, n, sizeof(*s->moved));
    s->in_class = dorm_alloc(p, n * p->n_classes, sizeof(*s->in_class));
    if (p->failed)
        return -ENOMEM;
    memset(s->node_head, 0xff, sizeof(*s->node_head) * J);
    memset(s->pair_head, 0xff, sizeof(*s->pair_head) * ((size_t)s->pair_mask + 1));
    memset(s->job_head, 0xff, sizeof(*s->job_head) * n);
    init_groups(s);
    for (uint32_t i = 0; i < p->n_running; i++)
        for (uint32_t a = 0; a < p->jobs[i].n_at; a++) {
            const struct part_place *at = &p->jobs[i].at[a];
            uint32_t e = entry_add(s, i, at->node);
            s->entries[e].n = s->entries[e].was = at->n;
            take(s, at->node, p->jobs[i].d, at->n);
            add_to_sums(s, i, at->node, (int32_t)at->n);
        }
    return 0;
}

/* Compute the sums again, without the rounding errors of many small changes, and with the
 * present ideal counts. */
static void sum_up(struct dorm_state *s)
{
    s->loss = s->util = s->lack = 0;
    s->lacking = 0;
    for (uint32_t i = 0; i < s->p->n; i++) {
        const struct dorm_job *job = &s->p->jobs[i];
        uint32_t lacks = job->lo > s->n[i] ? job->lo - s->n[i] : 0;
        s->lacking += lacks;
        s->lack += lacks * job->D;
        s->loss += dorm_loss_of(job, s->n[i]);
        s->util += job->u * s->n[i];
    }
}

void dorm_state_keep(struct dorm_state *s)
{
    for (uint32_t i = 0; i < s->p->n_all; i++) {
        if (s->p->jobs[i].runs && s->moved[i] == 0)
            continue;
        for (int shrink = 1; shrink >= 0; shrink--)
            for (uint32_t e = s->job_head[i], next; e != DORM_END; e = next) {
                const struct dorm_entry *entry = &s->entries[e];
                next = entry->of_job;
                if (shrink ? entry->n > entry->was : entry->n < entry->was)
                    put(s, i, entry->node, (int32_t)(entry->was - entry->n));
            }
    }
    s->n_log = 0;
    sum_up(s);
}

struct dorm_score dorm_score(const struct dorm_state *s)
{
    double excess = s->loss > dorm_loss_limit(s->p) ? s->loss - s->p->loss_bound : 0;
    double bad = (s->lacking ? s->lack + 1e-6 : 0) + excess;
    if (s->adjusted > s->p->adjust_bound)
        bad += s->adjusted - s->p->adjust_bound;
    return (struct dorm_score){ bad, s->util, s->adjusted, s->changed };
}

int dorm_compare(const struct dorm_score *a, const struct dorm_score *b)
{
    if (fabs(a->bad - b->bad) > 1e-12)
        return a->bad < b->bad ? 1 : -1;
    if (fabs(a->util - b->util) > DORM_UTIL_EPS)
        return a->util > b->util ? 1 : -1;
    if (a->adjusted != b->adjusted)
        return a->adjusted < b->adjusted ? 1 : -1;
    return a->changed < b->changed ? 1 : a->changed > b->changed ? -1 : 0;
}

/* ---- plans */

static void plan_add(struct dorm_plan *plan, struct dorm_problem *p, uint32_t job, uint32_t node,
                     int32_t n)
{
    if (plan->n == plan->room) {
        struct dorm_change *more = grow_array(p, plan->places, plan->n, &plan->room, sizeof(*more));
        if (!more)
            return;
        plan->places = more;
    }
    plan->places[plan->n++] = (struct dorm_change){ job, node, n };
}

void dorm_plan_save(struct dorm_plan *plan, const struct dorm_state *s)
{
    plan->n = 0;
    plan->any = true;
    plan->version = s->version;
    plan->score = dorm_score(s);
    for (uint32_t i = 0; i < s->p->n; i++) {
        if (s->p->jobs[i].runs && s->moved[i] == 0)
            continue;
        for (uint32_t e = s->job_head[i]; e != DORM_END; e = s->entries[e].of_job)
            if (s->entries[e].n != s->entries[e].was)
                plan_add(plan, s->p, i, s->entries[e].node,
                         (int32_t)(s->entries[e].n - s->entries[e].was));
    }
}

void dorm_plan_load(const struct dorm_plan *plan, struct dorm_state *s)
{
    if (plan->any && plan->version == s->version) { /* it is loaded already */
        s->n_log = 0;
        sum_up(s);
        return;
    }
    dorm_state_keep(s);
    for (int grow = 0; grow <= 1; grow++)
        for (uint32_t c = 0; c < plan->n; c++)
            if ((plan->places[c].n > 0) == grow)
                put(s, plan->places[c].job, plan->places[c].node, plan->places[c].n);
    sum_up(s);
}
