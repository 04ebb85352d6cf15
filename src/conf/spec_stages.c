/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dependencies by stages, group timeouts, and the resources that a job holds at its peak. The key
 * depends-on is in spec_depends.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/spec_int.h"

enum stage { STAGE_NONE = 0, STAGE_PREPARE, STAGE_TRAINING };

static const char prepare_key[] = "tony.application.prepare-stage";
static const char training_key[] = "tony.application.training-stage";

/* Put the roles that a list key names into a stage. */
static int read_stage(struct build *b, const char *key, enum stage stage, enum stage *of,
                      bool *out_given)
{
    const char *v = conf_get(b->c, key);
    struct strv names = { 0 };
    int rc = v && conf_list_parse(span_of(v), &names) < 0 ? build_no_memory(b) : 0;
    for (size_t i = 0; i < names.n && rc == 0; i++) {
        uint32_t at = 0;
        rc = build_role_of(b, key, names.v[i], &at);
        if (rc == 0 && of[at] != STAGE_NONE && of[at] != stage)
            rc = build_fail(b, key, EINVAL,
                            "role '%s' is in both the prepare and the training stage", names.v[i]);
        if (rc == 0)
            of[at] = stage;
    }
    *out_given = names.n > 0;
    strv_done(&names);
    return rc;
}

/* If only one of the two lists is set, all other roles belong to the other stage. If both are set,
 * each role must be in one of them; a TensorBoard role that tony has added is in none. */
static int complete_stages(struct build *b, enum stage *of, bool prepare, bool training)
{
    for (size_t i = 0; i < b->s->n_roles; i++) {
        const char *name = b->s->roles[i].name;
        if (of[i] != STAGE_NONE || (b->tensorboard_added && strcmp(name, "tensorboard") == 0))
            continue;
        if (prepare && training) {
            (void)build_fail(b, training_key, EINVAL,
                             "role '%s' is in neither the prepare nor the training stage", name);
            return err_hint(b->e, "put it into one of them, or give only one of the two lists");
        }
        of[i] = prepare ? STAGE_TRAINING : STAGE_PREPARE;
    }
    return 0;
}

static int wait_by_stage(struct build *b, const enum stage *of)
{
    struct job_spec *s = b->s;
    size_t n_before = 0;
    for (size_t i = 0; i < s->n_roles; i++)
        n_before += of[i] == STAGE_PREPARE && s->roles[i].kind == ROLE_TRACKED;
    for (size_t i = 0; i < s->n_roles && n_before > 0; i++) {
        struct role_spec *r = &s->roles[i];
        if (of[i] != STAGE_TRAINING)
            continue;
        r->waits_for = calloc(n_before, sizeof *r->waits_for);
        if (!r->waits_for)
            return build_no_memory(b);
        for (uint32_t k = 0; k < s->n_roles; k++) {
            if (of[k] == STAGE_PREPARE && s->roles[k].kind == ROLE_TRACKED)
                r->waits_for[r->n_waits_for++] = k;
        }
    }
    return 0;
}

/* ---- no cycles ---- */

enum mark { M_NEW = 0, M_OPEN, M_DONE };

static int say_circle(struct build *b, const uint32_t *path, size_t from, size_t n)
{
    AUTO(buf_done) struct buf names = { 0 };
    char key[ROLE_KEY_MAX];
    int rc = 0;
    for (size_t i = from; i < n && rc == 0; i++)
        rc = buf_addf(&names, "'%s' waits for ", b->s->roles[path[i]].name);
    if (rc < 0)
        return build_no_memory(b);
    /* Stages alone make no cycle, so a role in it has the key depends-on: the error names that
     * key. */
    for (size_t i = from; i < n; i++) {
        if (conf_find(b->c, role_key(key, b->s->roles[path[i]].name, "depends-on")))
            break;
    }
    (void)build_fail(b, key, EINVAL, "the roles are not a DAG, so none of them could start: %s'%s'",
                     buf_cstr(&names), b->s->roles[path[from]].name);
    return err_hint(b->e, "look at depends-on and at the stages");
}

