/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers the two requests of an arbiter: where the containers of the job are, and whether the job
 * takes another size. An arbiter of another user has only the resize key, which allows these two
 * requests (docs/decisions/0018-jobs-of-other-users.md).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"

/* The containers of a role. */
struct role_containers {
    uint32_t n;              /* instances of the role */
    uint32_t placed;         /* instances that have a container */
    bool has_ended;          /* an instance has ended */
    bool node_is_unknown;    /* the node of at least one container is unknown */
    VEC(const char *) nodes; /* the node of each container; borrowed */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int count(const struct master *m, uint32_t role, struct role_containers *out)
{
    out->n = job_role_tasks(m->job, role);
    for (uint32_t i = 0; i < out->n; i++) {
        struct slot_view v;
        uint32_t slot = job_task(m->job, role, i);
        const char *node = locations_node(m, slot);
        job_slot(m->job, slot, &v);
        out->has_ended |= v.state == SLOT_ENDED;
        if (!v.container)
            continue;
        out->placed++;
        out->node_is_unknown |= !node;
        if (node && vec_push(&out->nodes, node) < 0)
            return -ENOMEM;
    }
    if (out->nodes.n > 1)
        qsort(out->nodes.v, out->nodes.n, sizeof *out->nodes.v, by_name);
    return 0;
}

static void add_nodes(const struct role_containers *h, struct buf *out)
{
    (void)buf_adds(out, ",\"nodes\":{"); /* a failure sets out->failed */
    for (size_t i = 0, next; i < h->nodes.n; i = next) {
        for (next = i; next < h->nodes.n && str_eq(h->nodes.v[next], h->nodes.v[i]); next++)
            ;
        (void)buf_adds(out, i ? "," : "");
        (void)json_add_str(out, span_of(h->nodes.v[i]));
        (void)buf_addf(out, ":%zu", next - i);
    }
    (void)buf_adds(out, "}}");
}

static void add_ms(struct buf *out, const char *name, bool known, int64_t ms)
{
    (void)buf_addf(out, ",\"%s\":", name);
    (void)(known ? buf_addf(out, "%lld", (long long)ms) : buf_adds(out, "null"));
}

static uint32_t role_number(const struct master *m, const struct role_spec *role)
{
    return (uint32_t)(role - m->spec->roles);
}

int share_json(const struct master *m, struct buf *out)
{
    struct job_elastic x;
    struct role_containers h = { .n = 0 };
    int64_t early_ms = 0, late_ms = 0, cost_ms = 0;
    if (m->phase == MP_STARTING || m->blocked_why || !job_spec_elastic(m->spec, &x))
        return buf_adds(out, "{\"runs\":false,\"changing\":true,\"instances\":0,\"nodes\":{}}");
    int rc = count(m, role_number(m, x.role), &h);
    bool all_placed = h.n > 0 && h.placed == h.n && !h.node_is_unknown;
    bool runs = job_state(m->job) == JOB_RUNNING && all_placed;
    bool changing = job_changes_size(m->job) || h.has_ended || h.node_is_unknown;
    (void)buf_addf(out, "{\"runs\":%s,\"changing\":%s,\"instances\":%u,\"target\":%u",
                   runs ? "true" : "false", changing ? "true" : "false", h.n,
                   job_role_target(m->job, role_number(m, x.role)));
    bool is_known = job_outlook(m->job, &early_ms, &late_ms);
    add_ms(out, "left_ms", is_known, late_ms);
    is_known = job_resize_cost(m->job, &cost_ms);
    add_ms(out, "cost_ms", is_known, cost_ms);
    add_nodes(&h, out);
    vec_done(&h.nodes);
    return rc < 0 || out->failed ? -ENOMEM : 0;
}

/* May an arbiter ask for this size? The bounds in the job file decide. */
static int check_wish(const struct master *m, const Tony__SizeWish *a, struct job_elastic *x,
                      struct err *e)
{
    if (!job_spec_elastic(m->spec, x))
        return err_set(e, EPERM, "no role of the job may be resized by an arbiter");
    uint32_t least = x->fixed_containers + x->min, most = x->fixed_containers + x->max;
    if (a->n_containers < least || a->n_containers > most)
        return err_set(e, ERANGE, "the job takes %u to %u containers, not %u", least, most,
                       a->n_containers);
    return wished_nodes_check(a, a->n_containers - x->fixed_containers, e);
}

/* The size stays: the arbiter only says where the containers should be for which the job waits. */
static int ask_for_wished_nodes(struct master *m, struct err *e)
{
    return m->actions.n == 0 && m->delayed_actions.n == 0 ? wished_nodes_repeat_asks(m, e) : 0;
}

int share_wish(struct master *m, const Tony__SizeWish *a, struct err *e)
{
    struct job_elastic x;
    char why[JOB_TEXT_MAX];
    int rc = check_wish(m, a, &x, e);
    if (rc < 0)
        return rc;
    uint32_t role = role_number(m, x.role);
    rc = wished_nodes_set(m, role, a, e);
    if (rc < 0)
        return rc;
    if (a->n_nodes > 0 && !job_changes_size(m->job) &&
        job_role_tasks(m->job, role) == a->n_containers - x.fixed_containers)
        return ask_for_wished_nodes(m, e);
    (void)str_copy(why, sizeof why, a->why); /* cut, as the journal would cut it */
    AUTO(buf_done) struct buf leave = { 0 };
    if (!a->grow &&
        wished_nodes_choose_leavers(m, a->n_containers - x.fixed_containers, a, &leave) < 0)
        return err_set(e, ENOMEM, "no memory to choose the tasks that leave");
    const struct size_wish w = { .grow = a->grow,
                                 .n_containers = a->n_containers,
                                 .within_ms =
                                     (int64_t)MIN(a->deadline_ms, (uint64_t)INT32_MAX * 1000),
                                 .why = why,
                                 .saved = x.role->resize != RESIZE_RESTART, /* no work is lost */
                                 .leave = leave.len ? leave.p : NULL };
    return master_size_wish(m, &w, e);
}