static size_t n_edges(const struct role_spec *r)
{
    return r->n_waits_for + r->n_gates;
}

static uint32_t edge(const struct role_spec *r, size_t i)
{
    return i < r->n_waits_for ? r->waits_for[i] : r->gates[i - r->n_waits_for].role;
}

/* A role waits also for the roles for which its gates wait. Otherwise it would hold containers that
 * cannot start yet. */
static int inherit(struct build *b, struct role_spec *r)
{
    int rc = 0;
    for (size_t i = 0; i < r->n_gates && rc == 0; i++) {
        const struct role_spec *on = &b->s->roles[r->gates[i].role];
        for (size_t k = 0; k < on->n_waits_for && rc == 0; k++)
            rc = build_add_role(b, &r->waits_for, &r->n_waits_for, on->waits_for[k]);
    }
    return rc;
}

/* Depth-first search without recursion. path: the roles from the start to here; next: for each of
 * them, the edge to try next. */
static int walk_from(struct build *b, uint32_t start, enum mark *marks, uint32_t *path,
                     size_t *next)
{
    size_t depth = 1;
    path[0] = start;
    next[0] = 0;
    marks[start] = M_OPEN;
    while (depth > 0) {
        struct role_spec *r = &b->s->roles[path[depth - 1]];
        if (next[depth - 1] == n_edges(r)) {
            int rc = inherit(b, r);
            if (rc < 0)
                return rc;
            marks[path[--depth]] = M_DONE;
            continue;
        }
        uint32_t to = edge(r, next[depth - 1]++);
        if (marks[to] == M_OPEN) {
            size_t from = depth;
            while (path[from - 1] != to)
                from--;
            return say_circle(b, path, from - 1, depth);
        }
        if (marks[to] == M_NEW) {
            marks[to] = M_OPEN;
            path[depth] = to;
            next[depth++] = 0;
        }
    }
    return 0;
}

static int check_dag(struct build *b)
{
    size_t n = b->s->n_roles;
    AUTO(free_p) enum mark *marks = calloc(n + 1, sizeof *marks);
    AUTO(free_p) uint32_t *path = calloc(n + 1, sizeof *path);
    AUTO(free_p) size_t *next = calloc(n + 1, sizeof *next);
    if (!marks || !path || !next)
        return build_no_memory(b);
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        if (marks[i] == M_NEW)
            rc = walk_from(b, i, marks, path, next);
    }
    return rc;
}

int build_stages(struct build *b)
{
    struct job_spec *s = b->s;
    bool prepare = false, training = false;
    AUTO(free_p) enum stage *of = calloc(s->n_roles + 1, sizeof *of);
    if (!of)
        return build_no_memory(b);
    int rc = read_stage(b, prepare_key, STAGE_PREPARE, of, &prepare);
    if (rc == 0)
        rc = read_stage(b, training_key, STAGE_TRAINING, of, &training);
    if (rc == 0 && (prepare || training)) {
        rc = complete_stages(b, of, prepare, training);
        if (rc == 0)
            rc = wait_by_stage(b, of);
    }
    if (rc == 0)
        rc = build_depends(b);
    return rc < 0 ? rc : check_dag(b);
}

/* ---- group timeouts ---- */

static const char group_row[] = "tony.application.dependency.<role>.timeout.after.<group>";

/* Read which roles of the job are members of the group. */
static int read_group(struct build *b, const char *of_key, const char *group_key,
                      struct group_timeout *g)
{
    const char *v = conf_get(b->c, group_key);
    if (!v) {
        (void)build_fail(b, of_key, EINVAL, "'%s' names group '%s', which is not defined", of_key,
                         g->group);
        return err_hint(b->e, "set %s to a list of roles", group_key);
    }
    struct strv names = { 0 };
    int rc = conf_list_parse(span_of(v), &names);
    if (rc == 0) {
        g->members = calloc(names.n + 1, sizeof *g->members);
        rc = g->members ? 0 : -ENOMEM;
    }
    for (size_t i = 0; i < names.n && rc == 0; i++) {
        int64_t at = build_role(b, names.v[i]);
        if (at >= 0)
            g->members[g->n_members++] = (uint32_t)at;
    }
    strv_done(&names);
    return rc < 0 ? build_no_memory(b) : 0;
}

/* Each role has at most one group: the last one wins. Takes g. */
static int keep_group(struct build *b, struct group_timeout *g)
{
    struct job_spec *s = b->s;
    for (size_t i = 0; i < s->n_group_timeouts; i++) {
        if (s->group_timeouts[i].role != g->role)
            continue;
        struct group_timeout old = s->group_timeouts[i];
        s->group_timeouts[i] = *g;
        *g = old;
        return 0;
    }
    struct group_timeout *grown =
        reallocarray(s->group_timeouts, s->n_group_timeouts + 1, sizeof *grown);
    if (!grown)
        return build_no_memory(b);
    s->group_timeouts = grown;
    grown[s->n_group_timeouts++] = *g;
    *g = (struct group_timeout){ 0 };
    return 0;
}

static int build_group(struct build *b, const struct entry *x)
{
    struct span parts[2] = { { 0 } };
    if (!conf_key_match(group_row, span_of(x->key), parts))
        return 0;
    AUTO(free_p) char *role = span_dup(parts[0]);
    AUTO(free_p) char *group_key = NULL;
    AUTO(free_p) char *ignored_key = str_printf("%s.ignored", x->key);
    struct group_timeout g = { .group = span_dup(parts[1]) };
    if (g.group)
        group_key = str_printf("tony.application.group.%s", g.group);
    int rc = role && group_key && ignored_key ? 0 : build_no_memory(b);
    int64_t at = rc == 0 ? build_role(b, role) : -1;
    if (at >= 0) {
        g.role = (uint32_t)at;
        g.timeout_ms = (uint64_t)conf_int(b->c, x->key) * 1000;
        g.ignored = conf_bool(b->c, ignored_key);
        rc = read_group(b, x->key, group_key, &g);
        if (rc == 0 && g.n_members > 0)
            rc = keep_group(b, &g);
    }
    free(g.members);
    free(g.group);
    return rc;
}

int build_groups(struct build *b)
{
    int rc = 0;
    for (size_t i = 0; i < b->c->n && rc == 0; i++) {
        const struct entry *x = &b->c->v[i];
        if (x->row && str_eq(x->row->name, group_row))
            rc = build_group(b, x);
    }
    return rc;
}

/* ---- the peak ---- */

enum { EXACT_MAX = 16 }; /* up to this number of related roles, all 2^16 sets are tried */

struct peak {
    const struct job_spec *s;
    size_t n, of[EXACT_MAX];       /* roles that wait for others, or for which others wait */
    uint32_t exclusive[EXACT_MAX]; /* for each of them: the roles that never run with it */
    const uint32_t *instances;     /* of each role; NULL = those of the job file */
    struct job_demand max;
    uint32_t most_memory, most_gpus; /* bits of the roles in the set that needs most */
};

/* sum + each * n, but at most UINT32_MAX: a huge request must not wrap round to a small one. */
static uint32_t plus_each(uint32_t sum, uint32_t each, uint32_t n)
{
    uint64_t v = sum + (uint64_t)each * n;
    return v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
}

static void add_to(struct job_demand *d, const struct role_spec *r, uint32_t instances)
{
    uint32_t n = instances + r->spares;
    /* No overflow: 64 TiB for each of 101,000 containers fits. */
    d->memory_mib += r->memory_mib * n;
    d->gpus = plus_each(d->gpus, r->gpus, n);
    d->vcores = plus_each(d->vcores, r->vcores, n);
    d->n_containers += n;
}

static void try_sets(struct peak *p, size_t i, uint32_t taken, struct job_demand sum)
{
    if (i == p->n) {
        if (sum.memory_mib > p->max.memory_mib)
            p->most_memory = taken;
        if (sum.gpus > p->max.gpus)
            p->most_gpus = taken;
        p->max.memory_mib = MAX(p->max.memory_mib, sum.memory_mib);
        p->max.gpus = MAX(p->max.gpus, sum.gpus);
        p->max.vcores = MAX(p->max.vcores, sum.vcores);
        p->max.n_containers = MAX(p->max.n_containers, sum.n_containers);
        return;
    }
    if (!(p->exclusive[i] & taken)) {
        struct job_demand with = sum;
        size_t role = p->of[i];
        add_to(&with, &p->s->roles[role],
               p->instances ? p->instances[role] : p->s->roles[role].instances);
        try_sets(p, i + 1, taken | 1u << i, with);
    }
    if (p->exclusive[i])
        try_sets(p, i + 1, taken, sum);
}

static size_t index_of(const struct peak *p, size_t role)
{
    for (size_t i = 0; i < p->n; i++) {
        if (p->of[i] == role)
            return i;
    }
    return p->n;
}

/* Collect the roles with dependencies. false: there are more than EXACT_MAX. */
static bool find_related(struct peak *p)
{
    for (size_t i = 0; i < p->s->n_roles; i++) {
        const struct role_spec *r = &p->s->roles[i];
        for (size_t k = 0; k <= r->n_waits_for && r->n_waits_for > 0; k++) {
            size_t role = k < r->n_waits_for ? r->waits_for[k] : i;
            if (index_of(p, role) < p->n)
                continue;
            if (p->n == EXACT_MAX)
                return false;
            p->of[p->n++] = role;
        }
    }
    for (size_t i = 0; i < p->n; i++) {
        const struct role_spec *r = &p->s->roles[p->of[i]];
        for (size_t k = 0; k < r->n_waits_for; k++)
            p->exclusive[i] |= 1u << index_of(p, r->waits_for[k]);
    }
    /* Waiting is transitive: if A waits for B and B for C, A and C never run at the same time. Nor
     * do C and A, so the relation is then made symmetric. */
    for (size_t k = 0; k < p->n; k++) {
        for (size_t i = 0; i < p->n; i++)
            p->exclusive[i] |= p->exclusive[i] >> k & 1 ? p->exclusive[k] : 0;
    }
    uint32_t before[EXACT_MAX];
    memcpy(before, p->exclusive, sizeof before);
    for (size_t i = 0; i < p->n; i++) {
        for (size_t k = 0; k < p->n; k++)
            p->exclusive[i] |= before[k] >> i & 1 ? 1u << k : 0;
    }
    return true;
}

void job_spec_demand(const struct job_spec *s, struct job_demand *out)
{
    struct peak p = { .s = s };
    struct job_demand fixed = { 0 };
    bool exact = find_related(&p);
    if (s->single_node)
        add_to(&fixed, &s->am, s->am.instances);
    for (size_t i = 0; i < s->n_roles; i++) {
        if (!exact || index_of(&p, i) == p.n)
            add_to(&fixed, &s->roles[i], s->roles[i].instances);
    }
    p.max = fixed;
    if (exact)
        try_sets(&p, 0, 0, fixed);
    for (size_t i = 0; i < s->n_roles; i++) {
        p.max.largest_memory_mib = MAX(p.max.largest_memory_mib, s->roles[i].memory_mib);
        p.max.largest_gpus = MAX(p.max.largest_gpus, s->roles[i].gpus);
    }
    if (s->single_node) {
        p.max.largest_memory_mib = s->am.memory_mib;
        p.max.largest_gpus = s->am.gpus;
    }
    *out = p.max;
}

void job_spec_peak_roles(const struct job_spec *s, const uint32_t *instances, bool *counts)
{
    struct peak p = { .s = s, .instances = instances };
    bool exact = find_related(&p);
    if (exact)
        try_sets(&p, 0, 0, (struct job_demand){ 0 });
    for (size_t i = 0; i < s->n_roles; i++) {
        size_t place = exact ? index_of(&p, i) : p.n;
        counts[i] = !exact || place == p.n || ((p.most_memory | p.most_gpus) >> place & 1);
    }
}
